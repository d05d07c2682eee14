"""Candidates for a start that a few sites cannot bend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.privacy.robust import FEWEST_SITES, STRONG_SITES, trimmed_mean
from fedhk.starts.candidates import Candidates

# Candidates whose neighbours at other sites are this many times further than is usual are left out of a start.
FAR = 2.0


def trusted_candidates(found: Sequence[Candidates]) -> list[Candidates]:
    """Candidates for a start without those that only few sites vouch for; no site weighs more than the median site.

    A candidate is vouched for by the other sites that have one near it. Its distance is that to the nearest candidates
    of just more than a quarter of the sites, so that a quarter cannot vouch for each other; it is left out where this
    is more than `FAR` times the usual distance.

    Parameters
    ----------
    found : sequence of Candidates
        One for each site.

    Returns
    -------
    list of Candidates
        As many, some of them with fewer candidates.

    Notes
    -----
    A cluster that fewer than a quarter of the sites have may be missing in the start.
    """
    sizes = np.array([candidates.sizes.sum() for candidates in found])
    if np.count_nonzero(sizes) < FEWEST_SITES:
        return list(found)
    cap = float(np.median(sizes[sizes > 0]))
    # capped before some are left out: what a site loses does not make the rest of it heavier
    capped = [replace(c, sizes=c.sizes * (cap / max(s, cap))) for c, s in zip(found, sizes.tolist(), strict=True)]
    distances = _neighbour_distances(found, int(STRONG_SITES * np.count_nonzero(sizes)) + 1)
    usual = float(trimmed_mean(distances, np.concatenate([c.sizes for c in capped]), 0.5))
    ends = np.cumsum([len(candidates.sizes) for candidates in found])[:-1]
    near = np.split(distances <= FAR * usual, ends)
    return [Candidates(c.points[n], c.sizes[n], c.spreads[n]) for c, n in zip(capped, near, strict=True)]


def _neighbour_distances(found: Sequence[Candidates], rank: int) -> FloatArray:
    """How far each candidate is from the `rank`-th nearest other site, by that site's nearest candidate."""
    points = np.nan_to_num(np.vstack([candidates.points for candidates in found]), nan=0.0)
    owner = np.repeat(np.arange(len(found)), [len(candidates.sizes) for candidates in found])
    lengths = np.square(points).sum(axis=1)
    nearest = np.full((len(points), len(found)), np.inf)
    for site in np.unique(owner).tolist():
        theirs = owner == site
        apart = lengths[:, None] + lengths[theirs] - 2.0 * points @ points[theirs].T
        nearest[:, site] = np.where(theirs, np.inf, apart.min(axis=1))
    rank = min(rank, len(np.unique(owner)) - 1)
    return np.asarray(np.sqrt(np.maximum(np.partition(nearest, rank - 1, axis=1)[:, rank - 1], 0.0)))
