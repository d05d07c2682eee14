"""The Lagrangian of the objective, its derivatives and its multipliers: the proof of `thm:efkmvc_update`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference.heat_kernel import ked
from fedhk.reference.updates import ekmvc_objective, fuzzy_cost


def lagrangian(
    view_distances: Sequence[FloatArray],
    memberships: FloatArray,
    view_weights: FloatArray,
    *,
    view_exponent: float,
    fuzzifier: float,
    membership_multipliers: FloatArray,
    view_multiplier: float,
) -> float:
    """Objective plus the constraints of `eqn:fed_constraint1` and `eqn:fed_constraint2` (`eqn:LAG_EFKMVFC`)."""
    value = ekmvc_objective(view_distances, memberships, view_weights, view_exponent, fuzzifier)
    for i in range(len(memberships)):
        value += float(membership_multipliers[i]) * (float(sum(memberships[i])) - 1.0)
    return value + view_multiplier * (float(sum(view_weights)) - 1.0)


def membership_multipliers(
    view_distances: Sequence[FloatArray], view_weights: FloatArray, view_exponent: float, fuzzifier: float
) -> FloatArray:
    """Multipliers lambda_1i that make the rows sum to one (`eqn:lambda_solution_fed`).

    (-lambda_1i / m)^(1/(m-1)) = 1 / sum_k' D_ik'^(-1/(m-1)), solved for lambda_1i.
    """
    n_samples, n_clusters = view_distances[0].shape
    multipliers = np.zeros(n_samples)
    for i in range(n_samples):
        total = 0.0
        for k in range(n_clusters):
            total += _weighted_distance(view_distances, view_weights, view_exponent, i, k) ** (-1.0 / (fuzzifier - 1.0))
        multipliers[i] = -fuzzifier * (1.0 / total) ** (fuzzifier - 1.0)
    return multipliers


def membership_derivative(
    view_distances: Sequence[FloatArray],
    memberships: FloatArray,
    view_weights: FloatArray,
    *,
    view_exponent: float,
    fuzzifier: float,
    multipliers: FloatArray,
) -> FloatArray:
    """Slope of the Lagrangian in mu_ik: m mu_ik^(m-1) sum_h v_h^alpha FKED + lambda_1i (`eqn:lagrange_u_fed`)."""
    derivative = np.zeros(memberships.shape)
    for i, k in np.ndindex(memberships.shape):
        distance = _weighted_distance(view_distances, view_weights, view_exponent, i, k)
        derivative[i, k] = fuzzifier * float(memberships[i, k]) ** (fuzzifier - 1.0) * distance + multipliers[i]
    return derivative


def kernel_derivative(x: FloatArray, centers: FloatArray, heat_coef: FloatArray) -> FloatArray:
    """Slope of FKED_ik in a_kj: -2 delta_ij (x_ij - a_kj) exp(-phi_ik) (`eqn:fked_derivative_fed`).

    Returns
    -------
    array of shape (n, c, d)
    """
    distance = ked(x, centers, heat_coef)
    derivative = np.zeros((len(x), len(centers), x.shape[1]))
    for i, k, j in np.ndindex(derivative.shape):
        derivative[i, k, j] = -2.0 * heat_coef[i, j] * (x[i, j] - centers[k, j]) * (1.0 - distance[i, k])
    return derivative


def center_gradient(
    views: Sequence[FloatArray],
    memberships: FloatArray,
    centers: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    view_weights: FloatArray,
    *,
    view_exponent: float,
    fuzzifier: float,
) -> list[FloatArray]:
    """Gradient of the objective in the centres, v_h^alpha sum_i mu_ik^m dFKED_ik/da_kj (`eqn:cluster_derivative_fed`).

    Returns
    -------
    list of s arrays of shape (c, d_h)
    """
    gradients = []
    for h, (x, a, delta) in enumerate(zip(views, centers, heat_coefs, strict=True)):
        slopes = kernel_derivative(x, a, delta)
        gradient = np.zeros(a.shape)
        for k, j in np.ndindex(a.shape):
            for i in range(len(x)):
                gradient[k, j] += float(memberships[i, k]) ** fuzzifier * slopes[i, k, j]
        gradients.append(float(view_weights[h]) ** view_exponent * gradient)
    return gradients


def view_weight_gradient(
    view_distances: Sequence[FloatArray],
    memberships: FloatArray,
    view_weights: FloatArray,
    view_exponent: float,
    fuzzifier: float,
) -> FloatArray:
    """Gradient of the objective in the view weights, alpha v_h^(alpha-1) cost_h (`eqn:view_derivative_fed`)."""
    gradient = np.zeros(len(view_distances))
    for h, distance in enumerate(view_distances):
        cost = fuzzy_cost(memberships, distance, fuzzifier)
        gradient[h] = view_exponent * float(view_weights[h]) ** (view_exponent - 1.0) * cost
    return gradient


def _weighted_distance(
    view_distances: Sequence[FloatArray], view_weights: FloatArray, view_exponent: float, i: int, k: int
) -> float:
    total = 0.0
    for h, distance in enumerate(view_distances):
        total += float(view_weights[h]) ** view_exponent * float(distance[i, k])
    return total
