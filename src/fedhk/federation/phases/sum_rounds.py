"""Rounds from sums alone: all statistics under masks, or few of them with noise; in features, or in a basis.

With noise a site sends N - W a around the broadcast centres a, max_j W and the costs. The heat kernel bounds what a
row adds to them, however far away the row is: w exp(-t r^2) r is at most w / sqrt(2 e t). So no row is clipped, and
noise in the weights does not move the centres.

In a basis, pulls travel along its directions: E_h^T (N - W a), with orthonormal columns E_h that every site makes sure
of by itself. They add over sites like any sums. Such a projection makes no vector longer, so what one row can change in
a sum is bounded as before, and fewer numbers have less noise in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import (
    Basis,
    Broadcast,
    FinalModel,
    FinalParameters,
    Members,
    Minimisation,
    Population,
    Result,
    Schema,
    Space,
)
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.scales import FullWeights, hold_in_bounds
from fedhk.federation.phases.sum_start import Bandwidth
from fedhk.federation.plausible import REACH
from fedhk.federation.protocols.statistics import BasisStatistics, collect_pulls
from fedhk.federation.protocols.statistics import Statistics as StatisticsProtocol
from fedhk.federation.sealed import Noise, grid_step
from fedhk.federation.site import Site
from fedhk.federation.table import at_least_half
from fedhk.model.descent import Progress, improve
from fedhk.model.parameters import CenterForm, Parameters
from fedhk.model.rows import split_joint
from fedhk.model.statistics import Statistics
from fedhk.privacy.fixed_point import fit_step
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

# Bytes of a number of a masked round in a basis: 2^30 steps, so that the objective is known to far below any `tol`.
MOVES_WORD = 4

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
    form: CenterForm  # what the centres are constrained to
    max_rounds: int
    tol: float  # relative fall of the objective below which the rounds end; 0 runs all of them

    def begin(self, board: Board) -> Board:
        """The board, at its end where the start has found that there is nothing to do."""
        progress = board.get(Minimisation).progress
        if not progress.stop_reason or board.has(FinalModel):
            return board
        return _publish(board, progress, self.rounds_protocol)

    @property
    def rounds_protocol(self) -> StatisticsProtocol:
        """How the final model goes out."""
        return IN_FEATURES

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
        found = self._read(board, total, _weight_columns(board))
        return _publish(board, self._advance(board, found), self.rounds_protocol)

    def _read(self, board: Board, total: FloatArray, columns: list[int]) -> Statistics:
        """The statistics that a total stands for; of each view weights have so many columns."""
        parameters = board.get(Minimisation).parameters
        c, widths = parameters.n_clusters, [part.shape[1] for part in parameters.centers]
        numerators, weights, sums = np.split(total, np.cumsum([c * sum(widths), c * sum(columns)]))
        # a weight of a few steps of the grid is rounding: its centre stays
        least = SURE_STEPS * len(board.get(Members).sites) * grid_step(self, board)
        weights = np.where(weights > least, weights, 0.0)
        costs, masses, (objective, rows) = np.split(np.maximum(sums, 0.0), [len(widths), len(widths) + c])
        return Statistics(
            split_joint(numerators.reshape(c, -1), widths),
            split_joint(weights.reshape(c, -1), columns),
            costs,
            masses,
            float(objective),
            float(rows),
        )

    def _advance(self, board: Board, statistics: Statistics) -> Progress:
        """Where the rounds stand after one with these statistics."""
        progress = board.get(Minimisation).progress
        better = improve(progress.parameters, statistics, learn_weights=self.learn_weights)
        better = impose_form(self.form, board, better, statistics)
        return progress.advance(better, statistics.objective, max_iter=self.max_rounds, tol=self.tol)

    def is_done(self, board: Board, exchanges: int) -> bool:  # noqa: ARG002
        return bool(board.get(Minimisation).progress.stop_reason)


@dataclass(frozen=True, eq=False)
class MaskedMovesRequest:
    """Ask for statistics in the basis at these parameters."""

    model: Broadcast


@dataclass(frozen=True)
class MaskedMoves(MaskedRounds):
    """Rounds with statistics in a basis, added under masks.

    Rounding for the way and the grid of masked sums are one thing here: the total has a bound, from which follows the
    step of a grid on which it has room in words of four bytes.
    """

    name: ClassVar[str] = "masked moves"
    request_type: ClassVar[Any] = MaskedMovesRequest

    protocol: BasisStatistics

    def request(self, board: Board) -> MaskedMovesRequest:  # type: ignore[override]
        precision = at_least_half(self.protocol.precision)
        return MaskedMovesRequest(Broadcast.of(board.get(Minimisation).parameters, precision))

    def size(self, board: Board) -> int:
        parameters = board.get(Minimisation).parameters
        c, s = parameters.n_clusters, len(parameters.centers)
        return c * (_count_numbers(parameters) + s) + s + c + 2

    def word(self, board: Board) -> int:
        return super().word(board) if self.protocol.precision == "double" else MOVES_WORD

    def grid(self, board: Board) -> float:
        parameters, rows = board.get(Minimisation).parameters, max(board.get(Population).rows, 1.0)
        # a row pulls by no more than the kernel allows; all of them by no more than they and the centre are far out
        centers = max(float(np.linalg.norm(part, axis=1).max(initial=0.0)) for part in parameters.centers)
        out = [float(np.linalg.norm(limit)) / REACH / np.sqrt(rows) for limit in board.get(Space).reach]
        pull = min(kernel_reach(parameters.heat_time), max(out) + centers)
        if any(board.get(FullWeights).views):  # coefficients may be as large as the cells
            pull = max(1.0, *out) * (max(out) + centers)
        most = rows * max(pull, 1.0, float(parameters.view_factors.sum()))
        return fit_step(most, len(board.get(Members).sites), self.word(board))

    @staticmethod
    def vector(site: Site, request: MaskedMovesRequest) -> FloatArray:  # type: ignore[override]
        found, pulls = collect_pulls(site, request.model)
        sums = np.concatenate([found.costs, found.masses, [found.objective, found.rows]])
        return np.concatenate([np.hstack(pulls).ravel(), found.heights.ravel(), sums])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:  # noqa: ARG002
        found = self._read(board, total, [1] * len(board.get(Space).widths))
        # pulls are from where the sites were: the centres as they were sent
        sent = split_joint(self.request(board).model.centers.read(), [part.shape[1] for part in found.numerators])
        parts = zip(found.numerators, found.weights, sent, strict=True)
        statistics = replace(found, numerators=tuple(n + w * a for n, w, a in parts))
        return _publish(board, self._advance(board, statistics), self.rounds_protocol)

    @property
    def rounds_protocol(self) -> StatisticsProtocol:
        return self.protocol


def _count_numbers(parameters: Parameters) -> int:
    """How many numbers one centre has, over all views."""
    return int(sum(part.shape[1] for part in parameters.centers))


def impose_form(form: CenterForm, board: Board, better: Parameters, statistics: Statistics) -> Parameters:
    """Parameters whose centres have the form, once there are sums to fit it to; those that have it stay as they are.

    A start from cells lies in the few directions of their grid. The rank of its centres would be that of the grid.
    """
    if type(better) is not Parameters:
        return better
    names = board.get(Schema).names
    if not board.has(Basis):
        return form.constrain(better, names, lambda: [statistics])
    columns = board.get(Basis).columns
    outer = replace(statistics, numerators=tuple(n @ e.T for n, e in zip(statistics.numerators, columns, strict=True)))
    return form.constrain(better.from_basis(columns), names, lambda: [outer]).in_basis(columns)


# The protocol of rounds in features, whose final model goes out as it is.
IN_FEATURES = StatisticsProtocol(basis=False, precision="double")


def _publish(board: Board, progress: Progress, protocol: StatisticsProtocol) -> Board:
    """The board after a round, with the final model where it was the last."""
    board = board.put(Minimisation(progress))
    if not progress.stop_reason:
        return board
    model, parameters = protocol.finish(board)
    return board.put(FinalModel(model), FinalParameters(parameters))


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
    form: CenterForm  # what the centres are constrained to
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
        if not keeps_bound(model, widths):
            raise MessageError(UNBOUNDED)
        parameters = model.parameters(widths)
        found = site.collect(parameters)
        parts = zip(found.numerators, found.weights, parameters.centers, strict=True)
        return _scaled_sums(request, [n - w * a for n, w, a in parts], found)

    @staticmethod
    def sensitivity(request: NoisyRoundRequest, size: int, neighbours: Neighbours) -> float:  # noqa: ARG004
        model, count = request.model, request.count_scale
        if not (LEAST_SCALE <= count <= MOST_SCALE and keeps_bound(model)):
            raise MessageError(UNBOUNDED)
        reach, n_views = kernel_reach(model.heat_time), len(model.view_weights)
        return kernel_sensitivity(reach, count, request.cost_scale, n_views, neighbours)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        stand, request = board.get(Minimisation), self.request(board)
        before = stand.parameters
        c, widths = before.n_clusters, [part.shape[1] for part in before.centers]
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
        centers = split_joint(self._hold(board, np.hstack(moved)), widths)
        numerators = [height[:, None] * center for height, center in zip(heights.T, centers, strict=True)]
        costs = np.maximum(costs / request.cost_scale, 0.0)
        objective = float(before.view_factors @ costs)
        weights = tuple(height[:, None] for height in heights.T)
        rows = board.get(Population).rows
        statistics = Statistics(tuple(numerators), weights, costs, heights.max(axis=1), objective, rows)
        better = improve(before, statistics, learn_weights=self.learn_weights)
        better = impose_form(self.form, board, better, statistics)
        progress = stand.progress.advance(better, objective, max_iter=self.noise.rounds, tol=0.0)
        if progress.stop_reason:
            progress = replace(
                progress, stop_reason=f"Ran the {self.noise.rounds} rounds that share the privacy budget."
            )
        trail = (*next(board.find(Trail), Trail()).centers, np.hstack(better.centers))
        kept = max(1, self.noise.rounds - self.noise.rounds // 2)
        return self.begin(self._publish(board.put(Trail(trail[-kept:])), progress))

    def _hold(self, board: Board, centers: FloatArray) -> FloatArray:
        """Centres of all views side by side, brought back to the range of the features."""
        return hold_in_bounds(board, centers)

    def is_done(self, board: Board, exchanges: int) -> bool:  # noqa: ARG002
        return bool(board.get(Minimisation).progress.stop_reason)

    def _publish(self, board: Board, progress: Progress) -> Board:
        """The board after a round; at the end centres are the mean of the later half, each of which has noise."""
        parameters, trail = progress.parameters, next(board.find(Trail), Trail()).centers
        if not progress.stop_reason:
            return board.put(Minimisation(progress))
        if trail and type(parameters).move_centers is Parameters.move_centers:  # nothing constrains the centres
            centers = split_joint(np.mean(trail, axis=0), [part.shape[1] for part in parameters.centers])
            progress = replace(progress, parameters=replace(parameters, centers=centers))
        objective = progress.objective if progress.iteration else float("nan")
        return _publish(board.put(Result(objective, board.get(Population).rows)), progress, self.rounds_protocol)

    @property
    def rounds_protocol(self) -> StatisticsProtocol:
        """How the final model goes out."""
        return IN_FEATURES


@dataclass(frozen=True)
class NoisyMoves(NoisyRounds):
    """Rounds with pulls along the directions of a basis, weights and costs, with noise.

    What one row can change is at most what it can change in features, the bound of `kernel_sensitivity`: of all that is
    sent only the pulls are other numbers. Say one row more, or another row, moves the pulls of view h by the table P_h,
    one row per cluster. Then P_h E_h is what they move by here, and |P_h E_h| <= |P_h| |E_h| = |P_h| in the Frobenius
    norm, because the largest singular value of orthonormal columns is 1. Weights and costs are those of the same
    pass over the rows at the centres E_h a, which the kernel bounds wherever centres are.

    A site takes nobody's word for the columns: it makes them orthonormal itself (`Basis.columns`), before rows are
    read. Which directions they are may depend on earlier releases, as centres do, and on rows in no other way.
    """

    name: ClassVar[str] = "noisy moves"

    protocol: BasisStatistics

    def size(self, board: Board) -> int:
        parameters = board.get(Minimisation).parameters
        s = len(parameters.centers)
        return parameters.n_clusters * (_count_numbers(parameters) + s) + s

    @staticmethod
    def vector(site: Site, request: NoisyRoundRequest) -> FloatArray:
        model, columns = request.model, site.board.get(Basis).columns_of(site.rows().widths)
        if not keeps_bound(model, [part.shape[1] for part in columns]):
            raise MessageError(UNBOUNDED)
        found, pulls = collect_pulls(site, model)
        return _scaled_sums(request, pulls, found)

    def _hold(self, board: Board, centers: FloatArray) -> FloatArray:
        block = board.get(Basis).block
        return np.asarray(hold_in_bounds(board, centers @ block.T) @ block)

    @property
    def rounds_protocol(self) -> StatisticsProtocol:
        return self.protocol


def _scaled_sums(request: NoisyRoundRequest, pulls: Sequence[FloatArray], found: Statistics) -> FloatArray:
    """What a site adds to a noisy round, each part in the units in which noise of one size suits it."""
    heights, costs = request.count_scale * found.heights, request.cost_scale * np.maximum(found.costs, 0.0)
    return np.concatenate([np.hstack(pulls).ravel(), heights.ravel(), costs])


def noisy_request(parameters: Parameters, neighbours: Neighbours) -> NoisyRoundRequest:
    """The request of a noisy round, with the scale of the weights that makes the noise in centres smallest."""
    width, n_views = sum(values.shape[1] for values in parameters.centers), len(parameters.centers)
    scale = best_kernel_scale(kernel_reach(parameters.heat_time), TYPICAL_MOVE, width, n_views, neighbours)
    weights = np.where(parameters.view_weights < LEAST_WEIGHT, 0.0, parameters.view_weights)
    return NoisyRoundRequest(Broadcast.of(replace(parameters, view_weights=weights)), scale)


def keeps_bound(model: Broadcast, widths: Sequence[int] | None = None) -> bool:
    """Whether no row can say more than `NoisyRounds.sensitivity` with these parameters, rounding included.

    Centres must have so many numbers for each view, where `widths` says it.

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
    if widths is not None and (weights.shape, model.centers.values.shape[1:]) != ((len(widths),), (sum(widths),)):
        return False
    if not all(low <= number <= high for number, low, high in numbers.values()) or weights.ndim != 1:
        return False
    used = weights[weights != 0]
    if not used.size or not np.all((used >= LEAST_WEIGHT) & (used <= 1 / LEAST_WEIGHT)):
        return False
    if shares.shape != weights.shape or not np.all((shares >= LEAST_WEIGHT) & (shares <= 1)):
        return False
    longest = np.square(model.centers.read()).sum(axis=1).max(initial=0.0)
    return bool(model.heat_time * longest <= MOST_EXPONENT)
