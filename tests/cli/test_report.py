"""`fedhk report`: files, exit codes and what is said."""

from __future__ import annotations

import json
import re

import pytest

from cli.calls import call
from fedhk.data.folders import write_site
from fedhk.datasets import make_sites


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    for name, views in make_sites(2, 40, n_clusters=2, random_state=0).sites.items():
        write_site(folder / "data" / name, {"ecg": views[0], "image": views[1]})
    call("fit", folder / "data", "--clusters", 2, "--seed", 0, "--out", folder / "run")
    return folder / "run"


def test_it_writes_into_the_run_and_again(run):
    for _ in range(2):
        said = call("report", run).stdout
        assert str(run / "report.html") in said.replace("\n", "")
    assert (run / "report.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_site_has_a_page_of_its_own(run):
    call("report", run, "--site", "site-01")
    text = (run / "report-site-01.html").read_text("utf-8")
    assert "Page of site site-01" in text


def test_json_says_where_and_how_large(run, tmp_path):
    found = json.loads(call("report", run, "--out", tmp_path / "page.html", "--json").stdout)
    assert found["out"] == str(tmp_path / "page.html")
    assert found["bytes"] == (tmp_path / "page.html").stat().st_size


def test_another_file_is_replaced_only_by_force(run, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert "exists already" in call("report", run, "--out", page, code=5).stderr
    assert page.read_text() == "mine"
    call("report", run, "--out", page, "--force")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "it is a folder" in call("report", run, "--out", tmp_path, "--force", code=5).stderr


def test_rows_that_are_asked_for_must_be_those_of_the_run(run, tmp_path):
    assert "the data folder is not there" in call("report", run, "--data", tmp_path / "nothing", code=3).stderr
    for name, views in make_sites(2, 30, n_clusters=2, random_state=1).sites.items():
        write_site(tmp_path / "later" / name, {"ecg": views[0], "image": views[1]})
    said = call("report", run, "--data", tmp_path / "later", "--out", tmp_path / "page.html", code=3).stderr
    assert re.search(r"no longer those of the run: \d+ rows are given, \d+ have labels", said)
    assert not (tmp_path / "page.html").exists()


def test_what_is_no_run_or_no_site_is_refused(run, tmp_path):
    assert "holds no finished run" in call("report", tmp_path, code=3).stderr
    assert "no site 'rome'" in call("report", run, "--site", "rome", code=3).stderr


@pytest.fixture
def network(run, tmp_path):
    """A run as a coordinator has it, without labels and models of sites, and what a site got of it and of another."""
    state = tmp_path / "state" / "site-01"
    for part, file in (("sites", "site-01.safetensors"), ("labels", "site-01.parquet"), ("", "model.safetensors")):
        (state / "run-1" / part).mkdir(parents=True, exist_ok=True)
        (state / "run-1" / part / file).write_bytes((run / part / file).read_bytes())
    call("fit", run.parent / "data", "--clusters", 3, "--seed", 0, "--out", state / "run")
    without = tmp_path / "run"
    without.mkdir()
    for file in ("summary.json", "history.json", "model.safetensors"):
        (without / file).write_bytes((run / file).read_bytes())
    config = [line for line in (run / "config.toml").read_text("utf-8").splitlines() if not line.startswith("data")]
    (without / "config.toml").write_text("\n".join(config), "utf-8")
    return without, state


def test_the_page_of_a_site_of_a_network_is_made_of_what_the_site_got(network, run, tmp_path):
    without, state = network
    data = run.parent / "data" / "site-01"
    options = ("--own", state / "run-1", "--data", data, "--out", tmp_path / "page.html")
    call("report", without, "--site", "site-01", *options)
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "The rows could not be read" not in text
    assert "stayed at the sites" not in text
    assert "Only the coordinator can run it again" in text
    assert "fedhk flower" not in text
    assert "without --site" in call("report", without, "--own", state / "run-1", code=2).stderr


def test_what_a_site_got_of_another_run_is_refused_with_the_right_one(network):
    without, state = network
    said = call("report", without, "--site", "site-01", "--own", state / "run", code=3).stderr
    assert f"is of another run than {str(without)!r}; that of this run is {str(state / 'run-1')!r}" in said
    (state / "run-1").rename(state / "away")
    (state / "away" / "model.safetensors").unlink()
    said = call("report", without, "--site", "site-01", "--own", state / "run", code=3).stderr
    assert "none beside it is of this run" in said
    assert "has no model.safetensors" in call("report", without, "--site", "site-01", "--own", state, code=3).stderr


def test_a_page_of_a_site_without_its_labels_is_refused(network, tmp_path):
    without, _ = network
    said = call("report", without, "--site", "site-01", code=3).stderr
    assert "has no labels of site 'site-01'" in said
    assert "give --own STATE/site-01/run" in said
    call("report", without, "--out", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "fedhk report RUN --site NAME --own STATE/NAME/run --data DATA</code>" in text
    assert "fedhk flower run app/ --root-certificates PATH/ca.crt --out again/" in text
