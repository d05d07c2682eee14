"""`fedhk report`: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhk.cli import options as o
from fedhk.cli.after import AlsoFolder, Event, Time, Value, ask_outcomes
from fedhk.cli.console import check_new, exit_codes, format_bytes, to_json

if TYPE_CHECKING:
    from fedhk.report.after import FinishedRun

# Halves of the rows that are clustered anew for a page.
PAGE_HALVES = 20

PageOut = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="File to write; by default report.html in the run, report-SITE.html for a site."),
]
SiteName = Annotated[
    str | None, typer.Option("--site", metavar="NAME", help="Make the page of this site, with its rows.")
]
After = Annotated[bool, typer.Option("--after", help="Ask the sites how sure clusters are, and what they are.")]

OwnResults = Annotated[
    Path | None,
    typer.Option("--own", help="With --site: where the site has its model and labels of a run over a network."),
]


def report(  # noqa: PLR0917
    run: o.RunFolder,
    out: PageOut = None,
    site: SiteName = None,
    data: o.RowsFolder = None,
    own: OwnResults = None,
    after: After = False,
    also: AlsoFolder = None,
    time: Time = None,
    event: Event = None,
    value: Value = None,
    id_column: o.IdOfRun = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Write the page of a run: one HTML file that needs no network.

    It says what was found, how sure, and what it cost, and shows clusters, maps of views, sites and rounds. Rows are
    read from the data folder of the run, if it is still there. If noise or secure sums were used the page keeps to what
    the sites released; each site makes its own by --site. With --after the page also says how far clusters can be
    trusted, what is special about each and, with --also, what becomes of them.

    For example:

        fedhk report run/

        fedhk report run/ --site oslo --out oslo.html

        fedhk report run/ --site oslo --own state/oslo/run --data data/oslo --out oslo.html

        fedhk report run/ --after --also follow-up/ --time days --event died
    """
    with exit_codes():
        from fedhk.report.run import open_finished, write_report

        check_new(out, force=force)
        named = {"--also": also, "--time": time, "--event": event, "--value": value, "--id": id_column}
        if useless := [name for name, given in named.items() if given is not None and not after]:
            raise typer.BadParameter(f"{useless[0]} has no effect without --after.")
        if own is not None and site is None:
            raise typer.BadParameter("has no effect without --site.", param_hint="--own")
        if after and site is not None:
            raise typer.BadParameter("--after asks all sites: it does not go with --site.")
        found = _ask(open_finished(run, data, also, id_column), time, event, value) if after else []
        target = write_report(run, out, site=site, data=data, own=own, found=found)
        length = target.stat().st_size
    written = {"run": str(run), "site": site, "out": str(target), "bytes": length}
    typer.echo(to_json(written) if json else f"Written to {target} ({format_bytes(length)})")


def _ask(opened: FinishedRun, time: str | None, event: str | None, value: str | None) -> list[Any]:
    """Ask for what the page shows besides the run: stability, profile and outcomes."""
    from fedhk.after.profile import profile
    from fedhk.after.stability import stability

    found: list[Any] = [
        stability(opened.model, opened.sites, n_resamples=PAGE_HALVES, secure=opened.secure),
        profile(opened.model, opened.sites, secure=opened.secure),
    ]
    if (time, event, value) != (None, None, None):
        found.append(ask_outcomes(opened, time, event, value))
    return found
