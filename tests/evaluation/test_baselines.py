"""What one would use instead of FedHK."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedhk.datasets import make_sites
from fedhk.evaluation.baselines import balance, balanced_kmeans, federated_fcm, k_fed, spectral, standardise


@pytest.fixture(scope="module")
def clear():
    data = make_sites(4, 60, n_clusters=3, n_features=(5, 4), separation=9, random_state=0)
    joint = {site: np.hstack(views) for site, views in data.sites.items()}
    return joint, data.site_labels


def test_views_count_alike_and_gaps_are_at_the_mean():
    rng = np.random.default_rng(0)
    wide, narrow = 100 + 5 * rng.normal(size=(200, 20)), rng.normal(size=(200, 2))
    wide[::7, 3] = np.nan
    rows = balance([wide, narrow])
    np.testing.assert_allclose(rows[::7, 3], 0)
    np.testing.assert_allclose([np.square(rows[:, :20]).sum(), np.square(rows[:, 20:]).sum()], 200, rtol=0.01)
    np.testing.assert_array_equal(np.isnan(standardise(wide)), np.isnan(wide))
    assert not standardise(np.full((3, 1), 7.0)).any()


@pytest.mark.parametrize("method", [k_fed, federated_fcm])
def test_federated_ones_find_clear_clusters(clear, method):
    joint, truth = clear
    found = method(joint, 3, 0)
    true, labels = (np.concatenate([part[site] for site in truth]) for part in (truth, found.labels))
    assert adjusted_rand_score(true, labels) > 0.9
    assert found.rounds >= 1
    assert found.bytes_a_site > 0


@pytest.mark.parametrize("method", [balanced_kmeans, spectral])
def test_pooled_ones_find_clear_clusters(clear, method):
    joint, truth = clear
    labels = method(np.concatenate(list(joint.values())), 3, 0)
    assert adjusted_rand_score(np.concatenate(list(truth.values())), labels) > 0.9


def test_a_site_with_fewer_rows_than_clusters():
    rng = np.random.default_rng(0)
    found = k_fed({"large": rng.normal(size=(30, 2)), "small": rng.normal(size=(2, 2))}, 4, 0)
    assert len(found.labels["small"]) == 2
