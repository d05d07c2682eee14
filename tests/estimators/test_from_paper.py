"""Presets have the settings of the paper's algorithms, and refuse what contradicts them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedhk
from fedhk.datasets import make_sites
from fedhk.estimators.from_paper import LETTERS, NO_INPUT, PRESETS
from fedhk.protocols import Averaging, FactorAveraging, Personalized, Statistics

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    return make_sites(3, 40, n_clusters=3, n_features=(6, 5), random_state=0)


@pytest.mark.parametrize("algorithm", PRESETS)
def test_a_preset_is_an_estimator_that_runs(algorithm, data):
    model = fedhk.from_paper(algorithm, n_clusters=3, fuzzifier=1.1, max_rounds=3, random_state=0).fit(data.sites)
    assert type(model) is PRESETS[algorithm].estimator
    assert sorted(model.labels_) == sorted(data.sites)
    assert model.fuzzifier_ == 1.1
    assert model.heat_coef == "minmax-local"


@pytest.mark.parametrize("algorithm", PRESETS)
def test_every_setting_of_a_preset_is_a_parameter_and_not_its_default(algorithm):
    preset = PRESETS[algorithm]
    params, defaults = fedhk.from_paper(algorithm).get_params(deep=False), preset.estimator().get_params(deep=False)
    for name, value in preset.settings().items():
        assert params[name] == value
        assert name == "view_exponent" or params[name] != defaults[name], name


@pytest.mark.parametrize(
    ("algorithm", "given", "said"),
    [
        (
            1,
            {"heat_coef": "uniform"},
            r"Algorithm 1 \(E-FKMVC\) has heat_coef='minmax-local' or 'absdev-local' or .*, got 'uniform'",
        ),
        (1, {"view_weights": "uniform"}, "view_weights='learned', got 'uniform': leave it out, or use EFKMVC"),
        (1, {"view_weights": np.array([0.5, 0.5])}, r"view_weights='learned', got array\("),
        (1, {"init": "k-means++"}, "init='random', got 'k-means"),
        (1, {"n_init": 20}, "n_init=1, got 20"),
        (1, {"protocol": "statistics"}, r"protocol=Averaging\(weights='rows'\), got 'statistics'"),
        (1, {"protocol": "centers"}, r"protocol=Averaging\(weights='rows'\), got 'centers'"),
        (
            1,
            {"protocol": Averaging(weights="mass")},
            r"Averaging\(weights='rows'\), got Averaging\(passes=5, weights='m",
        ),
        (
            2,
            {"heat_coef": "absdev"},
            r"Algorithm 2 \(FedHK-PARAFAC2\) has heat_coef='minmax-local' or 'minmax', got 'absdev'",
        ),
        (2, {"protocol": "no such"}, "got 'no such'"),
        (3, {"protocol": Statistics()}, "leave it out, or use FedHKTucker"),
        (3, {"protocol": FactorAveraging(weights="quality")}, "aggregation='factors'"),
        (
            4,
            {"decomposition": None},
            r"Algorithm 4 \(FedHK-MVC-Person\) has decomposition='parafac2' or 'tucker', got None",
        ),
        (4, {"calibration": "auto"}, "calibration=None, got 'auto'"),
        (4, {"calibration": 0.5}, "calibration=None, got 0.5"),
        (4, {"protocol": "personalized"}, r"protocol=Personalized\(held_out=0.0\), got 'personalized'"),
        (4, {"protocol": Personalized(step=0.1)}, r"Personalized\(held_out=0.0\), got Personalized\(.*held_out=0.2"),
        (4, {"protocol": Personalized(held_out=0.0)}, r"Personalized\(held_out=0.0\), got Personalized\(.*step=None"),
    ],
)
def test_what_contradicts_an_algorithm_is_refused_by_name(algorithm, given, said):
    with pytest.raises(ValueError, match=said):
        fedhk.from_paper(algorithm, n_clusters=3, **given)


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [
        (1, {"heat_coef": "absdev", "fuzzifier": 1.1, "view_exponent": 3, "scaling": "standard", "personalization": 0}),
        (1, {"protocol": Averaging(passes=2, weights="rows"), "init": "random", "n_init": 1, "tol": 1e-3}),
        (1, {"init": [np.zeros((3, 6)), np.zeros((3, 5))]}),
        (3, {"protocol": FactorAveraging(2, "quality", 5.0, aggregation="factors", blend=0.1), "rank": (2, 2, 2)}),
        (4, {"protocol": Personalized(core=0.3, step=1e-3, held_out=0.0, tensor_pull=2.0), "decomposition": "tucker"}),
    ],
)
def test_inputs_of_the_algorithm_can_be_given(algorithm, given):
    params = fedhk.from_paper(algorithm, n_clusters=3, **given).get_params(deep=False)
    assert all(params[name] is value for name, value in given.items())


@pytest.mark.parametrize("algorithm", [0, 5, -1, "1", 1.0, True, None, [1]])
def test_another_algorithm_is_refused_by_name(algorithm):
    with pytest.raises(ValueError, match=r"algorithm=.* must be one of the paper's algorithms: 1 \(E-FKMVC\), 2 "):
        fedhk.from_paper(algorithm, n_clusters=3)


def test_names_of_the_paper_are_explained():
    with pytest.raises(TypeError, match="alpha is view_exponent, m is fuzzifier"):
        fedhk.from_paper(1, n_clusters=3, alpha=2, m=2)


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [(1, {"passes": 3}), (2, {"temperature": 3.0, "blend": 0.2}), (3, {"passes": 1}), (4, {"step": 0.02, "passes": 3})],
)
def test_single_options_of_the_protocol_leave_the_others_as_the_preset_has_them(algorithm, given):
    usual = fedhk.from_paper(algorithm).protocol
    assert fedhk.from_paper(algorithm, **given).protocol == replace(usual, **given)


def test_options_that_contradict_an_algorithm_or_are_given_twice_are_refused():
    with pytest.raises(ValueError, match=r"Algorithm 1 .* has protocol=Averaging\(weights='rows'\), got Averaging"):
        fedhk.from_paper(1, 3, weights="mass")
    with pytest.raises(ValueError, match="step and protocol are given: give step to the protocol"):
        fedhk.from_paper(4, 3, step=0.02, protocol=fedhk.from_paper(4).protocol)


@pytest.mark.parametrize("algorithm", PRESETS)
@pytest.mark.parametrize("letter", LETTERS)
def test_what_is_said_of_a_letter_can_be_given(algorithm, letter):
    with pytest.raises(TypeError, match=rf"has no parameter '{letter}'; {letter} is ") as caught:
        fedhk.from_paper(algorithm, 3, **{letter: 3})
    said = str(caught.value).split(f"{letter} is ")[1].split(". Parameters are")[0]
    names = said.replace(" and ", ", ").split(", ")
    if said != NO_INPUT and not said.startswith("protocol=dataclasses.replace"):
        fedhk.from_paper(algorithm, 3, **dict.fromkeys(names, 1))


def test_rho_of_algorithm_4_is_given_as_its_error_says():
    protocol = replace(fedhk.from_paper(4).protocol, view_weights=0.5)
    assert fedhk.from_paper(4, 3, protocol=protocol).protocol is protocol
