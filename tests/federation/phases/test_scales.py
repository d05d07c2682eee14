"""Ranges of features from counts of rows, with noise and without; units from ranges."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC
from fedhk.federation.phases.scales import LEAST_POWER, POWERS, find_bounds, find_squares
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


def make_patients(n_rows=1500, seed=0):
    """Clusters in six columns alike, one of which fills nearly all of its range, the others little of theirs."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n_rows)
    rows = 2.5 * rng.normal(size=(3, 6))[labels] + rng.normal(size=(n_rows, 6))
    half = np.array([1.0, 4.0, 4.0, 4.0, 6.0, 6.0]) * np.abs(rows).max(axis=0)
    return labels, {f"site-{i}": {"lab": rows[i::3]} for i in range(3)}, [(-half, half)]


def score(model, labels):
    found = np.concatenate([model.labels_[f"site-{i}"] for i in range(3)])
    return adjusted_rand_score(np.concatenate([labels[i::3] for i in range(3)]), found)


@pytest.mark.parametrize("epsilon", [4.0, 1e5])
def test_with_noise_columns_count_as_they_do_without_it_whatever_their_bounds_are(epsilon):
    labels, sites, bounds = make_patients()
    plain = EFKMVC(3, scaling="standard", random_state=0).fit(sites)
    budget = DifferentialPrivacy(epsilon, 1e-5, bounds)
    private = EFKMVC(3, privacy=budget, secure=True, random_state=0).fit(sites)
    assert score(private, labels) > score(plain, labels) - 0.03


def test_squares_that_noise_may_explain_are_taken_for_their_mean():
    squares = np.array([0.01, 0.05, 0.2, 0.6])
    assert_allclose(find_squares(squares, 1e-9), squares, rtol=1e-6)
    assert_allclose(find_squares(squares, 0.2), squares.mean())  # their mean has half of that noise
    assert find_squares(squares, 1.0) is None
    drawn = 0.2 + 0.02 * np.random.default_rng(0).normal(size=50)
    assert np.ptp(find_squares(drawn, 0.02)) < 0.25 * np.ptp(drawn)
    assert find_squares(np.array([0.0, 0.4, 0.5]), 0.01)[0] == pytest.approx(0.02)  # never less than its noise


def test_columns_whose_spread_noise_will_hide_are_named_before_the_run():
    _, sites, bounds = make_patients(120)
    found = []
    for epsilon in (0.5, 1e5):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            EFKMVC(3, privacy=DifferentialPrivacy(epsilon, 1e-5, bounds), secure=True, random_state=0).fit(sites)
        found.append([str(one.message) for one in caught if "fill little" in str(one.message)])
    assert len(found[0]) == 1
    assert "lab/column 4, lab/column 5" in found[0][0]
    assert "column 0" not in found[0][0]
    assert not found[1]
