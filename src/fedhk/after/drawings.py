"""Pictures of what comes after a run: effect sizes of columns.

Every function draws on matplotlib axes, given or new, and returns them with the words and the table of the figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedhk.after.profile import Profile
from fedhk.summary.drawing import PAPER, SOFT, Figure, cluster_colour, describe, draw_grid, page_axes
from fedhk.summary.words import number, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Columns that are drawn; the table has all.
MOST_COLUMNS = 16


def draw_profile(found: Profile, ax: Axes | None = None) -> Figure:
    """Draw how far each cluster is from all other rows, for the columns in which clusters differ most."""
    names = [column.label for column in found.columns]
    known = found.seen >= found.least_rows
    differences = np.where(known, found.difference, np.nan)
    largest = np.nan_to_num(np.abs(differences)).max(axis=0)
    shown = [int(place) for place in np.argsort(-largest, kind="stable")[:MOST_COLUMNS] if largest[place] > 0]
    height = 66.0 + 19.0 * max(len(shown), 1)
    with page_axes(ax, height, (118.0, 10.0, 26.0, 38.0)) as axes:
        line = axes.axvline(0.0, color=SOFT, linewidth=1)
        describe(line, "rule")
        for k in range(found.n_clusters):
            there = [y for y, place in enumerate(shown) if np.isfinite(differences[k, place])]
            values = [differences[k, shown[y]] for y in there]
            marks = axes.scatter(values, there, s=64, color=cluster_colour(k), edgecolor=PAPER, zorder=3)
            texts = [f"{names[shown[y]]}, cluster {k}: {number(v, 2)}" for y, v in zip(there, values, strict=True)]
            describe(marks, "centers", texts)
            for y, value in zip(there, values, strict=True):
                text = axes.text(value, y, str(k), ha="center", va="center", fontsize=7, color=PAPER, zorder=4)
                describe(text, "number many")
        axes.set_ylim(max(len(shown), 1) - 0.4, -0.6)
        axes.margins(x=0.08)
        labels = [shorten(names[p] + ("*" if found.columns[p].used else ""), 16) for p in shown]
        axes.set_yticks(range(len(shown)), labels, parse_math=False)
        draw_grid(axes, "x")
        axes.set_xlabel("difference to the rest, in standard deviations")
    note = "A dot is a cluster. Columns marked * made the clusters: that they differ there is no finding."
    if len(shown) < len(names):
        note += f" The {len(shown)} largest of {len(names)}; the table has all."
    rows = [(name, *(number(v, 2) for v in differences[:, i])) for i, name in enumerate(names)]
    columns = ("column", *(f"cluster {k}" for k in range(found.n_clusters)))
    about = f"Standardised differences of {found.n_clusters} clusters to the rest in {len(names)} columns."
    return Figure("profile", "What is special about clusters", note, axes, about, columns, rows)
