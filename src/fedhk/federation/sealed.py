"""Sealed phases: nothing but a sum over all sites reaches the server, with noise, under masks, or both.

`Sealed(phase, terms)` wraps any phase whose answer is a sum over rows. A site makes the phase's vector, rounds it to
whole numbers, adds noise, writes that down in its ledger and puts masks on it. The server adds up, takes the masks
away, and gives the total to the phase. What one row can change is stated by the phase; everything else is here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.errors import MessageError, QuorumError
from fedhk.federation.board import Board, Entry, Passing, RowEntry, Shared
from fedhk.federation.entries import Members, Population, References, Terms
from fedhk.federation.gate import SEALED, Guard, SiteEnd
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase, SumPhase, phase_named
from fedhk.federation.phases.deliver import DeliverRequest
from fedhk.federation.site import Site
from fedhk.federation.table import check_shape
from fedhk.privacy.accounting import spent
from fedhk.privacy.fixed_point import LARGEST, from_grid, to_grid
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.privacy.noise import discrete_gaussian
from fedhk.privacy.secure_server import (
    SecureServer,
    begin_sum,
    check_enough,
    check_reply,
    find_liar,
    make_requests,
    open_session,
    take_replies,
)
from fedhk.privacy.secure_site import SecureSite, SiteSession, answer_request
from fedhk.privacy.secure_sum import InputRequest, MaskReply, MaskRequest
from fedhk.privacy.sensitivity import grid_sensitivity

# Steps of the grid in what one row can change: fine enough that rounding adds nothing to the noise.
STEPS = 2.0**16

# A budget is compared with what rounding makes of it.
ROUNDING = 1e-6

# What one row may add to a number of a sum, on average over rows, before the grid overflows.
ROOM_PER_ROW = 1024.0

# Sums for which masks are agreed on at once; a new agreement takes two exchanges.
SUMS_PER_SESSION = 16

# What a site with noise or masks answers in the open: which views it has, and that its own model is made.
OPEN_PHASES = ("schema", "deliver")


# ---------------------------------------------------------------------------------------------------------- what travels


@dataclass(frozen=True)
class ExactSum:
    """Numbers are whole multiples of `step`, without noise."""

    step: float


@dataclass(frozen=True)
class NoisySum:
    """Numbers have noise: `number` is the sum within the run, `rounds` is how many rounds share the budget."""

    number: int
    rounds: int


@dataclass(frozen=True, eq=False)
class Header:
    """How a sum is asked for: under which masks, None in the open, and with which noise."""

    masks: MaskRequest | None
    noise: ExactSum | NoisySum


@dataclass(frozen=True, eq=False)
class Numbers:
    """A site's part of a sum, in the open."""

    values: NDArray[np.int64]


Reply = Numbers | MaskReply


def request_type(phase: Any) -> Any:
    """What the request of a sealed phase is: while masks are agreed on, the phase itself asks nothing."""
    return tuple[Header, phase.request_type | None]


# ------------------------------------------------------------------------------------------------------- the server's end


@dataclass(frozen=True)
class SumCount(Entry):
    """How many sums a run has asked for.

    Parameters
    ----------
    number : int
        The sum that is asked for now, counted over the whole run; ledgers of sites name it.
    done : int
        Sums of this phase that are known.
    at_risk : bool
        Whether sites may have released their numbers, under masks that end with the process.
    """

    number: int = 0
    done: int = 0
    at_risk: bool = False


@dataclass(frozen=True)
class Releases(Entry):
    """Noise multipliers of what sites have released so far, answers that did not arrive included."""

    multipliers: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class MaskSession(Passing):
    """The server's part of the agreement on masks that is under way."""

    server: SecureServer


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over sites, whose numbers are in it, and how many of these must answer under masks; 0 in the open."""

    numbers: NDArray[np.int64]
    sites: Sequence[str]
    threshold: int


@dataclass(frozen=True)
class Exact:
    """Sums without noise, on the finest grid that has room for them."""

    def describe(self, phase: SumPhase[Any], board: Board) -> ExactSum:
        """How numbers are asked for."""
        return ExactSum(grid_step(phase, board))

    def read(self, phase: SumPhase[Any], board: Board, total: Total) -> tuple[FloatArray, float]:
        """What the numbers stand for, and the standard deviation of their noise."""
        return from_grid(total.numbers, grid_step(phase, board)), 0.0

    def spend(self, phase: SumPhase[Any], board: Board) -> Board:  # noqa: ARG002
        """The board once sites have released their numbers."""
        return board


@dataclass(frozen=True)
class Noise(Exact):
    """Sums with noise.

    Parameters
    ----------
    privacy : DifferentialPrivacy
        The budget.
    rounds : int
        Rounds among which it is shared.
    """

    privacy: DifferentialPrivacy
    rounds: int

    def describe(self, phase: SumPhase[Any], board: Board) -> NoisySum:  # type: ignore[override]  # noqa: ARG002
        return NoisySum(board.get(SumCount).number, self.rounds)

    def read(self, phase: SumPhase[Any], board: Board, total: Total) -> tuple[FloatArray, float]:
        sensitivity = phase.sensitivity(phase.request(board), self.privacy.neighbours)
        step = noise_step(sensitivity)
        parts = len(total.sites) / max(total.threshold - self.privacy.colluders, 1)
        sigma = self.multiplier(phase) * grid_sensitivity(sensitivity, step, total.numbers.size) * math.sqrt(parts)
        return from_grid(total.numbers, step), step * sigma

    def spend(self, phase: SumPhase[Any], board: Board) -> Board:
        return board.put(Releases((*released(board), self.multiplier(phase))))

    def multiplier(self, phase: SumPhase[Any]) -> float:
        """Standard deviation of the noise of one release, in units of what one row can change."""
        return self.privacy.multiplier(phase.name, self.rounds)

    def affords(self, phase: SumPhase[Any], board: Board) -> bool:
        """Whether the budget allows another release; answers that were lost on the way are spent too."""
        left = self.privacy.budget - sum(multiplier**-2 for multiplier in released(board))
        return left * self.multiplier(phase) ** 2 + ROUNDING >= 1


@dataclass(frozen=True)
class OpenSums:
    """Sums of numbers that the server sees, because they have noise: one exchange each."""

    def prepare(self, board: Board, size: int) -> Board:  # noqa: ARG002
        """The board before the next exchange; a sum has `size` numbers."""
        return board

    def requests(self, board: Board) -> dict[str, MaskRequest] | None:  # noqa: ARG002
        """What sites are asked about masks; None asks all of them for numbers in the open."""
        return None

    def check(self, board: Board, size: int, reply: Reply, site: str) -> None:
        """Refuse an answer that cannot be used."""
        if not isinstance(reply, Numbers):
            raise MessageError("masked sums, where open ones were asked for", site)
        if reply.values.dtype != np.int64:
            raise MessageError(f"sums have type {reply.values.dtype}, expected int64", site)
        check_shape(reply.values, (size,), site, "sums")
        most = most_of_site(len(board.get(Members).sites))
        if np.any((reply.values > most) | (reply.values < -most)):
            raise MessageError("numbers that are too large to be added", site)

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:  # noqa: ARG002
        """The answers that go together, and why the others do not."""
        return replies, {}

    def add(self, board: Board, replies: Mapping[str, Any]) -> tuple[Board, Total | None]:
        """The board after an exchange, and the sum, where it is known by now."""
        return board, Total(np.sum([reply.values for reply in replies.values()], axis=0), list(replies), 0)

    def is_at_risk(self, board: Board) -> bool:  # noqa: ARG002
        """Whether the next answers are lost for ever where the process ends; else a site sends them again."""
        return False


@dataclass(frozen=True)
class MaskedSums(OpenSums):
    """Sums of which the server sees only the total: two exchanges each, and two for the agreement on masks."""

    masks: SecureSummation

    def prepare(self, board: Board, size: int) -> Board:
        server = next((entry.server for entry in board.find(MaskSession)), None)
        if server is None or (server.step == "ready" and not server.has_sums_left):
            sites = board.get(Members).sites
            threshold = self.masks.threshold_of(len(sites))
            server = open_session(sites, threshold, bound=most_of_site(len(sites)), sums=SUMS_PER_SESSION)
        return board.put(MaskSession(begin_sum(server, size) if server.step == "ready" else server))

    def requests(self, board: Board) -> dict[str, MaskRequest]:
        return make_requests(board.get(MaskSession).server)

    def check(self, board: Board, size: int, reply: Reply, site: str) -> None:  # noqa: ARG002
        if not isinstance(reply, MaskReply):
            raise MessageError("sums in the open, where masked ones were asked for", site)
        check_reply(board.get(MaskSession).server, reply, site)

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        server = board.get(MaskSession).server
        check_enough(server, len(replies))
        try:
            liars = find_liar(server, replies)
        except MessageError as error:
            raise QuorumError(f"{error}.") from error
        return {site: reply for site, reply in replies.items() if site not in liars}, liars

    def add(self, board: Board, replies: Mapping[str, Any]) -> tuple[Board, Total | None]:
        server = take_replies(board.get(MaskSession).server, replies)
        board = board.put(MaskSession(server))
        if server.total is None:
            return board, None
        return board, Total(server.total, sorted(server.survivors), server.terms.threshold)

    def is_at_risk(self, board: Board) -> bool:
        return board.get(MaskSession).server.step in ("input", "unmask")


@dataclass(frozen=True)
class SealedTerms:
    """How the sums of a run are sealed: with noise, under masks, or both.

    Parameters
    ----------
    noise : Noise or None
        The noise; None adds none.
    masks : SecureSummation or None
        The masks; None sends numbers in the open.
    """

    noise: Noise | None = None
    masks: SecureSummation | None = None

    @property
    def reason(self) -> str:
        """The parameter that asks for it, for errors."""
        return "secure=True" if self.noise is None else "privacy"

    @cached_property
    def rounding(self) -> Exact:
        """How numbers are rounded, and their noise."""
        return self.noise or Exact()

    @cached_property
    def transport(self) -> OpenSums:
        """How numbers come to be a sum."""
        return OpenSums() if self.masks is None else MaskedSums(self.masks)

    def seal(self, phase: SumPhase[Any]) -> Phase[Any, Any]:
        """The phase, sealed."""
        return Sealed(phase, self)

    def protect(self, terms: Terms) -> Terms:
        """What sites are told of a run first, with what protects their answers."""
        privacy: Any = None if self.noise is None else self.noise.privacy.describe()
        return replace(terms, privacy=privacy, secure=self.masks is not None)


@dataclass(frozen=True)
class Sealed(Phase[Any, Any]):
    """A phase whose answers are added up before the server sees them.

    Parameters
    ----------
    phase : SumPhase
        What is summed.
    terms : SealedTerms
        The noise, the masks, or both.
    """

    phase: SumPhase[Any]
    terms: SealedTerms

    reply_type = Reply

    @property
    def name(self) -> str:  # type: ignore[override]
        """The kind of its messages."""
        return SEALED + self.phase.name

    @property
    def request_type(self) -> Any:  # type: ignore[override]
        """What is asked, for the codec."""
        return request_type(self.phase)

    def begin(self, board: Board) -> Board:
        count = next(board.find(SumCount), SumCount())
        return self._prepare(self.phase.begin(board).put(replace(count, done=0)))

    def is_done(self, board: Board, exchanges: int) -> bool:  # noqa: ARG002
        return self.phase.is_done(board, board.get(SumCount).done)

    def participants(self, board: Board, sites: Sequence[str], participation: Participation, seed: Any) -> list[str]:  # noqa: ARG002
        asked = self.terms.transport.requests(board)
        return sorted(site for site in sites if asked is None or site in asked)

    def request(self, board: Board) -> Any:
        return self.phase.request(board)

    def requests(self, board: Board, sites: Sequence[str]) -> dict[str, Any]:
        asked = self.terms.transport.requests(board) or dict.fromkeys(sites)
        noise, inner = self.terms.rounding.describe(self.phase, board), self.phase.request(board)
        # sites that are asked the same get the same object, which is written once
        made = {
            id(masks): (Header(masks, noise), inner if masks is None or isinstance(masks, InputRequest) else None)
            for masks in asked.values()
        }
        return {site: made[id(asked[site])] for site in sites}

    @staticmethod
    def answer(site: Site, request: Any) -> Any:  # noqa: ARG004
        raise MessageError("the answer of a sealed phase is its site's guard's")

    def check(self, board: Board, reply: Reply, site: str) -> None:
        self.terms.transport.check(board, self.phase.size(board), reply, site)

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        return self.terms.transport.select(board, replies)

    def combine(self, board: Board, replies: Mapping[str, Any]) -> Board:
        board, total = self.terms.transport.add(board, replies)
        if total is not None:
            values, noise = self.terms.rounding.read(self.phase, board, total)
            count = board.get(SumCount)
            board = self.terms.rounding.spend(self.phase, board)
            board = board.put(replace(count, number=count.number + 1, done=count.done + 1))
            board = self.phase.take(self.phase.note_sites(board, total.sites), values, noise)
        return self._prepare(board)

    def resume(self, board: Board) -> Board:
        # numbers that sites have released and that did not arrive are never sent again under another mask: they are
        # spent, and the sum that takes their place has another number
        count = board.get(SumCount)
        if count.at_risk:
            board = self.terms.rounding.spend(self.phase, board).put(replace(count, number=count.number + 1))
        return self._prepare(self.phase.resume(board))

    def _prepare(self, board: Board) -> Board:
        """The board before the next exchange."""
        if not self.is_done(board, 0):
            board = self.terms.transport.prepare(board, self.phase.size(board))
        at_risk = not self.is_done(board, 0) and self.terms.transport.is_at_risk(board)
        return board.put(replace(board.get(SumCount), at_risk=at_risk))


def seal(phases: Sequence[Phase[Any, Any]], terms: SealedTerms) -> list[Phase[Any, Any]]:
    """The phases of a run in which nothing but sums over sites reaches the server."""
    return [sealed for phase in phases for sealed in phase.sealed(terms)]


def privacy_spent(board: Board, privacy: DifferentialPrivacy) -> tuple[float, float]:
    """(epsilon, delta) of all that sites have released in a run."""
    return spent(released(board), privacy.delta), privacy.delta


def released(board: Board) -> tuple[float, ...]:
    """Noise multipliers of what sites have released so far."""
    return next(board.find(Releases), Releases()).multipliers


def most_of_site(n_sites: int) -> int:
    """Largest whole number that a site may put into a sum."""
    return LARGEST // (2 * max(n_sites, 1))


def grid_step(phase: SumPhase[Any], board: Board) -> float:
    """Of what the numbers of a sum without noise are whole multiples.

    Unless the phase says it, it is the finest power of two on which the sums of so many rows certainly have room.
    """
    given = phase.grid(board)
    if given is not None:
        return given
    rows = board.get(Population).rows
    room = ROOM_PER_ROW * max(rows, 1.0) / most_of_site(len(board.get(Members).sites))
    return float(2.0 ** math.ceil(math.log2(room)))


def noise_step(sensitivity: float) -> float:
    """Of what the numbers of a sum with noise are whole multiples: a power of two far below what a row can change."""
    return float(2.0 ** math.floor(math.log2(sensitivity / STEPS)))


# --------------------------------------------------------------------------------------------------------- the site's end


@dataclass(frozen=True, eq=False)
class MaskMemory(Entry):
    """What a site keeps of the agreement on masks."""

    session: SiteSession


@dataclass(frozen=True)
class SiteMasks:
    """A site's way to send numbers: here in the open."""

    def answer(self, site: Site, asked: MaskRequest | None, numbers: NDArray[np.int64] | None) -> Reply:  # noqa: ARG002
        """What leaves the site."""
        if asked is not None or numbers is None:
            raise MessageError("the server asks for masked sums, this site was not set up for them")
        return Numbers(numbers)

    def may_repeat(self, site: Site, asked: MaskRequest | None, numbers: NDArray[np.int64]) -> bool:  # noqa: ARG002
        """Whether numbers that were released already may go out again."""
        return True

    def noise_share(self, site: Site, colluders: int) -> float:  # noqa: ARG002
        """The part of the noise that this site adds."""
        return 1.0


@dataclass(frozen=True)
class MaskedSite(SiteMasks):
    """Numbers leave the site under masks only."""

    secure: SecureSite

    def answer(self, site: Site, asked: MaskRequest | None, numbers: NDArray[np.int64] | None) -> Reply:
        if asked is None:
            raise MessageError("the server asks for sums in the open, this site gives masked ones only")
        after, reply = answer_request(self._restore(site), asked, numbers)
        if after.session is not None:
            site.keep(MaskMemory(after.session))
        return reply

    def may_repeat(self, site: Site, asked: MaskRequest | None, numbers: NDArray[np.int64]) -> bool:
        return asked is not None and self._restore(site).has_answered(asked, numbers)

    def noise_share(self, site: Site, colluders: int) -> float:
        """A share such that as many sites as a sum needs, without those that collude, add the whole noise."""
        session = self._restore(site).session
        if session is None:
            raise MessageError("asked for a masked sum before masks were agreed on")
        honest = session.terms.threshold - colluders
        if honest < 1:
            raise MessageError(
                f"colluders={colluders} leave no honest site among the {session.terms.threshold} that a sum needs"
            )
        return 1.0 / math.sqrt(honest)

    def _restore(self, site: Site) -> SecureSite:
        return replace(self.secure, session=next((kept.session for kept in site.memory.find(MaskMemory)), None))


@dataclass(frozen=True)
class SiteRounding:
    """A site's way to make whole numbers of a vector: here without noise."""

    def release(
        self,
        site: Site,
        phase: type[SumPhase[Any]],
        header: Header,
        request: Any,
        masks: SiteMasks,  # noqa: ARG002
    ) -> NDArray[np.int64]:
        """The numbers that leave the site, before masks."""
        if not isinstance(header.noise, ExactSum) or not 0 < header.noise.step < math.inf:
            raise MessageError("the server asks for sums with noise, this site was not set up for them")
        return to_grid(phase.vector(site, request), header.noise.step)


@dataclass(frozen=True)
class SiteNoise(SiteRounding):
    """Numbers leave the site with noise only, and after they are written down.

    Parameters
    ----------
    privacy : DifferentialPrivacy
        The budget of the run.
    ledger : Ledger
        What the site has released.
    """

    privacy: DifferentialPrivacy
    ledger: Ledger

    def release(
        self, site: Site, phase: type[SumPhase[Any]], header: Header, request: Any, masks: SiteMasks
    ) -> NDArray[np.int64]:
        asked = header.noise
        if not isinstance(asked, NoisySum):
            raise MessageError("the server asks for sums without noise, this site gives none")
        run = site.board.get(Terms).run
        known = self.ledger.payload(run, asked.number)
        if known is not None:
            numbers = np.frombuffer(known, np.int64)
            if not masks.may_repeat(site, header.masks, numbers):
                raise MessageError("asked to put numbers that were released already under another mask")
            return numbers
        if not all(_is_bounded(reference) for entry in site.board.find(References) for reference in entry.references):
            raise MessageError("scales with which a row could say more than the noise is sized for")
        multiplier = self._multiplier(phase.name, asked.rounds, run)
        sensitivity = phase.sensitivity(request, self.privacy.neighbours)
        if not 0 < sensitivity < math.inf:
            raise MessageError("the server asks for a sum that a row can change without bound")
        share, step = masks.noise_share(site, self.privacy.colluders), noise_step(sensitivity)
        vector = np.nan_to_num(phase.vector(_in_double(site), request), nan=0.0, posinf=0.0, neginf=0.0)
        numbers = to_grid(vector, step)
        sigma = multiplier * grid_sensitivity(sensitivity, step, numbers.size) * share
        numbers = numbers + discrete_gaussian(sigma, numbers.size)
        payload = self.ledger.record(
            run=run,
            exchange=asked.number,
            phase=phase.name,
            multiplier=multiplier,
            sensitivity=sensitivity,
            payload=numbers.tobytes(),
        )
        return np.frombuffer(payload, np.int64)

    def _multiplier(self, phase: str, rounds: int, run: str) -> float:
        """The noise of a release, if the budget allows it."""
        privacy = self.privacy
        if not 1 <= rounds <= privacy.rounds:
            allowed = f"this site's budget is for 1 to {privacy.rounds}"
            raise MessageError(f"the server speaks of {rounds} rounds, {allowed}")
        multiplier = privacy.multiplier(phase, rounds)
        spending = sum(release**-2 for release in [*self.ledger.multipliers(run), multiplier])
        if spending > privacy.budget * (1 + ROUNDING):
            raise MessageError(
                f"the privacy budget of the run, epsilon={privacy.epsilon:g}, does not allow another release"
            )
        return multiplier


@dataclass(frozen=True)
class SealedEnd:
    """A site's end of a sealed phase."""

    phase: type[SumPhase[Any]]
    rounding: SiteRounding
    masks: SiteMasks

    reply_type: Any = Reply

    @property
    def request_type(self) -> Any:
        """What is asked, for the codec."""
        return request_type(self.phase)

    def answer(self, site: Site, request: tuple[Header, Any]) -> Reply:
        """A site's part of one sum, or of the agreement on masks for it."""
        header, inner = request
        numbers = None
        if header.masks is None or isinstance(header.masks, InputRequest):
            if inner is None:
                raise MessageError("the server asks for a sum and does not say which")
            numbers = self.rounding.release(site, self.phase, header, inner, self.masks)
        return self.masks.answer(site, header.masks, numbers)


@dataclass(frozen=True)
class SealedGuard(Guard):
    """What a site lets pass in a run with noise or masks: sealed sums, which views it has, and that it has its model.

    Parameters
    ----------
    noise : SiteNoise or None
        The budget and the ledger; None where the run adds no noise.
    masks : SecureSite or None
        The site's part in masked sums; None where the run has no masks.
    """

    noise: SiteNoise | None = None
    masks: SecureSite | None = None

    def phase(self, kind: str) -> SiteEnd:
        if kind in OPEN_PHASES:
            return phase_named(kind)
        if not kind.startswith(SEALED):
            raise MessageError("the server asks for what this site only gives with noise or masks")
        phase = phase_named(kind.removeprefix(SEALED))
        if not issubclass(phase, SumPhase):
            raise MessageError("the server asks for what is no sum, this site gives sums only")
        masks = SiteMasks() if self.masks is None else MaskedSite(self.masks)
        return SealedEnd(phase, self.noise or SiteRounding(), masks)

    def admit(self, site: Site, request: Any, entries: Sequence[Shared]) -> None:
        known = [*site.board.find(Terms), *(entry for entry in entries if isinstance(entry, Terms))]
        if not known:
            raise MessageError("asked before it was told of the run; send the run's terms first")
        for terms in known:
            self._check_terms(terms, known[0])
        if self.noise is not None and any(isinstance(entry, RowEntry) for entry in entries):
            raise MessageError("what a row can change is bounded for rows as they are, not for rows that are mapped")
        if isinstance(request, DeliverRequest) and request.report:
            raise MessageError("the server asks for what this site only gives with noise or masks")

    def _check_terms(self, terms: Terms, first: Terms) -> None:
        """Refuse another run, whose budget would be its own, and terms that are not those of the site."""
        if not terms.run or terms.run != first.run:
            other = f", this site takes part in {first.run!r} and no other" if first.run else ""
            raise MessageError(f"the server speaks of run {terms.run[:50]!r}{other}")
        own: Any = None if self.noise is None else self.noise.privacy.describe()
        if (terms.privacy, terms.secure) != (own, self.masks is not None):
            raise MessageError("the terms of the run have changed; a run with others needs a new name")


def _in_double(site: Site) -> Site:
    """The site with rows in double precision: what one row can change is bounded to rounding, and float32 rounds much."""
    return replace(site, views=replace(site.views, dtype=np.dtype(np.float64)))


def _is_bounded(reference: Reference) -> bool:
    """Whether no cell of a row counts for more than 1."""
    numbers = np.concatenate([reference.shift, reference.low, reference.span])
    known = reference.heat_coef in ("uniform", "minmax")
    return bool(known and np.isfinite(numbers).all() and np.all(reference.span > 0))
