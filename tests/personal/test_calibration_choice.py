"""What tells sites that measure differently from sites that have other clusters."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedhk import FedHKPerson, datasets
from fedhk.personal.calibration_choice import MOST_TOLD, _told

QUICK = {"n_init": 5, "random_state": 0}


def agreement(model, data):
    sites = list(data.sites)
    truth, found = (np.concatenate([part[site] for site in sites]) for part in (data.site_labels, model.labels_))
    return adjusted_rand_score(truth, found)


@pytest.mark.parametrize("seed", [5, 7])
def test_sites_that_differ_by_offset_scale_and_clusters_are_understood(seed):
    """Their clusters would be sites, and their means say as much about their clusters as about their offset."""
    data = datasets.make_sites(5, 600, n_clusters=4, shift=1.0, scale=0.3, class_mix=1.0, random_state=seed)
    model = FedHKPerson(4, **QUICK | {"random_state": seed}).fit(data.sites)
    assert agreement(model, data) > 0.95
    assert model.calibration_[0] == 0  # a site's own mean is not its offset here


def test_sites_that_differ_by_their_clusters_alone_keep_their_means():
    data = datasets.make_sites(5, 400, n_clusters=4, class_mix=0.5, random_state=0)
    model = FedHKPerson(4, **QUICK).fit(data.sites)
    assert model.calibration_[:2] == [0.0, 0.0]
    assert agreement(model, data) > 0.95


def test_sites_that_differ_by_offset_alone_lose_it():
    data = datasets.make_sites(5, 400, n_clusters=4, shift=1.5, random_state=0)
    assert agreement(FedHKPerson(4, **QUICK).fit(data.sites), data) > 0.95


def test_clusters_that_are_sites_tell_all_that_clusters_can_tell_whatever_their_sizes():
    site = np.repeat([0, 1, 2], [90, 5, 5])
    weight = np.ones(len(site))
    assert _told(site, site, weight, 3, 4) == pytest.approx(1.0)
    assert _told(site, np.zeros_like(site), weight, 3, 4) == 0.0
    assert _told(site, (np.arange(len(site)) % 5 == 0).astype(int), weight, 3, 2) < MOST_TOLD
