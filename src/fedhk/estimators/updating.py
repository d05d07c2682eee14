"""Updates of fitted models: what they start from, and what they report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhk._records import Record, Records
from fedhk._typing import IntArray
from fedhk.data.checks import check_count, check_number
from fedhk.data.clients import fit_site
from fedhk.data.views import Views
from fedhk.embedding.diffusion import EmbeddedModel
from fedhk.errors import DataError
from fedhk.estimators.sealing import refuse_new_views
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator
from fedhk.federation.board import Board
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import FinalParameters, Minimisation, OwnPast
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.new_clusters import AddClusters, SplitClusters
from fedhk.federation.phases.update import EnterViews, Found, Recall, Revise
from fedhk.federation.run import Run, conduct
from fedhk.federation.site import Site
from fedhk.model.drift import SitePast, report_drift
from fedhk.model.fitted import FittedModel
from fedhk.model.memory import Memory, PlacedRows, remember
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.starts.settings import Settings
from fedhk.summary.model import ONLY_SITE


@dataclass(frozen=True)
class Recollection:
    """What an update starts from.

    Parameters
    ----------
    recall : Recall
        The phase that puts the model on the board.
    keep : float
        By how much earlier rows count beside new ones.
    rounds : int
        Most rounds.
    level : float
        Of the tests for drift.
    new_views : list of str
        Views that the model does not know.
    """

    recall: Recall
    keep: float
    rounds: int
    level: float
    new_views: list[str]

    def adapt(self, settings: Settings) -> Settings:
        """Return settings with the clusters of the fitted model."""
        known = self.recall.model.parameters
        return replace(settings, n_clusters=known.n_clusters, init=known.centers, fuzzifier=None)


def check_update(half_life: float | None, rounds: int, level: float) -> float:
    """Check the settings of an update; return the weight of earlier rows."""
    check_count(rounds, "rounds")
    if check_number(level, "level", open_below=True) >= 1:
        raise ValueError(f"level={level!r} must be above 0 and below 1.")
    if half_life is None:
        return 1.0
    return float(0.5 ** (1.0 / check_number(half_life, "half_life", open_below=True)))


def check_updatable(model: Any) -> None:
    """Refuse a fitted model that cannot be updated, whatever the new rows are."""
    fitted = model._model
    embedded = isinstance(fitted, EmbeddedModel)
    if embedded and model.privacy is not None:
        raise ValueError(
            f"{type(model).__name__} with privacy cannot be updated: with noise it is made of parts of clusters, and "
            "keeps no anchors. Fit it anew, or update an EFKMVC."
        )
    if fitted.folded:
        raise ValueError(
            f"{type(model).__name__} cannot be updated: view {next(iter(fitted.folded))!r} has so many columns that it "
            "was folded. Fit it anew."
        )
    if model._memory is None or (embedded and not len(fitted.limits)):
        raise ValueError(
            f"This {type(model).__name__} remembers nothing of its rows, because an older FedHK fitted it: fit it once "
            "more with this version, then update it."
        )
    given = model.n_clusters
    if isinstance(given, int | np.integer) and int(given) > fitted.parameters.n_clusters:
        raise ValueError(
            f"n_clusters={given} is more than the {fitted.parameters.n_clusters} clusters of the fitted model: an "
            "update adds clusters where rows fit nowhere. Fit anew for another number."
        )


def recollect(model: Any, clients: Mapping[str, Views], *, keep: float, rounds: int, level: float) -> Recollection:
    """Check that a model can be updated with these sites, and return what the update starts from."""
    fitted = model._model
    if getattr(model, "engine", None) is None and not any(views.n_rows for views in clients.values()):
        raise DataError("No site has a new row: there is nothing to update the model with.")
    named = dict.fromkeys(name for views in clients.values() for name in views.names)
    new = [name for name in named if name not in fitted.view_names]
    refuse_new_views(model, new)
    if new and isinstance(fitted, EmbeddedModel):
        raise DataError(
            f"view {new[0]!r} is new, and the embedding of {type(model).__name__} has no anchors in it. Leave it out, "
            "or fit anew."
        )
    recall = Recall(fitted.in_views, model._memory.fade(keep), model._calibrations, len(clients))
    return Recollection(recall, keep, int(rounds), float(level), new)


def fit_sites(model: FittedModel, clients: Mapping[str, Views]) -> dict[str, Views]:
    """Return the tables of the sites with the columns of the model, in its order; a DataError says what differs."""
    known = dict(zip(model.view_names, zip(model.widths, model.columns, strict=True), strict=True))
    return {site: fit_site(views, known, site) for site, views in clients.items()}


def revise_phases(
    recalled: Recollection, settings: Settings, aggregator: Aggregator = PLAIN_SUM, *, leaves_out: bool
) -> list[Phase[Any, Any]]:
    """Return the phases of every update, from the fitted model to the final one."""
    known = len(recalled.recall.model.view_names)
    revise = Revise(settings.learn_weights, settings.form, recalled.rounds, aggregator, leaves_out)
    return [
        recalled.recall,
        *([EnterViews(known, aggregator)] if recalled.new_views else []),
        replace(revise, last=False),
        AddClusters(aggregator),
        SplitClusters(aggregator),
        revise,
    ]


def remember_site(scan: Passes, parameters: Parameters, labels: IntArray) -> tuple[Memory, dict[str, SitePast]]:
    """Compute the memory of a model of one site, from passes over its rows and their labels."""
    placed = PlacedRows.of(scan.rows, parameters, labels)
    past = SitePast.of(placed, parameters, parameters)
    return remember(placed, parameters, scan), {ONLY_SITE: past}


def update_site(
    views: Views, pasts: Mapping[str, SitePast], recalled: Recollection, settings: Settings, workers: int
) -> tuple[Run, SitePast]:
    """Carry out an update at one site; return the run, and the site's memory after it."""
    memory = Board().put(*(OwnPast(past) for past in pasts.values()))
    engine = InProcessEngine({ONLY_SITE: Site(ONLY_SITE, views, memory=memory)}, workers=workers)
    phases = revise_phases(recalled, settings, leaves_out=False)  # there is no other site to be compared with
    run = conduct(phases, engine, Run(), seed=0, participation=Participation())
    model, parameters = recalled.recall.model, run.board.get(FinalParameters).parameters
    past = SitePast.of(PlacedRows.of(model.rows(views), parameters), parameters, parameters)
    for known in pasts.values():
        past = known.add(past, recalled.keep)
    return run, past


def describe_update(run: Run, recalled: Recollection) -> tuple[Records, Record]:
    """Report which clusters have moved, and the update itself in one record."""
    board, before = run.board, recalled.recall.model.parameters
    after = board.get(FinalParameters).parameters
    drift, rows = Records(), float("nan")
    found = next(board.find(Found), None)
    if found is not None and len(found.compared):
        width = sum(part.shape[1] for part in before.centers)
        spread = found.memory.add(found.weights, found.spread).spread
        sites = found.sites if len(found.sites) > 1 else {}
        drift = Records(report_drift(sites, found.compared, spread, width, level=recalled.level))
        rows = float(found.spread.rows.sum() + found.strays.sum())
    gone = sorted(set(after.gone) - set(before.gone))
    line = {
        "rows": rows,
        "rounds": board.get(Minimisation).progress.iteration,
        "n_clusters": after.n_clusters - len(after.gone),
        "new": list(range(before.n_clusters, after.n_clusters)),
        "gone": gone,
        "moved": sorted({line["cluster"] for line in drift if line["moved"]}),
        "keep": recalled.keep,
        "bytes_up": sum(record["bytes_up"] for record in run.history),
        "bytes_down": sum(record["bytes_down"] for record in run.history),
    }
    return drift, line
