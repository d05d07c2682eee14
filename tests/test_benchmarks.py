"""Scripts of the benchmarks: each can be read, and says what it does instead of starting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_help_says_what_a_script_does(script, tmp_path):
    environment = os.environ | {"FEDHK_BENCHMARK_RESULTS": str(tmp_path)}
    command = [sys.executable, str(FOLDER / script), "--help"]
    done = subprocess.run(  # noqa: S603 - a script of this repository
        command, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 40
    assert not list(tmp_path.iterdir())
