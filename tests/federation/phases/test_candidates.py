"""Candidates: means of at least two rows, the same for any order of sites, and no start from what no rows can have."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from federations import (
    assert_same_model,
    make_phases,
    make_plan,
    parameters_of,
    progress_of,
    published,
    read_reply,
    read_request,
    run_sites,
    with_field,
    with_reply,
)
from fedhk import datasets
from fedhk.errors import DataError
from fedhk.federation.entries import References
from fedhk.federation.phases.frame import Frame
from fedhk.federation.table import Table
from fedhk.protocols import Statistics

LIAR = "oslo"


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(4, 30, n_clusters=3, n_features=(3, 4), shift=1.0, random_state=3)
    return dict(zip(["bern", LIAR, "rome", "turin"], data.sites.values(), strict=True))


def tamper(change):
    return lambda site, phase, _, answer: change(answer) if (site, phase) == (LIAR, "candidates") else answer


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def many(reply):
    count = 999
    return replace(
        reply, points=Table(np.zeros((count, 7)), np.zeros(0)), sizes=np.ones(count), spreads=np.zeros((count, 2))
    )


LIES = {
    "infinite": (with_field("points.values", put((0, 0), np.inf)), "infinite values"),
    "huge": (with_field("points.values", put((0, 0), 1e200)), "far outside the range"),
    "a feature less": (with_field("points.values", lambda a: a[:, 1:]), "candidates have shape"),
    "too many": (with_reply(many), "999 candidates, at most .* were asked for"),
    "without weight": (with_field("sizes", lambda a: 0 * a), "weights that no rows can have"),
    "negative weight": (with_field("sizes", lambda a: -a), "below zero"),
    "weights beyond counting": (with_field("sizes", lambda a: a + 1e300), "weights that no rows can have"),
    "not as many weights": (with_field("sizes", lambda a: a[1:]), "weights of candidates have shape"),
    "negative spreads": (with_field("spreads", lambda a: a - 1.0), "below zero"),
    "huge spreads": (with_field("spreads", lambda a: a + 1e30), "far outside the range"),
    "spreads of one view": (with_field("spreads", lambda a: a[:, :1]), "spreads of candidates have shape"),
    "steps of bytes": (with_field("points.scale", lambda _: np.ones(3)), "have scales, but are not in bytes"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_as_no_answer(sites, lie):
    change, reason = LIES[lie]
    plan = make_plan(n_init=1, max_rounds=2)
    run, _ = run_sites(plan, sites, tamper=tamper(change))
    assert_same_model(run, run_sites(plan, sites, tamper=tamper(lambda _: None))[0])
    assert list(run.history[0]["refused"]) == [LIAR]
    assert re.search(reason, run.history[0]["refused"][LIAR]), run.history[0]["refused"]


@pytest.mark.parametrize("value", [-128, 127])
def test_candidates_in_bytes_may_miss_cells_but_not_lie(sites, value):
    """A missing cell of a candidate is no lie; nothing that follows is NaN."""
    plan = make_plan(protocol=Statistics(basis=True, precision="byte"), max_rounds=2)
    run, _ = run_sites(plan, sites, tamper=tamper(with_field("points.values", put((0, 0), value))))
    assert run.history[0]["refused"] == {}
    assert np.isfinite(np.hstack(parameters_of(run).centers)).all()


class TestWhatIsSent:
    def test_no_row_leaves_a_site(self, sites):
        """Every candidate is a mean of at least two rows."""
        run, engine = run_sites(make_phases(max_rounds=1), sites)
        references = run.board.get(References).references
        for site, answer in engine.received[1].items():
            reply = read_reply(answer)
            rows = np.hstack([r.to_model(view) for r, view in zip(references, sites[site], strict=True)])
            assert reply.sizes.min() >= 2
            assert reply.sizes.sum() <= len(rows)
            assert np.abs(reply.points.read()[:, None] - rows[None]).max(axis=2).min() > 1e-6

    def test_the_seed_and_the_name_of_the_site_decide(self, sites):
        def sent(**changes):
            _, engine = run_sites(make_phases(max_rounds=1, **changes), sites)
            return {site: read_reply(answer).points.values for site, answer in engine.received[1].items()}

        first, again, other = sent(), sent(), sent(seed=5)
        for site in sites:
            assert_array_equal(first[site], again[site])
        assert any(first[site].shape != other[site].shape or np.any(first[site] != other[site]) for site in sites)

    def test_a_frame_is_published_before_candidates_are_asked_for(self, sites):
        for calibration in (None, "auto", (1.0, 0.0)):
            run, engine = run_sites(make_plan(max_rounds=1, calibration=calibration), sites)
            asked = engine.phases.index("candidates")
            assert run.board.has(Frame) == (calibration is not None)
            assert ("Frame" in published(engine.sent[asked][LIAR])) == (calibration is not None)

    def test_shares_that_are_given_are_taken(self, sites):
        run, _ = run_sites(make_plan(max_rounds=1, calibration=(0.75, 0.5)), sites)
        calibration = run.board.get(Frame).calibration
        assert (calibration.shift, calibration.spread) == (0.75, 0.5)


class TestStarts:
    def test_a_site_with_one_row_gives_no_candidate_and_takes_part_all_the_same(self, sites):
        tiny = {"tiny": [view[:1] for view in sites[LIAR]]}
        run, engine = run_sites(make_phases(max_rounds=2), sites | tiny)
        assert len(read_reply(engine.received[1]["tiny"]).sizes) == 0
        assert [record["clients"] for record in run.history] == [5, 5]
        assert all(record["refused"] == {} for record in run.history)

    def test_sites_that_all_have_one_row_cannot_give_a_start(self):
        rng = np.random.default_rng(0)
        single = {f"s{i}": [rng.normal(size=(1, 3))] for i in range(6)}
        with pytest.raises(DataError, match=r"mean of at least 2 rows, and no site has 2. Give centres as init"):
            run_sites(make_phases(2), single)

    @given(order=st.permutations(["bern", LIAR, "rome", "turin"]))
    @settings(max_examples=6)
    def test_the_order_of_sites_changes_no_bit(self, sites, order):
        plan = make_plan(n_init=1, max_rounds=1)
        turned, _ = run_sites(plan, {site: sites[site] for site in order})
        assert_same_model(turned, run_sites(plan, sites)[0])

    @pytest.mark.parametrize("init", ["k-means++", "random"])
    def test_more_starts_are_no_worse_on_the_candidates(self, sites, init):
        objectives = [
            run_sites(make_phases(n_init=n, init=init, max_rounds=20), sites)[0].history[-1]["objective"]
            for n in (1, 20)
        ]
        assert objectives[1] <= objectives[0] * 1.01

    def test_given_centres_need_no_exchange_and_are_the_start(self, sites):
        start = [view[:3] for view in sites["rome"]]
        seen = []
        _, engine = run_sites(make_phases(init=start, max_rounds=1), sites, after=[seen.append])
        assert engine.phases == ["describe", "round", "finish"]
        request = read_request(engine.sent[1]["rome"])
        references = seen[0].board.get(References).references
        expected = np.hstack([r.to_model(view) for r, view in zip(references, start, strict=True)])
        assert_allclose(request.model.centers.read(), expected, atol=1e-12)

    def test_given_centres_that_do_not_fit_the_views_are_an_error(self, sites):
        start = [view[:3] for view in sites["rome"]]
        with pytest.raises(DataError, match=r"init has centres with \[3\] features.*'view_1'\] have \[3, 4\]"):
            run_sites(make_plan(init=start[:1]), sites)

    def test_a_fuzzifier_that_is_not_given_is_chosen_with_the_start(self, sites):
        run, _ = run_sites(make_phases(fuzzifier=None, max_rounds=1), sites)
        assert 1.0 < progress_of(run).parameters.fuzzifier <= 1.0625
