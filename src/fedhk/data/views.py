"""What comes in: one table of numbers per view, whatever it is stored in."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray

# Sums of squares of larger numbers would leave float64.
LARGEST_VALUE = 1e140

# Rows are read in blocks of about this many bytes: large enough that one block is worth a call into BLAS, small
# enough that a block and what is computed from it stay in the processor's cache.
BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Views:
    """The rows of one site: a table per view, all with the same rows in the same order.

    Parameters
    ----------
    tables : tuple of array, CSR matrix or None
        One table per view; None is a view that the site does not have.
    names : tuple of str
        A name per view, used in messages.
    n_rows : int
        Rows in every table.
    dtype : numpy.dtype
        float32 if every table is float32, else float64: the precision in which rows are worked on.
    missing : tuple of bool
        Whether a table has missing cells (NaN).
    columns : tuple of (tuple of str or None)
        Column names of the tables that are data frames.
    """

    tables: tuple[Any, ...]
    names: tuple[str, ...]
    n_rows: int
    dtype: np.dtype[Any]
    missing: tuple[bool, ...]
    columns: tuple[tuple[str, ...] | None, ...]

    @property
    def widths(self) -> tuple[int | None, ...]:
        """Number of features per view; None where the view is absent."""
        return tuple(None if table is None else int(table.shape[1]) for table in self.tables)

    def blocks(self) -> Iterator[slice]:
        """Row ranges that cover the site once; they depend on the shape of the data only."""
        return row_blocks(self.n_rows, sum(width or 0 for width in self.widths) * self.dtype.itemsize)


def row_blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Consecutive row ranges of about `BLOCK_BYTES` each."""
    size = int(np.clip(BLOCK_BYTES // max(row_bytes, 1), 64, 4096))
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


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
    columns: Sequence[tuple[str, ...] | None] | None = None,
    missing_views: bool = False,
    min_rows: int = 1,
) -> Views:
    """Check one site's views and describe them without copying what need not be copied.

    Parameters
    ----------
    X : list, tuple or dict of tables, or one table
        A table is a 2-D NumPy array (also memory-mapped), a pandas or polars data frame or a SciPy sparse matrix.
        NaN is a missing cell. A dict gives the views their names.
    names : sequence of str, optional
        The views of the fitted model, in order. A dict is then read by these names.
    widths : sequence of int, optional
        The number of features per view that the model knows.
    columns : sequence of (tuple of str or None), optional
        The column names per view that the model knows; a data frame must have the same.
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
    converted = tuple(
        None if table is None else _as_table(table, name) for table, name in zip(tables, found, strict=True)
    )
    n_rows = _common_length(converted, found)
    if n_rows < min_rows:
        raise ValueError(f"Found array with {n_rows} sample(s) while a minimum of {min_rows} is required.")
    for i, (table, name) in enumerate(zip(converted, found, strict=True)):
        if table is not None and widths is not None and table.shape[1] != widths[i]:
            raise ValueError(
                f"View {name!r} has {table.shape[1]} features, but the model expects {widths[i]} features."
            )
    given = tuple(_column_names(table) for table in tables)
    for name, known, own in zip(found, columns or [None] * len(given), given, strict=True):
        if known is not None and own is not None and tuple(known) != own:
            raise ValueError(_column_difference(name, tuple(known), own))
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


def _as_table(table: Any, name: str) -> Any:
    """One 2-D table of real numbers, converted only where it must be."""
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
                f"View {name!r} has dtype {table.dtype}; a view must be numeric. Encode text columns first. ({error})"
            ) from error
    if table.dtype.kind == "f" and table.dtype.itemsize not in (4, 8):
        table = table.astype(np.float32 if table.dtype.itemsize < 4 else np.float64)
    return _checked_shape(table, name)


def _checked_shape(table: Any, name: str) -> Any:
    if table.ndim != 2:
        hint = " Reshape your data: a single feature is X.reshape(-1, 1)." if table.ndim == 1 else ""
        raise ValueError(f"View {name!r} has {table.ndim} dimension(s), shape {table.shape}; a view must be 2-D.{hint}")
    if table.shape[1] == 0:
        raise ValueError(f"View {name!r}: 0 feature(s) (shape={table.shape}) while a minimum of 1 is required.")
    return table


def _column_names(table: Any) -> tuple[str, ...] | None:
    """Column names of a data frame; None for anything else, and where no column has a name of its own."""
    columns = getattr(table, "columns", None)
    if columns is None or not all(isinstance(column, str) for column in columns):
        return None
    return tuple(columns)


def _column_difference(name: str, known: tuple[str, ...], own: tuple[str, ...]) -> str:
    missing, extra = sorted(set(known) - set(own)), sorted(set(own) - set(known))
    if missing or extra:
        return f"View {name!r} has other columns than the model was fitted on: missing {missing}, unexpected {extra}."
    return f"View {name!r} has the model's columns in another order: {list(own)} instead of {list(known)}."


def _common_length(tables: Sequence[Any], names: Sequence[str]) -> int:
    """Number of rows, the same in every view that is there."""
    lengths = {name: table.shape[0] for table, name in zip(tables, names, strict=True) if table is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise ValueError(f"Views must have the same rows in the same order, but {listed} rows.")
    return int(next(iter(lengths.values())))


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
