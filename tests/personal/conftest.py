"""The models that several tests of own models start from."""

from __future__ import annotations

import pytest

from fedhk import datasets
from fedhk.data.views import check_views
from fedhk.model.cluster_summary import summarise_clusters
from fedhk.model.rows import Rows
from personal_sites import fit_model, three_clusters


@pytest.fixture(scope="package")
def model():
    """The model of three clusters in two views."""
    return fit_model(three_clusters().views, 3)[0]


@pytest.fixture(scope="package")
def pool():
    """Rows of four clusters with their classes, the model of them with its labels, and its summary."""
    data = datasets.make_sites(1, 3000, n_clusters=4, n_features=(5, 4), shift=0, scale=0, class_mix=None,
                               random_state=0)  # fmt: skip
    model, labels = fit_model(data.views, 4)
    summary = summarise_clusters(Rows(check_views(data.views), model.references), model.parameters, labels)
    return data, model, labels, summary
