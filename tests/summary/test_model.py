"""What an estimator shows of itself."""

from __future__ import annotations

import sys

import pytest

import fedhk
from fedhk.datasets import make_sites
from fedhk.summary.model import model_html


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
