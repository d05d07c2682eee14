"""Finish: the objective at the final parameters and, for own models, the sizes and spreads of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator
from fedhk.federation.board import Board, RowEntry
from fedhk.federation.entries import (
    Basis,
    FinalModel,
    FinalParameters,
    References,
    Remembered,
    Result,
    Space,
    Summary,
    check_row_count,
)
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.plausible import ROUNDING, can_weigh, check_rows, check_summary
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.model.cluster_summary import ClusterSummary, summarise_clusters
from fedhk.model.memory import OVER_ROWS, ClusterSpread, Memory, PlacedRows, most_placed
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Assignment, Passes
from fedhk.model.rows import Rows


@dataclass(frozen=True)
class FinishRequest:
    """Ask for the objective and, with `summary` or `memory`, for sizes and spreads of clusters."""

    summary: bool
    memory: bool = False


def final_parameters(site: Site) -> Parameters:
    """Return the final parameters, as the server published them."""
    basis, model = next(site.board.find(Basis), None), site.board.get(FinalModel).model
    return site.derive(model, lambda: model.parameters(site.rows().widths, basis))


@dataclass(frozen=True, eq=False)
class FinalRows:
    """A site's rows at the final parameters: what `Finish` and `Deliver` both need is computed once."""

    rows: Rows
    seen: Parameters  # as the site uses them
    workers: int
    features: Rows  # the same rows before they are embedded, if they are
    common: Parameters  # where clusters are among these
    means: Parameters  # the same as the site uses them

    @cached_property
    def assigned(self) -> Assignment:
        """Memberships, labels and objective of all rows."""
        with Passes(self.rows, self.seen.n_clusters, self.workers) as scan:
            return scan.assign(self.seen)

    @property
    def is_small(self) -> bool:
        """Whether all rows are placed: memberships of more rows are not kept from one phase to the next."""
        return self.rows.n_rows <= most_placed(self.rows)

    @cached_property
    def placed(self) -> PlacedRows:
        """The rows, or a sample of them, with their clusters."""
        known = self.assigned[1] if self.is_small or self.features is not self.rows else None
        return PlacedRows.of(self.features, self.means, known)


def final_rows(site: Site) -> FinalRows:
    """Return the site's rows at the final parameters."""
    entry = site.board.get(FinalModel)
    return site.derive(entry, lambda: _read_final(site))


def _read_final(site: Site) -> FinalRows:
    final = common = final_parameters(site)
    for change in reversed(list(site.board.find(RowEntry))):
        common = change.undo(common, site.board)
    return FinalRows(site.rows(), site.see(final), site.workers, site.features(), common, site.see(common))


def forget_final_rows(site: Site) -> None:
    """Free what `final_rows` keeps: with very many sites that is more than their rows."""
    entry = site.board.get(FinalModel)
    site.forget(entry, entry.model)


@dataclass(frozen=True)
class Finish(SumPhase[FinishRequest]):
    """Compute the objective at the final parameters."""

    name: ClassVar[str] = "finish"
    with_noise: ClassVar[bool] = False  # the last noisy round says the objective, and nothing tells of single clusters

    summary: bool  # whether sites also say how large clusters are and how far rows spread in them
    aggregator: Aggregator = PLAIN_SUM
    memory: bool = True  # whether sites also say what the model remembers of them, for updates

    def request(self, board: Board) -> FinishRequest:
        return FinishRequest(self.summary, self.memory)

    def adds(self, board: Board) -> bool:
        return self.aggregator.adds

    def size(self, board: Board) -> int:
        c, widths = board.get(FinalParameters).parameters.n_clusters, board.get(Space).widths
        return 2 + self.memory * c * (len(widths) + OVER_ROWS) + self.summary * (c + 2 * sum(widths))

    @staticmethod
    def vector(site: Site, request: FinishRequest) -> FloatArray:
        parameters, rows = final_parameters(site), site.rows()
        statistics = site.collect(parameters)
        sums = np.array([statistics.objective, statistics.rows])
        if request.memory:
            remembered = statistics.heights, final_rows(site).placed.sums_over_rows()
            sums = np.concatenate([sums, np.hstack(remembered).ravel()])
        if not request.summary:
            return sums
        seen = site.see(parameters)
        with Passes(rows, seen.n_clusters, site.workers) as scan:
            labels = scan.assign(seen)[1]
        # sites compare the sizes of clusters with those of their own rows by memberships, which reveal less than labels
        summary = replace(summarise_clusters(rows, seen, labels), counts=statistics.masses)
        return np.concatenate([sums, summary.to_array()])

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_array(values, (self.size(board),), site, "sums", non_negative=True)
        objective, rows = values[:2].tolist()
        parameters = board.get(FinalParameters).parameters
        check_rows(rows, objective, parameters, site)
        check_row_count(board, rows, site)
        if self.memory:
            weights, table = self._read_memory(board, values)
            references = board.get(References).references
            possible = can_weigh(weights, rows, references, board.get(Space).reach)
            if not possible or float(table[:, 0].sum()) > (1 + ROUNDING) * rows:
                raise MessageError(f"clusters with more rows than the {rows:.6g} of the site", site)
        if self.summary:
            found = ClusterSummary.from_array(values[self._end_of_memory(board) :], parameters.n_clusters)
            check_summary(found, rows, board.get(Space).reach, site)

    def _read_memory(self, board: Board, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Read the weight of each centre in each view, and the spread of rows around it, one line per cluster."""
        lines = values[2 : self._end_of_memory(board)].reshape(board.get(FinalParameters).parameters.n_clusters, -1)
        return lines[:, :-OVER_ROWS], lines[:, -OVER_ROWS:]

    def _end_of_memory(self, board: Board) -> int:
        """Return how many numbers come before the summary."""
        return replace(self, summary=False).size(board)

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        rows = [np.full(len(values), values[1]) for values in vectors]
        if self.summary:  # squared distances are of the rows that have the feature
            width = sum(board.get(Space).widths)
            for behind, values in zip(rows, vectors, strict=True):
                behind[-2 * width : -width] = values[-width:]
        return self.aggregator.sums(vectors, rows)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        board, c = board.put(Result(float(total[0]), float(total[1]))), board.get(FinalParameters).parameters.n_clusters
        end = self._end_of_memory(board)
        total = np.maximum(total, 0.0)  # rounding on a grid may leave less than nothing
        if self.memory:
            weights, table = self._read_memory(board, total)
            board = board.put(Remembered(Memory(weights, ClusterSpread.from_array(table))))
        if not self.summary:
            return board
        return board.put(Summary(ClusterSummary.from_array(total[end:], c)))
