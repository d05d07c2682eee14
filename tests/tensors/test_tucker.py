"""Tucker passes the checks of all decompositions, reaches TensorLy's errors, and keeps its bases orthonormal."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorly
from tensorly.decomposition import tucker

from fedhk.tensors import Tucker, weighted_error
from fedhk.testing.decompositions import DecompositionChecks, random_centers, random_weights
from tensors.forms import change_gauge, reaches


class TestTucker(DecompositionChecks):
    decomposition, rank = Tucker(), (3, 4, 2)

    def change_gauge(self, factors, generator):
        return change_gauge(factors, generator)


@pytest.mark.parametrize("seed", range(20))
def test_the_error_of_tensorly_is_reached(seed):
    generator = np.random.default_rng(seed)
    shape = [int(generator.integers(*sizes)) for sizes in ((2, 10), (1, 14), (1, 6))]
    rank = [int(generator.integers(1, size + 1)) for size in shape]
    tensor = generator.standard_normal(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # TensorLy says that a rank is above the product of the others
        parts = tucker(tensor, rank, n_iter_max=200, tol=1e-8)
    error = float(np.sum((tensor - tensorly.tucker_to_tensor(parts)) ** 2))
    assert reaches(Tucker(), list(np.moveaxis(tensor, 2, 0)), rank, error)


def test_bases_are_orthonormal_in_columns_or_in_rows():
    generator = np.random.default_rng(0)
    centers = random_centers(generator, 5, (9, 3, 12))
    factors = Tucker().fit(centers, rank=(4, 6, 2))
    factors = Tucker().step(factors, centers, random_weights(generator, 5, (9, 3, 12), "holes"), sweeps=20)
    wide, narrow, widest = factors.feature_factors
    for basis in (wide.T, narrow, widest.T):
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-10)


def test_more_clusters_than_features_are_reached_at_full_rank():
    centers = random_centers(np.random.default_rng(0), 7, (5, 4))
    assert weighted_error(Tucker().fit(centers, rank=(7, 5, 2)).centers(), centers) < 1e-20


def test_one_view_is_reached_at_full_rank():
    centers = random_centers(np.random.default_rng(0), 4, (6,))
    assert weighted_error(Tucker().fit(centers, rank=[4, 6, 1]).centers(), centers) < 1e-20


def test_no_more_feature_coordinates_than_clusters_are_needed_to_follow_any_centres():
    generator = np.random.default_rng(0)
    before, after = random_centers(generator, 3, (9, 2, 7)), random_centers(generator, 3, (9, 2, 7))
    factors = Tucker().step(Tucker().fit(before, rank=(3, 3, 3)), after)
    assert weighted_error(factors.centers(), after) < 1e-20
