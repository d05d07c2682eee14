"""Means of groups of rows from sums alone: groups are split in two, as often as needed, where rows spread most.

Candidates are means of groups of one site's rows, which the site sends to the server. Where the server may see nothing
but sums over all sites, it sends all of them the same points; each site adds up its rows by the nearest point, and the
sum over sites gives the means of the groups of all rows (k-means, of which a pass is one sum). From one group to some
hundred it goes by splitting (Linde, Buzo and Gray, 1980), so that the many small sums at the start cost little.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray, IntArray
from fedhk.embedding.anchors import scale_moves
from fedhk.embedding.cluster_sums import ClusterSums, iterate_rows, sum_clusters, sums_size
from fedhk.model.rows import Rows, take, view_sums
from fedhk.starts.candidates import LEAST_ROWS, Candidates

# A group is split if both halves can be groups of two rows at a site.
LEAST_SPLIT = 2 * LEAST_ROWS

# How far from the mean of its group the two halves start, in standard deviations: inside the group, and apart.
STEP = 0.5


def groups_size(n_points: int, widths: Sequence[int], incomplete: Sequence[int]) -> int:
    """Numbers of `sum_groups`."""
    return sums_size(n_points, widths, incomplete) + n_points * len(widths)


def sum_groups(rows: Rows, points: FloatArray, incomplete: Sequence[int]) -> FloatArray:
    """Sum the rows of each group, and their squares per view, in one vector.

    Rows belong to the nearest of the points, of shape (k, sum of widths); a missing cell counts as the grand mean. No
    group has a single row of the site: such a row belongs to the nearest point that has more of the site's rows. So no
    sum over sites, whoever the others are, tells a row.
    """
    labels = _labels(rows, points)
    grouped = np.flatnonzero(labels >= 0)
    ones = np.ones(len(grouped))
    members = sp.csr_array((ones, (grouped, labels[grouped])), shape=(rows.n_rows, len(points)))
    squares = np.zeros((len(points), len(rows.widths)))
    for part, joint in iterate_rows(rows):
        squares += members[part].T @ view_sums(np.square(np.nan_to_num(joint, nan=0.0)), rows.widths)
    return np.concatenate([sum_clusters(rows, members, incomplete).to_array(), squares.ravel()])


def _labels(rows: Rows, points: FloatArray) -> IntArray:
    """The point that each row belongs to; -1 where the site has one row only."""
    if rows.n_rows < LEAST_ROWS:
        return np.full(rows.n_rows, -1)
    labels = _nearest(rows, points)
    counts = np.bincount(labels, minlength=len(points))
    several = np.flatnonzero(counts >= LEAST_ROWS)
    if not len(several):  # every row is alone: all are one group
        return np.full_like(labels, counts.argmax())
    alone = np.flatnonzero(counts[labels] < LEAST_ROWS)
    if len(alone):
        labels[alone] = several[_nearest(take(rows, alone), points[several])]
    return labels


def _nearest(rows: Rows, points: FloatArray) -> IntArray:
    """The nearest point of each row."""
    norms = np.einsum("kd,kd->k", points, points)
    parts = [np.argmin(norms - 2 * np.nan_to_num(joint, nan=0.0) @ points.T, axis=1) for _, joint in iterate_rows(rows)]
    return np.concatenate(parts)


def read_groups(total: FloatArray, n_points: int, widths: Sequence[int], incomplete: Sequence[int]) -> Candidates:
    """The groups that have rows, from the sum of `sum_groups` over sites."""
    size = sums_size(n_points, widths, incomplete)
    found = ClusterSums.from_array(total[:size], n_points, widths)
    means = np.hstack(found.means(widths, incomplete, missing=np.nan))
    filled = found.sizes > 0.5  # a grid of masked sums may leave a trace of rounding in an empty group
    sizes, means = found.sizes[filled], means[filled]
    squares = total[size:].reshape(n_points, -1)[filled] / sizes[:, None]
    return Candidates(means, sizes, np.maximum(squares - view_sums(np.square(np.nan_to_num(means)), widths), 0.0))


def split_groups(
    found: Candidates, count: int, widths: Sequence[int], random_state: np.random.RandomState
) -> FloatArray:
    """Points for the next pass: the means, those of the groups that spread most split in two; at most `count`."""
    points = np.nan_to_num(found.points, nan=0.0)
    energy = np.where(found.sizes >= LEAST_SPLIT, found.sizes * found.spreads.sum(axis=1), 0.0)
    many = min(max(count - len(points), 0), int(np.count_nonzero(energy > 0)))
    chosen = np.argsort(-energy, kind="stable")[:many]
    steps = scale_moves(random_state.normal(size=(many, points.shape[1])), STEP**2 * found.spreads[chosen], widths)
    points = np.vstack([points, points[chosen] - steps])
    points[chosen] += steps
    return points
