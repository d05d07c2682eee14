"""A metric for rows: directions in which rows of the same cluster spread widely count less in distances.

Z-scores give all features the same spread. But features go together, and what most of them share may differ as much
within clusters as between them: how large an animal is, how bright a picture. Rows are therefore stretched by the root
of the inverse covariance within clusters. It is moved half of the way to one number for all directions, because the
clusters are not known well yet: they are those that heat finds among means of rows. The covariance is a sum over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedhk._random import seeded
from fedhk._symmetric import from_upper_half, upper_half
from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.embedding.anchors import find_neighbours
from fedhk.model.rows import Rows, joint_rows, split_joint, take
from fedhk.starts.kmeans import find_nearest, group_sums, lloyd, lloyd_each, plus_plus

# How far the covariance within clusters is moved to one number for all directions. Of .7, .5 and .3, this was best on
# 37 data sets (benchmarks/results/diffusion-tried.md).
SHRINKAGE = 0.5

# Wider views keep their units: their products would be more numbers than all else that a site sends. Products in some
# directions of the means are no way out: rows spread in others, which would then count too much.
MOST_COLUMNS = 600

# Neighbours that are compared between views, and by how many standard errors they must be fewer for a view to keep its
# units.
NEIGHBOURS, STANDARD_ERRORS = 5, 2.0

# Groups of means of rows for each cluster, by the nearest of which a row is in a cluster. With 4 clusters that are not
# round are labelled worse.
GROUPS_PER_CLUSTER, GROUP_PASSES = 12, 10

# Starts of the k-means that finds first clusters among embedded rows, and passes from each.
STARTS, START_PASSES = 10, 100

# Largest factor of a direction that a site accepts, and its inverse the least: far beyond those of real rows.
MOST_FACTOR = 1e3

# Rows that are looked at together.
BLOCK_BYTES = 2**22


@dataclass(frozen=True, eq=False)
class Metric:
    """What rows are multiplied by, in model units, before distances are taken: a symmetric matrix for each view."""

    halves: tuple[FloatArray, ...]  # the upper half of each matrix, row by row; empty in a view that stays

    def __bool__(self) -> bool:
        return any(map(len, self.halves))

    @property
    def changed(self) -> tuple[bool, ...]:
        """Which views the metric changes."""
        return tuple([len(half) > 0 for half in self.halves])

    @cached_property
    def matrices(self) -> tuple[FloatArray, ...]:
        """The matrix of each view; of shape (0, 0) in a view that stays."""
        return tuple([from_upper_half(half) for half in self.halves])

    @cached_property
    def inverses(self) -> tuple[FloatArray, ...]:
        """What stretched rows are multiplied by to undo it."""
        return tuple([np.linalg.inv(matrix) for matrix in self.matrices])

    def check(self, widths: Sequence[int]) -> None:
        """Refuse, by ValueError, a metric that views of such widths cannot have."""
        if not self.halves:
            return
        sizes = [(0, width * (width + 1) // 2) for width in widths]
        if len(self.halves) != len(widths) or any(len(h) not in own for h, own in zip(self.halves, sizes, strict=True)):
            raise ValueError(f"a metric must have the features of {len(widths)} views, {list(widths)}")
        if not all(np.isfinite(half).all() for half in self.halves):
            raise ValueError("a metric must have finite numbers")
        values = np.concatenate([np.linalg.eigvalsh(matrix) for matrix in self.matrices])
        if np.any(values < 1 / MOST_FACTOR) or np.any(values > MOST_FACTOR):
            raise ValueError("a metric must neither take away a direction nor stretch it endlessly")

    def stretch(self, points: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Multiply points, given per view in model units."""
        return self._multiply(points, self.matrices) if self else tuple(points)

    def undo(self, points: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Return stretched points in model units."""
        return self._multiply(points, self.inverses) if self else tuple(points)

    def stretch_joint(self, joint: FloatArray, widths: Sequence[int]) -> FloatArray:
        """Multiply points whose views stand side by side."""
        return np.hstack(self.stretch(split_joint(joint, widths))) if self else joint

    def only(self, kept: Sequence[bool]) -> Metric:
        """Return the metric of some views; the others stay."""
        return Metric(tuple([half if own else half[:0] for half, own in zip(self.halves, kept, strict=True)]))

    def project(self, bases: Sequence[FloatArray]) -> Metric:
        """Return the metric of rows in the coordinates of orthonormal columns, of shape (d_h, q_h) per view."""
        if not self:
            return self
        parts = zip(self.halves, self.matrices, bases, strict=True)
        return Metric(tuple([upper_half(basis.T @ m @ basis) if len(half) else half for half, m, basis in parts]))

    @staticmethod
    def _multiply(points: Sequence[FloatArray], matrices: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        return tuple([part @ matrix if len(matrix) else part for part, matrix in zip(points, matrices, strict=True)])


# Distances are those of model units.
NO_METRIC = Metric(())


@dataclass(frozen=True, eq=False)
class FirstClusters:
    """Clusters by which sites sum up how far rows spread in them, and in which directions."""

    points: FloatArray  # of groups of rows, all views side by side, (q, d)
    labels: IntArray  # the cluster of each group, (q,)
    widths: tuple[int, ...]  # features per view
    changed: tuple[bool, ...]  # which views are to have a metric

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return int(self.labels.max()) + 1

    @property
    def sizes(self) -> list[int]:
        """How many numbers the sums of each view are."""
        count, pairs = self.n_clusters, zip(self.widths, self.changed, strict=True)
        return [count * (1 + width) + width * (width + 1) // 2 if changed else 0 for width, changed in pairs]

    def check(self, widths: Sequence[int]) -> None:
        """Refuse, by ValueError, clusters that rows of views of such widths cannot have."""
        groups = self.points.shape == (len(self.labels), sum(widths)) and len(self.labels) > 0
        if not (groups and self.widths == tuple(widths) and len(self.changed) == len(widths)):
            raise ValueError(f"clusters must have the features of {len(widths)} views, {list(widths)}")
        if any(wanted and width > MOST_COLUMNS for width, wanted in zip(widths, self.changed, strict=True)):
            raise ValueError(f"clusters of views with more than {MOST_COLUMNS} features are not asked about")
        if self.labels.min() < 0 or self.labels.max() >= len(self.labels):
            raise ValueError("clusters must be numbered from 0 on, each with a group")
        if not np.isfinite(self.points).all():
            raise ValueError("clusters have values that are not finite")

    def sum_rows(self, rows: Rows) -> FloatArray:
        """Sum up the rows of a site: of each view, the rows of clusters, their sums, and products of features."""
        size = max(1, BLOCK_BYTES // (8 * sum(rows.widths)))
        total = np.zeros(sum(self.sizes))
        for start in range(0, rows.n_rows, size):
            total += self._sum_block(take(rows, slice(start, min(start + size, rows.n_rows))))
        return total

    def _sum_block(self, rows: Rows) -> FloatArray:
        cells = joint_rows(rows, missing=np.nan).astype(np.float64)
        seen = ~np.isnan(cells)
        joint = np.where(seen, cells, 0.0)
        labels, parts = self.labels[find_nearest(joint, self.points)], []
        weight = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
        views = zip(split_joint(joint, rows.widths), split_joint(seen, rows.widths), self.changed, strict=True)
        for part, has, changed in views:
            if changed:
                own = weight * np.asarray(has).any(axis=1)
                sums, counts = group_sums(part, own, labels, self.n_clusters)
                parts += [counts, sums.ravel(), upper_half(part.T @ (own[:, None] * part))]
        return np.concatenate(parts) if parts else np.zeros(0)

    def fit_metric(self, total: FloatArray) -> Metric:
        """Compute the metric from the sums of all rows."""
        parts = zip(self.widths, np.split(total, np.cumsum(self.sizes)[:-1]), strict=True)
        return Metric(tuple([self._fit_view(width, values) if len(values) else np.zeros(0) for width, values in parts]))

    def _fit_view(self, width: int, values: FloatArray) -> FloatArray:
        """Compute the upper half of the matrix of one view; the spread of all rows stays what it was."""
        counts, sums, half = np.split(values, np.cumsum([self.n_clusters, self.n_clusters * width]))
        sums, products = sums.reshape(self.n_clusters, width), from_upper_half(half)
        means = np.divide(sums, counts[:, None], out=np.zeros_like(sums), where=counts[:, None] > 0)
        variances, directions = np.linalg.eigh(products - means.T @ sums)
        variances = np.maximum(variances, 0.0)
        mean, spread = float(variances.mean()), np.einsum("ij,ik,kj->j", directions, products, directions)
        if not mean > 0:
            return np.zeros(0)
        factors = 1.0 / np.sqrt((1.0 - SHRINKAGE) * variances / mean + SHRINKAGE)
        factors *= np.sqrt(max(float(spread.sum()), 0.0) / (np.square(factors) @ spread))
        return upper_half((directions * factors) @ directions.T)


def label_points(points: FloatArray, rows: FloatArray, n_clusters: int, seed: int) -> IntArray:
    """Label points by the clusters that k-means finds among rows, the best of several starts."""
    weight = np.ones(len(rows))
    starts = [plus_plus(rows, weight, n_clusters, seeded(seed, number)) for number in range(STARTS)]
    centers, _, _ = min(lloyd_each(rows, weight, starts, START_PASSES), key=lambda found: found[2])
    return find_nearest(points, centers)


def find_first_clusters(means: Rows, labels: IntArray, changed: Sequence[bool], seed: int) -> FirstClusters:
    """Describe clusters of complete means of rows in few numbers.

    Parameters
    ----------
    means : Rows
        Means of rows, with weights.
    labels : array of shape (n,)
        The cluster of each mean.
    changed : sequence of bool
        Which views are to have a metric.
    seed : int
        Of the groups of each cluster.
    """
    joint = joint_rows(means).astype(np.float64)
    weight = np.ones(len(joint)) if means.sample_weight is None else np.asarray(means.sample_weight, np.float64)
    _, labels = np.unique(labels, return_inverse=True)
    points, owners = [], []
    for cluster in range(int(labels.max()) + 1):
        own = labels == cluster
        found = _group(joint[own], weight[own], seed)
        points.append(found)
        owners += [cluster] * len(found)
    return FirstClusters(np.vstack(points), np.array(owners), means.widths, tuple(changed))


def keep_units(metric: Metric, means: Rows) -> Metric:
    """Return the metric without views whose neighbours are then surely less those of other views.

    In each view the nearest of some complete means of rows are found, before and after. Other views, as they come, are
    witnesses: what makes neighbours less alike to theirs says less of the clusters.
    """
    plain = split_joint(joint_rows(means).astype(np.float64), means.widths)
    near, changed = ([_find_near(part) for part in points] for points in (plain, metric.stretch(plain)))
    kept = []
    for view, (before, after) in enumerate(zip(near, changed, strict=True)):
        others = [own for other, own in enumerate(near) if other != view]
        shared = [(after & own).sum(axis=1) - (before & own).sum(axis=1) for own in others]
        gains = np.sum(shared, axis=0) if others else np.zeros(1)
        error = float(np.std(gains)) / np.sqrt(len(gains))
        kept.append(float(np.mean(gains)) >= -STANDARD_ERRORS * error)
    return metric.only(kept)


def _find_near(points: FloatArray) -> BoolArray:
    """Tell which points are among the nearest of which, (n, n)."""
    found = np.zeros((len(points), len(points)), bool)
    np.put_along_axis(found, find_neighbours(points, NEIGHBOURS), values=True, axis=1)
    return found


def _group(points: FloatArray, weight: FloatArray, seed: int) -> FloatArray:
    """Means of a few groups of the points of one cluster."""
    count = min(GROUPS_PER_CLUSTER, len(points))
    seeds = plus_plus(points, weight, count, np.random.RandomState(seed))
    return lloyd(points, weight, seeds, GROUP_PASSES)[0]
