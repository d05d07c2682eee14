"""Views side by side in one table: the joint space, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.model.readers import ScaledRows
from fedhk.model.rows import Rows

# Rows that are looked at where a sample of them tells enough.
SAMPLE_ROWS = 4096


def split_joint(joint: FloatArray, widths: Sequence[int]) -> tuple[FloatArray, ...]:
    """Features of each view, of shape (n, d_h) or (d_h,), in double precision."""
    return tuple(np.asarray(part, dtype=np.float64) for part in np.split(joint, np.cumsum(widths)[:-1], axis=-1))


def view_sums(joint: FloatArray, widths: Sequence[int]) -> FloatArray:
    """Sums over the features of each view, of shape (n, s)."""
    return np.asarray(np.add.reduceat(joint, np.concatenate([[0], np.cumsum(widths)[:-1]]), axis=-1))


def joint_rows(rows: Rows, missing: float = 0.0) -> FloatArray:
    """All views side by side in model units, where every view weighs alike; a missing cell is at the grand mean, 0."""
    joint = np.full((rows.n_rows, sum(rows.widths)), missing, rows.dtype)
    parts = np.split(joint, np.cumsum(rows.widths)[:-1], axis=1)
    for table, reference, part in zip(rows.views.tables, rows.references, parts, strict=True):
        if table is not None:
            ScaledRows(table, reference, rows.dtype).read(slice(0, rows.n_rows), part)
            np.nan_to_num(part, copy=False, nan=missing)
    return joint


def take(rows: Rows, indices: IntArray) -> Rows:
    """A subset of the rows."""
    tables = tuple(None if table is None else table[indices] for table in rows.views.tables)
    weight = None if rows.sample_weight is None else rows.sample_weight[indices]
    spread = None if rows.spread is None else rows.spread[indices]
    return Rows(replace(rows.views, tables=tables, n_rows=len(indices)), rows.references, weight, spread)
