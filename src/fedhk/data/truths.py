"""Columns of two whole numbers are categories with two levels: they say yes or no, whatever their type is.

As numbers they would be what clusters split first: no column has wider gaps. All sites must be read to know it, so this
is done before a fit in one process. Elsewhere, a data dictionary says it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._text import listed
from fedhk.data.levels import MARK, fit_columns, is_level, ordered_levels
from fedhk.data.views import Views, is_tensor, list_columns, row_blocks

Truths = dict[str, tuple[float, float]]
"""The two values of each column, by its name."""


def encode_truths(sites: Mapping[str, Views]) -> dict[str, Views]:
    """Make columns of two whole numbers categories with two levels, at all sites alike.

    Arrays have no names of columns, and are numbers: a view that is an array at any site stays as it is.
    """
    found = dict(sites)
    for view, columns in list_columns(sites.values()).items():
        tables = {site: views.tables[views.names.index(view)] for site, views in sites.items() if view in views.names}
        named = {site: table for site, table in tables.items() if table is not None}
        if any(_get_columns(sites[site], view) != columns or sp.issparse(table) for site, table in named.items()):
            continue
        days = {name for views in sites.values() for name in views.dates}
        truths = find_truths(list(named.values()), columns)
        truths = {name: values for name, values in truths.items() if f"{view}/{name}" not in days}
        if truths:
            wanted = name_truths(columns, truths)
            for site, table in named.items():
                found[site] = _replace_view(found[site], view, wanted, fit_columns(table, columns, wanted, ""))
    return found


def doubt_truths(sites: Mapping[str, Views]) -> str:
    """Say which columns `encode_truths` would make categories, where they stay numbers; empty if there are none."""
    given, encoded = (list_columns(found.values()) for found in (sites, encode_truths(sites)))
    names = [f"{view}/{name}" for view, columns in given.items() for name in columns if name not in encoded[view]]
    if not names:
        return ""
    return (
        f"columns of two values are numbers here, and are what clusters split first: {listed(names)}. With masks or "
        'noise, say what is a category: categories={"smoker": [0, 1]} of from_frame, or a data dictionary.'
    )


def find_truths(tables: Sequence[Any], columns: Sequence[str]) -> Truths:
    """Find columns that have two values over all tables, both whole numbers, and return these values.

    None are found where all columns begin at 0 and some have more values: these are counts of one kind, such as of
    words, and a rare word is in no row twice.
    """
    width = len(columns)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    maybe = np.array([not is_level(name) and not ordered_levels(name)[1] for name in columns], bool)
    for table in tables:
        for rows in row_blocks(len(table), 8 * width):
            block = np.asarray(table[rows], np.float64)
            known = ~np.isnan(block)
            least = np.minimum(low, np.where(known, block, np.inf).min(axis=0))
            most = np.maximum(high, np.where(known, block, -np.inf).max(axis=0))
            maybe &= ~(known & (block != least) & (block != most)).any(axis=0)
            for end in (low, high):  # of the rows before
                maybe &= ~np.isfinite(end) | (end == least) | (end == most)
            low, high = least, most
            if not maybe.any():
                return {}
    varies = low < high
    is_truth = maybe & varies & (low == np.round(low)) & (high == np.round(high))
    if np.all(low[varies] == 0) and not is_truth[varies].all():
        return {}
    return {columns[place]: (float(low[place]), float(high[place])) for place in np.flatnonzero(is_truth).tolist()}


def name_truths(columns: Sequence[str], truths: Truths) -> tuple[str, ...]:
    """Return the names of columns, with two levels in the place of each column that says yes or no."""
    parts = ([f"{name}{MARK}{value:.0f}" for value in truths[name]] if name in truths else [name] for name in columns)
    return tuple(column for part in parts for column in part)


def _get_columns(views: Views, view: str) -> tuple[str, ...] | None:
    columns = views.columns[views.names.index(view)]
    return None if columns is None or is_tensor(columns) else tuple(map(str, columns))


def _replace_view(views: Views, view: str, columns: tuple[str, ...], table: Any) -> Views:
    """Return the views with another table of one of them."""
    tables, named = list(views.tables), list(views.columns)
    place = views.names.index(view)
    tables[place], named[place] = table, columns
    return replace(views, tables=tuple(tables), columns=tuple(named))
