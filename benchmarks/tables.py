"""Tables in Markdown, and figures with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def table(title: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A heading and a table below it."""
    return [f"### {title}", "", *grid(names, rows), ""]


def grid(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """A table without a heading."""
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def spread(values: Sequence[float], places: int = 3, sign: str = "") -> str:
    """Mean and standard deviation over seeds; "-" where there is no figure."""
    if not len(values) or not np.isfinite(values).all():
        return "-"
    return f"{np.mean(values):{sign},.{places}f} ± {np.std(values):,.{places}f}"


def size(values: Sequence[float]) -> str:
    """Mean and standard deviation of sizes and times, in two or three digits."""
    mean = np.mean(values) if len(values) else 0.0
    return spread(values, 0 if mean >= 100 else 1 if mean >= 1 else 2)
