"""The site's part of a secure sum: five steps, each a pure function of the site's state and the request.

Only fresh secrets are not a function of these: they come from the operating system. A step is answered once. The same
question again gets the same answer; another question at the same place is refused. For this to hold, the state that a
step returns must be kept before its reply leaves. `fedhk.privacy.secure_sum` says what the protocol hides and why.

A site never refuses because of its numbers: they are asked for when everything else is in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError, Rule
from fedhk.privacy import shamir
from fedhk.privacy._lazy import primitives
from fedhk.privacy.fixed_point import WORDS, most_of_site
from fedhk.privacy.masks import (
    PAIR_KEY_BYTES,
    add_mask,
    add_pair_masks,
    agree_with,
    envelope_key,
    key_prints,
    lock_keys,
    open_envelope,
    pair_keys,
    seal_envelope,
    self_mask,
)
from fedhk.privacy.secure_graph import Indices, PartnerGraph, draw_graph
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
    """A site's state of one session. Secrets of a sum are deleted as soon as they are not needed.

    Arrays of secrets and shares have a row for each sum to come; the last row is of the last sum.
    """

    terms: MaskTerms
    advert: Advert = field(repr=False)
    cipher_private: bytes = field(repr=False)  # until keys with partners are made
    secrets: ByteArray = field(repr=False)  # (sums, 2, 32): the seed of the site's own mask, the lock of its pair keys
    seed: str = ""  # digest of terms, names and keys, from which the graph follows
    n_sites: int = 0  # in the list of keys, and where the site is in it
    own: int = 0
    names: tuple[str, ...] = ()  # all of them, where their signatures are checked
    partners: tuple[str, ...] = ()  # the site's neighbourhood: itself and its partners, in their order
    opening: ByteArray = field(default_factory=NO_SHARES.copy, repr=False)  # (m, 32): keys of envelopes to this site
    pair_keys: ByteArray = field(default_factory=NO_SHARES.copy, repr=False)  # (sums, m, 16): keys of masks
    own_shares: ByteArray = field(default_factory=NO_SHARES.copy, repr=False)  # (sums, 2, 48), until others' are there
    participants: ByteArray = field(default_factory=NO_SHARES.copy)  # who takes part, a bit for each site
    shares: ByteArray = field(default_factory=NO_SHARES.copy, repr=False)  # (sums, m taking part, 2, 48): seeds, locks
    step: str = "keys"  # the last step that was answered, the sum that it belonged to, the question and the answer
    number: int = -1
    asked: str = field(default="", repr=False)
    reply: MaskReply | None = field(default=None, repr=False)
    confirmed: ByteArray = field(default_factory=NO_SHARES.copy)  # who answered in the last sum, as the site signed it

    @property
    def graph(self) -> PartnerGraph:
        """Who masks with whom, after the step in which the list of keys came."""
        if not self.n_sites:
            raise MessageError(OUT_OF_ORDER)
        return draw_graph(self.n_sites, self.terms.threshold, self.seed)

    @property
    def context(self) -> str:
        """Digest of terms, keys and participants, which all sites must see alike."""
        return digest(self.seed, self.participants)

    @property
    def taking_part(self) -> NDArray[np.bool_]:
        """Who of the neighbourhood takes part."""
        return _read_marks(self.participants, self.n_sites)[self.graph.near(self.own)]


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
    session, asked = site.session, request.print
    if session is not None and session.asked == asked and session.reply is not None:
        return site, session.reply  # the last question again: the same answer may go out again
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
    session = replace(session, step=request.step, asked=asked, reply=reply)
    return replace(site, session=session), reply


def _make_keys(site: SecureSite, request: KeysRequest) -> SiteSession:
    """Begin a new session with fresh keys; an unfinished one is dropped."""
    terms = request.terms
    if site.session is not None and site.session.terms.session == terms.session:
        raise MessageError(SAME_SESSION, site.name)
    if terms.threshold < site.least:
        LOG.warning("site %r: threshold is %d, %d is demanded", site.name, terms.threshold, site.least)
        raise MessageError(LOW_THRESHOLD, site.name)
    cipher_private = primitives.entropy(KEY_BYTES)
    secrets = as_bytes(primitives.entropy(terms.sums * 2 * shamir.SECRET_BYTES)).reshape(terms.sums, 2, -1)
    cipher_key = as_bytes(primitives.public_key(cipher_private))
    signature = site.sign(advert_text(terms, site.name, cipher_key))
    return SiteSession(terms, Advert(terms.session, cipher_key, signature), cipher_private, secrets)


def _share_secrets(site: SecureSite, session: SiteSession, request: SharesRequest) -> tuple[SiteSession, MaskReply]:
    """Shares of the site's secrets, each in an envelope for one partner, and its keys with partners, locked."""
    if session.step != "keys":
        raise MessageError(OUT_OF_ORDER, site.name)
    terms, roster = session.terms, request.roster
    context, own = _check_roster(site, session, roster), roster.index[site.name]
    graph = draw_graph(len(roster.names), terms.threshold, context)
    near = graph.near(own)
    partners = tuple(roster.names[i] for i in near)
    publics = dict(zip(partners, map(bytes, roster.cipher_keys[near]), strict=True))
    del publics[site.name]
    agreed = agree_with(session.cipher_private, publics)
    flat = session.secrets.reshape(-1, shamir.SECRET_BYTES)
    shares = shamir.split(flat, near + 1, int(graph.needed[own]), entropy=primitives.entropy)
    envelopes = np.zeros((near.size, terms.envelope_bytes), np.uint8)
    opening = np.zeros((near.size, KEY_BYTES), np.uint8)
    keys = np.zeros((terms.sums, near.size, PAIR_KEY_BYTES), np.uint8)
    for row, other in enumerate(partners):
        if other != site.name:
            key = envelope_key(agreed[other], site.name, other, context=context)
            sealed = seal_envelope(key, site.name, other, shares[row].tobytes(), context=context)
            envelopes[row] = as_bytes(sealed)
            opening[row] = as_bytes(envelope_key(agreed[other], other, site.name, context=context))
            keys[:, row] = pair_keys(agreed[other], site.name, other, terms.sums, context=context)
    locked = [
        lock_keys(bytes(secret), keys[number], site.name, context=context, number=number)
        for number, (_, secret) in enumerate(session.secrets)
    ]
    locks = np.concatenate([np.stack(locked), key_prints(keys)], axis=2).transpose(1, 0, 2)
    kept = replace(
        session,
        cipher_private=b"",  # nobody needs it any more
        seed=context,
        n_sites=len(roster.names),
        own=own,
        names=roster.names if site.known else (),
        partners=partners,
        opening=opening,
        pair_keys=keys,
        own_shares=shares[partners.index(site.name)].reshape(terms.sums, 2, -1).copy(),
    )
    return kept, Envelopes(terms.session, envelopes, np.ascontiguousarray(locks))


def _check_roster(site: SecureSite, session: SiteSession, roster: Roster) -> str:
    """Refuse a list of keys in which a site could stand twice or be somebody else, or that is too long or short.

    Returns the digest of the list. Nobody tells the site who its partners are: it follows from the digest.
    """
    n, terms, advert = len(roster.names), session.terms, session.advert
    if not roster.is_well_formed or site.name not in roster.index:
        raise MessageError(BAD_KEYS, site.name)
    if not terms.is_enough(n, HALF if site.simulated else TWO_THIRDS):
        LOG.warning("site %r: threshold is %d, the list of keys has %d sites", site.name, terms.threshold, n)
        raise MessageError(SMALL_SHARE, site.name)
    context, own = roster.context(terms), roster.index[site.name]
    if not np.array_equal(roster.cipher_keys[own], advert.cipher_key):
        raise MessageError(BAD_KEYS, site.name)
    _check_keys(site, terms, roster, draw_graph(n, terms.threshold, context).near(own))
    return context


def _check_keys(site: SecureSite, terms: MaskTerms, roster: Roster, near: Indices) -> None:
    """Refuse sites that nobody knows, and keys of partners that are not theirs."""
    strangers = [name for name in roster.names if name not in site.known and name != site.name] if site.known else []
    if strangers:
        raise MessageError(UNKNOWN_KEY, strangers[0])
    seen: set[bytes] = set()  # two masks would hang on one secret
    for i in near.tolist():
        name, key, signature = roster.names[i], roster.cipher_keys[i], roster.signatures[i]
        if bytes(key) in seen:
            raise MessageError(SAME_KEY, name)
        seen.add(bytes(key))
        is_checked = bool(site.known) and name != site.name
        if is_checked and not primitives.signed_by(site.known[name], bytes(signature), advert_text(terms, name, key)):
            raise MessageError(UNSIGNED, name)


def _mask_numbers(
    site: SecureSite, session: SiteSession, request: InputRequest, make: Callable[[], Numbers] | None
) -> tuple[SiteSession, MaskReply]:
    """Mask the site's numbers with its own mask and one for each partner."""
    terms, number, length = session.terms, request.number, request.length
    if not session.number < number < terms.sums:  # other numbers under the same masks would give both away
        raise MessageError(SPENT_SUM, site.name)
    if request.word not in WORDS:
        raise MessageError(OTHER_WORD, site.name)
    session = _open_envelopes(site, session, request)
    numbers = np.zeros(0, np.int64) if make is None else make()
    if not has_form(numbers, np.int64, (length,)):
        raise MessageError(OTHER_LENGTH, site.name)
    if request.word == max(WORDS):
        numbers = _hold_numbers(numbers, most_of_site(session.n_sites), site.name)
    masked = numbers.astype(f"u{request.word}")  # modulo what a word holds
    seed, keys = session.secrets[number - terms.sums][0], session.pair_keys[number - terms.sums]
    own = self_mask(bytes(seed), site.name, length, context=session.context, number=number, word=request.word)
    add_mask(masked, own)
    pairs = zip(session.partners, keys, session.taking_part.tolist(), strict=True)
    partners = {other: key.tobytes() for other, key, takes_part in pairs if takes_part and other != site.name}
    add_pair_masks(masked, partners, site.name, context=session.context, number=number)
    # others hold shares of this sum's secrets; the site itself needs them no more, nor anything of sums before
    left = terms.sums - 1 - number
    kept = replace(
        session,
        secrets=_last(session.secrets, left),
        pair_keys=_last(session.pair_keys, left),
        shares=_last(session.shares, left + 1),
        number=number,
    )
    return kept, MaskedNumbers(terms.session, number, masked)


def _last(rows: ByteArray, count: int) -> ByteArray:
    """The last rows, without a trace of the others."""
    return rows[len(rows) - count :].copy()


def _hold_numbers(numbers: Numbers, bound: int, site: str) -> Numbers:
    """Return a copy of numbers clipped to a bound; refusing larger ones would reveal them."""
    held = np.clip(numbers, -bound, bound)
    cut = np.count_nonzero(held != numbers)
    if cut:
        LOG.warning("site %r: %d of %d numbers of a masked sum are cut to %d in size", site, cut, held.size, bound)
    return held


def _open_envelopes(site: SecureSite, session: SiteSession, request: InputRequest) -> SiteSession:
    """Add the shares of the others to the session; they come with the first sum."""
    terms, participants = session.terms, request.participants
    if session.participants.size:
        if participants.size and not np.array_equal(participants, session.participants):
            raise MessageError(BAD_PARTICIPANTS, site.name)
        return session
    everybody = np.packbits(np.ones(session.graph.n_sites, bool))
    if not _is_list_of(participants, everybody, session):
        raise MessageError(BAD_PARTICIPANTS, site.name)
    rows = np.flatnonzero(replace(session, participants=participants).taking_part)
    if not has_form(request.envelopes, np.uint8, (rows.size, terms.envelope_bytes)):
        raise MessageError(BAD_PARTICIPANTS, site.name)
    received = np.empty((terms.sums, rows.size, 2, shamir.SHARE_BYTES), np.uint8)
    for i, row in enumerate(rows.tolist()):
        other = session.partners[row]
        if other == site.name:
            received[:, i] = session.own_shares
            continue
        key, sealed = session.opening[row].tobytes(), request.envelopes[i].tobytes()
        plain = open_envelope(key, other, site.name, sealed, context=session.seed)
        received[:, i] = as_bytes(plain).reshape(terms.sums, 2, -1)
    kept = participants.copy()  # without the message that it came with
    return replace(session, participants=kept, shares=received, own_shares=NO_SHARES, opening=NO_SHARES)


def _read_marks(marks: ByteArray, n_sites: int) -> NDArray[np.bool_]:
    """For each site, whether it is marked."""
    return np.unpackbits(marks, count=n_sites).astype(bool)


def _is_list_of(marks: ByteArray, allowed: ByteArray, session: SiteSession) -> bool:
    """Whether sites are allowed and enough, this one and enough of its partners are among them, and masks link all."""
    graph = session.graph
    if not has_form(marks, np.uint8, allowed.shape) or np.any(marks & ~allowed):
        return False
    there = _read_marks(marks, graph.n_sites)
    near = there[graph.near(session.own)].sum()
    if not there[session.own] or there.sum() < session.terms.threshold or near < graph.needed[session.own]:
        return False
    return _are_linked(graph, marks.tobytes())


@lru_cache(maxsize=4)
def _are_linked(graph: PartnerGraph, marks: bytes) -> bool:
    """Tell whether the graph is connected among the marked sites."""
    return graph.is_complete or graph.parts(_read_marks(as_bytes(marks), graph.n_sites)) == 1


def _check_survivors(site: SecureSite, session: SiteSession, request: ConfirmRequest | UnmaskRequest) -> None:
    """Refuse a list of who answered that cannot be true of the sum that this site has answered last."""
    if request.number != session.number or session.step not in ("input", "confirm"):
        raise MessageError(OUT_OF_ORDER, site.name)
    if not _is_list_of(request.survivors, session.participants, session):
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
    """For each participant near the site one share: of its seed if it answered, of its lock if not. Never both."""
    _check_survivors(site, session, request)
    terms, number, survivors = session.terms, request.number, request.survivors
    has_signed = session.step == "confirm"
    if has_signed and not np.array_equal(survivors, session.confirmed):
        raise MessageError(UNCONFIRMED, site.name)
    if site.known and not (has_signed and _count_signers(site, session, request) >= terms.threshold):
        raise MessageError(UNCONFIRMED, site.name)
    answered = _read_marks(survivors, session.n_sites)[session.graph.near(session.own)][session.taking_part]
    shares = session.shares[0][np.arange(answered.size), np.where(answered, 0, 1)]
    kept = replace(session, shares=_last(session.shares, terms.sums - 1 - number))
    return kept, Shares(terms.session, number, shares)


def _count_signers(site: SecureSite, session: SiteSession, request: UnmaskRequest) -> int:
    """How many sites have signed the list of who answered: this one, and others whose signatures are by known keys."""
    signers, signatures = request.signers, request.signatures
    if not are_ordered(signers) or not has_form(signatures, np.uint8, (len(signers), SIGNATURE_BYTES)):
        return 0
    text = survivors_text(session.context, request.number, request.survivors)
    others = {name: bytes(row) for name, row in zip(signers, signatures, strict=True) if name != site.name}
    taking_part = _read_marks(session.participants, session.n_sites)
    listed = {name for name, there in zip(session.names, taking_part.tolist(), strict=True) if there}
    known = {name: site.known[name] for name in others if name in listed and name in site.known}
    return 1 + sum(primitives.signed_by(key, others[name], text) for name, key in known.items())
