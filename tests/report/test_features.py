"""The features that characterise clusters."""

from __future__ import annotations

import re

import numpy as np

import fedhk
from fedhk.report.features import choose_features
from fedhk.report.page import render
from fedhk.report.rows import read_fitted
from report.pages import Page


def test_the_top_feature_is_the_one_that_stands_out_in_input_units():
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, (300, 6)) * [1, 10, 100, 1000, 1, 1] + 5
    rows[:100, 3] += 20_000  # 20 spreads of noise: nothing else tells these rows
    model = fedhk.HeatKernelMVC(2, random_state=0).fit([rows])
    facts = read_fitted(model, [rows])
    cluster = int(model.labels_[0])
    assert choose_features(facts).chosen[cluster, 0][0] == 3
    card = Page(re.search(rf'<details class="card" data-k="{cluster}".*?</details>', render(facts), re.DOTALL)[0])
    assert "view_0[3]" in card.words.split("spreads")[1]
    assert f"{rows[model.labels_ == cluster, 3].mean():,.0f}"[:2] in card.words
    np.testing.assert_allclose(facts.views[0].mean, rows.mean(axis=0))
    np.testing.assert_allclose(facts.views[0].spread, rows.std(axis=0))


def test_a_bar_is_the_share_of_all_rows():
    rows = np.r_[np.zeros(70), np.full(30, 9.0)][:, None] + np.random.default_rng(0).normal(0, 0.1, (100, 1))
    model = fedhk.HeatKernelMVC(2, random_state=0).fit([rows])
    shown = render(read_fitted(model, [rows]))
    widths = [float(width) for width in re.findall(r'class="meter"><b style="width:([\d.]+)%', shown)]
    assert sorted(widths) == [30, 70]
