"""Remember: what a model of embedded rows keeps of them for updates, from sums over rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import FinalParameters, References, Remembered
from fedhk.federation.phases.anchors import Anchors
from fedhk.federation.phases.base import Nothing, SumPhase
from fedhk.federation.phases.cluster_means import Limits
from fedhk.federation.phases.finish import final_rows
from fedhk.federation.phases.kept_embedding import FoundEmbedding, OwnEmbedding
from fedhk.federation.plausible import MOST_ROWS, ROUNDING
from fedhk.federation.site import Site
from fedhk.model.memory import OVER_ROWS, ClusterSpread, Memory

# Sums of squared distances to anchors, and of their squares.
NEAR = 2

# Of a row that the model was fitted on, the nearest anchor may be the mean of a group that the row itself is in. So the
# distance to the second nearest is taken, which is no shorter than that of a new row to its nearest.
SECOND = 1


@dataclass(frozen=True)
class RememberEmbedded(SumPhase[Nothing]):
    """Sum up how many rows each cluster has in each view, and how far they are from its mean and from anchors."""

    name: ClassVar[str] = "remember"
    with_noise: ClassVar[bool] = False  # a model with noise is not updated

    def size(self, board: Board) -> int:
        n_views = len(board.get(References).references)
        return board.get(FinalParameters).parameters.n_clusters * (n_views + OVER_ROWS + NEAR)

    @staticmethod
    def vector(site: Site, request: Nothing) -> FloatArray:
        final = final_rows(site)
        site.keep(OwnEmbedding(FoundEmbedding.at(site)))
        placed = final.placed
        near = site.board.get(Anchors).graph.nearest_squares(placed.rows, SECOND)
        squares = np.column_stack([placed.count(near), placed.count(np.square(near))])
        found = np.hstack([placed.count_views(), placed.sums_over_rows(), squares])
        return np.asarray(found * (final.rows.n_rows / max(len(placed.labels), 1))).ravel()

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        weights, table, _ = self._read(board, values)
        rows = float(table[:, 0].sum())
        if np.any(values < 0) or rows > MOST_ROWS or np.any(weights > (1 + ROUNDING) * table[:, :1]):
            raise MessageError("sums that no rows can have: below zero, or more rows than the site has", site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        weights, table, near = self._read(board, np.maximum(total, 0.0))  # rounding on a grid may leave less
        memory = Memory(weights, ClusterSpread.from_array(table))
        squares = ClusterSpread.from_array(np.hstack([table[:, :1], near])).limits()
        return board.put(Remembered(memory), Limits(squares))

    @staticmethod
    def _read(board: Board, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Read rows per view, their spread around the mean and their distances to anchors, one line per cluster."""
        n_views = len(board.get(References).references)
        lines = values.reshape(board.get(FinalParameters).parameters.n_clusters, -1)
        weights, table, near = np.split(lines, [n_views, n_views + OVER_ROWS], axis=1)
        return weights, table, near
