"""EFKMVC does what its page says: attributes, containers, personal models, files, and errors that name the site."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import fedhk
from federations import TestEngine
from fedhk import EFKMVC, HeatKernelMVC, datasets
from fedhk.data.views import check_views
from fedhk.errors import DataError
from fedhk.estimators import efkmvc
from fedhk.federation.server import QuorumError
from fedhk.metrics import matched_accuracy
from fedhk.model.descent import improve
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows

QUICK = {"n_init": 2, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(4, 40, n_clusters=3, n_features=(3, 5), shift=0.5, separation=6, random_state=2)


@pytest.fixture(scope="module")
def fitted(data):
    return EFKMVC(3, personalization_step=0.5, **QUICK).fit(data.sites)


@pytest.fixture(scope="module")
def expected(data):
    return EFKMVC(3, max_rounds=3, **QUICK).fit(data.sites)


def same_centers(one, other):
    for a, b in zip(one.cluster_centers_, other.cluster_centers_, strict=True):
        assert_array_equal(a, b)


class TestAttributes:
    def test_every_site_has_labels_and_memberships_of_its_own_model(self, data, fitted):
        assert list(fitted.labels_) == list(fitted.memberships_) == list(fitted.client_models_) == sorted(data.sites)
        for site, views in data.sites.items():
            n = len(views[0])
            assert fitted.labels_[site].shape == (n,)
            assert fitted.labels_[site].dtype.kind == "i"
            assert fitted.memberships_[site].shape == (n, 3)
            assert_allclose(fitted.memberships_[site].sum(axis=1), 1, atol=1e-12)
            assert_array_equal(fitted.memberships_[site].argmax(axis=1), fitted.labels_[site])
            assert_array_equal(fitted.client_models_[site].predict(views), fitted.labels_[site])
            assert_allclose(fitted.client_models_[site].predict_proba(views), fitted.memberships_[site], atol=1e-12)

    def test_the_global_model(self, data, fitted):
        assert [centers.shape for centers in fitted.cluster_centers_] == [(3, 3), (3, 5)]
        assert fitted.view_weights_.sum() == pytest.approx(1)
        assert (fitted.n_features_in_, fitted.n_clusters_) == (8, 3)
        assert fitted.converged_
        assert "tol" in fitted.stop_reason_
        assert fitted.n_iter_ == len(fitted.history_)
        assert fitted.privacy_spent_ is None
        for site, views in data.sites.items():
            assert_array_equal(fitted.predict(views), fitted.global_labels_[site])
            assert_allclose(fitted.predict_proba(views).sum(axis=1), 1, atol=1e-12)
        rows = sum(len(views[0]) for views in data.sites.values())
        assert fitted.score(data.views) == pytest.approx(-fitted.objective_ / rows)

    def test_clusters_mean_the_same_at_every_site(self, data, fitted):
        truth = np.concatenate(list(data.site_labels.values()))
        for labels in (fitted.labels_, fitted.global_labels_):
            assert adjusted_rand_score(truth, np.concatenate([labels[site] for site in data.site_labels])) > 0.9

    def test_history_has_one_record_a_round(self, fitted):
        names = {"round", "objective", "clients", "bytes_up", "bytes_down", "seconds", "refused"}
        assert all(set(record) == names for record in fitted.history_)
        assert [record["round"] for record in fitted.history_] == list(range(1, fitted.n_iter_ + 1))
        assert all(record["clients"] == 4 and record["refused"] == {} for record in fitted.history_)
        assert all(record["seconds"] > 0 for record in fitted.history_)
        objectives = [record["objective"] for record in fitted.history_]
        assert np.all(np.diff(objectives) <= 1e-12 * objectives[0])
        assert fitted.objective_ <= objectives[-1]
        json.dumps(fitted.history_, allow_nan=False)

    def test_without_tolerance_all_rounds_are_run(self, data):
        model = EFKMVC(3, max_rounds=4, tol=0, **QUICK).fit(data.sites)
        assert model.n_iter_ == 4
        assert not model.converged_
        assert "tol=0" in model.stop_reason_

    @pytest.mark.parametrize("protocol", ["statistics", "centers"])
    @pytest.mark.parametrize("heat_coef", ["uniform", "minmax"])
    def test_bytes_are_those_of_the_real_messages(self, data, monkeypatch, protocol, heat_coef):
        engines = []

        def recording(states, workers, timeout):
            engines.append(TestEngine(data.sites))
            return engines[0]

        monkeypatch.setattr(efkmvc, "InProcessEngine", recording)
        model = EFKMVC(3, max_rounds=3, tol=0, protocol=protocol, heat_coef=heat_coef, **QUICK).fit(data.sites)
        engine = engines[0]
        setup = engine.phases.index("round")
        assert engine.phases[setup:] == ["round"] * 3 + ["finish"]
        for direction, messages in (("bytes_up", engine.received), ("bytes_down", engine.sent)):
            sizes = [sum(map(len, exchange.values())) for exchange in messages]
            expected = [sum(sizes[: setup + 1]), sizes[setup + 1], sizes[setup + 2] + sizes[setup + 3]]
            assert [record[direction] for record in model.history_] == expected

    def test_rows_do_not_leave_a_site(self, data, monkeypatch):
        """No message holds a row, as it came or in model units, nor a cell but for the range of each feature."""
        engines = []

        def recording(states, workers, timeout):
            engines.append(TestEngine(data.sites))
            return engines[0]

        monkeypatch.setattr(efkmvc, "InProcessEngine", recording)
        EFKMVC(3, max_rounds=2, **QUICK).fit(data.sites)
        for exchange, phase in zip(engines[0].received, engines[0].phases, strict=True):
            for site, answer in exchange.items():
                message = fedhk.federation.messages.decode(answer)
                arrays = [a for name, a in message.arrays.items() if name not in ("views", "moments")]
                references = engines[0].engine.states[site].rows.references
                scaled = np.hstack([(v - r.shift) / r.scale for v, r in zip(data.sites[site], references, strict=True)])
                for array in arrays:
                    assert not np.isin(array, np.hstack(data.sites[site])).any(), phase
                    if array.ndim == 2 and array.shape[1] == scaled.shape[1]:
                        assert np.abs(array[:, None] - scaled[None]).max(axis=2).min() > 1e-6, phase


class TestPersonalModels:
    def test_without_a_step_every_site_has_the_global_model(self, data):
        model = EFKMVC(3, **QUICK).fit(data.sites)
        for site, own in model.client_models_.items():
            assert type(own) is HeatKernelMVC
            same_centers(own, model)
            assert_array_equal(own.view_weights_, model.view_weights_)
            assert_array_equal(model.labels_[site], model.global_labels_[site])

    def test_with_a_step_sites_differ(self, fitted):
        centers = [own.cluster_centers_[0] for own in fitted.client_models_.values()]
        assert all(np.abs(own - fitted.cluster_centers_[0]).max() > 1e-3 for own in centers)

    @given(
        step=st.floats(1e-3, 1.0),
        seed=st.integers(0, 30),
        view_weights=st.sampled_from(["uniform", "learned"]),
        heat_coef=st.sampled_from(["uniform", "minmax", "absdev"]),
    )
    @settings(max_examples=15)
    def test_any_step_lowers_the_objective_of_the_site(self, step, seed, view_weights, heat_coef):
        sites = datasets.make_sites(
            3, 15, n_clusters=2, n_features=(2, 3), missing_views=0.3, separation=2, random_state=seed
        ).sites
        options = {"max_rounds": 2, "n_init": 1, "view_weights": view_weights, "heat_coef": heat_coef}
        model = EFKMVC(2, personalization_step=step, random_state=0, **options).fit(sites)
        for site, views in sites.items():
            assert model.client_models_[site].score(views) >= model.score(views) - 1e-12
        assert any(model.client_models_[site].score(views) > model.score(views) for site, views in sites.items())

    def test_a_larger_step_goes_further(self, data):
        near, far = (EFKMVC(3, personalization_step=step, **QUICK).fit(data.sites) for step in (0.25, 1.0))
        for site, own in near.client_models_.items():
            for a, b, c in zip(
                own.cluster_centers_, near.cluster_centers_, far.client_models_[site].cluster_centers_, strict=True
            ):
                assert_allclose(a - b, 0.25 * (c - b), atol=1e-9)

    def test_a_whole_step_is_one_iteration_of_the_site_alone(self, data):
        model = EFKMVC(3, personalization_step=1.0, fuzzifier=1.1, view_weights="uniform", **QUICK).fit(data.sites)
        start, parameters = model._model, model._model.parameters
        for site, views in data.sites.items():
            rows = Rows(check_views(views), start.references)
            with Passes(rows, 3) as scan:
                expected = improve(parameters, scan.statistics(parameters), learn_weights=False)
            for own, centers in zip(
                model.client_models_[site]._model.parameters.centers, expected.centers, strict=True
            ):
                assert_allclose(own, centers, atol=1e-12)

    def test_learned_weights_of_a_site_that_lacks_a_view_do_not_flee_to_it(self, data):
        first = next(iter(data.sites))
        sites = data.sites | {first: [data.sites[first][0], None]}
        model = EFKMVC(3, view_weights="learned", personalization_step=1.0, **QUICK).fit(sites)
        own = model.client_models_[first].view_weights_
        assert own[1] == pytest.approx(model.view_weights_[1])
        assert own.sum() == pytest.approx(1)

    def test_they_are_saved_and_loaded(self, data, fitted, tmp_path):
        for site, own in fitted.client_models_.items():
            own.save(tmp_path / "own.safetensors")
            loaded = fedhk.load(tmp_path / "own.safetensors")
            assert type(loaded) is HeatKernelMVC
            assert_array_equal(loaded.predict(data.sites[site]), fitted.labels_[site])
            n = len(data.sites[site][0])
            assert loaded.objective_ == own.objective_ == pytest.approx(-n * own.score(data.sites[site]))


class TestWhatComesIn:
    def test_a_list_of_sites_is_named(self, data):
        model = EFKMVC(3, **QUICK).fit(list(data.sites.values()))
        assert list(model.labels_) == ["site-00", "site-01", "site-02", "site-03"]

    def test_many_sites_are_in_the_order_of_the_list(self):
        rng = np.random.default_rng(0)
        sizes = rng.integers(1, 5, 103)
        model = EFKMVC(1, n_init=1, max_rounds=1).fit([[rng.normal(size=(n, 2))] for n in sizes])
        assert [len(labels) for labels in model.labels_.values()] == sizes.tolist()

    def test_names_that_are_numbers_become_text(self, data):
        model = EFKMVC(3, max_rounds=1, **QUICK).fit(dict(enumerate(data.sites.values())))
        assert list(model.labels_) == ["0", "1", "2", "3"]

    def test_views_by_name_in_any_order_and_number(self, data):
        named = {
            site: {"ecg": views[0], "image": views[1]} if i % 2 else {"image": views[1], "ecg": views[0]}
            for i, (site, views) in enumerate(data.sites.items())
        }
        first = next(iter(named))
        named[first].pop("image")
        model = EFKMVC(3, max_rounds=3, **QUICK).fit(named)
        listed = {site: [views.get("ecg"), views.get("image")] for site, views in named.items()}
        assert model.view_names_ == ["ecg", "image"]
        same_centers(model, EFKMVC(3, max_rounds=3, **QUICK).fit(listed))
        assert_array_equal(model.predict(named[first]), model.global_labels_[first])

    def test_views_keep_their_places_where_the_first_site_lacks_the_first(self, data):
        names = list(data.sites)
        sites = data.sites | {names[0]: [None, data.sites[names[0]][1]]}
        model = EFKMVC(3, **QUICK).fit(sites)
        assert [centers.shape[1] for centers in model.cluster_centers_] == [3, 5]
        assert_array_equal(model.predict(data.sites[names[1]]), model.global_labels_[names[1]])
        start = [view[[0, 50, 100]] for view in data.views]
        given = EFKMVC(3, init=start, view_weights=[0.9, 0.1]).fit(sites)
        assert given.view_weights_.tolist() == [0.9, 0.1]

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, sp.csr_array, sp.coo_matrix, np.asfortranarray])
    def test_every_container_gives_what_arrays_give(self, data, expected, make):
        kinds = {site: [make(view) for view in views] for site, views in data.sites.items()}
        model = EFKMVC(3, max_rounds=3, **QUICK).fit(kinds)
        for site in data.sites:
            assert_allclose(model.memberships_[site], expected.memberships_[site], atol=1e-8)
            assert_array_equal(model.client_models_[site].predict(kinds[site]), expected.labels_[site])

    def test_columns_of_data_frames_are_kept_and_compared(self, data):
        frames = {
            site: [pd.DataFrame(views[0], columns=list("abc")), pd.DataFrame(views[1], columns=list("vwxyz"))]
            for site, views in data.sites.items()
        }
        model = EFKMVC(3, max_rounds=2, **QUICK).fit(frames)
        first = next(iter(frames))
        turned = [frames[first][0][list("acb")], frames[first][1]]
        with pytest.raises(ValueError, match="columns in another order"):
            model.predict(turned)
        with pytest.raises(DataError, match=r"Site 'site-\d+': view 'view_0' has the columns of site .* another order"):
            EFKMVC(3).fit(frames | {first: turned})

    def test_single_precision_stays_single(self, data):
        single = {site: [view.astype(np.float32) for view in views] for site, views in data.sites.items()}
        model = EFKMVC(3, **QUICK).fit(single)
        double = EFKMVC(3, **QUICK).fit(data.sites)
        assert model.cluster_centers_[0].dtype == np.float32
        for site in single:
            assert model.memberships_[site].dtype == model.client_models_[site].cluster_centers_[1].dtype == np.float32
            assert adjusted_rand_score(model.labels_[site], double.labels_[site]) == 1

    def test_input_is_left_alone(self, data):
        copies = {site: [view.copy() for view in views] for site, views in data.sites.items()}
        for views in copies.values():
            for view in views:
                view.flags.writeable = False
        EFKMVC(3, max_rounds=2, heat_coef="absdev", **QUICK).fit(copies)
        assert_array_equal(copies["site-00"][0], data.sites["site-00"][0])


class TestEstimator:
    def test_parameters_are_those_of_the_constructor(self):
        model = EFKMVC(5, protocol="centers", local_passes=2, fraction=0.5, checkpoint="run", random_state=3)
        copied = clone(model)
        assert copied.get_params() == model.get_params()
        assert copied.set_params(n_clusters=2).n_clusters == 2
        assert not hasattr(copied, "labels_")

    def test_random_state_decides_everything(self, data):
        one, other = (EFKMVC(3, init="random", n_init=1, random_state=7).fit(data.sites) for _ in range(2))
        same_centers(one, other)
        again = EFKMVC(3, init="random", n_init=1, random_state=np.random.default_rng(0)).fit(data.sites)
        assert again.objective_ > 0

    def test_global_random_state_is_left_alone(self, data):
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        EFKMVC(3, max_rounds=1, n_init=1).fit(data.sites)
        assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002

    def test_file_keeps_the_model_and_the_history_but_no_rows(self, data, fitted, tmp_path):
        fitted.save(tmp_path / "model.safetensors")
        loaded = fedhk.load(tmp_path / "model.safetensors")
        assert type(loaded) is EFKMVC
        same_centers(loaded, fitted)
        assert loaded.history_ == fitted.history_
        assert loaded.get_params() == fitted.get_params()
        assert (loaded.objective_, loaded.n_iter_, loaded.converged_) == (fitted.objective_, fitted.n_iter_, True)
        assert not hasattr(loaded, "labels_")
        for site, views in data.sites.items():
            assert_array_equal(loaded.predict(views), fitted.global_labels_[site])

    def test_verbose_writes_to_standard_error_only(self, data, capfd):
        EFKMVC(3, verbose=1, max_rounds=3, **QUICK).fit(data.sites)
        out, err = capfd.readouterr()
        assert out == ""
        assert "round" in err
        assert "objective" in err
        EFKMVC(3, max_rounds=3, **QUICK).fit(data.sites)
        assert capfd.readouterr() == ("", "")

    def test_refitting_forgets_the_sites_of_the_last_fit(self, data):
        model = EFKMVC(3, max_rounds=1, **QUICK).fit(data.sites)
        model.fit({"only": data.views})
        assert list(model.labels_) == list(model.client_models_) == ["only"]

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_the_predecessor_s_data_over_ten_uneven_sites(self, seed):
        data = datasets.make_two_view_shapes(random_state=seed)
        rows = datasets.split_dirichlet(data.labels, 10, 0.1, random_state=seed)
        model = EFKMVC(4, n_init=5, random_state=seed).fit(datasets.split_views(data.views, rows))
        truth = np.concatenate([data.labels[rows[site]] for site in rows])
        assert matched_accuracy(truth, np.concatenate([model.labels_[site] for site in rows])) >= 0.99


VIEWS = [np.arange(12.0).reshape(6, 2), np.arange(18.0).reshape(6, 3)]


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "value", "allowed"),
        [
            ("n_clusters", 0, r"range \[1, inf\)"),
            ("n_clusters", "auto", "int"),
            ("max_rounds", 0, r"range \[1, inf\)"),
            ("local_passes", 0, r"range \[1, inf\)"),
            ("protocol", "gossip", "'centers', 'statistics'|'statistics', 'centers'"),
            ("client_weights", "votes", "'mass'"),
            ("quality_temperature", -1.0, r"range \[0.0, inf\)"),
            ("personalization_step", 1.5, r"range \[0.0, 1.0\]"),
            ("fraction", 0.0, r"range \(0.0, 1.0\]"),
            ("fraction", 1.1, r"range \(0.0, 1.0\]"),
            ("min_sites", 0, r"range \[1, inf\)"),
            ("timeout", 0, r"range \(0.0, inf\)"),
            ("checkpoint", 3, "str"),
            ("heat_coef", "hot", "'absdev'"),
            ("heat_time", 0.0, r"range \(0.0, inf\)"),
            ("fuzzifier", 1.0, r"range \(1.0, inf\)"),
            ("scaling", "robust", "'standard'"),
            ("init", "best", "'k-fed'"),
            ("tol", -1.0, r"range \[0.0, inf\)"),
        ],
    )
    def test_parameters(self, name, value, allowed):
        with pytest.raises(ValueError, match=f"'{name}' parameter of EFKMVC must be .*({allowed}).* Got {value!r}"):
            EFKMVC(**{name: value}).fit({"a": VIEWS})

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"init": [VIEWS[0][:2]]}, "init has 1 arrays of centres, but X has 2 views"),
            ({"init": [VIEWS[0][:2], VIEWS[1][:3]]}, r"init for view 'view_1' has shape \(3, 3\).*\(2, 3\)"),
            ({"init": [VIEWS[0][:2] * np.nan, VIEWS[1][:2]]}, "init for view 'view_0'.* must be finite"),
            ({"view_weights": [1.0]}, r"view_weights=\[1.0\] must be 2 finite non-negative numbers"),
            ({"view_weights": [-1.0, 2.0]}, "non-negative"),
            ({"random_state": -1}, "random_state"),
        ],
    )
    def test_parameters_that_depend_on_the_views(self, options, said):
        with pytest.raises(ValueError, match=said):
            EFKMVC(2, **options).fit({"a": VIEWS})

    @pytest.mark.parametrize(
        ("sites", "said"),
        [
            (VIEWS[0], "sites must be a dict by name or a list of sites.*got ndarray.*use HeatKernelMVC"),
            ("rome", "got str"),
            (None, "got NoneType"),
            ({}, "sites is empty"),
            ([], "sites is empty"),
            (
                {"rome": VIEWS[0]},
                "Site 'rome' is a ndarray; a site is a list or dict of views. Put one table in a list",
            ),
            ({"rome": None}, "Site 'rome' is a NoneType"),
            (VIEWS, "Site 'site-00' is a ndarray"),
            ({"rome": [None, None]}, "Site 'rome': X has no views"),
            ({"rome": {}}, "Site 'rome': X has no views"),
            (
                {"rome": [VIEWS[0], VIEWS[1][:5]]},
                "Site 'rome': Views must have the same rows.*'view_0' has 6.*'view_1' has 5",
            ),
            ({"rome": [np.array([[1.0, np.inf]])]}, "Site 'rome': View 'view_0' contains infinity"),
            ({"rome": [np.array([["a", "b"]])]}, "Site 'rome': View 'view_0' has dtype <U1"),
            ({"rome": [np.zeros((3, 0))]}, r"Site 'rome': View 'view_0': 0 feature\(s\)"),
            ({"rome": [np.zeros((3, 2, 0))]}, r"Site 'rome': View 'view_0': 0 feature\(s\)"),
            (
                {"rome": [np.zeros((3, 6, 4))], "oslo": [np.zeros((2, 4, 6))]},
                r"Site 'rome': view 'view_0' has shape \(n, 6, 4\), at site 'oslo' shape \(n, 4, 6\)",
            ),
            (
                {"rome": [np.zeros((3, 6, 4))], "oslo": [np.zeros((2, 6, 5))]},
                r"Site 'rome': view 'view_0' has shape \(n, 6, 4\), at site 'oslo' shape \(n, 6, 5\)",
            ),
            (
                {"rome": VIEWS, "oslo": VIEWS[:1]},
                "Sites must list the same views, but site 'rome' has 2, site 'oslo' has 1",
            ),
            (
                {"rome": VIEWS, "oslo": [VIEWS[0], VIEWS[0]]},
                "Site 'rome': view 'view_1' has 3 features, at site 'oslo' 2 features; a view must have",
            ),
            ({"rome": [VIEWS[0], None], "oslo": [VIEWS[0], None]}, "View 'view_1' has no observed value at any site"),
            ({"rome": [VIEWS[0], VIEWS[1] * np.nan]}, "View 'view_1' has no observed value at any site: leave"),
            ({1: VIEWS, "1": VIEWS}, "Two sites are called '1'"),
            ({"two\nlines": VIEWS}, "the name of a site must be 1 to 200 printable characters"),
            ({"": VIEWS}, "Site '': the name"),
            ({"x" * 201: VIEWS}, "the name of a site must be"),
            ({"rome": [VIEWS[0][:1]], "oslo": [VIEWS[0][:1]]}, "n_samples=2, which should be >= n_clusters=3"),
        ],
    )
    def test_sites(self, sites, said):
        with pytest.raises(DataError, match=said):
            EFKMVC(3).fit(sites)

    def test_columns_that_differ_are_listed(self):
        frames = {
            name: [pd.DataFrame(VIEWS[0], columns=list(columns))] for name, columns in (("rome", "ab"), ("oslo", "ac"))
        }
        with pytest.raises(DataError, match=r"Site 'rome': .*site 'oslo': missing \['c'\], unexpected \['b'\]"):
            EFKMVC(2).fit(frames)

    def test_more_sites_needed_than_there_are(self, data):
        with pytest.raises(QuorumError, match=r"4 usable answers in phase 'describe'.*min_sites=5"):
            EFKMVC(3, min_sites=5).fit(data.sites)

    def test_new_rows_that_do_not_fit_the_model(self, data, fitted):
        with pytest.raises(ValueError, match="X has 1 views, but the model was fitted with 2"):
            fitted.predict([data.views[0]])
        with pytest.raises(ValueError, match="'view_0' has 5 features, but the model expects 3"):
            fitted.predict(data.views[::-1])
        with pytest.raises(ValueError, match=r"unknown views \['sound'\]"):
            fitted.predict({"sound": data.views[0]})

    def test_before_fit(self, data, tmp_path):
        for use in (lambda m: m.predict(data.views), lambda m: m.save(tmp_path / "m")):
            with pytest.raises(NotFittedError):
                use(EFKMVC())


class TestTensorViews:
    @pytest.fixture
    def sites(self):
        data = datasets.make_sites(3, 30, n_clusters=3, n_features=(6, 2), separation=6, random_state=0)
        return {site: [views[0].reshape(-1, 2, 3), views[1]] for site, views in data.sites.items()}

    @pytest.mark.parametrize("protocol", ["statistics", "centers"])
    def test_they_are_clustered_as_their_flat_rows_and_centres_have_their_shape(self, sites, protocol, tmp_path):
        sites["site-01"][0][::5, 0, 1] = np.nan
        sites["site-02"][0] = None
        flat = {s: [None if t is None else t.reshape(-1, 6), v] for s, (t, v) in sites.items()}
        options = QUICK | {"protocol": protocol, "personalization_step": 0.5}
        model, plain = (EFKMVC(3, **options).fit(X) for X in (sites, flat))
        model.save(tmp_path / "model")
        for own in (model, fedhk.load(tmp_path / "model"), *model.client_models_.values()):
            assert [centers.shape for centers in own.cluster_centers_] == [(3, 2, 3), (3, 2)]
            assert_array_equal(own.predict(sites["site-00"]), own.predict(flat["site-00"]))
            with pytest.raises(
                ValueError, match=r"'view_0' has shape \(n, 3, 2\), but the model expects .*\(n, 2, 3\)"
            ):
                own.predict([sites["site-00"][0].transpose(0, 2, 1), None])
        assert_array_equal(model.cluster_centers_[0].reshape(3, 6), plain.cluster_centers_[0])
        mixed = EFKMVC(3, **options).fit(sites | {"site-00": flat["site-00"]})
        same_centers(mixed, model)

    def test_centres_are_given_in_shape_or_flat(self, sites):
        start = [sites["site-00"][0][:3], sites["site-00"][1][:3]]
        same_centers(EFKMVC(3, init=start).fit(sites), EFKMVC(3, init=[start[0].reshape(3, 6), start[1]]).fit(sites))
        with pytest.raises(ValueError, match=r"'view_0' has shape \(3, 3, 2\); .*=\(3, 6\) or \(3, 2, 3\)"):
            EFKMVC(3, init=[start[0].transpose(0, 2, 1), start[1]]).fit(sites)

    def test_a_resumed_run_knows_the_shape(self, sites, tmp_path):
        model = EFKMVC(3, checkpoint=tmp_path / "run", **QUICK)
        expected = model.fit(sites)
        resumed = clone(model).fit(sites, resume=True)
        same_centers(resumed, expected)
        assert resumed.cluster_centers_[0].shape == (3, 2, 3)
