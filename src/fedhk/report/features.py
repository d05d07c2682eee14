"""What characterises a cluster: the features in which its centre is furthest from the mean of all rows."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.dictionary import ColumnEntry
from fedhk.report.rows import MOST_ROWS
from fedhk.summary.drawing import cluster_colour, number_colour
from fedhk.summary.facts import Facts, Rows, View
from fedhk.summary.html import Markup, tag
from fedhk.summary.words import join_names, number, percent, plural, shorten, show_date

MOST_FEATURES = 5

# Numbers of sites that a page carries at most for its selector.
MOST_NUMBERS = 40_000

# Features of all clusters and views together.
MOST_ON_PAGE = 2500

# Bars end here, in spreads.
MOST_SPREADS = 4

# A feature is high or low from so many spreads on.
NOTABLE = 0.25

# A value below this share of the spread of its column is shown as 0: what is left of it is rounding.
NEXT_TO_ZERO = 1e-3


@dataclass(frozen=True, eq=False)
class Highlights:
    """The features that are shown, by (cluster, view), the furthest first, and where bars end, in whole spreads."""

    chosen: dict[tuple[int, int], IntArray]
    reach: int


def choose_features(facts: Facts) -> Highlights:
    """Choose the features to show: fewer where there are many sites, clusters and views, so that pages stay small."""
    pairs = facts.n_clusters * len(facts.views)
    allowed = min(MOST_NUMBERS // (max(len(facts.sites), 1) * pairs), MOST_ON_PAGE // pairs)
    most = min(MOST_FEATURES, max(1, allowed))
    chosen, furthest = {}, 1.0
    for h, view in enumerate(facts.views):
        away = np.abs(view.deviations(view.centers))
        furthest = max(furthest, float(away.max(initial=0.0)))
        for k in range(facts.n_clusters):
            order = np.argsort(-away[k], kind="stable")[:most]
            chosen[k, h] = order[away[k][order] > 0]
    return Highlights(chosen, min(math.ceil(furthest), MOST_SPREADS))


def site_values(facts: Facts, shown: Highlights, site: int) -> list[list[int | None] | None]:
    """Find where a site is in the features that are shown, per cluster, in hundredths of spreads.

    Means of its rows in the cluster where rows are there, else the centres of its own model; None where it has neither.
    """
    rows = facts.sites[site].rows
    means = facts.sites[site].centers if rows is None else _cluster_means(rows.sample(MOST_ROWS), facts.n_clusters)
    values: list[list[int | None] | None] = []
    for k in range(facts.n_clusters):
        found: list[int | None] = []
        for h, view in enumerate(facts.views):
            features, own = shown.chosen[k, h], means.get(view.name)
            away = np.full(len(features), np.nan) if own is None else view.deviations(own[k])[features]
            found += [round(100 * float(z)) if math.isfinite(z) else None for z in away]
        values.append(found if any(value is not None for value in found) else None)
    return values


def _cluster_means(rows: Rows, n_clusters: int) -> dict[str, FloatArray]:
    """Average the rows in each cluster, by view; NaN where there are none."""
    means = {}
    one_hot = np.arange(n_clusters)[:, None] == rows.labels
    for name, table in rows.tables.items():
        if table is not None:
            counts = one_hot @ (~np.isnan(table)).astype(np.float64)
            means[name] = np.where(counts > 0, one_hot @ np.nan_to_num(table) / np.maximum(counts, 1), np.nan)
    return means


def cluster_card(facts: Facts, shown: Highlights, cluster: int, *, unfolded: bool) -> Markup:
    """Show a cluster in one line, and folded below it the features that characterise it."""
    line = [
        badge(cluster),
        tag("span", f"Cluster {cluster}", class_="name"),
        *_show_size(facts, cluster),
        tag("span", _tell_features(facts, cluster), class_="words"),
    ]
    tables: list[str] = [
        _feature_table(facts, shown, cluster, h) for h in range(len(facts.views)) if len(shown.chosen[cluster, h])
    ]
    body = tag("div", *(tables or ["This cluster is at the mean of all rows."]), class_="views")
    opened = "" if unfolded else None
    colour = f"--own:{cluster_colour(cluster)}"  # of all its bars
    return tag("details", tag("summary", *line), body, class_="card", data_k=cluster, open=opened, style=colour)


def badge(cluster: int) -> Markup:
    """Show the number of a cluster on its colour."""
    colours = f"background:{cluster_colour(cluster)};color:{number_colour(cluster)}"
    return tag("span", cluster, class_="badge", style=colours)


def _show_size(facts: Facts, cluster: int) -> list[Markup]:
    """Show how many rows the cluster has, in words and as its share of a bar; nothing where that is not known."""
    sizes = facts.total_sizes
    if not sizes.any():
        return []
    share = float(sizes[cluster] / sizes.sum())
    text = f"{plural(int(sizes[cluster]), 'row')}, {percent(share)}"
    bar = tag("b", style=f"width:{100 * share:.1f}%")
    return [tag("span", text, class_="size"), tag("span", bar, class_="meter")]


def _tell_features(facts: Facts, cluster: int) -> str:
    """Name the three features that stand out most in all views, with the view where several have one of the name."""
    counts = Counter(name for view in facts.views for name in view.features)
    found = [
        (float(z), name if counts[name] == 1 else f"{view.name}: {name}")
        for view in facts.views
        for z, name in zip(view.deviations(view.centers[cluster]), view.features, strict=True)
        if abs(z) > NOTABLE
    ]
    found = sorted(found, key=lambda pair: -abs(pair[0]))[:3]
    high, low = [name for z, name in found if z > 0], [name for z, name in found if z < 0]
    parts = [f"{word} {join_names(names)}" for word, names in (("high", high), ("low", low)) if names]
    return "; ".join(parts) or "near the mean of all rows"


def _feature_table(facts: Facts, shown: Highlights, cluster: int, h: int) -> Markup:
    view = facts.views[h]
    known = facts.dictionary.get(view.name, {})
    rows = [
        _feature_row(view, cluster, int(j), shown.reach, known.get(view.features[j], ColumnEntry()))
        for j in shown.chosen[cluster, h]
    ]
    scale = f"−{shown.reach} to +{shown.reach} spreads"
    heads = ((None, "feature"), (None, "centre"), (None, "mean"), ("bar", scale), ("here", "site"))
    head = tag("tr", *(tag("th", text, scope="col", class_=css) for css, text in heads))
    parts = (tag("caption", view.name), tag("thead", head), tag("tbody", *rows))
    return tag("table", *parts, class_="features", data_v=h)


def _feature_row(view: View, cluster: int, j: int, reach: int, entry: ColumnEntry) -> Markup:
    away = float(view.deviations(view.centers[cluster])[j])
    end = 50 * max(-1.0, min(1.0, away / reach))
    bar = tag("b", style=f"left:{50 + min(end, 0):.1f}%;width:{max(abs(end), 0.5):.1f}%")
    values = [
        float(value) if abs(value) > NEXT_TO_ZERO * view.spread[j] else 0.0
        for value in (view.centers[cluster, j], view.mean[j])
    ]
    is_date = entry.kind == "date" or view.features[j] in view.dates
    center, mean = (show_date(value) if is_date else number(value, 2 if abs(value) < 0.1 else 3) for value in values)
    name = view.features[j] + (f" ({entry.unit})" if entry.unit else "")
    return tag(
        "tr",
        tag("th", shorten(name, 24), scope="row", title=name),
        tag("td", center),
        tag("td", mean),
        tag("td", bar, tag("i"), class_="bar", title=f"{number(away, 2)} spreads"),
        tag("td", class_="here"),
        data_m=f"{view.mean[j]:.6g}",
        data_d=f"{view.spread[j]:.6g}",
        data_date="" if is_date else None,
    )
