"""`fedhk audit attack`: which rows a model was fitted on, told from the model."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedhk.cli import options as o
from fedhk.cli.config import read_config
from fedhk.cli.console import add_rows, exit_codes, make_table, output, say, show_json
from fedhk.cli.predict import site_folders
from fedhk.cli.runs import CONFIG, MODEL, is_run
from fedhk.data.named import NamedTable, named_views
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk.data.folders import SiteData
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
Bounds = Annotated[str, typer.Option("--bounds", metavar="private|LOW,HIGH", help="Range of the features.")]
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
        options = {"shadows": shadows, "confidence": confidence, "random_state": seed}
        if path.is_file() or is_run(path):
            _refuse(path, {"--clusters": clusters, "--epsilon": epsilon})
            found = {"model": _attack_model(path, members, non_members, site, options)}
        else:
            _refuse(path, {"--members": members, "--non-members": non_members, "--site": site})
            if clusters is None:
                raise typer.BadParameter("is needed for a federation folder.", param_hint="--clusters")
            budgets: dict[str, DifferentialPrivacy | None] = {"no noise": None}
            if epsilon is not None:
                budgets[f"epsilon = {epsilon:g}"] = _budget(epsilon, delta, bounds)
            found = _attack_folder(path, clusters, budgets, seed, options)
    if json:
        show_json({"path": str(path), "models": {name: result.to_dict() for name, result in found.items()}})
    else:
        _show(output(), found)


def _refuse(path: Path, given: dict[str, Any]) -> None:
    """Refuse options that belong to the other kind of path."""
    kind = "a federation folder" if "--members" in given else "a model"
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"does not go with {kind}, which {str(path)!r} is.", param_hint=name)


def _budget(epsilon: float, delta: float, bounds: str) -> DifferentialPrivacy:
    from fedhk.privacy.mechanism import DifferentialPrivacy

    if bounds == "private":
        return DifferentialPrivacy(epsilon, delta, bounds="private")
    try:
        low, high = (float(part) for part in bounds.split(","))
    except ValueError:
        raise typer.BadParameter(f"{bounds!r} is neither private nor LOW,HIGH.", param_hint="--bounds") from None
    return DifferentialPrivacy(epsilon, delta, bounds=(low, high))


def _attack_model(
    path: Path, members: Path | None, others: Path | None, site: str | None, options: dict[str, Any]
) -> MembershipAttack:
    """The attack on a stored model."""
    import fedhk
    from fedhk.data.folders import read_site

    if others is None:
        raise typer.BadParameter("is needed: rows that the model was not fitted on.", param_hint="--non-members")
    if site is not None and not path.is_dir():
        raise typer.BadParameter("needs a run folder.", param_hint="--site")
    if members is None:
        if not path.is_dir():
            raise typer.BadParameter("is needed for a model file.", param_hint="--members")
        data = read_config(path / CONFIG).data
        assert data is not None  # noqa: S101 - the configuration of a run has its data
        members = data if site is None else data / site
    if members.resolve() == others.resolve():
        raise DataError(f"--members and --non-members are the same folder, {str(others)!r}: rows are in one of them.")
    file = path if path.is_file() else path / (MODEL if site is None else f"sites/{site}.safetensors")
    if not file.is_file():
        raise DataError(f"Model {str(file)!r} does not exist.")
    model = fedhk.load(file)
    expected = model.view_columns_
    inside, outside = (
        _pooled([read_site(entry, expected) for entry in site_folders(folder)]) for folder in (members, others)
    )
    return _attacked(model, inside, outside, options)


def _attack_folder(
    path: Path,
    clusters: int,
    budgets: dict[str, DifferentialPrivacy | None],
    seed: int,
    options: dict[str, Any],
) -> dict[str, MembershipAttack]:
    """Attacks on models of half of the rows of a folder, with and without noise."""
    import numpy as np

    import fedhk
    from fedhk.data.folders import read_federation

    sites = read_federation(path).sites.values()
    generator = np.random.default_rng(seed)
    halves: tuple[list[SiteData], list[SiteData]] = ([], [])
    for site in sites:
        order = generator.permutation(site.n_rows)
        for half, rows in zip(halves, (order[: -(-len(order) // 2)], order[-(-len(order) // 2) :]), strict=True):
            half.append(_rows_of(site, np.sort(rows)))
    inside, outside = (_pooled(half) for half in halves)
    found = {}
    for name, budget in budgets.items():
        estimator = fedhk.EFKMVC(clusters, privacy=budget, random_state=seed)
        with _notes():
            model = estimator.fit({site.name: named_views(site) for site in halves[0]})
        fit = None if budget is None else _shadow_fit(clusters, budget, len(halves[0]), seed)
        found[name] = _attacked(model, inside, outside, options | {"fit": fit})
    return found


def _shadow_fit(clusters: int, budget: DifferentialPrivacy, n_sites: int, seed: int) -> Callable[[dict[str, Any]], Any]:
    """How the attacker fits models with noise: as many sites, each with its own noise."""
    import numpy as np

    import fedhk

    def fit(views: dict[str, Any]) -> Any:
        parts = {name: np.array_split(table, n_sites) for name, table in views.items()}
        sites = {str(i): {name: tables[i] for name, tables in parts.items()} for i in range(n_sites)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # said once, of the model itself
            return fedhk.EFKMVC(clusters, privacy=budget, random_state=seed).fit(sites)

    return fit


@contextmanager
def _notes() -> Iterator[None]:
    """Say warnings as notes, in one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        say(f"Note: {warning.message}")


def _attacked(model: Any, inside: dict[str, Any], outside: dict[str, Any], options: dict[str, Any]) -> MembershipAttack:
    from fedhk.evaluation.audit import membership_attack

    with show_progress("shadow models", options["shadows"]) as progress:
        return membership_attack(model, inside, outside, progress=progress, **options)


def _rows_of(site: SiteData, rows: Any) -> SiteData:
    from dataclasses import replace

    return replace(site, views={name: None if view is None else view[rows] for name, view in site.views.items()})


def _pooled(sites: list[SiteData]) -> dict[str, NamedTable | None]:
    """All rows of some sites, by view; a view that a site lacks is missing in its rows."""
    import numpy as np

    tables: dict[str, NamedTable | None] = {}
    for name, columns in sites[0].columns.items():
        parts = [site.views[name] for site in sites]
        shape = next((part.shape[1:] for part in parts if part is not None), None)
        if shape is None:
            tables[name] = None
            continue
        filled = [
            np.full((site.n_rows, *shape), np.nan) if part is None else part
            for site, part in zip(sites, parts, strict=True)
        ]
        tables[name] = NamedTable(np.concatenate(filled), columns)
    return tables


def _show(console: Console, found: dict[str, MembershipAttack]) -> None:
    columns = ("model", "attack", "AUC", "interval", "advantage", "interval of it")
    rows = []
    for name, result in found.items():
        for what, strength in (("distance", result.distance), ("likelihood ratio", result.likelihood_ratio)):
            if strength is not None:
                s = strength
                rows.append(
                    (
                        *(name, what, f"{s.auc:.3f}", f"{s.auc_low:.3f} to {s.auc_high:.3f}"),
                        *(f"{s.advantage:.3f}", f"{s.advantage_low:.3f} to {s.advantage_high:.3f}"),
                    )
                )
    first = next(iter(found.values()))
    title = f"{first.members:,} rows that were fitted, {first.others:,} that were not; {first.shadows} shadow models"
    console.print(add_rows(make_table(title, *columns, numbers=columns[2:]), rows))
    for name, result in found.items():
        typer.echo(f"{name}: {result.verdict}")


@contextmanager
def show_progress(what: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error, where somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
