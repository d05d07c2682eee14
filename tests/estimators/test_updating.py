"""Updates go on from a fitted model: clusters keep their numbers, new ones come, old ones go, and drift is told."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedhk
from fedhk import EFKMVC, HeatKernelMVC, datasets
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.accounting import spent

CENTERS = np.array([[0.0, 0, 0, 0], [9, 0, 0, 0], [0, 9, 0, 0]])


def make_rows(seed, centers=CENTERS, per_cluster=20, n_sites=4):
    """Rows of sites in two views, and their clusters."""
    rng = np.random.default_rng(seed)
    sites, labels = {}, {}
    for site in range(n_sites):
        own = np.repeat(np.arange(len(centers)), per_cluster)
        rows = centers[own] + rng.normal(size=(len(own), 4))
        sites[f"site-{site}"], labels[f"site-{site}"] = {"a": rows[:, :2], "b": rows[:, 2:]}, own
    return sites, labels


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A saved model of three clusters."""
    file = tmp_path_factory.mktemp("model") / "model.safetensors"
    EFKMVC(3, random_state=0, n_init=3, scaling="none").fit(make_rows(0)[0]).save(file)
    return file


def names_of(model, labels):
    """The number that each true cluster has in a model."""
    return [int(np.bincount(model.labels_["site-0"][labels["site-0"] == k]).argmax()) for k in range(3)]


def test_rows_like_those_before_change_next_to_nothing(path):
    model, before = fedhk.load(path), fedhk.load(path)
    sites, labels = make_rows(1)
    model.update(sites)
    assert model.n_clusters_ == 3
    assert model.updates_[0]["new"] == model.updates_[0]["gone"] == []
    for now, then in zip(model.cluster_centers_, before.cluster_centers_, strict=True):
        assert_allclose(now, then, atol=0.6)
    assert names_of(model, labels) == [
        int(k) for k in [before.predict({n: v[i : i + 1] for n, v in sites["site-0"].items()})[0] for i in (0, 20, 40)]
    ]


@pytest.mark.parametrize("estimator", [fedhk.FedHKPerson, fedhk.FedHKDiffusion])
def test_a_calibrated_site_reads_new_rows_as_those_of_the_fit_whatever_clusters_they_are_of(estimator, tmp_path):
    rng = np.random.default_rng(0)
    shifts = {f"site-{site}": 4 * rng.normal(size=4) for site in range(4)}

    def shifted(seed):
        sites, labels = make_rows(seed)
        return {s: {"a": v["a"] + shifts[s][:2], "b": v["b"] + shifts[s][2:]} for s, v in sites.items()}, labels

    model = estimator(3, random_state=0, n_init=3, scaling="none", calibration=(1.0, 0.5)).fit(shifted(0)[0])
    model.save(tmp_path / "model.safetensors")
    sites, labels = shifted(1)
    names = [
        np.bincount(model.client_models_["site-0"].predict(sites["site-0"])[labels["site-0"] == k]).argmax()
        for k in range(3)
    ]
    sites["site-0"] = {name: view[labels["site-0"] == 1] for name, view in sites["site-0"].items()}
    for known in (model, fedhk.load(tmp_path / "model.safetensors")):
        taken_out = known._pasts["site-0"].frame
        known.update(sites)
        assert set(known.labels_["site-0"].tolist()) == {int(names[1])}
        assert not any(line["moved"] for line in known.drift_)
        assert taken_out.shape == (2, 4)
        assert_array_equal(known._pasts["site-0"].frame, taken_out)


def test_a_new_cluster_comes_last_and_others_keep_their_numbers(path):
    model = fedhk.load(path)
    known = names_of(model.update(make_rows(1)[0]), make_rows(1)[1])
    sites, labels = make_rows(2, np.vstack([CENTERS, [0, 0, 12, 0]]))
    model.update(sites)
    assert model.updates_[-1]["new"] == [3]
    assert names_of(model, labels) == known
    assert (model.labels_["site-0"][labels["site-0"] == 3] == 3).all()


def test_a_cluster_that_comes_apart_becomes_two(path):
    model = fedhk.load(path)
    for month in range(1, 5):
        apart = np.vstack([CENTERS, CENTERS[:1]])
        apart[0, 3], apart[3, 3] = month, -month
        model.update(make_rows(month, apart, 30)[0], half_life=1)
    assert model.n_clusters_ == 4


def test_a_cluster_without_rows_is_gone_and_its_number_is_not_used_again(path):
    model = fedhk.load(path)
    for month in range(1, 9):
        model.update(make_rows(month, CENTERS[:2])[0], half_life=0.5)
    assert len(model.gone_clusters_) == 1
    assert model.n_clusters_ == 3
    assert not set(np.concatenate(list(model.labels_.values()))) & set(model.gone_clusters_)


def test_a_new_site_without_rows_of_a_cluster_does_not_say_that_it_is_gone():
    data = datasets.make_sites(3, 80, n_clusters=3, random_state=0)
    *known, new = data.sites
    model = EFKMVC(3, random_state=0).fit({site: data.sites[site] for site in known})
    model.update({new: data.sites[new]})
    assert model.updates_[-1]["gone"] == []


def test_what_is_gone_survives_a_file(path, tmp_path):
    model = fedhk.load(path)
    for month in range(1, 9):
        model.update(make_rows(month, CENTERS[:2])[0], half_life=0.5)
    model.save(tmp_path / "again")
    again, sites = fedhk.load(tmp_path / "again"), make_rows(20)[0]
    assert again.gone_clusters_ == model.gone_clusters_
    assert again.updates_ == model.updates_
    assert_array_equal(again.predict(sites["site-1"]), model.predict(sites["site-1"]))
    assert_array_equal(again.update(sites).labels_["site-0"], model.update(sites).labels_["site-0"])


def test_drift_names_the_cluster_and_the_site_that_moved(path):
    model = fedhk.load(path)
    sites, labels = make_rows(1)
    moved = names_of(fedhk.load(path).update(sites), labels)[1]
    sites["site-2"]["b"][labels["site-2"] == 1] += 2.0
    model.update(sites)
    found = {(line["site"], line["cluster"]) for line in model.drift_ if line["moved"]}
    assert ("site-2", moved) in found
    assert {cluster for _, cluster in found} == {moved}
    assert list(model.drift_frame().columns)[:2] == ["cluster", "site"]


def test_half_life_says_how_much_earlier_rows_count(path):
    moved = CENTERS + np.array([0, 0, 0, 1.0])
    far = {}
    for half_life in (0.1, 1.0, None):
        model = fedhk.load(path).update(make_rows(3, moved)[0], half_life=half_life)
        far[half_life] = float(model.cluster_centers_[1][:, 1].mean())
    assert far[0.1] > far[1.0] > far[None] > 0.3
    assert_allclose(far[0.1], 1.0, atol=0.15)


def test_masks_give_the_update_in_the_open(path):
    sites = make_rows(1)[0]
    plain, masked = fedhk.load(path).update(sites), fedhk.load(path).set_params(secure=True).update(sites)
    for one, other in zip(plain.cluster_centers_, masked.cluster_centers_, strict=True):
        assert_allclose(one, other, atol=0.02)
    assert {line["site"] for line in masked.drift_} <= {"all sites"}


def test_noise_adds_up_over_updates_and_a_plan_is_kept(tmp_path):
    sites = make_rows(0)[0]
    privacy = DifferentialPrivacy(8.0, 1e-5, (-20, 20), ledger=tmp_path / "ledger", plan=(13.0, 5))
    model = EFKMVC(3, random_state=0, privacy=privacy, n_init=3).fit(sites)
    first = model.privacy_spent_[0]
    model.update(make_rows(1)[0], half_life=2)
    assert model.privacy_spent_[0] > first
    with pytest.raises(ValueError, match=r"site 'site-0': the privacy plan does not allow this run: .* epsilon 13"):
        model.update(make_rows(2)[0])
    other = DifferentialPrivacy(1.0, 1e-5, (-20, 20), ledger=tmp_path / "ledger", plan=(20.0, 5))
    with pytest.raises(ValueError, match="A plan is kept"):
        model.set_params(privacy=other).update(make_rows(2)[0])


def test_a_plan_needs_a_ledger_and_two_numbers():
    with pytest.raises(ValueError, match=r"plan=.* must be epsilon a year"):
        DifferentialPrivacy(1.0, 1e-5, (-1, 1), plan=1.0)
    model = EFKMVC(3, privacy=DifferentialPrivacy(1.0, 1e-5, (-20, 20), plan=(1.0, 2)))
    with pytest.raises(ValueError, match="no effect without ledger"):
        model.fit(make_rows(0)[0])


@pytest.mark.parametrize("secure", [False, True])
def test_a_view_that_was_not_there_begins_with_the_clusters_of_the_others(secure):
    sites = make_rows(0, np.array([[0.0, 0, 0, 0], [9, 0, 7, 0], [0, 9, 0, 7]]))[0]
    model = EFKMVC(3, random_state=0, n_init=3, secure=secure).fit({s: {"a": v["a"]} for s, v in sites.items()})
    model.update(sites)
    assert model.view_names_ == ["a", "b"]
    assert_allclose(sorted(model.cluster_centers_[1].max(axis=1)), [0, 7, 7], atol=1.0)
    assert model.update(sites).updates_[-1]["rounds"] >= 1


def test_a_site_with_another_unit_is_left_out(path):
    model = fedhk.load(path)
    sites = make_rows(1)[0]
    sites["site-3"] = {name: 1000 * view for name, view in sites["site-3"].items()}
    model.update(sites)
    assert "fit no cluster" in model.history_[0]["refused"]["site-3"]
    assert model.n_clusters_ == 3
    assert sorted(model.labels_) == ["site-0", "site-1", "site-2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sites: {s: {"a": v["a"][:, :1], "b": v["b"]} for s, v in sites.items()}, "view 'a' has 1 features"),
        (lambda sites: {s: {"c": v["a"]} for s, v in sites.items()}, "none of the views of the model"),
        (
            lambda sites: {s: {n: x[:0] for n, x in v.items()} for s, v in sites.items()},
            "no rows at any of the",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_the_model_stays(path, change, message):
    model, before = fedhk.load(path), fedhk.load(path)
    with pytest.raises(DataError, match=message):
        model.update(change(make_rows(1)[0]))
    assert_array_equal(model.cluster_centers_[0], before.cluster_centers_[0])
    assert model.updates_ == []


@pytest.mark.parametrize(("name", "value"), [("half_life", 0), ("half_life", -1), ("rounds", 0), ("level", 1.0)])
def test_settings_are_checked(path, name, value):
    with pytest.raises(ValueError, match=name):
        fedhk.load(path).update(make_rows(1)[0], **{name: value})


def test_fewer_clusters_and_older_files_are_refused_in_a_sentence(path):
    with pytest.raises(ValueError, match="n_clusters=9 is more than the 3 clusters"):
        fedhk.load(path).set_params(n_clusters=9).update(make_rows(1)[0])
    old = fedhk.load(path)
    old._memory = None
    with pytest.raises(ValueError, match="fit it once more"):
        old.update(make_rows(1)[0])


def test_partial_fit_at_one_site_goes_on_and_finds_new_clusters():
    batches = [np.hstack(list(make_rows(seed, n_sites=1)[0]["site-0"].values())) for seed in range(3)]
    model = HeatKernelMVC(3, random_state=0, n_init=3)
    for batch in batches:
        assert model.partial_fit(batch) is model
    assert len(model.updates_) == 2
    new = np.vstack([batches[0], np.random.default_rng(0).normal(size=(30, 4)) + np.array([0, 0, 12, 0])])
    model.partial_fit(new, half_life=3)
    assert model.updates_[-1]["new"] == [3]
    assert set(model.labels_[-30:]) == {3}
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(batches[0][:, :2])
    with pytest.raises(ValueError, match=r"0 sample|minimum of 1"):
        model.partial_fit(batches[0][:0])


def test_budgets_add_where_a_file_does_not_have_the_releases(tmp_path):
    budget = DifferentialPrivacy(30.0, 1e-5, (-20, 20))
    EFKMVC(3, random_state=0, privacy=budget, n_init=3).fit(make_rows(0)[0]).save(tmp_path / "model")
    model = fedhk.load(tmp_path / "model")
    epsilon, delta = model.privacy_spent_
    model.update(make_rows(1)[0])
    assert epsilon < model.privacy_spent_[0] <= 2 * 30 * (1 + 1e-6)
    assert model.privacy_spent_[1] == 2 * delta
    assert fedhk.load(tmp_path / "model").set_params(privacy=None).update(make_rows(1)[0]).privacy_spent_ is None


def test_no_site_is_refused_for_what_coefficients_weigh():
    """A cell weighs up to its distance: at a site of few rows, centres may weigh more than it has rows."""
    data = datasets.make_sites(2, 60, n_clusters=3, n_features=(4, 7), separation=3, random_state=5)
    sites = datasets.split_views(data.views, datasets.split_dirichlet(data.labels, 50, 0.1, random_state=1))
    start = [view[[0, 40, 100]] for view in data.views]
    model = EFKMVC(3, heat_coef="absdev", view_weights="uniform", init=start, max_rounds=4, tol=0.0).fit(sites)
    assert not any(record["refused"] for record in model.history_)
    assert not any(record["refused"] for record in model.update(sites).history_)


def test_columns_are_known_by_their_names_and_levels():
    def as_frames(sites, order, levels):
        return {
            site: {
                "a": pd.DataFrame(views["a"], columns=["x", "y"]).assign(kind=np.resize(levels, len(views["a"])))[
                    order
                ],
                "b": views["b"],
            }
            for site, views in sites.items()
        }

    first, later = make_rows(0)[0], make_rows(1)[0]
    model = EFKMVC(3, random_state=0, n_init=3).fit(as_frames(first, ["x", "y", "kind"], ["u", "v", "w"]))
    centers = []
    for order in (["x", "y", "kind"], ["kind", "y", "x"]):
        updated = copy.deepcopy(model).update(as_frames(later, order, ["u", "v"]))
        assert updated.updates_[0]["rows"] == 4 * 60
        assert updated.view_columns_ == model.view_columns_
        centers.append(updated.cluster_centers_[0])
    assert_array_equal(*centers)


@pytest.mark.parametrize(("rounds", "expected"), [(3, 3), (10, 6)])
def test_an_update_with_noise_spends_its_whole_budget_in_the_rounds_that_are_asked_for(rounds, expected):
    model = EFKMVC(3, random_state=0, privacy=DifferentialPrivacy(8.0, 1e-5, (-20, 20)), n_init=3)
    model.fit(make_rows(0)[0])
    fitted = len(model.releases_["site-0"])
    privacy = DifferentialPrivacy(2.0, 1e-5, (-20, 20))
    model.set_params(privacy=privacy).update(make_rows(1)[0], rounds=rounds)
    made = model.releases_["site-0"][fitted:]
    assert [line["phase"] for line in made] == ["update round"] * expected
    assert model.updates_[-1]["rounds"] == expected
    assert spent([line["multiplier"] for line in made], 1e-5) == pytest.approx(2.0, abs=1e-3)
