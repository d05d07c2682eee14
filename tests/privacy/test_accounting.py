"""The account of Gaussian noise agrees with an independent one, and never says less than was spent."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from fedhk.privacy.accounting import delta_of, epsilon_of, mu_of, noise_multiplier, spent

DELTA = 1e-5
# epsilon: noise multiplier at delta=1e-5 for 1, 10, 20 and 50 releases
TABLE = {
    0.5: (7.03, 22.24, 31.45, 49.72),
    1.0: (3.73, 11.80, 16.68, 26.38),
    2.0: (1.99, 6.31, 8.92, 14.10),
    4.0: (1.08, 3.42, 4.84, 7.65),
    8.0: (0.60, 1.90, 2.68, 4.24),
}
RELEASES = (1, 10, 20, 50)
CELLS = [(epsilon, releases) for epsilon in TABLE for releases in RELEASES]

epsilons = st.floats(0.01, 50)
deltas = st.floats(-15, -0.5).map(lambda exponent: 10**exponent)
mus = st.floats(-3, 2).map(lambda exponent: 10**exponent)


@pytest.mark.parametrize(("epsilon", "releases"), CELLS)
def test_noise_multiplier_is_that_of_the_table(epsilon, releases):
    expected = TABLE[epsilon][RELEASES.index(releases)]
    assert noise_multiplier(epsilon, DELTA, releases) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("epsilon", "releases"), CELLS)
def test_noise_multiplier_is_what_the_accountant_of_privacy_losses_needs(epsilon, releases):
    """It says that the noise is enough, and that 1 % less is not."""
    dp_accounting = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld")

    def epsilon_with(multiplier):
        relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        accountant = pld.PLDAccountant(relation, value_discretization_interval=1e-3)
        accountant.compose(dp_accounting.GaussianDpEvent(multiplier), releases)
        return accountant.get_epsilon(DELTA)

    multiplier = noise_multiplier(epsilon, DELTA, releases)
    assert epsilon * (1 - 1e-6) < epsilon_with(multiplier) <= epsilon * (1 + 1e-8)
    assert epsilon_with(0.99 * multiplier) > epsilon


@given(epsilon=st.floats(0, 50), mu=mus)
@settings(max_examples=25)
def test_delta_coincides_with_the_integral_of_its_derivative(epsilon, mu):
    """Its derivative in mu is the normal density at epsilon / mu - mu / 2: positive, so nothing cancels."""

    def density(value):
        return norm.pdf(epsilon / value - value / 2)

    peak = math.sqrt(2 * epsilon)
    bounds = sorted({min(max(point, 1e-12), mu) for point in (1e-12, mu / 2, peak - 9, peak, peak + 9, mu)})
    parts = [quad(density, a, b, epsabs=0, epsrel=1e-10, limit=200)[0] for a, b in itertools.pairwise(bounds)]
    assert delta_of(epsilon, mu) == pytest.approx(sum(parts), rel=1e-7, abs=1e-200)


@pytest.mark.parametrize(
    ("epsilon", "mu", "expected"),
    # to 60 digits, by arbitrary-precision arithmetic
    [
        (0.0, 1e-12, 3.9894228040143267e-13),
        (1e-6, 1e-6, 8.33155122454254e-08),
        (1.0, 0.05, 1.1290332270977223e-91),
        (1.0, 1.0, 0.12693673750664394),
        (100.0, 3.0, 9.625213469476304e-224),
        (500_000.0, 1000.0, 0.49960105811853966),
        (503_000.0, 1000.0, 0.0013454794433882455),
    ],
)
def test_delta_keeps_its_digits_where_its_terms_cancel_or_overflow(epsilon, mu, expected):
    assert delta_of(epsilon, mu) == pytest.approx(expected, rel=1e-9, abs=0)


def test_delta_at_the_ends():
    assert delta_of(1.0, 0.0) == 0.0
    assert delta_of(1.0, math.inf) == 1.0
    assert delta_of(math.inf, 1.0) == 0.0
    assert delta_of(1e9, 1.0) == 0.0
    assert delta_of(0.0, 1.0) == pytest.approx(2 * norm.cdf(0.5) - 1)


@given(epsilon=epsilons, mu=mus)
def test_more_epsilon_or_more_noise_means_less_delta(epsilon, mu):
    assert 0 <= delta_of(epsilon, mu) <= 1
    assert delta_of(1.01 * epsilon, mu) <= delta_of(epsilon, mu) <= delta_of(epsilon, 1.01 * mu)


@given(epsilon=epsilons, delta=deltas)
def test_mu_is_the_largest_within_the_budget(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert delta_of(epsilon, mu) <= delta
    assert delta_of(epsilon, mu * (1 + 1e-8)) > delta


@given(delta=deltas, mu=mus)
def test_epsilon_is_the_smallest_that_covers_delta(delta, mu):
    epsilon = epsilon_of(delta, mu)
    assert delta_of(epsilon, mu) <= delta
    assert epsilon == 0 or delta_of(epsilon * (1 - 1e-8), mu) > delta


@given(epsilon=epsilons, delta=deltas, releases=st.integers(1, 1000))
@settings(max_examples=60)
def test_a_run_that_was_given_a_budget_spends_it_and_not_more(epsilon, delta, releases):
    used = spent([noise_multiplier(epsilon, delta, releases)] * releases, delta)
    assert used <= epsilon
    assert used == pytest.approx(epsilon, rel=1e-6, abs=1e-7)


@given(multipliers=st.lists(st.floats(0.5, 100), min_size=1, max_size=6), delta=deltas)
@settings(max_examples=40)
def test_releases_add_up_in_any_order_and_each_one_counts(multipliers, delta):
    together = spent(multipliers, delta)
    assert together == pytest.approx(spent(multipliers[::-1], delta), rel=1e-9)
    assert spent(multipliers[1:], delta) <= together


def test_four_releases_need_twice_the_noise_of_one():
    assert noise_multiplier(1, DELTA, 4) == pytest.approx(2 * noise_multiplier(1, DELTA), rel=1e-12)


def test_no_release_spends_nothing_and_one_without_noise_everything():
    assert spent([], DELTA) == 0
    assert spent([math.inf], DELTA) == 0
    assert spent([3.0, 0.0], DELTA) == math.inf


@pytest.mark.parametrize("delta", [0, 1, -1e-5, math.nan])
def test_a_delta_outside_of_0_and_1_is_refused(delta):
    with pytest.raises(ValueError, match="delta must be"):
        mu_of(1.0, delta)
    with pytest.raises(ValueError, match="delta must be"):
        spent([1.0], delta)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: mu_of(-1, DELTA), "epsilon"),
        (lambda: mu_of(math.inf, DELTA), "epsilon"),
        (lambda: delta_of(1, math.nan), "mu"),
        (lambda: noise_multiplier(1, DELTA, 0), "releases"),
        (lambda: spent([1, -1], DELTA), "multipliers"),
    ],
)
def test_a_wrong_parameter_is_named(call, named):
    with pytest.raises(ValueError, match=f"{named} must be"):
        call()
