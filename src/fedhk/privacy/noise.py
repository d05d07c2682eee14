"""Noise for releases: whole numbers from the operating system's entropy.

The numbers that leave a site lie on a grid (`fedhk.privacy.fixed_point`), and so does their noise. Noise in floating
point would give the data away by its last digits (Mironov 2012). No seed can be given: who knows the seed can subtract
the noise.
"""

from __future__ import annotations

import math
import os
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedhk.data.checks import check_number

__all__ = ["LARGEST_SIGMA", "SMALLEST_SIGMA", "discrete_gaussian"]

SMALLEST_SIGMA = 0.5
LARGEST_SIGMA = 2.0**40
# Candidates drawn at once: their arrays stay within a few megabytes whatever is asked for.
MOST_CANDIDATES = 2**17


def discrete_gaussian(sigma: float, size: int | tuple[int, ...]) -> NDArray[np.int64]:
    """Independent whole numbers y with probability proportional to exp(-y^2 / (2 sigma^2)).

    Parameters
    ----------
    sigma : float
        In grid units: 0 for no noise, else from 0.5 to 2**40.
    size : int or tuple of int
        Shape of the result.

    Returns
    -------
    array of int64
        New numbers in every call, thread and process. NumPy's random state is neither read nor changed.

    Notes
    -----
    Rejection from a two-sided geometric distribution (Canonne, Kamath and Steinke 2020, Algorithm 3), many candidates
    at once. Candidates are drawn exactly. Whether one is kept is decided by 64 random bits against a probability in
    float64, where the paper uses rational numbers of any length. So the probability of a number is right to a relative
    error below 1e-12, and numbers beyond about 10 sigma, together less likely than 1e-18, do not occur. For a release
    of D numbers that is at most 2e-12 D more epsilon and 1e-18 D more delta. The time that a call takes depends on how
    many candidates it refuses, and not on which numbers it returns; it is not constant.

    `fedhk.privacy.accounting` is exact for Gaussian noise on a line. On a grid, delta differs from it by a relative
    error below 4 / sigma^2 (for delta from 1e-3 to 1e-8): use a grid on which sigma is a hundred steps or more. A sum
    of such noise from several sites is not exactly of this distribution, but of that size the difference is far below
    the others.
    """
    sigma = check_number(sigma, "sigma")
    if sigma != 0 and not SMALLEST_SIGMA <= sigma <= LARGEST_SIGMA:
        raise ValueError(
            f"sigma must be 0 or from {SMALLEST_SIGMA} to 2**40 grid units, got {sigma!r}. "
            f"Use a {'finer' if sigma < SMALLEST_SIGMA else 'coarser'} grid."
        )
    result = np.zeros(size, dtype=np.int64)
    if sigma == 0:
        return result
    flat, filled = result.reshape(-1), 0
    while filled < flat.size:
        missing = flat.size - filled
        kept = _kept_candidates(sigma, min(MOST_CANDIDATES, 3 * missing + 16))[:missing]
        flat[filled : filled + len(kept)] = kept
        filled += len(kept)
    return result


def _kept_candidates(sigma: float, count: int) -> NDArray[np.int64]:
    """Those of a number of candidates that are kept: about 0.4 of them."""
    scale = math.floor(sigma) + 1
    # A magnitude is low + scale * high: low uniform below the scale, high geometric.
    bits = _random_bits(count)
    limit = 2**64 - 2**64 % scale  # beyond the last whole multiple, small remainders would be likelier
    fair = bits <= np.uint64(limit - 1)
    low = (bits % np.uint64(scale)).astype(np.int64)
    thresholds = _geometric_thresholds()
    high = len(thresholds) - np.searchsorted(thresholds, _random_bits(count), side="right")
    magnitude = low + scale * high.astype(np.int64)
    negative = (np.frombuffer(os.urandom(count), dtype=np.uint8) & 1).astype(bool)
    # Canonne, Kamath and Steinke 2020, Algorithms 2 and 3, both refusals in one:
    # exp(-low / t) exp(-(|y| - sigma^2 / t)^2 / (2 sigma^2)), t the scale
    offset = (magnitude - sigma * (sigma / scale)) / sigma
    probability = np.exp(-(low / scale + offset * offset / 2))
    keep = _random_bits(count).astype(np.float64) < np.ldexp(probability, 64)
    # zero has one sign only, else it would be drawn twice as often
    keep &= fair & ~(negative & (magnitude == 0))
    return np.where(negative, -magnitude, magnitude)[keep]


def _random_bits(count: int) -> NDArray[np.uint64]:
    """64 bits each from the operating system: a forked process has no copy of a state that it could repeat."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


@cache
def _geometric_thresholds() -> NDArray[np.uint64]:
    """exp(-v) 2^64 for v = 44, ..., 1: how many of them exceed 64 random bits is v or more with probability exp(-v)."""
    with localcontext() as context:
        context.prec = 60
        return np.array([int(Decimal(-v).exp() * 2**64) for v in range(44, 0, -1)], dtype=np.uint64)
