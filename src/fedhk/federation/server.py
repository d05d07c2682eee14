"""What the server does with the answers of a round: pure steps from state to state.

The phases are: describe (moments of the features), energy (only with heat-kernel coefficients that are not uniform),
candidates (unless centres are given), diffuse (only where rows are embedded, as often as needed), round (as often as
needed), finish, done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from fedhk.errors import DataError, FedHKError, MessageError
from fedhk.federation.describe import merge_descriptions, read_description, same_views
from fedhk.federation.diffusion.phase import read_products, take_products, told_stage
from fedhk.federation.finish import finish_asked, read_finish, take_finish
from fedhk.federation.messages import ArraySpec, Message, check_arrays, expect
from fedhk.federation.payloads import pack_references
from fedhk.federation.protocols import protocol_named
from fedhk.federation.starting import candidates_asked, read_candidates, take_candidates
from fedhk.federation.state import HELD, Plan, ServerState, digest_of
from fedhk.model.descent import Progress
from fedhk.model.preparation import balance, references_from_moments

EVERYONE = "*"


class QuorumError(FedHKError, RuntimeError):
    """Too few sites answered for a round to count. A run with a checkpoint can be resumed when they are back."""


def next_request(plan: Plan, state: ServerState, *, informed: bool, holds: bool) -> Message:
    """What the server says to a site that has the references and what the protocol sends once, or has not."""
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    if state.phase == "describe":
        values = {"scaling": plan.settings.scaling, "ranges": plan.settings.needs_ranges}
        return Message("describe", EVERYONE, state.exchange, {}, values)
    if not informed:
        arrays, values = pack_references(state.references, state.names, state.columns)
    if state.precision != "double":
        values["precision"] = state.precision
    if state.phase == "candidates":
        values |= candidates_asked(plan, state)
    if state.phase in ("round", "finish"):
        parameters, numbers = protocol_named(state.protocol).tell(plan, state, holds=holds)
        arrays |= parameters
        values |= numbers | {"protocol": state.protocol}
    if state.phase in HELD and state.calibration is not None:
        values["calibration"] = state.calibration.to_list()
    if state.stage is not None:
        told, numbers = told_stage(state.stage, informed=informed, holds=holds)
        arrays |= told
        values |= numbers
    if state.phase == "finish":
        values |= finish_asked(plan, state)
    if state.phase == "round" and state.protocol in ("centers", "factors"):
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
    if plan.is_sealed and state.phase != "describe":
        return _sealed_step(plan, state, replies, min_sites=min_sites, unread=unread or {})
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
    told = answered if state.phase in HELD else set()
    state = replace(
        state,
        informed=(state.informed - refused.keys()) | answered,
        holders=(state.holders - refused.keys()) | told,
    )
    return replace(TAKERS[state.phase](plan, state, good, workers), exchange=state.exchange + 1), refused


def _sealed_step(
    plan: Plan, state: ServerState, replies: Sequence[Message], *, min_sites: int, unread: Mapping[str, str]
) -> tuple[ServerState, dict[str, str]]:
    """The step of a run in which the server sees sums only."""
    from fedhk.federation.sealed.server import sealed_step  # noqa: PLC0415 - only runs with noise or masks need it
    from fedhk.privacy.secure_terms import ThresholdError  # noqa: PLC0415

    try:
        after, refused, used = sealed_step(plan, state, replies, unread)
    except (ThresholdError, MessageError) as error:
        raise QuorumError(
            f"In phase {state.phase!r} (exchange {state.exchange}): {error} {listed(dict(unread))}"
        ) from error
    if used < max(min_sites, 1):
        raise QuorumError(
            f"{used} usable answers in phase {state.phase!r} (exchange {state.exchange}), min_sites={min_sites} are "
            f"needed. {listed(refused)}"
        )
    return after, refused


def listed(refused: dict[str, str], most: int = 5) -> str:
    """Refusals as one sentence."""
    shown = "; ".join(f"{site}: {reason}" for site, reason in list(refused.items())[:most])
    return shown + (f"; and {len(refused) - most} more" if len(refused) > most else "")


# ------------------------------------------------------------------------------------------------------------ describe


def _read_description(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    if plan.is_sealed:
        return read_description(reply, schema=True)
    if plan.settings.needs_ranges != ("ranges" in reply.arrays):
        raise MessageError("tells ranges of features without need, or does not where they are needed", reply.site)
    return read_description(reply)


def _take_descriptions(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    """Views and moments of all sites, and the references that follow."""
    if plan.is_sealed:
        from fedhk.federation.sealed.server import described  # noqa: PLC0415 - only runs with noise or masks need it

        return described(plan, state, good)
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
    settings = plan.settings
    if not isinstance(settings.view_weights, str) and len(settings.view_weights) != len(state.names):
        raise DataError(
            f"view_weights has {len(settings.view_weights)} numbers, the sites have the views {list(state.names)}."
        )
    protocol, precision = _resolved(plan, state)
    state = replace(state, protocol=protocol, precision=precision)
    if isinstance(settings.init, str):
        return replace(state, phase="candidates")
    start = settings.given_start(state.references, state.names)
    state = replace(state, phase="round", progress=Progress(start))
    return protocol_named(state.protocol).begin(plan, state, None)


def _resolved(plan: Plan, state: ServerState) -> tuple[str, str]:
    """Protocol and precision where the plan leaves them to the views.

    A basis pays where views are wide for the number of clusters. A rank that was given and constrains nothing asks for
    the exact model: it is fitted from full statistics in double precision.
    """
    protocol, precision = plan.protocol, plan.precision
    exact = plan.settings.exact_rank(state.widths, state.names)
    if protocol == "auto":
        few = sum(min(width, 2 * plan.settings.n_clusters) for width in state.widths)
        protocol = "statistics" if exact or 2 * few > sum(state.widths) else "cores"
    if precision == "auto":
        precision = "byte" if protocol == "cores" else "double"
    return protocol, precision


# -------------------------------------------------------------------------------------------------------------- energy


def _read_energy(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    check_arrays(reply, {"energy": ArraySpec((len(state.references),), non_negative=True)})
    return reply.arrays["energy"]


def _take_energy(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    energy = reduce(add, (values for _, values in good))
    references = balance(state.references, energy, [view.rows for view in state.moments])
    # references have changed: nobody has them
    return _prepared(plan, replace(state, references=references, informed=frozenset()))


# --------------------------------------------------------------------------------------------------------------- round


def _read_round(plan: Plan, state: ServerState, reply: Message) -> Any:
    return protocol_named(state.protocol).read(plan, state, reply)


def _take_round(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    state, better, objective = protocol_named(state.protocol).combine(plan, state, [answer for _, answer in good])
    progress = state.going
    answered = digest_of([site for site, _ in good])
    if answered != state.answered:  # objectives of different rows say nothing about convergence
        progress = replace(progress, objective=sys.float_info.max)
    progress = progress.advance(better, objective, max_iter=plan.max_rounds, tol=plan.tol)
    phase = "finish" if progress.stop_reason else "round"
    return replace(state, phase=phase, progress=progress, answered=answered)


READERS: dict[str, Callable[[Plan, ServerState, Message], Any]] = {
    "describe": _read_description,
    "energy": _read_energy,
    "candidates": read_candidates,
    "diffuse": read_products,
    "round": _read_round,
    "finish": read_finish,
}
TAKERS: dict[str, Callable[[Plan, ServerState, list[tuple[str, Any]], int], ServerState]] = {
    "describe": _take_descriptions,
    "energy": _take_energy,
    "candidates": take_candidates,
    "diffuse": take_products,
    "round": _take_round,
    "finish": take_finish,
}
