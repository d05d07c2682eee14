"""Robust totals of the statistics of sites, which a few lying sites cannot bend.

No site counts for more than the median site, no quarter of the sites pulls a cluster more than the others do together,
and a cluster's centre is the geometric median of what sites say of it instead of their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedhk._typing import FloatArray, IntArray
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics

AGGREGATIONS = ("sum", "robust", "median", "trimmed")

# With two sites nobody can tell which one lies.
FEWEST_SITES = 3

# The sites that pull a cluster most, this share of all sites, may have at most that share of the pull on it. A site's
# pull is never cut below this part of an even share of the median site: else noise at sites that do not have the
# cluster would outweigh the few that have it.
STRONG_SITES, MOST_PULL, LEAST_PART = 0.25, 0.4, 0.2

# What "trimmed" leaves out on either side, by weight.
CUT = 0.25

# Passes of Weiszfeld's map. Distances below this part of the median distance count as that part, which keeps a site
# that the median falls on from taking all the weight, and makes the map quick.
PASSES, SMOOTHING, SETTLED = 30, 0.1, 1e-6

TINY = float(np.finfo(np.float64).tiny)


def robust_total(answers: Sequence[Statistics], parameters: Parameters, how: str = "robust") -> Statistics:
    """Compute robust statistics of all sites.

    Parameters
    ----------
    answers : sequence of Statistics
        One for each site, all at the same parameters; their order does not matter but for rounding.
    parameters : Parameters
        What the sites were told.
    how : {"sum", "robust", "median", "trimmed"}
        "sum" believes everybody. "robust" is a geometric median of each cluster's centre over sites; "median" and
        "trimmed" take each coordinate by itself, weighted median and trimmed mean. All but "sum" cap a site's mass at
        the median site's.

    Returns
    -------
    Statistics
        N / W are the centres; W, costs, masses, objective and rows are as large as those of the capped sites together.

    Notes
    -----
    Sites that are all equal give their sum. One or two sites do so too: there is no majority to believe.

    "robust" asks that most clusters are at most sites. Where few sites have a cluster, the others' noise counts against
    them: at Dirichlet(0.1) over 20 sites it cost 0.03 of ARI with nobody lying (`benchmarks/results/hostile.md`).
    """
    if how not in AGGREGATIONS:
        raise ValueError(f"how must be one of {list(AGGREGATIONS)}, got {how!r}.")
    if how == "sum" or len(answers) < FEWEST_SITES:
        return reduce(add, answers)
    capped = cap_masses([_possible(answer, parameters) for answer in answers])
    if how == "robust":
        capped = [match_clusters(answer, parameters) for answer in capped]
    sums = _Sums.of(capped)
    if how == "robust":
        sums = sums.scaled(even_pulls(sums.heights))
        numerators, weights = _geometric_median(sums, parameters)
    else:
        weights = [weight.sum(axis=0) for weight in sums.weights]
        centers = sums.middle(parameters.centers, 0.5 if how == "median" else CUT)
        numerators = [center * weight for center, weight in zip(centers, weights, strict=True)]
    masses = reduce(add, (answer.masses for answer in capped))
    costs, objective = _common_costs(capped)
    return Statistics(tuple(numerators), tuple(weights), costs, masses, objective, sum(a.rows for a in capped))


# ------------------------------------------------------------------------------------------- what each site may say


def _possible(answer: Statistics, parameters: Parameters) -> Statistics:
    """Clip costs and objective of a reply to what its number of rows can have."""
    most = answer.rows * float(parameters.view_factors.sum())
    return replace(
        answer,
        costs=np.clip(answer.costs, 0.0, answer.rows),
        objective=float(np.clip(answer.objective, 0.0, most)),
    )


def cap_masses(answers: Sequence[Statistics]) -> list[Statistics]:
    """Answers scaled down such that none has more rows, mass, or weight in a view, than the median site that has any.

    Notes
    -----
    All four are capped because a site may say one without the others; a site is scaled as a whole, which leaves its
    centres where they are.
    """
    sizes = np.array([[a.rows, a.masses.sum(), *a.heights.sum(axis=0)] for a in answers])
    factors = np.ones(len(answers))
    for size in sizes.T:
        if np.any(size > 0):
            cap = np.median(size[size > 0])
            factors = np.minimum(factors, cap / np.maximum(size, cap))
    return [answer.scaled(factor) for answer, factor in zip(answers, factors.tolist(), strict=True)]


def match_clusters(answer: Statistics, parameters: Parameters) -> Statistics:
    """Reorder the clusters of a reply as they fit the broadcast centres best.

    The fit is weighted by mass: the little that a site has of a cluster, often rows at the border of another one, must
    not turn round the clusters that it has.
    """
    cost = np.zeros((parameters.n_clusters, parameters.n_clusters))
    parts = zip(answer.numerators, answer.weights, parameters.centers, parameters.view_factors, strict=True)
    for numerator, weight, center, factor in parts:
        # sum_j W_kj (b_kj - a_lj)^2 without the part that does not depend on l
        full = np.broadcast_to(weight, numerator.shape)
        cost += factor * (full @ np.square(center).T - 2.0 * numerator @ center.T)
    _, place = linear_sum_assignment(cost)
    order: IntArray = np.argsort(place)
    return replace(
        answer,
        numerators=tuple(values[order] for values in answer.numerators),
        weights=tuple(values[order] for values in answer.weights),
        masses=answer.masses[order],
    )


def even_pulls(heights: FloatArray) -> FloatArray:
    """Factors of shape (sites, c) in (0, 1] that keep a few sites from having most of a cluster.

    A site pulls a centre by at most the root of its weight there, so that roots are compared.

    Parameters
    ----------
    heights : array of shape (sites, c)
        Weight of each cluster at each site.
    """
    strong = max(1, int(STRONG_SITES * len(heights)))
    least = np.sqrt(LEAST_PART * np.median(heights.sum(axis=1)) / heights.shape[1])
    pulls = np.sqrt(heights)
    caps = np.array([max(_pull_cap(pull, strong), least, TINY) for pull in pulls.T])
    return np.asarray(np.square(caps / np.maximum(pulls, caps)))


def _pull_cap(pulls: FloatArray, strong: int) -> float:
    """The largest cap at which the `strong` largest of the pulls are at most `MOST_PULL` of all.

    With n capped pulls and the rest as they are, the condition is linear in the cap.
    """
    ordered = np.sort(pulls)[::-1]
    top, total = ordered[:strong].sum(), ordered.sum()
    if top <= MOST_PULL * total:
        return float(ordered[0])
    # strong pulls are all at the cap from n = strong on: strong * cap <= MOST_PULL * (n * cap + rest of the pulls)
    tails = total - np.cumsum(ordered)
    for count in range(1, len(ordered)):
        if count < strong:
            # (count * cap + rest of the strong) <= MOST_PULL * (count * cap + rest of all)
            rest = top - ordered[:count].sum()
            cap = (MOST_PULL * tails[count - 1] - rest) / (count * (1.0 - MOST_PULL))
        elif strong > MOST_PULL * count:
            cap = MOST_PULL * tails[count - 1] / (strong - MOST_PULL * count)
        else:
            return float(ordered[count - 1])
        if cap >= ordered[count]:
            return float(cap)
    return float(ordered[-1])


# --------------------------------------------------------------------------------------------------- middle of sites


@dataclass(frozen=True)
class _Sums:
    """Numerators, shape (sites, c, d_h), and weights, shape (sites, c, d_h) or (sites, c, 1), per view."""

    numerators: list[FloatArray]
    weights: list[FloatArray]

    @classmethod
    def of(cls, answers: Sequence[Statistics]) -> _Sums:
        """Sites one above the other; weights have one column where all sites' have."""
        numerators = [np.stack(views) for views in zip(*(a.numerators for a in answers), strict=True)]
        weights = []
        for views in zip(*(a.weights for a in answers), strict=True):
            shape = np.broadcast_shapes(*(view.shape for view in views))
            weights.append(np.stack([np.broadcast_to(view, shape) for view in views]))
        return cls(numerators, weights)

    @property
    def heights(self) -> FloatArray:
        """Weight of each cluster at each site in the view where it is largest, shape (sites, c)."""
        return np.asarray(np.max([weight.max(axis=2) for weight in self.weights], axis=0))

    def scaled(self, factors: FloatArray) -> _Sums:
        """The sums with each site's clusters scaled by factors of shape (sites, c)."""
        by = factors[:, :, None]
        return _Sums([values * by for values in self.numerators], [values * by for values in self.weights])

    def mean(self, trust: FloatArray, previous: Sequence[FloatArray]) -> list[FloatArray]:
        """Centres when sites count by `trust`, shape (sites, c), times their weights."""
        trusted = self.scaled(trust)
        parts = zip(trusted.numerators, trusted.weights, previous, strict=True)
        return [_ratio(n.sum(axis=0), w.sum(axis=0), old) for n, w, old in parts]

    def distances(self, centers: Sequence[FloatArray], factors: FloatArray) -> FloatArray:
        """Distance of each site's centre of each cluster, times the root of its weight, shape (sites, c).

        Its square is by how much the site's part of the majorised objective is above its least: a mean of few rows is
        allowed to be far.
        """
        total = np.zeros(self.numerators[0].shape[:2])
        for n, w, center, factor in zip(self.numerators, self.weights, centers, factors, strict=True):
            apart = _ratio(n, w, center) - center
            total += factor * (w * np.square(apart)).sum(axis=2)
        return np.asarray(np.sqrt(total))

    def middle(self, previous: Sequence[FloatArray], cut: float) -> list[FloatArray]:
        """Coordinate by coordinate, the weighted mean of what is left after `cut` of the weight at either end."""
        found = []
        for n, w, old in zip(self.numerators, self.weights, previous, strict=True):
            weight = np.broadcast_to(w, n.shape)
            found.append(np.where(weight.sum(axis=0) > 0, trimmed_mean(_ratio(n, w, old), weight, cut), old))
        return found


def _ratio(numerator: FloatArray, weight: FloatArray, otherwise: FloatArray) -> FloatArray:
    """N / W, or another value where there is no weight."""
    out = np.array(np.broadcast_to(otherwise, numerator.shape), np.float64)
    return np.divide(numerator, weight, out=out, where=np.broadcast_to(weight > 0, numerator.shape))


def trimmed_mean(values: FloatArray, weights: FloatArray, cut: float) -> FloatArray:
    """Weighted mean along the first axis without `cut` of the weight at either end; 0.5 is the weighted median.

    Where half of the weight is on either side of a gap, the median is the middle of the gap.
    """
    order = np.argsort(values, axis=0, kind="stable")
    values, weights = np.take_along_axis(values, order, 0), np.take_along_axis(weights, order, 0)
    ends = np.cumsum(weights / np.maximum(weights.sum(axis=0), TINY), axis=0)
    starts = np.concatenate([np.zeros_like(ends[:1]), ends[:-1]])
    # a cut just short of a half leaves the two values that meet at the middle
    low, high = min(cut, 0.5 - 1e-9), max(1.0 - cut, 0.5 + 1e-9)
    kept = np.maximum(np.minimum(ends, high) - np.maximum(starts, low), 0.0)
    total = kept.sum(axis=0)
    return np.asarray(np.divide((kept * values).sum(axis=0), total, out=np.zeros(total.shape), where=total > 0))


def _geometric_median(sums: _Sums, parameters: Parameters) -> tuple[list[FloatArray], list[FloatArray]]:
    """Numerators and weights whose ratio minimises each cluster's sum over sites of `_Sums.distances`, smoothed.

    Notes
    -----
    Weiszfeld's map: sites count by their weight over their distance, until nothing moves. Because distances are
    measured in roots of weights, honest sites whose centres differ by chance alone count nearly in proportion to their
    rows, as in the sum. The start is the median of each coordinate, which is not far off already.
    """
    factors = parameters.view_factors / max(float(parameters.view_factors.max()), TINY)
    centers = sums.middle(parameters.centers, 0.5)
    pulls = np.sqrt(sums.heights)
    trust = np.ones(pulls.shape)
    for _ in range(PASSES):
        apart = sums.distances(centers, factors)
        usual = trimmed_mean(apart, pulls, 0.5)
        least = np.maximum(np.maximum(SMOOTHING * usual, 1e-9 * apart.max(axis=0)), TINY)
        trust = least / np.hypot(apart, least)
        better = sums.mean(trust, parameters.centers)
        moved = max(float(np.abs(new - old).max()) for new, old in zip(better, centers, strict=True))
        size = max(float(np.abs(new).max()) for new in better)
        centers = better
        if moved <= SETTLED * size:
            break
    # trust says what share of its weight a site has; all together keep the weight that they had
    before, after = sums.heights.sum(axis=0), (trust * sums.heights).sum(axis=0)
    trust = trust * np.divide(before, after, out=np.ones(before.shape), where=after > 0)
    trusted = sums.scaled(trust)
    return [n.sum(axis=0) for n in trusted.numerators], [w.sum(axis=0) for w in trusted.weights]


def _common_costs(answers: Sequence[Statistics]) -> tuple[FloatArray, float]:
    """Costs per view and the objective: the trimmed mean over sites of each per row, times the rows.

    A view's cost is asked of the sites that have the view.
    """
    rows = np.array([answer.rows for answer in answers])
    costs = np.array([answer.costs for answer in answers])
    objectives = np.array([answer.objective for answer in answers])
    have = np.array([[bool(view.any()) for view in answer.weights] for answer in answers]) | (costs > 0)
    held = rows[:, None] * have
    per_row = _ratio(costs, held, np.zeros(costs.shape))
    of_views = trimmed_mean(per_row, held, CUT) * held.sum(axis=0)
    objective = trimmed_mean(_ratio(objectives, rows, np.zeros(rows.shape)), rows, CUT) * rows.sum()
    return np.asarray(of_views), float(objective)
