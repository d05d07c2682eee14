"""The cores and factors protocols: what they equal, what no gauge, order or fault changes, and what they refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from federations import Stop, TestEngine, assert_same_model, make_plan, resumed_after, run_sites, site_states
from fedhk import EFKMVC, FedHKParafac2, FedHKTucker, datasets
from fedhk.errors import CheckpointError
from fedhk.federation.checkpoint import describe_plan, load_run, save_run
from fedhk.federation.engines import inprocess
from fedhk.federation.messages import decode, encode
from fedhk.federation.run import Run, without_engine
from fedhk.model import rows as model_rows
from fedhk.tensors.low_rank import LowRank
from tensors.forms import regauged

SHAPE = (14, 9, 11)
LIAR = "oslo"


def tensor_plan(name="tucker", rank=(3, 3, 2), n_clusters=3, **changes):
    plan = make_plan(n_clusters, **{"protocol": "cores"} | changes)
    return replace(plan, settings=replace(plan.settings, decomposition=name, rank=rank))


STEP_SWEEPS = 3  # as good for protocols as more; see `short_first_fit`
pytestmark = pytest.mark.usefixtures("short_first_fit")


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(3, 40, n_clusters=3, n_features=SHAPE, shift=0.3, separation=5, random_state=5)


@pytest.fixture(scope="module")
def sites(data):
    return dict(zip([LIAR, "rome", "turin"], data.sites.values(), strict=True))


@pytest.fixture(scope="module")
def start(data):
    return [view[[0, 40, 100]] for view in data.views]


def final(run):
    return run.state.parameters


def objectives(run):
    return [record["objective"] for record in run.history] + [run.state.final_objective]


def assert_near(one, other, atol):
    for a, b in zip(final(one).centers, final(other).centers, strict=True):
        assert_allclose(a, b, rtol=0, atol=atol)
    assert_allclose(final(one).view_weights, final(other).view_weights, rtol=0, atol=atol)
    assert_allclose(objectives(one), objectives(other), rtol=atol)


FORMS = [("tucker", (3, 3, 2)), ("tucker", (2, 2, 3)), ("parafac2", 3)]


# ------------------------------------------------------------------------------------------------------ what is equal


class TestACompleteBasis:
    """Where the basis spans all features, nothing is lost."""

    @pytest.mark.parametrize("view_weights", ["uniform", "learned"])
    @pytest.mark.parametrize("init", ["k-fed", "given"])
    @pytest.mark.parametrize(
        ("name", "rank", "widths"),
        [("tucker", (2, 6, 2), (6, 4, 5)), ("tucker", (3, 6, 2), (6, 4, 5)), ("parafac2", 4, (4, 4, 4))],
    )
    def test_equals_full_statistics(self, name, rank, widths, init, view_weights):
        data = datasets.make_sites(3, 30, n_clusters=3, n_features=widths, missing_views=0.3, random_state=1)
        given = [view[[0, 30, 60]] for view in datasets.make_sites(1, 90, 3, widths, random_state=2).views]
        changes = {"init": given if init == "given" else init, "view_weights": view_weights, "max_rounds": 4}
        cores, full = (
            run_sites(tensor_plan(name, rank, protocol=protocol, **changes), data.sites)[0]
            for protocol in ("cores", "statistics")
        )
        assert [e.shape for e in cores.state.basis] == [(width, width) for width in widths]
        # directions that the data leave open are decided by a trace of the last basis, where rounding counts for more
        assert_near(cores, full, 1e-8)

    @pytest.mark.parametrize(("estimator", "rank"), [(FedHKTucker, (3, 4, 2)), (FedHKParafac2, 3)])
    def test_at_full_rank_equals_the_model_without_form(self, estimator, rank):
        data = datasets.make_sites(3, 30, n_clusters=3, n_features=(4, 5), random_state=1)
        shared = {"n_init": 3, "random_state": 0, "tol": 0, "max_rounds": 5}
        cores = estimator(3, rank=rank, protocol="cores", precision="double", **shared).fit(data.sites)
        plain = EFKMVC(3, **shared).fit(data.sites)
        for one, other in zip(cores.cluster_centers_, plain.cluster_centers_, strict=True):
            assert_allclose(one, other, rtol=0, atol=1e-7)
        assert cores.objective_ == pytest.approx(plain.objective_, rel=1e-7)


@pytest.mark.parametrize("refresh_every", [1, 2, 3])
@pytest.mark.parametrize(("name", "rank"), FORMS)
def test_any_split_of_rows_gives_the_model_of_one_site(data, start, name, rank, refresh_every):
    plan = tensor_plan(name, rank, init=start, refresh_every=refresh_every, view_weights="learned", max_rounds=4)
    alone, _ = run_sites(plan, {"only": data.views})
    for n_sites, seed in ((2, 0), (5, 1)):
        rows = datasets.split_dirichlet(data.labels, n_sites, 0.3, random_state=seed)
        spread, _ = run_sites(plan, datasets.split_views(data.views, rows))
        assert_near(spread, alone, 1e-9)


def test_any_split_of_rows_with_gaps_gives_the_model_of_one_site_where_every_round_has_full_sums(data, start):
    rng = np.random.default_rng(0)
    views = [np.where(rng.random(view.shape) < 0.1, np.nan, view) for view in data.views]
    plan = tensor_plan(init=start, refresh_every=1, heat_coef="absdev", max_rounds=4)
    alone, _ = run_sites(plan, {"only": views})
    rows = datasets.split_dirichlet(data.labels, 5, 0.3, random_state=0)
    assert_near(run_sites(plan, datasets.split_views(views, rows))[0], alone, 1e-9)


@pytest.mark.parametrize(("protocol", "precision"), [("cores", "double"), ("cores", "byte"), ("factors", "double")])
def test_neither_order_nor_workers_change_a_bit(sites, monkeypatch, protocol, precision):
    plan = tensor_plan(
        protocol=protocol, precision=precision, view_weights="learned", max_rounds=2, local_passes=1, n_init=1
    )
    expected, _ = run_sites(plan, sites)
    for names in (reversed(sites), sorted(sites, key=lambda name: name[1])):
        assert_same_model(run_sites(plan, {name: sites[name] for name in names})[0], expected)
    monkeypatch.setattr(inprocess, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(model_rows, "PASS_BYTES", 2**10)
    one, _ = run_sites(plan, sites)
    assert_same_model(run_sites(plan, sites, workers=3)[0], one)


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
        protocol="cores",
        precision="double",
        refresh_every=draw(st.sampled_from([0, 1, 2, 2, 3])),
        heat_coef=draw(st.sampled_from(["uniform", "minmax", "absdev"])),
        view_weights=draw(st.sampled_from(["uniform", "learned"])),
        fuzzifier=draw(st.sampled_from([1.05, 1.5])),
        init=given_start if draw(st.booleans()) else "k-fed",
        n_init=1,
        max_rounds=6,
        tol=0,
        random_state=0,
    )
    return data.sites, model


@given(federations())
@settings(max_examples=18)
def test_in_a_basis_the_objective_never_rises(case):
    sites, model = case
    model.fit(sites)
    found = np.array([record["objective"] for record in model.history_] + [model.objective_])
    # a new basis leaves out directions that hold less than 1e-20 of the squares of the centres
    assert np.all(np.diff(found) <= 1e-9 * found[:-1] + 1e-14)


# ------------------------------------------------------------------------------------------------------------- gauges


def other_gauge(generator):
    """A tamper that turns, permutes, flips and stretches the liar's factors without changing its centres."""

    def tamper(site, phase, exchange, answer):
        if site != LIAR or phase != "round":
            return answer
        message = decode(answer)
        parts = {name: array for name, array in message.arrays.items() if name.startswith("form.")}
        name = "tucker" if parts["form.core.0"].ndim == 3 else "parafac2"
        form = LowRank.from_arrays({"name": name, "error": 0.0, "widths": SHAPE}, parts)
        turned = replace(form, factors=regauged(form.decomposition, form.factors, generator))
        for a, b in zip(turned.centers(), form.centers(), strict=True):
            assert_allclose(a, b, atol=1e-10)
        return encode(replace(message, arrays=message.arrays | turned.to_arrays()[1]))

    return tamper


@pytest.mark.parametrize(
    ("options", "atol"),
    [
        ({"aggregation": "centers", "blend": 0.0, "local_passes": 2, "max_rounds": 2}, 1e-9),
        ({"aggregation": "centers", "blend": 0.5, "local_passes": 1, "max_rounds": 2}, 1e-9),
        ({"aggregation": "factors", "blend": 0.0, "local_passes": 1, "max_rounds": 1}, 1e-9),
        ({"aggregation": "factors", "blend": 0.5, "local_passes": 2, "max_rounds": 2}, 1e-6),
    ],
    ids=str,
)
@pytest.mark.parametrize(("name", "rank"), FORMS)
def test_the_gauge_of_a_sites_factors_changes_nothing(sites, name, rank, options, atol):
    plan = tensor_plan(name, rank, protocol="factors", n_init=1, **options)
    plain, _ = run_sites(plan, sites)
    turned, _ = run_sites(plan, sites, tamper=other_gauge(np.random.default_rng(1)))
    assert all(record["refused"] == {} for record in turned.history)
    assert_near(turned, plain, atol)


@pytest.mark.parametrize(("name", "rank"), FORMS)
def test_factors_of_one_site_in_one_pass_are_the_plain_iteration(data, start, name, rank):
    plan = tensor_plan(name, rank, protocol="factors", init=start, local_passes=1, max_rounds=3, view_weights="learned")
    factors, _ = run_sites(replace(plan, aggregation="factors"), {"only": data.views})
    plain, _ = run_sites(replace(plan, protocol="statistics"), {"only": data.views})
    assert_near(factors, plain, 1e-8)


def test_blend_of_nothing_is_no_blend_and_some_is(sites):
    runs = [
        run_sites(tensor_plan(protocol="factors", blend=b, max_rounds=2, local_passes=1, n_init=1), sites)[0]
        for b in (0.0, 0.5, 1.0)
    ]
    assert objectives(runs[0])[0] == objectives(runs[1])[0]  # nobody has factors of its own yet
    ends = [np.hstack(final(run).centers) for run in runs]
    assert not np.array_equal(ends[0], ends[1])
    assert all(np.isfinite(end).all() for end in ends)


# ----------------------------------------------------------------------------------------------- checkpoints, absences


def same_fit(one, other):
    for a, b in zip(one.cluster_centers_, other.cluster_centers_, strict=True):
        assert_array_equal(a, b)
    assert (one.objective_, one.n_iter_, one.rank_) == (other.objective_, other.n_iter_, other.rank_)
    assert one.reconstruction_error_ == other.reconstruction_error_
    for name in ("round", "objective", "clients", "bytes_up", "refused"):
        assert [r[name] for r in one.history_] == [r[name] for r in other.history_]
    for name in ("cluster_factor_", "view_factor_", "core_"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    for a, b in zip(one.feature_factors_, other.feature_factors_, strict=True):
        assert_array_equal(a, b)
    for site, labels in one.labels_.items():
        assert_array_equal(labels, other.labels_[site])


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (FedHKTucker, {"rank": (3, 3, 2), "protocol": "cores"}),
        (FedHKTucker, {"rank": (3, 3, 2), "protocol": "cores", "refresh_every": 1, "precision": "double"}),
        (FedHKTucker, {"rank": (3, 14, 3), "protocol": "cores", "precision": "half"}),  # a form that is made at the end
        (FedHKTucker, {"rank": "auto", "protocol": "factors"}),
        (FedHKParafac2, {"rank": 3, "protocol": "cores", "refresh_every": 1}),
        (FedHKParafac2, {"rank": 3, "protocol": "factors", "precision": "half", "aggregation": "factors"}),
    ],
    ids=str,
)
def test_a_fit_that_stops_after_any_exchange_goes_on_to_the_same_bits(sites, tmp_path, monkeypatch, estimator, options):
    options = options | {"n_init": 1, "max_rounds": 2, "tol": 0, "random_state": 0, "local_passes": 1}
    sites = {site: sites[site] for site in (LIAR, "rome")}
    if estimator is FedHKParafac2:
        options["init"] = [view[:3] for view in sites["rome"]]
    expected = estimator(3, **options, checkpoint=tmp_path / "whole").fit(sites)
    for last in range(1, 5 if "init" in options else 6):
        model = estimator(3, **options, checkpoint=tmp_path / f"stopped-{last}")
        same_fit(resumed_after(last, model, sites, monkeypatch), expected)


def test_a_run_that_stops_again_and_again_goes_on_to_the_same_bits(sites, tmp_path):
    plan = tensor_plan(precision="byte", refresh_every=2, max_rounds=6, heat_coef="minmax", view_weights="learned")
    expected, _ = run_sites(plan, sites, fraction=0.7)
    run = Run()

    def save_then_stop(current):
        save_run(tmp_path, plan, current)
        raise Stop

    while run.state.phase != "done":
        with pytest.raises(Stop):
            run_sites(plan, sites, fraction=0.7, run=run, after=[save_then_stop])
        run = without_engine(load_run(tmp_path, plan)[1])
    assert_same_model(run, expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rank": (3, 2, 2)}, r"rank=\[3, 3, 2\] there, \[3, 2, 2\] here"),
        ({"precision": "half"}, "precision='auto' there, 'half' here"),
        ({"refresh_every": 4}, "refresh_every=0 there, 4 here"),
        ({"protocol": "factors"}, "protocol='cores' there, 'factors' here"),
    ],
)
def test_a_checkpoint_of_other_choices_is_refused(sites, tmp_path, change, said):
    options = {"rank": (3, 3, 2), "protocol": "cores", "n_init": 1, "max_rounds": 1, "random_state": 0}
    FedHKTucker(3, **options, checkpoint=tmp_path / "run").fit(sites)
    with pytest.raises(CheckpointError, match=f"other settings: .*{said}"):
        FedHKTucker(3, **options | change, checkpoint=tmp_path / "run").fit(sites, resume=True)


def silent_in(exchanges):
    return lambda site, _, exchange, answer: None if site == LIAR and exchange in exchanges else answer


@pytest.mark.parametrize(("protocol", "precision"), [("cores", "double"), ("cores", "byte"), ("factors", "half")])
class TestAbsences:
    def test_a_site_that_comes_back_without_memory_is_told_all_again(self, sites, protocol, precision):
        plan = tensor_plan(protocol=protocol, precision=precision, max_rounds=5, local_passes=1, n_init=1)
        away, _ = run_sites(plan, sites, tamper=silent_in([3, 4]))
        engine = TestEngine(sites)
        fresh = site_states(sites)[LIAR]

        def forget(site, phase, exchange, answer):
            if site != LIAR or exchange not in (3, 4):
                return answer
            engine.engine.states[LIAR] = fresh  # restarted: references, basis and factors are gone
            return None

        engine.tamper = forget
        run, _ = run_sites(plan, engine)
        assert_same_model(run, away)
        assert [record["clients"] for record in run.history] == [3, 2, 2, 3, 3]
        told = decode(engine.sent[5][LIAR])
        assert "references" in told.arrays
        assert ("basis.0" in told.arrays) == (protocol == "cores")
        if protocol == "cores":
            assert "basis.0" not in decode(engine.sent[5]["rome"]).arrays
            assert len(engine.sent[6][LIAR]) < len(engine.sent[5][LIAR])

    def test_a_site_that_forgot_everything_unseen_misses_one_round(self, sites, protocol, precision):
        plan = tensor_plan(protocol=protocol, precision=precision, max_rounds=5, local_passes=1, n_init=1)
        engine = TestEngine(sites)
        fresh = site_states(sites)[LIAR]

        def forget(site, phase, exchange, answer):
            if site == LIAR and exchange == 3:
                engine.engine.states[LIAR] = fresh
            return answer

        engine.tamper = forget
        run, _ = run_sites(plan, engine)
        assert_same_model(run, run_sites(plan, sites, tamper=silent_in([4]))[0])
        assert re.search("before the (references|basis) came", run.history[2]["refused"][LIAR])
        assert [record["clients"] for record in run.history] == [3, 3, 2, 3, 3]

    def test_a_site_that_joins_late_takes_part(self, sites, protocol, precision):
        plan = tensor_plan(protocol=protocol, precision=precision, max_rounds=5, local_passes=1, n_init=1)
        others = [name for name in sites if name != LIAR]
        run, engine = run_sites(plan, sites, present=lambda exchange: others if exchange < 4 else list(sites))
        assert [record["clients"] for record in run.history] == [2, 2, 3, 3, 3]
        assert all(record["refused"] == {} for record in run.history)
        assert "references" in decode(engine.sent[4][LIAR]).arrays
        assert np.isfinite(np.hstack(final(run).centers)).all()


def test_a_new_basis_goes_to_all_and_only_then(sites):
    plan = tensor_plan(refresh_every=2, max_rounds=6, precision="double")
    _, engine = run_sites(plan, sites)
    first = engine.phases.index("round")
    messages = [decode(exchange["rome"]) for exchange in engine.sent[first:]]
    assert [bool(m.values.get("refresh")) for m in messages[:6]] == [False, False, True, False, True, False]
    assert ["basis.0" in m.arrays for m in messages] == [True, False, False, True, False, True, False]
    answers = [decode(exchange["rome"]) for exchange in engine.received[first : first + 6]]
    assert ["moves" in a.arrays for a in answers] == [True, True, False, True, False, True]


def test_given_centres_ask_for_full_sums_at_once(sites, start):
    _, engine = run_sites(tensor_plan(init=start, refresh_every=5, max_rounds=2), sites)
    first = engine.phases.index("round")
    assert decode(engine.sent[first]["rome"]).values["refresh"]
    assert "refresh" not in decode(engine.sent[first + 1]["rome"]).values


# --------------------------------------------------------------------------------------------------------------- lies


def changed(name, change):
    def lie(answer):
        message = decode(answer)
        found = change(np.copy(message.arrays.get(name, 0.0)))
        kept = {key: array for key, array in message.arrays.items() if key != name}
        return encode(replace(message, arrays=kept if found is None else kept | {name: found}))

    return lie


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


CORES_LIES = {
    "NaN": ("double", changed("moves", put((0, 0), np.nan)), "NaN or infinite"),
    "infinite": ("double", changed("moves", put((0, 0), np.inf)), "NaN or infinite"),
    "huge": ("double", changed("moves", put((0, 0), 1e300)), "further than any row is"),
    "huge halves": ("half", changed("moves", put((0, 0), np.inf)), "NaN or infinite"),
    "wrong shape": ("double", changed("moves", lambda a: a[:, 1:]), "'moves'.* has shape"),
    "one cluster less": ("double", changed("moves", lambda a: a[1:]), "'moves'.* has shape"),
    "flat": ("double", changed("moves", np.ravel), "'moves'.* has shape"),
    "no moves": ("double", changed("moves", lambda _: None), "lacks 'moves'"),
    "negative weights": ("double", changed("weights", put((0, 0), -1.0)), "below zero"),
    "huge weights": ("double", changed("weights", put((0, 0), 1e300)), "larger than the"),
    "weights of another shape": ("double", changed("weights", lambda a: a[:, 1:]), "'weights'.* has shape"),
    "a mass larger than the rows": ("double", changed("sums", put(3, 1e6)), "larger than the"),
    "masses larger than the rows": ("double", changed("sums", lambda a: put(slice(3, 6), a[-1])(a)), "larger than the"),
    "costs larger than the rows": ("double", changed("sums", put(0, 1e6)), "larger than the"),
    "negative masses": ("double", changed("sums", put(3, -1.0)), "below zero"),
    "an impossible objective": ("double", changed("sums", put(-2, 1e9)), "objective"),
    "rows beyond counting": ("double", changed("sums", put(-1, 1e300)), "rows"),
    "bytes without scale": ("byte", changed("moves.scale", lambda _: None), "dtype int8"),
    "a negative scale": ("byte", changed("moves.scale", put(0, -1.0)), "below zero"),
    "a scale of NaN": ("byte", changed("moves.scale", put(0, np.nan)), "NaN or infinite"),
    "a huge scale": ("byte", changed("moves.scale", lambda a: a + np.float32(1e38)), "further than any row is"),
    "scales of another shape": ("byte", changed("moves.scale", lambda a: a[1:]), "'moves.scale'.* has shape"),
    "bytes that are missing": ("byte", changed("moves", put((0, 0), -128)), "NaN or infinite"),
    "numbers for bytes": ("byte", changed("moves", lambda a: a.astype(float)), "dtype float64"),
    "full sums that nobody asked for": ("double", changed("numerators", lambda _: np.zeros((3, 34))), "unexpected"),
}


@pytest.mark.parametrize("lie", CORES_LIES)
def test_a_lie_in_the_basis_is_refused_and_the_round_goes_on_as_if_nothing_had_come(sites, start, lie):
    precision, change, reason = CORES_LIES[lie]
    assert_refused(tensor_plan(precision=precision, init=start, max_rounds=3), sites, change, reason)


# Runs without the liar's answer, by plan: several lies are compared with each.
AWAY = {}


def assert_refused(plan, sites, change, reason, exchange=2):
    run, engine = run_sites(
        plan, sites, tamper=lambda site, _, n, answer: change(answer) if (site, n) == (LIAR, exchange) else answer
    )
    key = json.dumps([describe_plan(plan), exchange])
    if key not in AWAY:
        AWAY[key] = run_sites(plan, sites, tamper=silent_in([exchange]))[0]
    assert_same_model(run, AWAY[key])
    number = exchange - engine.phases.index("round")
    assert [record["clients"] for record in run.history] == [2 if i == number else 3 for i in range(plan.max_rounds)]
    assert list(run.history[number]["refused"]) == [LIAR]
    assert re.search(reason, run.history[number]["refused"][LIAR]), run.history[number]["refused"]


def huge_gauge(answer):
    """Factors that are finite, of centres that are not: infinity and what is left of two of them."""
    message = decode(answer)
    arrays = {name: np.copy(array) for name, array in message.arrays.items()}
    arrays["form.core.0"][...] = 1e200
    arrays["form.core.1"][...] = 1e200 * np.where(np.arange(arrays["form.core.1"].shape[1]) % 2, -1, 1)
    return encode(replace(message, arrays=arrays))


def nobody_here(change):
    """The same lie by a site that says it has no rows in any cluster."""
    return lambda answer: changed("masses", lambda a: 0 * a)(change(answer))


FACTOR_LIES = {
    "NaN": (changed("form.core.0", put(..., np.nan)), "NaN or infinite"),
    "huge": (changed("form.core.0", lambda a: a + 1e100), "far outside the range"),
    "beyond numbers": (huge_gauge, "far outside the range|not finite"),
    "huge, for nobody": (nobody_here(changed("form.core.0", lambda a: a + 1e100)), "far outside the range"),
    "beyond numbers, for nobody": (nobody_here(huge_gauge), "far outside the range|not finite"),
    "wrong core": (changed("form.core.0", lambda a: a[:1]), "'form.core.0'.* has shape"),
    "wrong basis": (changed("form.basis.1", lambda a: a[1:]), "'form.basis.1'.* has shape"),
    "no basis": (changed("form.basis.0", lambda _: None), "lacks 'form.basis.0'"),
    "whole numbers": (changed("form.core.1", lambda a: a.astype(np.int64)), "dtype int64"),
    "one array more": (changed("form.core.9", lambda _: np.zeros(1)), "unexpected 'form.core.9'"),
    "negative masses": (changed("masses", put((0, 0), -1.0)), "below zero"),
    "huge masses": (changed("masses", put((0, 0), 1e300)), "larger than the"),
    "negative weights of views": (changed("sums", put(0, -1.0)), "below zero"),
    "no weights of views": (changed("sums", put(slice(0, 3), 0.0)), "weights of views"),
    "an impossible objective": (changed("sums", put(-2, 1e9)), "objective"),
}


@pytest.mark.parametrize(
    "form", [("tucker", (3, 3, 2), "centers"), ("parafac2", 3, "factors")], ids=["tucker", "parafac2"]
)
@pytest.mark.parametrize("lie", FACTOR_LIES)
def test_a_lie_in_the_factors_is_refused_and_the_round_goes_on_as_if_nothing_had_come(sites, start, lie, form):
    name, rank, aggregation = form
    change, reason = FACTOR_LIES[lie]
    plan = tensor_plan(
        name, rank, protocol="factors", aggregation=aggregation, max_rounds=2, local_passes=1, init=start
    )
    assert_refused(plan, sites, change, reason, exchange=1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed("means", put((0, 0), -128)), "NaN or infinite"),
        (changed("means.scale", put(0, -1.0)), "below zero"),
        (changed("means.scale", lambda _: None), "dtype int8"),
        (changed("means.scale", lambda a: a + np.float32(1e38)), "no rows can have"),
    ],
)
def test_a_lie_in_full_sums_of_low_precision_is_refused(sites, start, change, reason):
    plan = tensor_plan(precision="byte", init=start, refresh_every=1, max_rounds=3)
    assert_refused(plan, sites, change, reason)


@pytest.mark.parametrize("value", [-128, 127])
def test_candidates_in_bytes_may_miss_cells_but_not_lie(sites, value):
    """A missing cell of a candidate is no lie; nothing that follows is NaN."""
    plan = tensor_plan(precision="byte", max_rounds=2)
    lie = changed("candidates", put((0, 0), value))
    run, _ = run_sites(
        plan, sites, tamper=lambda site, phase, _, a: lie(a) if (site, phase) == (LIAR, "candidates") else a
    )
    assert run.history[0]["refused"] == {}
    assert np.isfinite(np.hstack(final(run).centers)).all()
