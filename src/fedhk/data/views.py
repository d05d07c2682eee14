"""Views: one table of numbers per view, however it is stored; a tensor is a table of flattened rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp

from fedhk._text import is_printable, listed
from fedhk._typing import FloatArray, IntArray
from fedhk.data.levels import (
    UnreadableColumnsError,
    base_name,
    common_columns,
    date_columns,
    encode_frame,
    fit_columns,
    is_frame,
    name_row,
    take_columns,
)

# Sums of squares of larger numbers would leave float64.
LARGEST_VALUE = 1e140

# Rows are read in blocks of about this many bytes: large enough that one block is worth a call into BLAS, small
# enough that a block and what is computed from it stay in the processor's cache.
BLOCK_BYTES = 2**20

# What is known of a view's features: the names of its columns (a data frame), the shape of a row (a tensor) or nothing.
# No view has both, and both are used alike: they must be the same wherever both sides know them.
Columns: TypeAlias = tuple[str, ...] | tuple[int, ...] | None


@dataclass(frozen=True)
class Views:
    """The rows of one site: a table per view, all with the same rows in the same order."""

    tables: tuple[Any, ...]  # arrays or CSR matrices, tensors with flattened rows; None is a view that the site lacks
    names: tuple[str, ...]
    n_rows: int
    dtype: np.dtype[Any]  # float32 if every table is, else float64: the precision in which rows are worked on
    missing: tuple[bool, ...]  # whether a table has missing cells (NaN)
    columns: tuple[Columns, ...]
    inferred: tuple[str, ...] = ()  # "view/column" of categories whose levels were read off these rows
    dates: tuple[str, ...] = ()  # "view/column" of numbers that are days
    index: Any = None  # names of the rows, of a data frame that has some; None where rows are only counted

    @property
    def widths(self) -> tuple[int | None, ...]:
        """Number of features per view; None for an absent view."""
        return tuple(None if table is None else int(table.shape[1]) for table in self.tables)

    @property
    def shapes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Shape of a row per view, (d,) in a table; None for an absent view."""
        return tuple(
            None if width is None else row_shape(columns, width)
            for columns, width in zip(self.columns, self.widths, strict=True)
        )

    def with_view(self, name: str, columns: Columns, table: FloatArray) -> Views:
        """Return the views with one more."""
        return replace(
            self,
            tables=(*self.tables, table),
            names=(*self.names, name),
            missing=(*self.missing, bool(np.isnan(table).any())),
            columns=(*self.columns, columns),
        )


def row_blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Iterate over consecutive ranges of rows of about `BLOCK_BYTES` each; they depend on the shape only."""
    size = min(max(BLOCK_BYTES // max(row_bytes, 1), 64), 4096)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def is_tensor(columns: Columns) -> TypeGuard[tuple[int, ...]]:
    """Tell whether the columns of a view are the shape of a tensor's rows."""
    return columns is not None and len(columns) > 0 and isinstance(columns[0], int)


def row_shape(columns: Columns, width: int) -> tuple[int, ...]:
    """Return the shape of a row, which is (d,) in a table."""
    return columns if is_tensor(columns) else (width,)


def shapes_by_view(sites: Iterable[Views]) -> dict[str, tuple[int, ...]]:
    """Return the shape of a row of each view, in the order in which sites first name them; a tensor's if any."""
    shapes: dict[str, tuple[int, ...]] = {}
    for views in sites:
        for name, shape in zip(views.names, views.shapes, strict=True):
            shapes[name] = max(shapes.get(name, ()), shape or (), key=len)
    return shapes


def list_columns(sites: Iterable[Views]) -> dict[str, tuple[str, ...]]:
    """Return the names of the columns of each view, as the first site that has the view gives them."""
    listed: dict[str, tuple[str, ...]] = {}
    for views in sites:
        for name, table, columns in zip(views.names, views.tables, views.columns, strict=True):
            if table is not None and columns is not None and not is_tensor(columns):
                listed.setdefault(name, tuple(map(str, columns)))
    return listed


def size_text(columns: Columns, width: int) -> str:
    """Write the size of a view, for messages: "24 features", "24 named columns", or "shape (n, 6, 4)"."""
    if is_tensor(columns):
        return f"shape (n, {', '.join(map(str, columns))})"
    return f"{width} features" if columns is None else f"{width} named columns"


def find_difference(  # noqa: PLR0917
    own: Columns, own_width: int, known: Columns, width: int, whose: str, expects: str
) -> str:
    """Describe how a view's features differ from those known, for messages; empty if they do not.

    `whose` names the others ("the model"), and `expects` goes before the size that they know ("but the model expects").
    """
    if own_width == width and (own is None or known is None or own == known):
        return ""
    sizes = f"has {size_text(own, own_width)}, {expects} {size_text(known, width)}"
    if own is None or known is None or is_tensor(own) or is_tensor(known):
        return sizes
    here, there = list(map(str, own)), list(map(str, known))
    if set(map(base_name, here)) != set(map(base_name, there)):  # a category is one column, whatever its levels are
        here, there = list(map(base_name, here)), list(map(base_name, there))
    missing, extra = sorted(set(there) - set(here)), sorted(set(here) - set(there))
    if missing or extra:
        start = f"has other columns than {whose}" if own_width == width else sizes
        parts = [f"{word} {_few(names)}" for word, names in (("missing", missing), ("unexpected", extra)) if names]
        return f"{start}: {', '.join(parts)}"
    if own_width != width:
        return sizes
    place = next(i for i, name in enumerate(here) if name != there[i])
    return f"has the columns of {whose} in another order: column {place} is {here[place]!r} instead of {there[place]!r}"


def _few(names: list[str]) -> str:
    return f"{names[:5]} and {len(names) - 5} more" if len(names) > 5 else f"{names}"


def is_view_collection(X: Any) -> bool:
    """Tell whether `X` is several views (a list, tuple or dict of tables) rather than one table."""
    if sp.issparse(X):  # one of SciPy's formats is a mapping
        return False
    if isinstance(X, Mapping):
        return True
    if not isinstance(X, list | tuple) or len(X) == 0:
        return False
    first = next((view for view in X if view is not None), None)
    if first is None or hasattr(first, "shape"):
        return first is None or len(first.shape) > 1
    return bool(isinstance(first, Sequence) and len(first) and np.ndim(first[0]) == 1)


def check_views(
    X: Any,
    *,
    names: Sequence[str] | None = None,
    widths: Sequence[int] | None = None,
    columns: Sequence[Columns] | None = None,
    missing_views: bool = False,
    min_rows: int = 1,
) -> Views:
    """Check one site's views; tables are copied only where they must be.

    `X` is a list, tuple or dict of tables, or one table: a 2-D NumPy array (also memory-mapped), a pandas or polars
    data frame or a SciPy sparse matrix. NaN is a missing cell. In a data frame, text and categories become a column
    for each level (`fedhk.data.levels`), ordered categories their rank, and dates days. An array of more dimensions is
    a tensor view: its rows are flattened, last index fastest (C order). With `missing_views`, None is a view that is
    absent.

    `names`, `widths` and `columns` are what a model knows of its views, in order: a dict is read by these names, the
    columns of a data frame too, and what differs is refused. A 2-D array has neither names nor a shape: it may be the
    flattened rows of a tensor.

    Errors (TypeError, ValueError) name the view, what was found, and what is allowed.
    """
    tables, found = _named_tables(X, names)
    tables = _drop_extra(tables, columns or ())
    if widths is not None and len(tables) != len(widths):
        hint = f" Give a dict of tables by name; the views are {_few(list(names))}." if names else ""
        raise ValueError(f"X has {len(tables)} views, but the model was fitted with {len(widths)} views.{hint}")
    present = [i for i, table in enumerate(tables) if table is not None]
    if len(present) < len(tables) and not missing_views:
        absent = next(name for name, table in zip(found, tables, strict=True) if table is None)
        raise ValueError(f"View {absent!r} is None: a view may only be absent where another site or the model has it.")
    if not present:
        raise ValueError("X has no views: at least one view with at least one row is needed.")
    converted: list[Any] = [None] * len(tables)
    given: list[Columns] = [None] * len(tables)
    inferred: list[str] = []
    for i, encoded in _encode_tables(tables, found, columns).items():
        known = None if columns is None else columns[i]
        inferred += [f"{found[i]}/{column}" for column in getattr(encoded, "inferred", ())]
        converted[i], given[i] = _read_table(encoded, found[i])
        converted[i], given[i] = fit_table(converted[i], given[i], known, f"View {found[i]!r}", tables[i])
    lengths = [converted[i].shape[0] for i in present]
    if len(set(lengths)) > 1:
        listed = ", ".join(f"{found[i]!r} has {length}" for i, length in zip(present, lengths, strict=True))
        raise ValueError(f"Views must have the same rows in the same order, but {listed} rows.")
    index = _row_names(tables, found)
    if lengths[0] < min_rows:
        raise ValueError(f"Found array with {lengths[0]} sample(s) while a minimum of {min_rows} is required.")
    missing = [False] * len(tables)
    dtype: np.dtype[Any] = np.dtype(np.float32)
    for i in present:
        known = None if columns is None else columns[i]
        width = converted[i].shape[1]
        if widths is not None and (
            difference := find_difference(given[i], width, known, widths[i], "the model", "but the model expects")
        ):
            raise ValueError(f"View {found[i]!r} {difference}.")
        missing[i] = _has_missing(converted[i], found[i], given[i], tables[i])
        if converted[i].dtype != np.float32:
            dtype = np.dtype(np.float64)
    dates = tuple(f"{found[i]}/{column}" for i in present for column in date_columns(tables[i]))
    return Views(
        tuple(converted), tuple(found), lengths[0], dtype, tuple(missing), tuple(given), tuple(inferred), dates, index
    )


def find_empty(views: Views) -> IntArray:
    """Find the rows that have no value in any view."""
    present = [(table, lacks) for table, lacks in zip(views.tables, views.missing, strict=True) if table is not None]
    if any(not lacks or sp.issparse(table) for table, lacks in present):
        return np.zeros(0, int)
    empty = np.ones(views.n_rows, bool)
    for table, _ in present:
        for rows in row_blocks(len(table), 8 * table.shape[1]):
            empty[rows] &= np.isnan(table[rows]).all(axis=1)
    return np.flatnonzero(empty)


def warn_of_empty(views: Views) -> None:
    """Warn of new rows that get a label without a value in any view."""
    rows = find_empty(views)
    if len(rows):
        names = (rows if views.index is None else np.asarray(views.index)[rows]).tolist()
        warnings.warn(
            f"X: no value in any view of row {listed(names)}: such rows belong to all clusters alike, and get the "
            "first.",
            UserWarning,
            stacklevel=2,
        )


def _drop_extra(tables: Sequence[Any], columns: Sequence[Columns]) -> list[Any]:
    """Return tables without the columns that a model does not know; a warning names them."""
    found, extra = list(tables), list[str]()
    for place, (table, known) in enumerate(zip(tables, columns, strict=False)):  # too few views are refused later
        if is_frame(table) and known is not None and not is_tensor(known):
            found[place], names = take_columns(table, known)
            extra += names
    warn_of_extra(extra)
    return found


def warn_of_extra(names: Sequence[str]) -> None:
    """Warn of columns that the model does not know."""
    if names:
        warnings.warn(
            f"X has columns that the model does not know; they are passed over: {listed(names)}.",
            UserWarning,
            stacklevel=2,
        )


def _encode_tables(tables: Sequence[Any], names: Sequence[str], columns: Sequence[Columns] | None) -> dict[int, Any]:
    """Return tables of numbers by their place, without views that are absent; all columns that are none are named."""
    encoded, faults = {}, list[str]()
    for i, table in enumerate(tables):
        if table is not None:
            try:
                encoded[i] = encode_frame(table, names[i], None if columns is None else columns[i])
            except UnreadableColumnsError as error:
                faults += error.faults
    if faults:
        raise UnreadableColumnsError(faults)
    return encoded


def fit_table(table: Any, own: Columns, known: Columns, where: str, source: Any = None) -> tuple[Any, Columns]:
    """Bring a table to the known columns, in their order and with all levels; unchanged if other names differ.

    Messages name rows by the index of `source`, the data frame that the table was.
    """
    if known is None or own == known or is_tensor(own) or is_tensor(known):
        return table, own
    if own is None:  # an array may stand for the data frame that was fitted, with a column for each category
        named = tuple(dict.fromkeys(map(base_name, map(str, known))))
        if len(named) == len(known) or table.shape[1] != len(named) or sp.issparse(table):
            return table, own
        own = named
    names, wanted = [str(name) for name in own], [str(name) for name in known]
    if common_columns([wanted, names]) is None:
        return table, own
    if sp.issparse(table):  # it has numbers only, and stays sparse
        place = {name: i for i, name in enumerate(names)}
        return (table[:, [place[name] for name in wanted]], known) if place.keys() == set(wanted) else (table, own)
    return fit_columns(table, names, wanted, where, source), known


def _named_tables(X: Any, names: Sequence[str] | None) -> tuple[list[Any], list[str]]:
    """Return tables and their names, in the order of the model, if there is one."""
    if isinstance(X, Mapping) and not sp.issparse(X):
        given = list(map(str, X))
        if names is None:
            if hidden := [name for name in given if not is_printable(name)]:
                raise ValueError(f"View {hidden[0]!r} has a name with characters that do not show: rename it.")
            return list(X.values()), given
        unknown = sorted(set(given) - set(names))
        if unknown and all(map(is_view_collection, X.values())):
            raise ValueError(
                f"X has the sites {_few(given)}, and the views of one site are expected, which are {list(names)}. Ask "
                "for each site: {site: model.predict(views) for site, views in X.items()}, or by the own model of a "
                "site, model.client_models_[site].predict(X[site])."
            )
        if unknown:
            raise ValueError(f"X has unknown views {unknown}; the model knows {list(names)}.{_explain_columns(X)}")
        by_name = dict(zip(given, X.values(), strict=True))
        return [by_name.get(name) for name in names], list(names)
    tables = list(X) if is_view_collection(X) else [X]
    if names is not None and len(names) == len(tables):
        return tables, list(names)
    return tables, [f"view_{i}" for i in range(len(tables))]


def _explain_columns(X: Mapping[Any, Any]) -> str:
    """Say what to do with a dict of columns, or of the cells of one row, in the place of views; else nothing."""
    if all(value is None or np.isscalar(value) for value in X.values()):
        return " If this is one row, give a data frame: pandas.DataFrame([row])."
    lists = (value if isinstance(value, list) else [value] for value in X.values())
    if all(np.isscalar(value) or len(getattr(value, "shape", ())) == 1 for values in lists for value in values):
        return " If these are columns, give a data frame: pandas.DataFrame(columns)."
    return ""


def refuse_other_forms(table: Any, where: str) -> None:
    """Refuse what may be taken for a table: an AnnData or MuData object, and a dict. `where` begins the ValueError."""
    if hasattr(table, "obs_names"):
        raise ValueError(f"{where} is {type(table).__name__}: fedhk.from_anndata makes views of it, and sites.")
    if isinstance(table, Mapping) and not sp.issparse(table):  # a sparse matrix may be a dict of its cells
        raise ValueError(f"{where} is a dict: give a data frame, such as pandas.DataFrame([row]) for one row.")


def _read_table(table: Any, name: str) -> tuple[Any, Columns]:
    """Read a table of real numbers, copied only if needed, with the names of its columns or the shape of a tensor."""
    columns = getattr(table, "columns", None)
    array = _as_sparse(table, name) if sp.issparse(table) else _as_numbers(table, name)
    if array.ndim < 2:
        hint = " Reshape your data: a single feature is X.reshape(-1, 1)." if array.ndim == 1 else ""
        raise ValueError(
            f"View {name!r} has {array.ndim} dimension(s), shape {array.shape}; a view must have at least 2, and rows "
            f"along the first.{hint}"
        )
    shape = array.shape[1:]
    if 0 in shape:
        raise ValueError(f"View {name!r}: 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if len(shape) > 1:  # no copy where the rows lie in C order
        return array.reshape(len(array), math.prod(shape)), shape
    if columns is None or not all(isinstance(column, str) for column in columns):
        return array, None
    return array, tuple(columns)


def _as_sparse(table: Any, name: str) -> Any:
    """A sparse table by rows; counts and flags become floats, since they are scaled in place."""
    table = sp.csr_array(table)
    if table.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: view {name!r} has dtype {table.dtype}.")
    return table if table.dtype.kind == "f" else table.astype(np.float64)


def _as_numbers(table: Any, name: str) -> Any:
    refuse_other_forms(table, f"View {name!r}")
    if hasattr(table, "to_numpy"):  # pandas and polars
        table = table.to_numpy()
    if not isinstance(table, np.ndarray):
        try:
            table = np.asarray(table)
        except ValueError as error:
            raise ValueError(f"View {name!r} is not a table: its rows have different lengths.") from error
    if table.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: view {name!r} has dtype {table.dtype}.")
    if table.dtype.kind not in "fiub":
        try:
            table = table.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"View {name!r} has dtype {table.dtype}; a view must be numeric. Encode text columns first; one that "
                f"says whose a row is belongs into the index, or out. ({error})"
            ) from error
    if table.dtype.kind == "f" and table.dtype.itemsize not in (4, 8):
        table = table.astype(np.float32 if table.dtype.itemsize < 4 else np.float64)
    return table


def _row_names(tables: Sequence[Any], names: Sequence[str]) -> Any:
    """Return the index of data frames; refuse views with different indexes, which would be paired by order."""
    known = []
    for table, name in zip(tables, names, strict=True):
        index: Any = getattr(table, "index", None)  # of a pandas data frame; one that only counts says nothing
        if hasattr(index, "equals") and not np.array_equal(np.asarray(index), np.arange(len(index))):
            known.append((name, index))
    for name, index in known[1:]:
        first, expected = known[0]
        if not index.equals(expected):
            row = int(np.argmax(np.asarray(index) != np.asarray(expected)))
            raise ValueError(
                f"Views must have the same rows in the same order, but by their index, row {row} of {first!r} is "
                f"{expected[row]!r} and that of {name!r} is {index[row]!r}. Put them in one order, such as by "
                f"{name}.reindex({first}.index), or drop the index if it means nothing."
            )
    return known[0][1] if known else None


def _has_missing(table: Any, name: str, columns: Columns = None, source: Any = None) -> bool:
    """Tell whether a table has missing cells; refuse infinities and numbers whose squares would overflow."""
    if table.dtype.kind != "f":
        return False
    values = table.data[:, None] if sp.issparse(table) else table
    missing = False
    for rows in row_blocks(len(values), values.shape[1] * values.dtype.itemsize):
        block = values[rows]
        low, high = float(np.min(block)), float(np.max(block))  # NaN if any cell is
        if low >= -LARGEST_VALUE and high <= LARGEST_VALUE:
            continue
        if np.isinf(block).any():
            row, column = np.argwhere(np.isinf(block))[0].tolist()
            named = column if columns is None or is_tensor(columns) else repr(columns[column])
            where = "" if sp.issparse(table) else f" in column {named}, row {name_row(source, rows.start + row)}"
            raise ValueError(
                f"View {name!r} contains infinity{where}. Values must be finite; use NaN for a missing cell."
            )
        largest = float(np.max(np.abs(block), where=~np.isnan(block), initial=0.0))
        if largest > LARGEST_VALUE:
            raise ValueError(
                f"View {name!r} has a value of magnitude {largest:.3g}; at most {LARGEST_VALUE:.0e} is allowed, "
                "because its square must be a number. Rescale the column."
            )
        missing = True
    return missing
