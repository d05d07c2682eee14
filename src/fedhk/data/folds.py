"""Sparse views with very many columns, folded to few: rows are then short, and so are all sums over them.

Every column goes to a few of the new places, each time with a sign, both by a fixed hash of its number (feature
hashing: Weinberger and others, 2009; several places each: Kane and Nelson, 2014). Products of two rows stay what they
were, but for an error of the product of their lengths over the root of the number of places. Nobody has to send
anything for it: everybody finds the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray, IntArray
from fedhk.data.row_forms import RowForm, count_documents, has_negative
from fedhk.data.scaling import AUTO, NoScaling, Scaling, TfIdf, make_scaling
from fedhk.data.views import Columns, Views

# Columns after folding, and the places that each column goes to. On generated text (100,000 words, 50 in a row, 8
# topics that are easy or hard to tell apart, 4 runs) k-means on 512, 1,024, 2,048 and 4,096 columns had on average .50,
# .73, .90 and .96 of the agreement with the topics that it had on all words. With one place instead of four, where a
# frequent word may cover one that tells topics apart, it was .58, .69, .84 and .85.
FOLDED_WIDTH, PLACES = 2048, 4

# Views with more columns are folded: at most an eighth of the bytes is left.
WIDEST = 8 * FOLDED_WIDTH


@dataclass(frozen=True, eq=False)
class Fold:
    """How rows of many columns become rows of few."""

    n_columns: int
    width: int
    form: RowForm  # what is done to each row before

    def apply(self, table: Any) -> Any:
        """Fold rows; return a CSR array."""
        formed = sp.csr_array(self.form.sparse(sp.csr_array(table)))
        return sp.csr_array(formed @ _scatter(self.n_columns, self.width), dtype=table.dtype)

    def find_fault(self, table: Any) -> str:
        """Return why a table cannot be folded; empty if it can."""
        if table.shape[1] != self.n_columns or not 0 < self.width < self.n_columns:
            return "a view is folded that has other columns"
        return self.form.find_fault(table, self.n_columns)

    def sums(self, table: Any, labels: IntArray, n_clusters: int, weight: FloatArray | None = None) -> Any:
        """Sum the unfolded rows of each cluster; return a CSR array of shape (c, n_columns)."""
        counts = np.ones(len(labels)) if weight is None else weight
        member = sp.csr_array((counts, (labels, np.arange(len(labels)))), (n_clusters, len(labels)))
        return sp.csr_array(member @ self.form.sparse(sp.csr_array(table)))


def make_fold(n_columns: int, scaling: Scaling | None, documents: FloatArray, rows: float, *, negative: bool) -> Fold:
    """Make the fold of a very wide view: in the form that a scaling asks for; without one, weighted like words.

    `documents` says in how many of the `rows` each column is above 0. Where a cell is negative, columns are no words.
    """
    own = (NoScaling() if negative else TfIdf()) if scaling is None else scaling
    form = own.form(documents, rows)
    # a quarter of the bytes of double precision, and the same at all sites
    return Fold(n_columns, FOLDED_WIDTH, replace(form, weights=form.weights.astype(np.float16)))


def can_fold(scaling: Any, heat_coef: str) -> bool:
    """Tell whether a view may be folded: not if each column has a unit, a range or a coefficient of its own."""
    plain = scaling == AUTO or isinstance(make_scaling(scaling), NoScaling)
    return plain and heat_coef == "uniform"


@dataclass(frozen=True, eq=False)
class FoldedView:
    """A view of a fitted model whose rows are folded."""

    fold: Fold
    means: FloatArray  # of the rows of each cluster, of shape (c, n_columns), in the form that rows have before


@lru_cache(maxsize=4)
def _scatter(n_columns: int, width: int) -> Any:
    """Make the matrix of a fold: a CSR array of shape (n_columns, width) whose rows have about length 1."""
    keys = np.arange(1, n_columns * PLACES + 1, dtype=np.uint64)
    # the finaliser of SplitMix64, which is the same everywhere and for ever
    keys *= np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys ^= keys >> np.uint64(31)
    signs = 1.0 - 2.0 * (keys & np.uint64(1)).astype(np.float64)
    places = ((keys >> np.uint64(1)) % np.uint64(width)).astype(np.int32)
    starts = np.arange(0, len(keys) + 1, PLACES, dtype=np.int32)
    return sp.csr_array((signs / np.sqrt(PLACES), places, starts), (n_columns, width))


def fold_views(views: Views, folds: Mapping[str, Fold]) -> Views:
    """Fold some of a site's views, by name; their new columns have no names."""
    tables, columns = list(views.tables), list(views.columns)
    for view, (name, table) in enumerate(zip(views.names, views.tables, strict=True)):
        if name in folds and table is not None:
            if views.missing[view]:
                raise ValueError(
                    f"View {name!r} has missing cells, and its {table.shape[1]} columns are folded: give 0 for them."
                )
            if fault := folds[name].find_fault(table):
                raise ValueError(f"View {name!r}: {fault}.")
            tables[view], columns[view] = folds[name].apply(table), None
    return replace(views, tables=tuple(tables), columns=tuple(columns))


def find_wide(sites: Iterable[Views]) -> dict[str, tuple[int, Columns]]:
    """Find the views to fold, with width and columns: sparse, complete and very wide at every site with them.

    A view that sites describe differently is left as it is: who is wrong is found where sites describe their views.
    """
    found: dict[str, tuple[int, Columns]] = {}
    left_out = set()
    for views in sites:
        for view, (name, table) in enumerate(zip(views.names, views.tables, strict=True)):
            if table is None:
                continue
            known = found.setdefault(name, (table.shape[1], views.columns[view]))
            if known != (table.shape[1], views.columns[view]) or not sp.issparse(table) or views.missing[view]:
                left_out.add(name)
    return {name: known for name, known in found.items() if known[0] > WIDEST and name not in left_out}


def fold_alone(views: Views, scaling: Any, heat_coef: str, weight: FloatArray | None) -> dict[str, Fold]:
    """Make the folds of the very wide views of one site alone, by name."""
    folds: dict[str, Fold] = {}
    for name in find_wide([views]) if can_fold(scaling, heat_coef) else ():
        table = views.tables[views.names.index(name)]
        negative, given = has_negative(table), None if scaling == AUTO else make_scaling(scaling)
        documents = np.zeros(table.shape[1]) if negative else count_documents(table, weight)
        rows = float(views.n_rows if weight is None else weight.sum())
        folds[name] = make_fold(table.shape[1], given, documents, rows, negative=negative)
    return folds
