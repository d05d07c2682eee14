"""Anchor groups: anchors from sums alone, for runs in which the server sees nothing but sums over all sites.

Every exchange is one pass of k-means over the rows of all sites, from one group to as many as there are anchors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.embedding.diffusion import Diffusion
from fedhk.embedding.splitting import groups_size, read_groups, split_groups, sum_groups
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import References, Schema
from fedhk.federation.phases.anchors import PRECISION, Anchors, anchors_wanted, put_anchors
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.cluster_means import incomplete_views
from fedhk.federation.site import Site
from fedhk.federation.table import Table, round_as_sent
from fedhk.starts.candidates import candidate_rows

# Splits beyond those that would do if all groups were split each time, and passes of plain k-means after them.
EXTRA_SPLITS, LAST_PASSES = 2, 2


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
    """Groups of the rows of all sites, and the anchors made of their means.

    Parameters
    ----------
    diffusion : Diffusion
        How many anchors there are, and how rows are tied to them.
    n_clusters : int or None
        Number of clusters; None is found by the diffusion.
    seed : int
        Of what is drawn.
    """

    name: ClassVar[str] = "anchor groups"
    request_type: ClassVar[Any] = AnchorGroupsRequest
    unbounded: ClassVar[str] = "what one row can change in the means that anchors are made from has no bound."

    diffusion: Diffusion
    n_clusters: int | None
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
