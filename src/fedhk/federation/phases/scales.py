"""Scales from sums alone: ranges of the features and then, without noise, their moments.

In the open, sites describe themselves with their moments. Where the server may see nothing but sums over all sites, a
range of each feature comes first: it is the unit in which whole numbers have room for all values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.levels import find_numbers, level_groups
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns, Views, row_blocks
from fedhk.errors import DataError, MessageError, Rule
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Members, Population, References, Schema, Space
from fedhk.federation.phases.base import Nothing, Phase, ServerPhase, SumPhase
from fedhk.federation.plausible import are_possible, limits_from_moments
from fedhk.federation.sealed import SealedTerms, grid_step
from fedhk.federation.site import Site
from fedhk.model.preparation import count_observed, references_from_moments, site_moments
from fedhk.model.rows import split_joint, view_sums
from fedhk.privacy.fixed_point import fit_step, most_of_word, shortest_word
from fedhk.privacy.histograms import find_mean_square, find_quantile
from fedhk.privacy.mechanism import read_bounds
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity
from fedhk.starts.cells import SURELY, cut_rows, read_blocks
from fedhk.starts.settings import Settings

# Powers of two that bound the bins of absolute values.
LEAST_POWER, MOST_POWER = -30, 40
POWERS = MOST_POWER - LEAST_POWER + 1

# Refusal of widths that are not those of the site's views, or that no federation has.
OTHER_WIDTH = Rule("ranges of views with other widths than here")

# Range of a feature whose values are all 0, up to the smallest power.
NOTHING = 2.0 ** (LEAST_POWER + 1)

# Probability with which noise makes any of the ranges too wide.
FALSE_RANGE = 1e-6

# Powers of two in one coarse range, and how many of these there are.
COARSE = 4
MAGNITUDES = -(-POWERS // COARSE)

# How far from the grand mean the origin of model units may be, squared; the mean squared distance to it is near 1.
MOST_MOVED = 1e-3

# The grid of moments where nothing is known of the number of rows.
MOMENTS_STEP = 2.0**-36

# Variance that rounding alone makes, as a share of the square of the range.
ROUNDING = 1e-14

# By what the units of levels are multiplied where units come from ranges. A level is 0 or 1 and fills its range. Ranges
# of numbers are chosen without looking at rows, and values fill little of them: with a standard deviation of a twelfth
# of the range, not of 1 / sqrt(12) as if values were uniform, numbers and levels count alike. On generated mixtures of
# numbers and a category it was the best of 1, 1.73, 2.31 and 3.46 on average (larger ones were not tried). Where a
# category is nearly the cluster and ranges are tight, it loses up to .09 (benchmarks/results/privacy-categories.md).
LEVEL_UNIT = math.sqrt(12.0)

# "minmax" coefficients of values all over the range are a half on average, and the unit is the root of that.
MINMAX_UNIT = float(np.sqrt(0.5))

# Limits of the length to which a server may ask rows to be clipped; lengths in model units are near 1.
LEAST_RADIUS, MOST_RADIUS = 1e-9, 1e9
UNCUT = Rule("sums of rows that are not cut, which a row can change without bound")

# A row in a corner of the ranges is so many times as long as one with values all over them. What lengths are multiplied
# by in the sum of rows: their mean needs few digits, and so little adds 5 % to the noise at most.
FARTHEST, LENGTH_SCALE = math.sqrt(3.0), 0.25

# Edges of the bins of lengths, two per power of two: finer bins have fewer rows, which noise hides.
LENGTHS = 2.0 ** np.arange(-20.0, 8.5, 0.5)
BINS = len(LENGTHS) + 1

# The mean square of a column, or the share of rows that have a level, is taken for so many standard deviations of its
# noise at least: less may be nothing, and a column divided by next to nothing would count for all others.
LEAST_SQUARE = 2.0

# The share of rows that have a level is never taken for less, so that levels which nobody has are not divided by zero.
LEAST_SHARE = 1e-6

# Share of the rows of a view that are no longer than its unit; and the most units that a row counts for in the mean
# square, which a few rows far out would else decide.
WITHIN_UNIT, MOST_UNITS = 0.9, 2.0


@dataclass(frozen=True, eq=False)
class Bounds(Entry):
    """The lowest and highest value of every feature of all views, each of shape (d,), in input units."""

    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class FullWeights(Entry):
    """Views whose weights are sent per feature, because cells are missing or coefficients are not uniform."""

    views: tuple[bool, ...]


def scale_phases(settings: Settings, terms: SealedTerms, *, in_basis: bool) -> list[Phase[Any, Any]]:
    """Return the phases that bring all sites to the same units from sums alone; few bytes for rounds in a basis."""
    in_few = in_basis and terms.noise is None
    bounds = terms.seal(Magnitudes() if in_few and not settings.needs_ranges else Ranges())
    if terms.public_bounds is not None:
        bounds = GivenBounds(terms.public_bounds)
    elif settings.scaling.unit_rows:  # rows have length 1
        bounds = GivenBounds((-1.0, 1.0))
    if terms.noise is not None:
        sums = [terms.seal(phase) for phase in (Means(), Lengths(), Spreads(settings))]
        return [bounds, ScaleByBounds(settings), *sums]
    if not in_few:
        return [bounds, terms.seal(SumMoments(settings))]
    return [terms.seal(CountRows()), bounds, terms.seal(FewMoments(settings))]


def _view_widths(board: Board) -> tuple[int, ...]:
    """Return the features per view, before there are references."""
    return tuple(len(view.mean) for view in board.get(Population).moments)


@dataclass(frozen=True)
class GivenBounds(ServerPhase):
    """Use ranges of the features that were given."""

    name: ClassVar[str] = "given bounds"

    bounds: Any

    def begin(self, board: Board) -> Board:
        pairs = read_bounds(self.bounds, _view_widths(board))
        low, high = (np.concatenate([pair[end] for pair in pairs]) for end in (0, 1))
        return board.put(Bounds(low, high))


@dataclass(frozen=True, eq=False)
class Counts(Entry):
    """The number of rows of all sites and, per view, of rows with the view and of missing cells."""

    rows: float
    of_views: FloatArray  # (s,)
    missing: FloatArray  # (s,)

    @property
    def incomplete(self) -> tuple[bool, ...]:
        """Views with missing cells."""
        return tuple((self.missing > 0).tolist())


@dataclass(frozen=True)
class CountRows(SumPhase[Nothing]):
    """Count rows and missing cells. The grids of later sums are made as fine as these counts allow."""

    name: ClassVar[str] = "count rows"
    counts: ClassVar[bool] = True
    unbounded: ClassVar[str] = "one row may lack any number of cells."

    def size(self, board: Board) -> int:
        return 1 + 2 * len(_view_widths(board))

    @staticmethod
    def vector(site: Site, request: Nothing) -> FloatArray:
        views, names = site.views, site.board.get(Schema).names
        seen = dict(zip(views.names, count_observed(views), strict=True))
        lacking = dict.fromkeys(views.names, 0.0)
        for name, table, missing in zip(views.names, views.tables, views.missing, strict=True):
            if table is not None and missing and not sp.issparse(table):
                lacks = np.isnan(table)
                lacking[name] = float(lacks[~lacks.all(axis=1)].sum())
        counts = [[known.get(name, 0.0) for name in names] for known in (seen, lacking)]
        return np.array([float(views.n_rows), *counts[0], *counts[1]])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        of_views, missing = np.split(total[1:], 2)
        found = Counts(float(total[0]), of_views, missing)
        return board.put(found, replace(board.get(Population), rows=found.rows))


@dataclass(frozen=True)
class RangesRequest:
    """Ask for the ranges of views of these widths."""

    widths: tuple[int, ...]


@dataclass(frozen=True)
class Ranges(SumPhase[RangesRequest]):
    """Count rows per feature by the power of two of their value, below zero and above."""

    name: ClassVar[str] = "ranges"
    acute: ClassVar[bool] = True
    counts: ClassVar[bool] = True

    def request(self, board: Board) -> RangesRequest:
        return RangesRequest(_view_widths(board))

    def size(self, board: Board) -> int:
        return 2 * POWERS * sum(_view_widths(board))

    @staticmethod
    def vector(site: Site, request: RangesRequest) -> FloatArray:
        if not are_possible(request.widths):
            raise MessageError(OTHER_WIDTH)
        tables = dict(zip(site.views.names, site.views.tables, strict=True))
        parts = zip(site.board.get(Schema).names, request.widths, strict=True)
        return np.concatenate([_histogram(tables.get(name), width) for name, width in parts])

    @staticmethod
    def sensitivity(request: RangesRequest, size: int, neighbours: Neighbours) -> float:
        # a row is in one bin of every feature
        return sum_sensitivity(float(np.sqrt(size // (2 * POWERS))), neighbours, nonnegative=True)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        counts = total.reshape(-1, 2 * POWERS)
        # at most as many rows as the views together have; it says how fine sums without noise may be
        by_view = split_joint(counts.sum(axis=1), _view_widths(board))
        rows = float(sum(view.max(initial=0.0) for view in by_view))
        return board.put(find_bounds(counts, noise), replace(board.get(Population), rows=rows))


def find_bounds(counts: FloatArray, noise: float) -> Bounds:
    """Find the ranges of the features, from counts of shape (features, 2 * POWERS) and the noise in them."""
    # a bin counts where it surely is not noise: one that is, far out, would make all values of its feature alike
    surely = counts > (noise * np.sqrt(2 * np.log(counts.size / FALSE_RANGE)) if noise > 0 else 0.5)
    powers = 2.0 ** np.arange(LEAST_POWER, MOST_POWER + 1.0)
    edges = np.concatenate([-powers[::-1], powers])
    inner = np.concatenate([np.append(edges[1:POWERS], 0.0), np.insert(edges[POWERS:-1], 0, 0.0)])
    low = np.array([min((min(edges[b], inner[b]) for b in np.flatnonzero(row)), default=-1.0) for row in surely])
    high = np.array([max((max(edges[b], inner[b]) for b in np.flatnonzero(row)), default=1.0) for row in surely])
    if noise > 0:  # the few values that are not 0 may be hidden by the noise
        low, high = np.where(high - low > NOTHING, (low, high), [[-1.0], [1.0]])
    return Bounds(low, np.where(high > low, high, low + 1.0))


def _histogram(table: Any, width: int) -> FloatArray:
    """Count rows per feature and bin: below zero from the largest power down, above zero from the smallest up."""
    if table is not None and table.shape[1] != width:
        raise MessageError(OTHER_WIDTH)
    counts = np.zeros((width, 2 * POWERS))
    for block in row_blocks(0 if table is None else table.shape[0], 8 * width):
        part = table[block]
        dense = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
        with np.errstate(divide="ignore"):
            power = np.ceil(np.log2(np.abs(dense)))
        # larger values are counted as the largest
        place = np.clip(np.nan_to_num(power, nan=0.0, neginf=LEAST_POWER), LEAST_POWER, MOST_POWER) - LEAST_POWER
        place = np.where(dense < 0, POWERS - 1 - place, POWERS + place).astype(np.int64)
        for feature in range(width):
            seen = ~np.isnan(dense[:, feature])
            counts[feature] += np.bincount(place[seen, feature], minlength=2 * POWERS)
    return counts.ravel()


@dataclass(frozen=True)
class Magnitudes(SumPhase[RangesRequest]):
    """Count sites per feature by the power of 16 of their largest value: coarse ranges in few bytes.

    A site says 1 or 0, so that a word must hold no more than the number of sites. The ranges are only the units in
    which moments are added: sums of squares keep 2^-8 of their digits at least.
    """

    name: ClassVar[str] = "magnitudes"
    counts: ClassVar[bool] = True
    unbounded: ClassVar[str] = "one row may be the only one of its size."

    def request(self, board: Board) -> RangesRequest:
        return RangesRequest(_view_widths(board))

    def word(self, board: Board) -> int:
        return shortest_word(len(board.get(Members).sites))

    def size(self, board: Board) -> int:
        return MAGNITUDES * sum(_view_widths(board))

    @staticmethod
    def vector(site: Site, request: RangesRequest) -> FloatArray:
        below, above = np.split(Ranges.vector(site, request).reshape(-1, 2 * POWERS), 2, axis=1)
        counts = np.zeros((len(above), MAGNITUDES * COARSE))
        counts[:, :POWERS] = below[:, ::-1] + above
        return np.asarray(counts.reshape(-1, COARSE).any(axis=1), np.float64)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        seen = total.reshape(-1, MAGNITUDES) > 0
        top = np.where(seen.any(axis=1), MAGNITUDES - np.argmax(seen[:, ::-1], axis=1), 1)
        high = 2.0 ** (LEAST_POWER - 1.0 + COARSE * top)
        return board.put(Bounds(-high, high))


@dataclass(frozen=True, eq=False)
class MomentsRequest:
    """Ask for moments in units of the ranges; of rows of length 1 or as they are."""

    widths: tuple[int, ...]
    low: FloatArray
    high: FloatArray
    unit_rows: bool


@dataclass(frozen=True)
class SumMoments(SumPhase[MomentsRequest]):
    """Collect rows, observed cells, sums and sums of squares per feature, in units of the range; without noise only."""

    name: ClassVar[str] = "moments"

    settings: Settings

    def request(self, board: Board) -> MomentsRequest:
        bounds = board.get(Bounds)
        return MomentsRequest(_view_widths(board), bounds.low, bounds.high, self.settings.scaling.unit_rows)

    def grid(self, board: Board) -> float | None:
        return None if board.get(Population).rows > 0 else MOMENTS_STEP

    def size(self, board: Board) -> int:
        widths = _view_widths(board)
        return 1 + len(widths) + 3 * sum(widths)

    @staticmethod
    def vector(site: Site, request: MomentsRequest) -> FloatArray:
        rows, parts = SumMoments.collect(site, request)
        return np.concatenate([rows, np.hstack(parts).ravel()])

    @staticmethod
    def collect(site: Site, request: MomentsRequest) -> tuple[FloatArray, list[FloatArray]]:
        """Compute the rows of the site and of each view, and per view cells, sums and squares, of shape (3, d_h)."""
        views, widths = site.views, request.widths
        if not are_possible(widths):
            raise MessageError(OTHER_WIDTH)
        if not request.unit_rows and largest_values(views).max(initial=0.0) > 2.0**MOST_POWER:
            raise MessageError(
                f"a view has values that secure sums have no room for: up to 2^{MOST_POWER} in size. Rescale the view, "
                "or use scaling='l2'"
            )
        own = site_moments(views, [int(w or 0) for w in views.widths], unit_rows=request.unit_rows)
        known = dict(zip(views.names, own, strict=True))
        moments = [
            known[name] if name in known and len(known[name].mean) == width else Moments.none(width)
            for name, width in zip(site.board.get(Schema).names, widths, strict=True)
        ]
        low, high = request.low, request.high
        middle, half = split_joint((low + high) / 2, widths), split_joint((high - low) / 2, widths)
        rows, parts = [float(views.n_rows)], []
        for view, m, h in zip(moments, middle, half, strict=True):
            mean = np.where(view.weight > 0, (view.mean - m) / h, 0.0)
            rows.append(view.rows)
            parts.append(np.stack([view.weight, view.weight * mean, view.squares / h**2 + view.weight * mean**2]))
        return np.array(rows), parts

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        settings, names, moments = self.settings, board.get(Schema).names, self._moments(board, total)
        unseen = [name for name, view in zip(names, moments, strict=True) if view.rows <= 0.5]
        if len(unseen) == len(names):
            raise DataError("No site has a view with an observed value: there is nothing to cluster.")
        if unseen:
            raise DataError(f"No site has an observed value in the views {unseen}: leave them out.")
        if total[0] < settings.n_clusters:
            raise DataError(
                f"All sites together have n_samples={total[0]:g}, which should be >= n_clusters={settings.n_clusters}."
            )
        full = tuple(settings.heat_coef != "uniform" or bool(np.any(m.weight < m.rows - 0.5)) for m in moments)
        references = references_from_moments(
            moments, names, settings.scaling, settings.heat_coef, columns=board.get(Population).columns
        )
        return board.put(
            References(references),
            Space(limits_from_moments(references, moments)),
            FullWeights(full),
            replace(board.get(Population), moments=tuple(moments), rows=float(total[0])),
        )

    def _rounding(self, board: Board) -> float:
        """Return the sum of squares that rounding alone can make, in units of the range."""
        return 4 * len(board.get(Members).sites) * grid_step(self, board)

    def _moments(self, board: Board, total: FloatArray) -> list[Moments]:
        """Compute the moments of all rows, in input units."""
        widths, bounds = _view_widths(board), board.get(Bounds)
        low, high = split_joint(bounds.low, widths), split_joint(bounds.high, widths)
        parts = split_joint(total[1 + len(widths) :].reshape(3, -1), widths)
        rounding = self._rounding(board)
        moments = []
        for (weight, first, second), rows, a, b in zip(parts, total[1 : 1 + len(widths)], low, high, strict=True):
            mean = np.divide(first, weight, out=np.zeros_like(first), where=weight > 0)
            squares = np.maximum(second - weight * mean**2, 0.0)
            squares = np.where(squares > rounding + ROUNDING * weight, squares, 0.0) * np.square((b - a) / 2)
            unknown = np.full(len(a), np.nan)
            ends = (a, b) if self.settings.needs_ranges else (unknown, unknown)
            middle = (a + b) / 2 + mean * (b - a) / 2
            moments.append(Moments(float(rows), float(total[0]), weight, middle, squares, *ends))
        return moments


@dataclass(frozen=True, eq=False)
class FewMomentsRequest(MomentsRequest):
    """Ask for moments; observed cells are counted in incomplete views only."""

    incomplete: tuple[bool, ...]


@dataclass(frozen=True)
class FewMoments(SumMoments):
    """Collect the same moments in fewer bytes, for rounds in a basis: nothing known is asked again.

    Of a view without missing cells the number of cells is that of its rows. Rows of length 1 have bounded sums, which
    have room in two bytes, and features that are not divided by their spreads: only the sum of these is asked for. All
    features then count as if they spread alike, and none drops out; one that is constant adds nothing to a distance.
    References go out in single precision.
    """

    name: ClassVar[str] = "few moments"
    request_type: ClassVar[Any] = FewMomentsRequest

    def request(self, board: Board) -> FewMomentsRequest:
        asked = super().request(board)
        return FewMomentsRequest(asked.widths, asked.low, asked.high, asked.unit_rows, board.get(Counts).incomplete)

    def word(self, board: Board) -> int:
        if not self.settings.scaling.unit_rows:
            return super().word(board)
        # rounding moves the mean, of which only where it is matters, by this much; squared and summed over features
        moved = sum(_view_widths(board)) * len(board.get(Members).sites) / 12 / most_of_word(2) ** 2
        return 2 if moved < MOST_MOVED else 4

    def grid(self, board: Board) -> float:
        # in units of the range no value is above 1
        return fit_step(max(board.get(Counts).rows, 1.0), len(board.get(Members).sites), self.word(board))

    def size(self, board: Board) -> int:
        return sum(self._sizes(board))

    def _rounding(self, board: Board) -> float:
        return (
            0.0 if self.settings.scaling.unit_rows else super()._rounding(board)
        )  # then no feature is told from others

    def _sizes(self, board: Board) -> list[int]:
        """Return how many numbers are sent of each view."""
        parts = zip(_view_widths(board), board.get(Counts).incomplete, strict=True)
        if self.settings.scaling.unit_rows:
            return [(1 + lacks) * width + 1 for width, lacks in parts]
        return [(2 + lacks) * width for width, lacks in parts]

    @staticmethod
    def vector(site: Site, request: FewMomentsRequest) -> FloatArray:  # type: ignore[override]
        sent = []
        for part, lacks in zip(SumMoments.collect(site, request)[1], request.incomplete, strict=True):
            cells, first, second = part
            second = second.sum(keepdims=True) if request.unit_rows else second
            sent += [*([cells] if lacks else []), first, second]
        return np.concatenate(sent)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        counts, widths, parts = board.get(Counts), _view_widths(board), []
        sums = np.split(total, np.cumsum(self._sizes(board))[:-1])
        for known, width, lacks, rows in zip(sums, widths, counts.incomplete, counts.of_views, strict=True):
            cells = known[:width] if lacks else np.full(width, rows)
            first, second = np.split(known[lacks * width :], [width])
            if self.settings.scaling.unit_rows:
                square = np.divide(np.square(first), cells, out=np.zeros(width), where=cells > 0)
                second = square + max(float(second[0] - square.sum()), 0.0) / width
            parts.append(np.stack([cells, first, second]))
        board = super().take(board, np.concatenate([[counts.rows], counts.of_views, np.hstack(parts).ravel()]), noise)
        references = tuple(
            replace(reference, shift=reference.shift.astype(np.float32), scale=reference.scale.astype(np.float32))
            for reference in board.get(References).references
        )
        moments = board.get(Population).moments
        return board.put(References(references), Space(limits_from_moments(references, moments)))


def largest_values(views: Views) -> FloatArray:
    """Return the largest absolute value of each view; 0 for a missing view."""
    cells: Sequence[Any] = [
        np.zeros(0) if table is None else np.asarray(table.data if sp.issparse(table) else table)
        for table in views.tables
    ]
    return np.array([float(np.nanmax(np.abs(part), initial=0.0)) for part in cells])


@dataclass(frozen=True)
class ScaleByBounds(ServerPhase):
    """Compute references from the ranges, as if values were uniform over them: with noise there are no moments."""

    name: ClassVar[str] = "scale by bounds"

    settings: Settings

    def begin(self, board: Board) -> Board:
        settings, widths, bounds = self.settings, _view_widths(board), board.get(Bounds)
        moments = []
        for low, high in zip(split_joint(bounds.low, widths), split_joint(bounds.high, widths), strict=True):
            one, middle = np.ones_like(low), (low + high) / 2
            moments.append(Moments(1.0, 1.0, one, middle, np.square(high - low) / 12, low, high))
        references = references_from_moments(
            moments,
            board.get(Schema).names,
            settings.scaling,
            settings.heat_coef,
            columns=board.get(Population).columns,
        )
        columns = board.get(Population).columns or [None] * len(references)
        references = tuple(_enlarge_level_units(*part) for part in zip(references, columns, strict=True))
        if settings.heat_coef == "minmax":
            references = tuple(reference.rescale(MINMAX_UNIT) for reference in references)
        return board.put(
            References(references),
            Space(limits_from_moments(references, moments)),
            replace(board.get(Population), moments=tuple(moments)),
        )


def _enlarge_level_units(reference: Reference, columns: Columns) -> Reference:
    """Return a reference whose levels of categories have a larger unit: a level fills its range, a number does not."""
    scale = reference.scale.copy()
    for places in level_groups(columns):
        scale[places] *= LEVEL_UNIT
    return replace(reference, scale=scale)


def move_references(board: Board, mean: FloatArray, divide: FloatArray) -> Board:
    """Return the board with model units shifted by a mean and divided by scales, each of shape (d,)."""
    references, widths = board.get(References).references, board.get(References).widths
    parts = zip(references, split_joint(mean, widths), split_joint(divide, widths), strict=True)
    return board.put(References(tuple(_move_reference(*part) for part in parts)))


def _move_reference(reference: Reference, mean: FloatArray, divide: FloatArray) -> Reference:
    moved = reference.move(mean, divide)
    if reference.heat_coef != "minmax":
        return moved
    return replace(moved, low=(reference.low - mean) / divide, span=reference.span / divide)


def hold_in_bounds(board: Board, points: FloatArray) -> FloatArray:
    """Clip points in model units, of shape (n, d), to the range of the features."""
    bounds, references = board.get(Bounds), board.get(References)
    parts = (split_joint(end, references.widths) for end in (bounds.low, bounds.high))
    low, high = (
        np.concatenate([r.to_model(p) for r, p in zip(references.references, part, strict=True)]) for part in parts
    )
    return np.clip(points, low, high)


def shrink_to_zero(vector: FloatArray, noise: float, surely: float = 0.0) -> FloatArray:
    """Shrink a vector whose numbers have so much noise by what noise explains of its length (James and Stein 1961).

    With `surely` noise explains more than it does on average, by so many standard deviations of its squared length.
    """
    explained = (len(vector) + surely * math.sqrt(2 * len(vector))) * noise**2
    return np.asarray(vector * max(0.0, 1.0 - explained / max(float(vector @ vector), 1e-300)))


def check_radius(radius: float) -> float:
    """Return the length to which the server asks rows to be clipped; refuse one that no run needs."""
    if not LEAST_RADIUS <= radius <= MOST_RADIUS:
        raise MessageError(UNCUT)
    return radius


@dataclass(frozen=True)
class MeansRequest:
    """Ask for the sum of rows, each clipped to the length `radius`."""

    radius: float


@dataclass(frozen=True)
class Means(SumPhase[MeansRequest]):
    """Collect number and sum of all rows, for the origin of model units; with noise only."""

    name: ClassVar[str] = "means"
    acute: ClassVar[bool] = True  # with n rows cut to r, |sum| <= n r, the first number; so u.v >= n m r^2 - n m r^2

    def request(self, board: Board) -> MeansRequest:
        # a row with values all over the range has length 1 in every view; one of length 1 before is shorter
        lengths = [
            min(1.0, float(np.max(1 / r.scale))) if r.unit_rows else 1.0 for r in board.get(References).references
        ]
        return MeansRequest(float(np.linalg.norm(lengths)))

    def size(self, board: Board) -> int:
        return 2 + sum(board.get(References).widths)

    @staticmethod
    def vector(site: Site, request: MeansRequest) -> FloatArray:
        rows, radius = site.rows(), request.radius
        total, lengths = np.zeros(sum(rows.widths)), 0.0
        for joint, _ in read_blocks(rows):
            total += cut_rows(joint, radius).sum(axis=0)
            lengths += float(np.minimum(np.linalg.norm(joint, axis=1), FARTHEST * radius).sum())
        return np.concatenate([[radius * rows.n_rows, LENGTH_SCALE * lengths], total])

    @staticmethod
    def sensitivity(request: MeansRequest, size: int, neighbours: Neighbours) -> float:
        """Give what one row can change: it adds (r, b l, y) with |y| = min(l, r), and l at most `FARTHEST` times r.

        Another row in its place leaves the count. With lengths k <= l the rest moves by the root of
        (min(l, r) + min(k, r))^2 + b^2 (l - k)^2 at most. That is largest with l as long as can be. In k it is convex
        up to r and falls from there on, so that it is largest at k = r (4 r^2 + b^2 (f - 1)^2 r^2) or k = 0
        (r^2 + b^2 f^2 r^2, which is less).
        """
        radius = check_radius(request.radius)
        if neighbours == "add-remove":
            return radius * math.sqrt(2.0 + (LENGTH_SCALE * FARTHEST) ** 2)
        return radius * math.sqrt(4.0 + (LENGTH_SCALE * (FARTHEST - 1.0)) ** 2)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        radius, (count, lengths), sums = self.request(board).radius, total[:2], total[2:]
        rows = max(float(count) / radius, 1.0)
        # as far as noise explains how long the sum is, the middle stays that of the range
        mean = cut_rows(shrink_to_zero(sums, noise)[None] / rows, radius)[0]
        # where rows are surely longer than what they were cut to, so is their mean
        mean *= np.clip((float(lengths) - SURELY * noise) / (LENGTH_SCALE * rows * radius), 1.0, FARTHEST)
        scale = np.concatenate([reference.scale for reference in board.get(References).references])
        board = board.put(replace(board.get(Population), rows=rows), MeanNoise(scale * noise / rows))
        return move_references(board, mean, np.ones_like(mean))


@dataclass(frozen=True, eq=False)
class MeanNoise(Entry):
    """Standard deviation of the noise in the mean of every feature of all views, in input units, of shape (d,)."""

    noise: FloatArray


@dataclass(frozen=True)
class RowSquares(Entry):
    """Mean squared length of all rows in each view, in model units, as noise lets it be known."""

    views: tuple[float, ...]


@dataclass(frozen=True)
class Lengths(SumPhase[Nothing]):
    """Count rows by their length in each view, which gives the unit of each view; with noise only.

    Whatever the range of the features: where rows fill a small part of it, noise is sized by that part.
    """

    name: ClassVar[str] = "lengths"
    acute: ClassVar[bool] = True  # counts

    def size(self, board: Board) -> int:
        return BINS * len(board.get(References).references)

    @staticmethod
    def vector(site: Site, request: Nothing) -> FloatArray:
        rows = site.rows()
        counts = np.zeros((len(rows.widths), BINS))
        for joint, seen in read_blocks(rows):
            lengths = np.sqrt(view_sums(np.square(joint), rows.widths))
            for view, (cells, length) in enumerate(zip(seen, lengths.T, strict=True)):
                counts[view] += np.bincount(np.searchsorted(LENGTHS, length[cells.any(axis=1)]), minlength=BINS)
        return counts.ravel()

    @staticmethod
    def sensitivity(request: Nothing, size: int, neighbours: Neighbours) -> float:
        # a row has at most one length in every view
        return sum_sensitivity(float(np.sqrt(size // BINS)), neighbours, nonnegative=True)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        references = board.get(References)
        units, squares = [], []
        for counts, reference in zip(total.reshape(-1, BINS), references.references, strict=True):
            unit = find_quantile(counts, noise, LENGTHS, WITHIN_UNIT, total.size)
            unit = 1.0 if math.isnan(unit) else unit  # where no length is sure the unit stays that of the range
            units.append(unit * (MINMAX_UNIT if reference.heat_coef == "minmax" else 1.0))
            squares.append(find_mean_square(counts, noise, LENGTHS, MOST_UNITS * unit, total.size) / units[-1] ** 2)
        divide = np.repeat(units, references.widths)
        return move_references(board.put(RowSquares(tuple(squares))), np.zeros_like(divide), divide)


@dataclass(frozen=True)
class SpreadsRequest:
    """Ask for squares of views of these widths; the part of a row in each view is cut to the length `radius`."""

    widths: tuple[int, ...]
    radius: float


@dataclass(frozen=True)
class Spreads(SumPhase[SpreadsRequest]):
    """Sum the squares of every feature, which give its standard deviation; with noise only.

    Bounds say which values a column can have, not how far its rows spread. With spreads columns count as they do
    without noise, whatever their bounds are. Where noise hides how spreads differ, those from the bounds stay. A
    missing cell counts as the mean.
    """

    name: ClassVar[str] = "spreads"
    acute: ClassVar[bool] = True  # sums of squares

    settings: Settings

    def request(self, board: Board) -> SpreadsRequest:
        # the unit of a view: most rows are no longer
        return SpreadsRequest(board.get(References).widths, 1.0)

    def size(self, board: Board) -> int:
        return sum(board.get(References).widths)

    @staticmethod
    def vector(site: Site, request: SpreadsRequest) -> FloatArray:
        rows, widths = site.rows(), request.widths
        if not are_possible(widths) or tuple(widths) != tuple(rows.widths):
            raise MessageError(OTHER_WIDTH)
        total = np.zeros(sum(widths))
        for joint, _ in read_blocks(rows):
            parts = split_joint(joint, widths)
            total += np.concatenate([np.square(cut_rows(part, request.radius)).sum(axis=0) for part in parts])
        return total

    @staticmethod
    def sensitivity(request: SpreadsRequest, size: int, neighbours: Neighbours) -> float:
        # In a view a row y no longer than r adds the squares of its features. They are the numbers of a vector whose
        # length is at most their sum, |y|^2 <= r^2. Another row in its place may be along another feature: the vectors
        # are at a right angle. In a view of one feature there is no other, and they are r^2 apart at most.
        most = [1.0 if neighbours == "add-remove" or width == 1 else 2.0 for width in request.widths]
        return math.sqrt(sum(most)) * check_radius(request.radius) ** 2

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        references, population, rows = board.get(References), board.get(Population), board.get(Population).rows
        names, widths = board.get(Schema).names, references.widths
        bounds, mean_noise = board.get(Bounds), board.get(MeanNoise).noise
        divide = []
        for name, old, columns, sums, low, high, error in zip(
            names,
            references.references,
            population.columns or [None] * len(names),
            *(split_joint(part, widths) for part in (total / rows, bounds.low, bounds.high, mean_noise)),
            strict=True,
        ):
            numbers = find_numbers(columns, old.width)
            squares = find_squares(sums[numbers], noise / rows)
            if squares is None:  # noise hides how long rows are: columns weigh by their bounds
                divide.append(np.ones(old.width))
                continue
            # a share that may be nothing, or all, is taken for what noise is; for a half where noise hides all of it
            least = np.clip(LEAST_SQUARE * error, LEAST_SHARE, 0.5)
            mean = np.where(numbers, old.shift, np.clip(old.shift, least, 1.0 - least))
            variance = mean * (1.0 - mean)  # of a level that such a share of the rows has
            variance[numbers] = squares * np.square(old.scale[numbers])
            moments = Moments(rows, rows, np.full(old.width, rows), mean, rows * variance, low, high)
            settings = self.settings
            new = references_from_moments([moments], [name], settings.scaling, settings.heat_coef, columns=[columns])[0]
            # the view stays as long as lengths have found it
            divide.append(new.scale / old.scale / math.sqrt(float(np.sum(variance / np.square(old.scale)))))
        moved = np.concatenate(divide)
        return move_references(board, np.zeros_like(moved), moved)


def find_squares(squares: FloatArray, noise: float) -> FloatArray | None:
    """Estimate mean squares of columns that have so much noise; None where noise hides even the mean of all of them.

    As far as noise may explain how they differ, they are taken for their mean.
    """
    mean = float(squares.mean()) if len(squares) else math.inf
    if mean <= LEAST_SQUARE * noise / math.sqrt(max(len(squares), 1)):
        return None
    least = min(LEAST_SQUARE * noise, mean)
    return np.asarray(np.maximum(mean + shrink_to_zero(squares - mean, noise, SURELY), least))
