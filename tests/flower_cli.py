"""`fedhk flower` as a test calls it."""

from __future__ import annotations

from typer.testing import CliRunner

from fedhk.cli import app


def call_flower(*words):
    """Exit code and output of `fedhk flower`."""
    result = CliRunner().invoke(app, ["flower", *map(str, words)])
    return result.exit_code, result.output
