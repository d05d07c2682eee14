"""Rows for passes: one site's tables with the references that bring them to model units.

Here is also the joint space: all views side by side in one table, and the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.levels import find_numbers
from fedhk.data.scaling import Reference
from fedhk.data.views import Views, row_blocks
from fedhk.model.readers import AbsentView, CompleteView, PlainView, ScaledRows, ViewReader, WeightedView

# What a thread of a pass works on at a time: larger than a cache, because every call costs a hand-over between threads.
PASS_BYTES = 5 * 2**20

# Multiplications in a pass from which a few threads are worth their hand-overs, so that there should be a few blocks.
WORTH_SPLITTING = 10**7
# Rows of such a block at least: the sums of every block, a number for each cluster and feature, are added to those of
# all. With 64 rows that took as long as the products (210 rows, 860 features, 60 to 300 clusters).
WORTH_ADDING = 256

# Beyond these a float32 cannot hold a shift or a scale with room for arithmetic; such views are worked on in float64.
SINGLE_RANGE = (1e-30, 1e30)

# Rows that are looked at where a sample of them tells enough.
SAMPLE_ROWS = 4096


@dataclass(frozen=True)
class Rows:
    """One site's rows with the references that bring them to model units."""

    views: Views  # the site's tables, as they came
    references: tuple[Reference, ...]  # one per view of the model
    sample_weight: FloatArray | None = None  # weight of each row, (n,)
    # For rows that are means of other rows: the mean squared distance of those to it, (n, s), in model units. It is
    # added to every squared distance, because that is how far the rows behind it are.
    spread: FloatArray | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.views.n_rows

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(reference.width for reference in self.references)

    @cached_property
    def numbers(self) -> BoolArray:
        """Tell which features are numbers, and no levels of a category; all views side by side."""
        return np.concatenate([find_numbers(*own) for own in zip(self.views.columns, self.widths, strict=True)])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the arithmetic on rows; sums over rows are always float64."""
        low, high = SINGLE_RANGE
        if self.views.dtype == np.float64:
            return self.views.dtype
        for reference in self.references:
            finite = reference.scale[np.isfinite(reference.scale)]
            if np.any(finite < low) or np.any(finite > high) or np.any(np.abs(reference.known_shift) > high):
                return np.dtype(np.float64)
        return self.views.dtype

    def blocks(self, n_clusters: int) -> list[slice]:
        """Return blocks of rows, the first one largest; they depend on shapes only, not on the machine."""
        row = (len(self.widths) + 2) * n_clusters
        for view, (table, width) in enumerate(zip(self.views.tables, self.widths, strict=True)):
            if table is not None and view not in self._plain:  # copied into a buffer
                row += width
        size = min(max(PASS_BYTES // (row * self.dtype.itemsize), 64), 16384)
        if self.n_rows * sum(self.widths) * n_clusters >= WORTH_SPLITTING:
            size = min(size, max(WORTH_ADDING, -(-self.n_rows // 4)))
        return [slice(start, min(start + size, self.n_rows)) for start in range(0, self.n_rows, size)]

    def readers(self, block_rows: int) -> list[ViewReader]:
        """Make a new reader for each view."""
        readers: list[ViewReader] = []
        for view, (table, reference) in enumerate(zip(self.views.tables, self.references, strict=True)):
            if table is None:
                readers.append(AbsentView(reference.width))
            elif view in self._plain:
                readers.append(PlainView(*self._plain[view], reference))
            elif self.is_uniform(view):
                readers.append(CompleteView(table, reference, self.dtype, block_rows))
            else:
                spread = None if self.spread is None else self.spread[:, view].astype(self.dtype)
                missing = self.views.missing[view]
                readers.append(WeightedView(table, reference, self.dtype, block_rows, missing=missing, spread=spread))
        return readers

    def is_uniform(self, view: int) -> bool:
        """Tell whether the site has the view and all its coefficients are 1, without a missing cell."""
        uniform = self.references[view].heat_coef == "uniform" and not self.views.missing[view]
        return uniform and self.views.tables[view] is not None

    @cached_property
    def _plain(self) -> dict[int, tuple[Any, FloatArray]]:
        """The views that can be used as they are stored, and the squared length of their rows in model units.

        Sparse tables are always among them, after their stored cells have been brought to the precision and row length
        of the model; they are never made dense.
        """
        plain, dtype = {}, self.dtype
        for view, reference in enumerate(self.references):
            table = self.views.tables[view]
            if not self.is_uniform(view):
                continue
            if sp.issparse(table):
                table = reference.form.sparse(table).astype(dtype)
            elif not reference.form.is_plain or table.dtype != dtype or not is_near_zero(reference, dtype):
                continue
            norms = _row_norms(table, reference, dtype)
            if self.spread is not None:
                norms += self.spread[:, view].astype(dtype)
            plain[view] = table, norms
        return plain


def take(rows: Rows, indices: IntArray | slice) -> Rows:
    """Take a subset of the rows; a slice copies no dense table."""
    tables = tuple(None if table is None else table[indices] for table in rows.views.tables)
    weight = None if rows.sample_weight is None else rows.sample_weight[indices]
    spread = None if rows.spread is None else rows.spread[indices]
    count = len(range(rows.n_rows)[indices]) if isinstance(indices, slice) else len(indices)
    return Rows(replace(rows.views, tables=tables, n_rows=count), rows.references, weight, spread)


def joint_rows(rows: Rows, missing: float = 0.0) -> FloatArray:
    """Put all views side by side in model units, with equal weight; a missing cell is at the grand mean, 0."""
    joint = np.full((rows.n_rows, sum(rows.widths)), missing, rows.dtype)
    parts = np.split(joint, np.cumsum(rows.widths)[:-1], axis=1)
    for table, reference, part in zip(rows.views.tables, rows.references, parts, strict=True):
        if table is not None:
            ScaledRows(table, reference, rows.dtype).read(slice(0, rows.n_rows), part)
    fill_missing(joint, missing)
    return joint


def fill_missing(cells: FloatArray, value: float = 0.0) -> None:
    """Write a value over missing cells; an infinity, which is what overflow leaves, becomes the largest number."""
    if not np.isfinite(cells).all():
        np.nan_to_num(cells, copy=False, nan=value)


def split_joint(joint: FloatArray, widths: Sequence[int]) -> tuple[FloatArray, ...]:
    """Split joint rows into the features of each view, of shape (n, d_h) or (d_h,), in double precision."""
    ends, joint = accumulate(widths), np.asarray(joint, np.float64)
    return tuple(joint[..., end - width : end] for end, width in zip(ends, widths, strict=True))


def view_sums(joint: FloatArray, widths: Sequence[int]) -> FloatArray:
    """Sum over the features of each view, of shape (n, s)."""
    return np.asarray(np.add.reduceat(joint, np.concatenate([[0], np.cumsum(widths)[:-1]]), axis=-1))


def is_near_zero(reference: Reference, dtype: np.dtype[Any]) -> bool:
    """Tell whether features are near enough to zero, in spreads, that shifting rows by matrix algebra is accurate."""
    digits = 1e-6 if dtype == np.float32 else 1e-13
    return bool(reference.squared_offset * np.finfo(dtype).eps < digits)


def _row_norms(table: Any, reference: Reference, dtype: np.dtype[Any]) -> FloatArray:
    """Compute the squared length of each row in model units; of sparse rows, before the shift."""
    if sp.issparse(table):
        scaled = table @ sp.diags_array(1.0 / reference.scale)
        return np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel().astype(dtype)
    norms = np.empty(table.shape[0], dtype)
    source = ScaledRows(table, reference, dtype)
    for block in row_blocks(len(norms), reference.width * dtype.itemsize):
        values = np.empty((block.stop - block.start, reference.width), dtype)
        source.read(block, values)
        np.einsum("nd,nd->n", values, values, out=norms[block])
    return norms
