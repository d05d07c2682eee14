"""What releases with Gaussian noise spend of a privacy budget, exactly and in closed form.

A release with noise of standard deviation z times its L2 sensitivity is as private as telling N(0, 1) from N(1/z, 1).
Several such releases, each of which may depend on those before it, are together as private as telling N(0, 1) from
N(mu, 1): one number says all. Every result is rounded to the safe side: more noise, or more spent, never less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from scipy.special import erfcx, log_ndtr

from fedhk.data.checks import check_count, check_number

__all__ = ["delta_of", "epsilon_of", "mu_of", "noise_multiplier", "spent"]

# delta_of is right to about 1e-12. The margin of what is asked for is the larger one, so that a run which uses all of
# its budget is not told that it used more.
MARGIN_ASKED = 1e-9
MARGIN_SPENT = 1e-12
# Below this mu the two terms of delta agree in too many digits to be subtracted.
SMALL_MU = 1e-3
# exp(-x^2 / 2) is zero in float64 beyond this x.
FAR = 39.0


def delta_of(epsilon: float, mu: float) -> float:
    """Smallest delta for which mu-Gaussian privacy is (epsilon, delta)-differential privacy.

    Parameters
    ----------
    epsilon : float
        At least 0.
    mu : float
        Sensitivity over standard deviation of the noise; of several releases, the root of the sum of squares.

    Returns
    -------
    float
        delta in [0, 1]; 0 where it is below the smallest float.

    Notes
    -----
    With M(x) = Phi(-x) / phi(x), and because e^epsilon phi(far) = phi(near), the formula is
    phi(near) (M(near) - M(far)): no exponential overflows and the tails keep their digits. For small mu the difference
    is the integral of -M'(x) = 1 - x M(x) over an interval of length mu, which Simpson's rule gives to all digits.
    """
    epsilon = check_number(epsilon, "epsilon", finite=False)
    mu = check_number(mu, "mu", finite=False)
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    # Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13:
    # delta = Phi(-near) - e^epsilon Phi(-far)
    middle = epsilon / mu
    near, far = middle - mu / 2, middle + mu / 2
    if near > FAR:
        return 0.0
    if mu < SMALL_MU:
        slope = mu * (_slope(near) + 4 * _slope(middle) + _slope(far)) / 6
        return float(math.exp(-near * near / 2) / math.sqrt(2 * math.pi) * slope)
    if near > 0:
        return float(math.exp(-near * near / 2) / 2 * (erfcx(near / math.sqrt(2)) - erfcx(far / math.sqrt(2))))
    first, second = log_ndtr(-near), epsilon + log_ndtr(-far)
    return float(math.exp(first) * -math.expm1(second - first))


def epsilon_of(delta: float, mu: float) -> float:
    """Smallest epsilon for which mu-Gaussian privacy is (epsilon, delta)-differential privacy.

    Parameters
    ----------
    delta : float
        Between 0 and 1, both excluded.
    mu : float
        As in `delta_of`.

    Returns
    -------
    float
        epsilon, rounded up; infinite where there was no noise.
    """
    _check_delta(delta)
    mu = check_number(mu, "mu", finite=False)
    if delta_of(0.0, mu) <= delta:
        return 0.0
    # delta < Phi(-near) < exp(-near^2 / 2) / 2: enough is reached where the right side is at most delta
    enough = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    if enough == math.inf:
        return math.inf
    _, epsilon = _boundary(lambda value: delta_of(value, mu) > delta, enough)
    return epsilon * (1 + MARGIN_SPENT)


def mu_of(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-Gaussian privacy is within (epsilon, delta)-differential privacy.

    Parameters
    ----------
    epsilon : float
        At least 0 and finite.
    delta : float
        Between 0 and 1, both excluded.

    Returns
    -------
    float
        mu, rounded down.
    """
    epsilon = check_number(epsilon, "epsilon")
    _check_delta(delta)
    too_much = 1.0
    while delta_of(epsilon, too_much) <= delta:
        too_much *= 2
    mu, _ = _boundary(lambda value: delta_of(epsilon, value) <= delta, too_much)
    return mu * (1 - MARGIN_ASKED)


def noise_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """Smallest noise, as a multiple of the L2 sensitivity, with which all releases together stay within a budget.

    Parameters
    ----------
    epsilon, delta : float
        The budget of all releases together.
    releases : int, default=1
        How many there are; all have the same multiplier.

    Returns
    -------
    float
        The multiplier z of each release, rounded up.
    """
    releases = check_count(releases, "releases")
    mu = mu_of(epsilon, delta)
    # Dong, Roth and Su 2022, Corollary 3.3: mu^2 = sum_i 1 / z_i^2
    return math.sqrt(releases) / mu if mu > 0 else math.inf


def spent(multipliers: Iterable[float], delta: float) -> float:
    """Epsilon that releases with these noise multipliers spent together, at a given delta.

    Parameters
    ----------
    multipliers : iterable of float
        Standard deviation of the noise over the L2 sensitivity, one per release. A multiplier of 0 is a release without
        noise.
    delta : float
        Between 0 and 1, both excluded.

    Returns
    -------
    float
        epsilon, rounded up: 0 for no release, infinite for one without noise.
    """
    checked = [check_number(multiplier, "multipliers", finite=False) for multiplier in multipliers]
    # Dong, Roth and Su 2022, Corollary 3.3: mu^2 = sum_i 1 / z_i^2
    return epsilon_of(delta, math.hypot(*(1 / z if z > 0 else math.inf for z in checked)))


def _slope(x: float) -> float:
    """-M'(x) = 1 - x M(x), with M the ratio of the normal tail to the normal density."""
    return float(1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be a number between 0 and 1, both excluded, got {delta!r}.")


def _boundary(holds: Callable[[float], bool], high: float) -> tuple[float, float]:
    """Find two neighbouring floats from 0 to `high`: the last where a condition holds, the first where it does not."""
    low = 0.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return low, high
        low, high = (middle, high) if holds(middle) else (low, middle)
