"""How long rows of each cluster go without an event: Kaplan-Meier curves, log-rank test, restricted mean survival.

Sites count events and ends of observation by cluster on a common grid of times. Rows whose observation ends between two
times are at risk for half of that interval (the actuarial estimate). Where all times are on the grid, curves are
exactly those of Kaplan and Meier. The log-rank test needs no grid: each site compares its own clusters, at its own
times, and their sums add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy import stats
from scipy.special import softmax

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.after.columns import ColumnsRequest, ColumnSum, CountMagnitudes, PlaceCount, PlacesRequest, Ranges
from fedhk.after.common_effects import CommonEffects, EffectsRequest, FitEffects, Scores
from fedhk.after.effects import invert_covariance
from fedhk.after.run import Answer, Answered
from fedhk.after.tables import (
    SURE,
    PrintedTable,
    is_small,
    name_outcome,
    show_count,
    show_interval,
    show_sites,
    show_test,
)
from fedhk.data.checks import check_count, check_number
from fedhk.data.frames import pandas
from fedhk.data.outcomes import EVENTS, TIMES
from fedhk.federation.board import Board, Entry
from fedhk.federation.phases.base import Phase
from fedhk.federation.placed import PlacedSite
from fedhk.privacy.mechanism import AFTER
from fedhk.summary.words import number

# How rows end in an interval: observation is over within it, there is an event, or observation is over at its end. With
# noise the last is not told from the first.
WITHIN, EVENT, AT_END = 0, 1, 2
KINDS, NOISY_KINDS = 3, 2

# Intervals of a grid that nobody gave, by the kinds of ends that are told apart: up to the power of two above all
# times, so that it has whole days up to 1,024 of them; and with noise, where every interval adds its own: 12 and the
# limit below had the smallest errors on generated lives, on other draws than those that benchmarks/outcomes.py shows.
INTERVALS = {KINDS: 1024, NOISY_KINDS: 12}

# Times of a grid at most: those of 270 years in days.
MOST_TIMES = 100_000

# Draws of noise by which what it does to curves and tests is measured: its standard deviation is known to 5 per cent.
DRAWS = 200

# Fewer rows at risk than this many standard deviations of the noise in a count end a curve.
LEAST_SIGNAL = 30.0

# Variances of a step of noisy hazards that are tried, in units of the variance that chance and noise give a difference:
# from hazards that do not change to those that are known as they are seen.
STEPS = np.logspace(-6, 2, 33)

# Intervals from which on noisy hazards are smoothed: fewer do not show how they change. And the largest hazard of an
# interval, which keeps logarithms finite.
LEAST_SMOOTHED, MOST_HAZARD = 3, 0.99

Z = float(stats.norm.ppf(0.975))


# What columns are called where they were not given by name.
TIME_NAME, EVENT_NAME = "time", "event"


@dataclass(frozen=True, eq=False)
class SurvivalRequest(PlacesRequest):
    """Ask for events and ends of observation by cluster, on a grid of times that begins with 0."""

    views: ClassVar[tuple[str, ...]] = (TIMES, EVENTS)

    grid: FloatArray
    kinds: int  # of ends that are told apart: 2 or 3

    @property
    def n_places(self) -> int:
        """Those of all intervals, of the time beyond, and one of rows that are not known."""
        return self.kinds * (len(self.grid) + 1 - self.first) + 1

    @property
    def first(self) -> int:
        """The first interval. With noise it is that after time 0, in which rows that end at 0 are counted, too."""
        return int(self.kinds == NOISY_KINDS)

    def find_places(self, values: FloatArray) -> IntArray:
        known, ends = ~np.isnan(values).any(axis=1), np.append(self.grid, np.inf)
        time = np.nan_to_num(values[:, 0])
        interval = np.searchsorted(self.grid, time)
        over = np.where((time == ends[interval]) & (self.kinds > AT_END), AT_END, WITHIN)
        kind = np.where(values[:, 1] > 0, EVENT, over)
        place = np.maximum(interval - self.first, 0)
        return np.where(known, self.kinds * place + kind, self.n_places - 1)


@dataclass(frozen=True, eq=False)
class SurvivalCounts(Entry):
    """Rows by cluster, interval, and how they ended in it; the last interval is beyond the grid."""

    grid: FloatArray  # (j,), from 0 on
    counts: FloatArray  # (c, j + 1, kinds)
    missing: FloatArray  # (c,): rows whose time or event is not known
    noise: float


@dataclass(frozen=True)
class CountSurvival(PlaceCount[SurvivalRequest]):
    """Events and ends of observation by cluster, on a common grid."""

    name: ClassVar[str] = AFTER + "survival"
    questions: ClassVar[tuple[str, ...]] = ("outcomes",)

    n_clusters: int
    times: tuple[float, ...] = ()  # the grid, where it was given
    intervals: int = 0  # of a grid over the range of all times; 0 has as many as suit the kinds of ends
    kinds: int = KINDS

    def _grid(self, board: Board) -> FloatArray:
        if self.times:
            return np.array(self.times)
        return np.linspace(0.0, float(board.get(Ranges).high[0]), (self.intervals or INTERVALS[self.kinds]) + 1)

    def request(self, board: Board) -> SurvivalRequest:
        return SurvivalRequest(self.n_clusters, self._grid(board), self.kinds)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        cells = total.reshape(self.n_clusters, -1)
        counts = cells[:, :-1].reshape(self.n_clusters, -1, self.kinds)
        asked = self.request(board)
        counts = np.pad(counts, ((0, 0), (asked.first, 0), (0, 0)))
        return board.put(SurvivalCounts(asked.grid, counts, cells[:, -1], noise))

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [terms.seal(self if terms.noise is None else replace(self, kinds=NOISY_KINDS))]


def _compare_events(events: FloatArray, at_risk: FloatArray, effects: FloatArray) -> Scores:
    """Compare the events of one stratum with those expected, given logarithms of hazard ratios.

    `events` and `at_risk` are of each time and cluster, (times, c). With effects of 0 it is the log-rank test.
    """
    hazards = at_risk * np.exp(effects)
    risk, died, weight = at_risk.sum(axis=1), events.sum(axis=1), hazards.sum(axis=1)
    there = (risk > 0) & (died != 0)
    share, died, risk = hazards[there] / weight[there, None], died[there], risk[there]
    excess = (events[there] - share * died[:, None]).sum(axis=0)
    # hypergeometric; of one row at risk there is nothing to tell
    scale = np.where(risk > 1, died * (risk - died) / np.maximum(risk - 1, 1.0), 0.0)
    own = scale @ (share * (1.0 - share))  # exactly zero of a cluster that is alone
    covariance = -(share * scale[:, None]).T @ share
    np.fill_diagonal(covariance, own)
    return Scores(excess, covariance)


def _count_at_times(times: FloatArray, happened: FloatArray, labels: IntArray, c: int) -> tuple[FloatArray, FloatArray]:
    """Events and rows at risk by cluster, at each time with an event."""
    moments, place = np.unique(times, return_inverse=True)
    cell, size = place * c + labels, len(moments) * c
    ended, events = (
        np.bincount(cell, weights, minlength=size).astype(np.float64).reshape(-1, c) for weights in (None, happened)
    )
    at_risk = np.cumsum(ended[::-1], axis=0)[::-1]
    return events, at_risk


def _compare_rates(events: FloatArray, at_risk: FloatArray) -> FloatArray:
    """Compute the terms of hazard ratios of clusters against the rest of one stratum, (3, c).

    At each time: events of the cluster times rows of the rest, over all rows; events of the rest times rows of the
    cluster; and what they add to the variance (Mantel and Haenszel; Greenland and Robins 1985). Of several events at
    one time, each finds at risk what those before it have left on average (Efron).
    """
    died = events.sum(axis=1)
    there = (at_risk.sum(axis=1) > 0) & (died > 0)
    events, died = events[there], died[there, None]
    risk = np.maximum(at_risk[there] - events * (np.maximum(died - 1.0, 0.0) / (2.0 * died)), 0.0)
    total = np.maximum(risk.sum(axis=1, keepdims=True), 1e-300)
    share, rest = risk / total, (total - risk) / total
    return np.array([np.sum(part, axis=0) for part in (events * rest, (died - events) * share, died * share * rest)])


def _count_at_site(site: PlacedSite, c: int) -> tuple[FloatArray, FloatArray]:
    """Count events and rows at risk by cluster at a site, at its own times."""
    parts = [(labels, values) for labels, values in site.blocks((TIMES, EVENTS), (1, 1))]
    labels = np.concatenate([part for part, _ in parts]) if parts else np.zeros(0, np.intp)
    values = np.vstack([part for _, part in parts]) if parts else np.zeros((0, 2))
    known = ~np.isnan(values).any(axis=1)
    return _count_at_times(values[known, 0], values[known, 1], labels[known], c)


@dataclass(frozen=True, eq=False)
class LogRankTotal(Entry):
    """Log-rank sums over all sites, what `_compare_rates` gives, and at how many sites clusters have more events."""

    scores: Scores
    rates: FloatArray
    sides: FloatArray


@dataclass(frozen=True)
class LogRankRequest:
    """Ask for log-rank sums of so many clusters."""

    n_clusters: int


@dataclass(frozen=True)
class SumLogRank(ColumnSum[LogRankRequest]):
    """The log-rank test of clusters and their hazard ratios, stratified by site."""

    name: ClassVar[str] = AFTER + "log-rank"
    questions: ClassVar[tuple[str, ...]] = ("outcomes",)
    with_noise: ClassVar[bool] = False  # one row changes how many are at risk at all earlier times

    n_clusters: int

    def request(self, board: Board) -> LogRankRequest:
        return LogRankRequest(self.n_clusters)

    def size(self, board: Board) -> int:
        return self.n_clusters * (self.n_clusters + 6)

    @staticmethod
    def vector(site: PlacedSite, request: LogRankRequest) -> FloatArray:  # type: ignore[override]
        counts = _count_at_site(site, request.n_clusters)
        scores = _compare_events(*counts, np.zeros(request.n_clusters))
        return np.concatenate([part.ravel() for part in (*scores, _compare_rates(*counts), scores.count_sides())])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        c = self.n_clusters
        excess, covariance, rates, sides = np.split(total, np.cumsum([c, c * c, 3 * c]))
        return board.put(
            LogRankTotal(Scores(excess, covariance.reshape(c, c)), rates.reshape(3, c), sides.reshape(2, c))
        )


@dataclass(frozen=True)
class CompareHazards(FitEffects):
    """Hazard ratios of clusters that are the same at all sites (Cox, stratified by site), and how far sites differ."""

    name: ClassVar[str] = AFTER + "hazards"

    @classmethod
    def score(cls, site: PlacedSite, request: EffectsRequest) -> Scores:
        return _compare_events(*_count_at_site(site, request.n_clusters), request.effects)


# ------------------------------------------------------------------------------------------------- curves from counts


def _count_at_risk(counts: FloatArray) -> FloatArray:
    """Rows at risk at each time of the grid, (c, j), from counts of shape (c, j + 1, kinds)."""
    ended: FloatArray = counts.sum(axis=2)
    return np.cumsum(ended[:, ::-1], axis=1)[:, ::-1][:, :-1]


def _count_exposed(counts: FloatArray) -> FloatArray:
    """Rows at risk during each interval, (c, j): those whose observation ends within it count half."""
    return _count_at_risk(counts) - counts[:, :-1, WITHIN] / 2


def _survival_curve(counts: FloatArray) -> FloatArray:
    """Kaplan-Meier curves at the times of the grid, of shape (c, j); with noise, as good as they are."""
    exposed = _count_exposed(counts)
    hazard = np.where(exposed > 0, counts[:, :-1, EVENT] / np.maximum(exposed, 1e-300), 0.0)
    return np.cumprod(1.0 - np.clip(hazard, -1.0, 1.0), axis=1)


def _smooth_curve(counts: FloatArray, grid: FloatArray, noise: float, shown: BoolArray) -> FloatArray:
    """Return curves from noisy counts, which never rise; hazards are smoothed where a curve is shown.

    Hazards per unit of time are a random walk that is seen with the errors of chance and noise. How far it moves from
    one interval to the next is what these errors leave of the squared differences of neighbours (empirical Bayes), so
    that hazards which seem to change by no more than their errors are taken for constant.
    """
    exposed = np.maximum(_count_exposed(counts), 1.0)
    events = counts[:, :-1, EVENT]
    fallen = -np.log1p(-np.clip(events / exposed, -1.0, MOST_HAZARD))  # by how much the logarithm of a curve falls
    lasts = np.diff(grid, prepend=0.0)
    for k in range(len(counts)):
        own = shown[k] & (lasts > 0)
        if own.sum() < LEAST_SMOOTHED:
            continue
        time, rows = lasts[own], exposed[k, own]
        pooled = -np.expm1(-max(events[k, own].sum(), 1.0) / (rows @ time) * time)
        variance = (pooled / (1.0 - pooled) / rows + np.square(noise / rows / (1.0 - pooled))) / np.square(time)
        fallen[k, own] = _smooth_walk(fallen[k, own] / time, variance) * time
    return np.asarray(np.exp(-np.cumsum(np.maximum(fallen, 0.0), axis=1)))


def _smooth_walk(seen: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the expected values of a random walk that is seen with errors of such variance.

    How far it moves from one value to the next is not known: the values expected with each of `STEPS` are weighted by
    how likely it makes the differences that are seen.
    """
    moves = np.diff(np.eye(len(seen)), axis=0)
    apart, chance = moves @ seen, (moves * variance) @ moves.T
    expected, likely = [], []
    for step in STEPS * np.diag(chance).mean():
        covariance = chance + step * np.eye(len(apart))
        weighed = np.linalg.solve(covariance, apart)
        expected.append(seen - variance * (weighed @ moves))
        likely.append(-(apart @ weighed + np.linalg.slogdet(covariance)[1]) / 2)
    return np.asarray(softmax(likely) @ np.array(expected))


def _greenwood_terms(curve: FloatArray, at_risk: FloatArray) -> FloatArray:
    """What each time adds to the variance of the logarithm of a curve, by chance alone; infinite where it ends at 0."""
    before = np.hstack([np.ones((len(curve), 1)), curve[:, :-1]])
    with np.errstate(divide="ignore", invalid="ignore"):
        hazard = np.where(before > 0, 1.0 - curve / before, 0.0)
        return np.where(hazard > 0, hazard / (at_risk * (1.0 - hazard)), 0.0)


def restricted_mean(curve: FloatArray, grid: FloatArray, horizon: float) -> FloatArray:
    """Mean time without event up to a horizon: the area under each curve."""
    return np.asarray(curve @ _durations(grid, horizon))


def _durations(grid: FloatArray, horizon: float) -> FloatArray:
    """How long each time of the grid lasts before the horizon."""
    return np.diff(np.minimum(np.append(grid, np.inf), horizon))


def _mean_variance(curve: FloatArray, at_risk: FloatArray, grid: FloatArray, horizon: float) -> FloatArray:
    """Variance of the restricted mean by chance alone (Greenwood)."""
    left = np.cumsum((curve * _durations(grid, horizon))[:, ::-1], axis=1)[:, ::-1]  # area from each time on
    terms = _greenwood_terms(curve, at_risk)  # where a curve ends at 0, no area is left
    return np.asarray(np.sum(np.square(left) * np.where(np.isfinite(terms), terms, 0.0), axis=1))


def _draw_counts(counts: FloatArray, noise: float) -> Iterator[FloatArray]:
    """Add noise to counts once more, many times; none to those at time 0, which no row has."""
    rng = np.random.default_rng(0)
    for _ in range(DRAWS):
        drawn = noise * rng.standard_normal(counts.shape)
        drawn[:, 0] = 0.0
        yield counts + drawn


def _noise_covariance(statistic: Callable[[FloatArray], FloatArray], counts: FloatArray, noise: float) -> FloatArray:
    """Covariance that noise in counts gives a statistic of shape (k,), measured by adding such noise once more."""
    drawn = [statistic(some) for some in _draw_counts(counts, noise)]
    return np.atleast_2d(np.cov(np.array(drawn), rowvar=False))


def excess_test(excess: FloatArray, covariance: FloatArray) -> tuple[float, int, float]:
    """Chi-square, degrees of freedom and p of events beyond what was expected."""
    inverse, df = invert_covariance(covariance)
    if df < 1:
        return np.nan, 0, np.nan
    statistic = float(excess @ inverse @ excess)
    return statistic, df, float(stats.chi2.sf(statistic, df))


@dataclass(frozen=True, eq=False)
class Survival(Answered):
    """Survival by cluster. Arrays are of shape (clusters, times); NaN where too few rows are left.

    Parameters
    ----------
    times : array of shape (j,)
        The common grid, from 0 on.
    curves, lower, upper : array of shape (c, j)
        Share without event after each time (Kaplan-Meier), and its 95 % interval, pointwise.
    at_risk, events : array of shape (c, j)
        Rows at risk at each time, and events since the time before.
    rows, missing : array of shape (c,)
        Rows with a known outcome, and without.
    horizon : float
        Up to where the mean is taken.
    restricted_mean, restricted_mean_error : array of shape (c,)
        Mean time without event up to the horizon, and its standard error.
    statistic, df, p : float
        Log-rank test that all clusters have the same hazard, stratified by site.
    stratified : bool
        Whether it is: not with noise.
    hazard_ratio, hazard_lower, hazard_upper : array of shape (c,)
        Hazard of each cluster against all other rows of the same site (Mantel-Haenszel), and its 95 % interval; with
        noise, against all other rows.
    sites_more, sites_known : array of shape (c,)
        Sites at which the cluster has more events than its other rows lead one to expect, and sites where it can be
        compared; NaN with noise.
    i_squared : array of shape (c,)
        Heterogeneity of the ratio between sites, from 0 to 1: of what a site differs from the common ratios of all
        clusters, given the clusters that it has. NaN where fewer than two sites know it.
    sites_p : array of shape (c,)
        Test that all sites have the common ratios (Cochran's Q), not adjusted for the number of clusters.
    least_rows : int
        Curves end where fewer rows are at risk, or fewer than 30 times `noise`. Smaller counts than `least_rows` are
        not shown.
    noise : float
        Standard deviation of the noise in counts.
    answer : Answer
        What was sent, and what it spent.
    time_name, event_name : str
        The columns, where they were given by name.
    """

    times: FloatArray
    curves: FloatArray
    lower: FloatArray
    upper: FloatArray
    at_risk: FloatArray
    events: FloatArray
    rows: FloatArray
    missing: FloatArray
    horizon: float
    restricted_mean: FloatArray
    restricted_mean_error: FloatArray
    statistic: float
    df: int
    p: float
    stratified: bool
    hazard_ratio: FloatArray
    hazard_lower: FloatArray
    hazard_upper: FloatArray
    sites_more: FloatArray
    sites_known: FloatArray
    i_squared: FloatArray
    sites_p: FloatArray
    least_rows: int
    noise: float
    answer: Answer = field(repr=False)
    time_name: str = TIME_NAME
    event_name: str = EVENT_NAME

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.rows)

    @property
    def name(self) -> str:
        """The event and its time; empty where they were not given by name."""
        return "" if self.event_name == EVENT_NAME else f"{self.event_name}, by {self.time_name}"

    def frame(self) -> Any:
        """One line for each cluster and time, as a pandas data frame; small counts are NaN."""
        parts = {"survival": self.curves, "lower": self.lower, "upper": self.upper}
        parts |= {name: np.where(is_small(part, self.least_rows), np.nan, part) for name, part in self._counts.items()}
        lines: dict[str, Any] = {"cluster": np.repeat(np.arange(self.n_clusters), len(self.times))}
        lines |= {"time": np.tile(self.times, self.n_clusters)} | {name: part.ravel() for name, part in parts.items()}
        return pandas().DataFrame(lines)

    @property
    def _counts(self) -> dict[str, FloatArray]:
        return {"at_risk": self.at_risk, "events": self.events}

    def show_at_risk(self, k: int, time: float) -> str:
        """Write how many rows of a cluster are at risk at a time."""
        place = min(int(np.searchsorted(self.times, time)), len(self.times) - 1)
        noise = self._noise_in(NOISY_KINDS * (len(self.times) + 1 - max(place, 1)))
        return show_count(self.at_risk[k, place], self.least_rows, noise=noise)

    def survival_at(self, time: float) -> FloatArray:
        """Share of each cluster without event after a time; NaN beyond the last time of the grid."""
        time = check_number(time, "time")
        if time > self.times[-1]:
            return np.full(self.n_clusters, np.nan)
        return self.curves[:, int(np.searchsorted(self.times, time, side="right")) - 1]

    def facts(self) -> dict[str, Any]:
        return {"p": self.p, "statistic": self.statistic}

    def table(self) -> PrintedTable:
        """One line for each cluster."""
        head = ["", "rows", "events", f"mean time up to {number(self.horizon)}", "hazard ratio to the rest", "I²"]
        head.append("sites with more")
        rows, j = [], len(self.times)
        for k in range(self.n_clusters):
            mean, error = self.restricted_mean[k], self.restricted_mean_error[k]
            ratio = show_interval(self.hazard_ratio[k], self.hazard_lower[k], self.hazard_upper[k], 2)
            known, shown = np.isfinite(mean), not np.isnan(self.curves[k]).all()
            rows.append(
                [
                    f"cluster {k}",
                    show_count(self.rows[k], self.least_rows, noise=self._noise_in(NOISY_KINDS * j)),
                    show_count(float(self.events[k].sum()), self.least_rows, noise=self._noise_in(j - 1)),
                    show_interval(mean, mean - Z * error, min(mean + Z * error, self.horizon)) if known else "–",
                    ratio if shown else "–",
                    number(self.i_squared[k], 2) if shown else "–",
                    show_sites(self.sites_more[k], self.sites_known[k]) if shown else "–",
                ]
            )
        return PrintedTable(name_outcome(self.name), head, rows, self.notes)

    @property
    def notes(self) -> list[str]:
        """What a reader must know."""
        of = self._tell_strata(", stratified by site", stratified=self.stratified)
        least, signal = self.least_rows, LEAST_SIGNAL * self.noise
        end = f"fewer than {least} rows are at risk"
        if signal > least:
            end = f"fewer than {number(signal)} rows are at risk, {LEAST_SIGNAL:g} times the noise in a count"
        notes = [
            show_test(f"Log-rank test{of}", f"chi-square {number(self.statistic)}, df {self.df}", self.p),
            "Intervals are of 95 %. Hazard ratios are those of Mantel and Haenszel.",
            f"Curves end where {end}; counts below {least} are not shown.",
        ]
        known = ~np.isnan(self.curves).all(axis=1)
        if known.any() and np.isnan(self.restricted_mean[known]).all():
            notes.append(f"There is no mean up to {number(self.horizon)}: no curve goes so far.")
        lost = float(self.missing.sum())
        if lost >= 0.5:
            shown = show_count(lost, self.least_rows, noise=self._noise_in(self.n_clusters))
            notes.append(f"Left out, because time or event is missing: {shown} rows.")
        if self.noise:
            off = number(SURE * self._noise_in(NOISY_KINDS * len(self.times)), 2)
            notes.append(f"The rows of a cluster are right within ± {off}, 95 times in 100.")
        return notes + self._noise_notes()

    def _noise_in(self, cells: int) -> float:
        """Return the standard deviation of the noise in the sum of so many counts."""
        return self.noise * math.sqrt(cells)


def read_survival(answer: Answer, horizon: float | None, least_rows: int) -> Survival:
    """Curves, means and tests from counts over all sites."""
    found = answer.board.get(SurvivalCounts)
    counts, grid, noise = found.counts, found.grid, found.noise
    at_risk, curve = _count_at_risk(counts), _survival_curve(counts)
    shown = at_risk >= max(least_rows, LEAST_SIGNAL * noise)
    shown &= np.cumsum(~shown, axis=1) == 0
    if horizon is None:
        there = shown[shown.any(axis=1)]
        horizon = float(grid[there.all(axis=0)][-1]) if len(there) and there.all(axis=0).any() else 0.0
    if noise:
        curve = _smooth_curve(counts, grid, noise, shown)
    exposed = np.maximum(_count_exposed(counts), 1.0)
    error = _curve_error(curve, exposed, counts, noise)
    lower, upper = _intervals(curve, error, noise)
    means = restricted_mean(curve, grid, horizon)
    of_mean = _mean_variance(curve, exposed, grid, horizon)
    if noise:
        of_mean = of_mean + np.diag(
            _noise_covariance(lambda some: restricted_mean(_survival_curve(some), grid, horizon), counts, noise)
        )
    enough = shown[:, grid <= horizon].all(axis=1)
    tests = _test_hazards(answer, counts, noise)
    return Survival(
        times=grid,
        curves=np.where(shown, curve, np.nan),
        lower=np.where(shown, lower, np.nan),
        upper=np.where(shown, upper, np.nan),
        at_risk=at_risk,
        events=counts[:, :-1, EVENT],
        rows=counts.sum(axis=(1, 2)),
        missing=found.missing,
        horizon=horizon,
        restricted_mean=np.where(enough, means, np.nan),
        restricted_mean_error=np.where(enough, np.sqrt(of_mean), np.nan),
        least_rows=least_rows,
        noise=noise,
        answer=answer,
        **tests,
        **CommonEffects.read(answer.board, len(counts))._asdict(),
    )


def _curve_error(curve: FloatArray, exposed: FloatArray, counts: FloatArray, noise: float) -> FloatArray:
    """Standard error of the logarithm of curves, by chance and noise."""
    by_chance = np.cumsum(_greenwood_terms(curve, exposed), axis=1)
    if not noise:
        return np.sqrt(by_chance)
    drawn = [_survival_curve(some) for some in _draw_counts(counts, noise)]
    with np.errstate(divide="ignore", invalid="ignore"):
        by_noise = np.var(drawn, axis=0) / np.square(curve)
    return np.asarray(np.sqrt(by_chance + by_noise))


def _intervals(curve: FloatArray, error: FloatArray, noise: float) -> tuple[FloatArray, FloatArray]:
    """Intervals of curves: by log(-log), which stay within 0 and 1; with noise, by the curve itself."""
    if noise:
        half = Z * curve * np.nan_to_num(error)
        return np.clip(curve - half, 0.0, 1.0), np.clip(curve + half, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = Z * error / np.log(curve)
        ends = curve ** np.exp(moved), curve ** np.exp(-moved)
    lower, upper = (np.where(curve >= 1.0, 1.0, np.where(curve <= 0.0, 0.0, end)) for end in ends)
    return np.minimum(lower, upper), np.maximum(lower, upper)


def _test_hazards(answer: Answer, counts: FloatArray, noise: float) -> dict[str, Any]:
    """The log-rank test and hazard ratios: of all sites' own sums or, with noise, of the counts on the grid."""
    for total in answer.board.find(LogRankTotal):
        cross, against, spread = total.rates
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = read_ratios("hazard", cross, against, spread / (cross * against))
        more, known = total.sides
        found = _read_log_rank(*total.scores) | ratios | {"sites_more": more, "sites_known": known}
        return found | {"stratified": answer.n_sites > 1}

    c, start = len(counts), np.zeros(len(counts))

    def count(some: FloatArray) -> tuple[FloatArray, FloatArray]:
        return some[:, :-1, EVENT].T, np.maximum(_count_exposed(some), 0.0).T

    def compare(some: FloatArray) -> FloatArray:
        return np.concatenate([_compare_events(*count(some), start).excess, *_compare_rates(*count(some))[:2]])

    sums, (cross, against, spread) = _compare_events(*count(counts), start), _compare_rates(*count(counts))
    added = _noise_covariance(compare, counts, noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        moves = np.vstack([np.diag(1 / cross), -np.diag(1 / against)])  # of the logarithm of a ratio, by its two sums
        by_noise = np.diag(moves.T @ added[c:, c:] @ moves)
        ratios = read_ratios("hazard", cross, against, spread / (cross * against) + by_noise)
    nothing = np.full(c, np.nan)
    joint = _read_log_rank(sums.excess, sums.covariance + added[:c, :c])
    return joint | ratios | {"sites_more": nothing, "sites_known": nothing, "stratified": False}


def _read_log_rank(excess: FloatArray, covariance: FloatArray) -> dict[str, Any]:
    return dict(zip(("statistic", "df", "p"), excess_test(excess, covariance), strict=True))


def read_ratios(name: str, cross: FloatArray, against: FloatArray, var: FloatArray) -> dict[str, FloatArray]:
    """Compute ratios of two sums with intervals of their logarithms, whose variance is known.

    There is no interval if a cluster or the rest has no event, and no ratio if noise hides which has more.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio, moved = cross / against, np.exp(Z * np.sqrt(var))
        ends = {f"{name}_lower": ratio / moved, f"{name}_upper": ratio * moved}
        known = np.isfinite(var) & (ratio > 0)
    hidden = (cross < 0) | (against < 0)
    return {f"{name}_ratio": np.where(hidden, np.nan, ratio)} | {
        end: np.where(known & ~hidden, values, np.nan) for end, values in ends.items()
    }


def survival_phases(n_clusters: int, grid: Any) -> list[Phase[Any, Any]]:
    """The sums for curves and their test, on a grid as `outcomes` takes it."""
    if grid is not None and not isinstance(grid, Integral):
        return [CountSurvival(n_clusters, _check_grid(grid)), SumLogRank(n_clusters), CompareHazards(n_clusters)]
    counted = CountSurvival(n_clusters, intervals=0 if grid is None else check_count(grid, "grid"))
    if counted.intervals > MOST_TIMES:
        raise ValueError(f"grid={grid:,} is too many intervals; at most {MOST_TIMES:,} are counted.")
    largest = CountMagnitudes(ColumnsRequest((TIMES,), (1,), np.array([-1])))
    return [largest, counted, SumLogRank(n_clusters), CompareHazards(n_clusters)]


def _check_grid(grid: Any) -> tuple[float, ...]:
    """Times of a grid that was given, with 0 at its beginning; refuses times that do not rise."""
    try:
        times = np.asarray(list(grid) if isinstance(grid, range) else grid, np.float64)
    except (TypeError, ValueError):
        times = np.empty(0)
    if len(np.atleast_1d(times)) > MOST_TIMES:
        raise ValueError(f"grid has {len(times):,} times; at most {MOST_TIMES:,} are counted.")
    if times.ndim != 1 or not len(times) or not np.isfinite(times).all() or times[0] < 0 or np.any(np.diff(times) <= 0):
        raise ValueError(f"grid={grid!r} must be a whole number of intervals, or rising times from 0 on.")
    return tuple(times.tolist()) if times[0] == 0 else (0.0, *times.tolist())
