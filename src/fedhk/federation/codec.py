"""The one codec: dataclasses as a small JSON tree and a few flat arrays, and back.

Messages, checkpoints, site files and model files are all written and read here. Nothing is packed by hand: the type
annotations of a dataclass say what its fields hold, for the writer and for the reader, so that whatever does not fit
them is refused before anybody uses it.

All arrays and floats of one type stand one after the other in one buffer (``"f8"``, ``"f4"``, ``"i1"``, ...), because
every array of a message costs bytes of its own; the tree keeps their shapes. An array of one repeated number is written
as that number. Messages list the fields of a dataclass in their order, files name them. A field may hold a dataclass
that is a subclass of the annotated one: its name is written, and found again among the subclasses.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError

T = TypeVar("T")
Tree = Any
Buffers = dict[str, NDArray[Any]]

FLOATS = "f8"
BYTES = "u1"
TYPES = frozenset(["b1", "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
"""What arrays may hold: NumPy's names without the byte order, which is always little-endian."""

# The name of the subclass in the tree of a dataclass (no field is called so), and the mark of a repeated number.
SUBCLASS, REPEATED = ".", "="
# Trees longer than this stand in an array of their own: headers of messages have a limit.
LONG_TREE = 2**15
TREE = "tree"
# Repeated numbers of one value may stand for at most so many in all, which is as much as the longest message holds in
# double precision: a short message must not fill the memory of who reads it.
MOST_NUMBERS = 2**25


if TYPE_CHECKING:
    Json = Any
else:

    class Json:
        """Annotation of a field that holds plain JSON: texts, numbers, lists and dicts of them."""


def pack(value: Any, kind: Any, *, named: bool = False) -> tuple[dict[str, Any], Buffers]:
    """Write a value as the `values` and `arrays` of a message.

    Parameters
    ----------
    value : object
        Of the type `kind`.
    kind : type
        What the reader will expect: a dataclass, or any annotation that a field may have.
    named : bool, default=False
        Whether the names of fields are written: files that outlive a version have them, messages do not.
    """
    writer = _Writer(named)
    tree = writer.write(value, kind)
    buffers = {name: np.concatenate(parts) for name, parts in writer.parts.items()}
    text = json.dumps(tree, separators=(",", ":"), allow_nan=False)
    if len(text) > LONG_TREE:
        return {}, buffers | {TREE: np.frombuffer(text.encode(), np.uint8)}
    return {TREE: tree}, buffers


def unpack(values: Mapping[str, Any], buffers: Mapping[str, NDArray[Any]], kind: type[T]) -> T:
    """Read a value that `pack` wrote.

    Raises
    ------
    MessageError
        If it is not of this type, or if something is left over.
    """
    rest = dict(buffers)
    try:
        tree = values[TREE] if TREE in values else json.loads(rest.pop(TREE).tobytes())
        reader = _Reader(rest)
        value = reader.read(tree, kind)
        reader.check_end()
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError, AttributeError) as error:
        raise MessageError(f"it is not what was asked for: {type(error).__name__}: {str(error)[:200]}") from error
    found: T = value
    return found


class _Writer:
    """Collects the arrays of one value, by type."""

    def __init__(self, named: bool) -> None:
        self._named = named
        self.parts: dict[str, list[NDArray[Any]]] = {}

    def write(self, value: Any, kind: Any) -> Tree:  # noqa: PLR0911 - one return per kind
        origin, arguments = _parts_of(kind)
        if kind is float:
            self._keep(np.array([value], np.float64))
            return None
        if dataclasses.is_dataclass(kind):
            return self._dataclass(value, kind)
        if origin is np.ndarray or kind is np.ndarray:
            return self._array(np.asarray(value))
        if origin in (Union, types.UnionType):
            place = _member(value, arguments)
            return None if arguments[place] is type(None) else [place, self.write(value, arguments[place])]
        if origin is tuple:
            if _is_floats(arguments):
                self._keep(np.array(value, np.float64))
                return len(value)
            return [self.write(part, part_kind) for part, part_kind in _paired(value, arguments)]
        if origin is dict:
            # headers of messages have sorted names, and the order of a dict counts
            return [[str(name), self.write(part, arguments[1])] for name, part in value.items()]
        if kind is bytes:
            self._keep(np.frombuffer(value, np.uint8))
            return len(value)
        _check_plain(value, kind, origin, arguments)
        return value

    def _dataclass(self, value: Any, kind: Any) -> Tree:
        found: Any = type(value)
        kinds = field_kinds(found)
        parts = {name: self.write(getattr(value, name), its) for name, its in kinds.items()}
        if self._named:
            known = {name: part for name, part in parts.items() if part is not None}
            return known if type(value) is kind else {SUBCLASS: type(value).__name__} | known
        listed = [parts[name] for name in _listed_fields(kinds)]
        return listed if type(value) is kind else {SUBCLASS: [type(value).__name__, *listed]}

    def _array(self, array: NDArray[Any]) -> list[Any]:
        name = array.dtype.str[1:]
        if name not in TYPES:
            raise TypeError(f"an array of type {array.dtype} cannot be written")
        mark = "" if name == FLOATS else name
        if array.size > 1 and _is_repeated(array):
            array, mark, shape = array.ravel()[:1], REPEATED + mark, array.shape
        else:
            shape = array.shape
        self._keep(array)
        return [mark, *shape] if mark else [*shape]

    def _keep(self, array: NDArray[Any]) -> None:
        if not array.size:
            return
        little = array.dtype.newbyteorder("<")
        self.parts.setdefault(array.dtype.str[1:], []).append(np.ascontiguousarray(array, little).ravel())


class _Reader:
    """Takes arrays from the buffers in the order in which they were written."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._at = dict.fromkeys(buffers, 0)
        self._repeated = 0

    def read(self, tree: Tree, kind: Any) -> Any:  # noqa: PLR0911 - one return per kind
        origin, arguments = _parts_of(kind)
        if kind is float:
            return float(self._take(FLOATS, 1)[0])
        if dataclasses.is_dataclass(kind):
            return self._dataclass(tree, kind)  # type: ignore[arg-type]
        if origin is np.ndarray or kind is np.ndarray:
            return self._array(tree)
        if origin in (Union, types.UnionType):
            if tree is None:
                return self._none(arguments)
            place, part = tree
            return self.read(part, arguments[_index(place, len(arguments))])
        if origin is tuple:
            if _is_floats(arguments):
                return tuple(self._take(FLOATS, _index(tree, math.inf)).tolist())
            return tuple(self.read(part, part_kind) for part, part_kind in _paired(tree, arguments))
        if origin is dict:
            return self._dict(tree, arguments[1])
        if kind is bytes:
            return self._take(BYTES, _index(tree, math.inf)).tobytes()
        _check_plain(tree, kind, origin, arguments)
        return tree

    def check_end(self) -> None:
        """Refuse numbers that belong to nothing."""
        left = {name: len(buffer) - self._at[name] for name, buffer in self._buffers.items()}
        if any(left.values()):
            raise ValueError(f"numbers are left over: {left}")

    def _dataclass(self, tree: Tree, kind: type) -> Any:
        found, parts = kind, tree
        if isinstance(tree, dict) and SUBCLASS in tree:
            if isinstance(tree[SUBCLASS], list):
                name, *parts = tree[SUBCLASS]
            else:
                name, parts = tree[SUBCLASS], {part: tree[part] for part in tree if part != SUBCLASS}
            found = subclass_named(kind, name)
        kinds = field_kinds(found)
        if isinstance(parts, list):
            parts = dict(zip(_listed_fields(kinds), parts, strict=True))
        unknown = sorted(_checked(parts, dict).keys() - kinds.keys())
        if unknown:
            raise ValueError(f"{found.__name__} has no fields {unknown[:5]}")
        return found(**{name: self.read(parts.get(name), its) for name, its in kinds.items()})

    def _dict(self, tree: Tree, kind: Any) -> dict[str, Any]:
        pairs = [_paired(pair, (str, kind)) for pair in _checked(tree, list)]
        found = {self.read(*name): self.read(*part) for name, part in pairs}
        if len(found) < len(pairs):
            raise ValueError("a name is there twice")
        return found

    def _array(self, tree: Tree) -> NDArray[Any]:
        mark, shape = (tree[0], tree[1:]) if tree and isinstance(tree[0], str) else ("", tree)
        sizes = tuple(_index(size, math.inf) for size in shape)
        count, name = math.prod(sizes), mark.removeprefix(REPEATED) or FLOATS
        if not mark.startswith(REPEATED):
            return self._take(name, count).reshape(sizes)
        self._repeated += count
        if self._repeated > MOST_NUMBERS:
            raise ValueError(f"a repeated number stands for {count} numbers, more than {MOST_NUMBERS} in all")
        return np.full(sizes, self._take(name, 1)[0])

    def _take(self, name: str, count: int) -> NDArray[Any]:
        if name not in TYPES:  # NumPy reads much more as a type
            raise ValueError(f"there are no arrays of type {name[:20]!r}")
        start, buffer = self._at.get(name, 0), self._buffers.get(name)
        if buffer is None and count == 0:
            return np.zeros(0, name)
        if buffer is None or buffer.ndim != 1 or start + count > len(buffer) or buffer.dtype != np.dtype(name):
            raise ValueError(f"{count} numbers of type {name} are not there")
        self._at[name] = start + count
        return buffer[start : start + count]

    def _none(self, arguments: tuple[Any, ...]) -> None:
        if type(None) not in arguments:
            raise ValueError("a value is missing")


@cache
def _parts_of(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """What an annotation is made of: tuple and (float, ...) of ``tuple[float, ...]``."""
    return get_origin(kind), get_args(kind)


@cache
def field_kinds(kind: Any) -> dict[str, Any]:
    """The fields that a dataclass is made from, with their types."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def _listed_fields(kinds: Mapping[str, Any]) -> list[str]:
    """The fields that a message lists: floats need no word, they stand in their buffer."""
    return [name for name, kind in kinds.items() if kind is not float]


@cache
def subclass_named(kind: Any, name: Any) -> type:
    """The class of a name among a class and its subclasses, which must have been imported."""
    for found in subclasses(kind):
        if found.__name__ == name:
            return found
    raise ValueError(f"there is no {kind.__name__} called {str(name)[:100]!r}")


def subclasses(kind: type) -> Iterable[type]:
    """A class and all classes derived from it."""
    yield kind
    children: list[type] = kind.__subclasses__()
    for derived in children:
        yield from subclasses(derived)


def _is_repeated(array: NDArray[Any]) -> bool:
    """Whether all numbers are the same, bit for bit."""
    bits = array.ravel().view(f"u{array.dtype.itemsize}")
    return bool((bits == bits[0]).all())


def _member(value: Any, arguments: tuple[Any, ...]) -> int:
    """Which member of a union a value is."""
    for place, kind in enumerate(arguments):
        if _fits(value, kind):
            return place
    raise TypeError(f"{type(value).__name__} is none of {arguments}")


def _fits(value: Any, kind: Any) -> bool:  # noqa: PLR0911 - one return per kind
    origin, arguments = _parts_of(kind)
    if kind is Json or kind is Any:
        return True
    if origin is Literal:
        return value in arguments
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(part, part_kind) for part, part_kind in _paired(value, arguments))
    if origin is dict:
        return isinstance(value, dict) and all(_fits(part, arguments[1]) for part in value.values())
    if kind is float:
        return isinstance(value, float)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind if origin is None else origin)


def _is_floats(arguments: tuple[Any, ...]) -> bool:
    return len(arguments) == 2 and arguments == (float, ...)


def _paired(parts: Any, arguments: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """The parts of a tuple with their types; one type for all of them if it ends with an ellipsis."""
    several = len(arguments) == 2 and arguments[1] is Ellipsis
    kinds = [arguments[0]] * len(parts) if several else list(arguments)
    if not isinstance(parts, tuple | list) or len(parts) != len(kinds):
        raise ValueError(f"{len(parts)} parts, expected {len(kinds)}")
    return list(zip(parts, kinds, strict=True))


def _check_plain(value: Any, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> None:
    """Refuse a text, truth value or whole number that is not of its type."""
    if kind is Json or kind is Any:
        return
    fits = value in arguments if origin is Literal else type(value) is kind
    if not fits:
        raise TypeError(f"{str(value)[:50]!r} is not a {getattr(kind, '__name__', kind)}")


def _checked(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"a {type(value).__name__}, expected a {kind.__name__}")
    return value


def _index(value: Any, below: float) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"{str(value)[:50]!r} is not a whole number from 0 on, or too large")
    return value
