"""The statistics protocol: sites send sums over their rows, the server adds them. Any split gives the pooled model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values, pack_statistics, unpack_statistics
from fedhk.federation.plausible import check_statistics
from fedhk.federation.protocols.base import RoundProtocol, held_parameters, held_rows
from fedhk.model.loop import improve
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics

if TYPE_CHECKING:
    from fedhk.federation.server import Plan, ServerState
    from fedhk.federation.site import SiteState


class StatisticsProtocol(RoundProtocol):
    """Statistics at the server's parameters."""

    def answer(self, site: SiteState, request: Message, workers: int) -> tuple[SiteState, Arrays, Values]:
        return site, *pack_statistics(own_statistics(site, workers), request.values.get("precision", "double"))

    def read(self, plan: Plan, state: ServerState, reply: Message) -> Any:
        statistics = unpack_statistics(reply, plan.settings.n_clusters, state.widths)
        check_statistics(statistics, state.parameters, state.reach, reply.site)
        return statistics

    def combine(self, plan: Plan, state: ServerState, answers: Sequence[Any]) -> tuple[ServerState, Parameters, float]:
        statistics: Statistics = reduce(add, answers)
        better = improve(state.parameters, statistics, learn_weights=plan.settings.learn_weights)
        return state, better, statistics.objective


def own_statistics(site: SiteState, workers: int) -> Statistics:
    """Statistics of a site's rows at the parameters that the server told."""
    parameters = held_parameters(site)
    with Passes(held_rows(site), parameters.n_clusters, workers) as scan:
        return scan.statistics(parameters)
