"""Row forms: changes of each row by itself, before features are shifted and scaled: roots, weights, length 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray

# Rows that are counted at once, so that no copy of a large table is made.
ROWS_AT_ONCE = 4096


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


def inverse_document_frequencies(documents: FloatArray, rows: float) -> FloatArray:
    """Compute the weight of each word, 1 + log((1 + n) / (1 + documents with it)), as TfidfTransformer does."""
    return np.asarray(1.0 + np.log((1.0 + rows) / (1.0 + documents)))
