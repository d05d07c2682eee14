"""With noise or secure sums, the coordinator's page is made of what was released, and a site's of its own."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest

import fedhk
from fedhk import plot
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy
from fedhk.report.run import write_report
from report.conftest import fit, write_sites
from report.pages import Page, dots


def page_of(folder, **options):
    return write_report(folder, folder.parent / "page.html", **options).read_text("utf-8")


def forget_rows(run):
    """Take from a run all that was computed from rows and did not leave the sites."""
    for name in ("labels", "sites"):
        shutil.rmtree(run / name)
    shutil.rmtree(run.parent / "hospitals")
    summary = json.loads((run / "summary.json").read_text())
    summary["rows"] = 123_456
    for site in summary["sites"].values():
        site["rows"], site["clusters_found"] = 987_654, 77
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "evaluation.csv").write_text("site,model,rows,objective\nbern,global,9,0.5\nbern,personal,9,0.4\n")


def test_the_coordinators_page_is_the_same_without_rows_labels_and_own_models(private_run):
    before = page_of(private_run)
    forget_rows(private_run)
    assert page_of(private_run) == before


def test_the_coordinators_page_shows_no_number_of_a_site(private_run):
    page = Page(page_of(private_run))
    summary = json.loads((private_run / "summary.json").read_text())
    model = fedhk.load(private_run / "model.safetensors")
    assert not hasattr(model, "personalization_")  # neither has the file
    assert page.data["sites"] == {}
    assert "Dots are rows" not in page.words
    assert f"{summary['rows']:,}" not in page.words
    assert all(f" {site['rows']:,} " not in page.words for site in summary["sites"].values())
    assert "section-sites" not in page.source
    assert "It shows only what the sites released under noise" in page.words
    assert "epsilon 40 at delta 1e-05" in page.words
    assert "round 10" in page.section("privacy").words  # the ledger: ten rounds


def test_the_page_of_a_site_is_the_same_without_other_sites(private_run):
    before = page_of(private_run, site="oslo")
    for name in ("bern", "rome"):
        (private_run / "labels" / f"{name}.parquet").unlink()
        (private_run / "sites" / f"{name}.safetensors").unlink()
        shutil.rmtree(private_run.parent / "hospitals" / name)
    assert page_of(private_run, site="oslo") == before


def test_the_page_of_a_site_has_its_rows_and_its_model(private_run):
    page = Page(page_of(private_run, site="oslo"))
    labels = pl.read_parquet(private_run / "labels" / "oslo.parquet")["cluster"].to_numpy()
    assert page.data["sites"]["0"]["sizes"] == np.bincount(labels, minlength=3).tolist()
    assert "Page of site oslo" in page.words
    assert "bern" not in page.words
    assert "Dots are rows" in page.words


def test_the_page_of_a_site_does_not_say_what_others_were_refused_for(person_run):
    history = json.loads((person_run / "history.json").read_text())
    history[0]["refused"] = {"bern": "sent nonsense", "oslo": "came late"}
    (person_run / "history.json").write_text(json.dumps(history))
    assert "sent nonsense" in page_of(person_run)
    own = page_of(person_run, site="oslo")
    assert "sent nonsense" not in own
    assert "came late" in own


def test_secure_sums_without_noise_keep_to_sums(tmp_path):
    data = write_sites(tmp_path / "hospitals")
    run = fit(data, tmp_path / "run", "--clusters", 3, "--secure")
    total = json.loads((run / "summary.json").read_text())["rows"]
    before = page_of(run)
    page = Page(before)
    assert page.data["sites"] == {}
    assert f"among {total:,} rows" in page.words  # a sum over all sites
    for name in ("labels", "sites"):
        shutil.rmtree(run / name)
    shutil.rmtree(data)
    assert page_of(run) == before


def test_figures_of_a_private_model_keep_to_what_was_released():
    sites = make_sites(3, 300, n_clusters=2, random_state=0).sites
    budget = DifferentialPrivacy(epsilon=40.0, delta=1e-5, bounds=(-30, 30))
    model = fedhk.EFKMVC(2, privacy=budget, random_state=0).fit(sites)
    for draw in (plot.certainty, plot.cluster_sizes):
        with pytest.raises(ValueError, match="only a site may see its labels"):
            draw(model)
        assert draw(model, site="site-01").html
    assert "Centres only" in plot.view_map(model, sites).html
    own = plot.view_map(model, sites, site="site-01").html
    assert "Centres only" not in own
    assert dots(own) == len(model.labels_["site-01"])
