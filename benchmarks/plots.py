"""Plots as SVG that is the same from the same numbers, with words as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "fedhk", "svg.fonttype": "none", "font.family": "sans-serif"})


def save(figure: Any, path: Path) -> None:
    """Write a figure, without the date."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
