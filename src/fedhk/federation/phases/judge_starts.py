"""Starts under masks where sites keep offsets: each is judged by how well the sites can make it their own.

In the open the server does this alone, with the candidates of every site (`ChooseStart`). It is a sum over sites: each
adds the objective that its own candidates have after it has moved the centres of a start a little. So under masks sites
compute their own terms, and the server sees the totals, one number for each start.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Basis, Broadcast, Minimisation, References, Schema
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.frame import Frame
from fedhk.federation.phases.sum_start import GROUP_NUMBERS, OwnGrouping, StartFromSums
from fedhk.federation.sealed.noise import MOST_UNIT
from fedhk.federation.site import Site
from fedhk.model.parameters import Parameters
from fedhk.personal.objective import personal_objective
from fedhk.starts.candidates import candidate_rows, site_candidates
from fedhk.starts.seeding import FINALISTS, round_objective

# Precision in which centres are sent to be judged: only the order of starts matters.
PRECISION = "half"

# The most starts that a site judges.
MOST_JUDGED = 2**12

# What a site says, the same text for every request that breaks the rule.
NO_STARTS = Rule("starts that are none, too many, or to which rows have no distance")


@dataclass(frozen=True, eq=False)
class Starts(Entry):
    """Starts among which sites choose, run to the end on the candidates; first the best for all rows together."""

    starts: tuple[Parameters, ...]


@dataclass(frozen=True, eq=False)
class JudgeRequest:
    """Ask for the objective of a site at each start, with centres of its own."""

    starts: tuple[Broadcast, ...]


@dataclass(frozen=True)
class JudgeStarts(SumPhase[JudgeRequest]):
    """Choose the start that all sites together can best make their own; without offsets, the best for all rows."""

    name: ClassVar[str] = "judge starts"
    unbounded: ClassVar[str] = "one row can change the groups of all others at its site."

    search: StartFromSums

    def begin(self, board: Board) -> Board:
        if not any(frame.calibration.offsets for frame in board.find(Frame)):
            return self.search.begin(board)
        numbers = self.search.settings.n_clusters * sum(board.get(References).widths)
        most = int(np.clip(GROUP_NUMBERS // numbers, FINALISTS, MOST_JUDGED))
        return board.put(Starts(tuple(self.search.list_starts(board, most))))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return board.has(Minimisation)

    def request(self, board: Board) -> JudgeRequest:
        starts = board.get(Starts).starts
        for basis in board.find(Basis):
            starts = tuple(start.in_basis(basis.columns) for start in starts)
        return JudgeRequest(tuple(Broadcast.of(start, PRECISION) for start in starts))

    def size(self, board: Board) -> int:
        return len(board.get(Starts).starts)

    @staticmethod
    def vector(site: Site, request: JudgeRequest) -> FloatArray:
        if not 1 <= len(request.starts) <= MOST_JUDGED:
            raise MessageError(NO_STARTS)
        rows, grouping, basis = site.rows(), site.board.get(OwnGrouping), next(site.board.find(Basis), None)
        starts = [sent.parameters(rows.widths, basis) for sent in request.starts]
        if not all(np.all(np.abs(part) <= MOST_UNIT) for start in starts for part in start.centers):
            raise MessageError(NO_STARTS)
        random_state = seeded(grouping.seed, zlib.crc32(site.name.encode()))
        found = site_candidates(rows, grouping.count, random_state, site.least_group)
        if not len(found.sizes):
            return np.zeros(len(starts))
        own = candidate_rows([found], site.board.get(References).references, site.board.get(Schema).names)
        return np.array([personal_objective([own], start) for start in starts])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        starts = board.get(Starts).starts
        best = min(range(len(starts)), key=lambda place: round_objective(float(total[place])))
        return self.search.enter(board.drop(Starts), starts[best])
