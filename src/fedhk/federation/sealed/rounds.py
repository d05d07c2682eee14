"""The rounds of a sealed run, and its end.

With noise a site sends N - W a around the broadcast centres a, max_j W and the costs. The heat kernel bounds what a
row adds to them, however far away the row is: w exp(-t r^2) r is at most w / sqrt(2 e t). So no row is clipped, and
noise in the weights does not move the centres.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.diffusion.phase import clusters_size
from fedhk.federation.finish import finish_asked, finished, sums_size
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values, pack_parameters, pack_sums, unpack_parameters, unpack_sums
from fedhk.federation.protocols.base import held_parameters, held_rows
from fedhk.federation.protocols.statistics import final_clusters, final_sums, own_statistics, step
from fedhk.federation.sealed.phases import SumPhase, held_sealed
from fedhk.model.joint import split_joint
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.privacy.kernel_sensitivity import best_kernel_scale, kernel_reach, kernel_sensitivity
from fedhk.privacy.sensitivity import Neighbours

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

# How far a centre typically moves in a round, in model units: what noise in the weights is balanced against.
TYPICAL_MOVE = 0.3

# Squared distances are differences of squared lengths. Times the heat time, those of centres may have this size, so
# that rounding changes a kernel by 1e-6 of itself at most: far below the step of the grid.
MOST_EXPONENT = 2.0**30

# A centre does not move further than this in one noisy round, nor by a weight that may be noise alone.
MOST_MOVE, SURE_WEIGHT = 1.5, 4.0

# Steps of the grid, per site, below which a weight is what rounding makes of none.
SURE_STEPS = 256.0


class PlainRound(SumPhase):
    """All statistics, as in the statistics protocol."""

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        arrays, values = pack_parameters(state.parameters)
        return arrays, values | {"full": [view for view, full in enumerate(_full(state)) if full]}

    def hear(self, site: SiteState, request: Message) -> SiteState:
        return replace(site, parameters=unpack_parameters(request, held_rows(site).widths))

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        n_clusters, n_views = state.inner.n_clusters, len(state.widths)
        return n_clusters * (sum(state.widths) + sum(_columns(state))) + n_views + n_clusters + 2

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:
        statistics, full = own_statistics(site, workers), request.values["full"]
        weights = [
            np.broadcast_to(w, n.shape) if view in full else w.max(axis=1, keepdims=True)
            for view, (w, n) in enumerate(zip(statistics.weights, statistics.numerators, strict=True))
        ]
        parts = [np.hstack(statistics.numerators).ravel(), np.hstack(weights).ravel(), pack_sums(statistics)]
        return np.concatenate(parts)

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:  # noqa: ARG002
        n_clusters, widths, columns = state.inner.n_clusters, state.widths, _columns(state)
        sizes = np.cumsum([n_clusters * sum(widths), n_clusters * sum(columns)])
        numerators, weights, sums = np.split(total, sizes)
        # a weight of a few steps of the grid is rounding: its centre stays
        least = SURE_STEPS * len(held_sealed(state).sites) * self.grid(state)
        weights = np.where(weights > least, weights, 0.0)
        statistics = Statistics(
            split_joint(numerators.reshape(n_clusters, -1), widths),
            split_joint(weights.reshape(n_clusters, -1), columns),
            *unpack_sums(np.maximum(sums, 0.0), len(widths)),
        )
        better, objective = step(plan, state.parameters, statistics)
        return advanced(plan, state, better, objective, tol=plan.tol, rounds=plan.max_rounds)


def _full(state: ServerState) -> tuple[bool, ...]:
    """Views whose weights are sent per feature; embedded rows have all of them or none."""
    full = held_sealed(state).full
    return full if full and state.stage is None else (False,) * len(state.widths)


def _columns(state: ServerState) -> list[int]:
    return [width if wide else 1 for width, wide in zip(state.widths, _full(state), strict=True)]


def advanced(
    plan: Plan, state: ServerState, better: Parameters, objective: float, *, tol: float, rounds: int
) -> ServerState:
    """The state after one more round."""
    progress = state.going.advance(better, objective, max_iter=rounds, tol=tol)
    if not progress.stop_reason:
        return replace(state, progress=progress)
    if plan.privacy is None:
        return replace(state, progress=progress, phase="finish")
    reason = f"Ran the {rounds} rounds that share the privacy budget."
    return replace(state, progress=replace(progress, stop_reason=reason), phase="done", final_objective=objective)


class NoisyRound(PlainRound):
    """Pulls on the centres, weights and costs, scaled so that noise of one size suits them all."""

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        return pack_parameters(state.parameters)

    def size(self, plan: Plan, state: ServerState) -> int:
        return plan.settings.n_clusters * (sum(state.widths) + len(state.widths)) + len(state.widths)

    def hear(self, site: SiteState, request: Message) -> SiteState:
        site = super().hear(site, request)
        if not keeps_bound(held_parameters(site)):
            raise MessageError("parameters with which a row could say more than the noise is sized for", site.name)
        return site

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        statistics, centers = own_statistics(site, workers), held_parameters(site).centers
        pulls = [n - w * a for n, w, a in zip(statistics.numerators, statistics.weights, centers, strict=True)]
        count = count_scale(held_parameters(site), site.neighbours)
        costs = np.maximum(statistics.costs, 0.0)
        return np.concatenate([np.hstack(pulls).ravel(), count * statistics.heights.ravel(), cost_scale(count) * costs])

    def sensitivity(self, told: Values, parameters: Parameters | None, neighbours: Neighbours) -> float:  # noqa: ARG002
        if parameters is None:
            raise MessageError("asked for a round before parameters came")
        reach, count = kernel_reach(parameters.heat_time), count_scale(parameters, neighbours)
        return kernel_sensitivity(reach, count, cost_scale(count), len(parameters.centers), neighbours)

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:
        privacy, before, n_clusters = plan.privacy, state.parameters, plan.settings.n_clusters
        assert privacy is not None  # noqa: S101 - noisy rounds are those of a run with privacy
        count = count_scale(before, privacy.neighbours)
        ends = np.cumsum([n_clusters * sum(state.widths), n_clusters * len(state.widths)])
        pulls, heights, costs = np.split(total, ends)
        # a weight that may be noise alone must not make a centre jump
        least = SURE_WEIGHT * noise / count
        heights = np.maximum(heights.reshape(n_clusters, -1) / count, max(least, 1e-12))
        moves = split_joint(pulls.reshape(n_clusters, -1), state.widths)
        numerators = []
        for pull, a, height in zip(moves, before.centers, heights.T, strict=True):
            move = pull / height[:, None]
            length = np.linalg.norm(move, axis=1, keepdims=True)
            numerators.append(height[:, None] * (a + move * np.minimum(1.0, MOST_MOVE / np.maximum(length, 1e-300))))
        costs = np.maximum(costs / cost_scale(count), 0.0)
        objective = float(before.view_factors @ costs)
        weights = tuple(height[:, None] for height in heights.T)
        statistics = Statistics(tuple(numerators), weights, costs, heights.max(axis=1), objective, float(state.rows))
        better, _ = step(plan, before, statistics)
        sealed, rounds = held_sealed(state), noisy_rounds(plan)
        trail = (*sealed.trail, np.hstack(better.centers))[-max(1, rounds - rounds // 2) :]
        off = noise * math.sqrt(sum(state.widths)) / max(float(np.median(heights)), 1e-300)
        state = replace(state, sealed=replace(sealed, trail=trail, noise=off))
        return averaged(advanced(plan, state, better, objective, tol=0.0, rounds=rounds))


def keeps_bound(parameters: Parameters) -> bool:
    """Whether no row can say more than `NoisyRound.sensitivity` with these parameters, rounding included."""
    numbers = (parameters.heat_time, parameters.fuzzifier - 1.0, parameters.view_exponent)
    weights, shares = parameters.view_weights, parameters.view_shares
    if not all(0 < number < math.inf for number in numbers) or weights.shape != (len(parameters.centers),):
        return False
    if not np.all((weights >= 0) & np.isfinite(weights) & (shares > 0) & (shares <= 1)):
        return False
    lengths = np.array([np.square(values).sum(axis=1).max(initial=0.0) for values in parameters.centers])
    with np.errstate(over="ignore"):
        factors = parameters.view_factors.sum()
    return bool(0 < factors < math.inf and np.all(parameters.heat_time * lengths <= MOST_EXPONENT))


def count_scale(parameters: Parameters, neighbours: Neighbours) -> float:
    """What weights are multiplied by, so that noise in them costs centres as much as noise in the pulls."""
    width = sum(values.shape[1] for values in parameters.centers)
    return best_kernel_scale(
        kernel_reach(parameters.heat_time), TYPICAL_MOVE, width, len(parameters.centers), neighbours
    )


def cost_scale(count: float) -> float:
    """What costs are multiplied by: as large as costs nothing."""
    return min(count, 1.0)


def affordable_rounds(plan: Plan, state: ServerState) -> int:
    """Further rounds that the budget allows; fewer than planned where answers were spent that did not arrive."""
    privacy = plan.privacy
    assert privacy is not None  # noqa: S101 - asked of a run with privacy only
    left = privacy.budget - sum(multiplier**-2 for multiplier in held_sealed(state).releases)
    return max(0, int(left * privacy.multiplier("round", noisy_rounds(plan)) ** 2 + 1e-6))


def settled(plan: Plan, state: ServerState) -> ServerState:
    """The state, at its end if it waits for a round that the budget does not allow."""
    if plan.privacy is None or state.phase != "round" or affordable_rounds(plan, state) > 0:
        return state
    progress = state.going
    reason = f"The privacy budget is spent after {progress.iteration} rounds: answers were lost on the way."
    objective = progress.objective if progress.iteration else float("nan")
    state = replace(state, phase="done", progress=replace(progress, stop_reason=reason), final_objective=objective)
    return averaged(state)


def noisy_rounds(plan: Plan) -> int:
    """Rounds among which the budget is shared."""
    privacy = plan.privacy
    assert privacy is not None  # noqa: S101 - asked of a run with privacy only
    return min(plan.max_rounds, privacy.rounds)


def averaged(state: ServerState) -> ServerState:
    """The state at the end with the mean of the centres of its later half, each of which has noise of its own."""
    trail, progress = held_sealed(state).trail, state.going
    if state.phase != "done" or progress.parameters.form is not None or not trail:
        return state
    centers = split_joint(np.mean(trail, axis=0), state.widths)
    return replace(state, progress=replace(progress, parameters=replace(progress.parameters, centers=centers)))


class Finish(PlainRound):
    """The objective at the final parameters and, for personal models, what clusters are made of; only without noise."""

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:
        arrays, values = pack_parameters(state.parameters)
        return arrays, values | finish_asked(plan, state)

    def size(self, plan: Plan, state: ServerState) -> int:
        return sums_size(plan, state) + (0 if state.stage is None else clusters_size(state))

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:
        found = final_sums(site, workers, cluster_summary=bool(request.values.get("cluster_summary")))
        if "clusters" not in request.values:
            return found
        return np.concatenate([found, final_clusters(site, request.values["clusters"], workers)])

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:  # noqa: ARG002
        sums, clusters = np.split(total, [sums_size(plan, state)])
        sums[2:] = np.maximum(sums[2:], 0.0)  # rounding may leave less than nothing
        return finished(plan, state, sums, [clusters])
