"""Whatever a site sends, or fails to send, is its own trouble: it is refused by name, and the others go on."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from urllib.error import URLError

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from federations import (
    TestEngine,
    assert_same_model,
    make_plan,
    make_sites,
    progress_of,
    published,
    run_sites,
    with_field,
    with_message,
    with_reply,
)
from fedhk import datasets
from fedhk.errors import MessageError, QuorumError
from fedhk.federation.codec import TREE
from fedhk.federation.entries import Minimisation, Result
from fedhk.federation.messages import Message, decode, encode
from fedhk.federation.phases.base import Phase, phase_named
from fedhk.federation.protocols import make_protocol
from fedhk.federation.protocols.averaging import LocalCenters
from fedhk.federation.protocols.base import RoundReply
from fedhk.federation.run import Run

LIAR = "oslo"


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(4, 30, n_clusters=3, n_features=(3, 4), random_state=3)
    return dict(zip(["bern", LIAR, "rome", "turin"], data.sites.values(), strict=True))


def lying(change, phases=("round",), exchanges=None):
    """A tamper that changes the liar's answers in some phases."""

    def tamper(site, phase, exchange, answer):
        if site != LIAR or phase not in phases or (exchanges is not None and exchange not in exchanges):
            return answer
        return change(answer)

    return tamper


def always(value):
    return lambda *_: value


silent = always(None)


def with_arrays(change):
    return with_message(lambda m: replace(m, arrays=change(m.arrays)))


def with_tree(change):
    return with_message(lambda m: replace(m, values={TREE: change(m.values[TREE])}))


def flipped(answer):
    middle = len(answer) // 2
    return answer[:middle] + bytes([answer[middle] ^ 4]) + answer[middle + 1 :]


LIES = {
    "numbers cut": (with_arrays(lambda a: a | {"f8": a["f8"][:-1]}), "not what was asked for"),
    "numbers left over": (with_arrays(lambda a: a | {"f8": np.append(a["f8"], 0.0)}), "numbers are left over"),
    "wrong numbers": (with_arrays(lambda a: a | {"f8": a["f8"].view(np.int64)}), "not what was asked for"),
    "lacks an array": (with_arrays(lambda _: {}), "not what was asked for"),
    "one array more": (with_arrays(lambda a: a | {"x": np.zeros(1)}), "numbers are left over"),
    "another answer": (with_reply(always(RoundReply())), "an answer of another protocol"),
    "an answer of another protocol": (
        with_reply(lambda r: LocalCenters(r.sums.values, r.sums.values[:, :2], r.costs, r.objective, r.rows)),
        "an answer of another protocol",
    ),
    "an answer that there is not": (with_tree(lambda _: {".": ["Gossip"]}), "there is no RoundReply called"),
    "an answer that is none": (with_tree(always(None)), "not what was asked for"),
    "a deep nest": (with_message(lambda m: replace(m, values={}, arrays={TREE: np.frombuffer(b"[" * 9999, "u1")})), ""),
    "wrong round": (with_message(lambda m: replace(m, round=m.round + 1)), "has round"),
    "wrong kind": (with_message(lambda m: replace(m, kind="finish")), "has kind 'finish', expected 'round'"),
    "another's name": (with_message(lambda m: replace(m, site="rome")), "has site 'rome', expected 'oslo'"),
    "wrong version": (lambda answer: answer[:6] + b"\x07\x00" + answer[8:], "schema version 7"),
    "flipped bit": (flipped, "digest"),
    "cut short": (lambda answer: answer[:-3], "digest"),
    "too long": (always(bytes(200_001)), "200001 bytes, at most 200000"),
    "garbage": (always(b"garbage"), "not a FedHK message"),
    "nothing": (always(b""), "not a FedHK message"),
    "an exception": (always(RuntimeError("disk full")), "RuntimeError: disk full"),
    "an exception with a reason": (always(URLError(OSError("unreachable"))), "unreachable"),
    "an error of its own": (always(MessageError("no such view", LIAR)), "^no such view$"),
    "no answer": (silent, "no answer"),
}


@pytest.fixture
def _short_answers(monkeypatch):
    monkeypatch.setattr("fedhk.federation.run.MAX_BYTES", 200_000)


@pytest.fixture(scope="module")
def away(sites):
    plan = make_plan(init=[view[:3] for view in sites["rome"]], max_rounds=4)
    return plan, run_sites(plan, sites, tamper=lying(silent, exchanges=[3, 4]))[0]


@pytest.mark.usefixtures("_short_answers")
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_by_name_and_the_round_goes_on_as_if_nothing_had_come(sites, away, lie):
    change, reason = LIES[lie]
    plan, without = away
    # describe is 0, rounds are 1 to 4
    run, _ = run_sites(plan, sites, tamper=lying(change, exchanges=[3, 4]))
    assert_same_model(run, without)
    for record in run.history[:2]:
        assert (record["clients"], record["refused"]) == (4, {})
    for record in run.history[2:]:
        assert record["clients"] == 3
        assert list(record["refused"]) == [LIAR]
        assert re.search(reason, record["refused"][LIAR]), record["refused"]


@pytest.mark.usefixtures("_short_answers")
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("phase", ["describe", "energy", "candidates", "finish"])
def test_what_is_not_the_answer_of_the_phase_is_as_no_answer_in_any_phase(sites, without_answer, phase, lie):
    change, _ = LIES[lie]
    if "protocol" in lie or lie in ("another answer", "wrong kind", "an answer that there is not"):
        change = with_message(lambda m: replace(m, kind="gossip"))
    plan = make_plan(n_init=1, max_rounds=2, heat_coef="absdev")
    run, _ = run_sites(plan, sites, tamper=lying(change, (phase,)))
    assert_same_model(run, without_answer(plan, phase))
    assert list(run.history[-1 if phase == "finish" else 0]["refused"]) == [LIAR]


@pytest.fixture(scope="module")
def without_answer(sites):
    """Runs in which the liar says nothing in a phase, each made once."""

    @cache
    def run(plan, phase):
        return run_sites(plan, sites, tamper=lying(silent, (phase,)))[0]

    return run


def test_a_site_that_lies_from_the_start_is_as_if_it_were_not_there(sites):
    everything = ("describe", "energy", "candidates", "round", "finish")
    plan = make_plan(heat_coef="minmax", max_rounds=2)
    run, _ = run_sites(plan, sites, tamper=lying(flipped, everything))
    others, _ = run_sites(plan, {name: views for name, views in sites.items() if name != LIAR})
    assert_same_model(run, others)


def test_a_long_reason_is_cut(sites):
    plan = make_plan(max_rounds=1)
    run, _ = run_sites(plan, sites, tamper=lying(always(RuntimeError("x" * 10_000))))
    assert len(run.history[0]["refused"][LIAR]) == 300


def test_answers_are_taken_in_the_order_of_names(sites):
    """Sums of the same numbers in another order differ in their last bits; here they must not."""
    plan = make_plan(max_rounds=2)
    expected, _ = run_sites(plan, sites)

    class Turned(TestEngine):
        order = ()

        def exchange(self, requests):
            answers = super().exchange(requests)
            return {site: answers[site] for site in self.order if site in answers}

        def sites(self):
            return self.order

    for order in (["turin", "rome", "oslo", "bern"], ["oslo", "turin", "bern", "rome"]):
        engine = Turned(sites)
        engine.order = order
        assert_same_model(run_sites(plan, engine)[0], expected)


class TestRecords:
    def test_set_up_is_counted_in_the_first_round_and_the_end_in_the_last(self, sites):
        run, engine = run_sites(make_plan(heat_coef="minmax", max_rounds=3), sites)
        assert engine.phases == ["describe", "energy", "candidates", "round", "round", "round", "finish"]
        for direction, messages in (("bytes_up", engine.received), ("bytes_down", engine.sent)):
            sizes = [sum(map(len, exchange.values())) for exchange in messages]
            assert [record[direction] for record in run.history] == [sum(sizes[:4]), sizes[4], sum(sizes[5:])]
        assert [record["round"] for record in run.history] == [1, 2, 3]
        assert all(record["seconds"] > 0 for record in run.history)

    def test_of_two_reasons_the_first_is_kept(self, sites):
        def tamper(site, phase, exchange, answer):
            if site != LIAR:
                return answer
            return {"describe": b"garbage", "candidates": RuntimeError("later")}.get(phase, answer)

        run, _ = run_sites(make_plan(max_rounds=1), sites, tamper=tamper)
        assert "not a FedHK message" in run.history[0]["refused"][LIAR]

    def test_a_hook_sees_every_exchange(self, sites):
        seen = []
        run, engine = run_sites(make_plan(max_rounds=2), sites, after=[seen.append])
        assert [current.exchange for current in seen] == list(range(1, len(engine.phases) + 1))
        assert seen[-1].history == run.history
        assert [len(current.history) for current in seen] == [0, 0, 1, 2, 2]

    def test_a_run_does_not_change_the_one_that_it_goes_on_from(self, sites):
        before = Run()
        run_sites(make_plan(max_rounds=1), sites, run=before)
        assert before == Run()


class TestWhatIsSent:
    def test_every_entry_goes_to_every_site_once(self, sites):
        _, engine = run_sites(make_plan(max_rounds=3, heat_coef="minmax", protocol="cores"), sites)
        for site in sites:
            sent = [name for exchange in engine.sent for name in published(exchange[site])]
            assert sent.count("Basis") == sent.count("Schema") == sent.count("FinalModel") == 1
            assert sent.count("References") == 2  # energies change them

    def test_sites_that_are_asked_the_same_get_the_same_bytes(self, sites):
        _, engine = run_sites(make_plan(max_rounds=1), sites)
        for exchange in engine.sent:
            assert len({id(payload) for payload in exchange.values()}) == 1

    def test_what_a_site_missed_comes_with_the_next_message(self, sites):
        away = lying(silent, ("candidates",))
        _, engine = run_sites(make_plan(max_rounds=2), sites, tamper=away)
        assert published(engine.sent[2][LIAR]) == ["Schema", "References"]
        assert published(engine.sent[2]["rome"]) == []
        assert published(engine.sent[3][LIAR]) == []


class TestQuorum:
    def test_too_few_answers_stop_the_run_naming_phase_sites_and_reasons(self, sites):
        with pytest.raises(
            QuorumError, match=r"3 usable answers in phase 'round' \(exchange 3\), min_sites=4 .*oslo:.*digest"
        ):
            run_sites(make_plan(), sites, min_sites=4, tamper=lying(flipped, exchanges=[3]))

    @pytest.mark.parametrize("phase", ["describe", "energy", "candidates", "round", "finish"])
    def test_holds_in_every_phase(self, sites, phase):
        plan = make_plan(heat_coef="minmax", max_rounds=2)
        with pytest.raises(QuorumError, match=f"phase '{phase}'.*oslo: no answer"):
            run_sites(plan, sites, min_sites=4, tamper=lying(silent, (phase,)))

    def test_counts_answers_that_are_read_but_not_used(self, sites):
        lie = with_field("moments.0.squares", lambda a: a - 1e9)
        with pytest.raises(QuorumError, match=r"3 usable answers in phase 'describe'.*oslo: moments that no rows"):
            run_sites(make_plan(), sites, min_sites=4, tamper=lying(lie, ("describe",)))

    def test_no_usable_answer_at_all(self, sites):
        with pytest.raises(
            QuorumError, match=r"0 usable answers in phase 'round'.*bern: not a FedHK.*turin: not a FedHK"
        ):
            run_sites(make_plan(), sites, tamper=lambda *asked: b"?" if asked[1] == "round" else asked[3])

    def test_no_site_left(self, sites):
        with pytest.raises(QuorumError, match=r"0 usable answers in phase 'round'"):
            run_sites(make_plan(), sites, present=lambda exchange: list(sites) if exchange < 3 else [])

    def test_a_run_goes_on_after_it(self, sites):
        plan, runs = make_plan(), []
        with pytest.raises(QuorumError):
            run_sites(plan, sites, min_sites=4, after=[runs.append], tamper=lying(silent, exchanges=[4]))
        assert len(runs[-1].history) == 2
        again, _ = run_sites(plan, sites, run=replace(runs[-1], known={}))
        assert_same_model(again, run_sites(plan, sites)[0])


class TestComingAndGoing:
    def test_a_site_that_joins_late_counts_from_then_on(self, sites):
        plan = make_plan(init=[view[:3] for view in sites["rome"]], max_rounds=4)
        late, _ = run_sites(plan, sites, present=lambda n: [s for s in sites if s != LIAR or n > 2])
        assert [record["clients"] for record in late.history] == [3, 3, 4, 4]
        assert all(not record["refused"] for record in late.history)
        never, _ = run_sites(plan, {name: views for name, views in sites.items() if name != LIAR})
        # the third round starts from the same centres; its objective is higher by the rows of the new site
        assert [r["objective"] for r in late.history[:2]] == [r["objective"] for r in never.history[:2]]
        assert late.history[2]["objective"] > never.history[2]["objective"]
        assert late.board.get(Result).rows == sum(len(views[0]) for views in sites.values())

    @pytest.mark.parametrize("heat_coef", ["uniform", "absdev"])
    def test_a_site_that_leaves_no_longer_counts(self, sites, heat_coef):
        plan = make_plan(max_rounds=4, heat_coef=heat_coef)
        first = 3 if heat_coef == "uniform" else 4
        run, _ = run_sites(plan, sites, present=lambda n: [s for s in sites if s != LIAR or n < first])
        assert [record["clients"] for record in run.history] == [4, 3, 3, 3]
        assert all(not record["refused"] for record in run.history)

    def test_a_site_that_lost_its_state_is_told_again(self, sites):
        engine = TestEngine(sites)

        def forget(site, phase, exchange, answer):
            if site == LIAR and exchange == 3:
                engine.states[LIAR] = make_sites(sites)[LIAR]
            return answer

        engine.tamper = forget
        run, _ = run_sites(make_plan(max_rounds=4), engine)
        assert [record["clients"] for record in run.history] == [4, 4, 3, 4]
        assert "asked before 'References' was published" in run.history[2]["refused"][LIAR]
        assert published(engine.sent[5][LIAR]) == ["Schema", "References"]

    def test_a_fraction_of_the_sites_is_asked_in_rounds_only(self, sites):
        run, engine = run_sites(make_plan(max_rounds=6), sites, fraction=0.5)
        asked = dict.fromkeys(map(frozenset, engine.sent[2:-1]))
        assert [len(sent) for sent in engine.sent] == [4, 4, 2, 2, 2, 2, 2, 2, 4]
        assert len(asked) > 1  # not the same two each time
        assert [record["clients"] for record in run.history] == [2] * 6
        assert_same_model(run, run_sites(make_plan(max_rounds=6), sites, fraction=0.5)[0])

    @pytest.mark.parametrize("protocol", ["statistics", "centers"])
    def test_a_view_whose_only_site_leaves_keeps_its_weight_and_centres(self, sites, protocol):
        """A view that nobody has costs nothing; learned weights must not flee to it."""
        only = {name: [*views, None] for name, views in sites.items()}
        only["rome"][2] = sites["rome"][0] ** 2
        plan = make_plan(view_weights="learned", max_rounds=4, protocol=protocol)
        states = []
        run, _ = run_sites(
            plan,
            only,
            present=lambda n: [s for s in sites if s != "rome" or n < 3],
            after=[lambda current: states.append(current.board)],
        )
        before, after = states[2].get(Minimisation).parameters, progress_of(run).parameters
        assert before.view_weights[2] == pytest.approx(after.view_weights[2], rel=1e-12)
        assert_array_equal(before.centers[2], after.centers[2])
        assert after.view_weights.sum() == pytest.approx(1)


def test_a_phase_of_ones_own_is_one_class(sites):
    """The only interface there is: four methods, and the run does the rest."""

    @dataclass(frozen=True)
    class Count:
        rows: int

    class CountRows(Phase):
        name, request_type, reply_type = "count rows of a test", Count, Count

        def request(self, board):
            return Count(0)

        @staticmethod
        def answer(site, request):
            return Count(site.views.n_rows + request.rows)

        def check(self, board, reply, site):
            if reply.rows < 0:
                raise MessageError("fewer rows than none", site)

        def combine(self, board, replies):
            totals.append(sum(reply.rows for reply in replies.values()))
            return board

    totals = []
    lie = with_message(lambda m: replace(m, values={TREE: [-1]}))
    run, _ = run_sites([CountRows()], sites, tamper=lying(lie, ("count rows of a test",)))
    assert totals == [sum(len(views[0]) for name, views in sites.items() if name != LIAR)]
    assert run.pending["refused"] == {LIAR: "fewer rows than none"}
    assert phase_named("count rows of a test") is CountRows


def test_names_of_protocols_lead_to_their_values():
    for name in ("auto", "statistics", "cores", "centers", "factors"):
        assert make_protocol(make_protocol(name)) is make_protocol(name)
    assert encode(decode(encode(Message("a", "b", 0)))) == encode(Message("a", "b", 0))
