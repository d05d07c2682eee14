"""The candidates of sites at the server: how many it asks for, what it accepts, and the start that it makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import DataError
from fedhk.federation.diffusion import phase as diffusion
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Values, read_frame, unpack_candidates
from fedhk.federation.plausible import check_points, check_spreads
from fedhk.federation.protocols import protocol_named
from fedhk.federation.state import Plan, ServerState
from fedhk.model.descent import Progress
from fedhk.model.passes import Passes
from fedhk.personal.calibration_choice import Frames, choose
from fedhk.starts.candidates import Candidates, candidate_rows, candidate_starts, candidates_per_site


def candidates_asked(plan: Plan, state: ServerState) -> Values:
    """What sites are asked for."""
    wanted = {"count": _count(plan, state)} if plan.diffusion is None else diffusion.candidates_asked(plan, state)
    return wanted | {"seed": plan.seed} | ({} if plan.calibration is None else {"frame": True})


def _count(plan: Plan, state: ServerState) -> int:
    """Candidates that each site is asked for: fewer where bytes are to be saved."""
    return candidates_per_site(plan.settings.n_clusters, state.n_sites, few=state.precision != "double")


def read_candidates(plan: Plan, state: ServerState, reply: Message) -> Any:
    """A site's candidates and, where it was asked for, its own mean and spread; checked."""
    arrays = dict(reply.arrays)
    frame = arrays.pop("frame", None)
    if plan.calibration is not None:
        frame = read_frame(frame, sum(state.widths), reply.site)
    most = _count(plan, state) if plan.diffusion is None else diffusion.most_candidates(plan, state)
    candidates = unpack_candidates(replace(reply, arrays=arrays), state.widths, most)
    check_points(candidates.points, state.reach, reply.site)
    check_spreads(candidates.spreads, state.reach, reply.site)
    return candidates, frame


def take_candidates(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:
    """The state of the first round, or of the diffusion before it."""
    if plan.aggregator != "sum":
        from fedhk.privacy.trusted_candidates import trusted_candidates  # noqa: PLC0415 - only where sites are not trusted

        trusted = trusted_candidates([found for _, (found, _) in good])
        good = [(site, (found, frame)) for (site, (_, frame)), found in zip(good, trusted, strict=True)]
    answers = [answer for _, answer in good]
    if not any(len(found.sizes) for found, _ in answers):
        raise DataError(
            "No site could give candidates for a start: a candidate is a mean of at least 2 rows, and no site has 2. "
            "Give centres as init, or join sites."
        )
    if plan.diffusion is not None:
        return diffusion.begun(plan, state, answers, workers)
    if plan.calibration is not None:
        return _calibrated(plan, state, answers, workers)
    rows = candidate_rows([found for found, _ in answers], state.references, state.names)
    starts = candidate_starts(plan.settings.n_init, rows.n_rows, sum(state.widths), plan.settings.n_clusters)
    start = plan.settings.start(rows, np.random.RandomState(plan.seed), workers, n_init=starts)
    state = replace(state, phase="round", progress=Progress(start))
    return protocol_named(state.protocol).begin(plan, state, rows)


def _calibrated(
    plan: Plan, state: ServerState, answers: list[tuple[Candidates, FloatArray]], workers: int
) -> ServerState:
    """The state with a calibration, and the start that goes with it."""
    known = Frames.of(answers, state.references, state.names)
    calibration, start, rows = choose(known, plan.settings, plan.given_calibration, plan.seed, workers)
    with Passes(rows, plan.settings.n_clusters, workers) as scan:
        start = plan.settings.constrained(start, state.names, scan.statistics(start))
    state = replace(state, phase="round", calibration=calibration, progress=Progress(start))
    return protocol_named(state.protocol).begin(plan, state, rows)
