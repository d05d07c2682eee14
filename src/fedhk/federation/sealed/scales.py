"""The sums that scale features: their ranges and, without noise, their moments and the energy of views."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.views import Views, row_blocks
from fedhk.errors import DataError, MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.protocols.base import held_rows
from fedhk.federation.sealed.phases import (
    SumPhase,
    bounded,
    held_sealed,
    known_bounds,
    referenced,
    schema_widths,
    site_widths,
)
from fedhk.model.joint import split_joint
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import balance, heat_energy, references_from_moments, site_moments
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

# Powers of two between which absolute values are told apart.
LEAST_POWER, MOST_POWER = -30, 40
POWERS = MOST_POWER - LEAST_POWER + 1

# A range of values that are all 0, as far as powers tell.
NOTHING = 2.0 ** (LEAST_POWER + 1)

# Probability with which noise makes any of the ranges too wide.
FALSE_RANGE = 1e-6

# The grid of moments where nothing is known of the number of rows.
MOMENTS_STEP = 2.0**-36

# Of the square of the range, how much variance rounding makes of none.
ROUNDING = 1e-14


class Ranges(SumPhase):
    """Per feature, how many rows have an absolute value at each power of two, below zero and above."""

    step = 1.0

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        return {}, {"widths": schema_widths(state), "names": list(state.names)}

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        return 2 * POWERS * sum(schema_widths(state))

    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:  # noqa: ARG002
        if site.privacy is None:  # with noise, larger values count as the largest, and nothing is said about it
            check_sizes(site.views, site.name)
        tables = dict(zip(site.views.names, site.views.tables, strict=True))
        parts = zip(request.values["names"], site_widths(request), strict=True)
        return np.concatenate([_histogram(tables.get(name), width) for name, width in parts])

    def sensitivity(self, told: Values, parameters: Parameters | None, neighbours: Neighbours) -> float:  # noqa: ARG002
        # a row is in one bin of every feature
        return sum_sensitivity(float(np.sqrt(sum(told["widths"]))), neighbours, nonnegative=True)

    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:
        counts = total.reshape(-1, 2 * POWERS)
        # a bin counts where it surely is not noise: one that is, far out, would make all values of its feature alike
        surely = counts > (noise * np.sqrt(2 * np.log(counts.size / FALSE_RANGE)) if noise > 0 else 0.5)
        edges = np.concatenate([-(2.0 ** np.arange(MOST_POWER, LEAST_POWER - 1, -1.0)), 2.0 ** _powers()])
        inner = np.concatenate([np.append(edges[1:POWERS], 0.0), np.insert(edges[POWERS:-1], 0, 0.0)])
        low = np.array([min((min(edges[b], inner[b]) for b in np.flatnonzero(row)), default=-1.0) for row in surely])
        high = np.array([max((max(edges[b], inner[b]) for b in np.flatnonzero(row)), default=1.0) for row in surely])
        if noise > 0:  # the few values that are not 0 may be hidden by the noise
            low, high = np.where(high - low > NOTHING, (low, high), [[-1.0], [1.0]])
        sealed = replace(held_sealed(state), low=low, high=np.where(high > low, high, low + 1.0))
        # at most as many rows as the views together have; it says how fine sums without noise may be
        by_view = split_joint(counts.sum(axis=1), schema_widths(state))
        rows = float(sum(view.max(initial=0.0) for view in by_view))
        return bounded(plan, replace(state, sealed=sealed, rows=rows))


def _powers() -> FloatArray:
    return np.arange(LEAST_POWER, MOST_POWER + 1.0)


def _histogram(table: Any, width: int) -> FloatArray:
    """Rows per feature and bin: below zero from the largest power down, above zero from the smallest up."""
    counts = np.zeros((width, 2 * POWERS))
    for block in row_blocks(0 if table is None else table.shape[0], 8 * width):
        part = table[block]
        dense = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
        with np.errstate(divide="ignore"):
            power = np.ceil(np.log2(np.abs(dense)))
        place = np.clip(np.nan_to_num(power, nan=0.0, neginf=LEAST_POWER), LEAST_POWER, MOST_POWER) - LEAST_POWER
        place = np.where(dense < 0, POWERS - 1 - place, POWERS + place).astype(np.int64)
        for feature in range(width):
            seen = ~np.isnan(dense[:, feature])
            counts[feature] += np.bincount(place[seen, feature], minlength=2 * POWERS)
    return counts.ravel()


def check_sizes(views: Views, site: str) -> None:
    """Refuse values that sums in fixed point have no room for."""
    for name, table in zip(views.names, views.tables, strict=True):
        cells = np.zeros(0) if table is None else np.asarray(table.data if sp.issparse(table) else table)
        largest = float(np.nanmax(np.abs(cells), initial=0.0))
        if largest > 2.0**MOST_POWER:
            raise MessageError(
                f"view {name!r} has the value {largest:.3g}: secure sums have room for values up to 2^{MOST_POWER} in "
                "size. Rescale the view, or use scaling='l2'",
                site,
            )


class MomentsPhase(SumPhase):
    """Rows, observed cells, sums and sums of squares per feature, in units of the range; only without noise."""

    def grid(self, state: ServerState) -> float:
        return super().grid(state) if state.rows > 0 else MOMENTS_STEP

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:
        sealed = held_sealed(state)
        values = {"widths": schema_widths(state), "names": list(state.names)}
        return {"bounds": np.stack([known_bounds(sealed.low), known_bounds(sealed.high)])}, values | {
            "scaling": plan.settings.scaling
        }

    def size(self, plan: Plan, state: ServerState) -> int:  # noqa: ARG002
        return 1 + len(state.moments) + 3 * sum(schema_widths(state))

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
        widths = schema_widths(state)
        low, high = split_joint(known_bounds(sealed.low), widths), split_joint(known_bounds(sealed.high), widths)
        parts = split_joint(total[1 + n_views :].reshape(3, -1), widths)
        moments = []
        for (weight, first, second), rows, a, b in zip(parts, total[1 : 1 + n_views], low, high, strict=True):
            mean = np.divide(first, weight, out=np.zeros_like(first), where=weight > 0)
            squares = np.maximum(second - weight * mean**2, 0.0) * np.square((b - a) / 2)
            least = 4 * len(sealed.sites) * self.grid(state) + ROUNDING * weight
            squares = np.where(squares > least * np.square((b - a) / 2), squares, 0.0)  # else it is rounding
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
        state = replace(state, rows=float(total[0]))
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
