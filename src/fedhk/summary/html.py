"""HTML elements and tables. Plain text becomes escaped text; only `Markup` goes into a page as it is."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhk._text import printable

# Letters of a name at the head of a line that always stands on one.
SHORT = 12


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, a share from 0 to 1 that its background shows, and its class."""

    text: str
    share: float | None = None
    css: str | None = None


def escape(content: Any) -> Markup:
    """Turn anything into text that is safe between tags and in attributes; leave markup as it is.

    Characters that do not show are written out, but for the ends of lines. No line ends between a number and its per
    cent sign.
    """
    if isinstance(content, Markup):
        return content
    return _join_percent("\n".join(html.escape(printable(line), quote=True) for line in str(content).split("\n")))


def _join_percent(text: str) -> Markup:
    return Markup(re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text))


def join(*parts: Any) -> Markup:
    """Put parts one after the other, and escape those that are plain text."""
    return Markup("".join(map(escape, parts)))


def tag(name: str, *content: Any, **attributes: Any) -> Markup:
    """Make an element. Attributes that are None are left out; `data_k` is data-k, `class_` is class."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{shown}>{join(*content)}</{name}>")


def table(columns: Sequence[Any], rows: Sequence[Sequence[Any]], sites: Sequence[int | None] = ()) -> Markup:
    """Make a table with a head. The first cell of a row names it; `sites` are the sites of the rows, for selectors."""
    words = [any(isinstance(cell, Cell) and cell.css == "text" for cell in cells) for cells in zip(*rows, strict=True)]
    heads = zip(columns, words or [False] * len(columns), strict=True)
    head = tag("tr", *(_head(column, is_text=is_text) for column, is_text in heads))
    numbers = sites or [None] * len(rows)
    body = (tag("tr", *_cells(row), data_s=site) for site, row in zip(numbers, rows, strict=True))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex=0)


def _head(column: Any, *, is_text: bool) -> Markup:
    """Name a column, at the right above numbers and at the left above words; without a name the cell is empty."""
    return tag("td") if column == "" else tag("th", column, scope="col", class_="text" if is_text else None)


def _cells(row: Sequence[Any]) -> list[Markup]:
    first, *rest = row
    # a short name, such as cluster 0, is not broken
    if isinstance(first, str) and not isinstance(first, Markup) and len(first) <= SHORT:
        first = Markup(escape(first).replace(" ", "\N{NO-BREAK SPACE}"))
    return [tag("th", first, scope="row"), *(_cell(cell if isinstance(cell, Cell) else Cell(cell)) for cell in rest)]


def _cell(cell: Cell) -> Markup:
    if cell.share is None:
        return tag("td", cell.text, class_=cell.css)
    if not math.isfinite(cell.share):
        return tag("td", cell.text, class_="none")
    level = f"{min(max(cell.share, 0.0), 1.0):.2f}".removeprefix("0")
    return tag("td", cell.text, style=None if level == ".00" else f"--s:{level}")


def style_sheet() -> Markup:
    """Read the style of pages."""
    return Markup(Path(__file__).with_name("style.css").read_text("utf-8"))


def frame(*content: Any) -> Markup:
    """Give markup the style of a page, for notebooks; nothing outside is touched."""
    return tag("div", tag("style", style_sheet()), *content, class_="fedhk")


def document(title: str, *content: Any) -> str:
    """Make a page of one figure or table."""
    head = Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">')
    first = tag("head", head, tag("title", title), tag("style", style_sheet()))
    return f"<!doctype html>{tag('html', first, tag('body', *content, class_='fedhk page'), lang='en')}"
