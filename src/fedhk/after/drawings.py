"""Pictures of what comes after a run: effect sizes of columns, survival curves, consensus maps, flows of rows.

Every function draws on matplotlib axes, given or new, and returns them with the words and the table of the figure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.after.comparison import Comparison
from fedhk.after.profile import Profile
from fedhk.after.stability import Stability
from fedhk.after.survival import Survival
from fedhk.after.tables import SURE, name_outcome, show_count
from fedhk.summary.drawing import (
    INK,
    KIND_COLOURS,
    LINE_HEIGHT,
    PAPER,
    RULE,
    SOFT,
    WIDTH,
    Figure,
    cluster_colour,
    describe,
    draw_badges,
    draw_differences,
    draw_grid,
    measure_lines,
    page_axes,
    require_matplotlib,
    shorten_ticks,
)
from fedhk.summary.words import number, percent, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Columns that are drawn; the table has all.
MOST_COLUMNS = 16

# Letters of the name of a column that are drawn, and the width of a letter in pixels.
MOST_LETTERS, LETTER = 24, 6.0

# Width of a digit at an axis, and room between two numbers there, in pixels.
TICK_LETTER, GAP = 7.0, 4.0

# Clusters up to which each cell of a consensus map has its number.
MOST_CELLS = 10

# Share from which a cell of a consensus map is so dark that its number must be light.
DARK_CELL = 0.8

# Height of the name of a cluster beside ribbons, in pixels.
NAME_HEIGHT = 13.0

# Width and height of the number at the end of a curve, as shares of the axes.
BADGE_WIDTH, BADGE_HEIGHT = 0.05, 0.09


def draw_profile(found: Profile, ax: Axes | None = None) -> Figure:
    """Draw how far each cluster is from all other rows, for the columns in which clusters differ most."""
    told = found.told_places
    names = [found.labels[place] for place in told]
    used = [found.columns[place].used for place in told]
    differences = np.where(found.seen >= found.least_rows, found.difference, np.nan)[:, told]
    largest = np.nan_to_num(np.abs(differences)).max(axis=0)
    shown = [int(place) for place in np.argsort(-largest, kind="stable")[:MOST_COLUMNS] if largest[place] > 0]
    height = 82.0 + LINE_HEIGHT * measure_lines(differences[:, shown])
    labels = [shorten(names[p] + ("*" if used[p] else ""), MOST_LETTERS) for p in shown]
    left = 22.0 + LETTER * max(map(len, labels), default=0)
    some = f"\nThe {len(shown)} largest of {len(names)} columns" if len(shown) < len(names) else ""
    with page_axes(ax, height, (left, 10.0, 26.0, 54.0)) as axes:
        draw_differences(axes, differences[:, shown], labels, [names[p] for p in shown], range(found.n_clusters))
        # to the right, because it is longer than the axes where names of columns are long
        axes.set_xlabel(f"difference to the rest, in standard deviations{some}", loc="right")
    note = "A disc is a cluster. Columns marked * made the clusters, so differences there are no finding."
    if 0 < len(shown) < len(names):
        note += f" The {len(shown)} largest of {len(names)}; the table has all."
    rows = [(name, *(number(v, 2) for v in differences[:, i])) for i, name in enumerate(names)]
    columns = ("column", *(f"cluster {k}" for k in range(found.n_clusters)))
    about = f"Standardised differences of {found.n_clusters} clusters to the rest in {len(names)} columns."
    return Figure("profile", "What is special about clusters", note, axes, about, columns, rows)


def draw_survival(found: Survival, ax: Axes | None = None) -> Figure:
    """Draw the share of each cluster without event over time, with intervals, and the rows at risk below."""
    c = found.n_clusters
    below = 58.0 + 14.0 * c
    end = max(
        (float(found.times[~np.isnan(curve)][-1]) for curve in found.curves if not np.isnan(curve).all()), default=1.0
    )
    digits = max(len(found.show_at_risk(k, 0.0)) for k in range(c))
    # counts at the first and the last time, and the time itself, have their middle there
    beside = LETTER * digits / 2
    left, right = max(54.0, beside + 46.0), max(14.0, beside, LETTER * len(f"{end:,.0f}") / 2)
    with page_axes(ax, 190.0 + below, (left, right, 26.0, below)) as axes:
        for k, curve in enumerate(found.curves):
            there = _find_steps(curve)
            if not len(there):
                continue
            # with noise, times are few: between them a line is nearer than a step
            step: Any = None if found.noise else "post"
            style = "default" if found.noise else "steps-post"
            colour, times = cluster_colour(k), found.times[there]
            ends = found.lower[k, there], found.upper[k, there]
            band = axes.fill_between(times, *ends, step=step, color=colour, alpha=0.18, linewidth=0)
            describe(band, "band", title=f"cluster {k}, 95 % interval")
            line = axes.plot(times, curve[there], color=colour, drawstyle=style, label=f"cluster {k}")[0]
            describe(line, "curve", title=f"cluster {k}")
        axes.set(xlim=(0, end), ylim=(0, 1.02), yticks=np.linspace(0, 1, 6))
        draw_grid(axes, "y", "share without event")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.set_xlabel(found.time_name)
        ticks = _choose_ticks(axes, end, WIDTH - left - right, LETTER * digits)
        _name_curves(axes, found, end)
        # below the axes by so many points, whatever their height is
        under: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 9}
        first: dict[str, Any] = {**under, "ha": "right"}
        describe(axes.annotate("at risk", (0, 0), (-beside - 8, -42), color=SOFT, **first), "axis")
        for k in range(c):
            down = -(56 + 14 * k)
            named = axes.annotate(str(k), (0, 0), (-beside - 8, down), color=INK, weight="bold", **first)
            describe(named, "axis", title=f"cluster {k}")
            for tick in ticks:
                count = found.show_at_risk(k, tick)
                above: dict[str, Any] = {**under, "xycoords": axes.get_xaxis_transform(), "ha": "center"}
                axes.annotate(count, (tick, 0), (0, down), color=SOFT, annotation_clip=False, **above)
    note = f"The share of each cluster without event, and 95 % intervals. {found.notes[0]}"
    rows = [[str(line[0]), *map(str, line[1:])] for line in found.table().rows]
    about = f"Survival curves of {c} clusters. {found.notes[0]}"
    return Figure("survival", name_outcome(found.name), note, axes, about, found.table().columns, rows)


def _choose_ticks(ax: Axes, end: float, width: float, least: float) -> list[float]:
    """Keep as many ticks from 0 to an end as have room for their numbers, or for others so wide, side by side."""
    ticks = [float(tick) for tick in ax.get_xticks() if 0 <= tick <= end]
    ax.set_xticks(ticks)
    shorten_ticks(ax.xaxis)
    write = ax.xaxis.get_major_formatter()
    widest = max([least, *(TICK_LETTER * len(write(tick)) for tick in ticks)])
    ticks = ticks[:: math.ceil(len(ticks) * (widest + GAP) / width)]
    ax.set_xticks(ticks)
    return ticks


def _name_curves(ax: Axes, found: Survival, end: float) -> None:
    """Write the number of each cluster at the end of its curve; numbers that would hide each other are moved apart."""
    known = [(k, _find_steps(curve)) for k, curve in enumerate(found.curves)]
    ends = [(k, float(found.times[steps[-1]]), float(found.curves[k, steps[-1]])) for k, steps in known if len(steps)]
    placed: list[tuple[int, float, float]] = []
    for k, time, height in sorted(ends, key=lambda one: one[2]):
        near = [y for _, x, y in placed if abs(x - time) < BADGE_WIDTH * end and y + BADGE_HEIGHT > height]
        placed.append((k, time, max(near) + BADGE_HEIGHT if near else height))
    clusters, places = [k for k, *_ in placed], np.array([(x, y) for _, x, y in placed]).reshape(-1, 2)
    draw_badges(ax, places, clusters, [f"cluster {k}" for k in clusters], small=True)


def _find_steps(curve: FloatArray) -> IntArray:
    """Return the places where a curve changes, and its last place; none for an unknown curve."""
    known = np.flatnonzero(~np.isnan(curve))
    changes = np.flatnonzero(np.diff(curve[known], prepend=np.nan) != 0)
    return np.unique(known[np.append(changes, len(known) - 1)]) if len(known) else known


def draw_stability(found: Stability, ax: Axes | None = None) -> Figure:
    """Draw how often rows of each pair of clusters are together in halves of the rows."""
    c = len(found.rows)
    side = 230.0
    with page_axes(ax, max(side, NAME_HEIGHT * c) + 62.0, (86.0, 44.0, 24.0, 38.0)) as axes:
        shades = require_matplotlib().colors.LinearSegmentedColormap.from_list("together", [PAPER, KIND_COLOURS[0]])
        edges = np.arange(c + 1) - 0.5
        cells = axes.pcolormesh(
            edges, edges, np.nan_to_num(found.consensus), cmap=shades, vmin=0, vmax=1, edgecolor=RULE
        )
        each = [
            {
                "title": f"clusters {a} and {b}: {percent(float(found.consensus[a, b]))}",
                "fill-opacity": f"{np.nan_to_num(found.consensus[a, b]):.2f}",
            }
            for a, b in np.ndindex(c, c)
        ]
        describe(cells, "map", each)
        if c <= MOST_CELLS:
            for a, b in np.ndindex(c, c):
                share = found.consensus[a, b]
                ink = PAPER if share > DARK_CELL else INK
                text = axes.text(b, a, f"{100 * share:.0f}", ha="center", va="center", color=ink, fontsize=9)
                describe(text, "light" if share > DARK_CELL else "value")
        names = [f"{k} ({verdict})" for k, verdict in enumerate(found.verdicts)]
        axes.set_yticks(range(c), names)
        # as many numbers as fit side by side
        named = range(0, c, math.ceil(c * (LETTER * len(str(c - 1)) + 4.0) / side))
        axes.set_xticks(named, [str(k) for k in named])
        axes.set_ylim(c - 0.5, -0.5)
        axes.set_xlabel("cluster")
        describe(axes.text(0.0, 1.02, "together, per cent", transform=axes.transAxes, color=INK, va="bottom"), "axis")
    note = (
        "How often two rows of these clusters are together when halves of the rows are clustered anew. Sure clusters "
    )
    note += "are dark on the diagonal and light beside it."
    table = found.table()
    about = "Consensus map of clusters: " + ", ".join(f"cluster {k} is {word}" for k, word in enumerate(found.verdicts))
    return Figure("stability", "How sure the clusters are", note, axes, about, table.columns, table.rows)


def draw_comparison(found: Comparison, ax: Axes | None = None) -> Figure:
    """Draw how rows go from the clusters of one model to those of another, as ribbons (a Sankey picture)."""
    counts = np.where(found.counts < SURE * found.noise, 0.0, np.maximum(found.counts, 0.0))
    # where its rows come from, so that few ribbons cross
    order = np.argsort(np.arange(len(counts)) @ counts / np.maximum(counts.sum(axis=0), 1e-300), kind="stable")
    counts = counts[:, order]
    total = max(float(counts.sum()), 1.0)
    most = max(counts.shape)
    left, right = (_stack(sizes / total, 0.06 / most) for sizes in (counts.sum(axis=1), counts.sum(axis=0)))
    height = max(264.0, NAME_HEIGHT * most)
    with page_axes(ax, height + 36.0, (60.0, 60.0, 26.0, 10.0)) as axes:
        used_left, used_right = left.copy(), right.copy()
        for a, b in np.argwhere(counts > 0).tolist():
            count, ends = float(counts[a, b]), (float(used_left[a]), float(used_right[b]))
            share = count / total
            (x, low), (_, high) = _ribbon(*ends), _ribbon(ends[0] + share, ends[1] + share)
            band = axes.fill_between(x, low, high, color=cluster_colour(a), alpha=0.45, linewidth=0)
            shown = show_count(count, found.least_rows, noise=found.noise)
            describe(band, "band", title=f"cluster {a} to other {order[b]}: {shown} rows")
            used_left[a] += share
            used_right[b] += share
        end = 1.08
        for beside, starts, sizes, names, side in (
            (-0.02, left, counts.sum(axis=1), [f"cluster {k}" for k in range(len(counts))], "right"),
            (1.02, right, counts.sum(axis=0), [f"other {k}" for k in order], "left"),
        ):
            places = _move_apart(starts + sizes / total / 2, end * NAME_HEIGHT / height, end)
            for name, y in zip(names, places.tolist(), strict=True):
                axes.text(beside, y, name, ha=side, va="center", color=SOFT, fontsize=10)
        axes.set(xlim=(0, 1), ylim=(end, 0), xticks=[], yticks=[])
    table = found.table()
    note = f"Rows by their cluster in one model (left) and in the other (right). {found.notes[0]}"
    return Figure("comparison", table.title, note, axes, found.notes[0], table.columns, table.rows)


def _stack(shares: FloatArray, gap: float) -> FloatArray:
    """Compute where each of several shares begins, stacked with gaps."""
    return np.concatenate([[0.0], np.cumsum(shares + gap)[:-1]])


def _move_apart(places: FloatArray, least: float, end: float) -> FloatArray:
    """Move rising places apart, so that each is at least so far from the one before, as little as it takes."""
    apart = least * np.arange(len(places))
    lowest = np.maximum.accumulate(places - apart)
    return np.asarray(np.minimum(lowest, end - least / 2 - apart[-1]) + apart)


def _ribbon(start: float, end: float) -> tuple[FloatArray, FloatArray]:
    """Compute a smooth line from one height to another, from 0 to 1."""
    x = np.linspace(0.0, 1.0, 24)
    return x, start + (end - start) * (3 * x**2 - 2 * x**3)
