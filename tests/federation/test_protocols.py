"""The centres protocol: averages that can be checked by hand, and how it relates to the sum of statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from federations import make_plan, run_sites
from fedhk import EFKMVC, datasets
from fedhk.federation.payloads import pack_statistics
from fedhk.federation.protocols.centers import LocalCenters, average_centers
from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.model.updates import learned_view_weights


def parameters(centers, view_weights=(1.0,)):
    """Parameters of one-feature views from lists of centres."""
    columns = tuple(np.array(view, dtype=float)[:, None] for view in centers)
    weights = np.array(view_weights)
    return Parameters(columns, weights, 0.3, 1.1, 2.0, np.ones(len(weights)))


def local(centers, masses, rows, objective=1.0, view_weights=(1.0,)):
    columns = tuple(np.array(view, dtype=float)[:, None] for view in centers)
    return LocalCenters(columns, np.array(masses, dtype=float), np.array(view_weights), objective, rows)


START = parameters([[100.0, 200.0]])


class TestAveragesByHand:
    def test_by_mass_each_centre_counts_the_rows_it_stands_for(self):
        sites = [local([[0.0, 8.0]], [[3.0], [1.0]], rows=4), local([[4.0, 0.0]], [[1.0], [3.0]], rows=4)]
        better, objective = average_centers(START, sites, "mass", 10.0)
        assert better.centers[0].ravel().tolist() == [1.0, 2.0]  # (3*0 + 1*4) / 4 and (1*8 + 3*0) / 4
        assert objective == 2.0

    def test_by_rows_a_site_counts_as_a_whole(self):
        sites = [local([[0.0, 8.0]], [[1.0], [2.0]], rows=3), local([[4.0, 0.0]], [[0.5], [0.5]], rows=1)]
        better, _ = average_centers(START, sites, "rows", 10.0)
        assert better.centers[0].ravel().tolist() == [1.0, 6.0]  # (3*0 + 1*4) / 4 and (3*8 + 1*0) / 4

    def test_by_quality_a_lower_mean_objective_counts_more(self):
        # mean objectives 0.1 and 0.1 + log(3) / 10: at tau = 10 the first counts three times the second
        sites = [
            local([[0.0, 8.0]], [[1.0], [1.0]], rows=10, objective=1.0),
            local([[4.0, 0.0]], [[1.0], [1.0]], rows=1000, objective=1000 * (0.1 + np.log(3) / 10)),
        ]
        better, _ = average_centers(START, sites, "quality", 10.0)
        assert_allclose(better.centers[0].ravel(), [1.0, 6.0])

    def test_quality_at_temperature_zero_counts_sites_alike(self):
        sites = [local([[0.0, 1.0]], [[1.0], [1.0]], 5, 1.0), local([[4.0, 3.0]], [[1.0], [1.0]], 50, 40.0)]
        better, _ = average_centers(START, sites, "quality", 0.0)
        assert better.centers[0].ravel().tolist() == [2.0, 2.0]

    def test_quality_does_not_underflow_on_large_sites(self):
        """softmax of sums over a million rows would give one site everything, or nothing to divide by."""
        n = 1e6
        sites = [
            local([[0.0, 0.0]], [[1.0], [1.0]], rows=n, objective=0.50 * n),
            local([[1.0, 1.0]], [[1.0], [1.0]], rows=n, objective=0.51 * n),
        ]
        better, _ = average_centers(START, sites, "quality", 10.0)
        assert_allclose(better.centers[0].ravel(), 1 / (1 + np.exp(0.1)))
        worse, _ = average_centers(START, sites, "quality", 1e6)
        assert_array_equal(worse.centers[0].ravel(), [0.0, 0.0])

    def test_a_centre_that_nobody_holds_stays(self):
        for rule in ("mass", "rows", "quality"):
            sites = [local([[1.0, 7.0]], [[1.0], [0.0]], rows=3), local([[1.0, 9.0]], [[2.0], [0.0]], rows=5)]
            better, _ = average_centers(START, sites, rule, 10.0)
            assert better.centers[0].ravel().tolist() == [1.0, 200.0]

    def test_a_site_without_rows_in_a_cluster_does_not_move_it(self):
        for rule in ("mass", "rows", "quality"):
            sites = [local([[1.0, 7.0]], [[1.0], [2.0]], rows=3), local([[3.0, 200.0]], [[1.0], [0.0]], rows=3)]
            better, _ = average_centers(START, sites, rule, 10.0)
            assert better.centers[0].ravel().tolist() == [2.0, 7.0]

    def test_view_weights_are_averaged_by_site_and_sum_to_one(self):
        before = parameters([[0.0], [0.0]], (0.5, 0.5))
        sites = [
            local([[0.0], [0.0]], [[1.0, 1.0]], rows=3, view_weights=(0.9, 0.1)),
            local([[0.0], [0.0]], [[1.0, 1.0]], rows=1, view_weights=(0.5, 0.5)),
        ]
        assert_allclose(average_centers(before, sites, "rows", 10.0)[0].view_weights, [0.8, 0.2])
        assert_allclose(average_centers(before, sites, "mass", 10.0)[0].view_weights, [0.8, 0.2])

    def test_an_empty_site_has_no_say_even_with_a_perfect_objective(self):
        full = local([[1.0, 2.0], [1.0, 2.0]], [[1.0, 1.0]] * 2, rows=4, objective=2.0, view_weights=(0.3, 0.7))
        empty = local([[9.0, 9.0], [9.0, 9.0]], [[0.0, 0.0]] * 2, rows=0, objective=0.0, view_weights=(1.0, 0.0))
        before = parameters([[5.0, 5.0], [5.0, 5.0]], (0.5, 0.5))
        for rule in ("mass", "rows", "quality"):
            better, _ = average_centers(before, [empty, full], rule, 10.0)
            assert_allclose(better.view_weights, [0.3, 0.7])
            assert better.centers[0].ravel().tolist() == [1.0, 2.0]
        nothing, objective = average_centers(before, [empty], "quality", 10.0)
        assert (nothing, objective) == (before, 0.0)


def test_a_cost_that_rounds_below_zero_is_sent_as_zero():
    statistics = Statistics((np.zeros((1, 1)),), (np.ones((1, 1)),), np.array([-1e-8]), np.ones(1), 0.0, 1.0)
    assert pack_statistics(statistics)[0]["sums"].tolist() == [0.0, 1.0, 0.0, 1.0]


@given(
    seed=st.integers(0, 2**16),
    rule=st.sampled_from(["mass", "rows", "quality"]),
    n_sites=st.integers(1, 5),
    temperature=st.sampled_from([0.0, 1.0, 1e3]),
)
def test_averages_lie_between_what_the_sites_say(seed, rule, n_sites, temperature):
    rng = np.random.default_rng(seed)
    sites = [
        local(
            rng.normal(size=(2, 3)),
            rng.uniform(size=(3, 2)),
            float(rng.integers(1, 1000)),
            rng.uniform(0, 1e3),
            rng.dirichlet([1, 1]),
        )
        for _ in range(n_sites)
    ]
    better, _ = average_centers(parameters(np.zeros((2, 3)), (0.5, 0.5)), sites, rule, temperature)
    for view in range(2):
        own = np.stack([site.centers[view] for site in sites])
        assert np.all(better.centers[view] <= own.max(axis=0) + 1e-12)
        assert np.all(better.centers[view] >= own.min(axis=0) - 1e-12)
    assert better.view_weights.sum() == pytest.approx(1)


class TestWeightsOfViewsThatAreNotThere:
    def statistics(self, costs, there):
        weights = tuple(np.full((1, 1), float(t)) for t in there)
        return Statistics(tuple(np.zeros((1, 1)) for _ in costs), weights, np.array(costs), np.ones(1), 1.0, 1.0)

    def test_an_absent_view_keeps_its_weight_and_the_others_share_the_rest(self):
        before = parameters([[0.0]] * 3, (0.5, 0.25, 0.25))
        found = improve(before, self.statistics([1.0, 3.0, 0.0], [1, 1, 0]), learn_weights=True)
        # v ~ 1 / cost at exponent 2: 3 to 1 of the 0.75 that the absent view leaves
        assert_allclose(found.view_weights, [0.5625, 0.1875, 0.25])

    def test_a_view_that_costs_nothing_but_is_there_takes_all(self):
        before = parameters([[0.0]] * 2, (0.5, 0.5))
        found = improve(before, self.statistics([1.0, 0.0], [1, 1]), learn_weights=True)
        assert found.view_weights.tolist() == [0.0, 1.0]

    def test_nothing_changes_where_all_are_absent_or_weights_are_not_learned(self):
        before = parameters([[0.0]] * 2, (0.4, 0.6))
        assert improve(before, self.statistics([0.0, 0.0], [0, 0]), learn_weights=True).view_weights.tolist() == [
            0.4,
            0.6,
        ]
        assert improve(before, self.statistics([1.0, 0.0], [1, 0]), learn_weights=False).view_weights.tolist() == [
            0.4,
            0.6,
        ]

    def test_where_all_views_are_there_it_is_the_plain_update(self):
        before = parameters([[0.0]] * 2, (0.4, 0.6))
        statistics = self.statistics([1.0, 2.0], [1, 1])
        assert_array_equal(
            improve(before, statistics, learn_weights=True).view_weights,
            learned_view_weights(statistics.costs, before.view_shares, before.view_exponent),
        )


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(5, 40, n_clusters=3, n_features=(3, 5), shift=0.3, separation=6, random_state=4)


@pytest.mark.parametrize("rounds", [1, 4])
def test_one_local_pass_averaged_by_mass_is_the_statistics_step(data, rounds):
    start = [view[[0, 50, 100]] for view in data.views]
    exact, averaged = (
        run_sites(make_plan(init=start, protocol=protocol, local_passes=1, max_rounds=rounds), data.sites)[0]
        for protocol in ("statistics", "centers")
    )
    for one, other in zip(
        exact.state.progress.parameters.centers, averaged.state.progress.parameters.centers, strict=True
    ):
        assert_allclose(one, other, rtol=0, atol=1e-9)
    assert_allclose([r["objective"] for r in exact.history], [r["objective"] for r in averaged.history], rtol=1e-9)
    assert exact.state.final_objective == pytest.approx(averaged.state.final_objective, rel=1e-9)


def test_one_site_with_local_passes_does_as_many_plain_iterations(data):
    start = [view[[0, 50, 100]] for view in data.views]
    only = {"only": data.views}
    few, _ = run_sites(make_plan(init=start, protocol="centers", local_passes=3, max_rounds=2), only)
    many, _ = run_sites(make_plan(init=start, max_rounds=6), only)
    for one, other in zip(few.state.progress.parameters.centers, many.state.progress.parameters.centers, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("client_weights", ["mass", "rows", "quality"])
def test_five_local_passes_find_the_clusters_that_statistics_find(data, client_weights):
    truth = np.concatenate(list(data.site_labels.values()))
    scores = {}
    for protocol in ("statistics", "centers"):
        model = EFKMVC(3, protocol=protocol, local_passes=5, client_weights=client_weights, n_init=3, random_state=0)
        labels = model.fit(data.sites).labels_
        scores[protocol] = adjusted_rand_score(truth, np.concatenate([labels[site] for site in data.site_labels]))
    assert scores["statistics"] > 0.9
    assert scores["centers"] >= scores["statistics"] - 0.05


def test_a_site_without_a_view_does_not_claim_weight_for_it(data):
    """The view costs that site nothing, so that the plain rule would give it all the weight."""
    sites = dict(data.sites)
    first = next(iter(sites))
    sites[first] = [sites[first][0], None]
    plan = make_plan(protocol="centers", view_weights="learned", max_rounds=4)
    weights = run_sites(plan, sites)[0].state.progress.parameters.view_weights
    complete = run_sites(plan, data.sites)[0].state.progress.parameters.view_weights
    assert 0.1 < weights[1] < complete[1] + 0.02
