"""Two models on the same rows: counts over sites, matched clusters, agreement."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, confusion_matrix

import fedhk
from after.hospitals import make_federation, pool
from fedhk import plot
from fedhk.after.comparison import adjusted_rand_index
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy
from sealed_runs import seeded_noise


@pytest.fixture(scope="module")
def pair():
    model, sites, _ = make_federation()
    views = {site: {"lab": tables["lab"]} for site, tables in sites.items()}
    return model, fedhk.EFKMVC(4, scaling="standard", random_state=1).fit(views), sites


def test_counts_and_agreement_are_those_of_scikit_learn(pair):
    model, other, sites = pair
    found = fedhk.compare(model, other, sites)
    mine, theirs = (np.concatenate([m.labels_[site] for site in sorted(sites)]) for m in (model, other))
    table = confusion_matrix(mine, theirs)[:3]
    assert_allclose(found.counts, table)
    assert_allclose(found.adjusted_rand, adjusted_rand_score(mine, theirs))
    assert_allclose(found.adjusted_information, adjusted_mutual_info_score(mine, theirs))
    assert len(found.matched) == 3
    assert_allclose(found.stayed, sum(table[a, b] for a, b in found.matched.items()) / table.sum())
    for a, b in found.matched.items():
        assert_allclose(found.jaccard[a], np.sum((mine == a) & (theirs == b)) / np.sum((mine == a) | (theirs == b)))


def test_sites_masks_and_pooled_rows_give_the_same_counts(pair):
    model, other, sites = pair
    found = fedhk.compare(model, other, sites)
    assert_allclose(fedhk.compare(model, other, pool(sites)).counts, found.counts)
    assert_allclose(fedhk.compare(model, other, sites, secure=True).counts, found.counts)
    assert_allclose(fedhk.compare(other, model, sites).counts, found.counts.T)


def test_a_model_agrees_with_itself(pair):
    model, _, sites = pair
    found = fedhk.compare(model, model, sites)
    assert found.matched == {0: 0, 1: 1, 2: 2}
    assert found.stayed == found.adjusted_rand == 1.0


def test_with_noise_counts_are_near(pair, monkeypatch):
    seeded_noise(monkeypatch)
    model, other, sites = pair
    found = fedhk.compare(model, other, sites, privacy=DifferentialPrivacy(4.0, 1e-4, bounds=(0, 1)))
    plain = fedhk.compare(model, other, sites)
    assert 0 < np.abs(found.counts - plain.counts).max() < 5 * found.noise
    assert found.matched == plain.matched


def test_small_counts_are_not_shown(pair):
    model, other, sites = pair
    found = fedhk.compare(model, other, sites, least_rows=90)
    small = (found.counts > 0) & (found.counts < 90)
    assert small.any()
    assert found.frame()["rows"].isna().sum() == small.sum()
    assert str(found).count("< 90") == small.sum()


def test_the_flow_of_rows_is_drawn(pair, tmp_path):
    model, other, sites = pair
    drawn = plot.comparison(model, sites, other=other)
    assert "cluster 0 to other" in drawn.svg
    assert drawn.save(tmp_path / "flow.pdf").stat().st_size > 1000
    with pytest.raises(ValueError, match="give sites= and other="):
        plot.comparison(model, sites)


def test_an_index_of_trivial_partitions():
    assert adjusted_rand_index(np.array([[5.0]])) == 1.0
    assert adjusted_rand_index(np.zeros((2, 2))) == 1.0


def test_sites_without_the_views_of_the_other_model_are_named():
    model, sites, _ = make_federation()
    other = fedhk.EFKMVC(2, random_state=0).fit({site: {"image": views["lab"]} for site, views in sites.items()})
    with pytest.raises(DataError, match=r"Site 'athens' has none of the views of the model, which knows \['image'\]"):
        fedhk.compare(model, other, sites)


def test_notes_on_noise_speak_of_tests_only_where_there_are_some():
    model, sites, _ = make_federation()
    budget = DifferentialPrivacy(4.0, 1e-5, bounds=(0, 1))
    found = fedhk.compare(model, model, sites, privacy=budget)
    assert found.table().notes[-1].startswith("With noise of standard deviation")
    assert "tests" not in found.table().notes[-1]
