"""Number: how many clusters the rows of all sites have, found from sums before the start is chosen."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.agreement.number import NumberSearch, TriedNumber, choose_number, choose_search, sum_halves
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Population
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.describe import SiteEffect
from fedhk.federation.phases.mixture import MixtureDirections, check_groups
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.starts.candidates import LEAST_ROWS


@dataclass(frozen=True, eq=False)
class SearchState(Entry):
    """Where the search for the number of clusters stands, and what one of rows as they are has found before it."""

    search: NumberSearch
    plain: tuple[TriedNumber, ...] = ()


@dataclass(frozen=True)
class ChosenNumber(Entry):
    """The numbers of clusters that were tried."""

    tried: tuple[TriedNumber, ...]

    @property
    def n_clusters(self) -> int:
        """The number that was chosen."""
        return choose_number(self.tried)[0]


@dataclass(frozen=True, eq=False)
class HalvesRequest:
    """Ask for sums of rows, in two halves that `seed` draws, by the nearest point of each half."""

    points: tuple[FloatArray, FloatArray]
    axes: FloatArray  # (q, q): what rows are multiplied by in the common directions
    seed: int
    scatter: bool
    joins: bool
    table: bool
    centred: bool  # whether each site takes its own mean out of its rows


@dataclass(frozen=True)
class FindNumber(SumPhase[HalvesRequest]):
    """How many clusters there are: groups of rows are joined until rows are fewer between all that are left."""

    name: ClassVar[str] = "find number"
    request_type: ClassVar[Any] = HalvesRequest
    unbounded: ClassVar[str] = "what one row can change in the means of groups has no bound. Give n_clusters a number."

    smallest: int
    largest: int
    seed: int

    def begin(self, board: Board) -> Board:
        q = board.get(MixtureDirections).table.values.shape[1]
        return board.put(SearchState(NumberSearch.begin(q, self.smallest, self.largest)))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return board.has(ChosenNumber)

    def request(self, board: Board) -> HalvesRequest:
        search = board.get(SearchState).search
        asked = search.wants_scatter, search.joins, search.wants_table
        return HalvesRequest(search.points, search.axes, self.seed, *asked, bool(board.get(SearchState).plain))

    def size(self, board: Board) -> int:
        return board.get(SearchState).search.size

    @staticmethod
    def vector(site: Site, request: HalvesRequest) -> FloatArray:
        rows, table = site.rows(), site.board.get(MixtureDirections).table
        table.check((sum(rows.widths), None), site.name, "directions")
        q = table.values.shape[1]
        check_array(request.axes, (q, q), site.name, "axes")
        for points in request.points:
            check_array(points, (None, q), site.name, "points")
            if not len(points):
                raise MessageError("a half without points", site.name)
        return sum_halves(
            rows,
            table.read() @ request.axes,
            request.points,
            seeded(request.seed, zlib.crc32(site.name.encode())),
            scatter=request.scatter,
            joins=request.joins,
            table=request.table,
            centred=request.centred,
            least_rows=site.least_group if site.least_group > LEAST_ROWS else 1,
        )

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        groups, rest = board.get(SearchState).search.split(values)
        for sizes, squares, sums in groups:
            check_groups(sizes, squares, sums, site)
        search = board.get(SearchState).search
        if search.joins and np.any(rest[: len(rest) - 2 * search.wants_table] < 0):
            raise MessageError("counts of rows below zero", site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        search = board.get(SearchState).search.advance(total, self.seed)
        plain = board.get(SearchState).plain
        if not search.is_done:
            return board.put(SearchState(search, plain))
        # where sites differ by no more than chance, their means need not be taken out
        if not plain and board.get(Population).n_sites > 1 and all(found.is_sure for found in board.find(SiteEffect)):
            return board.put(
                SearchState(NumberSearch.begin(len(search.axes), self.smallest, self.largest), search.tried)
            )
        tried = choose_search(plain, search.tried) if plain else search.tried
        return board.drop(SearchState).put(ChosenNumber(tuple(tried)))
