"""Anchors: points that the rows of all sites are tied to, made of candidates or of groups of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import anchor_count, complete_candidates
from fedhk.embedding.diffusion import Diffusion
from fedhk.embedding.diffusion_map import make_affinity_rows, make_graph, tie_stand_ins
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import Population, References
from fedhk.federation.phases.frame import Frame
from fedhk.federation.table import Table, round_as_sent
from fedhk.model.fitted import FittedModel
from fedhk.model.rows import Rows, split_joint

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
