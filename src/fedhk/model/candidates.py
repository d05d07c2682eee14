"""Weighted candidates: what a site says of its rows before there are centres (k-FED), and how the server reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.model.kmeans import group_sums, lloyd, plus_plus
from fedhk.model.rows import Rows
from fedhk.model.seeding import joint_rows, sample_rows

# A candidate is a mean of rows, never a row.
LEAST_ROWS = 2
ROWS_PER_CANDIDATE = 3
KMEANS_PASSES = 10


def site_candidates(
    rows: Rows, n_candidates: int, random_state: np.random.RandomState
) -> tuple[FloatArray, FloatArray]:
    """Means of groups of rows in the joint space of all views, and how many rows each stands for.

    Parameters
    ----------
    rows : Rows
        The site's rows.
    n_candidates : int
        How many are wanted; a small site gives fewer, at most one for three rows.
    random_state : RandomState
        Source of randomness.

    Returns
    -------
    candidates : array of shape (k, sum of widths)
        In model units; NaN where no row of the group has the feature.
    weights : array of shape (k,)
        Weight of the rows of each group; scaled up where the site looked at a sample of its rows.
    """
    total = float(rows.n_rows if rows.sample_weight is None else rows.sample_weight.sum())
    sample = sample_rows(rows, n_candidates, random_state)
    count = max(1, min(n_candidates, sample.n_rows // ROWS_PER_CANDIDATE))
    if sample.n_rows < LEAST_ROWS or not total > 0:
        return np.zeros((0, sum(rows.widths))), np.zeros(0)
    joint = joint_rows(sample, missing=np.nan)
    weight = np.ones(sample.n_rows) if sample.sample_weight is None else sample.sample_weight
    groups = _groups(np.nan_to_num(joint, nan=0.0), weight, count, random_state)
    candidates, sizes = _means(joint, weight, groups)
    return candidates, sizes * (total / weight.sum())


def candidate_rows(
    candidates: FloatArray, weights: FloatArray, references: Sequence[Reference], names: Sequence[str]
) -> Rows:
    """Candidates as rows with weights: the server chooses its start on them as a site would on its rows."""
    widths = [reference.width for reference in references]
    tables = tuple(np.ascontiguousarray(part) for part in np.split(candidates, np.cumsum(widths)[:-1], axis=1))
    missing = tuple(bool(np.isnan(table).any()) for table in tables)
    views = Views(tables, tuple(names), len(candidates), candidates.dtype, missing, (None,) * len(widths))
    plain = tuple(replace(r, unit_rows=False, shift=np.zeros(r.width), scale=np.ones(r.width)) for r in references)
    return Rows(views, plain, weights)


def _groups(joint: FloatArray, weight: FloatArray, count: int, random_state: np.random.RandomState) -> IntArray:
    """Group of each row, none of them with fewer than `LEAST_ROWS` rows."""
    weight = np.maximum(weight, 1e-12)
    centers = plus_plus(joint, weight, count, random_state)
    while True:
        centers, groups, _ = lloyd(joint, weight, centers, KMEANS_PASSES)
        enough = np.bincount(groups, minlength=len(centers)) >= LEAST_ROWS
        if enough.all() or len(centers) == 1:
            return groups
        centers = centers[enough] if enough.any() else joint.mean(axis=0, keepdims=True)


def _means(joint: FloatArray, weight: FloatArray, groups: IntArray) -> tuple[FloatArray, FloatArray]:
    """Means over the observed cells of each group, and its weight."""
    count = int(groups.max()) + 1
    seen, sizes = group_sums((~np.isnan(joint)).astype(np.float64), weight, groups, count)
    sums, _ = group_sums(np.nan_to_num(joint, nan=0.0), weight, groups, count)
    means = np.divide(sums, seen, out=np.full(sums.shape, np.nan), where=seen > 0)
    return means[sizes > 0], sizes[sizes > 0]
