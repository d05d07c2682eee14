"""Numbers on a grid: whole multiples of a step, so that sums are exact and noise has no digits of its own to tell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhk._typing import IntArray
from fedhk.data.checks import check_count, check_number
from fedhk.errors import FedHKError

__all__ = [
    "LARGEST",
    "WORDS",
    "GridError",
    "GridOverflowError",
    "fit_step",
    "from_grid",
    "most_of_site",
    "most_of_word",
    "shortest_word",
    "to_grid",
]

# One bit less than int64 holds: noise can be added, and two such numbers, without an overflow.
LARGEST = 2**62

# Bytes that a whole number may have under masks. Words of eight bytes hold any sum, shorter ones sums with a bound.
WORDS = (1, 2, 4, 8)


class GridError(FedHKError, ValueError):
    """Numbers that cannot be put on a grid."""


class GridOverflowError(GridError, OverflowError):
    """A number that is too large for the grid."""


def to_grid(values: ArrayLike, step: float, bound: int = LARGEST) -> NDArray[np.int64]:
    """Round numbers to the nearest whole multiples of a step. Nothing is clipped and nothing wraps round.

    Parameters
    ----------
    values : array-like of float
        Finite numbers.
    step : float
        The distance of neighbouring points. A power of two loses no digits in the division.
    bound : int, default=2**62
        Absolute values on the grid must be below it.

    Returns
    -------
    array of int64
        Which multiple of the step each value is nearest to; of two equally near, the even one.

    Raises
    ------
    GridOverflowError
        If a value is too large; the text says which, and what is allowed.
    GridError
        If a value is NaN or infinite.

    Notes
    -----
    Rounding moves each number by half a step at most, so neighbouring data can come to lie further apart by one step in
    each of their numbers: `fedhk.privacy.sensitivity.grid_sensitivity` counts that.
    """
    step = check_number(step, "step", open_below=True)
    bound = check_count(bound, "bound")
    if bound > LARGEST:
        raise ValueError(f"bound must be at most 2**62, got {bound}.")
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        count = int(array.size - np.isfinite(array).sum())
        raise GridError(f"{count} of {array.size} numbers are NaN or infinite; only finite numbers have a grid point.")
    with np.errstate(over="ignore"):
        rounded = np.rint(array / step)
    # whole floats compare with whole numbers exactly as Python numbers do, so the largest one decides
    largest = float(np.abs(rounded).max(initial=0.0))
    if largest >= bound:
        worst = float(array.flat[int(np.abs(array).argmax())])
        raise GridOverflowError(
            f"The value {worst:.6g} does not fit on a grid with step={step:.6g}: absolute values must be below "
            f"{bound * step:.6g} (bound={bound} steps). Use a larger step or smaller numbers."
        )
    return rounded.astype(np.int64)


def from_grid(integers: IntArray | ArrayLike, step: float) -> NDArray[np.float64]:
    """Convert grid points back to numbers.

    Parameters
    ----------
    integers : array-like of int
        Multiples of the step.
    step : float
        The step of the grid.

    Returns
    -------
    array of float64
        integers * step: exact below 2**53 where the step is a power of two, else to 16 digits.
    """
    step = check_number(step, "step", open_below=True)
    array: NDArray[Any] = np.asarray(integers)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"integers must be whole numbers, got an array of {array.dtype}.")
    return array.astype(np.float64) * step


def most_of_site(n_sites: int) -> int:
    """Return the largest whole number that one of so many sites may put into a sum.

    A sum is at most 2^61 in size, a quarter of what int64 holds: so most sums that went wrong under masks show.
    """
    return LARGEST // (2 * max(n_sites, 1))


def most_of_word(word: int) -> int:
    """Return the largest absolute value of a sum in words of so many bytes.

    It is half of what a word holds, so that each number of a sum that went wrong under masks shows it half of the time.
    """
    return int(2 ** (8 * word - 2))


def shortest_word(bound: float) -> int:
    """Return the bytes of the shortest word in which sums of counts up to a bound fit."""
    return next((word for word in WORDS if bound <= most_of_word(word)), max(WORDS))


def fit_step(bound: float, n_sites: int, word: int) -> float:
    """Return the finest power of two on whose grid sums up to a bound fit in words of so many bytes.

    Sums are modulo 2^(8 word), so that only the total needs room: that of one site may be anything. Each of so many
    sites rounds by half a step at most.

    Examples
    --------
    >>> fit_step(100.0, n_sites=10, word=2)
    0.0078125
    """
    most = most_of_site(n_sites) if word == max(WORDS) else most_of_word(word)  # the longest words are cut by each site
    steps = most - math.ceil(n_sites / 2)
    if steps < 1:
        raise GridError(f"Words of {word} bytes are too short for a sum over {n_sites} sites.")
    return float(2.0 ** math.ceil(math.log2(check_number(bound, "bound", open_below=True) / steps)))
