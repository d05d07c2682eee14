"""Sums of which nobody sees the parts (Bonawitz et al. 2017, Bell et al. 2020, both CCS).

Exchanges
---------
In each step the server asks and the sites answer. A site's *partners* are all others while there are few, else those
that `fedhk.privacy.secure_graph` gives it (Bell et al. 2020, CCS):

1. *keys*: each site makes a fresh X25519 key and sends the public one, signed with its long-term key where operators
   exchanged those.
2. *shares*: each site gets the list of names and keys, the same for all. It makes a key with each of its partners for
   every sum. For every sum it also has two secrets, the seed of its own mask and the lock of its
   keys with partners. It splits them so that enough of its partners can put them together again, and sends each partner
   its shares in a sealed envelope, and the server the locked keys.
3. *input*: each site gets its envelopes and sends its numbers plus its own mask, plus a mask with each partner that
   the one adds and the other subtracts.
4. *confirm*, only where keys are signed: the server says who answered, and each site signs that list, one for each sum.
5. *unmask*: the server says who answered, with the signatures. Each site gives, for every partner, its share of the
   seed if that one answered, of the lock if not.

A session is set up once for as many sums as asked: steps 1 and 2 once, the others for every sum. So R sums cost 2 + 2R
exchanges, and 2 + 3R where keys are signed. A site may miss any sum and be back for the next.

Why every sum has keys of its own
---------------------------------
With one key for the masks of a session, a site that drops out could not be taken out of a sum: in *earlier* sums it
answered, so its seeds of these were revealed, and revealing its key now takes the last masks off its earlier numbers.
Bonawitz et al. agree anew for every sum and share the private keys. Here two sites agree once, and take a key for each
sum from it by a hash; what is revealed of a site that drops out is the lock of its keys of this sum alone, 16 bytes for
each partner. Its private key is never shared, and is forgotten before the first sum.

A sum's seed could be shared together with the masked numbers. That saves no exchange, and its envelopes would be
delivered and checked only after the numbers have left: one that is damaged or held back costs the sum, and what a site
can reveal would depend on what the server chose to deliver to whom. So seeds are shared with the locks, in the
set-up, and a site that cannot open an envelope sends no numbers.

Each sum then is the plain protocol with secrets of its own, and the paper's proof holds for each. Sites forget the
secrets of a sum when it is over, so what is taken from a site later opens no earlier sum.

What is hidden, and what is not
-------------------------------
The claim: the traffic carries nothing about the numbers beyond the sum over the sites that answered. Whoever knows the
sum and the numbers of all sites but one knows that one's, with or without traffic. For any proper subset of the
survivors, what the server has after taking away all it can is still covered by a mask between a site in the subset and
one outside, which only these two can make. Numbers that arrive late, from a site that was declared dropped, are
covered by its own mask, whose seed nobody reveals.

This holds against a server that sees everything and keeps to the protocol, together with fewer than ``threshold``
sites (then: the sum over the remaining sites). On a sparse graph it holds, but for the chance that
`fedhk.privacy.secure_graph` states, together with the share of sites that is stated there, wherever in the graph they
are. Nobody chooses who is whose partner: the graph follows from the digest of all keys, and each site makes it itself.
A site refuses a list of who answered in which too few of its own partners are, or among which the graph falls
apart. What is said below of the n sites and the threshold t holds for each neighbourhood and its part of t.

Let t be the threshold and n the number of sites in the list of keys. Against a server that lies, with or without
long-term keys:

- It cannot show different lists of keys or participants: their digest goes into the keys of envelopes and masks, so
  envelopes do not open and masks do not cancel.
- It cannot get both secrets of a site by asking sites differently: t is more than half of n, and each site
  reveals one share of one of the two (with k sites that collude, while t > (n + k) / 2).
- It learns nothing from refusals: no site refuses because of its own numbers. The bound on them follows from n, and
  what is beyond it is cut.

Where every site knows the long-term keys of the others:

- It cannot be a site itself: every key is signed together with the session's terms, and checked by all partners.
- It can open a sum over one list of at least t sites, and no other. Each site reveals shares only for a list that t
  sites have signed; two such lists have a site in common, which signs one list for each sum (with k sites that collude,
  while t > (n + k) / 2: at t > 2n/3, up to a third of the sites).
- It chooses who is in the list of keys, but a site that is elsewhere demands a t above half of all sites that it knows,
  unless its policy says another number.

Where they do not:

- It *can* make up sites. With t of its own it has all shares and opens the numbers of every single site: masks protect
  against a curious server only, and against this one a site needs noise of its own (``shared_noise=False``).
- Even if it makes up none, it can tell sites different stories about who answered. Each site takes at most n - t others
  for gone, and t sites must do so for every site that is to be left out. So the server may open one sum over fewer
  sites than t, but over at least n (2t - n) / t: more than half of all at t > 2n/3, which sites elsewhere insist on;
  2 of 5 or 3 of 15 at t just above half, which is allowed in one process, where nobody can lie to anybody.

Not hidden: who took part; sums themselves. Where numbers change little from sum to sum, two sums with different
survivors give away nearly what the absent site would have sent; the same numbers must never go into two sums. Noise is
the remedy for what sums say. Wrong numbers of a hostile site cannot be seen, only numbers that break the bound on the
sum; secrecy and origin of messages on the way are the transport's.

Numbers are int64, in fixed point made elsewhere. Sums are modulo 2^64, but never wrap: each site cuts its numbers to
`most_of_site`, and the server checks the range of the sum. Where a sum has a bound, the server may ask for it in words
of w = 1, 2 or 4 bytes: then it is modulo 2^(8 w). A site cuts nothing, because its own part may be anything as long as
the total has room; masks are those of the length of the words, so that all sites must be asked for the same.

Here are the terms, the list of keys, and what travels; `fedhk.privacy.secure_site` and `fedhk.privacy.secure_server`
are the two ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhk._text import LONGEST_NAME
from fedhk.privacy.masks import MaskArray, bind
from fedhk.privacy.shamir import SHARE_BYTES

ByteArray = NDArray[np.uint8]

KEY_BYTES, SIGNATURE_BYTES = 32, 64
MAX_SUMS = 10_000

# The threshold must be above half of the sites: with half, a server could ask one half for a site's seed and the other
# half for its mask key, and have both. Where the server may lie it must be above two thirds, so that no story that it
# tells opens a sum over half of the sites or fewer.
HALF, TWO_THIRDS = Fraction(1, 2), Fraction(2, 3)


# ------------------------------------------------------------------------------------------------------------ the terms


@dataclass(frozen=True)
class MaskTerms:
    """Terms of all sums of a session.

    Parameters
    ----------
    session : str
        Its name, never used twice.
    threshold : int
        How many sites must answer for a sum to be opened, and how many shares give a secret back.
    sums : int
        For how many sums keys and shares are agreed.
    """

    session: str
    threshold: int
    sums: int

    def __post_init__(self) -> None:
        if not isinstance(self.session, str) or not 0 < len(self.session) <= LONGEST_NAME:
            raise ValueError(f"session must be a text of 1 to {LONGEST_NAME} characters, got {self.session!r}")
        for name, least in (("threshold", 2), ("sums", 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= MAX_SUMS:
                raise ValueError(f"{name} must be a whole number from {least} to {MAX_SUMS}, got {value!r}")

    @property
    def envelope_bytes(self) -> int:
        """Length of an envelope: a nonce, a tag, and two shares for each sum."""
        return 12 + 16 + self.sums * 2 * SHARE_BYTES

    def is_enough(self, n_sites: int, share: Fraction) -> bool:
        """Whether the threshold is above a share of so many sites, and no more than all of them."""
        return share * n_sites < self.threshold <= n_sites


def default_threshold(n_sites: int) -> int:
    """More than two thirds of the sites, so that 30 % of them may drop out."""
    return int(TWO_THIRDS * n_sites) + 1


# ------------------------------------------------------------------------------------------------------------- the keys


@dataclass(frozen=True, eq=False)
class Roster:
    """The sites of a session in the order of their names, and their public keys.

    All sites get the same list, so that it is written once. Digests of the keys of sites that are no partners would be
    as long as the keys.

    Parameters
    ----------
    names : tuple of str
        The sites; site i holds the shares of the point i + 1.
    cipher_keys : uint8 array of shape (n, 32)
        Their public keys.
    signatures : uint8 array of shape (n, 64)
        Zeros where a site has no long-term key.
    """

    names: tuple[str, ...]
    cipher_keys: ByteArray
    signatures: ByteArray

    @cached_property
    def index(self) -> dict[str, int]:
        """Where each name is."""
        return {name: i for i, name in enumerate(self.names)}

    def context(self, terms: MaskTerms, participants: Iterable[str] = ()) -> str:
        """Digest of all that sites must see alike: terms, keys and, once it is known, who takes part."""
        taking_part = tuple(participants)
        seed = _seed_of(self, terms)
        return digest(seed, self.mark(taking_part)) if taking_part else seed

    @cached_property
    def is_well_formed(self) -> bool:
        """Whether names are different and in their order, with a key and a signature each."""
        n = len(self.names)
        forms = ((self.cipher_keys, (n, KEY_BYTES)), (self.signatures, (n, SIGNATURE_BYTES)))
        return are_ordered(self.names) and all(has_form(array, np.uint8, shape) for array, shape in forms)

    def mark(self, names: Iterable[str]) -> ByteArray:
        """One bit for each site: whether it is among some."""
        bits = np.zeros(len(self.names), bool)
        bits[[self.index[name] for name in names]] = True
        return np.packbits(bits)

    @property
    def is_signed(self) -> bool:
        """Whether any site signed its keys: then all are asked to sign who answered."""
        return bool(self.signatures.any())


@lru_cache(maxsize=4)
def _seed_of(roster: Roster, terms: MaskTerms) -> str:
    """Digest of terms, names and keys; sites of one process have the same list and need not each make it."""
    return digest(terms, roster.names, roster.cipher_keys)


def advert_text(terms: MaskTerms, site: str, cipher_key: ByteArray) -> bytes:
    """What a site signs: its key for this session, and on what terms."""
    return bind("keys", terms.session, terms.threshold, terms.sums, site, cipher_key.tobytes().hex())


def survivors_text(context: str, number: int, survivors: ByteArray) -> bytes:
    """What a site signs: who answered in one sum of a session with these terms, keys and participants."""
    return b"fedhk secure sum survivors 2 " + digest(context, number, survivors).encode()


# --------------------------------------------------------------------------------------------------------- what travels


@dataclass(frozen=True, eq=False)
class MaskRequest:
    """The server's request in one step; a subclass for each step."""

    step: ClassVar[str]

    @cached_property
    def print(self) -> str:
        """Digest of the question, by which a site knows it again."""
        return digest(self)


@dataclass(frozen=True, eq=False)
class KeysRequest(MaskRequest):
    """Offer terms, and ask for keys."""

    step: ClassVar[str] = "keys"
    terms: MaskTerms

    @property
    def session(self) -> str:
        """The session that it begins."""
        return self.terms.session


@dataclass(frozen=True, eq=False)
class SharesRequest(MaskRequest):
    """Tell who is there with which key, and ask for shares of the site's secrets in envelopes."""

    step: ClassVar[str] = "shares"
    session: str
    roster: Roster


@dataclass(frozen=True, eq=False)
class InputRequest(MaskRequest):
    """Ask for masked numbers.

    Parameters
    ----------
    session : str
        The session.
    number : int
        The sum within the session.
    length : int
        How many numbers.
    participants : uint8 array
        Who takes part, a bit for each site of the roster; empty once the site has shown that it got it.
    envelopes : uint8 array of shape (partners, bytes)
        One from each participant of the site's neighbourhood; its own is empty.
    word : int, default=8
        Bytes of a number.
    """

    step: ClassVar[str] = "input"
    session: str
    number: int
    length: int
    participants: ByteArray = field(default_factory=lambda: np.zeros(0, np.uint8))
    envelopes: ByteArray = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    word: int = 8


@dataclass(frozen=True, eq=False)
class ConfirmRequest(MaskRequest):
    """Say whose numbers came, a bit for each site of the roster, and ask for a signature under it."""

    step: ClassVar[str] = "confirm"
    session: str
    number: int
    survivors: ByteArray


@dataclass(frozen=True, eq=False)
class UnmaskRequest(MaskRequest):
    """Say whose numbers came, with signatures of shape (signers, 64), and ask for the shares that open their sum."""

    step: ClassVar[str] = "unmask"
    session: str
    number: int
    survivors: ByteArray
    signers: tuple[str, ...] = ()
    signatures: ByteArray = field(default_factory=lambda: np.zeros((0, SIGNATURE_BYTES), np.uint8))


@dataclass(frozen=True, eq=False)
class MaskReply:
    """A site's reply in one step; a subclass for each step."""

    session: str


@dataclass(frozen=True, eq=False)
class Advert(MaskReply):
    """A site's public key of 32 bytes, signed."""

    cipher_key: ByteArray
    signature: ByteArray


@dataclass(frozen=True, eq=False)
class Envelopes(MaskReply):
    """Shares of a site's secrets, sealed, and its keys with partners, locked: a row for each of its neighbourhood.

    Envelopes have the shape (m, bytes). Locks have the shape (m, sums, 32): a locked key, and a digest of the key.
    """

    envelopes: ByteArray
    locks: ByteArray


@dataclass(frozen=True, eq=False)
class MaskedNumbers(MaskReply):
    """A site's numbers under its masks, shape (length,), in words of the length that was asked for."""

    number: int
    masked: MaskArray


@dataclass(frozen=True, eq=False)
class Confirmation(MaskReply):
    """A site's signature under who answered; zeros where it has no long-term key."""

    number: int
    signature: ByteArray


@dataclass(frozen=True, eq=False)
class Shares(MaskReply):
    """For each participant of the neighbourhood a share of its seed or of its lock, shape (participants, 48)."""

    number: int
    shares: ByteArray


# ---------------------------------------------------------------------------------------------------------- small tools


def digest(*parts: Any) -> str:
    """The same for equal content only: of texts, numbers, arrays, and tuples and dataclasses of these."""
    return sha256(json.dumps([_digest(part) for part in parts]).encode()).hexdigest()


def _digest(part: Any) -> str:
    if isinstance(part, np.ndarray):
        head = json.dumps([part.dtype.str, part.shape]).encode()
        return sha256(head + np.ascontiguousarray(part).tobytes()).hexdigest()
    if isinstance(part, tuple) and all(isinstance(text, str) for text in part):
        return sha256(json.dumps(part).encode()).hexdigest()
    if isinstance(part, tuple):
        return digest("tuple", *part)
    if hasattr(part, "__dataclass_fields__"):
        return digest(type(part).__name__, *(getattr(part, entry.name) for entry in fields(part)))
    return json.dumps(part)


def as_bytes(content: bytes) -> ByteArray:
    """Convert bytes to an array, for a message."""
    return np.frombuffer(content, np.uint8)


def has_form(array: NDArray[Any], dtype: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether an untrusted array has the expected type and shape."""
    return bool(array.dtype == dtype and array.shape == shape)


def are_ordered(names: Sequence[str]) -> bool:
    """Tell whether names are distinct and sorted."""
    return all(first < second for first, second in pairwise(names))
