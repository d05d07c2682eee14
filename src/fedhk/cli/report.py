"""`fedhk report`: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedhk.cli import options as o
from fedhk.cli.console import OutputExistsError, exit_codes, format_bytes, to_json

RunFolder = Annotated[Path, typer.Argument(help="A run folder, as fit and demo write it.")]
PageOut = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="File to write; by default report.html in the run, report-SITE.html for a site."),
]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Federation folder with the rows, if it is not where the run says.")
]
SiteName = Annotated[
    str | None, typer.Option("--site", metavar="NAME", help="Make the page of this site, with its rows.")
]


def report(  # noqa: PLR0917
    run: RunFolder,
    out: PageOut = None,
    site: SiteName = None,
    data: DataFolder = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Write the page of a run: one HTML file that needs no network.

    It says what was found, how sure, and what it cost, and shows clusters, maps of views, sites and rounds. Rows are
    read from the data folder of the run, if it is still there. If noise or secure sums were used the page keeps to what
    the sites released; each site makes its own by --site.

    For example:

        fedhk report run/

        fedhk report run/ --site oslo --out oslo.html
    """
    with exit_codes():
        from fedhk.report.run import write_report

        if out is not None and out.exists() and (not force or out.is_dir()):
            hint = "it is a folder" if out.is_dir() else "--force replaces it"
            raise OutputExistsError(f"{str(out)!r} exists already; {hint}.")
        target = write_report(run, out, site=site, data=data)
        length = target.stat().st_size
    found = {"run": str(run), "site": site, "out": str(target), "bytes": length}
    typer.echo(to_json(found) if json else f"Written to {target} ({format_bytes(length)})")
