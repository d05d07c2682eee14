"""The program as a whole: help, version, and a start that waits for nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedhk
from cli.calls import call, refusal
from fedhk import cli


def run_python(code, *arguments, **options):
    return subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )


def test_help_has_examples_and_exit_codes():
    for command in ("fit", "update", "predict", "info", "report", "demo"):
        shown = call(command, "--help").stdout
        assert f"fedhk {command}" in shown
        assert "Exit codes" in shown


def test_is_quick_to_load():
    heavy = (
        "from fedhk.cli import app; import sys; "
        "print([m for m in ('numpy', 'sklearn', 'polars', 'matplotlib') if m in sys.modules])"
    )
    assert run_python(heavy).stdout == "[]\n"


def test_runs_as_a_module():
    command = "import runpy; runpy.run_module('fedhk', run_name='__main__')"
    assert run_python(command, "--version").stdout.strip() == f"fedhk {fedhk.__version__}"


def test_version():
    assert call("--version").stdout.strip() == f"fedhk {fedhk.__version__}"


def test_main_runs_as_a_program(hospitals, tmp_path):
    arguments = ["fit", hospitals, "-k", "3", "-o", tmp_path / "run", "--json"]
    done = run_python("from fedhk.cli import main; main()", *arguments)
    assert json.loads(done.stdout)["algorithm"] == "e-fkmvc"
    again = run_python("from fedhk.cli import main; main()", *arguments)
    assert (again.returncode, again.stdout) == (5, "")
    assert again.stderr.count("\n") == 1


def test_the_installed_program_is_main():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"]["fedhk"] == "fedhk.cli:main"
    extra = {requirement.partition(">")[0] for requirement in project["optional-dependencies"]["cli"]}
    assert extra == set(cli.NEEDED)


@pytest.mark.parametrize("missing", [("typer",), ("rich", "polars"), ("matplotlib",)])
def test_without_the_extra_main_says_in_one_sentence_what_to_install(missing, monkeypatch, capsys):
    real = cli.find_spec
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name in missing else real(name))
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"Error: the command line needs {', '.join(missing)}: pip install 'fedhk[cli]'\n"


def test_main_needs_nothing_but_python_to_say_so():
    hide = (
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'typer', 'rich', 'polars', 'matplotlib', 'numpy', 'sklearn'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "import fedhk.cli as cli\n"
        "cli.find_spec = lambda name: None\n"
        "cli.main()\n"
    )
    done = run_python(hide)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "pip install 'fedhk[cli]'" in done.stderr


def test_the_package_has_no_other_lazy_names():
    with pytest.raises(AttributeError, match="appp"):
        cli.appp  # noqa: B018


@pytest.mark.parametrize(
    "command", [("info",), ("report",), ("after", "profile"), ("predict", "hospitals", "--out", "labels"), ("ledger",)]
)
def test_a_misspelt_folder_is_answered_with_the_one_that_may_be_meant(command, tmp_path, monkeypatch):
    (tmp_path / "hospitals").mkdir()
    monkeypatch.chdir(tmp_path)
    words = list(command)
    place = 2 if words[0] == "after" else 1
    words.insert(place, "hospitalz")
    assert "Did you mean 'hospitals'?" in refusal(*words, code=3)
