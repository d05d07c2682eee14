"""Progress of a federated run: rounds, objective, its change, bytes and time left, on standard error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedhk.federation.run import Run


@contextmanager
def show_progress(max_rounds: int, tol: float) -> Iterator[Callable[[Run], None]]:
    """A bar, and what to call after every exchange.

    The rounds that are left are estimated from how fast the objective's fall shrinks.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("round {task.completed:.0f} of about {task.total:.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("set-up", total=max_rounds)

        def update(run: Run) -> None:
            bytes_moved = sum(r["bytes_up"] + r["bytes_down"] for r in [*run.history, run.pending])
            objectives = [record["objective"] for record in run.history]
            text = run.state.phase if not objectives else f"objective {objectives[-1]:.6g}"
            if len(objectives) > 1:
                text += f" ({objectives[-1] / objectives[-2] - 1:+.1e})"
            bar.update(
                task,
                completed=len(objectives),
                total=min(max_rounds, len(objectives) + rounds_left(objectives, tol)),
                description=f"{text}, {bytes_moved / 1e6:.2f} MB",
            )

        yield update


def rounds_left(objectives: list[float], tol: float) -> int:
    """Rounds until the relative fall of the objective is below `tol`, if it keeps shrinking as it does."""
    if len(objectives) < 3 or tol <= 0:
        return 10**6
    falls = [1 - later / earlier for earlier, later in zip(objectives[-3:-1], objectives[-2:], strict=True)]
    if min(falls) <= tol:
        return 0
    if falls[1] >= falls[0]:
        return 10**6
    return math.ceil(math.log(tol / falls[1]) / math.log(falls[1] / falls[0]))
