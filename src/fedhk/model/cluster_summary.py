"""Sizes of clusters and spreads of their rows, over all sites.

A site that knows this can tell what is its own: clusters that are rarer or more frequent there, features that are
measured on another scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.model.parameters import Parameters
from fedhk.model.rows import SAMPLE_ROWS, Rows, joint_rows, take


@dataclass(frozen=True)
class ClusterSummary:
    """Sums over rows given the cluster of each; those of a union of rows are the sum."""

    counts: FloatArray  # rows in each cluster, or the weight that memberships give it, (c,)
    squares: FloatArray  # squared distance of rows to the centre of their cluster per feature, (d,), in model units
    seen: FloatArray  # rows that have the feature, (d,)

    @property
    def shares(self) -> FloatArray:
        """Share of each cluster among the rows."""
        return self.counts / max(float(self.counts.sum()), 1e-300)

    @property
    def variance(self) -> FloatArray:
        """Mean squared distance to the centre of the cluster, per feature."""
        return self.squares / np.maximum(self.seen, 1e-300)

    def to_array(self) -> FloatArray:
        """Put all sums into one array, which adds over sites."""
        return np.concatenate([self.counts, self.squares, self.seen])

    @classmethod
    def from_array(cls, values: FloatArray, n_clusters: int) -> ClusterSummary:
        """Read the array that `to_array` made."""
        width = (len(values) - n_clusters) // 2
        return cls(values[:n_clusters], values[n_clusters : n_clusters + width], values[n_clusters + width :])


def summarise_clusters(rows: Rows, parameters: Parameters, labels: IntArray) -> ClusterSummary:
    """Sum over one site's rows, or over a sample of them, scaled up, where they are many."""
    order = np.random.default_rng(0).permutation(rows.n_rows)[:SAMPLE_ROWS]
    scale = rows.n_rows / max(len(order), 1)
    away = joint_rows(take(rows, order), missing=np.nan) - np.hstack(parameters.centers)[labels[order]]
    seen = (~np.isnan(away)).sum(axis=0)
    counts = np.bincount(labels, minlength=parameters.n_clusters).astype(np.float64)
    return ClusterSummary(counts, scale * np.nansum(np.square(away, dtype=np.float64), axis=0), scale * seen)
