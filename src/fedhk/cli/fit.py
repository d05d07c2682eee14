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
from fedhk.cli.algorithms import ALGORITHMS, evaluate_algorithm, run_algorithm
from fedhk.cli.config import Config, ConfigError, Part, read_config
from fedhk.cli.console import add_rows, counted, exit_codes, facts_table, make_table, output, say, show_json, size, told
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
    given = {
        "n_clusters": clusters,
        "protocol": protocol,
        "rank": o.parse_rank(rank),
        "scaling": scaling,
        "heat_coef": heat_coef,
        "heat_time": heat_time,
        "fuzzifier": o.parse_fuzzifier(fuzzifier),
        "view_weights": o.parse_view_weights(view_weights),
        "max_rounds": max_rounds,
        "tol": tol,
        "n_init": n_init,
        "personalization": o.parse_personalization(personalization),
        "privacy": o.parse_privacy(epsilon, delta, bounds),
        "secure": secure,
        "aggregator": aggregator,
    }
    given = _joined(given, o.parse_settings(settings or []))
    parts = {
        "participation": _part({"fraction": fraction, "min_sites": min_sites}),
        "protocol": _part({"passes": local_passes}, name=protocol or "centers"),
    }
    target = _target(out, config)
    with exit_codes(f"`fedhk fit --resume --out {target}` goes on."):
        wanted = _base(target, config, resume).updated(given, data=folder, algorithm=algorithm, seed=seed)
        wanted = wanted.updated(parts)
        summary = fit_folder(_checked(wanted), target, force=force, resume=resume, evaluated=evaluate)
    if json:
        show_json(summary)
    else:
        show_summary(output(), summary, target)


def _part(given: dict[str, Any], name: str = "") -> Part | None:
    """Options of one parameter, where any of them was given."""
    known = {option: value for option, value in given.items() if value is not None}
    return Part(known, name) if known else None


def _joined(options: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """What was given by options of their own and by --set; nothing may be given by both."""
    for name in settings:
        if options.get(name) is not None:
            raise typer.BadParameter(f"{name!r} is given by its own option too.", param_hint="--set")
    return options | settings


def _target(out: Path | None, config: Path | None) -> Path:
    """The run folder: --out, or the folder of the configuration."""
    if out is None and config is None:
        raise typer.BadParameter("a run folder to write is needed, or --config.", param_hint="--out")
    return absolute(out if out is not None else config.parent)  # type: ignore[union-attr]


def _base(target: Path, config: Path | None, resume: bool) -> Config:
    """What holds where no option is given: the configuration, or that of the run to go on with."""
    given = Config() if config is None else read_config(config)
    if not (resume and is_under_way(target)):
        return given
    begun = read_config(target / UNDER_WAY)
    if config is None:
        return begun
    return begun.updated(given.parameters or {}, data=given.data, algorithm=given.algorithm, seed=given.seed)


def check_same(begun: Config, now: Config) -> None:
    """Refuse to go on with a run in another way than it was begun, but for how many sites must answer, and when."""
    before, after = (_compared(config) for config in (begun, now))
    different = [
        f"{name}={before.get(name)!r} there, {after.get(name)!r} here"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if different:
        raise ConfigError(f"The run to resume has other settings: {'; '.join(different)}. --force starts anew.")


def _compared(config: Config) -> dict[str, Any]:
    """What two configurations of one run must have in common."""
    parameters = dict(config.parameters or {})
    asked = dict(parameters.pop("participation", None) or {})
    return {"algorithm": config.algorithm, "seed": config.seed, "fraction": asked.get("fraction", 1.0)} | parameters


def _checked(config: Config) -> Config:
    """The configuration, complete; refuses one without data or number of clusters."""
    if config.data is None:
        raise typer.BadParameter("a federation folder is needed, or --config.", param_hint="FOLDER")
    if "n_clusters" not in (config.parameters or {}):
        raise typer.BadParameter("their number is needed.", param_hint="--clusters")
    return config.updated({}, data=absolute(config.data)).complete()


def fit_folder(
    config: Config, out: Path, *, force: bool = False, resume: bool = False, evaluated: bool = False
) -> dict[str, Any]:
    """Run a configuration and write its run folder; returns the summary."""
    from fedhk.data.folders import read_federation
    from fedhk.report import write_report

    assert config.data is not None  # noqa: S101 - checked before
    assert config.seed is not None  # noqa: S101 - a complete configuration has one
    federated = ALGORITHMS[config.algorithm].federated
    if resume and not federated:
        raise ConfigError(f"Algorithm {config.algorithm!r} has no rounds to resume; run it again.")
    if evaluated and (config.parameters or {}).get("privacy") is not None:
        raise ConfigError("--evaluate fits models anew, which spends the privacy budget again; run it without one.")
    check_apart(out, config.data)
    check_free(out, force=force, resume=resume)
    if resume and is_under_way(out):
        check_same(read_config(out / UNDER_WAY), config)
    federation = read_federation(config.data)
    for doubt in federation.doubts:
        say(f"Note: {doubt}")
    with under_way(out, config, resume=resume) as checkpoint:
        outcome = run_algorithm(
            config.algorithm,
            federation,
            config.parameters or {},
            seed=config.seed,
            checkpoint=checkpoint,
            resume=resume,
            verbose=sys.stderr.isatty(),
        )
        evaluation = evaluate_algorithm(outcome, federation) if evaluated else None
        with replacing(out) as draft:
            keep_ledger(checkpoint, draft)
            summary = write_run(draft, outcome, config, evaluation=evaluation)
            write_report(draft, title=out.name, data=federation)
            return summary


def show_summary(console: Console, summary: dict[str, Any], out: Path) -> None:
    """The tables that `fit` prints."""
    from fedhk.report import REPORT

    n_views = len(summary["views"])
    rows = [
        (name, told(site["rows"]), f"{len(site['views'])} of {n_views}", told(site["clusters_found"]))
        for name, site in summary["sites"].items()
    ]
    columns = ("site", "rows", "views", "clusters found")
    title = f"{summary['algorithm']}, {summary['n_clusters']} clusters"
    console.print(add_rows(make_table(title, *columns, numbers=columns[1:]), rows))
    console.print(facts_table("run", run_facts(summary)))
    if "evaluation" in summary:
        console.print(evaluation_table(summary["evaluation"]))
    for site, why in summary["refused"].items():
        say(f"Note: site {site!r} was refused at least once: {why}")
    console.print(f"Written to {out}; {out / REPORT} is a page to look at.", markup=False, soft_wrap=True)


def evaluation_table(means: list[dict[str, Any]]) -> Table:
    """Global, personal and alone models on held-out rows: means over sites."""
    measures = [name for name in ("objective", "silhouette", "ari", "nmi", "acc") if any(name in m for m in means)]
    columns = ("model", "sites", *measures)
    rows = [(m["model"], m["sites"], *(f"{m[name]:.4f}" if name in m else "" for name in measures)) for m in means]
    return add_rows(make_table("held-out rows, means over sites", *columns, numbers=columns[1:]), rows)


def run_facts(summary: dict[str, Any]) -> list[tuple[str, Any]]:
    """The facts of a run, for a table."""
    weights = ", ".join(f"{view['name']} {view['weight']:.3f}" for view in summary["views"])
    return [
        ("rows", f"{told(summary['rows'])} at {counted(len(summary['sites']), 'site')}"),
        ("view weights", weights),
        *form_facts(summary),
        ("objective", f"{summary['objective']:.6g}"),
        ("rounds", f"{summary['rounds']}, {summary['seconds']:.2f} s"),
        ("bytes", f"{size(summary['bytes_up'])} up, {size(summary['bytes_down'])} down"),
        *privacy_facts(summary),
        ("stop reason", summary["stop_reason"]),
        ("seed", summary["seed"]),
    ]


def privacy_facts(summary: dict[str, Any]) -> list[tuple[str, Any]]:
    """What was spent, for a table; nothing where no noise was added."""
    if summary.get("privacy_spent") is None:
        return []
    epsilon, delta = summary["privacy_spent"]
    return [("privacy spent", f"epsilon {epsilon:.4g} at delta {delta:g}")]


def form_facts(found: dict[str, Any]) -> list[tuple[str, Any]]:
    """Rank and loss of tensor centres, for a table; nothing where centres have no such form."""
    if found.get("rank") is None:
        return []
    return [
        ("rank", " x ".join(map(str, found["rank"]))),
        ("reconstruction error", f"{found['reconstruction_error']:.3g}"),
    ]
