"""Tables of sites: which clusters and views they have, how their models differ, and who was refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedhk.report.features import badge
from fedhk.summary.facts import Facts
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
    return _fold("sizes", ("site", "rows", *map(badge, range(facts.n_clusters))), rows, list(shares))


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
    return _fold("weights", ("", *(view.name for view in facts.views)), rows, sites)


def models_table(facts: Facts) -> Markup:
    """Show rows, clusters, certainty and separation of each site, and how far its own model is from the global one.

    A column is there if this run has something for it.
    """
    sites, found = [facts.sites[s] for s in facts.assigned], facts.assigned.values()
    columns: dict[str, list[Any]] = {
        "site": [site.name for site in sites],
        "rows": [f"{len(a.labels):,}" for a in found],
        "lacks": [", ".join(v.name for v in facts.views if v.name not in site.views) for site in sites],
        "clusters found": [f"{len(np.unique(a.labels))} of {facts.n_clusters}" for a in found],
        "certainty": [two_digits(_mean(a.certainty)) for a in found],
    }
    if not any(columns["lacks"]):
        del columns["lacks"]
    if facts.has_rows:
        columns["separation"] = [two_digits(site.separation) for site in sites]
    if facts.n_moved:
        columns["rows moved"] = [percent(_mean(a.labels != a.global_labels)) for a in found]
    if facts.personal:
        for view in facts.views:
            columns[f"Δ {view.name}"] = _shade(facts.distances(site).get(view.name, math.nan) for site in sites)
    for component, name in COMPONENTS.items():
        if any(site.shares.get(component, 0.0) > 0 for site in sites):
            columns[f"own {name}"] = _shade(site.shares.get(component, 0.0) for site in sites)
    return _fold("models", list(columns), list(zip(*columns.values(), strict=True)), list(facts.assigned))


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _shade(values: Iterable[float]) -> list[Cell]:
    return [Cell(two_digits(value), value) for value in values]


def refusals_table(facts: Facts) -> Markup:
    """Show which answers were refused, when and why, and when sites did not answer; empty if all did."""
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
        return join(text)
    return join(text, _fold("refusals", ("round", "site", "reason"), rows, summary=f"{len(rows):,} refusals"))


def _fold(
    name: str,
    columns: Sequence[Any],
    rows: Sequence[Sequence[Any]],
    sites: Sequence[int | None] = (),
    summary: str = "",
) -> Markup:
    """Make a table, folded below its summary if it is long."""
    made = table(columns, rows, sites)
    if len(rows) <= MOST_ROWS:
        return tag("div", made, id=name)
    return tag("details", tag("summary", summary or "Table of all sites"), made, id=name)
