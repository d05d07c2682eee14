"""Summaries of the columns of a federation at each site: median, range, missing cells and levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.clients import check_clients
from fedhk.data.deviations import Deviation, compare_sites
from fedhk.data.dictionary import Kind
from fedhk.data.folders import Federation, SiteData
from fedhk.data.levels import base_name, is_level, level_name, ordered_levels
from fedhk.data.named import named_views

# Of longer columns, the median is that of evenly spaced rows.
MOST_ROWS = 100_000


@dataclass(frozen=True)
class ColumnAtSite:
    """One column at one site.

    Parameters
    ----------
    view, column, site : str
        Where.
    kind : str
        "number", "truth", "category", "ordered" or "date".
    missing : float
        Share of the rows that lack a value.
    median, low, high : float or None
        Of its values, as the model sees them (dates in days, ranks from 0 on); None of a category, and where there is
        no value.
    levels : dict of str to float
        Of a category, the share of each level among the values.
    remark : str
        What sets this site apart from the others; empty where nothing does.
    """

    view: str
    column: str
    site: str
    kind: Kind
    missing: float
    median: float | None
    low: float | None
    high: float | None
    levels: dict[str, float]
    remark: str


def summarise_columns(federation: Federation) -> list[ColumnAtSite]:
    """Summarise each column at each site that has its view, the sites of a column one after the other."""
    sites = check_clients({site.name: named_views(site) for site in federation.sites.values()})
    off = {(one.site, one.view, column): one for one in compare_sites(sites) for column in one.columns}
    found = []
    for view, columns in federation.columns.items():
        for name, places in _places(federation, view, columns):
            holders = {n: site for n, site in federation.sites.items() if site.views[view] is not None and site.n_rows}
            parts = [_summarise(site, view, name, places, off) for site in holders.values()]
            found += _mark_levels(parts)
    return found


def _places(federation: Federation, view: str, columns: tuple[str, ...] | None) -> Iterator[tuple[str, dict[str, int]]]:
    """Return the places of each file column in the table, one per level; other columns have one place."""
    if columns is None:
        widths = (table[:1].size for site in federation.sites.values() if (table := site.views[view]) is not None)
        columns = tuple(f"column {place}" for place in range(next((width for width in widths if width), 0)))
    grouped: dict[str, dict[str, int]] = {}
    for place, column in enumerate(columns):
        grouped.setdefault(base_name(column), {})[level_name(column) if is_level(column) else ""] = place
    yield from grouped.items()


def _summarise(
    site: SiteData, view: str, column: str, places: dict[str, int], off: dict[tuple[str, str, str], Deviation]
) -> ColumnAtSite:
    table = site.views[view]
    assert table is not None  # noqa: S101 - holders only
    rows = table.reshape(len(table), -1)[:: -(-len(table) // MOST_ROWS)]
    values = np.asarray(rows[:, list(places.values())], np.float64)
    known = values[~np.isnan(values[:, 0])]
    name, ranks = ordered_levels(column)
    kind: Kind = (
        "category" if "" not in places else "ordered" if ranks else site.kinds.get(view, {}).get(name, "number")
    )
    deviation = off.get((site.name, view, column))
    remark = "" if deviation is None else deviation.reason.split(" ", 1)[1]
    median, low, high = _numbers(known) if "" in places and len(known) else (None, None, None)
    shares = known.mean(axis=0) if len(known) else np.zeros(len(places))
    levels = {} if "" in places else dict(zip(places, map(float, shares), strict=True))
    missing = 1.0 - len(known) / len(values)
    return ColumnAtSite(view, name, site.name, kind, missing, median, low, high, levels, remark)


def _numbers(known: FloatArray) -> tuple[float, float, float]:
    return float(np.median(known)), float(known.min()), float(known.max())


def _mark_levels(parts: list[ColumnAtSite]) -> list[ColumnAtSite]:
    """Mark where a site has levels that no other site has, or has no values."""
    marked = []
    for part in parts:
        others = {level for other in parts if other is not part for level, share in other.levels.items() if share}
        own = [level for level, share in part.levels.items() if share and level not in others]
        remark = part.remark
        if len(parts) > 1 and part.missing == 1 and any(other.missing < 1 for other in parts):
            remark = "has no value here, and has values elsewhere."
        elif len(parts) > 1 and own and part.levels:
            remark = f"has levels that no other site has: {', '.join(map(repr, own[:5]))}."
        marked.append(ColumnAtSite(**{**vars(part), "remark": remark}))
    return marked
