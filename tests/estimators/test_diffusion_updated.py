"""Updates of embedded models: nothing changes without new rows, and what is new, gone or apart is found."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons

import fedhk
from fedhk import FedHKDiffusion
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy

CENTERS = 3.0 * np.array([[0.0, 0, 0, 0], [3, 0, 0, 0], [0, 3, 0, 0]])


def moons(seed, per_site=80):
    """Rows of four sites, two half moons in two views, and their clusters."""
    sites, labels = {}, {}
    for site in range(4):
        rows, own = make_moons(per_site, noise=0.06, random_state=100 * seed + site)
        sites[f"site-{site}"], labels[f"site-{site}"] = {"a": rows, "b": rows[:, ::-1]}, own
    return sites, labels


def blobs(seed, centers=CENTERS, per_cluster=25):
    rng = np.random.default_rng(seed)
    sites, labels = {}, {}
    for site in range(4):
        own = np.repeat(np.arange(len(centers)), per_cluster)
        rows = centers[own] + rng.normal(size=(len(own), 4))
        sites[f"site-{site}"], labels[f"site-{site}"] = {"a": rows[:, :2], "b": rows[:, 2:]}, own
    return sites, labels


@pytest.fixture(scope="module")
def half_moons(tmp_path_factory):
    file = tmp_path_factory.mktemp("moons") / "model.safetensors"
    FedHKDiffusion(2, random_state=0, scaling="none").fit(moons(0)[0]).save(file)
    return file


@pytest.fixture(scope="module")
def round_ones(tmp_path_factory):
    file = tmp_path_factory.mktemp("blobs") / "model.safetensors"
    FedHKDiffusion(3, random_state=1, scaling="none").fit(blobs(0)[0]).save(file)
    return file


def names_of(model, labels):
    """The number that each of three true clusters has in a model, for most of its rows."""
    return [int(np.bincount(model.labels_["site-0"][labels["site-0"] == k]).argmax()) for k in range(3)]


def test_an_update_with_the_same_rows_changes_no_label(half_moons):
    model, sites = fedhk.load(half_moons), moons(0)[0]
    model.update(sites)
    for site, views in sites.items():
        assert_array_equal(model.labels_[site], fedhk.load(half_moons).predict(views))


def test_sites_and_files_give_the_labels_of_the_update(half_moons, tmp_path):
    model, sites = fedhk.load(half_moons), moons(1)[0]
    model.update(sites).save(tmp_path / "again")
    again, later = fedhk.load(tmp_path / "again"), moons(2)[0]
    for site, views in sites.items():
        assert_array_equal(model.client_models_[site].predict(views), model.labels_[site])
        assert_array_equal(again.predict(views), model.labels_[site])
    model.update(later), again.update(later)
    for site in later:
        assert_array_equal(again.labels_[site], model.labels_[site])


def test_half_moons_stay_two_clusters_with_their_numbers(half_moons):
    model = fedhk.load(half_moons)
    for month in range(1, 4):
        sites, labels = moons(month)
        known = np.concatenate([fedhk.load(half_moons).predict(views) for views in sites.values()])
        model.update(sites, half_life=1)
        now = np.concatenate(list(model.labels_.values()))
        assert np.mean(now == known) > 0.98
        truth = np.concatenate(list(labels.values()))
        assert max(np.mean(now == truth), np.mean(now != truth)) > 0.98
    assert [line["new"] for line in model.updates_] == [[], [], []]


def test_a_split_over_sites_gives_the_update_of_the_pooled_rows(half_moons):
    sites = moons(1)[0]
    pooled = {"all": {name: np.vstack([views[name] for views in sites.values()]) for name in ("a", "b")}}
    split, whole = fedhk.load(half_moons).update(sites), fedhk.load(half_moons).update(pooled)
    for one, other in zip(split.cluster_centers_, whole.cluster_centers_, strict=True):
        assert_allclose(one, other, atol=0.01)  # moves are sent in bytes
    assert_array_equal(np.concatenate(list(split.labels_.values())), whole.labels_["all"])


def test_sites_of_the_fit_are_not_sent_the_embedding_again(half_moons):
    sites = moons(1)[0]
    known, new = (fedhk.load(half_moons) for _ in range(2))
    new._pasts = {}
    known.update(sites), new.update(sites)
    assert known.updates_[0]["bytes_down"] < 0.5 * new.updates_[0]["bytes_down"]
    for site in sites:
        assert_array_equal(known.labels_[site], new.labels_[site])


def test_a_new_cluster_comes_last_and_is_known_from_then_on(round_ones):
    model = fedhk.load(round_ones)
    known = names_of(model.update(blobs(1)[0]), blobs(1)[1])
    far = np.vstack([CENTERS, [0, 0, 12, 0]])
    for seed in (2, 3):
        sites, labels = blobs(seed, far)
        model.update(sites)
        assert names_of(model, labels) == known
        assert (model.labels_["site-0"][labels["site-0"] == 3] == 3).all()
    assert [line["new"] for line in model.updates_] == [[], [3], []]
    assert (model.predict(sites["site-1"]) == model.labels_["site-1"]).all()


def test_a_cluster_that_comes_apart_becomes_two(round_ones):
    model = fedhk.load(round_ones)
    for month in range(1, 7):
        apart = np.vstack([CENTERS, CENTERS[:1]])
        apart[0, 3], apart[3, 3] = month, -month
        model.update(blobs(month, apart, 30)[0], half_life=1)
    assert model.n_clusters_ == 4


def test_clusters_that_move_are_followed_and_named(round_ones):
    model = fedhk.load(round_ones)
    sites, labels = blobs(1)
    names, moved = names_of(model.update(sites), labels), CENTERS.copy()
    for month in range(2, 10):
        moved[1, 3] += 0.8
        sites, labels = blobs(month, moved)
        model.update(sites, half_life=0.5)
        assert names_of(model, labels) == names
        assert model.updates_[-1]["moved"] == [names[1]]
    assert model.n_clusters_ == 3


def test_a_cluster_without_rows_is_gone(round_ones):
    model = fedhk.load(round_ones)
    for month in range(1, 9):
        model.update(blobs(month, CENTERS[:2])[0], half_life=0.5)
    assert len(model.gone_clusters_) == 1
    assert not set(np.concatenate(list(model.labels_.values()))) & set(model.gone_clusters_)


def test_a_site_that_nobody_knows_may_join(round_ones):
    sites = blobs(1)[0]
    model = fedhk.load(round_ones).update({"new": sites["site-0"], "site-1": sites["site-1"]})
    assert_array_equal(model.labels_["new"], fedhk.load(round_ones).predict(sites["site-0"]))


def test_calibrated_sites_are_updated_in_their_own_frame():
    rng = np.random.default_rng(0)
    shifts = {f"site-{site}": 4 * rng.normal(size=4) for site in range(4)}

    def shifted(seed):
        sites, labels = blobs(seed)
        moved = {s: {"a": v["a"] + shifts[s][:2], "b": v["b"] + shifts[s][2:]} for s, v in sites.items()}
        return moved, labels

    model = FedHKDiffusion(3, random_state=0, scaling="none", calibration=(1.0, 0.0)).fit(shifted(0)[0])
    sites, labels = shifted(1)
    model.update(sites)
    for site, own in labels.items():
        names = [np.bincount(model.labels_[site][own == k]).argmax() for k in range(3)]
        assert len(set(names)) == 3
        assert np.mean(np.array(names)[own] == model.labels_[site]) > 0.97
        assert_array_equal(model.client_models_[site].predict(sites[site]), model.labels_[site])


def test_masks_give_the_update_in_the_open(round_ones):
    sites = blobs(1)[0]
    plain, masked = fedhk.load(round_ones).update(sites), fedhk.load(round_ones).set_params(secure=True).update(sites)
    for one, other in zip(plain.cluster_centers_, masked.cluster_centers_, strict=True):
        assert_allclose(one, other, atol=0.05)
    for site in sites:
        assert_array_equal(plain.labels_[site], masked.labels_[site])
    assert {line["site"] for line in masked.drift_} <= {"all sites"}


def test_a_cluster_that_bends_away_is_warned_of(half_moons):
    model, (sites, labels) = fedhk.load(half_moons), moons(1)
    for site, views in sites.items():
        tip = (labels[site] == 0) & (views["a"][:, 0] < -0.6)
        bent = (-0.6 - views["a"][tip, 0]) * 4  # the more, the nearer to the end
        views["a"][tip, 0] -= bent
        views["b"][tip, 1] -= bent
    with pytest.warns(UserWarning, match="farther from all anchors"):
        model.update(sites)
    assert model.n_clusters_ == 2


def test_what_an_update_cannot_do_is_said(round_ones):
    sites = blobs(1)[0]
    renamed = {site: {"a": views["a"], "c": views["b"]} for site, views in sites.items()}
    with pytest.raises(DataError, match="view 'c' is new, and the embedding"):
        fedhk.load(round_ones).update(renamed)
    old = fedhk.load(round_ones)
    old._memory = None
    with pytest.raises(ValueError, match="fit it once more"):
        old.update(sites)
    noisy = fedhk.load(round_ones).set_params(privacy=DifferentialPrivacy(1.0, 1e-5, (-20, 20)))
    with pytest.raises(ValueError, match="with privacy cannot be updated"):
        noisy.update(sites)
