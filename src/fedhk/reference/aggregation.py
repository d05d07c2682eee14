"""What the clients send and what the server makes of it, for free centres and for tensor factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import check_words

CoreReading = Literal["slices", "whole", "printed"]
Divisor = Literal["samples", "mass"]


def sample_average(arrays: Sequence[FloatArray], sizes: Sequence[int]) -> FloatArray:
    """Average over clients by their number of samples, (1/N) sum_l n(l) A_l (`eqn:global_A_EFKMVFC`, `global_V`).

    Serves the centres of one view (`eqn:global_A_EFKMVFC`) and the view weights (`eqn:global_V_EFKMVFC`).

    Notes
    -----
    All clients need the same number of clusters and features, where the paper writes c(l) and d_h^(l).
    """
    total = np.zeros(arrays[0].shape)
    for array, size in zip(arrays, sizes, strict=True):
        total += size * array
    return total / sum(sizes)


def center_statistics(x: FloatArray, memberships: FloatArray, fuzzifier: float) -> tuple[FloatArray, FloatArray]:
    """Statistics S^centers of one view: sum_i mu_ik^m x_ij and the mass sum_i mu_ik^m (aggregation protocol).

    Returns
    -------
    sums : array of shape (c, d)
    mass : array of shape (c,)

    Notes
    -----
    The printed mass has a second sum over j up to n_i, a symbol without meaning here; it is left out. There is no
    kernel in these sums, so their quotient is the fuzzy c-means centre and not that of `eqn:diff_A_EFKMVFC`.
    """
    sums, mass = np.zeros((memberships.shape[1], x.shape[1])), np.zeros(memberships.shape[1])
    for i, k in np.ndindex(memberships.shape):
        power = float(memberships[i, k]) ** fuzzifier
        mass[k] += power
        for j in range(x.shape[1]):
            sums[k, j] += power * x[i, j]
    return sums, mass


def aggregate_center_statistics(
    sums: Sequence[FloatArray], masses: Sequence[FloatArray], client_weights: FloatArray
) -> FloatArray:
    """Global centres of one view from the clients' statistics (`eqn:fed_global_centers`).

    a_kj = sum_l omega_l sum_i mu_ik^m x_ij / sum_l omega_l sum_i mu_ik^m.
    """
    numerator, denominator = np.zeros(sums[0].shape), np.zeros(masses[0].shape)
    for omega, total, mass in zip(client_weights, sums, masses, strict=True):
        numerator += omega * total
        denominator += omega * mass
    return numerator / denominator[:, None]


def aggregate_view_weights(
    view_weights: Sequence[FloatArray], client_weights: FloatArray, sizes: Sequence[int]
) -> FloatArray:
    """Global view weights, sum_l omega_l n(l) V_l / sum_l omega_l n(l) (`eqn:fed_global_views`)."""
    numerator, denominator = np.zeros(view_weights[0].shape), 0.0
    for omega, size, weights in zip(client_weights, sizes, view_weights, strict=True):
        numerator += omega * size * weights
        denominator += float(omega) * size
    return numerator / denominator


def client_weights(
    objectives: Sequence[float], quality_temperature: float, sizes: Sequence[int] | None = None
) -> FloatArray:
    """Quality weights of the clients, omega_l = exp(-tau J_l) / sum_l' exp(-tau J_l') (`eqn:client_weights`).

    Parameters
    ----------
    objectives : sequence of M floats
    quality_temperature : float
        The temperature tau.
    sizes : sequence of M integers, optional
        Given, J_l is the mean objective per sample. Omitted, it is the sum over samples, as printed: a
        ZeroDivisionError once every exponential underflows, and one client that takes all well before that.

    Returns
    -------
    array of shape (M,)
    """
    counts = [1] * len(objectives) if sizes is None else sizes
    raw = [math.exp(-quality_temperature * float(j) / n) for j, n in zip(objectives, counts, strict=True)]
    total = sum(raw)
    return np.array([value / total for value in raw])


@dataclass(frozen=True)
class TensorStatistics:
    """Statistics S^core and S^factors of one client (tensorized aggregation protocol)."""

    core: FloatArray
    factors: tuple[FloatArray, FloatArray, FloatArray]
    mass: float
    """The total mass sum_ik mu_ik^m."""


@check_words
def tensor_statistics(
    memberships: FloatArray,
    core: FloatArray,
    factors: Sequence[FloatArray],
    fuzzifier: float,
    reading: CoreReading = "whole",
) -> TensorStatistics:
    """Statistics of the tensor factors, sum_i sum_k mu_ik^m G and the like (tensorized aggregation protocol).

    Parameters
    ----------
    memberships : array of shape (n, c)
    core : array of shape (r1, r2, r3)
    factors : three arrays of shapes (c, r1), (D, r2), (s, r3)
    fuzzifier : float
    reading : {"whole", "slices", "printed"}
        The core and P carry indices i and k that they do not have.

        - ``"whole"``: all parts are multiplied by the total mass sum_ik mu_ik^m;
        - ``"slices"``: slice k of the core and row k of P are multiplied by their own mass sum_i mu_ik^m, which needs
          r1 = c, as `lem:tensor_communication` counts;
        - ``"printed"``: as "slices", and then the core is summed over k as its formula says, which loses mode 1: the
          result of shape (r2, r3) is no core.

    Returns
    -------
    TensorStatistics
    """
    masses = np.zeros(memberships.shape[1])
    for i, k in np.ndindex(memberships.shape):
        masses[k] += float(memberships[i, k]) ** fuzzifier
    mass = float(sum(masses))
    cluster_factor, feature_factor, view_factor = factors
    if reading == "whole":
        return TensorStatistics(mass * core, (mass * cluster_factor, mass * feature_factor, mass * view_factor), mass)
    if core.shape[0] != len(masses):
        raise ValueError(f"slices of the core need r1={core.shape[0]} to equal the number of clusters {len(masses)}.")
    slices, rows = np.zeros(core.shape), np.zeros(cluster_factor.shape)
    for k in range(len(masses)):
        slices[k] = masses[k] * core[k]
        rows[k] = masses[k] * cluster_factor[k]
    shared = slices if reading == "slices" else slices.sum(axis=0)
    return TensorStatistics(shared, (rows, mass * feature_factor, mass * view_factor), mass)


@check_words
def aggregate_tensor_statistics(
    statistics: Sequence[TensorStatistics],
    client_weights: FloatArray,
    sizes: Sequence[int],
    divisor: Divisor = "samples",
) -> tuple[FloatArray, list[FloatArray]]:
    """Global core and factors from the clients' statistics (`eqn:fed_global_core`, `_P`, `_Q`, `_R`).

    Parameters
    ----------
    statistics : sequence of M TensorStatistics
    client_weights : array of shape (M,)
    sizes : sequence of M integers
    divisor : {"samples", "mass"}
        ``"samples"`` is printed: divide by sum_l omega_l n(l). Since mu^m < mu for m > 1 the mass is below n, and every
        round shrinks all factors. ``"mass"`` divides by what was summed, sum_l omega_l sum_ik mu_ik^m.

    Returns
    -------
    core : array of shape (r1, r2, r3)
    factors : list of three arrays
    """
    parts = [[stat.core, *stat.factors] for stat in statistics]
    denominator = 0.0
    totals = [np.zeros(part.shape) for part in parts[0]]
    for omega, size, stat, client_parts in zip(client_weights, sizes, statistics, parts, strict=True):
        denominator += float(omega) * (size if divisor == "samples" else stat.mass)
        for p in range(4):
            totals[p] = totals[p] + omega * client_parts[p]
    averaged = [total / denominator for total in totals]
    return averaged[0], averaged[1:]
