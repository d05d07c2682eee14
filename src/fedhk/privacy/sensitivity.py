"""How far one row can move what a site releases: the L2 sensitivities that noise is measured in.

Data sets are neighbours if one row is added or removed ("add-remove"), or if one row is exchanged for another
("replace"). The bounds hold for one pass over the rows at centres, view weights and coefficients that do not depend on
the rows of the site. That of a noisy round is in `fedhk.privacy.kernel_sensitivity`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias, get_args

from fedhk.data.checks import check_count, check_number

__all__ = ["Neighbours", "check_neighbours", "grid_sensitivity", "sum_sensitivity"]

Neighbours: TypeAlias = Literal["add-remove", "replace"]


def sum_sensitivity(radius: float, neighbours: Neighbours = "add-remove", *, nonnegative: bool = False) -> float:
    """L2 sensitivity of a plain sum of vectors, one per row.

    Parameters
    ----------
    radius : float
        The largest length of a vector.
    neighbours : {"add-remove", "replace"}, default="add-remove"
        What makes two data sets neighbours.
    nonnegative : bool, default=False
        Whether no vector has a negative number, such as an indicator of a row's group: then two of them are at most at
        a right angle.

    Returns
    -------
    float
        R for "add-remove"; for "replace" 2 R, or sqrt(2) R where nothing is negative.
    """
    check_neighbours(neighbours)
    radius = check_number(radius, "radius")
    if neighbours == "add-remove":
        return radius
    return radius * (math.sqrt(2) if nonnegative else 2.0)


def grid_sensitivity(sensitivity: float, step: float, size: int) -> float:
    """L2 sensitivity, in grid units, of numbers that are rounded to a grid before noise is added.

    Parameters
    ----------
    sensitivity : float
        L2 sensitivity of the numbers themselves.
    step : float
        The step of the grid.
    size : int
        How many numbers there are.

    Returns
    -------
    float
        sensitivity / step + sqrt(size): rounding moves either of two neighbours by sqrt(size) / 2 steps at most.

    Notes
    -----
    Sums in floating point have rounding errors that depend on all rows. They are within this bound as long as they are
    far below one step: use a step well above 1e-16 times the number of rows times the largest sum.
    """
    return check_number(sensitivity, "sensitivity") / check_number(step, "step", open_below=True) + math.sqrt(
        check_count(size, "size", minimum=0)
    )


def check_neighbours(neighbours: Any) -> None:
    """Refuse what makes no two data sets neighbours."""
    if neighbours not in get_args(Neighbours):
        raise ValueError(f"neighbours must be 'add-remove' or 'replace', got {neighbours!r}.")
