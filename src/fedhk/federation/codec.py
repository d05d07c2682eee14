"""The codec writes dataclasses as a small JSON tree and a few flat arrays, and reads them back.

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
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError, UnknownClassError

T = TypeVar("T")
Tree = Any
Buffers = dict[str, NDArray[Any]]

FLOATS, BYTES = "f8", "u1"
UNIONS = (Union, types.UnionType)
TYPES = frozenset(["b1", "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
"""What arrays may hold: NumPy's names without the byte order, which is always little-endian."""

# The name of the subclass in the tree of a dataclass (no field is called so), and the mark of a repeated number.
SUBCLASS, REPEATED = ".", "="
# Longer trees are written into an array, because headers of messages have a limit.
LONG_TREE = 2**15
TREE = "tree"
# Most numbers that repeated ones in a value may expand to, as many as the longest message holds in double precision: a
# short message must not fill the memory of its reader.
MOST_NUMBERS = 2**25

Json = Any
"""Annotation of a field that holds plain JSON: texts, numbers, lists and dicts of them."""


def pack(value: Any, kind: Any, *, named: bool = False) -> tuple[dict[str, Any], Buffers]:
    """Write a value of the type `kind`, which the reader will expect, as the `values` and `arrays` of a message.

    With `named` the names of fields are written: files that outlive a version have them, messages do not.
    """
    writer = _Writer(named)
    tree = writer.write(value, kind)
    buffers = {name: np.concatenate(parts) for name, parts in writer.parts.items()}
    text = json.dumps(tree, separators=(",", ":"), allow_nan=False)
    if len(text) > LONG_TREE:
        return {}, buffers | {TREE: np.frombuffer(text.encode(), np.uint8)}
    return {TREE: tree}, buffers


def unpack(values: Mapping[str, Any], buffers: Mapping[str, NDArray[Any]], kind: type[T]) -> T:
    """Read a value that `pack` wrote; MessageError if it is not of this type, or if something is left over."""
    rest = dict(buffers)
    try:
        tree = values[TREE] if TREE in values else json.loads(rest.pop(TREE).tobytes())
        reader = _Reader(rest)
        value: T = reader.read(tree, kind)
        for name, buffer in rest.items():
            if len(buffer) > reader.taken.get(name, 0):
                raise ValueError(f"numbers are left over, of type {name[:20]!r}")  # noqa: TRY301
    except UnknownClassError:
        raise
    except (LookupError, TypeError, ValueError, RecursionError, OverflowError, AttributeError) as error:
        raise MessageError(f"it is not what was asked for: {type(error).__name__}: {str(error)[:200]}") from error
    return value


@dataclasses.dataclass
class _Writer:
    """Collects the arrays of one value, by type."""

    named: bool
    parts: dict[str, list[NDArray[Any]]] = dataclasses.field(default_factory=dict)

    def write(self, value: Any, kind: Any) -> Tree:  # noqa: PLR0911 - one return per kind
        form, arguments = _form_of(kind)
        if form == "float":
            return self._keep(np.array([value], np.float64))
        if form == "dataclass":
            return self._dataclass(value, kind)
        if form == "array":
            return self._array(np.asarray(value))
        if form == "union":
            for place, member in enumerate(arguments):
                if _fits(value, member):
                    return None if member is type(None) else [place, self.write(value, member)]
            raise TypeError(f"{type(value).__name__} is none of {arguments}")
        if form == "tuple":
            return list(map(self.write, value, _kinds_of(value, arguments)))
        if form == "dict":
            return self.write(tuple(value.items()), arguments[0])
        if form in ("floats", "bytes"):
            self._keep(np.frombuffer(value, np.uint8) if form == "bytes" else np.array(value, np.float64))
            return len(value)
        return _checked(value, kind)

    def _dataclass(self, value: Any, kind: Any) -> Tree:
        found: Any = type(value)
        parts = {name: self.write(getattr(value, name), its) for name, its in _field_kinds(found).items()}
        if self.named:
            known = {name: part for name, part in parts.items() if part is not None}
            return known if found is kind else {SUBCLASS: found.__name__} | known
        listed = list(map(parts.get, _listed_fields(found)))
        return listed if found is kind else {SUBCLASS: [found.__name__, *listed]}

    def _array(self, array: NDArray[Any]) -> list[Any]:
        name, shape = array.dtype.str[1:], array.shape
        if name not in TYPES:
            raise TypeError(f"an array of type {array.dtype} cannot be written")
        mark = "" if name == FLOATS else name
        bits = array.ravel().view(f"u{array.dtype.itemsize}")
        if array.size > 1 and (bits == bits[0]).all():  # all numbers are the same, bit for bit
            array, mark = array.ravel()[:1], REPEATED + mark
        self._keep(array)
        return [mark, *shape] if mark else [*shape]

    def _keep(self, array: NDArray[Any]) -> None:
        if array.size:
            little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            self.parts.setdefault(array.dtype.str[1:], []).append(little.ravel())


@dataclasses.dataclass
class _Reader:
    """Takes arrays from the buffers in the order in which they were written."""

    buffers: Buffers
    taken: dict[str, int] = dataclasses.field(default_factory=dict)  # numbers of each buffer that were read so far
    repeated: int = 0

    def read(self, tree: Tree, kind: Any) -> Any:  # noqa: C901, PLR0911 - one branch per kind
        form, arguments = _form_of(kind)
        if form == "float":
            return float(self._take(FLOATS, 1)[0])
        if form == "dataclass":
            return self._dataclass(tree, kind)
        if form == "array":
            return self._array(tree)
        if form == "union":
            if tree is not None:
                place, part = tree
                return self.read(part, arguments[_index(place, len(arguments))])
            if type(None) not in arguments:
                raise ValueError("a value is missing")
            return None
        if form == "tuple":
            return tuple(map(self.read, tree, _kinds_of(tree, arguments)))
        if form == "dict":
            pairs = self.read(tree, arguments[0])
            if len(found := dict(pairs)) < len(pairs):
                raise ValueError("a name is there twice")
            return found
        if form in ("floats", "bytes"):
            numbers = self._take(BYTES if form == "bytes" else FLOATS, _index(tree))
            return numbers.tobytes() if form == "bytes" else tuple(numbers.tolist())
        return _checked(tree, kind)

    def _dataclass(self, tree: Tree, kind: Any) -> Any:
        found, parts = kind, tree
        if isinstance(tree, dict) and SUBCLASS in tree:
            if isinstance(tree[SUBCLASS], list):
                name, *parts = tree[SUBCLASS]
            else:
                name, parts = tree[SUBCLASS], {part: tree[part] for part in tree if part != SUBCLASS}
            found = subclass_named(kind, name)
        kinds = _field_kinds(found)
        if isinstance(parts, list):
            parts = dict(zip(_listed_fields(found), parts, strict=True))
        elif not isinstance(parts, dict):
            raise TypeError(f"a {type(parts).__name__}, expected a dict")
        unknown = sorted(parts.keys() - kinds.keys())
        if unknown:
            raise ValueError(f"{found.__name__} has no fields {unknown[:5]}")
        return found(**{name: self.read(parts.get(name), its) for name, its in kinds.items()})

    def _array(self, tree: Tree) -> NDArray[Any]:
        mark, shape = (tree[0], tree[1:]) if tree and isinstance(tree[0], str) else ("", tree)
        sizes = tuple(map(_index, shape))
        count, name = math.prod(sizes), mark.removeprefix(REPEATED) or FLOATS
        if not mark.startswith(REPEATED):
            return self._take(name, count).reshape(sizes)
        self.repeated += count
        if self.repeated > MOST_NUMBERS:
            raise ValueError(f"a repeated number stands for {count} numbers, more than {MOST_NUMBERS} in all")
        return np.full(sizes, self._take(name, 1)[0])

    def _take(self, name: str, count: int) -> NDArray[Any]:
        if name not in TYPES:  # NumPy reads much more as a type
            raise ValueError(f"there are no arrays of type {name[:20]!r}")
        start, buffer = self.taken.get(name, 0), self.buffers.get(name)
        if buffer is None and count == 0:
            return np.zeros(0, name)
        if buffer is None or buffer.ndim != 1 or start + count > len(buffer) or buffer.dtype != np.dtype(name):
            raise ValueError(f"{count} numbers of type {name} are not there")
        self.taken[name] = start + count
        return buffer[start : start + count]


@cache
def _parts_of(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Split an annotation into its origin and arguments: tuple and (float, ...) of ``tuple[float, ...]``.

    A dict is made of the tuple of its items: headers of messages have sorted names, and the order of a dict counts. An
    alias, such as NumPy's `NDArray` from 2.5 on, is split as what it stands for.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if hasattr(origin, "__value__"):
        return _parts_of(origin.__value__[arguments])
    if origin is dict:
        pair = types.GenericAlias(tuple, (str, arguments[1]))
        return dict, (types.GenericAlias(tuple, (pair, ...)),)
    return origin, arguments


@cache
def _form_of(kind: Any) -> tuple[str, tuple[Any, ...]]:
    """Name the way in which values of a type are written, with the arguments of the type; looked up for every value."""
    origin, arguments = _parts_of(kind)
    if dataclasses.is_dataclass(kind):
        form = "dataclass"
    elif origin is np.ndarray or kind is np.ndarray:
        form = "array"
    elif origin is tuple:
        form = "floats" if arguments == (float, ...) else "tuple"
    else:
        form = "union" if origin in UNIONS else {float: "float", bytes: "bytes", dict: "dict"}.get(origin or kind, "")
    return form, arguments


def _kinds_of(parts: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the type of each part of a tuple; one type for all of them if it ends with an ellipsis."""
    if not isinstance(parts, tuple | list):
        raise TypeError(f"a {type(parts).__name__}, expected a list")
    kinds = arguments[:1] * len(parts) if arguments[1:] == (...,) else arguments
    if len(parts) != len(kinds):
        raise ValueError(f"{len(parts)} parts, expected {len(kinds)}")
    return kinds


@cache
def _field_kinds(kind: Any) -> dict[str, Any]:
    """Return the fields that a dataclass is constructed from, with their types."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


@cache
def _listed_fields(kind: Any) -> list[str]:
    """Return the fields that a message lists: all but floats, which are in a buffer of their own."""
    return [name for name, its in _field_kinds(kind).items() if its is not float]


@cache
def subclass_named(kind: Any, name: Any) -> type:
    """Find a class by its name among a class and its subclasses, which must have been imported."""
    for found in subclasses(kind):
        if found.__name__ == name:
            return found
    raise UnknownClassError(kind.__name__, str(name))


def subclasses(kind: type) -> Iterable[type]:
    """Iterate over a class and all classes derived from it."""
    yield kind
    children: list[type] = kind.__subclasses__()
    for derived in children:
        yield from subclasses(derived)


def _fits(value: Any, kind: Any) -> bool:  # noqa: PLR0911 - one return per kind
    """Tell whether a value is of a type; used to find the matching member of a union."""
    origin, arguments = _parts_of(kind)
    if kind is Json:
        return True
    if origin is Literal:
        return value in arguments
    if origin in UNIONS:
        return any(_fits(value, member) for member in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(map(_fits, value, _kinds_of(value, arguments)))
    if origin is dict:
        return isinstance(value, dict) and _fits(tuple(value.items()), arguments[0])
    if kind is int:
        return type(value) is int  # a bool is an int, too
    return isinstance(value, kind if origin is None else origin)


def _checked(value: Any, kind: Any) -> Any:
    """Return a text, truth value or whole number if it is of this type; raise TypeError if not."""
    if not _fits(value, kind):
        raise TypeError(f"{str(value)[:50]!r} is not a {getattr(kind, '__name__', kind)}")
    return value


def _index(value: Any, below: float = math.inf) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"{str(value)[:50]!r} is not a whole number from 0 on, or too large")
    return value
