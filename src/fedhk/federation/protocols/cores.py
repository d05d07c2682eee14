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
from fedhk.federation.basis import compressed, expanded, orthonormal
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.payloads import Arrays, Values, pack_parameters, pack_sums, unpack_parameters, unpack_sums
from fedhk.federation.plausible import ROUNDING, check_masses
from fedhk.federation.precision import as_sent, at_least_half, pack_rounded, rounded_spec, unpack_rounded
from fedhk.federation.protocols.base import held_parameters, held_rows
from fedhk.federation.protocols.statistics import (
    StatisticsProtocol,
    brought_together,
    own_statistics,
    step,
    with_offset,
)
from fedhk.model.joint import joint_rows, split_joint
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.starts.kmeans import leading_axes

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

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
        heights, moves = statistics.heights, []
        for view, basis in enumerate(site.basis):
            pull = statistics.numerators[view] - statistics.weights[view] * parameters.centers[view]
            height = heights[:, view, None]
            moves.append(np.divide(pull @ basis, height, out=np.zeros((len(pull), basis.shape[1])), where=height > 0))
        arrays = pack_rounded("moves", np.hstack(moves), request.values.get("precision", "double"))
        return site, arrays | {"weights": heights, "sums": pack_sums(statistics)}, {}

    def read(self, plan: Plan, state: ServerState, reply: Message) -> Any:
        if refreshes(plan, state):
            return super().read(plan, state, reply)
        n_clusters, directions = plan.settings.n_clusters, [values.shape[1] for values in state.inner.centers]
        n_views = len(directions)
        check_arrays(
            reply,
            {
                **rounded_spec(reply, "moves", (n_clusters, sum(directions))),
                "weights": ArraySpec((n_clusters, n_views), non_negative=True),
                "sums": ArraySpec((n_views + n_clusters + 2,), non_negative=True),
            },
        )
        moves = split_joint(unpack_rounded(reply.arrays, "moves"), directions)
        weights = split_joint(reply.arrays["weights"], [1] * n_views)
        numerators = tuple(weight * move for weight, move in zip(weights, moves, strict=True))
        statistics = Statistics(numerators, weights, *unpack_sums(reply.arrays["sums"], n_views))
        _check(moves, statistics, state, reply.site)
        return statistics

    def combine(self, plan: Plan, state: ServerState, answers: Sequence[Any]) -> tuple[ServerState, Parameters, float]:
        if refreshes(plan, state):
            before = state.parameters
            state, better, objective = super().combine(plan, state, answers)
            moved = [new - old for new, old in zip(better.centers, before.centers, strict=True)]
            state = rebased(state, better, moved)
            return state, state.inner, objective
        # moves are from where the sites were: the centres as they were sent
        inner = state.inner
        seen = as_sent(np.hstack(inner.centers), at_least_half(state.precision))
        parts = split_joint(seen, [values.shape[1] for values in inner.centers])
        if plan.aggregator == "sum":
            return state, *step(plan, inner, _from(parts, reduce(add, answers)))
        whole = [_from(parts, answer) for answer in answers]
        return state, *step(plan, inner, brought_together(plan, whole, inner))


def _from(centers: Sequence[FloatArray], moved: Statistics) -> Statistics:
    """Statistics with sums of rows, from those with sums of moves from centres."""
    numerators = tuple(n + w * a for n, w, a in zip(moved.numerators, moved.weights, centers, strict=True))
    return replace(moved, numerators=numerators)


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
    state = replace(
        state,
        directions=tuple(sent),
        holders=frozenset(),
        free_form=form if parameters.form is None else None,
    )
    return replace(state, progress=replace(state.going, parameters=compressed(parameters, state.basis)))


def _residuals(rows: Rows, parameters: Parameters) -> list[FloatArray]:
    """Candidates as seen from the centre of their cluster, times the root of their weight."""
    with Passes(rows, parameters.n_clusters, 1) as scan:
        labels = scan.assign(parameters)[1]
    weight: FloatArray = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    parts = split_joint(joint_rows(rows), rows.widths)
    return [
        np.sqrt(weight)[:, None] * (part - centers[labels])
        for part, centers in zip(parts, parameters.centers, strict=True)
    ]


def _check(moves: Sequence[FloatArray], statistics: Statistics, state: ServerState, site: str) -> None:
    """Refuse what no rows can have: a pull further than any row is, more weight than rows, a wrong objective."""
    check_masses(statistics, state.inner, site)
    furthest = [2 * float(np.linalg.norm(limit)) + 1.0 for limit in state.reach]
    most = (1 + ROUNDING) * statistics.rows
    if np.any(statistics.heights > most * np.array(furthest)):
        raise MessageError(f"weights larger than the {statistics.rows:.6g} rows they are of", site)
    if any(np.any(np.abs(move) > limit) for move, limit in zip(moves, furthest, strict=True)):
        raise MessageError("pulls on centres that are further than any row is", site)
