"""What the base class derives for every decomposition; `fedhk.testing` has the checks of a single one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from fedhk.tensors import CP, weighted_error
from fedhk.testing.decompositions import largest_difference, random_centers, random_weights
from tensors.forms import FORMS, FULL, RANKS, WIDTHS, problems

forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
full_ranks = pytest.mark.parametrize(("form", "n_clusters", "rank"), FULL, ids=[form.name for form, _, _ in FULL])


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@settings(max_examples=100)
@given(problems())
def test_the_weighted_error_never_rises(problem):
    form, rank, targets, weights, generator = problem
    centers = random_centers(generator, len(targets[0]), [target.shape[1] for target in targets])
    factors = form.fit(centers, rank=rank, sweeps=2)
    scale = weighted_error([np.zeros_like(t) for t in targets], targets, weights)
    before = weighted_error(factors.centers(), targets, weights)
    for _ in range(4):
        factors = form.step(factors, targets, weights, sweeps=1)
        after = weighted_error(factors.centers(), targets, weights)
        assert after <= before + 1e-12 * (before + scale)
        before = after


@settings(max_examples=100)
@given(problems())
def test_a_core_step_from_projected_gradients_never_raises_the_error_and_keeps_the_basis(problem):
    form, rank, targets, weights, generator = problem
    centers = random_centers(generator, len(targets[0]), [target.shape[1] for target in targets])
    factors = form.fit(centers, rank=rank, sweeps=2)
    gradients = form.project_gradients(factors, targets, weights)
    row_weights = np.column_stack([weight.max(axis=1) for weight in weights])
    after = form.core_step(factors, gradients, row_weights, sweeps=3)
    old, new = (weighted_error(f.centers(), targets, weights) for f in (factors, after))
    scale = weighted_error([np.zeros_like(t) for t in targets], targets, weights)
    assert new <= old + 1e-12 * (old + scale)
    assert all(a is b for a, b in zip(after.basis_arrays, factors.basis_arrays, strict=True))


@full_ranks
def test_full_rank_reproduces_the_centres(form, n_clusters, rank, generator):
    centers = random_centers(generator, n_clusters, WIDTHS)
    assert largest_difference(form.fit(centers, rank=rank).centers(), centers) < 1e-10


@full_ranks
def test_a_step_at_full_rank_takes_the_targets_and_keeps_what_has_no_weight(form, n_clusters, rank, generator):
    before, targets = random_centers(generator, n_clusters, WIDTHS), random_centers(generator, n_clusters, WIDTHS)
    weights = random_weights(generator, n_clusters, WIDTHS, "holes")
    factors = form.step(form.fit(before, rank=rank), targets, weights)
    expected = [np.where(w > 0, t, b) for t, w, b in zip(targets, weights, before, strict=True)]
    assert largest_difference(factors.centers(), expected) < 1e-10


@forms
def test_clusters_and_views_without_weight_keep_their_rows(form, generator):
    start = form.fit(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
    weights = [np.ones((5, 1)), np.zeros((5, 1)), np.ones((5, 1))]
    for weight in weights:
        weight[2] = 0.0
    end = form.step(start, random_centers(generator, 5, WIDTHS), weights)
    np.testing.assert_array_equal(end.cluster_factor[2], start.cluster_factor[2])
    np.testing.assert_array_equal(end.view_factor[1], start.view_factor[1])
    if not isinstance(form, CP):
        np.testing.assert_allclose(end.basis_arrays[1], start.basis_arrays[1], atol=1e-13)


@forms
def test_targets_of_another_shape_are_refused(form, generator):
    factors = form.fit(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
    with pytest.raises(ValueError, match=r"shapes of the factors' centres, \[\(5, 9\)"):
        form.step(factors, random_centers(generator, 5, (9, 6, 12)))


@forms
def test_a_blend_and_a_mean_lie_between_their_parts(form, generator):
    centers = random_centers(generator, 5, WIDTHS)
    one = form.fit(centers, rank=RANKS[form.name])
    moved = [center + 0.05 * generator.standard_normal(center.shape) for center in centers]
    other = form.step(one, moved, sweeps=5)
    apart = largest_difference(one.centers(), other.centers())
    for middle in (form.blend(one, other, 0.5), form.mean([one, other], np.array([0.5, 0.5]), one)):
        assert 0 < largest_difference(middle.centers(), one.centers()) < apart
        assert 0 < largest_difference(middle.centers(), other.centers()) < apart
