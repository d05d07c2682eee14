"""Pages of run folders. What a page may not show is not even read."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedhk._files import OWNER_ONLY, READABLE, read_regular, write_atomically
from fedhk._names import suggest_path
from fedhk.after.run import Answered
from fedhk.data.dictionary import Dictionary, find_dictionary
from fedhk.data.folders import Federation, Reading, SiteData, read_federation, read_site
from fedhk.data.further import adapt_reading
from fedhk.data.named import LABELS, SITES
from fedhk.errors import DataError, FedHKError
from fedhk.estimators.loading import load
from fedhk.federation.remote.site import RUN_NAME, check_name
from fedhk.privacy.accounting import spent
from fedhk.privacy.ledger import NAME, read_ledger
from fedhk.report.after import FinishedRun, describe_answers, open_run
from fedhk.report.page import render
from fedhk.report.rows import add_rows, fit_tables, make_rows, mark_dates
from fedhk.summary.drawing import require_matplotlib
from fedhk.summary.facts import Assignment, Facts, Gain, Rows, Scores, Site
from fedhk.summary.model import add_own_model, read_global_model, read_shares

# Rows that are looked at to see whether the data are still those of the run, and the share that may differ.
CHECKED_ROWS, FEW = 500, 0.02

REPORT = "report.html"

# What the page shows beside the run: other ways to cluster the same rows, and a run with noise in a folder below.
COMPARISON = "page.json"

AGAIN_AT_HOME = "fedhk fit --config config.toml --out again/"
AGAIN_ELSEWHERE = """fedhk flower init app/ --config config.toml --sites {sites}
fedhk flower run app/ --root-certificates PATH/ca.crt --out again/"""

ELSEWHERE = (
    "Labels and models of single sites are not in this run: they stayed at the sites. What is computed from them is "
    "left out here. A site makes its own page from what it got: `fedhk report RUN --site NAME --own STATE/NAME/run "
    "--data DATA`."
)

# The global model in a run folder, and in what a site got of a run.
MODEL = "model.safetensors"


def write_report(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    site: str | None = None,
    title: str | None = None,
    data: str | os.PathLike[str] | Federation | None = None,
    own: str | os.PathLike[str] | None = None,
    found: Sequence[Answered] = (),
) -> Path:
    """Write the page of a finished run, as `read_facts` reads it, and return the file.

    By default it is `report.html` in the run folder, or `report-<site>.html` for a site. `found` is what was asked
    after the run; each gets a section.
    """
    folder = Path(run)
    target = Path(out) if out is not None else folder / (REPORT if site is None else f"report-{site}.html")
    where = Path(data) if isinstance(data, str | os.PathLike) else data
    require_matplotlib()
    results = None if own is None else Path(own)
    facts = read_facts(folder, site, title=title, data=where, own=results)
    facts = replace(facts, after=describe_answers(found))
    # a page of sums with noise shows what was released; all others are for their owner alone
    released = facts.released_only and facts.privacy is not None and not found
    write_atomically(target, render(facts).encode(), READABLE if released else OWNER_ONLY)
    return target


def open_finished(
    folder: Path, data: Path | None = None, also: Path | None = None, id_column: str | None = None
) -> FinishedRun:
    """Open a run folder for questions after it: its models, its rows, and tables of the same rows in `also`.

    `data` is the folder with the rows, by default the one that the run names. `id_column` is the column of ids in
    `also`, or in `data` if there are no such tables; by default that of the run.
    """
    run = _read_run(folder)
    parameters = run.config.get("parameters", {})
    private = parameters.get("privacy") is not None or run.spent is not None
    where = data if data is not None else folder / str(run.config["data"]) if "data" in run.config else None
    if where is None or not where.is_dir():
        raise DataError("the data folder of the run is not there: give --data.")
    reading = _how_read(run)
    if also is None:
        rows, further = read_federation(where, replace(reading, id=id_column or reading.id)), None
    else:
        rows = read_federation(where, reading)
        beside = adapt_reading(reading, also)
        further = read_federation(also, replace(beside, id=id_column or beside.id))
    return open_run(folder, rows, further, secure=bool(parameters.get("secure", False)), private=private)


def _how_read(run: _Run) -> Reading:
    """How the run read its folders."""
    return Reading(run.config.get("id"), tuple(run.config.get("ignore", ())), find_dictionary(run.folder))


@dataclass(frozen=True)
class _Run:
    """What `summary.json`, `config.toml` and `history.json` of a run folder say."""

    folder: Path
    summary: dict[str, Any]
    config: dict[str, Any]
    history: list[dict[str, Any]]
    text: str  # config.toml as it is
    views: dict[str, tuple[str, ...]]  # that each site has
    spent: tuple[float, float] | None  # (epsilon, delta)


def _read_run(folder: Path) -> _Run:
    """Read the small files of a finished run; raises DataError if there is none, or a file is damaged."""
    if not folder.exists():
        raise DataError(f"The run {str(folder)!r} does not exist.{suggest_path(folder)}")
    if not (folder / "summary.json").is_file() or not (folder / "config.toml").is_file():
        raise DataError(f"{str(folder)!r} holds no finished run: it has no summary.json and config.toml.")
    try:
        summary = dict(json.loads(read_regular(folder / "summary.json")))
        history = list(json.loads(read_regular(folder / "history.json")))
        text = read_regular(folder / "config.toml").decode("utf-8")
        views = {name: tuple(site.get("views") or ()) for name, site in summary["sites"].items()}
        for name in views:
            check_name(name)  # files of the run have it in theirs
        found = summary.get("privacy_spent")
        budget = None if found is None else (float(found[0]), float(found[1]))
        run = _Run(folder, summary, tomllib.loads(text), history, text, views, budget)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"The run {str(folder)!r} is damaged: {error}") from error
    if not views:
        raise DataError(f"The run {str(folder)!r} is damaged: its summary has no site.")
    return run


def _write_again(run: _Run) -> str:
    """Write the commands that repeat a run, to be called in its folder."""
    if "data" in run.config:
        return AGAIN_AT_HOME
    return AGAIN_ELSEWHERE.format(sites=shlex.quote(",".join(run.views)))


def read_facts(
    folder: Path,
    site: str | None = None,
    *,
    title: str | None = None,
    data: Path | Federation | None = None,
    own: Path | None = None,
) -> Facts:
    """Read the facts of a run folder; `data` are its rows or their folder, by default the folder that the run names.

    With `site` the page is that site's: its rows and its own model, nothing of single rows of other sites. Without, it
    is the coordinator's; if noise or secure sums were used, it keeps to what was released. `own` is the folder in which
    a site has its model and labels, where the run folder lacks them: after a run over a network.
    """
    run = _read_run(folder)
    if site is not None and site not in run.views:
        known = ", ".join(map(repr, list(run.views)[:10]))
        raise DataError(f"The run {str(folder)!r} has no site {site!r}; it has {known}.")
    parameters = run.config.get("parameters", {})
    private = parameters.get("privacy") is not None or run.spent is not None
    secure = bool(parameters.get("secure", False))
    model = load(folder / MODEL)
    if own is not None:
        _check_results(own, folder, model)
    left_out = {record["site"] for record in getattr(model, "deviations_", ()) if record["excluded"]}
    took_part = [name for name in run.views if name not in left_out]
    names = took_part if site is None else [site]
    ledgers = _read_releases(folder, names)
    if site is not None and own is not None and not ledgers[site]:
        ledgers[site] = _read_own_ledger(own)
    multipliers = {name: [noise for _, noise in releases] for name, releases in ledgers.items() if releases}
    facts = read_global_model(
        model,
        run.history,
        title=title or folder.resolve().name,
        algorithm=str(run.config.get("algorithm", "")),
        n_sites=len(took_part),
        privacy=run.spent,
        secure=secure,
        # all sites release alike
        releases=tuple((phase, count, noise) for (phase, noise), count in Counter(ledgers[names[0]]).items()),
        spent={name: spent(found, run.spent[1]) for name, found in multipliers.items()} if run.spent else {},
        released_only=(private or secure) and site is None,
        own_page_of=site,
        elsewhere="data" not in run.config,
        config=run.text,
        command=_write_again(run),
        version=str(run.summary.get("fedhk", "")),
        dictionary=find_dictionary(folder, *_list_data_folders(data, site)) or Dictionary(),
    )
    if facts.released_only:
        sites = tuple(Site(name, run.views[name]) for name in names)
        return replace(facts, sites=sites, n_rows=None if private else run.summary.get("rows"))
    facts = _add_sites(facts, run, model, names, data, own or folder)
    if site is not None and not facts.assigned:
        raise DataError(
            f"{str(own or folder)!r} has no labels of site {site!r}. After a run over a network they are at the site, "
            f"in its state folder: give --own STATE/{site}/run."
        )
    if site is None:
        return _add_comparison(facts, folder, title)
    # what others were refused for is not this site's business
    rounds = [replace(r, refused={name: why for name, why in r.refused.items() if name == site}) for r in facts.rounds]
    return replace(facts, rounds=tuple(rounds))


def _list_data_folders(data: Path | Federation | None, site: str | None) -> list[Path]:
    """List the folders of rows that may have a data dictionary: that of the site, and that of all."""
    if not isinstance(data, Path):
        return []
    return [data] if site is None else [data / site, data]


def _check_results(own: Path, folder: Path, model: Any) -> None:
    """Refuse what a site got of another run than the one in `folder`, whose global model is given; say where it is."""
    if _has_model(own, model):
        return
    others = sorted(path.parent for path in own.absolute().parent.glob(f"*/{MODEL}"))
    right = next((other for other in others if _has_model(other, model)), None)
    where = f"that of this run is {str(own.with_name(right.name))!r}" if right else "none beside it is of this run"
    what = f"is of another run than {str(folder)!r}" if (own / MODEL).is_file() else f"has no {MODEL}"
    raise DataError(f"--own {str(own)!r} {what}; {where}.")


def _has_model(results: Path, model: Any) -> bool:
    """Tell whether the results of a site are of the run that ended with this global model."""
    try:
        found = load(results / MODEL)
    except (FedHKError, OSError):
        return False
    return bool(found._model.digest() == model._model.digest())


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
    return replace(facts, title=title, about=about, scores=scores, private=read_facts(private))


def _add_sites(  # noqa: PLR0917
    facts: Facts, run: _Run, model: Any, names: list[str], data: Path | Federation | None, results: Path
) -> Facts:
    """Add sites, their own models and labels in the folder `results`, their rows and what personalization gained."""
    own_models, sites, ids, shares = {}, [], {}, read_shares(model)
    for name in names:
        assignment, ids[name] = _read_labels(results / LABELS / f"{name}.parquet", facts.n_clusters)
        sites.append(Site(name, run.views[name], assignment))
        file = results / SITES / f"{name}.safetensors"
        if file.is_file():
            own_models[name] = load(file)
            sites[-1] = add_own_model(sites[-1], own_models[name], shares)
    gains = _read_evaluation(run.folder / "evaluation.csv", names)
    facts = replace(facts, sites=tuple(sites), gains=gains, held_out=bool(gains))
    if not own_models:
        n_rows = run.summary.get("rows") if len(names) == facts.n_sites else None
        return replace(facts, n_rows=n_rows, notes=(*facts.notes, ELSEWHERE))
    facts = replace(facts, n_rows=sum(len(a.labels) for a in facts.assigned.values()))
    try:
        found = _read_rows(run, model, names, data)
        kinds = ((view, own) for name in names for view, own in found[name].kinds.items())
        dates = {f"{view}/{column}" for view, own in kinds for column, kind in own.items() if kind == "date"}
        facts = mark_dates(facts, dates)
        rows = [_match_rows(facts, s, found[s.name], ids[s.name], own_models.get(s.name, model)) for s in sites]
    except (DataError, OSError) as error:
        if isinstance(data, Path):  # they were asked for
            raise
        note = f"The rows could not be read ({error}), so there are no maps of rows: centres and labels speak alone."
        return replace(facts, notes=(*facts.notes, note))
    return add_rows(facts, rows, model, own_models)


def _read_labels(path: Path, n_clusters: int) -> tuple[Assignment | None, Any]:
    """Clusters of a site's rows and whose the rows are; None where they are not there."""
    if not path.is_file():
        return None, None
    try:
        table = pl.read_parquet(read_regular(path))  # a path would be read as a pattern
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


def _read_rows(run: _Run, model: Any, names: list[str], data: Path | Federation | None) -> Mapping[str, SiteData]:
    """The rows of sites from the data folder; of one site, whose own folder `data` may be, that folder alone."""
    if isinstance(data, Federation):
        return data.sites
    if data is None:
        data = run.folder / str(run.config["data"]) if "data" in run.config else None
    if data is None or not data.is_dir():
        raise DataError("the data folder is not there")
    reading = _how_read(run)
    if len(names) == 1:
        folder = data / names[0] if (data / names[0]).is_dir() else data
        return {names[0]: read_site(folder, model.view_columns_, reading)}
    found = read_federation(data, reading).sites
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"the data folder has no site {missing[0]!r}")
    return found


def _match_rows(facts: Facts, site: Site, data: SiteData, ids: Any, model: Any) -> Rows:
    """Take a site's rows, if the run has clusters of them, and its model gives the same but for few between two."""
    labels = np.zeros(0, np.int64) if site.assignment is None else site.assignment.labels
    same = data.n_rows == len(labels) and (ids is None or data.ids is None or list(data.ids) == list(ids))
    if same:
        rows = make_rows(facts, fit_tables(model, data.views, data.columns), labels)
        some = rows.sample(CHECKED_ROWS)
        if not len(labels) or np.mean(model.predict(some.views_of(model)) == some.labels) >= 1 - FEW:
            return rows
    given = f"{data.n_rows} rows are given, {len(labels)} have labels"
    what = "their ids or values are others" if data.n_rows == len(labels) else given
    raise DataError(f"the rows of site {site.name!r} are no longer those of the run: {what}")


def _read_evaluation(path: Path, names: list[str]) -> tuple[Gain, ...]:
    """Objectives on held-out rows, by site, from `fedhk fit --evaluate`."""
    if not path.is_file():
        return ()
    table = pl.read_csv(read_regular(path), schema_overrides={"site": pl.String})  # a path would be read as a pattern
    known = table.filter(pl.col("site").is_in(names), pl.col("objective").is_not_null())
    return tuple(
        Gain(str(site), part["rows"][0], dict(part.select("model", "objective").iter_rows()))
        for (site,), part in known.group_by("site", maintain_order=True)
    )


def _read_releases(folder: Path, names: list[str]) -> dict[str, list[tuple[str, float]]]:
    """Read phase and noise multiplier of each release in the run; empty if none are listed."""
    file = folder / "releases.json"
    if not file.is_file():
        return {name: [] for name in names}
    try:
        listed = json.loads(read_regular(file))
        return {name: [(str(r["phase"]), float(r["multiplier"])) for r in listed.get(name, ())] for name in names}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"The run {str(folder)!r} is damaged: {file.name}: {error}") from error


def _read_own_ledger(results: Path) -> list[tuple[str, float]]:
    """Read phase and noise multiplier of each release of a site in the run of its results, from the ledger beside them.

    Empty if there is no ledger, or it has nothing of this run.
    """
    ledger, run = results.absolute().parent / NAME, results / RUN_NAME
    if not ledger.is_file() or not run.is_file():
        return []
    name = read_regular(run).decode("utf-8")
    return [(release.phase, release.multiplier) for release in read_ledger(ledger)[0] if release.run == name]
