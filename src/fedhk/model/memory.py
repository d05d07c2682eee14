"""The memory of a model: sums over earlier rows per cluster, from which an update continues.

A model remembers the weight of its centres and how far rows were from them. A site remembers the means of its own rows
by cluster, to which it compares later rows. Sums of earlier rows are multiplied by a number below 1 where they are to
be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from scipy.stats import chi2

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import SAMPLE_ROWS, Rows, fill_missing, joint_rows, split_joint, take
from fedhk.model.statistics import Statistics

# Share of a cluster's rows that are farther from its centre than its limit: as in `fedhk.find_limit`.
RARE = 0.001

# Cells of the rows that a site looks at: its rows are made dense for it.
MOST_CELLS = 2**22

# Fewest rows of a site of which it remembers a mean: as few as are shown anywhere.
LEAST_ROWS = 5


@dataclass(frozen=True, eq=False)
class ClusterSpread:
    """Spread of rows around the centre of their cluster: sums over rows, of shape (c,) each."""

    rows: FloatArray
    squares: FloatArray  # squared distances r^2 to the centre, views weighted as in the objective
    fourths: FloatArray  # r^4
    products: FloatArray  # squared products of two differences of rows, over 4: their mean is tr(S^2), S the covariance
    pairs: FloatArray  # how many products

    @classmethod
    def zero(cls, n_clusters: int) -> Self:
        """Make the spread of no rows."""
        return cls(*(np.zeros(n_clusters) for _ in fields(cls)))

    def to_array(self) -> FloatArray:
        """Put all sums into one array of shape (c, 5)."""
        return np.column_stack([getattr(self, field.name) for field in fields(self)])

    @classmethod
    def from_array(cls, values: FloatArray) -> Self:
        """Read the array that `to_array` made, or its first columns; rounding may have left less than nothing."""
        missing = len(fields(cls)) - values.shape[1]
        return cls(*np.pad(np.maximum(values, 0.0), ((0, 0), (0, missing))).T)

    def limits(self) -> FloatArray:
        """Compute the squared distance from its centre within which all rows of a cluster are, except for `RARE`.

        Squared distances are taken for a multiple of a chi-square variable of the same mean and variance, which they
        are in a normal cloud (Satterthwaite). A cluster of few rows has the limit of all rows together.
        """
        known = np.where((self.rows >= LEAST_ROWS)[:, None], self.to_array(), self.to_array().sum(axis=0))
        rows, squares, fourths = np.maximum(known[:, :3].T, 1e-300)
        mean = squares / rows
        variance = np.maximum(fourths / rows - np.square(mean), 1e-6 * np.square(mean))
        freedom = 2 * np.square(mean) / variance
        return np.asarray(mean / freedom * chi2.isf(RARE, freedom))


# Numbers of a spread per cluster, and those of them that are sums over single rows: the same for any split over sites.
SPREAD, OVER_ROWS = len(fields(ClusterSpread)), 3


@dataclass(frozen=True, eq=False)
class Memory:
    """Memory of a model: the weight of each centre, of shape (c, s), and the spread of rows around it."""

    weights: FloatArray
    spread: ClusterSpread

    @classmethod
    def of(cls, weights: FloatArray) -> Self:
        """Make a memory of weights alone."""
        return cls(weights, ClusterSpread.zero(len(weights)))

    def fade(self, keep: float) -> Memory:
        """Return the memory with all sums multiplied by `keep`."""
        return Memory(keep * self.weights, ClusterSpread.from_array(keep * self.spread.to_array()))

    def add(self, weights: FloatArray, spread: ClusterSpread) -> Memory:
        """Add later rows; new clusters and views come last."""
        before = self.extend(*weights.shape)
        known = before.spread.to_array() + spread.to_array()
        return Memory(before.weights + weights, ClusterSpread.from_array(known))

    def extend(self, n_clusters: int, n_views: int) -> Memory:
        """Return the memory with more clusters and views, which have no weight."""
        more = (0, n_clusters - self.n_clusters)
        weights = np.pad(self.weights, (more, (0, n_views - self.weights.shape[1])))
        return Memory(weights, ClusterSpread.from_array(np.pad(self.spread.to_array(), (more, (0, 0)))))

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.weights)


@dataclass(frozen=True)
class RememberingParameters(Parameters):
    """Parameters whose centres are also pulled to where they were, by the weight of remembered rows."""

    anchors: tuple[FloatArray, ...] = ()  # remembered centres, (c, d_h) per view
    weights: tuple[FloatArray, ...] = ()  # their weights, (c, 1) per view

    @classmethod
    def of(cls, parameters: Parameters, weights: FloatArray) -> Self:
        """Give parameters that remember their own centres with weights of shape (c, s)."""
        plain = {field.name: getattr(parameters, field.name) for field in fields(Parameters)}
        return cls(**plain, anchors=parameters.centers, weights=tuple(weights.T[:, :, None]))

    def move_centers(self, statistics: Statistics) -> Self:
        """Take the centre step from the statistics at these parameters and what is remembered."""
        numerators = zip(statistics.numerators, self.weights, self.anchors, strict=True)
        both = replace(
            statistics,
            numerators=tuple(n + w * a for n, w, a in numerators),
            weights=tuple(map(np.add, statistics.weights, self.weights)),
        )
        return super().move_centers(both)

    def free(self) -> Parameters:
        return Parameters(**{field.name: getattr(self, field.name) for field in fields(Parameters)})


def most_placed(rows: Rows) -> int:
    """Compute how many of these rows are placed at most."""
    return min(SAMPLE_ROWS, max(MOST_CELLS // sum(rows.widths), 1))


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """A site's rows, or a sample of many, with their clusters: what all sums of an update are made from.

    Parameters
    ----------
    rows : Rows
        The rows, sorted by cluster.
    labels : array of shape (n,)
        Their clusters.
    away : array of shape (n, d)
        Where they are from the centre of their cluster, in model units; a missing cell is at the centre.
    scale : array of shape (d,)
        What distances multiply each feature by: the root of its view's factor.
    """

    rows: Rows
    labels: IntArray
    away: FloatArray
    scale: FloatArray
    n_clusters: int

    @classmethod
    def of(cls, rows: Rows, parameters: Parameters, known: IntArray | None = None) -> Self:
        """Place rows at the centres of a model; `known` are the clusters of all rows, if somebody knows them."""
        chosen = np.random.default_rng(0).permutation(rows.n_rows)[: most_placed(rows)]
        placed = rows if len(chosen) == rows.n_rows else take(rows, chosen)
        if known is None:
            with Passes(placed, parameters.n_clusters) as scan:
                labels = scan.assign(parameters)[1]
            labels = labels[chosen] if placed is rows else labels
        else:
            labels = known[chosen]
        order = np.argsort(labels, kind="stable")
        some, labels = take(rows, chosen[order]), labels[order]
        centers = np.hstack(parameters.centers)[labels]
        away = np.subtract(joint_rows(some, missing=np.nan), centers, dtype=np.float64)
        fill_missing(away)
        return cls(some, labels, away, find_scale(parameters), parameters.n_clusters)

    def select(self, keep: BoolArray) -> PlacedRows:
        """Take some of the rows."""
        rows, labels, away = take(self.rows, np.flatnonzero(keep)), self.labels[keep], self.away[keep]
        return replace(self, rows=rows, labels=labels, away=away)

    def count(self, weights: FloatArray | None = None) -> FloatArray:
        """Count the rows of each cluster, or sum a number over them."""
        return np.bincount(self.labels, weights, self.n_clusters).astype(np.float64)

    def count_views(self) -> FloatArray:
        """Count the rows of each cluster that have each view, of shape (c, s)."""
        cells = split_joint(joint_rows(self.rows, missing=np.nan), self.rows.widths)
        seen = [np.asarray(~np.isnan(part).all(axis=1), np.float64) for part in cells]
        return np.column_stack([self.count(part) for part in seen])

    def sum(self, values: FloatArray, groups: IntArray | None = None) -> FloatArray:
        """Sum the rows of a table by cluster, of shape (c, d)."""
        groups = self.labels if groups is None else groups
        member = np.arange(self.n_clusters)[:, None] == groups
        return np.asarray(member.astype(np.float64) @ values)

    def squared_lengths(self) -> FloatArray:
        """Compute the squared distance of each row to its centre."""
        scaled = self.away * self.scale
        return np.asarray(np.einsum("nd,nd->n", scaled, scaled))

    def sums_over_rows(self) -> FloatArray:
        """Compute the part of `spread` that is the same for any split of rows over sites, of shape (c, 3)."""
        lengths = self.squared_lengths()
        return np.column_stack([self.count(), self.count(lengths), self.count(np.square(lengths))])

    def spread(self) -> ClusterSpread:
        """Compute the spread of rows around their centres.

        The products are (x1 - x2) . (x3 - x4) for rows of one cluster, which do not depend on where the cluster is.
        """
        sums = self.sums_over_rows()
        scaled = self.away * self.scale
        windows = max(len(scaled) - 3, 0)
        labels = self.labels[3:]
        same = (self.labels[:windows] == labels).astype(np.float64)
        # products of each row with the next, the second and the third after it
        one, two, three = (np.einsum("nd,nd->n", scaled[:-lag], scaled[lag:]) for lag in (1, 2, 3))
        between = one[1 : windows + 1] + three[:windows]
        neighbours = two[:windows] + two[1 : windows + 1] - between  # (x1 - x2) . (x3 - x4)
        crossed = one[:windows] + one[2 : windows + 2] - between  # (x1 - x3) . (x2 - x4)
        # and (x1 - x4) . (x2 - x3), which is the difference of the two
        products = (np.square(neighbours) + np.square(crossed) + np.square(crossed - neighbours)) / 12
        found = [
            np.bincount(labels, weights, self.n_clusters).astype(np.float64) for weights in (same * products, same)
        ]
        return ClusterSpread(*sums.T, *found)

    def count_between(self, parameters: Parameters) -> FloatArray:
        """Count rows at each centre, and midway between it and the nearest other one, of shape (c, 2).

        Both are slices across the line between the two centres, as thick as a third of it.
        """
        centers, counts = np.hstack(parameters.centers), np.zeros((self.n_clusters, 2))
        scaled, joint = centers * self.scale, self.away + centers[self.labels]
        apart = np.square(scaled[:, None] - scaled).sum(axis=2)
        np.fill_diagonal(apart, np.inf)
        apart[:, list(parameters.gone)] = np.inf
        for cluster, other in enumerate(apart.argmin(axis=1)):
            if np.isfinite(apart[cluster, other]) and apart[cluster, other] > 0:
                mine = np.isin(self.labels, (cluster, other))
                way = (centers[other] - centers[cluster]) * np.square(self.scale) / apart[cluster, other]
                along = (joint[mine] - centers[cluster]) @ way
                counts[cluster] = [np.sum(np.abs(along - place) < 1 / 6) for place in (0.0, 0.5)]
        return counts

    def statistics(self, parameters: Parameters) -> Statistics:
        """Sum up the rows, each of which is in its cluster alone, as passes do at the parameters that placed them."""
        counts, widths = self.count_views(), self.rows.widths
        pulls = split_joint(self.sum(self.away), widths)
        weights = [column[:, None] for column in counts.T]
        numerators = tuple(p + w * a for p, w, a in zip(pulls, weights, parameters.centers, strict=True))
        costs = np.array([np.square(part).sum() for part in split_joint(self.away * self.scale, widths)])
        rows = float(len(self.labels))
        return Statistics(numerators, tuple(weights), costs, self.count(), float(costs.sum()), rows)

    def squared_distances(self, parameters: Parameters) -> FloatArray:
        """Compute the squared distance of each row to each centre, of shape (n, c), over observed cells."""
        cells = joint_rows(self.rows, missing=np.nan).astype(np.float64)
        seen = (~np.isnan(cells)).astype(np.float64)
        scaled, centers = np.nan_to_num(cells) * self.scale, np.hstack(parameters.centers) * self.scale
        apart = np.square(scaled).sum(axis=1)[:, None] - 2 * scaled @ centers.T + seen @ np.square(centers).T
        if parameters.sizes is not None:
            apart[:, parameters.sizes == 0] = np.inf
        return np.asarray(np.maximum(apart, 0.0))


def find_scale(parameters: Parameters) -> FloatArray:
    """Compute the weight of each feature in distances, (d,): the root of the share of its view in the objective."""
    factors = parameters.view_factors / parameters.view_factors.sum()
    return np.repeat(np.sqrt(factors), [part.shape[1] for part in parameters.centers])


def remember(placed: PlacedRows, parameters: Parameters, scan: Passes) -> Memory:
    """Compute the memory of the rows that a model was fitted on, from those that were placed by it.

    `scan` makes passes over all rows that it was fitted on.
    """
    n_rows, n_placed = scan.rows.n_rows, len(placed.labels)
    if n_placed == n_rows:
        return Memory(scan.statistics(parameters).heights, placed.spread())
    with Passes(placed.rows, parameters.n_clusters) as few:
        heights = few.statistics(parameters).heights
    return Memory(heights * n_rows / n_placed, placed.spread())
