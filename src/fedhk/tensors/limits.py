"""Which ranks are possible, and errors that name the mode and both sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Limit:
    """The largest rank of one mode.

    Parameters
    ----------
    mode : str
        Name of the mode; empty where one rank serves all modes.
    largest : int
        Largest rank.
    because : str
        What a larger rank is above: the end of the sentence "rank 8 is above ...".
    """

    mode: str
    largest: int
    because: str


def view_label(h: int, widths: Sequence[int], names: Sequence[str] | None) -> str:
    """A view in an error: its name, or its number, and its width."""
    name = repr(names[h]) if names is not None else f"view {h}"
    return f"{name} with {widths[h]} feature{'' if widths[h] == 1 else 's'}"


def largest_ranks(limits: Sequence[Limit]) -> dict[str, int]:
    """Give the largest rank of every mode; where several limits hold for a mode, the least of them."""
    modes = dict.fromkeys(limit.mode for limit in limits)
    return {mode: min(limit.largest for limit in limits if limit.mode == mode) for mode in modes}


def check_rank(rank: int | Sequence[int], limits: Sequence[Limit], name: str) -> tuple[int, ...]:
    """One rank per mode, or an error that names the mode and both sizes.

    Parameters
    ----------
    rank : int or sequence of int
        One for each mode. One number for a form with several modes is the rank of each, held to what the mode allows;
        it must be possible in at least one.
    limits : sequence of Limit
        What `Decomposition.limits` gives; several with one mode name are all checked.
    name : str
        Name of the decomposition.

    Returns
    -------
    tuple of int
    """
    modes = list(dict.fromkeys(limit.mode for limit in limits))
    largest = {mode: min((limit for limit in limits if limit.mode == mode), key=_largest) for mode in modes}
    single = not isinstance(rank, Sequence | np.ndarray)
    ranks: list[Any] = [rank] * len(modes) if single else list(rank)  # type: ignore[arg-type]
    if len(ranks) != len(modes):
        wanted = "one number" if len(modes) == 1 else f"one number or {len(modes)} ({', '.join(modes)})"
        raise ValueError(f"rank for {name} must be {wanted}, got {len(ranks)}: {tuple(ranks)!r}.")
    for value in ranks:
        if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"rank for {name} must be made of whole numbers of at least 1, got {rank!r}.")
    if single and len(modes) > 1:
        widest = max(largest.values(), key=_largest)
        _check_one(int(ranks[0]), widest, name)
        return tuple(min(int(ranks[0]), largest[mode].largest) for mode in modes)
    for mode, value in zip(modes, ranks, strict=True):
        _check_one(int(value), largest[mode], name)
    return tuple(int(value) for value in ranks)


def _largest(limit: Limit) -> int:
    return limit.largest


def _check_one(value: int, limit: Limit, name: str) -> None:
    if value > limit.largest:
        mode = f" of the {limit.mode} mode" if limit.mode else ""
        raise ValueError(f"rank {value}{mode} for {name} is above {limit.because}; at most {limit.largest}.")
