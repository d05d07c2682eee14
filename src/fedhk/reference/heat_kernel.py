"""Heat-kernel coefficients and the kernel distances KED, FKED and TKED, as printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import check_words

DistanceReading = Literal["per_view", "summed"]


def minmax_coefficient(x: FloatArray, epsilon: float = 1e-12) -> FloatArray:
    """Min-max heat-kernel coefficient of one view at one client (`eqn:fed_delta`).

    delta_ij = (x_ij - min_i x_ij) / (max_i x_ij - min_i x_ij + epsilon).

    Parameters
    ----------
    x : array of shape (n, d)
    epsilon : float
        Zero gives `eqn:tensorized_delta`, which has no epsilon and divides by zero at a constant feature.

    Returns
    -------
    array of shape (n, d)
        Between 0 and 1, and exactly 0 at each feature's minimum: the proof of `thm:efkmvc_update` assumes delta > 0.
    """
    n_samples, n_features = x.shape
    delta = np.zeros((n_samples, n_features))
    for j in range(n_features):
        column = [float(x[i, j]) for i in range(n_samples)]
        low, high = min(column), max(column)
        for i in range(n_samples):
            delta[i, j] = (column[i] - low) / (high - low + epsilon)
    return delta


def absdev_coefficient(x: FloatArray) -> FloatArray:
    """Absolute-deviation heat-kernel coefficient, `delta_ij = |x_ij - mean_i x_ij|` (`eqn:fed_delta_v2`)."""
    n_samples, n_features = x.shape
    delta = np.zeros((n_samples, n_features))
    for j in range(n_features):
        mean = 0.0
        for i in range(n_samples):
            mean += float(x[i, j]) / n_samples
        for i in range(n_samples):
            delta[i, j] = abs(float(x[i, j]) - mean)
    return delta


def kernel_exponent(row: FloatArray, center: FloatArray, heat_coef: FloatArray) -> float:
    """Exponent of the kernel for one sample and one centre, phi = sum_j delta_j (x_j - a_j)^2."""
    phi = 0.0
    for j in range(len(row)):
        phi += float(heat_coef[j]) * (float(row[j]) - float(center[j])) ** 2
    return phi


def ked(x: FloatArray, centers: FloatArray, heat_coef: FloatArray) -> FloatArray:
    """Kernel Euclidean distance of one view, 1 - exp(-sum_j delta_ij (x_ij - a_kj)^2) (`eqn:KED`).

    Parameters
    ----------
    x, heat_coef : arrays of shape (n, d)
    centers : array of shape (c, d)

    Returns
    -------
    array of shape (n, c)
    """
    distance = np.zeros((len(x), len(centers)))
    for i in range(len(x)):
        for k in range(len(centers)):
            distance[i, k] = 1.0 - math.exp(-kernel_exponent(x[i], centers[k], heat_coef[i]))
    return distance


@check_words
def fked(
    views: Sequence[FloatArray],
    centers: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    reading: DistanceReading = "per_view",
) -> list[FloatArray]:
    """Federated kernel Euclidean distance of every view at one client (`eqn:federated_ked`).

    Parameters
    ----------
    views, centers, heat_coefs : sequences of s arrays of shapes (n, d_h), (c, d_h) and (n, d_h)
    reading : {"per_view", "summed"}
        ``"summed"`` is the printed formula: the exponent runs over all views, so that every view has the same distance
        and the view weights are always 1/s. ``"per_view"`` is what the proofs use: one KED for each view.

    Returns
    -------
    list of s arrays of shape (n, c)
    """
    if reading == "per_view":
        return [ked(x, a, delta) for x, a, delta in zip(views, centers, heat_coefs, strict=True)]
    distance = np.zeros((len(views[0]), len(centers[0])))
    for i in range(len(views[0])):
        for k in range(len(centers[0])):
            phi = 0.0
            for x, a, delta in zip(views, centers, heat_coefs, strict=True):
                phi += kernel_exponent(x[i], a[k], delta[i])
            distance[i, k] = 1.0 - math.exp(-phi)
    return [distance.copy() for _ in views]


def tensorized_coefficient(tensor: FloatArray, widths: Sequence[int], epsilon: float = 1e-12) -> FloatArray:
    """Min-max coefficient of a data tensor, slice by slice (`eqn:tensorized_delta`, Algorithms 2 and 3, step 2.1).

    Parameters
    ----------
    tensor : array of shape (n, D, s)
    widths : sequence of s integers
        The number of features d_h of each view: the loop over j ends there, and padded cells keep delta = 0.
    epsilon : float
        Absent from `eqn:tensorized_delta`, present in the algorithms.

    Returns
    -------
    array of shape (n, D, s)
    """
    delta = np.zeros(tensor.shape)
    for h, width in enumerate(widths):
        delta[:, :width, h] = minmax_coefficient(tensor[:, :width, h], epsilon)
    return delta


@check_words
def tked(
    tensor: FloatArray,
    center_tensor: FloatArray,
    heat_coef: FloatArray,
    widths: Sequence[int],
    reading: DistanceReading = "per_view",
) -> list[FloatArray]:
    """Tensorized kernel Euclidean distance of every view (`eqn:tensorized_ked`).

    Parameters
    ----------
    tensor, heat_coef : arrays of shape (n, D, s)
    center_tensor : array of shape (c, D, s)
    widths : sequence of s integers
        The sum over features ends at d_h.
    reading : {"per_view", "summed"}
        As in `fked`.

    Returns
    -------
    list of s arrays of shape (n, c)

    Notes
    -----
    The objective and the updates write TKED(X - A), with one argument; it is read as TKED(X, A).
    """
    views = [tensor[:, :width, h] for h, width in enumerate(widths)]
    centers = [center_tensor[:, :width, h] for h, width in enumerate(widths)]
    coefs = [heat_coef[:, :width, h] for h, width in enumerate(widths)]
    return fked(views, centers, coefs, reading)
