"""What a run can be expected to find grows with rows and epsilon, and falls with what hides it."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from fedhk import EFKMVC
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.expectation import MOST_HIDDEN, NOISE_SCALE, NoisySetting, expect_share

SETTING = NoisySetting(DifferentialPrivacy(1.0, 1e-6, (-1, 1)), rows=2000.0, width=20, n_clusters=5, releases=1.0)


def test_noise_is_that_of_a_start_over_what_is_to_be_found_there():
    in_directions, in_counts = (
        SETTING.privacy.multiplier(name) * np.sqrt(2) / 2000 for name in ("directions", "cells")
    )
    assert SETTING.measure_noise() == pytest.approx((in_directions * np.sqrt(40) * 4, in_counts * 4 * 5, 0.0))


def test_the_share_falls_with_the_geometric_mean_of_the_noises():
    noise = np.sqrt(np.prod(SETTING.measure_noise()[:2])) / NOISE_SCALE
    assert expect_share(replace(SETTING, rows=SETTING.rows * noise)) == pytest.approx(np.exp(-1))


def test_noise_in_a_centre_grows_with_features_and_clusters_and_falls_with_rows():
    noise = SETTING.privacy.multiplier("noisy round") * np.sqrt(2) / 2000 * np.sqrt(20) * 5
    assert SETTING.measure_center_noise() == pytest.approx(noise)


def test_clusters_are_hidden_where_noise_in_a_round_is_surely_larger_than_they_are():
    noise = SETTING.privacy.multiplier("noisy round", finds_start=False) * np.sqrt(2) / MOST_HIDDEN
    for rows, hidden in ((5.01 * noise, False), (4.99 * noise, True)):
        assert replace(SETTING, rows=rows).hides_clusters is hidden


def test_where_nobody_gave_bounds_so_few_rows_that_lengths_are_hidden_find_little():
    few = NoisySetting(DifferentialPrivacy(1.0, 1e-3, "private"), rows=80.0, width=5, n_clusters=2, releases=2.0)
    assert few.measure_noise()[2] > 1
    assert expect_share(few) < 0.5


@pytest.mark.parametrize(
    "worse",
    [{"rows": 500.0}, {"width": 80}, {"n_clusters": 12}, {"releases": 10.0}, {"weight": 7.0}, {"epsilon": 0.5}],
    ids=str,
)
def test_more_noise_leaves_less(worse):
    privacy = replace(SETTING.privacy, epsilon=worse.pop("epsilon", 1.0))
    assert 0 < expect_share(replace(SETTING, privacy=privacy, **worse)) < expect_share(SETTING) < 1


def test_a_run_says_what_it_expects_before_it_asks_a_site(caplog, monkeypatch):
    sites = make_sites(4, 300, n_clusters=3, random_state=0).sites
    monkeypatch.setattr("fedhk.estimators.efkmvc.conduct", None)  # nothing is asked
    model = EFKMVC(3, privacy=DifferentialPrivacy(20.0, 1e-5, (-20, 20)))
    with caplog.at_level(logging.INFO, "fedhk"), pytest.raises(TypeError):
        model.fit(sites)
    assert "this run can be expected to find about 100%" in caplog.text
    model = EFKMVC(3, privacy=DifferentialPrivacy(0.1, 1e-5, (-20, 20)))
    said = r"1200 rows and 3 clusters this run can be expected to find about \d\d% .* will mean little. .* secure=True"
    with pytest.warns(UserWarning, match=said), pytest.raises(TypeError):
        model.fit(sites)
