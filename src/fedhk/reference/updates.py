"""The objectives and the update rules of `thm:efkmvc_update`, in every reading the paper allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import check_words
from fedhk.reference.heat_kernel import kernel_exponent

CenterReading = Literal["theorem", "proof", "corrected"]


def squared_distances(x: FloatArray, centers: FloatArray) -> FloatArray:
    """Squared Euclidean distance ||x_i - a_k||^2 of every pair."""
    distance = np.zeros((len(x), len(centers)))
    for i in range(len(x)):
        for k in range(len(centers)):
            distance[i, k] = kernel_exponent(x[i], centers[k], np.ones(x.shape[1]))
    return distance


def fuzzy_cost(memberships: FloatArray, distances: FloatArray, fuzzifier: float) -> float:
    """Cost of one view, sum_i sum_k mu_ik^m d_ik."""
    cost = 0.0
    for i in range(len(memberships)):
        for k in range(memberships.shape[1]):
            cost += float(memberships[i, k]) ** fuzzifier * float(distances[i, k])
    return cost


def fcm_objective(x: FloatArray, memberships: FloatArray, centers: FloatArray, fuzzifier: float) -> float:
    """Fuzzy c-means, J_FCM = sum_ik mu_ik^m ||x_i - a_k||^2 (`eqn:standardFCM`)."""
    return fuzzy_cost(memberships, squared_distances(x, centers), fuzzifier)


def mvc_objective(
    views: Sequence[FloatArray], view_memberships: Sequence[FloatArray], centers: Sequence[FloatArray], fuzzifier: float
) -> float:
    """Multi-view clustering with memberships of each view's own (`eqn:MVC`)."""
    total = 0.0
    for x, mu, a in zip(views, view_memberships, centers, strict=True):
        total += fcm_objective(x, mu, a, fuzzifier)
    return total


def shared_mvc_objective(
    views: Sequence[FloatArray], memberships: FloatArray, centers: Sequence[FloatArray], fuzzifier: float
) -> float:
    """Multi-view clustering with one membership matrix U* for all views (`eqn:MVCv2`)."""
    return mvc_objective(views, [memberships] * len(views), centers, fuzzifier)


def amvc_objective(view_distances: Sequence[FloatArray], memberships: FloatArray, fuzzifier: float) -> float:
    """Alternative multi-view clustering: KED instead of the Euclidean distance, views alike (`eqn:MVCv3`)."""
    total = 0.0
    for distance in view_distances:
        total += fuzzy_cost(memberships, distance, fuzzifier)
    return total


def ekmvc_objective(
    view_distances: Sequence[FloatArray],
    memberships: FloatArray,
    view_weights: FloatArray,
    view_exponent: float,
    fuzzifier: float,
) -> float:
    """Weighted kernel clustering of one client, J = sum_h v_h^alpha sum_ik mu_ik^m KED_ik^h (`eqn:E-KMVC`).

    Parameters
    ----------
    view_distances : sequence of s arrays of shape (n, c)
        From `ked`, `fked` or `tked`.
    memberships : array of shape (n, c)
    view_weights : array of shape (s,)
    view_exponent, fuzzifier : float

    Returns
    -------
    float
    """
    total = 0.0
    for h, distance in enumerate(view_distances):
        total += float(view_weights[h]) ** view_exponent * fuzzy_cost(memberships, distance, fuzzifier)
    return total


def efkmvc_objective(client_objectives: Sequence[float]) -> float:
    """Federated objective, the sum of `ekmvc_objective` over the clients (`eqn:E-FKMVC`).

    Notes
    -----
    The paper writes J^(l) for this sum over all clients and then uses J^(l) for one client's term; here the term is
    `ekmvc_objective` and the sum is this function.
    """
    total = 0.0
    for objective in client_objectives:
        total += objective
    return total


def update_memberships(
    view_distances: Sequence[FloatArray], view_weights: FloatArray, view_exponent: float, fuzzifier: float
) -> FloatArray:
    """Memberships as printed (`eqn:diff_U_EFKMVFC`, `eqn:tensor_membership`, `eqn:tucker_membership`).

    mu_ik = D_ik^(-1/(m-1)) / sum_k' D_ik'^(-1/(m-1)) with D_ik = sum_h v_h^alpha FKED_ik^h. A sample on a centre is a
    ZeroDivisionError, as on paper.
    """
    n_samples, n_clusters = view_distances[0].shape
    mu = np.zeros((n_samples, n_clusters))
    for i in range(n_samples):
        powers = []
        for k in range(n_clusters):
            total = 0.0
            for h, distance in enumerate(view_distances):
                total += float(view_weights[h]) ** view_exponent * float(distance[i, k])
            powers.append(total ** (-1.0 / (fuzzifier - 1.0)))
        for k in range(n_clusters):
            mu[i, k] = powers[k] / sum(powers)
    return mu


@check_words
def update_centers(
    views: Sequence[FloatArray],
    memberships: FloatArray,
    centers: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    view_weights: FloatArray,
    *,
    view_exponent: float,
    fuzzifier: float,
    reading: CenterReading = "theorem",
) -> list[FloatArray]:
    """Centres a_kj = sum_i w_ijk x_ij / sum_i w_ijk at the current centres (`eqn:diff_A_EFKMVFC`).

    Parameters
    ----------
    views, centers, heat_coefs : sequences of s arrays of shapes (n, d_h), (c, d_h) and (n, d_h)
    memberships : array of shape (n, c)
    view_weights : array of shape (s,)
    view_exponent, fuzzifier : float
    reading : {"theorem", "proof", "corrected"}
        The weight w_ijk is mu_ik^m v_h^alpha times

        - ``"theorem"``: exp(-delta_ij ||x_i - a_k||^2), as the theorem is printed;
        - ``"proof"``: exp(-phi_ik), as its proof ends;
        - ``"corrected"``: delta_ij exp(-phi_ik), without the proof's division by delta_ij.

    Returns
    -------
    list of s arrays of shape (c, d_h)

    Notes
    -----
    The theorem prints x_ij outside the quotient of two equal sums, where i is not bound; it is read as the last factor
    of the numerator. A coordinate whose weights are all zero keeps its value in every reading.
    """
    updated = [np.array(a, dtype=np.float64) for a in centers]
    for h, (x, delta) in enumerate(zip(views, heat_coefs, strict=True)):
        view_power = float(view_weights[h]) ** view_exponent
        for k, j in np.ndindex(centers[h].shape):
            numerator, denominator = 0.0, 0.0
            for i in range(len(x)):
                influence = _kernel_weight(x[i], centers[h][k], delta[i], j, reading)
                weight = float(memberships[i, k]) ** fuzzifier * view_power * influence
                numerator += weight * float(x[i, j])
                denominator += weight
            if denominator > 0.0:
                updated[h][k, j] = numerator / denominator
    return updated


def _kernel_weight(row: FloatArray, center: FloatArray, delta: FloatArray, j: int, reading: CenterReading) -> float:
    if reading == "theorem":
        return math.exp(-float(delta[j]) * kernel_exponent(row, center, np.ones(len(row))))
    kernel = math.exp(-kernel_exponent(row, center, delta))
    return kernel if reading == "proof" else float(delta[j]) * kernel


def update_view_weights(
    view_distances: Sequence[FloatArray], memberships: FloatArray, view_exponent: float, fuzzifier: float
) -> FloatArray:
    """View weights as printed (`eqn:diff_V_EFKMVFC`, `eqn:tensor_view_weights`, `eqn:tucker_view_weights`).

    v_h = cost_h^(-1/(alpha-1)) / sum_h' cost_h'^(-1/(alpha-1)) with cost_h = sum_ik mu_ik^m FKED_ik^h.
    """
    costs = [fuzzy_cost(memberships, distance, fuzzifier) for distance in view_distances]
    powers = [cost ** (-1.0 / (view_exponent - 1.0)) for cost in costs]
    return np.array([power / sum(powers) for power in powers])
