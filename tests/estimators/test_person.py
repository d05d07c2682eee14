"""FedHKPerson: models of sites that differ, one meaning of every cluster."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import fedhk
from federations import resumed_after
from fedhk import EFKMVC, FedHKPerson, datasets


def agreement(labels, data):
    names = sorted(data.sites)
    truth = np.concatenate([data.site_labels[name] for name in names])
    return adjusted_rand_score(truth, np.concatenate([labels[name] for name in names]))


@pytest.fixture(scope="module")
def shifted():
    return datasets.make_sites(6, 80, n_clusters=3, shift=1.5, scale=0.2, class_mix=2.0, random_state=3)


@pytest.fixture(scope="module")
def alike():
    return datasets.make_sites(6, 80, n_clusters=3, shift=0, scale=0, class_mix=None, random_state=3)


@pytest.fixture(scope="module")
def fitted(shifted):
    return FedHKPerson(3, random_state=0).fit(shifted.sites)


def test_beats_the_global_model_where_sites_differ(shifted, fitted):
    common = EFKMVC(3, random_state=0).fit(shifted.sites)
    assert agreement(fitted.labels_, shifted) > agreement(common.labels_, shifted) + 0.1
    assert agreement(fitted.labels_, shifted) > 0.9


def test_loses_nothing_where_they_do_not(alike):
    model, common = FedHKPerson(3, random_state=0).fit(alike.sites), EFKMVC(3, random_state=0).fit(alike.sites)
    assert agreement(model.labels_, alike) >= agreement(common.labels_, alike) - 0.01
    assert np.mean([record["value"] for record in model.personalization_]) <= 0.1


@pytest.mark.parametrize("calibration", ["auto", None])
def test_what_is_learned_orders_sites_by_how_far_they_are_moved(calibration):
    data = datasets.make_sites(20, 100, n_clusters=4, shift=0, scale=0, class_mix=None, random_state=0)
    rng = np.random.default_rng(0)
    far = rng.permutation(np.linspace(0, 0.6, 20))
    sites = {
        name: [view + shift * rng.choice([-1, 1], view.shape[1]) for view in views]
        for (name, views), shift in zip(data.sites.items(), far, strict=True)
    }
    model = FedHKPerson(4, calibration=calibration, random_state=0).fit(sites)
    learned = [record["value"] for record in model.personalization_ if record["component"] == "shift"]
    assert np.corrcoef(learned, far)[0, 1] > 0.8


def test_sites_that_differ_by_class_mix_alone_are_not_calibrated():
    data = datasets.make_sites(6, 80, n_clusters=3, shift=0, scale=0, class_mix=0.5, random_state=3)
    model = FedHKPerson(3, random_state=0).fit(data.sites)
    assert model.calibration_[:2] == [0.0, 0.0]


def test_each_sites_model_predicts_what_it_fitted_and_survives_a_file(shifted, fitted, tmp_path):
    for name, views in shifted.sites.items():
        assert_array_equal(fitted.client_models_[name].predict(views), fitted.labels_[name])
    fitted.client_models_["site-00"].save(tmp_path / "own.safetensors")
    again = fedhk.load(tmp_path / "own.safetensors")
    assert_array_equal(again.predict(shifted.sites["site-00"]), fitted.labels_["site-00"])


def test_a_new_site_is_personalised_from_a_saved_model_and_its_own_rows(shifted, fitted, tmp_path):
    name = "site-02"
    fitted.save(tmp_path / "global.safetensors")
    model = fedhk.load(tmp_path / "global.safetensors")
    own = model.personalize(shifted.sites[name])
    for one, other in zip(own.cluster_centers_, fitted.client_models_[name].cluster_centers_, strict=True):
        assert_allclose(one, other)
    assert_array_equal(own.predict(shifted.sites[name]), fitted.labels_[name])


def test_any_order_of_sites_gives_the_same_bits(shifted, fitted):
    other = FedHKPerson(3, random_state=0).fit(dict(reversed(shifted.sites.items())))
    for name in shifted.sites:
        assert_array_equal(other.memberships_[name], fitted.memberships_[name])


def test_a_run_goes_on_from_its_checkpoint(shifted, fitted, tmp_path, monkeypatch):
    model = FedHKPerson(3, random_state=0, checkpoint=tmp_path / "run")
    resumed_after(4, model, shifted.sites, monkeypatch)
    # a resumed site finds its offset anew from where the centres are, so that it may differ in its last passes
    assert agreement(model.labels_, shifted) == pytest.approx(agreement(fitted.labels_, shifted), abs=0.02)


@pytest.mark.parametrize("decomposition", ["tucker", "parafac2"])
def test_works_with_both_decompositions(decomposition):
    data = datasets.make_sites(4, 60, n_clusters=3, n_features=(40, 30), shift=1.0, random_state=1)
    model = FedHKPerson(3, decomposition=decomposition, random_state=0).fit(data.sites)
    assert model.rank_
    assert agreement(model.labels_, data) > 0.8


def test_missing_views_small_sites_and_an_empty_one():
    data = datasets.make_sites(6, 40, n_clusters=3, missing_views=0.3, random_state=2)
    sites = dict(data.sites)
    first = next(site for site in sites.values() if all(view is not None for view in site))
    sites["one row"] = [view[:1] for view in first]
    sites["no row"] = [view[:0] for view in first]
    model = FedHKPerson(3, random_state=0).fit(sites)
    assert len(model.labels_["one row"]) == 1
    assert len(model.labels_["no row"]) == 0
    assert all(r["value"] == 0.0 for r in model.personalization_ if r["site"] in ("one row", "no row"))


def test_fixed_shares_for_all_and_by_site(shifted):
    model = FedHKPerson(3, personalization={"site-00": 0.0, "site-01": 1.0}, calibration=None, random_state=0)
    model.fit(shifted.sites)
    shares = {r["site"]: r["value"] for r in model.personalization_ if r["component"] == "centers"}
    assert (shares["site-00"], shares["site-01"]) == (0.0, 1.0)
    nobody = FedHKPerson(3, personalization=0.0, calibration=None, random_state=0).fit(shifted.sites)
    for name in shifted.sites:
        assert_array_equal(nobody.labels_[name], nobody.global_labels_[name])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"personalization": 1.5}, "personalization"),
        ({"personalization": {"site-00": 2.0}}, r"personalization\['site-00'\]=2.0 must be"),
        ({"personalization": {"paris": 0.5}}, "'paris'.*not there"),
        ({"view_personalization": -0.1}, "view_personalization"),
        ({"calibration": (0.5, 0.5, 0.5)}, r"calibration=\(0.5, 0.5, 0.5\)"),
        ({"calibration": 2.0}, "calibration"),
        ({"center_pull": -1.0}, "center_pull"),
        ({"decomposition": "svd"}, "decomposition"),
    ],
)
def test_bad_parameters_are_named(shifted, params, message):
    with pytest.raises(ValueError, match=message):
        FedHKPerson(3, **params).fit(shifted.sites)


def test_habits(fitted):
    assert clone(fitted).get_params() == fitted.get_params()
    assert "FedHKPerson" in repr(fitted)
    assert fitted.history_[0]["bytes_up"] > 0


class TestEvaluate:
    def test_compares_the_three_models_of_every_site(self, shifted):
        records = fedhk.evaluate(FedHKPerson(3, random_state=0), shifted.sites, shifted.site_labels)
        kinds = {"global", "personal", "alone"}
        assert {(r["site"], r["model"]) for r in records if r["site"] != "(all)"} == {
            (site, kind) for site in shifted.sites for kind in kinds
        }
        pooled = {r["model"]: r["ari"] for r in records if r["site"] == "(all)"}
        assert pooled["personal"] > max(pooled["global"], pooled["alone"])
        mean = {k: np.mean([r["objective"] for r in records if r["model"] == k and "objective" in r]) for k in kinds}
        assert mean["personal"] < mean["global"]

    def test_needs_no_labels(self, alike):
        records = fedhk.evaluate(EFKMVC(3, random_state=0), alike.sites)
        assert all("ari" not in record for record in records)

    def test_names_what_is_wrong(self, alike):
        with pytest.raises(ValueError, match="holdout=1"):
            fedhk.evaluate(EFKMVC(3), alike.sites, holdout=1.0)
        with pytest.raises(ValueError, match="no classes for site 'site-00'"):
            fedhk.evaluate(EFKMVC(3), alike.sites, {})
        with pytest.raises(ValueError, match=r"labels\['site-00'\] has shape \(3,\)"):
            fedhk.evaluate(EFKMVC(3), alike.sites, {site: [0, 1, 2] for site in alike.sites})
