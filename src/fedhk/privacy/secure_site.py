"""What a site does in a secure sum: four steps, each a pure function of what the site keeps and what it is asked.

Only fresh secrets are not a function of these: they come from the operating system. A step is answered once. The same
question again gets the same answer; another question at the same place is refused. For this to hold, the state that a
step returns must be kept before its reply leaves. `fedhk.privacy.secure_sum` says what the protocol hides and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError
from fedhk.privacy import shamir
from fedhk.privacy._lazy import primitives
from fedhk.privacy.masks import add_mask, open_envelope, pair_mask, seal_envelope, self_mask
from fedhk.privacy.secure_sum import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Advert,
    ByteArray,
    Envelopes,
    InputRequest,
    KeysRequest,
    MaskedNumbers,
    MaskReply,
    MaskRequest,
    MaskTerms,
    OutOfRangeError,
    Roster,
    Shares,
    SharesRequest,
    UnmaskRequest,
    advert_text,
    as_bytes,
    check_array,
    check_names,
    digest,
)

Numbers = NDArray[np.int64]


def _no_shares() -> ByteArray:
    return np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False)
class SiteSession:
    """What a site keeps of one session. Secrets of a sum are forgotten as soon as it needs them no more.

    Parameters
    ----------
    terms : MaskTerms
        What holds for all sums of the session.
    advert : Advert
        The site's own public keys and their signature.
    cipher_private : bytes
        Opens the envelopes.
    secrets : uint8 array of shape (sums to come, 2, 32)
        The seed of the site's own mask and its private mask key; the last row is of the last sum.
    roster : Roster or None
        The public keys of all sites.
    own_shares : uint8 array of shape (sums, 2, 48)
        The shares of its own secrets that the site itself holds, until it has those of the others.
    participants : tuple of str
        Whose shares arrived; masks are made with all of them.
    shares : uint8 array of shape (sums to come, participants, 2, 48)
        The shares that the site holds: of the seed, of the mask key; the last row is of the last sum.
    step : str
        The last step that was answered.
    number : int
        The sum that it belonged to.
    asked : str
        Digest of the question.
    reply : MaskReply or None
        The answer.
    """

    terms: MaskTerms
    advert: Advert = field(repr=False)
    cipher_private: bytes = field(repr=False)
    secrets: ByteArray = field(repr=False)
    roster: Roster | None = field(default=None, repr=False)
    own_shares: ByteArray = field(default_factory=_no_shares, repr=False)
    participants: tuple[str, ...] = ()
    shares: ByteArray = field(default_factory=_no_shares, repr=False)
    step: str = "keys"
    number: int = -1
    asked: str = field(default="", repr=False)
    reply: MaskReply | None = field(default=None, repr=False)


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

    def repeat(self, request: MaskRequest) -> MaskReply | None:
        """The last answer, if the last question was this one: then the same answer may go out again."""
        same = self.session is not None and self.session.asked == digest(request)
        return self.session.reply if self.session is not None and same else None


def answer_request(
    site: SecureSite, request: MaskRequest, vector: Numbers | None = None
) -> tuple[SecureSite, MaskReply]:
    """Answer one request of the server.

    Parameters
    ----------
    site : SecureSite
        The site before.
    request : MaskRequest
        What `fedhk.privacy.secure_server.make_requests` made.
    vector : int64 array of shape (length,), optional
        The site's numbers; for the step "input".

    Returns
    -------
    site : SecureSite
        The site after; keep it before the reply leaves.
    reply : MaskReply
        For the server.

    Raises
    ------
    MessageError
        If the site must not answer, with the reason and the name of the site at fault where there is one.
    OutOfRangeError
        If the numbers of all sites could sum to 2^63 or more.
    """
    session, again = site.session, site.repeat(request)
    if again is not None:
        return site, again
    reply: MaskReply
    if isinstance(request, KeysRequest):
        session = _make_keys(site, request)
        reply = session.advert
    elif session is None:
        raise MessageError(f"the server asks for the step {request.step!r} before the step 'keys'", site.name)
    elif isinstance(request, SharesRequest):
        session, reply = _share_secrets(site, _checked(session, request, site.name), request)
    elif isinstance(request, InputRequest):
        session, reply = _mask_numbers(site, _checked(session, request, site.name), request, vector)
    elif isinstance(request, UnmaskRequest):
        session, reply = _reveal_shares(site, _checked(session, request, site.name), request)
    else:
        raise MessageError("the server asks for a step that this FedHK does not know", site.name)
    session = replace(session, step=request.step, asked=digest(request), reply=reply)
    return replace(site, session=session), reply


def _checked(session: SiteSession, request: SharesRequest | InputRequest | UnmaskRequest, site: str) -> SiteSession:
    """The session, if the request is of it."""
    if request.session != session.terms.session:
        raise MessageError(f"session is {request.session[:200]!r}, expected {session.terms.session!r}", site)
    return session


def _make_keys(site: SecureSite, request: KeysRequest) -> SiteSession:
    """A new session with fresh keys; whatever was under way is given up."""
    terms = request.terms
    if site.session is not None and site.session.terms.session == terms.session:
        raise MessageError(f"session {terms.session!r} is under way already; a new one needs a new name", site.name)
    if terms.threshold < site.least:
        raise MessageError(f"threshold is {terms.threshold}, this site's operator asks for {site.least}", site.name)
    cipher_private = primitives.entropy(KEY_BYTES)
    secrets = [(primitives.entropy(KEY_BYTES), primitives.entropy(KEY_BYTES)) for _ in range(terms.sums)]
    cipher_key = as_bytes(primitives.public_key(cipher_private))
    mask_keys = np.stack([as_bytes(primitives.public_key(private)) for _, private in secrets])
    text = advert_text(terms, site.name, cipher_key, mask_keys)
    signature = bytes(SIGNATURE_BYTES) if site.identity is None else primitives.sign(site.identity, text)
    advert = Advert(terms.session, cipher_key, mask_keys, as_bytes(signature))
    kept = np.array([[as_bytes(secret) for secret in pair] for pair in secrets])
    return SiteSession(terms, advert, cipher_private, kept)


def _share_secrets(site: SecureSite, session: SiteSession, request: SharesRequest) -> tuple[SiteSession, MaskReply]:
    """Shares of the site's secrets, each in an envelope for one other site."""
    if session.step != "keys":
        raise MessageError("the server asks for shares twice, with another list of keys", site.name)
    terms, roster = session.terms, request.roster
    roster.check(terms, site.name, session.advert, site.known)
    context, n = roster.context(terms), len(roster.names)
    shares = np.empty((n, terms.sums, 2, shamir.SHARE_BYTES), np.uint8)
    for number, pair in enumerate(session.secrets):
        for i, secret in enumerate(pair):
            parts = shamir.split(bytes(secret), n, terms.threshold, entropy=primitives.entropy)
            shares[:, number, i] = as_bytes(b"".join(parts)).reshape(n, -1)
    envelopes = np.zeros((n, terms.envelope_bytes), np.uint8)
    for row, other in enumerate(roster.names):
        if other != site.name:
            key, plain = roster.cipher_key(other), shares[row].tobytes()
            envelopes[row] = as_bytes(
                seal_envelope(session.cipher_private, key, site.name, other, plain, context=context)
            )
    own = shares[roster.names.index(site.name)].copy()
    return replace(session, roster=roster, own_shares=own), Envelopes(terms.session, envelopes)


def _mask_numbers(
    site: SecureSite, session: SiteSession, request: InputRequest, vector: Numbers | None
) -> tuple[SiteSession, MaskReply]:
    """The site's numbers, under its own mask and one with each other site."""
    if session.roster is None:
        raise MessageError("the server asks for the step 'input' before the step 'shares'", site.name)
    terms, roster, number, length = session.terms, session.roster, request.number, request.length
    if not session.number < number < terms.sums:
        raise MessageError(
            f"the server asks for sum {number}; sums {session.number + 1} to {terms.sums - 1} are left, "
            "and other numbers for a sum that was answered would give both away",
            site.name,
        )
    values = _checked_numbers(vector, length, terms.bound, site.name)
    session = _open_envelopes(site, session, roster, request)
    context = roster.context(terms, session.participants)
    seed, private = (bytes(secret) for secret in session.secrets[number - terms.sums])
    masked = values.view(np.uint64) + self_mask(seed, site.name, length, context=context, number=number)
    for other in session.participants:
        if other != site.name:
            key = roster.mask_key(other, number)
            add_mask(masked, pair_mask(private, key, site.name, other, length, context=context, number=number))
    # others hold shares of this sum's secrets; the site itself needs them no more, nor anything of sums before
    left = terms.sums - 1 - number
    kept = replace(session, secrets=_last(session.secrets, left), shares=_last(session.shares, left + 1), number=number)
    return kept, MaskedNumbers(terms.session, number, masked)


def _last(rows: ByteArray, count: int) -> ByteArray:
    """The last rows, without a trace of the others."""
    return rows[len(rows) - count :].copy()


def _checked_numbers(vector: Numbers | None, length: int, bound: int, site: str) -> Numbers:
    if vector is None or vector.dtype != np.int64 or vector.shape != (length,):
        found = "nothing" if vector is None else f"{vector.dtype} of shape {vector.shape}"
        raise MessageError(f"the site has {found} to sum, the server asks for int64 of shape ({length},)", site)
    # not by absolute values: that of -2^63 is no int64
    largest = max(int(vector.max(initial=0)), -int(vector.min(initial=0)))
    if largest > bound:
        raise OutOfRangeError(f"site {site!r}: a number to sum is {largest} in size, at most {bound} is agreed")
    return np.ascontiguousarray(vector)


def _open_envelopes(site: SecureSite, session: SiteSession, roster: Roster, request: InputRequest) -> SiteSession:
    """The session with the shares of the others, which come with the first sum that the site is asked for."""
    terms, participants = session.terms, request.participants
    if session.participants:
        if participants and participants != session.participants:
            raise MessageError("the server names other participants than before", site.name)
        return session
    check_names(participants, "participants", site.name)
    if not set(participants) <= set(roster.names) or site.name not in participants:
        raise MessageError("the participants are not all in the list of keys, or this site is not", site.name)
    if len(participants) < terms.threshold:
        raise MessageError(f"{len(participants)} participants, the threshold is {terms.threshold}", site.name)
    shape = (len(participants), terms.envelope_bytes)
    check_array(request.envelopes, "envelopes", np.uint8, shape, site.name)
    context = roster.context(terms)
    received = np.empty((terms.sums, len(participants), 2, shamir.SHARE_BYTES), np.uint8)
    for row, other in enumerate(participants):
        if other == site.name:
            received[:, row] = session.own_shares
            continue
        key, sealed = roster.cipher_key(other), request.envelopes[row].tobytes()
        plain = open_envelope(session.cipher_private, key, other, site.name, sealed, context=context)
        received[:, row] = as_bytes(plain).reshape(terms.sums, 2, -1)
    return replace(session, participants=participants, shares=received, own_shares=_no_shares())


def _reveal_shares(site: SecureSite, session: SiteSession, request: UnmaskRequest) -> tuple[SiteSession, MaskReply]:
    """For each participant one share: of its seed if it answered, of its mask key if not. Never both."""
    terms, number, survivors = session.terms, request.number, request.survivors
    if session.step != "input" or number != session.number:
        raise MessageError(
            f"the server asks to open sum {number}, which this site has not answered, or opened already with "
            "another list of who answered",
            site.name,
        )
    check_names(survivors, "survivors", site.name)
    if not set(survivors) <= set(session.participants) or site.name not in survivors:
        raise MessageError("the list of who answered has sites that do not take part, or lacks this one", site.name)
    if len(survivors) < terms.threshold:
        raise MessageError(f"{len(survivors)} sites answered, {terms.threshold} are needed to open a sum", site.name)
    kind = [0 if name in survivors else 1 for name in session.participants]
    shares = session.shares[0][np.arange(len(kind)), kind]
    kept = replace(session, shares=_last(session.shares, terms.sums - 1 - number))
    return kept, Shares(terms.session, number, shares)
