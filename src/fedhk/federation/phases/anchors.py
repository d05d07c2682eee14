"""Anchors: points that the rows of all sites are tied to, made of candidates or, from sums alone, of groups of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import anchor_count, candidate_share, complete_candidates
from fedhk.embedding.diffusion import Diffusion, make_affinity_rows, make_graph, tie_stand_ins
from fedhk.embedding.splitting import groups_size, read_groups, split_groups, sum_groups
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import Population, References, Schema
from fedhk.federation.phases.base import Phase, SumPhase
from fedhk.federation.phases.candidates import AskCandidates, CandidatesRequest
from fedhk.federation.phases.cluster_means import incomplete_views
from fedhk.federation.phases.frame import Frame
from fedhk.federation.site import Site
from fedhk.federation.table import Table, round_as_sent
from fedhk.model.fitted import FittedModel
from fedhk.model.rows import Rows, split_joint
from fedhk.starts.candidates import Candidates, candidate_rows, count_by_share

# Precision of anchors, directions and the embedding on their way to sites: everybody uses them as they are read, so
# that rounding them loses nothing that is exact. Sums from sites are in double precision.
PRECISION = "half"

# Most clusters that "auto" looks for: as at one site.
MOST_CLUSTERS = 10

# Splits beyond those that would do if all groups were split each time, and passes of plain k-means after them.
EXTRA_SPLITS, LAST_PASSES = 2, 2


@dataclass(frozen=True, eq=False)
class Anchors(RowEntry):
    """The anchors: from here on a row is its affinities to them, a few numbers."""

    tables: tuple[Table, ...]  # of shape (p, d_h): centres of each anchor, in model units, rounded
    neighbours: int
    scale: float
    joint_weight: float

    @classmethod
    def of(cls, graph: AnchorGraph) -> Anchors:
        """Round the anchors of a graph; those that are the same after it are one."""
        widths = [part.shape[1] for part in graph.anchors]
        rounded = np.unique(round_as_sent(np.hstack(graph.anchors), PRECISION), axis=0)
        tables = tuple(Table.of(part, PRECISION) for part in split_joint(rounded, widths))
        return cls(tables, graph.neighbours, graph.scale, graph.joint_weight)

    @cached_property
    def graph(self) -> AnchorGraph:
        """The anchors as server and sites read them."""
        parts = tuple(table.read() for table in self.tables)
        return AnchorGraph(parts, self.neighbours, self.scale, self.joint_weight)

    def apply(self, rows: Rows) -> Rows:
        if [table.values.shape[-1:] for table in self.tables] != [(width,) for width in rows.widths]:
            raise MessageError(f"anchors must have the features of {len(rows.widths)} views, {list(rows.widths)}")
        for table, width in zip(self.tables, rows.widths, strict=True):
            table.check((len(self.tables[0].values), width), "", "anchors")
        return make_affinity_rows(self.graph.affinities(rows), rows.sample_weight)

    def wrap(self, model: FittedModel, board: Board) -> FittedModel:  # noqa: ARG002 - the embedding brings its anchors
        return model


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


def vectors_wanted(n_clusters: int | None) -> int:
    """Eigenvectors that are needed: one for a cluster, or enough to see a gap after any number of clusters."""
    return MOST_CLUSTERS + 1 if n_clusters is None else n_clusters


def anchors_wanted(board: Board, diffusion: Diffusion, n_clusters: int | None) -> int:
    """How many anchors there are to be."""
    return anchor_count(vectors_wanted(n_clusters), board.get(Population).rows, diffusion.n_anchors)


def put_anchors(board: Board, candidates: Rows, diffusion: Diffusion, n_clusters: int | None, seed: int) -> Board:
    """Publish the anchors that candidates give; `candidates` are in the space of the sites' calibrated rows."""
    references = board.get(References).references
    for frame in board.find(Frame):
        references = frame.calibration.in_units(references)
    complete = complete_candidates(candidates)
    count = anchors_wanted(board, diffusion, n_clusters)
    anchors = Anchors.of(make_graph(complete, references, count, diffusion, seed))
    graph = anchors.graph
    if n_clusters is not None and graph.n_columns < n_clusters:
        raise DataError(
            f"n_clusters={n_clusters}, but the sites' rows give {graph.n_anchors} different anchors with "
            f"{graph.n_columns} columns: there are too few different rows."
        )
    return board.put(anchors, StandIns.of(tie_stand_ins(graph, complete, seed)))


@dataclass(frozen=True, kw_only=True)
class ChooseAnchors(AskCandidates):
    """Candidates of all sites, as many for each row so that anchors lie where rows do, and the anchors made of them."""

    diffusion: Diffusion
    n_clusters: int | None  # None is found by the diffusion

    def request(self, board: Board) -> CandidatesRequest:
        return CandidatesRequest(0, self._share(board), self.seed, PRECISION)

    def most_candidates(self, board: Board) -> int:
        """As if one site had all rows."""
        return count_by_share(int(board.get(Population).rows), self._share(board))

    def start(self, board: Board, found: list[Candidates]) -> Board:
        rows = candidate_rows(found, board.get(References).references, board.get(Schema).names)
        return put_anchors(board, rows, self.diffusion, self.n_clusters, self.seed)

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return AnchorGroups(self.diffusion, self.n_clusters, self.seed).sealed(terms)

    def _share(self, board: Board) -> float:
        """Candidates that sites are asked for, for each of their rows."""
        return candidate_share(anchors_wanted(board, self.diffusion, self.n_clusters), board.get(Population).rows)


@dataclass(frozen=True, eq=False)
class Groups(Entry):
    """The points of the next pass, of shape (k, features), and the passes so far."""

    points: FloatArray
    passes: int


@dataclass(frozen=True, eq=False)
class AnchorGroupsRequest:
    """Ask for sums of rows by the nearest of some points; `incomplete` numbers the views that lack cells."""

    points: Table
    incomplete: tuple[int, ...]


@dataclass(frozen=True)
class AnchorGroups(SumPhase[AnchorGroupsRequest]):
    """Groups of the rows of all sites, and the anchors made of their means: what `ChooseAnchors` is from sums alone.

    Every exchange is one pass of k-means over the rows of all sites, from one group to as many as there are anchors.
    """

    name: ClassVar[str] = "anchor groups"
    request_type: ClassVar[Any] = AnchorGroupsRequest
    unbounded: ClassVar[str] = "what one row can change in the means that anchors are made from has no bound."

    diffusion: Diffusion
    n_clusters: int | None  # None is found by the diffusion
    seed: int

    def begin(self, board: Board) -> Board:
        """At first all rows are one group around the grand mean."""
        return board.put(Groups(np.zeros((1, sum(board.get(References).widths))), 0))

    def is_done(self, board: Board, exchanges: int) -> bool:  # noqa: ARG002
        return board.has(Anchors)

    def request(self, board: Board) -> AnchorGroupsRequest:
        return AnchorGroupsRequest(Table.of(board.get(Groups).points, PRECISION), incomplete_views(board))

    def size(self, board: Board) -> int:
        return groups_size(len(board.get(Groups).points), board.get(References).widths, incomplete_views(board))

    @staticmethod
    def vector(site: Site, request: AnchorGroupsRequest) -> FloatArray:
        rows = site.rows()
        request.points.check((None, sum(rows.widths)), site.name, "points")
        return sum_groups(rows, request.points.read(), request.incomplete)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:  # noqa: ARG002
        groups, references = board.get(Groups), board.get(References)
        found = read_groups(total, len(groups.points), references.widths, incomplete_views(board))
        wanted = anchors_wanted(board, self.diffusion, self.n_clusters)
        splits = math.ceil(math.log2(wanted)) + EXTRA_SPLITS
        if groups.passes >= splits + LAST_PASSES:
            rows = candidate_rows([found], references.references, board.get(Schema).names)
            return put_anchors(board.drop(Groups), rows, self.diffusion, self.n_clusters, self.seed)
        count = wanted if groups.passes < splits else 0
        points = split_groups(found, count, references.widths, seeded(self.seed, groups.passes))
        return board.put(Groups(round_as_sent(points, PRECISION), groups.passes + 1))
