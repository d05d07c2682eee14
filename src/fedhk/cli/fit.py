"""`fedhk fit`: from a federation folder to a run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from fedhk._files import replacing
from fedhk.cli import options as o
from fedhk.cli.algorithms import ALGORITHMS, list_tables, run_algorithm
from fedhk.cli.config import Config, ConfigError, Part, read_config
from fedhk.cli.console import (
    counted,
    exit_codes,
    format_bytes,
    format_count,
    make_facts_table,
    make_table,
    output,
    say_notes,
    show_json,
)
from fedhk.cli.runs import (
    UNDER_WAY,
    absolute,
    check_apart,
    check_free,
    is_under_way,
    keep_ledger,
    under_way,
    write_run,
)


def fit(  # noqa: PLR0917
    folder: o.Folder = None,
    algorithm: o.Name = None,
    clusters: o.Clusters = None,
    out: o.Out = None,
    config: o.ConfigFile = None,
    force: o.Force = False,
    resume: o.Resume = False,
    evaluate: o.Evaluate = False,
    json: o.Json = False,
    seed: o.Seed = None,
    protocol: o.Protocol = None,
    local_passes: o.LocalPasses = None,
    rank: o.Rank = None,
    scaling: o.Scaling = None,
    heat_coef: o.HeatCoef = None,
    heat_time: o.HeatTime = None,
    fuzzifier: o.Fuzzifier = None,
    view_weights: o.ViewWeights = None,
    max_rounds: o.MaxRounds = None,
    tol: o.Tol = None,
    n_init: o.NInit = None,
    fraction: o.Fraction = None,
    min_sites: o.MinSites = None,
    personalization: o.Personalization = None,
    epsilon: o.Epsilon = None,
    delta: o.Delta = None,
    bounds: o.Bounds = None,
    secure: o.Secure = None,
    aggregator: o.Aggregator = None,
    settings: o.Settings = None,
) -> None:
    """Cluster the rows of several sites; write model, labels, history and configuration into a run folder.

    FOLDER has a sub-folder per site and in it a file per view (parquet, csv, npy, npz, h5mu); a column `id` aligns
    rows. A checkpoint is kept while it runs: after an interruption, --resume goes on.

    For example:

        fedhk fit hospitals/ --clusters 6 --out run/

        fedhk fit hospitals/ --clusters 6 --algorithm fedhk-tucker --rank 6,4,2 --out run/

        fedhk fit hospitals/ --clusters 6 --algorithm fedhk-person --evaluate --out run/

        fedhk fit hospitals/ --clusters 6 --secure --epsilon 2 --delta 1e-6 --bounds=-4,4 --out run/

        fedhk fit hospitals/ --clusters 6 --out run/ --resume

        fedhk fit --config run/config.toml --out again/
    """
    parameters = {
        "n_clusters": clusters,
        "protocol": protocol,
        "rank": o.parse("rank", rank),
        "scaling": scaling,
        "heat_coef": heat_coef,
        "heat_time": heat_time,
        "fuzzifier": o.parse("fuzzifier", fuzzifier),
        "view_weights": o.parse("view-weights", view_weights),
        "max_rounds": max_rounds,
        "tol": tol,
        "n_init": n_init,
        "personalization": o.parse("personalization", personalization),
        "privacy": o.parse_privacy(epsilon, delta, bounds),
        "secure": secure,
        "aggregator": aggregator,
    }
    parameters = _add_settings(parameters, o.parse_settings(settings or []))
    target = _choose_target(out, config)
    with exit_codes(f"`fedhk fit --resume --out {target}` goes on."):
        wanted = _read_base(target, config, resume)
        wanted = wanted.updated(parameters, data=folder, algorithm=algorithm, seed=seed)
        wanted = _add_parts(wanted, {"fraction": fraction, "min_sites": min_sites}, local_passes)
        summary = fit_folder(_complete_config(wanted), target, force=force, resume=resume, evaluate=evaluate)
    if json:
        show_json(summary)
    else:
        show_summary(output(), summary, target)


def _add_settings(options: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Add what --set gives; nothing may be given by an option of its own too."""
    for name in settings:
        if options.get(name) is not None:
            raise typer.BadParameter(f"{name!r} is given by its own option too.", param_hint="--set")
    return options | settings


def _add_parts(config: Config, participation: dict[str, Any], passes: int | None) -> Config:
    """Put options of their own into the tables that they belong to."""
    chosen = {name: value for name, value in participation.items() if value is not None}
    if chosen:
        config = config.updated({"participation": Part(chosen)})
    if passes is None:
        return config
    if (config.parameters or {}).get("protocol") is None:
        raise typer.BadParameter("goes with --protocol centers or factors.", param_hint="--local-passes")
    return config.updated({"protocol": Part({"passes": passes})})


def _choose_target(out: Path | None, config: Path | None) -> Path:
    """Choose the run folder: --out, or the folder of the configuration."""
    if out is None and config is None:
        raise typer.BadParameter("a run folder to write is needed, or --config.", param_hint="--out")
    return absolute(out if out is not None else config.parent)  # type: ignore[union-attr]


def _read_base(target: Path, config: Path | None, resume: bool) -> Config:
    """Read what holds where no option is given: --config, and before it the configuration of the run to resume."""
    base = Config() if config is None else read_config(config)
    if not (resume and is_under_way(target)):
        return base
    begun = read_config(target / UNDER_WAY)
    if config is None:
        return begun
    return begun.updated(base.parameters or {}, data=base.data, algorithm=base.algorithm, seed=base.seed)


def check_same(begun: Config, now: Config) -> None:
    """Refuse to go on with a run in another way than it was begun, but for how many sites must answer, and when."""
    before, after = (_list_settings(config) for config in (begun, now))
    different = [
        f"{name}={before.get(name)!r} there, {after.get(name)!r} here"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if different:
        raise ConfigError(f"The run to resume has other settings: {'; '.join(different)}. --force starts anew.")


def _list_settings(config: Config) -> dict[str, Any]:
    """List what two configurations of one run must have in common."""
    parameters = dict(config.parameters or {})
    participation = parameters.pop("participation", None) or {}
    fraction = participation.get("fraction", 1.0)
    return {"algorithm": config.algorithm, "seed": config.seed, "fraction": fraction} | parameters


def _complete_config(config: Config) -> Config:
    """Complete the configuration; refuses one without data or number of clusters."""
    if config.data is None:
        raise typer.BadParameter("a federation folder is needed, or --config.", param_hint="FOLDER")
    if "n_clusters" not in (config.parameters or {}):
        raise typer.BadParameter("their number is needed.", param_hint="--clusters")
    return config.updated({}, data=absolute(config.data)).complete()


def fit_folder(
    config: Config, out: Path, *, force: bool = False, resume: bool = False, evaluate: bool = False
) -> dict[str, Any]:
    """Run a configuration and write its run folder; returns the summary."""
    from fedhk.data.folders import read_federation
    from fedhk.evaluation import evaluate as measure_models
    from fedhk.report.run import write_report

    assert config.data is not None  # noqa: S101 - checked before
    assert config.seed is not None  # noqa: S101 - a complete configuration has one
    parameters = config.parameters or {}
    if resume and not ALGORITHMS[config.algorithm].federated:
        raise ConfigError(f"Algorithm {config.algorithm!r} has no rounds to resume; run it again.")
    if evaluate and parameters.get("privacy") is not None:
        raise ConfigError("--evaluate fits models anew, which spends the privacy budget again; run it without one.")
    check_apart(out, config.data)
    check_free(out, force=force, resume=resume)
    if resume and is_under_way(out):
        check_same(read_config(out / UNDER_WAY), config)
    federation = read_federation(config.data)
    say_notes(federation.doubts)
    with under_way(out, config, resume=resume) as checkpoint:
        outcome = run_algorithm(
            config.algorithm,
            federation,
            parameters,
            seed=config.seed,
            checkpoint=checkpoint,
            resume=resume,
            verbose=sys.stderr.isatty(),
        )
        evaluation = measure_models(outcome.model, list_tables(federation)) if evaluate else None
        with replacing(out) as draft:
            keep_ledger(checkpoint, draft)
            summary = write_run(draft, outcome, config, evaluation=evaluation)
            write_report(draft, title=out.name, data=federation)
            return summary


def show_summary(console: Console, summary: dict[str, Any], out: Path) -> None:
    """Print the tables of a run."""
    from fedhk.report.run import REPORT

    n_views = len(summary["views"])
    rows = [
        (name, format_count(site["rows"]), f"{len(site['views'])} of {n_views}", format_count(site["clusters_found"]))
        for name, site in summary["sites"].items()
    ]
    columns = ("site", "rows", "views", "clusters found")
    console.print(
        make_table(f"{summary['algorithm']}, {summary['n_clusters']} clusters", columns, rows, numbers=columns[1:])
    )
    console.print(make_facts_table("run", list_run_facts(summary)))
    if "evaluation" in summary:
        console.print(_make_evaluation_table(summary["evaluation"]))
    say_notes([f"site {site!r} was refused at least once: {why}" for site, why in summary["refused"].items()])
    console.print(f"Written to {out}; {out / REPORT} is a page to look at.", markup=False, soft_wrap=True)


def _make_evaluation_table(means: list[dict[str, Any]]) -> Table:
    """Show global, personal and alone models on held-out rows: means over sites."""
    measures = [name for name in ("objective", "silhouette", "ari", "nmi", "acc") if any(name in m for m in means)]
    columns = ("model", "sites", *measures)
    rows = [(m["model"], m["sites"], *(f"{m[name]:.4f}" if name in m else "" for name in measures)) for m in means]
    return make_table("held-out rows, means over sites", columns, rows, numbers=columns[1:])


def list_run_facts(summary: dict[str, Any]) -> list[tuple[str, Any]]:
    """List the facts of a run, for a table."""
    weights = ", ".join(f"{view['name']} {view['weight']:.3f}" for view in summary["views"])
    spent = summary.get("privacy_spent")
    return [
        ("rows", f"{format_count(summary['rows'])} at {counted(len(summary['sites']), 'site')}"),
        ("view weights", weights),
        *list_rank_facts(summary),
        ("objective", f"{summary['objective']:.6g}"),
        ("rounds", f"{summary['rounds']}, {summary['seconds']:.2f} s"),
        ("bytes", f"{format_bytes(summary['bytes_up'])} up, {format_bytes(summary['bytes_down'])} down"),
        ("privacy spent", None if spent is None else f"epsilon {spent[0]:.4g} at delta {spent[1]:g}"),
        ("stop reason", summary["stop_reason"]),
        ("seed", summary["seed"]),
    ]


def list_rank_facts(found: dict[str, Any]) -> list[tuple[str, Any]]:
    """List rank and loss of tensor centres, for a table; nothing where centres have no such form."""
    if found.get("rank") is None:
        return []
    return [
        ("rank", " x ".join(map(str, found["rank"]))),
        ("reconstruction error", f"{found['reconstruction_error']:.3g}"),
    ]
