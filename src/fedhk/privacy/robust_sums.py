"""Robust moments and other sums of sites, which a few lying sites cannot bend.

A number is brought to what it is per row first. Then a quarter of the sites at either end says no more than the next
one does, and no site has more rows than the median site.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from fedhk._typing import BoolArray, FloatArray
from fedhk.data.moments import Moments
from fedhk.privacy.robust import FEWEST_SITES, STRONG_SITES

# Squares of values beyond all bounds are cut here, so that sums of them stay finite.
LARGEST_SQUARE = 1e300


def robust_moments(sites: Sequence[Moments]) -> Moments:
    """Compute robust moments of one view over the sites that have it.

    Notes
    -----
    The spread of a feature is that about the common mean, so that sites with different means count for what they are.
    A feature that varies at no more than a quarter of the sites has the largest spread that any of these says, but no
    more than other features have: it then counts too little rather than too much.
    """
    seen = [site for site in sites if site.rows > 0]
    if len(seen) < FEWEST_SITES:
        return reduce(Moments.merge, sites)
    sites = seen
    factors = cap_factors(np.array([site.total for site in sites]))
    own = np.stack([site.weight for site in sites])
    weights, means = factors[:, None] * own, np.stack([site.mean for site in sites])
    mean = _middle_mean(means, weights)
    with np.errstate(over="ignore"):
        squares = np.stack([site.squares for site in sites])
        spreads = np.divide(squares, own, out=np.zeros_like(own), where=own > 0) + np.square(means - mean)
    spreads = np.minimum(np.where(own > 0, spreads, 0.0), LARGEST_SQUARE)
    variance = _middle_mean(spreads, weights)
    rare = (variance <= 0) & (spreads.max(axis=0) > 0)
    usual = float(variance.max(initial=0.0)) or np.inf
    variance = np.where(rare, np.minimum(spreads.max(axis=0), usual), variance)
    low, high = (np.stack([getattr(site, end) for site in sites]) for end in ("low", "high"))
    weight = weights.sum(axis=0)
    return Moments(
        rows=float(factors @ [site.rows for site in sites]),
        total=float(factors @ [site.total for site in sites]),
        weight=weight,
        mean=np.where(weight > 0, mean, 0.0),
        squares=variance * weight,
        low=_ranked(low, own > 0)[0],
        high=_ranked(high, own > 0)[1],
    )


def robust_sums(sums: Sequence[FloatArray], rows: Sequence[FloatArray]) -> FloatArray:
    """A total of vectors that adds what the sites say per row.

    Parameters
    ----------
    sums : sequence of array of shape (n,)
        One for each site.
    rows : sequence of array of shape (n,)
        Of how many rows each number is a sum.
    """
    values, counts = np.stack(sums), np.stack(rows)
    if len(values) < FEWEST_SITES:
        return np.asarray(values.sum(axis=0))
    weights = counts * cap_factors(counts.max(axis=1))[:, None]
    per_row = np.divide(values, counts, out=np.zeros_like(values), where=counts > 0)
    return np.asarray(_middle_mean(per_row, weights) * weights.sum(axis=0))


def cap_factors(sizes: FloatArray) -> FloatArray:
    """Compute the factors that scale sites down to at most the size of the median site with rows."""
    cap = float(np.median(sizes[sizes > 0])) if np.any(sizes > 0) else 1.0
    return np.asarray(cap / np.maximum(sizes, cap))


def _middle_mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Mean of each column over sites, weighted, after a quarter of the sites at either end is moved to the next one.

    A site without weight has no say. A column without any is 0.
    """
    seen = weights > 0
    low, high = _ranked(values, seen)
    clipped = np.where(seen, np.clip(values, np.where(seen, low, 0.0), np.where(seen, high, 0.0)), 0.0)
    total = weights.sum(axis=0)
    return np.asarray(np.divide((weights * clipped).sum(axis=0), total, out=np.zeros_like(total), where=total > 0))


def _ranked(values: FloatArray, seen: BoolArray) -> tuple[FloatArray, FloatArray]:
    """The lowest and the highest value of each column but for a quarter of the sites; infinite where no site has any.

    NaN, of a range that is not told, stays NaN.
    """
    count = seen.sum(axis=0)
    spare = (STRONG_SITES * count).astype(np.int64)
    lowest = np.sort(np.where(seen, values, np.inf), axis=0)
    highest = -np.sort(np.where(seen, -values, np.inf), axis=0)
    place = np.minimum(spare, len(values) - 1)[None]
    return np.take_along_axis(lowest, place, 0)[0], np.take_along_axis(highest, place, 0)[0]
