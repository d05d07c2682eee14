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
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values, pack_parameters, pack_sums, unpack_parameters, unpack_sums
from fedhk.federation.protocols.base import held_parameters, held_rows
from fedhk.federation.protocols.statistics import own_statistics, step
from fedhk.federation.sealed.phases import SumPhase, held_sealed
from fedhk.model.joint import split_joint
from fedhk.model.makeup import Makeup, site_makeup
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.privacy.sensitivity import Neighbours, best_scales, joint_sensitivity

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

# How far a centre typically moves in a round, in model units: what noise in the weights is balanced against.
TYPICAL_MOVE = 0.3

# A centre does not move further than this in one noisy round, nor by a weight that may be noise alone.
MOST_MOVE, SURE_WEIGHT = 1.5, 2.0


class PlainRound(SumPhase):
    """All statistics, as in the statistics protocol."""

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        arrays, values = pack_parameters(state.parameters)
        return arrays, values | {"full": [view for view, full in enumerate(held_sealed(state).full) if full]}

    def hear(self, site: SiteState, request: Message) -> SiteState:
        return replace(site, parameters=unpack_parameters(request, held_rows(site).widths))

    def size(self, plan: Plan, state: ServerState) -> int:
        n_clusters, n_views = plan.settings.n_clusters, len(state.widths)
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
        n_clusters, widths, columns = plan.settings.n_clusters, state.widths, _columns(state)
        sizes = np.cumsum([n_clusters * sum(widths), n_clusters * sum(columns)])
        numerators, weights, sums = np.split(total, sizes)
        statistics = Statistics(
            split_joint(numerators.reshape(n_clusters, -1), widths),
            split_joint(np.maximum(weights, 0.0).reshape(n_clusters, -1), columns),
            *unpack_sums(np.maximum(sums, 0.0), len(widths)),
        )
        better, objective = step(plan, state.parameters, statistics)
        return advanced(plan, state, better, objective, tol=plan.tol, rounds=plan.max_rounds)


def _columns(state: ServerState) -> list[int]:
    full = held_sealed(state).full or (False,) * len(state.widths)
    return [width if wide else 1 for width, wide in zip(state.widths, full, strict=True)]


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
        parameters = held_parameters(site)
        weights = parameters.view_weights
        bounded = parameters.fuzzifier > 1 and 0 < parameters.heat_time < np.inf and parameters.view_exponent > 0
        if not bounded or not np.all((weights >= 0) & np.isfinite(weights)):
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
        n_views, reach = len(parameters.centers), kernel_reach(parameters.heat_time)
        count = count_scale(parameters, neighbours)
        radii = [reach] * n_views
        return joint_sensitivity(radii, count, cost_scale(count), n_views, neighbours, complementary_costs=True)

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
        rounds = affordable_rounds(plan, state)
        state = advanced(plan, state, better, objective, tol=0.0, rounds=rounds)
        return averaged(state, noise, float(np.median(heights)), rounds)


def kernel_reach(heat_time: float) -> float:
    """The most that one row can pull on a centre: the largest r exp(-t r^2), at r^2 = 1 / (2 t)."""
    return 1.0 / math.sqrt(2.0 * math.e * heat_time)


def count_scale(parameters: Parameters, neighbours: Neighbours) -> float:
    """What weights are multiplied by, so that noise in them costs centres as much as noise in the pulls."""
    n_views, width = len(parameters.centers), sum(values.shape[1] for values in parameters.centers)
    reach = kernel_reach(parameters.heat_time) * math.sqrt(n_views)
    return best_scales(reach, TYPICAL_MOVE, width, n_views, neighbours)


def cost_scale(count: float) -> float:
    """What costs are multiplied by: as large as costs nothing."""
    return min(count, 1.0)


def affordable_rounds(plan: Plan, state: ServerState) -> int:
    """Rounds in all that the budget allows; fewer than planned where answers were spent that did not arrive."""
    privacy = plan.privacy
    assert privacy is not None  # noqa: S101 - asked of a run with privacy only
    done, rounds = state.going.iteration + 1, noisy_rounds(plan)
    left = privacy.budget - sum(multiplier**-2 for multiplier in held_sealed(state).releases)
    return min(rounds, done + int(left * privacy.multiplier("round", rounds) ** 2 + 1e-6))


def noisy_rounds(plan: Plan) -> int:
    """Rounds among which the budget is shared."""
    privacy = plan.privacy
    assert privacy is not None  # noqa: S101 - asked of a run with privacy only
    return min(plan.max_rounds, privacy.rounds)


def averaged(state: ServerState, noise: float, height: float, rounds: int) -> ServerState:
    """The state at the end with the mean of the centres of its later half, each of which has noise of its own."""
    sealed, progress = held_sealed(state), state.going
    trail = (*sealed.trail, np.hstack(progress.parameters.centers))[-max(1, rounds - rounds // 2) :]
    width = trail[0].shape[1]
    sealed = replace(sealed, trail=trail, noise=noise * math.sqrt(width) / max(height, 1e-300))
    if state.phase != "done" or progress.parameters.form is not None:
        return replace(state, sealed=sealed)
    centers = split_joint(np.mean(trail, axis=0), state.widths)
    progress = replace(progress, parameters=replace(progress.parameters, centers=centers))
    return replace(state, sealed=sealed, progress=progress)


class Finish(PlainRound):
    """The objective at the final parameters and, for personal models, what clusters are made of; only without noise."""

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:
        arrays, values = pack_parameters(state.parameters)
        return arrays, values | ({"makeup": True} if plan.makeup else {})

    def size(self, plan: Plan, state: ServerState) -> int:
        return 2 + plan.makeup * (plan.settings.n_clusters + 2 * sum(state.widths))

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:
        statistics = own_statistics(site, workers)
        sums = np.array([statistics.objective, statistics.rows])
        if not request.values.get("makeup"):
            return sums
        rows, parameters = held_rows(site), held_parameters(site)
        with Passes(rows, parameters.n_clusters, workers) as scan:
            labels = scan.assign(parameters)[1]
        return np.concatenate([sums, site_makeup(rows, parameters, labels).to_array()])

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:  # noqa: ARG002
        makeup = Makeup.from_array(np.maximum(total[2:], 0.0), plan.settings.n_clusters) if plan.makeup else None
        return replace(state, phase="done", final_objective=float(total[0]), rows=float(total[1]), makeup=makeup)
