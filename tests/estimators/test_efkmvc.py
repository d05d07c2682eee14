"""EFKMVC does what its page says: attributes of all sites, personal models, and sites that hold little."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import adjusted_rand_score

import fedhk
from federations import fit_recorded
from fedhk import EFKMVC, HeatKernelMVC, datasets
from fedhk.data.views import check_views
from fedhk.errors import DataError
from fedhk.federation.codec import TREE
from fedhk.federation.entries import References
from fedhk.federation.messages import decode
from fedhk.metrics import matched_accuracy
from fedhk.model.descent import improve
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows

OSLO = "oslo"
QUICK = {"n_init": 2, "random_state": 0}
# fits of few rounds on purpose: what they have at the end is compared
pytestmark = pytest.mark.filterwarnings("ignore:.* (did not converge|gives back):sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(4, 40, n_clusters=3, n_features=(3, 5), shift=0.5, separation=6, random_state=2)


@pytest.fixture(scope="module")
def fitted(data):
    return EFKMVC(3, personalization=0.5, **QUICK).fit(data.sites)


def same_centers(one, other):
    for a, b in zip(one.cluster_centers_, other.cluster_centers_, strict=True):
        assert_array_equal(a, b)


def objective(model, views):
    """J of some rows in a model."""
    rows = model._rows(views)
    with Passes(rows, model.n_clusters_) as scan:
        return scan.assign(model._model.parameters)[2]


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
        assert objective(fitted, data.views) == pytest.approx(fitted.objective_)

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
        model = EFKMVC(3, max_rounds=3, tol=0, protocol=protocol, heat_coef=heat_coef, **QUICK)
        model, engine = fit_recorded(model, data.sites, monkeypatch)
        setup = engine.phases.index("round")
        # an average may be worse than what it is of: one more exchange measures the last
        exchanges = 4 if protocol == "centers" else 3
        assert engine.phases[setup:] == ["round"] * exchanges + ["finish+deliver"]
        for direction, messages in (("bytes_up", engine.received), ("bytes_down", engine.sent)):
            sizes = [sum(map(len, exchange.values())) for exchange in messages]
            expected = [sum(sizes[: setup + 1]), sizes[setup + 1], sum(sizes[setup + 2 :])]
            assert [record[direction] for record in model.history_] == expected

    def test_rows_do_not_leave_a_site(self, data, monkeypatch):
        """No message holds a row, as it came or in model units, nor a cell."""
        _, engine = fit_recorded(EFKMVC(3, max_rounds=2, **QUICK), data.sites, monkeypatch)
        for exchange, phase in zip(engine.received, engine.phases, strict=True):
            for site, answer in exchange.items():
                references = engine.states[site].board.get(References).references
                scaled = np.hstack([(v - r.shift) / r.scale for v, r in zip(data.sites[site], references, strict=True)])
                for name, array in decode(answer).arrays.items():
                    if name == TREE:
                        continue
                    assert not np.isin(array, np.hstack(data.sites[site])).any(), phase
                    width = scaled.shape[1]
                    for start in range(max(len(array) - width + 1, 0)):
                        assert not np.any(np.abs(array[start : start + width] - scaled).max(axis=1) <= 1e-6), phase


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
        model = EFKMVC(2, personalization=step, random_state=0, **options).fit(sites)
        for site, views in sites.items():
            assert objective(model.client_models_[site], views) <= objective(model, views) + 1e-12
        assert any(
            objective(model.client_models_[site], views) < objective(model, views) for site, views in sites.items()
        )

    def test_a_larger_step_goes_further(self, data):
        near, far = (EFKMVC(3, personalization=step, **QUICK).fit(data.sites) for step in (0.25, 1.0))
        for site, own in near.client_models_.items():
            for a, b, c in zip(
                own.cluster_centers_, near.cluster_centers_, far.client_models_[site].cluster_centers_, strict=True
            ):
                assert_allclose(a - b, 0.25 * (c - b), atol=1e-9)

    def test_a_whole_step_is_one_iteration_of_the_site_alone(self, data):
        model = EFKMVC(3, personalization=1.0, fuzzifier=1.1, view_weights="uniform", **QUICK).fit(data.sites)
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
        model = EFKMVC(3, view_weights="learned", personalization=1.0, **QUICK).fit(sites)
        own = model.client_models_[first].view_weights_
        assert own[1] == pytest.approx(model.view_weights_[1])
        assert own.sum() == pytest.approx(1)

    def test_they_are_saved_and_loaded(self, data, fitted, tmp_path):
        for site, own in fitted.client_models_.items():
            own.save(tmp_path / "own.safetensors")
            loaded = fedhk.load(tmp_path / "own.safetensors")
            assert type(loaded) is HeatKernelMVC
            assert_array_equal(loaded.predict(data.sites[site]), fitted.labels_[site])
            assert loaded.objective_ == own.objective_ == pytest.approx(objective(own, data.sites[site]))


class TestTheWholeWay:
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_the_predecessor_s_data_over_ten_uneven_sites(self, seed):
        data = datasets.make_two_view_shapes(random_state=seed)
        rows = datasets.split_dirichlet(data.labels, 10, 0.1, random_state=seed)
        model = EFKMVC(4, n_init=5, random_state=seed).fit(datasets.split_views(data.views, rows))
        truth = np.concatenate([data.labels[rows[site]] for site in rows])
        assert matched_accuracy(truth, np.concatenate([model.labels_[site] for site in rows])) >= 0.99


class TestSmallSites:
    """Sites that hold little take part as they are."""

    @pytest.fixture
    def sites(self):
        data = datasets.make_sites(4, 30, n_clusters=3, n_features=(3, 4), random_state=3)
        return dict(zip(["bern", OSLO, "rome", "turin"], data.sites.values(), strict=True))

    def assert_everything_works(self, sites, **options):
        for protocol in ("statistics", "centers"):
            model = EFKMVC(3, n_init=2, max_rounds=4, protocol=protocol, random_state=0, **options).fit(sites)
            assert all(not record["refused"] for record in model.history_)
            assert {record["clients"] for record in model.history_} == {len(sites)}
            assert all(np.isfinite(centers).all() for centers in model.cluster_centers_)
            assert model.view_weights_.sum() == pytest.approx(1)
            for name, views in sites.items():
                rows = next(len(view) for view in views if view is not None)
                assert model.labels_[name].shape == (rows,)
                assert_allclose(model.memberships_[name].sum(axis=1), np.ones(rows))
        return model

    def test_a_site_with_one_row(self, sites):
        self.assert_everything_works(sites | {"tiny": [view[:1] for view in sites[OSLO]]})

    def test_an_empty_site(self, sites):
        self.assert_everything_works(sites | {"empty": [view[:0] for view in sites[OSLO]]})

    def test_an_empty_site_that_lacks_a_view_with_coefficients(self, sites):
        self.assert_everything_works(sites | {"empty": [sites[OSLO][0][:0], None]}, heat_coef="absdev")

    def test_a_site_with_fewer_rows_than_clusters(self, sites):
        self.assert_everything_works(sites | {"two": [view[:2] for view in sites[OSLO]]})

    @pytest.mark.parametrize("view_weights", ["auto", "learned"])
    def test_sites_that_lack_views(self, sites, view_weights):
        gaps = {"aosta": [None, sites[OSLO][1]], "zug": [sites[OSLO][0], None]}
        model = self.assert_everything_works(sites | gaps, view_weights=view_weights)
        assert [centers.shape[1] for centers in model.cluster_centers_] == [3, 4]
        assert model.view_names_ == ["view_0", "view_1"]
        assert 0.05 < model.view_weights_[0] < 0.95

    def test_a_view_that_only_one_site_has(self, sites):
        only = {name: [*views, None] for name, views in sites.items()}
        only["rome"][2] = sites["rome"][0] ** 2
        model = self.assert_everything_works(only)
        assert model.cluster_centers_[2].shape == (3, 3)

    def test_float32_rows_on_their_own_centres_are_not_refused(self):
        rng = np.random.default_rng(0)
        rows = [rng.normal(size=(3, width)).astype(np.float32) for width in (3, 4)]
        sites = {f"s{i}": [np.repeat(view[[i % 3]], 5, axis=0) for view in rows] for i in range(6)}
        model = EFKMVC(3, init=rows, max_rounds=6, tol=0, random_state=0).fit(sites)
        assert [record["refused"] for record in model.history_] == [{}] * 6

    def test_sites_that_all_have_one_row_cannot_give_a_start(self):
        rng = np.random.default_rng(0)
        sites = {f"s{i}": [rng.normal(size=(1, 3))] for i in range(6)}
        with pytest.raises(DataError, match=r"mean of at least 2 rows, and no site has 2. Give centres as init"):
            EFKMVC(2, random_state=0).fit(sites)
        start = [np.vstack([sites["s0"][0], sites["s1"][0]])]
        assert EFKMVC(2, init=start).fit(sites).converged_

    def test_all_sites_empty(self, sites):
        with pytest.raises(DataError, match=r"no rows at any of the .* sites"):
            EFKMVC(2).fit({name: [view[:0] for view in views] for name, views in sites.items()})

    def test_fewer_rows_than_clusters_in_all(self, sites):
        with pytest.raises(DataError, match=r"n_samples=4, which should be >= n_clusters=5"):
            EFKMVC(5).fit({name: [view[:1] for view in views] for name, views in sites.items()})
