"""Class mix: how much of what sites differ by follows from which clusters they have.

The mean of a site lies apart because the site measures differently, or because it has more rows of some clusters. In
the second case its offset is what these clusters differ by *within* sites, times how many more of their rows it has.
Clusters are those of one view and offsets are in another, so that rows are not compared with clusters that they made.
(Effects between and within groups are compared so in Mundlak, Econometrica 46, 1978.)

All of it follows from sums over sites. With n rows of a site, p the shares of the clusters in them and y their mean in
some directions, these are the sums of n p p^T, n p, n p y^T and n y, and those of the rows of each cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedhk._symmetric import from_upper_half, upper_half
from fedhk._typing import FloatArray, IntArray
from fedhk.starts.kmeans import group_sums, leading_axes

# Offsets are explained along so many directions at most, in which the clusters of their own view differ most.
DIRECTIONS = 8

# Part of the weight of a cluster that is added to what it varies by within sites: of a cluster that sites have whole or
# not at all nothing is known within them.
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class MixSums:
    """Sums over sites of one pair of views."""

    shares: FloatArray  # n p p^T, of shape (c, c)
    counts: FloatArray  # n p, of shape (c,)
    between: FloatArray  # n p y^T, of shape (c, q)
    of_clusters: FloatArray  # rows of each cluster in the directions, of shape (c, q)
    of_rows: FloatArray  # n y, of shape (q,)
    scalars: FloatArray  # n |mean|^2 and the squares of rows around it, in all features; rows; sites

    @staticmethod
    def size(n_clusters: int, n_directions: int) -> int:
        """Return how many numbers there are."""
        return n_clusters * (n_clusters + 3) // 2 + (2 * n_clusters + 1) * n_directions + 4

    @classmethod
    def of(cls, points: FloatArray, labels: IntArray, axes: FloatArray, n_clusters: int) -> MixSums:
        """Compute the sums of one site, from points of one view, labels of another, and directions (q, d)."""
        along, mean, n_rows = points @ axes.T, points.mean(axis=0), float(len(points))
        of_clusters, counts = group_sums(along, np.ones(len(points)), labels, n_clusters)
        of_rows, squares = along.sum(axis=0), n_rows * float(mean @ mean)
        scalars = np.array([squares, float(np.square(points - mean).sum()), n_rows, 1.0])
        shares, between = np.outer(counts, counts) / n_rows, np.outer(counts, of_rows) / n_rows
        return cls(shares, counts, between, of_clusters, of_rows, scalars)

    def as_vector(self) -> FloatArray:
        """Put all sums into one vector, which adds over sites."""
        parts = self.counts, self.between.ravel(), self.of_clusters.ravel(), self.of_rows, self.scalars
        return np.concatenate([upper_half(self.shares), *parts])

    @classmethod
    def read(cls, values: FloatArray, n_clusters: int, n_directions: int) -> MixSums:
        """Read the vector that `to_array` made."""
        c, q = n_clusters, n_directions
        sizes = (c * (c + 1) // 2, c, c * q, c * q, q)
        shares, counts, between, of_clusters, of_rows, scalars = np.split(values, np.cumsum(sizes))
        return cls(from_upper_half(shares), counts, between.reshape(c, q), of_clusters.reshape(c, q), of_rows, scalars)

    def explain(self) -> tuple[float, float]:
        """Squared offsets of sites that follow from their clusters, and all of them, beyond what chance gives."""
        total, within, n_rows, n_sites = self.scalars
        chance = (n_sites - 1) / max(n_rows - n_sites, 1.0)
        own_shares, own_sums = np.diag(self.counts) - self.shares, self.of_clusters - self.between
        shares = self.shares - np.outer(self.counts, self.counts) / max(n_rows, 1.0) - chance * own_shares
        between = self.between - np.outer(self.counts, self.of_rows) / max(n_rows, 1.0) - chance * own_sums
        offsets = total - float(self.of_rows @ self.of_rows) / max(n_rows, 1.0) - chance * within
        # what a row of each cluster differs by from others of its site
        effects = np.linalg.solve(own_shares + np.diag(RIDGE * self.counts + 1e-9), own_sums)
        return float(2 * np.vdot(effects, between) - np.vdot(effects, shares @ effects)), float(offsets)


def find_axes(centers: FloatArray) -> FloatArray:
    """Find the directions in which centres differ most, of shape (q, d)."""
    return leading_axes(centers - centers.mean(axis=0), 1.0).T[:DIRECTIONS]


def share_of_mix(sums: Iterable[MixSums]) -> float:
    """Compute the share of the squared offsets of sites that their mix of clusters explains; 0 if unknown."""
    found: Sequence[tuple[float, float]] = [part.explain() for part in sums]
    explained, offsets = (sum(values) for values in zip(*found, strict=True)) if found else (0.0, 0.0)
    return float(np.clip(explained / offsets, -1.0, 1.0)) if offsets > 0 else 0.0
