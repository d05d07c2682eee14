"""Refines the calibration: sites remove what clusters leave of their mean and spread.

Where a site measures differently and also has more rows of some clusters, its mean is not its offset. What rows of a
cluster differ by from others of their site does not depend on the offset of the site. Three exchanges follow once
a calibration is taken: one sum for these differences, with which a site computes what its clusters leave of its mean
and spread, and two that compare this frame with the one that was taken, as `CompareClusters` compares others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._symmetric import from_upper_half, upper_half
from fedhk._typing import FloatArray
from fedhk.agreement.frames import REFINED, Evidence, Witness, choose_refined, list_witnesses
from fedhk.agreement.mix import RIDGE
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import Schema
from fedhk.federation.phases.agreement import (
    CompareClusters,
    Effects,
    FindPartitions,
    FirstCenters,
    Partitions,
    SumPartitions,
)
from fedhk.federation.phases.base import Phase, Sum, SumPhase
from fedhk.federation.phases.publish_frame import Shares
from fedhk.federation.plausible import MOST_ROWS
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.personal.calibration import ClusterEffects, FirstClusters
from fedhk.starts.kmeans import group_sums

# Clusters, and what they differ by, go to sites in this precision: what sites compute from them are means of rows.
PRECISION = np.float16


@dataclass(frozen=True, eq=False)
class EffectsRequest:
    """Ask what the rows of each cluster differ by from others of their site."""

    clusters: FirstClusters


@dataclass(frozen=True)
class FindEffects(SumPhase[EffectsRequest]):
    """Compute the differences between clusters within sites, from sums over rows less the mean of their site.

    With P the clusters of rows and X their values, both less their means at the site, the sums are those of P^T P,
    P^T X and X^2, the values of each feature, and the rows of each cluster. Offsets of sites are in none of them.
    """

    name: ClassVar[str] = "effects"
    with_noise: ClassVar[bool] = False  # no frame is chosen then

    find: FindPartitions

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not board.has(FirstCenters)

    def request(self, board: Board) -> EffectsRequest:
        return EffectsRequest(self._clusters(board))

    def size(self, board: Board) -> int:
        centers = board.get(FirstCenters).centers
        c, width = len(centers), int(centers.shape[1])
        return c * (c + 3) // 2 + (c + 2) * width

    @staticmethod
    def vector(site: Site, request: EffectsRequest) -> FloatArray:
        points, labels = request.clusters.label(site.rows())
        c, seen = len(request.clusters.centers), ~np.isnan(points)
        values = np.maximum(seen.sum(axis=0), 1)
        centered = np.where(seen, points - np.where(seen, points, 0.0).sum(axis=0) / values, 0.0)
        sums, counts = group_sums(centered, np.ones(len(points)), labels, c)
        shares = np.diag(counts) - np.outer(counts, counts) / max(len(points), 1)
        squares = np.square(centered).sum(axis=0)
        return np.concatenate([upper_half(shares), counts, sums.ravel(), squares, seen.sum(axis=0)])

    @classmethod
    def answer(cls, site: Site, request: EffectsRequest) -> Sum:
        return Sum(cls.vector(site, request).astype(np.float32))  # error far below that of rows that are few

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        c, width = board.get(FirstCenters).centers.shape
        counts, ends = values[c * (c + 1) // 2 :][:c], values[-2 * width :]
        if np.any(counts < 0) or np.any(ends < 0) or not 0 <= counts.sum() <= MOST_ROWS:
            raise MessageError("rows of clusters, or squares of values, that no rows can have", site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        clusters = self._clusters(board)
        c, width = clusters.centers.shape
        half, counts, sums, squares, values = np.split(total, np.cumsum([c * (c + 1) // 2, c, c * width, width]))
        shares, sums = from_upper_half(half), sums.reshape(c, width)
        effects = np.linalg.solve(shares + np.diag(RIDGE * counts + 1e-9), sums)
        effects = effects - counts @ effects / max(float(counts.sum()), 1.0)  # the mean of all rows stays where it is
        left = squares - 2 * (effects * sums).sum(axis=0) + (effects * (shares @ effects)).sum(axis=0)
        spread = np.sqrt(np.maximum(left, 0.0) / np.maximum(values, 1.0))
        return board.put(Effects(ClusterEffects(clusters, effects.astype(PRECISION), spread.astype(PRECISION))))

    def _clusters(self, board: Board) -> FirstClusters:
        shares, asked = board.get(Shares), self.find.request(board)
        centers = board.get(FirstCenters).centers.astype(PRECISION)
        return FirstClusters(shares.shift, shares.spread, asked.kept, centers)


@dataclass(frozen=True)
class FindRefined(FindPartitions):
    """Find clusters of each view in the refined frame, once there is one."""

    name: ClassVar[str] = "refined partitions"

    def witnesses(self, board: Board) -> tuple[Witness, ...]:
        if not board.has(Effects):
            return ()
        return tuple([replace(own, refined=True) for own in list_witnesses(len(board.get(Schema).names), (REFINED,))])

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        return SumPartitions(self).sealed(terms)


@dataclass(frozen=True)
class CompareRefined(CompareClusters):
    """Take the refined frame if views agree more in it, and clusters of all sites with those of sites alone."""

    name: ClassVar[str] = "refined agreement"

    def begin(self, board: Board) -> Board:
        return board

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not board.has(Partitions)

    def _take(
        self, board: Board, pairs: Mapping[tuple[int, int], float], alone: Mapping[int, float], mix: float
    ) -> Board:
        shares, effects = board.get(Shares), board.get(Effects).effects
        board = board.drop(FirstCenters, Effects)
        evidence = Evidence(board.get(Partitions).witnesses, pairs, alone, mix)
        is_better, opinions = choose_refined(evidence, shares.opinions)
        if not is_better:
            return board.put(replace(shares, opinions=tuple(opinions)))
        return board.put(Shares(*REFINED, tuple(opinions), (effects,)))
