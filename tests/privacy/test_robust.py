"""Totals that hostile sites cannot bend."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedhk.model.parameters import Parameters, update_centers
from fedhk.model.statistics import Statistics
from fedhk.privacy.robust import (
    AGGREGATIONS,
    MOST_PULL,
    STRONG_SITES,
    cap_masses,
    even_pulls,
    match_clusters,
    robust_total,
    trimmed_mean,
)
from fedhk.privacy.trusted_candidates import trusted_candidates
from fedhk.starts.candidates import Candidates

HOW = [how for how in AGGREGATIONS if how != "sum"]


def make_parameters(rng, n_clusters, widths):
    return Parameters(
        centers=tuple(3 * rng.normal(size=(n_clusters, width)) for width in widths),
        view_weights=rng.dirichlet(5 * np.ones(len(widths))),
        heat_time=0.1,
        fuzzifier=1.1,
        view_exponent=2.0,
        view_shares=np.ones(len(widths)),
    )


def make_answer(rng, parameters, masses, *, noise=1.0, full=False, centers=None):
    """What a site with these masses says, whose centres are those of the server but for chance."""
    numerators, weights = [], []
    for values in parameters.centers if centers is None else centers:
        weight = 0.8 * masses[:, None] * (rng.uniform(0.5, 1, size=values.shape) if full else 1.0)
        means = values + noise * rng.normal(size=values.shape) / np.sqrt(np.maximum(masses, 1.0))[:, None]
        numerators.append(weight * means)
        weights.append(weight)
    rows = float(masses.sum())
    costs = rng.uniform(0.1, 0.3, size=len(numerators)) * rows
    return Statistics(tuple(numerators), tuple(weights), costs, masses.copy(), float(0.2 * rows), rows)


@st.composite
def federations(draw, min_sites=1, max_sites=12, even=False):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_clusters, n_sites = draw(st.integers(1, 5)), draw(st.integers(min_sites, max_sites))
    parameters = make_parameters(rng, n_clusters, draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    full = np.zeros(n_sites, bool) if even else rng.random(n_sites) < 0.3
    answers = []
    for site in range(n_sites):
        masses = np.full(n_clusters, 40.0)
        if not even:
            masses = 200 * rng.dirichlet(np.ones(n_clusters)) * rng.integers(0, 3) * (rng.random(n_clusters) < 0.7)
        answers.append(make_answer(rng, parameters, masses, full=bool(full[site])))
    return rng, parameters, answers


def flat(statistics):
    return np.concatenate(
        [
            *(values.ravel() for values in statistics.numerators),
            *(values.ravel() for values in statistics.weights),
            statistics.costs,
            statistics.masses,
            [statistics.objective, statistics.rows],
        ]
    )


def joint(statistics, parameters):
    return np.hstack(update_centers(statistics, parameters.centers))


@pytest.mark.parametrize("how", AGGREGATIONS)
@settings(max_examples=40)
@given(case=federations())
def test_the_order_of_sites_changes_nothing_and_nothing_is_nan(how, case):
    """Sites may have no rows, lack clusters, give weights by feature or not; there may be one or two."""
    rng, parameters, answers = case
    total = robust_total(answers, parameters, how)
    assert np.isfinite(flat(total)).all()
    assert np.isfinite(joint(total, parameters)).all()
    shuffled = robust_total([answers[i] for i in rng.permutation(len(answers))], parameters, how)
    assert_allclose(flat(shuffled), flat(total), rtol=1e-6, atol=1e-8)
    plain = reduce(add, answers)
    assert [w.shape for w in total.weights] == [w.shape for w in plain.weights]


@pytest.mark.parametrize("how", AGGREGATIONS)
@given(case=federations(), n_sites=st.integers(1, 7))
@settings(max_examples=30)
def test_equal_sites_give_their_sum(how, case, n_sites):
    _, parameters, answers = case
    # a site whose clusters are in the order of the centres: what is out of order is taken for a lie
    same = [match_clusters(answers[0], parameters)] * n_sites
    total = robust_total(same, parameters, how)
    assert_allclose(flat(total), flat(reduce(add, same)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("how", HOW)
@given(case=federations(), n_sites=st.integers(1, 2))
@settings(max_examples=20)
def test_one_or_two_sites_are_added(how, case, n_sites):
    _, parameters, answers = case
    assert_allclose(
        flat(robust_total(answers[:n_sites], parameters, how)), flat(reduce(add, answers[:n_sites])), rtol=1e-12
    )


@pytest.mark.parametrize("how", HOW)
@given(
    case=federations(min_sites=3, even=True), distance=st.sampled_from([1.0, 1e2, 1e6]), size=st.sampled_from([1, 1e6])
)
@settings(max_examples=40)
def test_a_minority_of_even_sites_cannot_move_centres_far_from_the_honest_ones(how, case, distance, size):
    """With at most 45 of 100 sites hostile, wherever they put the centres and however many rows they claim."""
    rng, parameters, answers = case
    n_hostile = int(0.45 * len(answers)) if how != "trimmed" else int(0.24 * len(answers))
    honest = answers[n_hostile:]
    lie = tuple(values + distance * rng.normal(size=values.shape) for values in parameters.centers)
    hostile = [make_answer(rng, parameters, size * answers[0].masses, centers=lie) for _ in range(n_hostile)]
    found = joint(robust_total([*hostile, *honest], parameters, how), parameters)
    theirs = np.stack([joint(answer, parameters) for answer in honest])
    middle = theirs.mean(axis=0)
    hull = np.linalg.norm(theirs - middle, axis=2).max()
    # views weigh differently: what is near in one may be further in another
    unlike = np.sqrt(parameters.view_factors.max() / parameters.view_factors.min())
    assert np.linalg.norm(found - middle, axis=1).max() <= 25 * unlike * hull


def test_the_sum_has_no_such_bound():
    """What the tests above show is not true of everything."""
    rng = np.random.default_rng(0)
    parameters = make_parameters(rng, 3, (2, 4))
    answers = [make_answer(rng, parameters, np.full(3, 40.0)) for _ in range(10)]
    answers[0] = make_answer(rng, parameters, np.full(3, 40.0), centers=[a + 1e6 for a in parameters.centers])
    assert np.abs(joint(robust_total(answers, parameters, "sum"), parameters)).max() > 1e4
    assert np.abs(joint(robust_total(answers, parameters, "robust"), parameters)).max() < 20


def test_a_quarter_of_the_sites_with_all_their_mass_in_one_cluster_does_not_win_it():
    rng = np.random.default_rng(1)
    parameters = make_parameters(rng, 8, (3, 3))
    honest = [make_answer(rng, parameters, 100 * rng.dirichlet(5 * np.ones(8))) for _ in range(15)]
    lie = [a.copy() for a in parameters.centers]
    for a in lie:
        a[2] += 0.4 * (a[3] - a[2])
    alone = 1e4 * (np.arange(8) == 2) + 1e-6
    hostile = [make_answer(rng, parameters, alone, centers=lie) for _ in range(5)]
    truth, wrong = np.hstack(parameters.centers)[2], np.hstack(lie)[2]

    def moved(how):
        found = joint(robust_total([*honest, *hostile], parameters, how), parameters)[2]
        return np.linalg.norm(found - truth) / np.linalg.norm(wrong - truth)

    assert moved("median") > 0.8  # these believe the larger mass
    assert moved("robust") < 0.4


def test_clusters_in_another_order_are_put_back():
    rng = np.random.default_rng(2)
    parameters = make_parameters(rng, 4, (3, 2))
    answer = make_answer(rng, parameters, np.array([50.0, 20.0, 30.0, 0.0]), noise=0.1)
    order = np.array([2, 0, 1, 3])
    turned = replace(
        answer,
        numerators=tuple(n[order] for n in answer.numerators),
        weights=tuple(w[order] for w in answer.weights),
        masses=answer.masses[order],
    )
    assert_allclose(flat(match_clusters(turned, parameters)), flat(answer))
    assert_allclose(flat(match_clusters(answer, parameters)), flat(answer))


def test_masses_are_capped_at_those_of_the_median_site():
    rng = np.random.default_rng(3)
    parameters = make_parameters(rng, 2, (3,))
    answers = [make_answer(rng, parameters, np.array([size, size])) for size in (1.0, 10.0, 20.0, 500.0, 0.0)]
    # of the four sites that have rows the middle is between 20 and 40
    assert [answer.rows for answer in cap_masses(answers)] == [2.0, 20.0, 30.0, 30.0, 0.0]
    for before, after in zip(answers, cap_masses(answers), strict=True):
        assert_allclose(joint(before, parameters), joint(after, parameters))


def test_a_site_cannot_say_more_cost_or_objective_than_rows_have():
    rng = np.random.default_rng(4)
    parameters = make_parameters(rng, 3, (3, 2))
    answers = [make_answer(rng, parameters, np.full(3, 40.0)) for _ in range(9)]
    plain = robust_total(answers, parameters)
    for value in (0.0, 1e12):
        lie = replace(answers[0], objective=value, costs=np.full(2, value))
        total = robust_total([lie, lie, *answers[2:]], parameters)
        assert total.objective == pytest.approx(plain.objective, rel=0.05)
        assert_allclose(total.costs, plain.costs, rtol=0.3)


@given(
    pulls=st.lists(st.sampled_from([0.0, 1e-6, 0.1, 1.0, 2.0, 5.0, 30.0]), min_size=3, max_size=20),
    seed=st.integers(0, 99),
)
def test_a_quarter_of_the_sites_has_a_bounded_share_of_the_pull(pulls, seed):
    """Only sites that have next to nothing of the cluster may leave it to the few that have it."""
    pulls = np.array(pulls) * np.random.default_rng(seed).uniform(0.9, 1.1, len(pulls))
    heights = np.column_stack([np.square(pulls), np.full(len(pulls), 1e-4)])
    factors = even_pulls(heights)
    assert np.all((factors > 0) & (factors <= 1))
    left = np.sort(np.sqrt(factors * heights)[:, 0])[::-1]
    strong = left[: max(1, int(STRONG_SITES * len(left)))].sum()
    least = np.sqrt(0.2 * np.median(heights.sum(axis=1)) / 2)
    assert strong <= MOST_PULL * left.sum() * (1 + 1e-9) or left[0] <= least * (1 + 1e-9)
    if np.ptp(pulls) < 0.25 * pulls.min():  # sites alike are left alone
        assert_allclose(factors, 1)


def test_trimmed_means_of_numbers_that_can_be_checked_by_hand():
    values, ones = np.array([5.0, 1.0, 100.0, 2.0]), np.ones(4)
    assert trimmed_mean(values, ones, 0.0) == pytest.approx(27.0)
    assert trimmed_mean(values, ones, 0.25) == pytest.approx(3.5)
    assert trimmed_mean(values, ones, 0.5) == pytest.approx(3.5)
    assert trimmed_mean(values, np.array([1.0, 1.0, 1.0, 9.0]), 0.5) == pytest.approx(2.0)
    assert trimmed_mean(values, np.zeros(4), 0.5) == 0.0


def test_an_unknown_way_is_refused():
    with pytest.raises(ValueError, match=r"how must be one of .*'robust'.*got 'krum'"):
        robust_total([], make_parameters(np.random.default_rng(0), 2, (2,)), "krum")


class TestCandidates:
    def sites(self, n_sites=12, seed=0):
        rng = np.random.default_rng(seed)
        centers = 4 * rng.normal(size=(3, 4))
        return [
            Candidates(centers[rng.integers(3, size=15)] + rng.normal(size=(15, 4)), np.full(15, 4.0), np.ones((15, 2)))
            for _ in range(n_sites)
        ]

    def test_honest_candidates_stay(self):
        found = self.sites()
        kept = trusted_candidates(found)
        assert sum(len(c.sizes) for c in kept) >= 0.97 * sum(len(c.sizes) for c in found)

    def test_candidates_far_away_go_even_if_a_few_sites_agree_on_them(self):
        found = self.sites()
        for site in (0, 5):
            found[site] = replace(found[site], points=np.full((15, 4), 40.0), sizes=1e6 * found[site].sizes)
        kept = trusted_candidates(found)
        assert [len(kept[site].sizes) for site in (0, 5)] == [0, 0]
        assert all(len(kept[site].sizes) >= 12 for site in range(12) if site not in (0, 5))

    def test_no_site_weighs_more_than_the_median_site(self):
        found = self.sites()
        found[3] = replace(found[3], sizes=1e6 * found[3].sizes)
        kept = [float(c.sizes.sum()) for c in trusted_candidates(found)]
        assert max(kept) <= 60.0
        assert kept[3] < 2 * np.median(kept)

    def test_candidates_count_for_no_more_than_other_sites_have_near_them(self):
        found = self.sites()
        between = np.mean([c.points.mean(axis=0) for c in found], axis=0)
        for site in (0, 5):
            found[site] = replace(found[site], points=np.tile(between, (len(found[site].sizes), 1)))
        kept = [float(c.sizes.sum()) for c in trusted_candidates(found)]
        assert max(kept[0], kept[5]) < 0.2 * np.median(kept)

    def test_missing_features_empty_sites_and_few_sites_are_no_trouble(self):
        found = self.sites()
        found[1] = Candidates(np.zeros((0, 4)), np.zeros(0), np.zeros((0, 2)))
        found[2].points[:, 3] = np.nan
        assert len(trusted_candidates(found)) == 12
        assert [len(c.sizes) for c in trusted_candidates(found[:3])] == [15, 0, 15]
        assert trusted_candidates(found[:1]) == found[:1]
