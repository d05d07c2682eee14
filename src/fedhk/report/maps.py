"""A view in two dimensions: rows as dots, centres as numbers, and where a site's own centres are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.report.facts import Facts, MapPoints
from fedhk.report.svg import (
    COLOURS,
    WIDTH,
    Figure,
    Scale,
    Table,
    colour,
    coordinate,
    drawing,
    label,
    tag,
    ticks,
    tooltip,
)
from fedhk.report.words import counted, number, percent

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 32.0, WIDTH - 8.0, 8.0, 268.0, 304.0

# Points that are further out than this many times the range of all but one per cent are drawn at the edge.
FAR = 1.4

# A ring around the end of a path.
# A dot is a closed path of no length, whose ends are round.
DOT = "z"
RING = "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0"


def view_map(facts: Facts, name: str) -> Figure:
    """The map of a view."""
    number_of = [view.name for view in facts.views].index(name)
    found = facts.maps[name]
    if found.flat:
        found = _raised(found)
    x, y, clipped = _scales(found)
    content = _axes(x, y, found) + _dots(found, x, y) + _moves(found, x, y) + _centers(found, x, y)
    note = _note(facts, found, clipped)
    rows = [(k, *(number(float(v)) for v in center)) for k, center in enumerate(found.centers)]
    table = Table(("cluster", "direction 1", "direction 2"), rows)
    about = f"Map of view {name}: {len(found.points)} rows and the centres of {len(found.centers)} clusters."
    return Figure(f"map-{number_of}", name, drawing(HEIGHT, content, about), note, table, number_of)


def _note(facts: Facts, found: MapPoints, clipped: bool) -> str:
    shown = percent(sum(found.shares))
    if not len(found.points):
        return f"Centres only; the two directions show {shown} of how they differ."
    sample = counted(len(found.points), "row")
    if len(found.points) < found.n_rows:
        sample += f" of {found.n_rows:,}"
    elif found.n_rows < (facts.n_rows or 0):
        sample += " that have the view"
    note = f"{sample}; the two directions show {shown} of the variation."
    if found.flat:
        note = f"{sample}; the view has one feature, so the height of a dot means nothing."
    return note + (" Rows far out are drawn at the edge." if clipped else "")


def _raised(found: MapPoints) -> MapPoints:
    """A view of one feature with dots at random heights, so that they do not hide each other."""
    heights = np.random.default_rng(0).uniform(-1, 1, len(found.points)) * np.ptp(found.centers[:, 0] + 0.0) / 3
    return replace(found, points=np.column_stack([found.points[:, 0], heights]))


def _scales(found: MapPoints) -> tuple[Scale, Scale, bool]:
    """The same units along both axes, all centres inside; whether some rows are not."""
    everything = np.vstack([found.points, found.centers])
    inner = np.vstack([np.percentile(everything, [0.5, 99.5], axis=0), found.centers])
    low, high = everything.min(axis=0), everything.max(axis=0)
    near_low, near_high = inner.min(axis=0), inner.max(axis=0)
    far = bool(np.any(high - low > FAR * (near_high - near_low)))
    if far:
        low, high = near_low, near_high
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 0.25)
    # pixels per spread: what the tighter of the two axes allows, with room for the marks of centres
    per_unit = min((RIGHT - LEFT - 24) / (2 * half[0]), (BOTTOM - TOP - 24) / (2 * half[1]))
    across, down = (RIGHT - LEFT) / per_unit / 2, (BOTTOM - TOP) / per_unit / 2
    x = Scale(float(middle[0] - across), float(middle[0] + across), LEFT, RIGHT)
    y = Scale(float(middle[1] - down), float(middle[1] + down), BOTTOM, TOP)
    return x, y, far


def _axes(x: Scale, y: Scale, found: MapPoints) -> str:
    box = tag("rect", x=LEFT, y=TOP, width=RIGHT - LEFT, height=BOTTOM - TOP, class_="box")
    parts = [box]
    for value in ticks(x.low, x.high, 7):
        parts.append(tag("line", x1=x(value), x2=x(value), y1=BOTTOM, y2=BOTTOM + 4, class_="tick"))
        parts.append(label(x(value), BOTTOM + 15, number(value, 1 if abs(value) < 10 else 2), "middle"))
    across, up = (percent(share) for share in found.shares)
    parts.append(label((LEFT + RIGHT) / 2, BOTTOM + 30, f"direction 1 ({across}), in spreads", "middle", class_="axis"))
    if not found.flat:
        for value in ticks(y.low, y.high, 6):
            parts.append(tag("line", x1=LEFT - 4, x2=LEFT, y1=y(value), y2=y(value), class_="tick"))
            parts.append(label(LEFT - 5, y(value) + 3.5, number(value, 1 if abs(value) < 10 else 2), "end"))
        parts.append(label(LEFT + 5, TOP + 13, f"direction 2 ({up})", class_="axis"))
    return "".join(parts)


def _dots(found: MapPoints, x: Scale, y: Scale) -> str:
    """One path per site and cluster: a tenth of the size of one element per row, and as easy to select."""
    parts = []
    for site in np.unique(found.sites):
        paths = []
        for cluster in np.unique(found.labels[found.sites == site]):
            own = found.points[(found.sites == site) & (found.labels == cluster)]
            path = "".join(f"M{coordinate(a)} {coordinate(b)}{DOT}" for a, b in _placed(own, x, y))
            paths.append(f'<path class="c{cluster % len(COLOURS)}" data-k="{cluster}" d="{path}"/>')
        parts.append(tag("g", "".join(paths), data_s=site))
    return tag("g", "".join(parts), class_="dots")


def _placed(points: FloatArray, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """Coordinates within the frame."""
    return [(min(max(x(float(a)), LEFT + 2), RIGHT - 2), min(max(y(float(b)), TOP + 2), BOTTOM - 2)) for a, b in points]


def _moves(found: MapPoints, x: Scale, y: Scale) -> str:
    """From each global centre to the site's own, shown when the site is chosen."""
    parts = []
    begin = _placed(found.centers, x, y)
    for site, own in found.own_centers.items():
        ends = _placed(own, x, y)
        moved = "".join(
            tag("path", d=f"M{coordinate(a)} {coordinate(b)}L{coordinate(c)} {coordinate(d)}{RING}", data_k=k)
            for k, ((a, b), (c, d)) in enumerate(zip(begin, ends, strict=True))
            if max(abs(a - c), abs(b - d)) >= 1
        )
        parts.append(tag("g", moved, class_="moves only", data_s=site))
    return "".join(parts)


def _centers(found: MapPoints, x: Scale, y: Scale) -> str:
    few = len(found.centers) <= 20
    parts = []
    for cluster, (a, b) in enumerate(_placed(found.centers, x, y)):
        mark = tag("circle", tooltip(f"centre of cluster {cluster}"), cx=a, cy=b, r=8.5 if few else 6.5)
        parts.append(tag("g", mark + label(a, b + 3.2, cluster, "middle"), data_k=cluster, fill=colour(cluster)))
    return tag("g", "".join(parts), class_="centers" if few else "centers many")
