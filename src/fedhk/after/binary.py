"""How often an event happens in each cluster: odds ratios within sites (Mantel-Haenszel), and the test for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.after.columns import ColumnSum, PlaceCount, PlacesRequest
from fedhk.after.common_effects import CommonEffects, EffectsRequest, FitEffects, Scores
from fedhk.after.effects import ROUNDING, chi_square_test
from fedhk.after.run import Answer, Answered
from fedhk.after.survival import excess_test, read_ratios
from fedhk.after.tables import (
    SURE,
    PrintedTable,
    is_small,
    name_outcome,
    show_count,
    show_interval,
    show_p,
    show_sites,
    show_test,
)
from fedhk.data.frames import pandas
from fedhk.data.outcomes import EVENTS
from fedhk.federation.board import Board, Entry
from fedhk.federation.placed import PlacedSite
from fedhk.privacy.mechanism import AFTER
from fedhk.summary.words import number


@dataclass(frozen=True, eq=False)
class EventCounts(Entry):
    """Rows by cluster, without and with an event, (c, 2), and those of which it is not known, (c,)."""

    counts: FloatArray
    missing: FloatArray
    noise: float


@dataclass(frozen=True)
class EventsRequest(PlacesRequest):
    """Ask for rows by cluster: without an event, with one, and not known."""

    views: ClassVar[tuple[str, ...]] = (EVENTS,)

    @property
    def n_places(self) -> int:
        return 3

    def find_places(self, values: FloatArray) -> IntArray:
        return np.where(np.isnan(values[:, 0]), 2, values[:, 0] > 0).astype(np.intp)


@dataclass(frozen=True)
class CountEvents(PlaceCount[EventsRequest]):
    """Count events by cluster."""

    name: ClassVar[str] = AFTER + "events"
    questions: ClassVar[tuple[str, ...]] = ("outcomes",)

    n_clusters: int

    def request(self, board: Board) -> EventsRequest:
        return EventsRequest(self.n_clusters)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        counts = total.reshape(self.n_clusters, 3)
        return board.put(EventCounts(counts[:, :2], counts[:, 2], noise))


def _compare_events(counts: FloatArray, effects: FloatArray) -> Scores:
    """Compare the events of one stratum, (c, 2), with those expected, given logarithms of odds ratios.

    The odds of the site are such that it has as many events as it has.
    """
    rows, (others, events), total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    c = len(counts)
    if min(others, events) <= 0 or total < 2:
        return Scores(np.zeros(c), np.zeros((c, c)))
    reach = float(np.abs(effects).max()) + 1.0
    middle = math.log(events / others)
    odds = brentq(lambda own: rows @ expit(own + effects) - events, middle - reach, middle + reach)
    share = expit(odds + effects)
    # conditional on the events of the site, as the hypergeometric distribution of Mantel and Haenszel
    weight = rows * share * (1.0 - share)
    covariance = (np.diag(weight) - np.outer(weight, weight) / weight.sum()) * total / (total - 1)
    return Scores(counts[:, 1] - rows * share, covariance)


def _strata_sums(counts: FloatArray) -> tuple[FloatArray, Scores]:
    """Compute a site's terms of the odds ratios of clusters against the rest, (5, c), and of their test.

    Of the table a, b (events and others in the cluster), c, d (in the rest), n in all: a d / n, b c / n, and the three
    sums of the variance of Robins, Breslow and Greenland.
    """
    total, scores = counts.sum(), _compare_events(counts, np.zeros(len(counts)))
    if total < 2:
        return np.zeros((5, len(counts))), scores
    b, a = counts.T
    d, c = (counts.sum(axis=0) - counts).T
    cross, against = a * d / total, b * c / total
    alike, unlike = (a + d) / total, (b + c) / total
    return np.array([cross, against, alike * cross, alike * against + unlike * cross, unlike * against]), scores


@dataclass(frozen=True, eq=False)
class StrataTotal(Entry):
    """What `_strata_sums` gives, added over all sites, and at how many sites clusters have more events."""

    sums: FloatArray
    scores: Scores
    sides: FloatArray


@dataclass(frozen=True)
class CompareEvents(ColumnSum[EventsRequest]):
    """Compare clusters with the rest by odds ratios within sites."""

    name: ClassVar[str] = AFTER + "odds"
    questions: ClassVar[tuple[str, ...]] = ("outcomes",)
    with_noise: ClassVar[bool] = False  # products of counts have no bound that one row keeps

    n_clusters: int

    def request(self, board: Board) -> EventsRequest:
        return EventsRequest(self.n_clusters)

    def size(self, board: Board) -> int:
        return self.n_clusters * (8 + self.n_clusters)

    @staticmethod
    def vector(site: PlacedSite, request: EventsRequest) -> FloatArray:  # type: ignore[override]
        sums, scores = _strata_sums(request.count(site)[:, :2])
        return np.concatenate([part.ravel() for part in (sums, *scores, scores.count_sides())])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        c = self.n_clusters
        sums, excess, covariance, sides = np.split(total, np.cumsum([5 * c, c, c * c]))
        scores = Scores(excess, covariance.reshape(c, c))
        return board.put(StrataTotal(sums.reshape(5, c), scores, sides.reshape(2, c)))


@dataclass(frozen=True)
class CompareOdds(FitEffects):
    """Odds ratios of clusters that are the same at all sites, and how far sites differ from them."""

    name: ClassVar[str] = AFTER + "common odds"

    @classmethod
    def score(cls, site: PlacedSite, request: EffectsRequest) -> Scores:
        return _compare_events(EventsRequest(request.n_clusters).count(site)[:, :2], request.effects)


@dataclass(frozen=True, eq=False)
class BinaryOutcome(Answered):
    """An event by cluster.

    Parameters
    ----------
    rows, events, missing : array of shape (c,)
        Rows of which it is known, those that had it, and rows of which it is not known.
    odds_ratio, odds_lower, odds_upper : array of shape (c,)
        Odds of each cluster against all other rows of the same site (Mantel-Haenszel), and its 95 % interval; with
        noise, against all other rows.
    sites_more, sites_known : array of shape (c,)
        Sites at which the cluster has more events than its other rows lead one to expect, and sites where it can be
        compared; NaN with noise.
    cluster_p : array of shape (c,)
        Test that this ratio is 1 (Cochran-Mantel-Haenszel, without correction).
    statistic, df, p : float
        Test that all clusters have the same odds, within sites.
    stratified : bool
        Whether sites are compared each by itself: not with noise.
    i_squared : array of shape (c,)
        Heterogeneity of the ratio between sites, from 0 to 1: of what a site differs from the common ratios of all
        clusters, given the clusters that it has. NaN where fewer than two sites know it.
    sites_p : array of shape (c,)
        Test that all sites have the common ratios (Cochran's Q), not adjusted for the number of clusters.
    least_rows : int
        Smaller counts are not shown.
    noise : float
        Standard deviation of the noise in counts.
    answer : Answer
        What was sent, and what it spent.
    name : str
        The column, where it was given by name.
    """

    rows: FloatArray
    events: FloatArray
    missing: FloatArray
    odds_ratio: FloatArray
    odds_lower: FloatArray
    odds_upper: FloatArray
    sites_more: FloatArray
    sites_known: FloatArray
    cluster_p: FloatArray
    statistic: float
    df: int
    p: float
    stratified: bool
    i_squared: FloatArray
    sites_p: FloatArray
    least_rows: int
    noise: float
    answer: Answer = field(repr=False)
    name: str = ""

    def frame(self) -> Any:
        """Return a pandas data frame with one line for each cluster; small counts, and what is about them, are NaN."""
        found = {"odds_ratio": self.odds_ratio, "lower": self.odds_lower, "upper": self.odds_upper}
        found |= {"p": self.cluster_p, "i_squared": self.i_squared, "sites_p": self.sites_p}
        few = self.rows < self.least_rows
        lines = {"rows": np.where(is_small(self.rows, self.least_rows), np.nan, self.rows)}
        lines["events"] = np.where(is_small(self.events, self.least_rows) | self._tells_others, np.nan, self.events)
        lines |= {name: np.where(few, np.nan, part) for name, part in found.items()}
        return pandas().DataFrame({"cluster": np.arange(len(self.rows))} | lines)

    @property
    def _tells_others(self) -> BoolArray:
        """Clusters whose events would tell a small count of rows without one; with noise they do not."""
        return is_small(self.rows - self.events, self.least_rows) & (self.noise == 0)

    def facts(self) -> dict[str, Any]:
        return {"p": self.p, "statistic": self.statistic}

    def table(self) -> PrintedTable:
        """Make a table with one line for each cluster."""
        rows, off = [], self.noise * math.sqrt(2)  # rows are the sum of two counts
        for k in range(len(self.rows)):
            shown = self.rows[k] >= max(self.least_rows, SURE * off)
            ratio = show_interval(self.odds_ratio[k], self.odds_lower[k], self.odds_upper[k], 2)
            events = show_count(self.events[k], self.least_rows, self.rows[k], self.noise)
            rows.append(
                [
                    f"cluster {k}",
                    show_count(self.rows[k], self.least_rows, noise=off),
                    "–" if self._tells_others[k] and self.events[k] >= self.least_rows else events,
                    ratio if shown else "–",
                    show_p(self.cluster_p[k]) if shown else "–",
                    number(self.i_squared[k], 2) if shown else "–",
                    show_sites(self.sites_more[k], self.sites_known[k]) if shown else "–",
                ]
            )
        head = ["", "rows", "events", "odds ratio to the rest", "p", "I²", "sites with more"]
        return PrintedTable(name_outcome(self.name), head, rows, self.notes)

    @property
    def notes(self) -> list[str]:
        """Notes below the table."""
        of = self._tell_strata(", within sites (Cochran-Mantel-Haenszel)", stratified=self.stratified)
        notes = [
            show_test(f"All clusters{of}", f"chi-square {number(self.statistic)}, df {self.df}", self.p),
            f"Intervals are of 95 %. Counts below {self.least_rows} are not shown, nor events that would tell them.",
        ]
        return notes + self._noise_notes()


def read_binary(answer: Answer, least_rows: int) -> BinaryOutcome:
    """Compute odds ratios and tests from sums over all sites."""
    found = answer.board.get(EventCounts)
    known = {"rows": found.counts.sum(axis=1), "events": found.counts[:, 1], "missing": found.missing}
    within = next((_within_sites(total) for total in answer.board.find(StrataTotal)), None)
    tests = _over_sites(found) if within is None else within
    tests |= CommonEffects.read(answer.board, len(found.counts))._asdict()
    stratified = within is not None and answer.n_sites > 1
    return BinaryOutcome(
        **known, **tests, stratified=stratified, least_rows=least_rows, noise=found.noise, answer=answer
    )


def _within_sites(total: StrataTotal) -> dict[str, Any]:
    cross, against, first, mixed, last = total.sums
    excess, covariance = total.scores
    with np.errstate(divide="ignore", invalid="ignore"):
        # Robins, Breslow and Greenland 1986
        var = first / (2 * cross**2) + mixed / (2 * cross * against) + last / (2 * against**2)
    own = np.diag(covariance)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(own > ROUNDING, stats.chi2.sf(np.square(excess) / own, 1), np.nan)
    statistic, df, p = excess_test(excess, covariance)
    more, known = total.sides
    tests = {"cluster_p": each, "statistic": statistic, "df": df, "p": p}
    return read_ratios("odds", cross, against, var) | tests | {"sites_more": more, "sites_known": known}


def _over_sites(found: EventCounts) -> dict[str, Any]:
    """Compute ratios of counts with noise, over all sites together."""
    counts, noise = np.maximum(found.counts, 0.5), found.noise**2
    rest = counts.sum(axis=0) - counts
    c = len(counts)
    # the noise in the rest is that of all other clusters
    var = np.sum(1 / counts + noise / counts**2 + 1 / rest + (c - 1) * noise / rest**2, axis=1)
    ratios = read_ratios("odds", counts[:, 1] * rest[:, 0], counts[:, 0] * rest[:, 1], var)
    tested = chi_square_test(counts, noise)
    each = 2 * stats.norm.sf(np.abs(np.log(ratios["odds_ratio"])) / np.sqrt(var))
    joint = {"statistic": tested.statistic, "df": int(np.nan_to_num(tested.df)), "p": tested.p, "cluster_p": each}
    return ratios | joint | dict.fromkeys(("sites_more", "sites_known"), np.full(c, np.nan))
