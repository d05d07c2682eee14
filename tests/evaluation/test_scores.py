"""`fedhk.evaluate`: global, personal and alone models on rows that none of them saw."""

from __future__ import annotations

import numpy as np
import pytest

import fedhk
from fedhk import EFKMVC, FedHKPerson, FedHKTucker, HeatKernelMVC, datasets
from fedhk.evaluation import site_means

# few rounds are enough for what is claimed here
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KINDS = {"global", "personal", "alone"}


@pytest.fixture(scope="module")
def shifted():
    return datasets.make_sites(6, 80, n_clusters=3, shift=1.5, scale=0.2, class_mix=2.0, random_state=3)


@pytest.fixture(scope="module")
def alike():
    return datasets.make_sites(4, 40, n_clusters=3, n_features=(5, 4), shift=0, scale=0, random_state=3)


def quick(**params):
    return EFKMVC(3, n_init=3, max_rounds=5, random_state=0, **params)


def mean(records, kind, measure):
    return np.mean([r[measure] for r in records if r["model"] == kind and r["site"] != "(all)"])


def test_personal_models_beat_the_others_where_sites_are_moved(shifted):
    model = FedHKPerson(3, n_init=5, scaling="standard", random_state=0)  # objectives compare in the same units
    records = fedhk.evaluate(model, shifted.sites, shifted.site_labels)
    assert {(r["site"], r["model"]) for r in records if r["site"] != "(all)"} == {
        (site, kind) for site in shifted.sites for kind in KINDS
    }
    pooled = {r["model"]: r["ari"] for r in records if r["site"] == "(all)"}
    assert pooled["personal"] > max(pooled["global"], pooled["alone"])
    assert mean(records, "personal", "objective") < mean(records, "global", "objective")


def test_personal_models_beat_the_others_where_sites_have_other_clusters():
    """Sites that measure alike and differ by which clusters they have: their own sizes decide between clusters."""
    gains, alone = [], []
    for seed in (0, 1):
        data = datasets.make_sites(
            6, 100, n_clusters=3, shift=0, scale=0, class_mix=1.0, separation=3.5, random_state=seed
        )
        records = fedhk.evaluate(FedHKPerson(3, n_init=5, random_state=0), data.sites, data.site_labels)
        gains.append([mean(records, "personal", name) - mean(records, "global", name) for name in ("objective", "ari")])
        alone.append(mean(records, "personal", "ari") - mean(records, "alone", "ari"))
    assert np.all(np.array(gains)[:, 0] < 0)
    assert np.all(np.array(gains)[:, 1] > 0)
    assert np.mean(alone) > 0


def test_needs_no_labels(alike):
    records = fedhk.evaluate(quick(), alike.sites)
    assert all("ari" not in record for record in records)
    assert {r["site"] for r in records} == set(alike.sites)


def test_held_out_rows_are_not_fitted(alike, monkeypatch):
    """The estimator sees what is left of each site when a fifth is held out, and nothing else."""
    seen = {}
    real = EFKMVC.fit

    def spy(self, X, *rest, **options):
        seen.update({site: len(tables["view_0"]) for site, tables in X.items()})
        return real(self, X, *rest, **options)

    monkeypatch.setattr(EFKMVC, "fit", spy)
    records = fedhk.evaluate(quick(), alike.sites, holdout=0.25)
    for site, views in alike.sites.items():
        held = next(r["rows"] for r in records if r["site"] == site)
        assert held == round(0.25 * len(views[0]))
        assert seen[site] == len(views[0]) - held


def test_a_checkpoint_is_left_alone(alike, tmp_path):
    model = quick(checkpoint=tmp_path / "run").fit(alike.sites)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    fedhk.evaluate(model, alike.sites)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_sites_with_few_rows_no_rows_missing_views_and_cells(alike):
    sites = {name: list(views) for name, views in alike.sites.items()}
    first = next(iter(sites.values()))
    sites["few"] = [view[:2] for view in first]
    sites["none"] = [view[:0] for view in first]
    sites["one view"] = [first[0] + 0.1, None]
    sites["holes"] = [np.where(np.random.default_rng(0).random(view.shape) < 0.2, np.nan, view) for view in first]
    labels = {name: np.arange(len(views[0])) % 3 for name, views in sites.items()}
    records = fedhk.evaluate(FedHKPerson(3, n_init=3, max_rounds=5, random_state=0), sites, labels)
    by_site = {site: {r["model"]: r for r in records if r["site"] == site} for site in sites}
    assert set(by_site["few"]) == set(by_site["none"]) == {"global", "personal"}  # too few rows for a model alone
    assert set(by_site["one view"]) == set(by_site["holes"]) == KINDS
    assert by_site["few"]["global"]["rows"] == 2
    assert by_site["none"]["personal"]["rows"] == 0
    assert np.isnan(by_site["none"]["personal"]["objective"])
    assert np.isnan(by_site["none"]["personal"]["ari"])
    assert all(np.isfinite(r["objective"]) for site in sites if site != "none" for r in by_site[site].values())
    means = {found["model"]: found for found in site_means(records)}
    assert means["alone"]["sites"] == len(sites) - 2
    assert np.isfinite([means[kind]["objective"] for kind in KINDS]).all()


def test_one_cluster(alike):
    model = EFKMVC(1, n_init=1, max_rounds=3, random_state=0)
    records = fedhk.evaluate(model, alike.sites, alike.site_labels)
    assert all(np.isnan(r["silhouette"]) for r in records if r["site"] != "(all)")
    assert all(r["ari"] == 0 for r in records if r["site"] == "(all)")


def test_sites_without_classes_are_measured_without(alike):
    names = sorted(alike.sites)
    labels = {names[0]: alike.site_labels[names[0]], names[1]: None}
    records = fedhk.evaluate(quick(), alike.sites, labels)
    assert {r["site"] for r in records if "ari" in r} == {names[0], "(all)"}
    pooled = next(r for r in records if r["site"] == "(all)" and r["model"] == "global")
    own = next(r for r in records if r["site"] == names[0] and r["model"] == "global")
    assert (pooled["rows"], pooled["ari"]) == (own["rows"], own["ari"])


@pytest.mark.parametrize("model", [quick(), FedHKTucker(3, rank=2, n_init=3, max_rounds=3, random_state=0)])
def test_means_are_of_sites_and_not_of_rows(alike, model):
    records = fedhk.evaluate(model, alike.sites, alike.site_labels)
    for found in site_means(records):
        assert found["objective"] == pytest.approx(mean(records, found["model"], "objective"))
        pooled = next(r for r in records if r["site"] == "(all)" and r["model"] == found["model"])
        assert (found["pooled_ari"], found["sites"]) == (pooled["ari"], 4)


def test_a_model_of_one_site_is_compared_with_nothing(alike):
    model = HeatKernelMVC(3, n_init=3, random_state=0)
    records = fedhk.evaluate(model, {"rome": alike.views}, {"rome": alike.labels})
    assert [(r["site"], r["model"]) for r in records] == [("rome", "alone"), ("(all)", "alone")]
    assert records[0]["rows"] == 32
    with pytest.raises(ValueError, match=r"HeatKernelMVC clusters one site, but there are 4: \['site-00'"):
        fedhk.evaluate(model, alike.sites)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"holdout": 1.0}, r"holdout=1\.0 must be between 0 and 1"),
        ({"holdout": 0}, "holdout=0 must be"),
        ({"holdout": "half"}, "holdout='half'"),
        ({"labels": {}}, r"none of the sites \['site-00'"),
        ({"labels": {"paris": [0, 1]}}, r"\['paris'\] that are not there; sites are \['site-00'"),
        ({"labels": {"site-00": [0, 1, 2]}}, r"labels\['site-00'\] has shape \(3,\); the site has \d+ rows"),
    ],
)
def test_names_what_is_wrong(alike, options, message):
    with pytest.raises(ValueError, match=message):
        fedhk.evaluate(quick(), alike.sites, **options)
