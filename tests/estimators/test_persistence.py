"""Model files keep every parameter, all fitted attributes that are no rows, and what later sites need."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from safetensors import safe_open

import fedhk
from fedhk import (
    EFKMVC,
    Diffusion,
    FedHKDiffusion,
    FedHKParafac2,
    FedHKPerson,
    FedHKTucker,
    HeatKernelMVC,
    Participation,
    Personalization,
    datasets,
)
from fedhk.data.scaling import UnitRows
from fedhk.estimators.persistence import NOT_STORED
from fedhk.federation.aggregators import RobustAggregator
from fedhk.personal.options import GradientStep
from fedhk.privacy import DifferentialPrivacy, SecureSummation
from fedhk.protocols import Averaging, FactorAveraging, Statistics
from fedhk.tensors import Factors

# few rounds are enough for a model to save
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {"n_init": 1, "random_state": 0, "max_rounds": 2}
NOISE = DifferentialPrivacy(50.0, 1e-4, [(-15, 15), ([-15] * 3, [15] * 3)], "add-remove", rounds=2)


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(3, 40, n_clusters=3, n_features=(4, 3), shift=0.5, random_state=0)


def start(data, kind=np.asarray):
    return [kind(view[:3]) for view in data.views]


def same(one, other):
    """Whether two values of a parameter are the same, arrays included."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, Factors):
        return type(one) is type(other) and same(vars(one), vars(other))
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def saved(model, path):
    model.save(path / "model")
    return fedhk.load(path / "model")


def assert_same_params(model, again):
    found = again.get_params(deep=False)
    for name, value in model.get_params(deep=False).items():
        if name not in NOT_STORED:
            assert same(value, found[name]), (name, value, found[name])


# One value other than the default for every parameter of every estimator; `test_every_parameter_is_tried` counts them.
MODEL = [
    {"heat_coef": "minmax"},
    {"heat_time": 0.5},
    {"fuzzifier": 1.2},
    {"view_weights": "learned"},
    {"view_weights": [0.25, 0.75]},
    {"view_weights": (0.25, 0.75)},
    {"view_weights": np.array([0.25, 0.75])},
    {"view_exponent": 3.0},
    {"scaling": "minmax"},
    {"scaling": UnitRows()},
    {"init": "random"},
    {"init": "list of arrays"},
    {"init": "dict of arrays"},
    {"init": "nested lists"},
    {"n_init": 2},
    {"tol": 0.0},
    {"random_state": 7},
]
FEDERATED = [
    *MODEL,
    {"max_rounds": 1},
    {"protocol": "auto"},
    {"protocol": "cores"},
    {"protocol": Statistics(basis=True, precision="half", refresh_every=3)},
    {"protocol": Averaging(passes=2, weights="quality", temperature=5)},
    {"participation": Participation(fraction=0.9, min_sites=2, timeout=60)},
    {"personalization": 0.5},
    {"personalization": 1},
    {"personalization": GradientStep(0.25)},
    {"privacy": NOISE},
    {"secure": True},
    {"secure": SecureSummation(threshold=2)},
    {"aggregator": "median"},
    {"aggregator": RobustAggregator("trimmed")},
]
LOW_RANK = [
    {"rank": 2},
    {"rank": 0.9},
    {"protocol": FactorAveraging(1, aggregation="factors", blend=1, precision="half")},
]
CASES = {
    HeatKernelMVC: [
        *MODEL,
        {"n_clusters": [2, 3]},
        {"n_clusters": (2, 3)},
        {"decomposition": "cp", "rank": 2},
        {"decomposition": "tucker", "rank": (2, 2, 1)},
        {"max_iter": 1},
    ],
    EFKMVC: FEDERATED,
    FedHKTucker: [*LOW_RANK, {"rank": (2, 2, 1)}, {"rank": [2, 2, 1]}],
    FedHKParafac2: LOW_RANK,
    FedHKPerson: [
        {"calibration": None},
        {"calibration": 0.5},
        {"calibration": (0.5, 1.0)},
        {"calibration": [0.5, 1.0]},
        {"decomposition": "tucker", "rank": (2, 2, 1)},
        {"personalization": 0.5},
        {"personalization": {"site-00": 0.5, "site-01": "auto"}},
        {"personalization": Personalization(centers={"site-00": 0.5, "site-01": "auto"})},
        {"personalization": Personalization(center_pull=3)},
        {"view_weights": "learned", "personalization": Personalization(view_weights=0.5, center_pull=1.0)},
        {"view_weights": "learned", "personalization": Personalization(view_pull=2.0)},
        {"protocol": Averaging(passes=2), "calibration": None},
    ],
    FedHKDiffusion: [
        {"diffusion": Diffusion(n_anchors=20, neighbours=4, scale=2, joint_weight=1)},
        {"calibration": None},
        {"calibration": (0.5, 0.5)},
        {"n_clusters": "auto"},
        {"personalization": 0.5},
    ],
}


@pytest.mark.parametrize(
    ("estimator", "params"),
    [(estimator, params) for estimator, cases in CASES.items() for params in cases],
    ids=lambda value: getattr(value, "__name__", None) or str(value)[:70],
)
def test_parameters_survive(estimator, params, data, tmp_path):
    given = {
        "list of arrays": start(data),
        "dict of arrays": dict(zip(["view_0", "view_1"], start(data), strict=True)),
        "nested lists": start(data, np.ndarray.tolist),
    }
    if isinstance(params.get("init"), str):
        params = params | {"init": given.get(params["init"], params["init"])}
    quick = QUICK if estimator is not HeatKernelMVC else {"n_init": 1, "random_state": 0}
    model = estimator(**{"n_clusters": 3} | quick | params)
    model.fit(data.views if estimator is HeatKernelMVC else data.sites)
    again = saved(model, tmp_path)
    assert type(again) is estimator
    assert_same_params(model, again)
    assert_array_equal(again.predict_proba(data.views), model.predict_proba(data.views))


def test_every_parameter_is_tried():
    for estimator, cases in CASES.items():
        tried = {name for params in [*cases, *(FEDERATED if estimator is not HeatKernelMVC else [])] for name in params}
        assert set(estimator._get_param_names()) - tried - set(NOT_STORED) == {"n_clusters"} - tried


def test_numpy_numbers_come_back_as_numbers(data, tmp_path):
    model = EFKMVC(np.int64(3), **QUICK | {"n_init": np.int32(1)}, heat_time=np.float64(0.25), secure=np.bool_(False))
    again = saved(model.fit(data.sites), tmp_path)
    assert (again.n_clusters, again.n_init, again.heat_time, again.secure) == (3, 1, 0.25, False)
    assert not any(isinstance(value, np.generic) for value in again.get_params(deep=False).values())


def test_numpy_numbers_in_options_survive(data, tmp_path):
    options = {"participation": Participation(min_sites=np.int64(2), timeout=np.float32(5))}
    again = saved(EFKMVC(3, **QUICK, **options).fit(data.sites), tmp_path)
    assert again.participation == options["participation"]
    diffusion = Diffusion(n_anchors=np.int64(20), scale=np.float64(2))
    assert saved(FedHKDiffusion(3, diffusion=diffusion, **QUICK).fit(data.sites), tmp_path).diffusion == diffusion


def test_a_generator_and_how_a_fit_was_run_are_not_kept(data, tmp_path, capsys):
    options = {"random_state": np.random.default_rng(0), "checkpoint": tmp_path / "run", "verbose": 1}
    again = saved(EFKMVC(3, **QUICK | options).fit(data.sites), tmp_path)
    assert (again.random_state, again.checkpoint, again.verbose, again.engine) == (None, None, 0, None)
    assert capsys.readouterr().err


# --------------------------------------------------------------------------------------------------- fitted attributes


FITTED = {
    HeatKernelMVC: {"decomposition": "parafac2", "rank": 2, "max_iter": 3},
    EFKMVC: {"privacy": NOISE},
    FedHKTucker: {"rank": (2, 2, 1)},
    FedHKParafac2: {"rank": 2},
    FedHKPerson: {"calibration": 0.5},
    FedHKDiffusion: {"calibration": 0.5},
}
# what is of single rows, or of sites' own models, stays behind
OF_ROWS = {"releases_", "labels_", "memberships_", "global_labels_", "client_models_", "site_reports_"}


def fitted_attributes(model):
    names = {name for name in dir(model) if name.endswith("_") and not name.startswith("_") and hasattr(model, name)}
    return {name: getattr(model, name) for name in names}


@pytest.mark.parametrize("estimator", FITTED)
def test_fitted_attributes_survive(estimator, data, tmp_path):
    quick = {} if estimator is HeatKernelMVC else {"max_rounds": 2}
    model = estimator(3, n_init=1, random_state=0, **quick | FITTED[estimator])
    model.fit(data.views if estimator is HeatKernelMVC else data.sites)
    before, after = fitted_attributes(model), fitted_attributes(saved(model, tmp_path))
    assert set(before) - set(after) <= OF_ROWS
    assert set(after) <= set(before)
    for name, value in after.items():
        assert same(value, before[name]), name


def test_files_hold_nothing_of_single_rows(tmp_path):
    data = datasets.make_sites(3, 100, n_clusters=3, n_features=(4, 3), shift=0.5, random_state=0)
    model = EFKMVC(3, **QUICK).fit(data.sites)
    model.save(tmp_path / "model")
    rows = sum(len(labels) for labels in model.labels_.values())
    with safe_open(tmp_path / "model", framework="numpy") as file:
        arrays = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118
        fitted = json.loads(file.metadata()["fedhk"])
    assert sum(array.size for array in arrays) < rows
    assert not OF_ROWS & set(json.dumps(fitted).split('"'))


def test_what_a_file_leaves_behind_is_said_with_what_to_do(data, tmp_path):
    model = EFKMVC(3, **QUICK).fit(data.sites)
    model.save(tmp_path / "model.safetensors")
    again = fedhk.load(tmp_path / "model.safetensors")
    for name in OF_ROWS:
        with pytest.raises(AttributeError, match=f"no '{name}': it was read from a file, and "):
            getattr(again, name)
    with pytest.raises(AttributeError, match=r"keep a site's own model, .*: client_models_\[site\].save\(path\)"):
        again.client_models_  # noqa: B018
    alone = HeatKernelMVC(3, n_init=1, random_state=0).fit(data.views)
    with pytest.raises(AttributeError, match="only estimators over sites have a model for each site"):
        alone.client_models_  # noqa: B018


def test_columns_of_a_data_frame_survive(data, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data.views[0], columns=list("abcd"))
    again = saved(HeatKernelMVC(3, n_init=1, random_state=0).fit(frame), tmp_path)
    assert list(again.feature_names_in_) == list("abcd")
    named = saved(HeatKernelMVC(3, n_init=1, random_state=0).fit({"left": frame}), tmp_path)
    assert named.view_columns_ == {"left": tuple("abcd")}
    again.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[list("dcba")])


def test_single_precision_and_the_shape_of_tensors_survive(data, tmp_path):
    views = [data.views[0].astype(np.float32).reshape(-1, 2, 2), data.views[1].astype(np.float32)]
    model = HeatKernelMVC(3, n_init=1, random_state=0).fit(views)
    again = saved(model, tmp_path)
    assert [centers.dtype for centers in again.cluster_centers_] == [np.float32] * 2
    assert [centers.shape for centers in again.cluster_centers_] == [(3, 2, 2), (3, 3)]
    assert_array_equal(again.predict(views), model.labels_)


# -------------------------------------------------------------------------------------------------------- later sites


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"calibration": None},
        {"calibration": (1.0, 0.5)},
        {"personalization": {"site-01": 0.5}},
        {"view_weights": "learned", "personalization": Personalization(center_pull=3, view_pull=2)},
        {"decomposition": "tucker", "rank": (2, 2, 1)},
        {"decomposition": "parafac2", "rank": 2, "protocol": "statistics"},
        {"decomposition": "tucker", "rank": 2, "protocol": FactorAveraging(passes=1), "calibration": None},
        {"secure": True},
    ],
    ids=str,
)
def test_a_site_gets_from_a_file_the_model_that_it_had_in_the_run(params, data, tmp_path):
    model = FedHKPerson(3, **QUICK, **params).fit(data.sites)
    own = saved(model, tmp_path).personalize(data.sites["site-01"], "site-01")
    assert_array_equal(own.predict(data.sites["site-01"]), model.labels_["site-01"])
    for one, other in zip(own.cluster_centers_, model.client_models_["site-01"].cluster_centers_, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


def test_a_new_site_gets_a_model_that_can_be_saved_too(data, tmp_path):
    model = saved(FedHKPerson(3, **QUICK).fit(data.sites), tmp_path)
    views = [view[:20] + 1.0 for view in data.views]
    own = model.personalize(views)
    assert isinstance(own, HeatKernelMVC)
    assert_array_equal(saved(own, tmp_path).predict(views), own.predict(views))


@pytest.mark.parametrize("kind", [fedhk.EFKMVC, fedhk.FedHKPerson, fedhk.FedHKDiffusion, fedhk.FedHKTucker])
def test_models_of_mixed_columns_come_back(kind, tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=240)
    frame = pd.DataFrame(
        {
            "site": np.array(["bern", "oslo"])[rng.integers(2, size=240)],
            "age": 40 + 15 * group + rng.normal(size=240),
            "sodium": 138 - 4 * group + rng.normal(size=240),
            "sex": np.where(rng.random(240) < 0.2 + 0.3 * group, "F", "M"),
            "drug": np.array(["a", "b", "c"])[np.where(rng.random(240) < 0.8, group, rng.integers(3, size=240))],
        }
    )
    views = {"record": ["age", "sex"], "lab": ["sodium", "drug"]}
    model = kind(3, **QUICK).fit(fedhk.from_frame(frame, site="site", views=views))
    new = {name: frame[columns] for name, columns in views.items()}
    for fitted in (model, model.client_models_["bern"]):
        np.testing.assert_array_equal(saved(fitted, tmp_path).predict(new), fitted.predict(new))
