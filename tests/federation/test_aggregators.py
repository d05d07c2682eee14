"""Aggregators: a sum is exact, a robust one moves little by one site; new ones are a class with two methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from federations import make_plan, parameters_of, run_sites
from fedhk import EFKMVC, datasets
from fedhk.data.views import check_views
from fedhk.errors import DataError
from fedhk.federation.aggregators import (
    Aggregator,
    RobustAggregator,
    SumAggregator,
    combine_statistics,
    make_aggregator,
)
from fedhk.federation.entries import References
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.model.statistics import match_shapes
from fedhk.privacy.robust import AGGREGATIONS

ROBUST = [name for name in AGGREGATIONS if name != "sum"]


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(9, 40, n_clusters=3, n_features=(3, 4), shift=0, scale=0, class_mix=None, random_state=1)


@pytest.fixture(scope="module")
def statistics(data):
    """Statistics of each site, those of all rows, and the parameters they are at."""
    run, _ = run_sites(make_plan(max_rounds=2), data.sites)
    parameters, references = parameters_of(run), run.board.get(References).references

    def collect(views):
        with Passes(Rows(check_views(views), references), 3) as scan:
            return scan.statistics(parameters)

    return [collect(views) for views in data.sites.values()], collect(data.views), parameters


def test_names_lead_to_their_values():
    assert make_aggregator("sum") == SumAggregator()
    for name in ROBUST:
        assert make_aggregator(name) == RobustAggregator(name)
        assert make_aggregator(RobustAggregator(name)) == RobustAggregator(name)
    with pytest.raises(ValueError, match=r"aggregator='vote' must be one of"):
        make_aggregator("vote")


def test_the_sum_is_that_of_all_rows(statistics):
    sites, pooled, parameters = statistics
    total = SumAggregator().statistics(sites, parameters)
    for one, other in zip((*total.numerators, *total.weights), (*pooled.numerators, *pooled.weights), strict=True):
        assert_allclose(one, other, atol=1e-9)
    assert total.objective == pytest.approx(pooled.objective)
    assert total.rows == pooled.rows


@pytest.mark.parametrize("name", ROBUST)
def test_a_robust_total_does_not_go_where_one_site_pulls(statistics, name):
    sites, _, parameters = statistics
    honest = make_aggregator(name).statistics(sites, parameters)
    liar = replace(
        sites[0], numerators=tuple(n + 1e4 * w for n, w in zip(sites[0].numerators, sites[0].weights, strict=True))
    )
    told = make_aggregator(name).statistics([liar, *sites[1:]], parameters)
    summed = SumAggregator().statistics([liar, *sites[1:]], parameters)
    centers = [[n / w for n, w in zip(s.numerators, s.weights, strict=True)] for s in (honest, told, summed)]
    assert max(np.abs(a - b).max() for a, b in zip(centers[0], centers[1], strict=True)) < 1.0
    assert max(np.abs(a - b).max() for a, b in zip(centers[0], centers[2], strict=True)) > 100


@pytest.mark.parametrize("name", AGGREGATIONS)
@pytest.mark.parametrize("protocol", ["statistics", "cores"])
def test_a_run_finds_the_same_clusters_where_all_are_honest(data, name, protocol):
    plain, _ = run_sites(make_plan(max_rounds=5), data.sites)
    run, _ = run_sites(make_plan(max_rounds=5, aggregator=name, protocol=protocol), data.sites)
    assert all(record["refused"] == {} for record in run.history)
    for one, other in zip(parameters_of(run).centers, parameters_of(plain).centers, strict=True):
        distances = np.abs(one[:, None] - other[None]).max(axis=2)
        assert distances.min(axis=1).max() < 0.3


def test_one_of_ones_own_is_used_for_statistics_and_candidates(data):
    asked = []

    class Counting(Aggregator):
        def statistics(self, sites, parameters):
            asked.append(("statistics", len(sites)))
            return SumAggregator().statistics(sites, parameters)

        def candidates(self, sites):
            asked.append(("candidates", len(sites)))
            return sites

    run_sites(make_plan(max_rounds=2, aggregator=Counting()), data.sites)
    # what may raise the objective has its last model measured, too: one exchange more
    assert asked == [("candidates", 9), ("statistics", 9), ("statistics", 9), ("statistics", 9)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda _: None, "must give Statistics, got NoneType"),
        (lambda total: total.scaled(np.nan), "gave numerators that are not finite"),
        (lambda total: replace(total, masses=total.masses[:1]), r"gave masses of shape \[\(1,\)\], must be \[\(3,\)\]"),
        (lambda total: replace(total, weights=total.weights[:1]), "gave weights of shape"),
    ],
)
def test_what_an_aggregator_gives_is_checked_by_name(statistics, change, error):
    sites, _, parameters = statistics

    class Wrong(SumAggregator):
        def statistics(self, sites, parameters):
            return change(super().statistics(sites, parameters))

    with pytest.raises((TypeError, ValueError), match=rf"Wrong\(\): statistics\(\) {error}"):
        combine_statistics(Wrong(), match_shapes(sites), parameters)


def test_candidates_of_another_kind_are_named(data):
    class Forgetful(SumAggregator):
        def candidates(self, sites):
            sites[0]

    said = r"Forgetful\(\): candidates\(\) must give a list of Candidates, got NoneType"
    with pytest.raises(TypeError, match=said):
        EFKMVC(3, aggregator=Forgetful()).fit(data.sites)


def test_an_aggregator_that_leaves_no_candidates_is_named(data):
    class Nobody(SumAggregator):
        def candidates(self, sites):
            return []

    with pytest.raises(DataError, match=r"Nobody\(\): candidates\(\) left none of the \d+ that sites sent"):
        EFKMVC(3, aggregator=Nobody()).fit(data.sites)
