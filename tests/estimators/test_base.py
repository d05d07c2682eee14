"""What every fitted model can do: place new rows, score them without unit, and warn where its fit is in doubt."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import fedhk
from fedhk import (
    EFKMVC,
    FedHKDiffusion,
    FedHKParafac2,
    FedHKPerson,
    FedHKTucker,
    HeatDiffusion,
    HeatKernelMVC,
    datasets,
)

FEDERATED = [EFKMVC, FedHKTucker, FedHKParafac2, FedHKPerson]
QUICK = {"n_init": 2, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(3, 50, n_clusters=3, n_features=(4, 6), shift=0, scale=0, separation=7, random_state=1)


@pytest.fixture(scope="module")
def fitted(data):
    return HeatKernelMVC(3, **QUICK).fit(data.views)


class TestScore:
    def test_it_is_the_mean_simplified_silhouette_of_the_kernel_distances(self, data, fitted):
        distances = np.sort(fitted.transform(data.views), axis=1)
        own, other = distances[:, 0], distances[:, 1]
        assert fitted.score(data.views) == pytest.approx(np.mean((other - own) / other))

    @pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
    def test_units_of_the_input_do_not_matter(self, data, fitted, size):
        model = HeatKernelMVC(3, **QUICK).fit([size * view for view in data.views])
        assert model.score([size * view for view in data.views]) == pytest.approx(fitted.score(data.views))

    def test_weights_are_repetitions(self, data, fitted):
        weights = np.random.default_rng(0).integers(0, 3, len(data.labels))
        repeated = [np.repeat(view, weights, axis=0) for view in data.views]
        assert fitted.score(data.views, sample_weight=weights) == pytest.approx(fitted.score(repeated))

    def test_one_cluster_and_no_row_are_zero(self, data):
        model = HeatKernelMVC(1).fit(data.views)
        assert model.score(data.views) == 0.0


class TestNewRows:
    @pytest.mark.parametrize("estimator", [*FEDERATED, FedHKDiffusion])
    def test_labels_memberships_and_distances_agree(self, data, estimator):
        model = estimator(3, **QUICK).fit(data.sites)
        memberships, distances = model.predict_proba(data.views), model.transform(data.views)
        assert memberships.shape == distances.shape == (len(data.labels), 3)
        assert_allclose(memberships.sum(axis=1), 1, atol=1e-12)
        assert_array_equal(memberships.argmax(axis=1), model.predict(data.views))
        assert_array_equal(distances.argmin(axis=1), model.predict(data.views))

    def test_a_row_without_any_value_belongs_everywhere_alike(self, data, fitted):
        empty = [np.full((1, view.shape[1]), np.nan) for view in data.views]
        assert_allclose(fitted.predict_proba(empty), 1 / 3)
        with pytest.warns(UserWarning, match="no value in any view of row 0"):
            assert fitted.predict(empty).tolist() == [0]


class TestNotFitted:
    @pytest.mark.parametrize("estimator", [HeatKernelMVC, *FEDERATED, FedHKDiffusion])
    def test_every_use_says_so_with_the_name_of_the_class(self, data, estimator, tmp_path):
        uses = ["predict", "predict_proba", "transform", "score"]
        for name in uses:
            with pytest.raises(NotFittedError, match=estimator.__name__):
                getattr(estimator(), name)(data.views)
        with pytest.raises(NotFittedError, match=estimator.__name__):
            estimator().save(tmp_path / "model")
        for name in ("cluster_centers_", "view_weights_", "labels_", "objective_"):
            with pytest.raises(NotFittedError, match=f"This {estimator.__name__} is not fitted yet: call fit first"):
                getattr(estimator(), name)

    def test_a_fitted_model_without_a_decomposition_says_why_it_has_no_rank(self, data):
        model = FedHKPerson(3, max_rounds=50, **QUICK).fit(data.sites)
        with pytest.raises(AttributeError, match="this FedHKPerson was fitted without a decomposition"):
            model.rank_  # noqa: B018
        assert not hasattr(model, "rank_")

    def test_what_a_loaded_model_does_not_have_is_no_matter_of_fitting(self, fitted, tmp_path):
        fitted.save(tmp_path / "model")
        with pytest.raises(AttributeError, match="has no 'labels_': it was read from a file") as caught:
            fedhk.load(tmp_path / "model").labels_  # noqa: B018
        assert not isinstance(caught.value, NotFittedError)


def warnings_of(fit):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fit()
    assert all(warning.category is ConvergenceWarning for warning in seen)
    return [str(warning.message) for warning in seen]


class TestWarnings:
    """Each appears where it must, once, from the line that called fit, and nowhere else."""

    @pytest.mark.parametrize("estimator", FEDERATED)
    def test_a_fit_over_sites_that_stops_too_early(self, data, estimator):
        (said,) = warnings_of(lambda: estimator(3, max_rounds=1, tol=1e-9, **QUICK).fit(data.sites))
        assert said.startswith(f"{estimator.__name__} did not converge within max_rounds=1.")

    def test_a_fit_at_one_site_that_stops_too_early(self, data):
        (said,) = warnings_of(lambda: HeatKernelMVC(3, max_iter=1, tol=1e-9, **QUICK).fit(data.views))
        assert said.startswith("HeatKernelMVC did not converge within max_iter=1.")

    @pytest.mark.parametrize("estimator", FEDERATED)
    def test_all_rounds_on_purpose_or_a_fit_that_settles_are_no_doubt(self, data, estimator):
        assert warnings_of(lambda: estimator(3, max_rounds=2, tol=0, **QUICK).fit(data.sites)) == []
        assert warnings_of(lambda: estimator(3, **QUICK).fit(data.sites)) == []
        assert warnings_of(lambda: HeatKernelMVC(3, max_iter=2, tol=0, **QUICK).fit(data.views)) == []

    def test_fewer_clusters_than_were_asked_for(self):
        alike = [np.repeat([[0.0, 0.0], [5.0, 5.0]], 10, axis=0)]
        for fit in (
            lambda: HeatKernelMVC(4, **QUICK).fit(alike),
            lambda: EFKMVC(4, **QUICK).fit({"a": alike, "b": alike}),
        ):
            (said,) = warnings_of(fit)
            assert "found 2 clusters that have rows, n_clusters=4 were asked for" in said

    def test_memberships_that_are_all_alike(self):
        rng = np.random.default_rng(0)
        noise = [rng.normal(size=(200, 30))]
        for fit in (
            lambda: HeatKernelMVC(3, fuzzifier=20.0, **QUICK).fit(noise),
            lambda: EFKMVC(3, fuzzifier=20.0, **QUICK).fit({"a": noise, "b": [rng.normal(size=(200, 30))]}),
        ):
            said = [text for text in warnings_of(fit) if "did not converge" not in text]
            assert len(said) == 1
            assert "all rows belong to all clusters almost alike, so that labels rest on small differences" in said[0]
            assert "fuzzifier 20 is too large: use 1.05 to 1.25, or fuzzifier='auto'." in said[0]

    def test_a_fuzzifier_that_is_too_large_is_answered_with_a_smaller_one(self):
        noise = [np.random.default_rng(0).normal(size=(200, 30))]
        (said,) = warnings_of(lambda: HeatKernelMVC(3, fuzzifier=1.1, heat_time=1e4, **QUICK).fit(noise))
        assert "fuzzifier 1.1 is too large: use a smaller one, such as 1.05, or fuzzifier='auto'." in said

    def test_a_view_that_has_all_the_weight(self, data):
        """Classes that were read as a view: learned weights lean on them alone."""
        sites = {
            site: {"a": views[0], "b": views[1], "diagnosis": np.eye(3)[data.site_labels[site]]}
            for site, views in data.sites.items()
        }
        with pytest.warns(UserWarning, match="view 'diagnosis' has all the weight, so that clusters come"):
            EFKMVC(3, view_weights="learned", **QUICK).fit(sites)
        assert warnings_of(lambda: EFKMVC(3, view_weights=[1e-6, 1e-6, 1], **QUICK).fit(sites)) == []

    def test_a_fit_that_gives_back_its_start(self):
        hard = datasets.make_sites(5, 25, n_clusters=3, n_features=(9, 6), shift=2.0, random_state=0)
        model = EFKMVC(3, protocol="centers", **QUICK)
        (said,) = warnings_of(lambda: model.fit(hard.sites))
        assert said.startswith("EFKMVC gives back its start: none of its rounds lowered the objective.")
        assert model.stop_reason_ in said
        assert "begin elsewhere, with init=" in said
        assert not model.converged_

    def test_one_cluster_is_no_doubt(self, data):
        assert warnings_of(lambda: HeatKernelMVC(1).fit(data.views)) == []
        assert warnings_of(lambda: EFKMVC(1, **QUICK).fit(data.sites)) == []

    @pytest.mark.parametrize("fit", [
        lambda data: HeatKernelMVC(3, max_iter=1, tol=1e-9, **QUICK).fit(data.views),
        lambda data: EFKMVC(3, max_rounds=1, tol=1e-9, **QUICK).fit(data.sites),
    ])  # fmt: skip
    def test_the_warning_points_to_the_line_that_called_fit(self, data, fit):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fit(data)
        assert [warning.filename for warning in seen] == [__file__]

    def test_an_empty_site_is_no_doubt(self, data):
        sites = data.sites | {"empty": [view[:0] for view in data.views]}
        assert warnings_of(lambda: EFKMVC(3, **QUICK).fit(sites)) == []


# Of each estimator, a step of its fit that comes after others have set fitted attributes.
LATE_STEPS = {
    EFKMVC: "efkmvc.keep_deviations",
    FedHKPerson: "efkmvc.keep_deviations",
    HeatKernelMVC: "heat_kernel_mvc.remember_site",
    HeatDiffusion: "heat_diffusion.embed_affinities",
}


@pytest.mark.parametrize("was_fitted", [False, True], ids=["new", "fitted"])
@pytest.mark.parametrize("estimator", LATE_STEPS)
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(data, estimator, was_fitted, monkeypatch):
    model = estimator(3, random_state=0)
    sites = data.sites if issubclass(estimator, EFKMVC) else data.views[0]
    wider = {name: [*views, views[0]] for name, views in data.sites.items()}
    if was_fitted:
        model.fit(sites)
    before = dict(vars(model))

    def fail(*_, **__):
        raise RuntimeError("no way on")

    monkeypatch.setattr(f"fedhk.estimators.{LATE_STEPS[estimator]}", fail)
    with pytest.raises(RuntimeError, match="no way on"):
        model.fit(wider if issubclass(estimator, EFKMVC) else data.views[1])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
