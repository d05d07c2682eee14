"""Rounds from sums alone: all statistics under masks, or few of them with noise; in features, or in a basis.

With noise a site sends N - W a around the broadcast centres a, max_j W and the costs. The heat kernel bounds what a
row adds to them, however far away the row is: w exp(-t r^2) r is at most w / sqrt(2 e t). So no row is clipped, and
noise in the weights does not move the centres.

In a basis, pulls travel along its directions: E_h^T (N - W a), with orthonormal columns E_h that every site makes sure
of by itself. They add over sites like any sums. Such a projection makes no vector longer, so what one row can change in
a sum is bounded as before, and fewer numbers have less noise in all. Now and then a round has pulls in all features,
and the basis is made anew, so that centres come to where full sums would lead them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    Remembered,
    Result,
    Schema,
    Space,
)
from fedhk.federation.phases.base import Request, SumPhase
from fedhk.federation.phases.scales import FullWeights, hold_in_bounds
from fedhk.federation.phases.sum_start import Bandwidth
from fedhk.federation.plausible import REACH
from fedhk.federation.protocols.statistics import BasisStatistics, collect_pulls
from fedhk.federation.protocols.statistics import Statistics as StatisticsProtocol
from fedhk.federation.sealed import Noise, grid_step
from fedhk.federation.sealed.units import UNITS, ProtectedUnit
from fedhk.federation.site import Site
from fedhk.model.descent import Progress, improve
from fedhk.model.memory import Memory
from fedhk.model.parameters import CenterForm, Parameters
from fedhk.model.rows import split_joint
from fedhk.model.statistics import Statistics
from fedhk.privacy.fixed_point import fit_step
from fedhk.privacy.kernel_sensitivity import kernel_reach, kernel_sensitivity
from fedhk.privacy.sensitivity import Neighbours

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
class SumRounds(SumPhase[Request]):
    """Repeat rounds whose replies are sums, until there is a reason to stop."""

    learn_weights: bool
    form: CenterForm  # what the centres are constrained to

    @property
    def rounds_protocol(self) -> StatisticsProtocol:
        """Protocol in which the final model is sent."""
        return IN_FEATURES

    def begin(self, board: Board) -> Board:
        """Return the board; with the final model if the start shows that there is nothing to do."""
        progress = board.get(Minimisation).progress
        return self._publish(board, progress) if progress.stop_reason and not board.has(FinalModel) else board

    def is_done(self, board: Board, exchanges: int) -> bool:
        return bool(board.get(Minimisation).progress.stop_reason)

    def _publish(self, board: Board, progress: Progress) -> Board:
        """Return the board after a round, with the final model if it was the last."""
        board = board.put(Minimisation(progress))
        if not progress.stop_reason:
            return board
        model, parameters = self.rounds_protocol.finish(board)
        return board.put(FinalModel(model), FinalParameters(parameters))


@dataclass(frozen=True)
class MaskedRounds(SumRounds[MaskedRoundRequest]):
    """Repeat rounds with all statistics, added under masks."""

    name: ClassVar[str] = "masked round"

    max_rounds: int
    tol: float  # fall of the objective below which the rounds end, as a share of it; 0 runs all of them
    per_row: bool = field(default=False, kw_only=True)  # whether `tol` is the fall for each row instead

    def request(self, board: Board) -> MaskedRoundRequest:
        return MaskedRoundRequest(Broadcast.of(board.get(Minimisation).parameters), _full_weights(board))

    def size(self, board: Board) -> int:
        widths, n_clusters = board.get(Space).widths, board.get(Minimisation).parameters.n_clusters
        return n_clusters * (sum(widths) + sum(_weight_columns(board))) + len(widths) + n_clusters + 2

    @staticmethod
    def vector(site: Site, request: MaskedRoundRequest) -> FloatArray:
        found = site.collect(request.model.parameters(site.rows().widths), follow=True)
        weights = [
            np.broadcast_to(w, n.shape) if full else w.max(axis=1, keepdims=True)
            for w, n, full in zip(found.weights, found.numerators, request.full, strict=True)
        ]
        sums = np.concatenate([found.costs, found.masses, [found.objective, found.rows]])
        return np.concatenate([np.hstack(found.numerators).ravel(), np.hstack(weights).ravel(), sums])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        progress = board.get(Minimisation).progress
        found = self._read(board, total, board.get(Space).widths, _weight_columns(board))
        better = improve(progress.parameters, found, learn_weights=self.learn_weights)
        better = _impose_form(self.form, board, better, found)
        return self._publish(board, self._advance(progress, better, found))

    def _read(self, board: Board, total: FloatArray, widths: Sequence[int], columns: list[int]) -> Statistics:
        """Read the statistics of a total, given the columns of centres and weights of each view."""
        c = board.get(Minimisation).parameters.n_clusters
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

    def _advance(self, progress: Progress, better: Parameters, statistics: Statistics) -> Progress:
        """Where the rounds stand after one more, with these statistics, that found better parameters."""
        return progress.advance(
            better,
            statistics.objective,
            max_iter=self.max_rounds,
            tol=self.tol,
            rows=statistics.rows if self.per_row else None,
            unit="round",
        )


@dataclass(frozen=True, eq=False)
class MaskedMovesRequest:
    """Ask for statistics in the basis at these parameters, or in all features, for a new basis."""

    model: Broadcast
    in_features: bool


@dataclass(frozen=True)
class Renewal(Entry):
    """State that decides when a basis under masks is made anew."""

    is_due: bool = False  # whether it is after the coming round
    last: int = -1  # the iteration that it was made anew after


@dataclass(frozen=True)
class MaskedMoves(MaskedRounds):
    """Rounds with statistics in a basis, added under masks.

    Rounding for the way and the grid of masked sums are one thing here: the total has a bound, from which follows the
    step of a grid on which it has room in words of four bytes.

    Once rounds in the basis have settled, one round has statistics in all features. The centres that follow from it are
    in the next basis. The end is where such a round gains no more than `tol`, as with full sums.
    """

    name: ClassVar[str] = "masked moves"
    request_type: ClassVar[Any] = MaskedMovesRequest

    protocol: BasisStatistics

    def request(self, board: Board) -> MaskedMovesRequest:  # type: ignore[override]
        model = Broadcast.of(board.get(Minimisation).parameters, self.protocol.center_precision)
        return MaskedMovesRequest(model, _renewal(board).is_due)

    def _widths(self, board: Board) -> Sequence[int]:
        """Return how many numbers a centre has in each view, in the current request."""
        if _renewal(board).is_due:
            return board.get(Space).widths
        return [part.shape[1] for part in board.get(Minimisation).parameters.centers]

    def size(self, board: Board) -> int:
        widths, c = self._widths(board), board.get(Minimisation).parameters.n_clusters
        return c * (sum(widths) + len(widths)) + len(widths) + c + 2

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
        found, pulls = collect_pulls(site, request.model, in_features=request.in_features)
        sums = np.concatenate([found.costs, found.masses, [found.objective, found.rows]])
        return np.concatenate([np.hstack(pulls).ravel(), found.heights.ravel(), sums])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        progress, renewal, widths = board.get(Minimisation).progress, _renewal(board), self._widths(board)
        # pulls are from where the sites were: the centres as they were sent
        model, basis = self.request(board).model, board.get(Basis)
        asked = split_joint(model.centers.read(), [columns.shape[1] for columns in basis.columns])
        if renewal.is_due:
            asked = model.parameters(widths, basis).centers
            # the objective is that of the round before: only the next one tells what this one gains
            progress = replace(progress.forget(), parameters=progress.parameters.from_basis(basis.columns))
        found = self._read(board, total, widths, [1] * len(widths))
        parts = zip(found.numerators, found.weights, asked, strict=True)
        found = replace(found, numerators=tuple(n + w * a for n, w, a in parts))
        better = improve(progress.parameters, found, learn_weights=self.learn_weights)
        if renewal.is_due:
            progress = self._advance(progress, better, found)
            board = board.put(Minimisation(progress), Renewal(last=progress.iteration))
            board = self.protocol.enter_basis(board)
            return self._publish(board, board.get(Minimisation).progress)
        progress = self._advance(progress, _impose_form(self.form, board, better, found), found)
        if progress.converged and progress.iteration > renewal.last + 1:
            board = board.put(Renewal(is_due=True))
            progress = replace(progress, stop_reason="", converged=False)
        return self._publish(board, progress)

    @property
    def rounds_protocol(self) -> StatisticsProtocol:
        return self.protocol


def _renewal(board: Board) -> Renewal:
    """Return when the basis is made anew; not before a round has converged."""
    return next(board.find(Renewal), Renewal())


def _count_numbers(parameters: Parameters) -> int:
    """Count the numbers of one centre, over all views."""
    return int(sum(part.shape[1] for part in parameters.centers))


def _impose_form(form: CenterForm, board: Board, better: Parameters, statistics: Statistics) -> Parameters:
    """Constrain centres to the form once there are sums to fit it to; those that have it stay unchanged.

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


def _full_weights(board: Board) -> tuple[bool, ...]:
    """Return the views whose weights are sent per feature; embedded rows have all features or none."""
    if not all(entry.keeps_cells for entry in board.find(RowEntry)):
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
    cost_share: float = field(default=1.0, kw_only=True)  # factor of the costs, over the largest; up to 1

    @property
    def cost_scale(self) -> float:
        """Factor of the costs: up to the largest that does not raise the sensitivity to a row."""
        return self.cost_share * min(self.count_scale, 1.0)


@dataclass(frozen=True, eq=False)
class NoisyMovesRequest(NoisyRoundRequest):
    """The same in a basis; pulls are asked for along its directions, or in all features."""

    in_features: bool


@dataclass(frozen=True)
class NoisyRounds(SumRounds[NoisyRoundRequest]):
    """Rounds with pulls on the centres, weights and costs, scaled so that noise of one size suits them all."""

    name: ClassVar[str] = "noisy round"

    noise: Noise  # the budget, and the rounds that share it
    max_rounds: int  # fewer than share the budget where other sums take their part of it

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return min(self.noise.rounds, self.max_rounds)

    def begin(self, board: Board) -> Board:
        """Return the board; with the final model if the budget does not allow another round."""
        progress = board.get(Minimisation).progress
        if progress.stop_reason or self.noise.affords(self, board):
            return super().begin(board)
        reason = f"The privacy budget is spent after {progress.iteration} rounds: answers were lost on the way."
        return self._publish(board, replace(progress, stop_reason=reason))

    resume = begin

    def request(self, board: Board) -> NoisyRoundRequest:
        parameters = board.get(Minimisation).parameters
        for bandwidth in board.find(Bandwidth):
            parameters = replace(parameters, heat_time=bandwidth.heat_time)
        rows = board.get(Population).rows / len(board.get(Members).sites)
        return noisy_request(parameters, self.noise.privacy.neighbours, self.noise.unit, rows)

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
    def sensitivity(request: NoisyRoundRequest, size: int, neighbours: Neighbours) -> float:
        model, count = request.model, request.count_scale
        if not (LEAST_SCALE <= count <= MOST_SCALE and LEAST_SCALE <= request.cost_share <= 1.0 and keeps_bound(model)):
            raise MessageError(UNBOUNDED)
        reach, n_views = kernel_reach(model.heat_time), len(model.view_weights)
        return kernel_sensitivity(reach, count, request.cost_scale, n_views, neighbours)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        progress = board.get(Minimisation).progress
        statistics = self._read(board, progress.parameters, total, noise)
        better = improve(progress.parameters, statistics, learn_weights=self.learn_weights)
        better = _impose_form(self.form, board, better, statistics)
        trail = (*next(board.find(Trail), Trail()).centers, np.hstack(better.centers))
        kept = max(1, self.rounds - self.rounds // 2)
        progress = self._advance(progress, better, statistics)
        board = board.put(Trail(trail[-kept:]), Remembered(Memory.of(statistics.heights)))
        return self.begin(self._publish(board, progress))

    def _read(self, board: Board, before: Parameters, total: FloatArray, noise: float) -> Statistics:
        """Read a total at its parameters, as statistics whose means are the next centres."""
        widths = [part.shape[1] for part in before.centers]
        pulls, heights, costs = self._split(board, total, widths)
        # a weight that may be noise alone must not make a centre jump
        least = SURE_WEIGHT * noise / self.request(board).count_scale
        heights = np.maximum(heights, max(least, 1e-12))
        moves = damp_moves(pulls / np.repeat(heights, widths, axis=1), noise / heights, widths, self.noise.unit.damping)
        moved = np.hstack(before.centers) + moves
        held = split_joint(self._hold(board, moved, noise / heights), widths)
        numerators = []
        for a, center, height in zip(before.centers, held, heights.T, strict=True):
            length = np.linalg.norm(center - a, axis=1, keepdims=True)
            near = a + (center - a) * np.minimum(1.0, MOST_MOVE / np.maximum(length, 1e-300))
            numerators.append(height[:, None] * near)
        costs = np.maximum(costs, 0.0)
        objective, weights = float(before.view_factors @ costs), tuple(height[:, None] for height in heights.T)
        rows = board.get(Population).rows
        return Statistics(tuple(numerators), weights, costs, heights.max(axis=1), objective, rows)

    def _split(self, board: Board, total: FloatArray, widths: Sequence[int]) -> tuple[FloatArray, ...]:
        """Return the pulls, of shape (c, d), the weights (c, s) and the costs (s,) of a total, with their noise."""
        request, c = self.request(board), board.get(Minimisation).parameters.n_clusters
        pulls, heights, costs = np.split(total, np.cumsum([c * sum(widths), c * len(widths)]))
        return pulls.reshape(c, -1), heights.reshape(c, -1) / request.count_scale, costs / request.cost_scale

    def _advance(self, progress: Progress, better: Parameters, statistics: Statistics) -> Progress:
        """Where the rounds stand after one more, with these statistics, that found better parameters."""
        progress = progress.advance(better, statistics.objective, max_iter=self.rounds, tol=0.0, unit="round")
        if not progress.stop_reason:
            return progress
        return replace(progress, stop_reason=f"Ran the {self.rounds} rounds that share the privacy budget.")

    def _hold(self, board: Board, centers: FloatArray, noise: FloatArray) -> FloatArray:
        """Clip the centres of all views, side by side, to the range of the features.

        `noise` is the standard deviation of the noise in each number of a centre, per cluster and view.
        """
        return hold_in_bounds(board, centers)

    def _publish(self, board: Board, progress: Progress) -> Board:
        """Return the board after a round; at the end centres are averaged over the later half of the noisy rounds."""
        parameters, trail = progress.parameters, next(board.find(Trail), Trail()).centers
        if not progress.stop_reason:
            return super()._publish(board, progress)
        if trail and not parameters.has_form:
            centers = split_joint(np.mean(trail, axis=0), [part.shape[1] for part in parameters.centers])
            progress = replace(progress, parameters=replace(parameters, centers=centers))
        objective = progress.objective if progress.iteration else float("nan")
        return super()._publish(board.put(Result(objective, board.get(Population).rows)), progress)


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

    The leading directions are known with noise only, and centres that cannot leave them cannot mend that. So all rounds
    but the last have pulls in all features: they have the same bound, and each number has the same noise. What they say
    across the basis is shrunk by as much as noise explains (James and Stein 1961), and their directions join the basis,
    along which the pulls of the next round have noise of their own. Where there is little noise these rounds are those
    in features; where there is much, centres stay in the basis. On generated clusters fewer such rounds found less.
    """

    name: ClassVar[str] = "noisy moves"
    request_type: ClassVar[Any] = NoisyMovesRequest

    protocol: BasisStatistics

    def request(self, board: Board) -> NoisyMovesRequest:
        asked = super().request(board)
        return NoisyMovesRequest(asked.model, asked.count_scale, self._widens(board), cost_share=asked.cost_share)

    def _widens(self, board: Board) -> bool:
        """Tell whether the round has pulls in all features, so that the basis gets wider after it."""
        return board.get(Minimisation).progress.iteration < self.rounds - 1

    def size(self, board: Board) -> int:
        parameters = board.get(Minimisation).parameters
        s = len(parameters.centers)
        width = sum(board.get(Space).widths) if self._widens(board) else _count_numbers(parameters)
        return parameters.n_clusters * (width + s) + s

    @staticmethod
    def vector(site: Site, request: NoisyMovesRequest) -> FloatArray:  # type: ignore[override]
        model, columns = request.model, site.board.get(Basis).columns_of(site.rows().widths)
        if not keeps_bound(model, [part.shape[1] for part in columns]):
            raise MessageError(UNBOUNDED)
        found, pulls = collect_pulls(site, model, in_features=request.in_features)
        return _scaled_sums(request, pulls, found)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        if not self._widens(board):
            return super().take(board, total, noise)
        progress = board.get(Minimisation).progress
        before = progress.parameters.from_basis(board.get(Basis).columns)
        statistics = self._read(board, before, total, noise)
        better = improve(before, statistics, learn_weights=self.learn_weights)
        progress = self._advance(progress, better, statistics)
        widths, c = board.get(Space).widths, better.n_clusters
        pulls = split_joint(total[: c * sum(widths)].reshape(c, -1), widths)
        return self.begin(self.protocol.widen_basis(board.put(Minimisation(progress)), pulls))

    def _hold(self, board: Board, centers: FloatArray, noise: FloatArray) -> FloatArray:
        basis = board.get(Basis)
        if not self._widens(board):
            return np.asarray(hold_in_bounds(board, centers @ basis.block.T) @ basis.block)
        parts = zip(split_joint(centers, board.get(Space).widths), basis.columns, noise.T, strict=True)
        return hold_in_bounds(board, np.hstack([shrink_across(*part) for part in parts]))

    @property
    def rounds_protocol(self) -> StatisticsProtocol:
        return self.protocol


def damp_moves(moves: FloatArray, noise: FloatArray, widths: Sequence[int], damping: float) -> FloatArray:
    """Shorten the moves of all centres, of shape (c, d), by a share of what noise explains of their squared lengths.

    The numbers of a move have so much noise, of shape (c, s), per cluster and view. All of what noise explains is best
    taken off if there is no other round (James and Stein 1961). If others follow, a part of it is: what is missing of a
    move is found by them, and what is left of the noise of each is less.
    """
    explained = float(np.square(noise).sum(axis=0) @ np.asarray(widths)) / max(float(np.square(moves).sum()), 1e-300)
    return np.asarray(moves * (1.0 - damping * min(explained, 1.0)))


def shrink_across(centers: FloatArray, columns: FloatArray, noise: FloatArray) -> FloatArray:
    """Shrink the part of centres, of shape (c, d), that is orthogonal to the columns (James and Stein).

    Each number of a centre has so much noise, of shape (c,). Of the squared length across, noise alone explains
    noise^2 times the directions there are; that share is taken off, all of it at most.
    """
    along = (centers @ columns) @ columns.T
    across = centers - along
    explained = (columns.shape[0] - columns.shape[1]) * np.square(noise)
    share = explained / np.maximum(np.square(across).sum(axis=1), 1e-300)
    return np.asarray(along + across * np.maximum(1.0 - share, 0.0)[:, None])


def _scaled_sums(request: NoisyRoundRequest, pulls: Sequence[FloatArray], found: Statistics) -> FloatArray:
    """Compute a site's vector of a noisy round, each part in the units in which noise of one size suits it."""
    heights, costs = request.count_scale * found.heights, request.cost_scale * np.maximum(found.costs, 0.0)
    return np.concatenate([np.hstack(pulls).ravel(), heights.ravel(), costs])


def noisy_request(
    parameters: Parameters, neighbours: Neighbours, unit: ProtectedUnit = UNITS["row"], rows: float = 1.0
) -> NoisyRoundRequest:
    """Make the request of a noisy round, with the scales of weights and costs that minimise the noise in centres.

    A site has so many `rows` on average.
    """
    reach = kernel_reach(parameters.heat_time)
    count_scale, cost_scale = unit.scale_round(parameters.centers, reach, rows, neighbours)
    weights = np.where(parameters.view_weights < LEAST_WEIGHT, 0.0, parameters.view_weights)
    model = Broadcast.of(replace(parameters, view_weights=weights))
    return NoisyRoundRequest(model, count_scale, cost_share=cost_scale / min(count_scale, 1.0))


def keeps_bound(model: Broadcast, widths: Sequence[int] | None = None) -> bool:
    """Tell whether no row can exceed `NoisyRounds.sensitivity` with these parameters, rounding included.

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
