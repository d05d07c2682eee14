"""Errors know the paper's names, and guess what a misspelt name means."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest
from sklearn.base import clone

import fedhk
from fedhk._names import MEANINGS, PAPER_NAMES, explain_names
from fedhk.cli.config import Config, ConfigError
from fedhk.personal.options import GradientStep

ESTIMATORS = [
    fedhk.HeatKernelMVC,
    fedhk.EFKMVC,
    fedhk.FedHKTucker,
    fedhk.FedHKParafac2,
    fedhk.FedHKPerson,
    fedhk.FedHKDiffusion,
    fedhk.HeatDiffusion,
]
OPTIONS = [
    fedhk.Personalization,
    fedhk.Participation,
    fedhk.Diffusion,
    fedhk.protocols.Averaging,
    fedhk.protocols.FactorAveraging,
    fedhk.protocols.Personalized,
    fedhk.protocols.Statistics,
    GradientStep,
]
PARAMETERS = {name for kind in ESTIMATORS + OPTIONS for name in inspect.signature(kind).parameters}
CLASSES = {kind.__name__: kind for kind in [*OPTIONS, fedhk.privacy.DifferentialPrivacy]}


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (fedhk.EFKMVC, {"alpha": 2, "m": 2}, "alpha is view_exponent, m is fuzzifier."),
        (fedhk.HeatKernelMVC, {"T": 5}, "T is max_iter."),
        (fedhk.EFKMVC, {"T": 5}, "T is max_rounds."),
        (
            fedhk.FedHKPerson,
            {"lambda": 0.5},
            "lambda is personalization of FedHKPerson, in the rounds",
        ),
        (fedhk.FedHKPerson, {"gamma": 1}, "gamma is personalization=fedhk.Personalization(center_pull=...)."),
        (fedhk.FedHKPerson, {"rho": 1}, "rho is personalization=fedhk.Personalization(view_weights=...)."),
        (fedhk.FedHKTucker, {"r2": 1}, "r2 is rank."),
        (fedhk.FedHKTucker, {"G": 1}, "G is core_ of the fitted model."),
        (fedhk.Personalization, {"gamma": 1, "rho": 1}, "gamma is center_pull, rho is view_weights."),
        (fedhk.protocols.Averaging, {"tau": 1, "E": 3}, "tau is temperature, E is passes."),
        (fedhk.protocols.FactorAveraging, {"lambda_": 1}, "lambda_ is blend."),
        (fedhk.protocols.Personalized, {"beta": 1, "tau": 2}, "beta is step, tau is temperature."),
        (fedhk.HeatDiffusion, {"alpha": 1}, "alpha is view_exponent of other classes."),
        (fedhk.EFKMVC, {"fuzifier": 1, "alpha": 2}, "alpha is view_exponent; did you mean 'fuzzifier'?"),
        (fedhk.Participation, {"fractoin": 1}, "did you mean 'fraction'?"),
        (fedhk.EFKMVC, {"xyz": 1}, "EFKMVC has no parameter 'xyz'. Parameters are n_clusters, "),
    ],
)
def test_an_unknown_name_is_refused_with_what_was_meant(kind, given, said):
    with pytest.raises(TypeError) as error:
        kind(**given)
    assert said in str(error.value)


@pytest.mark.parametrize("kind", ESTIMATORS + OPTIONS)
def test_every_class_knows_every_symbol(kind):
    for symbol in MEANINGS.keys() - inspect.signature(kind).parameters.keys():
        with pytest.raises(TypeError, match=rf"{kind.__name__} has no parameter '{symbol}'; {symbol} is "):
            kind(**{symbol: 1})


def test_every_symbol_leads_to_something_that_exists():
    """To a parameter, to options that a class has, or to a fitted attribute."""
    for symbol, places in MEANINGS.items():
        for place in places:
            first = re.split(r"\W", place)[0]
            assert (
                first in PARAMETERS | {"the"}
                or hasattr(fedhk.FedHKTucker, first)
                or first
                in (
                    "memberships_",
                    "objective_",
                )
            ), (symbol, place)
            for kind, inside in re.findall(r"(\w+)\((.*?)\)", place):
                options = re.findall(r"(\w+)=", inside)
                assert set(options) <= set(inspect.signature(CLASSES[kind]).parameters), (symbol, place)


def test_every_symbol_of_the_table_of_names_is_there():
    letters = {*"AaVvUcsMmGPQR", "mu", "delta", "omega", "alpha", "beta", "gamma", "eta", "lambda", "rho", "tau"}
    assert letters <= set(PAPER_NAMES)


def test_set_params_knows_the_same_names():
    with pytest.raises(ValueError, match="alpha is view_exponent"):
        fedhk.EFKMVC().set_params(alpha=2)
    assert fedhk.EFKMVC().set_params(fuzzifier=1.5).fuzzifier == 1.5


def test_the_command_line_knows_the_same_names():
    with pytest.raises(ConfigError, match=r"algorithm 'e-fkmvc' has no parameter 'lambda'; lambda is personalization"):
        Config(parameters={"n_clusters": 3, "lambda": 0.5}).complete()
    options = {"name": "centers", "tau": 3}
    with pytest.raises(ValueError, match="tau is temperature"):
        Config(parameters={"n_clusters": 3, "protocol": options}).complete()


class Doubled(fedhk.EFKMVC):
    """An estimator that a user derived, with a constructor of its own."""

    def __init__(self, doubled=1, **others):
        super().__init__(2 * doubled, **others)


def test_classes_of_users_keep_their_own_parameters():
    assert Doubled(doubled=2, fuzzifier=1.2).n_clusters == 4
    with pytest.raises(TypeError, match="alpha"):
        Doubled(alpha=2)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_objects_can_still_be_copied(kind):
    one = kind()
    for other in (clone(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301
        assert other.get_params() == one.get_params()


def test_a_name_is_guessed_only_where_one_is_near():
    assert "did you mean" not in explain_names(["zzz"], ["fuzzifier"], "Model")
