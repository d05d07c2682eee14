"""What privacy, masks and robust sums ask of other parameters, what they warn of, and how they hold against liars."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from federations import with_reply
from fedhk import EFKMVC, FedHKDiffusion, FedHKParafac2, FedHKPerson, FedHKTucker, Participation, datasets
from fedhk.data.clients import check_clients
from fedhk.estimators.sealing import make_sealed_terms
from fedhk.federation.aggregators import make_aggregator
from fedhk.federation.protocols import make_protocol
from fedhk.federation.table import Table
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.protocols import Averaging, Statistics
from sealed_runs import spied_fit

# noise and few rounds leave clusters without rows
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def budget(**changes):
    return DifferentialPrivacy(**{"epsilon": 50.0, "delta": 1e-4, "bounds": (-12, 12), "rounds": 2} | changes)


@pytest.fixture(scope="module")
def sites():
    return datasets.make_sites(5, 20, n_clusters=2, n_features=(2, 3), random_state=0).sites


# -------------------------------------------------------------------------------------------------------- bad input


BAD = {
    "delta too large": (
        EFKMVC,
        {"privacy": budget(delta=0.06)},
        r"delta=0.06 .* site 'site-.*' has .* rows: use at most",
    ),
    "too few pairs": (EFKMVC, {"privacy": budget(bounds=[(-1, 1)] * 3)}, r"bounds has 3 pairs, the sites have 2 views"),
    "wrong length": (
        EFKMVC,
        {"privacy": budget(bounds=[(-1, 1), ([0] * 4, [1] * 4)])},
        r"bounds of view number 1 have shapes \(4,\) and \(4,\); the view has 3 features",
    ),
    "centers": (
        EFKMVC,
        {"privacy": budget(), "protocol": "centers"},
        r"privacy needs protocol='statistics', got Averaging\(.*without bound, and they are not sums",
    ),
    "factors": (FedHKTucker, {"privacy": budget(), "protocol": "factors"}, r"privacy needs .* got FactorAveraging\("),
    "refresh": (
        FedHKTucker,
        {"privacy": budget(), "protocol": Statistics(basis=True, refresh_every=3)},
        r"refresh_every=3 has no effect with privacy: .* follows from the rounds\. Leave refresh_every out",
    ),
    "diffusion in a basis": (
        FedHKDiffusion,
        {"secure": True, "protocol": Statistics(basis=True)},
        r"has no effect with FedHKDiffusion and secure=True: .* Use protocol='statistics'",
    ),
    "precision": (
        EFKMVC,
        {"secure": True, "protocol": Statistics(precision="half")},
        r"precision='half' has no effect with secure=True: .* Leave precision='auto'",
    ),
    "colluders in the open": (
        EFKMVC,
        {"privacy": budget(colluders=1)},
        r"colluders=1 has no effect without secure=True: .* Leave colluders=0",
    ),
    "absdev": (
        EFKMVC,
        {"privacy": budget(), "heat_coef": "absdev"},
        r"heat_coef='uniform' or 'minmax', got 'absdev': with 'absdev'",
    ),
    "calibration": (FedHKPerson, {"privacy": budget(), "calibration": 0.5}, r"\(0.5, 0.5\) does not go with privacy"),
    "fraction": (
        EFKMVC,
        {"privacy": budget(), "participation": Participation(0.5)},
        r"fraction=0.5 with privacy: .* use fraction=1",
    ),
    "aggregator": (EFKMVC, {"privacy": budget(), "aggregator": "robust"}, r"aggregator='robust' cannot compare them"),
    "quality": (
        EFKMVC,
        {"secure": True, "protocol": Averaging(weights="quality")},
        r"secure=True needs protocol='stat",
    ),
    "secure robust": (EFKMVC, {"secure": True, "aggregator": "median"}, r"aggregator='median' cannot compare them"),
    "secure centers": (EFKMVC, {"secure": True, "protocol": "centers"}, r"secure=True needs protocol='statistics'"),
    "secure fraction": (
        EFKMVC,
        {"secure": True, "participation": Participation(0.9)},
        r"fraction=0.9 with secure=True",
    ),
    "threshold below half": (
        EFKMVC,
        {"secure": SecureSummation(2)},
        r"threshold=2 must be more than half of the 5 sites",
    ),
    "threshold above all": (EFKMVC, {"secure": SecureSummation(6)}, r"threshold=6 must be .* no more than all"),
    "colluders": (
        EFKMVC,
        {"secure": SecureSummation(3), "privacy": budget(colluders=3)},
        r"colluders=3 must be below the threshold=3 .* Use fewer colluders or a larger threshold",
    ),
    "default threshold": (EFKMVC, {"secure": True, "privacy": budget(colluders=4)}, r"colluders=4 must be below .*=4"),
    "robust centers": (EFKMVC, {"aggregator": "trimmed", "protocol": "centers"}, r"'trimmed'\) works on statistics"),
    "robust factors": (
        FedHKParafac2,
        {"aggregator": "robust", "protocol": "factors"},
        r"'robust'\) works on statistics",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_would_weaken_the_promise_is_refused_with_what_to_change(bad, sites):
    estimator, options, said = BAD[bad]
    with pytest.raises(ValueError, match=said):
        estimator(2, **options).fit(sites)


@pytest.mark.parametrize(
    ("name", "value"), [("privacy", 1.0), ("privacy", {"epsilon": 1}), ("secure", "yes"), ("aggregator", "mean")]
)
def test_what_is_none_of_the_choices_is_refused(name, value, sites):
    with pytest.raises((ValueError, TypeError), match=f"'{name}' parameter|{name}="):
        EFKMVC(2, **{name: value}).fit(sites)


def sealed_terms(model, sites):
    """How the sums of a model are sealed, or why they cannot be."""
    clients = check_clients(sites)
    settings = model.set_params(n_init=1)._choose(clients, 1).settings
    return make_sealed_terms(model, clients, settings, make_aggregator("sum"), make_protocol(model.protocol))


@pytest.mark.parametrize("n_sites", [1, 2])
def test_masks_need_three_sites(n_sites, sites):
    few = dict(list(sites.items())[:n_sites])
    with pytest.raises(ValueError, match=rf"secure=True needs at least 3 sites, got {n_sites}"):
        EFKMVC(2, secure=True).fit(few)


def test_values_that_the_fixed_point_has_no_room_for_are_named(sites):
    huge = {site: [views[0] * 1e13, views[1]] for site, views in sites.items()}
    with pytest.raises(ValueError, match=r"site 'site-.*view 'view_0' has the value .*2\^40.*Rescale"):
        EFKMVC(2, secure=True).fit(huge)
    EFKMVC(2, secure=True, scaling="l2", n_init=1).fit(huge)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # bounds make values small, whatever they are
        wide = budget(bounds=[(-1e15, 1e15), (-12, 12)])
        EFKMVC(2, secure=True, n_init=1, privacy=wide).fit(huge)


def test_bounds_keep_their_places_where_the_first_site_lacks_the_first_view(sites):
    name = min(sites)
    lacking = sites | {name: [None, sites[name][1]]}
    bounds = [(np.full(2, -12.0), np.full(2, 12.0)), (np.full(3, -12.0), np.full(3, 12.0))]
    assert sealed_terms(EFKMVC(2, privacy=budget(bounds=bounds), secure=True), lacking).noise is not None


def test_estimators_with_a_budget_can_be_cloned(sites):
    model = clone(EFKMVC(2, privacy=budget(bounds=[(-1, 1), ([0, 0, 0], [1, 1, 1])]), secure=SecureSummation(4)))
    assert model.privacy.delta == 1e-4
    assert model.secure.threshold == 4
    assert EFKMVC(2, n_init=1).fit(sites).privacy_spent_ is None
    assert EFKMVC(2, n_init=1, secure=True).fit(sites).privacy_spent_ is None


# -------------------------------------------------------------------------------------------------------- warnings


def big_sites(n_rows, n_clusters, n_sites=10):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(n_clusters, 10)) * 4
    joint = centers[rng.integers(n_clusters, size=n_rows)] + rng.normal(size=(n_rows, 10))
    return {f"s{i}": [part[:, :5], part[:, 5:]] for i, part in enumerate(np.array_split(joint, n_sites))}


def noise_warnings(sites, n_clusters, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sealed_terms(EFKMVC(n_clusters, random_state=0, **options), sites)
    return [str(warning.message) for warning in caught]


def test_a_fit_says_when_noise_will_drown_the_centres():
    privacy = budget(epsilon=1.0, delta=1e-5, rounds=10)
    few = big_sites(300, 10)
    (said,) = noise_warnings(few, 10, privacy=privacy)
    assert "With epsilon=1, 300 rows and 10 clusters" in said
    assert "more rows, a larger epsilon or fewer clusters, or secure=True" in said
    (said,) = noise_warnings(few, 10, privacy=privacy, secure=True)
    assert "secure=True" not in said
    many = big_sites(15_000, 3)
    assert noise_warnings(many, 3, privacy=privacy, secure=True) == []
    with pytest.warns(UserWarning, match="With epsilon=1, 300 rows") as caught:
        EFKMVC(10, n_init=1, privacy=replace(privacy, rounds=1)).fit(few)
    assert caught[0].filename == __file__


# ----------------------------------------------------------------------------------------------------- hostile sites


@pytest.fixture(scope="module")
def honest():
    return datasets.make_sites(
        5, 60, n_clusters=5, n_features=(8, 12), class_mix=None, shift=0, scale=0, size_spread=0, random_state=1
    )


def agreement(model, data):
    found, labels = (np.concatenate([part[site] for site in data.sites]) for part in (model.labels_, data.site_labels))
    return adjusted_rand_score(labels, found)


def hostile(change, phases=("round",)):
    """The answers of one site, changed after they were made."""

    def tamper(site, request, answer):
        if site != "site-02" or request.kind not in phases or not isinstance(answer, bytes):
            return answer
        return with_reply(change)(answer)

    return tamper


def scaled(table, factor):
    return Table(factor * table.values, table.scale)


def flipped(reply):
    """Everything pulls the other way."""
    return replace(reply, sums=scaled(reply.sums, -1))


def inflated(reply):
    """A thousand times the rows, which pull all centres to one place."""
    sums = {name: 1000 * getattr(reply, name) for name in ("costs", "masses", "objective", "rows")}
    weights = tuple(1000 * part for part in reply.weights)
    if reply.sums.values.shape[1] < 20:  # moves in a basis
        return replace(reply, sums=scaled(reply.sums, 30), weights=weights, **sums)
    first = Table(np.repeat(1000 * reply.sums.values[:1], 5, axis=0), reply.sums.scale)
    return replace(reply, sums=first, weights=tuple(np.repeat(part[:1], 5, axis=0) for part in weights), **sums)


def far_candidates(reply):
    return replace(reply, sizes=1000 * reply.sizes, points=scaled(reply.points, -3.0))


ATTACKS = {
    "sign flip": hostile(flipped),
    "inflation": hostile(inflated),
    "candidates": hostile(far_candidates, ("candidates",)),
}
COMMON = {"n_clusters": 5, "n_init": 1, "random_state": 0, "max_rounds": 8, "tol": 0}
CORES = {"protocol": Statistics(basis=True, precision="double"), "rank": (4, 3, 2)}
MODELS = {
    "statistics": lambda how: EFKMVC(**COMMON, aggregator=how),
    "tucker": lambda how: FedHKTucker(**COMMON, **CORES, aggregator=how),
}


@pytest.fixture(scope="module")
def undisturbed(honest, short_first_fit):
    """Agreement with the classes where nobody lies."""
    names = [*itertools.product(["statistics"], ["sum", "robust", "median", "trimmed"]), ("tucker", "sum")]
    return {(name, how): agreement(MODELS[name](how).fit(honest.sites), honest) for name, how in names} | {
        ("tucker", "robust"): agreement(MODELS["tucker"]("robust").fit(honest.sites), honest)
    }


def test_where_all_are_honest_a_robust_sum_costs_nothing(undisturbed):
    for (name, how), found in undisturbed.items():
        assert found > 0.9, (name, how)
        assert found >= undisturbed[name, "sum"] - 0.02, (name, how)


@pytest.mark.usefixtures("short_first_fit")
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", MODELS)
def test_one_hostile_site_of_five_does_not_move_a_robust_sum(name, attack, honest, undisturbed, monkeypatch):
    model, _ = spied_fit(monkeypatch, MODELS[name]("robust"), honest.sites, tamper=ATTACKS[attack])
    assert agreement(model, honest) >= undisturbed[name, "robust"] - 0.02
    assert all(record["refused"] == {} for record in model.history_)  # what is sent could be true


@pytest.mark.parametrize("attack", ["sign flip", "inflation"])
@pytest.mark.parametrize("how", ["median", "trimmed"])
def test_medians_hold_too(how, attack, honest, undisturbed, monkeypatch):
    model, _ = spied_fit(monkeypatch, MODELS["statistics"](how), honest.sites, tamper=ATTACKS[attack])
    assert agreement(model, honest) >= undisturbed["statistics", how] - 0.05


@pytest.mark.parametrize(
    ("name", "attack"), [("statistics", "inflation"), ("tucker", "inflation"), ("tucker", "candidates")]
)
def test_a_plain_sum_does_not_hold(name, attack, honest, undisturbed, monkeypatch):
    """Else the tests above show nothing: it falls below what they ask of a robust one."""
    model, _ = spied_fit(monkeypatch, MODELS[name]("sum"), honest.sites, tamper=ATTACKS[attack])
    assert agreement(model, honest) < undisturbed[name, "sum"] - 0.02
