"""Algorithm 1 to the letter, on more rows than its readable form has time for.

What a round does is `fedhk.reference.efkmvc`; the sums over rows, clusters and features in it are taken here with
arrays instead of loops (`tests/reference/test_literal.py` compares the two).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from fedhk.reference import EfkmvcOptions, EfkmvcResult, algorithm_efkmvc

Arrays = Sequence[np.ndarray]


def minmax_coefficient(x: np.ndarray, epsilon: float = 1e-12) -> np.ndarray:
    low, high = x.min(axis=0), x.max(axis=0)
    return (x - low) / (high - low + epsilon)


def fked(views: Arrays, centers: Arrays, heat_coefs: Arrays, _: str = "per_view") -> list[np.ndarray]:
    found = []
    for x, a, delta in zip(views, centers, heat_coefs, strict=True):
        exponents = (delta * x * x).sum(axis=1)[:, None] - 2 * (delta * x) @ a.T + delta @ (a * a).T
        found.append(-np.expm1(-np.maximum(exponents, 0.0)))
    return found


def ekmvc_objective(distances: Arrays, memberships: np.ndarray, weights: np.ndarray, alpha: float, m: float) -> float:
    return float(weights**alpha @ _costs(distances, memberships, m))


def update_memberships(distances: Arrays, weights: np.ndarray, alpha: float, m: float) -> np.ndarray:
    powers = np.tensordot(weights**alpha, np.stack(distances), 1) ** (-1 / (m - 1))
    return powers / powers.sum(axis=1, keepdims=True)


def update_centers(views: Arrays, memberships: np.ndarray, centers: Arrays, heat_coefs: Arrays, *_: Any, **how: Any):
    """As the theorem prints it: the weight of a cell has its own delta, and the distance over all features."""
    raised = memberships ** how["fuzzifier"]
    updated = []
    for x, a, delta in zip(views, centers, heat_coefs, strict=True):
        moved = np.array(a)
        for k, center in enumerate(a):
            weights = raised[:, k, None] * np.exp(-delta * np.square(x - center).sum(axis=1)[:, None])
            total = weights.sum(axis=0)
            np.divide((weights * x).sum(axis=0), total, out=moved[k], where=total > 0)
        updated.append(moved)
    return updated


def update_view_weights(distances: Arrays, memberships: np.ndarray, alpha: float, m: float) -> np.ndarray:
    powers = _costs(distances, memberships, m) ** (-1 / (alpha - 1))
    return powers / powers.sum()


def center_gradient(
    views: Arrays, memberships: np.ndarray, centers: Arrays, heat_coefs: Arrays, weights: np.ndarray, **how: Any
) -> list[np.ndarray]:
    found, distances = [], fked(views, centers, heat_coefs)
    for h, (x, a, delta) in enumerate(zip(views, centers, heat_coefs, strict=True)):
        pull = (memberships ** how["fuzzifier"] * (1 - distances[h])).T
        found.append(-2 * weights[h] ** how["view_exponent"] * (pull @ (delta * x) - (pull @ delta) * a))
    return found


def view_weight_gradient(
    distances: Arrays, memberships: np.ndarray, weights: np.ndarray, alpha: float, m: float
) -> np.ndarray:
    return alpha * weights ** (alpha - 1) * _costs(distances, memberships, m)


def _costs(distances: Arrays, memberships: np.ndarray, m: float) -> np.ndarray:
    return np.array([(memberships**m * distance).sum() for distance in distances])


WITH_ARRAYS = {
    function.__name__: function
    for function in (
        *(minmax_coefficient, fked, ekmvc_objective, update_memberships, update_centers, update_view_weights),
        *(center_gradient, view_weight_gradient),
    )
}


def efkmvc(clients: Sequence[Arrays], n_clusters: int, max_rounds: int, generator: np.random.Generator) -> EfkmvcResult:
    """Algorithm 1 as it is printed, in its first reading wherever there are several."""
    with patch.dict(vars(algorithm_efkmvc), WITH_ARRAYS):
        return algorithm_efkmvc.efkmvc(clients, n_clusters, EfkmvcOptions(max_rounds=max_rounds), generator)
