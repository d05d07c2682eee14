"""The numbers that the paper's theoretical analysis states: noise, bytes, operations and the personalization bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedhk.reference._arrays import FloatArray


def gaussian_noise_variance(sensitivity: float, epsilon: float, delta: float) -> float:
    """Variance of the Gaussian mechanism, 2 Delta^2 log(1.25/delta) / epsilon^2 (`thm:privacy`).

    Notes
    -----
    Holds for one release and epsilon < 1, and for a sensitivity that the paper calls bounded and never bounds.
    """
    if not epsilon > 0.0 or not 0.0 < delta < 1.0:
        raise ValueError(f"epsilon={epsilon} should be > 0 and delta={delta} between 0 and 1.")
    return 2.0 * sensitivity**2 * math.log(1.25 / delta) / epsilon**2


def add_gaussian_noise(
    statistic: FloatArray, sensitivity: float, epsilon: float, delta: float, random_state: np.random.Generator
) -> FloatArray:
    """Statistic plus noise of `gaussian_noise_variance` (`thm:privacy`): for simulation, never for a release."""
    sigma = math.sqrt(gaussian_noise_variance(sensitivity, epsilon, delta))
    return statistic + random_state.normal(0.0, sigma, size=statistic.shape)


def center_message_size(n_clusters: int, widths: Sequence[int]) -> float:
    """Numbers in a message of centres, c * mean d_h * s (the proposition on communication efficiency)."""
    return n_clusters * (sum(widths) / len(widths)) * len(widths)


def tensor_message_size(
    n_clusters: int, widest: int, n_views: int, *, feature_rank: int, view_rank: int, cluster_rank: int | None = None
) -> int:
    """Numbers in a message of tensor factors.

    Parameters
    ----------
    n_clusters, widest, n_views : int
        c, D and s.
    feature_rank, view_rank : int
        r2 and r3.
    cluster_rank : int, optional
        Omitted, the count is c r2 r3 + c^2 + D r2 + s r3 (`thm:tensor_communication`, `lem:tensor_communication`),
        which takes r1 for c. Given, it is r1 r2 r3 + c r1 + D r2 + s r3, as `tab:tensor_decompositions` counts.

    Returns
    -------
    int
    """
    r1 = n_clusters if cluster_rank is None else cluster_rank
    return r1 * feature_rank * view_rank + n_clusters * r1 + widest * feature_rank + n_views * view_rank


def local_operations(n_samples: int, n_clusters: int, widths: Sequence[int], stated: bool = True) -> int:
    """Operations of one local iteration (`thm:complexity`).

    Notes
    -----
    The theorem states n c s D with D = sum_h d_h, while its own proof adds up to n c D (``stated=False``): the factor s
    counts the views twice.
    """
    total = n_samples * n_clusters * sum(widths)
    return total * len(widths) if stated else total


def tensor_operations(
    n_samples: int, n_clusters: int, widest: int, n_views: int, *, feature_rank: int, view_rank: int
) -> int:
    """Operations of one local tensor iteration, n c r2 r3 + n c D s (`thm:tensor_complexity`).

    Notes
    -----
    The proof's ALS term counts neither the solve nor the features a residual is summed over; it is a lower count.
    """
    return n_samples * n_clusters * feature_rank * view_rank + n_samples * n_clusters * widest * n_views


def personalization_bound(personalization: float) -> float:
    """Factor lambda^2 / (1 - lambda^2) of the personalization bound (`lem:personalization`).

    Notes
    -----
    The lemma bounds ||A_l - A_global||^2 by this factor times itself, which is false for any lambda^2 < 1/2.
    """
    return personalization**2 / (1.0 - personalization**2)


def blend_gap(personalization: float) -> float:
    """Factor lambda^2 that does hold for A = lambda A_local + (1 - lambda) A_global, in place of `lem:personalization`.

    ||A - A_global||_F^2 = lambda^2 ||A_local - A_global||_F^2.
    """
    return personalization**2
