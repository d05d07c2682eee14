"""Quantiles of lengths, from counts with noise."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.privacy.histograms import find_mean_square, find_quantile

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
