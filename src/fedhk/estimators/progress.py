"""Progress of a federated run: rounds, objective, its change and bytes, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from fedhk.federation.gate import SEALED
from fedhk.federation.run import Run
from fedhk.summary.words import seconds


def show_progress(
    max_rounds: int, stream: TextIO | None = None, *, timed: bool = False, runs_all: bool = False
) -> Callable[[Run, Sequence[str]], None]:
    """Return a function to call after every exchange that prints one line a round, and one for each step before.

    It takes the run and the names of its phases. The stream is standard error by default. With `timed` a line also has
    how long exchanges took so far; where the run has all its rounds (`runs_all`), also how long the others will take.
    """
    said: list[str] = []

    def update(run: Run, phases: Sequence[str]) -> None:
        bytes_moved = sum(r["bytes_up"] + r["bytes_down"] for r in [*run.history, run.pending])
        if run.history:
            objectives = [record["objective"] for record in run.history]
            text = f"round {len(objectives)} of at most {max_rounds}: objective {objectives[-1]:.6g}"
            if len(objectives) > 1:
                text += f" ({objectives[-1] / objectives[-2] - 1:+.1e})"
        else:
            place = min(run.phase, len(phases) - 1)
            name = phases[place].removeprefix(SEALED)
            text = f"set-up: {name}, step {place + 1} of {len(phases)}, exchange {run.exchange}"
        if said[-1:] != [text]:
            said.append(text)
            spent = f", {_tell_time(run, max_rounds if runs_all else 0)}" if timed else ""
            print(f"{text}, {bytes_moved / 1e6:.2f} MB{spent}", file=stream or sys.stderr)

    return update


def _tell_time(run: Run, rounds: int) -> str:
    """Say how long exchanges took so far, and from the second round on, whose record has no set-up, what is to come."""
    took = seconds(sum(record["seconds"] for record in [*run.history, run.pending]))
    left = rounds - len(run.history)
    if len(run.history) < 2 or left < 1:
        return took
    return f"{took}; about {seconds(left * run.history[-1]['seconds'])} to go"
