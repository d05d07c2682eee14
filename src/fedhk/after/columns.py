"""Sums of columns by cluster: how large values are, their moments, counts, sums and histograms, and site differences.

In the open and under masks sums come one after the other: powers of two between which values lie, moments in that
range, a histogram of each column that finds where its values are, and all else in units of these moments, so that no
number needs more digits than it has. With noise the bounds that were given take the place of the first three, and what
has no stated sensitivity is left out: `sealed` of each phase.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.after.effects import Heterogeneity, measure_heterogeneity, standardised_difference, variance
from fedhk.after.run import STEP, AskedView
from fedhk.data.levels import level_groups
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Members
from fedhk.federation.phases.base import Phase, Request, ServerPhase, SumPhase
from fedhk.federation.placed import PlacedSite
from fedhk.privacy.fixed_point import WORDS, fit_step
from fedhk.privacy.mechanism import AFTER, read_bounds
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity

# Numbers that one site sends at most: a larger profile is one that nobody reads.
MOST_NUMBERS = 5_000_000

# Refusals of a site.
OTHER_WIDTHS = Rule("the question is of more or fewer columns than it describes")
NO_EDGES = Rule("the edges of bins do not go up")
TOO_MANY_NUMBERS = Rule("the question asks for more numbers than anybody reads")

# Values are counted by sign and power of two between these; smaller ones count as zero, larger ones as the largest.
LEAST_POWER, MOST_POWER = -40, 100

# Bins of the histograms that quartiles are read off: those of clusters are narrow where a column has many values. To
# find where that is, a first histogram has bins of two kinds. Half are equal steps of arcsinh, narrow near
# the mean and up to this many standard deviations to either side; half split the powers of two that have many values,
# which serves columns with a long tail. It has at least so many bins.
BINS, REACH, LEAST_FIRST_BINS = 100, 50.0, 8

# The least variance of a column at a site, in units of its variance over all sites, that an effect is weighed with: a
# site where all rows of a cluster are alike would outweigh all others.
LEAST_VARIANCE = 1e-3

# Largest effect at a site, in standard deviations of the column over all sites, and rows, for which sums have room.
MOST_EFFECT, ROOM_FOR_ROWS = 30.0, 1e7


@dataclass(frozen=True, eq=False)
class ColumnsRequest:
    """The columns in question, with views side by side."""

    names: tuple[str, ...]
    widths: tuple[int, ...]
    kinds: IntArray  # -1 is a number; levels of one category have the same number from 0 on

    def __post_init__(self) -> None:
        fits = len(self.names) == len(self.widths) and self.kinds.shape == (sum(self.widths),)
        if not fits or min(self.widths, default=0) < 0:
            raise MessageError(OTHER_WIDTHS)

    @property
    def numbers(self) -> IntArray:
        """Places of the columns with numbers."""
        return np.flatnonzero(self.kinds < 0)

    @property
    def groups(self) -> list[IntArray]:
        """Places of the levels of each category."""
        return [np.flatnonzero(self.kinds == kind) for kind in range(int(self.kinds.max(initial=-1)) + 1)]

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.kinds)

    def blocks(self, site: PlacedSite) -> Iterator[tuple[IntArray, FloatArray]]:
        """Iterate over labels and cells of a site, some rows at a time."""
        return site.blocks(self.names, self.widths)


def describe_columns(views: Sequence[AskedView]) -> ColumnsRequest:
    """Return the columns of views, and which of them are levels of which category."""
    kinds, n_groups = [], 0
    for view in views:
        kind = np.full(view.width, -1)
        for places in level_groups(view.columns if view.has_names else None):
            kind[places] = n_groups
            n_groups += 1
        kinds.append(kind)
    return ColumnsRequest(tuple(v.name for v in views), tuple(v.width for v in views), np.concatenate(kinds))


class ColumnSum(SumPhase[Request]):
    """A sum over rows of columns, on the grid of sums after a run."""

    def grid(self, board: Board) -> float:
        return STEP


class RowCount(ColumnSum[Request]):
    """A count of rows: each adds 1 to one number."""

    @staticmethod
    def sensitivity(request: Any, size: int, neighbours: Neighbours) -> float:
        return sum_sensitivity(1.0, neighbours, nonnegative=True)

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_counts(values, site)


@dataclass(frozen=True)
class PlacesRequest(ABC):
    """Ask for rows by cluster and by what one or two columns say of them."""

    views: ClassVar[tuple[str, ...]]
    """The columns, each a view of its own."""

    n_clusters: int

    @property
    @abstractmethod
    def n_places(self) -> int:
        """Number of places that a row of a cluster may have."""

    @abstractmethod
    def find_places(self, values: FloatArray) -> IntArray:
        """Find the place of each row by its values."""

    def count(self, site: PlacedSite) -> FloatArray:
        """Count the rows of a site by cluster and place."""
        counts = np.zeros((self.n_clusters, self.n_places))
        for labels, values in site.blocks(self.views, (1,) * len(self.views)):
            place = labels * self.n_places + self.find_places(values)
            counts += np.bincount(place, minlength=counts.size).reshape(counts.shape)
        return counts


class PlaceCount(RowCount[Request]):
    """Count rows by cluster and place."""

    def size(self, board: Board) -> int:
        asked: Any = self.request(board)
        return int(asked.n_clusters * asked.n_places)

    @staticmethod
    def vector(site: PlacedSite, request: PlacesRequest) -> FloatArray:  # type: ignore[override]
        return request.count(site).ravel()


@dataclass(frozen=True, eq=False)
class Ranges(Entry):
    """Powers of two between which the values of each number lie."""

    low: FloatArray
    high: FloatArray
    counts: FloatArray | None = None  # values by sign and power of two, (numbers, powers); None of bounds


@dataclass(frozen=True)
class CountMagnitudes(ColumnSum[ColumnsRequest]):
    """Count values by sign and power of two, which reveals no single value."""

    name: ClassVar[str] = AFTER + "magnitudes"
    questions: ClassVar[tuple[str, ...]] = ("profile", "outcomes")
    with_noise: ClassVar[bool] = False  # bounds are given then

    columns: ColumnsRequest

    POWERS: ClassVar[int] = MOST_POWER - LEAST_POWER + 1

    def request(self, board: Board) -> ColumnsRequest:
        return self.columns

    def size(self, board: Board) -> int:
        return len(self.columns.numbers) * (2 * self.POWERS + 1)

    @staticmethod
    def vector(site: PlacedSite, request: ColumnsRequest) -> FloatArray:  # type: ignore[override]
        numbers, powers = request.numbers, CountMagnitudes.POWERS
        counts = np.zeros((len(numbers), 2 * powers + 1))
        for _, cells in request.blocks(site):
            values = cells[:, numbers]
            with np.errstate(divide="ignore", invalid="ignore"):
                power = np.clip(np.ceil(np.log2(np.abs(values))), LEAST_POWER - 1, MOST_POWER) - (LEAST_POWER - 1)
            place = np.nan_to_num(np.where(values < 0, -power, power)).astype(np.intp) + powers
            place += np.arange(len(numbers)) * (2 * powers + 1)
            counts += np.bincount(place[~np.isnan(values)], minlength=counts.size).reshape(counts.shape)
        return counts.ravel()

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_counts(values, site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        values = total.reshape(len(self.columns.numbers), -1)
        counts = values > 0.5
        above = 2.0 ** np.arange(LEAST_POWER, MOST_POWER + 1)
        ends = np.concatenate([-above[::-1], [0.0], above])
        if not counts.any(axis=1).all():
            counts = counts | (ends == 0.0) & ~counts.any(axis=1, keepdims=True)
        first, last = counts.argmax(axis=1), len(ends) - 1 - counts[:, ::-1].argmax(axis=1)
        # a bin holds values up to its end, away from zero
        low = np.where(ends[first] > 0, 0.0, ends[first])
        high = np.where(ends[last] < 0, 0.0, ends[last])
        return board.put(Ranges(low, np.maximum(high, low + 2.0**LEAST_POWER), values))

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return super().sealed(terms) or [GivenRanges(self.columns, terms.public_bounds)]


@dataclass(frozen=True, eq=False)
class UnitsRequest:
    """Columns with the shift and the scale of their values."""

    columns: ColumnsRequest
    shift: FloatArray
    scale: FloatArray


@dataclass(frozen=True, eq=False)
class Units(Entry):
    """Mean and standard deviation of each column over all rows, or bounds that were given; 0 and 1 of levels."""

    shift: FloatArray
    scale: FloatArray
    bounded: bool = False  # whether all values are within 0 and 1 in these units, or count as such


@dataclass(frozen=True)
class GivenRanges(ServerPhase):
    """Use the bounds of a budget in place of ranges and moments of rows."""

    name: ClassVar[str] = AFTER + "bounds"

    columns: ColumnsRequest
    bounds: Any  # one pair, or one for each view; None where there are none

    def begin(self, board: Board) -> Board:
        numbers, low, high = self.columns.numbers, np.zeros(self.columns.width), np.ones(self.columns.width)
        pairs = read_bounds(self.bounds, self.columns.widths)
        for end, place in ((low, 0), (high, 1)):
            end[numbers] = np.concatenate([pair[place] for pair in pairs])[numbers]
        return board.put(Ranges(low[numbers], high[numbers]), Units(low, high - low, bounded=True))

    def __post_init__(self) -> None:
        if self.bounds is None:
            raise ValueError(
                "bounds='private' does not go with profile and outcomes: give the range of the columns, of the times, "
                "or of the number."
            )
        read_bounds(self.bounds, self.columns.widths)  # refuses what does not fit before any site is asked


@dataclass(frozen=True)
class SumMoments(ColumnSum[UnitsRequest]):
    """Compute mean and spread of every number, over all rows."""

    name: ClassVar[str] = AFTER + "moments"
    questions: ClassVar[tuple[str, ...]] = ("profile", "outcomes")
    with_noise: ClassVar[bool] = False  # bounds are given then

    columns: ColumnsRequest

    def request(self, board: Board) -> UnitsRequest:
        ranges, numbers = board.get(Ranges), self.columns.numbers
        shift, scale = np.zeros(self.columns.width), np.ones(self.columns.width)
        shift[numbers], scale[numbers] = (ranges.low + ranges.high) / 2, (ranges.high - ranges.low) / 2
        return UnitsRequest(self.columns, shift, scale)

    def size(self, board: Board) -> int:
        return 3 * self.columns.width

    @staticmethod
    def vector(site: PlacedSite, request: UnitsRequest) -> FloatArray:  # type: ignore[override]
        total = np.zeros((3, request.columns.width))
        for _, cells in request.columns.blocks(site):
            values = np.nan_to_num((cells - request.shift) / request.scale)
            total += [(~np.isnan(cells)).sum(axis=0), values.sum(axis=0), np.square(values).sum(axis=0)]
        return total.ravel()

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        seen, _, squares = values.reshape(3, -1)
        check_counts(np.concatenate([seen, squares]), site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        count, sums, squares = total.reshape(3, -1)
        asked, known = self.request(board), np.maximum(count, 1.0)
        spread = np.sqrt(np.maximum(squares / known - np.square(sums / known), 0.0))
        shift = asked.shift + asked.scale * sums / known
        # what is left of a constant is rounding
        scale = np.where(spread > 1e-7, asked.scale * spread, asked.scale)
        numbers = self.columns.kinds < 0
        return board.put(Units(np.where(numbers, shift, 0.0), np.where(numbers, scale, 1.0)))


@dataclass(frozen=True, eq=False)
class BinsRequest:
    """Ask for values of columns by bin. A bin has its upper edge; the first and the last have what is outside."""

    columns: ColumnsRequest
    edges: FloatArray  # (numbers, bins + 1), in the units of the input

    def __post_init__(self) -> None:
        numbers = len(self.columns.numbers)
        if self.edges.ndim != 2 or len(self.edges) != numbers or self.edges.shape[1] < 2:
            raise MessageError(OTHER_WIDTHS)
        if self.edges.size > MOST_NUMBERS:
            raise MessageError(TOO_MANY_NUMBERS)
        if not np.all(np.diff(self.edges, axis=1) >= 0):
            raise MessageError(NO_EDGES)


@dataclass(frozen=True, eq=False)
class BinEdges(Entry):
    """Edges of the bins of each number, (numbers, bins + 1), and whether all its values are whole numbers."""

    edges: FloatArray
    whole: BoolArray


@dataclass(frozen=True, eq=False)
class FirstBinsRequest:
    """Ask for values of columns by cluster and bin."""

    bins: BinsRequest
    n_clusters: int

    def __post_init__(self) -> None:
        if self.n_clusters * self.bins.edges.size > MOST_NUMBERS:
            raise MessageError(TOO_MANY_NUMBERS)


@dataclass(frozen=True)
class FindBins(ColumnSum[FirstBinsRequest]):
    """Count the values of each number by cluster and bin, to find bins in which all clusters have a part.

    Every cluster has the same share of the bins, so that a small one far from all others has narrow ones, too:
    benchmarks/results/shares.md compares that with bins by the number of values.
    """

    name: ClassVar[str] = AFTER + "bins"
    questions: ClassVar[tuple[str, ...]] = ("profile",)
    with_noise: ClassVar[bool] = False  # bounds are given then

    columns: ColumnsRequest
    n_clusters: int
    bins: int

    def request(self, board: Board) -> FirstBinsRequest:
        counts, units, numbers = board.get(Ranges).counts, board.get(Units), self.columns.numbers
        if counts is None:
            raise ValueError("bounds leave no bins to find")
        size = max(self.bins, LEAST_FIRST_BINS)
        steps = 2 * (size // 4)  # even, so that no edge is at the mean itself, which many values may have
        above = 2.0 ** np.arange(LEAST_POWER - 1, MOST_POWER + 1)
        by_power = _share_bins(np.concatenate([-above[::-1], above]), counts, size - steps)
        by_spread = units.shift[numbers, None] + units.scale[numbers, None] * bin_edges(steps - 1, bounded=False)
        bins = BinsRequest(self.columns, np.sort(np.hstack([by_power, by_spread]), axis=1))
        return FirstBinsRequest(bins, self.n_clusters)

    def size(self, board: Board) -> int:
        return len(self.columns.numbers) * (self.n_clusters * max(self.bins, LEAST_FIRST_BINS) + 1)

    @staticmethod
    def vector(site: PlacedSite, request: FirstBinsRequest) -> FloatArray:  # type: ignore[override]
        columns, edges, c = request.bins.columns, request.bins.edges, request.n_clusters
        numbers, bins = columns.numbers, edges.shape[1] - 1
        counts, broken = np.zeros((c, len(numbers), bins)), np.zeros(len(numbers))
        for labels, cells in columns.blocks(site):
            values = cells[:, numbers]
            places = _search_bins(values, edges)
            for k in range(c):
                counts[k] += _count_in_bins(values[labels == k], places[labels == k], bins)
            broken += (values != np.floor(values)).sum(axis=0) - np.isnan(values).sum(axis=0)
        return np.concatenate([counts.ravel(), broken])

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_counts(values, site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        numbers = len(self.columns.numbers)
        counts, whole = np.round(total[: total.size - numbers]), total[total.size - numbers :] < 0.5
        counts = counts.reshape(self.n_clusters, numbers, -1)
        shares = (counts / np.maximum(counts.sum(axis=2, keepdims=True), 1.0)).sum(axis=0)
        inner = max(self.bins - 2, 1)
        edges = _part_zero(_share_bins(self.request(board).bins.edges, shares, inner), self.bins - inner)
        for place in np.flatnonzero(whole):
            edges[place] = _split_whole_numbers(edges[place])
        return board.put(BinEdges(edges, whole))


def _share_bins(edges: FloatArray, counts: FloatArray, bins: int) -> FloatArray:
    """Find the edges of bins with equally many values, (columns, bins + 1), from counts in other bins."""
    found = np.empty((len(counts), bins + 1))
    for place, (own, old) in enumerate(
        zip(counts, np.broadcast_to(edges, (len(counts), edges.shape[-1])), strict=True)
    ):
        there = np.flatnonzero(own > 0)
        if not len(there):
            found[place] = 0.0  # nobody has a value
            continue
        # bins without values are left out, so that every share has one place
        ends = np.column_stack([old[there], old[there + 1]]).ravel()
        upto = np.cumsum(own[there])
        before = np.column_stack([upto - own[there], upto]).ravel() / upto[-1]
        found[place] = np.maximum.accumulate(np.interp(np.linspace(0.0, 1.0, bins + 1), before, ends))
    return found


def _part_zero(edges: FloatArray, count: int) -> FloatArray:
    """Add edges between which only zero is, at most two: many rows may have it, and it is no value between others."""
    pair = np.array([-(2.0 ** (LEAST_POWER - 1)), 0.0])[2 - count :]
    inside = np.clip(pair, edges[:, :1], edges[:, -1:])  # where zero is beyond all values, these bins have none
    return np.sort(np.hstack([edges, inside]), axis=1)


def _split_whole_numbers(edges: FloatArray) -> FloatArray:
    """Move edges between whole numbers; each has a bin of its own where there are bins enough."""
    low, high = math.floor(edges[0]), math.ceil(edges[-1])
    if high - low < len(edges) - 1:
        return np.linspace(low - 0.5, low - 1.5 + len(edges), len(edges))
    return np.concatenate([[low - 0.5], np.floor(edges[1:-1]) + 0.5, [high + 0.5]])


def _search_bins(values: FloatArray, edges: FloatArray) -> IntArray:
    """Find the bin of each value, (n, columns); a missing one has any."""
    pairs = zip(edges[:, 1:-1], values.T, strict=True)
    places = [np.searchsorted(own, column, side="left") for own, column in pairs]
    return np.column_stack(places) if places else np.zeros(values.shape, np.intp)


def _count_in_bins(values: FloatArray, places: IntArray, bins: int) -> FloatArray:
    """Count the values of each column by bin, (columns, bins)."""
    size = values.shape[1] * bins
    places = places + bins * np.arange(values.shape[1])
    return np.bincount(places[~np.isnan(values)], minlength=size).reshape(-1, bins).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ProfileRequest:
    """Ask for counts, sums, squares and histograms of columns by cluster; `bounded` cuts what is outside [0, 1]."""

    units: UnitsRequest
    n_clusters: int
    bins: int
    bounded: bool
    edges: BinsRequest | None = None  # None is equal bins between the bounds


@dataclass(frozen=True, eq=False)
class ClusterColumns(Entry):
    """Sums of columns by cluster, in units, and the standard deviation of their noise."""

    rows: FloatArray  # (c,)
    seen: FloatArray  # (c, d): rows that have a value
    sums: FloatArray  # (c, d)
    squares: FloatArray  # (c, d); of levels their sums
    histograms: FloatArray  # (c, numbers, bins)
    noise: float

    def merge_clusters(self) -> ClusterColumns:
        """Return the same sums over all rows, as one cluster."""
        parts = (self.rows, self.seen, self.sums, self.squares, self.histograms)
        rows, seen, sums, squares, histograms = (part.sum(axis=0, keepdims=True) for part in parts)
        return ClusterColumns(rows, seen, sums, squares, histograms, self.noise * math.sqrt(len(self.rows)))


def sum_columns(site: PlacedSite, request: ProfileRequest) -> FloatArray:
    """Compute a site's sums of columns by cluster."""
    units, c = request.units, request.n_clusters
    columns = units.columns
    numbers, groups, bins = columns.numbers, columns.groups, request.bins
    if bins < 0 or c * len(numbers) * bins > MOST_NUMBERS:
        raise MessageError(TOO_MANY_NUMBERS)
    if request.edges is not None and request.edges.edges.shape != (len(numbers), bins + 1):
        raise MessageError(OTHER_WIDTHS)
    first = np.concatenate([numbers, *(group[:1] for group in groups)]).astype(np.intp)
    rows, seen = np.zeros(c), np.zeros((c, len(first)))
    sums, squares = np.zeros((c, columns.width)), np.zeros((c, len(numbers)))
    histograms = np.zeros((c, len(numbers), bins))
    for labels, cells in columns.blocks(site):
        known = ~np.isnan(cells)
        values: FloatArray = (cells - units.shift) / units.scale
        if request.bounded:
            values = _hold_values(values, groups)
        member = np.eye(c)[labels].T
        rows += member.sum(axis=1)
        seen += member @ known[:, first]
        sums += member @ np.nan_to_num(values)
        squares += member @ np.square(np.nan_to_num(values[:, numbers]))
        if bins:
            if request.edges is None:
                place = _find_bins(values[:, numbers], bins, bounded=request.bounded)
            else:
                place = _search_bins(cells[:, numbers], request.edges.edges)
            place += (labels[:, None] * len(numbers) + np.arange(len(numbers))) * bins
            counted = np.bincount(place[known[:, numbers]], minlength=histograms.size)
            histograms += counted.reshape(histograms.shape)
    return np.concatenate([part.ravel() for part in (rows, seen, sums, squares, histograms)])


def _hold_values(values: FloatArray, groups: Sequence[IntArray]) -> FloatArray:
    """Clip values to [0, 1], and levels so that those of one category add up to at most 1."""
    values = np.clip(values, 0.0, 1.0)
    for group in groups:
        values[:, group] /= np.maximum(values[:, group].sum(axis=1, keepdims=True), 1.0)
    return values


def _find_bins(values: FloatArray, bins: int, *, bounded: bool) -> IntArray:
    """Find the bin of each value; a missing one has any."""
    share = values if bounded else (np.arcsinh(values) / math.asinh(REACH) + 1) / 2
    return np.asarray(np.clip(np.nan_to_num(share) * bins, 0, bins - 1), np.intp)


def bin_edges(bins: int, *, bounded: bool) -> FloatArray:
    """Return the edges of the bins, in units."""
    share = np.linspace(0.0, 1.0, bins + 1)
    return share if bounded else np.sinh((2 * share - 1) * math.asinh(REACH))


@dataclass(frozen=True)
class SumColumns(ColumnSum[ProfileRequest]):
    """Compute counts, sums, squares and histograms of all columns by cluster."""

    name: ClassVar[str] = AFTER + "columns"
    questions: ClassVar[tuple[str, ...]] = ("profile", "outcomes")

    columns: ColumnsRequest
    n_clusters: int
    bins: int

    def request(self, board: Board) -> ProfileRequest:
        found = board.get(Units)
        units = UnitsRequest(self.columns, found.shift, found.scale)
        edges = next((BinsRequest(self.columns, entry.edges) for entry in board.find(BinEdges) if self.bins), None)
        return ProfileRequest(units, self.n_clusters, self.bins, found.bounded, edges)

    def _shapes(self) -> list[tuple[int, ...]]:
        columns, c = self.columns, self.n_clusters
        numbers, n_groups = len(columns.numbers), len(columns.groups)
        return [(c,), (c, numbers + n_groups), (c, columns.width), (c, numbers), (c, numbers, self.bins)]

    def size(self, board: Board) -> int:
        return sum(map(math.prod, self._shapes()))

    @staticmethod
    def vector(site: PlacedSite, request: ProfileRequest) -> FloatArray:  # type: ignore[override]
        return sum_columns(site, request)

    @staticmethod
    def sensitivity(request: ProfileRequest, size: int, neighbours: Neighbours) -> float:
        # One row adds to one cluster: 1 to its rows; for each number 1 to those seen, at most 1 to its sum, its squares
        # and its histogram; for each category 1 to those seen and at most 1 to its levels. Nothing is negative.
        if not request.bounded:
            raise MessageError("sums of columns without bounds have no sensitivity")
        columns = request.units.columns
        most = 1 + (3 + (request.bins > 0)) * len(columns.numbers) + 2 * len(columns.groups)
        return sum_sensitivity(math.sqrt(most), neighbours, nonnegative=True)

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        rows, seen, sums, squares, histograms = self._split(values)
        check_counts(np.concatenate([rows, seen.ravel(), squares.ravel(), histograms.ravel()]), site)
        if np.any(seen > rows[:, None]):
            raise MessageError("more values than rows in a cluster", site)
        numbers = self.columns.numbers
        if np.any(np.square(sums[:, numbers]) > (1 + 1e-6) * squares * seen[:, : len(numbers)] + 1e-6):
            raise MessageError("sums of columns that their squares do not allow", site)

    def _split(self, values: FloatArray) -> list[FloatArray]:
        shapes = self._shapes()
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(values, ends), shapes, strict=True)]

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        rows, first_seen, sums, number_squares, histograms = self._split(total)
        columns = self.columns
        seen, squares = np.zeros(sums.shape), sums.copy()
        seen[:, columns.numbers] = first_seen[:, : len(columns.numbers)]
        for place, group in enumerate(columns.groups, len(columns.numbers)):
            seen[:, group] = first_seen[:, place, None]
        squares[:, columns.numbers] = number_squares
        return board.put(ClusterColumns(rows, seen, sums, squares, histograms, noise))


@dataclass(frozen=True, eq=False)
class SiteDifferences(Entry):
    """Sums over sites of w, w d and w d^2, and how many sites have a d, each (c, d): d is a cluster's difference."""

    sums: FloatArray

    @staticmethod
    def read(board: Board, found: ClusterColumns) -> Heterogeneity:
        """Compute the heterogeneity of differences between sites, (c, d); NaN if sites were not compared."""
        nothing = np.full(found.sums.shape, np.nan)
        known = (measure_heterogeneity(*entry.sums) for entry in board.find(SiteDifferences))
        return next(known, Heterogeneity(nothing, nothing))


@dataclass(frozen=True, eq=False)
class DifferencesRequest:
    """Ask how far each cluster differs from the others at a site, beside what is so over all sites."""

    asked: ProfileRequest
    means: FloatArray  # (c, d): of each cluster over all sites, in units
    rows: FloatArray  # (c,): of each cluster over all sites

    def __post_init__(self) -> None:
        c, width = self.asked.n_clusters, self.asked.units.columns.width
        if self.means.shape != (c, width) or self.rows.shape != (c,):
            raise MessageError(OTHER_WIDTHS)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return self.asked.n_clusters


@dataclass(frozen=True)
class CompareSites(ColumnSum[DifferencesRequest]):
    """Compare the differences of clusters between sites, each weighted by its precision.

    The other rows of two sites may be of other clusters, so that a cluster which is the same at both differs from them
    by more at one site than at the other. Therefore the other clusters weigh the same at every site: by their rows over
    all sites (direct standardisation). See `compare_with_clusters`.
    """

    name: ClassVar[str] = AFTER + "differences"
    questions: ClassVar[tuple[str, ...]] = ("profile", "outcomes")
    with_noise: ClassVar[bool] = False  # one row can change the variances by which sites weigh in without bound

    columns: ColumnsRequest
    n_clusters: int

    def request(self, board: Board) -> DifferencesRequest:
        found = board.get(ClusterColumns)
        means = np.divide(found.sums, found.seen, out=np.zeros(found.sums.shape), where=found.seen > 0)
        asked = SumColumns(self.columns, self.n_clusters, bins=0).request(board)
        return DifferencesRequest(asked, means, np.maximum(found.rows, 0.0))

    def size(self, board: Board) -> int:
        return 4 * self.n_clusters * self.columns.width

    def grid(self, board: Board) -> float:
        return fit_step(ROOM_FOR_ROWS / LEAST_VARIANCE * MOST_EFFECT**2, len(board.get(Members).sites), max(WORDS))

    @staticmethod
    def vector(site: PlacedSite, request: DifferencesRequest) -> FloatArray:  # type: ignore[override]
        phase = SumColumns(request.asked.units.columns, request.n_clusters, bins=0)
        own = phase.take(Board(), sum_columns(site, request.asked), 0.0).get(ClusterColumns)
        apart, var = compare_with_clusters(own, request.means, request.rows, least=LEAST_VARIANCE)
        weight = np.where(np.isnan(var), 0.0, 1.0 / np.where(var > 0, var, np.inf))
        apart = np.clip(np.nan_to_num(apart), -MOST_EFFECT, MOST_EFFECT)
        return np.stack([weight, weight * apart, weight * np.square(apart), weight > 0]).ravel()

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        weight, _, squares, sites = values.reshape(4, -1)
        check_counts(np.concatenate([weight, squares, sites]), site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        return board.put(SiteDifferences(total.reshape(4, self.n_clusters, self.columns.width)))


def check_counts(values: FloatArray, site: str) -> None:
    """Refuse sums of what is never negative that are."""
    if np.any(values < 0):
        raise MessageError("counts or squares below zero", site)


def compare_with_rest(found: ClusterColumns) -> FloatArray:
    """Compute, per cluster and column, the standardised difference of its mean and that of all other rows.

    NaN where a cluster or the rest has fewer than two values.
    """
    inside = found.seen, found.sums, found.squares
    means, variances = [], []
    for count, total, squares in (inside, tuple(part.sum(axis=0) - part for part in inside)):
        with np.errstate(divide="ignore", invalid="ignore"):
            means.append(total / count)
        variances.append(variance(count, total, squares))
    return standardised_difference(means[0], variances[0], means[1], variances[1])


def compare_with_clusters(
    found: ClusterColumns, means: FloatArray, rows: FloatArray, least: float
) -> tuple[FloatArray, FloatArray]:
    """Compute, per cluster and column, the mean less those of all other clusters, and its variance.

    All are above the means over all sites, (c, d), so that a site may lack clusters. The others weigh by their rows
    over all sites, (c,). NaN where a cluster, or all others, have fewer than two values. Variances of rows are at least
    `least`.
    """
    var = np.maximum(variance(found.seen, found.sums, found.squares), least)
    known = ~np.isnan(var)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.where(known, found.sums / found.seen - means, 0.0)
        of_mean = np.where(known, var / found.seen, 0.0)
    weight = known * rows[:, None]

    def add_others(values: FloatArray) -> FloatArray:
        return np.asarray(values.sum(axis=0) - values)

    total = add_others(weight)
    compared = known & (total > 1e-9 * weight.sum(axis=0))
    whole = np.where(compared, total, 1.0)
    apart = above - add_others(weight * above) / whole
    spread = of_mean + add_others(np.square(weight) * of_mean) / np.square(whole)
    return np.where(compared, apart, np.nan), np.where(compared, spread, np.nan)


def read_quartiles(histograms: FloatArray, edges: FloatArray) -> FloatArray:
    """Compute the quartiles of histograms of shape (..., bins), as (3, ...); NaN where empty.

    `edges` are common, (bins + 1,), or one line for each column, (columns, bins + 1), of histograms (c, columns, bins).
    Values are taken to be spread evenly over a bin, so that a quartile is off by less than a bin. What is nearer to
    zero than values that count as zero is zero.
    """
    counts = np.maximum(histograms, 0.0)
    upto = np.cumsum(counts, axis=-1)
    total = upto[..., -1]
    edges = np.broadcast_to(edges, (*total.shape, edges.shape[-1]))
    found = []
    for share in (0.25, 0.5, 0.75):
        wanted = share * total
        place = np.minimum((upto < wanted[..., None]).sum(axis=-1), counts.shape[-1] - 1)
        inside = np.take_along_axis(counts, place[..., None], -1)[..., 0]
        before = np.take_along_axis(upto, place[..., None], -1)[..., 0] - inside
        part = np.divide(wanted - before, inside, out=np.zeros_like(wanted), where=inside > 0)
        low, high = (np.take_along_axis(edges, ends[..., None], -1)[..., 0] for ends in (place, place + 1))
        found.append(np.where(total > 0, low + part * (high - low), np.nan))
    values = np.stack(found)
    return np.where(np.abs(values) < 2.0**LEAST_POWER, 0.0, values)
