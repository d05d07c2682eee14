"""A site's own view weights."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedhk.model.statistics import Statistics
from fedhk.personal.view_weights import ViewWeights, fit_view_weights, measure_view_distance
from fedhk.testing.components import ComponentChecks
from personal_sites import moved_site, own_of


class TestViewWeights(ComponentChecks):
    def component(self, _common, _summary):
        return ViewWeights()


def test_view_weights_are_personal_only_where_they_are_learned(model):
    views = moved_site(1, shift=0.5)
    assert own_of(model, views)[0].shares["view_weights"] == 0.0
    noisy = [views[0], np.random.default_rng(0).normal(size=views[1].shape)]
    found, _ = own_of(model, noisy, learn_weights=True, view_weights=1.0)
    assert found.shares["view_weights"] == 1.0
    assert found.parameters.view_weights[1] > model.parameters.view_weights[1]  # it costs less where it varies less
    assert found.parameters.view_weights.sum() == pytest.approx(1.0)


def test_pulls_reach_the_model(model):
    views = moved_site(1, shift=0.5)
    noisy = [views[0], np.random.default_rng(0).normal(size=views[1].shape)]
    found = [own_of(model, noisy, learn_weights=True, view_pull=pull)[0] for pull in (1e-6, 100.0, 1e9)]
    rhos = [own.shares["view_weights"] for own in found]
    assert rhos == sorted(rhos, reverse=True)
    assert rhos[0] > 0.999
    assert rhos[-1] < 1e-3
    distances = [own.view_distance for own in found]
    assert distances == sorted(distances, reverse=True)
    assert own_of(model, noisy, view_pull=1.0)[0].shares["view_weights"] == 0.0  # not learned, so not pulled


class TestFormulas:
    def statistics(self, model, costs, rows=100.0):
        p = model.parameters
        zeros = tuple(np.zeros_like(a) for a in p.centers)
        return Statistics(zeros, zeros, np.asarray(costs, float), np.zeros(3), 0.0, rows)

    def common(self, model, weights=(0.7, 0.3)):
        return replace(model.parameters, view_weights=np.array(weights), view_shares=np.ones(2), view_exponent=2.0)

    def test_a_pull_goes_from_the_sites_own_to_the_global_ones(self, model):
        common, statistics = self.common(model), self.statistics(model, [4.0, 1.0])
        found = np.array([fit_view_weights(common, statistics, pull)[0] for pull in (0, 1, 100, 1e4, 1e9)])
        assert_allclose(found[[0, -1]], [0.2, 0.7], atol=1e-6)
        assert np.all(np.diff(found) > 0)

    def test_as_many_rows_as_the_site_has_count_as_much_as_it(self, model):
        """With alpha = 2 the weights are 1 / cost, so that costs of own and pulling rows simply add."""
        common, statistics = self.common(model), self.statistics(model, [4.0, 1.0])
        per_row = (0.49 * 4 + 0.09 * 1) / 100
        costs = np.array([4.0, 1.0]) + 100 * per_row / np.array([0.7, 0.3])
        assert_allclose(fit_view_weights(common, statistics, 100.0), (1 / costs) / np.sum(1 / costs))

    @given(st.integers(0, 2**32 - 1), st.floats(1.2, 6))
    @settings(max_examples=50)
    def test_the_pulled_weights_minimise_the_objective_with_r_view(self, model, seed, alpha):
        rng = np.random.default_rng(seed)
        common = replace(self.common(model, rng.dirichlet([3, 3])), view_exponent=alpha)
        statistics, pull = self.statistics(model, rng.uniform(0.5, 5, 2)), rng.uniform(0, 300)

        def total(weights):
            moved = replace(common, view_weights=weights)
            return moved.view_factors @ statistics.costs + pull * measure_view_distance(common, weights, statistics)

        found = fit_view_weights(common, statistics, pull)
        for other in rng.dirichlet([1, 1], 20):
            assert total(found) <= total(found + 0.1 * (other - found)) + 1e-9

    def test_distance_is_the_papers_where_alpha_is_2(self, model):
        common, statistics = self.common(model), self.statistics(model, [4.0, 1.0])
        weights = np.array([0.5, 0.5])
        per_row = (0.49 * 4 + 0.09 * 1) / 100
        expected = per_row * np.sum((weights - common.view_weights) ** 2 / common.view_weights)
        assert measure_view_distance(common, weights, statistics) == pytest.approx(expected)
        assert measure_view_distance(common, common.view_weights, statistics) == pytest.approx(0, abs=1e-15)

    def test_a_view_without_weight_or_without_rows_keeps_its_weight(self, model):
        nothing = fit_view_weights(self.common(model, (1.0, 0.0)), self.statistics(model, [4.0, 1.0]), 10.0)
        assert_allclose(nothing, [1.0, 0.0])
        lacking = fit_view_weights(self.common(model), self.statistics(model, [4.0, 0.0]), 10.0)
        assert_allclose(lacking, [0.7, 0.3])
