"""Columns of a data frame as numbers: categories become one column of zeros and ones for each of their levels.

A categorical column "sex" with the levels F and M becomes the columns "sex = F" and "sex = M". A centre then says which
share of its rows has each level. A missing cell is missing in all of them. What belongs together is known by the names
alone, so that whatever keeps the names of columns (messages, model files, pages) keeps the categories too.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeGuard

import numpy as np

from fedhk._text import listed
from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.large import empty_table

# Between the name of a categorical column and one of its levels.
MARK = " = "

# More levels than this are no categories that anybody can read; a column with a different text in most rows names rows.
MOST_LEVELS = 1000

DAY = np.timedelta64(1, "D")

# The column of a file, or the array in an npz file, that says which row is whose.
ID = "id"

# Names of columns that identify rows.
NAMED_LIKE_IDS = re.compile(r"(^id|[_\W]id|Id|ID|^(mrn|uid|uuid|pid|subject|patient))$")

# A time of the day, as clocks show it.
TIME = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?( ?[ap]\.?m\.?)?", re.IGNORECASE)

# A month with its year, and a date with the name of a month, such as 2026-01, 5 Jan 2026 or Jan-26.
MONTH = re.compile(
    r"(19|20)\d\d[-/.](0[1-9]|1[0-2])"
    r"|(\d{1,2}[ .-]*)?(jan|feb|mar|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*[ .,-]+(\d{1,2}, ?)?(\d\d){1,2}",
    re.IGNORECASE,
)

# Numbers as people write them for people: with marks between thousands, decimal commas, per cent or a currency.
WRITTEN_NUMBER = r"^[+-]?[$€£]?\s?\d[\d., '\u00a0\u202f]*\s?[%‰$€£]?$"

# Two numbers in a cell, such as a blood pressure.
PAIR = re.compile(r"\d{1,4}\s*/\s*\d{1,4}")


# Where so many times as many pairs of cells as there may be levels all differ, the column is no category: by chance
# they would in fewer than exp(-7), 1 of 1,000 tables, even with that many levels that are equally frequent.
SURE_PAIRS = 7


class UnreadableColumnsError(ValueError):
    """Columns of one or several tables cannot be clustered as they are; all of them are named."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(faults)
        self.faults = tuple(faults)

    def __str__(self) -> str:
        return name_faults(self.faults)


def name_faults(faults: Sequence[str]) -> str:
    """Write what is wrong with columns: one sentence, or a list of them."""
    first = f"{len(faults)} columns cannot be used as they are:"
    return faults[0] if len(faults) == 1 else "\n- ".join([first, *faults])


@dataclass(frozen=True, eq=False)
class Encoded:
    """A data frame as numbers: what `check_views` takes, without a copy."""

    values: FloatArray
    columns: tuple[str, ...]
    inferred: tuple[str, ...] = ()  # names of categorical columns whose levels were read off the rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.values.shape

    def to_numpy(self) -> FloatArray:
        """The array."""
        return self.values


def base_name(column: str) -> str:
    """The name of the column that a level belongs to; that of any other column is its own."""
    return column.split(MARK, 1)[0]


def level_name(column: str) -> str:
    """The level that a column is of."""
    return column.split(MARK, 1)[1]


def ordered_name(column: str, levels: Sequence[str]) -> str:
    """The name of a column of ranks; the order is in it, so that sites with other levels are told apart."""
    return f"{column} ({' < '.join(levels)})"


def ordered_levels(column: str) -> tuple[str, tuple[str, ...]]:
    """The name and the levels of a column of ranks; of any other column its name and nothing."""
    name, _, order = column.removesuffix(")").partition(" (")
    levels = tuple(order.split(" < "))
    return (name, levels) if len(levels) > 1 and column == ordered_name(name, levels) else (column, ())


def is_level(column: Any) -> TypeGuard[str]:
    """Whether a column says which rows have one level of a category."""
    return isinstance(column, str) and MARK in column


def level_groups(columns: Sequence[Any] | None) -> list[IntArray]:
    """The places of the levels of each categorical column; none where columns have no names or are all numbers."""
    groups: dict[str, list[int]] = {}
    for place, column in enumerate(columns or ()):
        if is_level(column):
            groups.setdefault(base_name(column), []).append(place)
    return [np.array(places) for places in groups.values()]


def first_places(columns: Sequence[Any] | None, width: int) -> list[int]:
    """The place of the first level of each categorical column, and of all other columns: of a view, one per column."""
    names = range(width) if columns is None else map(base_name, columns)
    places: dict[Any, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return list(places.values())


def find_numbers(columns: Sequence[Any] | None, width: int) -> BoolArray:
    """Which of so many columns are no levels of a category."""
    numbers = np.ones(width, bool)
    for places in level_groups(columns):
        numbers[places] = False
    return numbers


def find_joint_numbers(columns: Sequence[Sequence[Any] | None], widths: Sequence[int]) -> BoolArray:
    """Which features of all views side by side are no levels of categories; all, where there are levels only."""
    numbers = np.concatenate([find_numbers(names, width) for names, width in zip(columns, widths, strict=True)])
    return numbers if numbers.any() else np.ones_like(numbers)


def is_frame(table: Any) -> bool:
    """Whether a table is a data frame with named columns (pandas, polars)."""
    return hasattr(table, "columns") and hasattr(table, "dtypes") and hasattr(table, "__getitem__")


def needs_encoding(table: Any) -> bool:
    """Whether a table is a data frame with columns that are not plain numbers."""
    return is_frame(table) and not all(isinstance(dtype, np.dtype) and dtype.kind in "fiub" for dtype in table.dtypes)


def encode_frame(table: Any, view: str, known: Sequence[Any] | None = None) -> Any:
    """The data frame as numbers; one that has nothing but numbers comes back as it is.

    `known` are the columns of a model, where there is one: what has levels there is categories here too.

    Errors (ValueError) name the view, each column that is wrong, a value with its row, and what to do.
    """
    if hasattr(table, "column_names") and hasattr(table, "to_pandas"):  # pyarrow
        table = table.to_pandas()
    ids = _find_ids(table, view) if is_frame(table) and known is None else {}
    if not needs_encoding(table):
        if ids:
            raise UnreadableColumnsError(list(ids.values()))
        return table
    names = list(map(str, table.columns))
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"View {view!r}: columns {repeated[:5]} appear more than once; names must differ.")
    categories = _known_levels(known or ())
    codes = {name for name, levels in categories.items() if all(map(is_number, levels))}
    orders = dict(ordered_levels(str(column)) for column in known or ())
    blocks, columns, inferred, faults = [], [], [], list(ids.values())
    for name, label in zip(names, table.columns, strict=True):
        series = table[label]
        try:
            how = {"is_category": name in categories, "has_codes": name in codes}
            order = orders.get(name, ())
            ranked = _rank_words(series, order, name, view) if order and _has_words(series) else None
            values, own = ranked or _encode_column(series, name, view, **how)
        except ValueError as error:
            faults.append(str(error))
            continue
        blocks.append(values)
        columns += own
        if is_level(own[0]) and not hasattr(getattr(series.dtype, "categories", None), "__len__"):
            inferred.append(name)
    if faults:
        raise UnreadableColumnsError(faults)
    return Encoded(np.hstack(blocks), tuple(columns), tuple(inferred))


def _known_levels(columns: Iterable[Any]) -> dict[str, list[str]]:
    """Return the levels of each category among the columns of a model."""
    categories: dict[str, list[str]] = {}
    for column in filter(is_level, columns):
        categories.setdefault(base_name(column), []).append(level_name(column))
    return categories


def find_faults(table: Any, view: str) -> list[str]:
    """List the columns of a data frame that no rows of it could be clustered by, a sentence each.

    Other columns may be refused only where a model is fitted: text that few new rows share may be levels that a model
    knows.
    """
    found = _find_ids(table, view)
    for label, series in ((label, table[label]) for label in table.columns):
        values = read_cells(series)
        known = [value for value in values if value is not None]
        sure = len(known) * (len(known) - 1) > 2 * SURE_PAIRS * MOST_LEVELS
        if not sure:
            found.pop(str(label), None)
        if not hasattr(series.dtype, "categories") and any(isinstance(value, str) for value in known):
            texts = [text for value in known if (text := str(value).strip())]
            levels = sorted(set(texts))
            if 2 * sum(map(is_number, texts)) > len(texts):  # numbers, or levels that a model was told of
                continue
            try:
                check_form(levels, str(label))
                if sure and len(levels) == len(texts):
                    check_levels(levels, len(texts), str(label))
            except ValueError as error:
                found[str(label)] = f"View {view!r}, {error}"
    return list(found.values())


def _find_ids(table: Any, view: str) -> dict[str, str]:
    """Find columns that are named like a number of people or things and have a different one in every row."""
    found = {}
    for label in table.columns:
        if NAMED_LIKE_IDS.search(str(label)) and getattr(table[label], "ndim", 1) == 1:
            values = read_cells(table[label])
            whole = all(isinstance(value, Real) and float(value).is_integer() for value in values)
            if whole and 1 < len(values) == len(set(values)):
                found[str(label)] = (
                    f"View {view!r}, column {str(label)!r} looks like an identifier of rows: its values are whole "
                    "numbers, all different. Put it into the index; if it is a feature, give it another name."
                )
    return found


def date_columns(table: Any) -> list[str]:
    """Names of the columns that are dates, with or without a time of the day: of a data frame, or as a table says."""
    if not is_frame(table):
        return list(getattr(table, "dates", ()))
    types = zip(table.columns, table.dtypes, strict=True)
    return [str(name) for name, dtype in types if str(dtype).lower().startswith("date") or _holds_dates(table[name])]


def _holds_dates(series: Any) -> bool:
    """Tell whether the first value of a column of Python objects is a date."""
    if str(getattr(series, "dtype", "")) != "object":  # columns of numbers may share a name: these are a frame
        return False
    first = series.dropna().head(1).tolist()
    return bool(first) and isinstance(first[0], datetime.date)


def _encode_column(
    series: Any, name: str, view: str, *, is_category: bool, has_codes: bool
) -> tuple[FloatArray, list[str]]:
    """One column as an array of shape (n, 1), or (n, levels), and the names of these columns.

    What `is_category` in a model may be numbers here if its levels are (`has_codes`): `fit_columns` finds them.
    """
    dtype, text = series.dtype, str(series.dtype).lower()
    if getattr(dtype, "tz", None) is not None:
        series = series.dt.tz_convert(None)
    if text.startswith(("date", "time", "duration")):
        return _days(np.asarray(series.to_numpy()))[:, None], [name]
    values = read_cells(series)
    categories: Any = getattr(dtype, "categories", None)  # pandas' categorical and polars' enum
    if hasattr(categories, "__len__"):
        levels = [str(level) for level in categories]
        codes = {level: code for code, level in enumerate(levels)}
        places = [None if value is None else codes[str(value)] for value in values]
        if getattr(dtype, "ordered", False):
            ranks = np.array([np.nan if place is None else place for place in places], np.float64)
            return ranks[:, None], [ordered_name(name, levels)]
        return encode_levels([None if value is None else str(value) for value in values], levels, name)
    has_text = any(isinstance(value, str) for value in values)
    if has_text or (is_category and not has_codes):
        if not is_category:
            _refuse_text_among_numbers(values, series, name, view)
        return _encode_text(values, name, view, is_category=is_category)
    try:
        numbers = np.array([math.nan if value is None else float(value) for value in values], np.float64)
    except (TypeError, ValueError):
        if all(value is None or isinstance(value, datetime.date) for value in values):
            return _days(np.array(values, "datetime64[D]"))[:, None], [name]
        row = next(row for row, value in enumerate(values) if value is not None and not is_number(value))
        raise ValueError(
            f"View {view!r}, column {name!r} holds {type(values[row]).__name__}, {str(values[row])[:60]!r} in row "
            f"{name_row(series, row)}; a column holds numbers, truth values, text, categories or dates. "
            "Leave the column out, or make it one of these."
        ) from None
    return numbers[:, None], [name]


def _has_words(series: Any) -> bool:
    """Whether cells are text, in a column that has no order of its own."""
    own_order = getattr(series.dtype, "ordered", False)
    return not own_order and any(isinstance(value, str) for value in read_cells(series))


def _rank_words(series: Any, order: Sequence[str], name: str, view: str) -> tuple[FloatArray, list[str]]:
    """Text as ranks in the order of the levels that a model knows."""
    texts = ["" if value is None else str(value).strip() for value in read_cells(series)]
    wrong = [row for row, text in enumerate(texts) if text and text not in order]
    if wrong:
        raise ValueError(
            f"View {view!r}, column {name!r} has level {texts[wrong[0]][:60]!r} in row "
            f"{name_row(series, wrong[0])}, which the model does not know; its levels are {' < '.join(order)}."
        )
    ranks = np.array([order.index(text) if text else np.nan for text in texts], np.float64)
    return ranks[:, None], [ordered_name(name, order)]


def name_row(table: Any, row: int) -> str:
    """Name a row in messages: by the index of a pandas data frame or series, else by its number."""
    index: Any = getattr(table, "index", None)
    if not hasattr(index, "equals"):
        return str(row)
    label = index[row]
    return repr(label.item() if isinstance(label, np.generic) else label)


def _refuse_text_among_numbers(values: Sequence[Any], series: Any, name: str, view: str) -> None:
    """Refuse a column of which most cells are numbers, and some are text."""
    texts = ["" if value is None else str(value).strip() for value in values]
    wrong = [row for row, text in enumerate(texts) if text and not is_number(text)]
    cells = sum(map(bool, texts))
    if not wrong or 2 * len(wrong) >= cells:
        return
    are = f"{len(wrong)} of its {cells} cells {'is' if len(wrong) == 1 else 'are'} text"
    found = listed(dict.fromkeys(texts[row][:40] for row in wrong))
    raise ValueError(
        f"View {view!r}, column {name!r} holds numbers, but {are}: {found}; the first is in row "
        f"{name_row(series, wrong[0])}. Write a number there (for a value below a limit of detection, such as '<5', "
        "the limit or half of it), or leave the cell empty (pandas.to_numeric(column, errors='coerce') does that to "
        "all of them). If the column is a category, say so: column.astype('category')."
    )


def is_number(value: Any) -> bool:
    """Whether a cell can be read as a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def read_cells(series: Any) -> list[Any]:
    """The cells of a column, None where one is missing."""
    values = series.to_list() if hasattr(series, "to_list") else list(series)
    # pandas' own missing value compares with nothing, and NaN not even with itself
    return [None if value is None or type(value).__name__ == "NAType" or value != value else value for value in values]  # noqa: PLR0124


def _days(values: Any) -> FloatArray:
    """Dates as days since 1970, and durations as days; NaN where one is missing."""
    if values.dtype.kind == "M":
        values = values - np.datetime64(0, "D")
    if values.dtype.kind != "m":  # dates as Python objects
        values = np.array(values, "datetime64[us]") - np.datetime64(0, "D")
    return np.asarray(values / DAY, np.float64)


def _encode_text(values: list[Any], name: str, view: str, *, is_category: bool) -> tuple[FloatArray, list[str]]:
    """Text as categories, or as numbers where every cell is one."""
    texts = [None if value is None else str(value).strip() for value in values]
    texts = [text or None for text in texts]
    known = [text for text in texts if text is not None]
    levels = sorted(set(known))
    if not is_category:
        if all(map(is_number, levels)):
            return np.array([np.nan if text is None else float(text) for text in texts], np.float64)[:, None], [name]
        try:
            check_levels(levels, len(known), name)
        except ValueError as error:
            raise ValueError(f"View {view!r}, {error}") from None
    return encode_levels(texts, levels, name)


def encode_levels(texts: Sequence[str | None], levels: Sequence[str], name: str) -> tuple[FloatArray, list[str]]:
    """Zeros and ones of shape (n, levels), and the names of these columns; None is a missing cell.

    Without levels no cell has a value: that is one column of missing cells, as `common_columns` expects it.
    """
    if not levels:
        return np.full((len(texts), 1), np.nan), [name]
    codes = {level: code for code, level in enumerate(levels)}
    places = [None if text is None else codes[text] for text in texts]
    return _indicators(places, len(levels)), [f"{name}{MARK}{level}" for level in levels]


def check_levels(levels: Sequence[str], cells: int, name: str) -> None:
    """Refuse text that is no category: that has the form of something else, or of which most rows have their own."""
    check_form(levels, name)
    if len(levels) > 10 and 2 * len(levels) > cells and 2 * sum(len(text.split()) > 2 for text in levels) > len(levels):
        raise ValueError(
            f"column {name!r} holds text of several words, such as {levels[0][:40]!r}, nearly another one in every "
            "row. Leave the column out, or make a view of numbers of it, such as words counted by scikit-learn's "
            "TfidfVectorizer: the guide has a page on text."
        )
    if len(levels) > MOST_LEVELS or (len(levels) > 10 and 2 * len(levels) > cells):
        raise ValueError(
            f"column {name!r} holds text with {len(levels)} different values in {cells} cells, such as "
            f"{levels[0][:40]!r}: that names rows rather than groups of them. If it says whose a row is, say so "
            f"(on the command line --id {name}; of a pandas data frame frame.set_index({name!r}); of a polars one "
            "leave it out by views=). Else leave the column out, "
            f"or bring it to at most {MOST_LEVELS} levels that several rows share."
        )


def check_form(levels: Sequence[str], name: str) -> None:
    """Refuse text of which most has the form of a date, a time of the day, a number or two numbers."""
    dates = [level for level in levels if _is_date(level)]
    if 2 * len(dates) > len(levels):
        others = sorted(set(levels) - set(dates))
        beside = f", and {others[0]!r} beside them" if others else ""
        raise ValueError(
            f"column {name!r} holds dates as text, such as {dates[0]!r}{beside}. Make them dates (pandas.to_datetime; "
            "in a file as 2026-01-31), which count as days, or leave the column out."
        )
    times = [level for level in levels if TIME.fullmatch(level)]
    if 2 * len(times) > len(levels):
        raise ValueError(
            f"column {name!r} holds times of the day as text, such as {times[0]!r}. Make them numbers, such as hours "
            "(12.5), or leave the column out."
        )
    numbers = [level for level in levels if re.match(WRITTEN_NUMBER, level) and not is_number(level)]
    if 2 * len(numbers) > len(levels):
        raise ValueError(
            f"column {name!r} holds numbers as text, such as {numbers[0]!r}. Make them numbers such as 1234.5, or "
            "declare its levels."
        )
    pairs = [level for level in levels if PAIR.fullmatch(level)]
    if len(levels) > 2 and 2 * len(pairs) > len(levels):
        raise ValueError(
            f"column {name!r} holds two numbers in a cell, such as {pairs[0]!r}. Make two columns of it, or declare "
            "its levels."
        )


def _is_date(text: str) -> bool:
    """Whether a text is a date in one of the ways that people write dates."""
    if MONTH.fullmatch(text):
        return True
    parts = text.replace("/", "-").replace(".", "-").split("T")[0].split(" ")[0].split("-")
    return len(parts) == 3 and all(part.isdigit() for part in parts) and max(map(len, parts)) in (2, 4)


def _indicators(places: Sequence[int | None], n_levels: int) -> FloatArray:
    """Zeros and ones of shape (n, levels); a missing cell is NaN in all of them."""
    known = np.array([place is not None for place in places], bool)
    values = np.zeros((len(places), n_levels))
    values[known, [place for place in places if place is not None]] = 1.0
    values[~known] = np.nan
    return values


# ------------------------------------------------------------------------------------------ one set of columns for all


def common_columns(sites: Iterable[Sequence[str]]) -> tuple[str, ...] | None:
    """The columns of all sites in the order of the first: levels are the union; None where other names differ.

    A column without any value at a site has no levels there, and is one column of missing cells.
    """
    kinds: dict[str, set[str]] = {}
    first: list[str] = []
    expected: set[str] | None = None
    for columns in sites:
        names = list(dict.fromkeys(map(base_name, columns)))
        if expected is None:
            first, expected = names, set(names)
        if set(names) != expected:
            return None
        for column in columns:
            kinds.setdefault(base_name(column), set()).update([column] if is_level(column) else [])
    return tuple(column for name in first for column in (sorted(kinds[name]) or [name]))


def fit_columns(table: Any, columns: Sequence[str], wanted: Sequence[str], where: str, source: Any = None) -> Any:
    """A table with these columns as one with the columns that are wanted: in their order, with all their levels.

    `where` begins the ValueError for a level that is not wanted, and for a column that is a number on one side only;
    rows are named by the index of `source`, the data frame that the table was, where it has one.
    """
    place = {column: i for i, column in enumerate(columns)}
    own = level_groups(columns)
    observed = {base_name(columns[group[0]]): ~np.isnan(table[:, group[0]]) for group in own}
    codes = _find_codes(columns, wanted)
    dtype = table.dtype if table.dtype.kind == "f" else np.float64
    out = empty_table((table.shape[0], len(wanted)), dtype)
    out[...] = np.nan
    for i, column in enumerate(wanted):
        name = base_name(column)
        if column in place:
            out[:, i] = table[:, place[column]]
        elif is_level(column) and name in observed:
            out[observed[name], i] = 0.0
        elif is_level(column) and name in codes:
            cells = table[:, place[name]]
            out[:, i] = np.where(np.isnan(cells), np.nan, cells == codes[name][level_name(column)])
        elif not (name in place and np.isnan(table[:, place[name]]).all()):
            own_levels = [level_name(other) for other in columns if is_level(other) and base_name(other) == name]
            kinds = (f"categories ({listed(own_levels)})", "numbers") if own_levels else ("numbers", "categories")
            raise ValueError(
                f"{where}, column {name!r} holds {kinds[0]} here and {kinds[1]} elsewhere: make it one kind."
            )
    known = set(wanted)
    for column in columns:
        cells = table[:, place[column]]
        if is_level(column) and column not in known:
            strange = cells > 0
        elif column in codes:
            strange = ~np.isnan(cells) & ~np.isin(cells, list(codes[column].values()))
        else:
            continue
        if strange.any():
            row = int(np.argmax(strange))
            level = level_name(column) if is_level(column) else f"{cells[row]:g}"
            levels = [level_name(other) for other in wanted if base_name(other) == base_name(column)]
            raise ValueError(
                f"{where}, column {base_name(column)!r} has the unknown level {level!r} in row "
                f"{name_row(source, row)}; known are {levels[:8]}{' and more' if len(levels) > 8 else ''}."
            )
    return out


def _find_codes(columns: Sequence[str], wanted: Sequence[str]) -> dict[str, dict[str, float]]:
    """Find columns of numbers whose numbers are the levels of a category that is wanted, with the number of each."""
    levels = _known_levels(wanted)
    return {
        name: {level: float(level) for level in levels[name]}
        for name in columns
        if name in levels and all(map(is_number, levels[name]))
    }


def take_columns(table: Any, known: Sequence[Any]) -> tuple[Any, list[str]]:
    """Return the columns of a data frame that those of a model are of, and the names of the others.

    Where it lacks one it comes back as it is: what is missing is said by whoever compares the columns.
    """
    labels = {str(label): label for label in table.columns}
    wanted = source_columns(known, labels)
    if not set(wanted) <= labels.keys() or len(wanted) == len(labels):
        return table, []
    return table[[labels[name] for name in wanted]], [name for name in labels if name not in wanted]


def source_columns(columns: Sequence[Any], labels: Container[str]) -> list[str]:
    """Return the columns of a frame that those of a model are of: a category is one, unless its levels are columns."""
    names = (name if name in labels else ordered_levels(base_name(name))[0] for name in map(str, columns))
    return list(dict.fromkeys(names))
