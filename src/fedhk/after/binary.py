"""How often an event happens in each cluster: odds ratios within sites (Mantel-Haenszel), and the test for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy import stats

from fedhk._typing import FloatArray, IntArray
from fedhk.after.columns import ColumnSum, PlaceCount, PlacesRequest
from fedhk.after.effects import ROUNDING, chi_square_test, i_squared
from fedhk.after.run import Answer, Answered
from fedhk.after.survival import Z, excess_test
from fedhk.after.tables import SURE, PrintedTable, is_small, name_outcome, show_count, show_interval, show_p, show_test
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


def _strata_sums(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute a site's terms of the odds ratios of clusters against the rest, (8, c), and of their test, (c, c).

    Of the table a, b (events and others in the cluster), c, d (in the rest), n in all: a d / n, b c / n, the three sums
    of the variance of Robins, Breslow and Greenland, events less those expected, (O - E)^2 / V, and whether V is known.
    """
    total = counts.sum()
    covariance = np.zeros((len(counts), len(counts)))
    if total < 2:
        return np.zeros((8, len(counts))), covariance
    b, a = counts.T
    d, c = (counts.sum(axis=0) - counts).T
    cross, against = a * d / total, b * c / total
    alike, unlike = (a + d) / total, (b + c) / total
    share = (a + b) / total
    events, others = a + c, b + d
    scale = (events * others / (total - 1))[0]
    covariance = scale * (np.diag(share) - np.outer(share, share))
    excess, var = a - events * share, np.diag(covariance)
    known = var > 1e-12
    squares = np.divide(np.square(excess), var, out=np.zeros_like(var), where=known)
    parts = [cross, against, alike * cross, alike * against + unlike * cross, unlike * against, excess, squares, known]
    return np.array(parts, np.float64), covariance


@dataclass(frozen=True, eq=False)
class StrataTotal(Entry):
    """What `_strata_sums` gives, added over all sites."""

    sums: FloatArray
    covariance: FloatArray


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
        sums, covariance = _strata_sums(request.count(site)[:, :2])
        return np.concatenate([sums.ravel(), covariance.ravel()])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        c = self.n_clusters
        sums, covariance = np.split(total, [8 * c])
        return board.put(StrataTotal(sums.reshape(8, c), covariance.reshape(c, c)))


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
    cluster_p : array of shape (c,)
        Test that this ratio is 1 (Cochran-Mantel-Haenszel, without correction).
    statistic, df, p : float
        Test that all clusters have the same odds, within sites.
    stratified : bool
        Whether sites are compared each by itself: not with noise.
    i_squared : array of shape (c,)
        Heterogeneity of the ratio between sites, from 0 to 1; NaN where fewer than two sites know it.
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
    cluster_p: FloatArray
    statistic: float
    df: int
    p: float
    stratified: bool
    i_squared: FloatArray
    least_rows: int
    noise: float
    answer: Answer = field(repr=False)
    name: str = ""

    def frame(self) -> Any:
        """Return a pandas data frame with one line for each cluster; small counts, and what is about them, are NaN."""
        found = {"odds_ratio": self.odds_ratio, "lower": self.odds_lower, "upper": self.odds_upper}
        found |= {"p": self.cluster_p, "i_squared": self.i_squared}
        few = self.rows < self.least_rows
        counts = {"rows": self.rows, "events": self.events}
        lines = {name: np.where(is_small(part, self.least_rows), np.nan, part) for name, part in counts.items()}
        lines |= {name: np.where(few, np.nan, part) for name, part in found.items()}
        return pandas().DataFrame({"cluster": np.arange(len(self.rows))} | lines)

    def facts(self) -> dict[str, Any]:
        return {"p": self.p, "statistic": self.statistic}

    def table(self) -> PrintedTable:
        """Make a table with one line for each cluster."""
        rows, off = [], self.noise * math.sqrt(2)  # rows are the sum of two counts
        for k in range(len(self.rows)):
            shown = self.rows[k] >= max(self.least_rows, SURE * off)
            ratio = show_interval(self.odds_ratio[k], self.odds_lower[k], self.odds_upper[k], 2)
            rows.append(
                [
                    f"cluster {k}",
                    show_count(self.rows[k], self.least_rows, noise=off),
                    show_count(self.events[k], self.least_rows, self.rows[k], self.noise),
                    ratio if shown else "–",
                    show_p(self.cluster_p[k]) if shown else "–",
                    number(self.i_squared[k], 2) if shown else "–",
                ]
            )
        head = ["", "rows", "events", "odds ratio to the rest", "p", "I²"]
        return PrintedTable(name_outcome(self.name), head, rows, self.notes)

    @property
    def notes(self) -> list[str]:
        """Notes below the table."""
        of = "within sites (Cochran-Mantel-Haenszel)" if self.stratified else "over all sites together"
        notes = [
            show_test(f"All clusters, {of}", f"chi-square {number(self.statistic)}, df {self.df}", self.p),
            f"Intervals are of 95 %. Counts below {self.least_rows} are not shown.",
        ]
        return notes + self._noise_notes()


def read_binary(answer: Answer, least_rows: int) -> BinaryOutcome:
    """Compute odds ratios and tests from sums over all sites."""
    found = answer.board.get(EventCounts)
    known = {"rows": found.counts.sum(axis=1), "events": found.counts[:, 1], "missing": found.missing}
    tests = next((_within_sites(total) for total in answer.board.find(StrataTotal)), None)
    if tests is None:
        tests = _over_sites(found)
    return BinaryOutcome(**known, **tests, least_rows=least_rows, noise=found.noise, answer=answer)


def _within_sites(total: StrataTotal) -> dict[str, Any]:
    cross, against, first, mixed, last, excess, squares, sites = total.sums
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = cross / against
        # Robins, Breslow and Greenland 1986
        var = first / (2 * cross**2) + mixed / (2 * cross * against) + last / (2 * against**2)
    own = np.diag(total.covariance)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(own > ROUNDING, stats.chi2.sf(np.square(excess) / own, 1), np.nan)
    statistic, df, p = excess_test(excess, total.covariance)
    between = i_squared(own, excess, squares, sites)
    return _ratios(ratio, var) | {
        "cluster_p": each,
        "statistic": statistic,
        "df": df,
        "p": p,
        "stratified": True,
        "i_squared": between,
    }


def _ratios(ratio: FloatArray, var: FloatArray) -> dict[str, FloatArray]:
    """Compute ratios with intervals of their logarithms; no interval if a cluster or the rest has no event."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moved = np.exp(Z * np.sqrt(var))
        lower, upper = ratio / moved, ratio * moved
    known = np.isfinite(var)
    return {
        "odds_ratio": ratio,
        "odds_lower": np.where(known, lower, np.nan),
        "odds_upper": np.where(known, upper, np.nan),
    }


def _over_sites(found: EventCounts) -> dict[str, Any]:
    """Compute ratios of counts with noise, over all sites together."""
    counts, noise = np.maximum(found.counts, 0.5), found.noise**2
    rest = counts.sum(axis=0) - counts
    c = len(counts)
    # the noise in the rest is that of all other clusters
    var = np.sum(1 / counts + noise / counts**2 + 1 / rest + (c - 1) * noise / rest**2, axis=1)
    ratio = counts[:, 1] * rest[:, 0] / (counts[:, 0] * rest[:, 1])
    tested = chi_square_test(counts, noise)
    each = 2 * stats.norm.sf(np.abs(np.log(ratio)) / np.sqrt(var))
    joint = {"statistic": tested.statistic, "df": int(np.nan_to_num(tested.df)), "p": tested.p}
    return _ratios(ratio, var) | joint | {"cluster_p": each, "stratified": False, "i_squared": np.full(c, np.nan)}
