"""Symmetric matrices as vectors of their upper half."""

from __future__ import annotations

import math

import numpy as np

from fedhk._typing import FloatArray


def upper_half(matrix: FloatArray) -> FloatArray:
    """Return the numbers of a matrix on the diagonal and above it, row by row."""
    return np.asarray(matrix[np.triu_indices(len(matrix))])


def from_upper_half(values: FloatArray) -> FloatArray:
    """Restore the symmetric matrix of which `upper_half` gives these numbers: k (k + 1) / 2 for k rows."""
    size = (math.isqrt(8 * len(values) + 1) - 1) // 2
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = values
    return np.asarray(upper + np.triu(upper, 1).T)
