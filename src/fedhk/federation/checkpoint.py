"""Checkpoints: the state of a run in one file, replaced after every exchange. A killed run loses at most one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedhk._records import Record
from fedhk._text import printable
from fedhk.errors import CheckpointError, FedHKError, MessageError
from fedhk.federation.run import Run
from fedhk.federation.stored import pack_entries, read_file, unpack_board, write_file

Plan = dict[str, Any]
"""The settings of a run as plain JSON, and its seed. A checkpoint can only be resumed with the same plan."""

FILE = "run.fedhk"
KIND, OWNER = "checkpoint", "server"
COSTS = ("bytes_up", "bytes_down", "seconds")

# Errors that a run raises if the parts of its checkpoint do not fit together.
UNFIT = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Content of the file: the plan, and the fields of `Run`; the board without `Passing` entries.

    `phases` are the names of all phases of the run, to tell how far it is.
    """

    plan: Plan
    phase: int
    exchanges: int
    exchange: int
    board: bytes
    history: tuple[Record, ...]
    pending: Record
    phases: tuple[str, ...] = ()

    def run(self) -> Run:
        """Return the run, without its board."""
        return Run(self.phase, self.exchanges, self.exchange, history=self.history, pending=self.pending)


def save_run(folder: Path, run: Run, plan: Plan, phases: Sequence[str] = ()) -> None:
    """Write the checkpoint of a run between two exchanges; create the folder if needed."""
    board = pack_entries(run.board.entries.values(), OWNER)
    counts = run.phase, run.exchanges, run.exchange
    content = Checkpoint(plan, *counts, board, run.history, run.pending, tuple(phases))
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / FILE, content, KIND, OWNER)


def load_run(folder: Path, plan: Plan) -> tuple[Run, Plan] | None:
    """Read the run in a folder, and its plan with the seed, so that a run without a fixed seed can be resumed.

    None where there is no run. CheckpointError if the file is damaged, or was made by a run with another plan: the
    differences are named.
    """
    path = folder / FILE
    for half_written in folder.glob(f".{FILE}.*"):  # of a run that was killed
        half_written.unlink()
    if not path.exists():
        return None
    try:
        stored = read_file(path, KIND, OWNER, Checkpoint)
        run = replace(stored.run(), board=unpack_board(stored.board, OWNER))
        _check_counts(stored)
        plan = plan | {"seed": stored.plan["seed"]}
    except (MessageError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be used: {_reason(error)}. Remove it to start anew."
        ) from error
    differences = "; ".join(_find_differences(stored.plan, json.loads(json.dumps(plan))))
    if differences:
        raise CheckpointError(f"The checkpoint {path} is of a run with other settings: {differences}.")
    return run, plan


def _check_counts(stored: Checkpoint) -> None:
    """Refuse counts that no run writes: a forged checkpoint may have a valid digest."""
    for number in (stored.phase, stored.exchanges, stored.exchange, stored.plan["seed"]):
        if type(number) is not int or number < 0:
            raise ValueError(f"it counts {str(number)[:20]!r} exchanges, or has such a seed")
    for record in (*stored.history, stored.pending):
        for name in COSTS:
            if type(record[name]) not in (int, float):
                raise ValueError(f"{name} is {str(record[name])[:20]!r}")
        if not isinstance(record["refused"], dict):
            raise ValueError("refusals are no table")  # noqa: TRY004 - all that is wrong is one kind of error


@contextmanager
def blame_checkpoint(folder: Path) -> Iterator[None]:
    """Turn errors that a damaged or forged checkpoint causes into one that names the checkpoint."""
    try:
        yield
    except UNFIT as error:
        if isinstance(error, FedHKError):
            raise
        raise CheckpointError(
            f"The run cannot go on from the checkpoint {folder / FILE}: {_reason(error)}. Remove it to start anew."
        ) from error


def peek(folder: Path) -> tuple[Run, tuple[str, ...]] | None:
    """Read the run in a folder without its board, and the names of its phases; None if there is no run."""
    path = folder / FILE
    try:
        stored = read_file(path, KIND, OWNER, Checkpoint)
        return stored.run(), stored.phases
    except FileNotFoundError:
        return None
    except (MessageError, OSError) as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read: {_reason(error)}") from error


def open_checkpoint(folder: Path | None, plan: Plan, *, resume: bool) -> tuple[Run, Plan]:
    """Return the run of a checkpoint folder, or a new one. Without `resume` the folder must be empty or new."""
    if folder is None:
        if resume:
            raise CheckpointError("resume=True needs checkpoint=, the folder of the run to go on with.")
        return Run(), plan
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"checkpoint={str(folder)!r} is a file; it must be a folder, or not exist yet.")
    if not resume and folder.exists() and any(folder.iterdir()):
        raise CheckpointError(
            f"checkpoint={str(folder)!r} is not empty. Pass resume=True to go on with it, or give another."
        )
    return (load_run(folder, plan) if resume else None) or (Run(), plan)


def _find_differences(stored: Plan, wanted: Plan, inside: str = "") -> Iterator[str]:
    """Name every setting that differs; settings of an option are named after it, as in `privacy.epsilon`."""
    for name in [*wanted, *(stored.keys() - wanted.keys())]:
        there, here = stored.get(name), wanted.get(name)
        if isinstance(there, dict) and isinstance(here, dict):
            yield from _find_differences(there, here, f"{inside}{name}.")
        elif there != here:
            yield f"{inside}{name}={there!r} there, {here!r} here"


def _reason(error: Exception) -> str:
    return printable((error.reason if isinstance(error, MessageError) else f"{type(error).__name__}: {error}")[:300])
