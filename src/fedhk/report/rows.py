"""What rows tell beyond the models: spreads, means by cluster, separation, and what own models gain.

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
from fedhk.summary.facts import Facts, Gain, View

# Rows of a site that are read for means and gains, and for separation: enough for three digits.
MOST_ROWS, MOST_SEPARATED = 20_000, 2000


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

    def sample(self, most: int, seed: int = 0) -> Rows:
        """Draw at most so many rows with a fixed seed, in their order."""
        if len(self.labels) <= most:
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(len(self.labels), most, replace=False))
        tables = {name: None if table is None else table[chosen] for name, table in self.tables.items()}
        return Rows(tables, self.labels[chosen])

    def views_of(self, model: Any) -> Any:
        """Give the rows as a model takes them: views by name, or one table."""
        tables = {name: self.tables.get(name) for name in model.view_names_}
        return next(iter(tables.values())) if getattr(model, "_single_table", False) else tables


def make_rows(tables: Mapping[str, Any], names: Sequence[str], labels: IntArray, *, unit_rows: bool) -> Rows:
    """Make 2-D arrays of a site's tables: tensors are flattened, sparse ones filled in.

    With `unit_rows`, rows are divided by their length, as a model that was fitted with `scaling="l2"` sees them.
    """
    found: dict[str, FloatArray | None] = dict.fromkeys(names)
    for name in names:
        table = tables.get(name)
        if table is not None:
            dense = np.asarray(table.toarray() if hasattr(table, "toarray") else table)
            flat = dense.reshape(len(dense), -1)
            length = np.sqrt(np.nansum(np.square(flat), axis=1, keepdims=True))
            found[name] = flat / np.where(length > 0, length, 1.0) if unit_rows else flat
    return Rows(found, labels)


def measure(facts: Facts, rows: Mapping[int, Rows], model: Any, own_models: Mapping[int, Any]) -> Facts:
    """Add to the facts what rows tell; rows and own models are given by number of the site."""
    some = {s: part.sample(MOST_ROWS) for s, part in rows.items()}
    if len(rows) == facts.n_sites:
        facts = replace(facts, views=tuple(_measure_spread(view, some) for view in facts.views), spread_of_rows=True)
    sites = [
        replace(
            site,
            cluster_means=_cluster_means(facts, some[s]),
            separation=_separation(own_models.get(s, model), some[s]),
        )
        for s, site in enumerate(facts.sites)
    ]
    gains = facts.gains
    if facts.personal and not gains:
        measured = [s for s, part in some.items() if len(part.labels) and s in own_models]
        gains = tuple(_gain(facts, s, some[s], model, own_models[s]) for s in measured)
    return replace(facts, sites=tuple(sites), gains=gains)


def _measure_spread(view: View, rows: Mapping[int, Rows]) -> View:
    """Replace mean and spread of the view's features by those of the rows of all sites."""
    tables = [table for part in rows.values() if (table := part.tables.get(view.name)) is not None]
    count = np.sum([np.sum(~np.isnan(t), axis=0) for t in tables], axis=0)
    known = np.maximum(count, 1)
    mean = np.sum([np.nansum(t, axis=0, dtype=np.float64) for t in tables], axis=0) / known
    squares = np.sum([np.nansum(np.square(t - mean), axis=0, dtype=np.float64) for t in tables], axis=0)
    spread = np.where(view.spread > 0, np.sqrt(squares / known), 0.0)
    return replace(view, mean=np.where(count > 0, mean, view.mean), spread=spread)


def _cluster_means(facts: Facts, rows: Rows) -> dict[str, FloatArray]:
    """Average the rows in each cluster, by view; NaN where there are none."""
    means = {}
    one_hot = np.arange(facts.n_clusters)[:, None] == rows.labels
    for name, table in rows.tables.items():
        if table is not None:
            counts = one_hot @ (~np.isnan(table)).astype(np.float64)
            sums = one_hot @ np.nan_to_num(table)
            means[name] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def _separation(model: Any, rows: Rows) -> float:
    """Compute the simplified silhouette of Hruschka with the kernel distances of the model."""
    if model.n_clusters_ < 2 or not len(rows.labels):
        return float("nan")
    nearest = np.partition(model.transform(rows.sample(MOST_SEPARATED).views_of(model)), 1, axis=1)[:, :2]
    return float(np.mean(1.0 - nearest[:, 0] / np.maximum(nearest[:, 1], 1e-300)))


def _gain(facts: Facts, s: int, rows: Rows, model: Any, own: Any) -> Gain:
    """Measure the objective per row of a site under the global and its own model, in the same units."""
    widths = [len(view.mean) for view in facts.views]
    views = check_views(rows.views_of(model), names=model.view_names_, widths=widths, missing_views=True)
    everything = np.arange(len(rows.labels))
    objectives = {
        kind: measure_rows(model, used, views, everything)[0]["objective"]
        for kind, used in (("global", model), ("personal", own))
    }
    return Gain(facts.sites[s].name, len(rows.labels), objectives)
