"""Noise has the distribution that the account is made for, and nobody can draw it a second time.

The draws are really random: no seed can be given. A test of their distribution may fail by chance once in 10,000 draws,
so a second draw is allowed; both fail by chance once in 10^8.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare, kstest

from fedhk.privacy import noise
from fedhk.privacy.accounting import delta_of, epsilon_of
from fedhk.privacy.noise import discrete_gaussian

DRAWS = 100_000
CHANCE = 1e-4


def passes(p_value_of_draws, sigma):
    return any(p_value_of_draws(discrete_gaussian(sigma, DRAWS)) > CHANCE for _ in range(2))


def probabilities(sigma):
    """Whole numbers and their exact probabilities, without those that 10^5 draws can hardly hold."""
    numbers = np.arange(-int(12 * sigma) - 2, int(12 * sigma) + 3)
    density = np.exp(-((numbers / sigma) ** 2) / 2)
    density /= density.sum()
    likely = density * DRAWS > 10
    return numbers[likely], density[likely]


@pytest.mark.parametrize("sigma", [0.5, 0.73, 1.0, 1.999, 2.0, 7.3, 40.0])
def test_frequencies_are_those_of_the_discrete_gaussian(sigma):
    numbers, density = probabilities(sigma)

    def p_value(draws):
        observed = np.array([(draws == number).sum() for number in numbers])
        observed = np.append(observed, DRAWS - observed.sum())
        expected = np.append(density, 1 - density.sum()) * DRAWS
        if expected[-1] < 5:  # too few beyond: they go with the outermost number
            observed, expected = (
                np.append(observed[:-2], observed[-2:].sum()),
                np.append(expected[:-2], expected[-2:].sum()),
            )
        return chisquare(observed, expected).pvalue

    assert passes(p_value, sigma)


@pytest.mark.parametrize("sigma", [1e4, 2.0**20 + 0.37, 2.0**40])
def test_large_noise_is_normal(sigma):
    assert passes(lambda draws: kstest(draws / sigma, "norm").pvalue, sigma)


@pytest.mark.parametrize("sigma", [1e4, 2.0**40])
def test_the_last_digits_of_large_noise_are_uniform(sigma):
    """Also far out: no grid point is left out by rounding."""

    def p_value(draws, width=16):
        far = draws[np.abs(draws) > 1.5 * sigma]
        return chisquare(np.bincount(far % width, minlength=width)).pvalue

    assert passes(p_value, sigma)


def test_neighbouring_draws_are_independent():
    def p_value(draws):
        signs = draws > 0
        return chisquare(np.bincount(2 * signs[0:-1:2] + signs[1::2], minlength=4)).pvalue

    assert passes(p_value, 1000.0)


@pytest.mark.parametrize("sigma", [64, 512])
@pytest.mark.parametrize("multiplier", [0.6, 3.7, 20])
def test_noise_on_a_fine_grid_is_as_private_as_the_account_says(sigma, multiplier):
    shift = max(1, round(sigma / multiplier))
    mu = shift / sigma
    numbers = np.arange(-40 * sigma, 40 * sigma + shift + 1)
    here, there = (np.exp(-((numbers - center) ** 2) / (2 * sigma**2)) for center in (0, shift))
    for delta in (1e-3, 1e-5, 1e-8):
        epsilon = epsilon_of(delta, mu)
        exact = np.maximum(here - np.exp(epsilon) * there, 0).sum() / here.sum()
        assert exact == pytest.approx(delta_of(epsilon, mu), rel=4 / sigma**2, abs=0)


def test_no_noise_is_zero_and_shapes_are_kept():
    assert_array_equal(discrete_gaussian(0, (2, 3)), np.zeros((2, 3), np.int64))
    assert discrete_gaussian(0, 4).dtype == discrete_gaussian(3.0, 4).dtype == np.int64
    assert discrete_gaussian(3.0, (4, 5, 6)).shape == (4, 5, 6)
    assert discrete_gaussian(3.0, 0).shape == (0,)
    assert discrete_gaussian(3.0, ()).shape == ()


def test_every_place_gets_noise_where_it_takes_several_rounds_of_candidates(monkeypatch):
    monkeypatch.setattr(noise, "MOST_CANDIDATES", 7)
    draws = discrete_gaussian(2.0**30, 500)
    assert len(np.unique(draws)) == 500


@pytest.mark.parametrize("sigma", [-1.0, 0.49, 2.0**41, np.nan, np.inf, "1"])
def test_a_sigma_outside_of_what_is_exact_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma must be"):
        discrete_gaussian(sigma, 1)


def test_two_calls_differ_and_numpys_seed_has_no_effect():
    state = np.random.get_state()  # noqa: NPY002
    try:
        drawn = []
        for _ in range(2):
            np.random.seed(0)  # noqa: NPY002
            drawn.append(discrete_gaussian(2.0**30, 100))
        after = np.random.random()  # noqa: NPY002
        np.random.seed(0)  # noqa: NPY002
        assert np.random.random() == after  # noqa: NPY002
    finally:
        np.random.set_state(state)  # noqa: NPY002
    assert not np.intersect1d(*drawn).size


FORKS = """
import os, sys
import numpy as np
from fedhk.privacy.noise import discrete_gaussian

np.random.seed(0)
discrete_gaussian(2.0**40, 10)
for _ in range(2):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        break
    os.waitpid(child, 0)
print(*discrete_gaussian(2.0**40, 50))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_processes_and_forked_processes_draw_different_numbers():
    lines = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)  # noqa: S603
        lines += done.stdout.splitlines()
    assert len(lines) == 6
    assert len({number for line in lines for number in line.split()}) == 6 * 50


def test_a_hundred_thousand_numbers_take_well_under_a_second():
    times = []
    for _ in range(3):
        start = time.perf_counter()
        discrete_gaussian(2.0**20, DRAWS)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5
