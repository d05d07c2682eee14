"""Means of rows by membership: where clusters of embedded rows are in the original views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.rows import Rows, joint_rows, split_joint, take

# Rows that are brought to model units at a time, in bytes: large enough for matrix products, small beside the rows.
BLOCK_BYTES = 2**25


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """Sums over rows, weighted by how much they belong to each cluster; those of a union of rows are the sum."""

    sizes: FloatArray  # sums of memberships, of shape (c,)
    sums: FloatArray  # of membership times value, per feature of all views, in model units, of shape (c, d)
    # Sums of the memberships of rows that have the feature; one column for a view of which no cell is missing.
    seen: FloatArray

    def means(self, widths: Sequence[int], incomplete: Sequence[int]) -> tuple[FloatArray, ...]:
        """Means per view, in model units; 0, the grand mean, where no row of a cluster has the feature."""
        parts = zip(split_joint(self.sums, widths), self.seen_by_view(widths, incomplete), strict=True)
        return tuple(
            np.divide(sums, seen, out=np.zeros(sums.shape), where=np.broadcast_to(seen > 0, sums.shape))
            for sums, seen in parts
        )

    def seen_by_view(self, widths: Sequence[int], incomplete: Sequence[int]) -> tuple[FloatArray, ...]:
        """The columns of `seen` of each view, of shape (c, 1) or (c, d_h)."""
        return split_joint(self.seen, _seen_columns(widths, incomplete))

    def to_array(self) -> FloatArray:
        """Put all sums into one vector, which adds over sites."""
        return np.concatenate([self.sizes, self.sums.ravel(), self.seen.ravel()])

    @classmethod
    def from_array(cls, values: FloatArray, n_clusters: int, widths: Sequence[int]) -> ClusterSums:
        """Read the vector that `to_array` made."""
        sizes, sums, seen = np.split(values, np.cumsum([n_clusters, n_clusters * sum(widths)]))
        return cls(sizes, sums.reshape(n_clusters, -1), seen.reshape(n_clusters, -1))


def sums_size(n_clusters: int, widths: Sequence[int], incomplete: Sequence[int]) -> int:
    """Return the length of `ClusterSums.to_array`."""
    return n_clusters * (1 + sum(widths) + sum(_seen_columns(widths, incomplete)))


def sum_clusters(rows: Rows, memberships: Any, incomplete: Sequence[int]) -> ClusterSums:
    """Sum one site's rows by cluster, with memberships of shape (n, c).

    In the views `incomplete` some row of some site lacks cells: what rows have there is counted per feature.
    """
    n_clusters, width = memberships.shape[1], sum(rows.widths)
    sums, seen = np.zeros((n_clusters, width)), np.zeros((n_clusters, width))
    for part, joint in iterate_rows(rows):
        belongs, has = memberships[part].astype(np.float64, copy=False).T, ~np.isnan(joint)
        sums += belongs @ np.where(has, joint, 0.0)
        seen += belongs @ has.astype(np.float64)
    parts = split_joint(seen, rows.widths)
    counts = [part if view in incomplete else part.max(axis=1, keepdims=True) for view, part in enumerate(parts)]
    return ClusterSums(np.asarray(memberships.sum(axis=0, dtype=np.float64)), sums, np.hstack(counts))


def iterate_rows(rows: Rows) -> Iterator[tuple[slice, FloatArray]]:
    """Ranges of rows that cover them once, each with its rows in model units, views side by side; NaN where missing."""
    size = max(1, BLOCK_BYTES // (8 * sum(rows.widths)))
    for start in range(0, rows.n_rows, size):
        part = slice(start, min(start + size, rows.n_rows))
        yield part, joint_rows(take(rows, np.arange(part.start, part.stop)), missing=np.nan).astype(np.float64)


def _seen_columns(widths: Sequence[int], incomplete: Sequence[int]) -> list[int]:
    """Columns of `seen` for each view: one, or one per feature for incomplete views."""
    return [width if view in incomplete else 1 for view, width in enumerate(widths)]
