"""The tensor distance of Definition 8, as printed and as it was meant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import check_words

MetricReading = Literal["printed", "corrected"]


def printed_position(index: Sequence[int], shape: Sequence[int], skipped_mode: int) -> int:
    """Position l of an element in the vectorised tensor as Definition 8 prints it, with one mode left out.

    Notes
    -----
    The formula was copied from the unfolding of Definition 3: without one mode, elements that differ only there share a
    position, so it numbers no vector.
    """
    position = 0
    for level in range(len(shape)):
        if level != skipped_mode:
            stride = 1
            for m in range(level):
                if m != skipped_mode:
                    stride *= shape[m]
            position += index[level] * stride
    return position


def vector_position(index: Sequence[int], shape: Sequence[int]) -> int:
    """Position of an element in the vectorised tensor, all modes counted: sum_i g_i prod_{m<i} G_m."""
    return printed_position(index, shape, skipped_mode=-1)


@check_words
def index_distance(left: Sequence[int], right: Sequence[int], reading: MetricReading = "corrected") -> float:
    """Distance of two index tuples, ||q_l - q_m|| (`eqn:euclideandistance`).

    Notes
    -----
    ``"printed"`` adds the indices, (g_n + g_n')^2 with indices from one, under the name of a difference;
    ``"corrected"`` subtracts them. The printed q_1 is read as q_l.
    """
    total = 0.0
    for g, other in zip(left, right, strict=True):
        total += float((g + 1) + (other + 1)) ** 2 if reading == "printed" else float(g - other) ** 2
    return math.sqrt(total)


@check_words
def metric_coefficient(distance: float, theta: float, reading: MetricReading = "corrected") -> float:
    """Metric coefficient rho_lm of two elements at an index distance (`eqn:heatkernelcoefficients`).

    Notes
    -----
    ``"printed"`` is 1/(2 pi theta) exp(+distance^2)/(2 theta): it grows with distance and overflows on small tensors;
    ``"corrected"`` is the heat kernel 1/(2 pi theta) exp(-distance^2/(2 theta)), which decays as the text says.
    """
    if reading == "printed":
        return 1.0 / (2.0 * math.pi * theta) * math.exp(distance**2) / (2.0 * theta)
    return 1.0 / (2.0 * math.pi * theta) * math.exp(-(distance**2) / (2.0 * theta))


@check_words
def metric_matrix(shape: Sequence[int], theta: float, reading: MetricReading = "corrected") -> FloatArray:
    """Metric matrix P of all pairs of elements, in the order of `vector_position`."""
    size = math.prod(shape)
    matrix = np.zeros((size, size))
    for left in np.ndindex(*shape):
        for right in np.ndindex(*shape):
            distance = index_distance(left, right, reading)
            row, column = vector_position(left, shape), vector_position(right, shape)
            matrix[row, column] = metric_coefficient(distance, theta, reading)
    return matrix


@check_words
def tensor_distance(left: FloatArray, right: FloatArray, theta: float, reading: MetricReading = "corrected") -> float:
    """Tensor distance sqrt(sum_lm rho_lm (x_l - a_l)(x_m - a_m)) (`eqn:tensordistance`).

    Parameters
    ----------
    left, right : arrays of one shape
        The tensors X and A.
    theta : float
        The spread of the metric.
    reading : {"printed", "corrected"}
        As in `index_distance` and `metric_coefficient`.

    Returns
    -------
    float
    """
    if left.shape != right.shape:
        raise ValueError(f"the left tensor has shape {left.shape}, the right one {right.shape}.")
    matrix = metric_matrix(left.shape, theta, reading)
    difference = np.zeros(left.size)
    for index in np.ndindex(left.shape):
        difference[vector_position(index, left.shape)] = left[index] - right[index]
    total = 0.0
    for row in range(left.size):
        for column in range(left.size):
            total += float(matrix[row, column] * difference[row] * difference[column])
    return math.sqrt(max(total, 0.0))  # rounding may leave a distance of zero just below it
