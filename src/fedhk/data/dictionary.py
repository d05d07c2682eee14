"""Data dictionaries describe every column of a federation. They are written once and enforced at every site.

It is the file `dictionary.toml` beside the folders of the sites, or in the folder of a site. Its ranges and levels are
known without looking at rows, so that a run with noise may use them. Each column has a table; `id` says which column
has the ids, if it is not "id". With `id` alone, columns are read as without a dictionary:

    id = "mrn"

    [lab.sodium]
    kind = "number"
    unit = "mmol/l"
    range = [100, 180]
    missing = [-999]

    [lab.sex]
    kind = "category"
    levels = ["F", "M"]

    [lab.admitted]
    kind = "date"
    range = [2020-01-01, 2026-12-31]

    [lab.remarks]
    kind = "skip"
"""

from __future__ import annotations

import datetime
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from fedhk._files import toml_key, toml_lines
from fedhk.data.levels import base_name, is_level, is_number, level_name, ordered_levels
from fedhk.errors import DataError

__all__ = [
    "DICTIONARY",
    "ColumnEntry",
    "Dictionary",
    "Kind",
    "find_dictionary",
    "infer_entries",
    "read_columns",
    "read_dictionary",
    "write_dictionary",
]

# The name of the file.
DICTIONARY = "dictionary.toml"

# A whole number as TOML and Python write it, and as both can hold it.
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")

Kind = Literal["number", "truth", "category", "ordered", "date", "skip"]

# Dates are counted in days from here on.
FIRST_DAY = datetime.date(1970, 1, 1)
DAYS = range((datetime.date.min - FIRST_DAY).days, (datetime.date.max - FIRST_DAY).days + 1)  # that a calendar has


@dataclass(frozen=True)
class ColumnEntry:
    """Description of one column.

    Parameters
    ----------
    kind : {"number", "truth", "category", "ordered", "date", "skip"}
        What its cells are; "skip" is a column that files may have and that nobody reads.
    unit : str
        What numbers are counted in.
    range : tuple of float
        The least and the largest number that a cell may have, of a date in days since 1970; empty where nothing is
        said.
    levels : tuple of str
        The levels of a category, in their order where they have one.
    missing : tuple of str
        Texts that say that a cell is missing, besides empty cells.
    description : str
        What it means.
    """

    kind: Kind = "number"
    unit: str = ""
    range: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    description: str = ""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Smallest and largest number of the column in the model; None if the dictionary does not say."""
        if self.kind == "ordered":  # its rank
            return 0.0, len(self.levels) - 1.0
        if self.kind in ("category", "truth"):
            return 0.0, 1.0
        return (self.range[0], self.range[1]) if self.range else None

    def show(self, value: float) -> str:
        """Write a number of the model as a date, if the column has dates; else return an empty text."""
        is_day = self.kind == "date" and DAYS.start <= value < DAYS.stop
        return str(FIRST_DAY + datetime.timedelta(value)) if is_day else ""

    @property
    def width(self) -> int:
        """Number of columns in the model: one for each level of a category."""
        return len(self.levels) if self.kind == "category" else 1


class Dictionary(dict[str, dict[str, ColumnEntry]]):
    """Entries by view and column. Views are sorted by name, as in the folder of a federation."""

    id: str | None = None
    """The column that says whose a row is; None is the usual one."""

    def read_columns(self, view: str) -> dict[str, ColumnEntry]:
        """The columns of a view that are read, all but those to skip."""
        return read_columns(self[view])

    def bounds(self, views: Iterable[str] | None = None) -> list[tuple[list[float], list[float]]]:
        """Return the range of every column, by view: public bounds for `fedhk.privacy.DifferentialPrivacy`.

        Parameters
        ----------
        views : iterable of str, optional
            Views that the sites have, in their order; all views of the dictionary by default.

        Raises
        ------
        DataError
            Naming the columns without a range.
        """
        if not self:
            raise DataError("the data dictionary names no column: as public bounds it needs a range for each.")
        wanted = list(self if views is None else views)
        if unknown := [view for view in wanted if view not in self]:
            raise DataError(f"the data dictionary has no view {unknown[0]!r}; its views are {list(self)}.")
        open_ended = [
            f"{v}.{name}" for v in wanted for name, entry in self.read_columns(v).items() if entry.bounds is None
        ]
        if open_ended:
            more = f" and {len(open_ended) - 5} more" if len(open_ended) > 5 else ""
            raise DataError(
                f"the data dictionary has no range for {', '.join(open_ended[:5])}{more}: as public bounds it needs "
                "one for every number and date, such as range = [0, 250]. Or give bounds yourself, or 'private'."
            )
        found = []
        for view in wanted:
            entries = self.read_columns(view).values()
            pairs = [entry.bounds for entry in entries if entry.bounds for _ in range(entry.width)]
            found.append(([low for low, _ in pairs], [high for _, high in pairs]))
        return found

    def unit(self, view: str, column: str) -> str:
        """Return the unit of a column; empty if the dictionary does not say."""
        entry = self.get(view, {}).get(base_name(column))
        return "" if entry is None else entry.unit


def read_columns(entries: Mapping[str, ColumnEntry]) -> dict[str, ColumnEntry]:
    """The columns that are read, all but those to skip."""
    return {name: entry for name, entry in entries.items() if entry.kind != "skip"}


def find_dictionary(*folders: Path) -> Dictionary | None:
    """Read the data dictionary of the first of these folders that has one."""
    paths = (folder / DICTIONARY for folder in folders)
    return next((read_dictionary(path) for path in paths if path.is_file()), None)


def read_dictionary(path: str | os.PathLike[str]) -> Dictionary:
    """Read a data dictionary.

    Parameters
    ----------
    path : path
        A file as `fedhk dictionary` writes it.

    Returns
    -------
    Dictionary
        For `fedhk.from_frame`; its method ``bounds`` gives public bounds for a privacy budget.

    Raises
    ------
    DataError
        Naming view, column and setting.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"The data dictionary {str(path)!r} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path.name}: cannot be read: {error}") from error
    found: dict[str, dict[str, ColumnEntry]] = {}
    id_name = content.pop("id", None)
    if not (id_name is None or (isinstance(id_name, str) and id_name)):
        raise DataError(f"{path.name}: id={id_name!r} must be the name of a column.")
    for view, columns in content.items():
        if not isinstance(columns, dict) or not columns:
            raise DataError(f"{path.name}: {view!r} must be a view with a table for each column, such as [{view}.age].")
        found[view] = {column: _read_entry(path, view, column, entry) for column, entry in columns.items()}
        if not read_columns(found[view]):
            raise DataError(f"{path.name}: view {view!r} has no column but such to skip: ignore its files instead.")
    if not found and id_name is None:
        raise DataError(f"{path.name}: has no columns; each has a table, such as [lab.age].")
    known = Dictionary(sorted(found.items()))
    known.id = id_name
    return known


def _read_entry(path: Path, view: str, column: str, entry: Any) -> ColumnEntry:
    where = f"{path.name}: view {view!r}, column {column!r}"
    if not isinstance(entry, dict):
        raise DataError(f"{where}: must be a table with 'kind', got {entry!r}.")
    known = [field.name for field in fields(ColumnEntry)]
    if unknown := sorted(entry.keys() - set(known)):
        raise DataError(f"{where}: unknown settings {unknown}; known are {known}.")
    kind = entry.get("kind", "number")
    if kind not in get_args(Kind):
        raise DataError(f"{where}: kind={kind!r} must be one of {list(get_args(Kind))}.")
    limits = _read_range(entry, kind, where)
    levels, missing = ([str(item) for item in _listed(entry, name, where)] for name in ("levels", "missing"))
    if (kind in ("category", "ordered")) != bool(levels) or len(set(levels)) < len(levels):
        raise DataError(f"{where}: levels={levels!r}: a category has levels, each once, and nothing else has any.")
    if both := [level for level in levels if level in missing]:
        raise DataError(f"{where}: {both[0]!r} is a level and a code for missing values: it can only be one.")
    inside = [code for code in missing if limits and is_number(code) and limits[0] <= float(code) <= limits[1]]
    if inside:
        raise DataError(f"{where}: missing={inside[0]!r} lies in its range {list(limits)}: it can only be one.")
    texts = {name: str(entry.get(name, "")) for name in ("unit", "description")}
    if texts["unit"] and kind != "number":
        raise DataError(f"{where}: unit={texts['unit']!r} is for numbers; a {kind} has none.")
    if missing and kind == "skip":
        raise DataError(f"{where}: missing={missing!r} has no effect on a column to skip: leave it out.")
    return ColumnEntry(kind, range=limits, levels=tuple(levels), missing=tuple(missing), **texts)


def _read_range(entry: dict[str, Any], kind: Kind, where: str) -> tuple[float, ...]:
    """Read the range of a number, or of a date in days."""
    limits = entry.get("range", [])
    if limits and kind not in ("number", "date"):
        raise DataError(f"{where}: range={limits!r} is for numbers and dates; a {kind} has none.")
    known = (datetime.date,) if kind == "date" else (int, float)
    what = "dates, such as [2020-01-01, 2026-12-31], the earlier one" if kind == "date" else "numbers, the smaller one"
    right = isinstance(limits, list) and all(type(limit) in known for limit in limits)
    if not right or (limits and (len(limits) != 2 or not limits[0] < limits[1])):
        raise DataError(f"{where}: range={limits!r} must be two {what} first.")
    return tuple(float((limit - FIRST_DAY).days if kind == "date" else limit) for limit in limits)


def _listed(entry: dict[str, Any], name: str, where: str) -> list[Any]:
    found = entry.get(name, [])
    if not isinstance(found, list):
        raise DataError(f"{where}: {name}={found!r} must be a list.")
    return found


def infer_entries(
    columns: Sequence[str], kinds: dict[str, Kind] | None = None, codes: Mapping[str, Iterable[float]] | None = None
) -> dict[str, ColumnEntry]:
    """Make entries for columns named by `fedhk.data.levels`: categories with the levels that occur, else numbers.

    `kinds` are those of columns that are neither, and `codes` numbers that look like codes for missing values.
    """
    levels: dict[str, list[str]] = {}
    found = {}
    for column in columns:
        levels.setdefault(base_name(column), []).extend([level_name(column)] if is_level(column) else [])
    for column, own in levels.items():
        name, ranks = ordered_levels(column)
        entry = ColumnEntry("category", levels=tuple(own)) if own else ColumnEntry((kinds or {}).get(name, "number"))
        entry = ColumnEntry("ordered", levels=ranks) if ranks else entry
        missing = sorted((codes or {}).get(column, ()))
        found[name] = replace(entry, missing=tuple(entry.show(code) or f"{code:.15g}" for code in missing))
    return found


def write_dictionary(dictionary: Mapping[str, Mapping[str, ColumnEntry]], id_name: str | None = None) -> str:
    """Write the text of a data dictionary; `id_name` is the column of ids, if it is not the usual one."""
    lines = [] if id_name is None else [*toml_lines({"id": id_name}), ""]
    for view, columns in dictionary.items():
        for column, entry in columns.items():
            known = {name: value for name, value in vars(entry).items() if value or name == "kind"}
            if entry.missing:  # whole numbers as such, where they are read back as the same text
                known["missing"] = [int(code) if WHOLE.fullmatch(code) else code for code in entry.missing]
            if entry.kind == "date" and entry.range:
                known["range"] = [FIRST_DAY + datetime.timedelta(limit) for limit in entry.range]
            lines += [f"[{toml_key(view)}.{toml_key(column)}]", *toml_lines(known), ""]
    return "\n".join(lines)
