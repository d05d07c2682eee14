"""A start from sums alone: second moments of all rows, and how many rows are in each cell of a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Minimisation, Population, References, Schema
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.scales import MINMAX_UNIT
from fedhk.federation.sealed.noise import LEAST_UNIT, MOST_UNIT
from fedhk.federation.site import Site
from fedhk.model.descent import Progress
from fedhk.model.rows import split_joint
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity
from fedhk.starts.candidates import candidate_rows
from fedhk.starts.cells import MOST_FEATURES, Grid, leading_grid, read_second_moments, second_moments, sketch
from fedhk.starts.settings import Settings

# Between these a server may choose the length to which rows are cut; model units are near 1.
LEAST_RADIUS, MOST_RADIUS = 1e-9, 1e9

# Cells that a site counts at most.
MOST_CELLS = 2**20

# What a site says, the same text for every request that breaks the rule.
UNCUT = Rule("second moments of rows that are not cut, which a row can change without bound")
NO_GRID = Rule("a grid that rows cannot be counted on")

# Of a feature's variance in one view, how far from the mean over features noise may make it.
MOST_RATIO = 4.0


@dataclass(frozen=True, eq=False)
class CellGrid(Entry):
    """The cells in which rows are counted."""

    grid: Grid


@dataclass(frozen=True)
class DirectionsRequest:
    """Ask for second moments of rows that are cut to the length `radius`; `seed` draws the directions where needed."""

    radius: float
    seed: int


@dataclass(frozen=True)
class Directions(SumPhase[DirectionsRequest]):
    """Second moments of all rows, which give the leading directions and, with noise, the scales."""

    name: ClassVar[str] = "directions"
    request_type: ClassVar[Any] = DirectionsRequest

    settings: Settings
    seed: int
    cuts_rows: bool  # whether rows longer than a typical one are cut, because noise is sized by the longest

    def request(self, board: Board) -> DirectionsRequest:
        radius = math.sqrt(len(board.get(References).references)) if self.cuts_rows else math.inf
        return DirectionsRequest(radius, self.seed)

    def size(self, board: Board) -> int:
        p = min(sum(board.get(References).widths), MOST_FEATURES)
        return 1 + p + p * (p + 1) // 2

    @staticmethod
    def vector(site: Site, request: DirectionsRequest) -> FloatArray:
        rows = site.rows()
        return second_moments(rows, sketch(sum(rows.widths), request.seed), request.radius)

    @staticmethod
    def sensitivity(request: DirectionsRequest, size: int, neighbours: Neighbours) -> float:  # noqa: ARG004
        if not LEAST_RADIUS <= request.radius <= MOST_RADIUS:
            raise MessageError(UNCUT)
        # r^2, r y and y y^T are at most r^2 long each. Another row z leaves the first; with c = y.z / r^2 the others
        # move by at most sqrt(2 - 2 c + 2 - 2 c^2) r^2, which is largest at c = -1/2
        return float(request.radius**2 * np.sqrt(3.0 if neighbours == "add-remove" else 4.5))

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        references, widths = board.get(References).references, board.get(References).widths
        directions = sketch(sum(widths), self.seed)
        rows, mean, covariance = read_second_moments(total, directions.shape[1], self.request(board).radius)
        if noise > 0 and directions.shape[0] == directions.shape[1]:
            scales = _scales(np.diag(covariance), widths, noise / rows)
            if self.settings.heat_coef == "minmax":
                scales = scales * MINMAX_UNIT
            parts = zip(references, split_joint(mean, widths), split_joint(scales, widths), strict=True)
            board = board.put(References(tuple(_move_reference(*part) for part in parts)))
            covariance, mean = covariance / np.outer(scales, scales), np.zeros_like(mean)
        grid = leading_grid(mean, covariance, directions, self.settings.n_clusters)
        return board.put(CellGrid(grid), replace(board.get(Population), rows=rows))


def _move_reference(reference: Reference, mean: FloatArray, divide: FloatArray) -> Reference:
    """The reference in new units; its coefficients stay what they are."""
    moved = reference.moved(mean, divide)
    if reference.heat_coef != "minmax":
        return moved
    return replace(moved, low=(reference.low - mean) / divide, span=reference.span / divide)


def _scales(variance: FloatArray, widths: tuple[int, ...], noise: float) -> FloatArray:
    """What model units are divided by so that every view has spread 1; noise in single features does not lead far."""
    parts = []
    for part in split_joint(variance, widths):
        typical = max(float(part.mean()), noise, 1e-6)
        parts.append(np.sqrt(np.clip(part, typical / MOST_RATIO, typical * MOST_RATIO) * len(part)))
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class CellsRequest:
    """Ask how many rows are in each cell."""

    grid: Grid


@dataclass(frozen=True)
class Cells(SumPhase[CellsRequest]):
    """How many rows are in each cell of a grid along the leading directions, and the start that they give."""

    name: ClassVar[str] = "cells"
    request_type: ClassVar[Any] = CellsRequest

    settings: Settings
    seed: int
    workers: int  # threads for the choice of the start

    def request(self, board: Board) -> CellsRequest:
        return CellsRequest(board.get(CellGrid).grid)

    def grid(self, board: Board) -> float:  # noqa: ARG002
        return 1.0

    def size(self, board: Board) -> int:
        return board.get(CellGrid).grid.n_cells

    @staticmethod
    def vector(site: Site, request: CellsRequest) -> FloatArray:
        _check_grid(request.grid)
        return request.grid.counts(site.rows())

    @staticmethod
    def sensitivity(request: CellsRequest, size: int, neighbours: Neighbours) -> float:  # noqa: ARG004
        return sum_sensitivity(1.0, neighbours, nonnegative=True)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        references = board.get(References).references
        candidates = board.get(CellGrid).grid.candidates(total, noise, len(references))
        rows = candidate_rows([candidates], references, board.get(Schema).names)
        start = self.settings.start(rows, np.random.RandomState(self.seed), self.workers)
        return board.put(Minimisation(Progress(start)))


def _check_grid(grid: Grid) -> None:
    """Refuse a grid with more cells than a site counts, or on which rows have no place."""
    d, q = grid.axes.shape if grid.axes.ndim == 2 else (-1, -1)
    shapes = grid.mean.shape == (d,) and grid.deviations.shape == (q,) and q >= 1 and grid.bins >= 1
    # directions with one bin make no cells, but each of them is computed for every row
    if not shapes or q * math.log2(max(grid.bins, 2)) > math.log2(MOST_CELLS):
        raise MessageError(NO_GRID)
    numbers = np.concatenate([grid.mean, grid.axes.ravel()])
    if not np.all(np.abs(numbers) <= MOST_UNIT) or not np.all(
        (grid.deviations >= LEAST_UNIT) & (grid.deviations <= MOST_UNIT)
    ):
        raise MessageError(NO_GRID)
