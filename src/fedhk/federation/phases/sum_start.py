"""A start from sums alone: second moments of all rows, and how many rows are nearest to each of many points."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.data.views import Views
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry, Shared, align_views
from fedhk.federation.entries import Basis, Minimisation, Population, References, Schema
from fedhk.federation.phases.base import ServerPhase, SumPhase
from fedhk.federation.phases.scales import (
    FullWeights,
    RowSquares,
    check_radius,
    hold_in_bounds,
    move_references,
    shrink_to_zero,
)
from fedhk.federation.protocols.statistics import MOST_EXTRA
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.sealed.noise import MOST_UNIT, StartKnown
from fedhk.federation.site import Site
from fedhk.model.descent import Progress
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import localise
from fedhk.model.rows import Rows, joint_rows, split_joint, view_sums
from fedhk.privacy.fixed_point import shortest_word
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity
from fedhk.starts.candidates import (
    ALL_CANDIDATES,
    CANDIDATES_PER_CLUSTER,
    LEAST_ROWS,
    ROWS_PER_CANDIDATE,
    SITE_CANDIDATES,
    Candidates,
    OwnGroups,
    candidate_rows,
    candidate_starts,
    candidates_per_site,
    own_groups,
)
from fedhk.starts.cells import (
    MOST_FEATURES,
    POINTS_PER_CLUSTER,
    SURELY,
    Landmarks,
    count_group_totals,
    count_view_totals,
    cut_rows,
    draw_in_ball,
    draw_landmarks,
    group_totals,
    keep_landmarks,
    leading_directions,
    read_blocks,
    read_groups,
    read_second_moments,
    read_view_groups,
    second_moments,
    sketch,
    split_groups,
    view_group_totals,
)
from fedhk.starts.seeding import (
    CLOUD_POINTS,
    CLOUD_POINTS_PER_CLUSTER,
    OWN_STARTS,
    cluster_points,
    compare_views,
    exceed_cloud,
)
from fedhk.starts.settings import Settings

# Points to which a site compares its rows at most: a block of rows by so many is a few hundred megabytes.
MOST_POINTS = 2**15

# Numbers of all groups together that a site is asked for under masks: 4 MB.
GROUP_NUMBERS = 2**19

# Where features are many, exchanges that bring so many random directions to the leading ones; and the fewest directions
# in which rows are grouped under masks, where they cost no noise.
POWER_PASSES, POWER_DIRECTIONS, MANY_DIRECTIONS = 3, 128, 10

# Groups of the sites' own that are put into one mean under masks: as many as cost nothing. On 16 generated federations
# (3 to 12 clusters, 200 to 1,000 rows) mean ARI differed from that in the open by -.001, -.001, +.006 and -.011 with
# 1, 2, 3 and 5 of them, and the objective by less than .001 of itself.
GROUPS_PER_MEAN = 3

# Passes of k-means in each view by itself that say what a view's clusters explain, under masks. Each explains more, and
# is a small sum. On 20 generated sets of four views, factors after 1, 2 and 4 passes were equally near to those of all
# rows in one table (mean difference .01 to .03; in the open .04); on 210 rows of msrcv1_5v 4 came nearest.
VIEW_PASSES = 4

# Rows per point in multiples of the noise in their number: between 2 and 8, generated data did not care, and below 2
# points without rows are taken for some with rows.
ROWS_ABOVE_NOISE = 2.0

# Rows are cut for second moments to this share of the unit of all views. A row that is cut keeps its direction, and
# noise falls with the square of the length. On 130 generated mixtures (3 to 60 features, one to four views, 1,000 to
# 8,000 rows) .85 found the most: mean ARI .546, against .529 with .55, .537 with .7 and .535 with 1.
CUT_SHARE = 0.85

# By how much the spread of rows that were cut is enlarged at most, to be that of all rows.
MOST_ENLARGED = 4.0

# A constant that each row has among its features in second moments, as a share of what rows are cut to: its products
# with the others are the sum of the rows. Noise grows by 6 % for it, and the mean of the rows has as much noise as if
# their sum had two ninths of this budget to itself (with neighbours "replace").
MIDDLE_SHARE = 0.25

# Mean squared distance of rows to their centres, in model units, below which a start says nothing of it.
LEAST_WITHIN = 1e-6

# Why a run ends before its rounds.
ONE_CLUSTER = (
    "Noise hides how rows differ: one cluster is all that this budget shows. What helps: more rows, a larger epsilon, "
    "or secure=True, with which the sites share one noise."
)

# What a site says, the same text for every request that breaks the rule.
NO_POINTS = Rule("points to which rows cannot be compared")
NO_GROUPS = Rule("fewer than one group of its own rows")


@dataclass(frozen=True, eq=False)
class Leading(Entry):
    """Points along the leading directions of all rows, and how far rows are from these directions, per view."""

    landmarks: Landmarks
    spreads: FloatArray  # mean squared distance, (s,)


@dataclass(frozen=True, eq=False)
class RowBasis(Entry):
    """Orthonormal columns that come nearer to the leading directions of all rows with each exchange."""

    basis: FloatArray  # (d, p)


@dataclass(frozen=True, eq=False)
class SumCandidates(Entry):
    """Candidates for a start, made of sums over all sites."""

    candidates: Candidates


@dataclass(frozen=True, eq=False)
class ViewAxes(Entry):
    """The leading directions of each view by itself, and the spread of all rows along them."""

    axes: tuple[FloatArray, ...]  # orthonormal columns, of shape (d_h, k_h), in features or in a basis
    spreads: tuple[FloatArray, ...]  # standard deviations, (k_h,)


@dataclass(frozen=True, eq=False)
class ViewCenters(Entry):
    """Centres of each view by itself: from candidates, and then from so many passes of k-means over all rows."""

    views: tuple[Landmarks, ...]
    passes: int = 0


@dataclass(frozen=True, eq=False)
class ViewFactors(Entry):
    """What each view's distances are multiplied by: less for a view that has little to say."""

    factors: FloatArray


@dataclass(frozen=True)
class Bandwidth(Entry):
    """The heat time of noisy rounds: as narrow a kernel as reaches the rows of a cluster needs the least noise."""

    heat_time: float


@dataclass(frozen=True)
class PublicStart(ServerPhase):
    """Rows that are public, in the units of the run, as candidates for a start: no site is asked for any."""

    name: ClassVar[str] = "public start"

    views: Views

    def begin(self, board: Board) -> Board:
        names, references = board.get(Schema).names, board.get(References)
        views = align_views(self.views, names, references.widths, self.name)
        points = joint_rows(Rows(views, localise(references.references, views)), missing=np.nan)
        sizes = np.full(len(points), board.get(Population).rows / len(points))
        found = Candidates(hold_in_bounds(board, points), sizes, np.zeros((len(points), len(names))))
        return board.put(SumCandidates(found))


@dataclass(frozen=True)
class WeighStart(ServerPhase):
    """Whether a start is looked for with noise: where that would hide it, starts are drawn from all over the unit.

    Most rows are no longer than 1 (`Lengths`). Points that are drawn there as if rows were everywhere alike cost
    nothing, and leave the rounds the budget of directions and counts. Where noise in a round would hide whole clusters,
    such centres would stay where they were drawn: then a start is looked for, and says so if there is none.
    """

    name: ClassVar[str] = "weigh start"

    settings: Settings
    seed: int
    terms: SealedTerms

    def begin(self, board: Board) -> Board:
        if not self.terms.measure(board, self.settings.n_clusters).is_scattered:
            return board
        widths, rng = board.get(References).widths, np.random.default_rng(self.seed)
        points = np.hstack([draw_in_ball(rng, count_candidates(self.settings.n_clusters), width) for width in widths])
        sizes = np.full(len(points), board.get(Population).rows / len(points))
        found = Candidates(hold_in_bounds(board, points), sizes, np.zeros((len(points), len(widths))))
        return board.put(StartKnown(), SumCandidates(found))


@dataclass(frozen=True)
class DirectionsRequest:
    """Ask for second moments of rows that are cut to the length `radius`; `seed` draws the directions where needed."""

    radius: float
    seed: int


@dataclass(frozen=True)
class Directions(SumPhase[DirectionsRequest]):
    """Second moments of all rows around their mean, which give the leading directions; with noise.

    The middle of the units is known with noise of the size of the bounds. Where rows fill little of these, what is left
    of their mean would be the first of the directions.
    """

    name: ClassVar[str] = "directions"
    acute: ClassVar[bool] = True  # sums of z z^T, of which the traces of products are squares

    settings: Settings
    seed: int

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or board.has(StartKnown)

    def request(self, board: Board) -> DirectionsRequest:
        # rows longer than a typical one are cut, because noise is sized by the longest
        return DirectionsRequest(CUT_SHARE * math.sqrt(len(board.get(References).references)), self.seed)

    def size(self, board: Board) -> int:
        p = min(sum(board.get(References).widths), MOST_FEATURES) + 1
        return p * (p + 1) // 2

    @staticmethod
    def vector(site: Site, request: DirectionsRequest) -> FloatArray:
        rows, radius = site.rows(), request.radius
        return second_moments(rows, sketch(sum(rows.widths), request.seed), radius, MIDDLE_SHARE * radius)

    @staticmethod
    def sensitivity(request: DirectionsRequest, size: int, neighbours: Neighbours) -> float:
        # A row y of length r at most adds z z^T with z = (y, a), which is |z|^2 <= r^2 + a^2 long. Another row in its
        # place, with w for z, changes it by |z z^T - w w^T|^2 = |z|^4 + |w|^4 - 2 (z.w)^2, at most 2 (r^2 + a^2)^2.
        longest = check_radius(request.radius) ** 2 * (1.0 + MIDDLE_SHARE**2)
        return sum_sensitivity(longest, neighbours, nonnegative=True)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        widths, rows = board.get(References).widths, max(board.get(Population).rows, 1.0)
        radius, c, directions = self.request(board).radius, self.settings.n_clusters, sketch(sum(widths), self.seed)
        d, p = directions.shape
        products, noise = read_second_moments(total / rows), noise / rows
        constant = MIDDLE_SHARE * radius
        # the middle is where means found it, unless it is surely elsewhere
        mean = shrink_to_zero(products[:p, p] / constant, noise / (math.sqrt(2) * constant), SURELY)
        mean = cut_rows(mean[None], radius)[0]
        covariance = products[:p, :p] - np.outer(mean, mean)
        # the best centres within the c leading directions cost at most twice as much as any (Drineas et al. 2004)
        axes, deviations = leading_directions(covariance, min(c, p), math.sqrt(2 * p) * noise)
        axes = directions @ axes
        # random directions hold a share p / d of any view's spread
        whole = view_sums((directions @ covariance * directions).sum(axis=1), widths) * d / p
        spreads = np.maximum(whole - view_sums(np.square(axes) @ np.square(deviations), widths), 0.0)
        # rows that were cut spread more than that
        squares = max(float(np.trace(products[:p, :p])) * d / p, 1e-300)
        larger = float(np.clip(sum(board.get(RowSquares).views) / squares, 1.0, MOST_ENLARGED))
        # cells have as large a share of the budget, so that what one row can change has as much noise there
        sure = radius**2 * (1.0 + MIDDLE_SHARE**2) / (ROWS_ABOVE_NOISE * noise)
        count = int(np.clip(sure, POINTS_PER_CLUSTER * c, count_candidates(c)))
        landmarks = draw_landmarks(axes, math.sqrt(larger) * deviations, count, self.seed)
        board = move_references(board, directions @ mean, np.ones(d))
        return board.put(Leading(landmarks, larger * spreads))


@dataclass(frozen=True, eq=False)
class ProductsRequest:
    """Ask for the sum over rows of x (x B); the columns of `basis` are orthonormal."""

    basis: FloatArray  # B, (d, p)


@dataclass(frozen=True)
class Products(SumPhase[ProductsRequest]):
    """Leading directions of all rows under masks: second moments times a basis, which each exchange improves."""

    name: ClassVar[str] = "products"
    unbounded: ClassVar[str] = "a row far out changes second moments without bound; with noise, rows are cut."

    settings: Settings
    seed: int

    def begin(self, board: Board) -> Board:
        width = sum(board.get(References).widths)
        few = min(POWER_DIRECTIONS, max(GROUP_NUMBERS // width, 1))
        return board.put(RowBasis(sketch(width, self.seed, MOST_FEATURES if width <= MOST_FEATURES else few)))

    def is_done(self, board: Board, exchanges: int) -> bool:
        d, p = board.get(RowBasis).basis.shape
        return exchanges >= (1 if d == p else POWER_PASSES)

    def request(self, board: Board) -> ProductsRequest:
        return ProductsRequest(board.get(RowBasis).basis)

    def size(self, board: Board) -> int:
        return board.get(RowBasis).basis.size

    @staticmethod
    def vector(site: Site, request: ProductsRequest) -> FloatArray:
        basis, rows = request.basis, site.rows()
        if basis.ndim != 2 or basis.shape[0] != sum(rows.widths) or not 1 <= basis.shape[1] <= MOST_FEATURES:
            raise MessageError(NO_POINTS)
        total = np.zeros(basis.shape)
        for joint, _ in read_blocks(rows):
            total += joint.T @ (joint @ basis)
        return total.ravel()

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        basis, rows, c = board.get(RowBasis).basis, max(board.get(Population).rows, 1.0), self.settings.n_clusters
        d, p = basis.shape
        products = total.reshape(d, p) / rows
        inner = basis.T @ products
        axes, deviations = leading_directions((inner + inner.T) / 2, min(max(c - 1, MANY_DIRECTIONS), p), 0.0)
        landmarks = draw_landmarks(basis @ axes, deviations, count_groups(c, rows, d), self.seed)
        widths = board.get(References).widths
        nothing = np.zeros(len(widths))  # groups say how far their rows spread
        better = RowBasis(np.linalg.qr(products)[0] if d > p else basis)
        return board.put(better, Leading(landmarks, nothing), find_view_axes(inner, basis, widths, c))


def find_view_axes(covariance: FloatArray, basis: FloatArray, widths: Sequence[int], n_clusters: int) -> ViewAxes:
    """The leading directions of each view, from second moments of all rows in a basis of all features."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = basis @ (vectors * np.sqrt(np.maximum(values, 0.0)))
    axes: list[FloatArray] = []
    spreads: list[FloatArray] = []
    for part in split_joint(root.T, widths):
        columns, lengths, _ = np.linalg.svd(part.T, full_matrices=False)
        axes.append(columns[:, : count_leading(n_clusters)])
        spreads.append(lengths[: count_leading(n_clusters)])
    return ViewAxes(tuple(axes), tuple(spreads))


def count_leading(n_clusters: int) -> int:
    """The most directions of all rows that are looked at: one for each cluster, and as many more as in the open."""
    return n_clusters + min(n_clusters, MOST_EXTRA)


def count_candidates(n_clusters: int) -> int:
    """How many candidates are wanted for so many clusters."""
    return max(ALL_CANDIDATES, CANDIDATES_PER_CLUSTER * n_clusters)


def count_groups(n_clusters: int, rows: float, width: int) -> int:
    """How many groups are wanted of so many rows under masks, and sums have room for."""
    own = int(min(count_candidates(n_clusters), rows // ROWS_PER_CANDIDATE))
    return max(min(count_means(own, n_clusters), GROUP_NUMBERS // width), 1)


def count_means(n_groups: int, n_clusters: int) -> int:
    """How many means are made under masks of so many groups of the sites' own.

    One for three of them, so that few are what a single site would send as a candidate; more where clusters would have
    fewer than a site is asked for.
    """
    return max(n_groups // GROUPS_PER_MEAN, min(n_groups, SITE_CANDIDATES * n_clusters))


@dataclass(frozen=True, eq=False)
class CellsRequest:
    """Ask how many rows are nearest to each point."""

    landmarks: Landmarks


@dataclass(frozen=True)
class Cells(SumPhase[CellsRequest]):
    """How many rows are nearest to each of the points along the leading directions.

    Points are in the coordinates of the basis, where sites have one. With noise the points that have rows are the
    candidates for the start; under masks sums over their rows follow, which say more.
    """

    name: ClassVar[str] = "cells"
    acute: ClassVar[bool] = True
    counts: ClassVar[bool] = True

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or board.has(StartKnown)

    def request(self, board: Board) -> CellsRequest:
        return CellsRequest(board.get(Leading).landmarks)

    def word(self, board: Board) -> int:
        return shortest_word(board.get(Population).rows)

    def size(self, board: Board) -> int:
        return len(board.get(Leading).landmarks)

    @staticmethod
    def vector(site: Site, request: CellsRequest) -> FloatArray:
        return read_landmarks(site, request.landmarks).counts(site.rows())

    @staticmethod
    def sensitivity(request: CellsRequest, size: int, neighbours: Neighbours) -> float:
        return sum_sensitivity(1.0, neighbours, nonnegative=True)  # a row is nearest to one point

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        leading = board.get(Leading)
        if noise > 0:
            found = leading.landmarks.candidates(total, noise, leading.spreads)
            board = board.put(SumCandidates(replace(found, points=hold_in_bounds(board, found.points))))
        return board.put(replace(leading, landmarks=keep_landmarks(leading.landmarks, total, LEAST_ROWS)))


@dataclass(frozen=True)
class OwnGrouping(Shared):
    """Sites group their own rows, so many groups at most, and rows of a group stay together in sums for a start."""

    count: int
    seed: int

    def of(self, site: Site) -> OwnGroups:
        """Site: its groups, made once; refuses none of them."""
        if self.count < 1:
            raise MessageError(NO_GROUPS)
        random_state = seeded(self.seed, zlib.crc32(site.name.encode()))
        return site.derive(self, lambda: own_groups(site.rows(), self.count, random_state, site.least_group))


@dataclass(frozen=True)
class OwnCells(Cells):
    """How many rows are in groups of the sites' own that are nearest to each point, under masks.

    In the open a start comes from means of such groups. Rows of one group are alike and mostly of one cluster; so
    kept together they say where clusters are, and single rows far out do not.
    """

    name: ClassVar[str] = "own cells"
    unbounded: ClassVar[str] = "one row can change the groups of all others at its site."

    settings: Settings
    seed: int

    def begin(self, board: Board) -> Board:
        count = candidates_per_site(self.settings.n_clusters, board.get(Population).n_sites)
        return board if board.has(OwnGrouping) else board.put(OwnGrouping(count, self.seed))

    @staticmethod
    def vector(site: Site, request: CellsRequest) -> FloatArray:
        landmarks, own = read_landmarks(site, request.landmarks), site.board.get(OwnGrouping).of(site)
        return np.bincount(landmarks.nearest_own(own), minlength=len(landmarks)).astype(np.float64)

    @staticmethod
    def sensitivity(request: CellsRequest, size: int, neighbours: Neighbours) -> float:
        return SumPhase.sensitivity(request, size, neighbours)  # refuses


def read_own_groups(site: Site) -> OwnGroups | None:
    """The groups of a site's own rows, where the run has them."""
    return next((entry.of(site) for entry in site.board.find(OwnGrouping)), None)


def read_landmarks(site: Site, landmarks: Landmarks) -> Landmarks:
    """Points in all features, from points in the coordinates of the basis where the site has one."""
    widths = site.rows().widths
    if not site.board.has(Basis):
        check_landmarks(landmarks, sum(widths))
        return landmarks
    basis = site.board.get(Basis)
    basis.columns_of(widths)  # refuses one of other views
    check_landmarks(landmarks, basis.block.shape[1])
    return replace(landmarks, axes=basis.block @ landmarks.axes)


def check_landmarks(landmarks: Landmarks, width: int) -> None:
    """Refuse more points than a site compares its rows with, and points to which rows have no distance."""
    axes, places = landmarks.axes, landmarks.places
    shapes = axes.ndim == places.ndim == 2 and axes.shape[0] == width and axes.shape[1] == places.shape[1] >= 1
    if not shapes or axes.shape[1] > width or not 1 <= len(places) <= MOST_POINTS:
        raise MessageError(NO_POINTS)
    if not (np.all(np.abs(axes) <= MOST_UNIT) and np.all(np.abs(places) <= MOST_UNIT)):
        raise MessageError(NO_POINTS)


@dataclass(frozen=True, eq=False)
class GroupsRequest:
    """Ask for sums over the rows of each point; `full` says of which views values are counted per feature."""

    landmarks: Landmarks
    full: tuple[bool, ...]


@dataclass(frozen=True)
class Groups(SumPhase[GroupsRequest]):
    """Means of the rows of the own groups that are nearest to each point, and how far they spread: candidates.

    Points with fewer rows than a candidate must have are left out before, so that no mean is a row.
    """

    name: ClassVar[str] = "groups"
    unbounded: ClassVar[str] = "a row far out moves the mean of its group without bound."

    settings: Settings
    seed: int

    def request(self, board: Board) -> GroupsRequest:
        return GroupsRequest(board.get(Leading).landmarks, self._columns(board)[1])

    def _columns(self, board: Board) -> tuple[Sequence[int], tuple[bool, ...]]:
        """Numbers of each view that are summed, and whether their values are counted one by one."""
        return board.get(References).widths, board.get(FullWeights).views

    def size(self, board: Board) -> int:
        return count_group_totals(len(board.get(Leading).landmarks), *self._columns(board))

    @staticmethod
    def vector(site: Site, request: GroupsRequest) -> FloatArray:
        rows = site.rows()
        check_landmarks(request.landmarks, sum(rows.widths))
        return group_totals(rows, request.landmarks, request.full, own=read_own_groups(site))

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        (widths, full), leading = self._columns(board), board.get(Leading)
        found = read_groups(total, widths, full)
        count = count_groups(self.settings.n_clusters, board.get(Population).rows, sum(widths))
        landmarks = split_groups(leading.landmarks, found, count, self.seed)
        return board.put(SumCandidates(found), replace(leading, landmarks=landmarks))


@dataclass(frozen=True, eq=False)
class ViewDistancesRequest:
    """Ask for sums over the rows that are nearest to each of a view's centres."""

    views: tuple[Landmarks, ...]


@dataclass(frozen=True)
class ViewDistances(SumPhase[ViewDistancesRequest]):
    """What each view's own clusters explain of all rows, for the weights of views.

    Centres are those of k-means on a view's candidates alone. Candidates are means of rows that are near in all views
    together, so that they hide what a single view says: a few passes of k-means over all rows follow.
    """

    name: ClassVar[str] = "view distances"
    unbounded: ClassVar[str] = "a row far out adds its squared distance, which has no bound."

    settings: Settings
    seed: int

    def begin(self, board: Board) -> Board:
        found, random_state = board.get(SumCandidates).candidates, np.random.RandomState(self.seed)
        views = []
        for points, axes in zip(self._split(board, found.points), board.get(ViewAxes).axes, strict=True):
            places: FloatArray = np.nan_to_num(points) @ axes
            if len(places) > self.settings.n_clusters:
                places = cluster_points(places, found.sizes, self.settings.n_clusters, OWN_STARTS, random_state)[1]
            views.append(Landmarks(axes, places))
        return board.put(ViewCenters(tuple(views)))

    def _split(self, board: Board, points: FloatArray) -> Sequence[FloatArray]:
        """Candidates of each view, in the coordinates in which its directions are."""
        return split_joint(points, board.get(References).widths)

    def is_done(self, board: Board, exchanges: int) -> bool:
        one = len(board.get(References).references) == 1 or self.settings.n_clusters == 1
        return exchanges >= VIEW_PASSES or one

    def request(self, board: Board) -> ViewDistancesRequest:
        return ViewDistancesRequest(board.get(ViewCenters).views)

    def size(self, board: Board) -> int:
        return sum(count_view_totals(board.get(ViewCenters).views))

    @staticmethod
    def vector(site: Site, request: ViewDistancesRequest) -> FloatArray:
        rows = site.rows()
        check_views_of(request.views, rows.widths)
        return view_group_totals(rows, request.views)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        random_state, c, excess = np.random.RandomState(self.seed), self.settings.n_clusters, []
        centers, population = board.get(ViewCenters), board.get(Population).rows
        parts = np.split(total, np.cumsum(count_view_totals(centers.views))[:-1])
        found = [read_view_groups(part, view) for part, view in zip(parts, centers.views, strict=True)]
        board = board.put(ViewCenters(tuple(view for view, _, _ in found), centers.passes + 1))
        if centers.passes + 1 < VIEW_PASSES:
            return board
        for (_, within, rows), spreads in zip(found, board.get(ViewAxes).spreads, strict=True):
            # rows without the view add nothing to its second moments
            whole = population * float(np.square(spreads).sum())
            own = max(1.0 - within / whole, 0.0) if whole > 0 else 0.0
            cloud = np.ones(int(np.clip(rows, 1, max(CLOUD_POINTS, CLOUD_POINTS_PER_CLUSTER * c))))
            excess.append(exceed_cloud(own, spreads, cloud, c, random_state) if len(cloud) > c else 0.0)
        return board.put(ViewFactors(compare_views(excess)))


def check_views_of(views: Sequence[Landmarks], widths: Sequence[int]) -> None:
    """Refuse points of other views, and what `check_landmarks` refuses."""
    if len(views) != len(widths):
        raise MessageError(NO_POINTS)
    for landmarks, width in zip(views, widths, strict=True):
        check_landmarks(landmarks, width)


@dataclass(frozen=True)
class StartFromSums(ServerPhase):
    """The best of many starts on the candidates that sums gave, and the bandwidth of noisy rounds from there."""

    name: ClassVar[str] = "start from sums"

    settings: Settings
    seed: int
    workers: int  # threads for the choice of the start

    def begin(self, board: Board) -> Board:
        return self.enter(board, self.list_starts(board)[0])

    def list_starts(self, board: Board, most: int | None = None) -> list[Parameters]:
        """Return the best starts, the best first, with free centres; `most` of them, or as many as find the best."""
        settings, rows = self._read_settings(board), self._read_rows(board)
        starts = candidate_starts(settings.n_init, rows.n_rows, sum(rows.widths), settings.n_clusters)
        random_state = np.random.RandomState(self.seed)
        return settings.list_starts(rows, random_state, self.workers, n_init=starts, most=most)

    def enter(self, board: Board, start: Parameters) -> Board:
        """Return the board of the first round from one of the starts."""
        settings, rows, done = self._read_settings(board), self._read_rows(board), 0
        for earlier in board.find(Minimisation):
            done = earlier.progress.iteration
        # groups of all sites' rows are places, not draws: half of them says nothing of the other half
        start = settings.constrain(start, rows, self.workers, halves=False)
        hidden = rows.n_rows == 1 < settings.n_clusters
        progress = Progress(start, done, stop_reason=ONE_CLUSTER if hidden else "")
        return board.put(Minimisation(progress), Bandwidth(_heat_time(rows, start)))

    def _read_rows(self, board: Board) -> Rows:
        """Return the candidates as rows with weights."""
        found = board.get(SumCandidates).candidates
        return candidate_rows([found], board.get(References).references, board.get(Schema).names)

    def _read_settings(self, board: Board) -> Settings:
        """Return the settings with what earlier sums have chosen."""
        settings = self.settings
        for earlier in board.find(Minimisation):  # rounds with more centres, whose means are the candidates
            settings = replace(settings, fuzzifier=earlier.parameters.fuzzifier)
        for entry in board.find(ViewFactors):
            settings = replace(settings, view_weights=tuple(entry.factors ** (1.0 / settings.view_exponent)))
        return settings


def _heat_time(rows: Rows, start: Parameters) -> float:
    """The heat time at which a row as far from its centre as rows are on average has a pull near the largest.

    The pull r exp(-t r^2) is largest at t = 1 / (2 r^2). On generated data half of that was a little better for few
    features, and worse for many.
    """
    points, centers = joint_rows(rows), np.hstack(start.centers)
    apart = np.square(points).sum(axis=1)[:, None] - 2 * points @ centers.T + np.square(centers).sum(axis=1)
    spread = 0.0 if rows.spread is None else rows.spread.sum(axis=1)
    within = float(np.average(np.maximum(apart.min(axis=1), 0.0) + spread, weights=rows.sample_weight))
    return max(start.heat_time, len(start.centers) / (2 * max(within, LEAST_WITHIN)))
