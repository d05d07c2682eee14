"""Where new rows go: reasons that point the right way, and outliers that belong nowhere."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedhk
from after.hospitals import make_federation, pool
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy
from sealed_runs import seeded_noise


def test_clusters_and_certainty_are_those_of_predict():
    model, sites, _ = make_federation()
    found = fedhk.place(model, sites["cairo"])
    assert_array_equal(found.labels, model.predict(sites["cairo"]))
    assert_allclose(found.certainty, model.predict_proba(sites["cairo"]).max(axis=1))
    assert np.all(found.runner_up != found.labels)
    assert not found.outlier.any()


def test_all_views_together_speak_for_the_nearest_cluster():
    model, sites, _ = make_federation()
    found = fedhk.place(model, sites["cairo"])
    distances = np.sort(model.transform(sites["cairo"]), axis=1)
    assert_allclose(found.view_pull.sum(axis=1), distances[:, 1] - distances[:, 0], atol=1e-9)


def test_the_column_that_makes_the_difference_is_the_first_reason():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(200, 4)), columns=["a", "b", "c", "d"])
    rows["c"] += np.repeat([0, 12], 100)
    model = fedhk.HeatKernelMVC(2, scaling="standard", random_state=0).fit({"view": rows})
    found = fedhk.place(model, {"view": rows})
    assert all(found.reasons(i)[0][:2] == ("view", "c") for i in range(0, 200, 10))
    assert len(found.reasons(0, 2)) == 2
    assert found.frame()["reasons"][0].startswith("view: c")


def test_far_rows_are_outliers_and_few_others_are():
    model, sites, _ = make_federation()
    limit = fedhk.find_limit(model, sites, rare=0.01)
    own = [fedhk.place(model, views, limit=limit).outlier for views in sites.values()]
    assert np.mean(np.concatenate(own)) <= 0.02
    far = {"record": sites["cairo"]["record"], "lab": sites["cairo"]["lab"] + 60}
    far["record"] = far["record"].assign(age=far["record"]["age"] + 500)
    assert fedhk.place(model, far, limit=limit).outlier.all()
    assert fedhk.find_limit(model, sites, rare=0.2).distance < limit.distance
    assert_allclose(fedhk.find_limit(model, pool(sites), rare=0.01).distance, limit.distance)
    assert_allclose(fedhk.find_limit(model, sites, rare=0.01, secure=True).distance, limit.distance)


def test_a_limit_with_noise_is_near(monkeypatch):
    seeded_noise(monkeypatch)
    model, sites, _ = make_federation()
    budget = DifferentialPrivacy(8.0, 1e-4, bounds=(0, 1))
    plain = fedhk.find_limit(model, sites, rare=0.2)
    assert abs(fedhk.find_limit(model, sites, rare=0.2, privacy=budget).distance - plain.distance) < 5


@pytest.mark.parametrize("estimator", [fedhk.FedHKPerson, fedhk.FedHKDiffusion, fedhk.FedHKTucker])
def test_every_estimator_explains_itself(estimator):
    data = fedhk.datasets.make_sites(3, 80, n_clusters=3, separation=9, shift=0.5, random_state=1)
    model = estimator(3, random_state=0).fit(data.sites)
    rows = data.sites["site-01"]
    found = fedhk.place(model, rows, site="site-01", limit=fedhk.find_limit(model, data.sites))
    assert_array_equal(found.labels, model.client_models_["site-01"].predict(rows))
    assert np.mean(found.view_pull.sum(axis=1) > 0) > 0.9
    assert found.outlier.mean() < 0.05
    assert [part.shape for part in found.column_pull] == [rows[0].shape, rows[1].shape]


def test_one_table_is_enough():
    rng = np.random.default_rng(0)
    table = np.vstack([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 6])
    model = fedhk.HeatKernelMVC(2, random_state=0).fit(table)
    limit = fedhk.find_limit(model, table)
    assert fedhk.place(model, np.array([[100.0, -100.0]]), limit=limit).outlier[0]
    assert fedhk.place(model, table, limit=0.0).outlier.all()


def test_wrong_questions_are_refused():
    model, sites, _ = make_federation()
    with pytest.raises(DataError, match="site='rome' has no model of its own"):
        fedhk.place(model, sites["cairo"], site="rome")
    with pytest.raises(ValueError, match="rare"):
        fedhk.find_limit(model, sites, rare=1.0)
