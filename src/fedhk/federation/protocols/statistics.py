"""The statistics protocol: sites send sums over their rows, the server adds them. Any split gives the pooled model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.embedding.cluster_sums import cluster_sums
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values, pack_statistics, unpack_statistics
from fedhk.federation.plausible import check_statistics
from fedhk.federation.protocols.base import RoundProtocol, held_parameters, held_rows
from fedhk.model.cluster_summary import summarise_clusters
from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal.calibration import PRIOR_ROWS

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

# Passes in which a site finds its first offset.
FIRST_OFFSETS = 3


class StatisticsProtocol(RoundProtocol):
    """Statistics at the server's parameters."""

    def answer(self, site: SiteState, request: Message, workers: int) -> tuple[SiteState, Arrays, Values]:
        site = with_offset(site, workers)
        return site, *pack_statistics(own_statistics(site, workers), request.values.get("precision", "double"))

    def read(self, plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG002
        statistics = unpack_statistics(reply, state.inner.n_clusters, state.widths)
        check_statistics(statistics, state.parameters, state.reach, reply.site)
        return statistics

    def combine(self, plan: Plan, state: ServerState, answers: Sequence[Any]) -> tuple[ServerState, Parameters, float]:
        return state, *step(plan, state.parameters, brought_together(plan, answers, state.parameters))


def brought_together(plan: Plan, answers: Sequence[Statistics], parameters: Parameters) -> Statistics:
    """Statistics of all sites: their sum, or what holds against sites that lie."""
    if plan.aggregator == "sum":
        return reduce(add, answers)
    from fedhk.privacy.robust import robust_total  # noqa: PLC0415 - only where sites are not trusted

    return robust_total(answers, parameters, plan.aggregator)


def step(plan: Plan, parameters: Parameters, total: Statistics) -> tuple[Parameters, float]:
    """Better parameters from the sum of all statistics, and the objective at the old ones."""
    return improve(parameters, total, learn_weights=plan.settings.learn_weights), total.objective


def seen_parameters(site: SiteState) -> Parameters:
    """The parameters that the server told, as the site sees them: with its own offset."""
    parameters = held_parameters(site)
    if not site.offset:
        return parameters
    centers = [values + offset for values, offset in zip(parameters.centers, site.offset, strict=True)]
    return replace(parameters, centers=tuple(centers))


def own_statistics(site: SiteState, workers: int) -> Statistics:
    """Statistics of a site's rows at the parameters that the server told.

    A site with an offset of its own sees its rows, and says its sums, as if they were without it.
    """
    seen = seen_parameters(site)
    with Passes(held_rows(site), seen.n_clusters, workers) as scan:
        statistics = scan.statistics(seen)
    if not site.offset:
        return statistics
    parts = zip(statistics.numerators, statistics.weights, site.offset, strict=True)
    return replace(statistics, numerators=tuple(n - w * offset for n, w, offset in parts))


def final_sums(site: SiteState, workers: int, *, cluster_summary: bool) -> FloatArray:
    """The objective at the final parameters, the rows it is of and, where asked for, what clusters are made of."""
    statistics = own_statistics(site, workers)
    sums = np.array([statistics.objective, statistics.rows])
    if not cluster_summary:
        return sums
    rows, seen = held_rows(site), seen_parameters(site)
    with Passes(rows, seen.n_clusters, workers) as scan:
        labels = scan.assign(seen)[1]
    return np.concatenate([sums, summarise_clusters(rows, seen, labels).to_array()])


def final_clusters(site: SiteState, full: Sequence[int], workers: int) -> FloatArray:
    """Sums of the site's rows by membership, in the common units of the views that came in.

    Parameters
    ----------
    site : SiteState
        The site, with embedded rows.
    full : sequence of int
        Numbers of the views that are counted per feature.
    workers : int
        Threads.
    """
    rows, parameters = held_rows(site), held_parameters(site)
    with Passes(rows, parameters.n_clusters, workers) as scan:
        memberships = scan.assign(parameters)[0]
    outer = Rows(held_rows(replace(site, stage=None)).views, site.references)
    return cluster_sums(outer, memberships, full).to_array()


def with_offset(site: SiteState, workers: int) -> SiteState:
    """The site with an offset that follows the centres, where the calibration asks for one.

    The offset minimises the site's part of the objective, with a few rows' weight for no offset: sites of few rows have
    little of it.
    """
    if site.calibration is None or not site.calibration.offsets:
        return site
    parameters = held_parameters(site)
    passes = 1 if site.offset else FIRST_OFFSETS
    if not site.offset:
        site = replace(site, offset=tuple(np.zeros(values.shape[1]) for values in parameters.centers))
    for _ in range(passes):
        statistics = own_statistics(site, workers)
        parts = zip(statistics.numerators, statistics.weights, parameters.centers, site.offset, strict=True)
        offset = [
            ((n - w * a).sum(axis=0) + w.sum(axis=0) * old) / (w.sum(axis=0) + PRIOR_ROWS) for n, w, a, old in parts
        ]
        site = replace(site, offset=tuple(offset))
    return site
