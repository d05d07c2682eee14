"""`fedhk report`: files, exit codes and what is said."""

from __future__ import annotations

import json

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


def test_rows_may_be_elsewhere(run, tmp_path):
    call("report", run, "--data", tmp_path / "nothing", "--out", tmp_path / "page.html")
    assert "The rows could not be read" in (tmp_path / "page.html").read_text("utf-8")


def test_what_is_no_run_or_no_site_is_refused(run, tmp_path):
    assert "holds no finished run" in call("report", tmp_path, code=3).stderr
    assert "no site 'rome'" in call("report", run, "--site", "rome", code=3).stderr


def test_the_page_of_a_site_of_a_network_needs_what_the_site_got(run, tmp_path):
    got = tmp_path / "state"
    for part, file in (("sites", "site-01.safetensors"), ("labels", "site-01.parquet")):
        (got / part).mkdir(parents=True)
        (got / part / file).write_bytes((run / part / file).read_bytes())
    without = tmp_path / "run"
    without.mkdir()
    for file in ("summary.json", "history.json", "model.safetensors"):
        (without / file).write_bytes((run / file).read_bytes())
    config = [line for line in (run / "config.toml").read_text("utf-8").splitlines() if not line.startswith("data")]
    (without / "config.toml").write_text("\n".join(config), "utf-8")
    data = run.parent / "data" / "site-01"
    call("report", without, "--site", "site-01", "--own", got, "--data", data, "--out", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "The rows could not be read" not in text
    assert "stayed at the sites" not in text
    sites = ",".join(json.loads((run / "summary.json").read_text("utf-8"))["sites"])
    assert f"fedhk flower init app/ --config config.toml --sites {sites}\n" in text
    assert "fedhk flower run app/ --root-certificates PATH/ca.crt --out again/" in text
    assert "without --site" in call("report", without, "--own", got, code=2).stderr
