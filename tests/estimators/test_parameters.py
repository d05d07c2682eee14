"""No parameter is ignored in silence: with another value a fit gives something else, or refuses it by its name.

Every constructor parameter of every estimator, and every field of every option object, is given another value than its
default in several compositions: in the open, with averages, from given centres, under masks, with noise.
"""

from __future__ import annotations

import inspect
import io
import re
from contextlib import redirect_stderr
from dataclasses import dataclass, fields
from threading import Event

import numpy as np
import pytest

from fedhk import (
    EFKMVC,
    Diffusion,
    FedHKDiffusion,
    FedHKParafac2,
    FedHKPerson,
    FedHKTucker,
    HeatDiffusion,
    HeatKernelMVC,
    Participation,
    Personalization,
    datasets,
)
from fedhk._options import Option
from fedhk.errors import FedHKError
from fedhk.federation.aggregators import RobustAggregator
from fedhk.federation.gate import answer_message
from fedhk.personal.options import GradientStep
from fedhk.privacy import DifferentialPrivacy, SecureSummation
from fedhk.protocols import Averaging, FactorAveraging, Statistics

# few rounds, and noise that leaves clusters without rows: what is fitted need not be good
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:With epsilon=.* can be expected to find:UserWarning"
    ),
    pytest.mark.usefixtures("short_first_fit"),
]
STEP_SWEEPS = 2  # see `short_first_fit`

FEDERATED = [EFKMVC, FedHKTucker, FedHKParafac2, FedHKPerson, FedHKDiffusion]
MOST_PARAMETERS = 24


@pytest.fixture(scope="module")
def data():
    """Sites that differ, and clusters that overlap so much that starts and options matter."""
    return datasets.make_sites(3, 30, n_clusters=4, n_features=(6, 5), shift=0.7, separation=1.0, random_state=4)


@pytest.fixture(autouse=True)
def same_noise(monkeypatch):
    """Noise that two fits have in common, so that they can be compared."""

    def draw(sigma, size, *_, **__):
        return np.rint(sigma * np.random.default_rng(size).normal(size=size)).astype(np.int64)

    monkeypatch.setattr("fedhk.federation.sealed.noise.discrete_gaussian", draw)


def given_centers(data, first=0, count=3):
    return [view[first : first + count] for view in data.views]


def budget(**changes):
    bounds = [(np.linspace(-20, -10, 6), np.linspace(10, 30, 6)), (-15, 15)]
    return DifferentialPrivacy(**{"epsilon": 40.0, "delta": 1e-4, "bounds": bounds, "rounds": 3} | changes)


class FarSites:
    """An engine that leads to sites elsewhere."""

    def sites(self):
        return []

    exchange = close = describe = begin = sites


# ----------------------------------------------------------------------------------------------------- what a fit gives


def outcome(estimator, params, X, folder):
    """All that a user can see of a fit; a text that begins with the kind of the error where it is refused."""
    said = io.StringIO()
    try:
        model = estimator(**params)
        with redirect_stderr(said):
            if estimator is HeatDiffusion:
                seen = [model.fit_transform(X), model.eigenvalues_]
            else:
                model.fit(X)
                seen = [model.labels_, model.memberships_, model.cluster_centers_, model.view_weights_]
                seen += [model.objective_, model.n_iter_, model.stop_reason_, getattr(model, "privacy_spent_", None)]
                seen += [[without_seconds(record) for record in model.history_]]
                seen += [getattr(model, "personalization_", None), getattr(model, "personal_objective_", None)]
    except (ValueError, TypeError, FedHKError) as error:
        return f"{type(error).__name__}: {error}"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return [plain(seen), re.sub(r"[\d.]+ s\b", "", said.getvalue()), files]


def without_seconds(record):
    return {name: value for name, value in record.items() if name != "seconds"}


def plain(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else repr(value)


# -------------------------------------------------------------------------------------------------------- other values


# One field of the protocol that a composition has is changed at a time.
PROTOCOLS = {
    "averaging": [Averaging(3), Averaging(2, "rows"), Averaging(2, "quality"), "statistics"],
    "quality": [Averaging(2, "quality", temperature=50.0)],
    "basis": [Statistics(True, "half"), Statistics(True, "double", refresh_every=2)],
    "factors": [
        FactorAveraging(3),
        FactorAveraging(2, "rows"),
        FactorAveraging(2, "quality"),
        FactorAveraging(2, aggregation="factors"),
        FactorAveraging(2, blend=0.9),
        FactorAveraging(2, precision="half"),
    ],
}


@dataclass(frozen=True)
class AnyOf:
    """Values of which one with an effect is enough: others may lead to the same clusters by chance."""

    values: tuple


def other_values(estimator, composition, name, data, tmp_path):
    """Values other than the default. All fields of options are tried in one composition where they matter."""
    if name == "protocol":
        return PROTOCOLS.get(composition, ["cores", Averaging(passes=3), FactorAveraging(passes=3)])
    if name == "personalization":
        if estimator is not FedHKPerson:
            return [0.7, GradientStep(0.4)]
        values = [
            0.7,
            {"site-01": 0.3},
            Personalization(centers=0.6),
            Personalization(center_pull=5.0),
            Personalization(view_weights=0.5),
            Personalization(view_pull=5.0),
            GradientStep(0.5),
        ]
        return values if composition in ("plain", "learned") else values[:2]
    if name == "privacy":
        changed = [
            budget(epsilon=30.0),
            budget(delta=1e-5),
            budget(bounds=(-20, 20)),
            budget(bounds="private"),
            budget(neighbours="add-remove"),
            budget(rounds=2),
            budget(colluders=1),
            budget(ledger=tmp_path / "ledger"),
        ]
        return changed if composition == "noise" else changed[:1]
    if name == "diffusion":
        return [Diffusion(n_anchors=12), Diffusion(neighbours=3), Diffusion(scale=1.0), Diffusion(joint_weight=0.1)]
    values = {
        "n_clusters": [2],
        "n_components": [2],
        "heat_coef": ["minmax", "absdev"],
        "heat_time": [1.5],
        "fuzzifier": [1.5],
        "view_weights": [[0.9, 0.1], "learned"],
        "view_exponent": [4.0],
        "scaling": ["minmax", "none", "l2"],
        "init": ["random", given_centers(data, 20, 3 if composition == "given" else many_clusters(composition))],
        "n_init": [AnyOf((2, 3, 5, 12))],
        "tol": [0.5],
        "random_state": [AnyOf((1, 2, 3))],
        "verbose": [1],
        "max_iter": [2],
        # a most above the rounds that share a budget is no request for more of them
        "max_rounds": [2] if composition == "noise" else [2, 50],
        "participation": [Participation(fraction=0.5), Participation(min_sites=4)],
        "checkpoint": [tmp_path / "run"],
        "secure": [True, SecureSummation(threshold=4)],
        "aggregator": ["median", RobustAggregator("trimmed")],
        "engine": [FarSites()],
        "decomposition": ["tucker", "parafac2"],
        "rank": [AnyOf((1, 2, 3)), 0.5],
        "calibration": [0.4, (1.0, 0.0)],
    }
    return values[name]


COMPOSITIONS = {
    "plain": {},
    "averaging": {"protocol": Averaging(passes=2)},
    "quality": {"protocol": Averaging(2, "quality")},
    "basis": {"protocol": Statistics(True, "double")},
    "factors": {"protocol": FactorAveraging(2)},
    "given": {"init": "given"},
    "masks": {"secure": True},
    "noise": {"privacy": budget()},
    "low rank": {"decomposition": "tucker"},
    "learned": {"view_weights": "learned"},
}
TRIED = {
    HeatKernelMVC: ["plain", "given", "low rank"],
    HeatDiffusion: ["plain"],
    EFKMVC: ["plain", "averaging", "quality", "basis", "given", "masks", "noise"],
    FedHKTucker: ["plain", "factors", "given", "masks", "noise"],
    FedHKParafac2: ["plain"],
    FedHKPerson: ["plain", "averaging", "given", "masks", "noise", "low rank", "learned"],
    FedHKDiffusion: ["plain", "masks"],
}
# What has no effect by its nature, with the reason.
NO_REQUEST = {
    ("given", "random_state"): "a seed asks for nothing: it repeats what is drawn, and nothing is",
}


def many_clusters(composition):
    """Clusters for parameters of the start: among many, starts end in different places."""
    return 12 if composition == "noise" else 7


def base_params(estimator, composition, name, data):
    params = {"n_clusters": 3, "n_init": 1, "random_state": 0, "tol": 0.0}
    params |= {"max_iter": 3} if estimator is HeatKernelMVC else {"max_rounds": 3}
    if name in OF_STARTS and composition != "given":
        consensus = estimator is FedHKDiffusion and name == "n_init"
        params["n_clusters"] = CLUSTERS_OF_CONSENSUS[composition] if consensus else many_clusters(composition)
    if estimator is HeatDiffusion:
        return {"n_components": 3, "random_state": 0}
    params |= COMPOSITIONS[composition]
    if composition == "given":
        params |= {"init": given_centers(data)}
        del params["n_init"]
    if composition == "averaging" and estimator is FedHKPerson:
        params["calibration"] = None
    return params


# Parameters that another composition of the same estimator says something new of; all are tried in those not named.
NEW = {
    (HeatKernelMVC, "low rank"): ("rank", "n_clusters", "init", "heat_coef"),
    (EFKMVC, "quality"): ("protocol",),
    (EFKMVC, "basis"): ("protocol", "aggregator", "init"),
    (FedHKTucker, "factors"): ("rank", "protocol", "n_init", "init", "personalization", "aggregator", "participation"),
    (FedHKTucker, "given"): ("rank", "protocol", "n_init", "init"),
    (FedHKTucker, "masks"): ("rank", "protocol", "n_init", "init", "personalization"),
    (FedHKTucker, "noise"): ("rank", "protocol", "n_init", "init", "personalization"),
    (FedHKDiffusion, "masks"): ("n_clusters", "diffusion", "calibration", "protocol", "init", "n_init", "privacy"),
    (FedHKPerson, "averaging"): ("protocol", "calibration", "personalization", "aggregator", "decomposition", "rank"),
    (FedHKPerson, "given"): ("protocol", "n_init", "init", "calibration", "personalization", "decomposition", "rank"),
    (FedHKPerson, "low rank"): ("rank", "decomposition", "protocol", "personalization", "calibration", "init"),
    (FedHKPerson, "learned"): ("view_weights", "view_exponent", "personalization", "calibration"),
}
CASES = [
    (estimator, composition, name)
    for estimator, compositions in TRIED.items()
    for composition in compositions
    for name in NEW.get((estimator, composition), inspect.signature(estimator).parameters)
]
OF_STARTS = ("n_init", "init", "random_state")
# Of a consensus few clusters are so clear that all starts end in one place.
CLUSTERS_OF_CONSENSUS = {"plain": 12, "masks": 10}


@pytest.fixture(scope="module")
def bases():
    """What fits without any change gave."""
    return {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}-{case[2]}")
def test_a_parameter_has_an_effect_or_is_refused_by_its_name(case, data, bases, tmp_path):
    estimator, composition, name = case
    if (composition, name) in NO_REQUEST:
        pytest.skip(NO_REQUEST[composition, name])
    X = data.sites if estimator in FEDERATED else data.views
    params = base_params(estimator, composition, name, data)
    key = estimator, composition, params.get("n_clusters")
    if key not in bases:
        empty = tmp_path / "empty"
        empty.mkdir()
        bases[key] = outcome(estimator, params, X, empty)
    before = bases[key]
    assert not isinstance(before, str), before
    for value in other_values(estimator, composition, name, data, tmp_path):
        tries = value.values if isinstance(value, AnyOf) else [value]
        found = (
            counts(outcome(estimator, params | {name: one}, X, tmp_path), before, name, one, params) for one in tries
        )
        assert any(found), f"{name}={value!r} is ignored in silence"


def counts(found, before, name, value, params):
    """Whether something else came out, or an error that names the parameter, or the field of its options."""
    if not isinstance(found, str):
        return found != before or same(value, params.get(name))
    names = [name, *(field.name for field in fields(value))] if isinstance(value, Option) else [name]
    assert re.search(rf"\b({'|'.join(names)})\b", found), f"{name}={value!r} is refused without its name: {found}"
    return True


def same(value, base):
    """Whether this is the value that the composition has anyway."""
    return type(value) is type(base) and not isinstance(value, list) and value == base


def test_a_run_goes_on_without_a_site_that_does_not_answer_in_time(data, monkeypatch):
    """What `Participation(timeout=...)` does is seen only where a site is slow."""
    asked, over = [], Event()

    def answer_late(site, *rest):
        if site.name == "site-01" and not asked:
            asked.append(site.name)
            over.wait(60)
        return answer_message(site, *rest)

    monkeypatch.setattr("fedhk.federation.engines.inprocess.answer_message", answer_late)
    params = base_params(EFKMVC, "plain", "participation", data)
    model = EFKMVC(**params, participation=Participation(timeout=1.0)).fit(data.sites)
    over.set()
    assert "no answer within 1.0 s" in model.history_[0]["refused"]["site-01"]


# ------------------------------------------------------------------------------------------------------------ the bars


def test_fedhk_person_has_at_most_24_parameters():
    assert len(inspect.signature(FedHKPerson).parameters) <= MOST_PARAMETERS


@pytest.mark.parametrize("estimator", TRIED)
def test_every_parameter_has_a_rule_of_what_is_allowed(estimator):
    assert set(inspect.signature(estimator).parameters) == set(estimator._parameter_constraints)


@pytest.mark.parametrize("estimator", TRIED)
def test_only_the_first_parameter_is_positional(estimator):
    kinds = [parameter.kind for parameter in inspect.signature(estimator).parameters.values()]
    assert kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD, *[inspect.Parameter.KEYWORD_ONLY] * (len(kinds) - 1)]
