"""`fedhk audit attack`: try to tell from a model which rows it was fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedhk.cli import options as o
from fedhk.cli.algorithms import list_tables
from fedhk.cli.config import read_config
from fedhk.cli.console import exit_codes, make_table, output, show_json, show_progress
from fedhk.cli.predict import site_folders
from fedhk.cli.runs import CONFIG, MODEL, is_run
from fedhk.data.named import SITES, named_views
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk.evaluation.audit_attack import MembershipAttack
    from fedhk.privacy.mechanism import DifferentialPrivacy

Delta = Annotated[float, typer.Option("--delta", help="Probability with which the bound may fail.")]
Confidence = Annotated[float, typer.Option("--confidence", min=0.5, max=0.999999, help="Of all bounds and intervals.")]
AttackPath = Annotated[Path, typer.Argument(help="A run folder, a model file, or a federation folder.")]
Members = Annotated[
    Path | None, typer.Option("--members", help="Folder with rows that the model was fitted on. [default: the run's]")
]
NonMembers = Annotated[Path | None, typer.Option("--non-members", help="Folder with rows that it was not fitted on.")]
OfSite = Annotated[str | None, typer.Option("--site", help="Attack this site's own model of a run folder.")]
AttackEpsilon = Annotated[float | None, typer.Option("--epsilon", help="Of a federation folder: fit with noise too.")]
Bounds = Annotated[str, o.form_option("bounds", "Range of the features.")]
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

    PATH is a run folder or a model file, with folders of rows that it was and was not fitted on; or a federation
    folder: then half of every site's rows are fitted, by e-fkmvc, and the other half are the rows that were not.

    For example:

        fedhk audit attack hospitals/ --clusters 6 --epsilon 1

        fedhk audit attack run/ --non-members later-patients/

        fedhk audit attack run/ --site oslo --non-members later-patients/oslo --json
    """
    with exit_codes():
        from fedhk.data.folders import read_federation
        from fedhk.evaluation.attack_sites import attack_halves

        options: dict[str, Any] = {"shadows": shadows, "confidence": confidence, "random_state": seed}
        found: dict[str, MembershipAttack] = {}
        if path.is_file() or is_run(path):
            _refuse_options(path, {"--clusters": clusters, "--epsilon": epsilon})
            found["model"] = _attack_model(path, members, non_members, site, options)
        else:
            _refuse_options(path, {"--members": members, "--non-members": non_members, "--site": site})
            if clusters is None:
                raise typer.BadParameter("is needed for a federation folder.", param_hint="--clusters")
            budgets: dict[str, DifferentialPrivacy | None] = {"no noise": None}
            if epsilon is not None:
                budgets[f"epsilon = {epsilon:g}"] = _make_budget(epsilon, delta, bounds)
            sites = list_tables(read_federation(path))
            for name, budget in budgets.items():
                with show_progress("shadow models", shadows) as progress:
                    found[name] = attack_halves(sites, clusters, budget, progress=progress, **options)
    if json:
        show_json({"path": str(path), "models": {name: result.to_dict() for name, result in found.items()}})
    else:
        _show_attacks(output(), found)


def _refuse_options(path: Path, options: dict[str, Any]) -> None:
    """Refuse options that belong to the other kind of path."""
    kind = "a federation folder" if "--members" in options else "a model"
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"does not go with {kind}, which {str(path)!r} is.", param_hint=name)


def _make_budget(epsilon: float, delta: float, bounds: str) -> DifferentialPrivacy:
    from fedhk.privacy import DifferentialPrivacy

    return DifferentialPrivacy(epsilon, delta, bounds=o.parse("bounds", bounds))


def _attack_model(
    path: Path, members: Path | None, others: Path | None, site: str | None, options: dict[str, Any]
) -> MembershipAttack:
    """Attack a stored model."""
    import fedhk
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
    file = path if path.is_file() else path / (MODEL if site is None else f"{SITES}/{site}.safetensors")
    if not file.is_file():
        raise DataError(f"Model {str(file)!r} does not exist.")
    model = fedhk.load(file)
    inside, outside = (
        pool_rows({entry.name: named_views(read_site(entry, model.view_columns_)) for entry in site_folders(folder)})
        for folder in (members, others)
    )
    with show_progress("shadow models", options["shadows"]) as progress:
        return membership_attack(model, inside, outside, progress=progress, **options)


def _find_members(path: Path, site: str | None) -> Path:
    """Find the folder with the rows of a run, or of one of its sites."""
    data = read_config(path / CONFIG).data if path.is_dir() else None
    if data is None:
        raise typer.BadParameter("is needed where there is no run folder with its data.", param_hint="--members")
    return data if site is None else data / site


def _show_attacks(console: Console, found: dict[str, MembershipAttack]) -> None:
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
    console.print(make_table(title, columns, rows, numbers=columns[2:]))
    for name, result in found.items():
        typer.echo(f"{name}: {result.verdict}")
