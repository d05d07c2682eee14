"""Rows made ready for passes: one site's tables with the references that bring them to model units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import BLOCK_BYTES, Views
from fedhk.model.readers import AbsentView, CompleteView, PlainView, ScaledRows, ViewReader, WeightedView

# What a thread of a pass works on at a time: larger than a cache, because every call costs a hand-over between threads.
PASS_BYTES = 5 * 2**19

# Multiplications in a pass from which a few threads are worth their hand-overs, so that there should be a few blocks.
WORTH_SPLITTING = 10**7

# Beyond these a float32 cannot hold a shift or a scale with room for arithmetic; such views are worked on in float64.
SINGLE_RANGE = (1e-30, 1e30)


@dataclass(frozen=True)
class Rows:
    """One site's rows with the references that bring them to model units.

    Parameters
    ----------
    views : Views
        The site's tables, as they came.
    references : tuple of Reference
        One per view of the model.
    sample_weight : array of shape (n,) or None
        Weight of each row.
    spread : array of shape (n, s) or None
        For rows that are means of other rows: the mean squared distance of those to it, per view, in model units. It is
        added to every squared distance, because that is how far the rows behind it are.
    """

    views: Views
    references: tuple[Reference, ...]
    sample_weight: FloatArray | None = None
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
    def dtype(self) -> np.dtype[Any]:
        """The precision of the arithmetic on rows; sums over rows are always float64."""
        low, high = SINGLE_RANGE
        for reference in self.references:
            finite = reference.scale[np.isfinite(reference.scale)]
            if np.any(finite < low) or np.any(finite > high) or np.any(np.abs(reference.known_shift) > high):
                return np.dtype(np.float64)
        return self.views.dtype

    def block_rows(self, n_clusters: int) -> int:
        """Rows per block: a function of shapes only, so that results do not depend on the machine."""
        copied = [w for view, w in enumerate(self.widths) if view not in self._plain and self._has(view)]
        row = sum(copied) + (len(self.widths) + 2) * n_clusters
        most = int(np.clip(PASS_BYTES // (row * self.dtype.itemsize), 64, 16384))
        if self.n_rows * sum(self.widths) * n_clusters < WORTH_SPLITTING:
            return most
        return max(64, min(most, -(-self.n_rows // 4)))

    def readers(self, block_rows: int) -> list[ViewReader]:
        """Fresh readers, one per view."""
        return [self._reader(view, block_rows) for view in range(len(self.references))]

    def _reader(self, view: int, block_rows: int) -> ViewReader:
        table, reference = self.views.tables[view], self.references[view]
        if table is None:
            return AbsentView(reference.width)
        if view in self._plain:
            return PlainView(*self._plain[view], reference)
        if self._is_uniform(view):
            return CompleteView(table, reference, self.dtype, block_rows)
        spread = None if self.spread is None else self.spread[:, view].astype(self.dtype)
        missing = self.views.missing[view]
        return WeightedView(table, reference, self.dtype, block_rows, missing=missing, spread=spread)

    def _has(self, view: int) -> bool:
        return self.views.tables[view] is not None

    def _is_uniform(self, view: int) -> bool:
        """Whether all coefficients of a view are 1."""
        return self.references[view].heat_coef == "uniform" and not self.views.missing[view]

    @cached_property
    def _plain(self) -> dict[int, tuple[Any, FloatArray]]:
        """The views that can be used as they are stored, and the squared length of their rows in model units.

        Sparse tables are always among them, after their stored cells have been brought to the precision and row length
        of the model; they are never made dense.
        """
        plain = {}
        for view, (table, reference) in enumerate(zip(self.views.tables, self.references, strict=True)):
            if table is None or not self._is_uniform(view):
                continue
            if sp.issparse(table):
                table = unit_rows(table) if reference.unit_rows else table  # noqa: PLW2901
                table = table.astype(self.dtype)  # noqa: PLW2901
            elif reference.unit_rows or table.dtype != self.dtype or not plain_is_exact(reference, self.dtype):
                continue
            norms = row_norms(table, reference, self.dtype)
            if self.spread is not None:
                norms += self.spread[:, view].astype(self.dtype)
            plain[view] = table, norms
        return plain


def unit_rows(table: Any) -> Any:
    """A sparse table with rows of length 1; rows of zeros stay."""
    squares = np.asarray(table.multiply(table).sum(axis=1), dtype=np.float64).ravel()
    return sp.csr_array(sp.diags_array(np.where(squares > 0, squares, 1.0) ** -0.5) @ table)


def plain_is_exact(reference: Reference, dtype: np.dtype[Any]) -> bool:
    """Whether features are near enough to zero, in spreads, that moving rows by matrix algebra loses no digits."""
    digits = 1e-6 if dtype == np.float32 else 1e-13
    return bool(np.square(reference.known_shift / reference.scale).sum() * np.finfo(dtype).eps < digits)


def row_norms(table: Any, reference: Reference, dtype: np.dtype[Any]) -> FloatArray:
    """Squared length of each row in model units; of sparse rows, before they are moved to the mean."""
    if sp.issparse(table):
        scaled = table @ sp.diags_array(1.0 / reference.scale)
        return np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel().astype(dtype)
    norms = np.empty(table.shape[0], dtype)
    source = ScaledRows(table, reference, dtype)
    size = int(np.clip(BLOCK_BYTES // (reference.width * dtype.itemsize), 64, 4096))
    buffer = np.empty((size, reference.width), dtype)
    for start in range(0, len(norms), size):
        block = slice(start, min(start + size, len(norms)))
        values = buffer[: block.stop - start]
        source.read(block, values)
        np.einsum("nd,nd->n", values, values, out=norms[block])
    return norms
