"""The page of a federation's columns: what each holds at each site, with those that deviate marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedhk.data.columns import ColumnAtSite
from fedhk.data.dictionary import ColumnEntry, Dictionary, Kind
from fedhk.summary.html import Cell, Markup, document, table, tag
from fedhk.summary.words import number, percent

HEAD = ("column", "site", "kind", "median", "range", "missing", "remark")

# Of more levels, the first are shown.
MOST_LEVELS = 12

WORDS = "Medians and ranges are those of the site's own rows: keep this page where the rows may be seen."


def column_row(found: ColumnAtSite, unit: str = "") -> tuple[str, ...]:
    """One column at one site as texts: site, kind, median or largest levels, range, missing, remark."""
    median, limits = "", ""
    if found.levels:
        largest = sorted(found.levels.items(), key=lambda item: -item[1])
        median = ", ".join(f"{level} {percent(share)}" for level, share in largest[:3] if share)
        limits = f"{len(found.levels)} levels"
    elif found.median is not None and found.low is not None and found.high is not None:
        median, low, high = (_value(value, found.kind) for value in (found.median, found.low, found.high))
        limits = f"{low} to {high}"
        median += f" {unit}" if unit else ""
    return found.site, found.kind, median, limits, percent(found.missing), found.remark


def _value(value: float, kind: Kind) -> str:
    return ColumnEntry(kind).show(value) or number(value)


def dictionary_table(known: Mapping[str, ColumnEntry]) -> Markup:
    """What a data dictionary says of the columns of a view."""
    rows = []
    for name, entry in known.items():
        limits = " to ".join(_value(limit, entry.kind) for limit in entry.range) or ", ".join(
            entry.levels[:MOST_LEVELS]
        )
        cells = (entry.kind, entry.unit, limits, ", ".join(entry.missing), entry.description)
        rows.append((name, [Cell(text, css="text") for text in cells]))
    heads = ("kind", "unit", "range or levels", "missing", "description")
    filled = [i for i in range(len(heads)) if any(cells[i].text for _, cells in rows)]
    return table(["column", *(heads[i] for i in filled)], [[name, *(cells[i] for i in filled)] for name, cells in rows])


def columns_page(title: str, found: Sequence[ColumnAtSite], doubts: Sequence[str], dictionary: Dictionary) -> str:
    """Write the page: a table for each view, then what is doubtful."""
    parts = [tag("h1", title), tag("p", WORDS, class_="why")]
    for view in dict.fromkeys(one.view for one in found):
        rows = []
        for one in found:
            if one.view == view:
                texts = column_row(one, dictionary.unit(view, one.column))
                cells = [Cell(text, css="text") for text in texts]
                rows.append((one.column, *cells[:-1], Cell(one.remark, 1.0 if one.remark else None)))
        parts += [tag("h2", view), table(HEAD, rows)]
    if doubts:
        parts += [tag("h2", "To look at"), tag("ul", *(tag("li", doubt) for doubt in doubts))]
    return document(title, *parts)
