"""Sums of which nobody sees the parts (Bonawitz et al. 2017, CCS, the protocol for honest-but-curious servers).

Exchanges
---------
Four steps, in each of which the server asks and the sites answer:

1. *keys*: each site makes fresh keys and sends the public ones: one X25519 key for envelopes, and for every sum of the
   session one for masks. Signed with its long-term key where operators exchanged those.
2. *shares*: each site gets the list of keys, splits for every sum its private mask key and the seed of its own mask so
   that `threshold` sites can put them together again, and sends each other site its shares in a sealed envelope.
3. *input*: each site gets its envelopes and sends its numbers plus its own mask, plus a mask with each other site that
   the one adds and the other subtracts.
4. *unmask*: the server says who answered. Each site gives, for every participant, its share of the seed if that one
   answered, of the mask key if not.

A session is set up once for as many sums as asked: steps 1 and 2 once, steps 3 and 4 for every sum, so R sums cost
2 + 2R exchanges. A site may miss any sum and be back for the next.

Why keys are not reused between sums
------------------------------------
It would be cheaper to agree on one mask key for the session and derive each sum's masks from it. That is not safe, even
if a site that dropped out is never asked again: in *earlier* sums it answered, so its seeds of these were revealed, and
revealing its key now takes the last masks off its earlier numbers. So every sum needs mask keys of its own, shared
before; and these can be made and shared for many sums at once.

A sum's seed could be shared together with the masked numbers. That saves no exchange, and its envelopes would be
delivered and checked only after the numbers have left: one that is damaged or held back costs the sum, and what a site
can reveal would depend on what the server chose to deliver to whom. So seeds are shared with the mask keys, in the
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
sites (then: the sum over the remaining sites). Against a server that lies, beyond that:

- It cannot be a site itself where long-term keys are exchanged: every key is signed together with the session's terms.
- It cannot show different lists of keys or participants: their digest goes into the keys of envelopes and masks, so
  envelopes do not open and masks do not cancel.
- It cannot get both secrets of a site by asking different sites differently: the threshold t is more than half of the n
  sites, and each reveals one share of one of the two (with k sites that collude, while t > (n + k) / 2).
- It *can* tell sites different stories about who answered; then it may open one sum over fewer sites than the
  threshold, but over at least n - n (n - t) / t of them: half of all for t = 2n/3. The paper's fifth exchange closes
  this; it is not done here.

Not hidden: who took part; sums themselves. Where numbers change little from sum to sum, two sums with different
survivors give away nearly what the absent site would have sent; the same numbers must never go into two sums. Noise is
the remedy for what sums say. Wrong numbers of a hostile site cannot be seen, only numbers that break the bound on the
sum; secrecy and origin of messages on the way are the transport's.

Numbers are int64, in fixed point made elsewhere. Sums are modulo 2^64, but never wrap: ``n_sites * bound < 2^63`` and
``|number| <= bound`` are checked at the site, the range of the sum at the server.

Here are the terms, the list of keys, and what travels; `fedhk.privacy.secure_site` and `fedhk.privacy.secure_server`
are the two ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import FedHKError, MessageError, QuorumError
from fedhk.privacy._lazy import primitives
from fedhk.privacy.masks import MaskArray
from fedhk.privacy.shamir import SHARE_BYTES

ByteArray = NDArray[np.uint8]

KEY_BYTES, SIGNATURE_BYTES = 32, 64
MAX_SUMS = 10_000
MAX_NAME = 200
LIMIT = 2**63


class ThresholdError(QuorumError):
    """Too few sites are left for a sum to be opened; nothing of it is known to anybody."""


class OutOfRangeError(FedHKError, OverflowError):
    """Numbers beyond what a sum modulo 2^64 can hold, or beyond what was agreed."""


# ------------------------------------------------------------------------------------------------------------ the terms


@dataclass(frozen=True)
class MaskTerms:
    """What holds for all sums of a session.

    Parameters
    ----------
    session : str
        Its name, never used twice.
    threshold : int
        How many sites must answer for a sum to be opened, and how many shares give a secret back.
    sums : int
        For how many sums keys and shares are agreed.
    bound : int
        Largest absolute value that a site may put in.
    """

    session: str
    threshold: int
    sums: int
    bound: int

    def __post_init__(self) -> None:
        if not isinstance(self.session, str) or not 0 < len(self.session) <= MAX_NAME:
            raise ValueError(f"session must be a text of 1 to {MAX_NAME} characters, got {self.session!r}")
        for name, least, most in (("threshold", 2, MAX_SUMS), ("sums", 1, MAX_SUMS), ("bound", 0, LIMIT - 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")

    @property
    def envelope_bytes(self) -> int:
        """Length of an envelope: a nonce, a tag, and two shares for each sum."""
        return 12 + 16 + self.sums * 2 * SHARE_BYTES

    def check_sites(self, n_sites: int) -> None:
        """Refuse a number of sites that the terms do not fit.

        A threshold of half the sites would let a server ask one half for a site's seed and the other half for its mask
        key, and have both.
        """
        if n_sites < self.threshold:
            raise ValueError(f"{n_sites} sites take part, the threshold is {self.threshold}")
        if 2 * self.threshold <= n_sites:
            raise ValueError(f"threshold={self.threshold} must be more than half of the {n_sites} sites")
        if n_sites * self.bound >= LIMIT:
            raise OutOfRangeError(
                f"{n_sites} sites with numbers up to {self.bound} can sum to {n_sites * self.bound}, "
                f"which must be below 2^63; use fewer binary digits after the point"
            )


def default_threshold(n_sites: int) -> int:
    """More than two thirds of the sites, so that 30 % of them may drop out."""
    return 2 * n_sites // 3 + 1


# ------------------------------------------------------------------------------------------------------------- the keys


@dataclass(frozen=True, eq=False)
class Roster:
    """The public keys of a session, in the order of the sites' names.

    Parameters
    ----------
    names : tuple of str
        The sites; site i holds the shares of the point i + 1.
    cipher_keys : uint8 array of shape (n, 32)
        For the envelopes.
    mask_keys : uint8 array of shape (n, sums, 32)
        One for each sum.
    signatures : uint8 array of shape (n, 64)
        Zeros where a site has no long-term key.
    """

    names: tuple[str, ...]
    cipher_keys: ByteArray
    mask_keys: ByteArray
    signatures: ByteArray

    def cipher_key(self, site: str) -> bytes:
        """The key for envelopes to a site."""
        return bytes(self.cipher_keys[self.names.index(site)])

    def mask_key(self, site: str, number: int) -> bytes:
        """The key for masks with a site in one sum."""
        return bytes(self.mask_keys[self.names.index(site), number])

    def context(self, terms: MaskTerms, participants: tuple[str, ...] = ()) -> str:
        """Digest of all that sites must see alike: terms, keys and, once it is known, who takes part."""
        return digest(self, terms, participants)

    def check(self, terms: MaskTerms, own: str, advert: Advert, known: Mapping[str, bytes]) -> None:
        """Refuse, at a site, a list in which a site could stand twice or be somebody else, or that is too short.

        Parameters
        ----------
        terms : MaskTerms
            What was agreed.
        own : str
            The site that looks.
        advert : Advert
            The keys that it sent.
        known : mapping of str to bytes
            Public long-term keys of the other sites; nobody's signature is looked at where it is empty.
        """
        n = len(self.names)
        check_names(self.names, "names", own)
        check_array(self.cipher_keys, "cipher_keys", np.uint8, (n, KEY_BYTES), own)
        check_array(self.mask_keys, "mask_keys", np.uint8, (n, terms.sums, KEY_BYTES), own)
        check_array(self.signatures, "signatures", np.uint8, (n, SIGNATURE_BYTES), own)
        try:
            terms.check_sites(n)
        except ValueError as error:
            raise MessageError(f"the list of keys cannot be used: {error}", own) from error
        if own not in self.names:
            raise MessageError("the list of keys lacks this site", own)
        row = self.names.index(own)
        mine, listed = (advert.cipher_key, advert.mask_keys), (self.cipher_keys[row], self.mask_keys[row])
        if not all(np.array_equal(sent, found) for sent, found in zip(mine, listed, strict=True)):
            raise MessageError("the list of keys has other keys for this site than it made", own)
        self._check_different()
        for name in self.names if known else ():
            if name != own:
                self._check_signature(terms, name, own, known)

    def _check_different(self) -> None:
        """Refuse a key that stands twice: two masks, or a mask and an envelope, would hang on one secret."""
        owners: dict[bytes, str] = {}
        for row, name in enumerate(self.names):
            for key in (self.cipher_keys[row], *self.mask_keys[row]):
                if bytes(key) in owners:
                    raise MessageError(f"its key in the list is also a key of site {owners[bytes(key)]!r}", name)
                owners[bytes(key)] = name

    def _check_signature(self, terms: MaskTerms, name: str, own: str, known: Mapping[str, bytes]) -> None:
        if name not in known:
            raise MessageError(f"its long-term key is not known to site {own!r}", name)
        row = self.names.index(name)
        text = advert_text(terms, name, self.cipher_keys[row], self.mask_keys[row])
        if not primitives.signed_by(known[name], bytes(self.signatures[row]), text):
            raise MessageError("its keys are not signed by the long-term key that its operator gave", name)


def advert_text(terms: MaskTerms, site: str, cipher_key: ByteArray, mask_keys: ByteArray) -> bytes:
    """What a site signs: its keys for this session, and on what terms."""
    return b"fedhk secure sum keys 2 " + digest(terms, site, cipher_key, mask_keys).encode()


# --------------------------------------------------------------------------------------------------------- what travels


@dataclass(frozen=True, eq=False)
class MaskRequest:
    """What the server asks in one step; a subclass for each step."""

    step: ClassVar[str]


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
    """Tell everybody's keys, and ask for shares of the site's secrets in envelopes."""

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
    participants : tuple of str
        Whose envelopes come with it; empty once the site has shown that it got them.
    envelopes : uint8 array of shape (participants, bytes)
        One from each.
    """

    step: ClassVar[str] = "input"
    session: str
    number: int
    length: int
    participants: tuple[str, ...] = ()
    envelopes: ByteArray = field(default_factory=lambda: np.zeros((0, 0), np.uint8))


@dataclass(frozen=True, eq=False)
class UnmaskRequest(MaskRequest):
    """Say whose numbers came, and ask for the shares that open their sum."""

    step: ClassVar[str] = "unmask"
    session: str
    number: int
    survivors: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class MaskReply:
    """What a site answers in one step; a subclass for each step."""

    session: str


@dataclass(frozen=True, eq=False)
class Advert(MaskReply):
    """A site's public keys: one for envelopes, shape (32,); one for the masks of each sum, shape (sums, 32); signed."""

    cipher_key: ByteArray
    mask_keys: ByteArray
    signature: ByteArray


@dataclass(frozen=True, eq=False)
class Envelopes(MaskReply):
    """Shares of a site's secrets, sealed: row i of the array, of shape (n, bytes), is for site i of the roster."""

    envelopes: ByteArray


@dataclass(frozen=True, eq=False)
class MaskedNumbers(MaskReply):
    """A site's numbers under its masks, shape (length,)."""

    number: int
    masked: MaskArray


@dataclass(frozen=True, eq=False)
class Shares(MaskReply):
    """For each participant a share of its seed or of its mask key, shape (participants, 48)."""

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
    if isinstance(part, tuple):
        return digest("tuple", *part)
    if hasattr(part, "__dataclass_fields__"):
        return digest(type(part).__name__, *(getattr(part, entry.name) for entry in fields(part)))
    return json.dumps(part)


def as_bytes(content: bytes) -> ByteArray:
    """Bytes as an array, as they travel."""
    return np.frombuffer(content, np.uint8)


def check_array(array: NDArray[Any], name: str, dtype: Any, shape: tuple[int, ...], site: str) -> None:
    """Refuse an array from anybody that is not what was expected; `site` is named."""
    if array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype} of shape {array.shape}"
        raise MessageError(f"{name!r} is {found}, expected {np.dtype(dtype)} of shape {shape}", site)


def check_names(names: Sequence[str], what: str, site: str) -> None:
    """Refuse names that are not different and in their order."""
    if any(first >= second for first, second in pairwise(names)):
        raise MessageError(f"{what!r} names a site twice, or not in the order of names", site)
