"""Readers of blocks of rows: the two matrix products of a pass, for every kind of table.

The heat-weighted squared distance is one matrix product. With coefficients delta,

    -phi_ik = t [2 (delta x)_i . a_k - delta_i . a_k^2 - sum_j delta_ij x_ij^2]

so a row is *lifted* to (delta x, delta, sum delta x^2) and a centre to t (2 a, -a^2, -1). Where every coefficient is 1
the middle part is one number per row, and half of the product is not needed. The same lifted rows times the weights of
a pass give the numerators and the weights of the centre update: the second product.

Rows times centres, copied the other way round, takes two thirds of the time of centres times rows: BLAS copies the
larger factor where it is transposed. A block of rows is multiplied in small pieces, because BLAS copies nothing then.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray, IntArray
from fedhk.data.scaling import Reference

# OpenBLAS multiplies small factors where they are, and copies larger ones first; this many multiplications are small.
# Measured on a processor with AVX-512: the step lies between .66 and 1.3 million, and a product in such pieces takes
# half to two thirds of the time. With its kernels for AVX2 OpenBLAS always copies, and pieces take 4 % longer.
SMALL_PRODUCT = 10**6
# With fewer rows in a piece the calls take what is won.
FEWEST_ROWS = 32


def multiply_rows(block: Any, factor: FloatArray) -> FloatArray:
    """Product of a block of rows, dense or sparse, and a (d, c) matrix, in pieces that are fast."""
    size = _piece_rows(block, factor.shape[1])
    if size == 0:
        return np.asarray(block @ factor)
    whole = len(block) // size * size
    product = np.empty((len(block), factor.shape[1]), factor.dtype)
    pieces = block[:whole].reshape(-1, size, block.shape[1])
    np.matmul(pieces, factor, out=product[:whole].reshape(-1, size, factor.shape[1]))
    np.matmul(block[whole:], factor, out=product[whole:])
    return product


def add_rows(weights: Any, block: Any) -> FloatArray:
    """Sums of a block of rows with weights of shape (c, rows): the product of both, in pieces that are fast."""
    size = 0 if sp.issparse(weights) else _piece_rows(block, len(weights))
    if size == 0:
        return np.asarray(weights @ block)
    whole = len(block) // size * size
    pieces = weights[:, :whole].reshape(len(weights), -1, size).transpose(1, 0, 2)
    sums = np.matmul(pieces, block[:whole].reshape(-1, size, block.shape[1])).sum(axis=0)
    return np.asarray(sums + weights[:, whole:] @ block[whole:])


def _piece_rows(block: Any, n_columns: int) -> int:
    """Rows of a block that are multiplied at a time; 0 for all of them."""
    if sp.issparse(block):
        return 0
    size = SMALL_PRODUCT // max(1, block.shape[1] * n_columns)
    return size if FEWEST_ROWS <= size < len(block) else 0


class Exponents(NamedTuple):
    """-phi of a block of rows in three parts that add up; parts that are 0 are only that."""

    products: FloatArray  # of rows and centres, of shape (rows, c)
    constants: FloatArray  # of centres, of shape (c, 1)
    offsets: FloatArray  # of rows, of shape (rows,) or (1,)

    def write(self, out: FloatArray) -> None:
        """Write their sum, shape (c, rows)."""
        np.add(self.products.T, self.constants, out=out)
        if len(self.offsets) > 1 or self.offsets.any():
            out += self.offsets

    def by_row(self) -> FloatArray:
        """Their sum, shape (rows, c)."""
        return np.asarray(self.products + self.constants.T + self.offsets[:, None])

    def take(self, rows: IntArray) -> Exponents:
        """Some of the rows."""
        return Exponents(self.products[rows], self.constants, np.broadcast_to(self.offsets, len(self.products))[rows])

    def pick(self, clusters: IntArray) -> FloatArray:
        """-phi of each row and one centre."""
        count, n_clusters = self.products.shape
        own = self.products.ravel().take(np.arange(0, count * n_clusters, n_clusters) + clusters)
        return np.asarray(own + self.constants[clusters, 0] + self.offsets)


class ViewReader(Protocol):
    """Reads blocks of one view's rows; each thread has its own."""

    # Columns of what `sums` gives.
    sum_width: int

    def use(self, centers: FloatArray, heat_time: float) -> None:
        """Take the centres of the next pass."""

    def load(self, block: slice) -> Exponents:
        """Load a block of rows, and say how far they are from all centres."""

    def sums(self, weights: Any, rows: IntArray | slice = slice(None)) -> FloatArray:
        """Sums of some of the loaded rows with weights of shape (c, rows), in whatever form they add in.

        Weights are dense, or a CSR array where most are 0.
        """

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
        self._slopes = np.ascontiguousarray((heat_time * (2 * centers * self._inverse)).T, dtype)
        self._constants = (heat_time * constants[:, None]).astype(dtype)
        self._heat_time = dtype.type(heat_time)

    def load(self, block: slice) -> Exponents:
        self._block = self._table[block]
        return Exponents(
            multiply_rows(self._block, self._slopes), self._constants, -self._heat_time * self._norms[block]
        )

    def sums(self, weights: Any, rows: IntArray | slice = slice(None)) -> FloatArray:
        block = self._block[rows]
        if sp.issparse(block):
            return np.asarray((block.T @ weights.T).T) if not sp.issparse(weights) else (weights @ block).toarray()
        return add_rows(weights, block)

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        weights = totals[:, None]
        return sums * self._inverse - weights * self._offset, weights


class CompleteView:
    """Rows with uniform coefficients and no missing cell, scaled into a buffer: lifted to (x, x.x, 1)."""

    def __init__(self, table: Any, reference: Reference, dtype: np.dtype[Any], block_rows: int) -> None:
        self._source = ScaledRows(table, reference, dtype)
        self._width = reference.width
        self.sum_width = self._width + 2
        self._buffer, self._held = np.ones((block_rows, self.sum_width), dtype), slice(0)

    def use(self, centers: FloatArray, heat_time: float) -> None:
        norms = np.einsum("kd,kd->k", centers, centers)
        lifted = np.concatenate([2 * centers.T, np.full((1, len(centers)), -1.0), -norms[None]])
        self._centers = np.ascontiguousarray(heat_time * lifted, self._buffer.dtype)

    def load(self, block: slice) -> Exponents:
        if block != self._held:  # few rows are one block, which is the same in every pass
            self._held, self._lifted = block, self._buffer[: block.stop - block.start]
            values = self._lifted[:, : self._width]
            self._source.read(block, values)
            np.einsum("nd,nd->n", values, values, out=self._lifted[:, self._width])
        return _lifted_exponents(multiply_rows(self._lifted, self._centers))

    def sums(self, weights: Any, rows: IntArray | slice = slice(None)) -> FloatArray:
        return add_rows(weights, self._lifted[rows])

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
        self._buffer, self._held = np.empty((block_rows, self.sum_width), dtype), slice(0)
        self._values = np.empty((2, block_rows, self._width), dtype)

    def use(self, centers: FloatArray, heat_time: float) -> None:
        lifted = np.concatenate([2 * centers.T, -np.square(centers.T), np.full((1, len(centers)), -1.0)])
        self._centers = np.ascontiguousarray(heat_time * lifted, self._buffer.dtype)

    def load(self, block: slice) -> Exponents:
        if block != self._held:
            self._held = block
            self._lift(block)
        return _lifted_exponents(multiply_rows(self._lifted, self._centers))

    def _lift(self, block: slice) -> None:
        """Read a block of rows into the buffer."""
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

    def sums(self, weights: Any, rows: IntArray | slice = slice(None)) -> FloatArray:
        return add_rows(weights, self._lifted[rows])

    def unlift(self, sums: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        return sums[:, : self._width], sums[:, self._width : -1]


def _lifted_exponents(products: FloatArray) -> Exponents:
    """-phi of lifted rows: all of it is in the product."""
    return Exponents(products, np.zeros((products.shape[1], 1), products.dtype), np.zeros(1, products.dtype))


class AbsentView:
    """A view that the site does not have: no distance, no statistics."""

    def __init__(self, width: int) -> None:
        self.sum_width = width

    def use(self, centers: FloatArray, heat_time: float) -> None:  # noqa: ARG002
        self._n_clusters = len(centers)

    def load(self, block: slice) -> Exponents:
        return _lifted_exponents(np.zeros((block.stop - block.start, self._n_clusters)))

    def sums(self, weights: Any, rows: IntArray | slice = slice(None)) -> FloatArray:  # noqa: ARG002
        return np.zeros((weights.shape[0], self.sum_width))

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
