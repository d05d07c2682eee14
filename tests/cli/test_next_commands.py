"""Commands that the program prints work as they are printed, in folders with blanks in their names too."""

from __future__ import annotations

import re
import shlex

import polars as pl
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from cli.calls import call, interrupt, refusal
from fedhk.cli.flower.run import read_app
from fedhk.data.folders import write_site
from fedhk.datasets import make_sites


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder of a user whose data have a blank in their name."""
    place = tmp_path / "my study"
    place.mkdir()
    monkeypatch.chdir(place)
    for name, views in make_sites(3, 30, n_clusters=2, random_state=0).sites.items():
        write_site(place / "the sites" / name, {"ecg": views[0], "lab": views[1]})
    return place


def printed(text, **values):
    """The words of the command between backticks; `values` stand for the names in capital letters."""
    (command,) = re.findall(r"`fedhk ([^`]+)`", text)
    return [values.get(word, word) for word in shlex.split(command)]


def test_a_file_with_all_sites_is_split_and_checked_by_what_is_printed(folder):
    table = pl.DataFrame({"clinic": ["oslo", "rome"] * 10, "age": range(20), "rate": range(20, 40)})
    table.write_csv(folder / "all patients.csv")
    words = printed(refusal("info", "all patients.csv", code=3), COLUMN="clinic", FOLDER="all clinics")
    said = call(*words).stdout
    assert "20 rows at 2 sites" in call(*printed(said)).stdout


def test_an_interrupted_run_goes_on_by_what_is_printed(folder, monkeypatch):
    interrupt(monkeypatch, folder / "the run", "the sites", "--clusters", 2, "--tol", 0, "--max-rounds", 8)
    call(*printed(call("info", "the run").stdout))
    assert (folder / "the run" / "summary.json").is_file()


def test_the_command_of_the_page_repeats_the_run(folder, monkeypatch):
    call("fit", "the sites", "--clusters", 2, "--seed", 0, "--out", "the run")
    page = (folder / "the run" / "report.html").read_text("utf-8")
    (command,) = re.findall(r"<pre[^>]*>fedhk ([^<]+)</pre>", page)
    monkeypatch.chdir(folder / "the run")
    call(*shlex.split(command))
    again = folder / "the run" / "again"
    assert (again / "model.safetensors").read_bytes() == (folder / "the run" / "model.safetensors").read_bytes()


def test_the_next_command_of_a_new_app_finds_the_app(folder):
    said = call("flower", "init", "my app", "--clusters", 2).stderr
    words = shlex.split(said.splitlines()[-1])
    assert words == ["fedhk", "flower", "run", "my app", "--root-certificates", "tls/ca.crt", "--out", "run/"]
    assert read_app(folder / words[3]).parameters["n_clusters"] == 2
