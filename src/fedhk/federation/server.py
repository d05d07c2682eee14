"""What the server does with the answers of a round: pure steps from state to state.

The phases are: describe (moments of the features), energy (only with heat-kernel coefficients that are not uniform),
candidates (unless centres are given), round (as often as needed), finish, done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.errors import DataError, MessageError
from fedhk.federation.messages import ArraySpec, Message, check_arrays, expect
from fedhk.federation.payloads import (
    pack_parameters,
    pack_references,
    unpack_candidates,
    unpack_moments,
    unpack_statistics,
)
from fedhk.federation.protocols import average_centers, read_centers
from fedhk.model.candidates import candidate_rows
from fedhk.model.loop import Progress, improve
from fedhk.model.preparation import balance, references_from_moments
from fedhk.model.settings import Settings

# Candidates over all sites, in multiples of the number of clusters; and the fewest that each site is asked for.
ALL_CANDIDATES, SITE_CANDIDATES = 20, 2

EVERYONE = "*"


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
    progress : Progress or None
        The minimisation, once there is a start.
    final_objective, rows : float
        The objective at the final parameters, and the rows it is of.
    """

    phase: str = "describe"
    exchange: int = 0
    n_sites: int = 0
    names: tuple[str, ...] = ()
    columns: tuple[tuple[str, ...] | None, ...] = ()
    moments: tuple[Moments, ...] = ()
    references: tuple[Reference, ...] = ()
    informed: frozenset[str] = field(default_factory=frozenset)
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
        arrays, values = pack_references(state.references, state.names)
    if state.phase == "candidates":
        values |= {"count": candidates_per_site(plan.settings.n_clusters, state.n_sites), "seed": plan.seed}
    if state.phase in ("round", "finish"):
        parameters, numbers = pack_parameters(_progress(state).parameters)
        arrays |= parameters
        values |= numbers
    if state.phase == "round" and plan.protocol == "centers":
        values |= {"local_passes": plan.local_passes, "learn_weights": plan.settings.learn_weights}
    return Message(state.phase, EVERYONE, state.exchange, arrays, values)


def candidates_per_site(n_clusters: int, n_sites: int) -> int:
    """How many candidates each site is asked for."""
    return max(SITE_CANDIDATES * n_clusters, -(-ALL_CANDIDATES * n_clusters // n_sites))


def server_step(
    plan: Plan, state: ServerState, replies: Sequence[Message], workers: int = 1
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

    Returns
    -------
    state : ServerState
        The server after.
    refused : dict of str to str
        Sites whose answer was not used, and why.
    """
    good: list[tuple[str, Any]] = []
    refused: dict[str, str] = {}
    for reply in sorted(replies, key=lambda message: message.site):
        try:
            expect(reply, kind=state.phase, round=state.exchange)
            good.append((reply.site, READERS[state.phase](plan, state, reply)))
        except MessageError as error:
            refused[reply.site] = error.reason
    if not good:
        raise DataError(f"No site gave a usable answer in phase {state.phase!r}. " + listed(refused))
    after, also_refused = TAKERS[state.phase](plan, state, good, workers)
    informed = state.informed | ({site for site, _ in good} if state.phase != "describe" else set())
    return replace(after, exchange=state.exchange + 1, informed=informed), refused | also_refused


def listed(refused: dict[str, str], most: int = 5) -> str:
    """Refusals as one sentence."""
    shown = "; ".join(f"{site}: {reason}" for site, reason in list(refused.items())[:most])
    return shown + (f"; and {len(refused) - most} more" if len(refused) > most else "")


# ------------------------------------------------------------------------------------------------------------ describe

Described = tuple[list[tuple[str, int, tuple[str, ...] | None]], tuple[Moments, ...]]


def _read_description(plan: Plan, state: ServerState, reply: Message) -> Described:  # noqa: ARG001
    try:
        views = [(str(n), int(w), None if c is None else tuple(map(str, c))) for n, w, c in reply.values["views"]]
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError(f"its views are not described as name, width, columns: {error}", reply.site) from error
    return views, unpack_moments(reply, [width for _, width, _ in views])


def _take_descriptions(
    plan: Plan,
    state: ServerState,
    good: list[tuple[str, Described]],
    workers: int,  # noqa: ARG001
) -> tuple[ServerState, dict[str, str]]:
    """Agree on the views by majority, refuse sites that differ, and merge the moments of the others."""
    votes: dict[str, Counter[tuple[int, tuple[str, ...] | None]]] = {}
    for _, (views, _) in good:
        for name, width, columns in views:
            votes.setdefault(name, Counter())[width, columns] += 1
    agreed = {name: counter.most_common(1)[0][0] for name, counter in votes.items()}
    merged = {name: Moments.none(width) for name, (width, _) in agreed.items()}
    refused, total, sites = {}, 0.0, 0
    for site, (views, moments) in good:
        fault = next((_difference(view, agreed[view[0]]) for view in views if view[1:] != agreed[view[0]]), None)
        if fault:
            refused[site] = fault
            continue
        sites += 1
        total += max((view.total for view in moments), default=0.0)
        for (name, _, _), view in zip(views, moments, strict=True):
            merged[name] = merged[name].merge(view)
    all_moments = tuple(replace(view, total=total) for view in merged.values())
    names = tuple(merged)
    settings = plan.settings
    references = references_from_moments(all_moments, names, settings.scaling, settings.heat_coef)
    if total < settings.n_clusters:
        raise DataError(
            f"All sites together have n_samples={total:g}, which should be >= n_clusters={settings.n_clusters}."
        )
    after = replace(
        state,
        n_sites=sites,
        names=names,
        columns=tuple(agreed[name][1] for name in names),
        moments=all_moments,
        references=references,
    )
    return (replace(after, phase="energy") if settings.heat_coef != "uniform" else _prepared(plan, after)), refused


def _difference(view: tuple[str, int, tuple[str, ...] | None], agreed: tuple[int, tuple[str, ...] | None]) -> str:
    name, width, columns = view
    if width != agreed[0]:
        return f"view {name!r} has {width} features, other sites have {agreed[0]}"
    missing, extra = (
        sorted(set(agreed[1] or ()) - set(columns or ())),
        sorted(set(columns or ()) - set(agreed[1] or ())),
    )
    if missing or extra:
        return f"view {name!r} has other columns than other sites: missing {missing[:5]}, unexpected {extra[:5]}"
    return f"view {name!r} has its columns in another order than other sites"


def _prepared(plan: Plan, state: ServerState) -> ServerState:
    """The state once references are final: given centres are the start, or sites are asked for candidates."""
    if isinstance(plan.settings.init, str):
        return replace(state, phase="candidates")
    return replace(state, phase="round", progress=Progress(plan.settings.template(state.references)))


# -------------------------------------------------------------------------------------------------- energy, candidates


def _read_energy(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    check_arrays(reply, {"energy": ArraySpec((len(state.references),), non_negative=True)})
    return reply.arrays["energy"]


def _take_energy(
    plan: Plan,
    state: ServerState,
    good: list[tuple[str, Any]],
    workers: int,  # noqa: ARG001
) -> tuple[ServerState, dict[str, str]]:
    energy = reduce(add, (values for _, values in good))
    references = balance(state.references, energy, [view.rows for view in state.moments])
    # references have changed: nobody has them
    return _prepared(plan, replace(state, references=references, informed=frozenset())), {}


def _read_candidates(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    return unpack_candidates(reply, state.widths)


def _take_candidates(
    plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int
) -> tuple[ServerState, dict[str, str]]:
    candidates = np.vstack([points for _, (points, _) in good])
    weights = np.concatenate([sizes for _, (_, sizes) in good])
    if not len(candidates):
        raise DataError(
            "No site could give candidates for a start: a candidate is a mean of at least 2 rows, and no site has 2. "
            "Give centres as init, or join sites."
        )
    rows = candidate_rows(candidates, weights, state.references, state.names)
    start = plan.settings.start(rows, np.random.RandomState(plan.seed), workers)
    return replace(state, phase="round", progress=Progress(start)), {}


# -------------------------------------------------------------------------------------------------------- round, finish


def _read_round(plan: Plan, state: ServerState, reply: Message) -> Any:
    n_clusters = plan.settings.n_clusters
    if plan.protocol == "centers":
        return read_centers(reply, n_clusters, state.widths)
    return unpack_statistics(reply, n_clusters, state.widths)


def _take_round(
    plan: Plan,
    state: ServerState,
    good: list[tuple[str, Any]],
    workers: int,  # noqa: ARG001
) -> tuple[ServerState, dict[str, str]]:
    progress = _progress(state)
    answers = [answer for _, answer in good]
    if plan.protocol == "centers":
        better, objective = average_centers(progress.parameters, answers, plan.client_weights, plan.quality_temperature)
    else:
        statistics = reduce(add, answers)
        better = improve(progress.parameters, statistics, learn_weights=plan.settings.learn_weights)
        objective = statistics.objective
    progress = progress.advance(better, objective, max_iter=plan.max_rounds, tol=plan.tol)
    return replace(state, phase="finish" if progress.stop_reason else "round", progress=progress), {}


def _read_finish(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    check_arrays(reply, {"sums": ArraySpec((2,), non_negative=True)})
    return reply.arrays["sums"]


def _take_finish(
    plan: Plan,  # noqa: ARG001
    state: ServerState,
    good: list[tuple[str, Any]],
    workers: int,  # noqa: ARG001
) -> tuple[ServerState, dict[str, str]]:
    objective, rows = reduce(add, (sums for _, sums in good))
    return replace(state, phase="done", final_objective=float(objective), rows=float(rows)), {}


READERS: dict[str, Callable[[Plan, ServerState, Message], Any]] = {
    "describe": _read_description,
    "energy": _read_energy,
    "candidates": _read_candidates,
    "round": _read_round,
    "finish": _read_finish,
}
TAKERS: dict[str, Callable[[Plan, ServerState, list[tuple[str, Any]], int], tuple[ServerState, dict[str, str]]]] = {
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
