"""Measures how much of a site's rows lies outside the bounds that features are scaled by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray, IntArray
from fedhk.data.row_forms import row_lengths
from fedhk.data.views import Views, is_tensor, row_blocks
from fedhk.privacy.mechanism import read_bounds

# Where more of a view or column is outside, it says nothing any more, and the budget would be spent on noise.
MOST_OUTSIDE = 0.5

# From here on it is worth a word: rows of a standard normal law lie outside two spreads as often.
WORTH_A_WORD = 0.05

# Most columns that a sentence names.
MOST_NAMED = 3

REMEDY = "Bounds are in the units of your columns: give a pair for each view, or bounds='private'"


@dataclass(frozen=True)
class Outside:
    """How much of a view is outside its bounds at a site."""

    view: str
    share: float  # of its observed cells
    columns: tuple[str, ...]  # most of whose cells are outside: in another unit, for example

    @property
    def is_worth_a_word(self) -> bool:
        """Whether an operator should know: many cells of the view are outside, or most of one column."""
        return self.share >= WORTH_A_WORD or bool(self.columns)

    def __str__(self) -> str:
        text = f"{100 * self.share:.0f} % of the cells of view {self.view!r} are outside the bounds, where they count "
        text += "for nothing"
        if not self.columns:
            return text
        named = ", ".join(map(repr, self.columns[:MOST_NAMED]))
        more = f" and {len(self.columns) - MOST_NAMED} more" if len(self.columns) > MOST_NAMED else ""
        return f"{text}; among them most of {named}{more} (another unit?)"


def own_bounds(views: Views, bounds: Any) -> list[tuple[FloatArray, FloatArray]]:
    """The bounds of a site's views, from bounds of all views; those of a view that the site lacks are not read.

    Raises
    ------
    ValueError
        If bounds are given per view, but for another number of views or features.
    """
    pairs = list(bounds) if np.ndim(bounds[0]) else [bounds] * len(views.names)
    if len(pairs) != len(views.names):
        raise ValueError(f"bounds has {len(pairs)} pairs, the site has {len(views.names)} views.")
    found = []
    for name, pair, width in zip(views.names, pairs, views.widths, strict=True):
        ((low, high),) = read_bounds([pair])
        if width is not None and {low.size, high.size} - {1, width}:
            raise ValueError(
                f"bounds of view {name!r} are of {max(low.size, high.size)} columns (each level of a category is one), "
                f"and the site's view has {width}."
            )
        shape = low.shape if width is None else (width,)
        found.append((np.broadcast_to(low, shape), np.broadcast_to(high, shape)))
    return found


def shares_outside(
    views: Views, bounds: Sequence[tuple[FloatArray, FloatArray]], *, unit_rows: bool = False
) -> list[Outside]:
    """Compute the share of the observed cells outside the bounds, of each view that the site has.

    Parameters
    ----------
    views : Views
        The rows of a site.
    bounds : sequence of pairs of array
        Lowest and highest value of each feature, for each of the views in their order.
    unit_rows : bool
        Whether rows are divided by their length first.
    """
    found = []
    parts = zip(views.names, views.tables, views.columns, bounds, strict=True)
    for view, table, columns, (low, high) in parts:
        if table is not None:
            outside, observed = _count(table, low, high, unit_rows)
            places = np.flatnonzero(outside > MOST_OUTSIDE * np.maximum(observed, 1))
            known = () if columns is None or is_tensor(columns) else columns
            names = tuple(str(known[j]) if known else f"column {j}" for j in places.tolist())
            found.append(Outside(view, float(outside.sum() / max(observed.sum(), 1)), names))
    return found


def _count(table: Any, low: FloatArray, high: FloatArray, unit_rows: bool) -> tuple[IntArray, IntArray]:
    """Count the cells of each column that are outside, and those that are not missing."""
    outside = observed = np.zeros(table.shape[1], np.int64)
    for rows in row_blocks(table.shape[0], 8 * table.shape[1]):
        part = table[rows]
        block = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
        if unit_rows:
            block = block / row_lengths(block)[:, None]
        outside = outside + np.sum((block < low) | (block > high), axis=0)
        observed = observed + np.sum(~np.isnan(block), axis=0)
    return outside, observed
