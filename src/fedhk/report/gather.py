"""Facts from a run folder. What a page may not show is not even read."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

import fedhk
from fedhk.data.folders import Federation, SiteData, read_federation, read_site
from fedhk.data.named import LABELS, SITES
from fedhk.errors import DataError
from fedhk.privacy.accounting import spent
from fedhk.report.facts import Assignment, Facts, Gain, Scores, Site
from fedhk.report.fitted import model_facts, own_site, shares_of, with_center_maps
from fedhk.report.rows import Rows, as_views, flattened, with_rows

# Rows that are looked at to see whether the data are still those of the run, and the share that may differ.
CHECKED_ROWS, FEW = 500, 0.02

# What the page shows beside the run: other ways to cluster the same rows, and a run with noise in a folder below.
BESIDES = "page.json"

ELSEWHERE = (
    "Labels and models of single sites are not in this run: they stayed at the sites. What is computed from them is "
    "left out here."
)


@dataclass(frozen=True)
class Run:
    """A run folder and what its small files say.

    Parameters
    ----------
    folder : Path
        The folder.
    summary, config : dict
        Of `summary.json` and `config.toml`.
    history : list of dict
        Of `history.json`.
    text : str
        `config.toml` as it stands.
    """

    folder: Path
    summary: dict[str, Any]
    config: dict[str, Any]
    history: list[dict[str, Any]]
    text: str

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the estimator."""
        return dict(self.config.get("parameters", {}))

    @property
    def private(self) -> bool:
        """Whether noise was added to what left the sites."""
        return self.parameters.get("privacy") is not None or self.summary.get("privacy_spent") is not None

    @property
    def secure(self) -> bool:
        """Whether the server saw sums over all sites only."""
        return bool(self.parameters.get("secure", False))


def read_run(folder: Path) -> Run:
    """The small files of a finished run.

    Raises
    ------
    DataError
        If there is no finished run, or a file is damaged.
    """
    if not (folder / "summary.json").is_file() or not (folder / "config.toml").is_file():
        raise DataError(f"{str(folder)!r} holds no finished run: it has no summary.json and config.toml.")
    try:
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        history = json.loads((folder / "history.json").read_text("utf-8"))
        text = (folder / "config.toml").read_text("utf-8")
        run = Run(folder, dict(summary), tomllib.loads(text), list(history), text)
        names = list(run.summary["sites"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"The run {str(folder)!r} is damaged: {error}") from error
    if not names:
        raise DataError(f"The run {str(folder)!r} is damaged: its summary has no site.")
    return run


def facts_of_run(
    folder: Path, site: str | None = None, *, title: str | None = None, data: Path | Federation | None = None
) -> Facts:
    """The facts of a run folder.

    Parameters
    ----------
    folder : Path
        A finished run.
    site : str, optional
        Make the page of this site: its rows and its own model, nothing of single rows of other sites. Without, the
        page is the coordinator's; if noise or secure sums were used, it keeps to what was released.
    title : str, optional
        What the run is called; by default, like its folder.
    data : Path or Federation, optional
        The folder with the rows, or the rows themselves; by default the folder that the run names.
    """
    run = read_run(folder)
    names = list(run.summary["sites"])
    if site is not None and site not in names:
        raise DataError(f"The run {str(folder)!r} has no site {site!r}; it has {', '.join(map(repr, names[:10]))}.")
    model = fedhk.load(folder / "model.safetensors")
    released_only = (run.private or run.secure) and site is None
    facts = replace(
        model_facts(model, run.history),
        title=title or folder.resolve().name,
        algorithm=str(run.config.get("algorithm", "")),
        n_sites=len(names),
        privacy=_pair(run.summary.get("privacy_spent")),
        secure=run.secure,
        releases=_releases(folder, site or names[0]),
        spent=_spent(run, names if site is None else [site]),
        released_only=released_only,
        own_page_of=site,
        config=run.text,
        command="fedhk fit --config config.toml --out again/",
        version=str(run.summary.get("fedhk", "")),
    )
    if site is not None:  # what others were refused for is not this site's business
        own = [replace(r, refused={name: why for name, why in r.refused.items() if name == site}) for r in facts.rounds]
        facts = replace(facts, rounds=tuple(own))
    if released_only:
        sites = tuple(Site(name, _views_at(run, name)) for name in names)
        return with_center_maps(replace(facts, sites=sites, n_rows=None if run.private else run.summary.get("rows")))
    facts = _with_sites(facts, run, model, names if site is None else [site], data)
    return facts if site is not None else _with_besides(facts, folder, title)


def _with_besides(facts: Facts, folder: Path, title: str | None) -> Facts:
    """The facts with what stands beside the run on its page, where its folder has a file that says so."""
    file = folder / BESIDES
    if not file.is_file():
        return facts
    try:
        besides = json.loads(file.read_text("utf-8"))
        scores = Scores(besides["note"], tuple(besides["columns"]), tuple(map(tuple, besides["rows"])))
        about, private = str(besides["about"]), folder / str(besides["private"])
        title = title or str(besides["title"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"The run {str(folder)!r} is damaged: {BESIDES}: {error}") from error
    return replace(facts, title=title, notes=(about, *facts.notes), scores=scores, private=facts_of_run(private))


def _pair(value: Any) -> tuple[float, float] | None:
    return None if value is None else (float(value[0]), float(value[1]))


def _views_at(run: Run, name: str) -> tuple[str, ...]:
    return tuple(run.summary["sites"][name].get("views") or ())


def _with_sites(facts: Facts, run: Run, model: Any, names: list[str], data: Path | Federation | None) -> Facts:
    """The facts with sites, their own models, their rows and what personalization gained."""
    own_models, sites, ids = {}, [], {}
    for s, name in enumerate(names):
        assignment, ids[name] = _read_labels(run.folder / LABELS / f"{name}.parquet", len(facts.views[0].centers))
        file = run.folder / SITES / f"{name}.safetensors"
        if file.is_file():
            own_models[s] = fedhk.load(file)
            sites.append(own_site(name, _views_at(run, name), own_models[s], assignment))
        else:
            sites.append(Site(name, _views_at(run, name), assignment))
    gains = _read_evaluation(run.folder / "evaluation.csv", names)
    facts = replace(
        facts,
        sites=tuple(sites),
        shares=shares_of(model, names),
        gains=gains,
        held_out=bool(gains),
        n_rows=sum(len(site.assignment.labels) for site in sites if site.assignment is not None),
    )
    if not own_models:
        rows_told = run.summary.get("rows") if len(names) == facts.n_sites else None
        return with_center_maps(replace(facts, n_rows=rows_told, notes=(*facts.notes, ELSEWHERE)))
    try:
        found = _read_rows(run, model, names, data)
        rows = {s: _rows_of(facts, facts.sites[s], found[name], ids[name]) for s, name in enumerate(names)}
        for s, name in enumerate(names):
            _check_same_rows(name, rows[s], own_models.get(s, model))
    except (DataError, OSError) as error:
        note = f"The rows could not be read ({error}), so there are no maps of rows: centres and labels speak alone."
        return with_center_maps(replace(facts, notes=(*facts.notes, note)))
    return with_rows(facts, rows, model, own_models)


def _read_labels(path: Path, n_clusters: int) -> tuple[Assignment | None, Any]:
    """Clusters of a site's rows and whose the rows are; None where they are not there."""
    if not path.is_file():
        return None, None
    try:
        table = pl.read_parquet(path)
        labels, common = (table[column].to_numpy().astype(np.int64) for column in ("cluster", "global_cluster"))
        certainty = np.nan_to_num(table["certainty"].to_numpy())
    except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
        raise DataError(f"The labels {str(path)!r} are damaged: {error}") from error
    for found in (labels, common):
        if len(found) and not (found.min() >= 0 and found.max() < n_clusters):
            raise DataError(
                f"The labels {str(path)!r} have clusters {found.min()} to {found.max()}; the model has {n_clusters}."
            )
    who = table["id"].to_numpy() if "id" in table.columns else None
    return Assignment(labels, common, certainty), who


def _read_rows(run: Run, model: Any, names: list[str], data: Path | Federation | None) -> Mapping[str, SiteData]:
    """The rows of sites from the data folder; of one site that site's folder alone is opened."""
    if isinstance(data, Federation):
        return data.sites
    if data is None:
        data = run.folder / str(run.config["data"]) if "data" in run.config else None
    if data is None or not data.is_dir():
        raise DataError("the data folder is not there")
    if len(names) == 1:
        return {names[0]: read_site(data / names[0], model.view_columns_)}
    found = read_federation(data).sites
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"the data folder has no site {missing[0]!r}")
    return found


def _rows_of(facts: Facts, site: Site, data: SiteData, ids: Any) -> Rows:
    """A site's rows, if they are those that the run has clusters of."""
    labels = np.zeros(0, np.int64) if site.assignment is None else site.assignment.labels
    same = data.n_rows == len(labels) and (ids is None or data.ids is None or list(data.ids) == list(ids))
    if not same:
        raise DataError(f"the rows of site {site.name!r} are no longer those of the run")
    names = [view.name for view in facts.views]
    return Rows(flattened(data.views, names, unit_rows=facts.unit_rows), labels)


def _check_same_rows(name: str, rows: Rows, model: Any) -> None:
    """Refuse rows to which the site's model gives other clusters than the run did; a few may lie between two."""
    some = rows.taken(CHECKED_ROWS)
    if len(some.labels) and np.mean(model.predict(as_views(model, some)) == some.labels) < 1 - FEW:
        raise DataError(f"the rows of site {name!r} are no longer those of the run")


def _read_evaluation(path: Path, names: list[str]) -> tuple[Gain, ...]:
    """Objectives on held-out rows, by site, from `fedhk fit --evaluate`."""
    if not path.is_file():
        return ()
    found: dict[str, Gain] = {}
    for record in pl.read_csv(path, schema_overrides={"site": pl.String}).to_dicts():
        if record["site"] in names and record.get("objective") is not None:
            before = found.get(record["site"], Gain(record["site"], int(record["rows"]), {}))
            objectives = {**before.objectives, record["model"]: float(record["objective"])}
            found[record["site"]] = replace(before, objectives=objectives)
    return tuple(found.values())


def _releases(folder: Path, site: str) -> tuple[tuple[str, int, float], ...]:
    """What a site released under noise, by phase; all sites release alike. Reads, and changes nothing."""
    counts = Counter(_ledger(folder, site))
    return tuple((phase, count, multiplier) for (phase, multiplier), count in counts.items())


def _spent(run: Run, names: list[str]) -> dict[str, float]:
    """Epsilon that the ledger of each site has, at the delta of the run; of sites that have one."""
    budget = _pair(run.summary.get("privacy_spent"))
    if budget is None:
        return {}
    found = {name: [multiplier for _, multiplier in _ledger(run.folder, name)] for name in names}
    return {name: spent(multipliers, budget[1]) for name, multipliers in found.items() if multipliers}


def _ledger(folder: Path, site: str) -> list[tuple[str, float]]:
    """Phase and noise over sensitivity of each release of a site."""
    path = folder / "ledger" / f"{quote(site, safe='')}.jsonl"
    if not path.is_file():
        return []
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [(str(line["phase"]), float(line["multiplier"])) for line in lines]
