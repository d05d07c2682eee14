"""A table that goes into a paper: as text, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedhk._files import READABLE, write_atomically
from fedhk._names import explain_names
from fedhk._typing import BoolArray, FloatArray
from fedhk.summary.html import Cell, Markup, document, frame, join, tag
from fedhk.summary.html import table as html_table
from fedhk.summary.words import number, percent, plural

# How far noise moves a number: so many standard deviations, which it stays within 95 times in 100.
SURE = 2.0

# The standard deviation of values that are spread evenly between bounds: where noise moves a mean or a share by more,
# the bounds alone say as much.
EVEN_SPREAD = 1 / math.sqrt(12)

# Rows with a value, over the noise in their count, above which a mean in the middle of the bounds is shown: there
# SURE times the noise in the mean, sqrt(1 + 1/4) over this number, is EVEN_SPREAD.
ROWS_OVER_NOISE = SURE * math.sqrt(1 + 0.25) / EVEN_SPREAD

# Below this many rows a number about them is not shown, where nothing else is asked for: a convention of statistical
# offices.
LEAST_ROWS = 5

LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "²": "$^2$"}
LATEX |= {
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
}  # as text, LaTeX's usual font shows others for < and >
LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}


@dataclass(frozen=True)
class PrintedTable:
    """A table of texts; the first cell of a line names it, and notes stand below.

    `save` writes it; notebooks show it.

    Parameters
    ----------
    title : str
        What stands above it.
    columns : sequence of str
        Names of columns.
    rows : sequence of sequences of str
        Lines, with a cell for every column.
    notes : sequence of str, default=()
        Sentences that stand below it.
    bold : collection of (int, int), default=()
        Cells in bold, by the numbers of their line and column from 0 on; LaTeX and HTML show it.
    for_paper : sequence of str, default=()
        Columns that LaTeX has, where the page of a paper is too narrow for all; all by default.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    bold: Collection[tuple[int, int]] = ()
    for_paper: Sequence[str] = ()

    def __post_init__(self) -> None:
        for place, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"rows[{place}] has {plural(len(row), 'cell')}, columns have {len(self.columns)} names: a line "
                    "needs a cell for every column."
                )
        if unknown := [name for name in self.for_paper if name not in self.columns]:
            raise ValueError(explain_names(unknown, list(self.columns), "The table", "column"))

    def to_csv(self) -> str:
        """Write comma-separated values, with numbers as programs read them; notes are left out."""
        file, lines = io.StringIO(), ([name, *map(_plain_numbers, cells)] for name, *cells in self.rows)
        csv.writer(file, lineterminator="\n").writerows([self.columns, *lines])
        return file.getvalue()

    def to_latex(self, label: str | None = None) -> str:
        r"""Write a LaTeX table with rules of the package booktabs; `\ref{tab:label}` refers to it.

        `label` is made of the title by default. Columns of words stand left, columns of numbers right. A table that is
        wider than the text is scaled down to it.
        """
        kept = [i for i, name in enumerate(self.columns) if not self.for_paper or name in self.for_paper]
        cells = [
            [_embolden(_escape(row[i])) if (line, i) in self.bold else _escape(row[i]) for i in kept]
            for line, row in enumerate(self.rows)
        ]
        head, *lines = (" & ".join(row) + r" \\" for row in ([_escape(self.columns[i]) for i in kept], *cells))
        notes = "".join(f"\\par {_escape(note)}\n" for note in self.notes)
        notes = f"\\par\\smallskip\\raggedright\\footnotesize\n{notes}" if notes else ""
        words = self._word_columns()
        places = "".join("l" if place == 0 or i in words else "r" for place, i in enumerate(kept))
        slug = _slug(self.title.split(":")[0] if label is None else label)
        return "\n".join(
            [
                r"% needs \usepackage{booktabs} and \usepackage{graphicx}",
                r"\begin{table}",
                r"\centering\small\setlength{\tabcolsep}{4pt}",
                rf"\caption{{{_escape(self.title)}}}",
                rf"\label{{tab:{slug}}}",
                r"\smallskip",
                r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                rf"\begin{{tabular}}{{{places}}}",
                r"\toprule",
                head,
                r"\midrule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}}",
                rf"{notes}\end{{table}}",
                "",
            ]
        )

    def to_html(self) -> Markup:
        """Write an HTML table in the style of reports."""
        notes = tag("ul", *(tag("li", note) for note in self.notes), class_="notes")
        words = self._word_columns()
        rows = [
            [
                Cell(tag("b", cell) if (line, i) in self.bold else cell, css="text" if i in words else None)
                if i
                else cell
                for i, cell in enumerate(row)
            ]
            for line, row in enumerate(self.rows)
        ]
        return join(tag("h3", self.title), html_table(self.columns, rows), notes if self.notes else "")

    def _word_columns(self) -> set[int]:
        """Return the columns after the first whose cells have words and no number in them."""
        return {i for i in range(1, len(self.columns)) if _are_words([row[i] for row in self.rows])}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it by the ending of the name: .csv, .tex or .html; the label in LaTeX is `tab:` and the file's name."""
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix not in (".csv", ".tex", ".html"):
            raise ValueError(f"path={str(path)!r} must end in .csv, .tex or .html.")
        text = (
            self.to_csv() if suffix == ".csv" else self.to_latex(target.stem) if suffix == ".tex" else self._to_page()
        )
        write_atomically(target, text.encode(), READABLE)
        return target

    def _to_page(self) -> str:
        return document(self.title, self.to_html())

    def _repr_html_(self) -> str:
        return frame(self.to_html())

    def __str__(self) -> str:
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]

        left = {0, *self._word_columns()}

        def line(cells: Sequence[str]) -> str:
            padded = (
                cell.ljust(w) if i in left else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
            )
            return "  ".join(padded).rstrip()

        return "\n".join([self.title, *map(line, [self.columns, *self.rows]), *self.notes])


def _plain_numbers(text: str) -> str:
    """Write numbers without separators of thousands, and with a hyphen for a minus sign."""
    return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text).replace("−", "-")


def _are_words(column: Sequence[str]) -> bool:
    """Tell whether cells have words and no number in them."""
    text = "".join(column)
    return any(map(str.isalpha, text)) and not any(map(str.isdigit, text))


def _slug(text: str) -> str:
    """Keep what every LaTeX reads in a label: ASCII letters, digits and underscores, with hyphens between words."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")


def _escape(text: str) -> str:
    """Write a text in LaTeX; spaces before it are an indent."""
    words = text.lstrip(" ")
    # a bracket or a star at the start of a line would belong to the end of the line before
    indent = r"\quad " if words and words != text else "{}" if words[:1] in ("[", "*") else ""
    signed = re.sub(r"(?<![\w.])-(?=\.?\d)", "−", words)  # a hyphen before a number is its sign
    return indent + "".join(LATEX.get(character, character) for character in signed)


def _embolden(text: str) -> str:
    return rf"\textbf{{{text}}}"


def name_outcome(name: str) -> str:
    """Write the title of what is said about an outcome; `name` is empty if the outcome has none."""
    return "What becomes of the clusters" + (f": {name}" if name else "")


def show_count(count: float, least_rows: int, whole: float | None = None, noise: float = 0.0) -> str:
    """Write a count of rows, with its share if `whole` is given; one that is too small is not shown.

    `noise` is the standard deviation of the noise in the count. What it hides is not shown either.
    """
    if not math.isfinite(count):
        return "–"
    least = max(least_rows, math.ceil(SURE * noise))
    if round(count) < least and (noise or round(count) > 0):
        return f"< {least:,}"
    count = max(round(count), 0)  # sums of rows, but for rounding
    if whole is None or (noise and whole < ROWS_OVER_NOISE * noise):
        return f"{count:,}"
    return f"{count:,} ({percent(count / whole)})" if whole > 0 else "–"


def is_small(counts: FloatArray, least_rows: int) -> BoolArray:
    """Tell which counts are too small to be shown: from 1 to `least_rows` - 1."""
    return np.asarray((np.round(counts) > 0) & (np.round(counts) < least_rows))


def find_hidden(counts: FloatArray, least_rows: int, *, has_column_totals: bool = False) -> BoolArray:
    """Find the cells of a table of counts, of shape (lines, columns), that are not shown.

    Small counts are hidden, from 1 to `least_rows` - 1. The total of each line is known, and with `has_column_totals`
    that of each column, too: a count that is hidden alone would follow from it. The smallest other count that is not 0
    is then hidden as well, until no line or column with a known total has one hidden cell alone.
    """
    whole = np.nan_to_num(np.round(counts))
    hidden = is_small(whole, least_rows)
    ways = [(hidden, whole), (hidden.T, whole.T)] if has_column_totals else [(hidden, whole)]
    known = -1
    while known < hidden.sum():
        known = int(hidden.sum())
        for cells, numbers in ways:
            for line in np.flatnonzero(cells.sum(axis=1) == 1):
                others = np.flatnonzero(~cells[line] & (numbers[line] > 0))
                if len(others):  # else the total is the small count, and is hidden as such
                    cells[line, others[np.argmin(numbers[line, others])]] = True
    return hidden


def show_interval(value: float, lower: float, upper: float, digits: int = 3) -> str:
    """Write a number with its interval; the number alone where no interval is known."""
    if math.isnan(lower) or math.isnan(upper):
        return number(value, digits)
    return f"{number(value, digits)} ({number(lower, digits)}, {number(upper, digits)})"


def show_sites(there: float, known: float) -> str:
    """Write at how many of several sites something is so; nothing of one site."""
    return f"{there:.0f} of {known:.0f}" if known > 1 else "–"


def show_test(what: str, found: str, p: float) -> str:
    """Write a test and what it found; say so if nothing could be tested."""
    return f"{what}: {f'{found}, p {show_p(p)}.' if math.isfinite(p) else 'there is nothing to compare.'}"


def show_p(p: float) -> str:
    """Write a p-value."""
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
