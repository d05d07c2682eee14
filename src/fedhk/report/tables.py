"""Tables of sites: which clusters and views they have, how their models differ, and who was refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedhk.summary.facts import Assignment, Facts
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

# What a column shows of a site, given by its number and its assignment.
Column = Callable[[int, Assignment], Any]


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
        (facts.sites[s].name, *(cell(s, found) for cell in columns.values())) for s, found in facts.assigned.items()
    ]
    return _fold("models", f"{plural(len(rows), 'row')} by site", ("site", *columns), rows, list(facts.assigned))


def _model_columns(facts: Facts) -> dict[str, Column]:
    """Choose the columns that this run has something for, each with what it shows of a site."""
    lacking = {s: [v.name for v in facts.views if v.name not in site.views] for s, site in enumerate(facts.sites)}
    separation = facts.measured.separation if facts.measured is not None else {}
    distances = {s: facts.distances(site) for s, site in enumerate(facts.sites)}
    shares = {s: facts.shares.get(site.name, {}) for s, site in enumerate(facts.sites)}
    columns: dict[str, Column] = {"rows": lambda _, a: f"{len(a.labels):,}"}
    if any(lacking.values()):
        columns["lacks"] = lambda s, _: ", ".join(lacking[s])
    columns["clusters found"] = lambda _, a: f"{len(np.unique(a.labels))} of {facts.n_clusters}"
    columns["certainty"] = lambda _, a: two_digits(_mean(a.certainty))
    if separation:
        columns["separation"] = lambda s, _: two_digits(separation.get(s, math.nan))
    if facts.n_moved:
        columns["rows moved"] = lambda _, a: percent(_mean(a.labels != a.global_labels))
    if facts.personal:
        for view in facts.views:
            columns[f"Δ {view.name}"] = _show(distances, view.name, math.nan)
    for part, name in COMPONENTS.items():
        if any(own.get(part, 0.0) > 0 for own in facts.shares.values()):
            columns[f"own {name}"] = _show(shares, part, 0.0)
    return columns


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _show(found: Mapping[int, Mapping[str, float]], key: str, default: float) -> Column:
    """Make a column of numbers by site, shaded by their size."""

    def show(s: int, _: Assignment) -> Cell:
        value = found[s].get(key, default)
        return Cell(two_digits(value), value)

    return show


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
