"""Federation folders: one sub-folder per site, with one file per view."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhk._names import suggest
from fedhk._text import is_printable
from fedhk._typing import FloatArray
from fedhk.data.dictionary import Dictionary, Kind, find_dictionary
from fedhk.data.doubts import find_doubts
from fedhk.data.large import empty_table
from fedhk.data.levels import base_name, common_columns, is_level, level_name
from fedhk.data.one_file import advise_files, advise_split
from fedhk.data.tables import (
    ID,
    READERS,
    Table,
    file_content,
    file_ending,
    file_error,
    listed,
    read_tables,
    shape_text,
)
from fedhk.data.views import fit_table
from fedhk.errors import DataError

__all__ = ["FORMATS", "Federation", "Reading", "SiteData", "read_federation", "read_site", "write_site"]

FORMATS = ("parquet", "csv", "npy", "npz")
"""What `write_site` writes."""

NOTES = (".md", ".txt", ".json", ".toml")

# A file with patterns of names that are passed over, one a line.
IGNORED = ".fedhkignore"

# What desktops, office programs and people leave in folders of data; it is passed over and listed.
LEFTOVERS = ("thumbs.db", "desktop.ini", "~$*", "~lock*", "*.lock", "*.bak", "archive", "backup", "old")
ALLOWED = f"a view is one of {', '.join(READERS)}; notes are {', '.join(NOTES)}"

Columns = Mapping[str, Sequence[str] | None]
"""The views by name, each with the names of its columns, or None where its files have no names."""


@dataclass(frozen=True)
class Reading:
    """Options for reading folders.

    Parameters
    ----------
    id : str or None, default=None
        The column that says whose a row is; None is the one that a data dictionary names, or "id".
    ignore : tuple of str, default=()
        Patterns of names of files and folders that are passed over, besides those of ``.fedhkignore``.
    dictionary : Dictionary or None, default=None
        The data dictionary of folders that have none of their own, such as that of the run that they are read for.
    """

    id: str | None = None
    ignore: tuple[str, ...] = ()
    dictionary: Dictionary | None = None


USUAL = Reading()


@dataclass(frozen=True, eq=False)
class SiteData:
    """The rows of one site.

    Parameters
    ----------
    name : str
        The name of its folder.
    views : dict of str to ndarray or None
        All views of the federation, sorted by name; None is a view that the site lacks, a row of NaN a row it lacks.
        Views with more than two dimensions are tensors.
    ids : ndarray of int64 or str, shape (n_rows,), or None
        Whose the rows are, in the order in which the files have them; None where they have no ids.
    columns : dict of str to tuple of str, or None
        The names of the columns of each view; None where no file has names.
    inferred : dict of str to tuple of str
        By view, the categorical columns whose levels were read off the rows, not off a data dictionary.
    doubts : tuple of str
        What may be read otherwise than it was meant, a sentence each.
    kinds : dict of str to (dict of str to str)
        By view and column, what its file holds there.
    """

    name: str
    views: dict[str, FloatArray | None]
    ids: NDArray[Any] | None
    columns: dict[str, tuple[str, ...] | None]
    inferred: dict[str, tuple[str, ...]] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    kinds: dict[str, dict[str, Kind]] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return next(len(view) for view in self.views.values() if view is not None)


@dataclass(frozen=True, eq=False)
class Federation:
    """The sites of one folder, in the order of their names, all with the same views and columns.

    Parameters
    ----------
    sites : dict of str to SiteData
        The sites by name.
    columns : dict of str to tuple of str, or None
        The views by name, each with the names of its columns: what `read_site` takes as ``expected``.
    """

    sites: dict[str, SiteData]
    columns: dict[str, tuple[str, ...] | None]

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views, sorted."""
        return tuple(self.columns)

    @cached_property
    def doubts(self) -> list[str]:
        """What may have been misread, one sentence each."""
        return find_doubts(self.sites, self.columns)


def read_federation(folder: str | os.PathLike[str], reading: Reading = USUAL) -> Federation:
    """Read all sites of a folder.

    Parameters
    ----------
    folder : path
        It has one sub-folder per site and in it one file per view, such as ``oslo/ecg.parquet``. Hidden files and
        notes are passed over. A column ``id`` aligns the rows of a site's views; without it they must be equally many.
        An npy or npz file with an array of more than two dimensions, rows first, is a tensor view. A data dictionary
        is in ``dictionary.toml`` (`fedhk.data.dictionary`). Names of files and folders that match a line of the file
        ``.fedhkignore``, here or in the folder of a site, are passed over.
    reading : Reading
        How the files are read.

    Returns
    -------
    Federation
        Columns are in the order in which the first site has them.

    Raises
    ------
    DataError
        Naming the site, the file, what is wrong and what is allowed.
    """
    root = Path(folder)
    entries = _entries(root)
    found = {entry.name: _site_tables(entry, reading) for entry in list_folders(root, reading.ignore)}
    tables = {name: tables for name, (tables, _) in found.items()}
    if not tables:
        files = [entry for entry in entries if file_ending(entry) in READERS]
        held = listed(entry.name for entry in files)
        hint = f" It holds {held}: is it a single site?{advise_files(files)}" if files else ""
        raise DataError(f"Folder {str(root)!r} has no site; a federation has one sub-folder per site.{hint}")
    columns = _common_columns(tables)
    sites = {name: _assemble(name, parts, columns, found[name][1]) for name, parts in tables.items()}
    if all(site.n_rows == 0 for site in sites.values()):
        raise DataError(f"Folder {str(root)!r} has no rows at any of its {len(sites)} sites; at least one is needed.")
    return Federation(sites, columns)


def read_site(folder: str | os.PathLike[str], expected: Columns | None = None, reading: Reading = USUAL) -> SiteData:
    """Read the folder of one site, which has one file per view and the name of the site.

    `expected` are the views of a federation or a model, with their columns, in order: the site may lack some of them,
    but has no others. Without it, views are what the folder has. ``dictionary.toml`` and ``.fedhkignore`` are in the
    folder or beside it. A DataError says what is wrong and what is allowed.
    """
    root = Path(os.path.abspath(folder))
    tables, doubts = _site_tables(root, reading)
    if expected is None:
        return _assemble(root.name, tables, _common_columns({root.name: tables}), doubts)
    unknown = sorted(tables.keys() - expected.keys())
    if unknown:
        raise DataError(f"site {root.name!r} has unknown views {listed(unknown)}; known are {listed(expected)}.")
    columns = {view: None if names is None else tuple(names) for view, names in expected.items()}
    for view, table in tables.items():
        if difference := table.difference(columns[view], None):
            raise file_error(table.source, f"view {view!r} {difference}, compared with what is expected.")
    return _assemble(root.name, tables, columns, doubts)


def write_site(
    folder: str | os.PathLike[str],
    views: Mapping[str, ArrayLike | None],
    ids: ArrayLike | None = None,
    columns: Columns | None = None,
    format: str = "parquet",  # noqa: A002
) -> None:
    """Write the views of one site, so that a reader sees all of them or none.

    Parameters
    ----------
    folder : path
        The site's folder, which must not exist or be empty; its parents are made.
    views : dict of str to array of shape (n_rows, n_features) or None
        The tables by name; None is a view that the site lacks. Tensors, arrays of more dimensions, need ``"npy"`` or
        ``"npz"``.
    ids : array of int or str, shape (n_rows,), optional
        Whose the rows are. Not for ``"npy"``, which has no place for them.
    columns : dict of str to sequence of str, optional
        The names of the columns. Not for ``"npy"``. By default ``ecg_0``, ``ecg_1`` and so on where names are needed.
    format : {"parquet", "csv", "npy", "npz"}
        The kind of file.
    """
    target = Path(os.path.abspath(folder))
    if format not in FORMATS:
        raise DataError(f"format must be one of {', '.join(FORMATS)}, got {format!r}.")
    if format == "npy" and (ids is not None or columns is not None):
        raise DataError("format 'npy' has no place for ids and columns; use 'npz', 'parquet' or 'csv'.")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"Folder {str(target)!r} exists already; a site is never written over.")
    arrays = {view: np.asarray(values) for view, values in views.items() if values is not None}
    lengths = {view: array.shape[:1] for view, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"site {target.name!r}: its views must be at least one, with equally many rows; got {lengths}.")
    wrong = [view for view in lengths if Path(view).name != view or view.startswith(".")]
    if wrong:
        raise DataError(f"site {target.name!r}: views are named like files, got {listed(wrong)}.")
    paths = {view: target / f"{view}.{format}" for view in arrays}
    files = {paths[view]: file_content(paths[view], arrays[view], ids, (columns or {}).get(view)) for view in arrays}
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        for path, content in files.items():
            (draft / path.name).write_bytes(content)
        draft.replace(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _no_folder(folder: Path) -> DataError:
    """Make the error for a folder that does not exist, with the name that may be meant."""
    if folder.exists():
        return DataError(
            f"Folder {str(folder)!r} is a file. {advise_split(folder) or 'Give the folder that holds it.'}"
        )
    beside = [entry.name for entry in folder.parent.iterdir() if entry.is_dir()] if folder.parent.is_dir() else []
    return DataError(f"Folder {str(folder)!r} does not exist.{suggest(folder.name, beside)}")


def _entries(folder: Path) -> list[Path]:
    """List the content of a folder, sorted by name, without hidden files."""
    if not folder.is_dir():
        raise _no_folder(folder)
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"Folder {str(folder)!r} cannot be read: {error.strerror}.") from error


def list_folders(folder: Path, ignore: Sequence[str] = ()) -> list[Path]:
    """List the sites of a federation folder: its sub-folders, without ignored ones, sorted by name."""
    patterns = [*_read_ignored(folder), *ignore]
    return [entry for entry in _entries(folder) if entry.is_dir() and not _matches(entry, patterns)]


def _read_ignored(folder: Path) -> list[str]:
    """Read the patterns of names that are ignored in a folder."""
    path = folder / IGNORED
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [*LEFTOVERS, *(line.strip() for line in lines if line.strip() and not line.startswith("#"))]


def is_left_over(name: str) -> bool:
    """Tell whether a folder or file of this name is always passed over."""
    return name.startswith(".") or _matches(Path(name), LEFTOVERS)


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path.name.lower(), pattern.lower()) for pattern in patterns)


def _site_tables(folder: Path, reading: Reading) -> tuple[dict[str, Table], list[str]]:
    """Read the tables of one site by view, sorted, and list the doubts about its folder."""
    if not folder.name.isprintable():
        raise DataError(f"site {folder.name!r}: the name of its folder must be printable.")
    found = find_dictionary(folder, folder.parent)
    dictionary = reading.dictionary if found is None else found
    patterns = [*_read_ignored(folder.parent), *_read_ignored(folder), *reading.ignore]
    id_name = reading.id or (dictionary.id if dictionary is not None else None) or ID
    entries = _entries(folder)
    passed = [path for path in entries if _matches(path, patterns)]
    tables: dict[str, Table] = {}
    for path in entries:
        ending = file_ending(path)
        if path in passed or ending in NOTES or (path.stem.upper() == "README" and ending not in READERS):
            continue
        if not path.is_file() or ending not in READERS:
            what = "a folder" if path.is_dir() else "no file of a known kind"
            raise file_error(
                path, f"is {what}; {ALLOWED}. To pass it over, name it in the file {IGNORED!r}, or by --ignore."
            )
        for table in read_tables(path, dictionary or None, id_name):
            _add_table(tables, table)
    if not tables:
        raise DataError(f"site {folder.name!r} has no view: its folder holds no data file; {ALLOWED}.")
    doubts = [doubt for table in tables.values() for doubt in table.doubts]
    if passed:
        doubts.append(f"passed over {listed(path.name for path in passed)}.")
    for view, table in tables.items():
        if not len(table.values) and any(len(other.values) for other in tables.values()):
            doubts.append(f"file {table.source.name!r} has a header and no rows: view {view!r} is missing in all rows.")
    return dict(sorted(tables.items())), doubts


def _add_table(tables: dict[str, Table], table: Table) -> None:
    """Add the table of another file of a site."""
    if table.view in tables:
        other = tables[table.view].source.name
        raise file_error(table.source, f"holds view {table.view!r}, and so does {other!r}; one file per view.")
    hidden = [name for name in (table.view, *(table.columns or ())) if not is_printable(name)]
    if hidden:
        raise file_error(table.source, f"names of views and columns must be printable; {listed(hidden)} are not.")
    tables[table.view] = table


def _common_columns(tables: Mapping[str, Mapping[str, Table]]) -> dict[str, tuple[str, ...] | None]:
    """Return the views of all sites, sorted, with the columns of the first site that names them."""
    columns: dict[str, tuple[str, ...] | None] = {}
    for view in sorted({view for parts in tables.values() for view in parts}):
        holders = {site: parts[view] for site, parts in tables.items() if view in parts}
        first = next((site for site, table in holders.items() if table.columns is not None), next(iter(holders)))
        _check_kinds(view, holders)
        named = [holders[first].columns, *(table.columns for table in holders.values())]
        columns[view] = common_columns([names for names in named if names is not None]) or holders[first].columns
        shape = holders[first].values.shape[1:]
        differences = [
            f"site {site!r} {difference}"
            for site, table in holders.items()
            if (difference := table.difference(columns[view], shape))
        ]
        if differences:
            raise DataError(
                f"View {view!r} must have the same columns at every site. Compared with site {first!r}, "
                f"which has {shape_text(shape)}: {'; '.join(differences)}."
            )
    return columns


def _check_kinds(view: str, holders: Mapping[str, Table]) -> None:
    """Refuse a column that is text or dates at some sites and numbers at others; the fewer of them are named first."""
    for name in {name: None for table in holders.values() for name, kind in table.kinds.items() if kind == "date"}:
        dated = [site for site, table in holders.items() if table.kinds.get(name) == "date"]
        numbers = [s for s, t in holders.items() if t.kinds.get(name) == "number" and _has_numbers(t, name)]
        if numbers:
            fewer, more, here, there = dated, numbers, "dates", "numbers"
            if len(numbers) < len(dated):
                fewer, more, here, there = numbers, dated, "numbers", "dates"
            raise file_error(
                holders[fewer[0]].source,
                f"view {view!r}, column {name!r} holds {here}, and at {listed(more)} {there}: make it one kind.",
            )
    levels: dict[str, dict[str, str]] = {}  # of each categorical column, an example by site
    for site, table in holders.items():
        for column in filter(is_level, table.columns or ()):
            levels.setdefault(base_name(column), {}).setdefault(site, level_name(column))
    for name, examples in levels.items():
        numbers = [site for site, table in holders.items() if site not in examples and _has_numbers(table, name)]
        if numbers:
            site = next(iter(examples)) if len(examples) <= len(numbers) else numbers[0]
            here = f"text, such as {examples[site]!r}" if site in examples else "numbers"
            there, other = (listed(numbers), "numbers") if site in examples else (listed(examples), "text")
            raise file_error(
                holders[site].source,
                f"view {view!r}, column {name!r} holds {here}, and at {there} {other}: "
                "make it one kind, such as by a data dictionary.",
            )


def _has_numbers(table: Table, column: str) -> bool:
    """Tell whether a table has a column of this name with any number in it."""
    named = column in (table.columns or ())
    return named and not bool(np.isnan(table.values[:, (table.columns or ()).index(column)]).all())


def _assemble(
    name: str, tables: Mapping[str, Table], columns: dict[str, tuple[str, ...] | None], doubts: Sequence[str]
) -> SiteData:
    """Make one site with all views of the federation, columns and rows in common order."""
    values = {}
    for view, table in tables.items():
        try:
            fitted, _ = fit_table(table.values, table.columns, columns[view], f"view {view!r}")
        except ValueError as error:
            raise file_error(table.source, str(error)) from error
        values[view] = np.ascontiguousarray(fitted)
    ids, aligned = _align(name, tables, values)
    inferred = {view: table.inferred for view, table in tables.items() if table.inferred}
    doubts = (*doubts, *_find_unmatched(tables, ids))
    kinds = {view: dict(table.kinds) for view, table in tables.items()}
    return SiteData(name, {view: aligned.get(view) for view in columns}, ids, columns, inferred, doubts, kinds)


def _find_unmatched(tables: Mapping[str, Table], ids: NDArray[Any] | None) -> list[str]:
    """Find views whose ids mostly occur in no other view: their ids may be written differently."""
    if ids is None or len(tables) < 2:
        return []
    known = {view: set(map(str, table.ids.tolist())) for view, table in tables.items() if table.ids is not None}
    found = []
    for view, own in known.items():
        others = set().union(*(ids for other, ids in known.items() if other != view))
        if own and others and 2 * len(own & others) < min(len(own), len(others)):
            example = next(iter(sorted(own - others)))
            found.append(
                f"of {len(own)} ids of view {view!r} only {len(own & others)} are in other views ({example!r} is not): "
                "are they written alike?"
            )
    return [*found, *_find_shifted(known)]


def _find_shifted(known: Mapping[str, set[str]]) -> Iterator[str]:
    """Find views whose ids are those of another view plus a number: one counts from 0 and the other from 1."""
    numbers = {
        view: np.sort([int(own) for own in ids]) for view, ids in known.items() if all(own.isdecimal() for own in ids)
    }
    for (first, ours), (second, theirs) in combinations(numbers.items(), 2):
        away = np.unique(theirs - ours) if len(ours) == len(theirs) else np.zeros(0)
        if len(away) == 1 and away[0] != 0 and len(np.intersect1d(ours, theirs)):
            yield (
                f"ids of view {second!r} are {theirs[0]} to {theirs[-1]}, and those of view {first!r} {ours[0]} "
                f"to {ours[-1]}: does one count from another number on?"
            )


def _align(
    name: str, tables: Mapping[str, Table], values: dict[str, FloatArray]
) -> tuple[NDArray[Any] | None, dict[str, FloatArray]]:
    """Align the rows of all views, in the order of first appearance; NaN where a view lacks a row."""
    known = [table.ids for table in tables.values() if table.ids is not None]
    if not known:
        lengths = {view: len(table) for view, table in values.items()}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{view!r} has {length}" for view, length in lengths.items())
            raise DataError(f"site {name!r}: without ids its views must have equally many rows, but {found}.")
        return None, values
    if len(known) < len(tables):
        without = listed(table.source.name for table in tables.values() if table.ids is None)
        raise DataError(
            f"site {name!r}: {without} without ids beside views with ids; give all views an {ID!r}, or none."
        )
    as_text = any(len(ids) and ids.dtype.kind == "U" for ids in known)
    joined = np.concatenate([ids.astype(np.str_ if as_text else np.int64) for ids in known])
    distinct, first, code = np.unique(joined, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    places = np.split(rank[code], np.cumsum([len(ids) for ids in known])[:-1])
    for (view, rows), place in zip(values.items(), places, strict=True):
        if not np.array_equal(place, np.arange(len(order))):
            values[view] = empty_table((len(order), *rows.shape[1:]), rows.dtype)
            values[view][...] = np.nan
            values[view][place] = rows
    return distinct[order], values
