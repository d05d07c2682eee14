"""Where new rows go: reasons that point the right way, and outliers that belong nowhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedhk
from after.hospitals import make_federation, pool
from fedhk.after.placement import CountParts
from fedhk.after.run import read_sites
from fedhk.errors import DataError
from fedhk.federation.phases.base import Nothing
from fedhk.federation.placed import PlacedSite
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


def make_twenty_columns(n, rng):
    group = rng.integers(3, size=n)[:, None]
    columns = np.hstack([rng.normal(size=(n, 12)) + 1.5 * group, rng.exponential(size=(n, 8)) + group])
    return {f"view {h}": pd.DataFrame(columns[:, 4 * h : 4 * h + 4], columns=list("abcd")) for h in range(5)}


@pytest.fixture(scope="module")
def twenty():
    rng = np.random.default_rng(0)
    sites = {site: make_twenty_columns(400, rng) for site in ("a", "b", "c")}
    return fedhk.EFKMVC(3, random_state=0).fit(sites), sites, make_twenty_columns(5000, rng)


@pytest.mark.parametrize("secure", [False, True])
def test_one_impossible_cell_among_sound_columns_is_an_outlier_and_named(twenty, secure):
    model, sites, fresh = twenty
    limit = fedhk.find_limit(model, sites, rare=0.001, secure=secure)
    for view, column, value in [("view 1", "d", 40.0), ("view 0", "a", -40.0), ("view 4", "b", -40.0)]:
        rows = {name: table.head(50).copy() for name, table in fresh.items()}
        rows[view].loc[:9, column] = value
        found = fedhk.place(model, rows, limit=limit)
        assert_array_equal(found.outlier, np.arange(50) < 10)
        assert np.mean(found.distance[:10] < limit.distance) > 0.5  # the heat kernel alone does not see it
        assert all([part[:2] for part in found.beyond(i)] == [(view, column)] for i in range(10))
        assert found.frame()["beyond"][0] == f"{view}: {column}"
        assert found.beyond(20) == []


def test_a_view_of_which_every_cell_is_a_bit_far_is_an_outlier():
    rng = np.random.default_rng(0)
    sites = {site: {"a": rng.normal(size=(500, 40)), "b": rng.normal(size=(500, 2))} for site in "ab"}
    model = fedhk.EFKMVC(2, random_state=0).fit(sites)
    off = {"a": 4.5 * rng.choice([-1, 1], (1, 40)), "b": np.zeros((1, 2))}
    found = fedhk.place(model, off, limit=fedhk.find_limit(model, sites))
    assert found.outlier[0]
    assert [part[:2] for part in found.beyond(0)] == [("a", "")]


def test_sound_rows_are_called_outliers_as_rarely_as_was_asked(twenty):
    model, sites, fresh = twenty
    for rare in (0.05, 0.01):
        found = fedhk.place(model, fresh, limit=fedhk.find_limit(model, sites, rare=rare))
        assert found.outlier.mean() <= rare


def test_a_bad_cell_in_the_fit_does_not_hide_others(twenty):
    model, sites, fresh = twenty
    dirty = {site: {name: table.copy() for name, table in views.items()} for site, views in sites.items()}
    dirty["a"]["view 1"].loc[0, "d"] = 500.0
    rows = {name: table.head(1).copy() for name, table in fresh.items()}
    rows["view 1"].loc[0, "d"] = 60.0
    assert fedhk.place(model, rows, limit=fedhk.find_limit(model, dirty)).beyond(0)[0][1] == "d"


def test_with_noise_limits_of_columns_are_there_if_rows_are_many(monkeypatch):
    seeded_noise(monkeypatch)
    rng = np.random.default_rng(0)
    sites = {site: make_twenty_columns(6000, rng) for site in ("a", "b", "c")}
    model = fedhk.EFKMVC(3, max_rounds=5, random_state=0).fit(sites)
    limit = fedhk.find_limit(model, sites, privacy=DifferentialPrivacy(4.0, 1e-5, bounds=(0, 1)))
    fresh = make_twenty_columns(2000, rng)
    assert fedhk.place(model, fresh, limit=limit).outlier.mean() <= 0.001
    fresh["view 0"].loc[:, "d"] = 60.0
    assert np.mean(fedhk.place(model, fresh, limit=limit).column_excess[0][:, 3] > 1) == 1
    few = fedhk.find_limit(
        model,
        {site: {name: table.head(40) for name, table in views.items()} for site, views in sites.items()},
        privacy=DifferentialPrivacy(0.1, 1e-5, bounds=(0, 1)),
    )
    assert np.isinf(few.columns).mean() > 0.9


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_no_row_moves_the_counts_of_cells_by_more_than_is_stated(twenty, neighbours):
    model, sites, _ = twenty
    views = read_sites(model, sites).sites["a"]
    vectors = []
    for last in (1.0, -9.0):
        tables = tuple(np.vstack([table[:5], np.full((1, table.shape[1]), last)]) for table in views.tables)
        if neighbours == "add-remove" and last < 0:
            tables = tuple(table[:-1] for table in tables)
        site = PlacedSite("a", replace(views, tables=tables, n_rows=len(tables[0])), model=model._model)
        vectors.append(CountParts.vector(site, Nothing()))
    stated = CountParts.sensitivity(Nothing(), len(vectors[0]), neighbours)
    assert 0.5 * stated < np.linalg.norm(vectors[0] - vectors[1]) <= stated


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
    wrong = [rows[0].copy(), rows[1]]
    wrong[0][0, 1] += 1000
    limited = fedhk.place(model, wrong, site="site-01", limit=fedhk.find_limit(model, data.sites))
    assert limited.outlier[0]
    assert limited.beyond(0)[0][1] == "1"


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


def test_text_is_ranked_where_the_model_knows_an_order():
    order = ["mild", "moderate", "severe"]
    rng = np.random.default_rng(0)
    sites = {}
    for site in ("oslo", "rome"):
        labels = rng.integers(0, 3, 60)
        stage = pd.Categorical.from_codes(labels, order, ordered=True)
        sites[site] = {"record": pd.DataFrame({"stage": stage, "age": 40 + 20 * labels + rng.normal(0, 1, 60)})}
    model = fedhk.EFKMVC(3, random_state=0).fit(sites)
    new = sites["oslo"]["record"]
    text = new.assign(stage=new["stage"].astype(object))
    assert np.array_equal(model.predict({"record": text}), model.predict({"record": new}))
    text.loc[0, "stage"] = None
    assert len(fedhk.place(model, {"record": text}).labels) == 60
    text.loc[4, "stage"] = "fatal"
    with pytest.raises(ValueError, match="level 'fatal' in row 4, which the model does not know; its levels are mild"):
        model.predict({"record": text})


def test_nothing_favours_the_only_cluster():
    rng = np.random.default_rng(0)
    sites = {site: [rng.normal(size=(40, 2))] for site in ("oslo", "rome")}
    model = fedhk.EFKMVC(1, random_state=0).fit(sites)
    assert fedhk.place(model, [rng.normal(size=(3, 2))]).reasons(0) == []
