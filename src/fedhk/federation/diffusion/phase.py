"""The diffusion in a run: how the server goes from candidates over exchanges to rounds on embedded rows, and ends.

This is the one place where the server's state and the diffusion meet; all else sees rows of one view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.embedding.anchors import anchor_count, candidate_share
from fedhk.embedding.cluster_sums import ClusterSums, sums_size
from fedhk.embedding.diffusion import DiffusionSettings
from fedhk.errors import MessageError
from fedhk.federation.diffusion.server import (
    MOST_CLUSTERS,
    TOLD,
    begin,
    begin_again,
    read,
    start_rows,
    take,
    tell,
    told_diffusion,
)
from fedhk.federation.diffusion.site import LEAST_CANDIDATES
from fedhk.federation.diffusion.state import Stage
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.plausible import check_cluster_sums, reach
from fedhk.federation.protocols import protocol_named
from fedhk.federation.state import Plan, ServerState, digest_of
from fedhk.model.descent import Progress
from fedhk.model.rows import Rows
from fedhk.personal.calibration_choice import Frames
from fedhk.personal.embedded_frame import choose_frame
from fedhk.starts.candidates import Candidates, candidate_rows

Answer = tuple[Candidates, FloatArray | None]


def chosen(plan: Plan) -> DiffusionSettings:
    """What was chosen about the diffusion of a run that has one."""
    if plan.diffusion is None:
        raise MessageError("the run has no diffusion")
    return plan.diffusion


def held_stage(state: ServerState) -> Stage:
    """The stage of a run that has begun it."""
    if state.stage is None:
        raise MessageError(f"the server is in phase {state.phase!r} before it has anchors")
    return state.stage


def n_clusters(plan: Plan) -> int | None:
    """The number of clusters, or None where the eigengap is to say it."""
    return None if chosen(plan).count_clusters else plan.settings.n_clusters


# ----------------------------------------------------------------------------------------------------------- candidates


def anchors_wanted(plan: Plan, state: ServerState) -> int:
    """How many anchors there are to be."""
    return anchor_count(n_clusters(plan) or MOST_CLUSTERS + 1, state.moments[0].total, chosen(plan).n_anchors)


def _share(plan: Plan, state: ServerState) -> float:
    """Candidates that sites are asked for, for each of their rows."""
    return candidate_share(anchors_wanted(plan, state), state.moments[0].total)


def candidates_asked(plan: Plan, state: ServerState) -> Values:
    """How many candidates sites are asked for: as many for each row, so that anchors lie where rows do."""
    return {"share": _share(plan, state), "precision": TOLD}


def most_candidates(plan: Plan, state: ServerState) -> int:
    """The most that one site may send: as if it had all rows."""
    return max(LEAST_CANDIDATES, math.ceil(_share(plan, state) * state.moments[0].total))


def begun(plan: Plan, state: ServerState, answers: Sequence[Answer], workers: int) -> ServerState:
    """The state with anchors made from candidates, in the frame in which sites will have their rows."""
    if plan.calibration is None:
        rows = candidate_rows([found for found, _ in answers], state.references, state.names)
        return with_anchors(plan, state, rows)
    known, judge = Frames.of(answers, state.references, state.names), plan.settings
    if n_clusters(plan) is None:
        judge = judge.with_clusters(min(MOST_CLUSTERS, len(known.site)))
    calibration, rows = choose_frame(known, judge, plan.given_calibration, plan.seed, workers)
    return with_anchors(plan, replace(state, calibration=calibration), rows)


def with_anchors(plan: Plan, state: ServerState, candidates: Rows) -> ServerState:
    """The state that asks for the first products."""
    references = state.references
    if state.calibration is not None:
        references = state.calibration.in_units(references)
    total = state.moments[0].total or state.rows
    stage = begin(candidates, references, n_clusters(plan), total, chosen(plan), seed=plan.seed)
    return replace(state, phase="diffuse", stage=stage)


# ------------------------------------------------------------------------------------------------- diffusion and rounds


def told_stage(stage: Stage, *, informed: bool, holds: bool) -> tuple[Arrays, Values]:
    """What a site is told of the diffusion.

    During the diffusion, the next question, and the anchors for a site that does not hold them. In rounds, the
    embedding for a site that does not hold it, and the anchors too for one that is not even informed of references: all
    that took part in the diffusion have the anchors.
    """
    if not stage.done:
        return tell(stage, holds=holds)
    return ({}, {}) if holds else told_diffusion(stage, holds=informed)


def read_products(plan: Plan, state: ServerState, reply: Message) -> FloatArray:  # noqa: ARG001
    """A site's products, checked."""
    return read(held_stage(state), reply)


def take_products(plan: Plan, state: ServerState, good: list[tuple[str, Any]], workers: int) -> ServerState:
    """The state after an exchange: a further question, or the first round."""
    sites, answers = [site for site, _ in good], [products for _, products in good]
    return took_products(plan, state, answers, sites, workers)


def took_products(
    plan: Plan, state: ServerState, answers: Sequence[FloatArray], sites: Sequence[str], workers: int
) -> ServerState:
    """The state after products of these sites came, one by one or as their total."""
    stage = held_stage(state)
    answered = digest_of(sites)
    if stage.known and answered != state.answered:
        return replace(state, stage=begin_again(stage), answered=answered)
    stage = take(stage, answers, n_clusters(plan))
    state = replace(state, stage=stage, answered=answered)
    return with_start(plan, state, workers) if stage.done else state


def with_start(plan: Plan, state: ServerState, workers: int) -> ServerState:
    """The state of the first round, on embedded rows; nobody holds the embedding yet."""
    stage = held_stage(state)
    assert stage.diffusion is not None  # noqa: S101 - asked once the stage is done
    settings = plan.settings.with_clusters(n_clusters(plan) or stage.diffusion.n_components)
    start = settings.start(start_rows(stage), np.random.RandomState(plan.seed), workers)
    # what led to the embedding is not needed any more
    stage = replace(stage, stand_ins=None, known=(), directions=stage.directions[:, :0])
    state = replace(state, phase="round", stage=stage, progress=Progress(start), holders=frozenset(), answered="")
    return protocol_named(state.protocol).begin(plan, state, None)


# --------------------------------------------------------------------------------------------------------------- finish


def full_views(state: ServerState) -> list[int]:
    """Views of which some site lacks cells, so that what is seen is counted per feature."""
    return [view for view, m in enumerate(state.moments) if np.any(m.weight != m.rows)]


def clusters_asked(state: ServerState) -> Values:
    """What the finish asks beside the objective: where clusters are in the views that came in."""
    return {} if state.stage is None else {"clusters": full_views(state)}


def clusters_size(state: ServerState) -> int:
    """Numbers of an answer to that."""
    widths = [reference.width for reference in state.references]
    return sums_size(state.inner.n_clusters, widths, full_views(state))


def read_clusters(state: ServerState, reply: Message, rows: float) -> FloatArray:
    """A site's sums of rows by membership, checked."""
    check_arrays(reply, {"clusters": ArraySpec((clusters_size(state),))})
    vector = np.asarray(reply.arrays["clusters"], np.float64)
    widths = [reference.width for reference in state.references]
    found = ClusterSums.from_array(vector, state.inner.n_clusters, widths)
    check_cluster_sums(found, rows, reach(state.references, state.moments), full_views(state), reply.site)
    return vector


def with_clusters(state: ServerState, answers: Sequence[FloatArray]) -> ServerState:
    """The state that knows where clusters are, from the sums of sites or from their total."""
    widths = [reference.width for reference in state.references]
    found = ClusterSums.from_array(reduce(add, answers), state.inner.n_clusters, widths)
    means = found.means(widths, full_views(state))
    return replace(state, stage=replace(held_stage(state), means=means, sizes=found.sizes))
