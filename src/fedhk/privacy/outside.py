"""Measures how much of a site's rows lies outside the bounds that features are scaled by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.row_forms import row_lengths
from fedhk.data.views import Views, row_blocks
from fedhk.privacy.mechanism import read_bounds

# Where more of a view is outside, its rows say nothing any more, and the budget would be spent on noise.
MOST_OUTSIDE = 0.5

# From here on it is worth a word: rows of a standard normal law lie outside two spreads as often.
WORTH_A_WORD = 0.05

REMEDY = "Bounds are in the units of your columns: give a pair for each view, or bounds='private'"


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
    parts = zip(pairs, views.widths, strict=True)
    return [read_bounds([pair], None if width is None else [width])[0] for pair, width in parts]


def shares_outside(
    views: Views, bounds: Sequence[tuple[FloatArray, FloatArray]], *, unit_rows: bool = False
) -> dict[str, float]:
    """Compute the share of the observed cells outside the bounds, by view that the site has.

    Parameters
    ----------
    views : Views
        The rows of a site.
    bounds : sequence of pairs of array
        Lowest and highest value of each feature, for each of the views in their order.
    unit_rows : bool
        Whether rows are divided by their length first.
    """
    shares = {}
    for name, table, (low, high) in zip(views.names, views.tables, bounds, strict=True):
        if table is not None:
            outside, observed = _count(table, low, high, unit_rows)
            shares[name] = outside / max(observed, 1)
    return shares


def _count(table: Any, low: FloatArray, high: FloatArray, unit_rows: bool) -> tuple[int, int]:
    outside = observed = 0
    for rows in row_blocks(table.shape[0], 8 * table.shape[1]):
        part = table[rows]
        block = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
        if unit_rows:
            block = block / row_lengths(block)[:, None]
        outside += int(np.sum((block < low) | (block > high)))
        observed += int(np.sum(~np.isnan(block)))
    return outside, observed


def describe_outside(view: str, share: float) -> str:
    """Say how much of a view is outside."""
    return f"{100 * share:.0f} % of the cells of view {view!r} are outside the bounds, where they count for nothing"
