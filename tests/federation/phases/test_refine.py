"""Sites tell their offset from which clusters they have."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedhk import FedHKDiffusion, HeatKernelMVC
from fedhk.data.views import check_views
from fedhk.datasets import make_sites
from fedhk.errors import MessageError
from fedhk.model.rows import Rows, joint_rows
from fedhk.personal.calibration import ClusterEffects, FirstClusters


def mixed_sites(shift=1.0, seed=0):
    return make_sites(
        6,
        100,
        n_clusters=3,
        n_features=(6, 8),
        class_mix=0.5,
        shift=shift,
        scale=0.0,
        separation=5.0,
        random_state=seed,
    )


def test_an_offset_is_told_from_the_mix_of_clusters():
    """A site with the rows of one cluster is moved by its offset alone, not by where this cluster is."""
    data = mixed_sites(0.0)
    pooled = [np.vstack([views[view] for views in data.sites.values()]) for view in range(2)]
    labels = np.concatenate(list(data.site_labels.values()))
    references = HeatKernelMVC(3, scaling="standard", random_state=0).fit(pooled)._model.references
    points = joint_rows(Rows(check_views(pooled), references)).astype(float)
    means = np.stack([points[labels == cluster].mean(axis=0) for cluster in range(3)])
    spread = np.sqrt(np.mean(np.square(points - means[labels]), axis=0))
    clusters = FirstClusters(0.0, 0.0, (), means)
    effects = ClusterEffects(clusters, means, spread)
    some = labels == 1
    offset, ratio = effects.measure_frame(Rows(check_views([view[some] for view in pooled]), references))
    assert np.abs(offset).max() < 0.2 * np.abs(means[1]).max()
    assert_allclose(np.median(ratio), 1.0, atol=0.2)
    with pytest.raises(MessageError, match="cannot have"):
        ClusterEffects(clusters, means[:, :3], spread).measure_frame(Rows(check_views(pooled), references))


def test_sites_with_offsets_and_a_mix_of_clusters_gain():
    gains = []
    for seed in range(3):
        data = mixed_sites(1.0, seed)
        truth = np.concatenate(list(data.site_labels.values()))
        scores = []
        for calibration in ("auto", (1.0, 0.5)):
            model = FedHKDiffusion(3, calibration=calibration, random_state=0).fit(data.sites)
            scores.append(adjusted_rand_score(truth, np.concatenate([model.labels_[site] for site in data.sites])))
        gains.append(scores[0] - scores[1])
    assert np.mean(gains) > 0.05
    assert min(gains) > -0.02
