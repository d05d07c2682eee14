"""Statistics: any split gives the model of the pooled rows; in a basis few bytes do, and the objective never rises."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from federations import (
    Stop,
    TestEngine,
    assert_near,
    assert_same_model,
    fit_recorded,
    make_plan,
    make_sites,
    parameters_of,
    published,
    read_reply,
    read_request,
    run_sites,
    with_field,
)
from fedhk import EFKMVC, FedHKParafac2, FedHKTucker, HeatKernelMVC, datasets
from fedhk.federation.checkpoint import load_run, save_run
from fedhk.federation.engines import inprocess
from fedhk.federation.entries import Basis, Space
from fedhk.federation.protocols.statistics import MovesRequest, StatisticsRequest, _reply
from fedhk.federation.run import Run
from fedhk.federation.table import PRECISIONS, Table
from fedhk.model import rows as model_rows
from fedhk.model.statistics import Statistics as RowStatistics
from fedhk.protocols import Statistics
from fedhk.tensors.low_rank import LowRankForm

N_CLUSTERS = 3
SHAPE = (14, 9, 11)
LIAR = "oslo"
FIRST_SWEEPS = 10  # enough for clusters to be found; see `short_first_fit`
STEP_SWEEPS = 3
pytestmark = [
    pytest.mark.usefixtures("short_first_fit"),
    # fits of few rounds on purpose: what they have at the end is compared
    pytest.mark.filterwarnings("ignore:.* did not converge:sklearn.exceptions.ConvergenceWarning"),
    # sites of a few rows each need not fill every cluster
    pytest.mark.filterwarnings("ignore:.* clusters that have rows:sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(2, 60, n_clusters=N_CLUSTERS, n_features=(4, 7), separation=3, random_state=5)


def split(data, n_sites, kind):
    if kind == "even":
        rows = datasets.split_even(len(data.labels), n_sites, random_state=1)
    else:
        rows = datasets.split_dirichlet(data.labels, n_sites, 0.1, random_state=1)
    return datasets.split_views(data.views, rows)


def with_gaps(sites, gaps):
    """Sites with missing cells, or without some views; the first site has all views."""
    rng = np.random.default_rng(0)
    result = {}
    for i, (name, views) in enumerate(sites.items()):
        views = [view.copy() for view in views]  # noqa: PLW2901
        if gaps == "cells":
            for view in views:
                view[rng.random(view.shape) < 0.15] = np.nan
        elif gaps == "views" and i % 3:
            views[i % 3 - 1] = None
        result[name] = views
    return result


def pooled(sites):
    """All rows; NaN where a site does not have a view."""
    widths = [next(s[h].shape[1] for s in sites.values() if s[h] is not None) for h in range(2)]
    sizes = [next(len(view) for view in site if view is not None) for site in sites.values()]
    filled = [
        [np.full((n, width), np.nan) if view is None else view for view, width in zip(views, widths, strict=True)]
        for n, views in zip(sizes, sites.values(), strict=True)
    ]
    return [np.vstack(parts) for parts in zip(*filled, strict=True)]


def start_of(data):
    return [view[[0, 40, 100]] for view in data.views]


def assert_same_fit(federated, alone, atol=1e-9):
    for one, other in zip(federated.cluster_centers_, alone.cluster_centers_, strict=True):
        assert_allclose(one, other, rtol=0, atol=atol)
    assert_allclose(federated.view_weights_, alone.view_weights_, rtol=0, atol=atol)
    assert federated.objective_ == pytest.approx(alone.objective_, rel=atol, abs=atol)
    assert federated.n_iter_ == alone.n_iter_


# ------------------------------------------------------------------------------------------------------ nothing is lost

SPLITS = [(1, "even"), *((n, kind) for n in (3, 10) for kind in ("even", "dirichlet")), (50, "dirichlet")]
CASES = [(n, kind, gaps) for n, kind in SPLITS for gaps in ("complete", "cells", "views") if n > 1 or gaps != "views"]


class TestLossless:
    @pytest.mark.parametrize("view_weights", ["uniform", "learned"])
    @pytest.mark.parametrize("heat_coef", ["uniform", "minmax", "absdev"])
    @pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
    def test_any_split_gives_the_model_of_the_pooled_rows(self, data, case, heat_coef, view_weights):
        n_sites, kind, gaps = case
        sites = with_gaps(split(data, n_sites, kind), gaps)
        shared = {"heat_coef": heat_coef, "view_weights": view_weights, "init": start_of(data), "tol": 0.0}
        federated = EFKMVC(N_CLUSTERS, max_rounds=4, protocol="statistics", **shared).fit(sites)
        alone = HeatKernelMVC(N_CLUSTERS, max_iter=4, **shared).fit(pooled(sites))
        assert_same_fit(federated, alone)
        assert_array_equal(np.concatenate(list(federated.labels_.values())), alone.labels_)

    @given(
        seed=st.integers(0, 2**16),
        sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
        scaling=st.sampled_from(["standard", "minmax", "l2", "none"]),
        heat_coef=st.sampled_from(["uniform", "minmax", "absdev"]),
        tol=st.sampled_from([0.0, 1e-3]),
    )
    @settings(max_examples=25)
    def test_sites_of_any_sizes_with_any_scaling_lose_nothing(self, seed, sizes, scaling, heat_coef, tol):
        rng = np.random.default_rng(seed)
        sizes = [*sizes, 4]
        views = [rng.normal(size=(sum(sizes), width)) * 10 ** rng.uniform(-3, 3) for width in (1, 3)]
        bounds = np.cumsum(sizes)[:-1]
        parts = zip(*(np.split(v, bounds) for v in views), strict=True)
        sites = {f"s{i}": list(part) for i, part in enumerate(parts)}
        # with "l2" rows have length 1, and so must centres: one far outside is moved by nothing but rounding
        lengths = [np.linalg.norm(view[-2:], axis=1, keepdims=True) if scaling == "l2" else 1 for view in views]
        start = [view[-2:] / length for view, length in zip(views, lengths, strict=True)]
        shared = {"scaling": scaling, "heat_coef": heat_coef, "init": start, "tol": tol}
        federated = EFKMVC(2, max_rounds=5, **shared).fit(sites)
        alone = HeatKernelMVC(2, max_iter=5, **shared).fit(views)
        for one, other, view in zip(federated.cluster_centers_, alone.cluster_centers_, views, strict=True):
            assert_allclose(one, other, rtol=0, atol=1e-9 * np.abs(view).max())
        assert federated.objective_ == pytest.approx(alone.objective_, rel=1e-9, abs=1e-12)

    def test_converges_in_the_same_round_as_pooled_rows(self, data):
        sites = split(data, 10, "dirichlet")
        federated = EFKMVC(N_CLUSTERS, init=start_of(data)).fit(sites)
        alone = HeatKernelMVC(N_CLUSTERS, init=start_of(data)).fit(pooled(sites))
        assert_same_fit(federated, alone)
        assert federated.converged_
        assert 2 < federated.n_iter_ < 100
        assert [r["objective"] for r in federated.history_] == pytest.approx([r["objective"] for r in alone.history_])

    @pytest.mark.parametrize("init", ["k-means++", "random"])
    def test_the_default_start_needs_no_rows_and_finds_the_clusters_of_pooled_rows(self, data, init):
        sites = split(data, 5, "dirichlet")
        federated = EFKMVC(N_CLUSTERS, init=init, random_state=0).fit(sites)
        weights = federated.view_weights_
        same = HeatKernelMVC(N_CLUSTERS, random_state=0, fuzzifier=federated.fuzzifier_, view_weights=weights)
        assert federated.objective_ <= 1.01 * same.fit(pooled(sites)).objective_

    @given(order=st.permutations(range(6)))
    @settings(max_examples=8)
    def test_any_order_of_sites_gives_the_same_bits(self, small_fit, order):
        sites, model = small_fit
        names = list(sites)
        turned = clone(model).fit({names[i]: sites[names[i]] for i in order})
        for one, other in zip(turned.cluster_centers_, model.cluster_centers_, strict=True):
            assert_array_equal(one, other)


@pytest.fixture(scope="module")
def small_fit():
    sites = datasets.make_sites(6, 15, n_clusters=3, n_features=(3, 4), random_state=2).sites
    return sites, EFKMVC(3, n_init=2, max_rounds=3, random_state=0).fit(sites)


def test_a_cost_that_rounds_below_zero_is_sent_as_zero():
    statistics = RowStatistics((np.zeros((1, 1)),), (np.ones((1, 1)),), np.array([-1e-8]), np.ones(1), 0.0, 1.0)
    sent = _reply(statistics, statistics.numerators, statistics.weights, "double")
    assert sent.costs.tolist() == [0.0]
    assert (sent.masses.tolist(), sent.objective, sent.rows) == ([1.0], 0.0, 1.0)


# ------------------------------------------------------------------------------------------------------------ the basis


def form_of(name, rank):
    return LowRankForm(name, rank)


def tensor_plan(name="tucker", rank=(3, 3, 2), n_clusters=3, *, precision="auto", refresh_every=0, **changes):
    protocol = Statistics(basis=True, precision=precision, refresh_every=refresh_every)
    return make_plan(n_clusters, **{"protocol": protocol, "form": form_of(name, rank)} | changes)


@pytest.fixture(scope="module")
def wide():
    return datasets.make_sites(3, 40, n_clusters=3, n_features=SHAPE, shift=0.3, separation=5, random_state=5)


@pytest.fixture(scope="module")
def sites(wide):
    return dict(zip([LIAR, "rome", "turin"], wide.sites.values(), strict=True))


@pytest.fixture(scope="module")
def start(wide):
    return [view[[0, 40, 100]] for view in wide.views]


FORMS = [("tucker", (3, 3, 2)), ("tucker", (2, 2, 3)), ("parafac2", 3)]


class TestACompleteBasis:
    """Where the basis spans all features, nothing is lost."""

    @pytest.mark.parametrize("view_weights", ["uniform", "learned"])
    @pytest.mark.parametrize("init", ["k-means++", "given"])
    @pytest.mark.parametrize(
        ("name", "rank", "widths"),
        [("tucker", (2, 6, 2), (6, 4, 5)), ("tucker", (3, 6, 2), (6, 4, 5)), ("parafac2", 4, (4, 4, 4))],
    )
    def test_equals_full_statistics(self, name, rank, widths, init, view_weights):
        data = datasets.make_sites(3, 30, n_clusters=3, n_features=widths, missing_views=0.3, random_state=1)
        given_start = [view[[0, 30, 60]] for view in datasets.make_sites(1, 90, 3, widths, random_state=2).views]
        changes = {"init": given_start if init == "given" else init, "view_weights": view_weights, "max_rounds": 4}
        every = 5 if init == "given" else 0  # centres that were given span no basis
        cores, _ = run_sites(tensor_plan(name, rank, precision="double", refresh_every=every, **changes), data.sites)
        full, _ = run_sites(make_plan(form=form_of(name, rank), **changes), data.sites)
        assert [e.shape for e in cores.board.get(Basis).columns] == [(width, width) for width in widths]
        # directions that the data leave open are decided by a trace of the last basis, where rounding counts for more
        assert_near(cores, full, 1e-8)

    @pytest.mark.parametrize(("estimator", "rank"), [(FedHKTucker, (3, 4, 2)), (FedHKParafac2, 3)])
    def test_at_full_rank_equals_the_model_without_form(self, estimator, rank):
        data = datasets.make_sites(3, 30, n_clusters=3, n_features=(4, 5), random_state=1)
        shared = {"n_init": 3, "random_state": 0, "tol": 0, "max_rounds": 5}
        protocol = Statistics(basis=True, precision="double")
        cores = estimator(3, rank=rank, protocol=protocol, **shared).fit(data.sites)
        plain = EFKMVC(3, **shared).fit(data.sites)
        for one, other in zip(cores.cluster_centers_, plain.cluster_centers_, strict=True):
            assert_allclose(one, other, rtol=0, atol=1e-7)
        assert cores.objective_ == pytest.approx(plain.objective_, rel=1e-7)


class TestBasis:
    @pytest.mark.parametrize("refresh_every", [1, 2, 3])
    @pytest.mark.parametrize(("name", "rank"), FORMS)
    def test_any_split_of_rows_gives_the_model_of_one_site(self, wide, start, name, rank, refresh_every):
        options = {"init": start, "view_weights": "learned", "max_rounds": 4}
        plan = tensor_plan(name, rank, precision="double", refresh_every=refresh_every, **options)
        alone, _ = run_sites(plan, {"only": wide.views})
        for n_sites, seed in ((2, 0), (5, 1)):
            rows = datasets.split_dirichlet(wide.labels, n_sites, 0.3, random_state=seed)
            spread, _ = run_sites(plan, datasets.split_views(wide.views, rows))
            assert_near(spread, alone, 1e-9)

    def test_any_split_of_rows_with_gaps_gives_the_model_of_one_site_where_every_round_has_full_sums(self, wide, start):
        rng = np.random.default_rng(0)
        views = [np.where(rng.random(view.shape) < 0.1, np.nan, view) for view in wide.views]
        plan = tensor_plan(init=start, precision="double", refresh_every=1, heat_coef="absdev", max_rounds=4)
        alone, _ = run_sites(plan, {"only": views})
        rows = datasets.split_dirichlet(wide.labels, 5, 0.3, random_state=0)
        assert_near(run_sites(plan, datasets.split_views(views, rows))[0], alone, 1e-9)

    @pytest.mark.parametrize("precision", ["double", "byte"])
    def test_neither_order_nor_workers_change_a_bit(self, sites, monkeypatch, precision):
        plan = tensor_plan(precision=precision, view_weights="learned", max_rounds=2, n_init=1)
        expected, _ = run_sites(plan, sites)
        for names in (reversed(sites), sorted(sites, key=lambda name: name[1])):
            assert_same_model(run_sites(plan, {name: sites[name] for name in names})[0], expected)
        monkeypatch.setattr(inprocess, "WORTH_A_THREAD", 0)
        monkeypatch.setattr(model_rows, "PASS_BYTES", 2**10)
        one, _ = run_sites(plan, sites)
        assert_same_model(run_sites(plan, sites, workers=3)[0], one)

    def test_a_new_basis_goes_to_all_and_only_then(self, sites):
        plan = tensor_plan(refresh_every=2, max_rounds=6, precision="double")
        _, engine = run_sites(plan, sites)
        first = engine.phases.index("round")
        requests = [read_request(exchange["rome"]) for exchange in engine.sent[first : first + 6]]
        full = [type(request) is StatisticsRequest for request in requests]
        assert full == [False, False, True, False, True, False]
        sent = ["Basis" in published(exchange["rome"]) for exchange in engine.sent[first:]]
        assert sent == [True, False, False, True, False, True, False]
        widths = [read_reply(exchange["rome"]).sums.values.shape[1] for exchange in engine.received[first : first + 6]]
        assert [width == sum(SHAPE) for width in widths] == full

    def test_given_centres_ask_for_full_sums_at_once(self, sites, start):
        _, engine = run_sites(tensor_plan(init=start, refresh_every=5, max_rounds=2), sites)
        first = engine.phases.index("round")
        assert type(read_request(engine.sent[first]["rome"])) is StatisticsRequest
        assert type(read_request(engine.sent[first + 1]["rome"])) is MovesRequest

    @pytest.mark.parametrize("given_start", [True, False])
    def test_without_a_number_the_basis_is_made_anew_only_where_candidates_could_not_give_one(
        self, sites, start, given_start
    ):
        changes = {"init": start} if given_start else {}
        plan = make_plan(protocol=Statistics(basis=True), max_rounds=7, **changes)
        _, engine = run_sites(plan, sites)
        first = engine.phases.index("round")
        requests = [type(read_request(exchange["rome"])) for exchange in engine.sent[first : first + 7]]
        full = [request is StatisticsRequest for request in requests]
        assert full == [given_start and i in (0, 5) for i in range(7)]

    def test_auto_is_a_basis_where_views_are_wide(self, rounded):
        for protocol, basis in ((Statistics(basis="auto"), True), (Statistics(), False), ("auto", True)):
            run, _ = run_sites(make_plan(protocol=protocol, max_rounds=1), rounded.sites)
            assert run.board.has(Basis) == basis
        narrow = datasets.make_sites(3, 20, n_clusters=3, n_features=(3, 4), random_state=0).sites
        run, _ = run_sites(make_plan(protocol="auto", max_rounds=1), narrow)
        assert not run.board.has(Basis)

    def test_centres_stay_in_the_span_of_the_basis(self, sites):
        run, _ = run_sites(make_plan(protocol=Statistics(basis=True), max_rounds=4), sites)
        for centers, columns in zip(parameters_of(run).centers, run.board.get(Basis).columns, strict=True):
            assert_allclose(columns.T @ columns, np.eye(columns.shape[1]), atol=1e-12)
            assert_allclose(centers @ columns @ columns.T, centers, atol=1e-9)
            assert columns.shape[1] < columns.shape[0]


@st.composite
def federations(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_clusters = draw(st.integers(2, 4))
    widths = draw(st.lists(st.integers(2, 16), min_size=1, max_size=3))
    missing = draw(st.sampled_from([0.0, 0.4])) if len(widths) > 1 else 0.0
    seed = int(rng.integers(2**31))
    data = datasets.make_sites(3, 12, n_clusters, widths, shift=0.3, missing_views=missing, random_state=seed)
    tables = [view for site in data.sites.values() for view in site if view is not None]
    if draw(st.booleans()):
        for view in tables:
            view[1:][rng.random(view[1:].shape) < 0.15] = np.nan
    tucker = draw(st.booleans())
    rank = (
        tuple(int(rng.integers(1, most + 1)) for most in (n_clusters, max(widths), len(widths)))
        if tucker
        else int(rng.integers(1, min(*widths, n_clusters * ((len(widths) + 1) // 2)) + 1))
    )
    given_start = [3 * rng.normal(size=(n_clusters, width)) for width in widths]
    model = (FedHKTucker if tucker else FedHKParafac2)(
        n_clusters,
        rank=draw(st.sampled_from([rank, rank, 0.8])),
        protocol=Statistics(basis=True, precision="double", refresh_every=draw(st.sampled_from([0, 1, 2, 2, 3]))),
        heat_coef=draw(st.sampled_from(["uniform", "minmax", "absdev"])),
        view_weights=draw(st.sampled_from(["uniform", "learned"])),
        fuzzifier=draw(st.sampled_from([1.05, 1.5])),
        init=given_start if draw(st.booleans()) else "k-means++",
        n_init=1,
        max_rounds=6,
        tol=0,
        random_state=0,
    )
    return data.sites, model


@given(federations())
@settings(max_examples=18)
@pytest.mark.filterwarnings("ignore:.*belong to all clusters almost alike:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*of what tells free centres apart:sklearn.exceptions.ConvergenceWarning")
def test_in_a_basis_the_objective_never_rises(case):
    sites, model = case
    model.fit(sites)
    found = np.array([record["objective"] for record in model.history_] + [model.objective_])
    # a new basis leaves out directions that hold less than 1e-20 of the squares of the centres
    assert np.all(np.diff(found) <= 1e-9 * found[:-1] + 1e-14)


# ------------------------------------------------------------------------------------------------------------- absences


def silent_in(exchanges):
    return lambda site, _, exchange, answer: None if site == LIAR and exchange in exchanges else answer


@pytest.mark.parametrize("precision", ["double", "byte"])
class TestAbsences:
    def test_a_site_that_comes_back_without_memory_is_told_all_again(self, sites, precision):
        plan = tensor_plan(precision=precision, max_rounds=5, n_init=1)
        away, _ = run_sites(plan, sites, tamper=silent_in([3, 4]))
        engine = TestEngine(sites)
        fresh = make_sites(sites)[LIAR]

        def forget(site, phase, exchange, answer):
            if site != LIAR or exchange not in (3, 4):
                return answer
            engine.states[LIAR] = fresh  # restarted: references and basis are gone
            return None

        engine.tamper = forget
        run, _ = run_sites(plan, engine)
        assert_same_model(run, away)
        assert [record["clients"] for record in run.history] == [3, 2, 2, 3, 3]
        assert published(engine.sent[5][LIAR]) == ["Schema", "References", "Basis"]
        assert published(engine.sent[5]["rome"]) == []
        assert len(engine.sent[6][LIAR]) < len(engine.sent[5][LIAR])

    def test_a_site_that_forgot_everything_unseen_misses_one_round(self, sites, precision):
        plan = tensor_plan(precision=precision, max_rounds=5, n_init=1)
        engine = TestEngine(sites)
        fresh = make_sites(sites)[LIAR]

        def forget(site, phase, exchange, answer):
            if site == LIAR and exchange == 3:
                engine.states[LIAR] = fresh
            return answer

        engine.tamper = forget
        run, _ = run_sites(plan, engine)
        assert_same_model(run, run_sites(plan, sites, tamper=silent_in([4]))[0])
        assert re.search("asked before '(References|Basis)' was published", run.history[2]["refused"][LIAR])
        assert [record["clients"] for record in run.history] == [3, 3, 2, 3, 3]

    def test_a_site_that_joins_late_takes_part(self, sites, precision):
        plan = tensor_plan(precision=precision, max_rounds=5, n_init=1)
        others = [name for name in sites if name != LIAR]
        run, engine = run_sites(plan, sites, present=lambda exchange: others if exchange < 4 else list(sites))
        assert [record["clients"] for record in run.history] == [2, 2, 3, 3, 3]
        assert all(record["refused"] == {} for record in run.history)
        assert "References" in published(engine.sent[4][LIAR])
        assert np.isfinite(np.hstack(parameters_of(run).centers)).all()


def test_a_run_that_stops_again_and_again_goes_on_to_the_same_bits(sites, tmp_path):
    plan = tensor_plan(precision="byte", refresh_every=2, max_rounds=6, heat_coef="minmax", view_weights="learned")
    expected, _ = run_sites(plan, sites, fraction=0.7)
    run, stored = Run(), {"seed": plan.seed}

    def save_then_stop(current):
        save_run(tmp_path, current, stored)
        raise Stop

    for _ in range(9):  # as many exchanges as there are
        with pytest.raises(Stop):
            run_sites(plan, sites, fraction=0.7, run=run, after=[save_then_stop])
        run, _ = load_run(tmp_path, stored)
    assert_same_model(run_sites(plan, sites, fraction=0.7, run=run)[0], expected)


# ----------------------------------------------------------------------------------------------------------------- lies


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def always(value):
    return lambda *_: value


# Runs without the liar's answer, by plan: several lies are compared with each.
AWAY = {}


def assert_refused(plan, sites, change, reason, *, key, exchange=2):
    run, engine = run_sites(
        plan, sites, tamper=lambda site, _, n, answer: change(answer) if (site, n) == (LIAR, exchange) else answer
    )
    if (key, exchange) not in AWAY:
        AWAY[key, exchange] = run_sites(plan, sites, tamper=silent_in([exchange]))[0]
    assert_same_model(run, AWAY[key, exchange])
    number = exchange - engine.phases.index("round")
    clients = [record["clients"] for record in run.history]
    assert clients == [len(sites) - (i == number) for i in range(plan.max_rounds)]
    assert list(run.history[number]["refused"]) == [LIAR]
    assert re.search(reason, run.history[number]["refused"][LIAR]), run.history[number]["refused"]


LIES = {
    "wrong shape": (with_field("sums.values", lambda a: a[:, 1:]), "sums have shape"),
    "too few weights": (with_field("weights", lambda w: w[1:]), "weights of 2 views, expected 3"),
    "weights of another width": (with_field("weights.0", lambda a: np.repeat(a, 2, 1)), "weights with 2 columns"),
    "NaN": (with_field("sums.values", put((0, 0), np.nan)), "NaN or infinite"),
    "infinite": (with_field("sums.values", put((0, 0), np.inf)), "NaN or infinite"),
    "huge": (with_field("sums.values", put((0, 0), 1e300)), "no rows can have"),
    "negative counts": (with_field("weights.0", put((0, 0), -1.0)), "values below zero"),
    "negative rows": (with_field("rows", always(-5.0)), "values below zero"),
    "more mass than rows": (with_field("masses", put(0, 1e6)), "masses or costs larger"),
    "impossible objective": (with_field("objective", always(1e9)), "objective"),
    "rows beyond counting": (with_field("rows", always(1e300)), "rows"),
    "rows of NaN": (with_field("rows", always(np.nan)), "NaN or infinite"),
    "whole numbers": (with_field("sums.values", lambda a: a.astype(np.int64)), "type int64"),
    "bytes that nobody asked for": (with_field("sums.values", lambda a: a.astype(np.int8)), "scales of sums"),
    "costs of another shape": (with_field("costs", lambda a: a[1:]), "costs have shape"),
    "masses of another shape": (with_field("masses", lambda a: a[:, None]), "masses have shape"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_the_round_goes_on_as_if_nothing_had_come(sites, start, lie):
    change, reason = LIES[lie]
    assert_refused(make_plan(init=start, max_rounds=3), sites, change, reason, key="full")


CORES_LIES = {
    "NaN": ("double", with_field("sums.values", put((0, 0), np.nan)), "NaN or infinite"),
    "infinite": ("double", with_field("sums.values", put((0, 0), np.inf)), "NaN or infinite"),
    "huge": ("double", with_field("sums.values", put((0, 0), 1e300)), "further than any row is"),
    "huge halves": ("half", with_field("sums.values", put((0, 0), np.inf)), "NaN or infinite"),
    "wrong shape": ("double", with_field("sums.values", lambda a: a[:, 1:]), "sums have shape"),
    "one cluster less": ("double", with_field("sums.values", lambda a: a[1:]), "sums have shape"),
    "flat": ("double", with_field("sums.values", np.ravel), "sums have shape"),
    "no moves": ("double", with_field("sums.values", lambda a: a[:0, :0]), "sums have shape"),
    "negative weights": ("double", with_field("weights.0", put((0, 0), -1.0)), "below zero"),
    "huge weights": ("double", with_field("weights.0", put((0, 0), 1e300)), "larger than the"),
    "weights of another shape": ("double", with_field("weights.0", lambda a: a[1:]), "weights have shape"),
    "a mass larger than the rows": ("double", with_field("masses", put(0, 1e6)), "larger than the"),
    "masses larger than the rows": ("double", with_field("masses", lambda a: a + 40.0), "larger than the"),
    "costs larger than the rows": ("double", with_field("costs", put(0, 1e6)), "larger than the"),
    "negative masses": ("double", with_field("masses", put(0, -1.0)), "below zero"),
    "an impossible objective": ("double", with_field("objective", always(1e9)), "objective"),
    "rows beyond counting": ("double", with_field("rows", always(1e300)), "rows"),
    "bytes without scale": ("byte", with_field("sums.scale", lambda a: a[:0]), "scales of sums have shape"),
    "a negative scale": ("byte", with_field("sums.scale", put(0, -1.0)), "below zero"),
    "a scale of NaN": ("byte", with_field("sums.scale", put(0, np.nan)), "NaN or infinite"),
    "a huge scale": ("byte", with_field("sums.scale", lambda a: a + np.float32(1e38)), "further than any row is"),
    "scales of another shape": ("byte", with_field("sums.scale", lambda a: a[1:]), "scales of sums have shape"),
    "bytes that are missing": ("byte", with_field("sums.values", put((0, 0), -128)), "NaN or infinite"),
    "numbers for bytes": ("byte", with_field("sums.values", lambda a: a.astype(float)), "not in bytes"),
    "full sums that nobody asked for": (
        "double",
        with_field("sums", lambda _: Table(np.zeros((3, sum(SHAPE))), np.zeros(0))),
        "sums have shape",
    ),
}


@pytest.mark.parametrize("lie", CORES_LIES)
def test_a_lie_in_the_basis_is_refused_and_the_round_goes_on_as_if_nothing_had_come(sites, start, lie):
    precision, change, reason = CORES_LIES[lie]
    plan = tensor_plan(precision=precision, init=start, refresh_every=5, max_rounds=3)
    assert_refused(plan, sites, change, reason, key=("basis", precision))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_field("sums.values", put((0, 0), -128)), "NaN or infinite"),
        (with_field("sums.scale", put(0, -1.0)), "below zero"),
        (with_field("sums.scale", lambda a: a[:0]), "scales of sums have shape"),
        (with_field("sums.scale", lambda a: a + np.float32(1e38)), "no rows can have"),
    ],
)
def test_a_lie_in_full_sums_of_low_precision_is_refused(sites, start, change, reason):
    plan = tensor_plan(precision="byte", init=start, refresh_every=1, max_rounds=3)
    assert_refused(plan, sites, change, reason, key="means")


# ------------------------------------------------------------------------------------------------------------ precision


@pytest.fixture(scope="module")
def rounded():
    return datasets.make_sites(3, 60, n_clusters=4, n_features=(60, 40, 50), shift=0.2, separation=8, random_state=4)


def score(data, model):
    truth = np.concatenate(list(data.site_labels.values()))
    return adjusted_rand_score(truth, np.concatenate([model.labels_[site] for site in data.site_labels]))


def round_sizes(engine):
    """Bytes of three rounds after the first, up and down."""
    first = engine.phases.index("round")
    return [
        sum(len(m) for exchange in messages[first + 1 : first + 4] for m in exchange.values())
        for messages in (engine.received, engine.sent)
    ]


@pytest.mark.parametrize(
    ("estimator", "basis"),
    [(FedHKTucker, True), (FedHKParafac2, True), (FedHKTucker, False), (EFKMVC, True), (EFKMVC, False)],
)
def test_lower_precision_finds_the_same_clusters_in_smaller_messages(monkeypatch, rounded, estimator, basis):
    scores, sizes = {}, {}
    for precision in PRECISIONS:
        protocol = Statistics(basis=basis, precision=precision)
        model = estimator(4, protocol=protocol, max_rounds=4, tol=0, n_init=2, random_state=0)
        model, engine = fit_recorded(model, rounded.sites, monkeypatch)
        first = engine.phases.index("round")
        for direction, messages in (("bytes_up", engine.received), ("bytes_down", engine.sent)):
            lengths = [sum(map(len, exchange.values())) for exchange in messages]
            # the last record has the end too and, where numbers were rounded, an exchange that measures the last model
            expected = [sum(lengths[: first + 1]), *lengths[first + 1 : first + 3], sum(lengths[first + 3 :])]
            assert [record[direction] for record in model.history_] == expected
        scores[precision] = score(rounded, model)
        sizes[precision] = round_sizes(engine)
        assert all(np.isfinite(record["objective"]) for record in model.history_)
    assert scores["double"] > 0.9
    assert min(scores.values()) >= scores["double"] - 0.02
    up, down = ([sizes[precision][way] for precision in PRECISIONS] for way in (0, 1))
    assert up[0] > up[1] > up[2] > up[3]
    assert down[0] > down[1] > down[2]
    if basis:  # the default, against what the exact protocol sends
        exact, engine = fit_recorded(
            EFKMVC(4, max_rounds=4, tol=0, n_init=2, random_state=0), rounded.sites, monkeypatch
        )
        assert exact.objective_ > 0
        assert up[3] < 0.3 * round_sizes(engine)[0]


def test_auto_is_bytes_in_a_basis_and_double_else(rounded):
    for basis, expected in [(True, "int8"), ("auto", "int8"), (False, "float64")]:
        _, engine = run_sites(make_plan(4, protocol=Statistics(basis=basis), max_rounds=1, n_init=1), rounded.sites)
        answer = next(iter(engine.received[engine.phases.index("round")].values()))
        assert read_reply(answer).sums.values.dtype.name == expected


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"basis": "never"}, "basis='never' must be True, False or 'auto'"),
            ({"precision": "quarter"}, "precision='quarter' must be one of"),
            ({"basis": True, "refresh_every": -1}, "refresh_every=-1 must be None or a whole number from 0 on"),
            ({"basis": True, "refresh_every": 1.5}, "refresh_every=1.5 must be"),
            ({"basis": True, "refresh_every": True}, "refresh_every=True must be"),
            ({"refresh_every": 3}, "refresh_every=3 has no effect with basis=False"),
        ],
    )
    def test_what_is_wrong_or_without_effect_is_refused_by_name(self, options, said):
        with pytest.raises(ValueError, match=said):
            Statistics(**options)

    @pytest.mark.parametrize(("given_basis", "basis"), [(np.True_, True), (1, True), (np.False_, False), (0, False)])
    def test_what_equals_a_truth_value_is_one(self, given_basis, basis):
        """Or it would slip through where a basis is refused, and could not be saved."""
        assert Statistics(basis=given_basis).basis is basis
        if not basis:
            with pytest.raises(ValueError, match="refresh_every=3 has no effect"):
                Statistics(basis=given_basis, refresh_every=3)

    def test_the_space_has_the_widths_of_the_views(self, sites):
        run, _ = run_sites(make_plan(max_rounds=1), sites)
        assert run.board.get(Space).widths == SHAPE
