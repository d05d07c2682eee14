"""Parts of all rows: how rows of tables with categories are tied to each other.

Numbers have neighbourhoods, and heat follows chains of rows that are near to each other. Levels of a category have
none: nothing lies between two levels, and heat stays among the rows that have the same ones. So rows are tied to
anchors by their numbers alone. What levels say, plain clusters of all columns say: rows are also tied to parts, which
are the clusters of several plain partitions. Parts are found among means of rows, so that no row is needed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import BoolArray, FloatArray
from fedhk.data.levels import find_numbers
from fedhk.data.scaling import Reference, level_variance
from fedhk.data.views import Columns
from fedhk.embedding.groups import partition_anchors
from fedhk.model.rows import Rows, joint_rows, split_joint
from fedhk.starts.kmeans import group_sums

# Parts for a cluster, at most, in each partition. Of 1, 2 and 3, 2 was the best on generated tables
# (benchmarks/results/mixed-tried.md).
MOST_FOR_CLUSTER = 2


@dataclass(frozen=True, eq=False)
class Parts:
    """Clusters of several plain partitions of all rows, and which features are levels of categories."""

    centers: tuple[FloatArray, ...]  # of shape (q, d_h) per view, in model units: of all partitions, in turn
    sizes: tuple[int, ...]  # parts of each partition
    levels: tuple[BoolArray, ...]  # which features are levels of a category, per view
    shares: tuple[float, ...]  # of the levels in the variance of each view
    weight: float  # share of the parts in what a row is tied to

    def __bool__(self) -> bool:
        return bool(self.sizes)

    @property
    def share(self) -> float:
        """The share of the levels in the variance of all views."""
        return float(np.mean(self.shares)) if self else 0.0

    def check(self, widths: Sequence[int]) -> None:
        """Refuse, by ValueError, parts that rows of views of such widths cannot be tied to."""
        if not self:
            return
        count = sum(self.sizes)
        known = [part.shape for part in self.centers] == [(count, width) for width in widths]
        masks = [part.shape for part in self.levels] == [(width,) for width in widths]
        if not (known and masks and len(self.shares) == len(widths) and min(self.sizes) > 0):
            raise ValueError(f"parts must have the features of {len(widths)} views, {list(widths)}")
        numbers = (*self.shares, self.weight)
        if not (all(0 <= number <= 1 for number in numbers) and all(np.isfinite(part).all() for part in self.centers)):
            raise ValueError("parts have centres that are not finite, or shares that are not from 0 to 1")

    def weigh_blocks(self, weights: Sequence[float]) -> list[float]:
        """What blocks of anchors weigh beside the parts: those of the views, then that of all views together.

        A view counts by its numbers, as far as it has some.
        """
        if not self:
            return list(weights)
        found = np.array(weights) * (1.0 - np.array([*self.shares, self.share]))
        total = float(found.sum())
        return list(found * ((1.0 - self.weight) / total)) if total > 0 else [0.0] * len(weights)

    def without_levels(self, rows: Rows) -> Rows:
        """Rows whose levels count nothing."""
        if not self:
            return rows
        pairs = zip(rows.references, self.levels, strict=True)
        references = [replace(known, scale=np.where(levels, np.inf, known.scale)) for known, levels in pairs]
        return replace(rows, references=tuple(references))


# Rows are tied to anchors alone, by all their features.
NO_PARTS = Parts((), (), (), (), 0.0)


def find_levels(columns: Sequence[Columns], widths: Sequence[int]) -> tuple[BoolArray, ...]:
    """Which features of views of these widths are levels of a category."""
    return tuple([~find_numbers(*known) for known in zip(columns, widths, strict=True)])


def clear_levels(points: Sequence[FloatArray], levels: Sequence[BoolArray]) -> tuple[FloatArray, ...]:
    """Points per view whose levels are at the grand mean, 0; those that differ by levels alone are one."""
    if not any(part.any() for part in levels):
        return tuple(points)
    cleared = [np.where(own, 0.0, part) for part, own in zip(points, levels, strict=True)]
    _, first = np.unique(np.hstack(cleared), axis=0, return_index=True)
    return tuple([part[np.sort(first)] for part in cleared])


def make_parts(
    means: Rows, columns: Sequence[Columns], references: Sequence[Reference], n_clusters: int, seed: int
) -> Parts:
    """Parts of complete means of rows, which weigh as much as levels do; none where no feature is a level."""
    levels = find_levels(columns, means.widths)
    joint = joint_rows(means).astype(np.float64)
    if not any(part.any() for part in levels) or n_clusters < 2:
        return NO_PARTS
    weight = np.ones(len(joint)) if means.sample_weight is None else np.asarray(means.sample_weight, np.float64)
    partitions = partition_anchors([joint], weight, n_clusters, seed, MOST_FOR_CLUSTER)
    centers, sizes = [], []
    for labels in partitions.T:
        sums, weights = group_sums(joint, weight, labels, int(labels.max()) + 1)
        filled = weights > 0
        centers.append(sums[filled] / weights[filled, None])
        sizes.append(int(filled.sum()))
    pairs = zip(references, levels, strict=True)
    shares = tuple([min(level_variance(reference, own), 1.0) for reference, own in pairs])
    parts = Parts(split_joint(np.vstack(centers), means.widths), tuple(sizes), levels, shares, 0.0)
    return replace(parts, weight=parts.share)


def weigh_parts(share: float, by_anchors: float, by_parts: float) -> float:
    """The weight of parts beside that of anchors, where levels have this share in the variance.

    Heat leaves clusters slowly where ties are between neighbours, and fast where they are between parts, so that ties
    to parts would outdo those to anchors whatever both say. Each kind of tie is measured by how much heat leaves its
    own clusters in one step, which is 1 less the eigenvalue of the last cluster (`by_anchors`, `by_parts`). Where
    numbers have clusters that heat does not leave, whatever their shape, parts so weigh nothing.
    """
    parts, anchors = share * (1.0 - by_anchors), (1.0 - share) * (1.0 - by_parts)
    return parts / (parts + anchors) if parts + anchors > 0 else share
