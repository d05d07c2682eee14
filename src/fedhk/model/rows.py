"""Rows made ready for passes: scaled, weighted, and read in blocks.

The heat-weighted squared distance is one matrix product. With coefficients delta,

    -phi_ik = t [2 (delta x)_i . a_k - delta_i . a_k^2 - sum_j delta_ij x_ij^2]

so a row is *lifted* to (delta x, delta, sum delta x^2) and a centre to t (2 a, -a^2, -1). Where every coefficient is 1
the middle part is one number per row, and half of the product is not needed. The same lifted rows times the weights of
a pass give the numerators and the weights of the centre update: the second product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.moments import row_lengths
from fedhk.data.scaling import Reference
from fedhk.data.views import BLOCK_BYTES, Views

# What a thread of a pass works on at a time: larger than a cache, because every call costs a hand-over between threads.
PASS_BYTES = 3 * 2**20

# Beyond these a float32 cannot hold a shift or a scale with room for arithmetic; such views are worked on in float64.
SINGLE_RANGE = (1e-30, 1e30)


# Centres as a reader takes them.
Lifted: TypeAlias = tuple[FloatArray, ...]


class ViewReader(Protocol):
    """Reads blocks of one view's rows; each thread has its own."""

    # Columns of what `sums` gives.
    sum_width: int

    def load(self, rows: slice) -> None:
        """Make a block of rows ready."""

    def lift(self, centers: FloatArray, heat_time: float) -> Lifted:
        """Centres in the form that `exponents` takes."""

    def exponents(self, lifted: Lifted, out: FloatArray) -> None:
        """Write -phi of the loaded rows, shape (c, rows)."""

    def sums(self, kernel: FloatArray) -> FloatArray:
        """Sums of the loaded rows with weights of shape (c, rows), in whatever form they add in."""

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Numerators (c, d) and weights (c, d or 1) from added sums and the added weights (c,)."""


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
    """

    views: Views
    references: tuple[Reference, ...]
    sample_weight: FloatArray | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.views.n_rows

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(reference.width for reference in self.references)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the arithmetic on rows; sums over rows are always float64."""
        low, high = SINGLE_RANGE
        for reference in self.references:
            finite = reference.scale[np.isfinite(reference.scale)]
            if np.any(finite < low) or np.any(finite > high) or np.any(np.abs(reference.shift) > high):
                return np.dtype(np.float64)
        return self.views.dtype

    def block_rows(self, n_clusters: int) -> int:
        """Rows per block: a function of shapes only, so that results do not depend on the machine."""
        copied = sum(self.widths) if any(map(self._is_copied, range(len(self.widths)))) else 0
        row = copied + (len(self.widths) + 2) * n_clusters
        return int(np.clip(PASS_BYTES // (row * self.dtype.itemsize), 64, 16384))

    def readers(self, block_rows: int) -> list[ViewReader]:
        """Fresh readers, one per view."""
        return [self._reader(view, block_rows) for view in range(len(self.references))]

    def _reader(self, view: int, block_rows: int) -> ViewReader:
        table, reference = self.views.tables[view], self.references[view]
        if table is None:
            return AbsentView(reference.width)
        complete = self._is_uniform(view)
        if complete and self._is_plain(view):
            return PlainView(table, reference, self.dtype, self._norms[view])
        if complete:
            return CompleteView(table, reference, self.dtype, block_rows)
        return WeightedView(table, reference, self.dtype, block_rows, missing=self.views.missing[view])

    def _is_copied(self, view: int) -> bool:
        return self.views.tables[view] is not None and not (self._is_uniform(view) and self._is_plain(view))

    def _is_uniform(self, view: int) -> bool:
        return self.references[view].heat_coef == "uniform" and not self.views.missing[view]

    def _is_plain(self, view: int) -> bool:
        """Whether a view can be used as it is stored."""
        table, reference = self.views.tables[view], self.references[view]
        if table is None or reference.unit_rows or table.dtype != self.dtype:
            return False
        return sp.issparse(table) or plain_is_exact(reference, self.dtype)

    @cached_property
    def _norms(self) -> dict[int, FloatArray]:
        """Squared length of each row in model units, for the views that are used as they are stored."""
        plain = [view for view in range(len(self.references)) if self._is_uniform(view) and self._is_plain(view)]
        return {view: row_norms(self.views.tables[view], self.references[view], self.dtype) for view in plain}


def plain_is_exact(reference: Reference, dtype: np.dtype[Any]) -> bool:
    """Whether features are near enough to zero, in spreads, that moving rows by matrix algebra loses no digits."""
    digits = 1e-6 if dtype == np.float32 else 1e-13
    return bool(np.square(reference.shift / reference.scale).sum() * np.finfo(dtype).eps < digits)


def row_norms(table: Any, reference: Reference, dtype: np.dtype[Any]) -> FloatArray:
    """Squared length of each row in model units."""
    norms = np.empty(table.shape[0], dtype)
    scaled = ScaledRows(table, reference, dtype)
    size = int(np.clip(BLOCK_BYTES // (reference.width * dtype.itemsize), 64, 4096))
    buffer = np.empty((size, reference.width), dtype)
    for start in range(0, len(norms), size):
        block = slice(start, min(start + size, len(norms)))
        values = buffer[: block.stop - start]
        scaled.read(block, values)
        np.einsum("nd,nd->n", values, values, out=norms[block])
    return norms


class PlainView:
    """Rows used as they are stored, dense or sparse, with uniform coefficients and no missing cell: nothing is copied.

    Squared distances do not change when rows and centres move together, so shift and scale go to the centres and the
    numerators are moved back. That costs digits where means are many spreads away from zero: see `plain_is_exact`.
    """

    def __init__(self, table: Any, reference: Reference, dtype: np.dtype[Any], norms: FloatArray) -> None:
        self._table, self._dtype, self._norms = table, dtype, norms
        self.sum_width = reference.width
        self._inverse = 1.0 / reference.scale
        self._offset = reference.shift * self._inverse
        self._block, self._block_norms = table[:0], norms[:0]

    def load(self, rows: slice) -> None:
        self._block, self._block_norms = self._table[rows], self._norms[rows]

    def lift(self, centers: FloatArray, heat_time: float) -> Lifted:
        constant = -np.square(centers).sum(axis=1) - 2 * centers @ self._offset
        parts = (2 * centers * self._inverse, constant[:, None], np.ones(1))
        return tuple((heat_time * part).astype(self._dtype) for part in parts)

    def exponents(self, lifted: Lifted, out: FloatArray) -> None:
        slopes, constants, scale = lifted
        if sp.issparse(self._block):
            out[...] = (self._block @ slopes.T).T
        else:
            np.matmul(slopes, self._block.T, out=out)
        out += constants
        out -= scale * self._block_norms

    def sums(self, kernel: FloatArray) -> FloatArray:
        if sp.issparse(self._block):
            return np.asarray((self._block.T @ kernel.T).T)
        return np.asarray(kernel @ self._block)

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        weights = totals[:, None]
        return sums * self._inverse - weights * self._offset, weights


class CompleteView:
    """Rows with uniform coefficients and no missing cell, scaled into a buffer: lifted to (x, x.x, 1)."""

    def __init__(self, table: Any, reference: Reference, dtype: np.dtype[Any], block_rows: int) -> None:
        self._source = ScaledRows(table, reference, dtype)
        self._width = reference.width
        self.sum_width = self._width + 2
        self._buffer = np.ones((block_rows, self.sum_width), dtype)
        self._lifted = self._buffer

    def load(self, rows: slice) -> None:
        self._lifted = self._buffer[: rows.stop - rows.start]
        values = self._lifted[:, : self._width]
        self._source.read(rows, values)
        np.einsum("nd,nd->n", values, values, out=self._lifted[:, self._width])

    def lift(self, centers: FloatArray, heat_time: float) -> Lifted:
        norms = np.einsum("kd,kd->k", centers, centers)
        lifted = np.column_stack([2 * centers, np.full(len(centers), -1.0), -norms]) * heat_time
        return (lifted.astype(self._buffer.dtype),)

    def exponents(self, lifted: Lifted, out: FloatArray) -> None:
        np.matmul(lifted[0], self._lifted.T, out=out)

    def sums(self, kernel: FloatArray) -> FloatArray:
        return np.asarray(kernel @ self._lifted)

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        return sums[:, : self._width], totals[:, None]


class WeightedView:
    """Dense rows with coefficients or missing cells: lifted to (delta x, delta, sum delta x^2)."""

    def __init__(
        self, table: Any, reference: Reference, dtype: np.dtype[Any], block_rows: int, *, missing: bool
    ) -> None:
        self._source = ScaledRows(table, reference, dtype)
        self._reference, self._missing = reference, missing
        self._width = reference.width
        self.sum_width = 2 * self._width + 1
        self._buffer = np.empty((block_rows, self.sum_width), dtype)
        self._values = np.empty((2, block_rows, self._width), dtype)
        self._lifted = self._buffer

    def load(self, rows: slice) -> None:
        count, width = rows.stop - rows.start, self._width
        self._lifted, (values, coef) = self._buffer[:count], self._values[:, :count]
        weighted = self._lifted[:, :width]
        self._source.read(rows, values)
        self._reference.coefficients(values, out=coef)
        if self._missing:
            absent = np.isnan(values)
            coef[absent] = 0.0
            values[absent] = 0.0
        self._lifted[:, width:-1] = coef
        np.multiply(coef, values, out=weighted)
        np.einsum("nd,nd->n", weighted, values, out=self._lifted[:, -1])

    def lift(self, centers: FloatArray, heat_time: float) -> Lifted:
        lifted = np.column_stack([2 * centers, -np.square(centers), np.full(len(centers), -1.0)]) * heat_time
        return (lifted.astype(self._buffer.dtype),)

    def exponents(self, lifted: Lifted, out: FloatArray) -> None:
        np.matmul(lifted[0], self._lifted.T, out=out)

    def sums(self, kernel: FloatArray) -> FloatArray:
        return np.asarray(kernel @ self._lifted)

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        return sums[:, : self._width], sums[:, self._width : -1]


class AbsentView:
    """A view that the site does not have: no distance, no statistics."""

    def __init__(self, width: int) -> None:
        self.sum_width = width

    def load(self, rows: slice) -> None:
        pass

    def lift(self, centers: FloatArray, heat_time: float) -> Lifted:  # noqa: ARG002
        return ()

    def exponents(self, lifted: Lifted, out: FloatArray) -> None:  # noqa: ARG002
        out[...] = 0.0

    def sums(self, kernel: FloatArray) -> FloatArray:
        return np.zeros((len(kernel), self.sum_width))

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        return sums, np.zeros((len(totals), 1))


class ScaledRows:
    """Dense rows in model units, written into a buffer of the caller."""

    def __init__(self, table: Any, reference: Reference, dtype: np.dtype[Any]) -> None:
        self._table, self._unit_rows = table, reference.unit_rows
        self._shift = reference.shift.astype(dtype)
        self._inverse = (1.0 / reference.scale).astype(dtype)

    def read(self, rows: slice, out: FloatArray) -> None:
        part = self._table[rows]
        block = part.toarray() if sp.issparse(part) else part
        if self._unit_rows:
            block = (block / row_lengths(block)[:, None]).astype(out.dtype)
        np.subtract(block, self._shift, out=out, casting="unsafe")
        np.multiply(out, self._inverse, out=out)
