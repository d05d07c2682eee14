"""`fedhk fit`: from a federation folder to a run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

import fedhk
from fedhk._files import READABLE, replacing, write_atomically
from fedhk.cli import options as o
from fedhk.cli.algorithms import ALGORITHMS, list_tables
from fedhk.cli.config import Config, ConfigError, read_config
from fedhk.cli.console import (
    counted,
    exit_codes,
    format_bytes,
    format_count,
    make_facts_table,
    make_table,
    say,
    say_notes,
    say_progress,
    show,
    to_json,
    write_command,
)
from fedhk.cli.runs import (
    UNDER_WAY,
    absolute,
    check_apart,
    check_free,
    check_same,
    choose_ledger,
    folder_mode,
    is_under_way,
    list_sites,
    under_way,
    write_run,
)
from fedhk.errors import DataError


def fit(  # noqa: PLR0917
    folder: o.Folder = None,
    algorithm: o.Name = None,
    clusters: o.Clusters = None,
    out: o.Out = None,
    config: o.ConfigFile = None,
    force: o.Force = False,
    resume: o.Resume = False,
    evaluate: o.Evaluate = False,
    strict: o.Strict = False,
    id_column: o.IdColumn = None,
    ignore: o.Ignore = None,
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
    ledger: o.LedgerFolder = None,
    secure: o.Secure = None,
    aggregator: o.Aggregator = None,
    paper: o.Paper = None,
    settings: o.Settings = None,
) -> None:
    """Cluster the rows of several sites; write model, labels, history and configuration into a run folder.

    FOLDER has a sub-folder per site and in it a file per view (parquet, feather, csv, tsv, xlsx, npy, npz, h5mu); a
    column `id` aligns rows. A checkpoint is kept while it runs: after an interruption, --resume goes on.

    For example:

        fedhk fit hospitals/ --clusters 6 --out run/

        fedhk fit hospitals/ --clusters 2-8 --out run/

        fedhk fit hospitals/ --clusters 6 --algorithm fedhk-tucker --rank 6,4,2 --out run/

        fedhk fit hospitals/ --clusters 6 --algorithm fedhk-person --evaluate --out run/

        fedhk fit hospitals/ --clusters 6 --secure --epsilon 2 --delta 1e-6 --bounds private --out run/

        fedhk fit hospitals/ --clusters 6 --paper 1 --fuzzifier 1.1 --out run/

        fedhk fit hospitals/ --clusters 6 --out run/ --resume

        fedhk fit --config run/config.toml --out again/
    """
    parameters = {
        "n_clusters": o.parse("clusters", clusters),
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
    given = [name for name, value in parameters.items() if value is not None]
    parameters |= o.parse_settings(settings, given)
    if out is None and config is None:
        raise typer.BadParameter("a run folder to write is needed, or --config.", param_hint="--out")
    target = absolute(out or config.parent)  # type: ignore[union-attr]
    with exit_codes(f"`{write_command('fedhk', 'fit', '--resume', '--out', target)}` goes on."):
        wanted = _read_base(target, config, resume)
        wanted = wanted.updated(
            parameters, data=folder, algorithm=algorithm, seed=seed, id=id_column, ignore=ignore or None
        )
        if paper is not None:
            if algorithm is not None:
                raise typer.BadParameter("says which algorithm it is: leave --algorithm out.", param_hint="--paper")
            wanted = wanted.with_preset(paper)
        wanted = with_public_bounds(with_ledger(wanted, ledger))
        wanted = wanted.with_options("participation", fraction=fraction, min_sites=min_sites)
        if local_passes is not None and wanted.parameters.get("protocol") is None:
            raise typer.BadParameter("goes with --protocol centers or factors.", param_hint="--local-passes")
        wanted = wanted.with_options("protocol", passes=local_passes)
        complete = _complete(wanted)
        summary = _fit_folder(complete, target, force=force, resume=resume, evaluate=evaluate, strict=strict)
    show_summary(summary, target, json)


def _read_base(target: Path, config: Path | None, resume: bool) -> Config:
    """Read what holds where no option is given: --config, and before it the configuration of the run to resume."""
    base = Config() if config is None else read_config(config)
    if not (resume and is_under_way(target)):
        return base
    begun = read_config(target / UNDER_WAY)
    if config is None:
        return begun
    return begun.updated(base.parameters, data=base.data, algorithm=base.algorithm, seed=base.seed)


def with_ledger(config: Config, ledger: Path | None) -> Config:
    """Give a configuration the folder of --ledger, which goes with a privacy budget only."""
    if ledger is None:
        return config
    if config.parameters.get("privacy") is None:
        raise typer.BadParameter("goes with --epsilon and --delta.", param_hint="--ledger")
    return config.with_options("privacy", ledger=str(absolute(ledger)))


def with_public_bounds(config: Config, dictionary: Path | None = None) -> Config:
    """Replace the word for bounds of the data dictionary by its ranges: they are then those of the run for good.

    `dictionary` is its file; None is the one in the folder of the data.
    """
    from fedhk.data.dictionary import DICTIONARY, find_dictionary, read_dictionary

    privacy = config.parameters.get("privacy")
    if not isinstance(privacy, dict) or privacy.get("bounds") != o.DICTIONARY_BOUNDS:
        if dictionary is not None:
            raise typer.BadParameter("goes with --epsilon, --delta and no other --bounds.", param_hint="--dictionary")
        return config
    found = read_dictionary(dictionary) if dictionary is not None else find_dictionary(config.data or Path())
    if found is None:
        raise typer.BadParameter(
            f"needs --bounds too: there is no {DICTIONARY} in {str(config.data or '.')!r} whose ranges could be taken.",
            param_hint="a privacy budget",
        )
    return config.with_options("privacy", bounds=[list(pair) for pair in found.bounds()])


def _complete(config: Config) -> Config:
    """Complete the configuration; refuses one without data or number of clusters."""
    if config.data is None:
        raise typer.BadParameter("a federation folder is needed, or --config.", param_hint="FOLDER")
    if "n_clusters" not in config.parameters:
        raise typer.BadParameter("their number is needed.", param_hint="--clusters")
    return config.updated({}, data=absolute(config.data)).complete()


def _fit_folder(
    config: Config,
    out: Path,
    *,
    force: bool = False,
    resume: bool = False,
    evaluate: bool = False,
    strict: bool = False,
) -> dict[str, Any]:
    """Run a complete configuration and write its run folder; returns the summary."""
    from fedhk.data.dictionary import DICTIONARY
    from fedhk.data.folders import Reading, read_federation
    from fedhk.report.run import write_report
    from fedhk.summary.drawing import require_matplotlib

    require_matplotlib()
    assert config.data is not None  # noqa: S101 - checked before
    if resume and not ALGORITHMS[config.algorithm].federated:
        raise ConfigError(f"Algorithm {config.algorithm!r} has no rounds to resume; run it again.")
    if evaluate and config.parameters.get("privacy") is not None:
        raise ConfigError("--evaluate fits models anew, which spends the privacy budget again; run it without one.")
    check_apart(out, config.data)
    check_free(out, force=force, resume=resume)
    ledger = choose_ledger(config, out)
    if resume:
        check_same(out, config)
    say_progress(f"reading {config.data}")
    federation = read_federation(config.data, Reading(config.id, tuple(config.ignore or ())))
    if strict and federation.doubts:
        raise DataError(f"--strict: {' '.join(federation.doubts)}")
    say_notes(federation.doubts)
    with under_way(out, config, resume=resume) as checkpoint:
        model = _fit_model(config, list_tables(federation), checkpoint, ledger, resume)
        say_notes(_list_remedies(model, config.data))
        if evaluate:
            say_progress("fitting anew without held-out rows, to compare global, own and lone models")
        evaluation = fedhk.evaluate(model.set_params(verbose=0), list_tables(federation)) if evaluate else None
        say_progress("writing models, labels and the page")
        with replacing(out, folder_mode(config)) as draft:
            summary = write_run(draft, model, list_sites(federation), config, evaluation=evaluation)
            if (dictionary := config.data / DICTIONARY).is_file():
                write_atomically(draft / DICTIONARY, dictionary.read_bytes(), READABLE)
            write_report(draft, title=out.name, data=federation)
            return summary


def _list_remedies(model: Any, data: Path) -> list[str]:
    """Say what helps where a site is off: the unit that a data dictionary has for its columns, and how to keep it."""
    from fedhk.data.dictionary import Dictionary, find_dictionary

    known, found = find_dictionary(data) or Dictionary(), getattr(model, "deviations_", ())
    columns = {(one["view"], name): None for one in found for name in one["columns"]}
    units = {f"{view}/{name}": known.unit(view, name) for view, name in columns}
    said = [f"by the data dictionary, {where} is in {unit}." for where, unit in units.items() if unit]
    if any(one["excluded"] for one in found):
        said.append("a site that was left out is kept with --set 'participation={ deviating = \"warn\" }'.")
    return said


def _fit_model(config: Config, sites: dict[str, Any], checkpoint: Path, ledger: Path | None, resume: bool) -> Any:
    algorithm = ALGORITHMS[config.algorithm]
    parameters = config.parameters | {"random_state": config.seed, "verbose": int(sys.stderr.isatty())}
    if ledger is not None:
        parameters["privacy"] = parameters["privacy"] | {"ledger": str(ledger)}
    if algorithm.federated:
        return algorithm.make(parameters | {"checkpoint": checkpoint}).fit(sites, resume=resume)
    if len(sites) > 1:
        raise DataError(
            f"Algorithm {config.algorithm!r} clusters one site and pools nothing, but the folder has {len(sites)} "
            f"sites. Use a federated one ({', '.join(n for n, a in ALGORITHMS.items() if a.federated)}), or a folder "
            "with one."
        )
    (tables,) = sites.values()
    return algorithm.make(parameters).fit(tables)


def show_summary(summary: dict[str, Any], out: Path, json: bool) -> None:
    """Print what a run found: as JSON, or as tables."""
    from fedhk.report.run import REPORT

    if json:
        typer.echo(to_json(summary))
        return
    n_views, left_out = len(summary["views"]), {one["site"] for one in summary.get("deviations", ()) if one["excluded"]}
    rows = [
        (
            name,
            format_count(site["rows"]),
            f"{len(site['views'])} of {n_views}",
            "left out" if name in left_out else format_count(site["clusters_found"]),
        )
        for name, site in summary["sites"].items()
    ]
    columns = ("site", "rows", "views", "clusters found")
    title = f"{summary['algorithm']}, {summary['n_clusters']} clusters"
    show(make_table(title, columns, rows, numbers=columns[1:]))
    show(make_facts_table("run", list_run_facts(summary)))
    if "evaluation" in summary:
        show(_make_evaluation_table(summary["evaluation"]))
    say_notes([f"site {site!r} was refused at least once: {why}" for site, why in summary["refused"].items()])
    say(f"Written to {out}; {out / REPORT} is a page to look at.", err=False)


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
        *[("number of clusters", one["note"]) for one in summary["selection"] if one["taken"]],
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
