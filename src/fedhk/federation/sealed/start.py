"""The sums that give a start: second moments of all rows, and how many are in each cell of a grid."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.errors import MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.protocols.base import held_rows
from fedhk.federation.sealed.phases import MINMAX_UNIT, SumPhase, held_sealed
from fedhk.model.descent import Progress
from fedhk.model.joint import split_joint
from fedhk.model.parameters import Parameters
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity
from fedhk.starts.candidates import candidate_rows
from fedhk.starts.cells import MOST_FEATURES, Grid, leading_grid, read_second_moments, second_moments, sketch

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

# Of a feature's variance in one view, how far from the mean over features noise may make it.
MOST_RATIO = 4.0


class Directions(SumPhase):
    """Second moments of all rows, which give the leading directions and, with noise, the scales."""

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:
        # rows longer than a typical one are cut, because noise is sized by the longest
        return {}, {"radius": float(np.sqrt(len(state.references))) if plan.privacy else None, "seed": plan.seed}

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        p = min(sum(state.widths), MOST_FEATURES)
        return 1 + p + p * (p + 1) // 2

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        rows, radius = held_rows(site), request.values["radius"]
        directions = sketch(sum(rows.widths), int(request.values["seed"]))
        return second_moments(rows, directions, np.inf if radius is None else float(radius))

    def sensitivity(self, told: Values, parameters: Parameters | None, neighbours: Neighbours) -> float:  # noqa: ARG002
        # r^2, r y and y y^T are at most r^2 long each. Another row z leaves the first; with c = y.z / r^2 the others
        # move by at most sqrt(2 - 2 c + 2 - 2 c^2) r^2, which is largest at c = -1/2
        return float(float(told["radius"]) ** 2 * np.sqrt(3.0 if neighbours == "add-remove" else 4.5))

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:
        directions = sketch(sum(state.widths), plan.seed)
        radius = self.tell(plan, state)[1]["radius"]
        rows, mean, covariance = read_second_moments(total, directions.shape[1], np.inf if radius is None else radius)
        if plan.privacy is not None and directions.shape[0] == directions.shape[1]:
            scales = _scales(np.diag(covariance), state.widths, noise / rows)
            if plan.settings.heat_coef == "minmax":
                scales = scales * MINMAX_UNIT
            parts = zip(
                state.references, split_joint(mean, state.widths), split_joint(scales, state.widths), strict=True
            )
            state = replace(state, references=tuple(_moved(*part) for part in parts), informed=frozenset())
            covariance, mean = covariance / np.outer(scales, scales), np.zeros_like(mean)
        grid = leading_grid(mean, covariance, directions, plan.settings.n_clusters)
        return replace(state, phase="cells", rows=rows, sealed=replace(held_sealed(state), grid=grid))


def _moved(reference: Reference, mean: FloatArray, divide: FloatArray) -> Reference:
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


class Cells(SumPhase):
    """How many rows are in each cell of a grid along the leading directions."""

    step = 1.0

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        grid = _grid(state)
        return {"axes": np.column_stack([grid.mean, grid.axes]), "deviations": grid.deviations}, {"bins": grid.bins}

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        return _grid(state).n_cells

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        axes = request.arrays["axes"]
        grid = Grid(axes[:, 0], axes[:, 1:], request.arrays["deviations"], int(request.values["bins"]))
        return grid.counts(held_rows(site))

    def sensitivity(self, told: Values, parameters: Parameters | None, neighbours: Neighbours) -> float:  # noqa: ARG002
        return sum_sensitivity(1.0, neighbours, nonnegative=True)

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:
        candidates = _grid(state).candidates(total, noise, len(state.references))
        rows = candidate_rows([candidates], state.references, state.names)
        start = plan.settings.start(rows, np.random.RandomState(plan.seed), 1)
        return replace(state, phase="round", progress=Progress(start))


def _grid(state: ServerState) -> Grid:
    grid = held_sealed(state).grid
    if grid is None:
        raise MessageError("the server asks for cells before there are directions")
    return grid
