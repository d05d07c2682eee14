"""A basis from sums alone, under masks: the directions in each view along which all rows differ most.

In the open, a basis and a start come from the candidates that sites send. Under masks small sums take their place:

1. `Sketch`: second moments of few random combinations of all features. Their leading eigenvectors give *scores*: a few
   numbers per row, of variance 1 and uncorrelated, which every site can compute by itself.
2. `Span`: how each feature goes with each score. Its columns span the leading directions of every view: this is one
   step of subspace iteration from a good start (Halko, Martinsson and Tropp 2011). They are the basis, which goes out
   in as few bytes as in the open.
3. `BasisMoments`: second moments of all rows in the basis.
4. `OwnCells`: how many rows are in groups of the sites' own that are nearest to each of the points along the leading
   directions of these.
5. `BasisGroups`: sums over the rows of each of these points, in the basis. Their means are the points of the next pass
   of k-means over all sites, and at the end the candidates: those of full sums, as far as the basis shows them.

Rows are in model units, where the grand mean is 0 and the mean squared distance to it is 1 in every view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Basis, LeadingSpans, Members, Population, References, Space
from fedhk.federation.phases.base import Nothing, ServerPhase, SumPhase
from fedhk.federation.phases.sum_start import (
    MANY_DIRECTIONS,
    Groups,
    GroupsRequest,
    Leading,
    SumCandidates,
    ViewDistances,
    ViewDistancesRequest,
    check_landmarks,
    check_views_of,
    count_groups,
    count_leading,
    find_view_axes,
    read_own_groups,
)
from fedhk.federation.plausible import REACH
from fedhk.federation.protocols.statistics import EXTRA_SHARE, BasisStatistics
from fedhk.federation.sealed import grid_step
from fedhk.federation.site import Site
from fedhk.federation.table import Table
from fedhk.model.rows import split_joint
from fedhk.privacy.fixed_point import fit_step
from fedhk.starts.cells import (
    draw_landmarks,
    group_totals,
    leading_directions,
    read_second_moments,
    score_products,
    second_moments,
    sketch,
    view_group_totals,
)
from fedhk.starts.kmeans import leading_axes
from fedhk.starts.settings import Settings

# Random combinations of features whose second moments are taken: twice as many as directions are looked for, at least.
# The sketch then misses at most twice what the best directions miss, on average (Halko, Martinsson and Tropp 2011,
# theorem 10.5, with as many more as there are directions). More of them see weaker clusters, so there are as many as
# have no more bytes than one round of full sums: this has eight bytes a number, and p combinations have p^2 in all.
OVERSAMPLING, ROUND_BYTES = 2, 8

# The most combinations that a site takes: 4 MB, as much as it is asked for groups of rows.
MOST_SKETCH = 2048

# Random combinations are as long as any other: what all rows have along one of p is at most so many times the mean over
# directions, but for a probability of p * 3e-10 (a chi-squared number with one degree of freedom, at worst).
MOST_OF_MEAN = 40.0

# Up to so many sites times combinations two bytes are enough for a sketch: rounding, which grows with the root of both,
# then makes eigenvalues of a tenth of the mean one at most.
FEW_NUMBERS = 2**15

# Bound of sums of rows that are all equal, which have none.
LEAST_SUM = 1e-12

# A score whose variance is below this share of the largest is rounding.
LEAST_VARIANCE = 1e-9

# Bytes of a number of `Span` for each precision of the basis. A number is at most what the spread of its feature
# allows; over all features rounding to 2^14 steps of that is far below what the basis loses by its own rounding.
SPAN_WORDS = {"byte": 2, "half": 2, "single": 4, "double": 8}

# A direction counts if it is this many times as long as what rounding alone would make.
SURE_LENGTH = 3.0

# How far rounding of moments and references may lead a bound astray.
SLACK = 1.05

# What a site says, the same text for every request that breaks the rule.
NO_SKETCH = Rule("a sketch of none or of too many combinations of features, or scores of another one")


@dataclass(frozen=True)
class SketchRequest:
    """Ask for second moments of the features, or of `most` combinations of them that `seed` draws, if they are more."""

    seed: int
    most: int


@dataclass(frozen=True, eq=False)
class Sketched(Entry):
    """Covariance of all rows, of shape (p, p), in the coordinates of a sketch."""

    covariance: FloatArray


def sum_squares(board: Board) -> float:
    """Sum of the squares of all cells in model units, as the moments say."""
    return SLACK * float(sum(np.square(limit / REACH).sum() for limit in board.get(Space).reach))


@dataclass(frozen=True)
class Sketch(SumPhase[SketchRequest]):
    """Second moments of few combinations of all features."""

    name: ClassVar[str] = "sketch"
    unbounded: ClassVar[str] = "rows are not cut, so that one row can change products of features without bound."

    settings: Settings
    seed: int

    def request(self, board: Board) -> SketchRequest:
        return SketchRequest(self.seed, count_sketch(self.settings.n_clusters, sum(board.get(References).widths)))

    def _width(self, board: Board) -> int:
        """How many combinations there are."""
        return min(sum(board.get(References).widths), self.request(board).most)

    def size(self, board: Board) -> int:
        p = self._width(board)
        return p * (p + 1) // 2

    def word(self, board: Board) -> int:
        p, n_sites = self._width(board), len(board.get(Members).sites)
        return 2 if p < sum(board.get(References).widths) and p * n_sites <= FEW_NUMBERS else 4

    def grid(self, board: Board) -> float:
        width, squares = sum(board.get(References).widths), sum_squares(board)
        if self._width(board) < width:
            squares *= min(MOST_OF_MEAN / width, 1.0)
        return fit_step(max(math.sqrt(2) * squares, LEAST_SUM), len(board.get(Members).sites), self.word(board))

    @staticmethod
    def vector(site: Site, request: SketchRequest) -> FloatArray:
        if not 1 <= request.most <= MOST_SKETCH:
            raise MessageError(NO_SKETCH)
        rows = site.rows()
        return second_moments(rows, sketch(sum(rows.widths), request.seed, request.most), math.inf)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        return board.put(Sketched(read_second_moments(total / board.get(Population).rows)))


def count_sketch(n_clusters: int, width: int) -> int:
    """How many random combinations of so many features a sketch has."""
    fewest = OVERSAMPLING * count_leading(n_clusters)
    return min(max(fewest, math.isqrt(ROUND_BYTES * n_clusters * width)), MOST_SKETCH)


def count_scores(values: FloatArray, n_clusters: int) -> int:
    """How many scores there are, from the eigenvalues of a sketch, the largest first.

    One for each cluster, and more for directions with a share of what these leave, as in the open. A sketch adds the
    typical eigenvalue to each.
    """
    above = values - np.median(values)
    left = max(float(values.sum() - above[:n_clusters].sum()), 0.0)
    extra = int(np.sum(above[n_clusters : count_leading(n_clusters)] > EXTRA_SHARE * left))
    sure = int(np.sum(values > LEAST_VARIANCE * max(float(values[0]), 0.0)))
    return max(1, min(n_clusters + extra, sure))


@dataclass(frozen=True, eq=False)
class SpanRequest(SketchRequest):
    """Ask for the products of features with scores, summed over rows; a score is a combination of those of a sketch."""

    loadings: FloatArray  # (p, t)


@dataclass(frozen=True)
class Span(SumPhase[SpanRequest]):
    """How each feature goes with the leading scores of all rows, and the basis that follows from it."""

    name: ClassVar[str] = "span"
    unbounded: ClassVar[str] = "what one row adds to products of features and scores has no bound."

    settings: Settings
    seed: int
    precision: str  # of the basis

    def request(self, board: Board) -> SpanRequest:
        asked, covariance = Sketch(self.settings, self.seed).request(board), board.get(Sketched).covariance
        values, vectors = np.linalg.eigh(covariance)
        values, vectors = values[::-1], vectors[:, ::-1]
        count = count_scores(values, self.settings.n_clusters)
        loadings = vectors[:, :count] / np.sqrt(np.maximum(values[:count], LEAST_SUM))
        return SpanRequest(asked.seed, asked.most, loadings.astype(np.float32))

    def size(self, board: Board) -> int:
        return sum(board.get(References).widths) * int(self.request(board).loadings.shape[1])

    def word(self, board: Board) -> int:
        return SPAN_WORDS[self.precision]

    def grid(self, board: Board) -> float:
        # scores have variance 1, so a sum of products is at most the spread of the feature times the rows; of rows of
        # length 1 only the spread of all features together is known
        if self.settings.scaling.unit_rows:
            spread = math.sqrt(max(np.square(limit).sum() for limit in board.get(Space).reach))
        else:
            spread = max(float(limit.max()) for limit in board.get(Space).reach)
        bound = SLACK * spread / REACH * math.sqrt(board.get(Population).rows)
        return fit_step(max(bound, LEAST_SUM), len(board.get(Members).sites), self.word(board))

    @staticmethod
    def vector(site: Site, request: SpanRequest) -> FloatArray:
        rows, loadings = site.rows(), np.asarray(request.loadings, np.float64)
        width = sum(rows.widths)
        if not 1 <= request.most <= MOST_SKETCH or loadings.shape[:1] != (min(width, request.most),):
            raise MessageError(NO_SKETCH)
        return score_products(rows, sketch(width, request.seed, request.most) @ loadings).ravel()

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        widths, n_sites = board.get(References).widths, len(board.get(Members).sites)
        rounding = grid_step(self, board) * math.sqrt(n_sites / 12)
        spans = []
        for part in split_joint(total.reshape(sum(widths), -1).T, widths):
            _, lengths, axes = np.linalg.svd(part, full_matrices=False)
            alone = rounding * (math.sqrt(part.shape[0]) + math.sqrt(part.shape[1]))
            spans.append(axes[: max(1, int(np.sum(lengths > SURE_LENGTH * alone)))])
        basis = Basis(tuple(Table.of(span, self.precision) for span in spans))
        return board.put(basis, LeadingSpans(tuple(columns.T for columns in basis.columns)))


@dataclass(frozen=True)
class BasisMoments(SumPhase[Nothing]):
    """Second moments of all rows in the basis, which say along which of its directions rows are counted."""

    name: ClassVar[str] = "basis moments"
    unbounded: ClassVar[str] = Sketch.unbounded

    settings: Settings
    seed: int

    def _width(self, board: Board) -> int:
        return sum(columns.shape[1] for columns in board.get(Basis).columns)

    def size(self, board: Board) -> int:
        q = self._width(board)
        return q * (q + 1) // 2

    def word(self, board: Board) -> int:
        return 4

    def grid(self, board: Board) -> float:
        return fit_step(max(2 * sum_squares(board), LEAST_SUM), len(board.get(Members).sites), self.word(board))

    @staticmethod
    def vector(site: Site, request: Nothing) -> FloatArray:
        rows, basis = site.rows(), site.board.get(Basis)
        basis.columns_of(rows.widths)
        return second_moments(rows, basis.block, math.inf)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        q, widths = self._width(board), [columns.shape[1] for columns in board.get(Basis).columns]
        rows, c = board.get(Population).rows, self.settings.n_clusters
        covariance = read_second_moments(total / rows)
        axes, deviations = leading_directions(covariance, min(max(c - 1, MANY_DIRECTIONS), q), 0.0)
        landmarks = draw_landmarks(axes, deviations, count_groups(c, rows, q), self.seed)
        nothing = np.zeros(len(widths))  # groups say how far their rows spread
        return board.put(Leading(landmarks, nothing), find_view_axes(covariance, np.eye(q), widths, c))


@dataclass(frozen=True)
class BasisGroups(Groups):
    """Means of the rows that are nearest to each point, in the basis, and how far these rows spread in all features."""

    name: ClassVar[str] = "basis groups"

    def _columns(self, board: Board) -> tuple[Sequence[int], tuple[bool, ...]]:
        widths = [columns.shape[1] for columns in board.get(Basis).columns]
        return widths, (False,) * len(widths)

    def word(self, board: Board) -> int:
        return 4

    def grid(self, board: Board) -> float:
        # a sum over n rows is at most the root of n times that of their squares
        bound = max(board.get(Population).rows, sum_squares(board), LEAST_SUM)
        return fit_step(bound, len(board.get(Members).sites), self.word(board))

    @staticmethod
    def vector(site: Site, request: GroupsRequest) -> FloatArray:
        rows = site.rows()
        columns = site.board.get(Basis).columns_of(rows.widths)
        check_landmarks(request.landmarks, sum(part.shape[1] for part in columns))
        return group_totals(rows, request.landmarks, request.full, columns, read_own_groups(site))

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        board = super().take(board, total, noise)
        found, columns = board.get(SumCandidates).candidates, board.get(Basis).columns
        parts = split_joint(found.points, self._columns(board)[0])
        points = np.hstack([part @ e.T for part, e in zip(parts, columns, strict=True)])
        return board.put(SumCandidates(replace(found, points=points)))


@dataclass(frozen=True)
class BasisViewDistances(ViewDistances):
    """What each view's own clusters explain of all rows, as far as the basis shows it."""

    name: ClassVar[str] = "basis view distances"

    def _split(self, board: Board, points: FloatArray) -> Sequence[FloatArray]:
        parts = super()._split(board, points)
        return [part @ e for part, e in zip(parts, board.get(Basis).columns, strict=True)]

    @staticmethod
    def vector(site: Site, request: ViewDistancesRequest) -> FloatArray:
        rows, basis = site.rows(), site.board.get(Basis)
        check_views_of(request.views, [part.shape[1] for part in basis.columns_of(rows.widths)])
        return view_group_totals(rows, request.views, basis.block)


@dataclass(frozen=True)
class EnterBasis(ServerPhase):
    """The start in the coordinates of the basis; with noise, the basis is along the leading directions of the start."""

    name: ClassVar[str] = "enter basis"

    protocol: BasisStatistics

    def begin(self, board: Board) -> Board:
        if not board.has(LeadingSpans):
            axes = split_joint(board.get(Leading).landmarks.axes.T, board.get(References).widths)
            board = board.put(LeadingSpans(tuple(leading_axes(part, EXTRA_SHARE).T for part in axes)))
        return self.protocol.enter_basis(board)
