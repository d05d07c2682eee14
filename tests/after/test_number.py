"""How many clusters: those that halves of the rows find alike, and one where there are none."""

from __future__ import annotations

import numpy as np
import pytest

import fedhk
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy


def make(n_clusters, **options):
    return make_sites(
        3, 100, n_clusters=n_clusters, n_features=(6, 6), separation=8, shift=0.2, random_state=1, **options
    ).sites


@pytest.mark.parametrize("n_clusters", [2, 4])
def test_the_number_of_made_clusters_is_found(n_clusters):
    sites = make(n_clusters)
    found = fedhk.how_many(fedhk.EFKMVC(scaling="standard", n_init=5, random_state=0), sites, numbers=range(2, 6))
    assert found.n_clusters == n_clusters
    assert found.is_clear
    assert found.model.n_clusters_ == n_clusters
    assert [one.n_clusters for one in found.tried] == [2, 3, 4, 5]
    assert f"{n_clusters} is the largest number" in str(found)
    assert found.frame()["weakest"].between(0, 1).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_noise_has_one_cluster():
    rng = np.random.default_rng(0)
    sites = {site: [rng.normal(size=(120, 5)), rng.normal(size=(120, 5))] for site in "abc"}
    found = fedhk.how_many(fedhk.EFKMVC(scaling="standard", n_init=3, random_state=0), sites, numbers=[2, 4])
    assert (found.n_clusters, found.is_clear, found.model) == (1, False, None)
    assert "No number of clusters" in found.reason


def test_masks_give_the_same_number():
    sites = make(3)
    model = fedhk.EFKMVC(scaling="standard", n_init=3, secure=True, random_state=0)
    assert fedhk.how_many(model, sites, numbers=[2, 3], n_resamples=4).n_clusters == 3
    assert model.n_clusters == 8  # it is not changed


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], "at least one"), ([1, 2], "from 2 on"), ([2.5], "whole numbers"), ([2, 400], "need 800 rows")],
)
def test_numbers_that_make_no_sense_are_refused(numbers, text):
    with pytest.raises(ValueError, match=text):
        fedhk.how_many(fedhk.EFKMVC(), make(2), numbers=numbers)


def test_a_budget_would_be_spent_again_and_again():
    model = fedhk.EFKMVC(privacy=DifferentialPrivacy(1.0, 1e-5, bounds=(0, 1)))
    with pytest.raises(ValueError, match="privacy does not go with how_many"):
        fedhk.how_many(model, make(2), numbers=[2])
