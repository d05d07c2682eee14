"""Masks that cancel in a sum, and envelopes between sites that the server carries but cannot open.

A mask is ChaCha20 keystream read as whole numbers modulo 2^64, or modulo 2^(8 w) in words of w bytes. Its key comes
from HKDF-SHA256 over a secret of two sites (or of one, for its own mask) and over everything that the mask is for:
purpose, session, sum, length of the words, the sites' names and the digest of who takes part. So no two masks are alike
unless all of these are. Were words of different lengths cut from one keystream, a server that asks two sites for
different lengths could compare them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError, Rule
from fedhk.privacy._lazy import primitives

__all__ = ["MaskArray", "add_mask", "bind", "open_envelope", "pair_mask", "seal_envelope", "self_mask"]

MaskArray = NDArray[np.unsignedinteger[Any]]

PROTOCOL = "fedhk secure sum 1"

# What a site says, the same text whoever is at fault; its log names who.
CLOSED_ENVELOPE = Rule("shares cannot be opened: they were changed, or belong to another session or list of keys")
WEAK_KEY = Rule("a public key is not usable: agreements with it would be the same for everybody")


def bind(purpose: str, *parts: str | int) -> bytes:
    """One text for one purpose and its particulars; JSON keeps ("a", "bc") apart from ("ab", "c")."""
    return json.dumps([PROTOCOL, purpose, *parts]).encode()


def pair_mask(
    private: bytes, public: bytes, own: str, other: str, length: int, *, context: str, number: int, word: int = 8
) -> MaskArray:
    """The mask that two sites share, with the sign that it has at `own`: at `other` it is the negative.

    Parameters
    ----------
    private, public : bytes
        The private mask key of one of the two, and the public one of the other. Either way round gives the same mask.
    own, other : str
        The sites.
    length : int
        How many numbers.
    context : str
        Digest of the session and of who takes part.
    number : int
        The sum within the session.
    word : int, default=8
        Bytes of a number.

    Raises
    ------
    MessageError
        If the public key is one of the few that make every agreement come out the same.
    """
    first, second = sorted([own, other])
    key = primitives.derive(_agreed(private, public, other), bind("pair mask", context, number, word, first, second))
    mask = _keystream(key, length, word)
    return mask if own == first else np.negative(mask, out=mask)


def self_mask(seed: bytes, own: str, length: int, *, context: str, number: int, word: int = 8) -> MaskArray:
    """The mask of one site alone, which covers its numbers when the masks with the others have been taken away."""
    return _keystream(primitives.derive(seed, bind("self mask", context, number, word, own)), length, word)


def add_mask(total: MaskArray, mask: MaskArray, *, sign: int = 1) -> None:
    """Add or take away a mask in place, modulo 2 to the bits of a word."""
    (np.add if sign > 0 else np.subtract)(total, mask, out=total)


def seal_envelope(private: bytes, public: bytes, sender: str, receiver: str, plain: bytes, *, context: str) -> bytes:
    """Bytes that only `receiver` can open, and only as coming from `sender` in this session and list of keys."""
    key = primitives.derive(_agreed(private, public, receiver), bind("shares", context, sender, receiver))
    return primitives.seal(key, plain, bind("envelope", context, sender, receiver))


def open_envelope(private: bytes, public: bytes, sender: str, receiver: str, sealed: bytes, *, context: str) -> bytes:
    """What `seal_envelope` was given.

    Raises
    ------
    MessageError
        Naming the sender, if the envelope was changed, is another's, or of another session or list of keys.
    """
    key = primitives.derive(_agreed(private, public, sender), bind("shares", context, sender, receiver))
    plain = primitives.unseal(key, sealed, bind("envelope", context, sender, receiver))
    if plain is None:
        raise MessageError(CLOSED_ENVELOPE, sender)
    return plain


def _agreed(private: bytes, public: bytes, other: str) -> bytes:
    try:
        return primitives.agree(private, public)
    except ValueError as error:
        raise MessageError(WEAK_KEY, other) from error


def _keystream(key: bytes, length: int, word: int) -> MaskArray:
    stream = np.frombuffer(primitives.keystream(key, word * length), dtype=f"<u{word}")
    return stream.astype(stream.dtype.newbyteorder("="))
