"""What comes in: one table of numbers per view, whatever it is stored in; a tensor is a table of flattened rows."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray

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
    """The rows of one site: a table per view, all with the same rows in the same order.

    Parameters
    ----------
    tables : tuple of array, CSR matrix or None
        One table per view; None is a view that the site does not have. The rows of a tensor are flattened, last index
        fastest (C order).
    names : tuple of str
        A name per view, used in messages.
    n_rows : int
        Rows in every table.
    dtype : numpy.dtype
        float32 if every table is float32, else float64: the precision in which rows are worked on.
    missing : tuple of bool
        Whether a table has missing cells (NaN).
    columns : tuple of (tuple of str, tuple of int or None)
        Column names of the tables that are data frames, the shape of a row of those that are tensors.
    """

    tables: tuple[Any, ...]
    names: tuple[str, ...]
    n_rows: int
    dtype: np.dtype[Any]
    missing: tuple[bool, ...]
    columns: tuple[Columns, ...]

    @property
    def widths(self) -> tuple[int | None, ...]:
        """Number of features per view; None where the view is absent."""
        return tuple(None if table is None else int(table.shape[1]) for table in self.tables)

    @property
    def shapes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Shape of a row per view, (d,) in a table; None where the view is absent."""
        return tuple(
            None if width is None else row_shape(columns, width)
            for columns, width in zip(self.columns, self.widths, strict=True)
        )

    def blocks(self) -> Iterator[slice]:
        """Row ranges that cover the site once; they depend on the shape of the data only."""
        return row_blocks(self.n_rows, sum(width or 0 for width in self.widths) * self.dtype.itemsize)


def row_blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Consecutive row ranges of about `BLOCK_BYTES` each."""
    size = int(np.clip(BLOCK_BYTES // max(row_bytes, 1), 64, 4096))
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def is_tensor(columns: Columns) -> TypeGuard[tuple[int, ...]]:
    """Whether what is known of a view's features is the shape of a row."""
    return columns is not None and len(columns) > 0 and isinstance(columns[0], int)


def row_shape(columns: Columns, width: int) -> tuple[int, ...]:
    """Shape of a row, which is (d,) in a table."""
    return columns if is_tensor(columns) else (width,)


def size_text(columns: Columns, width: int) -> str:
    """How large a view is, for messages: "24 features", "24 named columns", or "shape (n, 6, 4)" of a tensor."""
    if is_tensor(columns):
        return f"shape (n, {', '.join(map(str, columns))})"
    return f"{width} features" if columns is None else f"{width} named columns"


def other_names(columns: Columns, known: Columns) -> tuple[list[str], list[str]]:
    """Names that are missing from the columns, and names that are unexpected."""
    own, expected = set(map(str, columns or ())), set(map(str, known or ()))
    return sorted(expected - own), sorted(own - expected)


def shapes_by_view(sites: Iterable[Views]) -> dict[str, tuple[int, ...]]:
    """Shape of a row of each view, in the order in which sites first name the views; a tensor's if any site has one."""
    shapes: dict[str, tuple[int, ...]] = {}
    for views in sites:
        for name, shape in zip(views.names, views.shapes, strict=True):
            shapes[name] = max(shapes.get(name, ()), shape or (), key=len)
    return shapes


def is_view_collection(X: Any) -> bool:
    """Whether `X` is several views (a list, tuple or dict of tables) rather than one table."""
    if sp.issparse(X):  # one of SciPy's formats is a mapping
        return False
    if isinstance(X, Mapping):
        return True
    if not isinstance(X, list | tuple) or len(X) == 0:
        return False
    first = next((view for view in X if view is not None), None)
    if first is None or hasattr(first, "shape"):
        return len(getattr(first, "shape", (0, 0))) != 1 and not _is_number(first)
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
    """Check one site's views and describe them without copying what need not be copied.

    Parameters
    ----------
    X : list, tuple or dict of tables, or one table
        A table is a 2-D NumPy array (also memory-mapped), a pandas or polars data frame or a SciPy sparse matrix.
        NaN is a missing cell. A dict gives the views their names. An array of more dimensions is a tensor view: its
        rows are flattened, last index fastest (C order).
    names : sequence of str, optional
        The views of the fitted model, in order. A dict is then read by these names.
    widths : sequence of int, optional
        The number of features per view that the model knows.
    columns : sequence of (tuple of str, tuple of int or None), optional
        The column names, or the shape of a row, per view that the model knows; a data frame or tensor must have the
        same. A 2-D array has neither: it is taken as flattened rows, whether the model knows them as a tensor or not.
    missing_views : bool, default=False
        Whether None is allowed as a view.
    min_rows : int, default=1
        Fewest rows that make sense.

    Returns
    -------
    Views
        The checked views.

    Raises
    ------
    TypeError, ValueError
        Naming the view, what was found, and what is allowed.
    """
    tables, found = _named_tables(X, names)
    if widths is not None and len(tables) != len(widths):
        raise ValueError(f"X has {len(tables)} views, but the model was fitted with {len(widths)} views.")
    if not missing_views and any(table is None for table in tables):
        absent = found[next(i for i, table in enumerate(tables) if table is None)]
        raise ValueError(f"View {absent!r} is None: a view may only be absent where another site or the model has it.")
    if all(table is None for table in tables):
        raise ValueError("X has no views: at least one view with at least one row is needed.")
    arrays = [None if table is None else _as_array(table, name) for table, name in zip(tables, found, strict=True)]
    given = tuple(_known_columns(table, array) for table, array in zip(tables, arrays, strict=True))
    converted = tuple(None if array is None else _flattened(array) for array in arrays)
    n_rows = _common_length(converted, found)
    _check_row_names(tables, found)
    if n_rows < min_rows:
        raise ValueError(f"Found array with {n_rows} sample(s) while a minimum of {min_rows} is required.")
    known = columns or [None] * len(given)
    for i, (table, name) in enumerate(zip(converted, found, strict=True)):
        if table is not None and widths is not None:
            _check_features(name, given[i], table.shape[1], known[i], widths[i])
    present = [table.dtype for table in converted if table is not None]
    dtype = np.dtype(np.float32 if all(d == np.float32 for d in present) else np.float64)
    missing = tuple(table is not None and _scan(table, name) for table, name in zip(converted, found, strict=True))
    return Views(converted, tuple(found), n_rows, dtype, missing, given)


def _named_tables(X: Any, names: Sequence[str] | None) -> tuple[list[Any], list[str]]:
    """Tables and their names, in the model's order where the model has one."""
    if isinstance(X, Mapping) and not sp.issparse(X):
        given = [str(key) for key in X]
        if names is None:
            return list(X.values()), given
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise ValueError(f"X has unknown views {unknown}; the model knows {list(names)}.")
        by_name = {str(key): value for key, value in X.items()}
        return [by_name.get(name) for name in names], list(names)
    tables = list(X) if is_view_collection(X) else [X]
    if names is not None and len(names) == len(tables):
        return tables, list(names)
    return tables, [f"view_{i}" for i in range(len(tables))]


def _as_array(table: Any, name: str) -> Any:
    """A table or tensor of real numbers, converted only where it must be."""
    if sp.issparse(table):
        return _checked_shape(sp.csr_array(table), name)
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
    return _checked_shape(table, name)


def _checked_shape(table: Any, name: str) -> Any:
    if table.ndim < 2:
        hint = " Reshape your data: a single feature is X.reshape(-1, 1)." if table.ndim == 1 else ""
        raise ValueError(
            f"View {name!r} has {table.ndim} dimension(s), shape {table.shape}; a view must have at least 2, and rows "
            f"along the first.{hint}"
        )
    if 0 in table.shape[1:]:
        raise ValueError(f"View {name!r}: 0 feature(s) (shape={table.shape}) while a minimum of 1 is required.")
    return table


def _flattened(array: Any) -> Any:
    """A tensor as a table of its rows, without a copy where its rows lie in C order."""
    return array if array.ndim == 2 else array.reshape(len(array), math.prod(array.shape[1:]))


def _known_columns(table: Any, array: Any) -> Columns:
    """The shape of a row of a tensor; column names of a data frame; None where no column has a name of its own."""
    if array is not None and array.ndim > 2:
        return tuple(int(size) for size in array.shape[1:])
    columns = getattr(table, "columns", None)
    if columns is None or not all(isinstance(column, str) for column in columns):
        return None
    return tuple(columns)


def _check_features(name: str, own: Columns, own_width: int, known: Columns, width: int) -> None:
    """Refuse a view that is not the model's: another width, other columns, another shape."""
    if own_width == width and (own is None or known is None or own == known):
        return
    if own_width != width or is_tensor(own) or is_tensor(known):
        raise ValueError(
            f"View {name!r} has {size_text(own, own_width)}, but the model expects {size_text(known, width)}."
        )
    missing, extra = other_names(own, known)
    if missing or extra:
        raise ValueError(
            f"View {name!r} has other columns than the model was fitted on: missing {missing}, unexpected {extra}."
        )
    raise ValueError(
        f"View {name!r} has the model's columns in another order: {list(own or ())} instead of {list(known or ())}."
    )


def _common_length(tables: Sequence[Any], names: Sequence[str]) -> int:
    """Number of rows, the same in every view that is there."""
    lengths = {name: table.shape[0] for table, name in zip(tables, names, strict=True) if table is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise ValueError(f"Views must have the same rows in the same order, but {listed} rows.")
    return int(next(iter(lengths.values())))


def _check_row_names(tables: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse data frames whose rows have names of their own in different orders: they would be paired by order."""
    indexes = [(name, _row_names(table)) for table, name in zip(tables, names, strict=True)]
    known = [(name, index) for name, index in indexes if index is not None]
    for name, index in known[1:]:
        first, expected = known[0]
        if not index.equals(expected):
            row = int(np.argmax(np.asarray(index) != np.asarray(expected)))
            raise ValueError(
                f"Views must have the same rows in the same order, but by their index, row {row} of {first!r} is "
                f"{expected[row]!r} and that of {name!r} is {index[row]!r}. Put them in one order, such as by "
                f"{name}.reindex({first}.index), or drop the index if it means nothing."
            )


def _row_names(table: Any) -> Any:
    """The index of a pandas data frame; None where it only counts the rows."""
    index: Any = getattr(table, "index", None)
    if not hasattr(index, "equals") or np.array_equal(np.asarray(index), np.arange(len(index))):
        return None
    return index


def _scan(table: Any, name: str) -> bool:
    """Whether a table has missing cells; refuses infinities and numbers whose squares would overflow."""
    if sp.issparse(table):
        return _scan_block(table.data, name)
    if table.dtype.kind != "f":
        return False
    blocks = row_blocks(table.shape[0], table.shape[1] * table.dtype.itemsize)
    found = [_scan_block(table[rows], name) for rows in blocks]  # all blocks: each is also checked
    return any(found)


def _scan_block(block: FloatArray, name: str) -> bool:
    if block.size == 0 or block.dtype.kind != "f":
        return False
    low, high = float(np.min(block)), float(np.max(block))  # NaN if any cell is
    if low >= -LARGEST_VALUE and high <= LARGEST_VALUE:
        return False
    if np.isinf(block).any():
        count = int(np.isinf(block).sum())
        raise ValueError(
            f"View {name!r} contains infinity ({count} cells in one block of rows). "
            "Values must be finite; use NaN for a missing cell."
        )
    largest = float(np.nanmax(np.abs(block))) if not np.isnan(block).all() else 0.0
    if largest > LARGEST_VALUE:
        raise ValueError(
            f"View {name!r} has a value of magnitude {largest:.3g}; at most {LARGEST_VALUE:.0e} is allowed, because "
            "its square must be a number. Rescale the column."
        )
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number) or (hasattr(value, "shape") and value.shape == ())
