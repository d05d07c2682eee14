"""What an estimator shows of itself."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fedhk
from fedhk.data.levels import Encoded
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy
from fedhk.summary.model import model_html, read_model
from sealed_runs import seeded_noise


@pytest.fixture(scope="module")
def model():
    return fedhk.FedHKPerson(3, random_state=0).fit(make_sites(3, 60, n_clusters=3, shift=1.5, random_state=0).sites)


def test_an_estimator_says_what_it_found(model):
    text = model_html(model)
    assert "3 clusters among" in text
    assert "<svg" in text


def test_without_matplotlib_it_says_so_much_without_a_drawing(model, monkeypatch):
    drawn = model_html(model)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = model_html(model)
    assert "3 clusters among" in text
    assert "<svg" not in text
    assert text.split('<div class="figures">')[0] == drawn.split('<div class="figures">')[0]


def test_levels_of_a_category_are_shares_also_where_noise_moved_the_centres(monkeypatch):
    seeded_noise(monkeypatch)  # one noise in six hides how rows differ, and leaves one cluster
    rng = np.random.default_rng(0)
    sites = {}
    for site in "abc":
        women, age = rng.random(60) < 0.8, rng.normal(60, 10, 60)
        table = np.column_stack([women, ~women, age]).astype(np.float64)
        sites[site] = {"record": Encoded(table, ("sex = F", "sex = M", "age"))}
    privacy = DifferentialPrivacy(0.5, 1e-5, [([0, 0, 18], [1, 1, 110])])
    fitted = fedhk.EFKMVC(2, random_state=0, privacy=privacy).fit(sites)
    centers = fitted.cluster_centers_[0]
    (view,) = read_model(fitted).views
    assert abs(centers[:, :2].sum(axis=1) - 1).max() > 0.05
    np.testing.assert_allclose(view.centers[:, :2].sum(axis=1), 1.0)
    assert (view.centers[:, :2] >= 0).all()
    np.testing.assert_allclose(view.mean[:2].sum(), 1.0)
    np.testing.assert_array_equal(view.centers[:, 2], centers[:, 2])
    assert "rises and falls are noise" in model_html(fitted)
