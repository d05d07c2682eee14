"""Personalized rounds are Algorithm 4: equal to its equations in plain loops, and the best model is kept."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from federations import make_plan, progress_of, read_reply, read_request, run_sites
from fedhk import EFKMVC, FedHKPerson, datasets, reference
from fedhk.federation.phases.finish import final_parameters
from fedhk.federation.protocols.personalized import OwnModels
from fedhk.model.passes import Passes
from fedhk.model.rows import joint_rows, split_joint
from fedhk.personal.rounds import PARTS
from fedhk.protocols import Personalized
from fedhk.tensors.low_rank import LowRankForm

QUICK = {"n_init": 2, "random_state": 0}
ROUNDS = 4


@pytest.fixture(scope="module")
def sites():
    data = datasets.make_sites(3, 14, n_clusters=3, n_features=(3, 2), shift=1.0, random_state=2)
    return dict(zip(["bern", "oslo", "rome"], data.sites.values(), strict=True))


@pytest.fixture(scope="module")
def start(sites):
    return [np.asarray(view, dtype=float)[:3] for view in sites["oslo"]]


class PlainLoops:
    """Algorithm 4 with free centres, of the functions of `fedhk.reference`; lambda weighs the local centres.

    With the corrections that `docs/paper-map.md` names: the kernel in the sums, and mean objectives under softmax.
    """

    def __init__(self, views, first, shares, options):
        self.views, self.shares, self.options = views, {s: dict(v) for s, v in shares.items()}, options
        self.common, self.local, self.m, self.alpha, self.time = first, {}, 1.1, 2.0, 0.3

    def statistics(self, site, model):
        views = self.views[site]
        ones = [np.ones(view.shape) for view in views]
        return reference.statistics(views, model[0], ones, [self.time] * 2, model[1], self.alpha, self.m)

    def blend(self, site):
        lam, rho = self.shares[site]["centers"], self.shares[site]["view_weights"]
        local = self.local.get(site, self.common)
        centers = [reference.blend(a, b, lam) for a, b in zip(local[0], self.common[0], strict=True)]
        return centers, reference.blend(local[1], self.common[1], rho)

    def adapt(self, site):
        """eqn:adaptive_lambda: at the blend of the local model and the new global one."""
        centers, weights = self.blend(site)
        found = self.statistics(site, (centers, weights))
        slopes = [
            2 * self.time * v**self.alpha * (w * a - n)
            for v, w, a, n in zip(weights, found["weights"], centers, found["numerators"], strict=True)
        ]
        slope = reference.lambda_gradient(slopes, self.local[site][0], self.common[0])
        share = reference.adaptive_lambda(self.shares[site]["centers"], slope, self.options.step)
        self.shares[site]["centers"] = share

    def round(self):
        """One round; gives the objective that is reported for the model it starts from."""
        own, found = {}, {}
        for site in self.views:
            if site in self.local and self.options.step is not None:
                self.adapt(site)
            model = own[site] = self.blend(site)
            for _ in range(self.options.passes):
                sums = self.statistics(site, model)
                weights = reference.view_weights(sums["costs"], self.alpha)
                model = reference.center_update(sums["numerators"], sums["weights"], model[0]), weights
            self.local[site], found[site] = model, self.statistics(site, model)
        sizes = [len(views[0]) for views in self.views.values()]
        objective = sum(sizes) * self.measure(own, sizes)
        omega = reference.client_weights([f["objective"] for f in found.values()], self.options.tau, sizes)
        centers = [
            reference.aggregate_center_statistics(
                [f["numerators"][h] for f in found.values()], [f["weights"][h][:, 0] for f in found.values()], omega
            )
            for h in range(2)
        ]
        weights = reference.aggregate_view_weights([model[1] for model in self.local.values()], omega, sizes)
        self.common = centers, weights
        return objective

    def measure(self, own, sizes):
        """eqn:fed_global_obj_personalization, for one row; the two distances are in units of the objective."""
        factors = self.common[1] ** self.alpha
        means, totals = [], []
        for (site, model), size in zip(own.items(), sizes, strict=True):
            found = self.statistics(site, model)
            centers = self.time * factors.max() * reference.center_regularizer(model[0], self.common[0])
            cost = float(factors @ found["costs"]) / size
            views = cost * (float(np.sum(model[1] ** 2 / self.common[1])) - 1.0)
            total = found["objective"] + self.options.center_pull * centers + self.options.view_pull * views
            means.append(found["objective"])
            totals.append(total / size)
        return float(reference.client_weights(means, self.options.tau, sizes) @ totals)


@pytest.mark.parametrize(
    "given",
    [
        {"centers": {"bern": 0.2, "oslo": 0.9, "rome": 0.0}, "view_weights": {"bern": 1.0, "oslo": 0.3, "rome": 0.0}},
        {"centers": 1.0, "view_weights": 0.5, "temperature": 0.0},
        {"centers": "auto", "view_weights": 0.4, "step": 0.05, "held_out": 0.0, "passes": 3},
    ],
    ids=["given by site", "local", "learned by gradient steps"],
)
def test_every_round_is_that_of_the_plain_loops(sites, start, given):
    compare_with_loops(sites, start, Personalized(center_pull=0.0, **given))


def compare_with_loops(sites, start, protocol, lead="centers", **settings):
    """Compare every round with `PlainLoops`, in what no gauge changes; `lead` is the component that moves centres."""
    plan = make_plan(
        protocol=protocol, init=start, view_weights="learned", max_rounds=ROUNDS, scaling="none", **settings
    )
    run, engine = run_sites(plan, sites)
    requests = [read_request(sent["oslo"]) for sent, kind in zip(engine.sent, engine.phases, strict=True)
                if kind == "round"]  # fmt: skip
    widths = engine.states["oslo"].rows().widths
    models = [request.model.parameters(widths) for request in requests]
    rows = {name: split_joint(joint_rows(site.rows()), widths) for name, site in engine.states.items()}
    shares = {
        site: {
            name: 0.5 if value == "auto" else value[site] if isinstance(value, dict) else value
            for name, value in (("centers", getattr(protocol, lead)), ("view_weights", protocol.view_weights))
        }
        for site in rows
    }
    loops = PlainLoops(rows, ([np.array(a) for a in models[0].centers], models[0].view_weights), shares, protocol)
    assert len(models) == ROUNDS + 1  # the last exchange measures the last model
    for record, model in zip(run.history, models[1:], strict=True):
        assert_allclose(record["objective"], loops.round(), rtol=1e-9)
        for found, expected in zip(model.centers, loops.common[0], strict=True):
            assert_allclose(found, expected, rtol=0, atol=1e-9)
        assert_allclose(model.view_weights, loops.common[1], rtol=0, atol=1e-9)
    before = {site: loops.shares[site]["centers"] for site in rows}
    loops.round()
    for name, site in engine.states.items():
        kept, local = site.memory.get(OwnModels).models[-1], loops.local[name]
        for found, expected in zip(kept.local.centers, local[0], strict=True):
            assert_allclose(found, expected, rtol=0, atol=1e-9)
        with Passes(site.rows(), 3, 1) as scan:
            memberships = scan.assign(kept.local)[0]
        apart = [
            1 - np.exp(-loops.time * np.square(view[:, None] - centers[None]).sum(axis=2))
            for view, centers in zip(rows[name], local[0], strict=True)
        ]
        expected = reference.memberships(apart, local[1], loops.alpha, loops.m)
        assert_allclose(memberships, expected, rtol=0, atol=1e-9)
        assert kept.shares[lead] == pytest.approx(loops.shares[name]["centers"], abs=1e-6)
    if protocol.step is not None:
        assert any(share != 0.5 for share in before.values())


SOME_OWN = {"bern": 1.0, "oslo": 0.0, "rome": 1.0}


@pytest.mark.parametrize(
    ("form", "given"),
    [
        (
            LowRankForm("tucker", (3, 3, 2)),
            dict.fromkeys(PARTS, 0.7) | {"core": {"bern": 0.2, "oslo": 0.9, "rome": 0.0}},
        ),
        (
            LowRankForm("tucker", (3, 3, 2)),
            dict.fromkeys(PARTS[1:], 0.3) | {"core": "auto", "step": 0.05, "held_out": 0.0, "passes": 3},
        ),
        (LowRankForm("tucker", (3, 3, 2)), dict.fromkeys(PARTS, SOME_OWN)),
        (LowRankForm("parafac2", 3), dict.fromkeys(PARTS, SOME_OWN)),
    ],
    ids=["shares of parts", "learned by gradient steps", "own or common", "own or common, PARAFAC2"],
)
def test_every_round_with_a_form_is_that_of_the_plain_loops_where_gauges_agree(sites, start, form, given):
    """A form that any centres have, all of whose bases are whole, moves by its core alone, whose share is then lambda.

    Shares of 0 and 1 of all parts are the global and the local model in any gauge.
    """
    compare_with_loops(sites, start, Personalized(center_pull=0.0, view_weights=0.4, **given), lead="core", form=form)


@pytest.mark.parametrize("form", [LowRankForm("tucker", (2, 2, 2)), LowRankForm("parafac2", 2)])
def test_where_a_rank_binds_what_no_gauge_changes_is_that_of_the_reference(sites, start, form):
    """Sums at the local centres, and the objectives at the own and at the local ones."""
    protocol = Personalized(center_pull=0.0, view_weights=0.4, **dict.fromkeys(PARTS, 0.6))
    plan = make_plan(
        protocol=protocol, init=start, view_weights="learned", max_rounds=ROUNDS, scaling="none", form=form
    )
    _, engine = run_sites(plan, sites)
    last = [number for number, kind in enumerate(engine.phases) if kind == "round"][-1]
    widths = engine.states["oslo"].rows().widths
    common = read_request(engine.sent[last]["oslo"]).model.parameters(widths)
    rows = {name: split_joint(joint_rows(site.rows()), widths) for name, site in engine.states.items()}
    loops = PlainLoops(rows, (common.centers, common.view_weights), {}, protocol)
    for name, site in engine.states.items():
        kept, reply = site.memory.get(OwnModels).models[-1], read_reply(engine.received[last][name])
        at_own = loops.statistics(name, (kept.own.centers, kept.own.view_weights))
        at_local = loops.statistics(name, (kept.local.centers, kept.local.view_weights))
        assert_allclose(reply.terms.objective, at_own["objective"], rtol=1e-9)
        assert_allclose(reply.objective, at_local["objective"], rtol=1e-9)
        assert_allclose(reply.sums.read(), np.hstack(at_local["numerators"]), rtol=0, atol=1e-9)
        assert_allclose(reply.costs, at_local["costs"], rtol=1e-9)
        assert at_local["objective"] < at_own["objective"]


def test_pulls_are_in_the_objective_that_is_reported_and_hold_sites_together(sites):
    spread = {}
    for pull in (0.0, 50.0):
        protocol = Personalized(centers=0.8, view_weights=0.8, center_pull=pull, view_pull=pull)
        model = FedHKPerson(3, protocol=protocol, view_weights="learned", max_rounds=6, tol=0, **QUICK).fit(sites)
        found = model.personal_objective_
        expected = found["objective"] + pull * (found["center_distance"] + found["view_distance"])
        assert found["total"] == pytest.approx(expected)
        assert min(record["objective"] for record in model.history_) == pytest.approx(42 * found["total"], rel=1e-9)
        spread[pull] = found["center_distance"]
    assert spread[50.0] < 0.5 * spread[0.0]


@pytest.mark.parametrize("decomposition", ["tucker", "parafac2"])
def test_parts_of_a_form_have_shares_of_their_own(sites, decomposition):
    given = dict(zip(PARTS, (0.1, {"oslo": 0.9}, 0.3, 0.0), strict=True))
    model = FedHKPerson(
        3, protocol=Personalized(**given, tensor_pull=1.0), decomposition=decomposition, rank=2, max_rounds=2, **QUICK
    )
    with pytest.warns(UserWarning, match="did not converge"):
        model.fit(sites)
    shares = {(r["site"], r["component"]): r["value"] for r in model.personalization_}
    assert shares["bern", "core"] == 0.1
    assert shares["oslo", "cluster_factor"] == 0.9
    assert shares["bern", "cluster_factor"] in np.round(np.arange(0, 1.01, 0.1), 10)  # learned
    assert model.personal_objective_["tensor_distance"] > 0
    assert model.client_models_["oslo"].rank_ == model.rank_


def test_without_any_share_sites_have_the_global_model(sites):
    model = FedHKPerson(3, protocol=Personalized(centers=0.0), max_rounds=5, tol=0, **QUICK).fit(sites)
    for own in model.client_models_.values():
        assert_array_equal(own.cluster_centers_[0], model.cluster_centers_[0])
    assert model.personal_objective_["center_distance"] == 0


@pytest.mark.parametrize("max_rounds", [1, 3, 30])
def test_sites_keep_the_own_model_of_the_best_round(sites, max_rounds):
    """The objective of the delivered models is the lowest of the history, or that of the model after it."""
    plan = make_plan(protocol=Personalized(), max_rounds=max_rounds, tol=1e-4)
    run, engine = run_sites(plan, sites)
    objectives = [record["objective"] for record in run.history]
    kept = [site.memory.get(OwnModels).models for site in engine.states.values()]
    final = final_parameters(engine.states["rome"])
    found = [[m for m in models if np.array_equal(m.common.centers[0], final.centers[0])] for models in kept]
    assert all(found)
    assert len(kept[0]) <= 2
    assert progress_of(run).lowest == min(objectives)
    protocol = FedHKPerson(3, protocol=Personalized(), max_rounds=max_rounds, tol=1e-4, **QUICK)
    total = 42 * fit_quietly(protocol, sites).personal_objective_["total"]
    assert total <= min(record["objective"] for record in protocol.history_) * (1 + 1e-9)


def fit_quietly(model, sites):
    """A fit whose rounds may be too few."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(sites)


def test_a_new_site_gets_a_model_of_its_own(sites):
    model = FedHKPerson(3, protocol=Personalized(centers=0.7), max_rounds=4, tol=0, **QUICK).fit(sites)
    own = model.personalize([view + 0.5 for view in sites["rome"]], "lima")
    assert np.abs(own.cluster_centers_[0] - model.cluster_centers_[0]).max() > 1e-3


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "settings", "words"),
        [
            ({"core": 0.5}, {}, "core=0.5.*without a decomposition"),
            ({"tensor_pull": 1.0}, {}, "tensor_pull=1.0.*without a decomposition"),
            ({"centers": 0.5}, {"decomposition": "tucker"}, "centers=0.5.*with a decomposition"),
            ({"view_weights": 0.5}, {}, "view_weights=0.5.*not learned"),
            ({"view_pull": 2.0}, {}, "view_pull=2.0.*not learned"),
            ({"centers": {"lima": 0.5}}, {}, r"centers has values for sites \['lima'\]"),
            ({}, {"secure": True}, "secure=True needs protocol='statistics'"),
            ({}, {"aggregator": "robust"}, "Use aggregator='sum'"),
            ({}, {"personalization": 0.5}, "personalization.*no effect with Personalized"),
            ({}, {"calibration": 0.5}, "calibration=None"),
        ],
    )
    def test_what_has_no_effect_or_no_meaning_is_named(self, sites, options, settings, words):
        with pytest.raises(ValueError, match=words):
            FedHKPerson(3, protocol=Personalized(**options), **(QUICK | settings)).fit(sites)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"centers": 2.0}, "centers=2.0"),
            ({"core": {"rome": -1}}, r"core\['rome'\]=-1"),
            ({"passes": 0}, "passes=0"),
            ({"temperature": -1}, "temperature=-1"),
            ({"step": -1.0}, "step=-1.0"),
            ({"held_out": 1.0}, "held_out=1.0"),
            ({"center_pull": "much"}, "center_pull='much'"),
        ],
    )
    def test_wrong_options_are_named(self, options, words):
        with pytest.raises(ValueError, match=words):
            Personalized(**options)

    def test_an_unknown_component_is_named(self):
        with pytest.raises(TypeError, match="colour"):
            Personalized(colour=0.5)

    def test_other_estimators_take_it_as_an_object(self, sites):
        model = fit_quietly(EFKMVC(3, protocol=Personalized(), max_rounds=2, n_init=2, random_state=0), sites)
        assert np.abs(model.client_models_["rome"].cluster_centers_[0] - model.cluster_centers_[0]).max() > 0
