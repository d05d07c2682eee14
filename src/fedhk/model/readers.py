"""Readers of blocks of rows: the two matrix products of a pass, for every kind of table.

The heat-weighted squared distance is one matrix product. With coefficients delta,

    -phi_ik = t [2 (delta x)_i . a_k - delta_i . a_k^2 - sum_j delta_ij x_ij^2]

so a row is *lifted* to (delta x, delta, sum delta x^2) and a centre to t (2 a, -a^2, -1). Where every coefficient is 1
the middle part is one number per row, and half of the product is not needed. The same lifted rows times the weights of
a pass give the numerators and the weights of the centre update: the second product.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference


class ViewReader(Protocol):
    """Reads blocks of one view's rows; each thread has its own."""

    # Columns of what `sums` gives.
    sum_width: int

    def use(self, centers: FloatArray, heat_time: float) -> None:
        """Take the centres of the next pass."""

    def exponents(self, block: slice, out: FloatArray) -> None:
        """Load a block of rows and write their -phi, shape (c, rows)."""

    def sums(self, kernel: FloatArray) -> FloatArray:
        """Sums of the loaded rows with weights of shape (c, rows), in whatever form they add in."""

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Numerators (c, d) and weights (c, d or 1) from added sums and the added weights (c,)."""


class PlainView:
    """Rows used as they are stored, dense or sparse, with uniform coefficients and no missing cell: nothing is copied.

    Squared distances do not change when rows and centres move together, so shift and scale go to the centres and the
    numerators are moved back. That costs digits where means are many spreads away from zero: `Rows` knows when.
    """

    def __init__(self, table: Any, norms: FloatArray, reference: Reference) -> None:
        self._table, self._norms = table, norms
        self.sum_width = reference.width
        self._inverse = 1.0 / reference.scale
        self._offset = reference.known_shift * self._inverse

    def use(self, centers: FloatArray, heat_time: float) -> None:
        constants = -np.square(centers).sum(axis=1) - 2 * centers @ self._offset
        if sp.issparse(self._table):  # rows are not moved to the mean, so the centres are moved from it
            centers = centers + self._offset
            constants = -np.square(centers).sum(axis=1)
        dtype = self._norms.dtype
        self._slopes = (heat_time * (2 * centers * self._inverse)).astype(dtype)
        self._constants = (heat_time * constants[:, None]).astype(dtype)
        self._heat_time = dtype.type(heat_time)

    def exponents(self, block: slice, out: FloatArray) -> None:
        self._block = self._table[block]
        if sp.issparse(self._block):
            out[...] = (self._block @ self._slopes.T).T
        else:
            np.matmul(self._slopes, self._block.T, out=out)
        out += self._constants
        out -= self._heat_time * self._norms[block]

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

    def use(self, centers: FloatArray, heat_time: float) -> None:
        norms = np.einsum("kd,kd->k", centers, centers)
        lifted = np.column_stack([2 * centers, np.full(len(centers), -1.0), -norms]) * heat_time
        self._centers = lifted.astype(self._buffer.dtype)

    def exponents(self, block: slice, out: FloatArray) -> None:
        self._lifted = self._buffer[: block.stop - block.start]
        values = self._lifted[:, : self._width]
        self._source.read(block, values)
        np.einsum("nd,nd->n", values, values, out=self._lifted[:, self._width])
        np.matmul(self._centers, self._lifted.T, out=out)

    def sums(self, kernel: FloatArray) -> FloatArray:
        return np.asarray(kernel @ self._lifted)

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        return sums[:, : self._width], totals[:, None]


class WeightedView:
    """Dense rows with coefficients or missing cells: lifted to (delta x, delta, sum delta x^2)."""

    def __init__(
        self,
        table: Any,
        reference: Reference,
        dtype: np.dtype[Any],
        block_rows: int,
        *,
        missing: bool,
        spread: FloatArray | None = None,
    ) -> None:
        self._source = ScaledRows(table, reference, dtype)
        self._reference, self._missing, self._spread = reference, missing, spread
        self._width = reference.width
        self.sum_width = 2 * self._width + 1
        self._buffer = np.empty((block_rows, self.sum_width), dtype)
        self._values = np.empty((2, block_rows, self._width), dtype)

    def use(self, centers: FloatArray, heat_time: float) -> None:
        lifted = np.column_stack([2 * centers, -np.square(centers), np.full(len(centers), -1.0)]) * heat_time
        self._centers = lifted.astype(self._buffer.dtype)

    def exponents(self, block: slice, out: FloatArray) -> None:
        count, width = block.stop - block.start, self._width
        self._lifted, (values, coef) = self._buffer[:count], self._values[:, :count]
        weighted = self._lifted[:, :width]
        self._source.read(block, values)
        self._reference.coefficients(values, out=coef)
        if self._missing:
            absent = np.isnan(values)
            coef[absent] = 0.0
            values[absent] = 0.0
        self._lifted[:, width:-1] = coef
        np.multiply(coef, values, out=weighted)
        np.einsum("nd,nd->n", weighted, values, out=self._lifted[:, -1])
        if self._spread is not None:
            self._lifted[:, -1] += self._spread[block]
        np.matmul(self._centers, self._lifted.T, out=out)

    def sums(self, kernel: FloatArray) -> FloatArray:
        return np.asarray(kernel @ self._lifted)

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        return sums[:, : self._width], sums[:, self._width : -1]


class AbsentView:
    """A view that the site does not have: no distance, no statistics."""

    def __init__(self, width: int) -> None:
        self.sum_width = width

    def use(self, centers: FloatArray, heat_time: float) -> None:
        pass

    def exponents(self, block: slice, out: FloatArray) -> None:  # noqa: ARG002
        out[...] = 0.0

    def sums(self, kernel: FloatArray) -> FloatArray:
        return np.zeros((len(kernel), self.sum_width))

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        return sums, np.zeros((len(totals), 1))


class ScaledRows:
    """Dense rows in model units, written into a buffer of the caller."""

    def __init__(self, table: Any, reference: Reference, dtype: np.dtype[Any]) -> None:
        self._table, self._form = table, reference.form
        self._shift = reference.known_shift.astype(dtype)
        self._inverse = (1.0 / reference.scale).astype(dtype)

    def read(self, rows: slice, out: FloatArray) -> None:
        part = self._table[rows]
        block = part.toarray() if sp.issparse(part) else part
        if not self._form.is_plain:
            block = self._form.dense(np.asarray(block, np.float64)).astype(out.dtype)
        np.subtract(block, self._shift, out=out, casting="unsafe")
        np.multiply(out, self._inverse, out=out)
