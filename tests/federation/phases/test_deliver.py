"""Deliver: own models and labels are made at the sites and stay there; a site says a few numbers, or nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from federations import TestEngine, make_plan, make_sites, parameters_of, read_reply, run_sites, with_field
from fedhk import Personalization, datasets
from fedhk.data.views import check_views
from fedhk.federation.entries import References
from fedhk.federation.phases.deliver import Deliver, Outcome, Reports
from fedhk.federation.phases.finish import FinalRows
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.personal.options import GradientStep

LIAR = "oslo"


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(4, 30, n_clusters=3, n_features=(3, 4), shift=1.0, random_state=3)
    return dict(zip(["bern", LIAR, "rome", "turin"], data.sites.values(), strict=True))


def outcomes(engine):
    return {name: site.memory.get(Outcome).outcome for name, site in engine.states.items()}


def place(rows, parameters):
    with Passes(rows, parameters.n_clusters) as scan:
        return scan.assign(parameters)


PERSONAL = [GradientStep(), GradientStep(0.5), Personalization(), Personalization(centers=0.5)]


@pytest.mark.parametrize("personal", PERSONAL, ids=str)
def test_every_site_has_labels_of_its_own_model_and_of_the_common_one(sites, personal):
    _, engine = run_sites(make_plan(max_rounds=3, personal=personal), sites)
    for name, outcome in outcomes(engine).items():
        n = len(sites[name][0])
        assert outcome.labels.shape == outcome.global_labels.shape == (n,)
        assert_array_equal(outcome.memberships.argmax(axis=1), outcome.labels)
        assert np.allclose(outcome.memberships.sum(axis=1), 1)


@pytest.mark.parametrize("personal", PERSONAL, ids=str)
def test_memberships_are_those_of_the_rows_in_the_own_model_and_in_the_common_one(sites, personal):
    """Rows are placed once for several phases: the result is that of placing them anew."""
    run, engine = run_sites(make_plan(max_rounds=3, personal=personal), sites)
    for name, outcome in outcomes(engine).items():
        views, own = check_views(sites[name]), outcome.model
        memberships, labels, objective = place(own.rows(views), own.parameters)
        assert_allclose(outcome.memberships, memberships, rtol=0, atol=1e-12)
        assert_array_equal(outcome.labels, labels)
        assert_allclose(outcome.objective, objective, rtol=1e-12)
        common = Rows(views, run.board.get(References).references)
        assert_array_equal(outcome.global_labels, place(common, parameters_of(run))[1])


def test_what_was_derived_for_the_end_of_a_run_is_freed(sites):
    _, engine = run_sites(make_plan(max_rounds=2, personal=GradientStep()), sites)
    for site in engine.states.values():
        kept = [value for _, value in site._cache.values()]
        assert not any(isinstance(value, FinalRows | Parameters) for value in kept)


def test_without_a_step_the_own_model_is_the_common_one(sites):
    run, engine = run_sites(make_plan(max_rounds=3, personal=GradientStep()), sites)
    for outcome in outcomes(engine).values():
        for one, other in zip(outcome.model.parameters.centers, parameters_of(run).centers, strict=True):
            assert_array_equal(one, other)
        assert_array_equal(outcome.labels, outcome.global_labels)


@pytest.mark.parametrize("personal", PERSONAL, ids=str)
def test_what_a_site_says_is_short_whatever_its_rows(sites, personal):
    """A report has a few numbers for the site as a whole; no label, no centre and no row is among them."""
    run, engine = run_sites(make_plan(max_rounds=2, personal=personal), sites)
    reports = run.board.get(Reports).reports
    assert list(reports) == sorted(sites)
    for name, answer in engine.received[-1].items():
        (report,) = read_reply(answer).reports
        assert report.shares == outcomes(engine)[name].shares == reports[name].shares
        assert report.terms.rows == len(sites[name][0])
        assert len(answer) < 700


def test_shares_go_by_their_names_over_the_wire(sites):
    """Each component has the share that the site learned for it, whatever the order of names in a message."""
    run, engine = run_sites(make_plan(max_rounds=3, personal=Personalization()), sites)
    for name, outcome in outcomes(engine).items():
        found = run.board.get(Reports).reports[name].shares
        assert list(found.items()) == list(outcome.shares.items())
    assert any(len(set(outcome.shares.values())) > 1 for outcome in outcomes(engine).values())


def test_shares_by_site_reach_the_site_they_are_for(sites):
    centers = {"turin": 1.0, "bern": 0.0, LIAR: 0.25, "rome": 0.75}
    run, _ = run_sites(make_plan(max_rounds=2, personal=Personalization(centers=centers)), sites)
    reports = run.board.get(Reports).reports
    assert {name: reports[name].shares["centers"] for name in centers} == centers


def test_where_sites_are_hidden_they_say_nothing(sites):
    plan = make_plan(max_rounds=1, personal=Personalization())
    *phases, deliver = plan.phases()
    run, engine = run_sites([*phases, replace(deliver, report=False)], sites)
    assert isinstance(deliver, Deliver)
    assert run.board.get(Reports).reports == {}
    assert all(read_reply(answer).reports == () for answer in engine.received[-1].values())
    assert set(outcomes(engine)) == set(sites)


@pytest.mark.parametrize(
    "lie",
    [
        with_field("reports.0.terms.objective", lambda _: np.nan),
        with_field("reports.0.terms.center_distance", lambda _: np.inf),
        with_field("reports.0.shares", lambda shares: dict.fromkeys(shares, np.nan)),
    ],
    ids=["NaN", "infinite", "shares of NaN"],
)
def test_a_report_that_no_site_can_give_is_refused(sites, lie):
    plan = make_plan(max_rounds=1, personal=Personalization())
    tamper = lambda s, p, _, a: lie(a) if (s, p) == (LIAR, "deliver") else a  # noqa: E731
    run, _ = run_sites(plan, sites, tamper=tamper)
    assert sorted(run.board.get(Reports).reports) == ["bern", "rome", "turin"]
    assert list(run.history[-1]["refused"]) == [LIAR]


def test_a_site_that_comes_for_its_model_alone_gets_it(sites):
    """A site that was not there in the rounds has what it needs sent with the last request."""
    engine = TestEngine(sites)
    new = make_sites(sites)

    def forget(site, phase, exchange, answer):
        if site == LIAR and phase == "finish":
            engine.states[LIAR] = new[LIAR]
            return None
        return answer

    engine.tamper = forget
    run, _ = run_sites(make_plan(max_rounds=2, personal=Personalization(), calibration="auto"), engine)
    assert engine.states[LIAR].memory.has(Outcome)
    assert LIAR in run.board.get(Reports).reports
