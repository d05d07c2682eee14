"""A data dictionary: what every column of a federation is, written once and enforced at every site.

It is the file `dictionary.toml` beside the folders of the sites, or in the folder of a site. Each column has a table:

    [lab.sodium]
    kind = "number"
    unit = "mmol/l"
    range = [100, 180]
    missing = [-999]

    [lab.sex]
    kind = "category"
    levels = ["F", "M"]
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from fedhk.data.levels import base_name, is_level, level_name
from fedhk.errors import DataError

__all__ = ["DICTIONARY", "ColumnEntry", "Dictionary", "infer_entries", "read_dictionary", "write_dictionary"]

# The name of the file.
DICTIONARY = "dictionary.toml"

Kind = Literal["number", "truth", "category", "ordered", "date"]

Dictionary = Mapping[str, Mapping[str, "ColumnEntry"]]
"""Entries by view and column."""


@dataclass(frozen=True)
class ColumnEntry:
    """What one column holds.

    Parameters
    ----------
    kind : {"number", "truth", "category", "ordered", "date"}
        What its cells are.
    unit : str
        What numbers are counted in.
    range : tuple of float
        The least and the largest number that a cell may have; empty where nothing is said.
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


def read_dictionary(path: Path) -> Dictionary:
    """Read a data dictionary. A DataError names view, column and setting."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path.name}: cannot be read: {error}") from error
    found: dict[str, dict[str, ColumnEntry]] = {}
    for view, columns in content.items():
        if not isinstance(columns, dict) or not columns:
            raise DataError(f"{path.name}: {view!r} must be a view with a table for each column, such as [{view}.age].")
        found[view] = {column: _read_entry(path, view, column, entry) for column, entry in columns.items()}
    if not found:
        raise DataError(f"{path.name}: has no columns; each has a table, such as [lab.age].")
    return found


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
    limits = entry.get("range", [])
    numbers = isinstance(limits, list) and all(type(limit) in (int, float) for limit in limits)
    if not numbers or (limits and (len(limits) != 2 or not limits[0] < limits[1])):
        raise DataError(f"{where}: range={limits!r} must be two numbers, the smaller one first.")
    levels, missing = ([str(item) for item in _listed(entry, name, where)] for name in ("levels", "missing"))
    if (kind in ("category", "ordered")) != bool(levels) or len(set(levels)) < len(levels):
        raise DataError(f"{where}: levels={levels!r}: a category has levels, each once, and nothing else has any.")
    if limits and kind not in ("number", "date"):
        raise DataError(f"{where}: range={limits!r} is for numbers; a {kind} has none.")
    texts = {name: str(entry.get(name, "")) for name in ("unit", "description")}
    return ColumnEntry(kind, range=tuple(map(float, limits)), levels=tuple(levels), missing=tuple(missing), **texts)


def _listed(entry: Mapping[str, Any], name: str, where: str) -> list[Any]:
    found = entry.get(name, [])
    if not isinstance(found, list):
        raise DataError(f"{where}: {name}={found!r} must be a list.")
    return found


def infer_entries(columns: Sequence[str]) -> dict[str, ColumnEntry]:
    """Entries of columns as `fedhk.data.levels` names them: categories with the levels that are there, else numbers."""
    levels: dict[str, list[str]] = {}
    for column in columns:
        levels.setdefault(base_name(column), []).extend([level_name(column)] if is_level(column) else [])
    return {name: ColumnEntry("category", levels=tuple(own)) if own else ColumnEntry() for name, own in levels.items()}


def write_dictionary(dictionary: Dictionary) -> str:
    """The text of a data dictionary."""
    lines = []
    for view, columns in dictionary.items():
        for column, entry in columns.items():
            lines.append(f"[{_key(view)}.{_key(column)}]")
            for field in fields(ColumnEntry):
                value = getattr(entry, field.name)
                if value or field.name == "kind":
                    lines.append(f"{field.name} = {json.dumps(value, ensure_ascii=False)}")
            lines.append("")
    return "\n".join(lines)


def _key(name: str) -> str:
    """A name as a key of TOML."""
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else json.dumps(name, ensure_ascii=False)
