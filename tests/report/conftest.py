"""Runs to make pages of, and a browser to look at them."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil

import pytest
from typer.testing import CliRunner

from fedhk import datasets
from fedhk._files import locked
from fedhk.cli import app
from fedhk.cli.demo import PRIVACY
from fedhk.data.folders import write_site
from fedhk.datasets import make_sites
from fedhk.evaluation import comparison
from report.browser import Browser, find_browser


def call(*arguments, code=0):
    """Run the program in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def fit(folder, out, *options):
    """Run `fedhk fit`."""
    call("fit", folder, "--out", out, "--seed", 0, *options)
    return out


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """Folder, output and JSON of a small `fedhk demo`, which one of the processes that run the tests makes for all."""
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    root = tmp_path_factory.getbasetemp().parent if parallel else tmp_path_factory.getbasetemp()
    folder, shown = root / "demo" / "demo", root / "demo" / "shown.json"
    with locked(root / "demo.lock"):
        if not shown.exists():
            found = small_demo(folder)
            shown.write_text(json.dumps(found), "utf-8")
    return folder, *json.loads(shown.read_text("utf-8"))


def small_demo(folder):
    """Write a demo of smaller sites twice, with so large a budget that noise leaves something.

    What is measured is measured once; gives the output and that of `--json`.
    """
    few, measure, measured = datasets.make_hospitals(100), comparison.compare_methods, []

    def compare_once(rows, **options):
        measured[:] = measured or [measure(rows, **options)]
        return copy.deepcopy(measured[0])  # writing a run takes costs out of its model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "make_hospitals", lambda: few)
        patch.setattr(comparison, "compare_methods", compare_once)
        patch.setitem(PRIVACY, "epsilon", 20.0)
        patch.setenv("COLUMNS", "100")
        as_json = call("demo", "--out", folder, "--json").stdout
        return call("demo", "--out", folder).stdout, as_json


@pytest.fixture(scope="session")
def demo_run(demo):
    """The run of the demo."""
    return demo[0]


def write_sites(folder, n_rows=60, **options):
    """Three sites that differ, with ids; the last lacks a view."""
    data = make_sites(3, n_rows, n_clusters=3, n_features=(4, 3), separation=9, random_state=0, **options)
    for number, (name, views) in enumerate(zip(("bern", "oslo", "rome"), data.sites.values(), strict=True)):
        tables = {"ecg": views[0], "image": None if number == 2 else views[1]}
        write_site(folder / name, tables, ids=[f"{name}-patient-{i}" for i in range(len(views[0]))])
    return folder


@pytest.fixture(scope="session")
def fitted_runs(tmp_path_factory):
    """A function that fits a kind of run once, and gives the folder that has it and its data."""
    kinds = {
        "person": ({"shift": 1.5}, ()),
        "private": ({"n_rows": 400}, ("--epsilon", 40, "--delta", 1e-5, "--bounds=-30,30")),
    }
    done = {}

    def made(kind):
        if kind not in done:
            done[kind] = tmp_path_factory.mktemp(kind)
            sites, options = kinds[kind]
            data = write_sites(done[kind] / "hospitals", **sites)
            fit(data, done[kind] / "run", "--clusters", 3, "--algorithm", "fedhk-person", *options)
        return done[kind]

    return made


def copied(folder, target):
    """A copy of a run and its data that a test may damage."""
    shutil.copytree(folder, target)
    config = target / "run" / "config.toml"
    config.write_text(re.sub(r"(?m)^data = .*", 'data = "../hospitals"', config.read_text("utf-8")), "utf-8")
    return target / "run"


@pytest.fixture
def person_run(fitted_runs, tmp_path):
    """Three sites with models of their own."""
    return copied(fitted_runs("person"), tmp_path / "person")


@pytest.fixture
def private_run(fitted_runs, tmp_path):
    """Three sites under noise, with so large a budget that it finds something."""
    return copied(fitted_runs("private"), tmp_path / "private")


@pytest.fixture(scope="session")
def browser():
    """Chromium, or a skipped test."""
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on this machine; install the package chromium, or set FEDHK_BROWSER")
    found = Browser(program)
    yield found
    found.close()
