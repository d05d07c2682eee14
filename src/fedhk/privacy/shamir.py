"""Shares of a secret: any `threshold` of them give it back, fewer say nothing about it (Shamir 1979).

A secret of 32 bytes is followed by 15 bytes of its SHA-256 digest, read as a number, and made the value at 0 of a
random polynomial of degree ``threshold - 1`` over the prime field of 2^384 - 317 elements. Share i is the value at
i + 1, 48 bytes. The digest is hidden with the secret; it is there so that one wrong share is noticed even when exactly
`threshold` shares are at hand, but for a chance of 2^-128.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

from fedhk.errors import FedHKError

__all__ = ["PRIME", "SECRET_BYTES", "SHARE_BYTES", "ShareError", "recover", "split"]

PRIME = 2**384 - 317
SECRET_BYTES = 32
SHARE_BYTES = 48
CHECK_BYTES = 15


class ShareError(FedHKError, ValueError):
    """Shares that give no secret: too few, damaged, or not of one secret."""


def split(
    secret: bytes, n_shares: int, threshold: int, *, entropy: Callable[[int], bytes] = secrets.token_bytes
) -> tuple[bytes, ...]:
    """Shares of a secret, of which any `threshold` give it back.

    Parameters
    ----------
    secret : bytes
        32 bytes.
    n_shares : int
        How many shares.
    threshold : int
        How many of them are needed, from 1 to `n_shares`.
    entropy : callable, default=secrets.token_bytes
        Gives as many random bytes as asked; the operating system's, except in tests.

    Returns
    -------
    tuple of bytes
        Share i is for the point i + 1.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"secret has {len(secret)} bytes, expected {SECRET_BYTES}")
    if not 1 <= threshold <= n_shares:
        raise ValueError(f"threshold={threshold} should be from 1 to n_shares={n_shares}")
    checked = secret + sha256(secret).digest()[:CHECK_BYTES]
    # 16 bytes more than an element has: the remainder is uniform but for 2^-128
    randoms = [int.from_bytes(entropy(SHARE_BYTES + 16), "little") % PRIME for _ in range(threshold - 1)]
    polynomial = [int.from_bytes(checked, "little"), *randoms]
    return tuple(_value(polynomial, point).to_bytes(SHARE_BYTES, "little") for point in range(1, n_shares + 1))


def recover(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret that shares were made of.

    Parameters
    ----------
    shares : mapping of int to bytes
        By point: share i of `split` has the point i + 1. All must fit, also those beyond `threshold`.
    threshold : int
        As it was given to `split`.

    Raises
    ------
    ShareError
        If there are too few shares, or they are not all of one secret.
    """
    if threshold < 1 or len(shares) < threshold:
        raise ShareError(f"{len(shares)} shares, {max(threshold, 1)} are needed")
    if any(point < 1 for point in shares):
        raise ShareError(f"a share has the point {min(shares)}, points are counted from 1")
    if any(len(share) != SHARE_BYTES for share in shares.values()):
        raise ShareError(f"a share does not have {SHARE_BYTES} bytes")
    points = tuple(sorted(shares))
    values = [int.from_bytes(shares[point], "little") for point in points]
    basis, known = points[:threshold], values[:threshold]
    if any(value >= PRIME for value in values):
        raise ShareError("a share is no element of the field")
    for point, value in zip(points[threshold:], values[threshold:], strict=True):
        if _at(basis, known, point) != value:
            raise ShareError(f"the {len(shares)} shares are not all of one secret")
    checked = _at(basis, known, 0)
    # digits above the secret and its digest can only come from a wrong share
    wide = checked.to_bytes(SHARE_BYTES, "little")
    secret, rest = wide[:SECRET_BYTES], wide[SECRET_BYTES:]
    if rest != sha256(secret).digest()[:CHECK_BYTES] + bytes(SHARE_BYTES - SECRET_BYTES - CHECK_BYTES):
        raise ShareError(f"the {len(shares)} shares give no secret: at least one is wrong")
    return secret


def _value(polynomial: Sequence[int], point: int) -> int:
    """Horner's rule."""
    total = 0
    for coefficient in reversed(polynomial):
        total = (total * point + coefficient) % PRIME
    return total


def _at(points: tuple[int, ...], values: Sequence[int], point: int) -> int:
    """The value at a point of the polynomial through the given ones."""
    return sum(w * value for w, value in zip(_weights(points, point), values, strict=True)) % PRIME


@lru_cache(maxsize=512)
def _weights(points: tuple[int, ...], at: int) -> tuple[int, ...]:
    """Lagrange's weights: they depend on who answered, not on the secret, and one sum needs them for every site."""
    weights = []
    for i, own in enumerate(points):
        above = below = 1
        for other in points[:i] + points[i + 1 :]:
            above = above * (at - other) % PRIME
            below = below * (own - other) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
