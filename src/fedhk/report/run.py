"""Pages of run folders. What a page may not show is not even read."""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

from fedhk._files import write_atomically
from fedhk.data.folders import Federation, SiteData, read_federation, read_site
from fedhk.data.named import LABELS, SITES
from fedhk.errors import DataError
from fedhk.estimators.loading import load
from fedhk.privacy.accounting import spent
from fedhk.report.fitted import add_rows
from fedhk.report.page import render
from fedhk.report.rows import Rows, make_rows
from fedhk.summary.drawing import require_matplotlib
from fedhk.summary.facts import Assignment, Facts, Gain, Scores, Site
from fedhk.summary.model import read_global_model, read_shares, read_site_model

# Rows that are looked at to see whether the data are still those of the run, and the share that may differ.
CHECKED_ROWS, FEW = 500, 0.02

REPORT = "report.html"

# What the page shows beside the run: other ways to cluster the same rows, and a run with noise in a folder below.
COMPARISON = "page.json"

ELSEWHERE = (
    "Labels and models of single sites are not in this run: they stayed at the sites. What is computed from them is "
    "left out here."
)


@dataclass(frozen=True)
class Run:
    """A run folder and what `summary.json`, `config.toml` and `history.json` say; `text` is `config.toml` as it is."""

    folder: Path
    summary: dict[str, Any]
    config: dict[str, Any]
    history: list[dict[str, Any]]
    text: str

    @property
    def names(self) -> list[str]:
        """Names of the sites."""
        return list(self.summary["sites"])

    @property
    def spent(self) -> tuple[float, float] | None:
        """(epsilon, delta) that was spent."""
        found = self.summary.get("privacy_spent")
        return None if found is None else (float(found[0]), float(found[1]))

    @property
    def private(self) -> bool:
        """Whether noise was added to what left the sites."""
        return self.config.get("parameters", {}).get("privacy") is not None or self.spent is not None

    @property
    def secure(self) -> bool:
        """Whether the server saw sums over all sites only."""
        return bool(self.config.get("parameters", {}).get("secure", False))

    def views_at(self, name: str) -> tuple[str, ...]:
        """Views that a site has."""
        return tuple(self.summary["sites"][name].get("views") or ())


def _read_run(folder: Path) -> Run:
    """Read the small files of a finished run; raises DataError if there is none, or a file is damaged."""
    if not (folder / "summary.json").is_file() or not (folder / "config.toml").is_file():
        raise DataError(f"{str(folder)!r} holds no finished run: it has no summary.json and config.toml.")
    try:
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        history = json.loads((folder / "history.json").read_text("utf-8"))
        text = (folder / "config.toml").read_text("utf-8")
        run = Run(folder, dict(summary), tomllib.loads(text), list(history), text)
        names = run.names
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"The run {str(folder)!r} is damaged: {error}") from error
    if not names:
        raise DataError(f"The run {str(folder)!r} is damaged: its summary has no site.")
    return run


def write_report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    site: str | None = None,
    title: str | None = None,
    data: str | os.PathLike[str] | Federation | None = None,
) -> Path:
    """Write the page of a run folder.

    Parameters
    ----------
    run : path
        A finished run, as `fedhk fit` writes it.
    out : path, optional
        The file; by default `report.html` in the run folder, `report-<site>.html` for a site.
    site, title, data
        As for `read_facts`.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    fedhk.errors.DataError
        If there is no finished run, or no such site.
    """
    folder = Path(run)
    target = Path(out) if out is not None else folder / (REPORT if site is None else f"report-{site}.html")
    where = Path(data) if isinstance(data, str | os.PathLike) else data
    require_matplotlib()
    write_atomically(target, render(read_facts(folder, site, title=title, data=where)).encode())
    return target


def read_facts(
    folder: Path, site: str | None = None, *, title: str | None = None, data: Path | Federation | None = None
) -> Facts:
    """Read the facts of a run folder.

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
    run = _read_run(folder)
    if site is not None and site not in run.names:
        raise DataError(f"The run {str(folder)!r} has no site {site!r}; it has {', '.join(map(repr, run.names[:10]))}.")
    names = run.names if site is None else [site]
    model = load(folder / "model.safetensors")
    ledgers = {name: _read_ledger(folder, name) for name in names}
    facts = replace(
        read_global_model(model, run.history),
        title=title or folder.resolve().name,
        algorithm=str(run.config.get("algorithm", "")),
        n_sites=len(run.names),
        privacy=run.spent,
        secure=run.secure,
        # all sites release alike
        releases=tuple((phase, count, noise) for (phase, noise), count in Counter(ledgers[names[0]]).items()),
        released_only=(run.private or run.secure) and site is None,
        own_page_of=site,
        config=run.text,
        command="fedhk fit --config config.toml --out again/",
        version=str(run.summary.get("fedhk", "")),
    )
    if run.spent is not None:
        multipliers = {name: [noise for _, noise in releases] for name, releases in ledgers.items() if releases}
        facts = replace(facts, spent={name: spent(found, run.spent[1]) for name, found in multipliers.items()})
    if site is not None:  # what others were refused for is not this site's business
        own = [replace(r, refused={name: why for name, why in r.refused.items() if name == site}) for r in facts.rounds]
        facts = replace(facts, rounds=tuple(own))
    if facts.released_only:
        sites = tuple(Site(name, run.views_at(name)) for name in names)
        return replace(facts, sites=sites, n_rows=None if run.private else run.summary.get("rows"))
    facts = _add_sites(facts, run, model, names, data)
    return facts if site is not None else _add_comparison(facts, folder, title)


def _add_comparison(facts: Facts, folder: Path, title: str | None) -> Facts:
    """Add what stands beside the run on its page, where its folder has a file that says so."""
    file = folder / COMPARISON
    if not file.is_file():
        return facts
    try:
        found = json.loads(file.read_text("utf-8"))
        scores = Scores(found["note"], tuple(found["columns"]), tuple(map(tuple, found["rows"])))
        about, private, title = str(found["about"]), folder / str(found["private"]), title or str(found["title"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"The run {str(folder)!r} is damaged: {COMPARISON}: {error}") from error
    return replace(facts, title=title, notes=(about, *facts.notes), scores=scores, private=read_facts(private))


def _add_sites(facts: Facts, run: Run, model: Any, names: list[str], data: Path | Federation | None) -> Facts:
    """Add sites, their own models, their rows and what personalization gained."""
    own_models, sites, ids, shares = {}, [], [], read_shares(model)
    for s, name in enumerate(names):
        assignment, who = _read_labels(run.folder / LABELS / f"{name}.parquet", facts.n_clusters)
        site, file = Site(name, run.views_at(name), assignment), run.folder / SITES / f"{name}.safetensors"
        if file.is_file():
            own_models[s] = load(file)
            site = read_site_model(name, site.views, own_models[s], assignment, shares.get(name, {}))
        sites.append(site)
        ids.append(who)
    gains = _read_evaluation(run.folder / "evaluation.csv", names)
    facts = replace(facts, sites=tuple(sites), gains=gains, held_out=bool(gains))
    if not own_models:
        n_rows = run.summary.get("rows") if len(names) == facts.n_sites else None
        return replace(facts, n_rows=n_rows, notes=(*facts.notes, ELSEWHERE))
    facts = replace(facts, n_rows=sum(len(a.labels) for a in facts.assigned.values()))
    try:
        tables = _read_rows(run, model, names, data)
        rows = {s: _match_rows(facts, s, tables[name], ids[s]) for s, name in enumerate(names)}
        for s, name in enumerate(names):
            _check_same_rows(name, rows[s], own_models.get(s, model))
    except (DataError, OSError) as error:
        note = f"The rows could not be read ({error}), so there are no maps of rows: centres and labels speak alone."
        return replace(facts, notes=(*facts.notes, note))
    return add_rows(facts, rows, model, own_models)


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


def _match_rows(facts: Facts, s: int, data: SiteData, ids: Any) -> Rows:
    """Take a site's rows, if they are those that the run has clusters of."""
    labels = facts.assigned[s].labels if s in facts.assigned else np.zeros(0, np.int64)
    same = data.n_rows == len(labels) and (ids is None or data.ids is None or list(data.ids) == list(ids))
    if not same:
        raise DataError(f"the rows of site {facts.sites[s].name!r} are no longer those of the run")
    return make_rows(data.views, [view.name for view in facts.views], labels, unit_rows=facts.unit_rows)


def _check_same_rows(name: str, rows: Rows, model: Any) -> None:
    """Refuse rows to which the site's model gives other clusters than the run did; a few may lie between two."""
    some = rows.sample(CHECKED_ROWS)
    if len(some.labels) and np.mean(model.predict(some.views_of(model)) == some.labels) < 1 - FEW:
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


def _read_ledger(folder: Path, site: str) -> list[tuple[str, float]]:
    """Read phase and noise over sensitivity of each release of a site; changes nothing."""
    path = folder / "ledger" / f"{quote(site, safe='')}.jsonl"
    if not path.is_file():
        return []
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [(str(line["phase"]), float(line["multiplier"])) for line in lines]
