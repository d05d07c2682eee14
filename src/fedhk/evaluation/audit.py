"""Audits: how much the numbers that leave a site, or a released model, really tell of one row.

`audit_release` lets a site release thousands of times, of two data sets that differ in one row, and bounds from below
what somebody who sees the releases can tell. `membership_attack` asks the same of a fitted model. An audit can show
that a promise is broken; it cannot prove that it is kept, because a better attack may exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from fedhk._typing import FloatArray
from fedhk.data.checks import check_count
from fedhk.evaluation.audit_attack import check_confidence, clopper_pearson, membership_attack
from fedhk.evaluation.audit_worlds import PHASES, worst_worlds
from fedhk.privacy.accounting import epsilon_of
from fedhk.privacy.mechanism import DifferentialPrivacy

__all__ = ["ReleaseAudit", "audit_release", "clopper_pearson", "membership_attack", "spending"]

# Fewer releases leave so little after the threshold is chosen that nothing could be shown.
FEWEST_RELEASES = 100

# By how much sums in floating point may exceed a bound that is attained.
ROUNDING = 1e-6

# Thresholds that are compared, by how large a share of the scores is below them.
THRESHOLDS = np.concatenate([np.geomspace(1e-3, 0.1, 12), np.linspace(0.15, 0.85, 15), 1 - np.geomspace(0.1, 1e-3, 12)])


@dataclass(frozen=True)
class ReleaseAudit:
    """Result of an audit of releases."""

    # what was released each time
    phases: tuple[str, ...]
    # epsilon that these releases may spend, by the accounting, at this delta
    stated: float
    delta: float
    # with the given confidence more than this was spent, if noise is Gaussian, as is stated; 0 if nothing was shown
    epsilon: float
    # The same without that assumption. It is much smaller: of few thousand releases next to none are as rare as delta,
    # where the worst happens.
    epsilon_any_noise: float
    # how far apart the two data sets were, before noise, over what noise is sized for: above 1 is a proof that one row
    # can change more than was stated
    distance: float
    # how often it was released, over both data sets
    releases: int
    # of the two bounds on epsilon, each by itself
    confidence: float

    @property
    def holds(self) -> bool:
        """Whether the result is consistent with the stated epsilon."""
        return max(self.epsilon, self.epsilon_any_noise) <= self.stated and self.distance <= 1 + ROUNDING

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.holds:
            return (
                f"The audit could not show more than epsilon = {self.epsilon:.2f} of the stated {self.stated:.2f}: "
                "consistent."
            )
        shown = max(self.epsilon, self.epsilon_any_noise)
        reasons = []
        if shown > self.stated:
            reasons.append(
                f"releases tell the two data sets apart as only epsilon = {shown:.2f} or more allows, and "
                f"{self.stated:.2f} was stated"
            )
        if self.distance > 1 + ROUNDING:
            reasons.append(f"one row moves what is released {self.distance:.3g} times as far as noise is sized for")
        return f"BROKEN: {'; '.join(reasons)}."

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"phases": list(self.phases), "holds": self.holds, "verdict": self.verdict}


def audit_release(
    privacy: DifferentialPrivacy,
    phases: Sequence[str] = ("round",),
    *,
    releases: int = 20_000,
    confidence: float = 0.95,
    progress: Callable[[int], None] | None = None,
) -> ReleaseAudit:
    """Bound from below the epsilon of what a site releases, by telling two data sets apart that differ in one row.

    Parameters
    ----------
    privacy : DifferentialPrivacy
        The budget of a run of one round; its `rounds` are not used.
    phases : sequence of str, default=("round",)
        What is released each time: any of "ranges" (only where bounds are private), "means", "lengths", "spreads",
        "directions", "cells" and "round". All of them are a whole run.
    releases : int, default=20000
        How often it is released, half of them of either data set. Half choose a threshold, the others measure with it.
    confidence : float, default=0.95
        Confidence of the bound.
    progress : callable, optional
        Called with the number of releases done so far, now and then.

    Returns
    -------
    ReleaseAudit
        The bounds, and a verdict in words.

    Notes
    -----
    A site is asked through the same function as in a run, with a new ledger each time. The data sets and the server's
    requests are the worst of those in `fedhk.evaluation.audit_worlds`; the noise is that of the operating system, so
    that two audits differ. A release is summed up as its projection on the true difference of the two data sets, the
    best that anybody can do against Gaussian noise.

    Stated is that the releases are as private as telling N(0, 1) from N(mu, 1) (`fedhk.privacy.accounting`). Then no
    test can have error rates with Phi^-1(true positives) - Phi^-1(false positives) above mu. The lower confidence bound
    of this difference is a bound on mu, and `epsilon` is the epsilon of that mu (Nasr et al. 2023). Without the
    assumption, epsilon is at least log((true positives - delta) / false positives).

    Examples
    --------
    >>> from fedhk.privacy import DifferentialPrivacy
    >>> from fedhk.evaluation.audit import audit_release
    >>> result = audit_release(DifferentialPrivacy(1.0, 1e-5, bounds=(-4, 4)), releases=200, confidence=0.999)
    >>> result.holds
    True
    """
    pairs = check_count(releases, "releases", minimum=FEWEST_RELEASES) // 2
    check_confidence(confidence)
    phases = _check_phases(privacy, phases)
    mu = math.hypot(*(1 / privacy.multiplier(phase, 1) for phase in phases))
    worlds = worst_worlds(privacy, phases)
    scores: FloatArray = np.zeros((2, pairs))
    for number in range(pairs):
        scores[:, number] = [worlds.release(world) for world in (0, 1)]
        if progress is not None and (number % 50 == 49 or number + 1 == pairs):
            progress(2 * (number + 1))
    shown_mu, shown_epsilon = separation(scores[0], scores[1], privacy.delta, confidence)
    return ReleaseAudit(
        phases=phases,
        stated=epsilon_of(privacy.delta, mu),
        delta=privacy.delta,
        epsilon=epsilon_of(privacy.delta, shown_mu),
        epsilon_any_noise=shown_epsilon,
        distance=worlds.distance / mu,
        releases=2 * pairs,
        confidence=confidence,
    )


def spending(privacy: DifferentialPrivacy, phases: Sequence[str] = ("round",)) -> DifferentialPrivacy:
    """Make the budget of a run of one round in which the given phases alone spend the whole budget."""
    share = sum(privacy.multiplier(phase, 1) ** -2 for phase in _check_phases(privacy, phases)) / privacy.budget
    return replace(privacy, epsilon=epsilon_of(privacy.delta, math.sqrt(privacy.budget / share)), rounds=1)


def _check_phases(privacy: DifferentialPrivacy, phases: Sequence[str]) -> tuple[str, ...]:
    known = [phase for phase in PHASES if phase != "ranges" or not privacy.public]
    if isinstance(phases, str) or not phases or len(set(phases)) < len(phases) or not set(phases) <= set(known):
        why = "" if "ranges" in known else " ('ranges' is released only with bounds='private')"
        raise ValueError(f"phases={phases!r} must be one or more of {known}, each once{why}.")
    return tuple(sorted(phases, key=known.index))


def separation(first: FloatArray, second: FloatArray, delta: float, confidence: float) -> tuple[float, float]:
    """Compute lower bounds on mu and epsilon from scores of two data sets, of which the first has the larger ones.

    Half of the scores choose the thresholds, the other half measure; so the bounds hold at their confidence. For mu the
    threshold is midway between the medians: of two Gaussians that differ by a shift, error rates near one half tell the
    shift best. For epsilon it is the one with the best bound on the first half.
    """
    half = len(first) // 2
    chosen, measured = (first[:half], second[:half]), (first[half:], second[half:])
    midway = np.mean([np.median(scores) for scores in chosen])
    thresholds = np.quantile(np.concatenate(chosen), THRESHOLDS)
    best = thresholds[np.argmax(_bounds(*chosen, thresholds, delta, confidence)[1])]
    mu, epsilon = _bounds(*measured, np.array([midway, best]), delta, confidence)
    return max(float(mu[0]), 0.0), max(float(epsilon[1]), 0.0)


def _bounds(
    first: FloatArray, second: FloatArray, thresholds: FloatArray, delta: float, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Compute lower bounds on mu and epsilon at each threshold."""
    hits, alarms = ((scores[:, None] > thresholds).sum(axis=0) for scores in (first, second))
    # each of the two rates is beyond the end of its interval with half of the risk
    least_hits = clopper_pearson(hits, len(first), confidence)[0]
    most_alarms = clopper_pearson(alarms, len(second), confidence)[1]
    with np.errstate(divide="ignore"):  # no hit, or no row without alarm, shows nothing
        mu = ndtri(least_hits) - ndtri(most_alarms)
        epsilon = np.log(np.maximum(least_hits - delta, 0.0) / most_alarms)
    return mu, epsilon
