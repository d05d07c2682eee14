"""Drawings as text: tags, axes and figures with their table. Everything that comes from users is escaped here."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Figures are drawn this wide, in pixels of a phone; wider screens show several side by side.
WIDTH = 360

# Ten colours that people with any colour vision tell apart side by side, on white and on black: those of Okabe and Ito
# without black and yellow, and four more. With more clusters they repeat; numbers tell clusters apart then.
COLOURS = (
    "#0072b2",
    "#e08a00",
    "#009e73",
    "#cc79a7",
    "#3fa3dd",
    "#d55e00",
    "#7a68c8",
    "#8a8a00",
    "#9a5a3c",
    "#6b7a8c",
)


def colour(cluster: int) -> str:
    """The colour of a cluster."""
    return COLOURS[cluster % len(COLOURS)]


def escape(text: Any) -> str:
    """Text that is safe between tags and in attributes."""
    return html.escape(str(text), quote=True)


def coordinate(value: float) -> str:
    """A coordinate, as short as can be: a tenth of a pixel is enough."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """An element; `content` is markup. Attributes that are None are left out; `data_k` is data-k, `class_` is class."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = coordinate(value) if isinstance(value, float) else escape(value)
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{shown}"')
    return f"<{' '.join(parts)}>{content}</{name}>"


def label(x: float, y: float, text: Any, anchor: str = "start", **attributes: Any) -> str:
    """A text in a drawing."""
    return tag("text", escape(text), x=float(x), y=float(y), text_anchor=anchor, **attributes)


def tooltip(text: Any) -> str:
    """What browsers show when a mark is pointed at."""
    return tag("title", escape(text))


@dataclass(frozen=True)
class Table:
    """Rows of text with a head; all but the first column are numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def to_html(self) -> str:
        head = "".join(tag("th", escape(column), scope="col") for column in self.columns)
        body = "".join(
            tag("tr", tag("th", escape(first), scope="row") + "".join(tag("td", escape(cell)) for cell in rest))
            for first, *rest in self.rows
        )
        return tag("div", tag("table", tag("thead", tag("tr", head)) + tag("tbody", body)), class_="scroll")


@dataclass(frozen=True)
class Figure:
    """A drawing, what it shows in words, and its numbers as a table.

    Parameters
    ----------
    name : str
        What tells it from other figures.
    title, note : str
        Above the drawing; the note says how to read it.
    svg : str
        The drawing.
    table : Table or None
        The numbers.
    view : int or None
        Number of the view it shows, for selectors.
    """

    name: str
    title: str
    svg: str
    note: str = ""
    table: Table | None = None
    view: int | None = None

    def to_html(self) -> str:
        """A figure element; the table is folded."""
        caption = tag("b", escape(self.title)) + (tag("span", escape(self.note)) if self.note else "")
        folded = tag("details", tag("summary", "Numbers") + self.table.to_html()) if self.table is not None else ""
        return tag("figure", tag("figcaption", caption) + self.svg + folded, id=self.name, data_v=self.view)


def drawing(height: float, content: str, about: str, width: float = WIDTH) -> str:
    """An SVG element of a figure; `about` is read aloud in its place."""
    box = f"0 0 {coordinate(width)} {coordinate(height)}"
    return tag("svg", content, viewBox=box, role="img", aria_label=about, xmlns="http://www.w3.org/2000/svg")


@dataclass(frozen=True)
class Scale:
    """A linear scale from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        return self.start + (self.end - self.start) * ((value - self.low) / span if span > 0 else 0.5)


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers that cover a range from within: steps of 1, 2 or 5 times a power of ten."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((m * power for m in (1, 2, 5) if m * power >= rough * (1 - 1e-9)), 10 * power)
    first = math.ceil(low / step - 1e-9)
    found = []
    while first * step <= high + 1e-9 * step:
        found.append(first * step)
        first += 1
    return found


def tick_text(value: float, step: float) -> str:
    """A tick's number with as many digits as its step needs, if there is room for them."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    text = f"{value:,.{digits}f}"
    return (text if len(text) <= 8 else f"{value:.3g}").replace("-", "−")


def value_axis(scale: Scale, left: float, right: float, unit: str = "") -> str:
    """Horizontal lines at round values, with numbers at their left ends."""
    values = ticks(scale.low, scale.high, 5)
    step = values[1] - values[0] if len(values) > 1 else abs(values[0]) / 100
    parts = []
    for value in values:
        y = scale(value)
        parts.append(tag("line", x1=float(left), x2=float(right), y1=y, y2=y, class_="grid"))
        parts.append(label(left - 5, y + 3.5, tick_text(value, step) + unit, "end"))
    return "".join(parts)


def round_axis(scale: Scale, y: float, name: str) -> str:
    """Whole numbers along the bottom, and what they count."""
    step = max(1, math.ceil((scale.high - scale.low) / 8))
    numbers = range(math.ceil(scale.low), math.floor(scale.high) + 1, step)
    marks = "".join(label(scale(n), y + 14, f"{n:,}", "middle") for n in numbers)
    return marks + label((scale.start + scale.end) / 2, y + 29, name, "middle", class_="axis")
