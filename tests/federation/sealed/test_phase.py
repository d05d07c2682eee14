"""Sealed runs at the edges: sites and views with nothing in them, one of everything, and more features than rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedhk import EFKMVC, FedHKPerson, FedHKTucker
from fedhk.errors import DataError
from fedhk.privacy.mechanism import DifferentialPrivacy
from sealed_runs import seeded_noise

pytestmark = [
    pytest.mark.filterwarnings("ignore:With epsilon"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(autouse=True)
def same_noise_in_every_run(monkeypatch):
    seeded_noise(monkeypatch)


HOW = {
    "noise": {"privacy": DifferentialPrivacy(50.0, 1e-3, (-8, 8), rounds=2)},
    "noise on ranges": {"privacy": DifferentialPrivacy(50.0, 1e-3, "private", rounds=2)},
    "masks": {"secure": True},
    "masks, in a basis": {"secure": True, "protocol": "cores"},
    "noise, in a basis": {"privacy": DifferentialPrivacy(50.0, 1e-3, (-8, 8), rounds=2), "protocol": "cores"},
    "noise under masks": {"privacy": DifferentialPrivacy(50.0, 1e-3, (-8, 8), rounds=2), "secure": True},
}


def clusters(n_rows, width=2, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(np.arange(n_rows) % 2, 2.0, -2.0)[:, None] + 0.3 * rng.normal(size=(n_rows, width))


def four_sites(**others):
    return {"a": [clusters(60)], "b": [clusters(40, seed=1)], "c": [clusters(50, seed=2)]} | others


def fit(sites, how, n_clusters=2, estimator=EFKMVC, **options):
    model = estimator(n_clusters, **{"n_init": 1, "random_state": 0, "max_rounds": 4} | HOW[how] | options).fit(sites)
    assert all(np.isfinite(centers).all() for centers in model.cluster_centers_)
    assert all(record["refused"] == {} for record in model.history_)
    for site, labels in model.labels_.items():
        first = next(view for view in sites[site] if view is not None)
        assert len(labels) == len(first)
    return model


def both_found(model):
    return sorted(np.sign(model.cluster_centers_[0].mean(axis=1)).tolist()) == [-1.0, 1.0]


@pytest.mark.parametrize("how", HOW)
def test_sites_of_no_rows_and_of_one_row_take_part(how):
    model = fit(four_sites(empty=[np.zeros((0, 2))], single=[clusters(1)]), how)
    assert both_found(model)


@pytest.mark.parametrize("how", HOW)
def test_a_view_may_be_at_one_site_only(how):
    sites = {"a": [clusters(60), clusters(60, 3)], "b": [clusters(60), None], "c": [clusters(60), None]}
    model = fit(sites, how, view_weights="learned")
    assert model.cluster_centers_[1].shape == (2, 3)
    assert both_found(model)


@pytest.mark.parametrize("how", HOW)
def test_a_feature_that_never_varies_does_no_harm(how):
    sites = {name: [np.column_stack([views[0], np.full(len(views[0]), 3.0)])] for name, views in four_sites().items()}
    model = fit(sites, how)
    assert both_found(model)
    if how == "masks":
        assert_allclose(model.cluster_centers_[0][:, 2], 3.0, atol=1e-6)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("heat_coef", ["uniform", "minmax"])
def test_one_cluster_is_where_the_rows_are(how, heat_coef):
    sites = {name: [views[0] + 1.0] for name, views in four_sites().items()}
    model = fit(sites, how, 1, heat_coef=heat_coef, max_rounds=30)
    # coefficients that rise with the values favour the group of rows at 3 over that at -1
    assert_allclose(model.cluster_centers_[0], [[1.0, 1.0]], atol=2.5 if heat_coef == "minmax" else 0.7)


@pytest.mark.parametrize("how", HOW)
def test_rows_that_are_all_equal_have_their_centre_there(how):
    sites = {name: [np.full((40, 2), 1.5)] for name in "abc"}
    model = fit(sites, how)
    at_rows = np.abs(model.cluster_centers_[0] - 1.5).max(axis=1)
    assert at_rows.min() < (1e-6 if how == "masks" else 0.8)


@pytest.mark.parametrize("how", ["noise under masks", "masks"])
def test_rows_of_more_features_than_second_moments_are_taken_of(how):
    sites = {name: [clusters(len(views[0]), 150, seed) / 2] for seed, (name, views) in enumerate(four_sites().items())}
    assert both_found(fit(sites, how))


@pytest.mark.parametrize("how", HOW)
def test_more_clusters_than_there_are_groups_of_rows(how):
    fit(four_sites(), how, 6)


@pytest.mark.parametrize("estimator", [FedHKPerson, FedHKTucker])
def test_a_single_view_of_few_rows_is_enough_for_own_models_and_low_rank(estimator):
    for how in ("noise", "masks"):
        fit(four_sites(empty=[np.zeros((0, 2))], single=[clusters(1)]), how, estimator=estimator)


def test_too_few_rows_for_the_clusters_is_an_error_without_noise_only():
    sites = {name: [np.arange(2.0)[:, None]] for name in "abc"}
    with pytest.raises(DataError, match="n_samples=6, which should be >= n_clusters=9"):
        fit(sites, "masks", 9)
    fit(sites, "noise", 9)  # how many rows there are is not said


@pytest.mark.filterwarnings("ignore:bounds=.* outside the bounds:UserWarning", "ignore:.*a code for:UserWarning")
def test_rows_beyond_public_bounds_pull_no_more_than_others():
    """Bounds scale features; the kernel holds what is outside."""
    sites = four_sites(d=[np.vstack([clusters(40), np.full((3, 2), 1e6)])])
    assert both_found(fit(sites, "noise under masks"))


def test_coefficients_refer_to_the_bounds_whatever_units_noise_finds():
    model = fit(four_sites(), "noise", heat_coef="minmax")
    (reference,) = model._model.references
    ends = reference.to_model(np.array([[-8.0, -8.0], [0.0, 0.0], [8.0, 8.0]]))
    assert_allclose(reference.coefficients(ends), [[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]], atol=1e-12)
