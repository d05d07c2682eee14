"""Run folders: written completely or not at all, and never over something else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhk._files import OWNER_ONLY, READABLE, write_atomically
from fedhk._version import __version__
from fedhk.cli.config import Config, ConfigError, read_config
from fedhk.cli.console import OutputExistsError, to_json
from fedhk.data.named import LABELS, SITES, to_parquet, write_labels

if TYPE_CHECKING:
    from fedhk.data.folders import Federation, Reading

MODEL, CONFIG, SUMMARY, HISTORY = "model.safetensors", "config.toml", "summary.json", "history"
EVALUATION, RELEASES = "evaluation.csv", "releases.json"
CHECKPOINT, UNDER_WAY = "checkpoint", "checkpoint.toml"

# What differs between two runs that are otherwise the same: a model file must not have it.
COSTS = ("seconds", "bytes_up", "bytes_down", "refused")


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds a finished run."""
    return (folder / SUMMARY).is_file() and (folder / CONFIG).is_file()


def reading_of(folder: Path, id_column: str | None = None, ignore: Collection[str] | None = None) -> Reading:
    """Say how data are read for the run in a folder: as it read its own, unless the user says otherwise.

    What a site got of a run has no configuration; a folder without a model says nothing of how data are read.
    """
    from fedhk.data.dictionary import find_dictionary
    from fedhk.data.folders import Reading

    config = read_config(folder / CONFIG) if is_run(folder) else Config()
    dictionary = find_dictionary(folder) if (folder / MODEL).is_file() else None
    return Reading(id_column or config.id, tuple(ignore or config.ignore or ()), dictionary)


def is_under_way(folder: Path) -> bool:
    """Tell whether a folder holds an unfinished run."""
    return (folder / UNDER_WAY).is_file()


def is_vacant(path: Path) -> bool:
    """Tell whether there is nothing at a path, or an empty folder."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def check_free(out: Path, *, force: bool, resume: bool = False) -> None:
    """Refuse a folder that holds something, unless it is a run that the user wants replaced or gone on with."""
    from fedhk.privacy.ledger import holds_ledgers

    if is_vacant(out):
        return
    if holds_ledgers(out):
        raise OutputExistsError(
            f"{str(out)!r} holds ledgers of sites, which no command deletes: what they say is spent stays spent. Give "
            "another --out, or move the ledgers beside it."
        )
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


def check_apart(out: Path, data: Path, what: str = "--out", other: str = "the data") -> None:
    """Refuse to write a run into its data, where it would be a site, or around them, where they could be replaced."""
    run, folder = out.resolve(), data.resolve()
    if run == folder or folder in run.parents or run in folder.parents:
        raise OutputExistsError(f"{what} {str(out)!r} and {other} {str(data)!r} lie in each other; keep them apart.")


def choose_ledger(config: Config, out: Path) -> Path | None:
    """Find the folder with the ledgers of a run with noise: beside the data, where nothing else is given.

    So all runs on the same data count together. Runs come and go, and a ledger stays: it must not lie in one.
    """
    privacy = config.parameters.get("privacy")
    if privacy is None:
        return None
    data = Path(config.data or ".").resolve()
    folder = absolute(Path(privacy.get("ledger") or data.with_name(f"{data.name}.ledger")))
    check_apart(out, folder, other="the ledger")
    check_apart(folder, data, what="--ledger")
    return folder


def check_same(out: Path, config: Config) -> None:
    """Refuse to resume a run with other settings, apart from how many sites must reply, and when."""
    if not is_under_way(out):
        return
    before, after = (_list_settings(part) for part in (read_config(out / UNDER_WAY), config))
    different = [
        f"{name}={before.get(name)!r} there, {after.get(name)!r} here"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if different:
        raise ConfigError(f"The run to resume has other settings: {'; '.join(different)}. --force starts anew.")


def _list_settings(config: Config) -> dict[str, Any]:
    """List what two configurations of one run must have in common."""
    settings = {"algorithm": config.algorithm, "seed": config.seed} | config.parameters
    participation = settings.pop("participation", None) or {}
    chosen = {name: participation.get(name, default) for name, default in (("fraction", 1.0), ("deviating", "exclude"))}
    return chosen | settings


@contextmanager
def under_way(out: Path, config: Config, *, resume: bool) -> Iterator[Path]:
    """Mark a folder as an unfinished run, and return the folder for its checkpoints.

    If nothing was reached that could be resumed, nothing is left behind.
    """
    checkpoint = out / CHECKPOINT
    created = not out.exists()
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
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


def absolute(path: Path) -> Path:
    """Make a path absolute; links are kept."""
    return Path(os.path.abspath(path))


@dataclass(frozen=True)
class SiteFacts:
    """What is known of a site at the end of a run; None is what the site does not report."""

    views: list[str]
    rows: int | None = None
    clusters: int | None = None  # in which its rows are; counted where they are here
    ids: Any = None  # of its rows


def list_sites(federation: Federation) -> dict[str, SiteFacts]:
    """List what is known of the sites of a folder."""
    return {
        name: SiteFacts([view for view, rows in site.views.items() if rows is not None], site.n_rows, ids=site.ids)
        for name, site in federation.sites.items()
    }


def write_run(
    folder: Path,
    model: Any,
    sites: dict[str, SiteFacts],
    config: Config,
    *,
    data: str | None = None,
    evaluation: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write all files of a run into a folder; returns its summary. What the run cost is removed from the model.

    Models of sites and labels are for their owner alone. So is all else, unless noise was added: then it was released,
    and tells no exact number of rows.
    """
    import polars as pl

    from fedhk.estimators.persistence import write_model_file
    from fedhk.evaluation import site_means

    mode = READABLE if is_released(config) else OWNER_ONLY
    history = model.history_
    _drop_costs(model)
    write_model_file(folder / MODEL, model.to_file(), mode)
    own = _list_own_models(model, sites)
    for part in (SITES, LABELS):
        (folder / part).mkdir(mode=0o700)
    for site, (own_model, clusters) in own.items():
        own_model.save(folder / SITES / f"{site}.safetensors")
        write_labels(folder / LABELS / f"{site}.parquet", sites[site].ids, *clusters)
    counts = {site: len(set(labels.tolist())) for site, (_, (labels, _, _)) in own.items()}
    sites = {site: replace(facts, clusters=counts.get(site, facts.clusters)) for site, facts in sites.items()}
    if is_released(config):
        sites = {site: SiteFacts(facts.views) for site, facts in sites.items()}
    flat = [r | ({"refused": to_json(r["refused"])} if "refused" in r else {}) for r in history]
    summary = _summarise(model, history, sites, config)
    files: dict[str, str | bytes] = {
        f"{HISTORY}.parquet": to_parquet(pl.DataFrame(flat)),
        f"{HISTORY}.json": to_json(history) + "\n",
        CONFIG: config.to_toml(data),
    }
    if getattr(model, "releases_", None):
        files[RELEASES] = to_json(model.releases_) + "\n"
    if evaluation is not None:
        files[EVALUATION] = pl.DataFrame(evaluation, infer_schema_length=None).fill_nan(None).write_csv()
        summary["evaluation"] = site_means(evaluation)
    files[SUMMARY] = to_json(summary) + "\n"
    for name, content in files.items():
        write_atomically(folder / name, content if isinstance(content, bytes) else content.encode(), mode)
    return summary


def is_released(config: Config) -> bool:
    """Tell whether a run has noise in all that it shows, so that others may read it."""
    return config.parameters.get("privacy") is not None


def folder_mode(config: Config) -> int:
    """Give the mode of a run's folder, before the user's umask."""
    return 0o755 if is_released(config) else 0o700


def _drop_costs(model: Any) -> None:
    """Remove from a model what differs between equal runs: time, traffic, engine, and folders."""
    model.history_ = [{k: v for k, v in record.items() if k not in COSTS} for record in model.history_]
    known = model.get_params(deep=False)
    privacy = known.get("privacy")
    without: dict[str, Any] = {"verbose": 0, "checkpoint": None, "engine": None}
    without["privacy"] = None if privacy is None else replace(privacy, ledger=None)
    model.set_params(**{k: v for k, v in without.items() if k in known})


def _list_own_models(model: Any, sites: Collection[str]) -> dict[str, tuple[Any, tuple[Any, Any, Any]]]:
    """List the model of each site whose rows are here, and of each row the cluster, certainty and global cluster."""
    if not hasattr(model, "client_models_"):
        (only,) = sites
        return {only: (model, (model.labels_, model.memberships_.max(axis=1), model.labels_))}
    return {
        site: (own, (model.labels_[site], model.memberships_[site].max(axis=1), model.global_labels_[site]))
        for site, own in model.client_models_.items()
    }


def _summarise(
    model: Any, history: list[dict[str, Any]], sites: dict[str, SiteFacts], config: Config
) -> dict[str, Any]:
    """Summarise a run, for people and scripts."""
    rows = [site.rows for site in sites.values()]
    return {
        "fedhk": __version__,
        "algorithm": config.algorithm,
        "data": None if config.data is None else str(config.data),
        "seed": config.seed,
        **describe_model(model),
        "sites": {
            name: {"rows": site.rows, "views": site.views, "clusters_found": site.clusters}
            for name, site in sites.items()
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
        "deviations": list(getattr(model, "deviations_", [])),
        "refused": {site: why for record in history for site, why in record.get("refused", {}).items()},
    }


def describe_view(name: str, width: int, columns: Sequence[str] | None) -> dict[str, Any]:
    """Describe a view: its width in the model, where each level of a category counts, and how many columns it has."""
    from fedhk.data.levels import first_places

    return {"name": name, "width": width, "columns": len(first_places(columns, width))}


def describe_model(model: Any) -> dict[str, Any]:
    """Describe clusters and views of a model, and where centres have a low-rank form its rank and what it loses."""
    columns = model.view_columns_
    views = zip(model.view_names_, model.view_widths_, model.view_weights_, strict=True)
    found = {
        "n_clusters": int(model.n_clusters_),
        "selection": list(getattr(model, "selection_", [])),
        "views": [
            describe_view(name, width, columns[name]) | {"weight": float(weight)} for name, width, weight in views
        ],
    }
    if getattr(model, "rank_", None) is None:
        return found
    return found | {"rank": list(model.rank_), "reconstruction_error": float(model.reconstruction_error_)}
