"""The centres protocol: sites pass over their rows a few times, the server averages their centres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.plausible import check_points, check_rows
from fedhk.federation.protocols.base import RoundProtocol, held_parameters, held_rows
from fedhk.model.descent import improve
from fedhk.model.joint import split_joint
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState


@dataclass(frozen=True)
class LocalCenters:
    """A site's centres after its passes.

    Parameters
    ----------
    centers : tuple of array of shape (c, d_h)
        Local centres.
    masses : array of shape (c, s)
        How much of the site's rows each centre stands for, per view.
    view_weights : array of shape (s,)
        Local view weights.
    objective, rows : float
        J at the server's parameters, and the rows.
    """

    centers: tuple[FloatArray, ...]
    masses: FloatArray
    view_weights: FloatArray
    objective: float
    rows: float


def read_centers(message: Message, n_clusters: int, widths: Sequence[int]) -> LocalCenters:
    """Centres that a site sent, checked."""
    n_views = len(widths)
    check_arrays(
        message,
        {
            "centers": ArraySpec((n_clusters, sum(widths))),
            "masses": ArraySpec((n_clusters, n_views), non_negative=True),
            "sums": ArraySpec((n_views + 2,), non_negative=True),
        },
    )
    sums = np.asarray(message.arrays["sums"], np.float64)
    return LocalCenters(
        split_joint(message.arrays["centers"], widths),
        np.asarray(message.arrays["masses"], np.float64),
        sums[:n_views],
        float(sums[-2]),
        float(sums[-1]),
    )


def average_centers(
    parameters: Parameters, sites: Sequence[LocalCenters], rule: str, temperature: float
) -> tuple[Parameters, float]:
    """Average of the sites' centres and view weights (`eqn:global_A_EFKMVFC`, `eqn:global_V_EFKMVFC`), and J before.

    Parameters
    ----------
    parameters : Parameters
        What the round started from; a centre that no site holds stays there.
    sites : sequence of LocalCenters
        The sites.
    rule : {"mass", "rows", "quality"}
        By the rows that each centre stands for, by the rows of the site, or by softmax(-tau J) of the site's mean
        objective (`eqn:client_weights`).
    temperature : float
        tau.

    Notes
    -----
    The paper weighs by rows. A site without rows in a cluster then pulls its centre to wherever it was left; by mass it
    has no say. softmax is taken of the mean objective per row: of sums over rows it underflows and one site takes all.
    """
    if not any(site.rows for site in sites):
        return parameters, 0.0
    masses = np.stack([site.masses for site in sites])
    shares = client_shares(sites, rule, temperature)
    weights = masses if rule == "mass" else (masses > 0) * shares[:, None, None]
    centers = []
    for view, old in enumerate(parameters.centers):
        weight = weights[:, :, view]
        total = weight.sum(axis=0)[:, None]
        summed = np.einsum("lk,lkd->kd", weight, np.stack([site.centers[view] for site in sites]))
        centers.append(np.divide(summed, total, out=np.array(old, dtype=np.float64), where=total > 0))
    view_weights = shares @ np.stack([site.view_weights for site in sites])
    better = replace(parameters, centers=tuple(centers), view_weights=view_weights / view_weights.sum())
    return better, float(sum(site.objective for site in sites))


def client_shares(sites: Sequence[LocalCenters], rule: str, temperature: float) -> FloatArray:
    """Share of each site: of the rows, or by the quality of its model (`eqn:client_weights`); sums to 1."""
    rows = np.array([site.rows for site in sites])
    if rule != "quality":
        return np.asarray(rows / rows.sum())
    means = np.array([site.objective / site.rows if site.rows else np.inf for site in sites])
    filled = np.isfinite(means)
    scores = filled * np.exp(-temperature * np.where(filled, means - means.min(), 0.0))
    return np.asarray(scores / scores.sum())


def local_passes(site: SiteState, start: Parameters, request: Message, workers: int) -> tuple[Parameters, Arrays]:
    """A site's own parameters after the passes that the server asks for, and what it sends of them.

    Sent are the centres, how much of each view's rows they stand for, and the objective at the server's parameters.
    """
    parameters = held_parameters(site)
    passes, learn = int(request.values["local_passes"]), bool(request.values["learn_weights"])
    with Passes(held_rows(site), parameters.n_clusters, workers) as scan:
        first = scan.statistics(parameters)
        latest = first if start is parameters else scan.statistics(start)
        local = improve(start, latest, learn_weights=learn)
        for _ in range(passes - 1):
            latest = scan.statistics(local)
            local = improve(local, latest, learn_weights=learn)
    return local, {
        "centers": np.hstack(local.centers),
        "masses": latest.heights,
        "sums": np.concatenate([local.view_weights, [first.objective, first.rows]]),
    }


class CentersProtocol(RoundProtocol):
    """Each site's own centres after some passes, averaged."""

    def answer(self, site: SiteState, request: Message, workers: int) -> tuple[SiteState, Arrays, Values]:
        return site, local_passes(site, held_parameters(site), request, workers)[1], {}

    def read(self, plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG002
        local = read_centers(reply, state.inner.n_clusters, state.widths)
        held = [np.where(mass[:, None] > 0, a, np.nan) for a, mass in zip(local.centers, local.masses.T, strict=True)]
        check_points(np.hstack(held), state.reach, reply.site)
        check_rows(local.rows, local.objective, state.parameters, reply.site)
        return local

    def combine(self, plan: Plan, state: ServerState, answers: Sequence[Any]) -> tuple[ServerState, Parameters, float]:
        rule, temperature = plan.client_weights, plan.quality_temperature
        return state, *average_centers(state.parameters, answers, rule, temperature)
