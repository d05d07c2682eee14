"""Anchors: from candidates of all sites the server makes the anchors that the rows of all sites are tied to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import anchor_count, candidate_share, complete_candidates
from fedhk.embedding.diffusion import Diffusion
from fedhk.embedding.diffusion_map import make_affinity_rows, make_graph, tie_stand_ins
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import Population, References, Schema
from fedhk.federation.phases.candidates import AskCandidates, CandidatesRequest
from fedhk.federation.phases.frame import Frame
from fedhk.federation.table import Table, round_as_sent
from fedhk.model.fitted import FittedModel
from fedhk.model.joint import split_joint
from fedhk.model.rows import Rows
from fedhk.personal.frame import choose_embedding_calibration
from fedhk.starts.candidates import Candidates, candidate_rows, count_by_share

# Precision of anchors, directions and the embedding on their way to sites: everybody uses them as they are read, so
# that rounding them loses nothing that is exact. Sums from sites are in double precision.
PRECISION = "half"

# Most clusters that "auto" looks for: as at one site.
MOST_CLUSTERS = 10


@dataclass(frozen=True, eq=False)
class Anchors(RowEntry):
    """The anchors: from here on a row is its affinities to them, a few numbers.

    Parameters
    ----------
    tables : tuple of Table of shape (p, d_h)
        Centres of each anchor, in model units, rounded.
    neighbours, scale, joint_weight
        As in `AnchorGraph`.
    """

    tables: tuple[Table, ...]
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


@dataclass(frozen=True, kw_only=True)
class ChooseAnchors(AskCandidates):
    """Candidates of all sites, as many for each row so that anchors lie where rows do, and the anchors made of them.

    Parameters
    ----------
    diffusion : Diffusion
        How many anchors there are, and how rows are tied to them.
    n_clusters : int or None
        Number of clusters; None is found by the diffusion.
    """

    diffusion: Diffusion
    n_clusters: int | None

    def request(self, board: Board) -> CandidatesRequest:
        return CandidatesRequest(0, self._share(board), self.seed, PRECISION, self.wants_frame)

    def most_candidates(self, board: Board) -> int:
        """As if one site had all rows."""
        return count_by_share(int(board.get(Population).rows), self._share(board))

    def start(self, board: Board, found: list[Candidates], frames: list[FloatArray]) -> Board:  # noqa: ARG002
        rows = candidate_rows(found, board.get(References).references, board.get(Schema).names)
        return put_anchors(board, rows, self.diffusion, self.n_clusters, self.seed)

    def _share(self, board: Board) -> float:
        """Candidates that sites are asked for, for each of their rows."""
        return candidate_share(anchors_wanted(board, self.diffusion, self.n_clusters), board.get(Population).rows)


@dataclass(frozen=True, kw_only=True)
class ChooseCalibratedAnchors(ChooseAnchors):
    """The same with each site's own mean and spread, of which a share is taken out where sites measure differently.

    Parameters
    ----------
    shares : (float, float) or None
        Shares of mean and spread that were given; None chooses.
    """

    shares: tuple[float, float] | None = None

    wants_frame: ClassVar[bool] = True

    def start(self, board: Board, found: list[Candidates], frames: list[FloatArray]) -> Board:
        settings = self.settings
        if self.n_clusters is None:
            settings = settings.with_clusters(min(MOST_CLUSTERS, sum(len(candidates.sizes) for candidates in found)))
        references, names = board.get(References).references, board.get(Schema).names
        calibrations, rows = choose_embedding_calibration(
            found, frames, references, names, settings, shares=self.shares, seed=self.seed, workers=self.workers
        )
        board = board.put(*(Frame(calibration) for calibration in calibrations))
        return put_anchors(board, rows, self.diffusion, self.n_clusters, self.seed)


def vectors_wanted(n_clusters: int | None) -> int:
    """Eigenvectors that are needed: one for a cluster, or enough to see a gap after any number of clusters."""
    return MOST_CLUSTERS + 1 if n_clusters is None else n_clusters


def anchors_wanted(board: Board, diffusion: Diffusion, n_clusters: int | None) -> int:
    """How many anchors there are to be."""
    return anchor_count(vectors_wanted(n_clusters), board.get(Population).rows, diffusion.n_anchors)


def put_anchors(board: Board, candidates: Rows, diffusion: Diffusion, n_clusters: int | None, seed: int) -> Board:
    """Publish the anchors that candidates give; `candidates` are in the space of the sites' calibrated rows."""
    references: Sequence[Any] = board.get(References).references
    for frame in board.find(Frame):
        references = frame.calibration.in_units(references)
    complete = complete_candidates(candidates)
    count = anchors_wanted(board, diffusion, n_clusters)
    anchors = Anchors.of(make_graph(complete, tuple(references), count, diffusion, seed))
    graph = anchors.graph
    if n_clusters is not None and graph.n_columns < n_clusters:
        raise DataError(
            f"n_clusters={n_clusters}, but the sites' rows give {graph.n_anchors} different anchors with "
            f"{graph.n_columns} columns: there are too few different rows."
        )
    return board.put(anchors, StandIns.of(tie_stand_ins(graph, complete, seed)))
