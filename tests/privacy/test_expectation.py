"""What a run can be expected to find grows with rows and epsilon, and falls with what hides it."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from fedhk import EFKMVC
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.expectation import LUCK, MOST_HIDDEN, MOST_NOISE, STARTED, NoisySetting

SETTING = NoisySetting(DifferentialPrivacy(1.0, 1e-6, (-1, 1)), rows=2000.0, widths=(20,), n_clusters=5, releases=1.0)


def test_noise_is_that_in_the_counts_of_a_start_over_what_is_to_be_found_there():
    in_counts = SETTING.privacy.multiplier("cells") * np.sqrt(2) / 2000
    assert SETTING.measure_count_noise() == pytest.approx(in_counts * 4 * 5)
    assert SETTING.measure_length_noise() == 0.0  # bounds are given


def test_half_is_found_where_noise_is_at_the_half_and_luck_is_largest_there():
    wide = replace(SETTING, widths=(200,), n_clusters=12)
    noise = STARTED.scale_noise(wide.measure_count_noise() / (4 * 12), 12, 200.0)
    share, luck = replace(wide, rows=wide.rows * noise).expect_share()
    assert share == pytest.approx(0.5)
    assert luck == pytest.approx(LUCK / 2)
    assert 0 < replace(wide, rows=1e7).expect_share()[1] < 0.01


def test_views_of_few_features_are_easier_than_one_of_many():
    assert replace(SETTING, widths=(5, 5, 5, 5)).expect_share()[0] > SETTING.expect_share()[0]


def test_rounds_begin_all_over_the_unit_where_noise_hides_a_start_and_not_whole_clusters():
    at = SETTING.rows * SETTING.measure_count_noise() / MOST_NOISE
    assert not replace(SETTING, rows=1.01 * at).is_scattered
    scattered = replace(SETTING, rows=0.99 * at)
    assert scattered.is_scattered
    assert scattered.expect_share()[0] < replace(SETTING, rows=1.01 * at).expect_share()[0]
    assert not replace(SETTING, rows=0.05 * at).is_scattered  # clusters are hidden


def test_noise_in_a_centre_grows_with_features_and_clusters_and_falls_with_rows():
    noise = SETTING.privacy.multiplier("noisy round") * np.sqrt(2) / 2000 * np.sqrt(20) * 5
    assert SETTING.measure_center_noise() == pytest.approx(noise)


def test_clusters_are_hidden_where_noise_in_a_round_is_surely_larger_than_they_are():
    noise = SETTING.privacy.multiplier("noisy round", finds_start=False) * np.sqrt(2) / MOST_HIDDEN
    for rows, hidden in ((5.01 * noise, False), (4.99 * noise, True)):
        assert replace(SETTING, rows=rows).hides_clusters is hidden


def test_where_nobody_gave_bounds_so_few_rows_that_lengths_are_hidden_find_little():
    few = NoisySetting(DifferentialPrivacy(1.0, 1e-3, "private"), rows=80.0, widths=(5,), n_clusters=2, releases=2.0)
    assert few.measure_length_noise() > 1
    assert few.expect_share()[0] < 0.5


@pytest.mark.parametrize(
    "worse",
    [{"rows": 500.0}, {"widths": (80,)}, {"n_clusters": 12}, {"releases": 10.0}, {"weight": 7.0}, {"epsilon": 0.5}],
    ids=str,
)
def test_more_noise_leaves_less(worse):
    privacy = replace(SETTING.privacy, epsilon=worse.pop("epsilon", 1.0))
    worse = replace(SETTING, privacy=privacy, **worse)
    assert 0 < worse.expect_share()[0] < SETTING.expect_share()[0] < 1


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
