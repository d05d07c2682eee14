"""Doubts: what in the files of a federation may have been misread, one sentence each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from fedhk._text import listed
from fedhk._typing import FloatArray
from fedhk.data.deviations import LEAST_REPEATS
from fedhk.data.levels import ID, base_name, find_numbers, is_level, level_name
from fedhk.data.views import row_blocks

# Cells that are looked at first: whether a column varies, or two sites have the same rows, mostly shows there.
FIRST_CELLS = 2**20

# Words for yes and no, in small letters: where a column has several for one of them, they are one level.
YES = {"yes", "y", "true", "t", "1", "ja", "j", "oui", "o", "si", "sí", "s", "wahr", "vrai", "vero", "pos", "positive"}
NO = {"no", "n", "false", "f", "0", "nein", "non", "nej", "nee", "falsch", "faux", "falso", "neg", "negative"}

# Words for a cell without a value, in small letters, besides those that are always read as empty.
UNKNOWN = {"unknown", "unk", "missing", "not known", "not done", "not available", "unspecified", "undefined", "n.a."}
UNKNOWN |= {"n.d.", "nd", "nk", "\\n", "#null!", "#value!", "#ref!", "#name?", "#div/0!", "unbekannt", "k.a.", "k. a."}
UNKNOWN |= {"keine angabe", "inconnu", "sconosciuto", "desconocido", "ukjent", "okänd", "onbekend"}

# Names that are at least so alike may be one name, of which one is misspelt.
CLOSE = 0.75

# Letters of other alphabets that cannot be told from Latin ones.
LOOK_ALIKE = str.maketrans("АВЕКМНОРСТХІЈЅаеорсхіјѕΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEKMHOPCTXIJSaeopcxijsABEZHIKMNOPTXo")

# A number with a unit.
QUANTITY = re.compile(r"[+-]?\d+(?:[.,]\d+)?\s*([^\d\s.,].*)")

# Whole numbers up to so many are codes of a category rather than counts.
MOST_CODES = 10

# A code for a missing value leaves out at least two codes below it: 1, 2 and 9.
LEAST_GAP = 3

# Sums and means are written with few digits. A row has a column's mean that closely in 2 of 100 cases.
LEAST_SUMMED, SAME_SUM, SAME_MEAN = 5, 1e-4, 0.02

# Of a number that mostly differs between rows, so many rows are not the same by chance.
LEAST_STUCK = 5

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
    found = [*doubt_sites(sites), *_of_sites(sites), *_of_names(sites, columns), *doubt_lone(columns)]
    for view, names in columns.items():
        tables = _list_tables(view, {site: data.views for site, data in sites.items()})
        found += _of_copies(view, tables)
        if names is not None and tables:
            found += [*_of_meanings(view, names, tables), *_of_constants(view, names, tables)]
            found += _of_stuck(view, names, tables)
            found += _of_sums(view, names, tables)
    return found


def doubt_meanings(sites: Mapping[str, Mapping[str, FloatArray | None]], columns: Columns) -> list[str]:
    """List doubts about what levels and codes mean, in tables that are given by site and view."""
    found = list[str]()
    for view, names in columns.items():
        tables = _list_tables(view, sites)
        found += _of_meanings(view, names, tables) if names is not None and tables else []
    return found


def _list_tables(view: str, sites: Mapping[str, Mapping[str, FloatArray | None]]) -> dict[str, FloatArray]:
    """Return the tables of a view at the sites that have rows of it; tensors are flattened."""
    tables = ((site, views.get(view)) for site, views in sites.items())
    return {site: table.reshape(len(table), -1) for site, table in tables if table is not None and len(table)}


def _of_meanings(view: str, names: tuple[str, ...], tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List doubts about levels and about codes."""
    yield from _of_levels(view, names, tables)
    yield from _of_codes(view, names, tables)


def doubt_sites(names: Iterable[str]) -> Iterator[str]:
    """List sites that may be one site whose name is written in several ways."""
    for several, how in _find_spellings(names):
        yield f"sites {listed(several)} differ by {how} only: are they one site? Each counts as a site of its own."


def doubt_rows(names: Iterable[Any]) -> str:
    """Say of names that several rows have that results cannot be joined by them."""
    return (
        f"several rows have the name {listed(names)}: results name rows by the index of the frame, and a join by it "
        "pairs each of these rows with all others of the same name. Give every row a name of its own, for example "
        "with frame.reset_index(drop=True)."
    )


def doubt_dates(names: Iterable[str]) -> str:
    """Say of columns that are dates what they count as."""
    return f"dates count as days in {listed(names)}: leave out what says nothing of a group."


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
    if without := [name for name, site in sites.items() if not any(map(_has_rows, site.views.values()))]:
        yield f"no rows at {listed(without)}: files with a header alone?"
    for name, site in sites.items():
        tables = [view.reshape(len(view), -1) for view in site.views.values() if view is not None and len(view)]
        if tables and (empty := _empty_rows(tables)) and any(len(table) > empty for table in tables):
            yield f"site {name!r} has {empty} row{'s' * (empty > 1)} without a value in any view: lines without cells?"


def doubt_lone(columns: Columns) -> Iterator[str]:
    """List views that are one category alone, beside other views."""
    for view, names in columns.items():
        if len(columns) > 1 and names and all(map(is_level, names)) and len(set(map(base_name, names))) == 1:
            yield (
                f"view {view!r} is one category alone, {base_name(names[0])!r}, and counts as much as any other "
                "view: clusters may be its levels. Put it into a view with other columns, or leave it out."
            )


def _has_rows(view: FloatArray | None) -> bool:
    return view is not None and len(view) > 0


def _empty_rows(tables: list[FloatArray]) -> int:
    """Count rows without any value among the first and the last rows of a site."""
    count = min(len(_first(table)) for table in tables)
    parts = [slice(0, count), slice(max(len(tables[0]) - count, count), None)]
    return sum(int(np.all([np.isnan(table[part]).all(axis=1) for table in tables], axis=0).sum()) for part in parts)


def _of_names(sites: Mapping[str, ReadSite], columns: Columns) -> Iterator[str]:
    """List views that may be the same view under two names."""
    for view in columns:
        holders = [name for name, site in sites.items() if site.views[view] is not None]
        lacked = [other for other in columns if all(sites[name].views[other] is None for name in holders)]
        if meant := get_close_matches(view, lacked, 1, CLOSE):
            yield f"view {view!r} is only at {listed(holders)}, where there is no {meant[0]!r}: is it that?"
    for first, second in combinations(columns, 2):
        if first.lower() == second.lower():
            yield f"views {first!r} and {second!r} differ by capital letters only: are they one view?"
        elif columns[first] is not None and columns[first] == columns[second]:
            yield f"views {first!r} and {second!r} have the same columns: are they one view?"


def _first(table: FloatArray) -> FloatArray:
    return table[: max(FIRST_CELLS // table.shape[1], 2)]


def _are_alike(ours: FloatArray, theirs: FloatArray) -> bool:
    """Tell whether two tables have the same cells, block by block: a table may be larger than memory."""
    if ours.shape != theirs.shape:
        return False
    blocks = row_blocks(len(ours), 8 * max(ours.shape[1], 1))
    return all(np.array_equal(ours[rows], theirs[rows], equal_nan=True) for rows in blocks)


def _of_copies(view: str, tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List sites with identical rows, and a site that has all of its rows twice."""
    for site, table in tables.items():
        half, rest = divmod(len(table), 2)
        if half > 1 and not rest and _are_alike(table[:half], table[half:]):
            yield f"site {site!r} has all of its rows in view {view!r} twice: was a file appended to itself?"
    for (first, ours), (second, theirs) in combinations(tables.items(), 2):
        if len(ours) > 1 and _are_alike(ours, theirs):
            yield f"sites {first!r} and {second!r} have the same rows in view {view!r}: is one a copy of the other?"


def _of_levels(view: str, names: tuple[str, ...], tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List levels that may be the same, and sites that spell all of them differently."""
    groups: dict[str, dict[str, int]] = {}
    for place, name in enumerate(names):
        if is_level(name):
            groups.setdefault(base_name(name), {})[level_name(name)] = place
    for column, places in groups.items():
        for several, how in _find_spellings(places):
            yield f"view {view!r}, column {column!r}: levels {listed(several)} differ by {how} only."
        yield from (f"view {view!r}, column {column!r}: {doubt}" for doubt in _of_words(column, places))
        used = {
            site: {level for level, place in places.items() if np.nansum(table[:, place]) > 0}
            for site, table in tables.items()
        }
        yield from (f"view {view!r}, column {column!r}: {doubt}" for doubt in _of_spelling(used))


def _of_spelling(used: Mapping[str, set[str]]) -> Iterator[str]:
    """List sites that may spell all levels, or one of them, in another way; `used` has the levels of each."""
    is_named = False  # of two sites, one is named
    for site, own in used.items():
        others = [levels for other, levels in used.items() if other != site]
        everything = set().union(*others)
        if own and everything and not own & everything and not is_named:
            is_named = True
            yield (
                f"site {site!r} has none of the levels of the others ({listed(sorted(own))} there, "
                f"{listed(sorted(everything))} elsewhere): are they written alike?"
            )
        lacked = set.intersection(*others) - own if others else set()
        for level in sorted(own - everything if own & everything else ()):
            numbered = [known for known in sorted(lacked) if re.findall(r"\d", known) == re.findall(r"\d", level)]
            if meant := get_close_matches(level, numbered, 1, CLOSE):
                yield f"level {level!r} is only at {site!r}, where there is no {meant[0]!r}: is it that?"


def _find_spellings(names: Iterable[str]) -> Iterator[tuple[list[str], str]]:
    """Find names that may be one name, written in several ways, and what they differ by."""
    spelt: dict[str, list[str]] = {}
    for name in names:
        spelt.setdefault(_write_plainly(name), []).append(name)
    for several in spelt.values():
        if len(several) > 1:
            how = "capital letters or spaces"
            if len({"".join(name.casefold().split()) for name in several}) > 1:
                how = "hyphens, accents or letters that look alike"
            yield several, how


def _write_plainly(level: str) -> str:
    """Write a level without what is easily written in two ways: capitals, spaces, hyphens, accents, alphabets."""
    plain = "".join(mark for mark in unicodedata.normalize("NFKD", level) if not unicodedata.combining(mark))
    return re.sub(r"(?<=[^\W\d_])[\s_-]+(?=\w)", "", " ".join(plain.translate(LOOK_ALIKE).casefold().split()))


def _of_words(column: str, levels: Iterable[str]) -> Iterator[str]:
    """List levels whose words say that they are no levels of their own."""
    words = {level.casefold().strip(): level for level in levels}
    if column.casefold().strip() in words:
        yield f"{words[column.casefold().strip()]!r} is a level: is a line with the names of columns among the rows?"
    if unknown := [level for word, level in words.items() if word in UNKNOWN]:
        yield (
            f"{listed(unknown)} count{'s' * (len(unknown) == 1)} as a level: leave cells empty that are missing, or "
            "name the word in a data dictionary."
        )
    yes, no = ([level for word, level in words.items() if word in known] for known in (YES, NO))
    for same in (yes, no) if len(yes) + len(no) == len(words) else ():
        if len(same) > 1:
            yield f"levels {listed(same)} mean the same: write them alike."
    units = {found.group(1) for found in map(QUANTITY.fullmatch, words) if found}
    if len(words) > 2 and len(units) == 1 and all(map(QUANTITY.fullmatch, words)):
        yield f"{listed(levels)} have a unit and count as levels: if they are numbers, remove {min(units)!r}."
    for word, level in words.items():
        whole = [other for longer, other in words.items() if longer != word and longer.startswith(word)]
        if len(word) == 1 and len(whole) == 1 and len(whole[0]) > 2:  # of I, II, III and IV none is short for another
            yield f"levels {level!r} and {whole[0]!r}: is one short for the other?"


def _of_codes(view: str, names: tuple[str, ...], tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List columns of few whole numbers that sites count from other numbers on, or in which 9 may mean nothing."""
    firsts = {site: _first(table) for site, table in tables.items()}
    stacked = np.vstack(list(firsts.values()))
    maybe = (np.isnan(stacked) | ((stacked == np.round(stacked)) & np.isfinite(stacked))).all(axis=0)
    for place in (place for place in np.flatnonzero(maybe).tolist() if not is_level(names[place])):
        own = {site: set(np.unique(part[~np.isnan(part[:, place]), place]).tolist()) for site, part in firsts.items()}
        every = sorted(set().union(*own.values()))
        where = f"view {view!r}, column {names[place]!r}"
        if every and all(map(_is_day, every)):
            yield f"{where}: {every[0]:.0f} looks like a date and is read as a number: write it as 2026-01-31."
        if not 2 <= len(every) <= MOST_CODES:
            continue
        for site, values in own.items():
            others = set().union(*(codes for other, codes in own.items() if other != site))
            shift = min(values, default=0.0) - min(others, default=0.0)
            if len(values) > 1 and shift and {value + shift for value in others} == values:
                yield (
                    f"{where}: site {site!r} has the numbers {_numbers(values)}, and the others {_numbers(others)}: "
                    "are they the same codes?"
                )
                break
        for last, before in ((every[-1], every[-2]), (every[0], every[1])):
            nines = set(f"{abs(last):.0f}") == {"9"} and abs(last - before) >= LEAST_GAP
            if nines and len(every) > 2 and int((stacked[:, place] == last).sum()) >= LEAST_REPEATS:
                yield (
                    f"{where}: {last:g} beside {_numbers(set(every) - {last})}: a code for missing values? Leave such "
                    "cells empty, or name the code in a data dictionary."
                )


def _is_day(value: float) -> bool:
    """Tell whether a number is a date without separators, such as 20260131."""
    year, month, day = int(value) // 10_000, int(value) // 100 % 100, int(value) % 100
    return 1900 <= year < 2100 and 1 <= month <= 12 and 1 <= day <= 31


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values))


def _of_sums(view: str, names: tuple[str, ...], tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List sites whose last row has the sums or the means of the rows above it."""
    numbers = find_numbers(names, len(names))
    for site, table in tables.items():
        if len(table) < LEAST_SUMMED or table.size > FIRST_CELLS:
            continue
        known = numbers & np.isfinite(table[-1]) & (np.isfinite(table[:-1]).sum(axis=0) > 1)
        rows, last = table[:-1, known], table[-1, known]
        with np.errstate(over="ignore", invalid="ignore"):
            means, sums, spreads = np.nanmean(rows, axis=0), np.nansum(rows, axis=0), np.nanstd(rows, axis=0)
            is_sum = np.any(spreads > 0) and np.allclose(last, sums, rtol=SAME_SUM, atol=0.0)
            is_mean = np.sum(spreads > 0) > 1 and np.all(np.abs(last - means) <= SAME_MEAN * spreads)
        if is_sum or is_mean:
            yield f"site {site!r}: the last row of view {view!r} has the sums or means of the rows above: remove it."


def _of_stuck(view: str, names: tuple[str, ...], tables: Mapping[str, FloatArray]) -> Iterator[str]:
    """List numbers that are the same in all rows of one site, and mostly differ between rows of each other site."""
    firsts = {site: _first(table) for site, table in tables.items()}
    for site, part in firsts.items():
        if len(part) < LEAST_STUCK or len(firsts) == 1:
            continue
        stuck = (part == part[0]).all(axis=0) & find_numbers(names, len(names))
        for other in (table for name, table in firsts.items() if name != site and len(table)):
            places = np.flatnonzero(stuck)
            known = [own[~np.isnan(own)] for own in other[:, places].T]
            stuck[places] = [2 * len(np.unique(own)) > len(own) for own in known]
        for place in np.flatnonzero(stuck).tolist():
            yield (
                f"view {view!r}, column {names[place]!r}: site {site!r} has {part[0, place]:g} in all of its rows, and "
                "elsewhere most rows differ: was it measured there?"
            )


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
