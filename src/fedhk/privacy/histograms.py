"""Lengths estimated from noisy counts by length."""

from __future__ import annotations

import math

import numpy as np

from fedhk._typing import FloatArray

__all__ = ["believed_above", "find_mean_square", "find_middle", "find_quantile"]

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


def find_middle(counts: FloatArray, noise: float, lengths: FloatArray) -> float:
    """Estimate the median of the lengths that were counted, where few are counted and have many lengths.

    A count by itself may be hidden by noise where that of several ranges beside each other is not. So the ranges that
    count are those, beside each other, whose sum exceeds what noise explains of so many by most.

    The parameters, and what is returned, are those of `find_quantile`.
    """
    total = np.concatenate([[0.0], np.cumsum(counts)])
    first, last = np.triu_indices(len(total), 1)
    excess = total[last] - total[first] - noise * believed_above(len(counts)) * np.sqrt(last - first)
    best = int(np.argmax(excess))
    if not excess[best] > 0:
        return math.nan
    # noise may make the sum fall on the way: the first range at which half is reached
    inside = total[first[best] : last[best] + 1] - total[first[best]]
    reached = int(np.argmax(inside >= inside[-1] / 2))
    place = int(first[best]) + reached - 1
    if place >= len(lengths):
        return math.nan
    share = (inside[-1] / 2 - inside[reached - 1]) / (inside[reached] - inside[reached - 1])
    return float(lengths[place] * (lengths[max(place - 1, 0)] / lengths[place]) ** (1.0 - share))
