"""Candidates for a start that a few sites cannot bend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.privacy.robust import FEWEST_SITES, STRONG_SITES, TINY, trimmed_mean
from fedhk.privacy.robust_sums import cap_factors
from fedhk.starts.candidates import Candidates

# Candidates whose neighbours at other sites are this many times further than is usual are left out of a start.
FAR = 2.0


def trusted_candidates(found: Sequence[Candidates]) -> list[Candidates]:
    """Drop candidates for a start that only few sites support; no site weighs more than the median site.

    A candidate is vouched for by the other sites that have rows near it. It counts for no more than the site does that
    has most rows there but for a quarter of the sites, so that a quarter cannot vouch for each other. Where the nearest
    candidate of that site is more than `FAR` times the usual distance away, the candidate is left out.

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
    # capped before some are left out: what a site loses does not make the rest of it heavier
    capped = [replace(c, sizes=c.sizes * f) for c, f in zip(found, cap_factors(sizes).tolist(), strict=True)]
    near = _Neighbours.of(capped)
    rank = min(int(STRONG_SITES * np.count_nonzero(sizes)) + 1, len(np.unique(near.owner)) - 1)
    distances = near.distances(rank)
    usual = float(trimmed_mean(distances, near.sizes, 0.5))
    trust = near.trust(rank, max(usual, TINY)) * near.sizes
    kept = (distances <= FAR * usual) & (trust > 0)
    ends = np.cumsum([len(candidates.sizes) for candidates in found])[:-1]
    parts = zip(capped, np.split(trust, ends), np.split(kept, ends), strict=True)
    return [Candidates(c.points[k], t[k], c.spreads[k]) for c, t, k in parts]


@dataclass(frozen=True)
class _Neighbours:
    """The candidates of all sites, stacked."""

    points: FloatArray
    sizes: FloatArray
    owner: IntArray  # which site each is of

    @classmethod
    def of(cls, found: Sequence[Candidates]) -> _Neighbours:
        points = np.nan_to_num(np.vstack([candidates.points for candidates in found]), nan=0.0)
        owner = np.repeat(np.arange(len(found)), [len(candidates.sizes) for candidates in found])
        return cls(points, np.concatenate([candidates.sizes for candidates in found]), owner)

    def distances(self, rank: int) -> FloatArray:
        """How far each candidate is from the `rank`-th nearest other site, by that site's nearest candidate."""
        columns = [np.where(self.owner == site, np.inf, apart.min(axis=1)) for site, apart in self._apart()]
        return np.asarray(np.sqrt(np.partition(np.stack(columns, axis=1), rank - 1, axis=1)[:, rank - 1]))

    def trust(self, rank: int, reach: float) -> FloatArray:
        """The part of each candidate's size that counts: as if its site had no more rows near it than other sites.

        Rows count by how near they are, in units of `reach`; the site with the `rank`-th most is compared with.
        """
        columns = [np.exp(-0.5 * apart / reach**2) @ self.sizes[self.owner == site] for site, apart in self._apart()]
        near = np.stack(columns, axis=1)
        own = np.unique(self.owner, return_inverse=True)[1]
        places = np.arange(len(own))
        theirs = near[places, own]
        near[places, own] = -np.inf
        others = -np.partition(-near, rank - 1, axis=1)[:, rank - 1]
        return np.asarray(np.minimum(others / np.maximum(theirs, TINY), 1.0))

    def _apart(self) -> Iterator[tuple[int, FloatArray]]:
        """For each site, the squared distance of all candidates from those of the site."""
        lengths = np.square(self.points).sum(axis=1)
        for site in np.unique(self.owner).tolist():
            theirs = self.owner == site
            apart = lengths[:, None] + lengths[theirs] - 2.0 * self.points @ self.points[theirs].T
            yield site, np.maximum(apart, 0.0)
