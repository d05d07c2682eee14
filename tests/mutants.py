"""Messages that a hostile coordinator makes of honest ones: any field of a request or of a published entry changed."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from fedhk.errors import MessageError
from fedhk.federation.gate import ENTRIES
from fedhk.federation.messages import Message, encode

# Numbers at the limits of doubles, of what sites accept, and ordinary ones.
NUMBERS = (0.0, -0.0, -1.0, 1.0, 0.5, 3.0, 1e-9, 1e9, 1e-60, 1e60, 1e-320, 1e-300, 1e-158, 1e200, 1e308, -1e308)
NUMBERS += (1.0 + 1e-16, 1.0 + 1e-9, 1e6, -0.9999999, float("nan"), float("inf"), float("-inf"))
FACTORS = (-1.0, 0.0, 0.5, 1.01, 2.0, 10.0, 1e3, 1e-3, 1e-12, 1e12, 1e300, 1e-300)

# What stands in the tree of a message: whole numbers, texts, lists.
PLAIN = (
    0,
    1,
    2,
    3,
    4,
    5,
    -1,
    7,
    16,
    64,
    141,
    10**6,
    2**31,
    2**63,
    10**13,
    10**40,
    10**400,
    1e-9,
    0.5,
    1e308,
    True,
    False,
    None,
)
PLAIN += (
    "",
    "replace",
    "add-remove",
    "private",
    "uniform",
    "minmax",
    "absdev",
    "another run",
    "a\nrun",
    "x" * 300,
    "=",
    "f4",
    "i8",
)
PLAIN += ([], [0], [1, 1], {}, {"a": 1}, {".": ["FactorBroadcast"]}, {".": ["Personalization"]}, "\ud800")

KINDS = (
    "hello",
    "schema",
    "describe",
    "energy",
    "candidates",
    "round",
    "finish",
    "deliver",
    "diffuse",
    "cluster means",
    "a plugin",
)
KINDS += (
    "sealed.ranges",
    "sealed.moments",
    "sealed.means",
    "sealed.lengths",
    "sealed.directions",
    "sealed.products",
    "sealed.groups",
    "sealed.cells",
    "sealed.own cells",
    "sealed.noisy round",
    "sealed.masked round",
)
KINDS += (
    "sealed.finish",
    "sealed.energy",
    "sealed.fit mixture",
    "sealed.find directions",
    "sealed.schema",
    "schema+deliver",
    "sealed.ranges+sealed.cells",
)
KINDS += ("describe+candidates", "sealed.", "+", "refusal")

Change = tuple[int, int, int]
"""Which kind of change, where, and what: the same change is made to messages of the same form in the same place."""


def mutated(message: Message, changes: list[Change], others: list[Message]) -> bytes | None:
    """The bytes of a message after some changes; None where no bytes can stand for it."""
    for how, where, what in changes:
        message = CHANGES[how % len(CHANGES)](copy.deepcopy(message), where, what, others)
    try:
        return encode(message)
    except (MessageError, UnicodeEncodeError):
        return None


def change_number(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """One number of an array, or of one entry, is another."""
    names = sorted(name for name, array in message.arrays.items() if array.size)
    if names:
        array = message.arrays[names[where % len(names)]].copy()
        with np.errstate(all="ignore"):
            array.flat[where % array.size] = _as_type(NUMBERS[what % len(NUMBERS)], array.dtype)
        message.arrays[names[where % len(names)]] = array
    return message


def scale_numbers(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """Neighbouring numbers of an array are multiplied."""
    array = message.arrays.get("f8")
    if array is not None and array.size:
        array, start = array.copy(), where % array.size
        with np.errstate(all="ignore"):
            array[start : start + 1 + what % 7] *= FACTORS[what % len(FACTORS)]
        message.arrays["f8"] = array
    return message


def change_arrays(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """An array is longer, shorter, of another type, or missing."""
    names = sorted(message.arrays)
    if not names:
        return replace(message, arrays={"f8": np.zeros(where % 5)})
    name = names[where % len(names)]
    array = message.arrays.pop(name)
    made = [array[:-1], np.append(array, array[:1]), array.astype(np.float32), array[None], array[::-1].copy(), None]
    if made[what % len(made)] is not None:
        message.arrays[name] = made[what % len(made)]
    return message


def change_leaf(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """Something in the tree is something else: a name, a whole number, a shape, a term of the run."""
    places = list(_places(message.values))
    if places:
        holder, key = places[where % len(places)]
        holder[key] = copy.deepcopy(PLAIN[what % len(PLAIN)])
    return message


def nudge_leaf(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """A whole number of the tree, such as that of an exchange, is one of its neighbours."""
    places = [(holder, key) for holder, key in _places(message.values) if type(holder[key]) is int]
    if places:
        holder, key = places[where % len(places)]
        holder[key] += (1, -1, 2, 10)[what % 4]
    return message


def change_lists(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """A list of the tree has a part twice, one less, or in another order."""
    places = [holder[key] for holder, key in _places(message.values) if isinstance(holder[key], list) and holder[key]]
    if places:
        found = places[where % len(places)]
        place = what % len(found)
        (
            lambda: found.append(copy.deepcopy(found[place])),
            lambda: found.pop(place),
            found.reverse,
        )[what % 3]()
    return message


def repeat_entry(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """A published entry is there twice, the second time with a change."""
    names, tree = message.values.get(ENTRIES), message.values.get("tree")
    if names and isinstance(names, list) and isinstance(tree, list) and len(tree) == len(names) + 1:
        place = where % len(names)
        names.append(names[place])
        tree.append(copy.deepcopy(tree[place + 1]))
        inner = list(_places(tree, len(tree) - 1))
        if inner:
            holder, key = inner[what % len(inner)]
            value = holder[key]
            holder[key] = not value if isinstance(value, bool) else copy.deepcopy(PLAIN[what % len(PLAIN)])
    return message


def change_envelope(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """The kind, the number of the exchange, or whom it is for."""
    made = [
        lambda: replace(message, kind=KINDS[what % len(KINDS)]),
        lambda: replace(message, round=(message.round + what) % 40),
        lambda: replace(message, site=("*", "rome", "oslo", "x")[what % 4]),
    ]
    return made[where % 3]()


def cross(message: Message, where: int, what: int, others: list[Message]) -> Message:
    """The kind of one message with the content of another."""
    return replace(others[where % len(others)], kind=message.kind) if others else message


CHANGES: tuple[Any, ...] = (change_number, scale_numbers, change_leaf, change_number, nudge_leaf, change_lists)
CHANGES += (repeat_entry, change_leaf, change_envelope, change_arrays, cross, scale_numbers)


def _places(holder: Any, *keys: Any) -> Any:
    """All places of a tree, as (holder, key)."""
    for key in keys or (holder if isinstance(holder, dict) else range(len(holder))):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])


def _as_type(value: float, dtype: Any) -> Any:
    return value if dtype.kind == "f" else np.array(0 if not abs(value) < 2**31 else int(value)).astype(dtype)
