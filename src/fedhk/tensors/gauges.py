"""Gauges: rotations, permutations, signs and scales of factors that leave the centres unchanged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment
from tensorly.base import unfold

from fedhk._typing import FloatArray, IntArray
from fedhk.tensors.solves import orthonormal_columns


def peak_signs(matrix: FloatArray) -> FloatArray:
    """Return the sign of the largest entry of every column; 1 for a column of zeros."""
    peaks = matrix[np.argmax(np.abs(matrix), axis=0), np.arange(matrix.shape[1])]
    return np.where(peaks < 0, -1.0, 1.0)


def core_rotations(core: FloatArray, factors: Sequence[FloatArray]) -> list[FloatArray]:
    """Find orthogonal O_n that make the core all-orthogonal with slices of falling size (`eqn:hosvd`).

    The signs make the largest entry of every column of factor @ O_n positive.
    """
    rotations = []
    for mode, size in enumerate(core.shape):
        rotations.append(orthonormal_columns(np.linalg.svd(unfold(core, mode), full_matrices=False)[0], size))
    return [turn * peak_signs(factor @ turn) for turn, factor in zip(rotations, factors, strict=True)]


def match_columns(parts: Sequence[FloatArray], onto: Sequence[FloatArray]) -> IntArray:
    """Find the order of columns most similar to another's: the assignment with the largest product of |cosines|."""
    likeness: FloatArray = np.ones((1, 1))
    for matrix, other in zip(parts, onto, strict=True):
        likeness = likeness * np.abs(_unit(other).T @ _unit(matrix))
    return np.asarray(linear_sum_assignment(likeness, maximize=True)[1])


def best_signs(products: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find signs of rows and columns that make a matrix most positive, by its leading singular vectors."""
    left, _, right = np.linalg.svd(products)
    rows, columns = np.where(left[:, 0] < 0, -1.0, 1.0), np.where(right[0] < 0, -1.0, 1.0)
    turn = -1.0 if rows.sum() < 0 else 1.0
    return turn * rows, turn * columns


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; 1 where either is zero, so that a scale can always be divided by."""
    possible = (np.abs(denominator) > 0) & (np.abs(numerator) > 0)
    return np.divide(numerator, denominator, out=np.ones_like(denominator), where=possible)


def _unit(matrix: FloatArray) -> FloatArray:
    norms = np.linalg.norm(matrix, axis=0)
    return np.asarray(matrix / np.where(norms > 0, norms, 1.0))
