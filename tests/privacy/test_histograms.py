"""Quantiles of lengths, from counts with noise."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.privacy.histograms import find_mean_square, find_middle, find_quantile

LENGTHS = 2.0 ** np.arange(-4.0, 5.0, 0.5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_quantile_is_found_within_a_range(share):
    sample = np.exp(np.random.default_rng(0).normal(0.3, 0.5, 4000))
    counts = np.bincount(np.searchsorted(LENGTHS, sample), minlength=len(LENGTHS) + 1).astype(float)
    assert find_quantile(counts, 0.0, LENGTHS, share, len(counts)) == pytest.approx(
        np.quantile(sample, share), rel=0.06
    )


def test_counts_that_may_be_noise_do_not_count():
    counts = np.zeros(len(LENGTHS) + 1)
    counts[[5, 15]] = 100.0, 20.0
    assert find_quantile(counts, 1.0, LENGTHS, 0.99, len(counts)) > 8  # a length far out is believed
    assert find_quantile(counts, 10.0, LENGTHS, 1.0, len(counts)) == LENGTHS[5]
    assert np.isnan(find_quantile(counts, 100.0, LENGTHS, 0.9, len(counts)))


def test_lengths_beyond_the_last_are_not_known():
    counts = np.zeros(len(LENGTHS) + 1)
    counts[-1] = 50.0
    assert np.isnan(find_quantile(counts, 0.0, LENGTHS, 0.9, len(counts)))


def test_a_mean_square_is_that_of_the_lengths_with_those_far_out_taken_for_the_longest():
    sample = np.exp(np.random.default_rng(0).normal(0.3, 0.5, 4000))
    counts = np.bincount(np.searchsorted(LENGTHS, sample), minlength=len(LENGTHS) + 1).astype(float)
    for most in (1.5, 3.0, 8.0):
        expected = np.mean(np.minimum(sample, most) ** 2)
        assert find_mean_square(counts, 0.0, LENGTHS, most, len(counts)) == pytest.approx(expected, rel=0.06)
    assert find_mean_square(counts, 1e4, LENGTHS, 3.0, len(counts)) == 0.0


def test_the_middle_of_lengths_is_found_with_noise_that_hides_each_count_by_itself():
    sample, rng = np.exp(np.random.default_rng(0).normal(0.3, 0.5, 800)), np.random.default_rng(1)
    counts = np.bincount(np.searchsorted(LENGTHS, sample), minlength=len(LENGTHS) + 1).astype(float)
    assert find_middle(counts, 0.0, LENGTHS) == pytest.approx(np.median(sample), rel=0.06)
    hidden, middles = 0, []
    for _ in range(50):
        noisy = counts + rng.normal(0.0, 60.0, len(counts))
        hidden += np.isnan(find_quantile(noisy, 60.0, LENGTHS, 0.5, len(counts)))
        middles.append(find_middle(noisy, 60.0, LENGTHS))
    assert hidden > 5
    assert np.isnan(middles).sum() < hidden / 5
    assert np.nanmax(np.abs(np.log2(middles) - np.log2(np.median(sample)))) < 1.0


def test_noise_alone_has_no_middle():
    rng = np.random.default_rng(0)
    found = [find_middle(rng.normal(0.0, 10.0, len(LENGTHS) + 1), 10.0, LENGTHS) for _ in range(300)]
    assert np.isnan(found).mean() > 0.98
    assert np.isnan(find_middle(np.zeros(len(LENGTHS) + 1), 1.0, LENGTHS))


def test_a_middle_beyond_the_last_length_is_not_known():
    counts = np.zeros(len(LENGTHS) + 1)
    counts[-1] = 50.0
    assert np.isnan(find_middle(counts, 0.0, LENGTHS))
    counts[0] = 60.0
    assert find_middle(counts, 0.0, LENGTHS) == LENGTHS[0]
