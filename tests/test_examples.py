"""The examples of the gallery: each runs by itself without a warning, tells its reader what for, and draws.

`make docs` runs them as well, to make their pages.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


@every_example
def test_it_says_what_for_and_draws(path):
    text = path.read_text("utf-8")
    title, line, empty, *words = ast.get_docstring(ast.parse(text)).split("\n")
    assert (len(line), set(line), empty) == (len(title), {"="}, "")
    assert len(" ".join(words)) > 100
    assert "plt.subplots(" in text
    assert not re.search(r"(?<![\w./])/(?:work|home|root|tmp|Users)/", text)


@every_example
def test_links_lead_to_pages(path):
    pages = re.findall(r"<\.\./([\w/-]+)\.html>", path.read_text("utf-8"))
    docs = Path(__file__).parents[1] / "docs"
    assert pages
    assert [page for page in pages if not (docs / f"{page}.md").is_file()] == []


@pytest.mark.slow
@every_example
def test_it_runs_without_a_warning(path, tmp_path):
    if path.stem == "05_single_cells":
        pytest.importorskip("mudata")
    no_window = "ignore:FigureCanvasAgg is non-interactive"
    command = [sys.executable, "-W", "error", "-W", no_window, str(path)]
    env = os.environ | {"MPLBACKEND": "Agg"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603 - ours
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
