"""Means of groups of rows from sums alone: groups are split in two, as often as needed, where rows spread most.

Candidates are means of groups of one site's rows, which the site shows to the server. Where the server may see nothing
but sums over all sites, it tells all of them the same points; each site adds up its rows by the nearest point, and the
sum over sites gives the means of the groups of all rows (k-means, of which a pass is one sum). From one group to some
hundred it goes by splitting (Linde, Buzo and Gray, 1980), so that the many small sums at the start cost little.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray, IntArray
from fedhk.embedding.anchors import moves
from fedhk.embedding.cluster_sums import ClusterSums, cluster_sums, row_parts, sums_size
from fedhk.model.joint import take, view_sums
from fedhk.model.rows import Rows
from fedhk.starts.candidates import LEAST_ROWS, Candidates

# A group is split if both halves can be groups of two rows at a site.
LEAST_SPLIT = 2 * LEAST_ROWS

# How far from the mean of its group the two halves start, in standard deviations.
STEP = 0.5


def groups_size(n_points: int, widths: Sequence[int], full: Sequence[int]) -> int:
    """Numbers of `grouped`."""
    return sums_size(n_points, widths, full) + n_points * len(widths)


def grouped(rows: Rows, points: FloatArray, full: Sequence[int]) -> FloatArray:
    """Sums of the rows of each group, and of their squares per view, as one vector.

    Parameters
    ----------
    rows : Rows
        A site's rows.
    points : array of shape (k, sum of widths)
        Rows belong to the nearest; a missing cell counts as the grand mean.
    full : sequence of int
        Numbers of the views of which some row of some site lacks cells.

    Notes
    -----
    No group has a single row of the site: such a row belongs to the nearest point that has more of the site's rows. So
    no sum over sites, whoever the others are, tells a row.
    """
    labels = _labels(rows, points)
    kept = np.flatnonzero(labels >= 0)
    ones = np.ones(len(kept))
    members = sp.csr_array((ones, (kept, labels[kept])), shape=(rows.n_rows, len(points)))
    squares = np.zeros((len(points), len(rows.widths)))
    for part, joint in row_parts(rows):
        squares += members[part].T @ view_sums(np.square(np.nan_to_num(joint, nan=0.0)), rows.widths)
    return np.concatenate([cluster_sums(rows, members, full).to_array(), squares.ravel()])


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
    parts = [np.argmin(norms - 2 * np.nan_to_num(joint, nan=0.0) @ points.T, axis=1) for _, joint in row_parts(rows)]
    return np.concatenate(parts)


def read_groups(total: FloatArray, n_points: int, widths: Sequence[int], full: Sequence[int]) -> Candidates:
    """The groups that have rows, from the sum of `grouped` over sites."""
    size = sums_size(n_points, widths, full)
    found = ClusterSums.from_array(total[:size], n_points, widths)
    means = np.hstack(found.means(widths, full, missing=np.nan))
    held = found.sizes > 0.5
    sizes, means = found.sizes[held], means[held]
    squares = total[size:].reshape(n_points, -1)[held] / sizes[:, None]
    return Candidates(means, sizes, np.maximum(squares - view_sums(np.square(np.nan_to_num(means)), widths), 0.0))


def split(found: Candidates, count: int, widths: Sequence[int], random_state: np.random.RandomState) -> FloatArray:
    """Points for the next pass: the means, those of the groups that spread most split in two; at most `count`."""
    points = np.nan_to_num(found.points, nan=0.0)
    energy = np.where(found.sizes >= LEAST_SPLIT, found.sizes * found.spreads.sum(axis=1), 0.0)
    many = min(max(count - len(points), 0), int(np.count_nonzero(energy > 0)))
    chosen = np.argsort(-energy, kind="stable")[:many]
    steps = moves(random_state.normal(size=(many, points.shape[1])), STEP**2 * found.spreads[chosen], widths)
    points = np.vstack([points, points[chosen] - steps])
    points[chosen] += steps
    return points
