"""Limits of ranks, and errors that name the mode and both sizes."""

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
    """Describe a view in an error: its name, or its number, and its width."""
    name = repr(names[h]) if names is not None else f"view {h}"
    return f"{name} with {widths[h]} feature{'' if widths[h] == 1 else 's'}"


def _tightest_limits(limits: Sequence[Limit]) -> dict[str, Limit]:
    """Give the limit of every mode; where several hold for a mode, the least of them."""
    tightest: dict[str, Limit] = {}
    for limit in limits:
        if limit.mode not in tightest or limit.largest < tightest[limit.mode].largest:
            tightest[limit.mode] = limit
    return tightest


def largest_ranks(limits: Sequence[Limit]) -> dict[str, int]:
    """Give the largest rank of every mode."""
    return {mode: limit.largest for mode, limit in _tightest_limits(limits).items()}


def check_rank(rank: int | Sequence[int], limits: Sequence[Limit], name: str) -> tuple[int, ...]:
    """Return one rank per mode; raise an error that names the mode and both sizes.

    Parameters
    ----------
    rank : int or sequence of int
        One for each mode. One number for a form with several modes is the rank of each, held to what the mode allows;
        it must be possible in at least one.
    limits : sequence of Limit
        What `Decomposition.limits` gives; several with one mode name are all checked.
    name : str
        Name of the decomposition.
    """
    tightest = _tightest_limits(limits)
    single = not isinstance(rank, Sequence | np.ndarray)
    ranks: list[Any] = [rank] * len(tightest) if single else list(rank)  # type: ignore[arg-type]
    if len(ranks) != len(tightest):
        wanted = "one number" if len(tightest) == 1 else f"one number or {len(tightest)} ({', '.join(tightest)})"
        raise ValueError(f"rank for {name} must be {wanted}, got {len(ranks)}: {tuple(ranks)!r}.")
    for value in ranks:
        if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"rank for {name} must be made of whole numbers of at least 1, got {rank!r}.")
    pairs = list(zip(map(int, ranks), tightest.values(), strict=True))
    for value, limit in [max(pairs, key=lambda pair: pair[1].largest)] if single else pairs:
        if value > limit.largest:
            mode = f" of the {limit.mode} mode" if limit.mode else ""
            raise ValueError(f"rank {value}{mode} for {name} is above {limit.because}; at most {limit.largest}.")
    return tuple(min(value, limit.largest) for value, limit in pairs)
