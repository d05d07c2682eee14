"""Checks of the arguments that splits, generators and metrics share: counts, numbers, labels."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_count", "check_labels", "check_number"]


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


def check_labels(labels: Any, name: str) -> tuple[NDArray[np.intp], list[Hashable]]:
    """Encode a sequence of hashable values as whole numbers: the place of each label among the distinct ones.

    Returns the places, and the distinct labels: sorted where they can be compared, else in the order they came in.
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
