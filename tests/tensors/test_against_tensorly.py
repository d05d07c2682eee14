"""With unit weights and no mask the errors of TensorLy are reached, and the properties of each form hold."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorly
from tensorly.decomposition import parafac, parafac2, tucker
from tensorly.parafac2_tensor import parafac2_to_slices

from fedhk.reference.decompositions import parafac2_to_slices as reference_slices
from fedhk.tensors import CP, Parafac2, Tucker, weighted_error
from tensors.forms import random_centers, random_weights


def reaches(form, centers, rank, error, attempts=8):
    """Whether the form comes within 1e-4 of an error, from one start and, if need be, from more."""
    floor = 1e-12 * sum(float(np.sum(center**2)) for center in centers)
    for attempt in range(attempts):
        factors = form.initial(centers, rank=rank, n_starts=1 + 3 * attempt, random_state=attempt)
        for _ in range(10):
            if weighted_error(form.reconstruct(factors), centers) <= (1 + 1e-4) * error + floor:
                return True
            factors = form.step(factors, centers, sweeps=100)
    return False


@pytest.mark.parametrize("seed", range(20))
def test_tucker_reaches_the_error_of_tensorly(seed):
    generator = np.random.default_rng(seed)
    shape = [int(generator.integers(*sizes)) for sizes in ((2, 10), (1, 14), (1, 6))]
    rank = [int(generator.integers(1, size + 1)) for size in shape]
    tensor = generator.standard_normal(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # TensorLy says that a rank is above the product of the others
        parts = tucker(tensor, rank, n_iter_max=200, tol=1e-8)
    error = float(np.sum((tensor - tensorly.tucker_to_tensor(parts)) ** 2))
    assert reaches(Tucker(), list(np.moveaxis(tensor, 2, 0)), rank, error)


@pytest.mark.parametrize("seed", range(20))
def test_parafac2_reaches_the_error_of_tensorly(seed):
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


@pytest.mark.parametrize("seed", range(5))
def test_cp_reaches_the_error_of_tensorly(seed):
    generator = np.random.default_rng(seed)
    tensor = generator.standard_normal((6, 8, 3))
    error = float(np.sum((tensor - tensorly.cp_to_tensor(parafac(tensor, 3, n_iter_max=100))) ** 2))
    assert reaches(CP(), list(np.moveaxis(tensor, 2, 0)), 3, error)


def test_parafac2_bases_are_orthonormal_and_cross_products_constant_with_any_weights():
    generator = np.random.default_rng(0)
    centers, form = random_centers(generator, 5, (9, 4, 12)), Parafac2()
    factors = form.initial(centers, rank=4)
    for kind in ("rows", "cells", "holes", "dead"):
        factors = form.step(factors, centers, random_weights(generator, 5, (9, 4, 12), kind), sweeps=20)
        for basis, loadings in zip(factors.bases, factors.feature_factors, strict=True):
            np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-10)
            expected = factors.feature_factor.T @ factors.feature_factor
            np.testing.assert_allclose(loadings.T @ loadings, expected, atol=1e-10 * max(1, np.abs(expected).max()))


def test_parafac2_coincides_with_the_formula_of_the_reference():
    centers = random_centers(np.random.default_rng(1), 4, (5, 3))
    factors = Parafac2().initial(centers, rank=3)
    parts = factors.cluster_factor, factors.feature_factor, factors.view_factor, factors.bases
    for ours, literal in zip(Parafac2().reconstruct(factors), reference_slices(*parts), strict=True):
        np.testing.assert_allclose(ours, literal, atol=1e-12)


def test_tucker_bases_are_orthonormal_in_columns_or_in_rows():
    generator = np.random.default_rng(0)
    centers = random_centers(generator, 5, (9, 3, 12))
    factors = Tucker().initial(centers, rank=(4, 6, 2))
    factors = Tucker().step(factors, centers, random_weights(generator, 5, (9, 3, 12), "holes"), sweeps=20)
    wide, narrow, widest = factors.feature_factors
    for basis in (wide.T, narrow, widest.T):
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-10)


def test_two_views_of_deficient_rank_are_reached_at_the_full_rank_of_parafac2():
    generator = np.random.default_rng(0)
    shared = generator.standard_normal((4, 2))
    centers = [shared @ generator.standard_normal((2, 7)), np.zeros((4, 5))]
    found = Parafac2().reconstruct(Parafac2().initial(centers, rank=4))
    assert weighted_error(found, centers) < 1e-20


def test_missing_cells_of_a_low_rank_tensor_are_found_again():
    generator = np.random.default_rng(2)
    factors = [generator.standard_normal((size, 2)) for size in (8, 10, 4)]
    truth = list(np.einsum("kr,jr,hr->hkj", *factors))
    weights = [(generator.random((8, 10)) < 0.8).astype(float) for _ in truth]
    found = CP().initial(truth, weights, rank=2, sweeps=400)
    for a, b in zip(CP().reconstruct(found), truth, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize(("form", "rank"), [(Tucker(), (7, 5, 2)), (CP(), 6)], ids=["Tucker", "CP"])
def test_more_clusters_than_features_are_reached_at_full_rank(form, rank):
    widths = (5, 4) if isinstance(form, Tucker) else (3, 2)
    centers = random_centers(np.random.default_rng(0), 7, widths)
    assert weighted_error(form.reconstruct(form.initial(centers, rank=rank)), centers) < 1e-20


def test_tucker_needs_no_more_feature_coordinates_than_clusters_to_follow_any_centres():
    generator = np.random.default_rng(0)
    before, after = random_centers(generator, 3, (9, 2, 7)), random_centers(generator, 3, (9, 2, 7))
    factors = Tucker().step(Tucker().initial(before, rank=(3, 3, 3)), after)
    assert weighted_error(Tucker().reconstruct(factors), after) < 1e-20
