"""Anchors: points that the rows of all sites are tied to, made of candidates or drawn from a mixture."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import (
    GOOD_PER_CLUSTER,
    anchor_count,
    candidate_share,
    complete_candidates,
    draw_stand_ins,
    good_count,
    make_anchors,
    replace_tables,
)
from fedhk.embedding.diffusion import make_affinity_rows
from fedhk.embedding.groups import AnchorGroups
from fedhk.embedding.metric import NO_METRIC, Metric
from fedhk.embedding.options import AUTO, Diffusion
from fedhk.embedding.parts import Parts, clear_levels, find_levels, make_parts
from fedhk.embedding.spectrum import find_groups, tie_to_parts
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import FinalParameters, Population, References, Schema
from fedhk.federation.phases.base import Phase, ServerPhase
from fedhk.federation.phases.candidates import AskCandidates, CandidatesRequest, ChooseStart, row_groups
from fedhk.federation.phases.frame import calibrated_references
from fedhk.federation.phases.mixture import PRECISION, FittedMixture
from fedhk.federation.phases.rounds import Rounds
from fedhk.federation.phases.row_metric import RowMetric, find_metric
from fedhk.federation.phases.sum_start import SumCandidates
from fedhk.federation.protocols.base import RoundContext
from fedhk.federation.table import Table, read_arrays, round_arrays, round_as_sent
from fedhk.model.fitted import FittedModel
from fedhk.model.rows import Rows, joint_rows, split_joint
from fedhk.starts.candidates import Candidates, candidate_rows, count_by_share

# Rows that stand in for those of the sites, fewer where they are wide: so many bytes at most, so many rows at least.
STAND_INS, STAND_IN_BYTES, LEAST_STAND_INS = 2000, 2**28, 300

# Precision in which anchors are sent; server and sites both use the rounded ones.
ANCHOR_PRECISION = "byte"

# With noise, clusters are put together from parts: so many, or so many for a cluster. A row is tied to the nearest few.
# With more parts each has too few rows to tell neighbours from noise, with fewer they do not follow the shape of a
# cluster (16, 24 and 40 on generated clusters, 15,000 and 60,000 rows: benchmarks/results/diffusion-tried.md).
PARTS, PARTS_PER_CLUSTER, PART_NEIGHBOURS = 24, 4, 3


@dataclass(frozen=True, eq=False)
class Anchors(RowEntry):
    """The graph that rows are tied to: from here on a row is its affinities, a few numbers."""

    points: tuple[Table, ...]  # of shape (d_h, p) per view: in each feature, those that are the same stay the same
    neighbours: int
    scale: float
    joint_weight: float
    parts: Parts  # its arrays are rounded
    metric: Metric = NO_METRIC  # its arrays are rounded

    @classmethod
    def of(cls, graph: AnchorGraph) -> Anchors:
        """Round a graph."""
        points = tuple([Table.of(part.T, ANCHOR_PRECISION) for part in graph.anchors])
        parts = round_arrays(graph.parts, PRECISION)
        metric = RowMetric.of(graph.metric).rounded
        return cls(points, graph.neighbours, graph.scale, graph.joint_weight, parts, metric)

    @cached_property
    def graph(self) -> AnchorGraph:
        """The graph as server and sites read it."""
        points = tuple([np.ascontiguousarray(table.read().T) for table in self.points])
        parts, metric = read_arrays(self.parts), read_arrays(self.metric)
        return AnchorGraph(points, self.neighbours, self.scale, self.joint_weight, parts, metric)

    def apply(self, rows: Rows) -> Rows:
        return tie_rows(self.graph, rows)

    def wrap(self, model: FittedModel, board: Board) -> FittedModel:
        return model


def round_points(points: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Anchors per view, as they will be read: those that are the same after rounding are one."""
    widths = [part.shape[1] for part in points]
    rounded = [round_as_sent(part.T, ANCHOR_PRECISION).T for part in points]
    return split_joint(np.unique(np.hstack(rounded), axis=0), widths)


def tie_rows(graph: AnchorGraph, rows: Rows) -> Rows:
    """Rows as their affinities; refuses anchors that are not of their views."""
    try:
        graph.check(rows.widths)
    except ValueError as error:
        raise MessageError(str(error)) from error
    return make_affinity_rows(graph.affinities(rows), rows.sample_weight)


@dataclass(frozen=True, eq=False)
class RowMeans(Entry):
    """Means of groups of rows of all sites, in the space of the sites' calibrated rows."""

    candidates: Candidates


@dataclass(frozen=True, eq=False)
class Room(Entry):
    """The number of means that there was room for: under masks, sites are asked for no more groups than these."""

    means: int


@dataclass(frozen=True, eq=False)
class StandIns(Entry):
    """Affinities of rows that stand in for those of the sites, as the parts of a CSR array."""

    data: FloatArray
    indices: npt.NDArray[Any]
    pointers: npt.NDArray[Any]
    n_columns: int

    @classmethod
    def of(cls, affinities: Any) -> StandIns:
        """Keep a CSR array."""
        return cls(affinities.data, affinities.indices, affinities.indptr, affinities.shape[1])

    @property
    def affinities(self) -> Any:
        """The CSR array, of shape (n, m)."""
        shape = (len(self.pointers) - 1, self.n_columns)
        return sp.csr_array((self.data, self.indices, self.pointers), shape=shape)


@dataclass(frozen=True, eq=False)
class Groups(Entry):
    """Groups of anchors, between whose members heat passes too."""

    groups: AnchorGroups


def anchors_wanted(board: Board, diffusion: Diffusion, n_clusters: int) -> int:
    """How many means of rows there are to be."""
    return anchor_count(n_clusters, board.get(Population).rows, diffusion.n_anchors)


@dataclass(frozen=True, eq=False)
class TiedRows:
    """Anchors, and how rows that stand in for those of the sites are tied to them."""

    graph: AnchorGraph
    affinities: Any  # CSR, of shape (n, columns)
    groups: AnchorGroups  # of the anchors


@dataclass(frozen=True)
class TieRows(ServerPhase):
    """The anchors that rows are tied to, made of what sites have said of their rows, and groups of them."""

    name: ClassVar[str] = "tie rows"

    diffusion: Diffusion
    n_clusters: int
    seed: int

    def begin(self, board: Board) -> Board:
        if board.has(FinalParameters):  # of parts of clusters, to which rows are tied
            return board
        tied = self.tie_stand_ins(board, find_metric(board))
        anchors = Anchors.of(tied.graph)
        asked, count = self._count_means(board), tied.graph.n_anchors
        if tied.graph.n_columns < self.n_clusters:
            raise DataError(
                f"n_clusters={self.n_clusters}, but the sites' rows give {count} different anchors with "
                f"{tied.graph.n_columns} columns: there are too few different rows."
            )
        if count < asked / 2 and not tied.graph.parts:
            warnings.warn(
                f"{count} anchors instead of {asked}: sites have too few rows, or too few different ones, of "
                "which means could be made. Use Diffusion(anchors='synthetic').",
                UserWarning,
                stacklevel=2,
            )
        found = board.drop(FittedMixture, RowMeans, Room, RowMetric)
        return found.put(anchors, Groups(tied.groups), StandIns.of(tied.affinities))

    def tie_stand_ins(self, board: Board, metric: Metric = NO_METRIC) -> TiedRows:
        """Make anchors of what sites have said of their rows, and tie rows that stand in for those of the sites."""
        options = self.diffusion
        means = [complete_candidates(read_means(board))] if board.has(RowMeans) else []
        stretched = [replace_tables(own, metric.stretch_joint(joint_rows(own), own.widths)) for own in means]
        drawn = self._draw_stand_ins(board, stretched)
        wanted = good_count(self.n_clusters, board.get(Population).rows, options.n_anchors)
        points = metric.undo(self._make_points(board, stretched, drawn, self._count_means(board), wanted))
        rows = replace_tables(drawn, np.hstack(metric.undo(split_joint(joint_rows(drawn), drawn.widths))))
        levels = find_levels(board.get(Population).columns, rows.widths)
        graph = AnchorGraph(
            round_points(clear_levels(points, levels)), options.neighbours, options.scale, options.joint_weight
        )
        parts = self._make_parts(board, means or [rows])
        graph = Anchors.of(tie_to_parts(replace(graph, metric=metric), rows, parts, self.n_clusters)).graph
        affinities = graph.affinities(rows)
        groups = find_groups(affinities, graph, self.n_clusters, options, self.seed)
        return TiedRows(graph, affinities, groups)

    def _count_means(self, board: Board) -> int:
        """How many means of rows there are to be at most."""
        rooms = [room.means for room in board.find(Room)]
        return min([anchors_wanted(board, self.diffusion, self.n_clusters), *rooms])

    def _make_points(
        self, board: Board, means: list[Rows], stand_ins: Rows, asked: int, wanted: int
    ) -> tuple[FloatArray, ...]:
        """Anchors per view; levels of categories are at their means in all of them."""
        levels = find_levels(board.get(Population).columns, board.get(References).widths)
        for found in board.find(FittedMixture):
            drawn: tuple[FloatArray, ...] = read_arrays(round_arrays(found.mixture, PRECISION)).take(wanted, self.seed)
            return drawn
        (rows,) = means
        made = make_anchors(rows, asked, calibrated_references(board), np.random.RandomState(self.seed), levels)
        joint = np.hstack(made)
        lacking = min(wanted, int(board.get(Population).rows)) - len(joint)
        # points drawn around means of rows of length 1, such as documents, are unlike any row
        is_dense = not any(reference.on_sphere for reference in board.get(References).references)
        if self.diffusion.anchors == AUTO and is_dense and lacking > 0:
            joint = np.vstack([joint, joint_rows(stand_ins)[:lacking]])
        return split_joint(joint, rows.widths)

    def _make_parts(self, board: Board, means: list[Rows]) -> Parts:
        """Parts that rows are tied to as well, where some features are levels of categories."""
        return make_parts(
            means[0], board.get(Population).columns, calibrated_references(board), self.n_clusters, self.seed
        )

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [self]

    def _draw_stand_ins(self, board: Board, means: list[Rows]) -> Rows:
        """Rows such as may stand behind what sites have said."""
        width = sum(board.get(References).widths)
        count = max(LEAST_STAND_INS, min(STAND_INS, STAND_IN_BYTES // (8 * width)))
        parts = [np.hstack(found.mixture.take(count, self.seed)) for found in board.find(FittedMixture)]
        for rows in means:
            parts.extend(map(joint_rows, draw_stand_ins(rows, np.random.RandomState(self.seed), count)))
        joint = np.vstack(parts)
        views = len(board.get(References).references)
        return _as_rows(board, Candidates(joint, np.ones(len(joint)), np.zeros((len(joint), views))))


def read_means(board: Board) -> Rows:
    """Means of groups of rows, with their weights, as rows of the sites."""
    return _as_rows(board, board.get(RowMeans).candidates)


def _as_rows(board: Board, found: Candidates) -> Rows:
    return candidate_rows([found], board.get(References).references, board.get(Schema).names)


def count_exchanges(rounds: int) -> int:
    """Of so many rounds that share a budget, how many are kept to count rows between parts."""
    return rounds // 2


@dataclass(frozen=True)
class MeansOfGroups(ServerPhase):
    """Means of groups of the rows of all sites, from sums, in the place of candidates."""

    name: ClassVar[str] = "means of groups"

    def begin(self, board: Board) -> Board:
        found = board.get(SumCandidates).candidates
        return board.drop(SumCandidates).put(RowMeans(found), Room(len(found.sizes)))


@dataclass(frozen=True, kw_only=True)
class ChooseAnchors(AskCandidates):
    """Candidates of all sites, as many for each row so that anchors lie where rows do, and the anchors made of them."""

    diffusion: Diffusion
    n_clusters: int

    def request(self, board: Board) -> CandidatesRequest:
        return CandidatesRequest(0, self._share(board), self.seed, PRECISION)

    def most_candidates(self, board: Board) -> int:
        """As if one site had all rows."""
        return count_by_share(int(board.get(Population).rows), self._share(board))

    def start(self, board: Board, found: list[Candidates]) -> Board:
        names = ("points", "sizes", "spreads")
        together = Candidates(*(np.concatenate([getattr(part, name) for part in found]) for name in names))
        return board.put(RowMeans(together))

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        if terms.noise is not None:
            return self._fit_parts(terms)
        # means of few rows of one site stay there: groups of the rows of all sites take their place
        count = max(self.diffusion.n_anchors, GOOD_PER_CLUSTER * self.n_clusters)
        sums = row_groups(self.settings, count, self.seed)
        return [*map(terms.seal, sums), MeansOfGroups()]

    def _fit_parts(self, terms: Any) -> list[Phase[Any, Any]]:
        """With noise: clusters are put together from parts, which are found as other clusters are."""
        if terms.noise.rounds < 2:
            raise ValueError(
                f"rounds={terms.noise.rounds}: a diffusion with noise needs at least 2 rounds, one to find parts of "
                "clusters and one to count rows between them. Give rounds=2 or more, and max_rounds as many."
            )
        if not terms.noise.unit.has_spare:
            raise ValueError("unit='site' does not go with a diffusion: its budget has no share for counts of ties.")
        settings = replace(self.settings, n_clusters=max(PARTS, PARTS_PER_CLUSTER * self.settings.n_clusters))
        start = ChooseStart(settings, self.protocol, self.aggregator, self.seed, self.workers, groups=False)
        max_rounds = terms.noise.rounds - count_exchanges(terms.noise.rounds)
        rounds = Rounds(self.protocol, RoundContext(settings, self.aggregator), max_rounds, 0.0)
        return [*start.sealed(terms), *rounds.sealed(terms)]

    def _share(self, board: Board) -> float:
        """Candidates that sites are asked for, for each of their rows."""
        return candidate_share(anchors_wanted(board, self.diffusion, self.n_clusters), board.get(Population).rows)
