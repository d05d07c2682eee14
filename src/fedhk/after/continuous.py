"""How a number differs between clusters: means by cluster, and an analysis of variance within sites."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy import stats

from fedhk._typing import FloatArray
from fedhk.after.columns import (
    ClusterColumns,
    ColumnsRequest,
    ColumnSum,
    CompareSites,
    CountMagnitudes,
    SiteDifferences,
    SumColumns,
    SumMoments,
    Units,
    UnitsRequest,
    compare_with_rest,
)
from fedhk.after.effects import ROUNDING, eta_squared, invert_covariance, welch_test
from fedhk.after.noisy_columns import read_known
from fedhk.after.run import Answer, Answered
from fedhk.after.survival import Z
from fedhk.after.tables import PrintedTable, is_small, name_outcome, show_count, show_interval, show_test
from fedhk.data.frames import pandas
from fedhk.data.outcomes import VALUES
from fedhk.federation.board import Board, Entry
from fedhk.federation.phases.base import Phase
from fedhk.federation.placed import PlacedSite
from fedhk.privacy.mechanism import AFTER
from fedhk.summary.words import number

COLUMN = ColumnsRequest((VALUES,), (1,), np.array([-1]))


@dataclass(frozen=True, eq=False)
class WithinRequest:
    """Ask for sums within a site, in units of the outcome."""

    units: UnitsRequest
    n_clusters: int


@dataclass(frozen=True, eq=False)
class WithinSites(Entry):
    """Sums over sites of an analysis of variance within them."""

    design: FloatArray  # (c, c): rows of clusters, less what follows from the site
    effect: FloatArray  # (c,): sums of the outcome, the same
    squares: float  # about the mean of the site
    rows: float
    sites: float


@dataclass(frozen=True)
class SumWithin(ColumnSum[WithinRequest]):
    """Compute the sums of an analysis of variance of clusters, within sites."""

    name: ClassVar[str] = AFTER + "within"
    questions: ClassVar[tuple[str, ...]] = ("outcomes",)
    with_noise: ClassVar[bool] = False  # products of counts have no bound that one row keeps

    n_clusters: int

    def request(self, board: Board) -> WithinRequest:
        units = board.get(Units)
        return WithinRequest(UnitsRequest(COLUMN, units.shift, units.scale), self.n_clusters)

    def size(self, board: Board) -> int:
        return self.n_clusters * (self.n_clusters + 1) + 3

    @staticmethod
    def vector(site: PlacedSite, request: WithinRequest) -> FloatArray:  # type: ignore[override]
        c = request.n_clusters
        count, total, squares = np.zeros(c), np.zeros(c), 0.0
        for labels, cells in COLUMN.blocks(site):
            values = ((cells - request.units.shift) / request.units.scale)[:, 0]
            known = ~np.isnan(values)
            count += np.bincount(labels[known], minlength=c)
            total += np.bincount(labels[known], values[known], minlength=c)
            squares += float(np.sum(np.square(values[known])))
        rows = max(float(count.sum()), 1.0)
        design = np.diag(count) - np.outer(count, count) / rows
        effect = total - count * total.sum() / rows
        tail = [squares - total.sum() ** 2 / rows, count.sum(), float(count.sum() > 0)]
        return np.concatenate([design.ravel(), effect, tail])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        c = self.n_clusters
        design, effect, tail = np.split(total, [c * c, c * c + c])
        return board.put(WithinSites(design.reshape(c, c), effect, *map(float, tail)))


def continuous_phases(n_clusters: int) -> list[Phase[Any, Any]]:
    """Return the phases for one outcome."""
    first: list[Phase[Any, Any]] = [CountMagnitudes(COLUMN), SumMoments(COLUMN)]
    return [*first, SumColumns(COLUMN, n_clusters, 0), CompareSites(COLUMN, n_clusters), SumWithin(n_clusters)]


@dataclass(frozen=True, eq=False)
class ContinuousOutcome(Answered):
    """A number by cluster.

    Parameters
    ----------
    rows, missing : array of shape (c,)
        Rows of which it is known, and of which it is not.
    mean, spread, error : array of shape (c,)
        Mean, standard deviation, and standard error of the mean.
    difference : array of shape (c,)
        Mean less that of all other rows, in standard deviations.
    adjusted_mean : array of shape (c,)
        Mean of each cluster once differences between sites are taken out; that of all rows is kept.
    statistic, df, df_rest, p : float
        Analysis of variance of clusters within sites (site as a factor); with noise Welch's test over all sites.
    eta_squared : float
        Share of the variance within sites that clusters explain.
    stratified : bool
        Whether sites are compared each by itself: not with noise.
    i_squared : array of shape (c,)
        Heterogeneity of the difference between sites, from 0 to 1; NaN where fewer than two sites know it.
    sites_p : array of shape (c,)
        Test that the difference is the same at all sites (Cochran's Q), not adjusted for the number of clusters.
    least_rows : int
        Numbers about fewer rows are not shown.
    noise : float
        Standard deviation of the noise in counts.
    answer : Answer
        What was sent, and what it spent.
    name : str
        The column, where it was given by name.
    """

    rows: FloatArray
    missing: FloatArray
    mean: FloatArray
    spread: FloatArray
    error: FloatArray
    difference: FloatArray
    adjusted_mean: FloatArray
    statistic: float
    df: float
    df_rest: float
    p: float
    eta_squared: float
    stratified: bool
    i_squared: FloatArray
    sites_p: FloatArray
    least_rows: int
    noise: float
    answer: Answer = field(repr=False)
    name: str = ""

    def frame(self) -> Any:
        """Return a pandas data frame with one line for each cluster; small counts, and what is about them, are NaN."""
        found = {"mean": self.mean, "spread": self.spread, "error": self.error, "adjusted_mean": self.adjusted_mean}
        found |= {"difference": self.difference, "i_squared": self.i_squared, "sites_p": self.sites_p}
        lines = {"rows": np.where(is_small(self.rows, self.least_rows), np.nan, self.rows)}
        lines |= {name: np.where(self.rows < self.least_rows, np.nan, part) for name, part in found.items()}
        return pandas().DataFrame({"cluster": np.arange(len(self.rows))} | lines)

    def facts(self) -> dict[str, Any]:
        return {"p": self.p, "statistic": self.statistic}

    def table(self) -> PrintedTable:
        """Make a table with one line for each cluster."""
        rows = []
        for k in range(len(self.rows)):
            low, high = self.mean[k] - Z * self.error[k], self.mean[k] + Z * self.error[k]
            shown = self.rows[k] >= self.least_rows
            cells = [show_interval(self.mean[k], low, high), number(self.adjusted_mean[k])]
            cells += [number(self.difference[k], 2), number(self.i_squared[k], 2)]
            count = show_count(self.rows[k], self.least_rows, noise=self.noise)
            rows.append([f"cluster {k}", count, *(cells if shown else ["–"] * len(cells))])
        head = ["", "rows", "mean", "mean within sites", "standardised difference to the rest", "I²"]
        return PrintedTable(name_outcome(self.name), head, rows, self.notes)

    @property
    def notes(self) -> list[str]:
        """Notes below the table."""
        test = "Welch's test" if self.noise else "Analysis of variance"
        of = test + self._tell_strata(" within sites", stratified=self.stratified)
        found = f"F {number(self.statistic)}, df {self.df:,.4g} and {self.df_rest:,.4g}"
        notes = [
            show_test(of, f"{found}, eta squared {number(self.eta_squared, 2)}", self.p),
            f"Intervals are of 95 %. Numbers about fewer than {self.least_rows} rows are not shown.",
        ]
        return notes + self._noise_notes()


def read_continuous(answer: Answer, least_rows: int) -> ContinuousOutcome:
    """Compute means and tests from sums over all sites."""
    board = answer.board
    found, units = board.get(ClusterColumns), board.get(Units)
    shift, scale = float(units.shift[0]), float(units.scale[0])
    known = read_known(found, COLUMN)
    count, mean, spread = known.columns.seen[:, 0], known.mean[:, 0], known.spread[:, 0]
    shown, var = ~np.isnan(mean), known.most_variance[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = np.square(found.noise) * (1 + np.square(mean)) / np.square(count)
        error = np.sqrt(var / count + noise)
    tested = welch_test(np.where(shown, count, 0.0), mean, var, np.nan_to_num(noise))
    tests: dict[str, Any] = dict(zip(("statistic", "df", "df_rest", "p"), tested, strict=True))
    sure = not found.noise or not np.isnan(spread[shown]).any()
    tests |= {"eta_squared": eta_squared(np.where(shown, count, 0.0), mean, var) if sure else np.nan}
    adjusted = mean
    for within in board.find(WithinSites):
        tests, own = _analyse_within(within)
        # means of clusters that no site connects cannot be compared
        connected = shown & (tests["df"] + 1 >= shown.sum())
        adjusted = own + (found.sums.sum() - own @ count) / max(float(count.sum()), 1.0)
        adjusted = np.where(connected, adjusted, np.nan)
    sites = SiteDifferences.read(board, known.columns)
    return ContinuousOutcome(
        rows=count,
        missing=known.columns.rows - count,
        mean=shift + scale * mean,
        spread=scale * spread,
        error=scale * error,
        difference=np.where(np.isnan(spread) | ~known.rest[:, 0], np.nan, compare_with_rest(known.columns)[:, 0]),
        adjusted_mean=shift + scale * adjusted,
        stratified=board.has(WithinSites) and answer.n_sites > 1,
        i_squared=sites.i_squared[:, 0],
        sites_p=sites.sites_p[:, 0],
        least_rows=least_rows,
        noise=found.noise,
        answer=answer,
        **tests,
    )


def _analyse_within(found: WithinSites) -> tuple[dict[str, float], FloatArray]:
    """Compute the F test of clusters with sites as a factor, and the effect of each cluster, in units."""
    inverse, df = invert_covariance(found.design)
    own = inverse @ found.effect
    explained = float(found.effect @ own)
    rest, df_rest = found.squares - explained, found.rows - found.sites - df
    if df < 1 or df_rest < 1 or found.squares <= ROUNDING * found.rows:  # a constant, but for rounding
        return {"statistic": np.nan, "df": df, "df_rest": df_rest, "p": np.nan, "eta_squared": np.nan}, own
    # where clusters explain all, what is left is rounding
    statistic = explained / df / (rest / df_rest) if rest > ROUNDING * found.squares else np.inf
    p = float(stats.f.sf(statistic, df, df_rest))
    share = min(explained / found.squares, 1.0)
    return {"statistic": statistic, "df": df, "df_rest": df_rest, "p": p, "eta_squared": share}, own
