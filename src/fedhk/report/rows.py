"""What rows tell beyond the models: spreads, maps, means by cluster, separation, and what own models gain.

Rows come as tables in input units, by number of the site and name of the view; nothing here says whether they may be
shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.views import check_views
from fedhk.evaluation import measure_rows
from fedhk.report.facts import Facts, Gain, MapPoints, Measured, View

# Points of a map: more of them hide each other, and make the page large.
MOST_POINTS = 2000

# Points of all maps of a page together.
MOST_ON_PAGE = 16_000

# Rows of a site that are read for means, separation and gains: enough for three digits.
MOST_ROWS = 20_000

# Fewest points of a site in a map, so that small sites can be found.
LEAST_POINTS = 5

# Own centres are drawn up to so many of all sites, clusters and views: more make the page large.
MOST_MOVES = 3200


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one site.

    Parameters
    ----------
    tables : dict of str to array of shape (n, d) or None
        By view, in input units; NaN is a missing cell.
    labels : array of shape (n,)
        Cluster of each row in the site's own model.
    """

    tables: Mapping[str, FloatArray | None]
    labels: IntArray

    def taken(self, most: int, seed: int = 0) -> Rows:
        """At most so many rows, drawn with a fixed seed, in their order."""
        if len(self.labels) <= most:
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(len(self.labels), most, replace=False))
        tables = {name: None if table is None else table[chosen] for name, table in self.tables.items()}
        return Rows(tables, self.labels[chosen])


def with_rows(facts: Facts, rows: Mapping[int, Rows], model: Any, own_models: Mapping[int, Any]) -> Facts:
    """The facts with all that rows tell.

    Parameters
    ----------
    facts : Facts
        What is known without them.
    rows : dict of int to Rows
        By number of the site.
    model : estimator
        The global model.
    own_models : dict of int to estimator
        Those of the sites.
    """
    some = {s: part.taken(MOST_ROWS) for s, part in rows.items()}
    if len(rows) == facts.n_sites:
        facts = replace(facts, views=tuple(_measured_spread(view, some) for view in facts.views), spread_of_rows=True)
    measured = Measured(
        {s: _cluster_means(facts, part) for s, part in some.items()},
        {s: _separation(own_models.get(s, model), part) for s, part in some.items() if len(part.labels)},
    )
    gains = facts.gains or tuple(_gains(facts, some, model, own_models))
    maps = {view.name: rows_map(facts, view, rows) for view in facts.views}
    return replace(facts, measured=measured, gains=gains, maps=maps)


def _measured_spread(view: View, rows: Mapping[int, Rows]) -> View:
    """The view with mean and spread of the rows of all sites."""
    tables = [table for part in rows.values() if (table := part.tables.get(view.name)) is not None]
    count = np.sum([np.sum(~np.isnan(t), axis=0) for t in tables], axis=0)
    known = np.maximum(count, 1)
    mean = np.sum([np.nansum(t, axis=0, dtype=np.float64) for t in tables], axis=0) / known
    squares = np.sum([np.nansum(np.square(t - mean), axis=0, dtype=np.float64) for t in tables], axis=0)
    spread = np.where(view.spread > 0, np.sqrt(squares / known), 0.0)
    return replace(view, mean=np.where(count > 0, mean, view.mean), spread=spread)


def _cluster_means(facts: Facts, rows: Rows) -> dict[str, FloatArray]:
    """Mean of the rows in each cluster, by view; NaN where there are none."""
    means = {}
    one_hot = np.zeros((facts.n_clusters, len(rows.labels)))
    one_hot[rows.labels, np.arange(len(rows.labels))] = 1.0
    for view in facts.views:
        table = rows.tables.get(view.name)
        if table is not None:
            seen = ~np.isnan(table)
            counts = one_hot @ seen
            sums = one_hot @ np.where(seen, table, 0.0)
            means[view.name] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def _separation(model: Any, rows: Rows) -> float:
    """Simplified silhouette of Hruschka, with the kernel distances of the model."""
    if model.n_clusters_ < 2:
        return float("nan")
    nearest = np.partition(model.transform(as_views(model, rows.taken(MOST_POINTS))), 1, axis=1)[:, :2]
    return float(np.mean(1.0 - nearest[:, 0] / np.maximum(nearest[:, 1], 1e-300)))


def as_views(model: Any, rows: Rows) -> Any:
    """Rows as a model takes them."""
    tables = {name: rows.tables.get(name) for name in model.view_names_}
    return next(iter(tables.values())) if getattr(model, "_single_table", False) else tables


def _gains(facts: Facts, rows: Mapping[int, Rows], model: Any, own_models: Mapping[int, Any]) -> list[Gain]:
    """Objective per row of each site under the global and its own model, where they differ; in the same units."""
    if not facts.personal:
        return []
    found = []
    for s, part in rows.items():
        if len(part.labels) and s in own_models:
            names, widths = model.view_names_, [len(view.mean) for view in facts.views]
            views = check_views(as_views(model, part), names=names, widths=widths, missing_views=True)
            everything = np.arange(len(part.labels))
            objectives = {
                kind: measure_rows(model, own, views, everything)[0]["objective"]
                for kind, own in (("global", model), ("personal", own_models[s]))
            }
            found.append(Gain(facts.sites[s].name, len(part.labels), objectives))
    return found


def rows_map(facts: Facts, view: View, rows: Mapping[int, Rows]) -> MapPoints:
    """A map of a view from a sample of its rows; of the centres alone where no row has the view."""
    total = sum(len(part.labels) for part in rows.values())
    most = min(MOST_POINTS, MOST_ON_PAGE // len(facts.views))
    points, sites, labels = [], [], []
    for s, part in rows.items():
        share = max(LEAST_POINTS, most * len(part.labels) // max(total, 1))
        some = part.taken(share, seed=s)
        table = some.tables.get(view.name)
        if table is not None:
            seen = ~np.all(np.isnan(table), axis=1)
            points.append(view.deviations(table[seen]))
            labels.append(some.labels[seen])
            sites.append(np.full(int(seen.sum()), s))
    if not sum(map(len, labels)):
        return centers_map(facts, view)
    cloud = np.nan_to_num(np.concatenate(points))
    having = sum(len(part.labels) for part in rows.values() if part.tables.get(view.name) is not None)
    found = _project(facts, view, cloud, np.concatenate(sites), np.concatenate(labels))
    return replace(found, n_rows=having)


def centers_map(facts: Facts, view: View) -> MapPoints:
    """A map of the centres of a view, without any row."""
    cloud = view.deviations(view.centers)
    none = np.zeros(0, np.int64)
    found = _project(facts, view, cloud, none, none)
    return replace(found, points=np.zeros((0, 2)))


def _project(facts: Facts, view: View, cloud: FloatArray, sites: IntArray, labels: IntArray) -> MapPoints:
    """Points, global and own centres in the first two principal directions of the cloud, in spreads."""
    middle = cloud.mean(axis=0)
    _, values, directions = np.linalg.svd(cloud - middle, full_matrices=False)
    axes = np.zeros((2, cloud.shape[1]))
    axes[: min(2, len(directions))] = directions[:2]
    # the sign of a direction is arbitrary: the largest part is positive, so that the same rows give the same map
    signs = np.sign(axes[np.arange(2), np.argmax(np.abs(axes), axis=1)])
    axes *= np.where(signs == 0, 1.0, signs)[:, None]
    energy = np.square(values)
    shares = np.zeros(2)
    shares[: min(2, len(energy))] = energy[:2] / max(float(energy.sum()), 1e-300)
    own = {}
    if len(facts.sites) * facts.n_clusters * len(facts.views) <= MOST_MOVES:
        for s, site in enumerate(facts.sites):
            center = site.centers.get(view.name)
            if center is not None and view.name in site.views and not np.array_equal(center, view.centers):
                own[s] = (view.deviations(center) - middle) @ axes.T
    return MapPoints(
        centers=(view.deviations(view.centers) - middle) @ axes.T,
        points=(cloud - middle) @ axes.T,
        sites=sites,
        labels=labels,
        own_centers=own,
        shares=(float(shares[0]), float(shares[1])),
        flat=cloud.shape[1] == 1,
    )


def unit_length(table: FloatArray) -> FloatArray:
    """Rows divided by their length, as a model that was fitted with `scaling="l2"` sees them."""
    length = np.sqrt(np.nansum(np.square(table), axis=1, keepdims=True))
    scaled: FloatArray = table / np.where(length > 0, length, 1.0)
    return scaled


def flattened(tables: Mapping[str, Any], names: Sequence[str], *, unit_rows: bool) -> dict[str, FloatArray | None]:
    """Tables of rows as 2-D arrays, tensors flattened, sparse ones filled in."""
    found: dict[str, FloatArray | None] = {}
    for name in names:
        table = tables.get(name)
        if table is None:
            found[name] = None
            continue
        dense = np.asarray(table.toarray() if hasattr(table, "toarray") else table)
        flat = dense.reshape(len(dense), -1)
        found[name] = unit_length(flat) if unit_rows else flat
    return found
