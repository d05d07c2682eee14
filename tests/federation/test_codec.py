"""The codec: every kind of value comes back as it went; whatever else comes is one kind of error, in little memory."""

from __future__ import annotations

import json
import tracemalloc
import types
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from fedhk._options import Option
from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.board import Entry
from fedhk.federation.codec import LONG_TREE, MOST_NUMBERS, TREE, TYPES, Json, _parts_of, pack, subclasses, unpack
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases import load_phases
from fedhk.federation.phases.base import Phase

load_phases()


@dataclass(frozen=True)
class Shape:
    """A base class; fields may hold what is derived from it."""

    name: str


@dataclass(frozen=True)
class Circle(Shape):
    radius: float


@dataclass(frozen=True)
class Box(Shape):
    sides: tuple[float, float]
    lid: Circle | None = None


@dataclass(frozen=True)
class Everything:
    """One field of each kind that a dataclass on the wire may have."""

    text: str
    number: int
    real: float
    truth: bool
    choice: Literal["a", "b", 3]
    array: np.ndarray
    reals: tuple[float, ...]
    pair: tuple[int, str]
    arrays: tuple[np.ndarray, ...]
    shape: Shape
    shapes: tuple[Shape, ...]
    maybe: Circle | None
    union: int | float | str | tuple[int, ...] | np.ndarray | None
    by_name: dict[str, float]
    nested: dict[str, tuple[Shape, ...]]
    data: bytes
    plain: Json
    derived: int = field(init=False, default=0)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
reals = st.floats(width=64)
whole = st.integers(-(2**70), 2**70)
json_values = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
arrays = st.sampled_from(sorted(TYPES)).flatmap(
    lambda name: hnp.arrays("bool" if name == "b1" else name, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
repeated = st.builds(np.full, hnp.array_shapes(max_dims=3), reals)
some_arrays = arrays | repeated
circles = st.builds(Circle, texts, reals)
boxes = st.builds(Box, texts, st.tuples(reals, reals), st.none() | circles)
shapes = st.builds(Shape, texts) | circles | boxes
everything = st.builds(
    Everything,
    text=texts,
    number=whole,
    real=reals,
    truth=st.booleans(),
    choice=st.sampled_from(["a", "b", 3]),
    array=some_arrays,
    reals=st.lists(reals, max_size=4).map(tuple),
    pair=st.tuples(whole, texts),
    arrays=st.lists(some_arrays, max_size=3).map(tuple),
    shape=shapes,
    shapes=st.lists(shapes, max_size=3).map(tuple),
    maybe=st.none() | circles,
    union=st.none() | whole | reals | texts | st.lists(whole, max_size=3).map(tuple) | some_arrays,
    by_name=st.dictionaries(texts, reals, max_size=3),
    nested=st.dictionaries(texts, st.lists(shapes, max_size=2).map(tuple), max_size=2),
    data=st.binary(max_size=20),
    plain=json_values,
)


def assert_same(one, other):
    """Two values are the same in type, shape and bits."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    elif is_dataclass(one):
        for part in fields(one):
            if part.name == "plain":  # JSON has no order of names
                assert one.plain == other.plain
            else:
                assert_same(getattr(one, part.name), getattr(other, part.name))
    elif isinstance(one, tuple | list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name, part in one.items():
            assert_same(part, other[name])
    elif isinstance(one, float):
        assert np.float64(one).tobytes() == np.float64(other).tobytes()  # NaN and the sign of zero too
    else:
        assert one == other


def through_a_message(value, kind, *, named=False):
    """A value as it comes at the other end of the wire."""
    values, buffers = pack(value, kind, named=named)
    message = decode(encode(Message("any", "oslo", 0, buffers, values)))
    return unpack(message.values, message.arrays, kind)


class TestWhatIsWrittenIsRead:
    @given(everything, st.booleans())
    @settings(max_examples=150)
    def test_every_kind_of_field_with_names_and_without(self, value, named):
        assert_same(through_a_message(value, Everything, named=named), value)

    @given(everything)
    def test_equal_values_have_equal_bytes(self, value):
        one, other = (encode(Message("any", "oslo", 0, *reversed(pack(value, Everything)))) for _ in range(2))
        assert one == other

    @given(shapes)
    def test_a_subclass_is_found_by_its_name(self, value):
        assert_same(through_a_message(value, Shape), value)
        assert_same(through_a_message((value, value), tuple[Shape, ...]), (value, value))

    @pytest.mark.parametrize("name", sorted(TYPES))
    def test_arrays_of_every_type_and_order_in_memory(self, name):
        array = (np.arange(24) % 2).astype("bool" if name == "b1" else name).reshape(2, 3, 4)
        for same in (array, np.asfortranarray(array), array[:, ::-1], array.astype(array.dtype.newbyteorder(">"))):
            found = through_a_message(same, np.ndarray)
            assert found.dtype == array.dtype
            assert_array_equal(found, same)

    def test_what_is_read_can_be_written_to_and_is_its_own(self):
        first, second = through_a_message((np.arange(4.0), np.ones((2, 2))), tuple[np.ndarray, ...])
        first[0] = second[0, 0] = 9.0
        assert second.tolist() == [[9.0, 1.0], [1.0, 1.0]]

    def test_a_long_tree_stands_beside_the_header(self):
        value = tuple(f"name {i}" for i in range(LONG_TREE // 4))
        values, buffers = pack(value, tuple[str, ...])
        assert values == {}
        assert buffers[TREE].dtype == np.uint8
        assert through_a_message(value, tuple[str, ...]) == value

    def test_a_derived_field_is_made_again_and_a_lacking_one_of_a_file_is_none(self):
        values, buffers = pack(Box("b", (1.0, 2.0)), Box, named=True)
        assert "lid" not in values[TREE]
        assert unpack(values, buffers, Box) == Box("b", (1.0, 2.0), None)

    def test_the_order_of_a_dict_is_kept_and_every_name_has_its_own_number(self):
        """Headers of messages are written with sorted names; numbers are in the order in which they were written."""
        value = {"turin": 1.0, "bern": 2.0, "rome": 3.0}
        found = through_a_message(value, dict[str, float])
        assert list(found.items()) == list(value.items())

    def test_the_first_member_of_a_union_that_fits_is_taken(self):
        for value, kind in [
            (True, int | bool),
            (3, float | int),
            (3.0, int | float),
            ((1, 2), tuple[str, ...] | tuple[int, ...]),
        ]:
            assert_same(through_a_message(value, kind), value)


class TestSizes:
    def test_all_arrays_of_one_type_share_one_buffer(self):
        value = tuple(np.arange(float(n)) for n in range(2, 40))
        _, buffers = pack(value, tuple[np.ndarray, ...])
        assert list(buffers) == ["f8"]
        assert len(buffers["f8"]) == sum(map(len, value))

    def test_a_repeated_number_is_written_once(self):
        for array in (
            np.full((300, 7), np.nan),
            np.zeros(10**6),
            np.full((4, 4), -0.0, np.float32),
            np.ones((3, 1), bool),
        ):
            values, buffers = pack(array, np.ndarray)
            assert sum(buffer.size for buffer in buffers.values()) == 1
            assert_same(unpack(values, buffers, np.ndarray), array)

    def test_zeros_of_both_signs_are_not_one_number(self):
        array = np.array([0.0, -0.0, 0.0])
        assert_same(through_a_message(array, np.ndarray), array)
        assert pack(array, np.ndarray)[1]["f8"].size == 3


class TestWhatCannotBeWritten:
    @pytest.mark.parametrize(
        ("value", "kind"),
        [
            (3, str),
            ("3", int),
            (True, int),
            (1, bool),
            ("c", Literal["a", "b"]),
            ([], int | str),
            ((1, 2, 3), tuple[int, int]),
            (np.array(["a"]), np.ndarray),
            (np.array([1j]), np.ndarray),
            (np.array([None]), np.ndarray),
            (np.array(["2020-01-01"], "M8[D]"), np.ndarray),
        ],
        ids=str,
    )
    def test_is_a_mistake_of_the_writer(self, value, kind):
        with pytest.raises((TypeError, ValueError)):
            pack(value, kind)


# ------------------------------------------------------------------------------------------------------------- garbage

# what an attacker may try as the type of an array: NumPy reads much as a type, and runs a parser for some of it
odd_types = st.sampled_from(
    ["O", "a", "V8", "M8[s]", "c16", "f8,f8", "(a,", "(1", "i4,(2", ",", "U3", "S", "object", "x" * 50, "=", "==", "=O"]
)
odd_trees = st.recursive(
    st.none()
    | st.booleans()
    | whole
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | odd_types
    | st.sampled_from(["", ".", "=", "=f4", "f4", "Circle", "Box", 0, 1, -1, 2**26, 2**63]),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(texts | st.sampled_from([".", "name", "radius", "sides"]), inner, max_size=3)
        | st.tuples(odd_types, inner).map(list)
    ),
    max_leaves=12,
)
odd_buffers = st.dictionaries(
    st.sampled_from(sorted(TYPES)) | odd_types | texts,
    arrays | st.just(np.zeros(5)),
    max_size=3,
)


def wire_kinds():
    """Everything that a site or the server may be asked to read."""
    kinds = [kind for kind in subclasses(Entry) if is_dataclass(kind)]
    for phase in subclasses(Phase):
        kinds += [phase.__dict__[name] for name in ("request_type", "reply_type") if name in phase.__dict__]
    return sorted(
        {kind for kind in [*kinds, *subclasses(Option)] if isinstance(kind, type)}, key=lambda kind: kind.__name__
    )


def assert_message_error_or_nothing(values, buffers, kind):
    with suppress(MessageError):
        unpack(values, buffers, kind)


class TestGarbage:
    @given(odd_trees, odd_buffers, st.sampled_from(["tree", "buffer", "nothing"]), st.data())
    @settings(max_examples=400)
    def test_gives_one_kind_of_error_and_no_other(self, tree, buffers, place, data):
        kind = data.draw(st.sampled_from([Everything, Shape, Box, tuple[Shape, ...], dict[str, Box], *wire_kinds()]))
        values = {TREE: tree} if place == "tree" else {}
        if place == "buffer":
            buffers = buffers | {TREE: np.frombuffer(json.dumps(tree).encode(), np.uint8)}
        assert_message_error_or_nothing(values, buffers, kind)

    @given(everything, st.data())
    @settings(max_examples=200)
    def test_nearly_right_values_give_one_kind_of_error_and_no_other(self, value, data):
        """A part of a right tree is replaced, or a buffer is: what a careful attacker does."""
        values, buffers = pack(value, Everything)
        tree = json.loads(json.dumps(values[TREE])) if TREE in values else []
        place = data.draw(st.integers(0, max(len(tree) - 1, 0)))
        if tree:
            tree[place] = data.draw(odd_trees)
        if buffers and data.draw(st.booleans()):
            name = data.draw(st.sampled_from(sorted(buffers)))
            buffers = buffers | {name: data.draw(arrays)}
        assert_message_error_or_nothing({TREE: tree}, buffers, Everything)

    @pytest.mark.parametrize("name", ["O", "a", "(a,", "i4,(2", "M8[s]", "x", "", "f16", "U3", "tree"])
    def test_a_type_that_arrays_cannot_have_is_refused_even_of_no_numbers(self, name):
        for shape in ([0], [3], [0, 3]):
            for mark in (name, "=" + name):
                if mark in ("", "="):
                    continue
                with pytest.raises(MessageError):
                    unpack({TREE: [mark, *shape]}, {name: np.zeros(3)} if name else {}, np.ndarray)

    @pytest.mark.parametrize(
        ("tree", "buffers", "kind"),
        [
            ([2], {"f8": np.zeros(3)}, np.ndarray),  # one number too many
            ([4], {"f8": np.zeros(3)}, np.ndarray),
            ([-1], {"f8": np.zeros(3)}, np.ndarray),
            ([3.0], {"f8": np.zeros(3)}, np.ndarray),
            ([True], {"f8": np.zeros(1)}, np.ndarray),
            ([3], {"f8": np.zeros((3, 1))}, np.ndarray),
            ([3], {"f8": np.zeros(3, np.float32)}, np.ndarray),
            ([3], {"f8": np.zeros(3), "i8": np.zeros(1, np.int64)}, np.ndarray),
            (None, {}, float),
            (None, {"f8": np.zeros(1, np.int64)}, float),
            (None, {}, int | str),
            ([2, 1], {}, int | str),
            ([-1, 1], {}, int | str),
            ([0, "x"], {}, int | str),
            ([1], {}, tuple[int, int]),
            ("ab", {}, tuple[str, str]),
            ({"0": 1}, {}, tuple[int, ...]),
            ({"a": 1}, {}, dict[str, int]),
            ([["a", 1], ["a", 2]], {}, dict[str, int]),
            ([["a"]], {}, dict[str, int]),
            ([[1, 1]], {}, dict[str, int]),
            ({".": "Everything"}, {}, Shape),
            ({".": ["Circle"]}, {}, Shape),
            ({".": 3}, {}, Shape),
            ({".": []}, {}, Shape),
            ({"name": "a", "colour": "red"}, {}, Shape),
            ({}, {}, Shape),
            (["a", "b"], {}, Shape),
            (5, {}, bytes),
            (-5, {"u1": np.zeros(5, np.uint8)}, bytes),
        ],
        ids=str,
    )
    def test_what_does_not_fit_is_refused(self, tree, buffers, kind):
        with pytest.raises(MessageError, match=r"not what was asked for|there is no Shape called"):
            unpack({TREE: tree}, buffers, kind)

    def test_a_deep_nest_is_refused(self):
        text = np.frombuffer(b"[" * 100_000 + b"]" * 100_000, np.uint8)
        for kind in (Shape, Json, tuple[Shape, ...], Everything):
            assert_message_error_or_nothing({}, {TREE: text}, kind)
        with pytest.raises(MessageError):
            unpack({}, {TREE: text}, Shape)

    def test_nothing_at_all_is_refused(self):
        for values, buffers in (({}, {}), ({}, {TREE: np.zeros(0, np.uint8)}), ({}, {TREE: np.zeros(3)})):
            with pytest.raises(MessageError):
                unpack(values, buffers, Shape)


class TestMemory:
    @pytest.mark.parametrize(
        ("tree", "kind"),
        [
            (["=", MOST_NUMBERS + 1], np.ndarray),
            (["=", 2**25, 2**25, 2**25], np.ndarray),
            (["=", 2**40], np.ndarray),
            ([["=", 2**24]] * 1000, tuple[np.ndarray, ...]),
            ([["=", 2**12, 2**11]] * 1000, tuple[np.ndarray, ...]),
            ([2**25, 0, 2**25, 2**25], np.ndarray),
            ([2**25] * 70 + [0], np.ndarray),
            (2**60, tuple[float, ...]),
            (2**60, bytes),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_a_short_message_does_not_fill_the_memory(self, tree, kind):
        """What a repeated number stands for counts over the whole message."""
        buffers = {"f8": np.zeros(1000)}
        tracemalloc.start()
        try:
            with pytest.raises(MessageError):
                unpack({TREE: tree}, buffers, kind)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= 8 * MOST_NUMBERS + 2**20

    @given(odd_trees, odd_buffers)
    @settings(max_examples=60)
    def test_garbage_takes_little(self, tree, buffers):
        tracemalloc.start()
        try:
            assert_message_error_or_nothing({TREE: tree}, buffers, Everything)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= 2**22


def test_any_value_of_json_is_kept_as_it_is():
    value: Any = {"a": [1, {"b": None}], "c": "ü"}
    assert through_a_message(value, Json) == value


def test_an_alias_is_what_it_stands_for():
    """NumPy's NDArray is such an alias from 2.5 on, in Python 3.12 and later."""
    part = TypeVar("part")
    alias = type("alias", (), {"__value__": tuple[part, ...]})
    assert _parts_of(types.GenericAlias(alias, (float,))) == (tuple, (float, ...))
    assert _parts_of(FloatArray)[0] is np.ndarray
