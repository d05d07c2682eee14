"""What the server does in a secure sum: it carries keys and envelopes, adds masked numbers, and takes the masks away.

Pure steps from state to state, save for the session's random name. `fedhk.privacy.secure_sum` says what the server can
learn from all that it sees.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import FedHKError, MessageError, QuorumError
from fedhk.privacy import shamir
from fedhk.privacy._lazy import primitives
from fedhk.privacy.fixed_point import WORDS, most_of_site, most_of_word
from fedhk.privacy.masks import MaskArray, add_mask, pair_mask, self_mask
from fedhk.privacy.secure_sum import (
    HALF,
    KEY_BYTES,
    SIGNATURE_BYTES,
    Advert,
    ByteArray,
    Confirmation,
    ConfirmRequest,
    Envelopes,
    InputRequest,
    KeysRequest,
    MaskedNumbers,
    MaskReply,
    MaskRequest,
    MaskTerms,
    Roster,
    Shares,
    SharesRequest,
    UnmaskRequest,
    has_form,
)

Numbers = NDArray[np.int64]

REPLIES: dict[str, type[MaskReply]] = {
    "keys": Advert,
    "shares": Envelopes,
    "input": MaskedNumbers,
    "confirm": Confirmation,
    "unmask": Shares,
}
"""What sites answer, step by step; all but the first two steps are repeated for every sum of a session."""

OF_SUM = ("input", "confirm", "unmask")
"""The steps of one sum."""

# What the server says of a site whose shares contradict those of all others.
LIE = "the shares that it gave do not fit those of the others"


class ThresholdError(QuorumError):
    """Too few sites are left for a sum to be opened; nothing of it is known to anybody."""


class OutOfRangeError(FedHKError, OverflowError):
    """A sum that numbers within the bound cannot have."""


@dataclass(frozen=True, eq=False)
class SecureServer:
    """What the server keeps of a session."""

    terms: MaskTerms
    sites: tuple[str, ...]  # who is asked for keys
    step: str = "keys"  # what sites are asked next, a key of `REPLIES`; "ready" where `begin_sum` is next
    roster: Roster | None = field(default=None, repr=False)
    envelopes: dict[str, ByteArray] = field(default_factory=dict, repr=False)  # by sender; row i is for site i
    served: frozenset[str] = frozenset()  # sites that have certainly got their envelopes
    number: int = -1  # the sum that is under way or was the last, and how many numbers it has
    length: int = 0
    word: int = 8  # bytes of each
    survivors: tuple[str, ...] = ()  # whose numbers are in it
    masked: MaskArray = field(default_factory=lambda: np.zeros(0, np.uint64), repr=False)  # their masked numbers, added
    signatures: dict[str, ByteArray] = field(default_factory=dict, repr=False)  # under the list of survivors, by site
    total: Numbers | None = field(default=None, repr=False)  # the last sum that was opened

    @property
    def participants(self) -> tuple[str, ...]:
        """The sites whose shares the others can have; masks are made among them."""
        return tuple(sorted(self.envelopes))

    @property
    def keys(self) -> Roster:
        """The public keys, after the step in which they came."""
        if self.roster is None:
            raise ValueError("the session has no keys yet")
        return self.roster

    @property
    def has_sums_left(self) -> bool:
        """Whether masks for another sum are agreed on."""
        return self.number + 1 < self.terms.sums


def open_session(sites: Iterable[str], threshold: int, *, sums: int = 1, session: str | None = None) -> SecureServer:
    """A new session: keys and shares are agreed in two exchanges, then each sum takes two, or three with signed keys.

    Parameters
    ----------
    sites : iterable of str
        Who is asked.
    threshold : int
        How many must answer each time: more than half of the sites. Sites that are elsewhere demand more than two
        thirds, which `default_threshold` gives.
    sums : int, default=1
        For how many sums keys and shares are agreed at once.
    session : str, optional
        A name that is never used twice; random by default.
    """
    names = tuple(sorted(set(sites)))
    terms = MaskTerms(secrets.token_hex(16) if session is None else session, threshold, sums)
    if not terms.is_enough(len(names), HALF):
        raise ValueError(
            f"threshold={threshold} must be more than half of the {len(names)} sites, and no more than all"
        )
    return SecureServer(terms, names)


def begin_sum(server: SecureServer, length: int, word: int = 8) -> SecureServer:
    """Go on to the next sum of a session, whether or not the one before could be opened; a number has `word` bytes.

    A sum that was given up is never asked for again: its masks are spent.

    Raises
    ------
    ValueError
        If the session has no keys yet or no sums left; open a new one then.
    """
    if server.step not in ("ready", *OF_SUM):
        raise ValueError(f"the session is at the step {server.step!r}; keys and shares come before a sum")
    if not server.has_sums_left:
        raise ValueError(f"all {server.terms.sums} sums of the session are used; open a new session")
    fresh = replace(server, survivors=(), signatures={}, total=None)
    return replace(fresh, step="input", number=server.number + 1, length=length, word=word)


def make_requests(server: SecureServer) -> dict[str, MaskRequest]:
    """What each site is asked next; sites that are asked the same get the same object."""
    session, number, survivors = server.terms.session, server.number, server.survivors
    if server.step == "keys":
        return dict.fromkeys(server.sites, KeysRequest(server.terms))
    if server.step == "shares":
        return dict.fromkeys(server.keys.names, SharesRequest(session, server.keys))
    if server.step == "input":
        plain = InputRequest(session, number, server.length, word=server.word)
        return {
            site: plain if site in server.served else _with_envelopes(server, plain, site)
            for site in server.participants
        }
    if server.step == "confirm":
        return dict.fromkeys(survivors, ConfirmRequest(session, number, survivors))
    if server.step == "unmask":
        request, signers = UnmaskRequest(session, number, survivors), tuple(server.signatures)
        if signers:
            request = replace(request, signers=signers, signatures=np.stack(list(server.signatures.values())))
        return dict.fromkeys(signers or survivors, request)
    raise ValueError(f"nothing is to be asked at the step {server.step!r}; begin a sum first")


def _with_envelopes(server: SecureServer, request: InputRequest, site: str) -> InputRequest:
    """The request with the envelopes for a site, which has not shown yet that it got them."""
    row = server.keys.names.index(site)
    envelopes = np.stack([server.envelopes[sender][row] for sender in server.participants])
    return replace(request, participants=server.participants, envelopes=envelopes)


def check_reply(server: SecureServer, reply: MaskReply, site: str) -> None:
    """Refuse, by MessageError, an answer that is not to what this site was asked."""
    if site not in make_requests(server):
        raise MessageError(f"it was not asked for the step {server.step!r}", site)
    if type(reply) is not REPLIES[server.step]:
        raise MessageError(f"{type(reply).__name__!r} is no answer to the step {server.step!r}", site)
    _check_equal("session", reply.session, server.terms.session, site)
    if isinstance(reply, MaskedNumbers | Confirmation | Shares):
        _check_equal("sum", reply.number, server.number, site)
    sums, n = server.terms.sums, 0 if server.roster is None else len(server.roster.names)
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        "cipher_key": (np.uint8, (KEY_BYTES,)),
        "mask_keys": (np.uint8, (sums, KEY_BYTES)),
        "signature": (np.uint8, (SIGNATURE_BYTES,)),
        "envelopes": (np.uint8, (n, server.terms.envelope_bytes)),
        "masked": (f"u{server.word}", (server.length,)),
        "shares": (np.uint8, (len(server.envelopes), shamir.SHARE_BYTES)),
    }
    for name, (dtype, shape) in expected.items():
        array = vars(reply).get(name)
        if array is not None and not has_form(array, dtype, shape):
            found = f"{array.dtype} of shape {array.shape}"
            raise MessageError(f"{name!r} is {found}, expected {np.dtype(dtype)} of shape {shape}", site)


def _check_equal(name: str, found: Any, wanted: Any, site: str) -> None:
    if found != wanted:
        raise MessageError(f"{name} is {str(found)[:200]!r}, expected {str(wanted)!r}", site)


def check_enough(server: SecureServer, present: int) -> None:
    """Refuse, by ThresholdError, fewer answers than the threshold; `begin_sum` can go on, where keys are agreed."""
    needed = server.terms.threshold
    if present < needed:
        of_sum = f" of sum {server.number}" if server.step in OF_SUM else ""
        raise ThresholdError(
            f"step {server.step!r}{of_sum} is given up: {present} sites answered, {needed} are needed."
        )


def find_liar(server: SecureServer, replies: Mapping[str, Any]) -> dict[str, str]:
    """At the step "unmask", the site whose shares fit nobody's, with the reason; of others there is nothing to find.

    Raises
    ------
    MessageError
        Naming a participant whose secret cannot be had.
    """
    if server.step != "unmask":
        return {}
    faults = []
    for liar in (None, *replies):
        trusted = {site: reply for site, reply in replies.items() if site != liar}
        if len(trusted) < server.terms.threshold:
            break
        try:
            recover_secrets(server, trusted)
        except MessageError as error:
            faults.append(error)
        else:
            return {} if liar is None else {liar: LIE}
    raise faults[0]


def recover_secrets(server: SecureServer, replies: Mapping[str, Shares]) -> dict[str, bytes]:
    """Each participant's seed or mask key, from the shares of the sites that answered."""
    points = {site: server.keys.names.index(site) + 1 for site in replies}
    secret_of = {}
    for row, owner in enumerate(server.participants):
        of_owner = {points[site]: bytes(reply.shares[row]) for site, reply in replies.items()}
        try:
            secret_of[owner] = shamir.recover(of_owner, server.terms.threshold)
        except shamir.ShareError as error:
            givers = ", ".join(repr(site) for site in replies)
            reason = (
                f"its mask cannot be taken away: {error}; it gave out wrong shares, or one of {givers} did not pass "
            )
            raise MessageError(reason + "on what it got", owner) from error
    return secret_of


def take_replies(server: SecureServer, replies: Mapping[str, Any]) -> SecureServer:
    """Take the answers of one exchange, which have been checked.

    Parameters
    ----------
    server : SecureServer
        The server before.
    replies : mapping of str to MaskReply
        In the order of site names, at least as many as the threshold, without liars.

    Returns
    -------
    SecureServer
        The server after. After the step "unmask" it is "ready", and `total` is the sum over `survivors`.

    Raises
    ------
    MessageError
        If a site shared another mask key than the one that it made known.
    OutOfRangeError
        If the sum is not one of numbers within the bound.
    """
    if server.step == "keys":
        parts = zip(*((r.cipher_key, r.mask_keys, r.signature) for r in replies.values()), strict=True)
        return replace(server, step="shares", roster=Roster(tuple(replies), *(np.stack(keys) for keys in parts)))
    if server.step == "shares":
        return replace(server, step="ready", envelopes={site: reply.envelopes for site, reply in replies.items()})
    if server.step == "input":
        masked = np.zeros(server.length, f"u{server.word}")
        for reply in replies.values():
            add_mask(masked, reply.masked)
        served = server.served | replies.keys()
        step = "confirm" if server.keys.is_signed else "unmask"
        return replace(server, step=step, survivors=tuple(replies), served=served, masked=masked)
    if server.step == "confirm":
        return replace(server, step="unmask", signatures={site: reply.signature for site, reply in replies.items()})
    total = _remove_masks(server, recover_secrets(server, replies))
    most = len(server.survivors) * most_of_site(len(server.keys.names))
    _check_range(total, most if server.word == max(WORDS) else most_of_word(server.word))
    return replace(server, step="ready", total=total)


def _remove_masks(server: SecureServer, secret_of: Mapping[str, bytes]) -> Numbers:
    """The sum of the survivors: without their own masks, and without their masks with sites that dropped out."""
    keys, number, survivors = server.keys, server.number, server.survivors
    context = keys.context(server.terms, server.participants)
    of_sum: Any = {"context": context, "number": number, "word": server.word}
    total = server.masked.copy()
    length = total.size
    for site, secret in secret_of.items():
        if site in survivors:
            add_mask(total, self_mask(secret, site, length, **of_sum), sign=-1)
            continue
        if primitives.public_key(secret) != keys.mask_key(site, number):
            raise MessageError("the shares that it gave the other sites are not of its mask key", site)
        for other in survivors:
            # at the survivor the mask has the other sign, so adding takes it away
            key = keys.mask_key(other, number)
            add_mask(total, pair_mask(secret, key, site, other, length, **of_sum))
    return total.view(f"i{server.word}").astype(np.int64)


def _check_range(sums: Numbers, limit: int) -> None:
    """Refuse a sum that numbers within the bound cannot have."""
    if sums.size and not -limit <= int(sums.min()) <= int(sums.max()) <= limit:
        raise OutOfRangeError(
            f"the sum has numbers from {sums.min()} to {sums.max()}, beyond {limit} in size: a site sent what is no "
            "masked number, or the sites did not all see the same participants"
        )
