"""Doubts: what in the files of a federation may have been misread, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.levels import base_name, is_level, level_name
from fedhk.data.tables import ID, listed

# Cells that are looked at first: whether a column varies, or two sites have the same rows, mostly shows there.
FIRST_CELLS = 2**20

Columns = Mapping[str, tuple[str, ...] | None]


class ReadSite(Protocol):
    """A site whose files have been read."""

    @property
    def views(self) -> Mapping[str, FloatArray | None]:
        """Views by name; None for one that the site lacks."""

    @property
    def ids(self) -> Any:
        """Ids of the rows; None if no file has ids."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Doubts found while its files were read."""


def find_doubts(sites: Mapping[str, ReadSite], columns: Columns) -> list[str]:
    """List all doubts about sites that have been read."""
    found = [*_of_sites(sites), *_of_names(sites, columns)]
    for view, names in columns.items():
        tables = {
            site: values.reshape(len(values), -1)
            for site, data in sites.items()
            if (values := data.views[view]) is not None and len(values)
        }
        found += _of_copies(view, tables)
        if names is not None and tables:
            found += [*_of_levels(view, names, tables), *_of_constants(view, names, tables)]
    return found


def _of_sites(sites: Mapping[str, ReadSite]) -> Iterator[str]:
    """List doubts found while files were read, and views that are paired by the order of rows."""
    having: dict[str, list[str]] = {}
    for name, site in sites.items():
        for doubt in site.doubts:
            having.setdefault(doubt, []).append(name)
    for doubt, names in having.items():
        yield f"site{'s' * (len(names) > 1)} {listed(names)}: {doubt}"
    unpaired = [
        name
        for name, site in sites.items()
        if site.ids is None and sum(view is not None for view in site.views.values()) > 1
    ]
    if unpaired:
        yield f"no column {ID!r} at {listed(unpaired)}: rows of its views are paired by their order."


def _of_names(sites: Mapping[str, ReadSite], columns: Columns) -> Iterator[str]:
    """List views that may be the same view under two names."""
    for view in columns:
        holders = [name for name, site in sites.items() if site.views[view] is not None]
        lacked = [other for other in columns if all(sites[name].views[other] is None for name in holders)]
        if meant := get_close_matches(view, lacked, 1, 0.75):
            yield f"view {view!r} is only at {listed(holders)}, where there is no {meant[0]!r}: is it that?"
    for first, second in combinations(columns, 2):
        if first.lower() == second.lower():
            yield f"views {first!r} and {second!r} differ by capital letters only: are they one view?"
        elif columns[first] is not None and columns[first] == columns[second]:
            yield f"views {first!r} and {second!r} have the same columns: are they one view?"


def _first(table: FloatArray) -> FloatArray:
    return table[: max(FIRST_CELLS // table.shape[1], 2)]


def _of_copies(view: str, tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List sites with identical rows."""
    for (first, ours), (second, theirs) in combinations(tables.items(), 2):
        alike = len(ours) > 1 and np.array_equal(_first(ours), _first(theirs), equal_nan=True)
        if alike and np.array_equal(ours, theirs, equal_nan=True):
            yield f"sites {first!r} and {second!r} have the same rows in view {view!r}: is one a copy of the other?"


def _of_levels(view: str, names: tuple[str, ...], tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List levels that may be the same, and sites that spell all of them differently."""
    groups: dict[str, dict[str, int]] = {}
    for place, name in enumerate(names):
        if is_level(name):
            groups.setdefault(base_name(name), {})[level_name(name)] = place
    for column, places in groups.items():
        spelt: dict[str, list[str]] = {}
        for level in places:
            spelt.setdefault(" ".join(level.casefold().split()), []).append(level)
        for several in spelt.values():
            if len(several) > 1:
                yield (
                    f"view {view!r}, column {column!r}: levels {listed(several)} differ by capital letters or spaces "
                    "only."
                )
        used = {
            site: {level for level, place in places.items() if np.nansum(table[:, place]) > 0}
            for site, table in tables.items()
        }
        for site, own in used.items():
            others = set().union(*(levels for other, levels in used.items() if other != site))
            if own and others and not own & others:
                yield (
                    f"view {view!r}, column {column!r}: site {site!r} has none of the levels of the others "
                    f"({listed(sorted(own))} there, {listed(sorted(others))} elsewhere): are they written alike?"
                )
                break  # of two sites, one is named


def _of_constants(view: str, names: tuple[str, ...], tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List columns without information: they have one value or none."""
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault(base_name(name), []).append(place)
    firsts = np.vstack([_first(table) for table in tables.values()])
    with np.errstate(invalid="ignore"):
        maybe = np.nan_to_num(firsts).min(axis=0) == np.nan_to_num(firsts, nan=-np.inf).max(axis=0)
    maybe |= np.isnan(firsts).any(axis=0)
    alone, empty = [], []
    for column, places in groups.items():
        if not maybe[places].all():
            continue
        known = [part[~np.isnan(part).any(axis=1)] for part in (table[:, places] for table in tables.values())]
        values = np.vstack([part[:1] for part in known if len(part)] or [np.zeros((0, len(places)))])
        if not len(values):
            empty.append(column)
        elif all((part == values[0]).all() for part in known):
            alone.append(column)
    if alone and sum(map(len, tables.values())) > 1:
        yield f"view {view!r}: {listed(alone)} has one value in all rows of all sites, and says nothing."
    if empty:
        yield f"view {view!r}: {listed(empty)} has no value in any row of any site, and says nothing."
