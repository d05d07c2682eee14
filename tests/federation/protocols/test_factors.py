"""Factors of sites: no gauge, order or fault changes what comes of them, and what no site can have is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from federations import (
    TestEngine,
    assert_near,
    assert_same_model,
    fit_recorded,
    make_plan,
    make_sites,
    objectives,
    parameters_of,
    published,
    read_reply,
    run_sites,
    with_field,
    with_reply,
)
from fedhk import FedHKParafac2, FedHKTucker, datasets
from fedhk.federation.engines import inprocess
from fedhk.federation.protocols.averaging import LocalCenters
from fedhk.federation.protocols.factors import OwnFactors
from fedhk.federation.table import PRECISIONS, read_arrays
from fedhk.model import rows as model_rows
from fedhk.protocols import FactorAveraging, Statistics
from fedhk.tensors.low_rank import LowRankForm
from tensors.forms import change_gauge

SHAPE = (14, 9, 11)
LIAR = "oslo"
FIRST_SWEEPS = 10  # enough for clusters to be found; see `short_first_fit`
STEP_SWEEPS = 3  # as good for protocols as more
pytestmark = [
    pytest.mark.usefixtures("short_first_fit"),
    # fits of few rounds on purpose: what they have at the end is compared
    pytest.mark.filterwarnings("ignore:.* did not converge:sklearn.exceptions.ConvergenceWarning"),
]


def factor_plan(name="tucker", rank=(3, 3, 2), **changes):
    """A plan with one pass a round; options of the protocol are given by their names."""
    options = {"passes": 1} | {
        n: changes.pop(n) for n in ("passes", "aggregation", "blend", "precision") if n in changes
    }
    protocol = FactorAveraging(**options)
    return make_plan(**{"protocol": protocol, "form": LowRankForm(name, rank)} | changes)


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(3, 40, n_clusters=3, n_features=SHAPE, shift=0.3, separation=5, random_state=5)


@pytest.fixture(scope="module")
def sites(data):
    return dict(zip([LIAR, "rome", "turin"], data.sites.values(), strict=True))


@pytest.fixture(scope="module")
def start(data):
    return [view[[0, 40, 100]] for view in data.views]


FORMS = [("tucker", (3, 3, 2)), ("tucker", (2, 2, 3)), ("parafac2", 3)]


# --------------------------------------------------------------------------------------------------------------- gauges


def other_gauge(generator):
    """A tamper that turns, permutes, flips and stretches the liar's factors without changing its centres."""

    def turn(reply):
        form = read_arrays(reply.form)
        turned = replace(form, factors=change_gauge(form.factors, generator))
        for a, b in zip(turned.centers(), form.centers(), strict=True):
            assert_allclose(a, b, atol=1e-10)
        return replace(reply, form=turned)

    return lambda site, phase, _, answer: with_reply(turn)(answer) if (site, phase) == (LIAR, "round") else answer


@pytest.mark.parametrize(
    ("options", "atol"),
    [
        ({"aggregation": "centers", "blend": 0.0, "passes": 2, "max_rounds": 2}, 1e-9),
        ({"aggregation": "centers", "blend": 0.5, "passes": 1, "max_rounds": 2}, 1e-9),
        ({"aggregation": "factors", "blend": 0.0, "passes": 1, "max_rounds": 1}, 1e-9),
        ({"aggregation": "factors", "blend": 0.5, "passes": 2, "max_rounds": 2}, 1e-6),
    ],
    ids=str,
)
@pytest.mark.parametrize(("name", "rank"), FORMS)
def test_the_gauge_of_a_sites_factors_changes_nothing(sites, name, rank, options, atol):
    plan = factor_plan(name, rank, n_init=1, **options)
    plain, _ = run_sites(plan, sites)
    turned, _ = run_sites(plan, sites, tamper=other_gauge(np.random.default_rng(1)))
    assert all(record["refused"] == {} for record in turned.history)
    assert_near(turned, plain, atol)


@pytest.mark.parametrize(("name", "rank"), FORMS)
def test_factors_of_one_site_in_one_pass_are_the_plain_iteration(data, start, name, rank):
    options = {"init": start, "max_rounds": 3, "view_weights": "learned"}
    factors, _ = run_sites(factor_plan(name, rank, aggregation="factors", **options), {"only": data.views})
    plain, _ = run_sites(factor_plan(name, rank, **options | {"protocol": Statistics()}), {"only": data.views})
    assert_near(factors, plain, 1e-8)


def test_blend_of_nothing_is_no_blend_and_some_is(sites):
    runs = [run_sites(factor_plan(blend=b, max_rounds=2, n_init=1), sites)[0] for b in (0.0, 0.5, 1.0)]
    assert objectives(runs[0])[0] == objectives(runs[1])[0]  # nobody has factors of its own yet
    ends = [np.hstack(parameters_of(run).centers) for run in runs]
    assert not np.array_equal(ends[0], ends[1])
    assert all(np.isfinite(end).all() for end in ends)


def test_own_factors_stay_at_the_site(sites):
    _, engine = run_sites(factor_plan(max_rounds=2, n_init=1), sites)
    assert all(site.memory.has(OwnFactors) and not site.board.has(OwnFactors) for site in engine.states.values())


@pytest.mark.parametrize("precision", ["double", "half"])
def test_neither_order_nor_workers_change_a_bit(sites, monkeypatch, precision):
    plan = factor_plan(precision=precision, view_weights="learned", max_rounds=2, n_init=1)
    expected, _ = run_sites(plan, sites)
    for names in (reversed(sites), sorted(sites, key=lambda name: name[1])):
        assert_same_model(run_sites(plan, {name: sites[name] for name in names})[0], expected)
    monkeypatch.setattr(inprocess, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(model_rows, "PASS_BYTES", 2**10)
    one, _ = run_sites(plan, sites)
    assert_same_model(run_sites(plan, sites, workers=3)[0], one)


# ------------------------------------------------------------------------------------------------------------- absences


def silent_in(exchanges):
    return lambda site, _, exchange, answer: None if site == LIAR and exchange in exchanges else answer


class TestAbsences:
    plan = factor_plan(precision="half", max_rounds=5, n_init=1)

    def test_a_site_that_comes_back_without_memory_is_told_all_again(self, sites):
        away, _ = run_sites(self.plan, sites, tamper=silent_in([3, 4]))
        engine = TestEngine(sites)
        fresh = make_sites(sites)[LIAR]

        def forget(site, phase, exchange, answer):
            if site != LIAR or exchange not in (3, 4):
                return answer
            engine.states[LIAR] = fresh  # restarted: references and factors are gone
            return None

        engine.tamper = forget
        run, _ = run_sites(self.plan, engine)
        assert_same_model(run, away)
        assert [record["clients"] for record in run.history] == [3, 2, 2, 3, 3]
        assert published(engine.sent[5][LIAR]) == ["Schema", "References"]

    def test_a_site_that_forgot_everything_unseen_misses_one_round(self, sites):
        engine = TestEngine(sites)
        fresh = make_sites(sites)[LIAR]

        def forget(site, phase, exchange, answer):
            if site == LIAR and exchange == 3:
                engine.states[LIAR] = fresh
            return answer

        engine.tamper = forget
        run, _ = run_sites(self.plan, engine)
        assert_same_model(run, run_sites(self.plan, sites, tamper=silent_in([4]))[0])
        assert "asked before 'References' was published" in run.history[2]["refused"][LIAR]
        assert [record["clients"] for record in run.history] == [3, 3, 2, 3, 3]

    def test_a_site_that_joins_late_takes_part(self, sites):
        others = [name for name in sites if name != LIAR]
        run, engine = run_sites(self.plan, sites, present=lambda exchange: others if exchange < 4 else list(sites))
        assert [record["clients"] for record in run.history] == [2, 2, 3, 3, 3]
        assert all(record["refused"] == {} for record in run.history)
        assert "References" in published(engine.sent[4][LIAR])
        assert np.isfinite(np.hstack(parameters_of(run).centers)).all()


# ----------------------------------------------------------------------------------------------------------------- lies


def with_core(place, change):
    """A change of one of the small factors of the liar."""

    def lie(reply):
        factors = reply.form.factors
        core = [change(np.copy(a)) if i == place else a for i, a in enumerate(factors.core_arrays)]
        return replace(reply, form=replace(reply.form, factors=factors.with_arrays(core=core)))

    return with_reply(lie)


def with_basis(place, change):
    """A change of one of the bases of the liar."""

    def lie(reply):
        factors = reply.form.factors
        basis = [change(np.copy(a)) if i == place else a for i, a in enumerate(factors.basis_arrays)]
        return replace(reply, form=replace(reply.form, factors=factors.with_arrays(basis=basis)))

    return with_reply(lie)


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


def huge_gauge(answer):
    """Factors that are finite, of centres that are not: infinity and what is left of two of them."""

    def signs(array):
        return 1e200 * np.where(np.arange(array.shape[1]) % 2, -1, 1) * np.ones_like(array)

    return with_core(1, signs)(with_core(0, put(..., 1e200))(answer))


def nobody_here(change):
    """The same lie by a site that says it has no rows in any cluster."""
    return lambda answer: with_field("masses", lambda a: 0 * a)(change(answer))


def no_factors(reply):
    return LocalCenters(reply.centers, reply.masses, reply.view_weights, reply.objective, reply.rows)


FACTOR_LIES = {
    "NaN": (with_core(0, put(..., np.nan)), "NaN or infinite"),
    "huge": (with_core(0, lambda a: a + 1e100), "far outside the range"),
    "beyond numbers": (huge_gauge, "far outside the range|not finite"),
    "huge, for nobody": (nobody_here(with_core(0, lambda a: a + 1e100)), "far outside the range"),
    "beyond numbers, for nobody": (nobody_here(huge_gauge), "far outside the range|not finite"),
    "wrong core": (with_core(0, lambda a: a[:1]), "factors of another shape"),
    "wrong basis": (with_basis(1, lambda a: a[1:]), "factors of another shape"),
    "no basis": (with_basis(0, lambda a: a[:0, :0]), "factors of another shape"),
    "no factors": (with_reply(no_factors), "an answer of another protocol"),
    "whole numbers": (with_core(1, lambda a: a.astype(np.int64)), "factors with values|type int64"),
    "negative masses": (with_field("masses", put((0, 0), -1.0)), "below zero"),
    "huge masses": (with_field("masses", put((0, 0), 1e300)), "larger than the"),
    "negative weights of views": (with_field("view_weights", put(0, -1.0)), "below zero"),
    "no weights of views": (with_field("view_weights", put(slice(0, 3), 0.0)), "weights of views"),
    "an impossible objective": (with_field("objective", lambda _: 1e9), "objective"),
}

AWAY = {}


@pytest.mark.parametrize(
    "form", [("tucker", (3, 3, 2), "centers"), ("parafac2", 3, "factors")], ids=["tucker", "parafac2"]
)
@pytest.mark.parametrize("lie", FACTOR_LIES)
def test_a_lie_is_refused_and_the_round_goes_on_as_if_nothing_had_come(sites, start, lie, form):
    name, rank, aggregation = form
    change, reason = FACTOR_LIES[lie]
    plan = factor_plan(name, rank, aggregation=aggregation, max_rounds=2, init=start)
    run, _ = run_sites(
        plan, sites, tamper=lambda site, _, n, answer: change(answer) if (site, n) == (LIAR, 1) else answer
    )
    if form not in AWAY:
        AWAY[form] = run_sites(plan, sites, tamper=silent_in([1]))[0]
    assert_same_model(run, AWAY[form])
    assert [record["clients"] for record in run.history] == [2, 3]
    assert list(run.history[0]["refused"]) == [LIAR]
    assert re.search(reason, run.history[0]["refused"][LIAR]), run.history[0]["refused"]


def test_factors_of_another_decomposition_are_refused(sites, start):
    """The liar answers with PARAFAC2 where Tucker is asked for."""
    tucker = factor_plan(max_rounds=1, init=start)
    _, other = run_sites(factor_plan("parafac2", 3, max_rounds=1, init=start), sites)
    foreign = read_reply(other.received[1][LIAR]).form

    def lie(site, phase, _, answer):
        swap = with_reply(lambda reply: replace(reply, form=foreign))
        return swap(answer) if (site, phase) == (LIAR, "round") else answer

    run, _ = run_sites(tucker, sites, tamper=lie)
    assert "factors of another decomposition" in run.history[0]["refused"][LIAR]


# ------------------------------------------------------------------------------------------------------------ precision


@pytest.mark.parametrize("estimator", [FedHKTucker, FedHKParafac2])
def test_lower_precision_finds_the_same_clusters_in_smaller_messages(monkeypatch, estimator):
    data = datasets.make_sites(3, 60, n_clusters=4, n_features=(60, 40, 50), shift=0.2, separation=8, random_state=4)
    truth = np.concatenate(list(data.site_labels.values()))
    scores, sizes = [], []
    for precision in PRECISIONS:
        protocol = FactorAveraging(passes=1, precision=precision)
        model = estimator(4, protocol=protocol, max_rounds=4, tol=0, n_init=2, random_state=0)
        model, engine = fit_recorded(model, data.sites, monkeypatch)
        scores.append(adjusted_rand_score(truth, np.concatenate([model.labels_[s] for s in data.site_labels])))
        first = engine.phases.index("round")
        for direction, messages in (("bytes_up", engine.received), ("bytes_down", engine.sent)):
            lengths = [sum(map(len, exchange.values())) for exchange in messages]
            # the last round, the exchange that measures what it made, and the end
            expected = [sum(lengths[: first + 1]), *lengths[first + 1 : -3], sum(lengths[-3:])]
            assert [record[direction] for record in model.history_] == expected
        assert all(np.isfinite(record["objective"]) for record in model.history_)
        sizes.append(
            [
                sum(len(m) for exchange in messages[first + 1 : first + 4] for m in exchange.values())
                for messages in (engine.received, engine.sent)
            ]
        )
    assert scores[0] > 0.9
    assert min(scores) >= scores[0] - 0.02
    up, down = zip(*sizes, strict=True)
    assert up[0] > up[1] > up[2]
    assert down[0] > down[1] > down[2]
    assert up[3] == pytest.approx(up[2], rel=0.01)  # never in bytes


def test_factors_are_in_double_precision_unless_said_otherwise(sites):
    _, engine = run_sites(factor_plan(max_rounds=1, n_init=1), sites)
    reply = read_reply(engine.received[-2][LIAR])
    assert {array.dtype.name for array in reply.form.factors.core_arrays} == {"float64"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"aggregation": "median"}, r"aggregation='median' must be one of \('centers', 'factors'\)"),
        ({"blend": 1.1}, "blend=1.1 must be a number from 0 to 1"),
        ({"blend": -0.1}, "blend=-0.1 must be"),
        ({"blend": True}, "blend=True must be"),
        ({"precision": "quarter"}, "precision='quarter' must be one of"),
        ({"passes": 0}, "passes=0 must be"),
        ({"weights": "rows", "temperature": 2.0}, "temperature=2.0 has no effect"),
    ],
)
def test_options_that_are_wrong_or_without_effect_are_refused_by_name(options, said):
    with pytest.raises(ValueError, match=said):
        FactorAveraging(**options)
