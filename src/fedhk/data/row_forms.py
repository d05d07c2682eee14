"""Row forms: changes of each row by itself, before features are shifted and scaled: roots, weights, length 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.views import row_blocks

# Rows that are counted at once, so that no copy of a large table is made.
ROWS_AT_ONCE = 4096

# Rows have one total if their totals vary by less than this share of what they would if cells varied independently.
# Rounding leaves up to 0.0002 in shares and histograms; totals of other views have 0.4 and more (in 60 views of real
# data, without looking at labels).
SPREAD_OF_TOTALS = 0.01


@dataclass(frozen=True, eq=False)
class RowForm:
    """Changes of each row by itself.

    In this order: the square root of every cell, a weight for every feature, division of the row by its Euclidean
    length. The roots of the shares of a row are the same as its roots, divided by their length. A missing cell stays
    missing, and a row of zeros stays as it is.
    """

    unit: bool  # divide the row by its length
    root: bool  # take square roots first; no cell may be negative
    weights: FloatArray  # of each feature, after the roots; empty where all weigh alike

    @property
    def is_plain(self) -> bool:
        """Whether rows stay unchanged."""
        return not (self.unit or self.root or len(self.weights))

    def apply(self, table: Any) -> Any:
        """Bring a table to this form; dense tables in double precision, sparse ones stay sparse."""
        return self.sparse(table) if sp.issparse(table) else self.dense(np.asarray(table, np.float64))

    def find_fault(self, table: Any, width: int) -> str:
        """Return why a table with so many features cannot have this form; empty if it can. None is no table."""
        if self.root and table is not None and has_negative(table):
            return "roots are asked for where cells are negative"
        return "" if len(self.weights) in (0, width) else "weights of words are not those of the features"

    def dense(self, block: FloatArray) -> FloatArray:
        """Bring dense rows to this form; rows that stay unchanged are not copied."""
        if self.root:
            block = np.sqrt(block)
        if len(self.weights):
            block = block * self.weights
        return block / row_lengths(block)[:, None] if self.unit else block

    def sparse(self, table: Any) -> Any:
        """Bring a sparse table to this form; it stays sparse."""
        if self.root:
            table = table.sqrt()
        if len(self.weights):
            table = sp.csr_array(table @ sp.diags_array(np.asarray(self.weights, np.float64)))
        if self.unit:
            squares = np.asarray(table.multiply(table).sum(axis=1), dtype=np.float64).ravel()
            table = sp.csr_array(sp.diags_array(np.where(squares > 0, squares, 1.0) ** -0.5) @ table)
        return table


# Rows as they come, and rows of length 1.
PLAIN_ROWS = RowForm(unit=False, root=False, weights=np.zeros(0))
UNIT_ROWS = RowForm(unit=True, root=False, weights=np.zeros(0))


def row_lengths(block: FloatArray) -> FloatArray:
    """Compute the Euclidean length of each row over its observed cells; 1 for a row of zeros."""
    squares = np.nansum(np.square(block, dtype=np.float64), axis=1)
    return np.where(squares > 0, np.sqrt(squares), 1.0)


def has_negative(table: Any) -> bool:
    """Tell whether any cell of a table is below 0."""
    cells = table.data if sp.issparse(table) else np.asarray(table)
    return bool(cells.size) and bool(np.nanmin(cells, initial=0.0) < 0)


def count_documents(table: Any, weight: FloatArray | None = None) -> FloatArray:
    """Count the rows (or their weight) in which each feature is above 0: for words, the documents with them."""
    counts = np.ones(table.shape[0]) if weight is None else weight
    found = np.zeros(table.shape[1])
    for start in range(0, table.shape[0], ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        present = (table[rows] > 0).astype(np.float64)
        found += np.asarray(present.T @ counts[rows], dtype=np.float64).ravel()
    return found


def count_rows_without_total(table: Any) -> int:
    """Count the rows of a table whose cells do not add up to the same total in all rows: all rows, or none.

    Rows of shares and of histograms have one total. One row alone, or equal rows, do not show it.
    """
    n_rows, width = table.shape
    if n_rows == 0:
        return 0
    totals, sums, squares = np.zeros(n_rows), np.zeros(width), np.zeros(width)
    for rows in row_blocks(n_rows, 8 * width):
        if sp.issparse(table):
            cells = table[rows]
        else:  # differences from one row lose no digits where all cells are large
            cells = np.asarray(table[rows], np.float64) - np.asarray(table[0], np.float64)
        totals[rows] = np.asarray(cells.sum(axis=1)).ravel()
        sums += np.asarray(cells.sum(axis=0)).ravel()
        squares += np.asarray((cells * cells).sum(axis=0)).ravel()
    independent = float(np.sum(squares / n_rows - np.square(sums / n_rows)))
    return 0 if totals.var() < SPREAD_OF_TOTALS * independent else n_rows


def inverse_document_frequencies(documents: FloatArray, rows: float) -> FloatArray:
    """Compute the weight of each word, 1 + log((1 + n) / (1 + documents with it)), as TfidfTransformer does."""
    return np.asarray(1.0 + np.log((1.0 + rows) / (1.0 + documents)))
