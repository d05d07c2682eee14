"""What characterises a cluster: the features in which its centre is furthest from the mean of all rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.report.facts import Facts, View
from fedhk.report.svg import colour, escape, tag
from fedhk.report.words import counted, listed, number, percent, shortened

MOST_FEATURES = 5
# Numbers of sites that a page carries at most for its selector.
MOST_NUMBERS = 40_000
# Features of all clusters and views together.
MOST_ON_PAGE = 2500
# Bars end here, in spreads.
MOST_SPREADS = 4


@dataclass(frozen=True, eq=False)
class Highlights:
    """The features that are shown of each cluster and view.

    Parameters
    ----------
    chosen : dict of (int, int) to array of int
        Features by (cluster, view), the furthest first.
    reach : int
        Where bars end, in whole spreads.
    """

    chosen: dict[tuple[int, int], IntArray]
    reach: int


def highlights(facts: Facts) -> Highlights:
    """Choose the features: fewer where there are many sites, clusters and views, so that a page stays small."""
    pairs = facts.n_clusters * len(facts.views)
    allowed = min(MOST_NUMBERS // (max(len(facts.sites), 1) * pairs), MOST_ON_PAGE // pairs)
    most = min(MOST_FEATURES, max(1, allowed))
    chosen, furthest = {}, 1.0
    for h, view in enumerate(facts.views):
        away = view.deviations(view.centers)
        furthest = max(furthest, float(np.abs(away).max(initial=0.0)))
        for k in range(facts.n_clusters):
            order = np.argsort(-np.abs(away[k]), kind="stable")[:most]
            chosen[k, h] = order[np.abs(away[k][order]) > 0]
    return Highlights(chosen, min(math.ceil(furthest), MOST_SPREADS))


def site_values(facts: Facts, marked: Highlights, site: int) -> list[list[int | None] | None]:
    """Per cluster, where the site is in the features that are shown, in hundredths of spreads.

    Means of its rows in the cluster where rows are there, else the centres of its own model; None where it has neither.
    """
    means = facts.measured.cluster_means.get(site, {}) if facts.measured is not None else facts.sites[site].centers
    values: list[list[int | None] | None] = []
    for k in range(facts.n_clusters):
        found: list[int | None] = []
        for h, view in enumerate(facts.views):
            own = means.get(view.name)
            shown = marked.chosen[k, h]
            away = np.full(len(shown), np.nan) if own is None else view.deviations(own[k])[shown]
            found += [round(100 * float(z)) if math.isfinite(z) else None for z in away]
        values.append(found if any(value is not None for value in found) else None)
    return values


def cluster_card(facts: Facts, marked: Highlights, cluster: int, *, unfolded: bool) -> str:
    """A cluster in one line, and folded below it the features that make it."""
    sizes = sum((found for found in facts.sizes.values()), start=np.zeros(facts.n_clusters, np.int64))
    total = int(sizes.sum())
    badge = tag("span", str(cluster), class_="badge", style=f"background:{colour(cluster)}")
    name = tag("span", f"Cluster {cluster}", class_="name")
    size_text, bar = "", ""
    if total:
        share = sizes[cluster] / total
        size_text = tag("span", f"{counted(int(sizes[cluster]), 'row')}, {percent(share)}", class_="size")
        scale = share / (sizes.max() / total)
        fill = tag("b", style=f"width:{100 * scale:.1f}%;background:{colour(cluster)}")
        bar = tag("span", fill, class_="meter")
    words = tag("span", escape(_words(facts, cluster)), class_="words")
    tables = "".join(
        _feature_table(view, marked, cluster, h) for h, view in enumerate(facts.views) if len(marked.chosen[cluster, h])
    )
    body = tag("div", tables or "This cluster is at the mean of all rows.", class_="views")
    return tag(
        "details",
        tag("summary", badge + name + size_text + bar + words) + body,
        class_="card",
        data_k=cluster,
        open="" if unfolded else None,
    )


def _words(facts: Facts, cluster: int) -> str:
    """The three features that stand out most in all views, in words."""
    found = []
    for view in facts.views:
        away = view.deviations(view.centers[cluster])
        found += [(float(z), name) for z, name in zip(away, view.features, strict=True) if abs(z) > 0.25]
    found.sort(key=lambda pair: -abs(pair[0]))
    parts = [
        f"{word} {listed(names)}"
        for word, names in (
            ("high", [name for z, name in found[:3] if z > 0]),
            ("low", [name for z, name in found[:3] if z < 0]),
        )
        if names
    ]
    return "; ".join(parts) or "near the mean of all rows"


def _feature_table(view: View, marked: Highlights, cluster: int, h: int) -> str:
    away = view.deviations(view.centers[cluster])
    rows = "".join(_feature_row(view, cluster, int(j), away, marked.reach) for j in marked.chosen[cluster, h])
    scale = f"−{marked.reach} to +{marked.reach} spreads"
    heads = (("", "feature"), ("", "centre"), ("", "mean"), ("bar", scale), ("here", "site"))
    head = "".join(tag("th", text, scope="col", class_=class_ or None) for class_, text in heads)
    caption = tag("caption", escape(view.name))
    return tag("table", caption + tag("thead", tag("tr", head)) + tag("tbody", rows), class_="features", data_v=h)


def _feature_row(view: View, cluster: int, j: int, away: FloatArray, reach: int) -> str:
    end = 50 * max(-1.0, min(1.0, away[j] / reach))
    bar = tag("b", style=f"left:{50 + min(end, 0):.1f}%;width:{max(abs(end), 0.5):.1f}%;background:{colour(cluster)}")
    cells = (
        tag("th", escape(shortened(view.features[j], 24)), scope="row", title=view.features[j])
        + tag("td", _brief(float(view.centers[cluster, j])))
        + tag("td", _brief(float(view.mean[j])))
        + tag("td", bar + tag("i"), class_="bar", title=f"{number(float(away[j]), 2)} spreads")
        + tag("td", class_="here")
    )
    return tag("tr", cells, data_m=f"{view.mean[j]:.6g}", data_d=f"{view.spread[j]:.6g}")


def _brief(value: float) -> str:
    """A number that fits its column."""
    return number(value, 2 if abs(value) < 0.1 else 3)
