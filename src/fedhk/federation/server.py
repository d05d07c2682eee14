"""What the server does with the answers of a round: pure steps from state to state.

The phases are: describe (moments of the features), energy (only with heat-kernel coefficients that are not uniform),
candidates (unless centres are given), round (as often as needed), finish, done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from operator import add
from typing import Any

import numpy as np

from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.errors import DataError, FedHKError, MessageError
from fedhk.federation.describe import merge_descriptions, read_description, same_views
from fedhk.federation.messages import ArraySpec, Message, check_arrays, expect
from fedhk.federation.payloads import (
    Columns,
    pack_parameters,
    pack_references,
    unpack_candidates,
    unpack_statistics,
)
from fedhk.federation.plausible import check_points, check_rows, check_spreads, check_statistics
from fedhk.federation.protocols import average_centers, read_centers
from fedhk.model.candidates import candidate_rows, candidate_starts, candidates_per_site
from fedhk.model.loop import Progress, improve
from fedhk.model.preparation import balance, references_from_moments
from fedhk.model.settings import Settings

EVERYONE = "*"


class QuorumError(FedHKError, RuntimeError):
    """Too few sites answered for a round to count. A run with a checkpoint can be resumed when they are back."""


@dataclass(frozen=True)
class Plan:
    """How a run goes, apart from the model: the same for every engine.

    Parameters
    ----------
    settings : Settings
        The model.
    protocol : {"statistics", "centers"}
        What a round sends.
    local_passes : int
        Passes at a site before it answers, for "centers".
    client_weights : {"mass", "rows", "quality"}
        How centres of sites are averaged, for "centers".
    quality_temperature : float
        tau of `eqn:client_weights`.
    max_rounds, tol : int, float
        When to stop.
    seed : int
        Seed of everything that is drawn.
    """

    settings: Settings
    protocol: str
    local_passes: int
    client_weights: str
    quality_temperature: float
    max_rounds: int
    tol: float
    seed: int


@dataclass(frozen=True)
class ServerState:
    """All that the server knows between rounds.

    Parameters
    ----------
    phase : str
        What it asks next.
    exchange : int
        How many exchanges there were; every message carries it.
    n_sites : int
        Sites that described themselves.
    names, columns, moments, references :
        The views, once described.
    informed : frozenset of str
        Sites that have the references.
    answered : str
        Digest of the names of the sites that answered the last round.
    progress : Progress or None
        The minimisation, once there is a start.
    final_objective, rows : float
        The objective at the final parameters, and the rows it is of.
    """

    phase: str = "describe"
    exchange: int = 0
    n_sites: int = 0
    names: tuple[str, ...] = ()
    columns: tuple[Columns, ...] = ()
    moments: tuple[Moments, ...] = ()
    references: tuple[Reference, ...] = ()
    informed: frozenset[str] = field(default_factory=frozenset)
    answered: str = ""
    progress: Progress | None = None
    final_objective: float = float("nan")
    rows: float = 0.0

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(reference.width for reference in self.references)


def next_request(plan: Plan, state: ServerState, *, informed: bool) -> Message:
    """What the server says to a site that has the references already, or has not."""
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    if state.phase == "describe":
        return Message("describe", EVERYONE, state.exchange, {}, {"scaling": plan.settings.scaling})
    if not informed:
        arrays, values = pack_references(state.references, state.names, state.columns)
    if state.phase == "candidates":
        values |= {"count": candidates_per_site(plan.settings.n_clusters, state.n_sites), "seed": plan.seed}
    if state.phase in ("round", "finish"):
        parameters, numbers = pack_parameters(_progress(state).parameters)
        arrays |= parameters
        values |= numbers
    if state.phase == "round" and plan.protocol == "centers":
        values |= {"local_passes": plan.local_passes, "learn_weights": plan.settings.learn_weights}
    return Message(state.phase, EVERYONE, state.exchange, arrays, values)


def server_step(
    plan: Plan,
    state: ServerState,
    replies: Sequence[Message],
    workers: int = 1,
    *,
    min_sites: int = 1,
    unread: Mapping[str, str] | None = None,
) -> tuple[ServerState, dict[str, str]]:
    """Take the answers of one exchange.

    Parameters
    ----------
    plan : Plan
        How the run goes.
    state : ServerState
        The server before.
    replies : sequence of Message
        Answers, in any order; they are taken in the order of site names.
    workers : int, default=1
        Threads for the choice of the start.
    min_sites : int, default=1
        Fewest usable answers for an exchange to count.
    unread : dict of str to str, optional
        Sites that were asked and gave no message, and why.

    Returns
    -------
    state : ServerState
        The server after.
    refused : dict of str to str
        Sites whose answer was not used, and why.

    Raises
    ------
    QuorumError
        If fewer than `min_sites` answers can be used.
    """
    good: list[tuple[str, Any]] = []
    refused = dict(unread or {})
    for reply in sorted(replies, key=lambda message: message.site):
        try:
            expect(reply, kind=state.phase, round=state.exchange)
            good.append((reply.site, READERS[state.phase](plan, state, reply)))
        except MessageError as error:
            refused[reply.site] = error.reason
    if state.phase == "describe":
        good, differing = same_views(good)
        refused |= differing
    if len(good) < max(min_sites, 1):
        raise QuorumError(
            f"{len(good)} usable answers in phase {state.phase!r} (exchange {state.exchange}), "
            f"min_sites={min_sites} are needed. {listed(refused)}"
        )
    # a site that failed may have lost what it had
    answered = {site for site, _ in good} if state.phase != "describe" else set()
    state = replace(state, informed=(state.informed - refused.keys()) | answered)
    return replace(TAKERS[state.phase](plan, state, good, workers), exchange=state.exchange + 1), refused


def listed(refused: dict[str, str], most: int = 5) -> str:
    """Refusals as one sentence."""
    shown = "; ".join(f"{site}: {reason}" for site, reason in list(refused.items())[:most])
    return shown + (f"; and {len(refused) - most} more" if len(refused) > most else "")


# ------------------------------------------------------------------------------------------------------------ describe


def _take_descriptions(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    """Views and moments of all sites, and the references that follow."""
    names, columns, moments = merge_descriptions(good)
    settings = plan.settings
    if moments[0].total < settings.n_clusters:
        raise DataError(
            f"All sites together have n_samples={moments[0].total:g}, which should be >= "
            f"n_clusters={settings.n_clusters}."
        )
    references = references_from_moments(moments, names, settings.scaling, settings.heat_coef)
    after = replace(state, n_sites=len(good), names=names, columns=columns, moments=moments, references=references)
    return replace(after, phase="energy") if settings.heat_coef != "uniform" else _prepared(plan, after)


def _prepared(plan: Plan, state: ServerState) -> ServerState:
    """The state once references are final: given centres are the start, or sites are asked for candidates."""
    given, weights = plan.settings.init, plan.settings.view_weights
    if not isinstance(weights, str) and len(weights) != len(state.names):
        raise DataError(f"view_weights has {len(weights)} numbers, the sites have the views {list(state.names)}.")
    if isinstance(given, str):
        return replace(state, phase="candidates")
    if tuple(centers.shape[1] for centers in given) != state.widths:
        raise DataError(
            f"init has centres with {[centers.shape[1] for centers in given]} features, the views of the sites "
            f"{list(state.names)} have {list(state.widths)}."
        )
    return replace(state, phase="round", progress=Progress(plan.settings.template(state.references)))


# -------------------------------------------------------------------------------------------------- energy, candidates


def _read_energy(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    check_arrays(reply, {"energy": ArraySpec((len(state.references),), non_negative=True)})
    return reply.arrays["energy"]


def _take_energy(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    energy = reduce(add, (values for _, values in good))
    references = balance(state.references, energy, [view.rows for view in state.moments])
    # references have changed: nobody has them
    return _prepared(plan, replace(state, references=references, informed=frozenset()))


def _read_candidates(plan: Plan, state: ServerState, reply: Message) -> Any:
    most = candidates_per_site(plan.settings.n_clusters, state.n_sites)
    candidates = unpack_candidates(reply, state.widths, most)
    check_points(candidates.points, state.references, reply.site)
    check_spreads(candidates.spreads, state.references, reply.site)
    return candidates


def _take_candidates(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:
    candidates = [found for _, found in good]
    if not any(len(found.sizes) for found in candidates):
        raise DataError(
            "No site could give candidates for a start: a candidate is a mean of at least 2 rows, and no site has 2. "
            "Give centres as init, or join sites."
        )
    rows = candidate_rows(candidates, state.references, state.names)
    starts = candidate_starts(plan.settings.n_init, rows.n_rows, sum(state.widths), plan.settings.n_clusters)
    start = plan.settings.start(rows, np.random.RandomState(plan.seed), workers, n_init=starts)
    return replace(state, phase="round", progress=Progress(start))


# -------------------------------------------------------------------------------------------------------- round, finish


def _read_round(plan: Plan, state: ServerState, reply: Message) -> Any:
    n_clusters, parameters = plan.settings.n_clusters, _progress(state).parameters
    if plan.protocol == "centers":
        local = read_centers(reply, n_clusters, state.widths)
        held = [np.where(mass[:, None] > 0, a, np.nan) for a, mass in zip(local.centers, local.masses.T, strict=True)]
        check_points(np.hstack(held), state.references, reply.site)
        check_rows(local.rows, local.objective, parameters, reply.site)
        return local
    statistics = unpack_statistics(reply, n_clusters, state.widths)
    check_statistics(statistics, parameters, state.references, reply.site)
    return statistics


def _take_round(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    progress = _progress(state)
    answers = [answer for _, answer in good]
    if plan.protocol == "centers":
        better, objective = average_centers(progress.parameters, answers, plan.client_weights, plan.quality_temperature)
    else:
        statistics = reduce(add, answers)
        better = improve(progress.parameters, statistics, learn_weights=plan.settings.learn_weights)
        objective = statistics.objective
    answered = sha256("\n".join(site for site, _ in good).encode()).hexdigest()
    if answered != state.answered:  # objectives of different rows say nothing about convergence
        progress = replace(progress, objective=sys.float_info.max)
    progress = progress.advance(better, objective, max_iter=plan.max_rounds, tol=plan.tol)
    phase = "finish" if progress.stop_reason else "round"
    return replace(state, phase=phase, progress=progress, answered=answered)


def _read_finish(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    check_arrays(reply, {"sums": ArraySpec((2,), non_negative=True)})
    objective, rows = reply.arrays["sums"].tolist()
    check_rows(rows, objective, _progress(state).parameters, reply.site)
    return reply.arrays["sums"]


def _take_finish(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    objective, rows = reduce(add, (sums for _, sums in good))
    return replace(state, phase="done", final_objective=float(objective), rows=float(rows))


READERS: dict[str, Callable[[Plan, ServerState, Message], Any]] = {
    "describe": lambda plan, state, reply: read_description(reply),  # noqa: ARG005
    "energy": _read_energy,
    "candidates": _read_candidates,
    "round": _read_round,
    "finish": _read_finish,
}
TAKERS: dict[str, Callable[[Plan, ServerState, list[tuple[str, Any]], int], ServerState]] = {
    "describe": _take_descriptions,
    "energy": _take_energy,
    "candidates": _take_candidates,
    "round": _take_round,
    "finish": _take_finish,
}


def _progress(state: ServerState) -> Progress:
    if state.progress is None:
        raise MessageError(f"the server is in phase {state.phase!r} without parameters")
    return state.progress
