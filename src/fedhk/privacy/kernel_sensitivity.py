"""How far one row can move what a site releases in a noisy round: the heat kernel bounds it, however far the row is.

w exp(-t r^2) r is at most w / sqrt(2 e t), so that no row needs to be clipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedhk.data.checks import check_count, check_number
from fedhk.privacy.sensitivity import Neighbours, check_neighbours

__all__ = ["best_clipped_scales", "best_kernel_scale", "kernel_reach", "kernel_sensitivity"]


# How far a centre typically moves in a round, in model units: what noise in the weights is balanced against.
TYPICAL_MOVE = 0.3

# Length of a site's costs, as they are sent, over that of its heights: with less, noise would hide the costs.
COST_PART = 0.5


def kernel_reach(heat_time: float) -> float:
    """C, the most that one row can pull on a centre: the largest r exp(-t r^2), at r^2 = 1 / (2 t)."""
    return 1.0 / math.sqrt(2.0 * math.e * check_number(heat_time, "heat_time", open_below=True))


def kernel_sensitivity(
    reach: float, count_scale: float, cost_scale: float, n_views: int, neighbours: Neighbours = "add-remove"
) -> float:
    """L2 sensitivity of the pulls, heights and costs of one pass under the heat kernel, released together.

    What one row adds is, per view and cluster: a pull u_k e_k r_k with e_k = exp(-t |r_k|^2); to the count of each
    feature u_k e_k times a coefficient in [0, 1], of which the height is the largest over features; and per view a cost
    sum_k u_k (1 - e_k). The u_k >= 0 sum to 1 at most.

    Parameters
    ----------
    reach : float
        C of `kernel_reach`.
    count_scale : float
        l_c, what the heights are multiplied by before noise is added.
    cost_scale : float
        l_q, the same for the costs; not above l_c.
    n_views : int
        Number of views s.
    neighbours : {"add-remove", "replace"}, default="add-remove"
        What makes two data sets neighbours.

    Returns
    -------
    float
        The root of s (C^2 + l_c^2) for "add-remove", of s max(4 C^2 + l_c^2 / 2, 2 C^2 + 2 l_c^2) for "replace".

    Notes
    -----
    A height is a maximum, so a row changes it by u_k e_k at most, and two rows by the larger of theirs: they need not
    cancel, because the other rows decide which feature is the largest, and one of the two may lack it. What is
    released is convex in the u_k, so it is largest with all of a row in one cluster, or in none.

    *Two rows in one cluster.* With g = |e r| / C the squared distance is at most
    (g + g')^2 C^2 + l_c^2 (max(e, e')^2 + (e - e')^2). Its largest value over all r and r', divided by C^2, is convex
    in x = l_c^2 / C^2 and rises by at most 2 per unit; it is 4 at x = 0 and 4.567 at x = 4/3, hence below
    max(4 + x / 2, 2 + 2 x), whose corner is at x = 4/3.

    *In two clusters.* C^2 + C^2 + l_c^2 (e^2 + e'^2 + (e - e')^2), and the bracket is at most 2. *One row, or none.*
    C^2 + l_c^2 (e^2 + (1 - e)^2). Views share the u_k, but each can be at its worst at once, so squares add.
    """
    check_neighbours(neighbours)
    n_views = check_count(n_views, "n_views")
    pull, count = check_number(reach, "reach") ** 2, check_number(count_scale, "count_scale") ** 2
    if check_number(cost_scale, "cost_scale") > count_scale:
        raise ValueError(f"cost_scale={cost_scale!r} must not be above count_scale={count_scale!r}.")
    if neighbours == "add-remove":
        return math.sqrt(n_views * (pull + count))
    return math.sqrt(n_views * max(4 * pull + count / 2, 2 * (pull + count)))


def best_kernel_scale(
    reach: float, typical_norm: float, n_features: int, n_views: int, neighbours: Neighbours = "add-remove"
) -> float:
    """Scale l_c of the heights that makes the noise in centres smallest.

    Parameters
    ----------
    reach : float
        C of `kernel_reach`.
    typical_norm : float
        rho, typical length of the step of a centre.
    n_features : int
        D, features of all views together.
    n_views : int
        Number of views s.
    neighbours : {"add-remove", "replace"}, default="add-remove"
        What makes two data sets neighbours.

    Notes
    -----
    A centre moves by a pull over a height W. With noise of variance S^2 in each pull and S^2 / l_c^2 in each height, S
    the sensitivity, its squared error is (D + rho^2 / l_c^2) S^2 / W^2 to first order. With R^2 = s C^2, S^2 is
    R^2 + s l_c^2 for "add-remove", which gives l_c^2 = R rho / sqrt(s D). For "replace" it is the larger of
    4 R^2 + s l_c^2 / 2 and 2 R^2 + 2 s l_c^2; its parts are best at l_c^2 = sqrt(8) R rho / sqrt(s D) and at
    R rho / sqrt(s D), and change at 4 C^2 / 3.
    """
    check_neighbours(neighbours)
    reach, n_views = check_number(reach, "reach", open_below=True), check_count(n_views, "n_views")
    norm, width = check_number(typical_norm, "typical_norm", open_below=True), check_count(n_features, "n_features")
    squared = reach * norm / math.sqrt(width)
    if neighbours == "replace":
        squared = min(math.sqrt(8) * squared, max(squared, 4 / 3 * reach * reach))
    return math.sqrt(squared)


def best_clipped_scales(
    reach: float, typical_norm: float, shapes: Sequence[tuple[int, ...]], rows: float
) -> tuple[float, float]:
    """Scales of the heights and the costs that make the noise in centres smallest where a site's vector is clipped.

    Parameters
    ----------
    reach : float
        C of `kernel_reach`.
    typical_norm : float
        rho, typical length of the step of a centre.
    shapes : sequence of (int, int)
        Number of clusters c, and of features, of each of the s views. All views together have D features.
    rows : float
        n, rows of a site.

    Returns
    -------
    tuple of float
        l_c, and the scale of the costs, which is not above it.

    Notes
    -----
    Noise is sized by the length B to which vectors are clipped, whatever `neighbours` are. It is chosen so that most
    vectors are not clipped, and depends on how long the parts of a vector are. The n rows of a site are about as far
    from their centres as the kernel pulls most, where it is e^(-1/2). They pull in all directions: the pulls are
    C sqrt(s n) long together. Heights and costs add up: they are n e^(-1/2) sqrt(s / c) long where clusters have the
    same size, and n (1 - e^(-1/2)) sqrt(s). With H the length of the heights, and the costs scaled to half of what the
    heights have, B^2 = s n C^2 + (1 + 1/4) l_c^2 H^2. A centre has a squared error of (D + rho^2 / l_c^2) B^2 / W^2,
    as in `best_kernel_scale`. It is smallest at l_c^2 = C rho sqrt(s n) / (H sqrt(5 D) / 2).

    Costs say how well clusters fit. No centre depends on them.
    """
    reach, rows = check_number(reach, "reach", open_below=True), max(check_number(rows, "rows"), 1.0)
    norm = check_number(typical_norm, "typical_norm", open_below=True)
    clusters, views, width = shapes[0][0], len(shapes), sum(features for _, features in shapes)
    near = math.exp(-0.5)
    heights, costs = rows * near * math.sqrt(views / clusters), rows * (1.0 - near) * math.sqrt(views)
    squared = reach * norm * math.sqrt(views * rows) / (heights * math.sqrt(width * (1.0 + COST_PART**2)))
    scale = math.sqrt(squared)
    return scale, min(scale, 1.0) * min(COST_PART * heights / costs, 1.0)
