"""Matplotlib figures as SVG for pages: words stay text, marks have tooltips, colours follow the style of the page.

What selectors and tooltips need travels in the group ids of artists (`describe`). `to_svg` moves it to attributes, so
that the page's style sheet and script find it, and leaves out all that would clash with other drawings on the page.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.errors import FedHKError
from fedhk.summary.html import Markup, style_sheet, table, tag
from fedhk.summary.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Figures are this wide, in pixels of a phone; wider screens show several side by side.
WIDTH = 360.0

# Room beside the axes of a chart, in pixels: left, right, above, below.
MARGINS = (54.0, 10.0, 26.0, 36.0)

# Colours of light pages; the style sheet replaces them on dark ones.
PAPER, INK, SOFT, RULE = "#ffffff", "#1b2430", "#5a6675", "#d9dfe6"

# Numbers on light colours of clusters, on light and dark pages.
BLACK = "#000000"

# Digits behind the point that ticks have at most.
MOST_DIGITS = 8

KIND_COLOURS = ("#0072b2", "#e08a00", "#6b7a8c")

# Ten colours that people with any colour vision tell apart side by side, on white and on black: those of Okabe and Ito
# without black and yellow, and four more. With more clusters they repeat; numbers tell clusters apart then.
CLUSTER_COLOURS = (
    *("#0072b2", "#e08a00", "#009e73", "#cc79a7", "#3fa3dd"),
    *("#d55e00", "#7a68c8", "#8a8a00", "#9a5a3c", "#6b7a8c"),
)

# Class of the dots of rows. An element for every row would make pages large: those of a site and cluster become one.
DOTS = "dots"

SVG = "{http://www.w3.org/2000/svg}"
MARKS = (f"{SVG}use", f"{SVG}path")
LINK = "{http://www.w3.org/1999/xlink}href"
SIZES = ("font.size", "xtick.labelsize", "ytick.labelsize", "axes.labelsize", "legend.fontsize")
STYLE = {
    "figure.dpi": 72,
    "lines.linewidth": 2,
    "svg.fonttype": "none",
    "text.parse_math": False,
    **dict.fromkeys(SIZES, 11),
}


class MissingMatplotlibError(FedHKError, ImportError):
    """Matplotlib is not installed."""


def require_matplotlib() -> Any:
    """Load matplotlib, or say how to install it."""
    try:
        import matplotlib.figure  # noqa: PLC0415 - comes with an extra, and takes half a second
        import matplotlib.style  # noqa: PLC0415
    except ImportError as error:
        raise MissingMatplotlibError('Figures need matplotlib: pip install "fedhk[plot]"') from error
    return matplotlib


@contextmanager
def page_axes(
    ax: Axes | None = None, height: float = 222.0, margins: tuple[float, float, float, float] = MARGINS
) -> Iterator[Axes]:
    """Draw in the style of pages, on the given axes or on new ones in a figure of this height in pixels."""
    matplotlib = require_matplotlib()
    with matplotlib.style.context(["default", STYLE]):
        if ax is None:
            left, right, above, below = margins
            size = (WIDTH - left - right) / WIDTH, (height - above - below) / height
            figure = matplotlib.figure.Figure(figsize=(WIDTH / 72, height / 72))
            ax = figure.add_axes((left / WIDTH, below / height, *size))
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0, labelcolor=SOFT, pad=5)
        ax.xaxis.label.set_color(INK)
        ax.set_axisbelow(True)
        yield ax
        for tick in (*ax.xaxis.get_major_ticks(), *ax.yaxis.get_major_ticks()):
            describe(tick.gridline, "rule")
            describe(tick.tick1line, "rule")
        for artist, css in ((ax.figure.patch, "paper"), (ax.patch, "frame"), (ax.xaxis.label, "axis")):
            describe(artist, css)


def cluster_colour(cluster: int) -> str:
    """Give the colour of a cluster."""
    return CLUSTER_COLOURS[cluster % len(CLUSTER_COLOURS)]


def number_colour(cluster: int) -> str:
    """Give the colour of a number on the colour of a cluster: white or black, whichever is easier to read."""
    parts = [int(cluster_colour(cluster)[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # relative luminance of WCAG 2
    return PAPER if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else BLACK


# Width of a small disc beside the range of the values that are drawn.
DISC_WIDTH = 0.06

# Height of a line with discs side by side, in pixels, and of a small disc with a little room, in such lines.
LINE_HEIGHT, DISC_HEIGHT = 19.0, 0.8


def draw_badges(ax: Axes, places: FloatArray, clusters: Sequence[int], titles: Sequence[str], *, small: bool) -> None:
    """Draw a disc with the number of a cluster at each place; selectors of clusters find it."""
    colours = [cluster_colour(k) for k in clusters]
    look: dict[str, Any] = {"linewidth": 0, "zorder": 4, "clip_on": False}
    discs = ax.scatter(places[:, 0], places[:, 1], s=169 if small else 289, c=colours, **look)
    each = zip(clusters, titles, strict=True)
    describe(discs, "centers", [{"data-k": int(k), "title": title} for k, title in each])
    for k, (x, y) in zip(clusters, places, strict=True):
        ink = number_colour(k)
        text = ax.text(x, y, str(k), ha="center", va="center_baseline", color=ink, weight="bold", zorder=4)
        text.set_fontsize(7.5 if small else 9.5)
        describe(text, f"number{' many' * small}{' dark' * (ink == BLACK)}", data_k=int(k))


def draw_differences(
    ax: Axes, values: FloatArray, labels: Sequence[str], names: Sequence[str], clusters: Sequence[int]
) -> None:
    """Draw how far clusters are from the mean or the rest: a line for each column, a disc for each cluster.

    `values` has a row for each of the clusters; where it is not finite, there is no disc. Labels are written beside
    lines, names are in tooltips. Discs that would hide each other stand one above the other.
    """
    describe(ax.axvline(0.0, color=SOFT, linewidth=1), "rule")
    lines, places = stack_discs(values)
    for k, away, heights in zip(clusters, values, places, strict=True):
        there = [int(line) for line in np.flatnonzero(np.isfinite(away))]
        texts = [f"{names[line]}, cluster {k}: {number(away[line], 2)}" for line in there]
        draw_badges(ax, np.column_stack([away[there], heights[there]]), [k] * len(there), texts, small=True)
    ax.set_ylim(measure_lines(values) - 0.4, -0.6)
    ax.margins(x=0.08)
    ax.set_yticks(lines, labels, parse_math=False)
    draw_grid(ax, "x")


def measure_lines(values: FloatArray) -> float:
    """Return the height of all lines of `draw_differences`, in lines whose discs are side by side."""
    return max(float(_size_lines(_find_levels(values)).sum()), 1.0)


def stack_discs(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find the heights of lines, (d,), and of their discs, (k, d), so that discs do not hide each other.

    A line with discs one above the other takes more room than others.
    """
    levels = _find_levels(values)
    most, sizes = levels.max(axis=0, initial=0), _size_lines(levels)
    lines = np.cumsum(sizes) - sizes / 2 - 0.5
    return lines, lines + (levels - most / 2) * (sizes - 1) / np.maximum(most, 1)


def _size_lines(levels: IntArray) -> FloatArray:
    """Find how much room each line takes; with many clusters, discs come closer and hide each other's edges."""
    most = levels.max(axis=0, initial=0)
    room = len(most) * (float(most.max(initial=0) + 1) ** 0.5 - 1.0)
    return np.asarray(1.0 + most * min(DISC_HEIGHT, room / max(int(most.sum()), 1)))


def _find_levels(values: FloatArray) -> IntArray:
    """Find the level of each disc in its line: the first one where no other is within its width."""
    known = values[np.isfinite(values)]
    width = DISC_WIDTH * (float(np.ptp(known)) if len(known) else 0.0)
    levels = np.zeros(values.shape, np.intp)
    for line in range(values.shape[1]):
        ends: list[float] = []  # of the last disc of each level
        for k in np.argsort(values[:, line], kind="stable"):
            place = values[k, line]
            if np.isfinite(place):
                free = next((level for level, end in enumerate(ends) if place >= end + width), len(ends))
                levels[k, line] = free
                ends[free:] = [place, *ends[free + 1 :]]
    return levels


def shorten_ticks(axis: Any) -> None:
    """Write the numbers of an axis with as many digits as tell its ticks apart, and with separated thousands."""

    def write(value: float, _: Any) -> str:
        ticks = np.append(axis.get_majorticklocs(), value)
        digits = next((d for d in range(MOST_DIGITS) if np.allclose(ticks, np.round(ticks, d), 0, 1e-9)), MOST_DIGITS)
        return f"{value:,.{digits}f}".replace("-", "−")

    axis.set_major_formatter(write)


def draw_grid(ax: Axes, axis: str, name: str = "") -> None:
    """Draw lines at the ticks of an axis, with short numbers; write above the axes what they are."""
    along = ax.yaxis if axis == "y" else ax.xaxis
    shorten_ticks(along)
    along.grid(visible=True, color=RULE, linewidth=1.0)
    describe(ax.text(0.0, 1.03, name, transform=ax.transAxes, color=INK, va="bottom"), "axis")


def draw_key(ax: Axes, classes: Sequence[str]) -> None:
    """Say above the axes what marks with labels mean; `classes` are theirs in the style sheet."""
    room: dict[str, Any] = {"borderpad": 0.2, "handlelength": 1.0, "handletextpad": 0.4, "columnspacing": 1.2}
    look: dict[str, Any] = {"ncols": len(classes), "frameon": False, "labelcolor": SOFT}
    key = ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), **look, **room)
    for handle, css in zip(key.legend_handles, classes, strict=True):
        describe(handle, css)


def describe(artist: Any, css: str = "", each: Sequence[str | dict[str, Any]] = (), **attributes: Any) -> None:
    """Say what an artist is on a page: its class in the style sheet, and its attributes.

    `each` has the tooltip or the attributes of each of its marks, in order. `data_k` is data-k, `title` is a tooltip.
    """
    own = {"class": css} | {key.replace("_", "-"): value for key, value in attributes.items()}
    artist.set_gid(json.dumps([own, [{"title": mark} if isinstance(mark, str) else mark for mark in each]]))


def to_svg(figure: Canvas, name: str, about: str) -> Markup:
    """Turn a figure into an SVG element; the same figure gives the same text.

    `name` keeps ids of different drawings on a page apart; `about` is read aloud in place of the drawing.
    """
    matplotlib, file = require_matplotlib(), io.BytesIO()
    with matplotlib.style.context(["default", STYLE, {"svg.hashsalt": name}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # browsers have more letters than matplotlib's font
        figure.savefig(file, format="svg", dpi=72, metadata={"Date": None})
    drawn = ET.fromstring(file.getvalue())  # noqa: S314 - matplotlib wrote it
    root = ET.Element(f"{SVG}svg", {"viewBox": drawn.get("viewBox", ""), "role": "img", "aria-label": about})
    root.extend(part for part in drawn if part.tag == f"{SVG}g")  # neither metadata nor styles nor clip paths
    for group in list(root.iter(f"{SVG}g")):
        _apply_description(group)
    for element in root.iter():
        _simplify(element)
    _unwrap(root)
    ET.register_namespace("", SVG[1:-1])
    return Markup(ET.tostring(root, encoding="unicode").replace(" />", "/>"))


def _apply_description(group: ET.Element) -> None:
    """Move what `describe` said from the id of a group to attributes; other ids are dropped."""
    name = group.attrib.pop("id", "")
    if not name.startswith("["):
        return
    attributes, each = json.loads(name)
    defined = {id(path) for part in group.iter(f"{SVG}defs") for path in part.iter()}
    marks = [m for m in group.iter() if m.tag in MARKS and id(m) not in defined]
    for element, own in ((group, attributes), *zip(marks, each, strict=False)):
        if "title" in own:
            ET.SubElement(element, f"{SVG}title").text = own.pop("title")
        element.attrib.update({key: str(value) for key, value in own.items() if value != ""})
    if attributes["class"] == DOTS:
        group[:] = _merge_dots(marks)


def _merge_dots(marks: list[ET.Element]) -> list[ET.Element]:
    """Draw dots of a cluster and site as one path: lines whose ends are round, of no length that shows.

    Lines of no length at all are missing where a page is printed.
    """
    clusters: dict[str, ET.Element] = {}
    paths: dict[tuple[str, str], ET.Element] = {}
    for mark in marks:
        s, k = mark.attrib["data-s"], mark.attrib["data-k"]
        if k not in clusters:
            colour = mark.attrib["style"].removeprefix("fill: ").split(";")[0]
            clusters[k] = ET.Element(f"{SVG}g", {"data-k": k, "stroke": colour})
        if (s, k) not in paths:
            paths[s, k] = ET.SubElement(clusters[k], f"{SVG}path", {"data-s": s, "d": ""})
        paths[s, k].attrib["d"] += f"M {mark.get('x')} {mark.get('y')} h .1"
    return list(clusters.values())


def _unwrap(element: ET.Element) -> None:
    """Replace groups without attributes by their content."""
    for child in element:
        _unwrap(child)
    element[:] = [
        part for child in element for part in (child if child.tag == f"{SVG}g" and not child.attrib else [child])
    ]


def _simplify(element: ET.Element) -> None:
    """Round coordinates to a tenth of a pixel, and turn inline styles into attributes, which the page can override."""
    own = element.attrib
    element.text = element.text if element.tag in (f"{SVG}text", f"{SVG}title") else None
    element.tail = None
    own.pop("clip-path", None)
    if LINK in own:
        own["href"] = own.pop(LINK)
    for key in {"d", "x", "y"} & own.keys():
        rounded = re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 1) + 0.0:g}", own[key])
        own[key] = re.sub(r"\s*([A-Za-z])\s*", r"\1", rounded).strip()
    if own.get("transform", "").startswith("rotate(-0 "):
        del own["transform"]
    for part in filter(None, own.pop("style", "").split(";")):
        key, value = (word.strip() for word in part.split(":", 1))
        known = key.startswith(("font", "stroke-line"))  # the style sheet says it
        if not known and "id" not in own:  # shapes with ids look like the marks that use them
            own[key] = value


@dataclass(frozen=True)
class Figure:
    """A drawing, what it shows in words, and its numbers as a table."""

    name: str  # tells it from other figures on a page
    title: str
    note: str  # how to read it
    ax: Axes
    about: str  # read aloud in place of the drawing
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    view: int | None = None  # number of the view it shows, for selectors

    def to_svg(self) -> Markup:
        """Write the drawing alone."""
        return to_svg(self.ax.figure.figure, self.name, self.about)

    def to_html(self) -> Markup:
        """Make a figure element; the table is folded."""
        caption = tag("figcaption", tag("b", self.title), tag("span", self.note) if self.note else "")
        folded = tag("details", tag("summary", "Numbers"), table(self.columns, self.rows))
        return tag("figure", caption, self.to_svg(), folded, id=self.name, data_v=self.view)

    def to_file(self) -> str:
        """Make an SVG file: the style of pages inside, in a frame of the same size."""
        drawn = self.to_svg()
        box = drawn.split('viewBox="', 1)[1].split('"', 1)[0]
        size = dict(zip(("width", "height"), box.split()[2:], strict=True))
        return tag("svg", tag("style", style_sheet()), drawn, xmlns=SVG[1:-1], class_="fedhk", viewBox=box, **size)
