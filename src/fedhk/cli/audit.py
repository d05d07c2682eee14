"""`fedhk audit`: measure what the releases of a site, or a fitted model, reveal of one row."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import fedhk
from fedhk.cli import options as o
from fedhk.cli.algorithms import ALGORITHMS, list_tables
from fedhk.cli.config import read_config
from fedhk.cli.console import UNEXPECTED, exit_codes, make_facts_table, make_table, show, show_progress, to_json
from fedhk.cli.predict import model_file, site_folders
from fedhk.cli.runs import CONFIG, MODEL, is_run, reading_of
from fedhk.data.named import named_views
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk.evaluation.audit_attack import MembershipAttack

PHASES = ("round", "means", "lengths", "spreads", "directions", "cells", "ranges", "run")

Delta = Annotated[float, typer.Option("--delta", help="Probability with which the bound may fail.")]
Confidence = Annotated[float, typer.Option("--confidence", min=0.5, max=0.999999, help="Of all bounds and intervals.")]
Epsilon = Annotated[float, typer.Option("--epsilon", help="Epsilon that is stated for what is released.")]
Releases = Annotated[int, typer.Option("--releases", min=100, help="How often to release, over both data sets.")]
Neighbours = Annotated[str, o.option("neighbours", "What one row more or less means.", words=("replace", "add-remove"))]
Phase = Annotated[str, o.option("phase", "What is released; run is all that a run of one round sends.", words=PHASES)]
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

        private = private_bounds or phase == "ranges"
        # the data of the audit are its own, so that any public bounds will do
        bounds = "private" if private else (-1, 1)
        phases = ("means", "lengths", "spreads", "directions", "cells", "round") if phase == "run" else (phase,)
        if private_bounds and phase == "run":
            phases = ("ranges", *phases)
        budget = spending(fedhk.privacy.DifferentialPrivacy(epsilon, delta, bounds, cast("Any", neighbours)), phases)
        began = time.perf_counter()
        with show_progress("releases", releases) as progress:
            found = audit_release(budget, phases, releases=releases, confidence=confidence, progress=progress)
        seconds = time.perf_counter() - began
    if json:
        typer.echo(to_json({"neighbours": neighbours} | found.to_dict() | {"seconds": seconds}))
    else:
        facts = [
            ("released", f"{', '.join(found.phases)}: {found.releases:,} times, {seconds:.0f} s"),
            ("stated", f"epsilon = {found.stated:.3f}, delta = {delta:g}, neighbours: {neighbours}"),
            (f"shown at {confidence:.0%}", f"epsilon >= {found.epsilon:.3f}"),
            ("the same for any noise", f"epsilon >= {found.epsilon_any_noise:.3f}"),
            ("difference of the data sets", f"{found.distance:.1%} of what noise is sized for"),
        ]
        show(make_facts_table("audit of releases", facts))
        typer.echo(found.verdict)
    if not found.holds:
        raise typer.Exit(UNEXPECTED)


AttackPath = Annotated[
    Path, typer.Argument(help="A run folder, what a site got of a run, a model file, or a federation folder.")
]
Members = Annotated[
    Path | None, typer.Option("--members", help="Folder with rows that the model was fitted on. [default: the run's]")
]
NonMembers = Annotated[Path | None, typer.Option("--non-members", help="Folder with rows that it was not fitted on.")]
OfSite = Annotated[str | None, typer.Option("--site", help="Attack this site's own model of a run folder.")]
AttackEpsilon = Annotated[float | None, typer.Option("--epsilon", help="Of a federation folder: fit with noise too.")]
Bounds = Annotated[str, o.option("bounds", "Range of the features.")]
Shadows = Annotated[int, typer.Option("--shadows", min=0, help="Models that the attacker fits; an even number.")]
AttackSeed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of splits and fits, not of noise.")]


def attack(  # noqa: PLR0917
    path: AttackPath,
    members: Members = None,
    non_members: NonMembers = None,
    site: OfSite = None,
    clusters: o.Clusters = None,
    epsilon: AttackEpsilon = None,
    delta: Delta = 1e-5,
    bounds: Bounds = "private",
    shadows: Shadows = 8,
    seed: AttackSeed = 0,
    confidence: Confidence = 0.95,
    json: o.Json = False,
) -> None:
    """Try to tell from a model which rows it was fitted on.

    PATH is a run folder, what a site got of a run (state/oslo/run) or a model file, with folders of rows that it was
    and was not fitted on; or a federation folder: then half of every site's rows are fitted, by e-fkmvc, and the other
    half are the rows that were not.

    For example:

        fedhk audit attack hospitals/ --clusters 6 --epsilon 1

        fedhk audit attack run/ --non-members later-patients/

        fedhk audit attack run/ --site oslo --non-members later-patients/oslo --json

        fedhk audit attack state/oslo/run --site oslo --members data/oslo --non-members later-patients/oslo
    """
    with exit_codes():
        from fedhk.data.folders import read_federation
        from fedhk.evaluation.attack_sites import attack_halves

        options: dict[str, Any] = {"shadows": shadows, "confidence": confidence, "random_state": seed}
        found: dict[str, MembershipAttack] = {}
        if path.is_file() or (path / MODEL).is_file():
            _refuse_options(path, {"--clusters": clusters, "--epsilon": epsilon})
            found["model"] = _attack_model(path, members, non_members, site, options)
        else:
            _refuse_options(path, {"--members": members, "--non-members": non_members, "--site": site})
            if clusters is None:
                raise typer.BadParameter("is needed for a federation folder.", param_hint="--clusters")
            number = o.parse("clusters", clusters)
            if isinstance(number, str):
                raise typer.BadParameter(f"{number!r}: an attack needs one number.", param_hint="--clusters")
            budgets: dict[str, Any] = {"no noise": None}
            if epsilon is not None:
                budget = fedhk.privacy.DifferentialPrivacy(epsilon, delta, o.parse("bounds", bounds))
                budgets[f"epsilon = {epsilon:g}"] = budget
            sites = list_tables(read_federation(path))
            for name, noise in budgets.items():
                with show_progress("shadow models", shadows) as progress:
                    found[name] = attack_halves(sites, number, noise, progress=progress, **options)
    if json:
        typer.echo(to_json({"path": str(path), "models": {name: result.to_dict() for name, result in found.items()}}))
    else:
        _show_attacks(found)


RunPath = Annotated[Path, typer.Argument(help="A run folder, with the data and the settings that it was fitted with.")]
Canaries = Annotated[int, typer.Option("--canaries", min=20, help="Rows that are left out by chance, one of two.")]


def run(
    path: RunPath,
    canaries: Canaries = 400,
    seed: AttackSeed = 0,
    confidence: Confidence = 0.95,
    json: o.Json = False,
) -> None:
    """Bound from below the epsilon of a run of your own.

    Some of its rows, the canaries, are left out by the toss of a coin. The run is then made once more, with its own
    settings, and its model is asked which rows it was fitted on. How often that is right gives a lower bound on epsilon
    (Steinke, Nasr and Jagielski 2023); if it is above what the run states, the exit code is 1. Nothing leaves this
    machine, and no ledger is charged: do not publish the model of an audit.

    For example:

        fedhk audit run run/

        fedhk audit run run/ --canaries 1000 --json
    """
    with exit_codes():
        from fedhk.data.folders import Reading, read_federation
        from fedhk.evaluation.audit_canaries import audit_run

        if not is_run(path):
            raise DataError(f"{str(path)!r} is no run folder: fedhk fit makes one.")
        config = read_config(path / CONFIG)
        algorithm = ALGORITHMS[config.algorithm]
        if not algorithm.federated:
            raise DataError(
                f"The run {str(path)!r} clusters one site, which releases nothing. What its model tells of its rows is "
                "measured by: fedhk audit attack RUN --non-members OTHER"
            )
        if config.data is None:
            raise DataError(
                f"The rows of {str(path)!r} are at its sites, and an audit fits them once more. Each site can measure "
                "what the model tells of its rows: fedhk audit attack STATE/NAME/run --site NAME --members DATA "
                "--non-members OTHER"
            )
        sites = list_tables(read_federation(config.data, Reading(config.id, tuple(config.ignore or ()))))
        model = algorithm.make(config.parameters | {"random_state": config.seed})
        found = audit_run(model, sites, canaries=canaries, confidence=confidence, random_state=seed)
    if json:
        typer.echo(to_json({"path": str(path)} | found.to_dict()))
    else:
        typer.echo(found.verdict)
    if not found.holds:
        raise typer.Exit(UNEXPECTED)


def _refuse_options(path: Path, options: dict[str, Any]) -> None:
    """Refuse options that belong to the other kind of path."""
    kind = "a federation folder" if "--members" in options else "a model"
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"does not go with {kind}, which {str(path)!r} is.", param_hint=name)


def _attack_model(
    path: Path, members: Path | None, others: Path | None, site: str | None, options: dict[str, Any]
) -> MembershipAttack:
    """Attack a stored model."""
    from fedhk.data.folders import read_site
    from fedhk.evaluation.attack_sites import pool_rows
    from fedhk.evaluation.audit_attack import membership_attack

    if others is None:
        raise typer.BadParameter("is needed: rows that the model was not fitted on.", param_hint="--non-members")
    if site is not None and not path.is_dir():
        raise typer.BadParameter("needs a run folder.", param_hint="--site")
    if members is None:
        members = _find_members(path, site)
    if members.resolve() == others.resolve():
        raise DataError(f"--members and --non-members are the same folder, {str(others)!r}: rows are in one of them.")
    model, reading = fedhk.load(model_file(path, site)), reading_of(path if path.is_dir() else path.parent)
    inside, outside = (
        pool_rows({e.name: named_views(read_site(e, model.view_columns_, reading)) for e in site_folders(folder)})
        for folder in (members, others)
    )
    with show_progress("shadow models", options["shadows"]) as progress:
        return membership_attack(model, inside, outside, progress=progress, **options)


def _find_members(path: Path, site: str | None) -> Path:
    """Find the folder with the rows of a run, or of one of its sites."""
    data = read_config(path / CONFIG).data if is_run(path) else None
    if data is None:
        raise typer.BadParameter("is needed where there is no run folder with its data.", param_hint="--members")
    return data if site is None else data / site


def _show_attacks(found: dict[str, MembershipAttack]) -> None:
    columns = ("model", "attack", "AUC", "interval", "advantage", "interval of it")
    rows = [
        (
            *(name, attack, f"{s.auc:.3f}", f"{s.auc_low:.3f} to {s.auc_high:.3f}"),
            *(f"{s.advantage:.3f}", f"{s.advantage_low:.3f} to {s.advantage_high:.3f}"),
        )
        for name, result in found.items()
        for attack, s in (("distance", result.distance), ("likelihood ratio", result.likelihood_ratio))
        if s is not None
    ]
    first = next(iter(found.values()))
    title = f"{first.members:,} rows that were fitted, {first.others:,} that were not; {first.shadows} shadow models"
    show(make_table(title, columns, rows, numbers=columns[2:]))
    for name, result in found.items():
        typer.echo(f"{name}: {result.verdict}")
