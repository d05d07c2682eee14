"""The server's part of a secure sum: it passes on keys and envelopes, adds masked numbers, and removes the masks.

Pure steps from state to state, save for the session's random name. `fedhk.privacy.secure_sum` says what the server can
learn from all that it sees.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import FedHKError, MessageError, QuorumError
from fedhk.privacy import shamir
from fedhk.privacy.fixed_point import WORDS, most_of_site, most_of_word
from fedhk.privacy.masks import PAIR_KEY_BYTES, MaskArray, add_mask, add_pair_masks, key_prints, lock_keys, self_mask
from fedhk.privacy.secure_graph import PartnerGraph, draw_graph
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
    """The server's state of a session."""

    terms: MaskTerms
    sites: tuple[str, ...]  # who is asked for keys
    step: str = "keys"  # what sites are asked next, a key of `REPLIES`; "ready" where `begin_sum` is next
    roster: Roster | None = field(default=None, repr=False)
    seed: str = ""  # digest of terms, names and keys
    envelopes: dict[str, ByteArray] = field(default_factory=dict, repr=False)  # by sender, for its neighbourhood
    locks: dict[str, ByteArray] = field(default_factory=dict, repr=False)  # by owner, its keys with its neighbourhood
    served: frozenset[str] = frozenset()  # sites that have certainly got their envelopes
    number: int = -1  # the sum that is under way or was the last, and how many numbers it has
    length: int = 0
    word: int = 8  # bytes of each
    survivors: tuple[str, ...] = ()  # whose numbers are in it
    masked: MaskArray = field(default_factory=lambda: np.zeros(0, np.uint64), repr=False)  # their masked numbers, added
    signatures: dict[str, ByteArray] = field(default_factory=dict, repr=False)  # under the list of survivors, by site
    total: Numbers | None = field(default=None, repr=False)  # the last sum that was opened

    @cached_property
    def participants(self) -> tuple[str, ...]:
        """The sites whose shares the others can have; masks are made among them."""
        return tuple(sorted(self.envelopes))

    @cached_property
    def taking_part(self) -> NDArray[np.bool_]:
        """For each site of the roster, whether it is a participant."""
        return self.are(self.participants)

    @property
    def keys(self) -> Roster:
        """The public keys, after the step in which they came."""
        if self.roster is None:
            raise ValueError("the session has no keys yet")
        return self.roster

    @property
    def graph(self) -> PartnerGraph:
        """Graph of the partners of each site."""
        return draw_graph(len(self.keys.names), self.terms.threshold, self.seed)

    @cached_property
    def asked(self) -> dict[str, None]:
        """Who is asked next, in the order of names."""
        if self.step in ("keys", "shares"):
            return dict.fromkeys(self.sites if self.roster is None else self.roster.names)
        if self.step == "input":
            return dict.fromkeys(self.participants)
        return dict.fromkeys(self.signatures or self.survivors)

    def are(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """For each site of the roster, whether it is among some."""
        return np.unpackbits(self.keys.mark(names), count=len(self.keys.names)).astype(bool)

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
    """Return the next request to each site; sites with the same request get the same object."""
    session, number = server.terms.session, server.number
    if server.step == "keys":
        return dict.fromkeys(server.asked, KeysRequest(server.terms))
    if server.step == "shares":
        return dict.fromkeys(server.asked, SharesRequest(session, server.keys))
    if server.step == "input":
        plain = InputRequest(session, number, server.length, word=server.word)
        marks = np.packbits(server.taking_part)
        return {
            site: plain
            if site in server.served
            else replace(plain, participants=marks, envelopes=_envelopes_for(server, site))
            for site in server.asked
        }
    if server.step not in OF_SUM:
        raise ValueError(f"nothing is to be asked at the step {server.step!r}; begin a sum first")
    survivors = server.keys.mark(server.survivors)
    if server.step == "confirm":
        return dict.fromkeys(server.asked, ConfirmRequest(session, number, survivors))
    request = UnmaskRequest(session, number, survivors)
    if server.signatures:
        signatures = np.stack(list(server.signatures.values()))
        request = replace(request, signers=tuple(server.signatures), signatures=signatures)
    return dict.fromkeys(server.asked, request)


def _envelopes_for(server: SecureServer, site: str) -> ByteArray:
    """The envelopes for a site, which has not shown yet that it got them: one from each participant near it."""
    graph, names = server.graph, server.keys.names
    places = graph.places(server.keys.index[site])
    senders, rows = graph.members[places], graph.back[places]
    rows = rows - graph.starts[senders]  # where the site is in the neighbourhood of each
    pairs = zip(senders.tolist(), rows.tolist(), strict=True)
    return np.stack([server.envelopes[names[sender]][row] for sender, row in pairs if server.taking_part[sender]])


def check_reply(server: SecureServer, reply: MaskReply, site: str) -> None:
    """Refuse, by MessageError, an answer that is not to what this site was asked."""
    if site not in server.asked:
        raise MessageError(f"it was not asked for the step {server.step!r}", site)
    if type(reply) is not REPLIES[server.step]:
        raise MessageError(f"{type(reply).__name__!r} is no answer to the step {server.step!r}", site)
    _check_equal("session", reply.session, server.terms.session, site)
    if isinstance(reply, MaskedNumbers | Confirmation | Shares):
        _check_equal("sum", reply.number, server.number, site)
    sums, size, present = server.terms.sums, 0, 0
    if isinstance(reply, Envelopes | Shares):
        near = server.graph.near(server.keys.index[site])
        size, present = near.size, int(server.taking_part[near].sum())
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        "cipher_key": (np.uint8, (KEY_BYTES,)),
        "signature": (np.uint8, (SIGNATURE_BYTES,)),
        "envelopes": (np.uint8, (size, server.terms.envelope_bytes)),
        "locks": (np.uint8, (size, sums, 2 * PAIR_KEY_BYTES)),
        "masked": (f"u{server.word}", (server.length,)),
        "shares": (np.uint8, (present, shamir.SHARE_BYTES)),
    }
    for name, (dtype, shape) in expected.items():
        array = vars(reply).get(name)
        if array is not None and not has_form(array, dtype, shape):
            found = f"{array.dtype} of shape {array.shape}"
            raise MessageError(f"{name!r} is {found}, expected {np.dtype(dtype)} of shape {shape}", site)


def _check_equal(name: str, found: Any, wanted: Any, site: str) -> None:
    if found != wanted:
        raise MessageError(f"{name} is {str(found)[:200]!r}, expected {str(wanted)!r}", site)


def check_enough(server: SecureServer, answered: Collection[str]) -> None:
    """Refuse, by ThresholdError, too few answers of all sites or of a neighbourhood, or parts without a link.

    Nothing is lost by that but the sum: `begin_sum` can go on, where keys are agreed.
    """
    of_sum = f" of sum {server.number}" if server.step in OF_SUM else ""
    given_up, needed = f"step {server.step!r}{of_sum} is given up", server.terms.threshold
    if len(answered) < needed:
        raise ThresholdError(f"{given_up}: {len(answered)} sites answered, {needed} are needed.")
    if server.step == "keys" or server.graph.is_complete:
        return
    graph, there = server.graph, server.are(answered)
    owners = there if server.step == "shares" else server.taking_part
    lacking = np.flatnonzero(owners & (graph.present(there) < graph.needed))
    if lacking.size:
        site = int(lacking[0])
        raise ThresholdError(
            f"{given_up}: {graph.present(there)[site]} of the {graph.near(site).size} sites that share the secrets of "
            f"{server.keys.names[site]!r} answered, {graph.needed[site]} are needed."
        )
    if server.step == "input" and (parts := graph.parts(there)) > 1:
        raise ThresholdError(f"{given_up}: the sites that answered are in {parts} parts that have no masks in common.")


def find_liar(server: SecureServer, replies: Mapping[str, Any]) -> dict[str, str]:
    """At the step "unmask", the site whose shares fit nobody's, with the reason; of others there is nothing to find.

    Raises
    ------
    MessageError
        Naming a participant whose secret cannot be had.
    """
    if server.step != "unmask":
        return {}
    secrets_of = _recover_all(server, tuple(replies.items()))
    faults = {owner: found for owner, found in secrets_of.items() if isinstance(found, MessageError)}
    if not faults:
        return {}
    held = _held_shares(server, replies)
    suspects = set.intersection(*(set(held[owner]) for owner in faults))
    for liar in sorted(suspects):
        try:
            for owner in faults:
                _recover(server, owner, {site: share for site, share in held[owner].items() if site != liar})
        except MessageError:
            continue
        return {server.keys.names[liar]: LIE}
    raise next(iter(faults.values()))


def recover_secrets(server: SecureServer, replies: Mapping[str, Shares]) -> dict[str, bytes]:
    """Each participant's seed or lock, from the shares of its neighbourhood."""
    found = _recover_all(server, tuple(replies.items()))
    for secret in found.values():
        if isinstance(secret, MessageError):
            raise secret
    return {server.keys.names[owner]: secret for owner, secret in found.items() if not isinstance(secret, MessageError)}


@lru_cache(maxsize=1)
def _recover_all(server: SecureServer, replies: tuple[tuple[str, Shares], ...]) -> dict[int, bytes | MessageError]:
    """Each participant's secret, or why it cannot be had; asked for liars first, and then for the sum."""
    found: dict[int, bytes | MessageError] = {}
    for owner, shares in _held_shares(server, dict(replies)).items():
        try:
            found[owner] = _recover(server, owner, shares)
        except MessageError as error:
            found[owner] = error
    return found


def _held_shares(server: SecureServer, replies: Mapping[str, Shares]) -> dict[int, dict[int, bytes]]:
    """For each participant the shares of its secret, by who gave them."""
    graph, index = server.graph, server.keys.index
    owners = [index[name] for name in server.participants]
    held: dict[int, dict[int, bytes]] = {owner: {} for owner in owners}
    for site, reply in replies.items():
        near = [owner for owner in graph.near(index[site]).tolist() if owner in held]
        for owner, share in zip(near, reply.shares, strict=True):
            held[owner][index[site]] = share.tobytes()
    return held


def _recover(server: SecureServer, owner: int, shares: Mapping[int, bytes]) -> bytes:
    """Recover the secret of one site."""
    try:
        return shamir.recover({site + 1: share for site, share in shares.items()}, int(server.graph.needed[owner]))
    except shamir.ShareError as error:
        names = server.keys.names
        givers = ", ".join(repr(names[site]) for site in shares)
        reason = f"its mask cannot be taken away: {error}; it gave out wrong shares, or one of {givers} did not pass "
        raise MessageError(reason + "on what it got", names[owner]) from error


def take_replies(
    server: SecureServer, replies: Mapping[str, Any], answered: Sequence[str] | None = None
) -> SecureServer:
    """Process the checked replies of one exchange.

    Parameters
    ----------
    server : SecureServer
        The server before.
    replies : mapping of str to MaskReply
        In the order of site names, at least as many as the threshold, without liars.
    answered : sequence of str, optional
        Whose numbers are in the replies to the step "input", where some are sums; by default one site's in each.

    Returns
    -------
    SecureServer
        The server after. After the step "unmask" it is "ready", and `total` is the sum over `survivors`.

    Raises
    ------
    MessageError
        If a site locked away other keys than it has with its partners.
    OutOfRangeError
        If the sum is not one of numbers within the bound.
    """
    if server.step == "keys":
        keys, signatures = zip(*((reply.cipher_key, reply.signature) for reply in replies.values()), strict=True)
        roster = Roster(tuple(replies), np.stack(keys), np.stack(signatures))
        return replace(server, step="shares", roster=roster, seed=roster.context(server.terms))
    if server.step == "shares":
        envelopes = {site: reply.envelopes for site, reply in replies.items()}
        locks = {site: reply.locks for site, reply in replies.items()}
        return replace(server, step="ready", envelopes=envelopes, locks=locks)
    if server.step == "input":
        masked = np.zeros(server.length, f"u{server.word}")
        for reply in replies.values():
            add_mask(masked, reply.masked)
        survivors = tuple(replies if answered is None else answered)
        served = server.served | set(survivors)
        step = "confirm" if server.keys.is_signed else "unmask"
        return replace(server, step=step, survivors=survivors, served=served, masked=masked)
    if server.step == "confirm":
        return replace(server, step="unmask", signatures={site: reply.signature for site, reply in replies.items()})
    total = _remove_masks(server, recover_secrets(server, replies))
    most = len(server.survivors) * most_of_site(len(server.keys.names))
    _check_range(total, most if server.word == max(WORDS) else most_of_word(server.word))
    return replace(server, step="ready", total=total)


def _remove_masks(server: SecureServer, secret_of: Mapping[str, bytes]) -> Numbers:
    """Compute the sum of the survivors, without their own masks and their masks with sites that dropped out."""
    names, number, survivors = server.keys.names, server.number, set(server.survivors)
    context = server.keys.context(server.terms, server.participants)
    total = server.masked.copy()
    for site, secret in secret_of.items():
        if site in survivors:
            own = self_mask(secret, site, total.size, context=context, number=number, word=server.word)
            add_mask(total, own, sign=-1)
            continue
        place = server.keys.index[site]
        locked = server.locks[site][:, number, :PAIR_KEY_BYTES]
        keys = lock_keys(secret, locked, site, context=server.seed, number=number)
        rows = server.graph.back[server.graph.places(place)] - server.graph.starts[server.graph.near(place)]
        opened = {}
        for other, row, key in zip(server.graph.near(place).tolist(), rows.tolist(), keys, strict=True):
            if names[other] in survivors:
                known = server.locks[names[other]][row, number, PAIR_KEY_BYTES:]
                if not np.array_equal(key_prints(key), known):
                    raise MessageError("the shares that it gave the other sites are not of its mask keys", site)
                opened[names[other]] = key.tobytes()
        # at the survivors the masks have the other sign, so adding takes them away
        add_pair_masks(total, opened, site, context=context, number=number)
    return total.view(f"i{server.word}").astype(np.int64)


def _check_range(sums: Numbers, limit: int) -> None:
    """Refuse a sum that numbers within the bound cannot have."""
    if sums.size and not -limit <= int(sums.min()) <= int(sums.max()) <= limit:
        raise OutOfRangeError(
            f"the sum has numbers from {sums.min()} to {sums.max()}, beyond {limit} in size: a site sent what is no "
            "masked number, or the sites did not all see the same participants"
        )
