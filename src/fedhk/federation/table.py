"""Tables of numbers as they are sent: in double precision, or rounded to fewer bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.errors import MessageError

Precision = Literal["double", "single", "half", "byte"]
T = TypeVar("T")
PRECISIONS = get_args(Precision)
_TYPES: dict[str, Any] = {"double": np.float64, "single": np.float32, "half": np.float16}
_HALF_LARGEST, _SINGLE_LARGEST = 6e4, 3e38
# Smallest scale of a row of bytes: below it, single precision has no steps left.
_LEAST_SCALE = 1e-36
_BYTE_LARGEST, _BYTE_MISSING = 127, -128


@dataclass(frozen=True, eq=False)
class Table:
    """A table of shape (n, m) in some precision."""

    values: npt.NDArray[Any]  # in double, single or half precision, or whole steps of one byte
    scale: FloatArray  # size of the steps of each row; empty where numbers stand for themselves

    @classmethod
    def of(cls, table: FloatArray, precision: str) -> Table:
        """Round a table of shape (n, m); NaN is kept.

        Numbers that half precision cannot hold go in single precision, those that it cannot hold in double. In bytes,
        every row is divided by its largest magnitude and rounded to 127 steps to either side.
        """
        largest = np.nanmax(np.abs(table), initial=0.0)
        if precision != "double" and largest > _SINGLE_LARGEST:
            precision = "double"
        elif precision == "half" and largest > _HALF_LARGEST:
            precision = "single"
        if precision != "byte":
            return cls(table.astype(_TYPES[precision], copy=False), np.zeros(0))
        peaks = np.nanmax(np.abs(table), axis=1, initial=0.0)
        scale = np.maximum(peaks / _BYTE_LARGEST, _LEAST_SCALE).astype(np.float32)
        steps = np.where(np.isnan(table), _BYTE_MISSING, np.rint(table / scale[:, None]))
        return cls(steps.astype(np.int8), scale)

    def read(self) -> FloatArray:
        """Return the table in double precision, as the receiver reads it."""
        table = np.asarray(self.values, np.float64)
        if not len(self.scale):
            return table
        scale = np.asarray(self.scale, np.float64)
        return np.where(table == _BYTE_MISSING, np.nan, table * scale[:, None])

    def check(self, shape: tuple[int | None, ...], site: str, name: str, *, finite: bool = True) -> None:
        """Refuse a table of another shape, with numbers of another type, or with numbers that are not finite."""
        in_bytes = self.values.dtype == np.int8
        if not in_bytes and self.values.dtype.kind != "f":
            raise MessageError(f"{name} have type {self.values.dtype}, expected floating-point numbers or bytes", site)
        check_shape(self.values, shape, site, name)
        if in_bytes:
            check_array(self.scale, self.values.shape[:1], site, f"scales of {name}", non_negative=True)
        elif len(self.scale):
            raise MessageError(f"{name} have scales, but are not in bytes", site)
        if finite and not np.isfinite(self.read()).all():
            raise MessageError(f"{name} have values that are NaN or infinite", site)


def round_as_sent(table: FloatArray, precision: str) -> FloatArray:
    """Round a table as sending it does, and read it back."""
    return Table.of(table, precision).read()


def round_arrays(value: T, precision: str) -> T:
    """Round all floating-point arrays of a dataclass, and of dataclasses and tuples in it, for sending."""
    rounded: T = _map_arrays(value, lambda array: Table.of(array, precision).values)
    return rounded


def read_arrays(value: T) -> T:
    """Convert all floating-point arrays of a received dataclass to double precision."""
    read: T = _map_arrays(value, lambda array: np.asarray(array, np.float64))
    return read


def _map_arrays(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return change(value) if value.dtype.kind == "f" else value
    if isinstance(value, tuple):
        return tuple(_map_arrays(part, change) for part in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(value, **{part.name: _map_arrays(getattr(value, part.name), change) for part in fields(value)})


def at_least_half(precision: str) -> str:
    """Return the precision, or half precision instead of bytes, for numbers whose error does not shrink with rounds."""
    return "half" if precision == "byte" else precision


def check_shape(array: npt.NDArray[Any], shape: tuple[int | None, ...], site: str, name: str) -> None:
    """Refuse an array of another shape; None is any size."""
    fits = array.ndim == len(shape) and all(want in (None, got) for got, want in zip(array.shape, shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise MessageError(f"{name} have shape {array.shape}, expected ({wanted})", site)


def check_array(
    array: npt.NDArray[Any],
    shape: tuple[int | None, ...],
    site: str,
    name: str,
    *,
    non_negative: bool = False,
    finite: bool = True,
) -> None:
    """Refuse an array of another shape (None is any size), that is no float, not `finite`, or not `non_negative`."""
    if array.dtype.kind != "f":
        raise MessageError(f"{name} have type {array.dtype}, expected floating-point numbers", site)
    check_shape(array, shape, site, name)
    if finite and not np.isfinite(array).all():
        count = int((~np.isfinite(array)).sum())
        raise MessageError(f"{name} have {count} of {array.size} values that are NaN or infinite", site)
    if non_negative and (array < 0).any():
        raise MessageError(f"{name} have {int((array < 0).sum())} of {array.size} values below zero", site)
