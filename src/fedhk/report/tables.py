"""Tables of sites: which clusters and views they have, how their models differ, and who was refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedhk.summary.facts import Assignment, Facts, Site
from fedhk.summary.html import Cell, Markup, join, table, tag
from fedhk.summary.words import number, percent, plural, two_digits

# Longer tables are folded.
MOST_ROWS = 15

# What sites may have of their own, in words.
COMPONENTS = {
    "shift": "offset",
    "spread": "scale",
    "sizes": "sizes",
    "centers": "centres",
    "view_weights": "view weights",
    "core": "core",
    "cluster_factor": "cluster factor",
    "feature_factors": "feature factors",
    "view_factor": "view factor",
}


def sizes_table(facts: Facts) -> Markup:
    """Show the share of each site's rows that is in each cluster, in per cent."""
    shares = {s: sizes / max(int(sizes.sum()), 1) for s, sizes in facts.sizes.items()}
    most = max(float(share.max()) for share in shares.values()) or 1.0
    rows = [
        (facts.sites[s].name, f"{facts.sizes[s].sum():,}", *(Cell(_in_percent(n), n / most) for n in share))
        for s, share in shares.items()
    ]
    columns = ("site", "rows", *range(facts.n_clusters))
    return _fold("sizes", f"{plural(len(rows), 'row')} by site", columns, rows, list(shares))


def _in_percent(share: float) -> str:
    return "" if share == 0 else "<1" if share < 0.005 else f"{100 * share:.0f}"


def weights_table(facts: Facts) -> Markup:
    """Show view weights by site; a site without a view has none."""
    common = [Cell(number(view.weight), view.weight) for view in facts.views]
    rows: list[Sequence[Any]] = [("global model" if facts.n_sites > 1 else "model", *common)]
    sites: list[int | None] = [None]
    for s, site in enumerate(facts.sites):
        if site.views and facts.n_sites > 1:
            weights = {view.name: site.weights.get(view.name, view.weight) for view in facts.views}
            cells = (Cell(number(w), w) if v in site.views else Cell("no data", css="none") for v, w in weights.items())
            rows.append((site.name, *cells))
            sites.append(s)
    columns = ("", *(view.name for view in facts.views))
    return _fold("weights", f"{plural(len(rows), 'row')} by site", columns, rows, sites)


def models_table(facts: Facts) -> Markup:
    """Show rows, clusters, certainty and separation of each site, and how far its own model is from the global one."""
    columns = _model_columns(facts)
    rows = [
        (facts.sites[s].name, *(show(facts.sites[s], found) for show in columns.values()))
        for s, found in facts.assigned.items()
    ]
    return _fold("models", f"{plural(len(rows), 'row')} by site", ("site", *columns), rows, list(facts.assigned))


def _model_columns(facts: Facts) -> dict[str, Callable[[Site, Assignment], Any]]:
    """Choose the columns that this run has something for, each with what it shows of a site."""
    columns: dict[str, Callable[[Site, Assignment], Any]] = {"rows": lambda _, a: f"{len(a.labels):,}"}
    if any(_lacking(facts, site) for site in facts.sites):
        columns["lacks"] = lambda site, _: _lacking(facts, site)
    columns["clusters found"] = lambda _, a: f"{len(np.unique(a.labels))} of {facts.n_clusters}"
    columns["certainty"] = lambda _, a: two_digits(_mean(a.certainty))
    if facts.has_rows:
        columns["separation"] = lambda site, _: two_digits(site.separation)
    if facts.n_moved:
        columns["rows moved"] = lambda _, a: percent(_mean(a.labels != a.global_labels))
    if facts.personal:
        for view in facts.views:
            columns[f"Δ {view.name}"] = partial(_show_distance, facts, view.name)
    for component, name in COMPONENTS.items():
        if any(site.shares.get(component, 0.0) > 0 for site in facts.sites):
            columns[f"own {name}"] = partial(_show_share, component)
    return columns


def _lacking(facts: Facts, site: Site) -> str:
    return ", ".join(view.name for view in facts.views if view.name not in site.views)


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _show_distance(facts: Facts, view: str, site: Site, _: Assignment) -> Cell:
    distance = facts.distances(site).get(view, math.nan)
    return Cell(two_digits(distance), distance)


def _show_share(component: str, site: Site, _: Assignment) -> Cell:
    share = site.shares.get(component, 0.0)
    return Cell(two_digits(share), share)


def refusals_table(facts: Facts) -> Markup:
    """Show which answers were refused, when and why, and when sites did not answer."""
    rows = [
        (r.number, Cell(site, css="text"), Cell(why, css="text"))
        for r in facts.rounds
        for site, why in r.refused.items()
    ]
    most = max((r.sites or 0 for r in facts.rounds), default=0)
    short = [r.sites for r in facts.rounds if r.sites is not None and r.sites < most]
    text: str = ""
    if short:
        counted = f"In {plural(len(short), 'round')} fewer than {most} sites counted; the least were {min(short)}."
        text = tag("p", counted)
    if not rows:
        return join(text, tag("p", "No answer was refused.", id="refusals"))
    return join(text, _fold("refusals", f"{len(rows):,} refusals", ("round", "site", "reason"), rows))


def _fold(
    name: str, summary: str, columns: Sequence[Any], rows: Sequence[Sequence[Any]], sites: Sequence[int | None] = ()
) -> Markup:
    """Make a table, folded below its summary if it is long."""
    made = table(columns, rows, sites)
    if len(rows) <= MOST_ROWS:
        return tag("div", made, id=name)
    return tag("details", tag("summary", summary), made, id=name)
