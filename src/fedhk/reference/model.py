"""The corrected model in plain loops: what the fast code must reproduce to rounding.

The paper's own update rules, with every reading of them, are in ``updates``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from fedhk.reference._arrays import FloatArray


class Statistics(TypedDict):
    """What one pass over the rows leaves behind: it adds over rows, chunks and sites."""

    numerators: list[FloatArray]
    weights: list[FloatArray]
    costs: FloatArray
    objective: float


def heat_weighted_distance(x: FloatArray, centers: FloatArray, heat_coef: FloatArray, bandwidth: float) -> FloatArray:
    """Heat-weighted squared distance, phi_ik = g sum_j delta_ij (x_ij - a_kj)^2 (proof of `thm:efkmvc_update`).

    Parameters
    ----------
    x : array of shape (n, d)
        Rows of one view; a missing cell is NaN.
    centers : array of shape (c, d)
    heat_coef : array of shape (n, d)
        The coefficients delta, zero at a missing cell.
    bandwidth : float
        The bandwidth g of the view.

    Returns
    -------
    array of shape (n, c)

    Notes
    -----
    The paper has no bandwidth (g = 1), and without one the kernel saturates in many dimensions.
    """
    n_samples, n_features = x.shape
    phi = np.zeros((n_samples, len(centers)))
    for i in range(n_samples):
        for k in range(len(centers)):
            total = 0.0
            for j in range(n_features):
                if heat_coef[i, j] != 0.0:  # a missing cell is skipped: NaN * 0 is NaN
                    total += float(heat_coef[i, j]) * float(x[i, j] - centers[k, j]) ** 2
            phi[i, k] = bandwidth * total
    return phi


def kernel_distance(phi: FloatArray) -> FloatArray:
    """Kernel distance F_ik = 1 - exp(-phi_ik) of every pair (`eqn:KED`), between 0 and 1."""
    distance = np.zeros(phi.shape)
    for index in np.ndindex(phi.shape):
        distance[index] = -math.expm1(-float(phi[index]))
    return distance


def memberships(
    view_distances: Sequence[FloatArray], view_weights: FloatArray, view_exponent: float, fuzzifier: float
) -> FloatArray:
    """Fuzzy memberships mu_ik proportional to (sum_h v_h^alpha F_ik^h)^(-1/(m-1)) (`eqn:diff_U_EFKMVFC`).

    Parameters
    ----------
    view_distances : sequence of arrays of shape (n, c)
        The kernel distances F of each view.
    view_weights : array of shape (s,)
    view_exponent : float
        The exponent alpha.
    fuzzifier : float
        The fuzzifier m, above 1.

    Returns
    -------
    array of shape (n, c)
        Rows sum to one.

    Notes
    -----
    The paper divides by zero when a sample sits on a centre; here such a row is crisp, shared equally among the
    clusters at zero distance.
    """
    _check_above_one("fuzzifier", fuzzifier)
    n_samples, n_clusters = view_distances[0].shape
    result = np.zeros((n_samples, n_clusters))
    for i in range(n_samples):
        totals = [0.0] * n_clusters
        for k in range(n_clusters):
            for h, distance in enumerate(view_distances):
                totals[k] += float(view_weights[h]) ** view_exponent * float(distance[i, k])
        result[i] = inverse_power_shares(totals, fuzzifier)
    return result


def statistics(  # noqa: PLR0917 - the fast code is called with the same positions
    views: Sequence[FloatArray],
    centers: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    bandwidths: Sequence[float] | FloatArray,
    view_weights: FloatArray,
    view_exponent: float,
    fuzzifier: float,
    sample_weight: FloatArray | None = None,
) -> Statistics:
    """One pass over the rows at fixed centres and view weights.

    With u_ik = sample_weight_i mu_ik^m, and per view h:

    - ``costs``: cost_h = sum_ik u_ik F_ik, the sum inside `eqn:diff_V_EFKMVFC`;
    - ``weights``: W_kj = sum_i u_ik exp(-phi_ik) delta_ij;
    - ``numerators``: N_kj = sum_i u_ik exp(-phi_ik) delta_ij x_ij;
    - ``objective``: J = sum_h v_h^alpha cost_h (`eqn:E-KMVC`).

    Parameters
    ----------
    views, centers, heat_coefs : sequences of s arrays of shapes (n, d_h), (c, d_h) and (n, d_h)
    bandwidths, view_weights : s numbers each
    view_exponent, fuzzifier : float
        The exponent alpha and the fuzzifier m.
    sample_weight : array of shape (n,), optional
        Multiplies mu^m; one for every row if omitted.

    Returns
    -------
    dict with the four keys above

    Notes
    -----
    W and N carry delta_ij inside the sum over i, where the paper's proof divides by it.
    """
    phis = [
        heat_weighted_distance(x, a, delta, float(g))
        for x, a, delta, g in zip(views, centers, heat_coefs, bandwidths, strict=True)
    ]
    distances = [kernel_distance(phi) for phi in phis]
    mu = memberships(distances, view_weights, view_exponent, fuzzifier)
    power = mu**fuzzifier
    if sample_weight is not None:
        power = power * np.asarray(sample_weight, dtype=np.float64)[:, None]

    numerators = [np.zeros(a.shape) for a in centers]
    weights = [np.zeros(a.shape) for a in centers]
    costs = np.zeros(len(views))
    for h, (x, delta) in enumerate(zip(views, heat_coefs, strict=True)):
        for i in range(x.shape[0]):
            for k in range(len(centers[h])):
                costs[h] += power[i, k] * distances[h][i, k]
                pull = float(power[i, k]) * math.exp(-float(phis[h][i, k]))
                for j in range(x.shape[1]):
                    if delta[i, j] != 0.0:
                        weights[h][k, j] += pull * delta[i, j]
                        numerators[h][k, j] += pull * delta[i, j] * x[i, j]

    objective = 0.0
    for h in range(len(views)):
        objective += float(view_weights[h]) ** view_exponent * float(costs[h])
    return {"numerators": numerators, "weights": weights, "costs": costs, "objective": objective}


def view_weights(costs: FloatArray, view_exponent: float) -> FloatArray:
    """View weights v_h proportional to cost_h^(-1/(alpha-1)) (`eqn:diff_V_EFKMVFC`).

    Notes
    -----
    A view of zero cost takes all the weight, shared equally among such views, where the paper divides by zero.
    """
    _check_above_one("view_exponent", view_exponent)
    return np.array(inverse_power_shares([float(cost) for cost in costs], view_exponent))


def center_update(
    numerators: Sequence[FloatArray], weights: Sequence[FloatArray], previous: Sequence[FloatArray]
) -> list[FloatArray]:
    """Centres a_kj = N_kj / W_kj of every view, kept where the weight is zero.

    Parameters
    ----------
    numerators, weights : sequences of s arrays of shape (c, d_h)
        From `statistics`.
    previous : sequence of s arrays of shape (c, d_h)
        The centres at which the statistics were taken.

    Returns
    -------
    list of s arrays of shape (c, d_h)

    Notes
    -----
    Departs from `eqn:diff_A_EFKMVFC` by delta_ij inside the weight; so corrected it is the exact minimiser of a
    majoriser of the objective.
    """
    updated = [np.array(a, dtype=np.float64) for a in previous]
    for h, center in enumerate(updated):
        for k, j in np.ndindex(center.shape):
            if weights[h][k, j] > 0.0:
                center[k, j] = numerators[h][k, j] / weights[h][k, j]
    return updated


def inverse_power_shares(values: Sequence[float], exponent: float) -> list[float]:
    """Shares proportional to values^(-1/(exponent-1)); zeros, if any, share everything equally."""
    smallest = min(values)
    if smallest == 0.0:
        raw = [1.0 if value == 0.0 else 0.0 for value in values]
    else:  # ratios to the smallest value lie in (0, 1], so no power can overflow
        raw = [(smallest / value) ** (1.0 / (exponent - 1.0)) for value in values]
    total = sum(raw)
    return [share / total for share in raw]


def _check_above_one(name: str, value: float) -> None:
    if not value > 1.0:
        raise ValueError(f"{name}={value} should be > 1.")
