"""What a site does in a secure sum: four steps, each a pure function of what the site keeps and what it is asked.

Only fresh secrets are not a function of these: they come from the operating system. A step is answered once. The same
question again gets the same answer; another question at the same place is refused. For this to hold, the state that a
step returns must be kept before its reply leaves. `fedhk.privacy.secure_sum` says what the protocol hides and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError
from fedhk.privacy import shamir
from fedhk.privacy._lazy import primitives
from fedhk.privacy.masks import add_mask, open_envelope, pair_mask, seal_envelope, self_mask
from fedhk.privacy.secure_roster import KEY_BYTES, SIGNATURE_BYTES, Roster, advert_text
from fedhk.privacy.secure_terms import (
    STEPS,
    ByteArray,
    OutOfRangeError,
    Parcel,
    Terms,
    as_bytes,
    envelope_bytes,
    expect_parcel,
    parcel_digest,
    take_array,
    take_names,
    take_number,
)

__all__ = ["SecureSite", "SiteSession", "site_step"]


@dataclass(frozen=True, eq=False)
class SiteSession:
    """What a site keeps of one session. Secrets of a sum are forgotten as soon as it needs them no more.

    Parameters
    ----------
    terms : Terms
        What holds for all sums of the session.
    advert : dict
        The site's own public keys and their signature.
    cipher_private : bytes
        Opens the envelopes.
    secrets : dict of int to (bytes, bytes)
        For each sum to come, the seed of the site's own mask, and its private mask key.
    roster : Roster or None
        The public keys of all sites.
    own_shares : dict of int to uint8 array of shape (2, 48)
        For each sum to come, the shares of its own secrets that the site itself holds.
    participants : tuple of str
        Whose shares arrived; masks are made with all of them.
    held : dict of int to uint8 array of shape (participants, 2, 48)
        For each sum to come, the shares that the site holds: of the seed, of the mask key.
    step : str
        The last step that was answered.
    number : int
        The sum that it belonged to.
    asked : str
        Digest of the question.
    reply : dict
        The answer.
    """

    terms: Terms
    advert: Parcel = field(repr=False)
    cipher_private: bytes = field(repr=False)
    secrets: dict[int, tuple[bytes, bytes]] = field(repr=False)
    roster: Roster | None = field(default=None, repr=False)
    own_shares: dict[int, ByteArray] = field(default_factory=dict, repr=False)
    participants: tuple[str, ...] = ()
    held: dict[int, ByteArray] = field(default_factory=dict, repr=False)
    step: str = "keys"
    number: int = -1
    asked: str = field(default="", repr=False)
    reply: Parcel = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class SecureSite:
    """A site that takes part in secure sums.

    Parameters
    ----------
    name : str
        The site.
    least : int, default=2
        Smallest threshold that its operator accepts, whatever the server says.
    identity : bytes or None, default=None
        Its private long-term key, with which it signs.
    known : mapping of str to bytes, default={}
        Public long-term keys of the other sites. Where it is not empty, a site that is not in it, or whose signature is
        not by the key in it, is refused.
    session : SiteSession or None
        The session that is under way.
    """

    name: str
    least: int = 2
    identity: bytes | None = field(default=None, repr=False)
    known: Mapping[str, bytes] = field(default_factory=dict)
    session: SiteSession | None = None


def site_step(site: SecureSite, request: Parcel, vector: NDArray[np.int64] | None = None) -> tuple[SecureSite, Parcel]:
    """Answer one request of the server.

    Parameters
    ----------
    site : SecureSite
        The site before.
    request : dict
        What `fedhk.privacy.secure_server.requests` made.
    vector : int64 array of shape (length,), optional
        The site's numbers; for the step "input".

    Returns
    -------
    site : SecureSite
        The site after; keep it before the reply leaves.
    reply : dict
        For the server.

    Raises
    ------
    MessageError
        If the site must not answer, with the reason and the name of the site at fault where there is one.
    OutOfRangeError
        If the numbers of all sites could sum to 2^63 or more.
    """
    step = request.get("step")
    if step not in STEPS:
        raise MessageError(
            f"the server asks for the step {str(step)[:50]!r}, which this FedHK does not know", site.name
        )
    session = site.session
    asked = parcel_digest(request, vector)
    if session is not None and session.asked == asked:
        return site, session.reply
    if step == "keys":
        session = _advertised(site, request)
        reply = session.advert
    else:
        if session is None:
            raise MessageError(f"the server asks for the step {step!r} before the step 'keys'", site.name)
        expect_parcel(request, {"session": session.terms.session}, site.name)
        session, reply = ANSWERS[step](site, session, request, vector)
    reply = reply | {"step": step, "session": session.terms.session}
    return replace(site, session=replace(session, step=step, asked=asked, reply=reply)), reply


def _advertised(site: SecureSite, request: Parcel) -> SiteSession:
    """A new session with fresh keys; whatever was under way is given up."""
    terms = Terms.of(request, site.name)
    if site.session is not None and site.session.terms.session == terms.session:
        raise MessageError(f"session {terms.session!r} is under way already; a new one needs a new name", site.name)
    if terms.threshold < site.least:
        raise MessageError(f"threshold is {terms.threshold}, this site's operator asks for {site.least}", site.name)
    cipher_private = primitives.entropy(KEY_BYTES)
    secrets = {number: (primitives.entropy(KEY_BYTES), primitives.entropy(KEY_BYTES)) for number in range(terms.sums)}
    cipher_key = as_bytes(primitives.public_key(cipher_private))
    mask_keys = np.stack([as_bytes(primitives.public_key(private)) for _, private in secrets.values()])
    text = advert_text(terms, site.name, cipher_key, mask_keys)
    signature = bytes(SIGNATURE_BYTES) if site.identity is None else primitives.sign(site.identity, text)
    advert = {"cipher_key": cipher_key, "mask_keys": mask_keys, "signature": as_bytes(signature)}
    return SiteSession(terms, advert, cipher_private, secrets)


def _share(site: SecureSite, session: SiteSession, request: Parcel, vector: Any) -> tuple[SiteSession, Parcel]:  # noqa: ARG001
    """Shares of the site's secrets, each in an envelope for one other site."""
    if session.step != "keys":
        raise MessageError("the server asks for shares twice, with another list of keys", site.name)
    terms = session.terms
    roster = Roster.of(request, terms.sums, site.name)
    roster.check(terms, site.name, session.advert, site.known)
    context, n = roster.context(terms), len(roster.names)
    shares = np.empty((n, terms.sums, 2, shamir.SHARE_BYTES), np.uint8)
    for number, pair in session.secrets.items():
        for i, secret in enumerate(pair):
            parts = shamir.split(secret, n, terms.threshold, entropy=primitives.entropy)
            shares[:, number, i] = as_bytes(b"".join(parts)).reshape(n, -1)
    envelopes = np.zeros((n, envelope_bytes(terms.sums)), np.uint8)
    for row, other in enumerate(roster.names):
        if other != site.name:
            key, plain = roster.cipher_key(other), shares[row].tobytes()
            envelopes[row] = as_bytes(
                seal_envelope(session.cipher_private, key, site.name, other, plain, context=context)
            )
    own = shares[roster.names.index(site.name)]
    return replace(session, roster=roster, own_shares=dict(enumerate(own))), {"envelopes": envelopes}


def _input(
    site: SecureSite, session: SiteSession, request: Parcel, vector: NDArray[np.int64] | None
) -> tuple[SiteSession, Parcel]:
    """The site's numbers, under its own mask and one with each other site."""
    if session.roster is None:
        raise MessageError("the server asks for the step 'input' before the step 'shares'", site.name)
    terms, roster = session.terms, session.roster
    number, length = take_number(request, "sum", site.name), take_number(request, "length", site.name)
    if not session.number < number < terms.sums:
        raise MessageError(
            f"the server asks for sum {number}; sums {session.number + 1} to {terms.sums - 1} are left, "
            "and other numbers for a sum that was answered would give both away",
            site.name,
        )
    values = _checked_numbers(vector, length, terms.bound, site.name)
    session = _opened(site, session, request)
    context = roster.context(terms, session.participants)
    seed, private = session.secrets[number]
    masked = values.view(np.uint64) + self_mask(seed, site.name, length, context=context, number=number)
    for other in session.participants:
        if other != site.name:
            key = roster.mask_key(other, number)
            add_mask(masked, pair_mask(private, key, site.name, other, length, context=context, number=number))
    # others hold shares of this sum's secrets; the site itself needs them no more, nor anything of sums before
    left = {later: pair for later, pair in session.secrets.items() if later > number}
    held = {later: shares for later, shares in session.held.items() if later >= number}
    return replace(session, secrets=left, held=held, number=number), {"sum": number, "masked": masked}


def _checked_numbers(vector: NDArray[np.int64] | None, length: int, bound: int, site: str) -> NDArray[np.int64]:
    if vector is None or vector.dtype != np.int64 or vector.shape != (length,):
        found = "nothing" if vector is None else f"{vector.dtype} of shape {vector.shape}"
        raise MessageError(f"the site has {found} to sum, the server asks for int64 of shape ({length},)", site)
    # not by absolute values: that of -2^63 is no int64
    largest = max(int(vector.max(initial=0)), -int(vector.min(initial=0)))
    if largest > bound:
        raise OutOfRangeError(f"site {site!r}: a number to sum is {largest} in size, at most {bound} is agreed")
    return np.ascontiguousarray(vector)


def _opened(site: SecureSite, session: SiteSession, request: Parcel) -> SiteSession:
    """The session with the shares of the others, which come with the first sum that the site is asked for."""
    terms, roster = session.terms, session.roster
    assert roster is not None  # noqa: S101 - `_input` has looked
    if session.participants and "participants" not in request:
        return session
    participants = take_names(request, "participants", site.name)
    if session.participants:
        if participants != session.participants:
            raise MessageError("the server names other participants than before", site.name)
        return session
    if not set(participants) <= set(roster.names) or site.name not in participants:
        raise MessageError("the participants are not all in the list of keys, or this site is not", site.name)
    if len(participants) < terms.threshold:
        raise MessageError(f"{len(participants)} participants, the threshold is {terms.threshold}", site.name)
    shape = (len(participants), envelope_bytes(terms.sums))
    envelopes = take_array(request, "envelopes", np.uint8, shape, site.name)
    context = roster.context(terms)
    held = np.empty((len(participants), terms.sums, 2, shamir.SHARE_BYTES), np.uint8)
    for row, other in enumerate(participants):
        if other == site.name:
            held[row] = np.stack([session.own_shares[number] for number in range(terms.sums)])
            continue
        key, sealed = roster.cipher_key(other), envelopes[row].tobytes()
        plain = open_envelope(session.cipher_private, key, other, site.name, sealed, context=context)
        held[row] = as_bytes(plain).reshape(held.shape[1:])
    by_sum = {number: held[:, number].copy() for number in range(terms.sums)}
    return replace(session, participants=participants, held=by_sum, own_shares={})


def _unmask(site: SecureSite, session: SiteSession, request: Parcel, vector: Any) -> tuple[SiteSession, Parcel]:  # noqa: ARG001
    """For each participant one share: of its seed if it answered, of its mask key if not. Never both."""
    number = take_number(request, "sum", site.name)
    if session.step != "input" or number != session.number:
        raise MessageError(
            f"the server asks to open sum {number}, which this site has not answered, or opened already with "
            "another list of who answered",
            site.name,
        )
    survivors = take_names(request, "survivors", site.name)
    if not set(survivors) <= set(session.participants) or site.name not in survivors:
        raise MessageError("the list of who answered has sites that do not take part, or lacks this one", site.name)
    if len(survivors) < session.terms.threshold:
        raise MessageError(
            f"{len(survivors)} sites answered, {session.terms.threshold} are needed to open a sum", site.name
        )
    kind = [0 if name in survivors else 1 for name in session.participants]
    shares = session.held[number][np.arange(len(kind)), kind]
    held = {later: kept for later, kept in session.held.items() if later > number}
    return replace(session, held=held), {"sum": number, "shares": shares}


ANSWERS: dict[str, Callable[[SecureSite, SiteSession, Parcel, Any], tuple[SiteSession, Parcel]]] = {
    "shares": _share,
    "input": _input,
    "unmask": _unmask,
}
