"""What rows tell beyond the models: spreads, separation, and what own models gain. `read_fitted` adds it to a model."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.clients import check_clients
from fedhk.data.views import Views, check_views, fit_table
from fedhk.embedding.affinity import AnchorGraph
from fedhk.errors import DataError
from fedhk.evaluation import measure_rows
from fedhk.summary.facts import Facts, Gain, Rows, View
from fedhk.summary.model import ONLY_SITE, read_model

# Rows of a site that are read for means and gains, and for separation: enough for three digits.
MOST_ROWS, MOST_SEPARATED = 20_000, 2000


def read_fitted(model: Any, sites: Any = None, site: str | None = None) -> Facts:
    """Read the facts of a fitted estimator and of the rows that it was fitted to, as they were given to `fit`.

    Without `sites` there are no maps of rows. `site` shows that site alone.
    """
    facts = read_model(model, site)
    if sites is None or facts.released_only:
        return facts
    if not facts.sites:
        raise DataError("sites cannot be drawn: the model was loaded from a file, which holds no labels.")
    clients = _read_clients(facts, sites)
    facts = mark_dates(facts, {name for views in clients.values() for name in views.dates})
    rows = _match_rows(facts, clients, model)
    known = (
        replace(part, views=tuple(name for name, table in found.tables.items() if table is not None))
        for part, found in zip(facts.sites, rows, strict=True)
    )
    own_models = getattr(model, "client_models_", {ONLY_SITE: model})
    return add_rows(replace(facts, sites=tuple(known)), rows, model, own_models)


def mark_dates(facts: Facts, dates: Collection[str]) -> Facts:
    """Say which features are dates; they are named by view and column, as "record/admitted"."""
    found = [[name for name in view.features if f"{view.name}/{name}" in dates] for view in facts.views]
    marked = (replace(view, dates=tuple(names)) for view, names in zip(facts.views, found, strict=True))
    return replace(facts, views=tuple(marked))


def _is_one(facts: Facts) -> bool:
    return [part.name for part in facts.sites] == [ONLY_SITE]


def _read_clients(facts: Facts, sites: Any) -> dict[str, Views]:
    """Read what was given to `fit`, the rows of one site or of several."""
    return check_clients({ONLY_SITE: sites if isinstance(sites, list | dict) else [sites]} if _is_one(facts) else sites)


def _match_rows(facts: Facts, clients: Mapping[str, Views], model: Any) -> list[Rows]:
    """Find the rows of each site; refuses rows that the model was not fitted to."""
    names, one = [view.name for view in facts.views], _is_one(facts)
    rows = []
    for part, assignment in zip(facts.sites, facts.assigned.values(), strict=True):
        views, expected = clients.get(part.name), len(assignment.labels)
        if views is None or views.n_rows != expected:
            found = "no rows" if views is None else f"{views.n_rows} rows"
            raise DataError(f"sites has {found} for {part.name!r}; the model was fitted to {expected}.")
        given = names if one else views.names
        columns, tables = (dict(zip(given, each, strict=True)) for each in (views.columns, views.tables))
        rows.append(make_rows(facts, fit_tables(model, tables, columns), assignment.labels))
    return rows


def fit_tables(model: Any, tables: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Bring the tables of a site to the columns of a model, for the views that it knows."""
    known = dict(zip(model._model.view_names, model._model.columns, strict=True))
    return {
        view: fit_table(table, columns[view], known[view], f"view {view!r}")[0]
        for view, table in tables.items()
        if view in known and table is not None
    }


def make_rows(facts: Facts, tables: Mapping[str, Any], labels: IntArray) -> Rows:
    """Make 2-D arrays of a site's tables: tensors are flattened, sparse ones filled in.

    `Rows.tables` has them in the form in which the model sees rows: of length 1 with `scaling="l2"`, for instance.
    """
    given: dict[str, FloatArray | None] = {view.name: None for view in facts.views}
    for name in given:
        table = tables.get(name)
        if table is not None:
            dense = np.asarray(table.toarray() if hasattr(table, "toarray") else table)
            given[name] = dense.reshape(len(dense), math.prod(dense.shape[1:]))
    if all(view.form.is_plain for view in facts.views):
        return Rows(given, labels)
    formed = {
        view.name: None if (table := given[view.name]) is None else view.form.dense(table) for view in facts.views
    }
    return Rows(formed, labels, given)


def add_rows(facts: Facts, rows: Sequence[Rows], model: Any, own_models: Mapping[str, Any]) -> Facts:
    """Add the rows of all sites, in their order, and what they tell; own models are given by name of the site."""
    some = [part.sample(MOST_ROWS) for part in rows]
    if len(rows) == facts.n_sites:
        facts = replace(facts, views=tuple(_measure_spread(view, some) for view in facts.views), spread_of_rows=True)
    sites = tuple(
        replace(site, rows=part, separation=_separation(own_models.get(site.name, model), few))
        for site, part, few in zip(facts.sites, rows, some, strict=True)
    )
    facts = replace(facts, sites=sites)
    if facts.gains or not facts.personal:
        return facts
    measured = [(site.name, few) for site, few in zip(sites, some, strict=True) if site.name in own_models]
    gains = (_gain(facts, name, few, model, own_models[name]) for name, few in measured if len(few.labels))
    return replace(facts, gains=tuple(gains))


def _measure_spread(view: View, rows: Sequence[Rows]) -> View:
    """Replace mean and spread of the view's features by those of the rows of all sites."""
    tables = [table for part in rows if (table := part.tables.get(view.name)) is not None]
    count = np.sum([np.sum(~np.isnan(t), axis=0) for t in tables], axis=0)
    known = np.maximum(count, 1)
    mean = np.sum([np.nansum(t, axis=0, dtype=np.float64) for t in tables], axis=0) / known
    squares = np.sum([np.nansum(np.square(t - mean), axis=0, dtype=np.float64) for t in tables], axis=0)
    spread = np.where(view.spread > 0, np.sqrt(squares / known), 0.0)
    return replace(view, mean=np.where(count > 0, mean, view.mean), spread=spread)


def _separation(model: Any, rows: Rows) -> float:
    """Compute the simplified silhouette of Hruschka, by distances to the means of clusters in the views.

    Distances in an embedding, or of a kernel, hardly differ between rows: by them all clusters would be apart.
    """
    few = rows.sample(MOST_SEPARATED)
    if model.n_clusters_ < 2 or not len(few.labels):
        return float("nan")
    fitted = model._model.in_views
    views = check_views(few.views_of(model), names=model.view_names_, widths=fitted.widths, missing_views=True)
    graph, place = AnchorGraph(fitted.parameters.centers, 1, 1.0, 1.0), np.arange(len(few.labels))
    apart = np.sqrt(np.vstack([part for _, part in graph.distances(fitted.rows(views))]))
    own = apart[place, few.labels].copy()
    apart[place, few.labels] = np.inf
    next_one = apart.min(axis=1)
    return float(np.mean((next_one - own) / np.maximum(np.maximum(next_one, own), 1e-300)))


def _gain(facts: Facts, site: str, rows: Rows, model: Any, own: Any) -> Gain:
    """Measure the objective per row of a site under the global and its own model, in the same units."""
    widths = [len(view.mean) for view in facts.views]
    views = check_views(rows.views_of(model), names=model.view_names_, widths=widths, missing_views=True)
    everything = np.arange(len(rows.labels))
    objectives = {
        kind: measure_rows(model, used, views, everything)[0]["objective"]
        for kind, used in (("global", model), ("personal", own))
    }
    return Gain(site, len(rows.labels), objectives)
