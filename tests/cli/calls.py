"""`fedhk` as a test calls it."""

from __future__ import annotations

import shlex

from typer.testing import CliRunner

from fedhk.cli import app
from fedhk.estimators import efkmvc

SAME_FILES = ("model.safetensors", "sites/rome.safetensors", "labels/bern.parquet", "config.toml")


def call(*arguments, code=0, stdin=None):
    """Run the program in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr, result.exception)
    return result


def refusal(*arguments, code, stdin=None):
    """The one line that the program says when it refuses."""
    result = call(*arguments, code=code, stdin=stdin)
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Error: ")
    return line


def usage(*arguments):
    """What the program says of options that it cannot take; the frame is for people."""
    said = call(*arguments, code=2).stderr
    return " ".join(said.replace("│", " ").split())


def interrupt(monkeypatch, folder, *arguments):
    """Begin a run in a folder and interrupt it once three rounds are done."""
    real = efkmvc.save_run

    def save_and_stop(folder, run, *others):
        real(folder, run, *others)
        if len(run.history) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(efkmvc, "save_run", save_and_stop)
        result = call("fit", *arguments, "--out", folder, code=130)
    assert f"`fedhk fit --resume --out {shlex.quote(str(folder))}` goes on." in result.stderr
    return folder


def assert_same_files(first, second, files=SAME_FILES):
    """Files of two runs have the same bytes."""
    for file in files:
        assert (first / file).read_bytes() == (second / file).read_bytes(), file
