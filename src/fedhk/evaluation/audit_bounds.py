"""What right and wrong guesses say of a privacy budget, or of the strength of an attack, with a confidence."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, rankdata

from fedhk._typing import BoolArray, FloatArray

__all__ = ["AttackStrength", "clopper_pearson", "separation", "strength"]

# Thresholds that are compared, by how large a share of the scores is below them.
THRESHOLDS = np.concatenate([np.geomspace(1e-3, 0.1, 12), np.linspace(0.15, 0.85, 15), 1 - np.geomspace(0.1, 1e-3, 12)])


def separation(first: FloatArray, second: FloatArray, delta: float, confidence: float) -> tuple[float, float]:
    """Lower bounds on mu and on epsilon from scores of two data sets, of which the first has the larger ones.

    Half of the scores choose the thresholds, the other half measure; so the bounds hold at their confidence.

    Notes
    -----
    For mu the threshold is midway between the medians: of two Gaussians that differ by a shift, error rates near one
    half tell the shift best. For epsilon it is the one with the best bound on the first half.
    """
    half = len(first) // 2
    chosen, measured = (first[:half], second[:half]), (first[half:], second[half:])
    midway = np.array([np.mean([np.median(scores) for scores in chosen])])
    mu = _bounds(*measured, midway, delta, confidence)[0][0]
    thresholds = np.quantile(np.concatenate(chosen), THRESHOLDS)
    best = int(np.argmax(_bounds(*chosen, thresholds, delta, confidence)[1]))
    epsilon = _bounds(*measured, thresholds[best : best + 1], delta, confidence)[1][0]
    return max(float(mu), 0.0), max(float(epsilon), 0.0)


def _bounds(
    first: FloatArray, second: FloatArray, thresholds: FloatArray, delta: float, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Lower bounds on mu and epsilon at each threshold."""
    hits, alarms = ((scores[:, None] > thresholds).sum(axis=0) for scores in (first, second))
    # each of the two rates is beyond the end of its interval with half of the risk
    least_hits = clopper_pearson(hits, len(first), confidence)[0]
    most_alarms = clopper_pearson(alarms, len(second), confidence)[1]
    with np.errstate(divide="ignore"):  # no hit, or no row without alarm, shows nothing
        mu = ndtri(least_hits) - ndtri(most_alarms)
        epsilon = np.log(np.maximum(least_hits - delta, 0.0) / most_alarms)
    return mu, epsilon


def clopper_pearson(successes: Any, trials: int, confidence: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Ends of the exact confidence interval of a probability.

    Parameters
    ----------
    successes : int or array of int
        How often it happened.
    trials : int
        Of how many times.
    confidence : float, default=0.95
        Probability that the interval has the true value; each end is missed with half of the rest.

    Returns
    -------
    low, high : array
        Of the shape of `successes`.
    """
    count = np.asarray(successes, np.float64)
    if trials < 1 or np.any((count < 0) | (count > trials)):
        raise ValueError(f"successes={successes!r} must be from 0 to trials={trials!r}, and trials at least 1.")
    risk = (1 - confidence) / 2
    low = np.where(count > 0, beta.ppf(risk, np.maximum(count, 1), trials - count + 1), 0.0)
    high = np.where(count < trials, beta.ppf(1 - risk, count + 1, np.maximum(trials - count, 1)), 1.0)
    return low, high


@dataclass(frozen=True)
class AttackStrength:
    """How well an attack tells members from others.

    Parameters
    ----------
    auc, auc_low, auc_high : float
        Probability that a member has a higher score than another row, and the ends of its confidence interval: 0.5 is
        guessing, 1 is certainty.
    advantage, advantage_low, advantage_high : float
        True positive minus false positive rate at one threshold, which is chosen on half of the rows and measured on
        the other half: 0 is guessing.
    """

    auc: float
    auc_low: float
    auc_high: float
    advantage: float
    advantage_low: float
    advantage_high: float


def strength(scores: FloatArray, member: BoolArray, halves: BoolArray, confidence: float) -> AttackStrength:
    """How well scores tell members from others.

    Parameters
    ----------
    scores : array of shape (n,)
        Higher is more likely a member.
    member : array of bool, shape (n,)
        The truth.
    halves : array of bool, shape (n,)
        The rows on which the threshold of the advantage is chosen; it is measured on the others.
    confidence : float
        Of the intervals.
    """
    auc, deviation = _auc(scores[member], scores[~member])
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * deviation
    candidates = np.unique(np.quantile(scores[halves], np.linspace(0, 1, 101)))
    above = scores[:, None] > candidates
    gains = above[halves & member].mean(axis=0) - above[halves & ~member].mean(axis=0)
    flagged = above[:, int(np.argmax(gains))]
    counts = [flagged[~halves & who] for who in (member, ~member)]
    (hit_low, hit_high), (alarm_low, alarm_high) = (clopper_pearson(c.sum(), len(c), confidence) for c in counts)
    return AttackStrength(
        auc=auc,
        auc_low=max(auc - reach, 0.0),
        auc_high=min(auc + reach, 1.0),
        advantage=float(counts[0].mean() - counts[1].mean()),
        advantage_low=float(hit_low - alarm_high),
        advantage_high=float(hit_high - alarm_low),
    )


def _auc(positive: FloatArray, negative: FloatArray) -> tuple[float, float]:
    """Area under the ROC curve and its standard deviation (DeLong, DeLong and Clarke-Pearson 1988)."""
    m, n = len(positive), len(negative)
    ranks = rankdata(np.concatenate([positive, negative]))
    # shares of the other kind that each score is above, ties counting half
    above = (ranks[:m] - rankdata(positive)) / n
    below = 1 - (ranks[m:] - rankdata(negative)) / m
    variance = above.var(ddof=1) / m + below.var(ddof=1) / n
    # where the two are apart nothing varies, but the next row may be different
    return float(above.mean()), float(max(np.sqrt(variance), 0.5 / min(m, n)))
