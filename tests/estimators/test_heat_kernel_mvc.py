"""HeatKernelMVC is what users of scikit-learn expect, whatever they feed it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fedhk
from fedhk import HeatKernelMVC, datasets

QUICK = {"n_init": 3, "random_state": 0}

# scikit-learn takes everything with predict_proba and sparse input for a classifier and reads tags that only
# classifiers have; it also expects as many columns as its labels have classes. A clusterer has one per cluster.
REASON = "the check expects predict_proba to have one column per class of y"
NOT_FOR_CLUSTERERS = {"check_estimator_sparse_array": REASON, "check_estimator_sparse_matrix": REASON}


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(2, 80, n_clusters=3, n_features=(4, 6), shift=0, scale=0, separation=7, random_state=1)


@pytest.fixture(scope="module")
def fitted(data):
    return HeatKernelMVC(3, **QUICK).fit([view.copy() for view in data.views])


@pytest.fixture
def views(data):
    return [view.copy() for view in data.views]


# the checks fit few rows, of which some are alike, with the default of eight clusters
@pytest.mark.filterwarnings("ignore:HeatKernelMVC found .* clusters that have rows")
@pytest.mark.filterwarnings("ignore:HeatKernelMVC did not converge")
@pytest.mark.filterwarnings("ignore:HeatKernelMVC. all rows belong to all clusters almost alike")
def test_scikit_learn_checks_pass():
    results = check_estimator(HeatKernelMVC(n_init=2), expected_failed_checks=NOT_FOR_CLUSTERERS, on_skip=None)
    assert {r["check_name"] for r in results if r["status"] == "failed"} == set()
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(NOT_FOR_CLUSTERERS)


def test_finds_the_clusters_and_reports_how(views, data):
    model = HeatKernelMVC(3, **QUICK).fit(views)
    assert adjusted_rand_score(data.labels, model.labels_) > 0.95
    assert model.memberships_.shape == (len(data.labels), 3)
    assert_allclose(model.memberships_.sum(axis=1), 1, atol=1e-12)
    assert [centers.shape for centers in model.cluster_centers_] == [(3, 4), (3, 6)]
    assert model.view_weights_.sum() == pytest.approx(1)
    assert model.n_features_in_ == 10
    assert model.n_iter_ == len(model.history_) >= 1
    assert model.converged_
    assert "tol" in model.stop_reason_
    objectives = [record["objective"] for record in model.history_]
    assert np.all(np.diff(objectives) <= 1e-10 * objectives[0])
    assert model.objective_ <= objectives[-1] * (1 + 1e-10)
    assert 0.2 < model.score(views) < 1


def test_centers_are_in_input_units(data):
    moved = [1000 + 7 * view for view in data.views]
    model = HeatKernelMVC(3, **QUICK).fit(moved)
    for view, centers in zip(moved, model.cluster_centers_, strict=True):
        for k in range(3):
            assert_allclose(centers[k], view[model.labels_ == k].mean(axis=0), atol=0.3 * view.std())


def test_predict_on_the_same_rows_gives_the_same(views):
    model = HeatKernelMVC(3, **QUICK)
    assert_array_equal(model.fit_predict(views), model.predict(views))
    assert_array_equal(model.predict_proba(views), model.memberships_)
    assert_array_equal(model.transform(views).argmin(axis=1), model.labels_)


def test_random_state_decides_everything(views):
    first, second = (HeatKernelMVC(3, n_init=3, random_state=7).fit(views) for _ in range(2))
    assert_array_equal(first.memberships_, second.memberships_)
    generator = HeatKernelMVC(3, n_init=3, random_state=np.random.default_rng(0)).fit(views)
    assert adjusted_rand_score(generator.labels_, first.labels_) == 1


def test_global_random_state_is_left_alone(views):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    HeatKernelMVC(3, n_init=3).fit(views)
    assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_order_of_rows_changes_nothing_else(views, fitted):
    order = np.random.default_rng(3).permutation(len(views[0]))
    a = fitted
    b = HeatKernelMVC(3, **QUICK).fit([view[order] for view in views])
    assert_allclose(a.memberships_[order], b.memberships_, atol=1e-9)


def test_clone_and_pickle(views, fitted):
    model = fitted
    assert not hasattr(clone(model), "labels_")
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(views), model.labels_)  # noqa: S301


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, sp.csr_matrix, sp.coo_array, np.asfortranarray, list])
def test_every_container_gives_what_arrays_give(views, fitted, make):
    expected = fitted
    kinds = [make(view.tolist() if make is list else view) for view in views]
    model = HeatKernelMVC(3, **QUICK).fit(kinds)
    assert_allclose(model.memberships_, expected.memberships_, atol=1e-8)
    assert_array_equal(model.predict(kinds), expected.labels_)


def test_memory_mapped_views(views, fitted, tmp_path):
    for h, view in enumerate(views):
        np.save(tmp_path / f"{h}.npy", view)
    mapped = [np.load(tmp_path / f"{h}.npy", mmap_mode="r") for h in range(2)]
    expected = fitted
    assert_array_equal(HeatKernelMVC(3, **QUICK).fit(mapped).memberships_, expected.memberships_)


def test_integers_and_booleans_are_numbers(views):
    whole = [np.round(10 * view).astype(kind) for view, kind in zip(views, ("int32", "int64"), strict=True)]
    a = HeatKernelMVC(3, **QUICK).fit([*whole, views[0] > 0])
    b = HeatKernelMVC(3, **QUICK).fit([*(view.astype(float) for view in whole), (views[0] > 0).astype(float)])
    assert_allclose(a.memberships_, b.memberships_, atol=1e-12)


def test_single_precision_stays_single(views, fitted):
    single = HeatKernelMVC(3, **QUICK).fit([view.astype("float32") for view in views])
    double = fitted
    assert single.memberships_.dtype == single.cluster_centers_[0].dtype == np.float32
    assert adjusted_rand_score(single.labels_, double.labels_) == 1


def test_dict_of_views_is_read_by_name(views):
    model = HeatKernelMVC(3, **QUICK).fit({"ecg": views[0], "image": views[1]})
    assert model.view_names_ == ["ecg", "image"]
    assert_array_equal(model.predict({"image": views[1], "ecg": views[0]}), model.labels_)
    assert len(model.predict({"image": views[1]})) == len(views[1])
    with pytest.raises(ValueError, match=r"unknown views \['mri'\]; the model knows \['ecg', 'image'\]"):
        model.predict({"mri": views[0]})


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ({"age": 50.0, "sex": "F"}, r"give a data frame: pandas\.DataFrame\(\[row\]\)"),
        ({"age": [50.0, 60.0], "sex": ["F", "M"]}, r"give a data frame: pandas\.DataFrame\(columns\)"),
        (
            {"record": {"age": 50.0, "sex": "F"}},
            r"'record' is a dict: give a data frame, such as pandas\.DataFrame\(\[row\]\)",
        ),
        ({"lab": [[50.0], [60.0]]}, r"the model knows \['record'\]\.$"),
    ],
)
def test_a_dict_in_the_place_of_a_data_frame_is_refused_with_what_to_give(new, said):
    rng = np.random.default_rng(0)
    record = pd.DataFrame({"age": rng.normal(size=60), "sex": ["F", "M"] * 30})
    model = HeatKernelMVC(2, **QUICK).fit({"record": record})
    with pytest.raises(ValueError, match=said):
        model.predict(new)


def test_data_frames_must_keep_their_columns(views):
    frames = [
        pd.DataFrame(view, columns=[f"{h}{j}" for j in range(view.shape[1])])
        for h, view in zip("ab", views, strict=True)
    ]
    model = HeatKernelMVC(3, **QUICK).fit(frames)
    turned = [frames[0][frames[0].columns[::-1]], frames[1]]  # columns are found by name
    assert_array_equal(model.predict(turned), model.labels_)
    with pytest.raises(ValueError, match=r"missing \['a0'\], unexpected \['z'\]"):
        model.predict([frames[0].rename(columns={"a0": "z"}), frames[1]])


def test_one_view_may_be_absent_at_prediction(views, fitted):
    model = fitted
    assert adjusted_rand_score(model.predict([None, views[1]]), model.labels_) > 0.8
    absent = np.full_like(views[0], np.nan)
    assert_allclose(model.predict_proba([absent, views[1]]), model.predict_proba([None, views[1]]), atol=1e-12)


def test_missing_cells_and_rows_do_not_stop_it(views, data):
    rng = np.random.default_rng(0)
    views[0][rng.random(views[0].shape) < 0.1] = np.nan
    views[1][rng.random(len(views[1])) < 0.2] = np.nan
    model = HeatKernelMVC(3, **QUICK).fit(views)
    assert adjusted_rand_score(data.labels, model.labels_) > 0.8
    assert all(np.all(np.isfinite(centers)) for centers in model.cluster_centers_)


def test_row_without_any_value_belongs_everywhere_alike(views):
    for view in views:
        view[5] = np.nan
    assert_allclose(HeatKernelMVC(3, **QUICK).fit(views).memberships_[5], 1 / 3)


def test_weights_are_repetitions(views):
    weights = np.random.default_rng(0).integers(0, 4, len(views[0]))
    weighted = HeatKernelMVC(3, **QUICK).fit(views, sample_weight=weights)
    repeated = HeatKernelMVC(3, **QUICK).fit([np.repeat(view, weights, axis=0) for view in views])
    for a, b in zip(weighted.cluster_centers_, repeated.cluster_centers_, strict=True):
        assert_allclose(a, b, atol=1e-8)


def test_given_centers_are_in_input_units_and_kept_in_order(views, fitted):
    order = [2, 0, 1]
    start = [centers[order] for centers in fitted.cluster_centers_]
    again = HeatKernelMVC(3, init=start).fit(views)
    assert_array_equal(again.labels_, np.argsort(order)[fitted.labels_])
    named = HeatKernelMVC(3, init={"b": start[1], "a": start[0]}).fit({"a": views[0], "b": views[1]})
    assert_array_equal(named.labels_, again.labels_)


@pytest.mark.parametrize("heat_coef", ["uniform", "minmax", "absdev"])
@pytest.mark.parametrize("scaling", ["standard", "minmax", "l2", "none"])
def test_every_scaling_with_every_coefficient(views, heat_coef, scaling):
    model = HeatKernelMVC(3, heat_coef=heat_coef, scaling=scaling, **QUICK).fit(views)
    objectives = [record["objective"] for record in model.history_]
    assert np.all(np.diff(objectives) <= 1e-10 * objectives[0])
    assert_array_equal(model.predict(views), model.labels_)


def test_learned_view_weights_prefer_the_view_with_clusters(views):
    noise = np.random.default_rng(0).normal(size=views[0].shape)
    model = HeatKernelMVC(3, view_weights="learned", **QUICK).fit([views[0], noise])
    assert model.view_weights_[0] > 0.6
    assert model.view_weights_.sum() == pytest.approx(1)


def test_given_view_weights_are_kept(views):
    model = HeatKernelMVC(3, view_weights=[3, 1], **QUICK).fit(views)
    assert_allclose(model.view_weights_, [0.75, 0.25])


def test_number_of_clusters_can_be_chosen(views):
    model = HeatKernelMVC("auto", n_init=2, random_state=0).fit(views)
    assert model.n_clusters_ == 3
    assert [row["n_clusters"] for row in model.selection_] == list(range(2, 16))
    assert HeatKernelMVC((3, 5), **QUICK).fit(views).n_clusters_ == 3


def test_verbose_says_how_it_goes(views, capsys):
    HeatKernelMVC(3, **QUICK, verbose=1).fit(views)
    said = capsys.readouterr()
    assert "objective" in said.err
    assert said.out == ""


def test_codes_for_missing_values_are_named_as_over_sites():
    table = pd.DataFrame(np.random.default_rng(0).normal(140, 2, (60, 2)), columns=["sodium", "pressure"])
    table.loc[::10, "sodium"] = -999
    with pytest.warns(UserWarning, match="X: record/sodium has -999 again and again, far outside its other values"):
        HeatKernelMVC(2, random_state=0).fit({"record": table})


def test_one_table_is_a_plain_clusterer(views):
    joint = np.hstack(views)
    model = make_pipeline(StandardScaler(), HeatKernelMVC(3, **QUICK)).fit(joint)
    assert model[-1].cluster_centers_.shape == (3, 10)
    assert list(model.get_feature_names_out()) == ["heatkernelmvc0", "heatkernelmvc1", "heatkernelmvc2"]


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"n_clusters": 0}, "n_clusters"),
            ({"n_clusters": [2, "x"]}, "n_clusters"),
            ({"heat_coef": "cubic"}, "heat_coef.*absdev"),
            ({"heat_time": 0}, "heat_time"),
            ({"fuzzifier": 1.0}, "fuzzifier"),
            ({"view_exponent": 1}, "view_exponent"),
            ({"view_weights": [1, 2, 3]}, "view_weights.*2 finite"),
            ({"view_weights": [0, 0]}, "view_weights"),
            ({"view_weights": "best"}, "view_weights"),
            ({"scaling": "robust"}, "scaling"),
            ({"init": "farthest"}, "init"),
            ({"init": [np.zeros((3, 4))]}, "init has 1 arrays.*2 views"),
            ({"init": [np.zeros((3, 4)), np.zeros((2, 6))]}, r"'view_1' has shape \(2, 6\).*\(3, 6\)"),
            ({"n_init": 0}, "n_init"),
            ({"max_iter": 0}, "max_iter"),
            ({"tol": -1}, "tol"),
            ({"random_state": "x"}, "random_state"),
            ({"n_clusters": 1000}, r"n_samples=\d+ should be >= n_clusters=1000"),
        ],
    )
    def test_parameters(self, views, change, message):
        with pytest.raises(ValueError, match=message):
            HeatKernelMVC(**({"n_clusters": 3} | change)).fit(views)

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            ([], "."),
            ([np.ones((5, 2)), np.ones((4, 2))], "'view_0' has 5, 'view_1' has 4"),
            ([np.ones((5, 2)), np.ones((5, 2, 0))], "'view_1'.*minimum of 1"),
            (np.ones((5, 2, 2)), r"dim 3, shape \(5, 2, 2\).*<= 2.*wrap it in a list"),
            ([np.ones((5, 2)), np.ones((5, 0))], "'view_1'.*minimum of 1"),
            ([np.ones((0, 2)), np.ones((0, 2))], "minimum of 1"),
            ([np.ones((5, 2)), np.full((5, 2), np.inf)], "'view_1' contains infinity"),
            ([np.ones((5, 2)), np.full((5, 2), "a")], "'view_1'.*numeric"),
            ([np.ones((5, 2)), np.full((5, 2), 1e200)], "'view_1'.*1e.200"),
            ([np.ones((5, 2)), np.arange(10).reshape(5, 2) * 1e-200], "'view_1', column 0.*Rescale"),
            ([np.ones((5, 2)), np.full((5, 2), np.nan)], "'view_1' has no observed value"),
            ([np.ones((5, 2)), None], "'view_1' is None"),
            ({"a": np.ones((5, 2)), "b": np.ones((3, 2))}, "'a' has 5, 'b' has 3"),
            ([np.ones((5, 2)), np.ones((5, 2), dtype=complex)], "Complex"),
            ([[[1, 2], [3]]], "view_0"),
        ],
    )
    def test_views(self, X, message):
        with pytest.raises(ValueError, match=message):
            HeatKernelMVC(2).fit(X)

    def test_views_at_prediction(self, views, fitted):
        model = fitted
        with pytest.raises(ValueError, match="X has 1 views, but the model was fitted with 2 views"):
            model.predict(views[:1])
        with pytest.raises(ValueError, match="'view_1' has 5 features, but the model expects 6"):
            model.predict([views[0], views[1][:, :5]])
        with pytest.raises(ValueError, match="no views"):
            model.predict([None, None])

    def test_weights(self, views):
        with pytest.raises(ValueError, match=r"[Ss]ample weights"):
            HeatKernelMVC(3).fit(views, sample_weight=np.zeros(len(views[0])))
        with pytest.raises(ValueError, match=r"[Nn]egative"):
            HeatKernelMVC(3).fit(views, sample_weight=np.full(len(views[0]), -1.0))


class TestOddButRight:
    def test_constant_columns_drop_out(self, views, fitted):
        wide = [np.hstack([view, np.full((len(view), 2), 7.0)]) for view in views]
        model = HeatKernelMVC(3, **QUICK).fit(wide)
        assert adjusted_rand_score(model.labels_, fitted.labels_) == 1
        assert_allclose(model.cluster_centers_[0][:, -1], 7)

    def test_column_without_values_drops_out(self, views, fitted):
        wide = [np.hstack([view, np.full((len(view), 1), np.nan)]) for view in views]
        model = HeatKernelMVC(3, **QUICK).fit(wide)
        assert adjusted_rand_score(model.labels_, fitted.labels_) == 1
        for centers in model.cluster_centers_:  # nobody knows where they would be
            assert np.all(np.isfinite(centers[:, :-1]))
            assert np.all(np.isnan(centers[:, -1]))
        assert_array_equal(model.predict(wide), model.labels_)

    @pytest.mark.parametrize("size", [1e-100, 1e-30, 1e30, 1e100])
    def test_units_do_not_matter(self, views, fitted, size):
        a, b = fitted, HeatKernelMVC(3, **QUICK).fit([size * view for view in views])
        assert_allclose(a.memberships_, b.memberships_, atol=1e-8)

    @pytest.mark.parametrize("size", [1e-36, 1e36])
    def test_units_do_not_matter_in_single_precision(self, views, fitted, size):
        scaled = [(size * view).astype("float32") for view in views]
        a, b = fitted, HeatKernelMVC(3, **QUICK).fit(scaled)
        assert adjusted_rand_score(a.labels_, b.labels_) == 1

    def test_one_huge_value_does_not_ruin_the_rest(self, views, data):
        views[0][0, 0] = 1e30
        model = HeatKernelMVC(3, **QUICK).fit(views)
        assert np.all(np.isfinite(model.memberships_))
        assert adjusted_rand_score(data.labels[1:], model.labels_[1:]) > 0.5

    def test_duplicated_rows(self, views):
        doubled = [np.repeat(view, 2, axis=0) for view in views]
        model = HeatKernelMVC(3, **QUICK).fit(doubled)
        assert_array_equal(model.labels_[::2], model.labels_[1::2])

    @pytest.mark.parametrize("n_clusters", [1, 3, 7])
    def test_all_rows_alike(self, n_clusters):
        doubt = pytest.warns(ConvergenceWarning, match="all rows belong to all clusters almost alike")
        with doubt if n_clusters > 1 else nullcontext():
            model = HeatKernelMVC(n_clusters, **QUICK).fit([np.ones((7, 3)), np.zeros((7, 1))])
        assert_allclose(model.memberships_.sum(axis=1), 1)
        assert_allclose(model.cluster_centers_[0], 1)

    def test_as_many_clusters_as_rows(self, views):
        model = HeatKernelMVC(9, **QUICK).fit([view[:9] for view in views])
        assert sorted(model.labels_) == list(range(9))

    def test_one_cluster(self, views):
        model = HeatKernelMVC(1, scaling="none").fit(views)
        assert_array_equal(model.labels_, 0)
        assert_allclose(model.memberships_, 1)

    def test_one_row(self):
        assert_array_equal(HeatKernelMVC(1).fit([np.array([[1.0, 2.0]])]).labels_, [0])

    def test_zero_rows_with_unit_scaling(self, views):
        views[0][3] = 0
        assert np.all(np.isfinite(HeatKernelMVC(3, scaling="l2", **QUICK).fit(views).memberships_))


def test_single_and_double_precision_agree_on_benchmark_data(benchmark_data):
    for name in ("handwritten", "heart4_nan", "leaves100", "msrcv1_5v", "snareseq", "watch7", "wisdm6"):
        views, labels, _ = benchmark_data(name)
        rows = slice(None, None, -(-len(labels) // 500))  # every class has some
        views = [view[rows] for view in views]
        start = HeatKernelMVC(len(np.unique(labels[rows])), n_init=1, random_state=0).fit(views)
        single, double = (
            HeatKernelMVC(start.n_clusters_, init=start.cluster_centers_).fit([view.astype(kind) for view in views])
            for kind in ("float32", "float64")
        )
        assert np.mean(single.labels_ == double.labels_) >= 0.995, name


def test_importing_the_estimators_does_not_load_what_only_pictures_need():
    found = "import sys; from fedhk import HeatKernelMVC, FedHKPerson; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "False"


class TestTensorViews:
    @pytest.fixture
    def tensors(self, views):
        return {"image": views[1].reshape(-1, 3, 2), "age": views[0]}

    @pytest.mark.parametrize("options", [{}, {"heat_coef": "absdev"}, {"scaling": "l2"}])
    def test_they_are_clustered_as_their_flat_rows_and_centres_have_their_shape(self, tensors, options):
        tensors["image"][::7, 1, 0] = np.nan
        flat = tensors | {"image": tensors["image"].reshape(-1, 6)}
        model, plain = (HeatKernelMVC(3, **QUICK, **options).fit(X) for X in (tensors, flat))
        assert [centers.shape for centers in model.cluster_centers_] == [(3, 3, 2), (3, 4)]
        assert_array_equal(model.cluster_centers_[0].reshape(3, 6), plain.cluster_centers_[0])
        assert_array_equal(model.labels_, plain.labels_)
        for X in (tensors, flat):
            assert_array_equal(model.predict(X), model.labels_)
            assert_array_equal(model.transform(X), plain.transform(flat))
            assert model.score(X) == plain.score(flat)

    def test_one_tensor_view_alone_stands_in_a_list(self, tensors):
        model = HeatKernelMVC(3, **QUICK).fit([tensors["image"]])
        assert model.cluster_centers_[0].shape == (3, 3, 2)
        assert model.n_features_in_ == 6

    def test_after_a_file_shapes_are_the_same(self, tensors, tmp_path):
        model = HeatKernelMVC(3, **QUICK).fit(tensors)
        model.save(tmp_path / "model")
        loaded = fedhk.load(tmp_path / "model")
        for a, b in zip(loaded.cluster_centers_, model.cluster_centers_, strict=True):
            assert_array_equal(a, b)
        assert_array_equal(loaded.predict(tensors), model.labels_)
        for fitted in (model, loaded):
            with pytest.raises(ValueError, match=r"'image' has shape \(n, 2, 3\), but the model expects .*\(n, 3, 2\)"):
                fitted.predict(tensors | {"image": tensors["image"].transpose(0, 2, 1)})

    def test_centres_are_given_in_shape_or_flat(self, tensors):
        image, age = HeatKernelMVC(3, **QUICK).fit(tensors).cluster_centers_
        fits = [HeatKernelMVC(3, init=[start, age]).fit(tensors) for start in (image, image.reshape(3, 6))]
        assert_array_equal(fits[0].cluster_centers_[0], fits[1].cluster_centers_[0])
        with pytest.raises(ValueError, match=r"'image' has shape \(3, 2, 3\); .*=\(3, 6\) or \(3, 3, 2\)"):
            HeatKernelMVC(3, init=[image.transpose(0, 2, 1), age]).fit(tensors)


def test_a_refit_forgets_the_column_names_of_the_last_fit(views, tmp_path):
    named = pd.DataFrame(views[0], columns=list("abcd"))
    mixed = pd.DataFrame({"kind": ["x", "y"] * (len(named) // 2), "size": views[0][:, 0]})
    model = HeatKernelMVC(2, **QUICK).fit(named)
    assert list(model.feature_names_in_) == list("abcd")
    for other in (mixed, views):
        model.fit(other)
        assert not hasattr(model, "feature_names_in_")
        model.save(tmp_path / "model.safetensors")
        assert_array_equal(fedhk.load(tmp_path / "model.safetensors").predict(other), model.labels_)
        model.fit(named)


def test_set_output_makes_data_frames_of_distances(views):
    model = HeatKernelMVC(3, **QUICK).set_output(transform="pandas")
    frame = model.fit(views).transform(views)
    assert list(frame.columns) == list(model.get_feature_names_out())
    plain = HeatKernelMVC(3, **QUICK).fit(views).transform(views)
    assert isinstance(plain, np.ndarray)
    assert_array_equal(frame, plain)
