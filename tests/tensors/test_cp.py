"""CP passes the checks of all decompositions, reaches TensorLy's error, and finds missing cells again."""

from __future__ import annotations

import numpy as np
import pytest
import tensorly
from tensorly.decomposition import parafac

from fedhk.tensors import CP, weighted_error
from fedhk.testing.decompositions import DecompositionChecks, random_centers
from tensors.forms import change_gauge, reaches


class TestCP(DecompositionChecks):
    decomposition, rank = CP(), (3,)

    def change_gauge(self, factors, generator):
        return change_gauge(factors, generator)


@pytest.mark.parametrize("seed", range(5))
def test_the_error_of_tensorly_is_reached(seed):
    generator = np.random.default_rng(seed)
    tensor = generator.standard_normal((6, 8, 3))
    error = float(np.sum((tensor - tensorly.cp_to_tensor(parafac(tensor, 3, n_iter_max=100))) ** 2))
    assert reaches(CP(), list(np.moveaxis(tensor, 2, 0)), 3, error)


def test_missing_cells_of_a_low_rank_tensor_are_found_again():
    generator = np.random.default_rng(2)
    factors = [generator.standard_normal((size, 2)) for size in (8, 10, 4)]
    truth = list(np.einsum("kr,jr,hr->hkj", *factors))
    weights = [(generator.random((8, 10)) < 0.8).astype(float) for _ in truth]
    found = CP().fit(truth, weights, rank=2, sweeps=400)
    for a, b in zip(found.centers(), truth, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_views_use_the_first_rows_of_one_orthonormal_basis():
    factors = CP().fit(random_centers(np.random.default_rng(0), 5, (4, 9, 6)), rank=3)
    np.testing.assert_allclose(factors.common_basis.T @ factors.common_basis, np.eye(3), atol=1e-12)
    for basis, width in zip(factors.view_bases, (4, 9, 6), strict=True):
        np.testing.assert_array_equal(basis, factors.common_basis[:width])


def test_more_clusters_than_features_are_reached_at_full_rank():
    centers = random_centers(np.random.default_rng(0), 7, (3, 2))
    assert weighted_error(CP().fit(centers, rank=6).centers(), centers) < 1e-20


def test_one_view_is_reached_at_full_rank():
    centers = random_centers(np.random.default_rng(0), 4, (6,))
    assert weighted_error(CP().fit(centers, rank=4).centers(), centers) < 1e-20
