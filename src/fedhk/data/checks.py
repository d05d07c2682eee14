"""Checks of the arguments that splits, generators and metrics share: counts, numbers, labels, random states."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RandomStateLike", "check_count", "check_generator", "check_labels", "check_number"]

RandomStateLike = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None
"""What ``random_state`` may be."""


def check_count(value: Any, name: str, *, minimum: int = 1) -> int:
    """Return ``value`` as an int, or say why it is not a whole number of at least ``minimum``."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    return int(value)


def check_number(
    value: Any, name: str, *, minimum: float = 0.0, open_below: bool = False, finite: bool = True
) -> float:
    """Return ``value`` as a float, or say why it is not a number from ``minimum`` on (beyond it if ``open_below``)."""
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        number = float(value)
        large_enough = number > minimum if open_below else number >= minimum
        if large_enough and (np.isfinite(number) or not finite):
            return number
    allowed = f"above {minimum:g}" if open_below else f"of at least {minimum:g}"
    raise ValueError(f"{name} must be a {'finite ' if finite else ''}number {allowed}, got {value!r}.")


def check_generator(random_state: RandomStateLike) -> np.random.Generator:
    """Make a generator of random numbers from what scikit-learn users pass as ``random_state``.

    A generator is used as it is and moves on; a ``RandomState`` gives a seed and moves on; None asks the operating system
    for a seed. NumPy's global state is neither read nor changed.
    """
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**32, size=4, dtype=np.uint32))
    if isinstance(random_state, Integral) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise ValueError(
        f"random_state must be a whole number of at least 0, a numpy Generator, a numpy RandomState or None, "
        f"got {random_state!r}."
    )


def check_labels(labels: Any, name: str) -> tuple[NDArray[np.intp], list[Hashable]]:
    """Encode a sequence of any hashable values as whole numbers: the place of each label among the distinct ones.

    Returns these places, and the distinct labels: sorted where they can be compared, else in the order of their first row.
    """
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got an array of shape {labels.shape}.")
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise TypeError(f"{name} must be a sequence of labels, got {labels!r}.")
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biufSU":
        labels = labels.tolist()
    seen: dict[Any, int] = {}
    codes = []
    for row, label in enumerate(labels):
        if isinstance(label, float | np.floating) and math.isnan(label):  # it equals nothing, not even itself
            raise ValueError(f"{name} is NaN at row {row}; give rows without a label a label of their own.")
        try:
            codes.append(seen.setdefault(label, len(seen)))
        except TypeError:
            raise ValueError(f"{name} must hold hashable labels, got {label!r} at row {row}.") from None
    if not codes:
        raise ValueError(f"{name} must hold at least one label, got an empty sequence.")
    try:
        values = sorted(seen)
    except TypeError:  # labels of several types have no order but the one they came in
        values = list(seen)
    place = np.empty(len(values), dtype=np.intp)
    place[[seen[value] for value in values]] = np.arange(len(values))
    return place[codes], values
