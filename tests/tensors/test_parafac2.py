"""PARAFAC2 passes the checks of all decompositions, reaches TensorLy's errors, and is PARAFAC2 with any weights."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tensorly.decomposition import parafac2
from tensorly.parafac2_tensor import parafac2_to_slices

from fedhk.reference.decompositions import parafac2_to_slices as reference_slices
from fedhk.tensors import Parafac2, weighted_error
from fedhk.testing.decompositions import DecompositionChecks, random_centers, random_weights
from tensors.forms import change_gauge, reaches


class TestParafac2(DecompositionChecks):
    decomposition, rank = Parafac2(), (3,)

    def change_gauge(self, factors, generator):
        return change_gauge(factors, generator)


@pytest.mark.parametrize("seed", range(20))
def test_the_error_of_tensorly_is_reached(seed):
    generator = np.random.default_rng(seed)
    n_clusters, n_views = int(generator.integers(2, 9)), int(generator.integers(2, 5))
    widths = [int(generator.integers(2, 13)) for _ in range(n_views)]
    rank = int(generator.integers(1, min(n_clusters, *widths) + 1))
    centers = random_centers(generator, n_clusters, widths)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # TensorLy says that it fills up its start
        parts = parafac2([a.T for a in centers], rank, init="svd", n_iter_max=80, tol=1e-6, random_state=seed)
    slices = [part.T for part in parafac2_to_slices(parts)]
    assert reaches(Parafac2(), centers, rank, weighted_error(slices, centers))


def test_bases_are_orthonormal_and_cross_products_constant_with_any_weights():
    generator = np.random.default_rng(0)
    centers, form = random_centers(generator, 5, (9, 4, 12)), Parafac2()
    factors = form.fit(centers, rank=4)
    for kind in ("rows", "cells", "holes", "dead"):
        factors = form.step(factors, centers, random_weights(generator, 5, (9, 4, 12), kind), sweeps=20)
        for basis, loadings in zip(factors.bases, factors.feature_factors, strict=True):
            np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-10)
            expected = factors.feature_factor.T @ factors.feature_factor
            np.testing.assert_allclose(loadings.T @ loadings, expected, atol=1e-10 * max(1, np.abs(expected).max()))


def test_centres_coincide_with_the_formula_of_the_reference():
    factors = Parafac2().fit(random_centers(np.random.default_rng(1), 4, (5, 3)), rank=3)
    parts = factors.cluster_factor, factors.feature_factor, factors.view_factor, factors.bases
    for ours, literal in zip(factors.centers(), reference_slices(*parts), strict=True):
        np.testing.assert_allclose(ours, literal, atol=1e-12)


def test_two_views_of_deficient_rank_are_reached_at_the_full_rank():
    generator = np.random.default_rng(0)
    shared = generator.standard_normal((4, 2))
    centers = [shared @ generator.standard_normal((2, 7)), np.zeros((4, 5))]
    assert weighted_error(Parafac2().fit(centers, rank=4).centers(), centers) < 1e-20


def test_one_view_is_reached_at_full_rank():
    centers = random_centers(np.random.default_rng(0), 4, (6,))
    assert weighted_error(Parafac2().fit(centers, rank=4).centers(), centers) < 1e-20
