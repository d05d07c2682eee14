"""`fedhk predict`: clusters of new rows, by a site's own model where there is one."""

from __future__ import annotations

import csv as csv_format
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import fedhk
from fedhk._files import replacing
from fedhk._names import suggest, suggest_path
from fedhk._text import listed
from fedhk.cli import options as o
from fedhk.cli.console import OutputExistsError, exit_codes, make_table, say, say_notes, show, to_json
from fedhk.cli.runs import MODEL, absolute, check_apart, is_run, is_vacant, reading_of
from fedhk.data.named import SITES, named_views, write_labels
from fedhk.errors import DataError

# FOLDER that stands for a table on standard input.
INPUT = Path("-")

# The usual name of the column that says whose a row is.
ID = "id"

ModelPath = Annotated[Path, typer.Argument(help="A run folder or a model file.")]
RowsPath = Annotated[
    Path, typer.Argument(help="A federation folder, the folder of one site, or - for a table on standard input.")
]
LabelsOut = Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write, with one file per site.")]
Csv = Annotated[bool, typer.Option("--csv", help="Write CSV instead of parquet.")]
SiteName = Annotated[
    str | None,
    typer.Option("--site", help="Site whose rows they are, to use its own model; a folder's name otherwise."),
]


def predict(  # noqa: PLR0917
    model: ModelPath,
    folder: RowsPath,
    out: LabelsOut = None,
    csv: Csv = False,
    site: SiteName = None,
    id_column: o.IdOfRows = None,
    ignore: o.Ignore = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Give the rows of one or several sites their clusters.

    MODEL is a run folder, what a site got of a run (state/oslo/run) or a model file, FOLDER a federation folder or the
    folder of one site. From a folder, a site's own model is used where one has that name, else the global model.

    A table on standard input is CSV with a header, with the columns of one or several views. A column whose name is
    in several views is written as VIEW/COLUMN. Without --out the clusters are written on standard output, as CSV.

    For example:

        fedhk predict run/ hospitals/ --out labels/

        fedhk predict run/model.safetensors hospitals/oslo --out labels/ --json

        fedhk predict state/oslo/run new-patients/ --site oslo --out labels/

        tail -n 1 new.csv | cat header.csv - | fedhk predict run/ - --site oslo
    """
    if folder == INPUT:
        _predict_input(model, out, site, id_column, ignore, csv=csv, json=json)
        return
    if out is None:
        raise typer.BadParameter("is needed, unless rows come from standard input.", param_hint="--out")
    with exit_codes():
        target = absolute(out)
        _check_free(target, force)
        check_apart(target, folder)
        result = _predict_folder(model, folder, target, id_column, ignore, site, ending="csv" if csv else "parquet")
    if json:
        typer.echo(to_json(result))
        return
    rows = [
        (name, f"{site['rows']:,}", len(site["clusters"]), f"{site['mean_certainty']:.3f}", site["model"])
        for name, site in result["sites"].items()
    ]
    columns = ("site", "rows", "clusters found", "mean certainty", "model")
    show(make_table("clusters of new rows", columns, rows, numbers=columns[1:4]))
    say(f"Written to {target}{'' if csv else ' as parquet; --csv writes CSV'}", err=False)


def _predict_input(
    model: Path,
    out: Path | None,
    site: str | None,
    id_column: str | None,
    ignore: Sequence[str] | None,
    *,
    csv: bool,
    json: bool,
) -> None:
    """Write the clusters of rows from standard input on standard output."""
    without = {"--out": out, "--ignore": ignore, "--csv": csv, "--json": json}
    unread = [name for name, value in without.items() if value]
    if unread:
        raise typer.BadParameter("is without effect on rows from standard input.", param_hint=" and ".join(unread))
    with exit_codes(), tempfile.TemporaryDirectory(prefix="fedhk-predict-") as scratch:
        folder, labels = Path(scratch) / (site or "input"), Path(scratch) / "labels"
        columns = fedhk.load(model_file(model, site)).view_columns_
        _write_views(sys.stdin.read(), columns, folder, [id_column] if id_column else _list_ids(model))
        _predict_folder(model, folder, labels, ID, ending="csv")
        typer.echo((labels / f"{folder.name}.csv").read_text("utf-8"), nl=False)


def _list_ids(model: Path) -> list[str]:
    """List the names that the column of ids may have: that of the run, and the usual one."""
    reading = reading_of(_run_of(model))
    known = reading.id or (reading.dictionary.id if reading.dictionary is not None else None)
    return [known, ID] if known else [ID]


def _write_views(text: str, columns: dict[str, Sequence[str] | None], folder: Path, id_names: Sequence[str]) -> None:
    """Write a table that has the columns of several views as a site's folder, one file per view.

    The first of `id_names` that is a column has the ids.
    """
    from fedhk.data.levels import base_name, ordered_levels

    lines = text.lstrip("\ufeff").splitlines()
    if len(lines) < 2:
        raise DataError("Standard input has no row; it must be CSV with a header.")
    header, *rows = csv_format.reader(lines, delimiter=max(",;\t", key=lines[0].count))
    places = [name.strip() for name in header]
    id_column = next((name for name in id_names if name in places), None)
    unnamed = [view for view, names in columns.items() if names is None]
    if unnamed:
        raise DataError(f"The model knows no names of columns of view {unnamed[0]!r}: give the rows as files.")
    known = {view: list(dict.fromkeys(map(base_name, names or ()))) for view, names in columns.items()}
    for names in known.values():
        names += [short for name in names if (short := ordered_levels(name)[0]) != name]
    found = _find_places(places, known, id_column)
    for number, row in enumerate(rows, 2):
        if len(row) != len(places):
            raise DataError(f"Standard input: line {number} has {len(row)} cells, the header {len(places)}.")
    folder.mkdir()
    ids = [i for i, name in enumerate(places) if name == id_column]
    for view, own in found.items():
        with (folder / f"{view}.csv").open("w", encoding="utf-8", newline="") as file:
            named = [places[i].removeprefix(f"{view}/") for i in own]
            table = [[row[i] for i in ids + own] for row in rows]
            csv_format.writer(file).writerows([[ID] * len(ids) + named, *table])


def _find_places(places: Sequence[str], known: dict[str, list[str]], id_column: str | None) -> dict[str, list[int]]:
    """Find the places of the columns of each view; what the model does not know is passed over with a note."""
    found: dict[str, list[int]] = {}
    extra: list[str] = []
    for i, name in enumerate(places):
        views = [view for view, names in known.items() if name in names or name.removeprefix(f"{view}/") in names]
        if len(views) > 1:
            several = f"is in the views {', '.join(views)}: write it as {views[0]}/{name}."
            raise DataError(f"Standard input: column {name!r} {several}")
        if views:
            found.setdefault(views[0], []).append(i)
        elif name != id_column:
            extra.append(name)
    lacking = [column for names in known.values() for column in names if column not in places]
    if extra:
        meant = "".join(suggest(name, lacking) for name in extra)
        say_notes([f"standard input has columns that the model does not know; passed over: {listed(extra)}.{meant}"])
    if not found:
        raise DataError(f"Standard input has no column of the model, such as {listed(lacking)}.")
    return found


def _check_free(out: Path, force: bool) -> None:
    """Refuse a folder that holds something; labels may be replaced where the user says so, nothing else."""
    if is_vacant(out):
        return
    if not out.is_dir() or any(
        entry.suffix not in (".parquet", ".csv") or not entry.is_file() for entry in out.iterdir()
    ):
        raise OutputExistsError(f"{str(out)!r} holds more than labels: it is never replaced. Give another --out.")
    if not force:
        raise OutputExistsError(f"{str(out)!r} exists already. Give another --out, or --force to replace it.")


def _predict_folder(  # noqa: PLR0917
    model: Path,
    folder: Path,
    out: Path,
    id_column: str | None = None,
    ignore: Sequence[str] | None = None,
    site_name: str | None = None,
    ending: str = "parquet",
) -> dict[str, Any]:
    """Write the clusters of all sites of a folder, as parquet or csv; what was done, by site.

    `site_name` says whose the rows of a single site's folder are; it must have a model of its own.
    """
    from fedhk.data.folders import read_site

    reading = reading_of(_run_of(model), id_column, ignore)
    general = fedhk.load(model_file(model))
    folders = site_folders(folder, reading.ignore)
    if site_name is not None and folders != [folder]:
        raise DataError(f"--site is for the rows of one site; {str(folder)!r} has folders of several.")
    named = None if site_name is None else model_file(model, site_name)
    done = {}
    with replacing(out) as draft:
        for path in folders:
            site = read_site(path, general.view_columns_, reading)
            name = site_name or site.name
            own = model / SITES / f"{name}.safetensors" if named is None else named
            used = fedhk.load(own) if own.is_file() else general
            done[name] = _predict_site(site, used, general, draft / f"{name}.{ending}")
    return {"model": str(model), "out": str(out), "sites": done}


def _predict_site(site: Any, used: Any, general: Any, file: Path) -> dict[str, Any]:
    """Write one site's clusters."""
    import numpy as np

    labels, certainty, global_labels = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
    if site.n_rows:
        views = named_views(site)
        try:
            labels, certainty = used.predict(views), used.predict_proba(views).max(axis=1)
            global_labels = labels if used is general else general.predict(views)
        except ValueError as error:
            raise DataError(f"site {site.name!r}: {error}") from error
    write_labels(file, site.ids, labels, certainty, global_labels)
    clusters, counts = np.unique(labels, return_counts=True)
    return {
        "rows": site.n_rows,
        "clusters": {int(cluster): int(count) for cluster, count in zip(clusters, counts, strict=True)},
        "mean_certainty": float(certainty.mean()) if site.n_rows else float("nan"),
        "model": "global" if used is general else "its own",
    }


def model_file(path: Path, site: str | None = None) -> Path:
    """Find the global model of a run folder, or of what a site got of a run, or that of a site; a file is itself."""
    if path.is_dir() and not is_run(path) and not (path / MODEL).is_file():
        raise DataError(f"{str(path)!r} holds no finished run: it has no summary.json and config.toml.")
    name = MODEL if site is None else f"{SITES}/{site}.safetensors"
    file = path / name if path.is_dir() else path
    if not file.is_file():
        known = sorted(own.stem for own in file.parent.glob("*.safetensors")) if site is not None else []
        what = f"of site {site!r}; sites are {', '.join(known)}" if known else repr(str(file))
        hint = suggest(site, known) if site is not None else suggest_path(path)
        raise DataError(f"There is no model {what}.{hint}")
    return file


def _run_of(model: Path) -> Path:
    """Find the folder of the run that a model is of; a model of a site is in a folder of it."""
    folder = model if model.is_dir() else model.parent
    return folder.parent if folder.name == SITES and is_run(folder.parent) else folder


def site_folders(folder: Path, ignore: Sequence[str] = ()) -> list[Path]:
    """Return the sites of a federation folder, or the folder itself if it is a single site."""
    from fedhk.data.folders import list_folders

    return list_folders(folder, ignore) or [folder]
