"""Averaging: averages that can be checked by hand, and how they relate to the sum of statistics."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

from federations import assert_same_model, make_plan, progress_of, run_sites, with_field
from fedhk import EFKMVC, datasets
from fedhk.federation.entries import Result
from fedhk.federation.protocols.averaging import LocalCenters, average_centers
from fedhk.model.parameters import Parameters
from fedhk.model.rows import split_joint
from fedhk.protocols import Averaging


def parameters(centers, view_weights=(1.0,)):
    """Parameters of one-feature views from lists of centres."""
    columns = tuple(np.array(view, dtype=float)[:, None] for view in centers)
    weights = np.array(view_weights)
    return Parameters(columns, weights, 0.3, 1.1, 2.0, np.ones(len(weights)))


def local(centers, masses, rows, objective=1.0, view_weights=(1.0,)):
    columns = np.array(centers, dtype=float).T
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
        own = np.stack([split_joint(site.centers, [1, 1])[view] for site in sites])
        assert np.all(better.centers[view] <= own.max(axis=0) + 1e-12)
        assert np.all(better.centers[view] >= own.min(axis=0) - 1e-12)
    assert better.view_weights.sum() == pytest.approx(1)


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(5, 40, n_clusters=3, n_features=(3, 5), shift=0.3, separation=6, random_state=4)


@pytest.mark.parametrize("rounds", [1, 4])
def test_one_local_pass_averaged_by_mass_is_the_statistics_step(data, rounds):
    start = [view[[0, 50, 100]] for view in data.views]
    exact, averaged = (
        run_sites(make_plan(init=start, protocol=protocol, max_rounds=rounds), data.sites)[0]
        for protocol in ("statistics", Averaging(passes=1))
    )
    for one, other in zip(progress_of(exact).parameters.centers, progress_of(averaged).parameters.centers, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-9)
    assert_allclose([r["objective"] for r in exact.history], [r["objective"] for r in averaged.history], rtol=1e-9)
    assert exact.board.get(Result).objective == pytest.approx(averaged.board.get(Result).objective, rel=1e-9)


def test_one_site_with_local_passes_does_as_many_plain_iterations(data):
    start = [view[[0, 50, 100]] for view in data.views]
    only = {"only": data.views}
    few, _ = run_sites(make_plan(init=start, protocol=Averaging(passes=3), max_rounds=2), only)
    many, _ = run_sites(make_plan(init=start, max_rounds=6), only)
    for one, other in zip(progress_of(few).parameters.centers, progress_of(many).parameters.centers, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:EFKMVC gives back its start:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("client_weights", ["mass", "rows", "quality"])
def test_five_local_passes_find_the_clusters_that_statistics_find(data, client_weights):
    truth = np.concatenate(list(data.site_labels.values()))
    scores = {}
    for name, protocol in (("statistics", "statistics"), ("centers", Averaging(passes=5, weights=client_weights))):
        model = EFKMVC(3, protocol=protocol, n_init=3, random_state=0)
        labels = model.fit(data.sites).labels_
        scores[name] = adjusted_rand_score(truth, np.concatenate([labels[site] for site in data.site_labels]))
    assert scores["statistics"] > 0.9
    assert scores["centers"] >= scores["statistics"] - 0.05


def test_a_site_without_a_view_does_not_claim_weight_for_it(data):
    """The view costs that site nothing, so that the plain rule would give it all the weight."""
    sites = dict(data.sites)
    first = next(iter(sites))
    sites[first] = [sites[first][0], None]
    plan = make_plan(protocol=Averaging(passes=3), view_weights="learned", max_rounds=4)
    weights = progress_of(run_sites(plan, sites)[0]).parameters.view_weights
    complete = progress_of(run_sites(plan, data.sites)[0]).parameters.view_weights
    assert 0.1 < weights[1] < complete[1] + 0.02


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


LIES = {
    "NaN": (with_field("centers", put((..., -1), np.nan)), "NaN"),
    "far outside": (with_field("centers", put((..., -1), 1e200)), "far outside the range"),
    "centres of another shape": (with_field("centers", lambda a: a[:, 1:]), "centres have shape"),
    "negative masses": (with_field("masses", put((..., -1), -1.0)), "below zero"),
    "masses larger than the rows": (with_field("masses", put((0, 0), 1e300)), "larger than the"),
    "weights of views that are none": (with_field("view_weights", lambda a: 0 * a), "do not sum to 1"),
    "masses of another shape": (with_field("masses", lambda a: a[:, :1]), "masses have shape"),
    "an impossible objective": (with_field("objective", lambda _: 1e300), "objective|rows"),
    "rows beyond counting": (with_field("rows", lambda _: 1e300), "objective|rows"),
    "negative rows": (with_field("rows", lambda _: -1.0), "below zero"),
    "weights of views of another shape": (with_field("view_weights", lambda a: a[:1]), "view weights have shape"),
    "negative weights of views": (with_field("view_weights", lambda a: -a), "below zero"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_the_round_goes_on_as_if_nothing_had_come(data, lie):
    change, reason = LIES[lie]
    plan, liar = make_plan(max_rounds=3, protocol="centers"), next(iter(data.sites))

    def tamper(change):
        return lambda site, _, exchange, answer: change(answer) if (site, exchange) == (liar, 3) else answer

    run, _ = run_sites(plan, data.sites, tamper=tamper(change))
    away, _ = run_sites(plan, data.sites, tamper=tamper(lambda _: None))
    assert_same_model(run, away)
    assert re.search(reason, run.history[1]["refused"][liar])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"passes": 0}, "passes=0 must be a whole number from 1 on"),
        ({"passes": 1.5}, "passes=1.5 must be"),
        ({"passes": True}, "passes=True must be"),
        ({"weights": "votes"}, r"weights='votes' must be one of \('mass', 'rows', 'quality'\)"),
        ({"temperature": 3.0}, "temperature=3.0 has no effect with weights='mass': use weights='quality'"),
        ({"weights": "rows", "temperature": 3.0}, "temperature=3.0 has no effect with weights='rows'"),
        ({"weights": "quality", "temperature": -1.0}, "temperature=-1.0 must be None or a number from 0 on"),
        ({"weights": "quality", "temperature": float("nan")}, "temperature=nan must be"),
    ],
)
def test_options_that_are_wrong_or_without_effect_are_refused_by_name(options, said):
    with pytest.raises(ValueError, match=said):
        Averaging(**options)


def test_the_temperature_is_ten_unless_it_is_given():
    assert Averaging(weights="quality").tau == 10.0
    assert Averaging(weights="quality", temperature=2).tau == 2.0
