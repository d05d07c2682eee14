"""`HeatDiffusion`: the diffusion at one site, as a scikit-learn transformer."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from fedhk import Diffusion, HeatDiffusion


@pytest.mark.parametrize(
    ("estimator", "check"),
    list(estimator_checks_generator(HeatDiffusion(2, random_state=0), legacy=True)),
    ids=lambda value: getattr(getattr(value, "func", value), "__name__", "estimator"),
)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("make", [make_moons, partial(make_circles, factor=0.4)])
def test_clusters_that_are_not_round_are_found_in_a_pipeline(make):
    rows, labels = make(500, noise=0.03, random_state=0)
    model = make_pipeline(HeatDiffusion(2, random_state=0), KMeans(2, n_init=5, random_state=0))
    assert adjusted_rand_score(labels, clone(model).fit_predict(rows)) > 0.95
    assert adjusted_rand_score(labels, KMeans(2, n_init=5, random_state=0).fit_predict(rows)) < 0.7


def test_training_rows_are_embedded_alike_whether_fitted_or_new_alone_or_together():
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(120, 3)), rng.normal(size=(120, 2))]
    model = HeatDiffusion(4, random_state=0)
    fitted = model.fit_transform(views)
    assert fitted.shape == (120, 4)
    assert_allclose(model.transform(views), fitted, atol=1e-12)
    assert_allclose(model.transform([view[7:8] for view in views]), fitted[7:8], atol=1e-12)


def test_missing_views_and_cells_are_left_out_and_names_come_out():
    rng = np.random.default_rng(0)
    views = {"a": rng.normal(size=(60, 3)), "b": rng.normal(size=(60, 2))}
    views["a"][:5] = np.nan
    views["b"][3, 0] = np.nan
    model = HeatDiffusion(3, random_state=0).fit(views)
    assert np.isfinite(model.transform({"a": views["a"], "b": None})).all()
    nothing = model.transform({"a": np.full((1, 3), np.nan), "b": np.full((1, 2), np.nan)})
    assert_allclose(nothing, 0.0)
    assert list(model.get_feature_names_out()) == ["heatdiffusion0", "heatdiffusion1", "heatdiffusion2"]
    assert [a.shape[1] for a in model.anchors_] == [3, 2]


def test_sparse_rows_give_what_dense_rows_give():
    rng = np.random.default_rng(0)
    dense = rng.poisson(0.7, size=(150, 30)).astype(float) + np.eye(30)[rng.integers(30, size=150)]
    model = HeatDiffusion(3, scaling="l2", random_state=0)
    assert_allclose(np.abs(model.fit_transform(sp.csr_array(dense))), np.abs(model.fit_transform(dense)), atol=1e-6)


def test_a_weight_of_two_is_two_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    weight = rng.integers(1, 3, 60)
    model = HeatDiffusion(3, diffusion=Diffusion(n_anchors=15), random_state=0)
    weighted = model.fit(rows, sample_weight=weight).eigenvalues_
    assert_allclose(weighted, model.fit(np.repeat(rows, weight, axis=0)).eigenvalues_, atol=1e-9)
