"""Values as trees of dataclasses, tuples and dicts: their leaves, changes of one leaf, and comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fedhk._options import Option
from fedhk.federation.board import Board, Passing
from fedhk.federation.codec import pack, unpack

Path = tuple[Any, ...]


def check(holds: bool | np.bool_, message: str) -> None:
    """Raise AssertionError with this message where something does not hold."""
    if not holds:
        raise AssertionError(message)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """List everything in a value that is neither a dataclass nor a tuple, list or dict, with the way to it."""
    parts = _parts(value)
    if parts is None:
        yield path, value
        return
    for name, part in parts.items():
        yield from leaves(part, (*path, name))


def replace_leaf(value: Any, path: Path, leaf: Any) -> Any:
    """Give a value with another leaf."""
    if not path:
        return leaf
    parts = _parts(value) or {}
    parts[path[0]] = replace_leaf(parts[path[0]], path[1:], leaf)
    if isinstance(value, tuple | list):
        return type(value)(parts.values())
    return parts if isinstance(value, dict) else dataclasses.replace(value, **parts)


def _parts(value: Any) -> dict[Any, Any] | None:
    """Give the parts of a dataclass, tuple, list or dict by name or place; None for a leaf."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    return dict(value) if isinstance(value, dict) else None


def assert_same(found: Any, expected: Any, rtol: float = 0.0) -> None:
    """Raise AssertionError where two values differ: in their structure, or in a number by more than `rtol`."""
    one, other = list(leaves(found)), list(leaves(expected))
    check([path for path, _ in one] == [path for path, _ in other], "the values have other parts")
    for (path, a), (_, b) in zip(one, other, strict=True):
        where = ".".join(str(step) for step in path)
        if not isinstance(a, np.ndarray | float):
            same = type(a) is type(b) and (a == b or not isinstance(a, str | int | bytes))
            check(same, f"{where}: {a!r}, then {b!r}")
        elif rtol:
            size = float(np.max(np.abs(np.nan_to_num(np.asarray(b, float), posinf=0.0, neginf=0.0)), initial=0.0))
            assert_allclose(a, b, rtol=rtol, atol=rtol * size, err_msg=where)
        else:
            assert_array_equal(a, b, err_msg=where)


def assert_same_board(found: Board, expected: Board, rtol: float = 0.0) -> None:
    """Raise AssertionError where two boards differ; entries that end with the process are not compared."""
    check(list(found.entries) == list(expected.entries), f"{list(found.entries)} instead of {list(expected.entries)}")
    for kind, entry in found.entries.items():
        if not issubclass(kind, Passing):
            assert_same(entry, expected.entries[kind], rtol)


def assert_storable(option: Option) -> None:
    """Raise AssertionError where an option is another when it is read from a model file or checkpoint."""
    values, arrays = pack(option, Option, named=True)
    check(unpack(values, arrays, Option) == option, f"{option!r} is another when it is read again")
