"""`fedhk predict`: clusters of new rows, by a site's own model where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import fedhk
from fedhk._files import replacing
from fedhk.cli import options as o
from fedhk.cli.console import OutputExistsError, exit_codes, make_table, say, show, to_json
from fedhk.cli.runs import MODEL, absolute, check_apart, is_run, is_vacant
from fedhk.data.named import SITES, named_views, write_labels
from fedhk.errors import DataError

ModelPath = Annotated[Path, typer.Argument(help="A run folder or a model file.")]
LabelsOut = Annotated[Path, typer.Option("--out", "-o", help="Folder to write, with one parquet file per site.")]


def predict(  # noqa: PLR0917
    model: ModelPath,
    folder: o.DataPath,
    out: LabelsOut,
    id_column: o.IdColumn = None,
    ignore: o.Ignore = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Give the rows of one or several sites their clusters.

    MODEL is a run folder or a model file, FOLDER a federation folder or the folder of one site. From a run folder, a
    site's own model is used where there is one of that name, else the global model.

    For example:

        fedhk predict run/ hospitals/ --out labels/

        fedhk predict run/model.safetensors hospitals/oslo --out labels/ --json
    """
    with exit_codes():
        target = absolute(out)
        _check_free(target, force)
        check_apart(target, folder)
        result = predict_folder(model, folder, target, id_column, ignore)
    if json:
        typer.echo(to_json(result))
        return
    rows = [
        (name, f"{site['rows']:,}", len(site["clusters"]), f"{site['mean_certainty']:.3f}", site["model"])
        for name, site in result["sites"].items()
    ]
    columns = ("site", "rows", "clusters found", "mean certainty", "model")
    show(make_table("clusters of new rows", columns, rows, numbers=columns[1:4]))
    say(f"Written to {target}", err=False)


def _check_free(out: Path, force: bool) -> None:
    """Refuse a folder that holds something; labels may be replaced where the user says so, nothing else."""
    if is_vacant(out):
        return
    if not out.is_dir() or any(entry.suffix != ".parquet" or not entry.is_file() for entry in out.iterdir()):
        raise OutputExistsError(f"{str(out)!r} holds more than labels: it is never replaced. Give another --out.")
    if not force:
        raise OutputExistsError(f"{str(out)!r} exists already. Give another --out, or --force to replace it.")


def predict_folder(
    model: Path, folder: Path, out: Path, id_column: str | None = None, ignore: Sequence[str] | None = None
) -> dict[str, Any]:
    """Write the clusters of all sites of a folder; what was done, by site."""
    from fedhk.data.folders import Reading, read_site

    reading = Reading(id_column, tuple(ignore or ()))
    general = fedhk.load(model_file(model))
    done = {}
    with replacing(out) as draft:
        for path in site_folders(folder, reading.ignore):
            site = read_site(path, general.view_columns_, reading)
            own = model / SITES / f"{site.name}.safetensors"
            used = fedhk.load(own) if own.is_file() else general
            done[site.name] = _predict_site(site, used, general, draft)
    return {"model": str(model), "out": str(out), "sites": done}


def _predict_site(site: Any, used: Any, general: Any, folder: Path) -> dict[str, Any]:
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
    write_labels(folder / f"{site.name}.parquet", site.ids, labels, certainty, global_labels)
    clusters, counts = np.unique(labels, return_counts=True)
    return {
        "rows": site.n_rows,
        "clusters": {int(cluster): int(count) for cluster, count in zip(clusters, counts, strict=True)},
        "mean_certainty": float(certainty.mean()) if site.n_rows else float("nan"),
        "model": "global" if used is general else "its own",
    }


def model_file(path: Path, site: str | None = None) -> Path:
    """Find the global model of a run folder, or that of a site; a file is itself."""
    if path.is_dir() and not is_run(path):
        raise DataError(f"{str(path)!r} holds no finished run: it has no summary.json and config.toml.")
    name = MODEL if site is None else f"{SITES}/{site}.safetensors"
    file = path / name if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"Model {str(file)!r} does not exist.")
    return file


def site_folders(folder: Path, ignore: Sequence[str] = ()) -> list[Path]:
    """The sites of a federation folder, or the folder itself where it is a single site."""
    from fedhk.data.folders import list_folders

    if not folder.is_dir():
        raise DataError(f"Folder {str(folder)!r} {'is a file' if folder.exists() else 'does not exist'}.")
    return list_folders(folder, ignore) or [folder]
