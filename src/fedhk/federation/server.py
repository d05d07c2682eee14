"""What the server does with the answers of a round: pure steps from state to state.

The phases are: describe (moments of the features), energy (only with heat-kernel coefficients that are not uniform),
candidates (unless centres are given), round (as often as needed), finish, done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from hashlib import sha256
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns
from fedhk.errors import DataError, FedHKError, MessageError
from fedhk.federation.describe import merge_descriptions, read_description, same_views
from fedhk.federation.messages import ArraySpec, Message, check_arrays, expect
from fedhk.federation.payloads import pack_references, read_frame, unpack_candidates
from fedhk.federation.plausible import check_points, check_rows, check_spreads, reach
from fedhk.federation.protocols import protocol_named
from fedhk.federation.protocols.cores import expanded, orthonormal
from fedhk.model.calibration import Calibration, Frames, choose
from fedhk.model.candidates import Candidates, candidate_rows, candidate_starts, candidates_per_site
from fedhk.model.loop import Progress
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import balance, references_from_moments
from fedhk.model.settings import Settings

if TYPE_CHECKING:
    from fedhk.model.low_rank import LowRank

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
    protocol : {"statistics", "centers", "cores", "factors", "auto"}
        What a round sends. "auto" is "cores" where that saves bytes, else "statistics".
    local_passes : int
        Passes at a site before it answers, for "centers" and "factors".
    client_weights : {"mass", "rows", "quality"}
        How centres of sites are averaged, for "centers" and "factors".
    quality_temperature : float
        tau of `eqn:client_weights`.
    max_rounds, tol : int, float
        When to stop.
    seed : int
        Seed of everything that is drawn.
    precision : {"double", "single", "half", "byte", "auto"}
        What numbers are rounded to on the wire. "auto" is "byte" with the protocol "cores", else "double".
    refresh_every : int
        Rounds after which "cores" makes a new basis; 0 is never.
    aggregation : {"centers", "factors"}
        What the server averages, for "factors".
    blend : float
        Share of a site's factors of the round before in its start, for "factors".
    calibration : (float, float), "auto" or None
        Shares of each site's own mean and spread that are taken out of its rows; None is none, and no offsets either.
    """

    settings: Settings
    protocol: str
    local_passes: int
    client_weights: str
    quality_temperature: float
    max_rounds: int
    tol: float
    seed: int
    precision: str = "double"
    refresh_every: int = 0
    aggregation: str = "centers"
    blend: float = 0.0
    calibration: str | tuple[float, float] | None = None


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
    protocol, precision : str
        Those of the plan, resolved once the views are known.
    informed, holders : frozenset of str
        Sites that have the references, and those that have what the protocol sends once.
    directions : tuple of array of shape (q_h, d_h)
        What sites are sent of the basis, as they read it; empty where centres are in features.
    calibration : Calibration or None
        How sites bring their rows to one frame, once it is chosen.
    free_form : LowRank or None
        A form that constrains nothing, where the centres of `progress` go without it.
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
    protocol: str = "statistics"
    precision: str = "double"
    informed: frozenset[str] = field(default_factory=frozenset)
    holders: frozenset[str] = field(default_factory=frozenset)
    directions: tuple[FloatArray, ...] = ()
    calibration: Calibration | None = None
    free_form: LowRank | None = None
    answered: str = ""
    progress: Progress | None = None
    final_objective: float = float("nan")
    rows: float = 0.0

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(reference.width for reference in self.references)

    @cached_property
    def basis(self) -> tuple[FloatArray, ...]:
        """Orthonormal columns, of shape (d_h, q_h), in whose coordinates the centres of `progress` are."""
        return tuple(orthonormal(directions) for directions in self.directions)

    @property
    def inner(self) -> Parameters:
        """The parameters in the coordinates of the basis."""
        if self.progress is None:
            raise MessageError(f"the server is in phase {self.phase!r} without parameters")
        return self.progress.parameters

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters in features."""
        parameters = expanded(self.inner, self.basis) if self.basis else self.inner
        if self.free_form is None:
            return parameters
        return replace(parameters, form=self.free_form.refitted(parameters.centers))

    @cached_property
    def reach(self) -> tuple[FloatArray, ...]:
        """How far from the grand mean a value may be, per feature of each view."""
        return reach(self.references, self.moments)


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
        values |= {"count": _candidates_wanted(plan, state), "seed": plan.seed}
        if plan.calibration is not None:
            values["frame"] = True
    if state.phase in ("round", "finish"):
        parameters, numbers = protocol_named(state.protocol).tell(plan, state, holds=holds)
        arrays |= parameters
        values |= numbers | {"protocol": state.protocol}
        if state.calibration is not None:
            values["calibration"] = state.calibration.to_list()
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
    told = answered if state.phase in ("round", "finish") else set()
    state = replace(
        state,
        informed=(state.informed - refused.keys()) | answered,
        holders=(state.holders - refused.keys()) | told,
    )
    return replace(TAKERS[state.phase](plan, state, good, workers), exchange=state.exchange + 1), refused


def listed(refused: dict[str, str], most: int = 5) -> str:
    """Refusals as one sentence."""
    shown = "; ".join(f"{site}: {reason}" for site, reason in list(refused.items())[:most])
    return shown + (f"; and {len(refused) - most} more" if len(refused) > most else "")


# ------------------------------------------------------------------------------------------------------------ describe


def _read_description(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    if plan.settings.needs_ranges != ("ranges" in reply.arrays):
        raise MessageError("tells ranges of features without need, or does not where they are needed", reply.site)
    return read_description(reply)


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
    settings, given = plan.settings, plan.settings.init
    if not isinstance(settings.view_weights, str) and len(settings.view_weights) != len(state.names):
        raise DataError(
            f"view_weights has {len(settings.view_weights)} numbers, the sites have the views {list(state.names)}."
        )
    settings.check_rank(state.widths, state.names)
    protocol, precision = _resolved(plan, state)
    state = replace(state, protocol=protocol, precision=precision)
    if isinstance(given, str):
        return replace(state, phase="candidates")
    if tuple(centers.shape[1] for centers in given) != state.widths:
        raise DataError(
            f"init has centres with {[centers.shape[1] for centers in given]} features, the views of the sites "
            f"{list(state.names)} have {list(state.widths)}."
        )
    start = settings.constrained(settings.template(state.references), state.names)
    state = replace(state, phase="round", progress=Progress(start))
    return protocol_named(state.protocol).begin(plan, state, None)


def _resolved(plan: Plan, state: ServerState) -> tuple[str, str]:
    """Protocol and precision where the plan leaves them to the views.

    A basis pays where views are wide for the number of clusters. A rank that was given and constrains nothing asks for
    the exact model: it is fitted from full statistics in double precision.
    """
    protocol, precision = plan.protocol, plan.precision
    if protocol == "auto":
        few = sum(min(width, 2 * plan.settings.n_clusters) for width in state.widths)
        narrow = 2 * few > sum(state.widths)
        protocol = "statistics" if narrow or plan.settings.exact_rank(state.widths) else "cores"
    if precision == "auto":
        precision = "byte" if protocol == "cores" else "double"
    return protocol, precision


# -------------------------------------------------------------------------------------------------- energy, candidates


def _read_energy(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    check_arrays(reply, {"energy": ArraySpec((len(state.references),), non_negative=True)})
    return reply.arrays["energy"]


def _take_energy(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    energy = reduce(add, (values for _, values in good))
    references = balance(state.references, energy, [view.rows for view in state.moments])
    # references have changed: nobody has them
    return _prepared(plan, replace(state, references=references, informed=frozenset()))


def _candidates_wanted(plan: Plan, state: ServerState) -> int:
    """Candidates that each site is asked for: fewer where bytes are to be saved."""
    return candidates_per_site(plan.settings.n_clusters, state.n_sites, few=state.precision != "double")


def _read_candidates(plan: Plan, state: ServerState, reply: Message) -> Any:
    arrays = dict(reply.arrays)
    frame = arrays.pop("frame", None)
    if plan.calibration is not None:
        frame = read_frame(frame, sum(state.widths), reply.site)
    candidates = unpack_candidates(replace(reply, arrays=arrays), state.widths, _candidates_wanted(plan, state))
    check_points(candidates.points, state.reach, reply.site)
    check_spreads(candidates.spreads, state.reach, reply.site)
    return candidates, frame


def _take_candidates(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:
    candidates = [found for _, (found, _) in good]
    if not any(len(found.sizes) for found in candidates):
        raise DataError(
            "No site could give candidates for a start: a candidate is a mean of at least 2 rows, and no site has 2. "
            "Give centres as init, or join sites."
        )
    if plan.calibration is not None:
        return _calibrated(plan, state, [answer for _, answer in good], workers)
    rows = candidate_rows(candidates, state.references, state.names)
    starts = candidate_starts(plan.settings.n_init, rows.n_rows, sum(state.widths), plan.settings.n_clusters)
    start = plan.settings.start(rows, np.random.RandomState(plan.seed), workers, n_init=starts)
    state = replace(state, phase="round", progress=Progress(start))
    return protocol_named(state.protocol).begin(plan, state, rows)


def _calibrated(
    plan: Plan, state: ServerState, answers: list[tuple[Candidates, FloatArray]], workers: int
) -> ServerState:
    """The state with a calibration, and the start that goes with it."""
    held = [(found, frame) for found, frame in answers if len(found.sizes)]
    known = Frames(tuple(f for f, _ in held), tuple(f for _, f in held), state.references, state.names)
    wanted = None if isinstance(plan.calibration, str) else plan.calibration
    calibration, start, rows = choose(known, plan.settings, wanted, plan.seed, workers)
    with Passes(rows, plan.settings.n_clusters, workers) as scan:
        start = plan.settings.constrained(start, state.names, scan.statistics(start))
    state = replace(state, phase="round", calibration=calibration, progress=Progress(start))
    return protocol_named(state.protocol).begin(plan, state, rows)


# -------------------------------------------------------------------------------------------------------- round, finish


def _read_round(plan: Plan, state: ServerState, reply: Message) -> Any:
    return protocol_named(state.protocol).read(plan, state, reply)


def _take_round(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    state, better, objective = protocol_named(state.protocol).combine(plan, state, [answer for _, answer in good])
    progress = _progress(state)
    answered = sha256("\n".join(site for site, _ in good).encode()).hexdigest()
    if answered != state.answered:  # objectives of different rows say nothing about convergence
        progress = replace(progress, objective=sys.float_info.max)
    progress = progress.advance(better, objective, max_iter=plan.max_rounds, tol=plan.tol)
    phase = "finish" if progress.stop_reason else "round"
    return replace(state, phase=phase, progress=progress, answered=answered)


def _read_finish(plan: Plan, state: ServerState, reply: Message) -> Any:  # noqa: ARG001
    check_arrays(reply, {"sums": ArraySpec((2,), non_negative=True)})
    objective, rows = reply.arrays["sums"].tolist()
    check_rows(rows, objective, state.inner, reply.site)
    return reply.arrays["sums"]


def _take_finish(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:  # noqa: ARG001
    objective, rows = reduce(add, (sums for _, sums in good))
    return replace(state, phase="done", final_objective=float(objective), rows=float(rows))


READERS: dict[str, Callable[[Plan, ServerState, Message], Any]] = {
    "describe": _read_description,
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
