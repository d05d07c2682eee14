"""Further tables of a site: other columns of the same rows, which clustering did not see."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.dictionary import find_dictionary
from fedhk.data.folders import Reading, SiteData, read_site
from fedhk.data.levels import base_name
from fedhk.data.named import NamedTable, name_table
from fedhk.errors import DataError


def read_further(also: Path, data: Path, id_column: str | None = None) -> SiteData:
    """Read the further tables of a site, whose own tables are in the folder `data` and have ids in `id_column`."""
    reading = Reading(id_column, dictionary=find_dictionary(data, data.parent))
    return read_site(also, reading=adapt_reading(reading, also, also.parent))


def adapt_reading(reading: Reading, *folders: Path) -> Reading:
    """Return how further tables are read, from how those that were clustered are.

    Rows are named by the same column, unless the dictionary of the first of these folders that has one names another.
    The dictionary of the clustered tables is left out: further tables have other columns.
    """
    own, known = (found.id if found is not None else None for found in (find_dictionary(*folders), reading.dictionary))
    return replace(reading, id=own or reading.id or known, dictionary=None)


def align_tables(name: str, site: SiteData, found: SiteData) -> dict[str, NamedTable]:
    """Return the tables of another folder with rows in the order of a site's own; NaN of rows that it lacks.

    `name` is that of the site, for messages. A DataError says why rows cannot be matched.
    """
    if (site.ids is None) != (found.ids is None):
        raise DataError(
            f"site {name!r}: one folder has ids and the other has none; give both an id column, or neither."
        )
    if site.ids is None and site.n_rows != found.n_rows:
        raise DataError(
            f"site {name!r}: without ids both folders must have the same rows, not {site.n_rows} and {found.n_rows}."
        )
    places: Mapping[str, int] = {} if found.ids is None else {str(i): row for row, i in enumerate(found.ids)}
    order = None if site.ids is None else np.array([places.get(str(i), -1) for i in site.ids], np.intp)
    return dict(_in_order(found, order))


def _in_order(found: SiteData, order: Any) -> Iterator[tuple[str, NamedTable]]:
    for view, values in found.views.items():
        if values is None:
            continue
        if order is None:
            yield view, name_table(found, view, values)
            continue
        aligned = np.full((len(order), *values.shape[1:]), np.nan)
        aligned[order >= 0] = values[order[order >= 0]]
        yield view, name_table(found, view, aligned)


def keep_columns(data: SiteData, allowed: Collection[str]) -> SiteData:
    """Return the tables with columns of these names alone; a category goes with all of its levels."""
    views: dict[str, FloatArray | None] = {}
    columns: dict[str, tuple[str, ...] | None] = {}
    for view, values in data.views.items():
        names = data.columns[view] or ()
        kept = [place for place, column in enumerate(names) if base_name(column) in allowed]
        if values is not None and kept:
            views[view], columns[view] = values[:, kept], tuple(names[place] for place in kept)
    inferred = {view: tuple(n for n in names if n in allowed) for view, names in data.inferred.items() if view in views}
    return replace(data, views=views, columns=columns, inferred={view: n for view, n in inferred.items() if n})
