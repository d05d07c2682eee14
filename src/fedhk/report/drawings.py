"""Drawings of what the page has in tables: where clusters are, weights of views, what makes clusters.

Every function draws on matplotlib axes, given or new, and returns them with the words and the table of the figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.summary.drawing import (
    BLACK,
    KIND_COLOURS,
    LINE_HEIGHT,
    Figure,
    cluster_colour,
    describe,
    draw_differences,
    draw_grid,
    draw_key,
    measure_lines,
    number_colour,
    page_axes,
)
from fedhk.summary.facts import Facts
from fedhk.summary.words import number, percent, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Sites and features that are drawn; tables have all.
MOST_SITES, MOST_FEATURES = 24, 16

# Share of a site's rows from which a part of its bar has room for the number of the cluster.
WORTH_A_NUMBER = 0.05

# Letters of a name that are drawn, and the width of a letter in pixels.
MOST_LETTERS, LETTER = 24, 6.0


def draw_sizes(facts: Facts, ax: Axes | None = None) -> Figure:
    """Draw the share of each site's rows in each cluster, a bar for each site; of many sites, the largest."""
    largest = sorted(facts.sizes, key=lambda site: -int(facts.sizes[site].sum()))[:MOST_SITES]
    shown = sorted(largest)
    shares = np.array([facts.sizes[s] / max(int(facts.sizes[s].sum()), 1) for s in shown])
    names = [facts.sites[s].name for s in shown]
    labels, left = _label(names)
    with page_axes(ax, 64.0 + 19.0 * len(shown), (left, 22.0, 14.0, 38.0)) as axes:
        begin: FloatArray = np.zeros(len(shown))
        for k in range(facts.n_clusters):
            bars = axes.barh(range(len(shown)), shares[:, k], 0.8, begin, color=cluster_colour(k))
            for y, bar in enumerate(bars):
                describe(bar, "share", title=f"{names[y]}, cluster {k}: {percent(shares[y, k])}", data_k=k)
                if shares[y, k] >= WORTH_A_NUMBER:
                    middle = begin[y] + shares[y, k] / 2
                    place: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 8}
                    text = axes.text(middle, y, str(k), color=number_colour(k), **place)
                    describe(text, "number many" + " dark" * (number_colour(k) == BLACK), data_k=k)
            begin += shares[:, k]
        axes.set(xlim=(0, 1), ylim=(len(shown) - 0.4, -0.6), xlabel="share of the rows of the site")
        axes.set_yticks(range(len(shown)), labels, parse_math=False)
        draw_grid(axes, "x")
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    note = "A bar is a site; its parts are clusters, in their order."
    if len(shown) < len(facts.sizes):
        note += f" The {len(shown)} largest of {len(facts.sizes)} sites; the table has all."
    rows = [(facts.sites[s].name, f"{n.sum():,}", *(f"{size:,}" for size in n)) for s, n in facts.sizes.items()]
    about = f"Share of the rows of each of {len(facts.sizes)} sites in each of {facts.n_clusters} clusters."
    columns = ("site", "rows", *_name_clusters(range(facts.n_clusters)))
    return Figure("sizes", "Where the clusters are", note, axes, about, columns, rows)


def draw_weights(facts: Facts, ax: Axes | None = None) -> Figure:
    """Draw view weights: a bar for the global model, and a dot for each site whose own model has others."""
    weights = np.array([view.weight for view in facts.views])
    own = {site.name: site.weights for site in facts.sites if site.weights}
    labels, left = _label([view.name for view in facts.views])
    with page_axes(ax, 64.0 + 19.0 * len(labels), (left, 14.0, 26.0, 38.0)) as axes:
        bars = axes.barh(range(len(weights)), weights, 0.6, color=KIND_COLOURS[0], label="global model")
        for bar, view in zip(bars, facts.views, strict=True):
            describe(bar, "k0 bin", title=f"{view.name}: {number(view.weight)}")
        dots = [
            (part[view.name], y, f"{name}, {view.name}: {number(part[view.name])}")
            for name, part in own.items()
            for y, view in enumerate(facts.views)
            if view.name in part
        ]
        if dots:
            across, lines, titles = zip(*dots, strict=True)
            look: dict[str, Any] = {"s": 36, "color": KIND_COLOURS[1], "zorder": 3}
            describe(axes.scatter(across, lines, label="own model of a site", **look), "k1", titles)
            draw_key(axes, ["k1", "k0"])  # matplotlib puts bars last
        axes.set(xlim=(0, None), ylim=(len(labels) - 0.4, -0.6), xlabel="weight")
        axes.set_yticks(range(len(labels)), labels, parse_math=False)
        draw_grid(axes, "x")
    names = [view.name for view in facts.views]
    rows = [("global model" if facts.n_sites > 1 else "model", *map(number, weights))]
    rows += [(name, *(number(part[view]) if view in part else "" for view in names)) for name, part in own.items()]
    about = "Weights of views: " + ", ".join(f"{view.name} {number(view.weight)}" for view in facts.views) + "."
    return Figure("weights", "View weights", "They sum to 1.", axes, about, ("", *names), rows)


def draw_features(facts: Facts, clusters: Sequence[int], ax: Axes | None = None) -> Figure:
    """Draw the features in which centres of these clusters are furthest from the mean of all rows."""
    counts = Counter(name for view in facts.views for name in view.features)
    names = [n if counts[n] == 1 else f"{view.name}: {n}" for view in facts.views for n in view.features]
    away = np.hstack([view.deviations(view.centers)[list(clusters)] for view in facts.views])
    furthest = np.nan_to_num(np.abs(away)).max(axis=0)
    order = np.argsort(-furthest, kind="stable")
    shown = [int(place) for place in order[:MOST_FEATURES] if furthest[place] > 0]
    labels, left = _label([names[place] for place in shown])
    with page_axes(ax, 66.0 + LINE_HEIGHT * measure_lines(away[:, shown]), (left, 10.0, 26.0, 38.0)) as axes:
        draw_differences(axes, away[:, shown], labels, [names[place] for place in shown], clusters)
        # to the right, because it is longer than the axes where names of features are long
        axes.set_xlabel("centre less mean, in standard deviations", loc="right")
    note = "A disc is a cluster."
    if len(shown) < len(names):
        note += f" The {len(shown)} largest of {len(names)} features."
    rows = [(names[place], *(number(value, 2) for value in away[:, place])) for place in order[: 4 * MOST_FEATURES]]
    about = f"Standardised differences of {len(clusters)} centres to the mean in {len(shown)} features."
    return Figure("features", "What makes clusters", note, axes, about, ("feature", *_name_clusters(clusters)), rows)


def _label(names: Sequence[str]) -> tuple[list[str], float]:
    """Shorten names to labels of an axis, and return the room that they take."""
    printed = ["".join(c if c.isprintable() else "?" for c in name) for name in names]  # SVG has no others
    labels = [shorten(name, MOST_LETTERS) for name in printed]
    return labels, 22.0 + LETTER * max(map(len, labels), default=0)


def _name_clusters(clusters: Sequence[int]) -> list[str]:
    return [f"cluster {k}" for k in clusters]
