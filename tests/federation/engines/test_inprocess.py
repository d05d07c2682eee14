"""All sites in one process: neither threads nor a slow site change what the others give."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from threadpoolctl import threadpool_limits

from federations import TestEngine, assert_same_model, make_plan, make_sites, run_sites
from fedhk import EFKMVC, datasets
from fedhk.errors import MessageError, QuorumError
from fedhk.federation.board import Board
from fedhk.federation.engines import inprocess
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import References
from fedhk.federation.gate import Guard, write_request
from fedhk.federation.messages import decode, encode
from fedhk.federation.phases.describe import Describe, DescribeRequest
from fedhk.model import rows as model_rows

LIAR = "oslo"


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(4, 30, n_clusters=3, n_features=(3, 4), random_state=3)
    return dict(zip(["bern", LIAR, "rome", "turin"], data.sites.values(), strict=True))


@pytest.fixture(scope="module")
def gaps(sites):
    """Sites of different sizes with missing cells."""
    rng = np.random.default_rng(0)
    return {
        name: [np.where(rng.random(view.shape) < 0.15, np.nan, view)[: 10 + 5 * i] for view in views]
        for i, (name, views) in enumerate(sites.items())
    }


def silent_in(exchanges):
    return lambda site, _, exchange, answer: None if site == LIAR and exchange in exchanges else answer


def describe_request():
    request = DescribeRequest(unit_rows=False, ranges=False)
    return encode(write_request(Describe.name, 0, request, DescribeRequest, {}))


class TestThreads:
    @pytest.mark.parametrize("protocol", ["statistics", "centers", "cores"])
    @pytest.mark.parametrize("workers", [2, 4])
    def test_any_number_of_workers_gives_the_same_bits(self, gaps, monkeypatch, workers, protocol):
        monkeypatch.setattr(inprocess, "WORTH_A_THREAD", 0)  # these sites are small
        monkeypatch.setattr(model_rows, "PASS_BYTES", 2**10)  # many blocks a pass
        plan = make_plan(protocol=protocol, heat_coef="absdev", view_weights="learned")
        alone, _ = run_sites(plan, gaps)
        threaded, _ = run_sites(plan, gaps, workers=workers)
        assert_same_model(threaded, alone)

    def test_one_large_site_in_threads_gives_the_same_bits(self, sites, monkeypatch):
        monkeypatch.setattr(model_rows, "PASS_BYTES", 2**10)
        only = {"only": [np.vstack(parts) for parts in zip(*sites.values(), strict=True)]}
        plan = make_plan()
        assert_same_model(run_sites(plan, only, workers=4)[0], run_sites(plan, only)[0])

    def test_threads_of_the_machine_change_no_bit_of_the_estimator(self, sites, monkeypatch):
        monkeypatch.setattr(inprocess, "WORTH_A_THREAD", 0)
        models = []
        for threads in (1, 4):
            with threadpool_limits(threads, user_api="blas"):
                models.append(EFKMVC(3, n_init=3, random_state=0).fit(sites))
        for one, other in zip(*(model.cluster_centers_ for model in models), strict=True):
            assert_array_equal(one, other)
        assert models[0].objective_ == models[1].objective_

    def test_small_sites_have_no_threads_of_their_own(self, sites):
        states = make_sites(sites)
        assert InProcessEngine(states, workers=4)._pool is None
        assert {site.workers for site in InProcessEngine(states, workers=4).states.values()} == {4}


def slow_answers(monkeypatch, is_slow, seconds, *, before=True):
    """Make some sites slow, before or after they have computed their answer."""
    answer = inprocess.answer_message

    def slow(site, guard, message, *read):
        if before and is_slow(site.name, message):
            time.sleep(seconds)
        found = answer(site, guard, message, *read)
        if not before and is_slow(site.name, message):
            time.sleep(seconds)
        return found

    monkeypatch.setattr(inprocess, "answer_message", slow)


class TestTimeouts:
    def test_a_slow_site_is_left_out_and_the_others_are_not(self, sites, monkeypatch):
        plan = make_plan(max_rounds=3)
        away, _ = run_sites(plan, sites, tamper=silent_in([3]))
        slow_answers(monkeypatch, lambda site, m: (site, m.kind, m.round) == (LIAR, "round", 3), 2.4)
        began = time.perf_counter()
        run, _ = run_sites(plan, sites, timeout=1.2)
        assert time.perf_counter() - began < 8
        assert run.history[1]["refused"] == {LIAR: "no answer within 1.2 s"}
        assert [record["clients"] for record in run.history] == [4, 3, 4]
        assert_same_model(run, away)

    def test_what_a_late_site_did_is_forgotten(self, sites, monkeypatch):
        """A site that answers "energy" too late must not keep the references of that phase."""
        slow_answers(monkeypatch, lambda site, m: (site, m.kind) == (LIAR, "energy"), 1.6, before=False)
        engine = TestEngine(sites, timeout=0.8)
        run_sites(make_plan(heat_coef="minmax", max_rounds=3), engine)
        time.sleep(1.2)
        scales = [
            np.hstack([r.scale for r in site.board.get(References).references]) for site in engine.states.values()
        ]
        for scale in scales[1:]:
            assert_array_equal(scale, scales[0])

    def test_one_site_alone_can_be_late_too(self, sites, monkeypatch):
        monkeypatch.setattr(inprocess, "answer_message", lambda *_: time.sleep(0.3))
        with pytest.raises(QuorumError, match=r"no answer within 0.1 s"):
            run_sites(make_plan(), {LIAR: sites[LIAR]}, timeout=0.1)


class TestSites:
    def test_answers_are_real_messages(self, sites):
        engine = InProcessEngine(make_sites(sites))
        answers = engine.exchange(dict.fromkeys(sites, describe_request()))
        for site, answer in answers.items():
            message = decode(answer)
            assert (message.kind, message.site, message.round) == ("describe", site, 0)

    def test_whatever_goes_wrong_at_a_site_stays_its_own_trouble(self, sites, monkeypatch):
        def broken(site, guard, message, *known):
            if site.name == LIAR:
                raise ZeroDivisionError("at home")
            return answer(site, guard, message, *known)

        answer = inprocess.answer_message
        monkeypatch.setattr(inprocess, "answer_message", broken)
        engine = InProcessEngine(make_sites(sites))
        answers = engine.exchange(dict.fromkeys(sites, describe_request()))
        assert isinstance(answers[LIAR], ZeroDivisionError)
        assert all(isinstance(answers[site], bytes) for site in sites if site != LIAR)

    def test_a_damaged_request_is_refused_by_every_site(self, sites):
        engine = InProcessEngine(make_sites(sites))
        answers = engine.exchange(dict.fromkeys(sites, describe_request()[:-1]))
        assert all(isinstance(answer, MessageError) for answer in answers.values())

    def test_a_site_keeps_what_followed_from_its_answer_only_if_it_answered(self, sites):
        engine = InProcessEngine(make_sites(sites))
        run, recorded = run_sites(make_plan(max_rounds=1), sites)
        engine.exchange({LIAR: recorded.sent[1][LIAR], "rome": recorded.sent[1]["rome"][:-1]})
        assert engine.states[LIAR].board.has(References)
        assert engine.states["rome"].board == Board()
        assert run.history

    def test_every_site_has_a_guard_of_its_own(self, sites):
        class Closed(Guard):
            def admit(self, *_):
                raise MessageError("not today")

        run, _ = run_sites(make_plan(max_rounds=1), TestEngine(sites, {LIAR: Closed()}))
        assert run.history[0]["refused"] == {LIAR: "not today"}
        assert run.history[0]["clients"] == 3
