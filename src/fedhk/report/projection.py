"""Rows and centres of a view in their first two principal directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.report.rows import Rows
from fedhk.summary.facts import Facts, MapPoints, View

# Points of a map: more of them hide each other, and make the page large.
MOST_POINTS = 2000

# Points of all maps of a page together.
MOST_ON_PAGE = 16_000

# Fewest points of a site in a map, so that small sites can be found.
LEAST_POINTS = 5

# Own centres are drawn up to so many of all sites, clusters and views: more make the page large.
MOST_MOVES = 3200


def project_rows(facts: Facts, view: View, rows: Mapping[int, Rows]) -> MapPoints:
    """Project a sample of the rows of a view; where no row has the view, its centres alone."""
    total = sum(len(part.labels) for part in rows.values())
    most = min(MOST_POINTS, MOST_ON_PAGE // len(facts.views))
    points, sites, labels, having = [], [], [], 0
    for s, part in rows.items():
        some = part.sample(max(LEAST_POINTS, most * len(part.labels) // max(total, 1)), seed=s)
        table = some.tables.get(view.name)
        if table is not None:
            seen = ~np.all(np.isnan(table), axis=1)
            points.append(view.deviations(table[seen]))
            labels.append(some.labels[seen])
            sites.append(np.full(int(seen.sum()), s))
            having += len(part.labels)
    if not sum(map(len, labels)):
        return project_centers(facts, view)
    cloud = np.nan_to_num(np.concatenate(points))
    return replace(_project(facts, view, cloud, np.concatenate(sites), np.concatenate(labels)), n_rows=having)


def find_map(facts: Facts, view: View) -> MapPoints:
    """Find the map of a view's rows; where rows are not shown, that of its centres."""
    return facts.maps.get(view.name) or project_centers(facts, view)


def project_centers(facts: Facts, view: View) -> MapPoints:
    """Project the centres of a view, without any row."""
    none = np.zeros(0, np.int64)
    return replace(_project(facts, view, view.deviations(view.centers), none, none), points=np.zeros((0, 2)))


def _project(facts: Facts, view: View, cloud: FloatArray, sites: IntArray, labels: IntArray) -> MapPoints:
    """Project points, global and own centres on the first two principal directions of the cloud, in spreads."""
    middle = cloud.mean(axis=0)
    _, values, directions = np.linalg.svd(cloud - middle, full_matrices=False)
    kept = min(2, len(directions))
    axes, shares = np.zeros((2, cloud.shape[1])), np.zeros(2)
    axes[:kept] = directions[:kept]
    shares[:kept] = np.square(values[:kept]) / max(float(np.square(values).sum()), 1e-300)
    # the sign of a direction is arbitrary: the largest part is positive, so that the same rows give the same map
    axes *= np.where(axes[np.arange(2), np.argmax(np.abs(axes), axis=1)] < 0, -1.0, 1.0)[:, None]
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
