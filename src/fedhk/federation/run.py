"""A run: phases are carried out one after the other, with a history, and can be resumed from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from fedhk._records import Record
from fedhk._text import printable
from fedhk.errors import MessageError, QuorumError
from fedhk.federation.board import Board, Entry
from fedhk.federation.engines.base import Engine
from fedhk.federation.entries import Deviations, Minimisation
from fedhk.federation.gate import write_request
from fedhk.federation.messages import MAX_BYTES, decode, encode, expect
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase
from fedhk.federation.several import AS_ONE, EACH, SUM_OF, Several, list_sites, read_sum

# Longest reason of a refusal that a history keeps: anybody may have written it.
LONGEST_REASON = 300

# Most refused sites that an error names.
MOST_REFUSALS = 5

NO_COST: Record = {"bytes_up": 0, "bytes_down": 0, "seconds": 0.0, "refused": {}}


def clean_reason(text: str) -> str:
    """Make the reason that a site or a transport gave short and printable, so that it is safe to show."""
    return printable(text[:LONGEST_REASON])[:LONGEST_REASON]


def explain_failure(failure: Exception) -> str:
    """Say why a site gave no answer that can be used; of what no engine expects, also the kind of error."""
    expected = isinstance(failure, MessageError | ConnectionError | TimeoutError)
    text = failure.reason if isinstance(failure, MessageError) else str(failure)
    return clean_reason(text if expected and text else f"{type(failure).__name__}: {text}")


@dataclass(frozen=True)
class Run:
    """The state of a run between two exchanges. A checkpoint has all of it but `known`: a new engine has new sites."""

    phase: int = 0  # which of the phases is under way
    exchanges: int = 0  # of this phase so far
    exchange: int = 0  # of the whole run so far; every message carries it
    board: Board = field(default_factory=Board)
    history: tuple[Record, ...] = ()  # one record a round
    pending: Record = field(default_factory=NO_COST.copy)  # of exchanges since the last round, for the next record
    known: dict[str, dict[str, int]] = field(default_factory=dict)  # per site, the version of each entry that it has

    def with_first(self, entries: Sequence[Entry]) -> Run:
        """Return the run with the entries that sites must have first; a resumed run keeps those it has."""
        new = [entry for entry in entries if not self.board.has(type(entry))]
        return replace(self, board=self.board.put(*new))


def conduct(
    phases: Sequence[Phase[Any, Any]],
    engine: Engine,
    run: Run,
    *,
    seed: int,
    participation: Participation,
    after: Sequence[Callable[[Run], None]] = (),
    then: Callable[[Board], Sequence[Phase[Any, Any]]] | None = None,
) -> Run:
    """Carry out the phases until the last is done; raise QuorumError if too few sites answer.

    `run` is new, or comes from a checkpoint. The functions in `after` are called with the run after every exchange, to
    show progress and to write checkpoints. Where later phases depend on what the first ones find, `phases` are the
    first ones, and `then` makes the whole list from the board once they are done.
    """
    if run.phase >= len(phases) and then is not None:  # resumed after the first phases
        phases, then = then(run.board), None
    if run.exchange == 0:
        run = _begin(phases[0], run)
    elif run.phase < len(phases):
        run = replace(run, board=phases[run.phase].resume(run.board))
    run = _advance(phases, run)
    while run.phase < len(phases):
        run = _advance(phases, _exchange(phases[run.phase], engine, run, participation, seed))
        if run.phase == len(phases) and then is not None:
            phases, then = then(run.board), None
            run = _advance(phases, _begin(phases[run.phase], run))
        for hook in after:
            hook(run)
    return run


def _advance(phases: Sequence[Phase[Any, Any]], run: Run) -> Run:
    """Skip phases that are done, so that a saved run points to the next phase that asks sites."""
    while run.phase < len(phases) and phases[run.phase].is_done(run.board, run.exchanges):
        run = replace(run, phase=run.phase + 1, exchanges=0)
        if run.phase < len(phases):
            run = _begin(phases[run.phase], run)
    return run


def _begin(phase: Phase[Any, Any], run: Run) -> Run:
    """Begin a phase; where too few sites are left for it, the error names those that were refused, and why."""
    try:
        return replace(run, board=phase.begin(run.board))
    except QuorumError as error:
        refused = reduce(_add_costs, (*run.history, run.pending))["refused"]
        raise QuorumError(
            f"Phase {phase.name!r} cannot begin (exchange {run.exchange}): {error} {_list_refusals(refused)}"
        ) from error


def _exchange(phase: Phase[Any, Any], engine: Engine, run: Run, participation: Participation, seed: int) -> Run:
    """Send the request of a phase to the sites, combine their replies, and record what that cost."""
    began = time.perf_counter()
    excluded = {site for entry in run.board.find(Deviations) for site in entry.excluded}
    sites = [site for site in engine.sites() if site not in excluded]
    asked = phase.participants(run.board, sites, participation, [seed, run.exchange])

    requests = _write_requests(phase, run, asked)
    answers = engine.exchange(requests)
    replies, refused = _read_replies(phase, run, asked, answers)

    try:
        board, replies, left_out = phase.select(run.board, replies)
    except QuorumError as error:
        raise QuorumError(
            f"In phase {phase.name!r} (exchange {run.exchange}): {error} {_list_refusals(refused)}"
        ) from error
    refused |= left_out
    answered = list_sites(replies)
    fewest = participation.fewest_answers(len(asked))
    if len(answered) < fewest:
        raise QuorumError(
            f"{len(answered)} usable answers in phase {phase.name!r} (exchange {run.exchange}), "
            f"min_sites={fewest} are needed. {_list_refusals(refused)}"
        )
    board = phase.combine(board, replies)

    # a site that failed may have lost its state, so it is sent all entries again
    known = {site: versions for site, versions in run.known.items() if site not in refused}
    known |= dict.fromkeys(answered, run.board.versions)
    for site, kinds in phase.kept(replies).items():
        known[site] = known[site] | {kind.__name__: board.versions[kind.__name__] for kind in kinds}
    after = replace(run, board=board, exchanges=run.exchanges + 1, exchange=run.exchange + 1, known=known)
    cost = {
        "bytes_up": sum(len(answer) for answer, _ in _group_answers(asked, answers) if isinstance(answer, bytes)),
        "bytes_down": sum(map(len, requests.values())),
        "seconds": time.perf_counter() - began,
        "refused": refused,
    }
    is_round = _count_rounds(board) > _count_rounds(run.board)
    return _record(after, cost, len(asked) - len(refused), is_round=is_round)


def _write_requests(phase: Phase[Any, Any], run: Run, asked: Sequence[str]) -> dict[str, bytes]:
    """Encode the request for each site, once for all sites with the same request that lack the same entries."""
    texts: dict[tuple[int, tuple[str, ...]], bytes] = {}
    to = AS_ONE if phase.adds(run.board) else EACH
    requests = {}
    for site, request in phase.requests(run.board, asked).items():
        lacks = run.board.missing(run.known.get(site, {}))
        key = id(request), tuple(lacks)
        if key not in texts:
            texts[key] = encode(write_request(phase.name, run.exchange, request, phase.request_type, lacks, to=to))
        requests[site] = texts[key]
    return requests


def _read_replies(
    phase: Phase[Any, Any], run: Run, asked: Sequence[str], answers: Mapping[str, bytes | Exception]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the replies that can be used, and for the other sites the reason why theirs cannot."""
    replies: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for answer, sites in _group_answers(asked, answers):
        if isinstance(answer, Exception):
            refused |= dict.fromkeys(sites, explain_failure(answer))
            continue
        # if the phase does not add, an answer that several sites share is checked against each of their names
        names = [Several(sites)] if len(sites) > 1 and phase.adds(run.board) else sites
        for name in names:
            try:
                replies[name] = _read_reply(phase, run, answer, name)
            except MessageError as error:
                refused |= dict.fromkeys(list_sites([name]), clean_reason(error.reason))
    return replies, refused


def _read_reply(phase: Phase[Any, Any], run: Run, answer: bytes, name: str) -> Any:
    """Read and check the answer of one site, or of several as one; raise MessageError if it cannot be used."""
    message = decode(answer, site=name, max_bytes=MAX_BYTES)
    if isinstance(name, Several):
        expect(message, kind=SUM_OF + phase.name, round=run.exchange)
        reply = read_sum(message, phase.reply_type, name.sites)
    else:
        expect(message, kind=phase.name, round=run.exchange, site=name)
        reply = message.read(phase.reply_type)
    phase.check(run.board, reply, name)
    return reply


def _group_answers(
    asked: Sequence[str], answers: Mapping[str, bytes | Exception]
) -> list[tuple[bytes | Exception, list[str]]]:
    """Group sites by their answer: sites that answer as one have the same object."""
    groups: dict[int, tuple[bytes | Exception, list[str]]] = {}
    for site in asked:
        answer = answers.get(site)
        if answer is None:
            answer = TimeoutError("no answer")
        groups.setdefault(id(answer), (answer, []))[1].append(site)
    return list(groups.values())


def _list_refusals(refused: Mapping[str, str]) -> str:
    """List refused sites and reasons in one line, the first of them if there are many."""
    shown = "; ".join(f"{site}: {reason}" for site, reason in list(refused.items())[:MOST_REFUSALS])
    more = f"; and {len(refused) - MOST_REFUSALS} more" if len(refused) > MOST_REFUSALS else ""
    return f"{(shown + more).removesuffix('.')}." if refused else ""


def _count_rounds(board: Board) -> int:
    """Count the rounds that are done."""
    return board.get(Minimisation).progress.iteration if board.has(Minimisation) else 0


def _record(run: Run, cost: Record, clients: int, *, is_round: bool) -> Run:
    """Add an exchange to the history: a round has a record of its own.

    What set-up costs is counted in the record of the first round, what comes after the rounds in that of the last.
    """
    if is_round:
        objective = run.board.get(Minimisation).progress.objective
        record = {"round": len(run.history) + 1, "objective": objective, "clients": clients}
        return replace(run, history=(*run.history, record | _add_costs(run.pending, cost)), pending=NO_COST)
    if run.history and run.board.get(Minimisation).progress.stop_reason:  # the rounds are over
        *rounds, last = run.history
        return replace(run, history=(*rounds, last | _add_costs(last, cost)))
    return replace(run, pending=_add_costs(run.pending, cost))


def _add_costs(earlier: Record, cost: Record) -> Record:
    """Add the costs of two exchanges; of two reasons to refuse a site the earlier is kept, as the cause."""
    return {
        "bytes_up": earlier["bytes_up"] + cost["bytes_up"],
        "bytes_down": earlier["bytes_down"] + cost["bytes_down"],
        "seconds": earlier["seconds"] + cost["seconds"],
        "refused": cost["refused"] | earlier["refused"],
    }
