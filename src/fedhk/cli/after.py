"""`fedhk after`: questions to the sites of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhk.cli import options as o
from fedhk.cli.console import check_new, exit_codes, say, to_json

if TYPE_CHECKING:
    from fedhk.after.placement import Limit
    from fedhk.after.tables import PrintedTable
    from fedhk.report.after import FinishedRun

OtherRun = Annotated[Path, typer.Argument(help="Another run folder, or a model file.")]
AlsoFolder = Annotated[
    Path | None,
    typer.Option("--also", help="Federation folder with other tables of the same rows, which clustering did not see."),
]
TableOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="File to write: .csv, .tex or .html. By default nothing is written.")
]
Time = Annotated[str | None, typer.Option("--time", metavar="COLUMN", help="Column of --also: time until the event.")]
Event = Annotated[str | None, typer.Option("--event", metavar="COLUMN", help="Column of --also: 1 if it happened, 0.")]
Value = Annotated[str | None, typer.Option("--value", metavar="COLUMN", help="Column of --also: a number, instead.")]
NewRows = Annotated[Path, typer.Argument(help="Folder of new rows: of one site, or with a folder for each site.")]
Rare = Annotated[float, typer.Option("--rare", help="Share of sound rows that may be called too far by mistake.")]
Halves = Annotated[int, typer.Option("--halves", help="How many halves of the rows are clustered anew.")]


def profile(  # noqa: PLR0917
    run: o.RunFolder,
    data: o.RowsFolder = None,
    also: AlsoFolder = None,
    id_column: o.IdOfRun = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Say what the clusters are: every column by cluster, with effect sizes and tests ("Table 1").

    Tests of the tables of --also are honest; those of the columns that made the clusters are circular.

    For example:

        fedhk after profile run/ --also follow-up/ --out table-1.tex
    """
    with exit_codes():
        from fedhk.after.profile import profile as find

        opened = _open(run, data, also, id_column, out, force)
        found = find(opened.model, opened.sites, secure=opened.secure)
        tell_table(found.table(), out, json, found.facts())


def stability(  # noqa: PLR0917
    run: o.RunFolder,
    data: o.RowsFolder = None,
    halves: Halves = 50,
    id_column: o.IdOfRun = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Say how sure the clusters are: whether halves of the rows find them, and models without single sites.

    For example:

        fedhk after stability run/ --halves 20
    """
    with exit_codes():
        from fedhk.after.stability import stability as find

        opened = _open(run, data, None, id_column, out, force)
        found = find(opened.model, opened.sites, n_resamples=halves, secure=opened.secure)
        tell_table(found.table(), out, json, found.facts())


def outcomes(  # noqa: PLR0917
    run: o.RunFolder,
    also: AlsoFolder = None,
    time: Time = None,
    event: Event = None,
    value: Value = None,
    data: o.RowsFolder = None,
    id_column: o.IdOfRun = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Say what becomes of the clusters: survival (--time and --event), an event alone, or a number (--value).

    For example:

        fedhk after outcomes run/ --also follow-up/ --time days --event died
    """
    with exit_codes():
        opened = _open(run, data, also, id_column, out, force)
        found = ask_outcomes(opened, time, event, value)
        tell_table(found.table(), out, json, found.facts())


def compare(  # noqa: PLR0917
    run: o.RunFolder,
    other: OtherRun,
    data: o.RowsFolder = None,
    id_column: o.IdOfRun = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Compare the clusters of two runs on the rows of the first: matched clusters, counts, and how far they agree.

    For example:

        fedhk after compare this-year/ last-year/
    """
    with exit_codes():
        import fedhk
        from fedhk.after.comparison import compare as find
        from fedhk.cli.predict import model_file

        opened = _open(run, data, None, id_column, out, force)
        found = find(opened.model, fedhk.load(model_file(other)), opened.sites, secure=opened.secure)
        tell_table(found.table(), out, json, found.facts())


def place(  # noqa: PLR0917
    run: o.RunFolder,
    new: NewRows,
    rare: Rare = 0.001,
    data: o.RowsFolder = None,
    id_column: o.IdOfRun = None,
    out: TableOut = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Say where new rows go, which columns say so, and which rows are too far from all clusters.

    A folder with the name of a site is placed by the site's own model, where it has one.

    For example:

        fedhk after place run/ new-patients/oslo --out placed.csv
    """
    with exit_codes():
        from fedhk.after.placement import find_limit

        opened = _open(run, data, None, id_column, out, force)
        limit = find_limit(opened.model, opened.sites, rare=rare, secure=opened.secure)
        table, outliers = _place_folder(opened.model, run, new, limit, id_column)
        tell_table(table, out, json, {"outliers": outliers})


def _place_folder(model: Any, run: Path, new: Path, limit: Limit, id_column: str | None) -> tuple[PrintedTable, int]:
    """Place the rows of one or several sites; return the table, and how many are too far from all clusters."""
    from fedhk.after.placement import place as find
    from fedhk.cli.predict import site_folders
    from fedhk.cli.runs import reading_of
    from fedhk.data.folders import read_site
    from fedhk.data.named import named_views

    reading = reading_of(run, id_column)
    rows: list[Sequence[str]] = []
    outliers, folders = 0, site_folders(new, reading.ignore)
    for folder in folders:
        site = read_site(folder, model.view_columns_, reading)
        own = site.name if site.name in model.client_models_ else None
        found = find(model, named_views(site), site=own, limit=limit)
        ids = map(str, range(site.n_rows) if site.ids is None else site.ids.tolist())
        table = found.table([name if len(folders) == 1 else f"{site.name}: {name}" for name in ids])
        rows += table.rows
        outliers += int(found.outlier.sum())
    return replace(table, rows=rows), outliers


def ask_outcomes(opened: FinishedRun, time: str | None, event: str | None, value: str | None) -> Any:
    """Ask for the outcome that columns of the further tables name."""
    from fedhk.after.outcomes import outcomes as find
    from fedhk.data.outcomes import refuse_seen

    given = {"time": time, "event": event, "value": value}
    for name, column in given.items():
        if column is not None:
            refuse_seen(name, column, opened.model.view_columns_)
    columns: dict[str, Any] = {name: opened.column(column) for name, column in given.items() if column is not None}
    found: Any = find(opened.model, opened.sites, **columns, secure=opened.secure)
    if time is not None and event is not None:
        return replace(found, time_name=time, event_name=event)
    return replace(found, name=event or value)


def _open(  # noqa: PLR0917
    run: Path, data: Path | None, also: Path | None, id_column: str | None, out: Path | None, force: bool
) -> FinishedRun:
    from fedhk.report.run import open_finished

    check_new(out, force=force)
    return open_finished(run, data, also, id_column)


def tell_table(table: PrintedTable, out: Path | None, json: bool, facts: dict[str, Any]) -> None:
    """Write a table and show it, or say it as JSON."""
    if out is not None:
        table.save(out)
    if json:
        lines = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        written = None if out is None else str(out)
        typer.echo(to_json({"table": lines, "notes": list(table.notes), "out": written} | facts))
        return
    say(str(table), err=False)
    if out is not None:
        say(f"Written to {out}", err=False)
