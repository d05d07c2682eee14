"""Lengths estimated from noisy counts by length."""

from __future__ import annotations

import math

import numpy as np

from fedhk._typing import FloatArray

__all__ = ["believed_above", "find_mean_square", "find_quantile"]

# Probability with which noise makes any length look as if something had it.
FALSE_LENGTH = 0.01


def believed_above(tested: int) -> float:
    """Return the standard deviations of noise above which a count is significant, if so many are tested."""
    return math.sqrt(2 * math.log(tested / FALSE_LENGTH))


def find_quantile(counts: FloatArray, noise: float, lengths: FloatArray, share: float, tested: int) -> float:
    """Estimate the length that a given share of the counted does not exceed.

    Within a range, what was counted is taken to be spread evenly over the logarithm of the length.

    Parameters
    ----------
    counts : array of shape (m + 1,)
        How many have a length up to the first of `lengths`, between it and the second, and so on, with noise.
    noise : float
        Standard deviation of the noise in each count.
    lengths : array of shape (m,)
        Ends of the ranges, growing.
    share : float
        Between 0 and 1.
    tested : int
        Counts, of this and of other tables, among which none shall look filled by noise alone.

    Returns
    -------
    float
        NaN where noise hides all counts, or the length is beyond the last of `lengths`.
    """
    surely = np.where(counts > noise * believed_above(tested), counts, 0.0)
    total = np.cumsum(surely)
    place = int(np.searchsorted(total, share * total[-1]))
    if not total[-1] > 0 or place >= len(lengths):
        return math.nan
    inside = (share * total[-1] - total[place] + surely[place]) / surely[place]
    return float(lengths[place] * (lengths[max(place - 1, 0)] / lengths[place]) ** (1.0 - inside))


def find_mean_square(counts: FloatArray, noise: float, lengths: FloatArray, most: float, tested: int) -> float:
    """Estimate the mean square of the lengths that were counted, those above `most` taken for it; 0 if noise hides all.

    The other parameters are those of `find_quantile`.
    """
    surely = np.where(counts > noise * believed_above(tested), counts, 0.0)
    # the middle of each range, by the logarithm
    middles = np.append(np.sqrt(lengths * np.append(lengths[0], lengths[:-1])), math.inf)
    return float(surely @ np.square(np.minimum(middles, most))) / max(float(surely.sum()), 1e-300)
