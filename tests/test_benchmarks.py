"""Scripts of the benchmarks: each says at once what it does instead of starting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_says_what_a_script_does_before_anything_slow_is_imported(script, tmp_path):
    for package in ("fedhk", "matplotlib", "numpy", "polars", "scipy", "sklearn"):  # an import of these would fail
        (tmp_path / f"{package}.py").write_text(f"raise ImportError('{package} takes seconds to import')\n")
    results = tmp_path / "results"
    results.mkdir()
    environment = os.environ | {"FEDHK_BENCHMARK_RESULTS": str(results), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(FOLDER / script), "--help"]
    done = subprocess.run(  # noqa: S603 - a script of this repository
        command, capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"python benchmarks/{script}" in done.stdout
    assert not list(results.iterdir())
