"""Ranges of features from counts of rows, with noise and without; units from ranges."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC
from fedhk.federation.phases.scales import LEAST_POWER, POWERS, find_bounds
from fedhk.privacy import DifferentialPrivacy


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


@pytest.mark.parametrize("width", [6, 12])
def test_with_noise_a_category_that_says_nothing_does_not_decide(width):
    """A level fills its range and numbers do not: by ranges alone, rows were clustered by sex."""
    rng = np.random.default_rng(7)
    labels, sex = rng.integers(3, size=900), rng.choice(["f", "m"], size=900)
    numbers = np.array([[0, 0, 0, 0], [4, 0, 4, 0], [0, 4, 4, 0]])[labels] + rng.normal(size=(900, 4))
    middle, half = numbers.mean(axis=0), width / 2 * numbers.std(axis=0)
    rows = pl.DataFrame(numbers, schema=["age", "sodium", "crp", "rate"])
    rows = rows.with_columns(pl.Series("sex", sex, dtype=pl.Enum(["f", "m"])))
    bounds = [(np.append(middle - half, [0, 0]), np.append(middle + half, [1, 1]))]
    budget = DifferentialPrivacy(6.0, 1e-5, bounds)
    sites = {f"site-{i}": {"lab": rows[i::3]} for i in range(3)}
    model = EFKMVC(3, privacy=budget, secure=True, random_state=0).fit(sites)
    for i, site in enumerate(sites):
        assert adjusted_rand_score(labels[i::3], model.labels_[site]) > 0.8
