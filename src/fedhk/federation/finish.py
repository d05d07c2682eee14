"""The last exchange at the server: the objective at the final parameters, and what clusters are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.federation.diffusion import phase as diffusion
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.payloads import Values
from fedhk.federation.plausible import check_makeup, check_rows
from fedhk.federation.state import Plan, ServerState
from fedhk.model.cluster_summary import ClusterSummary


def finish_asked(plan: Plan, state: ServerState) -> Values:
    """What sites are asked for beside the objective."""
    return diffusion.clusters_asked(state) | ({"cluster_summary": True} if plan.cluster_summary else {})


def read_finish(plan: Plan, state: ServerState, reply: Message) -> Any:
    """A site's last sums, checked: those of its rows as the rounds see them, and as they came in."""
    arrays = dict(reply.arrays)
    clusters = None if state.stage is None else arrays.pop("clusters", None)
    check_arrays(replace(reply, arrays=arrays), {"sums": ArraySpec((sums_size(plan, state),), non_negative=True)})
    sums = np.asarray(arrays["sums"], np.float64)
    objective, rows = sums[:2].tolist()
    check_rows(rows, objective, state.inner, reply.site)
    if plan.cluster_summary:
        check_makeup(ClusterSummary.from_array(sums[2:], state.inner.n_clusters), rows, state.reach, reply.site)
    if state.stage is None:
        return sums, None
    told = {} if clusters is None else {"clusters": clusters}
    return sums, diffusion.read_clusters(state, replace(reply, arrays=told), rows)


def take_finish(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    """The state at the end of the run."""
    return finished(plan, state, reduce(add, (sums for _, (sums, _) in good)), [clusters for _, (_, clusters) in good])


def sums_size(plan: Plan, state: ServerState) -> int:
    """Numbers of the objective, the rows and, where asked for, what clusters are made of."""
    return 2 + plan.cluster_summary * (state.inner.n_clusters + 2 * sum(state.widths))


def finished(plan: Plan, state: ServerState, sums: FloatArray, clusters: Sequence[FloatArray]) -> ServerState:
    """The state at the end of the run, from the sums of all sites and, where rows are embedded, those of clusters."""
    cluster_summary = ClusterSummary.from_array(sums[2:], state.inner.n_clusters) if plan.cluster_summary else None
    if state.stage is not None:
        state = diffusion.with_clusters(state, clusters)
    return replace(
        state, phase="done", final_objective=float(sums[0]), rows=float(sums[1]), cluster_summary=cluster_summary
    )
