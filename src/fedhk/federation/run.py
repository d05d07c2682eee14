"""A whole run: exchanges between the server's steps and an engine, recorded, checkpointed, and able to go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedhk._records import Record
from fedhk.errors import MessageError
from fedhk.federation.engines import Engine
from fedhk.federation.messages import MAX_BYTES, Message, decode, encode, expect
from fedhk.federation.server import QuorumError, next_request, server_step
from fedhk.federation.state import Plan, ServerState

__all__ = ["Participation", "QuorumError", "Run", "conduct", "participants", "without_engine"]


# Reasons come from anybody; a history need not keep more of them.
LONGEST_REASON = 300


@dataclass(frozen=True)
class Participation:
    """Who takes part in a round.

    Parameters
    ----------
    fraction : float
        Share of the sites that are asked in a round, drawn anew each time, but at least `min_sites`; set-up and finish
        ask all.
    min_sites : int
        Fewest usable answers for an exchange to count.
    max_bytes : int
        Longest answer that is read.
    """

    fraction: float = 1.0
    min_sites: int = 1
    max_bytes: int = MAX_BYTES


@dataclass
class Run:
    """The state of a run between exchanges: everything that a checkpoint holds.

    Parameters
    ----------
    state : ServerState
        The server.
    history : list of dict
        One record a round.
    pending : dict
        What set-up has cost so far; it is added to the first round's record.
    """

    state: ServerState = field(default_factory=ServerState)
    history: list[Record] = field(default_factory=list)
    pending: Record = field(default_factory=lambda: {"bytes_up": 0, "bytes_down": 0, "seconds": 0.0, "refused": {}})


def conduct(
    plan: Plan,
    engine: Engine,
    run: Run,
    *,
    participation: Participation,
    workers: int = 1,
    after: Sequence[Callable[[Run], None]] = (),
) -> Run:
    """Exchange messages until the run is done.

    Parameters
    ----------
    plan : Plan
        How the run goes.
    engine : Engine
        The way to the sites.
    run : Run
        A new run, or one that a checkpoint held.
    participation : Participation
        Who takes part.
    workers : int, default=1
        Threads for the server's own work.
    after : sequence of callable
        Called with the run after every exchange: progress, checkpoints.

    Raises
    ------
    QuorumError
        If too few sites answer.
    """
    while run.state.phase != "done":
        began = time.perf_counter()
        if plan.is_sealed:
            asked, requests = _sealed_requests(plan, run, engine)
        else:
            asked = participants(plan, run.state, engine.sites(), participation)
            requests = _requests(plan, run.state, asked)
        answers = engine.exchange(requests)
        replies, unread = _read(run.state, asked, answers, participation.max_bytes)
        phase, before = run.state.phase, _rounds(run.state)
        run.state, refused = server_step(
            plan, run.state, replies, workers, min_sites=participation.min_sites, unread=unread
        )
        record = {
            "bytes_up": sum(len(answer) for answer in answers.values() if isinstance(answer, bytes)),
            "bytes_down": sum(len(request) for request in requests.values()),
            "seconds": time.perf_counter() - began,
            "refused": refused,
        }
        # with masks a round is two exchanges, and their set-up belongs to the round after it
        done = phase != "round" or _rounds(run.state) > before
        _write(run, phase if done else "masks", len(asked) - len(refused), record)
        for hook in after:
            hook(run)
    return run


def participants(plan: Plan, state: ServerState, sites: Sequence[str], participation: Participation) -> list[str]:
    """The sites that are asked, in the order of their names; a random share of them in rounds."""
    names = sorted(sites)
    if state.phase != "round" or participation.fraction >= 1.0:
        return names
    generator = np.random.default_rng([plan.seed, state.exchange])
    count = min(len(names), max(1, participation.min_sites, round(participation.fraction * len(names))))
    return sorted(names[i] for i in generator.choice(len(names), count, replace=False))


def _requests(plan: Plan, state: ServerState, sites: Sequence[str]) -> dict[str, bytes]:
    """The request of each site; all that have been told the same before get the same bytes."""
    texts: dict[tuple[bool, bool], bytes] = {}
    requests = {}
    for site in sites:
        has = site in state.informed, site in state.holders
        if has not in texts:
            texts[has] = encode(next_request(plan, state, informed=has[0], holds=has[1]))
        requests[site] = texts[has]
    return requests


def _sealed_requests(plan: Plan, run: Run, engine: Engine) -> tuple[list[str], dict[str, bytes]]:
    """Who is asked in a run with noise or masks, and what; every site has a request of its own."""
    from fedhk.federation.sealed.server import asked_sites, begun, sealed_request  # noqa: PLC0415 - only here

    run.state = begun(plan, run.state)
    asked = asked_sites(run.state, sorted(engine.sites()))
    state = run.state
    told = {site: {"informed": site in state.informed, "holds": site in state.holders} for site in asked}
    return asked, {site: encode(sealed_request(plan, state, site, **told[site])) for site in asked}


def _rounds(state: ServerState) -> int:
    return 0 if state.progress is None else state.progress.iteration


def _read(
    state: ServerState, asked: Sequence[str], answers: Mapping[str, bytes | Exception], max_bytes: int
) -> tuple[list[Message], dict[str, str]]:
    """Well-formed messages of this exchange, and why the others are not used."""
    replies, refused = [], {}
    for site in asked:
        answer = answers.get(site, TimeoutError("no answer"))
        if isinstance(answer, Exception):
            reason = answer.reason if isinstance(answer, MessageError) else f"{type(answer).__name__}: {answer}"
            refused[site] = reason[:LONGEST_REASON]
            continue
        try:
            message = decode(answer, site=site, max_bytes=max_bytes)
            expect(message, kind=state.phase, round=state.exchange, site=site)
        except MessageError as error:
            refused[site] = error.reason[:LONGEST_REASON]
        else:
            replies.append(message)
    return replies, refused


def _write(run: Run, phase: str, clients: int, record: Record) -> None:
    """Add what an exchange cost to the history: set-up to the first round, the finish to the last."""
    if phase == "round":
        progress = run.state.progress
        objective = float("nan") if progress is None else progress.objective
        _merge(run.pending, record)
        run.history.append({"round": len(run.history) + 1, "objective": objective, "clients": clients} | run.pending)
        run.pending = Run().pending
    elif phase == "finish" and run.history:
        run.history[-1] = dict(run.history[-1])
        _merge(run.history[-1], record)
    else:
        _merge(run.pending, record)


def _merge(target: Record, cost: Record) -> None:
    """Add what a later exchange cost; of two reasons to refuse a site the first is kept, it is the cause."""
    for name in ("bytes_up", "bytes_down", "seconds"):
        target[name] += cost[name]
    target["refused"] = cost["refused"] | target["refused"]


def without_engine(run: Run) -> Run:
    """The run as a new engine must take it up: its sites have no references yet."""
    state = replace(run.state, informed=frozenset(), holders=frozenset())
    return Run(state, run.history, run.pending)


def resumed(plan: Plan, run: Run) -> Run:
    """The run of a checkpoint, as a new engine must take it up.

    Under masks, numbers that sites have sent and that did not arrive are never sent again: their privacy is spent, and
    the exchange gets a new number. Where the budget then allows no further round, the run is at its end.
    """
    run = without_engine(run)
    state = run.state
    if plan.privacy is None or state.sealed is None or not state.sealed.interrupted or state.phase == "done":
        return run
    from fedhk.federation.sealed.rounds import noisy_rounds, settled  # noqa: PLC0415 - only runs with noise need it

    spent = (*state.sealed.releases, plan.privacy.multiplier(state.phase, noisy_rounds(plan)))
    sealed = replace(state.sealed, releases=spent, interrupted=False)
    state = settled(plan, replace(state, sealed=sealed, exchange=state.exchange + 2))
    return Run(state, run.history, run.pending)
