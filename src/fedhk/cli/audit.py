"""`fedhk audit`: what the releases of a site, and a fitted model, really tell of one row."""

from __future__ import annotations

import time
from typing import Annotated, Any, cast

import typer

from fedhk.cli import options as o
from fedhk.cli.audit_attack import Confidence, Delta, attack
from fedhk.cli.console import UNEXPECTED, exit_codes, make_facts_table, output, show_json, show_progress

PHASES = {
    "round": ("round",),
    "directions": ("directions",),
    "cells": ("cells",),
    "ranges": ("ranges",),
    "run": ("directions", "cells", "round"),
}
NEIGHBOURS = ("replace", "add-remove")

Epsilon = Annotated[float, typer.Option("--epsilon", help="Epsilon that is stated for what is released.")]
Releases = Annotated[int, typer.Option("--releases", min=100, help="How often to release, over both data sets.")]
Neighbours = Annotated[str, o.word_option("neighbours", "What one row more or less means.", words=NEIGHBOURS)]
Phase = Annotated[
    str,
    o.word_option("phase", "What is released; run is all that a run of one round sends.", words=tuple(PHASES)),
]
PrivateBounds = Annotated[bool, typer.Option("--private-bounds", help="Bounds cost budget too; a run sends ranges.")]


def privacy(  # noqa: PLR0917
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    releases: Releases = 20_000,
    neighbours: Neighbours = "replace",
    phase: Phase = "round",
    private_bounds: PrivateBounds = False,
    confidence: Confidence = 0.95,
    json: o.Json = False,
) -> None:
    """Bound from below the epsilon of what a site releases.

    A site releases thousands of times, through the function that every run uses, of two data sets that differ in one
    row where it can be seen best. How well the releases tell the two apart gives a lower bound on epsilon; if it is
    above what the accounting states, the privacy of this installation is broken, and the exit code is 1.

    For example:

        fedhk audit privacy

        fedhk audit privacy --epsilon 0.5 --phase run --neighbours add-remove --json
    """
    with exit_codes():
        from fedhk.evaluation.audit import audit_release, spending
        from fedhk.privacy import DifferentialPrivacy

        private = private_bounds or phase == "ranges"
        # the data of the audit are its own, so that any public bounds will do
        bounds = "private" if private else (-1, 1)
        phases = (*(("ranges",) if private and phase == "run" else ()), *PHASES[phase])
        budget = spending(DifferentialPrivacy(epsilon, delta, bounds, cast("Any", neighbours)), phases)
        began = time.perf_counter()
        with show_progress("releases", releases) as progress:
            found = audit_release(budget, phases, releases=releases, confidence=confidence, progress=progress)
        seconds = time.perf_counter() - began
    if json:
        show_json({"neighbours": neighbours} | found.to_dict() | {"seconds": seconds})
    else:
        facts = [
            ("released", f"{', '.join(found.phases)}: {found.releases:,} times, {seconds:.0f} s"),
            ("stated", f"epsilon = {found.stated:.3f}, delta = {delta:g}, neighbours: {neighbours}"),
            (f"shown at {confidence:.0%}", f"epsilon >= {found.epsilon:.3f}"),
            ("the same for any noise", f"epsilon >= {found.epsilon_any_noise:.3f}"),
            ("difference of the data sets", f"{found.distance:.1%} of what noise is sized for"),
        ]
        output().print(make_facts_table("audit of releases", facts))
        typer.echo(found.verdict)
    if not found.holds:
        raise typer.Exit(UNEXPECTED)


def audit_commands(epilog: str) -> typer.Typer:
    """Make the commands of `fedhk audit`."""
    commands = typer.Typer(no_args_is_help=True, help="Measure what releases and models tell of single rows.")
    for command in (privacy, attack):
        commands.command(epilog=epilog)(command)
    return commands
