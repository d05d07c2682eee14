"""What rows tell beyond the models."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

import fedhk
from fedhk.report.rows import read_fitted


@pytest.mark.parametrize("estimator", [fedhk.EFKMVC, fedhk.FedHKDiffusion, fedhk.FedHKPerson])
def test_separation_is_near_the_silhouette_whatever_space_clusters_were_found_in(estimator):
    for separation in (3.0, 9.0):
        data = fedhk.datasets.make_sites(3, 100, n_clusters=3, separation=separation, shift=0, scale=0, random_state=0)
        model = estimator(3, random_state=0).fit(data.sites)
        rows = np.vstack([np.hstack(views) for views in data.sites.values()])
        labels = np.concatenate([model.labels_[site] for site in data.sites])
        exact = silhouette_score((rows - rows.mean(axis=0)) / rows.std(axis=0), labels)
        facts = read_fitted(model, data.sites)
        found = np.mean([site.separation for site in facts.sites])
        assert exact - 0.02 < found < exact + 0.2
