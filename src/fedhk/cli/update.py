"""`fedhk update`: continue a finished run with new rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fedhk
from fedhk._files import READABLE, replacing, write_atomically
from fedhk.cli import options as o
from fedhk.cli.algorithms import ALGORITHMS, list_tables
from fedhk.cli.config import Config, ConfigError, read_config
from fedhk.cli.console import exit_codes, make_table, say, say_notes, say_progress, show
from fedhk.cli.fit import show_summary
from fedhk.cli.predict import model_file
from fedhk.cli.runs import (
    CONFIG,
    SiteFacts,
    absolute,
    check_apart,
    check_free,
    choose_ledger,
    folder_mode,
    is_released,
    list_sites,
    reading_of,
    write_run,
)
from fedhk.data.named import SITES

if TYPE_CHECKING:
    from fedhk.data.folders import Federation

NewRows = Annotated[Path, typer.Argument(help="Federation folder with the new rows.")]
HalfLife = Annotated[
    float | None,
    typer.Option("--half-life", help="Updates after which earlier rows count half; by default they are not forgotten."),
]
Rounds = Annotated[int, typer.Option("--rounds", help="Most rounds.", min=1)]
Level = Annotated[float, typer.Option("--level", help="How likely drift is reported where nothing has moved.")]
UpdateEpsilon = Annotated[
    float | None,
    o.option("epsilon", "Privacy budget of this update, on top of what was spent.", "that of the run once more"),
]
UpdatedRun = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Run folder to write; by default RUN, which stays beside it as RUN-1, RUN-2, ..."),
]


def update(  # noqa: PLR0917
    run: o.RunFolder,
    folder: NewRows,
    out: UpdatedRun = None,
    half_life: HalfLife = None,
    rounds: Rounds = 3,
    level: Level = 0.05,
    epsilon: UpdateEpsilon = None,
    id_column: o.IdOfRows = None,
    ignore: o.Ignore = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Go on from a finished run with the new rows in FOLDER; say which clusters moved, came and went.

    Clusters keep their numbers. A run with noise spends anew in each update: --epsilon, else what the run was given.
    This adds up in the same ledgers, and a plan that they keep is kept.

    For example:

        fedhk update run/ hospitals-2025/

        fedhk update run/ hospitals-2025/ --half-life 2 --out run-2025/
    """
    check_force(out, force=force)
    with exit_codes():
        settings = (half_life, rounds, level)
        found, target = _update_folder(run, folder, out, force, id_column, ignore, epsilon, settings)
    show_update(found, target, json=json)


def check_force(out: Path | None, *, force: bool) -> None:
    """Refuse --force without --out: a run that an update takes the place of is kept."""
    if force and out is None:
        raise typer.BadParameter("is for --out; RUN stays beside the new one.", param_hint="--force")


def read_federated(run: Path) -> Config:
    """Read the configuration of a run; refuse one of an algorithm for one site."""
    config = read_config(run / CONFIG)
    if not ALGORITHMS[config.algorithm].federated:
        raise ConfigError(f"Algorithm {config.algorithm!r} clusters one site: use partial_fit in Python.")
    return config


def choose_budget(config: Config, epsilon: float | None) -> Config:
    """Replace the privacy budget of a run by that of its update, where one is given; say what it will spend."""
    privacy = config.parameters.get("privacy")
    if privacy is None:
        if epsilon is not None:
            raise typer.BadParameter("the run had no noise, nor has its update.", param_hint="--epsilon")
        return config
    chosen = config.with_options("privacy", epsilon=epsilon)
    budget = fedhk.privacy.DifferentialPrivacy(**chosen.parameters["privacy"])
    given = "" if epsilon is not None else ", as the run could; --epsilon sets another budget"
    say(f"This update can spend epsilon {budget.epsilon:g} at delta {budget.delta:g} more at each site{given}.")
    return chosen


def show_update(found: dict[str, Any], out: Path, *, json: bool) -> None:
    """Print what an update found: its summary, and which clusters moved, came and went."""
    from fedhk.summary.words import describe_no_drift

    show_summary(found, out, json)
    if json:
        return
    moved = [line for line in found["drift"] if line["moved"]]
    columns = ("cluster", "site", "distance", "by chance", "p")
    rows = [
        (m["cluster"], m["site"], f"{m['distance']:.2f}", f"{m['by_chance']:.2f}", f"{m['p_adjusted']:.2g}")
        for m in moved
    ]
    if moved:
        show(make_table("clusters that moved, in standard deviations", columns, rows, numbers=columns))
    last = found["updates"][-1]
    for word in ("new", "gone"):
        if last[word]:
            say(f"Clusters that are {word}: {', '.join(map(str, last[word]))}.", err=False)
    if not moved:
        say(describe_no_drift(compared=bool(found["drift"])), err=False)


def _update_folder(  # noqa: PLR0917
    run: Path,
    folder: Path,
    out: Path | None,
    force: bool,
    id_column: str | None,
    ignore: list[str] | None,
    epsilon: float | None,
    settings: tuple[float | None, int, float],
) -> tuple[dict[str, Any], Path]:
    """Update the model of a run with the rows of a folder, and write a run folder; return what was found, and where."""
    from fedhk.data.folders import read_federation
    from fedhk.summary.drawing import require_matplotlib

    require_matplotlib()
    source, target = absolute(run), absolute(out or run)
    file = model_file(source)
    if not source.is_dir():
        raise ConfigError(f"{str(run)!r} is a file: an update goes on from a run folder.")
    before = read_federated(source)
    if before.data is None and is_released(before):
        raise ConfigError(
            f"The sites of {str(run)!r} are elsewhere, and so are the ledgers that say what was spent: use `fedhk "
            "flower update`."
        )
    check_apart(target, folder)
    if target != source:
        check_free(target, force=force)
    ledger = choose_ledger(before, target)  # that of the run: what was spent before counts
    config = before.updated({}, data=absolute(folder), id=id_column, ignore=ignore or None)
    model = fedhk.load(file)
    model._pasts = dict(model._pasts) | {
        name: past
        for own in sorted((source / SITES).glob("*.safetensors"))
        for name, past in fedhk.load(own)._pasts.items()
    }
    model.set_params(verbose=int(sys.stderr.isatty()))
    if ledger is not None:
        config = config.with_options("privacy", ledger=str(ledger))
        choose_ledger(config, target)  # nor may it lie in the new rows
    config = choose_budget(config, epsilon)
    if config.parameters.get("privacy") is not None:
        model.set_params(privacy=fedhk.privacy.DifferentialPrivacy(**config.parameters["privacy"]))
    say_progress(f"reading {folder}")
    federation = read_federation(folder, reading_of(source, id_column, ignore))
    say_notes(federation.doubts)
    half_life, rounds, level = settings
    model.update(list_tables(federation), half_life=half_life, rounds=rounds, level=level)
    sites = {name: facts for name, facts in list_sites(federation).items() if name in model.labels_}
    return write_update(source, target, model, sites, config, federation), target


def write_update(  # noqa: PLR0917
    source: Path,
    target: Path,
    model: Any,
    sites: dict[str, SiteFacts],
    config: Config,
    data: Federation | None = None,
) -> dict[str, Any]:
    """Write the run folder of an updated model; return its summary, with drift and updates.

    `source` is the run folder before the update. Where the new one takes its place, it is kept beside it.
    """
    from fedhk.data.dictionary import DICTIONARY
    from fedhk.federation.remote.site import keep_earlier
    from fedhk.report.run import write_report

    folders = [source] if config.data is None else [config.data, source]
    with replacing(target, folder_mode(config)) as draft:
        summary = write_run(draft, model, sites, config)
        found = next((path for folder in folders if (path := folder / DICTIONARY).is_file()), None)
        if found is not None:
            write_atomically(draft / DICTIONARY, found.read_bytes(), READABLE)
        write_report(draft, title=target.name, data=data)
        if target == source:
            keep_earlier(target)
    return summary | {"drift": list(model.drift_), "updates": list(model.updates_)}
