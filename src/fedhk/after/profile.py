"""What clusters are: means, spreads, quartiles and shares of every column by cluster, with effect sizes and tests."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedhk._records import Record, Records
from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.after.columns import (
    BINS,
    MOST_NUMBERS,
    BinEdges,
    ClusterColumns,
    ColumnsRequest,
    CompareSites,
    CountMagnitudes,
    FindBins,
    SiteDifferences,
    SumColumns,
    SumMoments,
    Units,
    bin_edges,
    compare_with_rest,
    describe_columns,
    read_quartiles,
)
from fedhk.after.effects import FEWEST, ROUNDING, adjust_p_values, chi_square_test, cramers_v, eta_squared, welch_test
from fedhk.after.noisy_columns import Known, expect_rows, read_known
from fedhk.after.run import Answer, Answered, AskedView, ask_sites, find_sites, known_views, take_sites
from fedhk.after.tables import LEAST_ROWS, ROWS_OVER_NOISE, SURE, PrintedTable, find_hidden, show_count, show_p
from fedhk.data.checks import check_count
from fedhk.data.dictionary import Dictionary
from fedhk.data.frames import pandas
from fedhk.data.levels import base_name, date_columns, is_level, level_name, ordered_levels
from fedhk.errors import DataError
from fedhk.estimators.sealing import check_question_options
from fedhk.federation.board import Board
from fedhk.federation.engines.base import RemoteEngine
from fedhk.federation.phases.base import Phase
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.summary.words import number, show_date

CIRCULAR = (
    "Circular: columns marked * made the clusters, so that they differ between clusters by construction, and their "
    "p-values test nothing. Those of other columns are honest."
)


# Digits that sums under masks have: nine, and more after division by the number of rows.
ROUNDING_OF_MEANS = 1e-10

# Levels of a category of which one tells the other.
TWO_LEVELS = 2

# A whole number other than 0 and 1 adds at least 2 to the sum of squares less the sum; what is below 1 is rounding.
LEAST_SQUARE = 1.0


@dataclass(frozen=True)
class Column:
    """A column or one level of a category: its view, its name, its level ("" of a number), and if it made clusters."""

    view: str
    name: str
    level: str
    used: bool
    is_date: bool = False  # its numbers are days since 1970
    order: tuple[str, ...] = ()  # levels of an ordered column, whose numbers are ranks from 0 on

    @property
    def label(self) -> str:
        """Name in pictures: a feature without a name is shown by its view and number."""
        if self.level:
            return f"{self.name} = {self.level}"
        return f"{self.view} {self.name}" if self.name[:1].isdigit() else self.name


@dataclass(frozen=True, eq=False)
class Profile(Answered):
    """What clusters are, column by column. Arrays are of shape (clusters, columns), with levels as columns.

    Parameters
    ----------
    columns : list of Column
        The columns, in order.
    rows : array of shape (c,)
        Rows of each cluster.
    seen : array of shape (c, d)
        Rows with a value.
    mean, spread : array of shape (c, d)
        Mean and standard deviation; of a level the share of rows that have it.
    quartiles : array of shape (3, c, d)
        First quartile, median, third quartile, read off histograms; NaN of levels.
    difference : array of shape (c, d)
        Standardised difference to all other rows.
    i_squared : array of shape (c, d)
        Heterogeneity of that difference between sites, from 0 to 1; NaN with noise, or where one site knows it alone.
        Sites may have other mixes of clusters in the other rows: that does not count as heterogeneity.
    sites_p : array of shape (c, d)
        Test that the difference is the same at all sites (Cochran's Q), not adjusted for the number of differences.
    overall_mean, overall_spread, overall_quartiles
        The same of all rows.
    tests : list of dict
        For each number and category: view, column, test, statistic, df, df_rest, p, p_adjusted, effect, effect_size,
        circular. It shows itself as a table.
    least_rows : int
        Numbers about fewer rows are not shown.
    noise : float
        Standard deviation of the noise in counts of rows; 0 without noise. With noise all numbers are put back into
        what rows between the bounds can have, and those that it hides are NaN.
    answer : Answer
        What was sent, and what it spent.
    ranks : dict of int to array of shape (levels, c)
        Rows of each level of ordered columns, by the place of the column; none with noise, or without `bins`.
    binary : list of int
        Places of numbers that are 0 or 1 in every row, such as true and false; none with noise, or without `bins`. The
        table shows how many rows have 1.
    error : array of shape (c, d) or None
        How far noise moves means and shares, either way: two standard deviations. NaN where it hides them; None without
        noise.
    overall_error : array of shape (d,) or None
        The same of all rows.
    """

    columns: list[Column]
    rows: FloatArray
    seen: FloatArray
    mean: FloatArray
    spread: FloatArray
    quartiles: FloatArray
    difference: FloatArray
    i_squared: FloatArray
    sites_p: FloatArray
    overall_mean: FloatArray
    overall_spread: FloatArray
    overall_quartiles: FloatArray
    tests: Records
    least_rows: int
    noise: float
    answer: Answer = field(repr=False)
    ranks: dict[int, FloatArray] = field(default_factory=dict)
    binary: list[int] = field(default_factory=list)
    error: FloatArray | None = None
    overall_error: FloatArray | None = None

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.rows)

    @property
    def labels(self) -> list[str]:
        """Names of the columns in pictures, with the view in front where several views have a column of the name."""
        counts = Counter(column.label for column in self.columns)
        return [c.label if counts[c.label] == 1 else f"{c.view}: {c.label}" for c in self.columns]

    @property
    def notes(self) -> list[str]:
        """Notes below the table."""
        notes = [
            "Numbers are mean (standard deviation) and median [quartiles]; levels, and numbers that are 0 or 1, are "
            "rows (share of known).",
            "Effect: eta squared of numbers (Welch's test), Cramer's V of categories (chi-square test).",
            "Quartiles are read off histograms with equal bins between the bounds of a column, and no finer than these."
            if self.noise
            else "Quartiles of whole numbers with few values are exact. Others are approximate: they are read off "
            "histograms with narrow bins where the clusters are. With other clusters, even those of all rows differ a "
            "little.",
            "p-values are adjusted for the number of columns of their kind (Benjamini-Hochberg).",
            f"Numbers about fewer than {self.least_rows} rows are not shown, nor counts that would give them away (–).",
        ]
        if any(column.used for column in self.columns):
            notes.append(CIRCULAR)
        return notes + self._noise_notes()

    def _noise_notes(self) -> list[str]:
        if not self.noise:
            return []
        off, needed = number(SURE * self.noise, 2), number(math.ceil(ROWS_OVER_NOISE * self.noise), 2)
        of_all = number(SURE * self.noise * math.sqrt(self.n_clusters), 2)
        return [
            f"With noise: rows and levels of a cluster are right within ± {off}, means within the ± beside them, 95 "
            f"times in 100. Counts of all rows add those of the clusters (± {of_all}). Missing cells are what is left "
            "of rows: where few are missing, their number says little. Tests include the noise.",
            f"What noise hides is left out (–): means and shares of clusters with fewer than about {needed} rows, and "
            "means that it moves by more than rows differ. Tests and effects are of the clusters that are shown.",
        ]

    def frame(self) -> Any:
        """Return a pandas data frame with one line for each cluster and column; small cells are NaN."""
        lines = []
        hidden, hidden_seen = self._hidden_cells()
        hidden_rows = self._find_hidden(self.rows[None])[0]
        for place, column in enumerate(self.columns):
            for k in range(self.n_clusters):
                shown = self.seen[k, place] >= self.least_rows and not hidden[k, place]
                values = {
                    "mean": self.mean,
                    "spread": self.spread,
                    **dict(zip(("quartile_1", "median", "quartile_3"), self.quartiles, strict=True)),
                    "difference": self.difference,
                    "i_squared": self.i_squared,
                    "sites_p": self.sites_p,
                }
                head = {"view": column.view, "column": column.name, "level": column.level or None, "cluster": k}
                counts = {
                    "rows": np.nan if hidden_rows[k] else self._count(self.rows[k]),
                    "seen": np.nan if hidden_seen[k, place] else self._count(self.seen[k, place]),
                }
                if self.error is not None:
                    values["noise"] = self.error
                kept = {name: float(part[k, place]) if shown else np.nan for name, part in values.items()}
                lines.append(head | counts | kept | {"used": column.used})
        return pandas().DataFrame(lines)

    def _hidden_cells(self) -> tuple[BoolArray, BoolArray]:
        """Find the shares of levels, and the numbers of known cells, that would give a small count away, (c, d)."""
        numbers, seen = np.zeros((2, *self.mean.shape), bool)
        for places in self._places:
            lines, hidden = self._count_lines(places)
            seen[:, places] = hidden[-1][:, None]
            if len(lines) == len(places):  # one line for each level, or for the ones of 0 and 1
                numbers[:, places] = hidden[:-1].T
        return numbers, seen

    def _count(self, count: float) -> float:
        return count if count == 0 or count >= self.least_rows else np.nan

    def facts(self) -> dict[str, Any]:
        return {"tests": list(self.tests)}

    def table(self) -> PrintedTable:
        """Make the "Table 1" of a paper."""
        head = ["", "all", *(f"cluster {k}" for k in range(self.n_clusters)), "effect", "p adjusted"]
        everywhere = np.full(self.n_clusters, float(self.rows.sum()))
        sizes = self._show_counts(self.rows, everywhere, self._find_hidden(self.rows[None])[0])
        rows = [["rows", f"{everywhere[0]:,.0f}", *sizes, "", ""]]
        for found, test in zip(self._places, self.tests, strict=True):
            column, first = self.columns[found[0]], found[0]
            mark = "*" if test["circular"] else ""
            name = self._name_line(column)
            tail = [number(test["effect_size"], 2), show_p(test["p_adjusted"])]
            lines, hidden = self._count_lines(found)
            totals = self._count_totals(found, lines)
            shown = [
                self._level_row(*line, total, self.seen[:, first], hide)
                for line, total, hide in zip(lines, totals, hidden[:-1], strict=True)
            ]
            if first in self.binary:
                rows.append([f"{name} = 1{mark}", *shown[0][1:-2], *tail])
            elif lines:
                rows += [[f"{name}{mark}", *[""] * (1 + self.n_clusters), *tail], *shown]
            else:
                order = column.order
                ranks = f" (0 is {order[0]}, {len(order) - 1} is {order[-1]})" if order else ""
                rows += self._number_rows(f"{name}{ranks}{mark}", first, tail)
            missing = self._missing(first)
            # with noise, both counts of each cluster have it
            if missing.sum() > max(0.5, SURE * self.noise * math.sqrt(2 * self.n_clusters)):
                total = self._show_count(float(missing.sum()), everywhere[0], self.n_clusters)
                rows.append(["    missing", total, *self._show_counts(missing, self.rows, hidden[-1]), "", ""])
        return PrintedTable("What the clusters are", head, rows, self.notes)

    def _name_line(self, column: Column) -> str:
        """Name a column in the table; where there are several views, with its own."""
        if len({each.view for each in self.columns}) > 1:
            return f"{column.view}: {column.name}"
        return column.name if column.level else column.label

    @property
    def _places(self) -> list[list[int]]:
        """The numbers of the features of each column: one, or one for each level."""
        places: dict[Any, list[int]] = {}
        for place, column in enumerate(self.columns):
            # several columns of numbers may have the same name
            key = (column.view, column.name) if column.level else place
            places.setdefault(key, []).append(place)
        return list(places.values())

    @property
    def told_places(self) -> IntArray:
        """The features that say something of their own: of a category with two levels, the second one says all."""
        spared = {places[0] for places in self._places if len(places) == TWO_LEVELS}
        return np.array([place for place in range(len(self.columns)) if place not in spared], np.intp)

    def _missing(self, place: int) -> FloatArray:
        """Count the rows of each cluster without a value."""
        return np.asarray(self.rows - self.seen[:, place])

    def _count_lines(self, places: Sequence[int]) -> tuple[list[tuple[str, FloatArray]], BoolArray]:
        """Count the rows with each level of a column, by cluster, and find the counts that are not shown.

        The last line of those that are not shown is that of missing cells, which a column of numbers has alone. Numbers
        that are 0 or 1 have one line, of the ones.
        """
        first = places[0]
        lines: list[tuple[str, FloatArray]] = []
        if self.columns[first].level:
            lines = [(self.columns[place].level, self.mean[:, place] * self.seen[:, place]) for place in places]
        elif first in self.binary:
            lines = [("", self.mean[:, first] * self.seen[:, first])]
        elif first in self.ranks:
            lines = list(zip(self.columns[first].order, self.ranks[first], strict=True))
        zeros = [self.seen[:, first] - have for _, have in lines] if first in self.binary else []
        counts = np.array([*(have for _, have in lines), *zeros, self._missing(first)])
        # levels and missing cells add up to the rows of the cluster
        hidden = self._find_hidden(counts, has_column_totals=len(counts) > 2)
        return lines, np.vstack([hidden[: len(lines)], hidden[-1:]])

    def _find_hidden(self, counts: FloatArray, *, has_column_totals: bool = False) -> BoolArray:
        """Find counts, of shape (lines, clusters), that are hidden as in `find_hidden`; with noise nothing follows."""
        if self.noise:
            return np.zeros_like(counts, bool)
        return find_hidden(counts, self.least_rows, has_column_totals=has_column_totals)

    def _number_rows(self, name: str, place: int, tail: list[str]) -> list[list[str]]:
        is_date = self.columns[place].is_date
        show, unit = (show_date, " days") if is_date else (number, "")

        def show_mean(mean: float, spread: float, error: float) -> str:
            if np.isnan(mean) and self.noise:
                return "–"
            off = f" ± {number(error, 2)}{unit}" if self.noise else ""
            return f"{show(mean)}{off} ({number(spread)}{unit})"

        errors, overall_error = self.error, self.overall_error
        means = [
            show_mean(
                self.overall_mean[place],
                self.overall_spread[place],
                np.nan if overall_error is None else overall_error[place],
            )
        ]
        medians = [_show_quartiles(self.overall_quartiles[:, place], show)]
        for k in range(self.n_clusters):
            shown = self.seen[k, place] >= self.least_rows
            error = np.nan if errors is None else errors[k, place]
            means.append(show_mean(self.mean[k, place], self.spread[k, place], error) if shown else "–")
            medians.append(_show_quartiles(self.quartiles[:, k, place], show) if shown else "–")
        lines = [[name, *means, *tail]]
        return lines if np.isnan(self.overall_quartiles[0, place]) else [*lines, ["", *medians, "", ""]]

    def _count_totals(self, places: Sequence[int], lines: Sequence[tuple[str, FloatArray]]) -> list[float]:
        """Count the rows of all clusters with each level of a column; with noise, some clusters may be hidden."""
        if not self.noise:
            return [float(np.nansum(have)) for _, have in lines]
        pairs = zip(places, lines, strict=False)  # a number has no line
        return [float(self.overall_mean[place] * self.seen[:, place].sum()) for place, _ in pairs]

    def _level_row(self, level: str, have: FloatArray, total: float, known: FloatArray, hidden: BoolArray) -> list[str]:
        """Show how many rows of each cluster have a level, of those with a value in the column."""
        cells = self._show_counts(have, known, hidden)
        return [f"    {level}", self._show_count(total, float(known.sum()), self.n_clusters), *cells, "", ""]

    def _show_counts(self, counts: FloatArray, whole: FloatArray, hidden: BoolArray) -> list[str]:
        """Show the counts of all clusters with their shares; those that would give a small one away are not shown."""
        shown = [self._show_count(*pair) for pair in zip(counts, whole, strict=True)]
        return [
            "–" if hide and count >= self.least_rows else text
            for text, count, hide in zip(shown, counts, hidden, strict=True)
        ]

    def _show_count(self, count: float, whole: float, clusters: int = 1) -> str:
        """Show a count with its share; with noise, which adds up over clusters, where it is not hidden."""
        return show_count(count, self.least_rows, whole, self.noise * math.sqrt(clusters))


def _show_quartiles(values: FloatArray, show: Callable[[float], str]) -> str:
    if np.isnan(values).any():
        return "–"
    low, middle, high = map(show, values)
    return f"{middle} [{low}, {high}]"


def profile(
    model: Any,
    sites: Any = None,
    *,
    engine: RemoteEngine | None = None,
    bins: int = BINS,
    least_rows: int = LEAST_ROWS,
    privacy: DifferentialPrivacy | None = None,
    secure: bool | SecureSummation = False,
    dictionary: Dictionary | None = None,
) -> Profile:
    """Say what the clusters of a fitted model are: every column by cluster, with effect sizes and tests ("Table 1").

    Parameters
    ----------
    model : estimator
        A fitted clusterer of FedHK. Rows are placed by their site's own model, where it has one, and with `privacy` by
        the global one.
    sites : dict or list of sites
        As in `fit`; of an estimator for one site, its views. Views that the model does not know were held out: their
        tests are honest, while those of the columns that made the clusters are circular. Left out with `engine`.
    engine : fedhk.federation.engines.RemoteEngine or None, default=None
        What leads to sites that have their own rows, as in `fit`. Views that they let questions read beside those of
        the model count as held out, where at least two sites have them.
    bins : int, default=100
        Bins of the histograms that medians and quartiles are read off, narrow where a column has many values; 0 leaves
        these out.
    least_rows : int, default=5
        Numbers about fewer rows are not shown. Tests and effect sizes are of all rows.
    privacy : fedhk.privacy.DifferentialPrivacy or None, default=None
        A budget for this profile. Its `bounds` are those of the columns: one pair for all, or one per view in the order
        of the model, and then of the views that were held out. There is no `i_squared` then. A warning says before
        anything is spent if the rows are too few for it.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only.
    dictionary : Dictionary or None, default=None
        A data dictionary, from `fedhk.read_dictionary`. Its ranges take the place of the `bounds` of `privacy`, column
        by column, also in views that were held out. Columns of the kind "truth" have no quartiles.

    Returns
    -------
    Profile
        Arrays, and `frame()`, `tests`, and `table()`, which is saved as CSV, LaTeX or HTML.

    Examples
    --------
    >>> import fedhk
    >>> sites = fedhk.datasets.make_sites(3, 60, n_clusters=3, random_state=0).sites
    >>> model = fedhk.EFKMVC(n_clusters=3, random_state=0).fit(sites)
    >>> found = fedhk.profile(model, sites)
    >>> int(found.rows.sum()), found.tests[0]["circular"]
    (180, True)
    """
    bins, least_rows = check_count(bins, "bins", minimum=0), check_count(least_rows, "least_rows")
    check_question_options(privacy, secure)
    asked = find_sites(model, sites, engine, "profile")
    columns, c = describe_columns(asked.views), int(model.n_clusters_)
    last = SumColumns(columns, c, bins)
    if last.size(Board()) > MOST_NUMBERS:
        raise DataError(
            f"a profile of {columns.width} columns, {c} clusters and bins={bins} has {last.size(Board()):,} numbers; "
            f"at most {MOST_NUMBERS:,} are sent. Use fewer bins (0 leaves out quartiles), or leave out wide views."
        )
    if dictionary is not None:
        if privacy is None:
            raise ValueError("dictionary has no effect without privacy: its ranges are the bounds of noise.")
        privacy = replace(privacy, bounds=find_bounds(dictionary, asked.views))
    if privacy is not None:
        rows = sum(views.n_rows for views in asked.sites.values())  # sites elsewhere do not report them
        if rows and (text := _describe_rows_needed(last, privacy, secure, len(asked.sites), rows)):
            warnings.warn(text, UserWarning, stacklevel=2)
    first: list[Phase[Any, Any]] = [CountMagnitudes(columns), SumMoments(columns)]
    first += [FindBins(columns, c, bins)] if bins else []
    answer = ask_sites(model, asked, [*first, last, CompareSites(columns, c)], privacy=privacy, secure=secure)
    dates = set() if engine is not None else _find_dates(take_sites(model, sites), asked.views)
    found = _read_profile(answer, last, asked.views, dates, least_rows)
    return found if dictionary is None else _drop_quartiles_of_truths(found, dictionary)


def _drop_quartiles_of_truths(found: Profile, dictionary: Dictionary) -> Profile:
    """Leave out quartiles of columns that a data dictionary calls true or false: their mean is the share of the ones.

    Without noise such columns are found by their numbers; with noise the sums do not show that all are 0 or 1.
    """
    entries = [dictionary.get(column.view, {}).get(column.name) for column in found.columns]
    truths = np.array([entry is not None and entry.kind == "truth" for entry in entries])
    quartiles, overall = found.quartiles.copy(), found.overall_quartiles.copy()
    quartiles[:, :, truths], overall[:, truths] = np.nan, np.nan
    return replace(found, quartiles=quartiles, overall_quartiles=overall)


def find_bounds(dictionary: Dictionary, views: Sequence[AskedView]) -> list[tuple[list[float], list[float]]]:
    """Return the ranges of a data dictionary for the columns of views, as bounds; refuse columns without one."""
    found, missing = [], []
    for view in views:
        low, high = [], []
        for name in view.feature_names():
            column = _name_column(view, name)
            entry = dictionary.get(view.name, {}).get(column.name)
            ends = (0.0, 1.0) if column.level else None if entry is None else entry.bounds
            if ends is None:
                missing.append(f"{view.name}.{column.name}")
                ends = (0.0, 1.0)
            low.append(ends[0])
            high.append(ends[1])
        found.append((low, high))
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise DataError(
            f"the data dictionary has no range for {', '.join(missing[:5])}{more}: a profile with noise needs one for "
            "every number and date, such as range = [0, 250], also of columns that were held out from clustering."
        )
    return found


def expect_profile(
    model: Any,
    privacy: DifferentialPrivacy,
    *,
    secure: bool | SecureSummation,
    n_sites: int,
    rows: int,
    dictionary: Dictionary | None = None,
) -> str:
    """Say before sites elsewhere are asked how many rows a budget needs; empty where they have enough.

    `rows` is 0 where nobody here knows them. Columns that were held out are not known yet: with them the noise is
    larger. Refuses bounds that do not go with the columns of the model.
    """
    views = [AskedView(name, *size, used=True) for name, size in known_views(model).items()]
    if dictionary is not None:
        privacy = replace(privacy, bounds=find_bounds(dictionary, views))
    phase = SumColumns(describe_columns(views), int(model.n_clusters_), BINS)
    return _describe_rows_needed(phase, privacy, secure, n_sites, rows)


def _describe_rows_needed(
    phase: SumColumns, privacy: DifferentialPrivacy, secure: bool | SecureSummation, n_sites: int, rows: int
) -> str:
    """Say how many rows a cluster needs for a profile with noise; empty if it has them. `rows` is 0 if not known."""
    needed, have = expect_rows(phase, privacy, secure, n_sites), rows / phase.n_clusters
    if needed is None or have >= needed:
        return ""
    better = "more rows, a larger epsilon, or fewer columns"
    better += "" if secure else "; or secure=True, with which the sites share one noise"
    kinds = len(phase.columns.numbers) + len(phase.columns.groups)
    known = "other clusters are left out"
    if rows:
        known = f"clusters have {have:,.0f} on average: most of this profile will be left out"
    return (
        f"With epsilon={privacy.epsilon:g} and {kinds} columns a cluster needs about {math.ceil(needed):,} rows for "
        f"its means to be told from noise; {known}. What helps: {better}."
    )


def _find_dates(sites: Mapping[str, Any], views: Sequence[AskedView]) -> set[tuple[str, str]]:
    """Find the columns that hold dates: their views and names."""
    found = set()
    for given in sites.values():
        tables = given if isinstance(given, Mapping | list | tuple) else [given]
        if not isinstance(tables, Mapping):
            tables = {view.name: table for view, table in zip(views, tables, strict=False)}
        for view, table in tables.items():
            found |= {(view, column) for column in date_columns(table)}
    return found


def _read_profile(
    answer: Answer, phase: SumColumns, views: Sequence[AskedView], dates: set[tuple[str, str]], least_rows: int
) -> Profile:
    """Compute the profile from sums over all sites."""
    board, columns = answer.board, phase.columns
    found, units = board.get(ClusterColumns), board.get(Units)
    shift, scale = units.shift, units.scale
    known, whole = read_known(found, columns), read_known(found.merge_clusters(), columns)
    hidden = np.isnan(known.spread) | ~known.rest
    return Profile(
        columns=[
            replace(_name_column(view, name), is_date=(view.name, name) in dates)
            for view in views
            for name in view.feature_names()
        ],
        rows=known.columns.rows,
        seen=known.columns.seen,
        mean=_clear_rounding(shift, scale, known.mean),
        spread=scale * np.where(known.spread < ROUNDING, 0.0, known.spread),
        quartiles=_read_quartiles(board, phase, known),
        difference=np.where(hidden, np.nan, compare_with_rest(known.columns)),
        **SiteDifferences.read(board, known.columns)._asdict(),
        overall_mean=_clear_rounding(shift, scale, whole.mean)[0],
        overall_spread=(scale * whole.spread)[0],
        overall_quartiles=_read_quartiles(board, phase, whole)[:, 0],
        tests=_test_columns(known, columns, views),
        least_rows=least_rows,
        noise=found.noise,
        answer=answer,
        ranks=_count_ranks(answer.board, columns, views),
        binary=_find_binary(answer.board, columns),
        error=scale * known.error if found.noise else None,
        overall_error=(scale * whole.error)[0] if found.noise else None,
    )


def _clear_rounding(shift: FloatArray, scale: FloatArray, means: FloatArray) -> FloatArray:
    """Bring means to the units of the input; what rounding leaves of zero is zero."""
    values = shift + scale * means
    return np.where(np.abs(values) < ROUNDING_OF_MEANS * (np.abs(shift) + scale), 0.0, values)


def _read_quartiles(board: Board, phase: SumColumns, known: Known) -> FloatArray:
    """Compute the quartiles of numbers from histograms, (3, c, d); NaN for other columns and where noise hides them."""
    columns, units, histograms = phase.columns, board.get(Units), known.columns.histograms
    table = np.full((3, *known.mean.shape), np.nan)
    for own in board.find(BinEdges):
        values = read_quartiles(histograms, own.edges)
        table[:, :, columns.numbers] = np.where(own.whole, np.ceil(values - 0.5) + 0.0, values)  # no -0
    if phase.bins and units.bounded:
        values = read_quartiles(histograms, bin_edges(phase.bins, bounded=True))
        table[:, :, columns.numbers] = np.where(known.quartiles, values, np.nan)
        table = units.shift + units.scale * table
    return table


def _count_ranks(board: Board, columns: ColumnsRequest, views: Sequence[AskedView]) -> dict[int, FloatArray]:
    """Count the rows of each level of ordered columns by cluster, from histograms with a bin for each whole number."""
    names, found = [name for view in views for name in view.feature_names()], {}
    for own in board.find(BinEdges):
        for number_place, place in enumerate(columns.numbers):
            levels, edges = ordered_levels(names[place])[1], own.edges[number_place]
            # a level that nobody has is beyond the edges
            bins = np.searchsorted(edges, np.arange(len(levels))) - 1
            there = (bins >= 0) & (bins < len(edges) - 1)
            if levels and own.whole[number_place] and len(set(bins[there])) == there.sum():
                counts = board.get(ClusterColumns).histograms[:, number_place]
                found[int(place)] = np.where(there, counts[:, np.where(there, bins, 0)], 0.0).T
    return found


def _find_binary(board: Board, columns: ColumnsRequest) -> list[int]:
    """Find the numbers that are 0 or 1 in every row: of whole numbers, only these are their own squares."""
    found = []
    sums, units = board.get(ClusterColumns), board.get(Units)
    for own in board.find(BinEdges):
        for place in columns.numbers[own.whole].tolist():
            shift, scale = units.shift[place], units.scale[place]
            seen, total, squares = (part[:, place].sum() for part in (sums.seen, sums.sums, sums.squares))
            of_ones = shift * seen + scale * total
            of_squares = shift**2 * seen + 2 * shift * scale * total + scale**2 * squares
            if seen > 0 and abs(of_squares - of_ones) < LEAST_SQUARE:
                found.append(place)
    return found


def _name_column(view: AskedView, name: str) -> Column:
    if view.has_names and is_level(name):
        return Column(view.name, base_name(name), level_name(name), view.used)
    short, order = ordered_levels(name) if view.has_names else (name, ())
    return Column(view.name, short, "", view.used, order=order)


def _test_columns(known: Known, columns: ColumnsRequest, views: Sequence[AskedView]) -> Records:
    """Compute tests and effect sizes of all numbers and categories, in the order of the columns."""
    named = [(view, _name_column(view, name)) for view in views for name in view.feature_names()]
    found, mean, spread, shown = known.columns, known.mean, known.spread, ~np.isnan(known.mean)
    # clusters whose mean is not known take no part
    seen, variances = np.where(shown, found.seen, 0.0), np.where(shown, known.most_variance, np.nan)
    lines: list[Record] = []
    for place, (_, column) in enumerate(named):
        kind = int(columns.kinds[place])
        if kind < 0:
            count, own, var = seen[:, place], mean[:, place], variances[:, place]
            with np.errstate(divide="ignore", invalid="ignore"):
                noise = np.square(found.noise) * (1 + np.square(own)) / np.square(count)
            tested, size = welch_test(count, own, var, np.nan_to_num(noise)), eta_squared(count, own, var)
            if found.noise and (shown[:, place].sum() < FEWEST or np.isnan(spread[shown[:, place], place]).any()):
                size = np.nan
            words = "Welch", "eta squared"
        else:
            group = columns.groups[kind]
            if place != group[0]:
                continue
            table = found.sums[:, group][shown[:, place]]
            tested, size = chi_square_test(table, np.square(found.noise)), cramers_v(table)
            words = "chi-square", "Cramer's V"
        lines.append(
            {"view": column.view, "column": column.name, "test": words[0]}
            | dict(zip(("statistic", "df", "df_rest", "p"), tested, strict=True))
            | {"p_adjusted": np.nan, "effect": words[1], "effect_size": size, "circular": column.used}
        )
    for circular in (True, False):
        family = [line for line in lines if line["circular"] is circular]
        for line, p in zip(family, adjust_p_values(np.array([line["p"] for line in family], np.float64)), strict=True):
            line["p_adjusted"] = float(p)
    return Records(lines)
