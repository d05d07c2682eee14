"""What must be true of every decomposition of the centres; a further one is one more entry in FORMS."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from fedhk.tensors import CP, Parafac2, Tucker, weighted_error
from tensors.forms import FORMS, arrays, difference, problems, random_centers, random_weights, regauged

WIDTHS = (9, 6, 11)
RANKS = {"Tucker": (3, 4, 2), "PARAFAC2": 3, "CP": 3}
FULL = {"Tucker": (4, 11, 3), "PARAFAC2": 6, "CP": 12}


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@settings(max_examples=100)
@given(problems())
def test_the_weighted_error_never_rises(problem):
    form, rank, targets, weights, generator = problem
    centers = random_centers(generator, len(targets[0]), [target.shape[1] for target in targets])
    factors = form.initial(centers, rank=rank, sweeps=2)
    scale = weighted_error([np.zeros_like(t) for t in targets], targets, weights)
    before = weighted_error(form.reconstruct(factors), targets, weights)
    for _ in range(4):
        factors = form.step(factors, targets, weights, sweeps=1)
        after = weighted_error(form.reconstruct(factors), targets, weights)
        assert after <= before + 1e-12 * (before + scale)
        before = after


@settings(max_examples=100)
@given(problems())
def test_a_core_step_from_projected_gradients_never_raises_the_error_and_keeps_the_basis(problem):
    form, rank, targets, weights, generator = problem
    centers = random_centers(generator, len(targets[0]), [target.shape[1] for target in targets])
    factors = form.initial(centers, rank=rank, sweeps=2)
    gradients = form.projected_gradients(factors, targets, weights)
    row_weights = np.column_stack([weight.max(axis=1) for weight in weights])
    after = form.core_step(factors, gradients, row_weights, sweeps=3)
    old, new = (weighted_error(form.reconstruct(f), targets, weights) for f in (factors, after))
    scale = weighted_error([np.zeros_like(t) for t in targets], targets, weights)
    assert new <= old + 1e-12 * (old + scale)
    assert all(a is b for a, b in zip(form.basis(after), form.basis(factors), strict=True))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
class TestEveryDecomposition:
    def test_full_rank_reproduces_the_centres(self, form, generator):
        n_clusters = 3 if isinstance(form, Parafac2) else 4
        centers = random_centers(generator, n_clusters, WIDTHS)
        factors = form.initial(centers, rank=FULL[form.name])
        assert difference(form.reconstruct(factors), centers) < 1e-10

    def test_a_step_at_full_rank_takes_the_targets_and_keeps_what_has_no_weight(self, form, generator):
        n_clusters = 3 if isinstance(form, Parafac2) else 4
        before, targets = random_centers(generator, n_clusters, WIDTHS), random_centers(generator, n_clusters, WIDTHS)
        weights = random_weights(generator, n_clusters, WIDTHS, "holes")
        factors = form.step(form.initial(before, rank=FULL[form.name]), targets, weights)
        expected = [np.where(w > 0, t, b) for t, w, b in zip(targets, weights, before, strict=True)]
        assert difference(form.reconstruct(factors), expected) < 1e-10

    @pytest.mark.parametrize("value", [7.0, 1e300, np.nan, np.inf])
    def test_cells_without_weight_change_no_bit(self, form, generator, value):
        targets = random_centers(generator, 5, WIDTHS)
        weights = random_weights(generator, 5, WIDTHS, "holes")
        other = [np.where(w > 0, t, value) for t, w in zip(targets, weights, strict=True)]
        start = form.initial(targets, weights, rank=RANKS[form.name], sweeps=3)
        again = form.initial(other, weights, rank=RANKS[form.name], sweeps=3)
        ends = [form.step(start, targets, weights), form.step(again, other, weights)]
        for a, b in zip(arrays(ends[0]), arrays(ends[1]), strict=True):
            np.testing.assert_array_equal(a, b)
        assert weighted_error(targets, targets, weights) == weighted_error(targets, other, weights)
        gradients = [form.projected_gradients(start, t, weights) for t in (targets, other)]
        np.testing.assert_array_equal(*gradients)

    def test_one_column_of_weights_equals_the_same_weights_in_all_columns(self, form, generator):
        targets = random_centers(generator, 5, WIDTHS)
        weights = random_weights(generator, 5, WIDTHS, "rows")
        spread = [np.repeat(weight, width, axis=1) for weight, width in zip(weights, WIDTHS, strict=True)]
        start = form.initial(targets, rank=RANKS[form.name], sweeps=2)
        ends = [form.reconstruct(form.step(start, targets, given)) for given in (weights, spread)]
        assert difference(*ends) < 1e-9

    def test_the_scale_of_the_weights_does_not_matter(self, form, generator):
        targets = random_centers(generator, 5, WIDTHS)
        weights = random_weights(generator, 5, WIDTHS, "cells")
        start = form.initial(targets, rank=RANKS[form.name], sweeps=2)
        tiny = [weight * 2.0**-600 for weight in weights]
        ends = [form.reconstruct(form.step(start, targets, given)) for given in (weights, tiny)]
        assert difference(*ends) == 0.0

    def test_a_warm_start_from_the_solution_stays_there(self, form, generator):
        start = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        targets = form.reconstruct(start)
        weights = random_weights(generator, 5, WIDTHS, "mixed")
        end = form.step(start, targets, weights, sweeps=10)
        assert difference(form.reconstruct(end), targets) < 1e-10

    def test_clusters_and_views_without_weight_keep_their_rows(self, form, generator):
        start = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        weights = [np.ones((5, 1)), np.zeros((5, 1)), np.ones((5, 1))]
        for weight in weights:
            weight[2] = 0.0
        end = form.step(start, random_centers(generator, 5, WIDTHS), weights)
        np.testing.assert_array_equal(end.cluster_factor[2], start.cluster_factor[2])
        np.testing.assert_array_equal(end.view_factor[1], start.view_factor[1])
        if not isinstance(form, CP):
            np.testing.assert_allclose(form.basis(end)[1], form.basis(start)[1], atol=1e-13)

    def test_no_weight_at_all_changes_nothing(self, form, generator):
        start = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        end = form.step(start, [np.full((5, w), np.nan) for w in WIDTHS], [np.zeros((5, 1))] * 3)
        assert difference(form.reconstruct(start), form.reconstruct(end)) < 1e-13

    def test_another_gauge_has_the_same_centres_and_alignment_undoes_it(self, form, generator):
        factors = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        for _ in range(20):
            other = regauged(form, factors, generator)
            assert difference(form.reconstruct(other), form.reconstruct(factors)) < 1e-9
            aligned = form.align(other, factors)
            for a, b in zip(arrays(aligned), arrays(factors), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-8)

    def test_the_canonical_gauge_does_not_depend_on_the_gauge(self, form, generator):
        factors = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        canonical = form.canonical(factors)
        assert difference(form.reconstruct(canonical), form.reconstruct(factors)) < 1e-9
        for _ in range(10):
            other = form.canonical(regauged(form, factors, generator))
            for a, b in zip(arrays(other), arrays(canonical), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-8)

    def test_projected_gradients_of_two_sites_add(self, form, generator):
        factors = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        sites = [(random_centers(generator, 5, WIDTHS), random_weights(generator, 5, WIDTHS, "cells")) for _ in "ab"]
        (first, w), (second, v) = sites
        pooled_weights = [a + b for a, b in zip(w, v, strict=True)]
        pooled = [(a * t + b * u) / (a + b) for a, t, b, u in zip(w, first, v, second, strict=True)]
        total = sum(form.projected_gradients(factors, *site) for site in sites)
        np.testing.assert_allclose(total, form.projected_gradients(factors, pooled, pooled_weights), atol=1e-12)

    def test_basis_and_core_make_the_factors_again(self, form, generator):
        factors = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        again = form.assemble(form.basis(factors), form.core(factors), WIDTHS)
        for a, b in zip(arrays(again), arrays(factors), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_sums_in_the_common_basis_give_the_core_that_full_statistics_give(self, form, generator):
        factors = form.initial(random_centers(generator, 5, (9, 9, 9)), rank=RANKS[form.name])
        sums, masses = random_centers(generator, 5, (9, 9, 9)), generator.uniform(0.5, 2.0, (5, 3))
        targets = [n / w[:, None] for n, w in zip(sums, masses.T, strict=True)]
        full = form.projected_gradients(factors, targets, [w[:, None] for w in masses.T])
        projected = np.stack([n @ b for n, b in zip(sums, form.view_bases(factors), strict=True)], axis=1)
        gradients = projected - masses[:, :, None] * form.coordinates(factors)
        ends = [form.reconstruct(form.core_step(factors, given, masses, sweeps=3)) for given in (full, gradients)]
        assert difference(*ends) < 1e-9

    def test_numbers_of_basis_and_core_are_those_of_the_arrays(self, form, generator):
        factors = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        expected = {
            "Tucker": (26 * 4, 3 * 4 * 2 + 5 * 3 + 3 * 2),
            "PARAFAC2": (26 * 3, 3 * (5 + 3 + 3)),
            "CP": (11 * 3, 3 * (5 + 3 + 3)),
        }
        assert form.n_numbers(factors) == expected[form.name]

    def test_one_view_and_views_of_one_feature(self, form, generator):
        for widths in ((6,), (1,), (1, 1, 1), (1, 7)):
            centers = random_centers(generator, 4, widths)
            factors = form.initial(centers, rank=1)
            assert [a.shape for a in form.reconstruct(factors)] == [(4, width) for width in widths]
        one = random_centers(generator, 4, (6,))
        assert (
            difference(form.reconstruct(form.initial(one, rank=[4, 6, 1] if isinstance(form, Tucker) else 4)), one)
            < 1e-10
        )

    def test_targets_of_another_shape_are_refused(self, form, generator):
        factors = form.initial(random_centers(generator, 5, WIDTHS), rank=RANKS[form.name])
        with pytest.raises(ValueError, match=r"shapes of the factors' centres, \[\(5, 9\)"):
            form.step(factors, random_centers(generator, 5, (9, 6, 12)))

    def test_starts_from_random_numbers_repeat_and_never_lose(self, form, generator):
        centers = random_centers(generator, 5, WIDTHS)
        one = form.initial(centers, rank=RANKS[form.name])
        many = [form.initial(centers, rank=RANKS[form.name], n_starts=4, random_state=3) for _ in range(2)]
        assert difference(form.reconstruct(many[0]), form.reconstruct(many[1])) == 0.0
        errors = [weighted_error(form.reconstruct(factors), centers) for factors in (many[0], one)]
        assert errors[0] <= errors[1]
