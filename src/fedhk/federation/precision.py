"""Numbers on the wire: as they are, or rounded to fewer bytes where that changes nothing that matters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.messages import ArraySpec, Message

__all__ = ["PRECISIONS", "as_sent", "at_least_half", "pack_rounded", "rounded_spec", "unpack_rounded"]

PRECISIONS = ("double", "single", "half", "byte")
_TYPES = {"double": np.float64, "single": np.float32, "half": np.float16}
_HALF_LARGEST, _SINGLE_LARGEST = 6e4, 3e38
# Smallest scale of a row of bytes: below, single precision has no steps left.
_LEAST_SCALE = 1e-36
_BYTE_LARGEST, _BYTE_MISSING = 127, -128


def at_least_half(precision: str) -> str:
    """The precision, but not bytes: for numbers whose error does not shrink from round to round."""
    return "half" if precision == "byte" else precision


def pack_rounded(name: str, table: FloatArray, precision: str) -> dict[str, npt.NDArray[Any]]:
    """A table as arrays of a message.

    Parameters
    ----------
    name : str
        Name of the array.
    table : array of shape (n, m)
        NaN is kept.
    precision : {"double", "single", "half", "byte"}
        Numbers that half precision cannot hold go in single precision, those that it cannot hold in double. In bytes,
        every row is divided by its largest magnitude and rounded to 127 steps to either side.
    """
    largest = np.nanmax(np.abs(table), initial=0.0)
    if precision != "double" and largest > _SINGLE_LARGEST:
        precision = "double"
    elif precision == "half" and largest > _HALF_LARGEST:
        precision = "single"
    if precision == "byte":
        peaks = np.nanmax(np.abs(table), axis=1, initial=0.0)
        scale = np.maximum(peaks / _BYTE_LARGEST, _LEAST_SCALE).astype(np.float32)
        steps = np.where(np.isnan(table), _BYTE_MISSING, np.rint(table / scale[:, None]))
        return {name: steps.astype(np.int8), f"{name}.scale": scale}
    return {name: table.astype(_TYPES[precision], copy=False)}


def rounded_spec(
    message: Message, name: str, shape: tuple[int | None, ...], *, finite: bool = True
) -> dict[str, ArraySpec]:
    """What the receiver expects of arrays that `pack_rounded` made, in whatever precision they are."""
    if f"{name}.scale" not in message.arrays:
        return {name: ArraySpec(shape, finite=finite)}
    if finite and name in message.arrays and np.any(message.arrays[name] == _BYTE_MISSING):
        raise MessageError(f"array {name!r} holds NaN or infinite values", message.site)
    return {name: ArraySpec(shape, ("int8",)), f"{name}.scale": ArraySpec(shape[:1], non_negative=True)}


def unpack_rounded(arrays: dict[str, npt.NDArray[Any]], name: str) -> FloatArray:
    """The table, in double precision."""
    table = np.asarray(arrays[name], np.float64)
    if f"{name}.scale" not in arrays:
        return table
    scale = np.asarray(arrays[f"{name}.scale"], np.float64)
    return np.where(table == _BYTE_MISSING, np.nan, table * scale[:, None])


def as_sent(table: FloatArray, precision: str) -> FloatArray:
    """A table as its receiver reads it."""
    return unpack_rounded(pack_rounded("table", table, precision), "table")
