"""Mixture: a density of the rows of all sites, fitted from sums, from which anchors are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhk._typing import BoolArray, FloatArray
from fedhk.data.levels import find_joint_numbers
from fedhk.embedding.mixture import (
    Mixture,
    MixtureSearch,
    leading_directions,
    sketch_size,
    sum_groups,
    sum_products,
)
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry, Shared
from fedhk.federation.entries import Population, References
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.describe import sites_differ
from fedhk.federation.phases.frame import calibrated_references
from fedhk.federation.plausible import MOST_ROWS
from fedhk.federation.site import Site
from fedhk.federation.table import Table
from fedhk.starts.candidates import LEAST_ROWS

# Precision in which points, directions and the embedding are sent. Server and sites both use the rounded ones, so that
# sums at them are exact.
PRECISION = "half"

# What rounding may add to squares of sums.
SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class MixtureDirections(Shared):
    """The directions in which rows vary most."""

    table: Table  # of shape (features, q)


@dataclass(frozen=True)
class ProductsRequest:
    """Ask for products of rows with random combinations of features, which the seed draws."""

    seed: int


@dataclass(frozen=True)
class FindDirections(SumPhase[ProductsRequest]):
    """Find the directions in which the rows of all sites vary most; where features are few, these are used.

    With `numbers`, levels of categories are left out of them where there are numbers.
    """

    name: ClassVar[str] = "find directions"
    unbounded: ClassVar[str] = "what one row can change in its sum has no bound. Use Diffusion(anchors='auto')."

    seed: int
    numbers: bool = False

    def begin(self, board: Board) -> Board:
        width = _width(board)
        return board if sketch_size(width) else _put_directions(board, np.eye(width)[:, self._find_kept(board)])

    def _find_kept(self, board: Board) -> BoolArray:
        """Return the features that directions have."""
        widths = board.get(References).widths
        columns = board.get(Population).columns if self.numbers else ()
        return find_joint_numbers(columns or (None,) * len(widths), widths)

    def is_done(self, board: Board, exchanges: int) -> bool:
        return board.has(MixtureDirections)

    def request(self, board: Board) -> ProductsRequest:
        return ProductsRequest(self.seed)

    def size(self, board: Board) -> int:
        return _width(board) * sketch_size(_width(board))

    @staticmethod
    def vector(site: Site, request: ProductsRequest) -> FloatArray:
        return sum_products(site.rows(), request.seed).ravel()

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        products = total.reshape(_width(board), -1)
        return _put_directions(board, leading_directions(products * self._find_kept(board)[:, None]))


@dataclass(frozen=True, eq=False)
class MixtureState(Entry):
    """State of the search for the mixture."""

    search: MixtureSearch


@dataclass(frozen=True, eq=False)
class FittedMixture(Entry):
    """The mixture, in the space of the sites' calibrated rows."""

    mixture: Mixture


@dataclass(frozen=True, eq=False)
class GroupsRequest:
    """Ask for sums of rows, in the directions, by the nearest point; with `scatter` also for their second moments."""

    points: Table
    scatter: bool
    centred: bool  # whether a site takes its own mean out of its rows


@dataclass(frozen=True)
class FitMixture(SumPhase[GroupsRequest]):
    """Fit the mixture of the rows of all sites: each exchange is one pass of k-means over them."""

    name: ClassVar[str] = "fit mixture"
    unbounded: ClassVar[str] = "what one row can change in its sum has no bound. Use Diffusion(anchors='auto')."

    n_clusters: int
    seed: int
    centred: bool = False  # whether sites take their own means out of their rows where these differ

    def begin(self, board: Board) -> Board:
        return board.put(MixtureState(MixtureSearch.begin(_directions(board).shape[1])))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return board.has(FittedMixture)

    def request(self, board: Board) -> GroupsRequest:
        search = board.get(MixtureState).search
        centred = self.centred and sites_differ(board)
        return GroupsRequest(Table.of(search.points, PRECISION), search.wants_scatter, centred)

    def size(self, board: Board) -> int:
        return board.get(MixtureState).search.size

    @staticmethod
    def vector(site: Site, request: GroupsRequest) -> FloatArray:
        rows = site.rows()
        table = site.board.get(MixtureDirections).table
        table.check((sum(rows.widths), None), site.name, "directions")
        request.points.check((None, table.values.shape[1]), site.name, "points")
        # sums for components are like those for clusters in rounds, which may be of one row; pairs of unlike rows would
        # blur the mixture of small sites. An operator who asks for larger groups than others has them here, too.
        least = site.least_group if site.least_group > LEAST_ROWS else 1
        places = table.read(), request.points.read()
        return sum_groups(rows, *places, scatter=request.scatter, centred=request.centred, least_rows=least)

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        _check_groups(*board.get(MixtureState).search.split(values), site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        search = board.get(MixtureState).search.advance(total, self.n_clusters, self.seed)
        if not search.is_done:
            return board.put(MixtureState(search))
        found = search.mixture(_directions(board), calibrated_references(board))
        return board.drop(MixtureState).put(FittedMixture(found))


def _check_groups(sizes: FloatArray, squares: FloatArray, sums: FloatArray, site: str) -> None:
    """Refuse sums of groups that no rows can have."""
    if np.any(sizes < 0) or np.any(squares < 0) or sizes.sum() > MOST_ROWS:
        raise MessageError("groups with sizes or squares that no rows can have", site)
    if np.any(np.square(sums).sum(axis=1) > (1 + SLACK) * sizes * squares):
        raise MessageError("groups with larger sums than their sizes and squares allow", site)


def _put_directions(board: Board, directions: FloatArray) -> Board:
    return board.put(MixtureDirections(Table.of(directions, PRECISION)))


def _directions(board: Board) -> FloatArray:
    return board.get(MixtureDirections).table.read()


def _width(board: Board) -> int:
    return sum(board.get(References).widths)
