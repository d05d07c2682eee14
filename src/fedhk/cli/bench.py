"""`fedhk bench`: all methods on one's own sites, as tables and figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhk._files import replacing
from fedhk.cli import options as o
from fedhk.cli.console import OutputExistsError, exit_codes, say, say_progress, to_json
from fedhk.cli.runs import absolute, check_apart, is_vacant

if TYPE_CHECKING:
    from fedhk.data.folders import Federation
    from fedhk.evaluation.bench import Bench

RECORDS, TABLE, FIGURE, REFERENCES = "records.csv", "table", "figure", "references.bib"

FederationFolder = Annotated[Path, typer.Argument(help="Federation folder: a sub-folder per site.")]
LabelsFile = Annotated[
    str,
    typer.Option("--labels", metavar="NAME", help="File of every site with the class of its rows, without its ending."),
]
BenchOut = Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")]
Clusters = Annotated[
    int | None, o.option("clusters", "Number of clusters.", "that of the classes", metavar="NUMBER", min=2)
]
Methods = Annotated[
    list[str] | None, o.option("method", "Only this method; may be repeated.", "all of them", metavar="NAME")
]
Ablations = Annotated[bool, typer.Option("--ablations", help="Also our estimators with one thing taken away.")]
Seeds = Annotated[int, typer.Option("--seeds", help="Seeds that every method is run with.", min=1)]


def bench(  # noqa: PLR0917
    folder: FederationFolder,
    labels: LabelsFile,
    out: BenchOut,
    clusters: Clusters = None,
    method: Methods = None,
    ablations: Ablations = False,
    seeds: Seeds = 3,
    id_column: o.IdColumn = None,
    ignore: o.Ignore = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Compare all methods on your own sites, whose classes are known.

    Every estimator of FedHK, the paper's algorithms as printed, k-means, spectral clustering, k-FED and others cluster
    the sites of FOLDER. NAME says which file of each site has the classes, one column beside `id`; no method sees it.
    The output folder has the measures of every run (records.csv), a table (table.csv, table.tex, table.html), a figure
    (figure.pdf, figure.svg) and what to cite (references.bib).

    For example:

        fedhk bench hospitals/ --labels diagnosis --out bench/

        fedhk bench hospitals/ --labels diagnosis --method k-FED --method FedHKPerson --seeds 10 --out bench/
    """
    with exit_codes():
        from fedhk.cli.info import read_data
        from fedhk.evaluation.bench import bench as compare

        target = absolute(out)
        _check_free(target, force)
        check_apart(target, folder)
        sites, classes = _split_labels(read_data(folder, id_column, ignore), labels)
        found = compare(sites, classes, clusters, method, ablations=ablations, n_seeds=seeds, report=say_progress)
        with replacing(target) as draft:
            _write(found, draft, target.name)
    if json:
        typer.echo(to_json({"out": str(target), "methods": list(found.summary()), "notes": found.notes}))
        return
    say(str(found.table()), err=False)
    say(f"Written to {target}", err=False)


def _check_free(out: Path, force: bool) -> None:
    """Refuse a folder that holds something; an earlier comparison may be replaced where the user says so."""
    if is_vacant(out):
        return
    if not (out / RECORDS).is_file():
        raise OutputExistsError(f"{str(out)!r} is no earlier comparison: it is never replaced. Give another --out.")
    if not force:
        raise OutputExistsError(f"{str(out)!r} exists already. Give another --out, or --force to replace it.")


def _split_labels(federation: Federation, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Take the file with the classes away from the views; what all sites have besides, and classes by site."""
    import numpy as np

    from fedhk._names import suggest
    from fedhk.data.levels import base_name, is_level, level_name
    from fedhk.data.named import named_views
    from fedhk.errors import DataError

    if name not in federation.columns:
        known = list(federation.columns)
        remedy = f" fedhk split FILE --view {name}={name} makes it of a column." * (not suggest(name, known))
        raise DataError(
            f"No site has a file {name!r} with labels; files are {', '.join(known)}.{suggest(name, known)}{remedy}"
        )
    if len(federation.columns) < 2:
        raise DataError(f"The sites have no file but {name!r}: there is nothing to cluster.")
    columns = federation.columns[name] or ()
    if len(set(map(base_name, columns))) != 1:
        raise DataError(f"{name!r} must have one column beside the id, the class; it has {', '.join(columns)}.")
    sites: dict[str, Any] = {}
    classes: dict[str, Any] = {}
    for site, data in federation.sites.items():
        values = data.views[name]
        rest = replace(data, views={view: rows for view, rows in data.views.items() if view != name})
        sites[site] = named_views(rest)
        if values is None:
            classes[site] = [None] * data.n_rows
        elif is_level(columns[0]):
            levels = [level_name(column) for column in columns]
            classes[site] = [None if np.isnan(row).any() else levels[int(row.argmax())] for row in values]
        else:
            classes[site] = values[:, 0].tolist()
    return sites, classes


def _write(found: Bench, folder: Path, name: str) -> None:
    """Write a comparison into a folder; `name` is the label of the table in LaTeX."""
    import polars as pl

    pl.DataFrame(list(found.records), infer_schema_length=None).write_csv(folder / RECORDS)
    for ending in ("csv", "html"):
        found.table().save(folder / f"{TABLE}.{ending}")
    (folder / f"{TABLE}.tex").write_text(found.table().to_latex(name), "utf-8")
    drawn: Any = found.draw().figure
    for ending in ("pdf", "svg"):
        drawn.savefig(folder / f"{FIGURE}.{ending}", bbox_inches="tight")
    (folder / REFERENCES).write_text(found.references(), "utf-8")
