"""The factors protocol: sites fit low-rank centres to their own rows and send the factors (Algorithms 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.payloads import Arrays, Values, pack_parameters, unpack_parameters
from fedhk.federation.plausible import ROUNDING, check_points, check_rows
from fedhk.federation.precision import at_least_half, pack_rounded
from fedhk.federation.protocols.base import RoundProtocol, held_parameters, held_rows
from fedhk.federation.protocols.centers import LocalCenters, average_centers, client_shares, local_passes
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.tensors.low_rank import LowRank

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

AGGREGATIONS = ("centers", "factors")


@dataclass(frozen=True)
class LocalFactors:
    """A site's low-rank centres after its passes.

    Parameters
    ----------
    local : LocalCenters
        The centres that the factors stand for, their masses, and what else the site says.
    form : LowRank
        The factors.
    """

    local: LocalCenters
    form: LowRank


class FactorsProtocol(RoundProtocol):
    """Factors down, local passes, factors up.

    Notes
    -----
    Factors of different sites may be turned, permuted or stretched against each other and still stand for the same
    centres, so that their average means nothing. By default the server averages the centres they stand for, by the mass
    of each cluster, and decomposes the average again, starting from the last global factors (`aggregation="centers"`).
    The paper's average of the factors is offered after turning each site's to the global gauge ("factors").
    """

    def tell(self, plan: Plan, state: ServerState, *, holds: bool) -> tuple[Arrays, Values]:  # noqa: ARG002
        parameters = state.parameters
        arrays, values = pack_parameters(parameters)
        del arrays["centers"]
        described, factors = global_form(parameters).to_arrays()
        arrays |= _rounded(factors, state.precision)
        return arrays, values | {"form": described, "blend": plan.blend}

    def hear(self, site: SiteState, request: Message) -> SiteState:
        """The global factors, blended with the site's own of the round before (phase 1 of Algorithms 2 and 3)."""
        form = LowRank.from_arrays(request.values["form"], request.arrays)
        blend, own = float(request.values["blend"]), site.form
        parameters = unpack_parameters(request, held_rows(site).widths, centers=form.centers())
        parameters = replace(parameters, form=form)
        if request.kind == "round" and own is not None and blend > 0 and own.rank == form.rank:
            form = replace(form, factors=form.decomposition.blend(form.factors, own.factors, blend))
        return replace(site, parameters=parameters, form=form)

    def answer(self, site: SiteState, request: Message, workers: int) -> tuple[SiteState, Arrays, Values]:
        parameters, form = held_parameters(site), site.form
        start = parameters if form is None else replace(parameters, centers=form.centers(), form=form)
        local, sums = local_passes(site, start, request, workers)
        described, factors = global_form(local).to_arrays()
        del sums["centers"]
        sums |= _rounded(factors, request.values.get("precision", "double"))
        return replace(site, form=local.form), sums, {"error": described["error"]}

    def read(self, plan: Plan, state: ServerState, reply: Message) -> Any:
        n_clusters, n_views = plan.settings.n_clusters, len(state.widths)
        known = global_form(state.parameters)
        described, factors = known.to_arrays()
        spec = {name: ArraySpec(array.shape) for name, array in factors.items()}
        spec["masses"] = ArraySpec((n_clusters, n_views), non_negative=True)
        spec["sums"] = ArraySpec((n_views + 2,), non_negative=True)
        check_arrays(reply, spec)
        form = LowRank.from_arrays(described, reply.arrays)
        masses, sums = (np.asarray(reply.arrays[name], np.float64) for name in ("masses", "sums"))
        with np.errstate(over="ignore", invalid="ignore"):
            centers = form.centers()
        local = LocalCenters(centers, masses, sums[:n_views], float(sums[-2]), float(sums[-1]))
        check_points(np.nan_to_num(np.hstack(centers), nan=np.inf), _limits(state), reply.site)
        check_rows(local.rows, local.objective, state.parameters, reply.site)
        _check_weights(local, state, reply.site)
        return LocalFactors(local, form)

    def combine(self, plan: Plan, state: ServerState, answers: Sequence[Any]) -> tuple[ServerState, Parameters, float]:
        before, sites = state.parameters, [answer.local for answer in answers]
        averaged, objective = average_centers(before, sites, plan.client_weights, plan.quality_temperature)
        masses: FloatArray = sum(site.masses for site in sites)
        if not masses.any():
            return state, before, objective
        form = global_form(before)
        if plan.aggregation == "factors":
            shares = client_shares(sites, plan.client_weights, plan.quality_temperature)
            found = form.decomposition.mean([answer.form.factors for answer in answers], shares, form.factors)
            form = replace(form, factors=found)
        else:
            columns = [mass[:, None] for mass in masses.T]
            numerators = tuple(a * mass for a, mass in zip(averaged.centers, columns, strict=True))
            spread = np.zeros(len(columns))
            pooled = Statistics(numerators, tuple(columns), spread, masses.max(axis=1), objective, 0.0)
            form = form.step(pooled, before.centers, averaged.view_factors)
        return state, replace(averaged, centers=form.centers(), form=form), objective


def _limits(state: ServerState) -> list[FloatArray]:
    """How far centres of factors may be, whatever their masses, because the average of factors takes them whole.

    A product of factors mixes the features of a view, so that one limit is for all of them; and a centre without mass
    may be wherever the server has it.
    """
    known = zip(state.reach, state.parameters.centers, strict=True)
    return [np.full(limit.shape, max(limit.max(), 1.0, 10 * np.abs(a).max())) for limit, a in known]


def _check_weights(local: LocalCenters, state: ServerState, site: str) -> None:
    """Refuse more weight than so many rows can have, and weights of views that are no shares."""
    furthest = [max(2 * float(np.linalg.norm(limit)), 1.0) for limit in state.reach]
    if np.any(local.masses > (1 + ROUNDING) * local.rows * np.array(furthest)):
        raise MessageError(f"masses larger than the {local.rows:.6g} rows they are of", site)
    if abs(float(local.view_weights.sum()) - 1.0) > ROUNDING:
        raise MessageError("weights of views that do not sum to 1", site)


def _rounded(factors: Arrays, precision: str) -> Arrays:
    """Factors as they are sent; half precision at least, because their errors multiply."""
    arrays: Arrays = {}
    for name, array in factors.items():
        arrays |= pack_rounded(name, array, at_least_half(precision))
    return arrays


def global_form(parameters: Parameters) -> LowRank:
    """The form of the parameters; the factors protocol is for parameters that have one."""
    if parameters.form is None:
        raise MessageError("factors were asked for, but the centres have no low-rank form")
    return parameters.form
