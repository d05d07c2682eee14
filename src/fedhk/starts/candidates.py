"""Weighted candidates: what a site says of its rows before there are centres (k-FED), and how the server reads them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.model.rows import Rows, joint_rows, take, view_sums
from fedhk.starts.kmeans import find_nearest, group_means, group_sums, lloyd, plus_plus
from fedhk.starts.seeding import order_keys, sample_rows

# A candidate is a mean of rows, never a row.
LEAST_ROWS = 2
ROWS_PER_CANDIDATE = 3
KMEANS_PASSES = 10

# Rows without weight are grouped too, but pull no mean.
LEAST_WEIGHT = 1e-12

# Rows whose squared distances, in model units, are below this one differ by rounding only.
LEAST_SQUARE = 1e-12

# Rows whose nearest group is looked for at a time.
NEAREST_ROWS = 1024

# Candidates over all sites: enough to see what each view has to say, and at least so many per cluster; and the fewest
# per cluster that each site is asked for.
ALL_CANDIDATES, FEW_CANDIDATES, CANDIDATES_PER_CLUSTER, SITE_CANDIDATES = 1000, 400, 20, 2

# A site that is asked for a share of its rows sends at least so many candidates: what is rare elsewhere may be here.
LEAST_CANDIDATES = 10

# Multiplications that the server may spend on a pass of all starts, and the most starts in multiples of `n_init`.
STARTS_WORK, MOST_STARTS = 10**8, 5


@dataclass(frozen=True)
class Candidates:
    """Means of groups of rows, and what is lost by taking means.

    Parameters
    ----------
    points : array of shape (k, sum of widths)
        The means, in model units; NaN where no row of the group has the feature.
    sizes : array of shape (k,)
        Weight of the rows of each group; scaled up where the site looked at a sample of its rows.
    spreads : array of shape (k, s)
        Mean squared distance of the rows of each group to its mean, per view.
    """

    points: FloatArray
    sizes: FloatArray
    spreads: FloatArray


@dataclass(frozen=True)
class OwnGroups:
    """Groups of the rows of one site, of which candidates would be the means; nothing of them leaves the site."""

    labels: IntArray  # the group of each row, (n,)
    means: FloatArray  # in model units, views side by side, (k, sum of widths); 0 where a cell is missing


def candidates_per_site(n_clusters: int, n_sites: int, *, few: bool = False) -> int:
    """How many candidates each site is asked for; fewer (`few`) are good enough, more save a round or two."""
    least = FEW_CANDIDATES if few else ALL_CANDIDATES
    wanted = max(least, CANDIDATES_PER_CLUSTER * n_clusters * least // ALL_CANDIDATES)
    return max(SITE_CANDIDATES * n_clusters, -(-wanted // n_sites))


def count_by_share(n_rows: int, share: float) -> int:
    """Candidates of a site of so many rows that is asked for a share of them; none where the share is 0."""
    return max(LEAST_CANDIDATES, math.ceil(share * n_rows)) if share > 0 else 0


def candidate_starts(n_init: int, n_candidates: int, width: int, n_clusters: int) -> int:
    """Starts to compare on candidates: more than on rows where that is cheap, because means hide good starts."""
    work = n_candidates * min(width, n_candidates) * n_clusters
    return int(np.clip(STARTS_WORK // max(work, 1), n_init, MOST_STARTS * n_init))


def site_candidates(
    rows: Rows,
    n_candidates: int,
    random_state: np.random.RandomState,
    least_rows: int = LEAST_ROWS,
    *,
    split: bool = False,
    stretch: Callable[[FloatArray], FloatArray] | None = None,
) -> Candidates:
    """Means of groups of a site's rows in the joint space of all views.

    A small site gives fewer than `n_candidates`: at most one for three rows, and none if it has one row. No group has
    fewer than `least_rows` rows: smaller ones are given up. With `split`, large groups are split in their place,
    and groups are the same in whatever order the rows are. With `stretch`, groups are made and spreads measured of rows
    that are changed by it; the means are of rows as they are.
    """
    total = float(rows.n_rows if rows.sample_weight is None else rows.sample_weight.sum())
    sample = sample_rows(rows, n_candidates, random_state)
    if sample.n_rows < least_rows or not total > 0:
        return Candidates(np.zeros((0, sum(rows.widths))), np.zeros(0), np.zeros((0, len(rows.widths))))
    joint, weight = joint_rows(sample, missing=np.nan), _weights(sample)
    values = np.nan_to_num(joint, nan=0.0)
    if stretch is not None:
        values = stretch(values.astype(np.float64))
    if split:
        groups = _group_evenly(values, weight, n_candidates, random_state, least_rows)
    else:
        groups = _group_sample(values, weight, n_candidates, random_state, least_rows)
    found = _means(joint, weight, groups, rows.widths)
    if stretch is not None:
        found = replace(found, spreads=_means(values, weight, groups, rows.widths).spreads)
    return replace(found, sizes=found.sizes * (total / weight.sum()))


def own_groups(
    rows: Rows, n_groups: int, random_state: np.random.RandomState, least_rows: int = LEAST_ROWS
) -> OwnGroups:
    """The groups of which `site_candidates` gives the means, of all rows of a site.

    Rows that were not looked at when groups were made are in the group with the nearest mean.
    """
    sample = sample_rows(rows, n_groups, random_state)
    values, weight = joint_rows(sample).astype(np.float64), _weights(sample)
    if not len(values):
        return OwnGroups(np.zeros(0, np.int64), np.zeros((1, sum(rows.widths))))
    found = _group_sample(values, weight, n_groups, random_state, least_rows)
    _, labels = np.unique(found, return_inverse=True)
    means = group_means(values, np.maximum(weight, LEAST_WEIGHT), labels, int(labels.max()) + 1)
    if sample is not rows:
        blocks = [slice(start, start + NEAREST_ROWS) for start in range(0, rows.n_rows, NEAREST_ROWS)]
        labels = np.concatenate([find_nearest(joint_rows(take(rows, block)), means) for block in blocks])
    return OwnGroups(labels, means)


def _weights(rows: Rows) -> FloatArray:
    return np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight


def _group_sample(
    values: FloatArray, weight: FloatArray, count: int, random_state: np.random.RandomState, least_rows: int
) -> IntArray:
    """Group of each row by k-means: at most `count` groups, and at most one for three rows."""
    count = max(1, min(count, len(values) // ROWS_PER_CANDIDATE))
    seeds = plus_plus(values, np.maximum(weight, LEAST_WEIGHT), count, random_state)
    return group_rows(values, weight, seeds, least_rows)


def _group_evenly(
    values: FloatArray, weight: FloatArray, count: int, random_state: np.random.RandomState, least_rows: int
) -> IntArray:
    """Group of each row by k-means and splits of large groups, the same in whatever order the rows are."""
    values = values.astype(np.float32).astype(np.float64)  # what differs by rounding only must not decide
    order = np.argsort(order_keys(values), kind="stable")
    values, found = values[order], np.empty(len(values), np.int64)
    groups = _group_sample(values, weight[order], count, random_state, least_rows)
    found[order] = split_groups(values, groups, min(count, len(values) // ROWS_PER_CANDIDATE), least_rows)
    return found


def candidate_rows(found: Sequence[Candidates], references: Sequence[Reference], names: Sequence[str]) -> Rows:
    """Candidates of sites as rows with weights: the server chooses its start on them as a site would on its rows."""
    points = np.vstack([candidates.points for candidates in found])
    widths = [reference.width for reference in references]
    tables = tuple(np.ascontiguousarray(part) for part in np.split(points, np.cumsum(widths)[:-1], axis=1))
    missing = tuple(bool(np.isnan(table).any()) for table in tables)
    views = Views(tables, tuple(names), len(points), points.dtype, missing, (None,) * len(widths))
    plain = tuple(reference.of_model_units() for reference in references)
    sizes = np.concatenate([candidates.sizes for candidates in found])
    return Rows(views, plain, sizes, np.vstack([candidates.spreads for candidates in found]))


def group_rows(joint: FloatArray, weight: FloatArray, centers: FloatArray, least_rows: int) -> IntArray:
    """Group of each row, from these centres on, none of them with fewer than `least_rows` rows."""
    weight = np.maximum(weight, LEAST_WEIGHT)
    while True:
        centers, groups, _ = lloyd(joint, weight, centers, KMEANS_PASSES)
        enough = np.bincount(groups, minlength=len(centers)) >= least_rows
        if enough.all() or len(centers) == 1:
            return groups
        centers = centers[enough] if enough.any() else joint.mean(axis=0, keepdims=True)


def split_groups(values: FloatArray, groups: IntArray, count: int, least_rows: int) -> IntArray:
    """Group of each row, after the largest groups were split in two until there are `count`.

    No part has fewer than `least_rows` rows, and rows that are all alike stay together.
    """
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    done: list[IntArray] = []
    while parts and len(parts) + len(done) < count:
        parts.sort(key=len)
        largest = parts.pop()
        halves = _split_rows(values[largest], least_rows)
        if halves is None:
            done.append(largest)
        else:
            parts += [largest[half] for half in halves]
    found = np.empty(len(values), np.int64)
    for group, part in enumerate([*parts, *done]):
        found[part] = group
    return found


def _split_rows(values: FloatArray, least_rows: int) -> tuple[IntArray, IntArray] | None:
    """Split rows in two along the line from their mean to the farthest of them; None if they are few or all alike.

    Of all cuts across this line it is the one with the least squares within the two parts (Ward).
    """
    count = len(values)
    apart = values - values.mean(axis=0)
    squares = np.square(apart).sum(axis=1)
    if count < 2 * least_rows or squares.max() <= LEAST_SQUARE:
        return None
    along = apart @ apart[squares.argmax()]
    order = np.argsort(along, kind="stable")
    first = np.arange(least_rows, count - least_rows + 1)  # rows of the first part
    between = np.square(along[order].cumsum()[first - 1]) / (first * (count - first))
    cut = first[between.argmax()]
    return order[:cut], order[cut:]


def _means(joint: FloatArray, weight: FloatArray, groups: IntArray, widths: Sequence[int]) -> Candidates:
    """Means over the observed cells of each group, its weight, and how far its rows are from the mean."""
    count = int(groups.max()) + 1
    seen, sizes = group_sums((~np.isnan(joint)).astype(np.float64), weight, groups, count)
    sums, _ = group_sums(np.nan_to_num(joint, nan=0.0), weight, groups, count)
    means = np.divide(sums, seen, out=np.full(sums.shape, np.nan), where=seen > 0)
    apart = np.square(np.nan_to_num(joint - means[groups], nan=0.0))
    spreads, _ = group_sums(view_sums(apart, widths), weight, groups, count)
    filled = sizes > 0
    return Candidates(means[filled], sizes[filled], spreads[filled] / sizes[filled, None])
