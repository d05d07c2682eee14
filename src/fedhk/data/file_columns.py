"""Reads a column of a file as numbers: also text, categories and dates, by a data dictionary or by their look."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from fedhk.data.dictionary import FIRST_DAY, ColumnEntry, Kind
from fedhk.data.levels import WRITTEN_NUMBER, check_levels, encode_levels, is_number, ordered_name

# Cells of text that say that there is nothing, and those that say yes or no, in small letters. The words for yes and no
# are those of a column that a data dictionary declares; elsewhere they are levels.
MISSING_TEXTS = ["", "na", "n/a", "#n/a", "nan", "null", "none", "-", ".", "?"]
TRUTH_TEXTS = {"true": 1.0, "false": 0.0}
TRUTH_WORDS = {"yes": 1.0, "no": 0.0, "y": 1.0, "n": 0.0, "t": 1.0, "f": 0.0}

# Ways to write a date that can be read in one way only; 3/4/2026 is in March or in April.
DATES = (r"^(\d{4}-\d\d-\d\d)([T ][\d:.]+Z?)?$", "%Y-%m-%d"), (r"^(\d{1,2}\.\d{1,2}\.\d{4})$", "%d.%m.%Y")

# A time of the day; it counts as hours.
TIME = r"^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?$"

TEXT = (pl.String, pl.Categorical, pl.Enum)


class ReadColumn(NamedTuple):
    """A column as numbers, null where a cell is missing; of a category, a column for each level."""

    values: pl.Series | pl.DataFrame
    kind: Kind


def read_column(column: pl.Series, separator: str, entry: ColumnEntry | None) -> ReadColumn:
    """Read a column of a file.

    `separator` is that of a text file: where it is no comma, a comma in text may be the decimal sign. `entry` is what a
    data dictionary says of the column. A ValueError names the column, a cell with its row, and what to do.
    """
    column = _clean(column, () if entry is None else entry.levels)
    if (entry is None or entry.kind == "number") and are_times(column):
        column = _count_hours(column)
    if entry is not None and entry.missing:
        column = _drop_codes(column, separator, entry.missing)
    if entry is not None and entry.levels:
        return ReadColumn(_read_levels(column, entry), entry.kind)
    if entry is not None and entry.kind == "date":
        return ReadColumn(_read_dates(column, entry), "date")
    if entry is None and _are_dates(column):
        return ReadColumn(_count_days(column), "date")
    numbers, wrong = _parse_numbers(column, separator)
    if entry is not None and entry.kind == "truth":
        return ReadColumn(_read_truth(column, numbers), "truth")
    if column.dtype == pl.String:
        censored = column.str.contains(r"^[<>]=?\s*[\d.,]+$").fill_null(False)
        wanted = "a number (or a code that a data dictionary lists under 'missing')"
        _refuse(column, censored, wanted, declared=entry is not None)
    known = len(column) - column.null_count()
    if entry is None and column.dtype == pl.String and 2 * int(wrong.sum()) > known:  # most cells are no numbers
        return ReadColumn(_read_text(column, known), "category")
    _refuse(column, wrong, "a number", declared=entry is not None)
    if entry is not None and entry.range:
        low, high = entry.range
        limits = f"{low:g} to {high:g}{f' {entry.unit}' if entry.unit else ''}, by the data dictionary,"
        outside = ((numbers < low) | (numbers > high)).fill_null(False)
        many = (
            f" ({int(outside.sum())} of {known} cells are outside: another unit?)" if 2 * outside.sum() > known else ""
        )
        _refuse(numbers, outside, f"a number from {limits}", many)
    is_truth = column.dtype == pl.Boolean or (column.dtype == pl.String and _are_truths(column))
    return ReadColumn(numbers.alias(column.name), "truth" if is_truth else "number")


def _clean(column: pl.Series, levels: Sequence[str] = ()) -> pl.Series:
    """Empty the cells of a text that stand for nothing, unless they are levels; make durations numbers of days."""
    if column.dtype in TEXT:
        text = column.cast(pl.String).str.strip_chars()
        empty = text.str.to_lowercase().is_in(MISSING_TEXTS) & ~text.is_in(list(levels))
        return text.set(empty.fill_null(False), None)
    return _count_days(column) if column.dtype == pl.Duration else column


def _drop_codes(column: pl.Series, separator: str, codes: Sequence[str]) -> pl.Series:
    """Replace codes of missing values by null, also where -999 is written as -999.0 or a date in another way."""
    wrong = column.cast(pl.String).is_in(list(codes))
    if column.dtype == pl.String:  # 31.12.9999 is 9999-12-31
        wrong |= _parse_dates(column).cast(pl.String).is_in(list(codes)).fill_null(False)
    if column.dtype.is_numeric() or column.dtype == pl.String:
        numbers, _ = _parse_numbers(column, separator)
        wrong |= numbers.cast(pl.Float64).is_in([float(code) for code in codes if is_number(code)]).fill_null(False)
    return column.set(wrong.fill_null(False), None)


def _parse_numbers(column: pl.Series, separator: str) -> tuple[pl.Series, pl.Series]:
    """Parse the numbers of a column; also return which cells are none."""
    if column.dtype.is_numeric():
        return column, column.is_null() & False
    if column.dtype == pl.Boolean or column.null_count() == len(column):
        return column.cast(pl.Float64), column.is_null() & False
    if column.dtype != pl.String:
        return pl.Series([None], dtype=pl.Float64).new_from_index(0, len(column)), column.is_not_null()
    text = column
    if separator != ",":  # then a comma may be the decimal sign
        text = text.str.replace(r"^([+-]?\d+),(\d+)$", "${1}.${2}")
    numbers = text.cast(pl.Float64, strict=False)
    truth = text.str.to_lowercase().replace_strict(TRUTH_TEXTS, default=None, return_dtype=pl.Float64)
    numbers = numbers.fill_null(truth)
    return numbers, column.is_not_null() & numbers.is_null()


def _are_truths(column: pl.Series) -> bool:
    known = column.drop_nulls().str.to_lowercase()
    return len(known) > 0 and bool(known.is_in(list(TRUTH_TEXTS)).all())


def _read_truth(column: pl.Series, numbers: pl.Series) -> pl.Series:
    """Read yes and no as 1 and 0."""
    numbers = numbers.cast(pl.Float64)
    if column.dtype == pl.String:
        words = column.str.to_lowercase().replace_strict(TRUTH_WORDS, default=None, return_dtype=pl.Float64)
        numbers = numbers.fill_null(words)
    wrong = column.is_not_null() & ~numbers.is_in([0.0, 1.0]).fill_null(False)
    _refuse(column, wrong, "true or false (yes or no, 1 or 0)")
    return numbers.alias(column.name)


def _read_levels(column: pl.Series, entry: ColumnEntry) -> pl.Series | pl.DataFrame:
    """Read a category by the data dictionary; an ordered one becomes its rank."""
    whole = column.dtype.is_float() and bool((column == column.round()).fill_null(True).all())  # 1.0 is the code 1
    text = (column.cast(pl.Int64) if whole else column).cast(pl.String)
    levels = ", ".join(map(repr, entry.levels[:8])) + (" or others" if len(entry.levels) > 8 else "")
    _refuse(column, text.is_not_null() & ~text.is_in(list(entry.levels)), f"one of the levels {levels}")
    if entry.kind == "category":
        return _level_columns(text, entry.levels)
    ranks = {level: float(rank) for rank, level in enumerate(entry.levels)}
    named = ordered_name(column.name, entry.levels)
    return text.replace_strict(ranks, default=None, return_dtype=pl.Float64).alias(named)


def _read_text(column: pl.Series, known: int) -> pl.DataFrame:
    """Read text as a category with the levels that occur; refuse text that is no category."""
    written = column.str.contains(WRITTEN_NUMBER).fill_null(False)
    if 2 * int(written.sum()) > known:
        _refuse(column, written, "a number such as 1234.5 (or levels that a data dictionary lists)", declared=False)
    levels = sorted(column.drop_nulls().unique().to_list())
    check_levels(levels, known, column.name)
    return _level_columns(column, levels)


def _level_columns(text: pl.Series, levels: Sequence[str]) -> pl.DataFrame:
    """Make a column of zeros and ones for each level."""
    values, names = encode_levels(text.to_list(), levels, text.name)
    return pl.DataFrame(values, schema=names, orient="row").fill_nan(None)


def _parse_dates(column: pl.Series) -> pl.Series:
    """Parse the dates of a column of text; null where a cell is none."""
    found = pl.Series(column.name, [None], dtype=pl.Date).new_from_index(0, len(column))
    for pattern, form in DATES:
        found = found.fill_null(column.str.extract(pattern).str.strptime(pl.Date, form, strict=False))
    return found


def _are_dates(column: pl.Series) -> bool:
    """Tell whether every nonempty cell is a date."""
    if column.dtype != pl.String:
        return column.dtype.is_temporal()
    known = column.drop_nulls()
    return len(known) > 0 and _parse_dates(known[:1]).null_count() == 0 and _parse_dates(known).null_count() == 0


def are_times(column: pl.Series) -> bool:
    """Tell whether every nonempty cell is a time of the day."""
    if column.dtype != pl.String:
        return column.dtype == pl.Time
    known = column.drop_nulls()
    return len(known) > 0 and known.head(1).str.contains(TIME).all() and known.str.contains(TIME).all()


def _count_hours(column: pl.Series) -> pl.Series:
    """Convert times of the day to hours."""
    if column.dtype == pl.Time:
        return (column.cast(pl.Int64) / 3.6e12).alias(column.name)
    hours, minutes, seconds = (column.str.extract(TIME, group).cast(pl.Float64) for group in (1, 2, 3))
    return (hours + minutes / 60 + seconds.fill_null(0.0) / 3600).alias(column.name)


def _read_dates(column: pl.Series, entry: ColumnEntry) -> pl.Series:
    """Read dates by the data dictionary, in days."""
    dates = _parse_dates(column) if column.dtype == pl.String else column
    wrong = dates.is_null() if dates.dtype.is_temporal() or column.null_count() == len(column) else ~column.is_null()
    _refuse(column, column.is_not_null() & wrong, "a date, such as 2026-01-31 or 31.1.2026,")
    days = _count_days(dates)
    if entry.range:
        low, high = (FIRST_DAY + datetime.timedelta(limit) for limit in entry.range)
        outside = (days < entry.range[0]) | (days >= entry.range[1] + 1)
        _refuse(column, outside.fill_null(False), f"a date from {low} to {high}, by the data dictionary,")
    return days


def _count_days(column: pl.Series) -> pl.Series:
    """Convert dates to days since 1970, and durations to days."""
    if column.dtype == pl.String or not column.dtype.is_temporal():
        column = _parse_dates(column.cast(pl.String))
    if column.dtype != pl.Duration:
        column = column.cast(pl.Datetime("us")) - datetime.datetime.combine(FIRST_DAY, datetime.time())
    return (column.dt.total_seconds(fractional=True) / 86400).alias(column.name)


def _refuse(column: pl.Series, wrong: pl.Series, wanted: str, more: str = "", *, declared: bool = True) -> None:
    """Refuse a column with a cell that is not what the column holds, by a data dictionary if it is declared in one."""
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        kind = "text, " if column.dtype in TEXT else "" if column.dtype.is_numeric() else f"{column.dtype}, "
        remedy = "leave cells empty that are missing, remove the column, or name it 'id' if it says whose a row is"
        if declared:
            remedy = "leave it empty or list its code under 'missing' if it is missing, or correct the data dictionary"
        raise ValueError(
            f"column {column.name!r} holds {kind}{str(column[row])[:60]!r} in row {row + 1}, where {wanted} is "
            f"expected{more}. Correct the cell, {remedy}."
        )
