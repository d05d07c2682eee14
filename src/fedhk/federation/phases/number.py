"""Number: find the number of clusters, from means of rows of the sites or from a mixture of all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import IntArray
from fedhk.agreement.number import GROUPS_SEED, Points, TriedNumber, choose_number, count_points, find_number
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Population, References, Schema
from fedhk.federation.phases.base import Phase, ServerPhase
from fedhk.federation.phases.candidates import AskCandidates, CandidatesRequest
from fedhk.federation.phases.describe import sites_differ
from fedhk.federation.phases.mixture import PRECISION, FindDirections, FitMixture, FittedMixture
from fedhk.federation.sealed import SealedTerms
from fedhk.starts.candidates import (
    LEAST_CANDIDATES,
    Candidates,
    candidate_rows,
)


@dataclass(frozen=True)
class ChosenNumber(Entry):
    """The numbers of clusters that were tried."""

    tried: tuple[TriedNumber, ...]

    @property
    def n_clusters(self) -> int:
        """Number of clusters that was chosen."""
        return choose_number(self.tried)[0]


@dataclass(frozen=True, kw_only=True)
class FindNumber(AskCandidates):
    """Find the number of clusters from the candidates of all sites."""

    smallest: int
    largest: int

    def request(self, board: Board) -> CandidatesRequest:
        count = -(-count_points(self.largest) // board.get(Population).n_sites)
        return CandidatesRequest(max(count, LEAST_CANDIDATES), 0.0, GROUPS_SEED, PRECISION, split=True)

    def start(self, board: Board, found: list[Candidates]) -> Board:
        sites = np.repeat(np.arange(len(found)), [len(part.sizes) for part in found])
        return self.choose(board, found, sites, shifted=sites_differ(board))

    def choose(self, board: Board, found: list[Candidates], sites: IntArray, *, shifted: bool) -> Board:
        """Server: return the board with the numbers of clusters that were tried on candidates."""
        rows = candidate_rows(found, board.get(References).references, board.get(Schema).names)
        points = Points.of(rows, sites, board.get(Population).columns, self.largest, self.seed)
        return board.put(ChosenNumber(find_number(points, self.smallest, self.largest, self.seed, shifted=shifted)))

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        # means of few rows must stay at the sites, so points are the means of a mixture of the rows of all sites; where
        # sites differ, it is a mixture of rows less the means of their sites, because such a point belongs to no site
        mixture = FindDirections(self.seed, numbers=True), FitMixture(self.largest, self.seed, centred=True)
        return [*(sealed for phase in mixture for sealed in phase.sealed(terms)), NumberFromMixture(self)]


@dataclass(frozen=True)
class NumberFromMixture(ServerPhase):
    """Find the number of clusters from the means of the groups of rows that a mixture of all rows has."""

    name: ClassVar[str] = "number from mixture"

    find: FindNumber

    def begin(self, board: Board) -> Board:
        if board.has(ChosenNumber):
            return board
        mixture, rows = board.get(FittedMixture).mixture, board.get(Population).rows
        points, sizes = mixture.means @ mixture.directions.T, rows * mixture.shares
        views = len(board.get(References).references)
        found = Candidates(points, sizes, np.ones((len(sizes), views)))
        sites = np.zeros(len(sizes), np.int64)
        return self.find.choose(board.drop(FittedMixture), [found], sites, shifted=False)

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        return [self]
