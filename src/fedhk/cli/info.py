"""`fedhk info`: what a model file, a run folder or a data folder is."""

from __future__ import annotations

import json as json_format
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fedhk
from fedhk._files import write_atomically
from fedhk._names import suggest_path
from fedhk.cli import options as o
from fedhk.cli.algorithms import list_tables
from fedhk.cli.config import read_config
from fedhk.cli.console import (
    check_new,
    counted,
    exit_codes,
    format_count,
    make_facts_table,
    make_table,
    say,
    show,
    to_json,
    write_command,
)
from fedhk.cli.fit import list_rank_facts, list_run_facts
from fedhk.cli.predict import site_folders
from fedhk.cli.runs import CHECKPOINT, MODEL, SUMMARY, UNDER_WAY, describe_model, describe_view, is_run, is_under_way
from fedhk.errors import DataError

if TYPE_CHECKING:
    from fedhk.data.folders import Federation, SiteData

AnyPath = Annotated[Path, typer.Argument(help="A model file, a run folder, a federation folder or a site's folder.")]


# Longer tables of columns are for a page; a terminal shows what is marked.
MOST_SHOWN = 400

Columns = Annotated[bool, typer.Option("--columns", help="Show each column at each site; deviating ones are marked.")]
Page = Annotated[Path | None, typer.Option("--html", help="Write the columns into this HTML file.", dir_okay=False)]


def info(  # noqa: PLR0917
    path: AnyPath,
    columns: Columns = False,
    html: Page = None,
    id_column: o.IdColumn = None,
    ignore: o.Ignore = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Say what a model file, a run folder or a federation folder is.

    PATH is any of these, or the folder of one site. A model is read, and data are checked as `fit` checks them. With
    --columns, median, range, share of missing cells and levels of every column are shown for each site.

    For example:

        fedhk info hospitals/

        fedhk info hospitals/ --columns --html columns.html

        fedhk info run/

        fedhk info run/model.safetensors --json
    """
    with exit_codes():
        _check_path(path)
        if not is_run(path) and not is_under_way(path) and (path / MODEL).is_file():
            path /= MODEL  # what a site got of a run
        kind = "model" if path.is_file() else "run" if is_run(path) else "federation"
        if is_under_way(path):
            kind = "unfinished run"
        if (columns or html is not None) and kind != "federation":
            raise typer.BadParameter(f"is for folders of data; {str(path)!r} is a {kind}.", param_hint="--columns")
        check_new(html, force=force)
        if (id_column or ignore) and kind != "federation":
            raise typer.BadParameter(f"is for folders of data; {str(path)!r} is a {kind}.", param_hint="--id, --ignore")
        describe, show_kind = KINDS[kind]
        found: dict[str, Any] = {"kind": kind, "path": str(path)}
        if kind == "federation":
            federation = read_data(path, id_column, ignore)
            found |= _describe_data(path, federation)
            if columns or html is not None:
                found["columns"] = _describe_columns(path, federation, found["doubts"], html)
        else:
            found |= describe(path)
        if json:
            typer.echo(to_json(found))
        else:
            show_kind(found)
            if columns:
                _show_columns(found["columns"])


def _check_path(path: Path) -> None:
    """Refuse what is not there, and a file with data."""
    from fedhk.data.one_file import advise_split

    if not path.exists():
        raise DataError(f"{str(path)!r} does not exist.{suggest_path(path)}")
    if path.is_file() and (advice := advise_split(path)):
        raise DataError(f"{str(path)!r} is a file with data. {advice}")


def _describe_model(path: Path) -> dict[str, Any]:
    from fedhk.estimators.persistence import VERSION

    model = fedhk.load(path)
    return {
        "estimator": type(model).__name__,
        "format_version": VERSION,
        **describe_model(model),
        "objective": float(model.objective_),
        "rounds": getattr(model, "n_iter_", None),
        "stop_reason": getattr(model, "stop_reason_", None),
    }


def _show_model(found: dict[str, Any]) -> None:
    facts = [
        ("estimator", found["estimator"]),
        ("clusters", found["n_clusters"]),
        *list_rank_facts(found),
        ("objective", None if math.isnan(found["objective"]) else f"{found['objective']:.6g}"),
        ("rounds", found["rounds"]),
        ("stop reason", found["stop_reason"]),
        ("format version", found["format_version"]),
    ]
    show(make_facts_table(f"model {found['path']}", facts))
    _show_views(found)


def _read_summary(path: Path) -> dict[str, Any]:
    file = path / SUMMARY
    try:
        summary: dict[str, Any] = json_format.loads(file.read_text("utf-8"))
        list_run_facts(summary)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{str(file)!r} is damaged: {error}") from error
    return summary


def _show_run(found: dict[str, Any]) -> None:
    about = [("algorithm", found["algorithm"]), ("clusters", found["n_clusters"]), ("data", found["data"])]
    show(make_facts_table(f"run {found['path']}", [*about, *list_run_facts(found), ("fedhk", found["fedhk"])]))
    _show_views(found)
    rows = [
        (name, format_count(site["rows"]), ", ".join(site["views"]), format_count(site["clusters_found"]))
        for name, site in found["sites"].items()
    ]
    columns = ("site", "rows", "views", "clusters found")
    show(make_table("sites", columns, rows, numbers=("rows", "clusters found")))
    for record in found.get("deviations", []):
        typer.echo(f"Note: {record['text']}")


def _describe_unfinished(path: Path) -> dict[str, Any]:
    from fedhk.federation.checkpoint import peek

    config = read_config(path / UNDER_WAY)
    reached = peek(path / CHECKPOINT)
    history = [] if reached is None else reached[0].history
    return {
        "algorithm": config.algorithm,
        "data": None if config.data is None else str(config.data),
        "seed": config.seed,
        "parameters": config.parameters,
        "rounds": len(history),
        "objective": history[-1]["objective"] if history else None,
    }


def _show_unfinished(found: dict[str, Any]) -> None:
    objective = None if found["objective"] is None else f"{found['objective']:.6g}"
    facts = [(name, found[name]) for name in ("algorithm", "data", "seed", "rounds")]
    show(make_facts_table(f"unfinished run {found['path']}", [*facts, ("objective", objective)]))
    command = ["fedhk", "fit"] if found["data"] is not None else ["fedhk", "flower", "run", "APP"]
    say(f"`{write_command(*command, '--resume', '--out', found['path'])}` goes on.", err=False)


def _describe_columns(path: Path, federation: Federation, doubts: list[str], html: Path | None) -> list[dict[str, Any]]:
    """Describe each column at each site, and write it into a page where one is wanted."""
    from fedhk.data.columns import summarise_columns
    from fedhk.data.dictionary import Dictionary, find_dictionary
    from fedhk.report.columns import columns_page

    found = summarise_columns(federation)
    known = find_dictionary(path, path.parent) or Dictionary()
    if html is not None:
        page = columns_page(f"Columns of {path.resolve().name}", found, doubts, known)
        write_atomically(html, page.encode())
        say(f"Written to {html}")
    return [vars(one) | {"unit": known.unit(one.view, one.column)} for one in found]


def _show_columns(columns: list[dict[str, Any]]) -> None:
    from fedhk.data.columns import ColumnAtSite
    from fedhk.report.columns import HEAD, column_row

    found = [(ColumnAtSite(**{k: v for k, v in one.items() if k != "unit"}), one["unit"]) for one in columns]
    for view in dict.fromkeys(one.view for one, _ in found):
        own = [(one, unit) for one, unit in found if one.view == view]
        if len(own) > MOST_SHOWN:
            marked = {one.column for one, _ in own if one.remark}
            say(f"View {view!r} has many columns: those that are marked are shown, --html FILE has all.", err=False)
            own = [(one, unit) for one, unit in own if one.column in marked][:MOST_SHOWN]
        rows, before = [], ""
        for one, unit in own:
            *texts, remark = column_row(one, unit)
            rows.append(("" if one.column == before else one.column, *texts, f"! {remark}" if remark else ""))
            before = one.column
        if rows:
            show(make_table(f"view {view}", HEAD, rows, numbers=HEAD[3:6], most=len(rows)))


def read_data(path: Path, id_column: str | None = None, ignore: Sequence[str] | None = None) -> Federation:
    """Read a federation folder, or the folder of one site as a federation of one."""
    from fedhk.data.folders import Federation, Reading, read_federation, read_site

    reading = Reading(id_column, tuple(ignore or ()))
    if site_folders(path, reading.ignore) == [path] and any(path.iterdir()):
        site = read_site(path, reading=reading)
        return Federation({site.name: site}, site.columns)
    return read_federation(path, reading)


def _describe_data(path: Path, federation: Federation) -> dict[str, Any]:
    from fedhk.data.clients import check_clients
    from fedhk.data.deviations import compare_sites, describe_deviations
    from fedhk.data.dictionary import Dictionary, find_dictionary

    off = compare_sites(check_clients(list_tables(federation)))
    units = find_dictionary(path, path.parent) or Dictionary()
    sites = federation.sites.values()
    shapes = {view: rows.shape for site in sites for view, rows in site.views.items() if rows is not None}
    return {
        "views": [
            describe_view(view, math.prod(shapes[view][1:]), columns) for view, columns in federation.columns.items()
        ],
        "sites": {name: _describe_site(site) for name, site in federation.sites.items()},
        "rows": sum(site.n_rows for site in sites),
        "doubts": [*federation.doubts, *describe_deviations(off, units.unit)],
    }


def _describe_site(site: SiteData) -> dict[str, Any]:
    import numpy as np

    from fedhk.data.levels import first_places

    views = {view: values for view, values in site.views.items() if values is not None}
    missing = sum(
        int(np.isnan(values)[:, first_places(site.columns[view], values.shape[1])].sum())
        for view, values in views.items()
    )
    return {"rows": site.n_rows, "views": list(views), "missing_cells": missing, "ids": site.ids is not None}


def _show_data(found: dict[str, Any]) -> None:
    n_sites, n_views = counted(len(found["sites"]), "site"), counted(len(found["views"]), "view")
    say(f"{counted(found['rows'], 'row')} at {n_sites}, {n_views}", err=False)
    _show_views(found)
    rows = [
        (n, f"{s['rows']:,}", ", ".join(s["views"]), f"{s['missing_cells']:,}", "yes" if s["ids"] else "no")
        for n, s in found["sites"].items()
    ]
    columns = ("site", "rows", "views", "missing cells", "ids")
    show(make_table("sites", columns, rows, numbers=("rows", "missing cells")))
    for doubt in found["doubts"]:
        say(f"Note: {doubt}", err=False)


def _show_views(found: dict[str, Any]) -> None:
    shown = ["weight"] if any("weight" in view for view in found["views"]) else []
    columns = ("view", "columns", *shown)
    rows = [
        (view["name"], view.get("columns", view["width"]), *(f"{view[name]:.3f}" for name in shown))
        for view in found["views"]
    ]
    show(make_table("views", columns, rows, numbers=columns[1:]))


# What a path can be: how it is described, and how that is shown.
KINDS: dict[str, tuple[Callable[..., dict[str, Any]], Callable[[dict[str, Any]], None]]] = {
    "model": (_describe_model, _show_model),
    "run": (_read_summary, _show_run),
    "unfinished run": (_describe_unfinished, _show_unfinished),
    "federation": (_describe_data, _show_data),
}
