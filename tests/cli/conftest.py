"""Folders that tests of the command line share."""

from __future__ import annotations

import shutil

import pytest

from cli.calls import call
from fedhk.data.folders import write_site
from fedhk.datasets import make_sites


@pytest.fixture
def hospitals(tmp_path):
    """Three sites with ids; one of them lacks a view."""
    data = make_sites(3, 40, n_clusters=3, n_features=(4, 3), separation=9, random_state=0)
    folder = tmp_path / "hospitals"
    for number, (name, views) in enumerate(zip(("bern", "oslo", "rome"), data.sites.values(), strict=True)):
        tables = {"ecg": views[0], "image": None if number == 2 else views[1]}
        write_site(folder / name, tables, ids=[f"{name}-{i}" for i in range(len(views[0]))])
    return folder


@pytest.fixture
def run(hospitals, tmp_path):
    """A finished run."""
    call("fit", hospitals, "--clusters", 3, "--seed", 1, "--out", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def shifted_sites(tmp_path_factory):
    """Three sites that measure differently, for algorithms that look at that."""
    data = make_sites(3, 50, n_clusters=3, shift=1.5, random_state=0)
    folder = tmp_path_factory.mktemp("shifted")
    for name, views in zip(("oslo", "pisa", "rome"), data.sites.values(), strict=True):
        write_site(folder / name, {f"view{i}": view for i, view in enumerate(views)})
    yield folder
    shutil.rmtree(folder)
