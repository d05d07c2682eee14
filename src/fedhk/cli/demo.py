"""`fedhk demo`: six sites that differ, clustered together without pooling, beside what pooling would give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedhk._files import replacing
from fedhk.cli import options as o
from fedhk.cli.config import Config
from fedhk.cli.console import add_rows, counted, exit_codes, make_table, output, say, show_json, size
from fedhk.cli.runs import absolute, check_free, write_run

DATA = "data"

DemoOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="Also write the run, and the sites' data in its folder data/.")
]
DemoSeed = Annotated[int, typer.Option("--seed", min=0, max=2**31, help="Seed of the first run.")]
Runs = Annotated[int, typer.Option("--runs", min=1, help="Runs with different seeds, of which means are shown.")]


def demo(out: DemoOut = None, seed: DemoSeed = 0, runs: Runs = 3, force: o.Force = False, json: o.Json = False) -> None:
    """Cluster handwritten digits that lie at six different sites, and compare with pooling them.

    Everything is measured on this machine, over several seeds; the data come with scikit-learn.

    For example:

        fedhk demo

        fedhk demo --out digits/ && fedhk fit digits/data --clusters 10 --out run/
    """
    with exit_codes():
        from fedhk.cli.comparison import compare, make_federation

        target = None if out is None else absolute(out)
        if target is not None:
            check_free(target, force=force)
        sites = make_federation()
        results = compare(sites, seed, runs, lambda text: None if json else say(text))
        if target is not None:
            _write(target, sites, results.outcome, seed)
    if json:
        show_json(results.to_dict() | {"out": None if target is None else str(target)})
    else:
        _show(output(), results.to_dict(), target)


def _write(target: Path, sites: Any, outcome: Any, seed: int) -> None:
    """The run of the first seed as `fit` writes it, with its data beside it."""
    from fedhk.data.folders import write_site
    from fedhk.report import write_report

    with replacing(target) as draft:
        for name, site in sites.federation.sites.items():
            write_site(draft / DATA / name, site.views, site.ids, site.columns)
        config = Config(target / DATA, "e-fkmvc", seed, {"n_clusters": sites.n_clusters}).complete()
        write_run(draft, outcome, replace(config, data=target / DATA), data=DATA)
        write_report(draft, title=target.name, data=sites.federation)


def _show(console: Console, results: dict[str, Any], target: Path | None) -> None:
    numbers = ("accuracy", "NMI", "ARI", "ARI per site", "rows sent", "bytes sent", "seconds")
    table = make_table(
        f"10 clusters found without labels, mean of {counted(results['runs'], 'run')}",
        "method",
        *numbers,
        numbers=numbers,
    )
    rows = [
        (
            method,
            *(_share(measured[name]) for name in ("accuracy", "nmi", "ari", "ari_per_site")),
            f"{measured['rows_sent']:,}",
            size(measured["bytes_sent"]),
            f"{measured['seconds']:.2f}",
        )
        for method, measured in results["methods"].items()
    ]
    console.print(results["about"], "\n")
    console.print(add_rows(table, rows))
    console.print(results["notes"], "\n")
    columns = ("site", "rows", "digits", "without view", "accuracy", "ARI", "ARI alone")
    sites = [
        (
            name,
            site["rows"],
            f"{site['classes']} of 10",
            ", ".join(site["missing_views"]) or "-",
            *(_share(site[part]) for part in ("accuracy", "ari", "ari_alone")),
        )
        for name, site in results["sites"].items()
    ]
    title = "the federated model at each site, beside the site's own"
    console.print(
        add_rows(make_table(title, *columns, numbers=[c for c in columns if c not in ("site", "without view")]), sites)
    )
    if target is None:
        console.print("Next: [bold]fedhk demo --out digits/[/bold] keeps the data and the run, then")
        where = "digits"
    else:
        console.print(f"Written to {target}. Next:", markup=False, soft_wrap=True)
        where = str(target)
    console.print(f"  fedhk fit {where}/{DATA} --clusters 10 --out run/", markup=False, soft_wrap=True)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
