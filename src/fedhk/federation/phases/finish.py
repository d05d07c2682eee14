"""Finish: the objective at the final parameters and, for own models, how large clusters are and how far rows spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator
from fedhk.federation.board import Board
from fedhk.federation.entries import Basis, FinalModel, FinalParameters, Result, Space, Summary
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.plausible import check_rows, check_summary
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.model.cluster_summary import ClusterSummary, summarise_clusters
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes


@dataclass(frozen=True)
class FinishRequest:
    """Ask for the objective and, where `summary` says so, for what clusters are made of."""

    summary: bool


def final_parameters(site: Site) -> Parameters:
    """The final parameters, as the server published them."""
    basis = next(site.board.find(Basis), None)
    return site.board.get(FinalModel).model.parameters(site.rows().widths, basis)


@dataclass(frozen=True)
class Finish(SumPhase[FinishRequest]):
    """The objective at the final parameters."""

    name: ClassVar[str] = "finish"
    with_noise: ClassVar[bool] = False  # the last noisy round says the objective, and nothing tells of single clusters

    summary: bool  # whether sites also say how large clusters are and how far rows spread in them
    aggregator: Aggregator = PLAIN_SUM

    def request(self, board: Board) -> FinishRequest:
        return FinishRequest(self.summary)

    def size(self, board: Board) -> int:
        return 2 + self.summary * (board.get(FinalParameters).parameters.n_clusters + 2 * sum(board.get(Space).widths))

    @staticmethod
    def vector(site: Site, request: FinishRequest) -> FloatArray:
        parameters, rows = final_parameters(site), site.rows()
        statistics = site.collect(parameters)
        sums = np.array([statistics.objective, statistics.rows])
        if not request.summary:
            return sums
        seen = site.see(parameters)
        with Passes(rows, seen.n_clusters, site.workers) as scan:
            labels = scan.assign(seen)[1]
        # sites compare the weight of clusters with that of their own rows, by memberships: labels say more than these
        summary = replace(summarise_clusters(rows, seen, labels), counts=statistics.masses)
        return np.concatenate([sums, summary.to_array()])

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_array(values, (self.size(board),), site, "sums", non_negative=True)
        objective, rows = values[:2].tolist()
        parameters = board.get(FinalParameters).parameters
        check_rows(rows, objective, parameters, site)
        if self.summary:
            found = ClusterSummary.from_array(values[2:], parameters.n_clusters)
            check_summary(found, rows, board.get(Space).reach, site)

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        rows = [np.full(len(values), values[1]) for values in vectors]
        if self.summary:  # squared distances are of the rows that have the feature
            width = sum(board.get(Space).widths)
            for behind, values in zip(rows, vectors, strict=True):
                behind[-2 * width : -width] = values[-width:]
        return self.aggregator.sums(vectors, rows)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        board = board.put(Result(float(total[0]), float(total[1])))
        if not self.summary:
            return board
        counts = np.maximum(total[2:], 0.0)  # rounding on a grid may leave less than nothing
        return board.put(Summary(ClusterSummary.from_array(counts, board.get(FinalParameters).parameters.n_clusters)))
