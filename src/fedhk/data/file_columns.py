"""One column of a file as numbers: text, categories and dates too, as a data dictionary says or as they look."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import polars as pl

from fedhk.data.dictionary import ColumnEntry
from fedhk.data.levels import check_levels, encode_levels, is_number, ordered_name

# Cells of text files that say that there is nothing, and those that say yes or no, in small letters.
MISSING_TEXTS = ["", "na", "n/a", "#n/a", "nan", "null", "none", "-", ".", "?"]
TRUTH_TEXTS = {"true": 1.0, "false": 0.0}

TEXT = (pl.String, pl.Categorical, pl.Enum)


def read_column(column: pl.Series, separator: str | None, entry: ColumnEntry | None) -> pl.Series | pl.DataFrame:
    """A column of a file as numbers, null where a cell is missing; of a category, a column for each level.

    `separator` is that of a text file, whose cells are all text; None where the file says what its columns are. `entry`
    is what a data dictionary says of the column. A ValueError names the column, a cell with its row, and what to do.
    """
    column = _drop_missing(column, separator, entry)
    if entry is not None and entry.levels:
        return _read_levels(column, entry)
    if entry is not None and entry.kind == "date" and column.dtype == pl.String:
        days = column.str.strip_chars().str.strptime(pl.Date, "%Y-%m-%d", strict=False)
        _refuse(column, column.is_not_null() & days.is_null(), "a date, such as 2026-01-31")
        column = days
    if column.dtype.is_temporal():
        return _count_days(column)
    numbers, wrong = _parse_numbers(column, separator)
    if column.dtype == pl.String:
        censored = column.str.contains(r"^\s*[<>]=?\s*[\d.,]+\s*$").fill_null(False)
        _refuse(column, censored, "a number (or a code that a data dictionary lists under 'missing')")
    known = len(column) - column.null_count()
    if entry is None and column.dtype in TEXT and 2 * int(wrong.sum()) > known:  # most cells are no numbers
        text = column.cast(pl.String).str.strip_chars()
        levels = sorted(text.drop_nulls().unique().to_list())
        check_levels(levels, known, column.name)
        return _level_columns(text, levels)
    _refuse(column, wrong, "a number")
    if entry is not None and entry.range:
        low, high = entry.range
        limits = f"{low:g} to {high:g}{f' {entry.unit}' if entry.unit else ''}, by the data dictionary"
        _refuse(numbers, ((numbers < low) | (numbers > high)).fill_null(False), f"a number from {limits}")
    return numbers.alias(column.name)


def _drop_missing(column: pl.Series, separator: str | None, entry: ColumnEntry | None) -> pl.Series:
    """The column with null for cells that say that there is nothing."""
    if column.dtype == pl.String and separator is not None:
        text = column.str.strip_chars()
        column = column.set(text.str.to_lowercase().is_in(MISSING_TEXTS), None)
    if entry is not None and entry.missing:
        text = column.cast(pl.String).str.strip_chars()
        codes = text.is_in(list(entry.missing))
        if column.dtype.is_numeric():
            codes = column.cast(pl.Float64).is_in([float(code) for code in entry.missing if is_number(code)])
        column = column.set(codes.fill_null(False), None)
    return column


def _parse_numbers(column: pl.Series, separator: str | None) -> tuple[pl.Series, pl.Series]:
    """The numbers of a column, and which cells are none."""
    if column.dtype.is_numeric():
        return column, column.is_null() & False
    if column.dtype == pl.Boolean or column.null_count() == len(column):
        return column.cast(pl.Float64), column.is_null() & False
    if column.dtype != pl.String or separator is None:
        return pl.Series([None], dtype=pl.Float64).new_from_index(0, len(column)), column.is_not_null()
    text = column.str.strip_chars()
    if separator != ",":  # then a comma may be the decimal sign
        text = text.str.replace(r"^([+-]?\d+),(\d+)$", "${1}.${2}")
    numbers = text.cast(pl.Float64, strict=False)
    truth = text.str.to_lowercase().replace_strict(TRUTH_TEXTS, default=None, return_dtype=pl.Float64)
    numbers = numbers.fill_null(truth)
    return numbers, column.is_not_null() & numbers.is_null()


def _read_levels(column: pl.Series, entry: ColumnEntry) -> pl.Series | pl.DataFrame:
    """A category as the data dictionary has it; one with an order is its rank."""
    text = column.cast(pl.String).str.strip_chars()
    levels = ", ".join(map(repr, entry.levels[:8])) + (" or others" if len(entry.levels) > 8 else "")
    _refuse(column, text.is_not_null() & ~text.is_in(list(entry.levels)), f"one of the levels {levels}")
    if entry.kind == "category":
        return _level_columns(text, entry.levels)
    ranks = {level: float(rank) for rank, level in enumerate(entry.levels)}
    named = ordered_name(column.name, entry.levels)
    return text.replace_strict(ranks, default=None, return_dtype=pl.Float64).alias(named)


def _level_columns(text: pl.Series, levels: Sequence[str]) -> pl.DataFrame:
    """A column of zeros and ones for each level."""
    values, names = encode_levels(text.to_list(), levels, text.name)
    return pl.DataFrame(values, schema=names, orient="row").fill_nan(None)


def _count_days(column: pl.Series) -> pl.Series:
    """Dates as days since 1970, and durations as days."""
    if column.dtype != pl.Duration:
        column = column.cast(pl.Datetime("us")) - datetime.datetime(1970, 1, 1)
    return (column.dt.total_seconds(fractional=True) / 86400).alias(column.name)


def _refuse(column: pl.Series, wrong: pl.Series, wanted: str) -> None:
    """Refuse a column with a cell that is not what the column holds."""
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        kind = "text, " if column.dtype in TEXT else "" if column.dtype.is_numeric() else f"{column.dtype}, "
        raise ValueError(
            f"column {column.name!r} holds {kind}{str(column[row])[:60]!r} in row {row + 1}, where {wanted} is "
            "expected. Correct the cell, leave cells empty that are missing, remove the column, or name it 'id' if it "
            "says whose a row is."
        )
