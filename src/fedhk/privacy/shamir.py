"""Shares of a secret: any `threshold` of them give it back, fewer say nothing about it (Shamir 1979).

A secret of 32 bytes is followed by 14 bytes of its SHA-256 digest and cut into 16 numbers of 23 bits. Each is made the
value at 0 of a random polynomial of degree ``threshold - 1`` over the prime field of 2^24 - 3 elements. A share is
the 16 values at one point, 48 bytes. The field is small so that many secrets are shared by one product of matrices,
which is exact in float64. The digest is hidden with the secret; it is there so that one wrong share is noticed even
when exactly `threshold` shares are at hand, but for a chance of 2^-112.
"""

from __future__ import annotations

import secrets as system
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import FedHKError

__all__ = ["PRIME", "SECRET_BYTES", "SHARE_BYTES", "ShareError", "recover", "split"]

PRIME = 2**24 - 3
SECRET_BYTES = 32
SHARE_BYTES = 48
CHECK_BYTES = 14
DIGITS, DIGIT_BITS = 16, 23

Digits = NDArray[np.int64]


class ShareError(FedHKError, ValueError):
    """Shares that give no secret: too few, damaged, or not of one secret."""


def split(
    secrets: NDArray[np.uint8],
    points: NDArray[np.integer[Any]],
    threshold: int,
    *,
    entropy: Callable[[int], bytes] = system.token_bytes,
) -> NDArray[np.uint8]:
    """Shares of secrets, of which any `threshold` give a secret back.

    Parameters
    ----------
    secrets : uint8 array of shape (count, 32)
        Each is shared by polynomials of its own.
    points : int array of shape (n_shares,)
        Different whole numbers from 1 on.
    threshold : int
        How many shares are needed, from 1 to `n_shares`.
    entropy : callable, default=secrets.token_bytes
        Gives as many random bytes as asked; the operating system's, except in tests.

    Returns
    -------
    uint8 array of shape (n_shares, count, 48)
        The shares at each point.
    """
    if secrets.ndim != 2 or secrets.shape[1] != SECRET_BYTES:
        raise ValueError(f"secrets have {secrets.shape[-1]} bytes, expected {SECRET_BYTES}")
    if not 1 <= threshold <= len(points):
        raise ValueError(f"threshold={threshold} should be from 1 to n_shares={len(points)}")
    checks = [sha256(secret.tobytes()).digest()[:CHECK_BYTES] for secret in secrets]
    checked = np.hstack([secrets, np.frombuffer(b"".join(checks), np.uint8).reshape(len(secrets), -1)])
    bits = np.unpackbits(checked, axis=1, bitorder="little").reshape(-1, DIGIT_BITS)
    constant = bits @ (1 << np.arange(DIGIT_BITS))
    powers = np.ones((len(points), threshold), np.int64)
    for degree in range(1, threshold):
        powers[:, degree] = powers[:, degree - 1] * points % PRIME
    coefficients = np.vstack([constant, _uniform((threshold - 1) * constant.size, entropy).reshape(-1, constant.size)])
    return _to_bytes(_product(powers, coefficients)).reshape(len(points), len(secrets), SHARE_BYTES)


def recover(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret that shares were made of.

    Parameters
    ----------
    shares : mapping of int to bytes
        By point. All must fit, also those beyond `threshold`.
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
    values = _from_bytes(np.frombuffer(b"".join(shares[point] for point in points), np.uint8))
    if values.max() >= PRIME:
        raise ShareError("a share is no element of the field")
    at_zero_and_rest = _product(_weights(points, threshold), values[:threshold])
    if not np.array_equal(at_zero_and_rest[1:], values[threshold:]):
        raise ShareError(f"the {len(shares)} shares are not all of one secret")
    # bits above the secret and its digest can only come from a wrong share
    bits = at_zero_and_rest[0][:, None] >> np.arange(DIGIT_BITS + 1) & 1
    checked = np.packbits(bits[:, :DIGIT_BITS].astype(np.uint8).ravel(), bitorder="little").tobytes()
    secret, rest = checked[:SECRET_BYTES], checked[SECRET_BYTES:]
    if bits[:, DIGIT_BITS].any() or rest != sha256(secret).digest()[:CHECK_BYTES]:
        raise ShareError(f"the {len(shares)} shares give no secret: at least one is wrong")
    return secret


def _uniform(count: int, entropy: Callable[[int], bytes]) -> Digits:
    """Random elements of the field; the few numbers beyond it are drawn again, so that all are equally likely."""
    numbers = np.full(count, PRIME, np.int64)
    while (beyond := np.flatnonzero(numbers >= PRIME)).size:
        numbers[beyond] = np.frombuffer(entropy(4 * beyond.size), "<u4") & 0xFFFFFF
    return numbers


def _product(left: Digits, right: Digits) -> Digits:
    """Product of matrices over the field: in two halves of 12 bits, whose sums of products float64 holds exactly."""
    high, low = ((part.astype(np.float64) @ right.astype(np.float64)).astype(np.int64) for part in divmod(left, 4096))
    return (high % PRIME * 4096 + low) % PRIME


def _to_bytes(numbers: Digits) -> NDArray[np.uint8]:
    """Three bytes for each number."""
    return np.ascontiguousarray(numbers.astype("<u4")[..., None].view(np.uint8)[..., :3])


def _from_bytes(content: NDArray[np.uint8]) -> Digits:
    """What `_to_bytes` was given, a row for each share."""
    wide = np.zeros((content.size // 3, 4), np.uint8)
    wide[:, :3] = content.reshape(-1, 3)
    return wide.view("<u4").astype(np.int64).reshape(-1, DIGITS)


@lru_cache(maxsize=2048)
def _weights(points: tuple[int, ...], threshold: int) -> Digits:
    """Lagrange's weights of the first points, for the values at 0 and at the points beyond the threshold.

    They depend on who answered, not on the secret. The weight of x_i for the value at a is
    prod_j (a - x_j) / ((a - x_i) prod_{j != i} (x_i - x_j)).
    """
    basis, at = np.array(points[:threshold], np.int64), np.array([0, *points[threshold:]], np.int64)
    apart, between = at[:, None] - basis, basis[:, None] - basis
    np.fill_diagonal(between, 1)
    below = _inverse(_multiply(between % PRIME))[None, :] * _small_inverses(apart) % PRIME
    return _multiply(apart % PRIME)[:, None] * below % PRIME


def _small_inverses(numbers: Digits) -> Digits:
    """Inverses of differences of points, from a table, because they are the same few for all secrets."""
    table = _inverse_table(int(np.abs(numbers).max()).bit_length())
    return np.sign(numbers) * table[np.abs(numbers)]


@lru_cache(maxsize=4)
def _inverse_table(bits: int) -> Digits:
    """Inverses of all numbers of so many bits."""
    return _inverse(np.arange(2**bits))


def _multiply(numbers: Digits) -> Digits:
    """Products over the last axis, by halves."""
    while numbers.shape[-1] > 1:
        half = numbers.shape[-1] // 2
        rest = numbers[..., 2 * half :]
        numbers = np.concatenate([numbers[..., :half] * numbers[..., half : 2 * half] % PRIME, rest], axis=-1)
    return numbers[..., 0]


def _inverse(numbers: Digits) -> Digits:
    """The power of PRIME - 2, by Fermat."""
    result = np.ones_like(numbers)
    for bit in reversed(range((PRIME - 2).bit_length())):
        result = result * result % PRIME
        if (PRIME - 2) >> bit & 1:
            result = result * numbers % PRIME
    return result
