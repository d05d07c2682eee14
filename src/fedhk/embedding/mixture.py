"""A mixture of normal distributions that sites fit together from sums, and anchors drawn from it.

Anchors that are drawn lie where rows do, and none of them is a row or a mean of rows. The mixture is fitted in a few
common directions, so that sums are short: many means and one covariance. Means are found by k-means, of which a pass is
one sum over rows; from few to many it goes by splitting groups in two where rows spread most (Linde, Buzo and Gray,
1980), because nobody has rows of all sites to start from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from fedhk._random import seeded
from fedhk._symmetric import from_upper_half, upper_half
from fedhk._typing import FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.embedding.anchors import give_length
from fedhk.embedding.cluster_sums import iterate_rows
from fedhk.model.rows import Rows, split_joint
from fedhk.starts.kmeans import find_nearest, group_sums

# Directions of the mixture: where features are fewer, they are the directions themselves. 30 was the best of 10, 15,
# 30, 60 and 100 on generated data (benchmarks/results/diffusion-tried.md).
N_DIRECTIONS = 30

# Random combinations of features beyond those, in which products are asked for (Halko, Martinsson and Tropp, 2011).
EXTRA_SKETCH = 10

# Components: as many for a cluster, or one for so many rows where that is more, up to so many; at least two rows each.
PER_CLUSTER, ROWS_PER_COMPONENT, MOST_COMPONENTS, LEAST_ROWS = 3, 8, 150, 2

# The first means are at the corners of a box along the leading directions; passes of plain k-means come at the end.
CORNER_DIRECTIONS, LAST_PASSES = 3, 1

# Passes in which groups are split, at most: eight groups are then two thousand.
MOST_SPLITS = 8

# How far from the mean of its group the two halves start, in standard deviations: inside the group, and apart.
STEP = 0.5

# What is added to the covariance, as a share of its mean diagonal, so that it has a root.
RIDGE = 1e-9


def sketch_size(width: int) -> int:
    """Return how many random combinations of features products are computed in; 0 if features are few."""
    return 0 if width <= N_DIRECTIONS else min(N_DIRECTIONS + EXTRA_SKETCH, width)


def sum_products(rows: Rows, seed: int) -> FloatArray:
    """Sum over rows of x (x^T R), of shape (features, combinations), with R random and the same at every site."""
    width = sum(rows.widths)
    random = seeded(seed).normal(size=(width, sketch_size(width)))
    total = np.zeros(random.shape)
    for weight, joint in read_joint_blocks(rows):
        total += joint.T @ (weight[:, None] * (joint @ random))
    return total


def leading_directions(products: FloatArray) -> FloatArray:
    """Find orthonormal directions in which rows vary most, of shape (features, q), from products of all rows."""
    left, sizes, _ = np.linalg.svd(products, full_matrices=False)
    kept = sizes > 1e-9 * sizes.max(initial=0.0)
    return _fix_signs(left[:, kept][:, :N_DIRECTIONS])


@dataclass(frozen=True, eq=False)
class Mixture:
    """Normal distributions with one covariance, in a few directions of the joint space of all views."""

    directions: FloatArray  # of shape (features, q)
    means: FloatArray  # of shape (k, q)
    shares: FloatArray  # of the components, of shape (k,)
    root: FloatArray  # the symmetric root of the covariance, of shape (q, q)
    references: tuple[Reference, ...]  # by which rows get their length where they have length 1

    def take(self, count: int, seed: int) -> tuple[FloatArray, ...]:
        """Draw different points of each view, of shape (p, d_h), in model units: `count` of them, or fewer."""
        random = seeded(seed)
        steps = random.normal(size=(count, len(self.root))) @ self.root
        chosen = np.searchsorted(np.cumsum(self.shares), random.uniform(size=count) * self.shares.sum())
        points = (self.means[np.minimum(chosen, len(self.means) - 1)] + steps) @ self.directions.T
        # what differs between machines by rounding only must not make two points of one
        _, first = np.unique(points.astype(np.float32), axis=0, return_index=True)
        widths = [reference.width for reference in self.references]
        return give_length(split_joint(points[np.sort(first)], widths), self.references)


@dataclass(frozen=True, eq=False)
class MixtureSearch:
    """State of the search for a mixture.

    The first sums are of all rows as one group, with their second moments. Then groups are split until they are enough.
    """

    points: FloatArray  # of shape (k, q): rows are added up by the nearest of them
    scatter: FloatArray  # sum of y y^T over all rows y in the directions; empty before the first sums
    rows: float = 0.0  # number of all rows
    splits: int = 0  # passes so far in which groups were split
    full_passes: int = 0  # passes so far in which no group was split any more
    sizes: FloatArray = field(default_factory=lambda: np.zeros(0))  # rows of each group; empty before the end

    @classmethod
    def begin(cls, n_directions: int) -> MixtureSearch:
        """Start with all rows as one group around the grand mean."""
        return cls(np.zeros((1, n_directions)), np.zeros((0, 0)))

    @property
    def wants_scatter(self) -> bool:
        """Whether second moments are computed next."""
        return self.scatter.size == 0

    @property
    def is_done(self) -> bool:
        """Whether the groups have been found, and the points are their means."""
        return len(self.sizes) > 0

    @property
    def size(self) -> int:
        """Numbers of `sum_groups`."""
        count, q = self.points.shape
        return int(count * (q + 2) + self.wants_scatter * (q * (q + 1) // 2))

    def split(self, total: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Split the vector of `sum_groups` into sizes, sums of squares and sums of the groups."""
        count, q = self.points.shape
        sizes, squares, sums = np.split(total[: count * (q + 2)], [count, 2 * count])
        return sizes, squares, sums.reshape(count, q)

    def advance(self, total: FloatArray, n_clusters: int, seed: int) -> MixtureSearch:
        """Give the search after the sums over all rows."""
        sizes, means, spreads = self._read_groups(total)
        if self.wants_scatter:
            q = self.points.shape[1]
            scatter, rows = from_upper_half(total[-(q * (q + 1) // 2) :]), float(sizes.sum())
            corners = find_corners(means[0], scatter / rows, component_count(n_clusters, rows))
            return replace(self, points=corners, scatter=scatter, rows=rows)
        energy = np.where(sizes >= 2 * LEAST_ROWS, sizes * spreads, 0.0)
        many = min(component_count(n_clusters, self.rows) - len(means), int(np.count_nonzero(energy)))
        if many > 0 and self.splits < MOST_SPLITS:
            return replace(self, points=split_points(means, energy, spreads, many, seed), splits=self.splits + 1)
        if self.full_passes < LAST_PASSES:
            return replace(self, points=means, full_passes=self.full_passes + 1)
        return replace(self, points=means, sizes=sizes)

    def mixture(self, directions: FloatArray, references: tuple[Reference, ...]) -> Mixture:
        """Make the mixture of groups of at least two rows; the covariance has what the means do not explain."""
        kept = self.sizes > min(LEAST_ROWS - 0.5, float(self.sizes.max()) / 2)
        means, sizes = self.points[kept], self.sizes[kept]
        within = (self.scatter - (means.T * sizes) @ means) / self.rows
        values, vectors = np.linalg.eigh(within)
        lengths = np.sqrt(np.maximum(values, RIDGE * max(float(values.mean()), 1e-300)))
        return Mixture(directions, means, sizes / sizes.sum(), (vectors * lengths) @ vectors.T, references)

    def _read_groups(self, total: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute sizes, means and mean squared distances to the means, of the groups that have rows."""
        sizes, squares, sums = self.split(total)
        filled = sizes > 0.5  # a grid of masked sums may leave a trace of rounding in an empty group
        sizes, sums = sizes[filled], sums[filled]
        means = sums / sizes[:, None]
        return sizes, means, np.maximum(squares[filled] / sizes - np.square(means).sum(axis=1), 0.0)


def component_count(n_clusters: int, n_rows: float) -> int:
    """Choose the number of components."""
    many = max(PER_CLUSTER * n_clusters, min(int(n_rows) // ROWS_PER_COMPONENT, MOST_COMPONENTS))
    return max(1, min(many, int(n_rows) // LEAST_ROWS))


def sum_groups(
    rows: Rows,
    directions: FloatArray,
    points: FloatArray,
    *,
    scatter: bool,
    centred: bool = False,
    least_rows: int = 1,
) -> FloatArray:
    """Sum one site's rows, in the directions, by the nearest point: sizes, squares, sums and, if asked, all y y^T.

    Rows may be `centred` at the mean of the site. No group has fewer than `least_rows` rows of the site. A site
    that has fewer says nothing.
    """
    count, q = points.shape
    blocks = [(weight, joint @ directions) for weight, joint in read_joint_blocks(rows)]
    if rows.n_rows < least_rows or not blocks:
        return np.zeros(count * (q + 2) + scatter * (q * (q + 1) // 2))
    weight, inner = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    if centred and weight.sum() > 0:
        inner = inner - np.average(inner, axis=0, weights=weight)
    labels = group_by_points(inner, points, least_rows)
    sums, sizes = group_sums(inner, weight, labels, count)
    squares = np.bincount(labels, weight * np.square(inner).sum(axis=1), minlength=count)
    second = inner.T @ (inner * weight[:, None])
    parts = [sizes, squares, sums.ravel(), upper_half(second) if scatter else np.zeros(0)]
    return np.concatenate(parts)


def group_by_points(inner: FloatArray, points: FloatArray, least_rows: int) -> IntArray:
    """The group of each row: that of the nearest point, where enough of these rows are.

    The others join the rows of their kind that are nearest to them, as many as are enough, and go with them to the
    point that is nearest to their mean.
    """
    labels = find_nearest(inner, points)
    few = np.flatnonzero(np.bincount(labels, minlength=len(points))[labels] < least_rows)
    while len(few):
        if len(few) < 2 * least_rows:  # what is left over is one group, with its neighbours where it is too small
            many = np.setdiff1d(np.arange(len(inner)), few)
            if len(few) < least_rows and len(many):
                labels[few] = labels[many[find_nearest(inner[few], inner[many])]]
                break
            chosen = few
        else:
            chosen = few[np.argsort(np.square(inner[few] - inner[few[0]]).sum(axis=1), kind="stable")[:least_rows]]
        labels[chosen] = find_nearest(inner[chosen].mean(axis=0, keepdims=True), points)
        few = np.setdiff1d(few, chosen)
    return labels


def fit_mixture(rows: Rows, n_clusters: int, seed: int) -> Mixture:
    """Fit the mixture of the rows of one site alone, as sites do together."""
    width = sum(rows.widths)
    directions = leading_directions(sum_products(rows, seed)) if sketch_size(width) else np.eye(width)
    search = MixtureSearch.begin(directions.shape[1])
    while not search.is_done:
        total = sum_groups(rows, directions, search.points, scatter=search.wants_scatter)
        search = search.advance(total, n_clusters, seed)
    return search.mixture(directions, rows.references)


def find_corners(mean: FloatArray, second: FloatArray, n_components: int) -> FloatArray:
    """The first means: a standard deviation to both sides of the mean along each of a few leading directions."""
    values, vectors = np.linalg.eigh(second - np.outer(mean, mean))
    count = min(CORNER_DIRECTIONS, len(values), max(n_components, 1).bit_length() - 1)
    axes = _fix_signs(vectors[:, ::-1][:, :count]) * np.sqrt(np.maximum(values[::-1][:count], 0.0))
    signs = 2.0 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1) - 1.0
    return np.asarray(mean + signs @ axes.T)


def _fix_signs(vectors: FloatArray) -> FloatArray:
    """Columns whose largest component is positive: the sign of an eigenvector depends on how it was computed."""
    largest = np.abs(vectors).argmax(axis=0)
    return np.asarray(vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0))


def split_points(means: FloatArray, energy: FloatArray, spreads: FloatArray, many: int, seed: int) -> FloatArray:
    """Points for the next pass: the means, those of the groups that spread most split in two."""
    chosen = np.argsort(-energy, kind="stable")[: max(many, 0)]
    steps = seeded(seed, len(means)).normal(size=(len(chosen), means.shape[1])) * means.std(axis=0)
    lengths = np.linalg.norm(steps, axis=1, keepdims=True)
    steps = steps * np.divide(STEP * np.sqrt(spreads[chosen])[:, None], lengths, out=lengths * 0.0, where=lengths > 0)
    points = np.vstack([means, means[chosen] - steps])
    points[chosen] += steps
    return points


def read_joint_blocks(rows: Rows) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Weights and values of some rows at a time, views side by side; a missing cell is at the grand mean, 0."""
    for part, joint in iterate_rows(rows):
        weight = np.ones(len(joint)) if rows.sample_weight is None else np.asarray(rows.sample_weight[part], np.float64)
        yield weight, np.nan_to_num(joint, nan=0.0)
