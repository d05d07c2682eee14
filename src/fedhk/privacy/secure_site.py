"""What a site does in a secure sum: five steps, each a pure function of what the site keeps and what it is asked.

Only fresh secrets are not a function of these: they come from the operating system. A step is answered once. The same
question again gets the same answer; another question at the same place is refused. For this to hold, the state that a
step returns must be kept before its reply leaves. `fedhk.privacy.secure_sum` says what the protocol hides and why.

A site never refuses because of its numbers: they are asked for when everything else is in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError, Rule
from fedhk.privacy import shamir
from fedhk.privacy._lazy import primitives
from fedhk.privacy.fixed_point import WORDS, most_of_site
from fedhk.privacy.masks import add_mask, open_envelope, pair_mask, seal_envelope, self_mask
from fedhk.privacy.secure_sum import (
    HALF,
    KEY_BYTES,
    SIGNATURE_BYTES,
    TWO_THIRDS,
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
    advert_text,
    are_ordered,
    as_bytes,
    digest,
    has_form,
    survivors_text,
)

LOG = logging.getLogger("fedhk.site")

Numbers = NDArray[np.int64]

NO_SHARES: ByteArray = np.zeros(0, np.uint8)

# What a site says, the same text for every request that breaks the rule; the error names who is at fault.
UNKNOWN_STEP = Rule("the server asks for a step that this FedHK does not know")
OUT_OF_ORDER = Rule("the server asks for a step of a masked sum too early, or again with another content")
OTHER_SESSION = Rule("the server speaks of another session of masked sums than the one that is under way")
SAME_SESSION = Rule("this session of masked sums is under way already; a new one needs a new name")
LOW_THRESHOLD = Rule(
    "the threshold of masked sums is lower than this site demands: above half of the sites under [known] and at least "
    "3, or the threshold of its policy"
)
SMALL_SHARE = Rule("the threshold of masked sums is not above two thirds of the sites that take part, or above all")
BAD_KEYS = Rule("the list of keys is not well formed, lacks this site, or has other keys for it than it made")
SAME_KEY = Rule("a key in the list of keys is also a key of another site")
UNKNOWN_KEY = Rule("the list of keys has a site whose long-term key this site does not know")
UNSIGNED = Rule("the list of keys has keys that are not signed by the long-term key that their operator gave")
SPENT_SUM = Rule("numbers for this sum have been given, or no masks are agreed for it")
OTHER_LENGTH = Rule("the server asks for another number of numbers than this sum has")
OTHER_WORD = Rule("the server asks for numbers of another length than 1, 2, 4 or 8 bytes")
BAD_PARTICIPANTS = Rule(
    "the participants are not in the list of keys, lack this site, are too few, or not those of before"
)
BAD_SURVIVORS = Rule("the list of who answered has sites that do not take part, lacks this one, or is too short")
UNCONFIRMED = Rule("too few sites have signed the list of who answered, or this one has signed another")


@dataclass(frozen=True, eq=False)
class SiteSession:
    """What a site keeps of one session. Secrets of a sum are forgotten as soon as it needs them no more.

    Arrays of secrets and shares have a row for each sum to come; the last row is of the last sum.
    """

    terms: MaskTerms
    advert: Advert = field(repr=False)
    cipher_private: bytes = field(repr=False)  # opens the envelopes
    secrets: ByteArray = field(repr=False)  # (sums, 2, 32): the seed of the site's own mask, its private mask key
    roster: Roster | None = field(default=None, repr=False)
    own_shares: ByteArray = field(default_factory=NO_SHARES.copy, repr=False)  # (sums, 2, 48), until others' are there
    participants: tuple[str, ...] = ()  # whose shares arrived; masks are made with all of them
    shares: ByteArray = field(default_factory=NO_SHARES.copy, repr=False)  # (sums, participants, 2, 48): seeds, keys
    step: str = "keys"  # the last step that was answered, the sum that it belonged to, the question and the answer
    number: int = -1
    asked: str = field(default="", repr=False)
    reply: MaskReply | None = field(default=None, repr=False)
    confirmed: tuple[str, ...] = ()  # who answered in the last sum, as the site has signed it

    @property
    def keys(self) -> Roster:
        """The public keys of all sites, after the step in which they came."""
        if self.roster is None:
            raise MessageError(OUT_OF_ORDER)
        return self.roster

    @property
    def context(self) -> str:
        """Digest of terms, keys and participants, which all sites must see alike."""
        return self.keys.context(self.terms, self.participants)


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
        not by the key in it, is refused, and a sum is opened only for a list of sites that enough of them have signed.
    simulated : bool, default=False
        Whether server and sites are in one process, so that nobody lies to anybody: then a threshold above half of the
        sites is enough, else it must be above two thirds.
    session : SiteSession or None
        The session that is under way.
    """

    name: str
    least: int = 2
    identity: bytes | None = field(default=None, repr=False)
    known: Mapping[str, bytes] = field(default_factory=dict)
    simulated: bool = False
    session: SiteSession | None = None

    def repeat(self, request: MaskRequest) -> MaskReply | None:
        """The last answer, if the last question was this one: then the same answer may go out again."""
        same = self.session is not None and self.session.asked == digest(request)
        return self.session.reply if self.session is not None and same else None

    def sign(self, text: bytes) -> ByteArray:
        """The site's signature; zeros where it has no long-term key."""
        return as_bytes(bytes(SIGNATURE_BYTES) if self.identity is None else primitives.sign(self.identity, text))


def answer_request(
    site: SecureSite, request: MaskRequest, numbers: Callable[[], Numbers] | None = None
) -> tuple[SecureSite, MaskReply]:
    """Answer one request of the server.

    Parameters
    ----------
    site : SecureSite
        The site before.
    request : MaskRequest
        What `fedhk.privacy.secure_server.make_requests` made.
    numbers : callable, optional
        Makes the site's numbers, an int64 array. It is called at the step "input", once nothing else is amiss.

    Returns
    -------
    site : SecureSite
        The site after; keep it before the reply leaves.
    reply : MaskReply
        For the server.

    Raises
    ------
    MessageError
        If the site must not answer: the reason is one of the rules above, whatever the numbers are, and the site that
        is named is the one at fault where there is one.
    """
    session, again = site.session, site.repeat(request)
    if again is not None:
        return site, again
    reply: MaskReply
    if isinstance(request, KeysRequest):
        session = _make_keys(site, request)
        reply = session.advert
    elif not isinstance(request, SharesRequest | InputRequest | ConfirmRequest | UnmaskRequest):
        raise MessageError(UNKNOWN_STEP, site.name)
    elif session is None:
        raise MessageError(OUT_OF_ORDER, site.name)
    elif request.session != session.terms.session:
        raise MessageError(OTHER_SESSION, site.name)
    elif isinstance(request, SharesRequest):
        session, reply = _share_secrets(site, session, request)
    elif isinstance(request, InputRequest):
        session, reply = _mask_numbers(site, session, request, numbers)
    elif isinstance(request, ConfirmRequest):
        session, reply = _sign_survivors(site, session, request)
    else:
        session, reply = _reveal_shares(site, session, request)
    session = replace(session, step=request.step, asked=digest(request), reply=reply)
    return replace(site, session=session), reply


def _make_keys(site: SecureSite, request: KeysRequest) -> SiteSession:
    """A new session with fresh keys; whatever was under way is given up."""
    terms = request.terms
    if site.session is not None and site.session.terms.session == terms.session:
        raise MessageError(SAME_SESSION, site.name)
    if terms.threshold < site.least:
        LOG.warning("site %r: threshold is %d, %d is demanded", site.name, terms.threshold, site.least)
        raise MessageError(LOW_THRESHOLD, site.name)
    cipher_private = primitives.entropy(KEY_BYTES)
    secrets = [(primitives.entropy(KEY_BYTES), primitives.entropy(KEY_BYTES)) for _ in range(terms.sums)]
    cipher_key = as_bytes(primitives.public_key(cipher_private))
    mask_keys = np.stack([as_bytes(primitives.public_key(private)) for _, private in secrets])
    signature = site.sign(advert_text(terms, site.name, cipher_key, mask_keys))
    kept = np.array([[as_bytes(secret) for secret in pair] for pair in secrets])
    return SiteSession(terms, Advert(terms.session, cipher_key, mask_keys, signature), cipher_private, kept)


def _share_secrets(site: SecureSite, session: SiteSession, request: SharesRequest) -> tuple[SiteSession, MaskReply]:
    """Shares of the site's secrets, each in an envelope for one other site."""
    if session.step != "keys":
        raise MessageError(OUT_OF_ORDER, site.name)
    terms, roster = session.terms, request.roster
    _check_roster(site, session, roster)
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


def _check_roster(site: SecureSite, session: SiteSession, roster: Roster) -> None:
    """Refuse a list of keys in which a site could stand twice or be somebody else, or that is too long or short."""
    n, terms, advert = len(roster.names), session.terms, session.advert
    forms = (
        (roster.cipher_keys, (n, KEY_BYTES)),
        (roster.mask_keys, (n, terms.sums, KEY_BYTES)),
        (roster.signatures, (n, SIGNATURE_BYTES)),
    )
    ordered = are_ordered(roster.names) and all(has_form(array, np.uint8, shape) for array, shape in forms)
    if not ordered or site.name not in roster.names:
        raise MessageError(BAD_KEYS, site.name)
    own = roster.names.index(site.name)
    mine, listed = (advert.cipher_key, advert.mask_keys), (roster.cipher_keys[own], roster.mask_keys[own])
    if not all(np.array_equal(sent, found) for sent, found in zip(mine, listed, strict=True)):
        raise MessageError(BAD_KEYS, site.name)
    if not terms.is_enough(n, HALF if site.simulated else TWO_THIRDS):
        LOG.warning("site %r: threshold is %d, the list of keys has %d sites", site.name, terms.threshold, n)
        raise MessageError(SMALL_SHARE, site.name)
    seen: set[bytes] = set()  # two masks, or a mask and an envelope, would hang on one secret
    for row, name in enumerate(roster.names):
        keys = [bytes(key) for key in (roster.cipher_keys[row], *roster.mask_keys[row])]
        if len(seen.union(keys)) < len(seen) + len(keys):
            raise MessageError(SAME_KEY, name)
        seen.update(keys)
        if site.known and name != site.name:
            if name not in site.known:
                raise MessageError(UNKNOWN_KEY, name)
            text = advert_text(terms, name, roster.cipher_keys[row], roster.mask_keys[row])
            if not primitives.signed_by(site.known[name], bytes(roster.signatures[row]), text):
                raise MessageError(UNSIGNED, name)


def _mask_numbers(
    site: SecureSite, session: SiteSession, request: InputRequest, make: Callable[[], Numbers] | None
) -> tuple[SiteSession, MaskReply]:
    """The site's numbers, under its own mask and one with each other site."""
    terms, roster, number, length = session.terms, session.keys, request.number, request.length
    if not session.number < number < terms.sums:  # other numbers under the same masks would give both away
        raise MessageError(SPENT_SUM, site.name)
    if request.word not in WORDS:
        raise MessageError(OTHER_WORD, site.name)
    session = _open_envelopes(site, session, request)
    numbers = np.zeros(0, np.int64) if make is None else make()
    if not has_form(numbers, np.int64, (length,)):
        raise MessageError(OTHER_LENGTH, site.name)
    seed, private = (bytes(secret) for secret in session.secrets[number - terms.sums])
    if request.word == max(WORDS):
        numbers = hold_numbers(numbers, most_of_site(len(roster.names)), site.name)
    masked = numbers.astype(f"u{request.word}")  # modulo what a word holds
    of_sum: Any = {"context": session.context, "number": number, "word": request.word}
    add_mask(masked, self_mask(seed, site.name, length, **of_sum))
    for other in session.participants:
        if other != site.name:
            key = roster.mask_key(other, number)
            add_mask(masked, pair_mask(private, key, site.name, other, length, **of_sum))
    # others hold shares of this sum's secrets; the site itself needs them no more, nor anything of sums before
    left = terms.sums - 1 - number
    kept = replace(session, secrets=_last(session.secrets, left), shares=_last(session.shares, left + 1), number=number)
    return kept, MaskedNumbers(terms.session, number, masked)


def _last(rows: ByteArray, count: int) -> ByteArray:
    """The last rows, without a trace of the others."""
    return rows[len(rows) - count :].copy()


def hold_numbers(numbers: Numbers, bound: int, site: str) -> Numbers:
    """A copy of numbers that are within a bound; those beyond it are cut, because a refusal would tell of them."""
    held = np.clip(numbers, -bound, bound)
    cut = np.count_nonzero(held != numbers)
    if cut:
        LOG.warning("site %r: %d of %d numbers of a masked sum are cut to %d in size", site, cut, held.size, bound)
    return held


def _open_envelopes(site: SecureSite, session: SiteSession, request: InputRequest) -> SiteSession:
    """The session with the shares of the others, which come with the first sum that the site is asked for."""
    terms, roster, participants = session.terms, session.keys, request.participants
    if session.participants:
        if participants and participants != session.participants:
            raise MessageError(BAD_PARTICIPANTS, site.name)
        return session
    shape = (len(participants), terms.envelope_bytes)
    if not _is_list_of(participants, roster.names, site, terms) or not has_form(request.envelopes, np.uint8, shape):
        raise MessageError(BAD_PARTICIPANTS, site.name)
    context = roster.context(terms)
    received = np.empty((terms.sums, len(participants), 2, shamir.SHARE_BYTES), np.uint8)
    for row, other in enumerate(participants):
        if other == site.name:
            received[:, row] = session.own_shares
            continue
        key, sealed = roster.cipher_key(other), request.envelopes[row].tobytes()
        plain = open_envelope(session.cipher_private, key, other, site.name, sealed, context=context)
        received[:, row] = as_bytes(plain).reshape(terms.sums, 2, -1)
    return replace(session, participants=participants, shares=received, own_shares=NO_SHARES)


def _is_list_of(names: tuple[str, ...], allowed: tuple[str, ...], site: SecureSite, terms: MaskTerms) -> bool:
    """Whether names are different, allowed and enough, and this site is among them."""
    return are_ordered(names) and {site.name} <= set(names) <= set(allowed) and len(names) >= terms.threshold


def _check_survivors(site: SecureSite, session: SiteSession, request: ConfirmRequest | UnmaskRequest) -> None:
    """Refuse a list of who answered that cannot be true of the sum that this site has answered last."""
    if request.number != session.number or session.step not in ("input", "confirm"):
        raise MessageError(OUT_OF_ORDER, site.name)
    if not _is_list_of(request.survivors, session.participants, site, session.terms):
        raise MessageError(BAD_SURVIVORS, site.name)


def _sign_survivors(site: SecureSite, session: SiteSession, request: ConfirmRequest) -> tuple[SiteSession, MaskReply]:
    """The site's signature under the list of who answered, of which it signs one for each sum."""
    _check_survivors(site, session, request)
    if session.step == "confirm":
        raise MessageError(UNCONFIRMED, site.name)
    signature = site.sign(survivors_text(session.context, request.number, request.survivors))
    confirmation = Confirmation(session.terms.session, request.number, signature)
    return replace(session, confirmed=request.survivors), confirmation


def _reveal_shares(site: SecureSite, session: SiteSession, request: UnmaskRequest) -> tuple[SiteSession, MaskReply]:
    """For each participant one share: of its seed if it answered, of its mask key if not. Never both."""
    _check_survivors(site, session, request)
    terms, number, survivors = session.terms, request.number, request.survivors
    has_signed = session.step == "confirm"
    if has_signed and survivors != session.confirmed:
        raise MessageError(UNCONFIRMED, site.name)
    if site.known and not (has_signed and _count_signers(site, session, request) >= terms.threshold):
        raise MessageError(UNCONFIRMED, site.name)
    kind = [0 if name in survivors else 1 for name in session.participants]
    shares = session.shares[0][np.arange(len(kind)), kind]
    kept = replace(session, shares=_last(session.shares, terms.sums - 1 - number))
    return kept, Shares(terms.session, number, shares)


def _count_signers(site: SecureSite, session: SiteSession, request: UnmaskRequest) -> int:
    """How many sites have signed the list of who answered: this one, and others whose signatures are by known keys."""
    signers, signatures = request.signers, request.signatures
    if not are_ordered(signers) or not has_form(signatures, np.uint8, (len(signers), SIGNATURE_BYTES)):
        return 0
    text = survivors_text(session.context, request.number, request.survivors)
    others = {name: bytes(row) for name, row in zip(signers, signatures, strict=True) if name != site.name}
    known = {name: site.known[name] for name in others if name in session.participants and name in site.known}
    return 1 + sum(primitives.signed_by(key, others[name], text) for name, key in known.items())
