"""The sums of a sealed run before its rounds: ranges, moments, directions and cells.

A phase is an object without state. What one row can change is stated beside what is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.errors import DataError, MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.protocols.base import held_rows
from fedhk.federation.sealed.state import Sealed
from fedhk.model.candidates import candidate_rows
from fedhk.model.cells import MOST_FEATURES, Grid, leading_grid, read_second_moments, second_moments, sketch
from fedhk.model.joint import split_joint
from fedhk.model.loop import Progress
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import balance, heat_energy, references_from_moments, site_moments
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

# Powers of two between which absolute values are told apart.
LEAST_POWER, MOST_POWER = -30, 40
POWERS = MOST_POWER - LEAST_POWER + 1

# Of a feature's variance in one view, how far from the mean over features noise may make it.
MOST_RATIO = 4.0


class SumPhase(ABC):
    """One sum over sites."""

    step: float = 2.0**-32
    """Numbers are whole multiples of this, where no noise is added."""

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        """What the server says with the request."""
        return {}, {}

    def hear(self, site: SiteState, request: Message) -> SiteState:  # noqa: ARG002
        """The site with what the server told."""
        return site

    @abstractmethod
    def size(self, plan: Plan, state: ServerState) -> int:
        """How many numbers are sent."""

    @abstractmethod
    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:
        """What the site adds to the sum."""

    def sensitivity(self, told: Values, parameters: Parameters | None, neighbours: Neighbours) -> float:  # noqa: ARG002
        """How far, at most, the values move when one row is another or is not there.

        Parameters
        ----------
        told : dict
            What the server says with the request.
        parameters : Parameters or None
            The parameters of the round.
        neighbours : str
            What one row more or less means.
        """
        raise MessageError("this sum must not leave a site with privacy on")

    @abstractmethod
    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:
        """What the server makes of the sum, whose numbers have noise of the given standard deviation."""


def held_sealed(state: ServerState) -> Sealed:
    """The sealed part of the server's state."""
    if state.sealed is None:
        raise MessageError(f"the server is in phase {state.phase!r} of a sealed run that was not begun")
    return state.sealed


def site_widths(request: Message) -> list[int]:
    """Features per view, as the server tells them before there are references."""
    return [int(width) for width in request.values["widths"]]


class Ranges(SumPhase):
    """Per feature, how many rows have an absolute value at each power of two, below zero and above."""

    step = 1.0

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        return {}, {"widths": [len(m.mean) for m in state.moments], "names": list(state.names)}

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        return 2 * POWERS * sum(len(m.mean) for m in state.moments)

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        widths = site_widths(request)
        tables = dict(zip(site.views.names, site.views.tables, strict=True))
        return np.concatenate(
            [_histogram(tables.get(n), w) for n, w in zip(request.values["names"], widths, strict=True)]
        )

    def sensitivity(self, told: Values, parameters: Parameters | None, neighbours: Neighbours) -> float:  # noqa: ARG002
        # a row is in one bin of every feature
        return sum_sensitivity(float(np.sqrt(sum(told["widths"]))), neighbours, nonnegative=True)

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:
        counts = total.reshape(-1, 2 * POWERS)
        # a bin counts where it surely is not noise
        surely = counts > (noise * np.sqrt(2 * np.log(counts.size)) if noise > 0 else 0.5)
        edges = np.concatenate([-(2.0 ** np.arange(MOST_POWER, LEAST_POWER - 1, -1.0)), 2.0 ** _powers()])
        inner = np.concatenate([np.append(edges[1:POWERS], 0.0), np.insert(edges[POWERS:-1], 0, 0.0)])
        low = np.array([min((min(edges[b], inner[b]) for b in np.flatnonzero(row)), default=-1.0) for row in surely])
        high = np.array([max((max(edges[b], inner[b]) for b in np.flatnonzero(row)), default=1.0) for row in surely])
        sealed = replace(held_sealed(state), low=low, high=np.where(high > low, high, low + 1.0))
        return bounded(plan, replace(state, sealed=sealed))


def _powers() -> FloatArray:
    return np.arange(LEAST_POWER, MOST_POWER + 1.0)


def _histogram(table: object, width: int) -> FloatArray:
    """Rows per feature and bin: below zero from the largest power down, above zero from the smallest up."""
    counts = np.zeros((width, 2 * POWERS))
    if table is None:
        return counts.ravel()
    dense = np.asarray(table.toarray() if hasattr(table, "toarray") else table, np.float64)
    with np.errstate(divide="ignore"):
        power = np.ceil(np.log2(np.abs(dense)))
    place = np.clip(np.nan_to_num(power, nan=0.0, neginf=LEAST_POWER), LEAST_POWER, MOST_POWER) - LEAST_POWER
    place = np.where(dense < 0, POWERS - 1 - place, POWERS + place).astype(np.int64)
    for feature in range(width):
        seen = ~np.isnan(dense[:, feature])
        counts[feature] = np.bincount(place[seen, feature], minlength=2 * POWERS)
    return counts.ravel()


def bounded(plan: Plan, state: ServerState) -> ServerState:
    """The state once bounds are known: with noise they are all that scales features, else moments are asked for."""
    if plan.privacy is None:
        return replace(state, phase="moments")
    sealed = held_sealed(state)
    widths = [len(m.mean) for m in state.moments]
    ends = zip(split_joint(_known(sealed.low), widths), split_joint(_known(sealed.high), widths), strict=True)
    moments = tuple(_of_bounds(low, high) for low, high in ends)
    references = references_from_moments(moments, state.names, plan.settings.scaling, plan.settings.heat_coef)
    if plan.settings.heat_coef == "minmax":  # half of the uniform coefficients' mean, for values all over the range
        references = tuple(reference.rescaled(float(np.sqrt(0.5))) for reference in references)
    return referenced(plan, replace(state, moments=moments, references=references, informed=frozenset()))


def _known(values: FloatArray | None) -> FloatArray:
    if values is None:
        raise MessageError("the server has no bounds yet")
    return values


def _of_bounds(low: FloatArray, high: FloatArray) -> Moments:
    """Moments as if values were all over the range alike."""
    one = np.ones_like(low)
    return Moments(1.0, 1.0, one, (low + high) / 2, np.square(high - low) / 12, low, high)


def referenced(plan: Plan, state: ServerState) -> ServerState:
    """The state once references are final: given centres are the start, or directions and cells give one."""
    settings, given = plan.settings, plan.settings.init
    if isinstance(given, str):
        return replace(state, phase="directions")
    if tuple(centers.shape[1] for centers in given) != state.widths:
        raise DataError(
            f"init has centres with {[c.shape[1] for c in given]} features, the views of the sites {list(state.names)} "
            f"have {list(state.widths)}."
        )
    start = settings.constrained(settings.template(state.references), state.names)
    return replace(state, phase="round", progress=Progress(start))


class MomentsPhase(SumPhase):
    """Rows, observed cells, sums and sums of squares per feature, in units of the range; only without noise."""

    step = 2.0**-40

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:
        sealed = held_sealed(state)
        values = {"widths": [len(m.mean) for m in state.moments], "names": list(state.names)}
        return {"bounds": np.stack([_known(sealed.low), _known(sealed.high)])}, values | {
            "scaling": plan.settings.scaling
        }

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        return 1 + len(state.moments) + 3 * sum(len(m.mean) for m in state.moments)

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        widths, names = site_widths(request), list(request.values["names"])
        own = site_moments(site.views, [int(w or 0) for w in site.views.widths], request.values["scaling"], None)
        held = dict(zip(site.views.names, own, strict=True))
        moments = [
            held[name] if name in held and len(held[name].mean) == width else Moments.none(width)
            for name, width in zip(names, widths, strict=True)
        ]
        low, high = request.arrays["bounds"]
        middle, half = split_joint((low + high) / 2, widths), split_joint((high - low) / 2, widths)
        rows, parts = [float(site.views.n_rows)], []
        for view, m, h in zip(moments, middle, half, strict=True):
            mean = np.where(view.weight > 0, (view.mean - m) / h, 0.0)
            rows.append(view.rows)
            parts.append(np.stack([view.weight, view.weight * mean, view.squares / h**2 + view.weight * mean**2]))
        return np.concatenate([np.array(rows), np.hstack(parts).ravel()])

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:  # noqa: ARG002
        sealed, n_views = held_sealed(state), len(state.moments)
        widths = [len(m.mean) for m in state.moments]
        low, high = split_joint(_known(sealed.low), widths), split_joint(_known(sealed.high), widths)
        parts = split_joint(total[1 + n_views :].reshape(3, -1), widths)
        moments = []
        for (weight, first, second), rows, a, b in zip(parts, total[1 : 1 + n_views], low, high, strict=True):
            mean = np.divide(first, weight, out=np.zeros_like(first), where=weight > 0)
            squares = np.maximum(second - weight * mean**2, 0.0) * np.square((b - a) / 2)
            squares = np.where(squares > weight * np.square((b - a) / 2) * 1e-9, squares, 0.0)  # the grid's rounding
            unknown = np.full(len(a), np.nan)
            ends = (a, b) if plan.settings.needs_ranges else (unknown, unknown)
            moments.append(
                Moments(float(rows), float(total[0]), weight, (a + b) / 2 + mean * (b - a) / 2, squares, *ends)
            )
        seen = [view for view, m in enumerate(moments) if m.rows > 0.5]
        if not seen:
            raise DataError("No site has a view with an observed value: there is nothing to cluster.")
        if len(seen) < len(moments):
            missing = [name for view, name in enumerate(state.names) if view not in seen]
            raise DataError(f"No site has an observed value in the views {missing}: leave them out.")
        if total[0] < plan.settings.n_clusters:
            raise DataError(
                f"All sites together have n_samples={total[0]:g}, which should be >= "
                f"n_clusters={plan.settings.n_clusters}."
            )
        settings = plan.settings
        full = tuple(settings.heat_coef != "uniform" or bool(np.any(m.weight < m.rows - 0.5)) for m in moments)
        references = references_from_moments(moments, state.names, settings.scaling, settings.heat_coef)
        sealed = replace(sealed, full=full)
        state = replace(state, moments=tuple(moments), references=references, sealed=sealed, informed=frozenset())
        return replace(state, phase="energy") if settings.heat_coef != "uniform" else referenced(plan, state)


class Energy(SumPhase):
    """Heat-weighted squared distance to the grand mean, per view; only without noise."""

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        return len(state.references)

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        return heat_energy(held_rows(site))

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:  # noqa: ARG002
        references = balance(state.references, total, [view.rows for view in state.moments])
        return referenced(plan, replace(state, references=references, informed=frozenset()))


class Directions(SumPhase):
    """Second moments of all rows, which give the leading directions and, with noise, the scales."""

    step = 2.0**-30

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
        # r^2, r y and y y^T are at most r^2 long each; another row leaves the first, turns the second round
        return float(float(told["radius"]) ** 2 * np.sqrt(3.0 if neighbours == "add-remove" else 6.0))

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:
        directions = sketch(sum(state.widths), plan.seed)
        radius = float(np.sqrt(len(state.references))) if plan.privacy else np.inf
        rows, mean, covariance = read_second_moments(total, directions.shape[1], radius)
        if plan.privacy is not None and directions.shape[0] == directions.shape[1]:
            scales = _scales(np.diag(covariance), state.widths, noise / rows)
            moved = zip(
                state.references, split_joint(mean, state.widths), split_joint(scales, state.widths), strict=True
            )
            state = replace(state, references=tuple(r.moved(m, d) for r, m, d in moved), informed=frozenset())
            covariance, mean = covariance / np.outer(scales, scales), np.zeros_like(mean)
        grid = leading_grid(mean, covariance, directions, plan.settings.n_clusters)
        return replace(state, phase="cells", rows=rows, sealed=replace(held_sealed(state), grid=grid))


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
