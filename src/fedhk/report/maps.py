"""A view in two dimensions: rows as dots, centres as numbers, and where a site's own centres are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.summary.drawing import (
    DOTS,
    INK,
    RULE,
    Figure,
    cluster_colour,
    describe,
    draw_badges,
    page_axes,
    require_matplotlib,
    shorten_ticks,
)
from fedhk.summary.facts import Facts, View
from fedhk.summary.words import number, percent, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Points of a map, and of all maps of a page: more of them hide each other, and make the page large.
MOST_POINTS, MOST_ON_PAGE = 2000, 16_000

# Fewest points of a site in a map, so that small sites can be found.
LEAST_POINTS = 5

# Own centres are drawn up to so many of all sites, clusters and views: more make the page large.
MOST_MOVES = 3200

HEIGHT, MARGINS = 318.0, (38.0, 8.0, 22.0, 36.0)

# Room for the marks of centres at the edges, in pixels.
ROOM = 12.0

# Points that are further out than this many times the range of all but one per cent are drawn at the edge.
FAR = 1.4

# Own centres that are nearer to the global ones than this share of the map are not drawn: they could not be seen.
NEAR = 1 / 320

# Up to so many clusters, the numbers of centres are large; those of more would hide each other.
FEW_CLUSTERS = 10

# Diameters of the numbers of centres, in pixels, and steps in which those that would hide each other are moved apart.
BADGE, SMALL_BADGE, STEPS = 18.0, 13.5, 40


@dataclass(frozen=True, eq=False)
class MapPoints:
    """A view in two dimensions, in spreads."""

    centers: FloatArray  # (c, 2), of the global model
    points: FloatArray  # (n, 2), a sample of the rows; none where rows are not shown
    sites: IntArray  # (n,), number of the site of each point
    labels: IntArray  # (n,), cluster of each point
    own_centers: Mapping[int, FloatArray]  # (c, 2) by number of the site
    shares: FloatArray  # (2,), share of the variation that each axis shows
    flat: bool  # whether the view has one feature, so that the second axis means nothing
    n_rows: int  # that have the view


def project(facts: Facts, view: View) -> MapPoints:
    """Project a view on its first two principal directions: a sample of its rows, or without rows its centres."""
    cloud, sites, labels, n_rows = _sample_rows(facts, view)
    drawn = cloud if len(cloud) else view.deviations(view.centers)
    middle = drawn.mean(axis=0)
    _, values, directions = np.linalg.svd(drawn - middle, full_matrices=False)
    kept = min(2, len(directions))
    axes, shares = np.zeros((2, drawn.shape[1])), np.zeros(2)
    axes[:kept] = directions[:kept]
    shares[:kept] = np.square(values[:kept]) / max(float(np.square(values).sum()), 1e-300)
    # the sign of a direction is arbitrary: the largest part is positive, so that the same rows give the same map
    axes *= np.where(axes[np.arange(2), np.argmax(np.abs(axes), axis=1)] < 0, -1.0, 1.0)[:, None]
    centers, points = (view.deviations(view.centers) - middle) @ axes.T, (cloud - middle) @ axes.T
    own = {s: (view.deviations(found) - middle) @ axes.T for s, found in own_centers(facts, view).items()}
    flat = drawn.shape[1] == 1
    if flat:  # random heights, so that dots do not hide each other
        points[:, 1] = np.random.default_rng(0).uniform(-1, 1, len(points)) * np.ptp(centers[:, 0]) / 3
    return MapPoints(centers, points, sites, labels, own, shares, flat, n_rows)


def _sample_rows(facts: Facts, view: View) -> tuple[FloatArray, IntArray, IntArray, int]:
    """Draw rows that have the view, in spreads, with their sites and clusters; and count all that have it."""
    total = sum(len(site.rows.labels) for site in facts.sites if site.rows is not None)
    most = min(MOST_POINTS, MOST_ON_PAGE // len(facts.views))
    points, sites, labels = [np.zeros((0, len(view.mean)))], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    n_rows = 0
    for s, site in enumerate(facts.sites):
        if site.rows is None or site.rows.tables.get(view.name) is None:
            continue
        n_site = len(site.rows.labels)
        some = site.rows.sample(max(LEAST_POINTS, most * n_site // max(total, 1)), seed=s)
        table = np.asarray(some.tables[view.name])
        seen = ~np.all(np.isnan(table), axis=1)
        points.append(np.nan_to_num(view.deviations(table[seen])))
        sites.append(np.full(int(seen.sum()), s))
        labels.append(some.labels[seen])
        n_rows += n_site
    return np.concatenate(points), np.concatenate(sites), np.concatenate(labels), n_rows


def own_centers(facts: Facts, view: View) -> dict[int, FloatArray]:
    """Find the centres of own models that differ from the global ones, by number of the site."""
    if len(facts.sites) * facts.n_clusters * len(facts.views) > MOST_MOVES:
        return {}
    return {
        s: site.centers[view.name]
        for s, site in enumerate(facts.sites)
        if view.name in site.centers
        and view.name in site.views
        and not np.array_equal(site.centers[view.name], view.centers)
    }


def view_map(facts: Facts, h: int, ax: Axes | None = None) -> Figure:
    """Draw the map of a view by its number."""
    view = facts.views[h]
    found = project(facts, view)
    with page_axes(ax, HEIGHT, MARGINS) as axes:
        _draw_frame(axes, found)
        cut = _set_limits(axes, found)
        _draw_rows(axes, found)
        _draw_own_centers(axes, found, hidden=len(facts.sites) > 1)
        _draw_centers(axes, found)
    about = f"Map of view {view.name}: {len(found.points)} rows and the centres of {len(found.centers)} clusters."
    rows = [(k, *(number(float(v)) for v in center)) for k, center in enumerate(found.centers)]
    columns = ("cluster", "direction 1", "direction 2")
    return Figure(f"map-{h}", view.name, _write_note(facts, found, cut), axes, about, columns, rows, h)


def _write_note(facts: Facts, found: MapPoints, cut: bool) -> str:
    shown = percent(found.shares.sum())
    if not len(found.points):
        return f"Centres only; the two directions show {shown} of how they differ."
    sample = plural(len(found.points), "row")
    if len(found.points) < found.n_rows:
        sample += f" of {found.n_rows:,}"
    elif found.n_rows < (facts.n_rows or 0):
        sample += " that have the view"
    note = f"{sample}; the two directions show {shown} of the variation."
    if found.flat:
        note = f"{sample}; the view has one feature, so the height of a dot means nothing."
    return note + (" Rows far out are drawn at the edge." if cut else "")


def _set_limits(ax: Axes, found: MapPoints) -> bool:
    """Show all centres, and all rows unless few are far out; the same units both ways. Returns whether some are."""
    everything = np.vstack([found.points, found.centers])
    inner = np.vstack([np.percentile(everything, [0.5, 99.5], axis=0), found.centers])
    cut = bool(np.any(np.ptp(everything, axis=0) > FAR * np.ptp(inner, axis=0)))
    shown = inner if cut else everything
    low, high = shown.min(axis=0), shown.max(axis=0)
    size = np.array(ax.bbox.size)
    per_pixel = np.max(np.maximum(high - low, 0.5) / (size - 2 * ROOM))
    left, bottom = (low + high - size * per_pixel) / 2
    ax.set(xlim=(left, left + size[0] * per_pixel), ylim=(bottom, bottom + size[1] * per_pixel))
    return cut


def _draw_frame(ax: Axes, found: MapPoints) -> None:
    across, up = (percent(share) for share in found.shares)
    ax.spines[:].set(visible=True, color=RULE, linewidth=1.0)
    for spine in ax.spines.values():
        describe(spine, "rule")
    ax.tick_params(length=4, width=1.0, color=RULE, pad=3)
    ax.set_xlabel(f"direction 1 ({across}), in spreads")
    ax.locator_params(nbins=6, steps=[1, 2, 5, 10])
    for axis in (ax.xaxis, ax.yaxis):
        shorten_ticks(axis)
    if found.flat:
        ax.set_yticks([])
    else:
        text = ax.text(0.0, 1.015, f"direction 2 ({up})", transform=ax.transAxes, va="bottom", color=INK)
        describe(text, "axis")


def _draw_rows(ax: Axes, found: MapPoints) -> None:
    if not len(found.points):
        return
    x, y = _keep_inside(ax, found.points).T
    dots = ax.scatter(x, y, s=11.5, c=[cluster_colour(k) for k in found.labels], alpha=0.6, linewidth=0)
    each = [{"data-s": int(s), "data-k": int(k)} for s, k in zip(found.sites, found.labels, strict=True)]
    describe(dots, DOTS, each)


def _keep_inside(ax: Axes, points: FloatArray) -> FloatArray:
    """Move points that are outside the axes to their edge."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    edge = 0.006 * (right - left)
    inside: FloatArray = np.clip(points, [left + edge, bottom + edge], [right - edge, top - edge])
    return inside


def _draw_own_centers(ax: Axes, found: MapPoints, *, hidden: bool) -> None:
    """Draw lines from the global centres to a site's own, with rings at their ends; hidden ones wait for selectors."""
    least = NEAR * np.ptp(ax.get_xlim())
    centers = _keep_inside(ax, found.centers)
    look: dict[str, Any] = {"edgecolor": INK, "linewidth": 1.4, "alpha": 0.0 if hidden else 1.0, "zorder": 3}
    for s, own in found.own_centers.items():
        ends = _keep_inside(ax, own)
        moved = np.flatnonzero(np.abs(ends - centers).max(axis=1) >= least)
        lines = require_matplotlib().collections.LineCollection(np.stack([centers, ends], axis=1)[moved], **look)
        rings = ax.scatter(ends[moved, 0], ends[moved, 1], s=64, facecolor="none", **look)
        for drawn in (ax.add_collection(lines, autolim=False), rings):
            describe(drawn, "moves only" if hidden else "moves", [{"data-k": int(k)} for k in moved], data_s=s)


def _draw_centers(ax: Axes, found: MapPoints) -> None:
    clusters = range(len(found.centers))
    titles = [f"cluster {k}" for k in clusters]
    small = len(clusters) > FEW_CLUSTERS
    places = _move_apart(ax, _keep_inside(ax, found.centers), SMALL_BADGE if small else BADGE)
    draw_badges(ax, _keep_inside(ax, places), clusters, titles, small=small)


def _move_apart(ax: Axes, places: FloatArray, diameter: float) -> FloatArray:
    """Push discs of a diameter in pixels apart until none hides another, or for a number of steps."""
    least = diameter * np.ptp(ax.get_xlim()) / ax.bbox.width
    moved, turns = places.copy(), 2.4 * np.arange(len(places))
    ways = np.stack([np.cos(turns), np.sin(turns)], axis=1)  # discs at one place go different ways
    for _ in range(STEPS):
        apart = moved[:, None] - moved[None]
        distance = np.linalg.norm(apart, axis=2)
        close = (distance < least) & ~np.eye(len(places), dtype=bool)
        if not close.any():
            break
        away = ways[:, None] - ways[None]
        same = (distance < 1e-9 * least)[..., None]
        unit = np.where(same, away, apart / np.maximum(distance, 1e-300)[..., None])
        moved += np.sum(np.where(close[..., None], unit * (least - distance)[..., None] / 2, 0.0), axis=1)
    return moved
