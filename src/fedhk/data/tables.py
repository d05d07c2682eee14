"""Reads a file as tables of numbers, one for each view in it.

Text, categories and dates become numbers as in data frames (`fedhk.data.levels`), or as a data dictionary says.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fedhk._text import listed
from fedhk._typing import FloatArray
from fedhk.data.dictionary import ColumnEntry, Kind, infer_entries, read_columns
from fedhk.data.doubts import doubt_dates
from fedhk.data.file_columns import ReadColumn, read_column
from fedhk.data.file_doubts import find_count_doubts, find_id_doubts, find_text_doubts
from fedhk.data.large import CHUNK_BYTES, LARGE_BYTES, empty_table
from fedhk.data.levels import ID, NAMED_LIKE_IDS, base_name, common_columns
from fedhk.data.views import row_blocks
from fedhk.errors import DataError

__all__ = [
    "ID",
    "READERS",
    "Table",
    "file_content",
    "file_ending",
    "file_error",
    "listed",
    "read_cells",
    "read_tables",
    "shape_text",
]

# What separates the cells of a text file; where it is no comma, a comma may be the decimal sign.
SEPARATORS = (",", ";", "\t", "|")

# What polars says of a line that has more cells than there are names.
MORE_CELLS = "found more fields than defined"

Entries = Mapping[str, ColumnEntry]
"""What a data dictionary says of the columns of one view."""


@dataclass(frozen=True, eq=False)
class Table:
    """One view of one site, as its file has it."""

    view: str
    values: FloatArray  # a table, or a tensor; float32 if every column is, else float64; NaN is a missing cell
    ids: NDArray[Any] | None  # whose the rows are, int64 or str, each once
    columns: tuple[str, ...] | None  # the names of the features, where the file has names
    source: Path  # the file, in a folder that has the name of the site
    inferred: tuple[str, ...] = ()  # names of categorical columns whose levels were read off the rows
    doubts: tuple[str, ...] = ()  # what may be read otherwise than it was meant, a sentence each
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # of the columns of a file that has names

    def difference(self, columns: Sequence[str] | None, shape: tuple[int, ...] | None) -> str:
        """Describe how the columns differ from those wanted, whatever their order; empty if they do not.

        A tensor must have the `shape` of a row that is wanted, unless one of the two is flat.
        """
        if self.columns is not None and columns is not None:
            if common_columns([columns, self.columns]) is not None:
                return ""
            found, wanted = set(map(base_name, self.columns)), set(map(base_name, columns))
            lacking = sorted(wanted - found, key=list(map(base_name, columns)).index)
            extra = sorted(found - wanted, key=list(map(base_name, self.columns)).index)
            parts = [f"lacks {listed(lacking)}"] if lacking else []
            return " and ".join(parts + ([f"has extra {listed(extra)}"] if extra else []))
        own = self.values.shape[1:]
        if columns is not None:
            needed = f"{len(columns)} named columns" if len(own) > 1 else str(len(columns))
            return "" if own == (len(columns),) else f"has {shape_text(own)} instead of {needed}"
        if shape in (None, own) or (min(len(own), len(shape)) == 1 and math.prod(own) == math.prod(shape)):
            return ""
        return f"has {shape_text(own)} instead of {shape_text(shape)}"


def file_ending(path: Path) -> str:
    """Return the ending of a file's name, by which it is read; ".csv.gz" too."""
    endings = [suffix.lower() for suffix in path.suffixes[-2:]]
    return "".join(endings) if endings[-1:] == [".gz"] else "".join(endings[-1:])


def _view_name(path: Path) -> str:
    """Return the name of a file's view: the name of the file without its ending."""
    return path.name[: len(path.name) - len(file_ending(path))]


def read_tables(path: Path, entries: Mapping[str, Entries] | None = None, id_name: str = ID) -> list[Table]:
    """Read a file: one view, or as many as an h5mu file has modalities. Errors name site, file and fault.

    `entries` are those of a data dictionary, by view; what a file holds must be what they say. `id_name` is the column
    that says whose a row is.
    """
    known = None if entries is None else entries.get(_view_name(path))
    if entries is not None and known is None and file_ending(path) != ".h5mu":
        raise file_error(path, f"is no view of the data dictionary, which has {listed(entries)}.")
    with _explained(path):
        return READERS[file_ending(path)](path, known, id_name)


def read_cells(path: Path) -> tuple[pl.DataFrame, str, tuple[str, ...]]:
    """Read a file with named columns as it is: the cells, those of text files as text, their separator, and doubts.

    The separator is a tab for Excel files, whose text may have decimal commas.
    """
    ending = file_ending(path)
    with _explained(path):
        if ending in (".csv", ".csv.gz", ".tsv"):
            cells, separator, doubts = _read_text(path)
            return cells, separator, tuple(doubts)
        doubts = _find_sheets(path) if ending == ".xlsx" else []
        readers: dict[str, Any] = {".xlsx": pl.read_excel, ".parquet": pl.read_parquet, ".feather": pl.read_ipc}
        with path.open("rb") as file:  # a path would be read as a pattern, a folder or an address
            return readers[ending](file), "\t", tuple(doubts)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say in plain words why a file cannot be read."""
    try:
        yield
    except DataError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # whatever a parser makes of damaged bytes
        if "allow_pickle" in str(error):
            raise file_error(path, "holds Python objects, which are never loaded; save an array of numbers.") from error
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        if MORE_CELLS in cause:
            raise file_error(
                path,
                "cannot be read: a line has more cells than the first one, which must have the names of the columns. "
                "Remove titles and notes above the names.",
            ) from error
        raise file_error(path, f"cannot be read; is it damaged or half-written? ({cause})") from error


def file_error(path: Path, fault: str) -> DataError:
    """Make the error for a site's file."""
    return DataError(f"site {path.parent.name!r}, file {path.name!r}: {fault}")


def shape_text(shape: tuple[int, ...]) -> str:
    """Write the shape of rows, for messages."""
    return f"{shape[0]} columns" if len(shape) == 1 else f"shape (n, {', '.join(map(str, shape))})"


def _read_parquet(path: Path, entries: Entries | None, id_name: str) -> list[Table]:
    scan = partial(pl.scan_parquet, glob=False, hive_partitioning=False)
    return [_typed_table(path, entries, id_name, pl.read_parquet, scan)]


def _read_feather(path: Path, entries: Entries | None, id_name: str) -> list[Table]:
    scan = partial(pl.scan_ipc, glob=False, hive_partitioning=False)
    return [_typed_table(path, entries, id_name, pl.read_ipc, scan)]


def _read_excel(path: Path, entries: Entries | None, id_name: str) -> list[Table]:
    more = _find_sheets(path)
    table = _typed_table(path, entries, id_name, pl.read_excel)
    return [replace(table, doubts=(*more, *table.doubts))]


def _find_sheets(path: Path) -> list[str]:
    """Say so if an Excel file has several sheets; refuse if none can be read."""
    if importlib.util.find_spec("fastexcel") is None:
        raise file_error(path, "reading Excel needs an extra package: pip install 'fedhk[excel]'")
    sheets = importlib.import_module("fastexcel").read_excel(path.read_bytes()).sheet_names
    return [f"file {path.name!r} has the sheets {listed(sheets)}: only the first is read."] * (len(sheets) > 1)


def _typed_table(
    path: Path,
    entries: Entries | None,
    id_name: str,
    read: Callable[[Any], pl.DataFrame],
    scan: Callable[[Path], pl.LazyFrame] | None = None,
) -> Table:
    """Read the table of a file with typed columns: whole, or by `scan` in pieces if it is large."""
    if scan is not None:
        lazy = _named_ids(scan(path.resolve()), id_name, path)
        if lazy.select(pl.len()).collect().item() * len(lazy.collect_schema()) * 8 > LARGE_BYTES:
            return _frame_table(lazy, path, entries, ",")
    with path.open("rb") as file:  # a path would be read as a pattern, a folder or an address
        lazy = _named_ids(read(file).lazy(), id_name, path)
    return _frame_table(lazy, path, entries, "," if scan is not None else "\t")  # text of Excel has decimal commas


def _named_ids(lazy: pl.LazyFrame, id_name: str, path: Path) -> pl.LazyFrame:
    """Remove spaces around the names of columns, and give the column of ids its usual name."""
    written = lazy.collect_schema().names()
    names = [name.strip() for name in written]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise file_error(path, f"columns {listed(repeated)} appear more than once; names must differ.")
    lazy = lazy if names == written else lazy.rename(dict(zip(written, names, strict=True)))
    if id_name == ID:
        return lazy
    if id_name not in names or ID in names:
        fault = f"has a column {ID!r} beside it" if id_name in names else f"its columns are {listed(names)}"
        raise file_error(
            path, f"{id_name!r} was said to be the column of ids, but {fault}. Say which it is (--id NAME)."
        )
    return lazy.rename({id_name: ID})


def _read_csv(path: Path, entries: Entries | None, id_name: str) -> list[Table]:
    if path.suffix.lower() != ".gz" and path.stat().st_size > LARGE_BYTES:
        return [_read_large_csv(path, entries, id_name)]
    data, separator, doubts = _read_text(path)
    table = _frame_table(_number_ids(_named_ids(data.lazy(), id_name, path)), path, entries, separator)
    return [replace(table, doubts=(*doubts, *table.doubts))]


def _read_text(path: Path) -> tuple[pl.DataFrame, str, list[str]]:
    """Read the cells of a text file as text; return them with what separates them, and doubts."""
    content = path.read_bytes()
    if path.suffix.lower() == ".gz":
        content = gzip.decompress(content)
    doubts = []
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\x00" in content:  # of UTF-16, or no text at all
            raise
        content = content.decode("latin-1").encode()
        doubts.append(f"file {path.name!r} is not UTF-8 text and is read as Latin-1: look at its letters.")
    separator, width = _read_header(content.split(b"\n", 1)[0], path)
    if width > 1:
        content = content.rstrip(b"\r\n")  # an empty line at the end is no row
        _refuse_short_lines([content], width, separator, path)
    # text: to guess types from every row takes four times as long
    return pl.read_csv(content, infer_schema=False, separator=separator), separator, doubts


def _read_large_csv(path: Path, entries: Entries | None, id_name: str) -> Table:
    """Read the table of a large text file, by way of a temporary columnar file."""
    with path.open("rb") as file:
        separator, width = _read_header(file.readline(), path)
        file.seek(0)
        if width > 1:
            _refuse_short_lines(_pieces_of_lines(file), width, separator, path)
    with tempfile.TemporaryDirectory(prefix="fedhk-") as folder:
        whole = Path(folder) / "table.parquet"
        pl.scan_csv(path.resolve(), infer_schema=False, separator=separator, glob=False).sink_parquet(whole)
        lazy = _number_ids(_named_ids(pl.scan_parquet(whole, glob=False, hive_partitioning=False), id_name, path))
        return _frame_table(lazy, path, entries, separator)


def _read_header(line: bytes, path: Path) -> tuple[str, int]:
    """Read the separator and the number of columns of a text file from its first line."""
    first = line.decode("utf-8-sig").rstrip("\r\n")
    separator = max(SEPARATORS, key=first.count)
    header = next(csv.reader([first], delimiter=separator), [])
    repeated = [name for name, count in Counter(header).items() if count > 1]
    if repeated:
        raise file_error(path, f"columns {listed(repeated)} appear more than once; names must differ.")
    return separator, len(header)


def _number_ids(lazy: pl.LazyFrame) -> pl.LazyFrame:
    """Convert ids to numbers if all of them are; "007" stays text."""
    if ID not in lazy.collect_schema():
        return lazy
    ids = _column(lazy, ID)
    numbers = ids.cast(pl.Int64, strict=False)
    are_numbers = len(ids) and (numbers.cast(pl.String) == ids).fill_null(False).all()
    return lazy.with_columns(pl.col(ID).cast(pl.Int64)) if are_numbers else lazy


def _pieces_of_lines(file: BinaryIO) -> Iterator[bytes]:
    """Iterate over blocks of whole lines of a file; cells in quotes may contain line breaks."""
    left = b""
    while more := file.read(CHUNK_BYTES):
        left += more
        end = left.rfind(b"\n")
        if end >= 0 and left.count(b'"', 0, end) % 2 == 0:
            yield left[:end]
            left = left[end + 1 :]
    if left.rstrip(b"\r\n"):
        yield left.rstrip(b"\r\n")


def _refuse_short_lines(pieces: Iterable[bytes], width: int, separator: str, path: Path) -> None:
    """Refuse a file with a line that has too few cells."""
    before = 0
    for piece in pieces:
        if short := _short_line(piece, width, separator):
            fault = f"line {before + short} has fewer than {width} cells; is it damaged or half-written?"
            raise file_error(path, fault)
        before += piece.count(b"\n") + 1


def _short_line(content: bytes, n_columns: int, separator: str) -> int | None:
    """Find the first line with too few cells, which polars would read as missing ones."""
    if b'"' in content:
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=separator)
        return next((rows.line_num for row in rows if len(row) < n_columns), None)
    mark = separator.encode()
    if content.count(mark) >= (n_columns - 1) * (content.count(b"\n") + 1):
        return None
    return next((i for i, line in enumerate(content.split(b"\n"), 1) if line.count(mark) < n_columns - 1), None)


def _read_npy(path: Path, entries: Entries | None, id_name: str) -> list[Table]:  # noqa: ARG001 - it has no names
    if path.stat().st_size > LARGE_BYTES:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    else:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    return [Table(_view_name(path), _check_numbers(array, path), None, None, path)]


def _read_npz(path: Path, entries: Entries | None, id_name: str) -> list[Table]:  # noqa: ARG001 - it has numbers only
    with path.open("rb") as archive, np.lib.npyio.NpzFile(archive, allow_pickle=False) as file:
        names = [name for name in file.files if name not in (ID, "columns")]
        if {"indices", "indptr", "format"} <= set(names):
            raise file_error(path, "holds a SciPy sparse matrix; save it as a dense array named 'data'.")
        if "data" not in names and len(names) != 1:
            raise file_error(path, f"holds arrays {listed(names)}; one array, or one named 'data', is needed.")
        name = "data" if "data" in names else names[0]
        values = _check_numbers(np.asarray(file[name]), path)
        ids = np.asarray(file[ID]) if ID in file.files else None
        columns = file["columns"] if "columns" in file.files else None
    if columns is not None and values.ndim > 2:
        raise file_error(path, f"has 'columns', but its values of shape {values.shape} are a tensor: leave them out.")
    if columns is not None and (columns.dtype.kind != "U" or columns.shape != values.shape[1:]):
        raise file_error(path, f"its 'columns' must be {values.shape[1]} names, found {columns.shape} {columns.dtype}.")
    if ids is not None and (ids.ndim != 1 or len(ids) != len(values)):
        raise file_error(path, f"its 'id' has shape {ids.shape}, but there are {len(values)} rows.")
    checked = None if ids is None else _check_ids(pl.Series(ids), path)
    return [Table(_view_name(path), values, checked, None if columns is None else tuple(columns.tolist()), path)]


def _read_h5mu(path: Path, entries: Entries | None, id_name: str) -> list[Table]:  # noqa: ARG001 - it has numbers only
    try:
        mudata = importlib.import_module("mudata")
    except ImportError as error:
        raise file_error(path, "reading MuData needs an extra package: pip install 'fedhk[mudata]'") from error
    with mudata.set_options(pull_on_update=False):
        modalities = mudata.read_h5mu(path).mod
    if not modalities:
        raise file_error(path, "has no modality; at least one is needed.")
    return [
        Table(
            view=str(name),
            values=_check_numbers(
                part.X.toarray() if sp.issparse(part.X) else np.asarray(part.X), path, f"view {name!r} "
            ),
            ids=_check_ids(pl.Series(part.obs_names.to_list(), dtype=pl.String), path),
            columns=tuple(str(column) for column in part.var_names),
            source=path,
        )
        for name, part in modalities.items()
    ]


READERS: dict[str, Callable[[Path, Entries | None, str], list[Table]]] = {
    ".parquet": _read_parquet,
    ".feather": _read_feather,
    ".xlsx": _read_excel,
    ".csv": _read_csv,
    ".csv.gz": _read_csv,
    ".tsv": _read_csv,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".h5mu": _read_h5mu,
}
"""What reads a file, by the end of its name."""


def _check_numbers(array: NDArray[Any], path: Path, what: str = "") -> FloatArray:
    """Check an array of numbers as a table or tensor; float32 stays, else float64."""
    if array.dtype.kind not in "biuf":
        raise file_error(path, f"{what}has dtype {array.dtype}; a view holds real numbers.")
    if array.ndim < 2:
        hint = " A single feature is array.reshape(-1, 1)." if array.ndim == 1 else ""
        raise file_error(path, f"{what}has shape {array.shape}; a view is (rows, columns), or has more axes.{hint}")
    if 0 in array.shape[1:]:
        raise file_error(path, f"{what}has no columns; at least one is needed.")
    return np.ascontiguousarray(array, dtype=np.float32 if array.dtype == np.float32 else np.float64)


def _frame_table(lazy: pl.LazyFrame, path: Path, entries: Entries | None, separator: str) -> Table:
    """Make the table of a data frame; with another `separator` than a comma, text may have decimal commas.

    A large one is read in pieces: first each column of text alone, which says what it is, then some rows at a time.
    """
    schema = lazy.collect_schema()
    names = _check_names(schema.names(), path, entries)
    ids = _check_ids(_column(lazy, ID), path) if ID in schema else None
    known: dict[str, ColumnEntry | None] = {name: None if entries is None else entries[name] for name in names}
    height = int(lazy.select(pl.len()).collect().item())
    size = height if 8 * height * len(names) <= LARGE_BYTES else max(1, CHUNK_BYTES // (8 * len(names)))
    kinds: dict[str, Kind] = {}
    if size < height and entries is None:
        for name in [name for name in names if not schema[name].is_numeric()]:
            read = _read_column(lazy, _column(lazy, name), separator, None, path)
            kinds[name] = read.kind
            columns = read.values.columns if isinstance(read.values, pl.DataFrame) else [read.values.name]
            known |= infer_entries(columns, kinds)
    values, columns, doubts = np.zeros((0, 0)), [], []
    for start in range(0, max(height, 1), max(size, 1)):
        piece = lazy.select(names).slice(start, size).collect()
        plain = _plain_numbers(piece, known)
        found = [plain.get(name) or _read_column(lazy, piece[name], separator, known[name], path) for name in names]
        parts = [read.values for read in found]
        kinds = {name: read.kind for name, read in zip(names, found, strict=True)} | kinds
        single = all(isinstance(part, pl.Series) and part.dtype == pl.Float32 for part in parts)
        joined = pl.concat(
            [pl.DataFrame([part]) if isinstance(part, pl.Series) else part for part in parts], how="horizontal"
        ).cast(pl.Float32 if single else pl.Float64)
        if not start:
            columns = joined.columns
            looked_at = _few_decimals(joined) | (set(names) - plain.keys())
            text = piece.select([name for name in names if name in looked_at])
            categories = [name for name in text.columns if kinds[name] == "category" and schema[name] == pl.String]
            doubts = find_text_doubts(text, separator, categories, is_declared=entries is not None)
            values = empty_table((height, len(columns)), np.float32 if single else np.float64)
        values[start : start + size] = joined.to_numpy()
    if ids is None and (named := next((name for name in names if _says_whose(lazy, name)), None)) is not None:
        raise file_error(
            path,
            f"column {named!r} looks like an identifier of rows: its values are whole numbers, all different. "
            f"Name it {ID!r}, so that rows are matched by it, or say so (--id {named}); if it is a feature, give it "
            "another name.",
        )
    inferred = [name for name, kind in kinds.items() if kind == "category" and entries is None]
    dates = [name for name, kind in kinds.items() if kind == "date" and entries is None]
    if dates:
        doubts.append(doubt_dates(dates))
    doubts += find_id_doubts(ids) if ids is not None else find_count_doubts(values, columns)
    doubts = [f"view {_view_name(path)!r}: {doubt}" for doubt in doubts]
    return Table(_view_name(path), values, ids, tuple(columns), path, tuple(inferred), tuple(doubts), kinds)


def _check_names(columns: Sequence[str], path: Path, entries: Entries | None) -> list[str]:
    """Check the names of the features, and return them in the order of the data dictionary, if any."""
    names = [name for name in columns if name != ID]
    for name in names:
        if name.strip().lower() in ("", ID) or name.startswith("__index_level_"):  # as pandas and R write row names
            fault = f"column {name!r}: name it {ID!r} if it says whose a row is, else rename or remove it."
            raise file_error(path, fault)
    if not names:
        raise file_error(path, f"has no columns beside {ID!r}; at least one is needed.")
    if entries is None:
        return names
    wanted = list(read_columns(entries))
    if lacking := [name for name in wanted if name not in names]:
        raise file_error(path, f"lacks the columns {listed(lacking)} of the data dictionary.")
    if extra := [name for name in names if name not in entries]:
        remedy = 'add them to it, with kind = "skip" if they are not to be clustered'
        raise file_error(path, f"has the columns {listed(extra)}, which the data dictionary does not have: {remedy}.")
    return wanted


def _column(lazy: pl.LazyFrame, name: str) -> pl.Series:
    return lazy.select(name).collect()[name]


def _read_column(
    lazy: pl.LazyFrame, column: pl.Series, separator: str, entry: ColumnEntry | None, path: Path
) -> ReadColumn:
    """Read a column, or some rows of it; what is refused is named with its row in the whole column."""
    try:
        return read_column(column, separator, entry)
    except ValueError as error:
        fault = str(error)
    try:
        read_column(_column(lazy, column.name), separator, entry)
    except ValueError as error:
        fault = str(error)
    raise file_error(path, fault)


def _plain_numbers(piece: pl.DataFrame, known: Mapping[str, ColumnEntry | None]) -> dict[str, ReadColumn]:
    """Read all columns at once in which every cell is a number or empty, and that no dictionary describes.

    Most columns are such; a table may have tens of thousands of them.
    """
    usual, schema = (None, ColumnEntry()), piece.schema
    names = [name for name, entry in known.items() if entry in usual and schema[name] in (pl.String, pl.Float64)]
    numbers = piece.select(pl.col(names).cast(pl.Float64, strict=False))
    before, after = piece.select(names).null_count(), numbers.null_count()
    parts = zip(numbers.get_columns(), before.row(0), after.row(0), strict=True)
    return {column.name: ReadColumn(column, "number") for column, own, lost in parts if own == lost}


def _few_decimals(numbers: pl.DataFrame) -> set[str]:
    """List the columns whose numbers all have at most three decimals; only these may have marks or be codes."""
    cells = numbers.to_numpy()
    few = np.ones(numbers.width, bool)
    for rows in row_blocks(len(cells), 8 * numbers.width):
        with np.errstate(invalid="ignore", over="ignore"):
            thousandths = 1000.0 * cells[rows]
            wrong = np.abs(thousandths - np.round(thousandths)) > 1e-6 * np.maximum(np.abs(thousandths), 1.0)
        few &= ~wrong.any(axis=0)
    return {name for name, has_few in zip(numbers.columns, few.tolist(), strict=True) if has_few}


def _says_whose(lazy: pl.LazyFrame, name: str) -> bool:
    """Tell whether a column looks like ids: by its name, and with a different value in every row."""
    if not NAMED_LIKE_IDS.search(name):
        return False
    column = _column(lazy, name)
    if column.dtype == pl.String:
        column = column.cast(pl.Float64, strict=False)
    if len(column) < 2 or column.null_count() or not column.dtype.is_numeric():
        return False
    return bool(column.is_unique().all() and (column == column.round()).all())


def _check_ids(column: pl.Series, path: Path) -> NDArray[Any]:
    """Check ids: int64 or str, one for every row, each once."""
    if column.null_count():
        row = int(column.is_null().arg_max() or 0)
        raise file_error(path, f"row {row + 1} has no {ID}; every row needs one ({column.null_count()} have none).")
    if column.dtype.is_integer():
        ids = column.cast(pl.Int64).to_numpy(writable=True)
    elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
        ids = np.array(column.cast(pl.String).to_list(), dtype=np.str_)
    else:
        raise file_error(path, f"column {ID!r} has type {column.dtype}; ids are whole numbers or text.")
    if column.is_duplicated().any():
        several = column.filter(column.is_duplicated()).unique(maintain_order=True).to_list()
        raise file_error(path, f"duplicate ids {listed(several)}; a row's id appears once in a view.")
    return ids


def file_content(path: Path, view: ArrayLike, ids: ArrayLike | None, columns: Sequence[str] | None) -> bytes:
    """Write the content of a parquet, csv, npy or npz file, by its name; refuse what could not be read again."""
    values = _check_numbers(np.asarray(view), path)
    owners = None if ids is None else _check_ids(pl.Series(ID, np.asarray(ids)), path)
    if values.ndim > 2 and (columns is not None or path.suffix not in (".npy", ".npz")):
        raise file_error(path, f"has shape {values.shape}; a tensor is an npy or npz file, without columns.")
    names = [f"{path.stem}_{j}" for j in range(values.shape[1])] if columns is None else list(columns)
    if len(names) != values.shape[1] or len(set(names)) != len(names) or ID in names:
        fault = f"columns must be {values.shape[1]} different names other than {ID!r}, got {listed(names)}."
        raise file_error(path, fault)
    if owners is not None and len(owners) != len(values):
        raise file_error(path, f"has {len(values)} rows, but there are {len(owners)} ids.")
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        np.save(buffer, values, allow_pickle=False)
    elif path.suffix == ".npz":
        arrays: dict[str, Any] = {"data": values, ID: owners, "columns": None if columns is None else np.array(names)}
        np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
    else:
        data = pl.DataFrame(values, schema=names, orient="row")
        data = data if owners is None else data.insert_column(0, pl.Series(ID, owners))
        (data.write_csv if path.suffix == ".csv" else data.write_parquet)(buffer)
    return buffer.getvalue()
