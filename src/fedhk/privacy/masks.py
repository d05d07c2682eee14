"""Masks that cancel in a sum, and envelopes between sites that the server carries but cannot open.

Two sites agree once in a session (X25519), and make from that the keys of their envelopes, and a key of 16 bytes for
each sum (SHAKE-256). After that they forget what they agreed on: the key of one sum tells nothing of another. A site
*locks* its keys of a sum with a secret that it shares among its partners: if it drops out, the secret opens these keys,
and those of no other sum.

A mask is ChaCha20 keystream read as whole numbers modulo 2^64, or modulo 2^(8 w) in words of w bytes. Its key comes
from SHAKE-256 over the key of two sites (or the seed of one, for its own mask) and everything that the mask is for:
purpose, session, sum, length of the words, the sites' names and the digest of who takes part. So no two masks are alike
unless all of these are. Were words of different lengths cut from one keystream, a server that asks two sites for
different lengths could compare them.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError, Rule
from fedhk.privacy._lazy import primitives

__all__ = [
    "PAIR_KEY_BYTES",
    "MaskArray",
    "add_mask",
    "add_pair_masks",
    "agree_with",
    "bind",
    "envelope_key",
    "key_prints",
    "lock_keys",
    "open_envelope",
    "pair_keys",
    "seal_envelope",
    "self_mask",
]

MaskArray = NDArray[np.unsignedinteger[Any]]

PROTOCOL = "fedhk secure sum 2"
PRINT = b"fedhk pair key 1 "

PAIR_KEY_BYTES = 16

# What a site says, the same text whoever is at fault; its log names who.
CLOSED_ENVELOPE = Rule("shares cannot be opened: they were changed, or belong to another session or list of keys")
WEAK_KEY = Rule("a public key is not usable: agreements with it would be the same for everybody")


def bind(purpose: str, *parts: str | int) -> bytes:
    """One text for one purpose and its particulars; lengths keep ("a", "bc") apart from ("ab", "c")."""
    return "".join([f"{len(text)}:{text}" for text in (PROTOCOL, purpose, *map(str, parts))]).encode()


def agree_with(private: bytes, publics: Mapping[str, bytes]) -> dict[str, bytes]:
    """The secrets that the owner of a private key has with other sites, by their public keys.

    Raises
    ------
    MessageError
        Naming a site whose public key is one of the few that make every agreement come out the same.
    """
    agreed: dict[str, bytes] = {}
    secrets = primitives.agree(private, publics.values())
    for other in publics:
        try:
            agreed[other] = next(secrets)
        except ValueError as error:
            raise MessageError(WEAK_KEY, other) from error
    return agreed


def pair_keys(agreed: bytes, own: str, other: str, sums: int, *, context: str) -> NDArray[np.uint8]:
    """The keys of two sites for the masks of each sum, shape (sums, 16), the same at both. None tells of another."""
    content = primitives.expand(agreed, bind("pair keys", context, *sorted([own, other])), sums * PAIR_KEY_BYTES)
    return np.frombuffer(content, np.uint8).reshape(sums, PAIR_KEY_BYTES)


def lock_keys(secret: bytes, keys: NDArray[np.uint8], own: str, *, context: str, number: int) -> NDArray[np.uint8]:
    """The keys of a site for one sum, under a secret for this sum alone; once more with the secret, they are open."""
    content = primitives.expand(secret, bind("lock", context, number, own), keys.size)
    return keys ^ np.frombuffer(content, np.uint8).reshape(keys.shape)


def key_prints(keys: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Digests by which keys of pairs are known again, 16 bytes each."""
    flat = np.ascontiguousarray(keys).reshape(-1, PAIR_KEY_BYTES)
    content = b"".join(sha256(PRINT + key.tobytes()).digest()[:PAIR_KEY_BYTES] for key in flat)
    return np.frombuffer(content, np.uint8).reshape(keys.shape)


def add_pair_masks(total: MaskArray, keys: Mapping[str, bytes], own: str, *, context: str, number: int) -> None:
    """Add in place the masks that a site shares with others, by its keys with them; words are those of `total`."""
    word, size = total.itemsize, total.nbytes
    common = bind("pair mask", context, number, word)
    expand, keystream = primitives.expand, primitives.keystream
    for other, key in keys.items():
        first, second = (own, other) if own < other else (other, own)
        info = common + f"{len(first)}:{first}{second}".encode()
        mask = np.frombuffer(keystream(expand(key, info, 32), size), f"<u{word}")
        (np.add if own == first else np.subtract)(total, mask, out=total)


def self_mask(seed: bytes, own: str, length: int, *, context: str, number: int, word: int = 8) -> MaskArray:
    """The mask of one site alone, which covers its numbers when the masks with the others have been taken away."""
    return _keystream(seed, bind("self mask", context, number, word, own), length, word)


def add_mask(total: MaskArray, mask: MaskArray, *, sign: int = 1) -> None:
    """Add or take away a mask in place, modulo 2 to the bits of a word."""
    (np.add if sign > 0 else np.subtract)(total, mask, out=total)


def envelope_key(agreed: bytes, sender: str, receiver: str, *, context: str) -> bytes:
    """The key of an envelope, which only `sender` and `receiver` can make."""
    return primitives.derive(agreed, bind("shares", context, sender, receiver))


def seal_envelope(key: bytes, sender: str, receiver: str, plain: bytes, *, context: str) -> bytes:
    """Bytes that only `receiver` can open, and only as coming from `sender` in this session and list of keys."""
    return primitives.seal(key, plain, bind("envelope", context, sender, receiver))


def open_envelope(key: bytes, sender: str, receiver: str, sealed: bytes, *, context: str) -> bytes:
    """What `seal_envelope` was given.

    Raises
    ------
    MessageError
        Naming the sender, if the envelope was changed, is another's, or of another session or list of keys.
    """
    plain = primitives.unseal(key, sealed, bind("envelope", context, sender, receiver))
    if plain is None:
        raise MessageError(CLOSED_ENVELOPE, sender)
    return plain


def _keystream(key: bytes, info: bytes, length: int, word: int) -> MaskArray:
    stream = np.frombuffer(primitives.keystream(primitives.expand(key, info, 32), word * length), dtype=f"<u{word}")
    return stream.astype(stream.dtype.newbyteorder("="))
