"""Run folders: written whole or not at all, and never over something else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedhk._files import write_atomically
from fedhk._version import __version__
from fedhk.cli.algorithms import Outcome
from fedhk.cli.config import Config
from fedhk.cli.console import OutputExistsError, to_json
from fedhk.data.named import LABELS, SITES, write_labels

MODEL, CONFIG, SUMMARY, HISTORY = "model.safetensors", "config.toml", "summary.json", "history"
EVALUATION, LEDGER = "evaluation.csv", "ledger"
CHECKPOINT, UNDER_WAY = "checkpoint", "checkpoint.toml"


def is_run(folder: Path) -> bool:
    """Whether a folder holds a finished run."""
    return (folder / SUMMARY).is_file() and (folder / CONFIG).is_file()


def is_under_way(folder: Path) -> bool:
    """Whether a folder holds a run that was begun and not finished."""
    return (folder / UNDER_WAY).is_file()


def check_free(out: Path, *, force: bool, resume: bool = False) -> None:
    """Refuse a folder that holds something, unless it is a run that the user wants replaced or gone on with."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if is_under_way(out):
        if resume or force:
            return
        raise OutputExistsError(
            f"{str(out)!r} holds a run that was interrupted; --resume goes on, --force starts anew."
        )
    if is_run(out):
        if force:
            return
        what = "is finished: there is nothing to resume" if resume else "exists already"
        raise OutputExistsError(f"The run {str(out)!r} {what}. Give another --out, or --force to replace it.")
    raise OutputExistsError(f"{str(out)!r} is not empty and no run: it is never replaced. Give another --out.")


def check_apart(out: Path, data: Path) -> None:
    """Refuse to write a run into its data, where it would be a site, or around them, where they could be replaced."""
    run, folder = out.resolve(), data.resolve()
    if run == folder or folder in run.parents or run in folder.parents:
        raise OutputExistsError(f"--out {str(out)!r} and the data {str(data)!r} lie in each other; keep them apart.")


@contextmanager
def under_way(out: Path, config: Config, *, resume: bool) -> Iterator[Path]:
    """Mark a folder as holding a run that is not finished, and give the folder for its checkpoints.

    If nothing was reached that could be resumed, nothing is left behind.
    """
    checkpoint = out / CHECKPOINT
    created = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    if not resume and checkpoint.exists():
        shutil.rmtree(checkpoint)
    if not (resume and is_under_way(out)):
        write_atomically(out / UNDER_WAY, config.to_toml().encode())
    try:
        yield checkpoint
    except BaseException:
        if not checkpoint.exists():
            (out / UNDER_WAY).unlink(missing_ok=True)
            if created:
                out.rmdir()
        raise


def keep_ledger(checkpoint: Path, folder: Path) -> None:
    """Copy the ledgers of the sites into the run: a budget that is spent stays spent."""
    if (checkpoint / LEDGER).is_dir():
        shutil.copytree(checkpoint / LEDGER, folder / LEDGER)


def absolute(path: Path) -> Path:
    """Make a path absolute; links are kept."""
    return Path(os.path.abspath(path))


def write_run(
    folder: Path,
    outcome: Outcome,
    config: Config,
    *,
    data: str | None = None,
    evaluation: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write all files of a run into a folder; returns its summary."""
    import polars as pl

    from fedhk.evaluation import site_means

    for part in (SITES, LABELS):
        (folder / part).mkdir()
    outcome.model.save(folder / MODEL)
    for site, model in outcome.site_models.items():
        clusters = outcome.labels[site], outcome.certainty[site], outcome.global_labels[site]
        model.save(folder / SITES / f"{site}.safetensors")
        write_labels(folder / LABELS / f"{site}.parquet", outcome.sites[site].ids, *clusters)
    flat = [r | ({"refused": to_json(r["refused"])} if "refused" in r else {}) for r in outcome.history]
    pl.DataFrame(flat).write_parquet(folder / f"{HISTORY}.parquet")
    (folder / f"{HISTORY}.json").write_text(to_json(outcome.history) + "\n", "utf-8")
    (folder / CONFIG).write_text(config.to_toml(data), "utf-8")
    summary = summarise(outcome, config)
    if evaluation is not None:
        pl.DataFrame(evaluation, infer_schema_length=None).fill_nan(None).write_csv(folder / EVALUATION)
        summary["evaluation"] = site_means(evaluation)
    (folder / SUMMARY).write_text(to_json(summary) + "\n", "utf-8")
    return summary


def summarise(outcome: Outcome, config: Config) -> dict[str, Any]:
    """Summarise a run, for people and scripts."""
    model, history = outcome.model, outcome.history
    rows = [site.rows for site in outcome.sites.values()]
    return {
        "fedhk": __version__,
        "algorithm": config.algorithm,
        "data": None if config.data is None else str(config.data),
        "seed": config.seed,
        "n_clusters": int(model.n_clusters_),
        "views": describe_views(model),
        **describe_rank(model),
        "sites": {
            name: {"rows": site.rows, "views": site.views, "clusters_found": site.clusters}
            for name, site in outcome.sites.items()
        },
        "rows": None if None in rows else sum(number for number in rows if number is not None),
        "objective": float(model.objective_),
        "rounds": int(model.n_iter_),
        "converged": bool(model.converged_),
        "stop_reason": model.stop_reason_,
        "privacy_spent": getattr(model, "privacy_spent_", None),
        "bytes_up": sum(record.get("bytes_up", 0) for record in history),
        "bytes_down": sum(record.get("bytes_down", 0) for record in history),
        "seconds": sum(record["seconds"] for record in history),
        "refused": {site: why for record in history for site, why in record.get("refused", {}).items()},
    }


def describe_rank(model: Any) -> dict[str, Any]:
    """Describe the rank of the centres and what it loses; nothing where they have no low-rank form."""
    rank = getattr(model, "rank_", None)
    return {} if rank is None else {"rank": list(rank), "reconstruction_error": float(model.reconstruction_error_)}


def describe_views(model: Any) -> list[dict[str, Any]]:
    """Describe the views of a model: names, widths and weights."""
    parts = zip(model.view_names_, model.view_widths_, model.view_weights_, strict=True)
    return [{"name": name, "width": width, "weight": float(weight)} for name, width, weight in parts]
