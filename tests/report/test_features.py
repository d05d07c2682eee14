"""The features that characterise clusters."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

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


@pytest.mark.parametrize("as_day", [pd.Series, lambda days: days.dt.date.astype(object)])
def test_dates_are_shown_as_dates(as_day):
    group = np.arange(60) % 2
    born = pd.Series(pd.to_datetime(np.where(group, "1950-05-01", "1980-05-01")) + pd.to_timedelta(np.arange(60), "D"))
    frame = pd.DataFrame(
        {
            "site": ["oslo", "rome"] * 15 + ["rome", "oslo"] * 15,
            "born": as_day(born),
            "age": 30 + group + np.arange(60) / 100,
        }
    )
    sites = fedhk.from_frame(frame, site="site", views={"record": ["born"], "other": ["age"]})
    model = fedhk.EFKMVC(2, random_state=0).fit(sites)
    facts = read_fitted(model, sites)
    assert [view.dates for view in facts.views] == [("born",), ()]
    page = render(facts)
    centres_and_mean = set(re.findall(r"\b(\d{4}-\d\d)-\d\d\b", Page(page).words))
    assert centres_and_mean == {"1950-05", "1980-05", "1965-05"}
    assert page.count('data-date=""') == 2


def test_a_bar_is_the_share_of_all_rows():
    rows = np.r_[np.zeros(70), np.full(30, 9.0)][:, None] + np.random.default_rng(0).normal(0, 0.1, (100, 1))
    model = fedhk.HeatKernelMVC(2, random_state=0).fit([rows])
    shown = render(read_fitted(model, [rows]))
    widths = [float(width) for width in re.findall(r'class="meter"><b style="width:([\d.]+)%', shown)]
    assert sorted(widths) == [30, 70]
