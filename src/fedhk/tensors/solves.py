"""The small weighted least-squares problems that every decomposition is made of."""

from __future__ import annotations

import numpy as np

from fedhk._typing import FloatArray

_RANK_TOLERANCE = 1e-13
_INERTIA = 1e-9


def solve_rows(design: FloatArray, targets: FloatArray, weights: FloatArray, previous: FloatArray) -> FloatArray:
    """For every row i the x_i that minimises sum_m weights_im (targets_im - design_m . x_i)^2.

    Of all minimisers it is the one nearest to `previous`: a row without weight stays where it was. Targets are finite,
    also where the weight is zero; weights that are the same for all rows may be one row.
    """
    residuals = targets - previous @ design.T
    right = (weights * residuals) @ design
    if (weights == weights[0]).all():
        weights = weights[:1]
    values, vectors = np.linalg.eigh(np.matmul(design.T[None] * weights[:, None, :], design))
    kept = values > _RANK_TOLERANCE * np.maximum(values[:, -1:], np.finfo(np.float64).tiny)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=kept)
    pseudo_inverses = np.matmul(vectors * inverse[:, None, :], vectors.transpose(0, 2, 1))
    if len(weights) == 1:
        return np.asarray(previous + right @ pseudo_inverses[0])
    return np.asarray(previous + np.matmul(right[:, None, :], pseudo_inverses)[:, 0])


def polar_factor(matrix: FloatArray) -> FloatArray:
    """The nearest matrix with orthonormal columns (rows, where there are fewer rows than columns)."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left @ right)


def polar_step(cross: FloatArray, gram: FloatArray, previous: FloatArray) -> FloatArray:
    """A better basis B_h (d, r), of orthonormal columns, or rows where d < r, for sum_k w_k ||t_k - B_h x_k||^2.

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
    """The orthogonal O for which `matrix @ O` is nearest to `onto`."""
    return polar_factor(matrix.T @ onto)


def beyond(before: FloatArray, after: FloatArray, stride: float) -> FloatArray:
    """`after`, and `stride` times the way that led to it."""
    return np.asarray(after + stride * (after - before))


def orthonormal_columns(matrix: FloatArray, count: int) -> FloatArray:
    """`count` orthonormal columns (all rows, if there are fewer), the leading ones spanning those of `matrix`."""
    rows = len(matrix)
    kept = min(count, rows)
    basis = np.linalg.qr(np.hstack([matrix[:, :kept], np.eye(rows, kept)]))[0][:, :kept]
    return np.asarray(np.hstack([basis, np.zeros((rows, count - kept))]))
