"""The small least-squares problems against NumPy's own solver and against hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.tensors.solves import orthonormal_columns, polar_factor, polar_step, procrustes, solve_rows


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def test_rows_are_the_weighted_least_squares_solutions(generator):
    design, targets = generator.standard_normal((7, 3)), generator.standard_normal((4, 7))
    weights = generator.uniform(0.1, 2.0, (4, 7))
    found = solve_rows(design, targets, weights, generator.standard_normal((4, 3)))
    for row, target, weight in zip(found, targets, weights, strict=True):
        root = np.sqrt(weight)
        np.testing.assert_allclose(row, np.linalg.lstsq(root[:, None] * design, root * target)[0], atol=1e-10)


def test_rows_without_weight_stay_and_open_directions_keep_their_value():
    design = np.array([[1.0, 0.0]])
    found = solve_rows(design, np.array([[5.0], [5.0]]), np.array([[1.0], [0.0]]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_allclose(found, [[5.0, 2.0], [3.0, 4.0]])


def test_the_polar_factor_is_the_nearest_orthonormal_matrix(generator):
    matrix = generator.standard_normal((5, 3))
    nearest = polar_factor(matrix)
    np.testing.assert_allclose(nearest.T @ nearest, np.eye(3), atol=1e-12)
    for _ in range(50):
        other = np.linalg.qr(nearest + 0.1 * generator.standard_normal((5, 3)))[0]
        assert np.linalg.norm(matrix - nearest) <= np.linalg.norm(matrix - other) + 1e-12


@pytest.mark.parametrize("width", [6, 3, 2])
def test_a_polar_step_never_raises_the_error_of_a_basis(generator, width):
    for _ in range(50):
        basis = polar_factor(generator.standard_normal((width, 3)))
        x, t, w = generator.standard_normal((5, 3)), generator.standard_normal((5, width)), generator.uniform(0, 1, 5)
        better = polar_step((w[:, None] * t).T @ x, (w[:, None] * x).T @ x, basis)
        before, after = (np.sum(w[:, None] * (t - x @ b.T) ** 2) for b in (basis, better))
        assert after <= before * (1 + 1e-12)


def test_a_turn_is_found_again(generator):
    matrix, turn = generator.standard_normal((6, 3)), np.linalg.qr(generator.standard_normal((3, 3)))[0]
    np.testing.assert_allclose(procrustes(matrix, matrix @ turn), turn, atol=1e-12)


def test_orthonormal_columns_begin_with_the_span_and_are_zero_beyond_the_rows(generator):
    matrix = generator.standard_normal((4, 2))
    basis = orthonormal_columns(matrix, 6)
    np.testing.assert_allclose(basis[:, :4].T @ basis[:, :4], np.eye(4), atol=1e-12)
    np.testing.assert_array_equal(basis[:, 4:], 0.0)
    np.testing.assert_allclose(basis[:, :2] @ (basis[:, :2].T @ matrix), matrix, atol=1e-12)
