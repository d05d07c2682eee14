"""FedHKPerson: models of sites that differ, one meaning of every cluster."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import fedhk
from federations import resumed_after
from fedhk import EFKMVC, FedHKPerson, Personalization, datasets
from fedhk.protocols import Averaging, FactorAveraging

QUICK = {"n_init": 3, "random_state": 0}
# few rounds are enough for what these tests ask
stops_early = pytest.mark.filterwarnings("ignore:.* (did not|gives back):sklearn.exceptions.ConvergenceWarning")
FIRST_SWEEPS = 10  # enough for clusters to be found; see `short_first_fit`
pytestmark = pytest.mark.usefixtures("short_first_fit")


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
    return FedHKPerson(3, **QUICK).fit(shifted.sites)


def test_beats_the_global_model_where_sites_differ(shifted, fitted):
    common = EFKMVC(3, random_state=0).fit(shifted.sites)  # with all its starts
    assert agreement(fitted.labels_, shifted) > agreement(common.labels_, shifted) + 0.1
    assert agreement(fitted.labels_, shifted) > 0.9


def test_loses_nothing_where_they_do_not(alike):
    model, common = FedHKPerson(3, **QUICK).fit(alike.sites), EFKMVC(3, random_state=0).fit(alike.sites)
    assert agreement(model.labels_, alike) >= agreement(common.labels_, alike) - 0.01
    assert np.mean([record["value"] for record in model.personalization_]) <= 0.1


@pytest.fixture(scope="module")
def uncalibrated(shifted):
    return FedHKPerson(3, calibration=None, **QUICK).fit(shifted.sites)


@pytest.fixture(scope="module")
def nobody(shifted):
    """Sites of which none has a share of its own."""
    return FedHKPerson(3, personalization=0.0, calibration=None, **QUICK).fit(shifted.sites)


@pytest.mark.parametrize("calibration", ["auto", None])
def test_what_is_learned_orders_sites_by_how_far_they_are_moved(calibration):
    data = datasets.make_sites(20, 100, n_clusters=4, shift=0, scale=0, class_mix=None, random_state=0)
    rng = np.random.default_rng(0)
    far = rng.permutation(np.linspace(0, 0.6, 20))
    sites = {
        name: [view + shift * rng.choice([-1, 1], view.shape[1]) for view in views]
        for (name, views), shift in zip(data.sites.items(), far, strict=True)
    }
    model = FedHKPerson(4, calibration=calibration, **QUICK).fit(sites)
    learned = [record["value"] for record in model.personalization_ if record["component"] == "shift"]
    assert np.corrcoef(learned, far)[0, 1] > 0.8


def test_sites_that_differ_by_class_mix_alone_are_not_calibrated():
    data = datasets.make_sites(6, 80, n_clusters=3, shift=0, scale=0, class_mix=0.5, random_state=3)
    model = FedHKPerson(3, **QUICK).fit(data.sites)
    assert (model.calibration_["shift"], model.calibration_["spread"]) == (0.0, 0.0)


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
    other = FedHKPerson(3, **QUICK).fit(dict(reversed(shifted.sites.items())))
    for name in shifted.sites:
        assert_array_equal(other.memberships_[name], fitted.memberships_[name])


def test_a_run_goes_on_from_its_checkpoint(shifted, fitted, tmp_path, monkeypatch):
    model = FedHKPerson(3, **QUICK, checkpoint=tmp_path / "run")
    resumed_after(4, model, shifted.sites, monkeypatch)
    # a resumed site finds its offset anew from where the centres are, so that it may differ in its last passes
    assert agreement(model.labels_, shifted) == pytest.approx(agreement(fitted.labels_, shifted), abs=0.02)


@pytest.mark.parametrize("decomposition", ["tucker", "parafac2"])
def test_works_with_both_decompositions(decomposition):
    data = datasets.make_sites(4, 60, n_clusters=3, n_features=(40, 30), shift=1.0, random_state=1)
    model = FedHKPerson(3, decomposition=decomposition, **QUICK).fit(data.sites)
    assert model.rank_
    assert agreement(model.labels_, data) > 0.8


def records_of(model, component):
    return {r["site"]: r["value"] for r in model.personalization_ if r["component"] == component}


PARTS = ("core", "cluster_factor", "feature_factors", "view_factor")


@pytest.fixture(scope="module", params=[("tucker", (2, 3, 1)), ("parafac2", 2)], ids=["tucker", "parafac2"])
def low(request):
    data = datasets.make_sites(4, 80, n_clusters=3, n_features=(30, 20), shift=1.0, scale=0.3, random_state=1)
    rng = np.random.default_rng(0)
    for site in ("site-00", "site-01"):  # where a cluster is another one, neither offset nor scale explains it
        first = (data.site_labels[site] == 0)[:, None]
        data.sites[site] = [view + 2.0 * first * rng.normal(size=view.shape[1]) for view in data.sites[site]]
    name, rank = request.param
    model = FedHKPerson(3, decomposition=name, rank=rank, **QUICK)
    return data, model.fit(data.sites)


class TestBindingRank:
    """Centres of so low a rank that it constrains them: every part of the form is personal by a share of its own."""

    def test_every_part_has_a_share(self, low):
        data, model = low
        for part in (*PARTS, "centers", "shift"):
            shares = records_of(model, part)
            assert set(shares) == set(data.sites)
            assert all(0 <= share <= 1 for share in shares.values())
        assert max(max(records_of(model, part).values()) for part in PARTS) > 0.15

    def test_models_of_sites_have_the_form_and_survive_a_file(self, low, tmp_path):
        data, model = low
        for name, views in data.sites.items():
            own = model.client_models_[name]
            assert own.rank_ == model.rank_
            assert own.cluster_factor_.shape == model.cluster_factor_.shape
            assert_array_equal(own.predict(views), model.labels_[name])
        own.save(tmp_path / "own.safetensors")
        again = fedhk.load(tmp_path / "own.safetensors")
        assert again.rank_ == model.rank_
        assert_array_equal(again.predict(views), model.labels_[name])

    def test_a_later_site_gets_the_model_it_would_have_had(self, low, tmp_path):
        data, model = low
        model.save(tmp_path / "global.safetensors")
        own = fedhk.load(tmp_path / "global.safetensors").personalize(data.sites["site-01"])
        assert own.rank_ == model.rank_
        assert_array_equal(own.predict(data.sites["site-01"]), model.labels_["site-01"])

    def test_one_number_is_the_share_of_every_part(self, low):
        data, model = low
        fixed = clone(model).set_params(personalization=0.4, calibration=None).fit(data.sites)
        assert all(set(records_of(fixed, part).values()) == {0.4} for part in PARTS)
        shares = {site: 0.0 if site == "site-00" else 0.4 for site in data.sites}
        nobody = clone(model).set_params(personalization=shares, calibration=None).fit(data.sites)
        assert all(records_of(nobody, part)["site-00"] == 0.0 for part in PARTS)
        assert_array_equal(nobody.labels_["site-00"], nobody.global_labels_["site-00"])

    def test_pays_on_rows_that_were_not_seen(self, low):
        data, model = low
        records = fedhk.evaluate(model, data.sites)
        mean = {k: np.mean([r["objective"] for r in records if r["model"] == k]) for k in ("global", "personal")}
        assert mean["personal"] < mean["global"]

    def test_sites_that_are_alike_take_next_to_nothing(self, low):
        alike = datasets.make_sites(3, 80, n_clusters=3, n_features=(12, 8), shift=0, scale=0, class_mix=None,
                                    random_state=1)  # fmt: skip
        model = clone(low[1]).fit(alike.sites)
        assert np.mean([r["value"] for r in model.personalization_]) <= 0.1
        common = {name: model.global_labels_[name] for name in alike.sites}
        assert agreement(model.labels_, alike) >= agreement(common, alike) - 0.01


@pytest.fixture(scope="module")
def pulled(shifted):
    """Models by how strongly the common centres pull."""
    common = {"calibration": None, **QUICK}
    return {
        pull: FedHKPerson(3, personalization=Personalization(center_pull=pull), **common).fit(shifted.sites)
        for pull in (1.0, 30.0, 1e4)
    }


class TestPulls:
    def test_view_weights_go_from_their_own_to_the_common_ones(self, shifted):
        common = {"view_weights": "learned", "calibration": None, **QUICK}
        away = []
        for pull in (0.0, 50.0, 1e9):
            model = FedHKPerson(3, personalization=Personalization(view_pull=pull), **common).fit(shifted.sites)
            own = [m.view_weights_ for m in model.client_models_.values()]
            assert_allclose(np.sum(own, axis=1), 1)
            away.append(np.abs(np.array(own) - model.view_weights_).max())
        assert away[0] > 1.5 * away[1] > 0
        assert away[2] < 1e-6

    def test_the_objective_with_personalization_is_reported(self, uncalibrated, nobody, pulled, tmp_path):
        free = uncalibrated
        found = free.personal_objective_
        rows = sum(len(labels) for labels in free.labels_.values())
        assert found["objective"] == pytest.approx(sum(m.objective_ for m in free.client_models_.values()) / rows)
        assert found["total"] == found["objective"]  # nothing pulls
        common = nobody.personal_objective_
        assert common["center_distance"] == common["view_distance"] == 0
        assert found["objective"] < common["objective"]
        near = pulled[30.0].personal_objective_
        assert near["center_distance"] > 0
        assert near["total"] == pytest.approx(near["objective"] + 30 * near["center_distance"])
        free.save(tmp_path / "model.safetensors")
        assert fedhk.load(tmp_path / "model.safetensors").personal_objective_ == found

    def test_more_pull_is_nearer_to_the_common_centres(self, pulled):
        distances = [pulled[pull].personal_objective_["center_distance"] for pull in (1.0, 30.0, 1e4)]
        assert distances == sorted(distances, reverse=True)


PLAIN = {"calibration": None, "max_rounds": 10, **QUICK}


@pytest.fixture(scope="module")
def moved():
    return datasets.make_sites(5, 80, n_clusters=3, n_features=(10, 6), shift=0.5, scale=0.1, random_state=2)


@stops_early
class TestAveraged:
    """Protocols in which sites send centres or factors, and quality weights."""

    @pytest.mark.parametrize(
        "params",
        [
            {"protocol": Averaging(weights="quality")},
            {"protocol": FactorAveraging(weights="quality"), "decomposition": "tucker", "rank": (3, 4, 2)},
            {
                "protocol": FactorAveraging(weights="quality", aggregation="factors"),
                "decomposition": "parafac2",
                "rank": 3,
            },
        ],
    )
    def test_fit_and_personalise(self, moved, params):
        model = FedHKPerson(3, **params, **PLAIN).fit(moved.sites)
        assert agreement(model.labels_, moved) > 0.9
        assert set(records_of(model, "shift")) == set(moved.sites)
        assert np.mean(list(records_of(model, "shift").values())) > 0.3

    def test_quality_weighs_sites_by_their_mean_objective(self, moved):
        sites = moved.sites | {"noise": [5 * view for view in moved.sites["site-00"]]}
        means = {}
        for rule in ("rows", "quality"):
            model = FedHKPerson(3, protocol=Averaging(weights=rule), **PLAIN).fit(sites)
            means[rule] = model.personal_objective_["objective"]
            per_site = {s: m.objective_ / len(model.labels_[s]) for s, m in model.client_models_.items()}
        weights = {s: np.exp(-10 * value) for s, value in per_site.items()}
        expected = sum(weights[s] * per_site[s] for s in weights) / sum(weights.values())
        assert means["quality"] == pytest.approx(expected)
        assert means["quality"] < means["rows"]

    def test_sites_may_start_from_their_own_factors(self, moved):
        options = {"decomposition": "tucker", "rank": (2, 3, 2), "max_rounds": 3}
        sites = {site: moved.sites[site] for site in sorted(moved.sites)[:3]}
        protocols = [FactorAveraging(passes=2, blend=blend) for blend in (0.0, 0.8)]
        fits = [FedHKPerson(3, protocol=protocol, **PLAIN | options).fit(sites) for protocol in protocols]
        objectives = [[record["objective"] for record in fit.history_] for fit in fits]
        # own factors are there from the second round on, whose step the third measures; the model that is kept may be
        # an earlier one of both
        assert objectives[0][:2] == objectives[1][:2]
        assert objectives[0][2] != objectives[1][2]


def summary_of(model):
    (summary,) = model._summaries
    return summary


def test_a_finished_run_knows_its_makeup_again(shifted, fitted, tmp_path):
    model = FedHKPerson(3, **QUICK, checkpoint=tmp_path / "run").fit(shifted.sites)
    again = clone(model).fit(shifted.sites, resume=True)
    assert_array_equal(summary_of(again).to_array(), summary_of(model).to_array())
    assert_array_equal(summary_of(again).to_array(), summary_of(fitted).to_array())
    for name in shifted.sites:
        assert_array_equal(again.memberships_[name], fitted.memberships_[name])
    assert summary_of(model).seen.max() == sum(len(labels) for labels in model.labels_.values())


def test_sizes_reach_the_models_of_sites_and_a_later_site(tmp_path):
    data = datasets.make_sites(6, 150, n_clusters=3, shift=0, scale=0, class_mix=0.3, random_state=3)
    model = FedHKPerson(3, **QUICK).fit(data.sites)
    sizes = {name: own._model.parameters.sizes for name, own in model.client_models_.items()}
    assert max(records_of(model, "sizes").values()) > 0.3
    name = max(sizes, key=lambda site: 0 if sizes[site] is None else sizes[site].max())
    counts = np.bincount(model.labels_[name], minlength=3)
    assert np.argmax(sizes[name]) == np.argmax(counts / summary_of(model).shares)
    model.client_models_[name].save(tmp_path / "own.safetensors")
    again = fedhk.load(tmp_path / "own.safetensors")
    assert_array_equal(again._model.parameters.sizes, sizes[name])
    assert_array_equal(again.predict(data.sites[name]), model.labels_[name])
    model.save(tmp_path / "global.safetensors")
    later = fedhk.load(tmp_path / "global.safetensors").personalize(data.sites[name])
    assert_array_equal(later._model.parameters.sizes, sizes[name])


def test_what_a_site_of_too_few_rows_to_hold_out_any_gets(shifted):
    """The common model as it is, whatever its rows are; shares that are given are taken all the same."""
    few = {"few": [view[:9] + 3.0 for view in shifted.sites["site-00"]]}
    learned = FedHKPerson(3, calibration=None, **QUICK).fit(shifted.sites | few)
    assert {r["value"] for r in learned.personalization_ if r["site"] == "few"} == {0.0}
    assert_array_equal(learned.labels_["few"], learned.global_labels_["few"])
    given = FedHKPerson(3, calibration=None, personalization={"few": 1.0}, **QUICK).fit(shifted.sites | few)
    assert records_of(given, "centers")["few"] == 1.0


@pytest.mark.parametrize("calibration", ["auto", None])
def test_a_site_with_a_single_cluster(alike, calibration):
    labels = alike.site_labels["site-00"]
    rows = np.flatnonzero(labels == 1)
    sites = {**alike.sites, "single": [view[rows] for view in alike.sites["site-00"]]}
    model = FedHKPerson(3, calibration=calibration, **QUICK).fit(sites)
    counts = np.bincount(model.labels_["single"], minlength=3)
    assert counts.max() >= 0.95 * counts.sum()
    assert records_of(model, "sizes")["single"] > 0.3
    assert all(0 <= r["value"] <= 1 for r in model.personalization_)


def test_a_single_cluster_everywhere(shifted):
    model = FedHKPerson(1, **QUICK).fit(shifted.sites)
    assert all(np.all(found == 0) for found in model.labels_.values())
    assert all(0 <= r["value"] <= 1 for r in model.personalization_)


def test_missing_views_small_sites_and_an_empty_one():
    data = datasets.make_sites(6, 40, n_clusters=3, missing_views=0.3, random_state=2)
    sites = dict(data.sites)
    first = next(site for site in sites.values() if all(view is not None for view in site))
    sites["one row"] = [view[:1] for view in first]
    sites["no row"] = [view[:0] for view in first]
    model = FedHKPerson(3, **QUICK).fit(sites)
    assert len(model.labels_["one row"]) == 1
    assert len(model.labels_["no row"]) == 0
    assert all(r["value"] == 0.0 for r in model.personalization_ if r["site"] in ("one row", "no row"))


def test_fixed_shares_for_all_and_by_site(shifted, nobody):
    model = FedHKPerson(3, personalization={"site-00": 0.0, "site-01": 1.0}, calibration=None, **QUICK)
    model.fit(shifted.sites)
    shares = {r["site"]: r["value"] for r in model.personalization_ if r["component"] == "centers"}
    assert (shares["site-00"], shares["site-01"]) == (0.0, 1.0)
    for name in shifted.sites:
        assert_array_equal(nobody.labels_[name], nobody.global_labels_[name])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"personalization": 1.5}, "personalization"),
        ({"personalization": {"site-00": 2.0}}, r"personalization=.*\['site-00'\]=2.0 must be"),
        ({"personalization": {"paris": 0.5}}, "'paris'.*not there"),
        ({"personalization": True}, "personalization"),
        ({"calibration": (0.5, 0.5, 0.5)}, r"calibration=\(0.5, 0.5, 0.5\)"),
        ({"calibration": 2.0}, "calibration"),
        ({"personalization": {"site-00": float("nan")}}, r"personalization=.*\['site-00'\]=nan must be"),
        ({"personalization": {"site-00": True}}, r"personalization=.*\['site-00'\]=True must be"),
        ({"personalization": {"site-00": None}}, r"personalization=.*\['site-00'\]=None must be"),
        ({"protocol": "centers"}, "protocol='centers'.*calibration='auto'.*give calibration=None"),
        ({"protocol": "centers", "calibration": 0.5}, "calibration=0.5"),
        ({"protocol": "centers", "calibration": None, "decomposition": "tucker"}, "no place for a decomposition"),
        ({"protocol": "factors", "calibration": None}, "give decomposition"),
        ({"protocol": "factors", "decomposition": "parafac2"}, "protocol='factors'.*calibration='auto'"),
        ({"decomposition": "svd"}, "decomposition"),
    ],
)
def test_bad_parameters_are_named(shifted, params, message):
    with pytest.raises(ValueError, match=message):
        FedHKPerson(3, **params).fit(shifted.sites)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view_weights": -0.1}, "view_weights=-0.1 must be"),
        ({"view_weights": {"site-00": "much"}}, r"view_weights\['site-00'\]='much' must be"),
        ({"center_pull": -1.0}, "center_pull=-1.0 must be"),
        ({"view_pull": -1.0}, "view_pull=-1.0 must be"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Personalization(**options)


def test_view_weights_of_a_site_that_is_not_there_are_refused(shifted):
    personalization = Personalization(view_weights={"paris": 0.5})
    with pytest.raises(ValueError, match=r"'paris'.*not there; sites are"):
        FedHKPerson(3, view_weights="learned", personalization=personalization).fit(shifted.sites)


def test_habits(fitted):
    assert clone(fitted).get_params() == fitted.get_params()
    assert "FedHKPerson" in repr(fitted)
    assert fitted.history_[0]["bytes_up"] > 0


def test_global_centres_are_in_input_units_whatever_the_calibration_divided_by():
    """Rows without their site's mean lie around the global centres, neither nearer nor farther out."""
    data = datasets.make_sites(5, 200, n_clusters=4, shift=1.0, random_state=1)
    model = FedHKPerson(4, calibration=(1.0, 0.0), **QUICK).fit(data.sites)
    assert max(model.calibration_["factors"]) < 0.95  # units have changed
    labels = np.concatenate([model.labels_[site] for site in data.sites])
    for view, centers in enumerate(model.cluster_centers_):
        tables = [np.asarray(views[view]) for views in data.sites.values()]
        means = [
            np.mean([t[model.labels_[s] == k].mean(0) for k in range(4)], 0)
            for s, t in zip(data.sites, tables, strict=True)
        ]
        rows = np.vstack([table - mean for table, mean in zip(tables, means, strict=True)])
        found = np.stack([rows[labels == k].mean(axis=0) for k in range(4)])
        sizes = np.linalg.norm(centers - centers.mean(axis=0), axis=1) / np.linalg.norm(found, axis=1)
        assert np.all(np.abs(sizes - 1) < 0.05), sizes


def test_a_file_keeps_what_sites_learned_only_where_they_may_say_so(tmp_path):
    data = datasets.make_sites(4, 60, n_clusters=3, random_state=0)
    FedHKPerson(3, **QUICK, secure=True).fit(data.sites).save(tmp_path / "masked")
    FedHKPerson(3, **QUICK).fit(data.sites).save(tmp_path / "open")
    assert not getattr(fedhk.load(tmp_path / "masked"), "personalization_", None)
    assert not getattr(fedhk.load(tmp_path / "masked"), "personal_objective_", None)
    assert fedhk.load(tmp_path / "open").personalization_
