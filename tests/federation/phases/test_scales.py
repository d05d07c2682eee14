"""Ranges of features from counts of rows, with noise and without."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedhk.federation.phases.scales import LEAST_POWER, POWERS, find_bounds


@pytest.mark.parametrize("n_sites", [1, 4])
def test_noise_does_not_widen_ranges(n_sites):
    """Nearly three thousand bins of noise, in which the largest of all is no value that any row has."""
    width = 20
    rng = np.random.default_rng(0)
    for _ in range(20):
        noise = rng.normal(size=(width, 2 * POWERS)) * 10.0 * np.sqrt(n_sites)
        counts = np.zeros((width, 2 * POWERS))
        counts[:, POWERS - LEAST_POWER + 2] = 300  # all values between 2 and 4
        found = find_bounds(counts + noise, 10.0 * np.sqrt(n_sites))
        assert_allclose(found.low, 2.0)
        assert_allclose(found.high, 4.0)


def test_a_feature_of_zeros_and_few_ones_keeps_its_ones_in_sight():
    """Under noise the ones may be too few to be seen; a range of next to nothing would put them out of reach."""
    counts = np.zeros((1, 2 * POWERS))
    counts[0, POWERS], counts[0, POWERS - LEAST_POWER] = 1000, 20
    noisy, exact = (find_bounds(counts, noise) for noise in (10.0, 0.0))
    assert (noisy.low[0], noisy.high[0]) == (-1.0, 1.0)
    assert (exact.low[0], exact.high[0]) == (0.0, 1.0)
