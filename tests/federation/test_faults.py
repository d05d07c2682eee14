"""Whatever a site sends, or fails to send, is its own trouble: it is refused by name, and the others go on."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import cache
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from federations import TestEngine, assert_same_model, make_plan, run_sites
from fedhk import EFKMVC, datasets
from fedhk.data.views import check_views
from fedhk.errors import DataError, MessageError
from fedhk.federation.engines import inprocess
from fedhk.federation.messages import decode, encode
from fedhk.federation.payloads import pack_text
from fedhk.federation.run import Participation, Run, participants
from fedhk.federation.server import QuorumError
from fedhk.federation.state import ServerState

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


def with_message(change):
    """A change of the decoded message, sealed again: the digest is no help."""
    return lambda answer: encode(change(decode(answer)))


def with_array(name, change):
    return with_message(lambda m: replace(m, arrays=m.arrays | {name: change(np.copy(m.arrays.get(name, 0.0)))}))


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def flipped(answer):
    middle = len(answer) // 2
    return answer[:middle] + bytes([answer[middle] ^ 4]) + answer[middle + 1 :]


LIES = {
    "wrong shape": (with_array("numerators", lambda a: a[:, 1:]), "'numerators'.* has shape"),
    "too few weights": (with_array("weights", lambda a: a[:, 1:]), "'weights' has 1 columns, expected 2"),
    "NaN": (with_array("numerators", put((0, 0), np.nan)), "NaN or infinite"),
    "infinite": (with_array("numerators", put((0, 0), np.inf)), "NaN or infinite"),
    "huge": (with_array("numerators", put((0, 0), 1e300)), "no rows can have"),
    "negative counts": (with_array("weights", put((0, 0), -1.0)), "values below zero"),
    "negative rows": (with_array("sums", put(-1, -5.0)), "values below zero"),
    "more mass than rows": (with_array("sums", put(2, 1e6)), "masses or costs larger"),
    "impossible objective": (with_array("sums", put(-2, 1e9)), "objective"),
    "rows beyond counting": (with_array("sums", put(-1, 1e300)), "rows"),
    "wrong numbers": (with_array("sums", lambda a: a.astype(np.int64)), "dtype int64"),
    "lacks an array": (with_message(lambda m: replace(m, arrays={"sums": m.arrays["sums"]})), "lacks 'numerators'"),
    "one array more": (with_message(lambda m: replace(m, arrays=m.arrays | {"x": np.zeros(1)})), "unexpected 'x'"),
    "unknown views": (with_message(lambda m: replace(m, values={"full": [7]})), r"views \[7\]"),
    "views that are none": (with_message(lambda m: replace(m, values={"full": "all"})), "views 'all'"),
    "wrong round": (with_message(lambda m: replace(m, round=m.round - 1)), "has round"),
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


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_by_name_and_the_round_goes_on_as_if_nothing_had_come(sites, lie):
    change, reason = LIES[lie]
    plan = make_plan(init=[view[:3] for view in sites["rome"]], max_rounds=4)
    during = [3, 4]  # describe is 0, rounds are 1 to 4
    run, _ = run_sites(plan, sites, tamper=lying(change, exchanges=during), max_bytes=200_000)
    away, _ = run_sites(plan, sites, tamper=lying(silent, exchanges=during))
    assert_same_model(run, away)
    for record in run.history[:2]:
        assert (record["clients"], record["refused"]) == (4, {})
    for record in run.history[2:]:
        assert record["clients"] == 3
        assert list(record["refused"]) == [LIAR]
        assert re.search(reason, record["refused"][LIAR])


PHASE_LIES = {
    ("describe", "wrong shape"): with_array("moments", lambda a: a[:, :-1]),
    ("describe", "huge mean"): with_array("moments", put((0, 0), 1e200)),
    ("describe", "huge spread"): with_array("moments", put((1, 0), 1e290)),
    ("describe", "negative spread"): with_array("moments", put((1, 0), -1.0)),
    ("describe", "ranges that nobody asked for"): with_array("ranges", always(np.zeros((2, 7)))),
    ("describe", "negative counts"): with_array("cells", always(np.full((1, 7), -1.0))),
    ("describe", "more rows than there are"): with_array("rows", put((0, 0), 1e9)),
    ("describe", "rows beyond counting"): with_array("rows", put(..., 1e300)),
    ("describe", "views are no text"): with_array("views", lambda a: a.astype(np.float64)),
    ("describe", "views are no JSON"): with_array("views", lambda a: a[:-2]),
    ("describe", "views in a deep nest"): with_array("views", always(np.frombuffer(b"[" * 9999, np.uint8))),
    ("describe", "views are a number"): with_array("views", always(pack_text(3))),
    ("describe", "negative width"): with_array("views", always(pack_text([["view_0", 9, None], ["view_1", -2, None]]))),
    ("describe", "true width"): with_array("views", always(pack_text([["view_0", True, None]]))),
    ("describe", "a name twice"): with_array("views", always(pack_text([["view_0", 3, None], ["view_0", 4, None]]))),
    ("describe", "columns of another width"): with_array("views", always(pack_text([["view_0", 7, ["a"]]]))),
    ("energy", "negative"): with_array("energy", put(0, -1.0)),
    ("energy", "wrong shape"): with_array("energy", lambda a: a[:1]),
    ("candidates", "infinite"): with_array("candidates", put((0, 0), np.inf)),
    ("candidates", "huge"): with_array("candidates", put((0, 0), 1e200)),
    ("candidates", "too many"): with_message(
        lambda m: replace(m, arrays={"candidates": np.zeros((999, 7)), "weights": np.ones((999, 3))})
    ),
    ("candidates", "without weight"): with_array("weights", lambda a: 0 * a),
    ("candidates", "not as many weights"): with_array("weights", lambda a: a[1:]),
    ("finish", "NaN"): with_array("sums", put(0, np.nan)),
    ("finish", "huge"): with_array("sums", put(0, 1e300)),
}


@pytest.fixture(scope="module")
def without_answer(sites):
    """Runs in which the liar says nothing in a phase, each made once."""

    @cache
    def run(plan, phase):
        return run_sites(plan, sites, tamper=lying(silent, (phase,)))[0]

    return run


@pytest.mark.parametrize(("phase", "lie"), PHASE_LIES)
def test_a_lie_in_any_phase_is_as_no_answer_in_that_phase(sites, without_answer, phase, lie):
    plan = make_plan(n_init=1, max_rounds=2, heat_coef="absdev" if phase == "energy" else "uniform")
    run, _ = run_sites(plan, sites, tamper=lying(PHASE_LIES[phase, lie], (phase,)))
    away = without_answer(plan, phase)
    assert_same_model(run, away)
    record = run.history[-1 if phase == "finish" else 0]
    assert list(record["refused"]) == [LIAR]
    assert record["refused"][LIAR] != away.history[-1 if phase == "finish" else 0]["refused"][LIAR]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("centers", np.nan, "NaN"),
        ("centers", 1e200, "far outside the range"),
        ("masses", -1.0, "below zero"),
        ("sums", 1e300, "objective|rows"),
    ],
)
def test_lies_in_the_centres_protocol_are_refused(sites, name, value, reason):
    plan = make_plan(max_rounds=3, protocol="centers")
    run, _ = run_sites(plan, sites, tamper=lying(with_array(name, put((..., -1), value)), exchanges=[3]))
    away, _ = run_sites(plan, sites, tamper=lying(silent, exchanges=[3]))
    assert_same_model(run, away)
    assert re.search(reason, run.history[1]["refused"][LIAR])


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


class TestQuorum:
    def test_too_few_answers_stop_the_run_naming_phase_sites_and_reasons(self, sites):
        with pytest.raises(
            QuorumError, match=r"3 usable answers in phase 'round' \(exchange 3\), min_sites=4 .*oslo:.*digest"
        ):
            run_sites(make_plan(), sites, min_sites=4, tamper=lying(flipped, exchanges=[3]))

    @pytest.mark.parametrize("phase", ["describe", "energy", "candidates", "round", "finish"])
    def test_holds_in_every_phase(self, sites, phase):
        plan = make_plan(heat_coef="minmax", max_rounds=2)
        with pytest.raises(QuorumError, match=f"phase '{phase}'.*oslo: TimeoutError: no answer"):
            run_sites(plan, sites, min_sites=4, tamper=lying(silent, (phase,)))

    def test_counts_answers_that_are_read_but_not_used(self, sites):
        lie = with_array("moments", put((1, 0), -1.0))
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
        plan, run = make_plan(), Run()
        with pytest.raises(QuorumError):
            run_sites(plan, sites, min_sites=4, run=run, tamper=lying(silent, exchanges=[4]))
        assert len(run.history) == 2
        again, _ = run_sites(plan, sites, run=Run(replace(run.state, informed=frozenset()), run.history, run.pending))
        assert_same_model(again, run_sites(plan, sites)[0])


class TestTimeouts:
    def test_a_slow_site_is_left_out_and_the_others_are_not(self, sites, monkeypatch):
        step = inprocess.client_step

        def slow(state, request, workers):
            if state.name == LIAR and request.kind == "round" and request.round == 3:
                time.sleep(0.6)
            return step(state, request, workers)

        plan = make_plan(max_rounds=3)
        away, _ = run_sites(plan, sites, tamper=lying(silent, exchanges=[3]))
        monkeypatch.setattr(inprocess, "client_step", slow)
        began = time.perf_counter()
        run, _ = run_sites(plan, sites, timeout=0.3)
        assert time.perf_counter() - began < 5
        assert run.history[1]["refused"] == {LIAR: "TimeoutError: no answer within 0.3 s"}
        assert [record["clients"] for record in run.history] == [4, 3, 4]
        assert_same_model(run, away)

    def test_what_a_late_site_did_is_forgotten(self, sites, monkeypatch):
        """A site that answers "energy" too late must not keep the references of that phase."""
        step = inprocess.client_step

        def slow(state, request, workers):
            after = step(state, request, workers)
            if state.name == LIAR and request.kind == "energy":
                time.sleep(0.4)
            return after

        monkeypatch.setattr(inprocess, "client_step", slow)
        engine = TestEngine(sites, timeout=0.2)
        run_sites(make_plan(heat_coef="minmax", max_rounds=3), engine)
        time.sleep(0.3)
        scales = [np.hstack([r.scale for r in state.rows.references]) for state in engine.engine.states.values()]
        for scale in scales[1:]:
            assert_array_equal(scale, scales[0])

    def test_one_site_alone_can_be_late_too(self, sites, monkeypatch):
        monkeypatch.setattr(inprocess, "client_step", lambda *_: time.sleep(0.3))
        with pytest.raises(QuorumError, match=r"no answer within 0.1 s"):
            run_sites(make_plan(), {LIAR: sites[LIAR]}, timeout=0.1)


class TestViewsThatDiffer:
    """Through `conduct`, where nobody sees all sites before they describe themselves."""

    def conduct(self, sites, odd, **plan):
        engine = TestEngine(sites)
        state = engine.engine.states[LIAR]
        engine.engine.states[LIAR] = replace(state, views=check_views(odd))
        run, _ = run_sites(make_plan(max_rounds=2, **plan), engine)
        return run, run.history[0]["refused"].get(LIAR)

    def frames(self, sites, names=(list("abc"), list("defg"))):
        return {
            name: [pd.DataFrame(view, columns=columns) for view, columns in zip(views, names, strict=True)]
            for name, views in sites.items()
        }

    def test_another_width_is_listed(self, sites):
        run, reason = self.conduct(sites, [sites[LIAR][0], sites[LIAR][1][:, :2]])
        assert "view 'view_1' has 2 features, other sites have 4" in reason
        others, _ = run_sites(make_plan(max_rounds=2), {n: v for n, v in sites.items() if n != LIAR})
        assert_same_model(run, others)

    def test_all_differences_are_listed(self, sites):
        _, reason = self.conduct(sites, [sites[LIAR][0][:, :1], sites[LIAR][1][:, :2]])
        assert "view 'view_0' has 1 features, other sites have 3 features; view 'view_1' has 2 features" in reason

    def test_other_columns_are_listed(self, sites):
        odd = self.frames(sites, (list("abX"), list("defg")))[LIAR]
        _, reason = self.conduct(self.frames(sites), odd)
        assert "view 'view_0' has other columns than other sites: missing ['c'], unexpected ['X']" in reason

    def test_columns_in_another_order_are_refused(self, sites):
        odd = self.frames(sites, (list("acb"), list("defg")))[LIAR]
        _, reason = self.conduct(self.frames(sites), odd)
        assert "view 'view_0' has its columns in another order" in reason

    def test_a_site_without_column_names_agrees_with_any(self, sites):
        run, reason = self.conduct(self.frames(sites), sites[LIAR])
        assert reason is None
        assert run.state.columns == (tuple("abc"), tuple("defg"))

    def test_a_refused_site_leaves_no_view_behind(self, sites):
        odd = {"view_0": sites[LIAR][0][:, :1], "secret": sites[LIAR][1]}
        run, reason = self.conduct(sites, odd)
        assert "view 'view_0' has 1 features" in reason
        assert run.state.names == ("view_0", "view_1")

    def test_a_view_without_a_value_anywhere_is_left_out(self, sites):
        run, reason = self.conduct(
            sites, {"view_0": sites[LIAR][0], "empty": np.full((len(sites[LIAR][0]), 2), np.nan)}
        )
        assert reason is None
        assert run.state.names == ("view_0", "view_1")

    def test_given_centres_and_weights_that_do_not_fit_the_views_are_an_error(self, sites):
        start = [view[:3] for view in sites["rome"]]
        with pytest.raises(DataError, match=r"init has centres with \[3\] features.*'view_1'\] have \[3, 4\]"):
            run_sites(make_plan(init=start[:1]), sites)
        with pytest.raises(DataError, match=r"view_weights has 3 numbers.*'view_0', 'view_1'"):
            run_sites(make_plan(view_weights=(1.0, 1.0, 1.0)), sites)

    def test_sites_that_all_differ_are_an_error_that_lists_them(self):
        rng = np.random.default_rng(0)
        widths = {"a": (1, 2, 2), "b": (2, 1, 2), "c": (2, 2, 1)}
        engine = TestEngine({name: [rng.normal(size=(5, w)) for w in (2, 2, 2)] for name in widths})
        for name, own in widths.items():
            views = check_views([rng.normal(size=(5, w)) for w in own])
            engine.engine.states[name] = replace(engine.engine.states[name], views=views)
        with pytest.raises(
            QuorumError, match=r"a: view 'view_0' has 1.*b: view 'view_1' has 1.*c: view 'view_2' has 1"
        ):
            run_sites(make_plan(), engine)

    def test_a_late_site_with_another_width_or_other_columns_is_refused(self, sites):
        frames = self.frames(sites)
        wide = [frames[LIAR][0].assign(X=0.0), frames[LIAR][1]]
        turned = self.frames(sites, (list("acb"), list("defg")))[LIAR]
        for odd, reason in (
            (wide, "view 'view_0' has 4 features here, 3"),
            (turned, "'view_0' has other columns here"),
        ):
            engine = TestEngine(frames, present=lambda n: [s for s in sites if s != LIAR or n > 3])
            engine.engine.states[LIAR] = replace(engine.engine.states[LIAR], views=check_views(odd))
            run, _ = run_sites(make_plan(max_rounds=3), engine)
            assert reason in run.history[2]["refused"][LIAR]


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
        assert late.state.rows == sum(len(views[0]) for views in sites.values())

    @pytest.mark.parametrize("heat_coef", ["uniform", "absdev"])
    def test_a_site_that_leaves_no_longer_counts(self, sites, heat_coef):
        plan = make_plan(max_rounds=4, heat_coef=heat_coef)
        first = 3 if heat_coef == "uniform" else 4
        run, _ = run_sites(plan, sites, present=lambda n: [s for s in sites if s != LIAR or n < first])
        assert [record["clients"] for record in run.history] == [4, 3, 3, 3]
        assert all(not record["refused"] for record in run.history)

    def test_rows_that_come_and_go_are_not_taken_for_convergence(self, sites):
        """The objective rises when a site comes back; that is no sign of a minimum."""
        plan = make_plan(max_rounds=60, tol=1e-6)
        away = lying(silent, exchanges=[3, 5])
        run, _ = run_sites(plan, sites, tamper=away)
        undisturbed, _ = run_sites(plan, sites)
        assert run.state.progress.converged
        assert run.history[2]["objective"] > run.history[1]["objective"]
        assert run.history[3]["objective"] < run.history[2]["objective"]
        assert len(run.history) > 5
        assert run.state.final_objective == pytest.approx(undisturbed.state.final_objective, rel=1e-4)

    def test_a_site_that_lost_its_state_is_told_again(self, sites):
        engine = TestEngine(sites)

        def forget(site, phase, exchange, answer):
            if site == LIAR and exchange == 3:
                engine.engine.states[LIAR] = replace(engine.engine.states[LIAR], rows=None, parameters=None)
            return answer

        engine.tamper = forget
        run, _ = run_sites(make_plan(max_rounds=4), engine)
        assert [record["clients"] for record in run.history] == [4, 4, 3, 4]
        assert "before the references came" in run.history[2]["refused"][LIAR]

    def test_a_fraction_of_the_sites_is_asked_in_rounds_only(self, sites):
        run, engine = run_sites(make_plan(max_rounds=6), sites, fraction=0.5)
        asked = dict.fromkeys(map(frozenset, engine.sent[2:-1]))
        assert [len(sent) for sent in engine.sent] == [4, 4, 2, 2, 2, 2, 2, 2, 4]
        assert len(asked) > 1  # not the same two each time
        assert [record["clients"] for record in run.history] == [2] * 6
        assert_same_model(run, run_sites(make_plan(max_rounds=6), sites, fraction=0.5)[0])

    def test_a_fraction_never_asks_fewer_than_the_quorum(self):
        state = ServerState(phase="round", exchange=3)
        names = [f"s{i}" for i in range(10)]
        for fraction, min_sites, count in ((0.01, 1, 1), (0.25, 1, 2), (0.25, 4, 4), (0.25, 40, 10), (0.99, 1, 10)):
            asked = participants(make_plan(), state, names, Participation(fraction, min_sites))
            assert len(asked) == count
            assert asked == sorted(set(asked) & set(names))


class TestSmallSites:
    """Sites that hold little take part as they are."""

    def everything_works(self, sites, **options):
        for protocol in ("statistics", "centers"):
            model = EFKMVC(3, n_init=2, max_rounds=4, protocol=protocol, random_state=0, **options).fit(sites)
            assert all(not record["refused"] for record in model.history_)
            assert {record["clients"] for record in model.history_} == {len(sites)}
            assert all(np.isfinite(centers).all() for centers in model.cluster_centers_)
            assert model.view_weights_.sum() == pytest.approx(1)
            for name, views in sites.items():
                rows = next(len(view) for view in views if view is not None)
                assert model.labels_[name].shape == (rows,)
                assert_allclose(model.memberships_[name].sum(axis=1), np.ones(rows))
        return model

    def test_a_site_with_one_row(self, sites):
        self.everything_works(sites | {"tiny": [view[:1] for view in sites[LIAR]]})

    def test_an_empty_site(self, sites):
        self.everything_works(sites | {"empty": [view[:0] for view in sites[LIAR]]})

    def test_an_empty_site_that_lacks_a_view_with_coefficients(self, sites):
        self.everything_works(sites | {"empty": [sites[LIAR][0][:0], None]}, heat_coef="absdev")

    def test_a_site_with_fewer_rows_than_clusters(self, sites):
        self.everything_works(sites | {"two": [view[:2] for view in sites[LIAR]]})

    @pytest.mark.parametrize("view_weights", ["auto", "learned"])
    def test_sites_that_lack_views(self, sites, view_weights):
        gaps = {"aosta": [None, sites[LIAR][1]], "zug": [sites[LIAR][0], None]}
        model = self.everything_works(sites | gaps, view_weights=view_weights)
        assert [centers.shape[1] for centers in model.cluster_centers_] == [3, 4]
        assert model.view_names_ == ["view_0", "view_1"]
        assert 0.05 < model.view_weights_[0] < 0.95

    def test_a_view_that_only_one_site_has(self, sites):
        only = {name: [*views, None] for name, views in sites.items()}
        only["rome"][2] = sites["rome"][0] ** 2
        model = self.everything_works(only)
        assert model.cluster_centers_[2].shape == (3, 3)

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
            after=[lambda current: states.append(current.state.progress)],
        )
        before, after = states[2].parameters, run.state.progress.parameters
        assert before.view_weights[2] == pytest.approx(after.view_weights[2], rel=1e-12)
        assert_array_equal(before.centers[2], after.centers[2])
        assert after.view_weights.sum() == pytest.approx(1)

    def test_float32_rows_on_their_own_centres_are_not_refused(self):
        rng = np.random.default_rng(0)
        rows = [rng.normal(size=(3, width)).astype(np.float32) for width in (3, 4)]
        sites = {f"s{i}": [np.repeat(view[[i % 3]], 5, axis=0) for view in rows] for i in range(6)}
        model = EFKMVC(3, init=rows, max_rounds=6, tol=0).fit(sites)
        assert [record["refused"] for record in model.history_] == [{}] * 6

    def test_sites_that_all_have_one_row_cannot_give_a_start(self):
        rng = np.random.default_rng(0)
        sites = {f"s{i}": [rng.normal(size=(1, 3))] for i in range(6)}
        with pytest.raises(DataError, match=r"mean of at least 2 rows, and no site has 2. Give centres as init"):
            EFKMVC(2, random_state=0).fit(sites)
        start = [np.vstack([sites["s0"][0], sites["s1"][0]])]
        assert EFKMVC(2, init=start).fit(sites).converged_

    def test_all_sites_empty(self, sites):
        with pytest.raises(DataError, match=r"no observed value at any site"):
            EFKMVC(2).fit({name: [view[:0] for view in views] for name, views in sites.items()})

    def test_fewer_rows_than_clusters_in_all(self, sites):
        with pytest.raises(DataError, match=r"n_samples=4, which should be >= n_clusters=5"):
            EFKMVC(5).fit({name: [view[:1] for view in views] for name, views in sites.items()})
