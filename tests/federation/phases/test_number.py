"""The number of clusters over sites: in front of every estimator, in the open and under masks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_circles, make_moons

import fedhk
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy

ESTIMATORS = [fedhk.EFKMVC, fedhk.FedHKTucker, fedhk.FedHKParafac2, fedhk.FedHKPerson, fedhk.FedHKDiffusion]
QUICK = {"n_init": 2, "random_state": 0}


@pytest.fixture(scope="module")
def sites():
    return make_sites(4, 120, 4, (6, 5), separation=8, shift=0.5, random_state=0).sites


@pytest.mark.parametrize("secure", [False, True], ids=["open", "masks"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_finds_the_number(sites, estimator, secure):
    model = estimator((2, 6), secure=secure, **QUICK).fit(sites)
    assert model.n_clusters_ == 4
    assert [one["n_clusters"] for one in model.selection_] == [2, 3, 4, 5, 6]
    assert [one["n_clusters"] for one in model.selection_ if one["taken"]] == [4]
    if not secure:
        assert all(own.n_clusters == 4 for own in model.client_models_.values())


def test_the_model_is_that_of_a_fit_with_the_number(sites):
    found = fedhk.EFKMVC((2, 6), **QUICK).fit(sites)
    given = fedhk.EFKMVC(4, **QUICK).fit(sites)
    assert given.selection_ == []
    for one, other in zip(found.cluster_centers_, given.cluster_centers_, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore:.*no clear number")
@pytest.mark.parametrize("secure", [False, True], ids=["open", "masks"])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_sites_that_measure_differently_are_no_clusters(shift, secure):
    data = make_sites(4, 150, n_clusters=3, shift=shift, random_state=1)
    assert fedhk.EFKMVC((2, 10), secure=secure, **QUICK).fit(data.sites).n_clusters_ == 3


def test_noise_is_one_cluster_and_it_is_said():
    rng = np.random.default_rng(0)
    noise = {f"site-{i}": [rng.normal(size=(100, 4)), rng.normal(size=(100, 3))] for i in range(3)}
    with pytest.warns(UserWarning, match="the rows show one cluster"):
        model = fedhk.EFKMVC("auto", **QUICK).fit(noise)
    assert model.n_clusters_ == 1
    assert model.selection_[0]["taken"]


def test_a_selection_is_saved_with_its_model(sites, tmp_path):
    model = fedhk.EFKMVC("2-5", **QUICK).fit(sites)
    model.save(tmp_path / "model.safetensors")
    assert fedhk.load(tmp_path / "model.safetensors").selection_ == model.selection_


@pytest.mark.parametrize("exchange", [2, 4, 6])
def test_a_run_that_was_stopped_on_the_way_goes_on(sites, tmp_path, exchange, monkeypatch):
    model = fedhk.EFKMVC((2, 5), checkpoint=tmp_path / "run", **QUICK)
    hooks = fedhk.EFKMVC._hooks

    def stop(run):
        if run.exchange == exchange:
            raise KeyboardInterrupt

    monkeypatch.setattr(fedhk.EFKMVC, "_hooks", lambda *given: [*hooks(*given), stop])
    with pytest.raises(KeyboardInterrupt):
        model.fit(sites)
    monkeypatch.undo()
    model.fit(sites, resume=True)
    whole = fedhk.EFKMVC((2, 5), **QUICK).fit(sites)
    assert model.selection_ == whole.selection_
    np.testing.assert_array_equal(model.cluster_centers_[0], whole.cluster_centers_[0])


def test_what_cannot_be_tried_is_refused(sites):
    with pytest.raises(ValueError, match=r"n_clusters='2-900': to try 900 clusters takes"):
        fedhk.EFKMVC("2-900", **QUICK).fit(sites)
    with pytest.raises(ValueError, match=r"n_clusters=\(1, 4\) must be a whole number"):
        fedhk.EFKMVC((1, 4), **QUICK).fit(sites)
    budget = DifferentialPrivacy(epsilon=1.0, delta=1e-6, bounds=(-20, 20))
    with pytest.raises(ValueError, match="n_clusters='auto' does not go with privacy"):
        fedhk.EFKMVC("auto", privacy=budget, **QUICK).fit(sites)


@pytest.mark.parametrize("secure", [False, True], ids=["open", "masks"])
def test_sites_without_clusters_that_measure_differently_are_one_cluster(secure):
    rng = np.random.default_rng(1)
    noise = {f"site-{i}": [rng.normal(size=(100, 4)) + 4 * rng.normal(size=4) for _ in range(2)] for i in range(4)}
    with pytest.warns(UserWarning, match="the rows show one cluster"):
        assert fedhk.EFKMVC("auto", secure=secure, scaling="standard", **QUICK).fit(noise).n_clusters_ == 1


@pytest.mark.parametrize("draw", [make_moons, make_circles], ids=["moons", "rings"])
def test_clusters_need_not_be_round(draw):
    table = draw(600, noise=0.05, random_state=0, **({"factor": 0.4} if draw is make_circles else {}))[0]
    sites = {f"site-{i}": [table[i::3]] for i in range(3)}
    assert fedhk.FedHKDiffusion("auto", **QUICK).fit(sites).n_clusters_ == 2


def test_it_costs_little_more_than_a_fit_with_the_number(sites):
    """No more than four times the bytes is asked for; candidates of the sites travel once more."""
    found, given = (fedhk.EFKMVC(number, **QUICK).fit(sites) for number in ((2, 6), 4))
    sent, alone = (sum(r["bytes_up"] + r["bytes_down"] for r in model.history_) for model in (found, given))
    assert sent < 2 * alone
