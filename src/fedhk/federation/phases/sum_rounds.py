"""Rounds from sums alone: all statistics under masks, or few of them with noise.

With noise a site sends N - W a around the broadcast centres a, max_j W and the costs. The heat kernel bounds what a
row adds to them, however far away the row is: w exp(-t r^2) r is at most w / sqrt(2 e t). So no row is clipped, and
noise in the weights does not move the centres.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import (
    Broadcast,
    FinalModel,
    FinalParameters,
    Members,
    Minimisation,
    Population,
    Result,
    Space,
)
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.scales import FullWeights, hold_in_bounds
from fedhk.federation.phases.sum_start import Bandwidth
from fedhk.federation.sealed import Noise, grid_step
from fedhk.federation.site import Site
from fedhk.model.descent import Progress, improve
from fedhk.model.parameters import Parameters
from fedhk.model.rows import split_joint
from fedhk.model.statistics import Statistics
from fedhk.privacy.kernel_sensitivity import best_kernel_scale, kernel_reach, kernel_sensitivity
from fedhk.privacy.sensitivity import Neighbours

# How far a centre typically moves in a round, in model units: what noise in the weights is balanced against.
TYPICAL_MOVE = 0.3

# Squared distances are differences of squared lengths. Times the heat time, those of centres may have this size, so
# that rounding changes a kernel by 1e-6 of itself at most: far below the step of the grid.
MOST_EXPONENT = 2.0**30

# A centre does not move further than this in one noisy round, nor by a weight that may be noise alone.
MOST_MOVE, SURE_WEIGHT = 1.5, 4.0

# Between these a server may choose what weights are multiplied by.
LEAST_SCALE, MOST_SCALE = 1e-9, 1e9

# A view that counts for less than this counts for nothing, and so has no numbers near the smallest double.
LEAST_WEIGHT = 1e-9

# Centres for which a site has memory, whatever the server asks: a block of rows by so many is a few hundred megabytes.
MOST_CENTERS = 2**16

# What a site says to parameters that break the bound.
UNBOUNDED = Rule("parameters with which a row could say more than the noise is sized for")

# Steps of the grid, per site, below which a weight is what rounding makes of none.
SURE_STEPS = 256.0


@dataclass(frozen=True, eq=False)
class MaskedRoundRequest:
    """Ask for all statistics at these parameters; `full` says of which views weights are sent per feature."""

    model: Broadcast
    full: tuple[bool, ...]


@dataclass(frozen=True)
class MaskedRounds(SumPhase[MaskedRoundRequest]):
    """Rounds with all statistics, added under masks."""

    name: ClassVar[str] = "masked round"
    request_type: ClassVar[Any] = MaskedRoundRequest

    learn_weights: bool
    max_rounds: int
    tol: float  # relative fall of the objective below which the rounds end; 0 runs all of them

    def request(self, board: Board) -> MaskedRoundRequest:
        return MaskedRoundRequest(Broadcast.of(board.get(Minimisation).parameters), _full_weights(board))

    def size(self, board: Board) -> int:
        widths, n_clusters = board.get(Space).widths, board.get(Minimisation).parameters.n_clusters
        return n_clusters * (sum(widths) + sum(_weight_columns(board))) + len(widths) + n_clusters + 2

    @staticmethod
    def vector(site: Site, request: MaskedRoundRequest) -> FloatArray:
        found = site.collect(request.model.parameters(site.rows().widths))
        weights = [
            np.broadcast_to(w, n.shape) if full else w.max(axis=1, keepdims=True)
            for w, n, full in zip(found.weights, found.numerators, request.full, strict=True)
        ]
        sums = np.concatenate([found.costs, found.masses, [found.objective, found.rows]])
        return np.concatenate([np.hstack(found.numerators).ravel(), np.hstack(weights).ravel(), sums])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:  # noqa: ARG002
        progress, widths, columns = board.get(Minimisation).progress, board.get(Space).widths, _weight_columns(board)
        c = progress.parameters.n_clusters
        numerators, weights, sums = np.split(total, np.cumsum([c * sum(widths), c * sum(columns)]))
        # a weight of a few steps of the grid is rounding: its centre stays
        least = SURE_STEPS * len(board.get(Members).sites) * grid_step(self, board)
        weights = np.where(weights > least, weights, 0.0)
        costs, masses, (objective, rows) = np.split(np.maximum(sums, 0.0), [len(widths), len(widths) + c])
        statistics = Statistics(
            split_joint(numerators.reshape(c, -1), widths),
            split_joint(weights.reshape(c, -1), columns),
            costs,
            masses,
            float(objective),
            float(rows),
        )
        better = improve(progress.parameters, statistics, learn_weights=self.learn_weights)
        progress = progress.advance(better, statistics.objective, max_iter=self.max_rounds, tol=self.tol)
        return _publish(board, progress)

    def is_done(self, board: Board, exchanges: int) -> bool:  # noqa: ARG002
        return bool(board.get(Minimisation).progress.stop_reason)


def _publish(board: Board, progress: Progress) -> Board:
    """The board after a round, with the final model where it was the last."""
    board = board.put(Minimisation(progress))
    if not progress.stop_reason:
        return board
    return board.put(FinalModel(Broadcast.of(progress.parameters)), FinalParameters(progress.parameters))


def _full_weights(board: Board) -> tuple[bool, ...]:
    """Views whose weights are sent per feature; rows that were mapped to another space have all features or none."""
    if any(board.find(RowEntry)):
        return (False,) * len(board.get(Space).widths)
    return board.get(FullWeights).views


def _weight_columns(board: Board) -> list[int]:
    return [width if full else 1 for width, full in zip(board.get(Space).widths, _full_weights(board), strict=True)]


@dataclass(frozen=True, eq=False)
class Trail(Entry):
    """Centres of the last noisy rounds, each of shape (c, d): their mean has less noise."""

    centers: tuple[FloatArray, ...] = ()


@dataclass(frozen=True, eq=False)
class NoisyRoundRequest:
    """Ask for pulls, weights and costs at these parameters."""

    model: Broadcast
    count_scale: float  # what weights are multiplied by: noise in them then costs centres as much as noise in pulls

    @property
    def cost_scale(self) -> float:
        """What costs are multiplied by: as large as costs nothing."""
        return min(self.count_scale, 1.0)


@dataclass(frozen=True)
class NoisyRounds(SumPhase[NoisyRoundRequest]):
    """Rounds with pulls on the centres, weights and costs, scaled so that noise of one size suits them all."""

    name: ClassVar[str] = "noisy round"
    request_type: ClassVar[Any] = NoisyRoundRequest

    learn_weights: bool
    noise: Noise  # the budget, and the rounds that share it

    def begin(self, board: Board) -> Board:
        """The board, at its end if the budget does not allow another round."""
        progress = board.get(Minimisation).progress
        if progress.stop_reason:  # by the rounds, or before them
            return board if board.has(FinalModel) else self._publish(board, progress)
        if self.noise.affords(self, board):
            return board
        reason = f"The privacy budget is spent after {progress.iteration} rounds: answers were lost on the way."
        return self._publish(board, replace(progress, stop_reason=reason))

    resume = begin

    def request(self, board: Board) -> NoisyRoundRequest:
        parameters = board.get(Minimisation).parameters
        for bandwidth in board.find(Bandwidth):
            parameters = replace(parameters, heat_time=bandwidth.heat_time)
        return noisy_request(parameters, self.noise.privacy.neighbours)

    def size(self, board: Board) -> int:
        widths = board.get(Space).widths
        return board.get(Minimisation).parameters.n_clusters * (sum(widths) + len(widths)) + len(widths)

    @staticmethod
    def vector(site: Site, request: NoisyRoundRequest) -> FloatArray:
        model, widths = request.model, site.rows().widths
        if not keeps_bound(model) or (len(model.view_weights), model.centers.values.shape[1]) != (
            len(widths),
            sum(widths),
        ):
            raise MessageError(UNBOUNDED)
        parameters = model.parameters(widths)
        found = site.collect(parameters)
        parts = zip(found.numerators, found.weights, parameters.centers, strict=True)
        pulls = np.hstack([n - w * a for n, w, a in parts])
        costs = np.maximum(found.costs, 0.0)
        return np.concatenate([pulls.ravel(), request.count_scale * found.heights.ravel(), request.cost_scale * costs])

    @staticmethod
    def sensitivity(request: NoisyRoundRequest, size: int, neighbours: Neighbours) -> float:  # noqa: ARG004
        model, count = request.model, request.count_scale
        if not (LEAST_SCALE <= count <= MOST_SCALE and keeps_bound(model)):
            raise MessageError(UNBOUNDED)
        reach, n_views = kernel_reach(model.heat_time), len(model.view_weights)
        return kernel_sensitivity(reach, count, request.cost_scale, n_views, neighbours)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        stand, widths, request = board.get(Minimisation), board.get(Space).widths, self.request(board)
        before = stand.parameters
        c = before.n_clusters
        pulls, heights, costs = np.split(total, np.cumsum([c * sum(widths), c * len(widths)]))
        # a weight that may be noise alone must not make a centre jump
        least = SURE_WEIGHT * noise / request.count_scale
        heights = np.maximum(heights.reshape(c, -1) / request.count_scale, max(least, 1e-12))
        moves = split_joint(pulls.reshape(c, -1), widths)
        moved = []
        for pull, a, height in zip(moves, before.centers, heights.T, strict=True):
            move = pull / height[:, None]
            length = np.linalg.norm(move, axis=1, keepdims=True)
            moved.append(a + move * np.minimum(1.0, MOST_MOVE / np.maximum(length, 1e-300)))
        centers = split_joint(hold_in_bounds(board, np.hstack(moved)), widths)
        numerators = [height[:, None] * center for height, center in zip(heights.T, centers, strict=True)]
        costs = np.maximum(costs / request.cost_scale, 0.0)
        objective = float(before.view_factors @ costs)
        weights = tuple(height[:, None] for height in heights.T)
        rows = board.get(Population).rows
        statistics = Statistics(tuple(numerators), weights, costs, heights.max(axis=1), objective, rows)
        better = improve(before, statistics, learn_weights=self.learn_weights)
        progress = stand.progress.advance(better, objective, max_iter=self.noise.rounds, tol=0.0)
        if progress.stop_reason:
            progress = replace(
                progress, stop_reason=f"Ran the {self.noise.rounds} rounds that share the privacy budget."
            )
        trail = (*next(board.find(Trail), Trail()).centers, np.hstack(better.centers))
        kept = max(1, self.noise.rounds - self.noise.rounds // 2)
        return self.begin(self._publish(board.put(Trail(trail[-kept:])), progress))

    def is_done(self, board: Board, exchanges: int) -> bool:  # noqa: ARG002
        return bool(board.get(Minimisation).progress.stop_reason)

    def _publish(self, board: Board, progress: Progress) -> Board:
        """The board after a round; at the end centres are the mean of the later half, each of which has noise."""
        parameters, trail = progress.parameters, next(board.find(Trail), Trail()).centers
        if not progress.stop_reason:
            return board.put(Minimisation(progress))
        if trail and parameters.free() is parameters:
            centers = split_joint(np.mean(trail, axis=0), board.get(Space).widths)
            progress = replace(progress, parameters=replace(parameters, centers=centers))
        objective = progress.objective if progress.iteration else float("nan")
        return _publish(board.put(Result(objective, board.get(Population).rows)), progress)


def noisy_request(parameters: Parameters, neighbours: Neighbours) -> NoisyRoundRequest:
    """The request of a noisy round, with the scale of the weights that makes the noise in centres smallest."""
    width, n_views = sum(values.shape[1] for values in parameters.centers), len(parameters.centers)
    scale = best_kernel_scale(kernel_reach(parameters.heat_time), TYPICAL_MOVE, width, n_views, neighbours)
    weights = np.where(parameters.view_weights < LEAST_WEIGHT, 0.0, parameters.view_weights)
    return NoisyRoundRequest(Broadcast.of(replace(parameters, view_weights=weights)), scale)


def keeps_bound(model: Broadcast) -> bool:
    """Whether no row can say more than `NoisyRounds.sensitivity` with these parameters, rounding included.

    Within these limits no row makes a number infinite or undefined: 1e-9 to the power of 30 is still a double, and the
    longest logarithm of a distance over the smallest fuzzifier is far from overflow.
    """
    if type(model) is not Broadcast or len(model.centers.values) > MOST_CENTERS:  # others bring their centres elsewhere
        return False
    numbers = {
        "heat_time": (model.heat_time, 1e-9, 1e9),
        "fuzzifier": (model.fuzzifier - 1.0, 1e-9, 1e3),
        "view_exponent": (model.view_exponent, 1e-3, 30.0),
    }
    weights, shares = model.view_weights, model.view_shares
    if not all(low <= number <= high for number, low, high in numbers.values()) or weights.ndim != 1:
        return False
    used = weights[weights != 0]
    if not used.size or not np.all((used >= LEAST_WEIGHT) & (used <= 1 / LEAST_WEIGHT)):
        return False
    if shares.shape != weights.shape or not np.all((shares >= LEAST_WEIGHT) & (shares <= 1)):
        return False
    longest = np.square(model.centers.read()).sum(axis=1).max(initial=0.0)
    return bool(model.heat_time * longest <= MOST_EXPONENT)
