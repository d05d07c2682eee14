"""The small weighted least-squares problems that every decomposition is made of."""

from __future__ import annotations

import numpy as np

from fedhk._typing import FloatArray

# What a direction without data is held by, relative to what the best-known direction is held by.
_RIDGE, _INERTIA = 1e-12, 1e-9


def solve_rows(design: FloatArray, targets: FloatArray, weights: FloatArray, previous: FloatArray) -> FloatArray:
    """Solve for every row i the x_i that minimises sum_m weights_im (targets_im - design_m . x_i)^2.

    See `solve_normal` for what the data leave open. Targets are finite, also where the weight is zero; weights that are
    the same for all rows may be one row.
    """
    right = (weights * (targets - previous @ design.T)) @ design
    if (weights == weights[0]).all():
        weights = weights[:1]
    return solve_normal(np.matmul(design.T[None] * weights[:, None, :], design), right, previous)


def solve_normal(grams: FloatArray, right: FloatArray, previous: FloatArray) -> FloatArray:
    """Solve the normal equations of least squares row by row, from their right-hand sides at `previous`.

    `grams`, of shape (n, r, r), or (1, r, r) for all rows alike, are half the second derivatives of the error, and
    `right`, of shape (n, r), is minus half its gradient. A trace of the way from `previous` is added to the error, so
    that directions that the data leave open stay where they were, and so does a row without weight; the error still
    never rises.
    """
    diagonals = np.diagonal(grams, axis1=1, axis2=2).max(axis=1)
    ridge = np.where(diagonals > 0, _RIDGE * diagonals, 1.0)
    held = grams + ridge[:, None, None] * np.eye(grams.shape[1])
    if len(held) == 1:
        return np.asarray(previous + np.linalg.solve(held[0], right.T).T)
    return np.asarray(previous + np.linalg.solve(held, right[:, :, None])[:, :, 0])


def polar_factor(matrix: FloatArray) -> FloatArray:
    """Find the nearest matrix with orthonormal columns (or rows, if there are fewer rows than columns)."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left @ right)


def polar_step(cross: FloatArray, gram: FloatArray, previous: FloatArray) -> FloatArray:
    """Improve the basis B_h (d, r), of orthonormal columns, or rows if d < r, for sum_k w_k ||t_k - B_h x_k||^2.

    `cross` is sum_k w_k t_k x_k^T and `gram` is sum_k w_k x_k x_k^T. With d >= r it is the exact minimiser (orthogonal
    Procrustes). With d < r the quadratic term is not constant on the orthonormal matrices and is majorised by its
    largest eigenvalue. A trace of the previous basis decides the directions that the data leave open; it takes nothing
    from the descent.
    """
    pull = _INERTIA * float(np.linalg.norm(cross))
    if len(previous) < previous.shape[1]:
        cross = cross - previous @ gram
        pull = max(float(np.linalg.eigvalsh(gram)[-1]), 0.0)
    if pull <= 0.0:
        return previous
    return polar_factor(cross + pull * previous)


def procrustes(matrix: FloatArray, onto: FloatArray) -> FloatArray:
    """Find the orthogonal O for which `matrix @ O` is nearest to `onto`."""
    return polar_factor(matrix.T @ onto)


def beyond(before: FloatArray, after: FloatArray, stride: float) -> FloatArray:
    """Extrapolate from `before` through `after` by `stride` times the step between them."""
    return np.asarray(after + stride * (after - before))


def orthonormal_columns(matrix: FloatArray, count: int) -> FloatArray:
    """Return `count` orthonormal columns (at most as many as rows), the first of which span those of `matrix`."""
    rows = len(matrix)
    kept = min(count, rows)
    basis = np.linalg.qr(np.hstack([matrix[:, :kept], np.eye(rows, kept)]))[0][:, :kept]
    return np.asarray(np.hstack([basis, np.zeros((rows, count - kept))]))
