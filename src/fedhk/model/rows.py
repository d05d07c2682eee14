"""Rows made ready for passes: scaled, weighted, and read in blocks.

The heat-weighted squared distance is one matrix product. With coefficients delta,

    -phi_ik = t [2 (delta x)_i . a_k - delta_i . a_k^2 - sum_j delta_ij x_ij^2]

so a row is *lifted* to (delta x, delta, sum delta x^2) and a centre to t (2 a, -a^2, -1). Where every coefficient is 1
the middle part is one number per row, and half of the product is not needed. The same lifted rows times the weights of
a pass give the numerators and the weights of the centre update: the second product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.moments import row_lengths
from fedhk.data.scaling import Reference
from fedhk.data.views import BLOCK_BYTES, Views

# Beyond these a float32 cannot hold a shift or a scale with room for arithmetic; such views are worked on in float64.
SINGLE_RANGE = (1e-30, 1e30)


class ViewReader(Protocol):
    """Reads blocks of one view's rows; each thread has its own."""

    def load(self, rows: slice) -> None:
        """Make a block of rows ready."""

    def lift(self, centers: FloatArray, heat_time: float) -> FloatArray:
        """Centres in the form that `exponents` takes."""

    def exponents(self, lifted: FloatArray, out: FloatArray) -> None:
        """Write -phi of the loaded rows, shape (c, rows)."""

    def sums(self, kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Numerators (c, d) and weights (c, d or 1) of the loaded rows for weights of shape (c, rows)."""


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
        row = sum(self.widths) + (len(self.widths) + 3) * n_clusters
        return int(np.clip(2 * BLOCK_BYTES // (row * self.dtype.itemsize), 64, 4096))

    def readers(self, block_rows: int) -> list[ViewReader]:
        """Fresh readers, one per view."""
        return [self._reader(view, block_rows) for view in range(len(self.references))]

    def _reader(self, view: int, block_rows: int) -> ViewReader:
        table, reference = self.views.tables[view], self.references[view]
        if table is None:
            return AbsentView(reference.width)
        complete = reference.heat_coef == "uniform" and not self.views.missing[view]
        if complete and sp.issparse(table):
            return SparseView(table, reference, self.dtype)
        if complete:
            return CompleteView(table, reference, self.dtype, block_rows)
        return WeightedView(table, reference, self.dtype, block_rows)


class CompleteView:
    """Dense rows with uniform coefficients and no missing cell: lifted to (x, x.x, 1)."""

    def __init__(self, table: Any, reference: Reference, dtype: np.dtype[Any], block_rows: int) -> None:
        self._source = ScaledRows(table, reference, dtype)
        self._width = reference.width
        self._buffer = np.ones((block_rows, self._width + 2), dtype)
        self._lifted = self._buffer

    def load(self, rows: slice) -> None:
        self._lifted = self._buffer[: rows.stop - rows.start]
        values = self._lifted[:, : self._width]
        self._source.read(rows, values)
        np.einsum("nd,nd->n", values, values, out=self._lifted[:, self._width])

    def lift(self, centers: FloatArray, heat_time: float) -> FloatArray:
        norms = np.einsum("kd,kd->k", centers, centers)
        lifted = np.column_stack([2 * centers, np.full(len(centers), -1.0), -norms]) * heat_time
        return lifted.astype(self._buffer.dtype)

    def exponents(self, lifted: FloatArray, out: FloatArray) -> None:
        np.matmul(lifted, self._lifted.T, out=out)

    def sums(self, kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
        total = kernel @ self._lifted
        return total[:, : self._width], total[:, self._width + 1 :]


class WeightedView:
    """Dense rows with coefficients or missing cells: lifted to (delta x, delta, sum delta x^2)."""

    def __init__(self, table: Any, reference: Reference, dtype: np.dtype[Any], block_rows: int) -> None:
        self._source = ScaledRows(table, reference, dtype)
        self._reference = reference
        self._width = reference.width
        self._buffer = np.empty((block_rows, 2 * self._width + 1), dtype)
        self._values = np.empty((block_rows, self._width), dtype)
        self._lifted = self._buffer

    def load(self, rows: slice) -> None:
        count, width = rows.stop - rows.start, self._width
        self._lifted, values = self._buffer[:count], self._values[:count]
        weighted, coef = self._lifted[:, :width], self._lifted[:, width:-1]
        self._source.read(rows, values)
        coef[...] = self._reference.coefficients(values)
        np.nan_to_num(values, copy=False, nan=0.0)
        np.multiply(coef, values, out=weighted)
        np.einsum("nd,nd->n", weighted, values, out=self._lifted[:, -1])

    def lift(self, centers: FloatArray, heat_time: float) -> FloatArray:
        lifted = np.column_stack([2 * centers, -np.square(centers), np.full(len(centers), -1.0)]) * heat_time
        return lifted.astype(self._buffer.dtype)

    def exponents(self, lifted: FloatArray, out: FloatArray) -> None:
        np.matmul(lifted, self._lifted.T, out=out)

    def sums(self, kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
        total = kernel @ self._lifted
        return total[:, : self._width], total[:, self._width : -1]


class SparseView:
    """Sparse rows with uniform coefficients: never densified.

    Squared distances do not change when rows and centres move together, so the shift goes to the centres: the rows
    stay sparse, and the numerators are moved back.
    """

    def __init__(self, table: Any, reference: Reference, dtype: np.dtype[Any]) -> None:
        self._table, self._dtype, self._unit_rows = table, dtype, reference.unit_rows
        self._inverse = 1.0 / reference.scale
        self._offset = reference.shift * self._inverse
        self._block = table[:0]
        self._norms = np.empty(0, dtype)

    def load(self, rows: slice) -> None:
        block = self._table[rows].astype(np.float64)
        if self._unit_rows:
            squares = np.asarray(block.multiply(block).sum(axis=1)).ravel()
            block = sp.diags_array(np.where(squares > 0, squares, 1.0) ** -0.5) @ block
        block = sp.csr_array(block @ sp.diags_array(self._inverse))
        self._norms = np.asarray(block.multiply(block).sum(axis=1)).ravel().astype(self._dtype)
        self._block = block.astype(self._dtype)

    def lift(self, centers: FloatArray, heat_time: float) -> FloatArray:
        moved = centers + self._offset
        lifted = np.column_stack([2 * moved, np.full(len(moved), -1.0), -np.square(moved).sum(axis=1)]) * heat_time
        return lifted.astype(self._dtype)

    def exponents(self, lifted: FloatArray, out: FloatArray) -> None:
        out[...] = (self._block @ lifted[:, :-2].T).T
        out += lifted[:, -2:-1] * self._norms
        out += lifted[:, -1:]

    def sums(self, kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
        weights = kernel.sum(axis=1, dtype=np.float64)[:, None]
        moved = np.asarray((self._block.T @ kernel.T).T, dtype=np.float64)
        return moved - weights * self._offset, weights


class AbsentView:
    """A view that the site does not have: no distance, no statistics."""

    def __init__(self, width: int) -> None:
        self._width = width

    def load(self, rows: slice) -> None:
        pass

    def lift(self, centers: FloatArray, heat_time: float) -> FloatArray:  # noqa: ARG002
        return centers

    def exponents(self, lifted: FloatArray, out: FloatArray) -> None:  # noqa: ARG002
        out[...] = 0.0

    def sums(self, kernel: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.zeros((len(kernel), self._width)), np.zeros((len(kernel), 1))


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
