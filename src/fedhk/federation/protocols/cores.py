"""The cores protocol: sums in a basis of few directions that the server sends once.

A site that has orthonormal columns E_h, of shape (d_h, q_h), needs to say only E_h^T (N_kh - W_kh * a_kh) and
max_j W_kjh: q_h numbers per cluster and view instead of d_h. They add over sites, and the server's step on them is the
step on full statistics restricted to the span of E_h, so that J still falls. The form of the centres is fitted in these
coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.payloads import Arrays, Values, pack_parameters, split, unpack_parameters
from fedhk.federation.plausible import ROUNDING, check_rows
from fedhk.federation.precision import as_sent, at_least_half, pack_rounded, rounded_spec, unpack_rounded
from fedhk.federation.protocols.base import held_parameters, held_rows
from fedhk.federation.protocols.statistics import StatisticsProtocol, own_statistics, with_offset
from fedhk.model.kmeans import leading_axes
from fedhk.model.loop import improve
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.model.seeding import joint_rows
from fedhk.model.statistics import Statistics

if TYPE_CHECKING:
    from fedhk.federation.server import Plan, ServerState
    from fedhk.federation.site import SiteState

# Directions beyond those of the centres: each must hold this share of what the centres leave, so that centres have
# somewhere to move to; at most as many as there are clusters, and no more than ten.
EXTRA_SHARE, MOST_EXTRA = 0.02, 10


class CoresProtocol(StatisticsProtocol):
    """Statistics in a common basis; full statistics in every so many rounds, to make a new basis."""

    def begin(self, plan: Plan, state: ServerState, rows: Rows | None) -> ServerState:  # noqa: ARG002
        start = state.parameters
        clouds = [np.zeros((1, width)) for width in state.widths] if rows is None else _residuals(rows, start)
        return rebased(state, start, clouds)

    def tell(self, plan: Plan, state: ServerState, *, holds: bool) -> tuple[Arrays, Values]:
        arrays, values = pack_parameters(state.inner, state.precision)
        if not holds:
            for view, directions in enumerate(state.directions):  # rounded before: rounding again changes nothing
                arrays |= pack_rounded(f"basis.{view}", directions, state.precision)
        if refreshes(plan, state):
            values["refresh"] = True
        return arrays, values

    def hear(self, site: SiteState, request: Message) -> SiteState:
        widths = held_rows(site).widths
        if "basis.0" in request.arrays:
            sent = [unpack_rounded(request.arrays, f"basis.{view}") for view in range(len(widths))]
            site = replace(site, basis=tuple(orthonormal(directions) for directions in sent))
        if len(site.basis) != len(widths):
            raise MessageError("asked for a round before the basis came", site.name)
        inner = unpack_parameters(request, [e.shape[1] for e in site.basis])
        return replace(site, parameters=expanded(inner, site.basis))

    def answer(self, site: SiteState, request: Message, workers: int) -> tuple[SiteState, Arrays, Values]:
        if request.values.get("refresh"):
            return super().answer(site, request, workers)
        site = with_offset(site, workers)
        statistics, parameters = own_statistics(site, workers), held_parameters(site)
        heights: FloatArray = np.stack([weights.max(axis=1) for weights in statistics.weights], axis=1)
        moves = []
        for view, basis in enumerate(site.basis):
            pull = statistics.numerators[view] - statistics.weights[view] * parameters.centers[view]
            height = heights[:, view, None]
            moves.append(np.divide(pull @ basis, height, out=np.zeros((len(pull), basis.shape[1])), where=height > 0))
        sums = np.concatenate(
            [np.maximum(statistics.costs, 0.0), statistics.masses, [statistics.objective, statistics.rows]]
        )
        precision = request.values.get("precision", "double")
        return site, pack_rounded("moves", np.hstack(moves), precision) | {"weights": heights, "sums": sums}, {}

    def read(self, plan: Plan, state: ServerState, reply: Message) -> Any:
        if refreshes(plan, state):
            return super().read(plan, state, reply)
        n_clusters, n_views = plan.settings.n_clusters, len(state.basis)
        directions = [e.shape[1] for e in state.basis]
        check_arrays(
            reply,
            {
                **rounded_spec(reply, "moves", (n_clusters, sum(directions))),
                "weights": ArraySpec((n_clusters, n_views), non_negative=True),
                "sums": ArraySpec((n_views + n_clusters + 2,), non_negative=True),
            },
        )
        moves = split(unpack_rounded(reply.arrays, "moves"), directions)
        weights, sums = (np.asarray(reply.arrays[name], np.float64) for name in ("weights", "sums"))
        _check(moves, weights, sums, state, reply.site)
        # what the site saw: the parameters as they were sent
        seen = split(as_sent(np.hstack(state.inner.centers), at_least_half(state.precision)), directions)
        numerators = tuple(weights[:, h, None] * (seen[h] + moves[h]) for h in range(n_views))
        per_view = tuple(weights[:, h, None] for h in range(n_views))
        return Statistics(numerators, per_view, sums[:n_views], sums[n_views:-2], float(sums[-2]), float(sums[-1]))

    def combine(self, plan: Plan, state: ServerState, answers: Sequence[Any]) -> tuple[ServerState, Parameters, float]:
        if not refreshes(plan, state):
            statistics: Statistics = reduce(add, answers)
            better = improve(state.inner, statistics, learn_weights=plan.settings.learn_weights)
            return state, better, statistics.objective
        before = state.parameters
        state, better, objective = super().combine(plan, state, answers)
        moved = [new - old for new, old in zip(better.centers, before.centers, strict=True)]
        state = rebased(state, better, moved)
        return state, state.inner, objective


def refreshes(plan: Plan, state: ServerState) -> bool:
    """Whether this round asks for full statistics: at once where no candidates could give a basis."""
    done = 0 if state.progress is None else state.progress.iteration
    given = not isinstance(plan.settings.init, str)
    return plan.refresh_every > 0 and done % plan.refresh_every == 0 and (done > 0 or given)


def rebased(state: ServerState, parameters: Parameters, clouds: Sequence[FloatArray]) -> ServerState:
    """The state with these parameters in a new basis: the span of the centres, and where else `clouds` are.

    Parameters
    ----------
    state : ServerState
        Before; nobody holds the new basis.
    parameters : Parameters
        In features.
    clouds : sequence of array of shape (n, d_h)
        Points around 0 in whose leading directions the centres may have to move.
    """
    form = parameters.form
    if form is not None and form.free:  # centres of any kind have this form: it is made at the end
        parameters = replace(parameters, form=None)
    spans = parameters.centers if parameters.form is None else [b.T for b in parameters.form.bases]
    sent = []
    for span, cloud in zip(spans, clouds, strict=True):
        held = leading_axes(span, 1.0)
        rest = cloud - (cloud @ held) @ held.T
        extra = leading_axes(rest, EXTRA_SHARE)[:, : min(parameters.n_clusters, MOST_EXTRA)]
        sent.append(as_sent(np.hstack([held, extra]).T, state.precision))
    progress = state.progress
    assert progress is not None  # noqa: S101 - there are parameters
    state = replace(
        state,
        directions=tuple(sent),
        holders=frozenset(),
        free_form=form if parameters.form is None else None,
    )
    return replace(state, progress=replace(progress, parameters=compressed(parameters, state.basis)))


def compressed(parameters: Parameters, basis: Sequence[FloatArray]) -> Parameters:
    """Parameters in the coordinates of a basis."""
    centers = tuple(values @ e for values, e in zip(parameters.centers, basis, strict=True))
    form = parameters.form
    return replace(parameters, centers=centers, form=None if form is None else form.compressed(basis))


def expanded(inner: Parameters, basis: Sequence[FloatArray]) -> Parameters:
    """Parameters in features again."""
    centers = tuple(values @ e.T for values, e in zip(inner.centers, basis, strict=True))
    return replace(inner, centers=centers, form=None if inner.form is None else inner.form.expanded(basis))


def orthonormal(directions: FloatArray) -> FloatArray:
    """A basis, of shape (d_h, q_h), from rows that were orthonormal before they were rounded.

    Every column points the way of its row: what is orthonormal already stays as it is.
    """
    columns, triangle = np.linalg.qr(directions.T)
    return np.asarray(columns * np.where(np.diag(triangle) < 0, -1.0, 1.0))


def _residuals(rows: Rows, parameters: Parameters) -> list[FloatArray]:
    """Candidates as seen from the centre of their cluster, times the root of their weight."""
    with Passes(rows, parameters.n_clusters, 1) as scan:
        labels = scan.assign(parameters)[1]
    weight: FloatArray = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    parts = split(joint_rows(rows), rows.widths)
    return [
        np.sqrt(weight)[:, None] * (part - centers[labels])
        for part, centers in zip(parts, parameters.centers, strict=True)
    ]


def _check(moves: Sequence[FloatArray], weights: FloatArray, sums: FloatArray, state: ServerState, site: str) -> None:
    """Refuse what no rows can have: a pull further than any row is, more weight than rows, a wrong objective."""
    rows, objective = float(sums[-1]), float(sums[-2])
    check_rows(rows, objective, state.inner, site)
    most = (1 + ROUNDING) * rows
    furthest = [2 * float(np.linalg.norm(limit)) + 1.0 for limit in state.reach]
    costs, masses = sums[: len(moves)], sums[len(moves) : -2]
    if np.any(costs > most) or masses.sum() > most or np.any(weights > most * np.maximum(furthest, 1.0)):
        raise MessageError(f"masses, costs or weights larger than the {rows:.6g} rows they are of", site)
    if any(np.any(np.abs(move) > limit) for move, limit in zip(moves, furthest, strict=True)):
        raise MessageError("pulls on centres that are further than any row is", site)
