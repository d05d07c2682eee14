"""Runs on disk: one file, written whole after every exchange: a killed run loses at most the round it was in."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedhk._files import write_atomically
from fedhk.data.moments import Moments
from fedhk.errors import CheckpointError, MessageError
from fedhk.federation.diffusion.state import pack_stage, unpack_stage
from fedhk.federation.messages import Message, decode, encode, expect
from fedhk.federation.payloads import (
    pack_moments,
    pack_parameters,
    pack_references,
    pack_text,
    unpack_moments,
    unpack_parameters,
    unpack_references,
    unpack_text,
)
from fedhk.federation.run import Run
from fedhk.federation.sealed.state import pack_sealed, unpack_sealed
from fedhk.federation.state import Plan, ServerState
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.descent import Progress
from fedhk.personal.calibration import Calibration

FILE = "run.fedhk"
MAX_CHECKPOINT_BYTES = 2**32


def describe_plan(plan: Plan) -> dict[str, Any]:
    """The plan as JSON: what a checkpoint must agree with to be gone on with. Given centres stand as a digest."""
    described = asdict(replace(plan, privacy=None))
    described["privacy"] = None if plan.privacy is None else plan.privacy.describe()
    settings = described["settings"]
    if not isinstance(settings["init"], str):
        settings["init"] = [sha256(np.asarray(values).tobytes()).hexdigest()[:16] for values in settings["init"]]
    for part, name in ((settings, "view_weights"), (settings, "rank"), (described, "calibration")):
        if isinstance(part[name], tuple):
            part[name] = list(part[name])
    return described


def save_run(folder: Path, plan: Plan, run: Run) -> None:
    """Write the checkpoint of a run."""
    state = run.state
    # what grows with rounds, sites and columns
    arrays: dict[str, Any] = {"texts": pack_text([run.history, run.pending, state.columns])}
    values: dict[str, Any] = {
        "plan": describe_plan(plan),
        "phase": state.phase,
        "n_sites": state.n_sites,
        "answered": state.answered,
        "protocol": [state.protocol, state.precision],
        "calibration": None if state.calibration is None else state.calibration.to_list(),
        "final": None if math.isnan(state.final_objective) else state.final_objective,
        "rows": state.rows,
    }
    if state.references:
        packed, described = pack_references(state.references, state.names, state.columns)
        arrays |= packed | pack_moments(state.moments, ranges=plan.settings.needs_ranges)
        values |= described
    if state.progress is not None:
        packed, numbers = pack_parameters(state.progress.parameters)
        arrays |= packed | {f"basis.{view}": e for view, e in enumerate(state.directions)}
        form = state.free_form or state.progress.parameters.form
        if form is not None:
            values["form"], factors = form.to_arrays()
            values["free"] = state.free_form is not None
            arrays |= factors
        progress = state.progress
        objective = None if math.isinf(progress.objective) else progress.objective
        values |= numbers | {"progress": [progress.iteration, objective, progress.converged, progress.stop_reason]}
    if state.stage is not None:
        packed, values["stage"] = pack_stage(state.stage)
        arrays |= packed
    if state.cluster_summary is not None:
        arrays["cluster_summary"] = state.cluster_summary.to_array()
    if state.sealed is not None:
        packed, numbers = pack_sealed(state.sealed)
        widths = [len(view.mean) for view in state.moments]
        arrays |= packed | {"schema": pack_text(list(zip(state.names, widths, strict=True)))}
        values["sealed"] = numbers
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, encode(Message("checkpoint", "server", state.exchange, arrays, values)))


def load_run(folder: Path, plan: Plan) -> tuple[Plan, Run] | None:
    """The run in a folder, or None where there is none.

    Parameters
    ----------
    folder : Path
        The checkpoint folder.
    plan : Plan
        The plan to go on with; its seed gives way to the checkpoint's, so that a run without a fixed seed can go on.

    Raises
    ------
    CheckpointError
        If the file is damaged, or was made by a run with other settings: both are named.
    """
    path = folder / FILE
    for half_written in folder.glob(f".{FILE}.*"):  # of a run that was killed
        half_written.unlink()
    if not path.exists():
        return None
    try:
        message = decode(path.read_bytes(), max_bytes=MAX_CHECKPOINT_BYTES)
        expect(message, kind="checkpoint")
        history, pending, columns = unpack_text(message.arrays.get("texts"), None)
        run = Run(_state(message, columns, plan), history, pending)
        stored = message.values["plan"]
        plan = replace(plan, seed=int(stored["seed"]))
    except (MessageError, OSError, KeyError, TypeError, ValueError) as error:
        reason = error.reason if isinstance(error, MessageError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(f"The checkpoint {path} cannot be used: {reason}. Remove it to start anew.") from error
    _check_same_plan(path, stored, describe_plan(plan))
    return plan, run


def peek(folder: Path) -> Run | None:
    """How far the run in a folder has come: its phase and history, without what it takes to go on; None without one.

    Raises
    ------
    CheckpointError
        If the file is damaged.
    """
    path = folder / FILE
    try:
        message = decode(path.read_bytes(), max_bytes=MAX_CHECKPOINT_BYTES)
        history, pending, _ = unpack_text(message.arrays.get("texts"), None)
        return Run(ServerState(phase=message.values["phase"]), history, pending)
    except FileNotFoundError:
        return None
    except (MessageError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read: {error}") from error


def _check_same_plan(path: Path, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    flat = [{**plan, **plan["settings"], "settings": None} for plan in (stored, wanted)]
    different = [
        f"{name}={flat[0].get(name)!r} there, {flat[1].get(name)!r} here"
        for name in flat[1]
        if flat[0].get(name) != flat[1].get(name)
    ]
    if different:
        raise CheckpointError(f"The checkpoint {path} is of a run with other settings: {'; '.join(different)}.")


def _state(message: Message, columns: list[list[str] | None], plan: Plan) -> ServerState:
    values = message.values
    state = ServerState(
        phase=values["phase"],
        exchange=message.round,
        n_sites=int(values["n_sites"]),
        answered=str(values["answered"]),
        rows=float(values["rows"]),
    )
    named = tuple(None if names is None else tuple(names) for names in columns)
    if values["final"] is not None:
        state = replace(state, final_objective=float(values["final"]))
    if "sealed" in values:  # views are known before there are references
        schema = unpack_text(message.arrays.get("schema"), None)
        names, empty = tuple(name for name, _ in schema), tuple(Moments.none(width) for _, width in schema)
        sealed = unpack_sealed(message.arrays, values["sealed"])
        state = replace(state, sealed=sealed, names=names, columns=named, moments=empty)
    if "views" not in values:
        return state
    references, names, _ = unpack_references(message)
    kept = {"rows", "moments", "cells", "ranges"}
    only = {name: array for name, array in message.arrays.items() if name in kept}
    moments = unpack_moments(replace(message, arrays=only), [reference.width for reference in references])
    state = replace(state, names=names, columns=named, moments=moments, references=references)
    protocol, precision = values["protocol"]
    told = values["calibration"]
    calibration = None if told is None else Calibration.from_list(told)
    state = replace(state, protocol=protocol, precision=precision, calibration=calibration)
    if "stage" in values and plan.diffusion is not None:  # a plan without is refused later
        state = replace(state, stage=unpack_stage(message.arrays, values["stage"], plan.diffusion))
    if "progress" not in values:
        return state
    iteration, objective, converged, reason = values["progress"]
    directions = tuple(message.arrays[f"basis.{v}"] for v in range(len(names)) if f"basis.{v}" in message.arrays)
    parameters = unpack_parameters(message, [len(d) for d in directions] if directions else state.widths)
    if "form" in values:
        from fedhk.tensors.low_rank import LowRank  # noqa: PLC0415 - tensor algebra takes a second to import

        form = LowRank.from_arrays(values["form"], message.arrays)
        if values["free"]:
            state = replace(state, free_form=form)
        else:
            parameters = replace(parameters, form=form)
    progress = Progress(
        parameters, int(iteration), math.inf if objective is None else float(objective), bool(converged), str(reason)
    )
    told = message.arrays.get("cluster_summary")
    cluster_summary = None if told is None else ClusterSummary.from_array(told, parameters.n_clusters)
    return replace(state, progress=progress, directions=directions, cluster_summary=cluster_summary)
