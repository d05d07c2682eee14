"""How many clusters there are: rows are few between them, and two halves of the rows find the same ones.

Each half of the rows has points of its own, which begin as many small groups and are joined two by two. Between the
points of two clusters there are fewer rows than near either of them; between two pieces of one cluster there are not.
Rows of the other half are counted, because points fit the rows that they are means of too well. Everything is a sum
over rows, so that sites which keep their rows can do it together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhk._records import Records
from fedhk._typing import FloatArray, IntArray
from fedhk.agreement.frames import adjust, share_information
from fedhk.data.levels import find_numbers
from fedhk.embedding.mixture import (
    find_corners,
    find_nearest,
    group_by_points,
    leading_directions,
    read_joint_blocks,
    sketch_size,
    split_points,
    sum_products,
)
from fedhk.model.rows import Rows
from fedhk.starts.kmeans import group_sums

# Points to begin with for each of the largest number of clusters, and rows for each of them where rows are few.
PER_CLUSTER, ROWS_PER_POINT = 3, 10

# Passes in which points are split, at most, and passes of plain k-means after that.
MOST_SPLITS, LAST_PASSES = 10, 2

# Directions in which rows spread less than this share of the mean within groups are not stretched further.
LEAST_WITHIN = 1e-3

# On the way from one point (0) to another (1): what is near a point, and where the middle begins.
NEAR, MIDDLE = 1 / 6, 1 / 3

# Pairs of points are looked at where one is among so many nearest of the other.
NEIGHBOURS = 5

# Passes in which a site finds how far its rows are from the points as a whole, its own offset.
OFFSET_PASSES = 2

# A gap in standard deviations from which on it is sure. It is the least gap of many pairs: of 192 made-up sets without
# clusters one had a number with a gap of .95, and none had more (seeds 7000 on, benchmarks/results/number.md).
SURE = 1.0

# Searches that say of rows within sites what differs by less say as much. In 90 generated federations the ratio was
# mostly .9 to 1.02 where sites differ in means, above 1.12 where they differ in clusters, and 1.04 twice.
MORE = 1.1

ONE = "one cluster: nowhere are rows surely fewer between two groups than in them"
CLEAR = "rows are fewer between any two of the clusters, and halves of the rows agree on most"
UNCLEAR = "no clear number: halves of the rows agree on more clusters, between which rows are fewer, but not surely"


@dataclass(frozen=True)
class TriedNumber:
    """What speaks for a number of clusters.

    Parameters
    ----------
    n_clusters : int
        The number.
    gap : float
        How surely rows are fewer between the two clusters that are least apart than near either of them, in standard
        deviations of counts. Below 0 they are not fewer.
    agreement : float
        Adjusted mutual information of the clusters that two halves of the rows find.
    information : float
        What the halves say alike of a row, less what only one of them says, in nats.
    within_sites : float
        The same where the site of a row is known.
    """

    n_clusters: int
    gap: float
    agreement: float
    information: float
    within_sites: float


def choose_number(tried: Sequence[TriedNumber]) -> tuple[int, str]:
    """The number of clusters, and why.

    Among the numbers at which rows are surely fewer between any two clusters, it is the one at which two halves of the
    rows share most information; one cluster where there is none. It is not clear where the halves share more at a
    number at which rows are fewer, but not surely.
    """
    best = _find_best([one for one in tried if one.gap > SURE])
    if best is None:
        return 1, ONE
    return best.n_clusters, CLEAR if best == _find_best([one for one in tried if one.gap > 0]) else UNCLEAR


def _find_best(tried: Sequence[TriedNumber]) -> TriedNumber | None:
    return max((one for one in tried if one.information > 0), key=lambda one: one.information, default=None)


def choose_search(plain: Sequence[TriedNumber], centred: Sequence[TriedNumber]) -> Sequence[TriedNumber]:
    """Which of two searches counts, of rows as they are and of rows from which each site has taken its mean.

    Where sites measure differently, clusters of rows as they are also say what site a row is of; where that is known,
    they say no more than others. Where sites have other clusters, taking out means blurs them, and they say less. Of
    searches that say as much within sites, the one with fewer clusters counts.
    """
    numbers = [choose_number(tried)[0] for tried in (plain, centred)]
    said = [
        sum(one.within_sites for one in tried if one.n_clusters == number)
        for tried, number in zip((plain, centred), numbers, strict=True)
    ]
    if max(said) > MORE * min(said):
        return plain if said[0] > said[1] else centred
    return plain if numbers[0] < numbers[1] else centred


def describe_selection(tried: Sequence[TriedNumber]) -> Records:
    """The numbers that were tried as records: n_clusters, gap, agreement, information, taken, note."""
    if not tried:
        return Records()
    chosen, why = choose_number(tried)
    lines: list[dict[str, Any]] = [vars(one) | {"taken": one.n_clusters == chosen} for one in tried]
    for line in lines:
        del line["within_sites"]
    if chosen == 1:
        lines.insert(0, {"n_clusters": 1, "gap": None, "agreement": None, "information": None, "taken": True})
    return Records(line | {"note": why if line["taken"] else ""} for line in lines)


@dataclass(frozen=True, eq=False)
class NumberSearch:
    """Where the search for the number of clusters stands.

    First all rows of each half are one group, then groups are split until they are many. Then coordinates are stretched
    such that rows spread alike in all directions within groups, and points are joined until two are left.
    """

    points: tuple[FloatArray, FloatArray]  # of the halves, each of shape (k, q)
    axes: FloatArray  # (q, q): what rows, in the common directions, are multiplied by
    smallest: int
    largest: int  # numbers to try
    scatter: FloatArray  # sum of y y^T over all rows; empty before the first sums
    rows: float = 0.0
    splits: int = 0  # passes in which points were split
    settled: int = 0  # passes after that, in which they only moved
    joins: bool = False  # whether points are joined now
    tried: tuple[TriedNumber, ...] = ()

    @classmethod
    def begin(cls, n_directions: int, smallest: int, largest: int) -> NumberSearch:
        """Start with all rows around the grand mean."""
        point = np.zeros((1, n_directions))
        return cls((point, point), np.eye(n_directions), smallest, largest, np.zeros((0, 0)))

    @property
    def wants_scatter(self) -> bool:
        """Whether second moments are asked for."""
        return self.scatter.size == 0

    @property
    def is_done(self) -> bool:
        """Whether the smallest number was tried."""
        return self.joins and max(map(len, self.points)) < max(self.smallest, 2)

    @property
    def size(self) -> int:
        """Numbers of `sum_halves`."""
        return count_sums(self.points, scatter=self.wants_scatter, joins=self.joins, table=self.wants_table)

    @property
    def wants_table(self) -> bool:
        """Whether it is asked which rows have which points of both halves."""
        return self.joins and max(map(len, self.points)) <= self.largest

    def split(self, total: FloatArray) -> tuple[list[tuple[FloatArray, FloatArray, FloatArray]], FloatArray]:
        """Sizes, squares and sums of the groups of each half, and what is left of the vector of `sum_halves`."""
        found, q = [], len(self.axes)
        for points in self.points:
            k = len(points)
            sizes, squares, sums, total = np.split(total, [k, 2 * k, k * (q + 2)])
            found.append((sizes, squares, sums.reshape(k, q)))
        return found, total

    def advance(self, total: FloatArray, seed: int) -> NumberSearch:
        """Give the search after the sums over all rows."""
        groups, rest = self.split(total)
        if self.wants_scatter:
            q = len(self.axes)
            scatter = np.zeros((q, q))
            scatter[np.triu_indices(q)] = rest
            scatter, rows = scatter + np.triu(scatter, 1).T, float(sum(sizes.sum() for sizes, _, _ in groups))
            mean = sum(sums[0] for _, _, sums in groups) / max(rows, 1.0)
            corners = find_corners(mean, scatter / max(rows, 1.0), self._most_points(rows))
            return replace(self, points=(corners, corners), scatter=scatter, rows=rows)
        if not self.joins:
            return self._spread(groups, seed)
        return self._join(groups, rest)

    def _most_points(self, rows: float) -> int:
        return max(min(PER_CLUSTER * self.largest, int(rows) // ROWS_PER_POINT), self.largest)

    def _spread(self, groups: list[tuple[FloatArray, FloatArray, FloatArray]], seed: int) -> NumberSearch:
        """Split the groups in which rows spread most, while there are not enough; else begin to join."""
        most, moved, grown = self._most_points(self.rows), [], False
        for half, (all_sizes, squares, sums) in enumerate(groups):
            filled = all_sizes > 0.5  # masks may leave a trace of rounding in an empty group
            sizes = all_sizes[filled]
            means: FloatArray = sums[filled] / sizes[:, None]
            spreads = np.maximum(squares[filled] / sizes - np.square(means).sum(axis=1), 0.0)
            energy = np.where(sizes >= 2, sizes * spreads, 0.0)
            many = min(most - len(means), int(np.count_nonzero(energy)))
            if many > 0 and self.splits < MOST_SPLITS:
                means, grown = split_points(means, energy, spreads, many, seed + half), True
            moved.append(means)
        settled = 0 if grown else self.settled + 1
        search = replace(self, points=(moved[0], moved[1]), splits=self.splits + grown, settled=settled)
        return search if settled <= LAST_PASSES else search._stretch([sizes[sizes > 0.5] for sizes, _, _ in groups])

    def _stretch(self, sizes: list[FloatArray]) -> NumberSearch:
        """Coordinates in which rows spread alike in all directions within groups."""
        between = [(means.T * weight) @ means for means, weight in zip(self.points, sizes, strict=True)]
        within = (self.scatter - between[0] - between[1]) / max(self.rows - sum(map(len, sizes)), 1.0)
        values, vectors = np.linalg.eigh(within)
        least = max(LEAST_WITHIN * float(values.mean()), 1e-300)
        axes = vectors / np.sqrt(np.maximum(values, least))
        return replace(self, points=(self.points[0] @ axes, self.points[1] @ axes), axes=axes, joins=True)

    def _join(self, groups: list[tuple[FloatArray, FloatArray, FloatArray]], rest: FloatArray) -> NumberSearch:
        """Note what speaks for this number of clusters, and join the points that are least apart."""
        gaps, joined = [], []
        numbers = [len(points) for points in self.points]
        for points, (sizes, _, sums), k in zip(self.points, groups, numbers, strict=True):
            pairs = list_pairs(points)
            counts, rest = np.split(rest, [3 * len(pairs)])
            gap = measure_gaps(counts.reshape(3, -1))
            gaps.append(float(gap.min(initial=np.inf)))
            means = np.divide(sums, sizes[:, None], out=points.copy(), where=sizes[:, None] > 0.5)
            waits = k <= self.largest and k < max(numbers)  # for the other half, which has more points
            joined.append(means if waits else join_points(means, sizes, pairs, gap, max(k - self.largest, 1)))
        tried = self.tried
        if self.wants_table and numbers[0] == numbers[1]:
            shared, most = share_information(rest[:-2].reshape(numbers))
            within = (2 * rest[-2] - rest[-1]) / max(self.rows, 1.0)
            information = (2 * shared - most) / max(self.rows, 1.0)
            gap_of_both = sum(gaps) / math.sqrt(2.0)  # each is standard normal where the middle has as many rows
            tried = (TriedNumber(numbers[0], gap_of_both, adjust(shared, most), information, within), *tried)
        return replace(self, points=(joined[0], joined[1]), tried=tried)


def list_pairs(points: FloatArray) -> IntArray:
    """Pairs of points of which one is among the nearest of the other, (p, 2), each with the smaller number first."""
    apart = np.square(points[:, None] - points).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    nearest = np.argsort(apart, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(points) - 1)]
    pairs = np.sort(np.column_stack([np.repeat(np.arange(len(points)), nearest.shape[1]), nearest.ravel()]), axis=1)
    return np.unique(pairs, axis=0)


def measure_gaps(counts: FloatArray) -> FloatArray:
    """How surely rows are fewer between two points than near either of them, in standard deviations, for each pair.

    `counts` are the rows near the first point, near the second, and in the middle: three rows of one column per pair.
    """
    least, middle = counts[:2].min(axis=0), counts[2]
    return np.asarray((least - middle) / np.sqrt(np.maximum(least + middle, 1.0)))


def join_points(points: FloatArray, sizes: FloatArray, pairs: IntArray, gaps: FloatArray, most: int) -> FloatArray:
    """Points after the two that are least apart are one, and `most` pairs in all if rows are not fewer between them."""
    points = points.copy()
    gone: list[int] = []
    used: set[int] = set()
    for place in np.argsort(gaps, kind="stable"):
        a, b = map(int, pairs[place])
        if a in used or b in used:
            continue
        if len(gone) == most or (gone and gaps[place] >= 0):
            break
        weight = sizes[a] + sizes[b]
        points[a] = (sizes[a] * points[a] + sizes[b] * points[b]) / weight if weight > 0 else points[a]
        used |= {a, b}
        gone.append(b)
    return np.delete(points, gone, axis=0)


def count_sums(points: Sequence[FloatArray], *, scatter: bool, joins: bool, table: bool) -> int:
    """Numbers of `sum_halves`."""
    (first, q), second = points[0].shape, len(points[1])
    pairs = sum(3 * len(list_pairs(part)) for part in points) if joins else 0
    return int((first + second) * (q + 2) + pairs + table * (first * second + 2) + scatter * (q * (q + 1) // 2))


def sum_halves(
    rows: Rows,
    axes: FloatArray,
    points: Sequence[FloatArray],
    random_state: np.random.RandomState,
    *,
    scatter: bool,
    joins: bool,
    table: bool,
    centred: bool = False,
    least_rows: int = 1,
) -> FloatArray:
    """Sum one site's rows, in two halves, by the nearest point of each half.

    Sizes, squares and sums of the groups of each half; where points are joined, how many rows of the other half are
    near two points and in the middle between them, for each pair; how many rows have which points of both halves, and
    what that says at this site alone (`table`); and second moments of all rows (`scatter`). Rows may be `centred` at
    the mean of the site.
    """
    axes = leave_out_levels(rows, axes)
    blocks = [(weight, joint @ axes) for weight, joint in read_joint_blocks(rows)]
    if rows.n_rows < least_rows or not blocks:
        return np.zeros(count_sums(points, scatter=scatter, joins=joins, table=table))
    weight, inner = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    if centred and weight.sum() > 0:
        inner = inner - np.average(inner, axis=0, weights=weight)
    chosen = random_state.permutation(len(inner)) % 2
    sums: list[FloatArray] = []
    counts: list[FloatArray] = []
    labels = []
    for half, part in enumerate(points):
        own, k = chosen == half, len(part)
        moved = inner - find_offset(inner[own], weight[own], part) if joins else inner
        groups = group_by_points(moved[own], part, least_rows)
        total, sizes = group_sums(moved[own], weight[own], groups, k)
        lengths = np.square(moved[own]).sum(axis=1, keepdims=True)
        squares, _ = group_sums(lengths, weight[own], groups, k)
        sums += [sizes, squares.ravel(), total.ravel()]
        labels.append(find_nearest(moved, part))
        if joins:
            counts.append(count_between(moved[~own], weight[~own], part).ravel())
    if table:
        first, last = len(points[0]), len(points[1])
        together, _ = group_sums(np.ones((len(inner), 1)), weight, labels[0] * last + labels[1], first * last)
        counts += [together.ravel(), np.array(share_information(together.reshape(first, last)))]
    second = (inner.T @ (inner * weight[:, None]))[np.triu_indices(inner.shape[1])] if scatter else np.zeros(0)
    return np.concatenate([*sums, *counts, second])


def leave_out_levels(rows: Rows, axes: FloatArray) -> FloatArray:
    """Axes to which levels of categories add nothing: between zero and one there are never rows, in any cluster.

    Where there is nothing but levels, they stay.
    """
    parts = zip(rows.views.columns, rows.widths, strict=True)
    numbers = np.concatenate([find_numbers(columns, width) for columns, width in parts])
    return axes * numbers[:, None] if numbers.any() else axes


def find_offset(inner: FloatArray, weight: FloatArray, points: FloatArray) -> FloatArray:
    """How far the rows of a site are from the points as a whole: sites that measure differently are not clusters."""
    offset = np.zeros(inner.shape[1])
    if weight.sum() > 0:
        for _ in range(OFFSET_PASSES):
            offset = np.average(inner - points[find_nearest(inner - offset, points)], axis=0, weights=weight)
    return offset


def count_between(inner: FloatArray, weight: FloatArray, points: FloatArray) -> FloatArray:
    """Rows near the first point of each pair, near the second, and in the middle between them, (3, p)."""
    groups, along = find_nearest(inner, points), inner @ points.T
    products = points @ points.T
    norms, (first, second) = np.diag(products), list_pairs(points).T
    own = along[np.arange(len(inner)), groups]
    apart = np.maximum(norms[:, None] + norms - 2 * products, 1e-300)
    way = (along - own[:, None] - products[groups] + norms[groups][:, None]) / apart[groups]
    near, middle = (
        group_sums(part.astype(np.float64), weight, groups, len(points))[0]
        for part in (np.abs(way) <= NEAR, way >= MIDDLE)
    )
    return np.stack([near[first, second], near[second, first], middle[first, second] + middle[second, first]])


def find_number(rows: Rows, smallest: int, largest: int, seed: int) -> tuple[TriedNumber, ...]:
    """What speaks for each number of clusters of the rows of one site alone."""
    width = sum(rows.widths)
    directions = leading_directions(sum_products(rows, seed)) if sketch_size(width) else np.eye(width)
    search = NumberSearch.begin(directions.shape[1], smallest, largest)
    while not search.is_done:
        total = sum_halves(
            rows,
            directions @ search.axes,
            search.points,
            np.random.RandomState(seed),
            scatter=search.wants_scatter,
            joins=search.joins,
            table=search.wants_table,
        )
        search = search.advance(total, seed)
    return search.tried
