"""Finds what a single file may mean otherwise than it reads: lines of sums, marks between thousands, codes.

Each function returns sentences about one view.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedhk._text import listed
from fedhk._typing import FloatArray
from fedhk.data.file_columns import TIME

# Rows from which on whole numbers that grow are no chance: of ten in random order, one in three million does.
LEAST_NUMBERED = 10

# Whole numbers in any order that all differ are no chance if its odds are below exp(-14), one in a million.
LEAST_ODDS = 14.0

# Lines of sums and notes are few: ids that are written in another way are named if at most one in ten is.
MOST_ODD = 0.1

# Words and signs for a missing cell that may be levels, too: no pain, or a negative test.
MAYBE_LEVELS = ["none", "-"]

# "070039" is a code; as a number it would have no zero in front.
PADDED = r"^0\d+$"

# "1.400" and "12.000", but not "0.400". Cells without a mark are below 1,000 then.
MARKED, UNMARKED = r"^[+-]?[1-9]\d{0,2}[.,]\d{3}$", r"^[+-]?\d{1,3}$"

# Fewer cells of exactly three decimals may be chance.
LEAST_MARKED = 3


def find_text_doubts(
    table: pl.DataFrame, separator: str, categories: Sequence[str] = (), *, is_declared: bool
) -> list[str]:
    """Find columns of text that may not be the numbers or `categories` as which they are read.

    Where a data dictionary declares the columns, codes and times of the day are meant to be numbers.
    """
    names = [name for name, dtype in table.schema.items() if dtype == pl.String]
    text = table.select(pl.col(names).str.strip_chars())
    doubts = [*_find_thousands(text, separator)]
    if is_declared:
        return doubts
    for name in categories:
        dropped = text[name].drop_nulls().filter(text[name].drop_nulls().str.to_lowercase().is_in(MAYBE_LEVELS))
        if len(dropped):
            doubts.append(
                f"{dropped[0]!r} in column {name!r} is read as a missing cell: if it is a level, list the levels in a "
                "data dictionary."
            )
    if padded := _having(text, pl.all().str.contains(PADDED).any()):
        doubts.append(
            f"{listed(padded)} has zeros in front of numbers, as codes have, and is read as a number: if it says whose "
            f"a row is, say so (--id {padded[0]}); else list its levels in a data dictionary."
        )
    times = _having(text, pl.all().str.contains(TIME).all() & pl.all().is_not_null().any())
    times += [name for name, dtype in table.schema.items() if dtype == pl.Time]
    if times:
        doubts.append(f"times count as hours in {listed(times)}: leave out what says nothing of a group.")
    return doubts


def _having(text: pl.DataFrame, condition: pl.Expr) -> list[str]:
    """List the columns for which a condition holds."""
    return [name for name, holds in text.select(condition).row(0, named=True).items() if holds] if text.width else []


def _find_thousands(text: pl.DataFrame, separator: str) -> Iterator[str]:
    """Find columns in which a mark seems to stand between thousands.

    All cells with a mark have three digits behind it, and there are cells below 1,000 without one. Where cells are
    separated by commas, a comma in a cell is refused elsewhere.
    """
    for mark in (".",) if separator == "," else (".", ","):
        is_marked = pl.all().str.contains(MARKED) & pl.all().str.contains(mark, literal=True)
        is_plain = pl.all().str.contains(UNMARKED)
        only = (is_marked | is_plain | (pl.all() == "")).all()
        for name in _having(text, only & (is_marked.sum() >= LEAST_MARKED) & is_plain.any()):
            cell = text[name].filter(text[name].str.contains(MARKED).fill_null(False))[0]
            number = float(cell.replace(",", "."))
            yield f"{cell!r} in column {name!r} is read as {number:g}; if it means {1000 * number:g}, write so."


def find_id_doubts(ids: NDArray[Any]) -> list[str]:
    """Find ids that are written in another way than most, such as "Total" below numbers."""
    if ids.dtype.kind != "U" or len(ids) < LEAST_NUMBERED:
        return []
    shapes = [re.sub(r"\d+", "0", text) for text in ids.tolist()]
    usual, count = Counter(shapes).most_common(1)[0]
    odd = [text for text, shape in zip(ids.tolist(), shapes, strict=True) if shape != usual]
    if not odd or len(ids) - count > MOST_ODD * len(ids):
        return []
    return [f"ids {listed(odd)} are written in another way than the others: is it a line of sums?"]


def find_count_doubts(values: FloatArray, columns: Sequence[str]) -> list[str]:
    """Find columns that seem to number the rows of a file without ids."""
    first = values[:LEAST_NUMBERED]
    maybe = np.flatnonzero((first == np.round(first)).all(axis=0)) if len(first) == LEAST_NUMBERED else np.zeros(0, int)
    found = [columns[place] for place in maybe.tolist() if _numbers_rows(values[:, place])]
    if not found:
        return []
    return [
        f"{listed(found)} has another whole number in every row: if it says whose a row is, say so (--id {found[0]}), "
        "else it is clustered as a number."
    ]


def _numbers_rows(column: FloatArray) -> bool:
    """Tell whether whole numbers all differ: in order, or although there are few numbers to choose from.

    Of n numbers drawn among r, all differ with the probability exp(-n^2 / 2r).
    """
    if not (column == np.round(column)).all():
        return False
    if (np.diff(column) > 0).all():
        return True
    odds = 0.5 * len(column) ** 2 / (np.ptp(column) + 1.0)
    return bool(odds > LEAST_ODDS and len(np.unique(column)) == len(column))
