"""How numbers of sites are added up, in the open or under masks: the server's end and the site's end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError, QuorumError, Rule
from fedhk.federation.board import Board, Entry, Passing
from fedhk.federation.entries import Members, Terms
from fedhk.federation.sealed.messages import Numbers, Reply, Total
from fedhk.federation.several import list_sites
from fedhk.federation.site import Site
from fedhk.federation.table import check_shape
from fedhk.privacy.fixed_point import most_of_site
from fedhk.privacy.mechanism import ChoiceError, DifferentialPrivacy, SecureSummation
from fedhk.privacy.secure_server import (
    OF_SUM,
    SecureServer,
    begin_sum,
    check_enough,
    check_reply,
    find_liar,
    make_requests,
    open_session,
    take_replies,
)
from fedhk.privacy.secure_site import OUT_OF_ORDER, SecureSite, SiteSession, answer_request
from fedhk.privacy.secure_sum import MaskReply, MaskRequest

# Sums for which masks are agreed on at once; a new agreement takes two exchanges.
SUMS_PER_SESSION = 16

# Refusals of a site: one constant text per rule.
NO_MASKS = Rule("the server asks for masked sums, this site was not set up for them")
MASKS_ONLY = Rule("the server asks for sums in the open, this site gives masked ones only")
NOBODY_HONEST = Rule("the colluders of the budget leave no honest site among those that a sum needs")

# Computes the numbers of a sum; a site calls it after all checks have passed.
Release = Callable[[], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class MaskSession(Passing):
    """The server's state of the current agreement on masks."""

    server: SecureServer


@dataclass(frozen=True)
class OpenSums:
    """Sums of numbers that the server may see, because they have noise. Each takes one exchange."""

    def prepare(self, board: Board, size: int, word: int) -> Board:
        """Return the board before the next exchange; a sum has `size` numbers of `word` bytes under masks."""
        return board

    def requests(self, board: Board) -> dict[str, MaskRequest] | None:
        """Return the requests about masks; None asks all sites for numbers in the open."""
        return None

    def check(self, board: Board, size: int, reply: Reply, site: str) -> None:
        """Refuse a reply that cannot be used."""
        if not isinstance(reply, Numbers):
            raise MessageError("masked sums, where open ones were asked for", site)
        if reply.values.dtype not in (np.int32, np.int64):
            raise MessageError(f"sums have type {reply.values.dtype}, expected int32 or int64", site)
        check_shape(reply.values, (size,), site, "sums")
        most = most_of_site(len(board.get(Members).sites))
        if np.any((reply.values > most) | (reply.values < -most)):
            raise MessageError("numbers that are too large to be added", site)

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the replies that can be combined, and why the others cannot."""
        return replies, {}

    def add(self, board: Board, replies: Mapping[str, Any]) -> tuple[Board, Total | None]:
        """Return the board after an exchange, and the sum if it is known by then."""
        return board, Total(
            np.sum([reply.values for reply in replies.values()], axis=0, dtype=np.int64), list(replies), 0
        )

    def adds(self, board: Board) -> bool:
        """Tell whether the next replies may come added up."""
        return False

    def is_at_risk(self, board: Board) -> bool:
        """Tell whether the next replies are lost if the process ends; else a site sends them again."""
        return False


@dataclass(frozen=True)
class MaskedSums(OpenSums):
    """Sums of which the server sees only the total. Each takes two or three exchanges, and two to agree on masks."""

    masks: SecureSummation

    def prepare(self, board: Board, size: int, word: int) -> Board:
        server = next((entry.server for entry in board.find(MaskSession)), None)
        if server is None or (server.step == "ready" and not server.has_sums_left):
            sites = board.get(Members).sites
            try:
                threshold = self.masks.threshold_of(len(sites))
            except ChoiceError as error:  # all sites that were there before the run were enough: some have refused
                raise QuorumError(str(error)) from error
            server = open_session(sites, threshold, sums=SUMS_PER_SESSION)
        return board.put(MaskSession(begin_sum(server, size, word) if server.step == "ready" else server))

    def requests(self, board: Board) -> dict[str, MaskRequest]:
        return make_requests(board.get(MaskSession).server)

    def check(self, board: Board, size: int, reply: Reply, site: str) -> None:
        if not isinstance(reply, MaskReply):
            raise MessageError("sums in the open, where masked ones were asked for", site)
        for name in list_sites([site]):
            check_reply(board.get(MaskSession).server, reply, name)

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        server = board.get(MaskSession).server
        check_enough(server, list_sites(replies))
        try:
            liars = find_liar(server, replies)
        except MessageError as error:
            raise QuorumError(f"{error}.") from error
        return {site: reply for site, reply in replies.items() if site not in liars}, liars

    def add(self, board: Board, replies: Mapping[str, Any]) -> tuple[Board, Total | None]:
        server = take_replies(board.get(MaskSession).server, replies, list_sites(replies))
        board = board.put(MaskSession(server))
        if server.total is None:
            return board, None
        sharers = server.terms.threshold if self.masks.shared_noise else 0
        return board, Total(server.total, sorted(server.survivors), sharers)

    def adds(self, board: Board) -> bool:
        return board.get(MaskSession).server.step == "input"

    def is_at_risk(self, board: Board) -> bool:
        return board.get(MaskSession).server.step in OF_SUM


@dataclass(frozen=True, eq=False)
class MaskMemory(Entry):
    """What a site keeps of the agreement on masks."""

    session: SiteSession


@dataclass(frozen=True)
class SiteMasks:
    """How a site sends numbers: here in the open."""

    keeps_numbers: ClassVar[bool] = True
    """Whether numbers are kept, to be sent again; in the open they can be, since they have all their noise."""

    def answer(self, site: Site, asked: MaskRequest | None, release: Release) -> Reply:
        """Make the reply that leaves the site."""
        if asked is not None:
            raise MessageError(NO_MASKS)
        return Numbers.of(release())

    def noise_share(self, site: Site, privacy: DifferentialPrivacy) -> float:
        """Return the share of the noise that this site adds."""
        return 1.0


@dataclass(frozen=True)
class MaskedSite(SiteMasks):
    """Sends numbers under masks only. They have a share of the noise, so no file keeps them without masks.

    Parameters
    ----------
    secure : SecureSite
        The site's part in masked sums.
    """

    keeps_numbers: ClassVar[bool] = False

    secure: SecureSite

    def answer(self, site: Site, asked: MaskRequest | None, release: Release) -> Reply:
        if asked is None:
            raise MessageError(MASKS_ONLY)
        after, reply = answer_request(self._restore(site), asked, release)
        if after.session is not None:
            site.keep(MaskMemory(after.session))
        return reply

    def noise_share(self, site: Site, privacy: DifferentialPrivacy) -> float:
        """Return a share such that the fewest sites of a sum, without those that collude, add the whole noise."""
        if not site.board.get(Terms).shared_noise:
            return 1.0
        session = self._restore(site).session
        if session is None:
            raise MessageError(OUT_OF_ORDER)
        honest = session.terms.threshold - privacy.colluders
        if honest < 1:
            raise MessageError(NOBODY_HONEST)
        return 1.0 / math.sqrt(honest)

    def _restore(self, site: Site) -> SecureSite:
        return replace(self.secure, session=next((kept.session for kept in site.memory.find(MaskMemory)), None))
