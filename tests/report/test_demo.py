"""`fedhk demo`: sites, clusters, own models and the privacy spent on one page, and no folder lost."""

from __future__ import annotations

import json
import shutil

import pytest

from fedhk.data import generators as hospitals
from fedhk.privacy import accounting
from fedhk.report.noise import match_clusters
from fedhk.report.run import COMPARISON, REPORT, read_facts
from report.conftest import call
from report.pages import Page, dots


@pytest.fixture(scope="module")
def page(demo_run):
    return Page((demo_run / REPORT).read_text("utf-8"))


@pytest.fixture(scope="module")
def results(demo_run):
    return json.loads((demo_run / "comparison.json").read_text("utf-8"))


def refused(folder):
    """The one line with which the demo refuses to write into a folder."""
    done = call("demo", "--out", folder, code=5)
    assert done.stdout == ""
    return done.stderr


def test_the_page_shows_sites_with_their_rows_and_the_views_they_lack(page, results):
    for name, site in results["sites"].items():
        lacks = f"{hospitals.MISSING_VIEWS[name]} " if name in hospitals.MISSING_VIEWS else ""
        assert f"{name} {site['rows']:,} {lacks}" in page.section("sites").words


def test_the_page_shows_clusters_what_makes_them_and_maps(page, results):
    assert page.source.count('class="card"') == hospitals.N_DISEASES
    rows = sum(site["rows"] for site in results["sites"].values())
    assert sum(sum(site["sizes"]) for site in page.data["sites"].values()) == rows
    assert "Dots are rows" in page.section("maps").words


def test_the_page_shows_what_own_models_gained_on_rows_that_no_model_saw(page):
    own = page.section("sites").words
    assert "the site alone global model own model" in own
    assert "Measured on rows that no model saw" in own
    assert "own offset" in own


def test_the_page_shows_the_privacy_that_was_spent_by_every_site(page, results, demo_run):
    shown = page.section("under-noise").words
    spent = results["privacy"]["spent_by_site"]
    assert list(spent) == list(hospitals.HOSPITALS)
    for name, epsilon in spent.items():
        made = json.loads((demo_run / "private" / "releases.json").read_text())[name]
        noise = [release["multiplier"] for release in made]
        assert epsilon == pytest.approx(accounting.spent(noise, results["privacy"]["delta"]))
        assert epsilon <= 20.0
        assert f"{name} 20 1e−05" in shown
    assert "the sites shared one noise" in shown
    assert "round 6" in shown


def test_what_the_page_shows_of_the_run_with_noise_was_released(page, demo_run):
    private = read_facts(demo_run / "private")
    assert private.released_only
    assert sorted(match_clusters(read_facts(demo_run), private)) == list(range(hospitals.N_DISEASES))
    shown = page.section("under-noise")
    assert shown.source.count("Centres only") == len(hospitals.VIEW_WIDTHS)
    assert dots(shown.source) == 0
    assert dots(page.source) > 0
    assert "Coordinator's page" in Page((demo_run / "private" / REPORT).read_text("utf-8")).words


def test_every_way_is_measured_and_no_row_leaves_but_for_pooling(page, results):
    methods = results["methods"]
    assert list(methods) == ["pooled k-means", "each site alone", "one model for all", "own models", "own, with noise"]
    for name, measured in methods.items():
        assert f"{name} {measured['ari_per_site']:.3f}" in page.section("scores").words
        assert (measured["rows_sent"] > 0) == (name == "pooled k-means")
    assert methods["each site alone"]["accuracy"] is None  # its clusters have no common names
    assert methods["own models"]["ari"] > methods["one model for all"]["ari"] > 0.6


def test_tables_have_all_rows_and_fit_100_columns(demo, results):
    folder, shown, _ = demo
    assert all(
        part in shown for part in (*results["methods"], *hospitals.HOSPITALS, f"Open the page: {folder / REPORT}")
    )
    assert "spent epsilon 20 at delta 1e-05" in " ".join(shown.split())
    assert max(len(line) for line in shown.splitlines() if str(folder) not in line) <= 100


def test_the_run_repeats_from_its_own_data(demo_run, tmp_path):
    call("fit", "--config", demo_run / "config.toml", "--out", tmp_path / "again")
    assert (demo_run / "model.safetensors").read_bytes() == (tmp_path / "again" / "model.safetensors").read_bytes()


def test_json_is_what_was_written(demo, results):
    folder, _, as_json = demo
    assert json.loads(as_json) == results | {"out": str(folder), "page": str(folder / REPORT)}


def test_a_folder_that_is_not_a_demo_is_not_replaced(demo_run, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    assert "never replaced" in refused(tmp_path / "mine")
    assert "The run" in refused(demo_run / "private")
    assert (tmp_path / "mine" / "letter").read_text() == "dear"


def test_the_page_of_a_demo_can_be_made_again(demo_run, tmp_path):
    again = tmp_path / "again.html"
    call("report", demo_run, "--out", again)
    assert again.read_text("utf-8") == (demo_run / REPORT).read_text("utf-8")


def test_a_damaged_table_beside_a_run_is_refused_by_name(demo_run, tmp_path):
    folder = tmp_path / "demo"
    shutil.copytree(demo_run, folder)
    (folder / COMPARISON).write_text('{"title": "a demo"}', "utf-8")
    assert COMPARISON in call("report", folder, code=3).stderr
