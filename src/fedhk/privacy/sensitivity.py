"""How far one row can move what a site releases: the L2 sensitivities that noise is measured in.

Data sets are neighbours if one row is added or removed ("add-remove"), or if one row is exchanged for another
("replace"). The bounds hold for one pass over the rows at centres, view weights and coefficients that do not depend on
the rows of the site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhk.data.checks import check_count, check_number

__all__ = ["Neighbours", "best_scales", "clip_rows", "grid_sensitivity", "joint_sensitivity", "sum_sensitivity"]

Neighbours: TypeAlias = Literal["add-remove", "replace"]

# A clipped row is this much shorter than the radius, so that rounding does not make it longer.
CLIP_MARGIN = 1e-12


def clip_rows(x: ArrayLike, radius: float) -> NDArray[np.float64]:
    """Shorten rows that are longer than a radius to that length; leave the others as they are.

    Parameters
    ----------
    x : array-like of shape (..., d)
        Finite rows. A cell that is missing pulls nowhere: it is 0 here.
    radius : float
        The largest length allowed.

    Returns
    -------
    array of float64
        A copy of the same shape.
    """
    radius = check_number(radius, "radius")
    rows = np.array(x, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("x must be finite; a missing cell is given as 0, which pulls nowhere.")
    # relative to the largest cell, so that squares neither overflow nor vanish
    largest = np.abs(rows).max(axis=-1, keepdims=True, initial=0.0)
    directions = rows / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt(np.square(directions).sum(axis=-1, keepdims=True))
    with np.errstate(over="ignore"):
        too_long = largest * lengths > radius
    shortened = directions * (radius * (1 - CLIP_MARGIN) / np.where(lengths > 0, lengths, 1.0))
    return np.where(too_long, shortened, rows)


def joint_sensitivity(
    radius: float | Sequence[float],
    count_scale: float,
    cost_scale: float,
    n_views: int,
    neighbours: Neighbours = "add-remove",
    *,
    complementary_costs: bool = False,
) -> float:
    """L2 sensitivity of the pulls, counts and costs of one pass, released together.

    What one row adds is, per view h and cluster k: a pull w_kh r_kh with a residual of length |r_kh| <= C_h; a count
    w_kh, times the count scale; and per view a cost q_h in [0, 1], times the cost scale. The weights are w_kh >= 0 with
    sum_k w_kh <= 1 in every view, and may differ between views.

    Parameters
    ----------
    radius : float or sequence of float
        R with R^2 = sum_h C_h^2, however it is divided among the views; or C_h for each view, which can be tighter.
    count_scale : float
        l_c, what the counts are multiplied by before noise is added.
    cost_scale : float
        l_q, the same for the costs.
    n_views : int
        Number of views s.
    neighbours : {"add-remove", "replace"}, default="add-remove"
        What makes two data sets neighbours.
    complementary_costs : bool, default=False
        Whether also q_h + sum_k w_kh <= 1, as for w_kh = mu_k^m exp(-phi_kh) and q_h = sum_k mu_k^m (1 - exp(-phi_kh)).
        Then costs add nothing to the sensitivity as long as their scale is not above that of the counts.

    Returns
    -------
    float
        A bound that is attained.

    Notes
    -----
    *One view.* Keep the residuals fixed. The squared length of what a row adds, or of the difference of two rows, is a
    convex function of the weights and costs, so it is largest at a corner: all weight on one cluster, or none; a cost
    of 0 or 1. One row: C^2 + l_c^2 + l_q^2. Two rows: on one cluster with opposite residuals 4 C^2 (the counts
    cancel), on two clusters 2 (C^2 + l_c^2) (nothing cancels), and the costs differ by l_q^2 at most. With
    complementary costs the corners are: one cluster, or the cost, or nothing. That leaves max(C^2 + l_c^2, l_q^2) for
    one row, and for two max(4 C^2, 2 (C^2 + l_c^2), C^2 + l_c^2 + l_q^2).

    *All views.* Views have their own weights, so each can be at its worst corner at once and the squares f(C_h^2) add:
    a row may change its cluster in one view, and keep it in another. Each f is a maximum of linear functions of C^2,
    hence convex, so over all ways to divide R^2 the sum is largest with all of R in one view: f(R^2) + (s - 1) f(0).
    That is

    - add-remove: R^2 + s l_c^2 + s l_q^2,
    - replace: max(4 R^2, 2 (R^2 + l_c^2)) + 2 (s - 1) l_c^2 + s l_q^2.

    Residuals that are clipped jointly over views, sum_h |r_kh|^2 <= R^2 for each k, are within the same bound only if
    the weights are w_kh <= u_k with sum_k u_k <= 1, as memberships shared by all views give: else a row could use its
    whole radius once in each view. Rows with a weight of more than 1 are outside all of these bounds, and so are counts
    per feature.
    """
    check_neighbours(neighbours)
    n_views = check_count(n_views, "n_views")
    count = check_number(count_scale, "count_scale") ** 2
    cost = check_number(cost_scale, "cost_scale") ** 2

    def of_view(pull: float) -> float:
        alone = pull + count
        if neighbours == "add-remove":
            return max(alone, cost) if complementary_costs else alone + cost
        apart = max(4 * pull, 2 * alone)
        return max(apart, alone + cost) if complementary_costs else apart + cost

    if not isinstance(radius, Sequence | np.ndarray):
        squared = check_number(radius, "radius") ** 2
        return math.sqrt(of_view(squared) + (n_views - 1) * of_view(0.0))
    if len(radius) != n_views:
        raise ValueError(f"radius must be one number, or one for each of the n_views={n_views} views, got {radius!r}.")
    return math.sqrt(sum(of_view(check_number(value, "radius") ** 2) for value in radius))


def best_scales(
    radius: float,
    typical_norm: float,
    n_features: int,
    n_views: int = 1,
    neighbours: Neighbours = "add-remove",
) -> float:
    """Scale l_c of the counts that makes the noise in centres smallest.

    Parameters
    ----------
    radius : float
        R, the largest length of a row's pull.
    typical_norm : float
        rho, typical length of what pulls are divided into: of a centre, or in residual form of the step of a centre.
    n_features : int
        D, features of all views together.
    n_views : int, default=1
        s, because counts are per view.
    neighbours : {"add-remove", "replace"}, default="add-remove"
        What makes two data sets neighbours.

    Returns
    -------
    float
        l_c: the root of R rho / sqrt(s D) for "add-remove". With "replace" counts up to the scale R are cheap (with one
        view they are free), so it is often R.

    Notes
    -----
    A centre is a pull N over a count W. With noise of variance S^2 in each pull and S^2 / l_c^2 in each count, S^2 the
    squared sensitivity, its squared error is (D + rho^2 / l_c^2) S^2 / W^2 to first order. For "add-remove"
    S^2 = R^2 + s l_c^2, which gives the root above. For "replace" S^2 is the larger of 4 R^2 + 2 (s - 1) l_c^2 and
    2 R^2 + 2 s l_c^2, with the best l_c^2 at sqrt(2) R rho / sqrt((s - 1) D) and at R rho / sqrt(s D). The error is
    convex in l_c^2, so where these two are on different sides of the change at l_c = R, the change is best.
    """
    check_neighbours(neighbours)
    radius = check_number(radius, "radius", open_below=True)
    product = radius * check_number(typical_norm, "typical_norm", open_below=True)
    n_features, n_views = check_count(n_features, "n_features"), check_count(n_views, "n_views")
    squared = product / math.sqrt(n_views * n_features)
    if neighbours == "replace":
        below = math.sqrt(2 / ((n_views - 1) * n_features)) * product if n_views > 1 else math.inf
        squared = min(max(radius * radius, squared), below)
    return math.sqrt(squared)


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
