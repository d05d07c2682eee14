"""The diffusion under masks: anchors and products as sums over sites, of which the server sees only the total."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.embedding.splitting import grouped, groups_size, read_groups, split
from fedhk.errors import MessageError
from fedhk.federation.diffusion.phase import anchors_wanted, full_views, took_products, with_anchors
from fedhk.federation.diffusion.server import TOLD, as_matrix
from fedhk.federation.diffusion.site import sums
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.precision import as_sent, pack_rounded, unpack_rounded
from fedhk.federation.protocols.base import held_rows
from fedhk.federation.sealed.phases import SumPhase, held_sealed
from fedhk.starts.candidates import candidate_rows

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

# Splits beyond those that would do if all groups were split each time, and passes of plain k-means after them.
EXTRA_SPLITS, LAST_PASSES = 2, 2


class Anchors(SumPhase):
    """Sums of rows by the nearest of some points: a pass of k-means, from one group to as many as there are anchors."""

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        return pack_rounded("points", _points(state), TOLD), {"full": full_views(state)}

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        return groups_size(len(_points(state)), state.widths, full_views(state))

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        rows, points = held_rows(site), unpack_rounded(request.arrays, "points")
        if points.ndim != 2 or points.shape[1] != sum(rows.widths) or not np.isfinite(points).all():
            raise MessageError(f"points must be finite numbers of {sum(rows.widths)} features", site.name)
        return grouped(rows, points, [int(view) for view in request.values["full"]])

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:  # noqa: ARG002
        sealed, widths = held_sealed(state), state.widths
        found = read_groups(total, len(_points(state)), widths, full_views(state))
        wanted = anchors_wanted(plan, state)
        splits = math.ceil(math.log2(wanted)) + EXTRA_SPLITS
        if sealed.passes < splits + LAST_PASSES:
            count = wanted if sealed.passes < splits else 0
            points = split(found, count, widths, seeded(plan.seed, sealed.passes))
            return replace(state, sealed=replace(sealed, points=as_sent(points, TOLD), passes=sealed.passes + 1))
        state = replace(state, sealed=replace(sealed, points=None))
        return with_anchors(plan, state, candidate_rows([found], state.references, state.names))


def _points(state: ServerState) -> FloatArray:
    """What rows are grouped by; at first all are one group around the grand mean."""
    points = held_sealed(state).points
    return np.zeros((1, sum(state.widths))) if points is None else points


class Products(SumPhase):
    """Products of affinities with directions; what is asked comes with the stage."""

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        return 0 if state.stage is None else state.stage.size

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        return sums(site.stage, request)

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:  # noqa: ARG002
        if state.stage is None:
            raise MessageError("products came before there are anchors")
        session = held_sealed(state).secure
        answered = () if session is None else session.survivors
        return took_products(plan, state, [as_matrix(state.stage, total)], answered, workers=1)
