"""Pages of run folders: made of what the run holds and may be shown, and of nothing else."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import polars as pl
import pytest

import fedhk
from fedhk.errors import DataError
from fedhk.report.run import read_facts, write_report
from report.conftest import fit, write_sites
from report.pages import page_of


def test_the_same_run_gives_the_same_page(demo_run, tmp_path):
    first, second = (write_report(demo_run, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_spreads_of_the_model_are_those_of_the_rows_where_features_are_standardised(demo_run, tmp_path):
    run = fit(demo_run / "data", tmp_path / "run", "--clusters", 4, "--scaling", "standard")
    with_rows = read_facts(run)
    config = run / "config.toml"
    config.write_text(re.sub(r"(?m)^data = .*", 'data = "gone"', config.read_text()))
    without = read_facts(run)
    assert with_rows.spread_of_rows
    assert not without.spread_of_rows
    for a, b in zip(with_rows.views, without.views, strict=True):
        np.testing.assert_allclose(a.mean, b.mean, atol=1e-9)
        np.testing.assert_allclose(a.spread[a.spread > 0], b.spread[a.spread > 0], rtol=1e-9)


def test_without_rows_the_page_says_so_and_draws_centres(person_run):
    shutil.move(person_run.parent / "hospitals", person_run.parent / "moved")
    page = page_of(person_run)
    assert "The rows could not be read" in page.words
    assert "Centres only" in page.words
    assert "Dots are rows" not in page.words
    assert page.count("svg") >= 4


def test_rows_may_be_given_where_they_are_now(person_run):
    before = write_report(person_run, person_run.parent / "a.html").read_text("utf-8")
    moved = shutil.move(person_run.parent / "hospitals", person_run.parent / "moved")
    assert write_report(person_run, person_run.parent / "b.html", data=moved).read_text("utf-8") == before


def test_a_run_over_sites_that_are_elsewhere_says_what_the_coordinator_knows(person_run):
    for name in ("labels", "sites"):
        shutil.rmtree(person_run / name)
    shutil.rmtree(person_run.parent / "hospitals")
    config = person_run / "config.toml"
    config.write_text(re.sub(r"(?m)^data = .*\n", "", config.read_text()))
    page = page_of(person_run)
    rows = json.loads((person_run / "summary.json").read_text())["rows"]
    assert f"3 clusters among {rows:,} rows at 3 sites" in page.words
    assert "they stayed at the sites" in page.words
    assert "use the global model as it is" not in page.words
    assert page.count("svg") == 4


def test_rows_that_changed_are_not_taken_for_those_of_the_run(person_run):
    path = person_run.parent / "hospitals" / "oslo" / "ecg.parquet"
    pl.read_parquet(path).with_columns(pl.col("id") + "x").write_parquet(path)
    for other in (person_run.parent / "hospitals" / "oslo").glob("image.parquet"):
        pl.read_parquet(other).with_columns(pl.col("id") + "x").write_parquet(other)
    assert "rows of site 'oslo' are no longer those of the run" in page_of(person_run).words


def test_values_that_changed_are_noticed_by_their_clusters(person_run):
    for path in (person_run.parent / "hospitals" / "oslo").iterdir():
        pl.read_parquet(path).with_columns(pl.exclude("id").reverse()).write_parquet(path)
    assert "rows of site 'oslo' are no longer those of the run" in page_of(person_run).words


def test_gains_are_those_of_the_evaluation(tmp_path, person_run):
    run = fit(
        person_run.parent / "hospitals",
        tmp_path / "measured",
        "--clusters",
        3,
        "--algorithm",
        "fedhk-person",
        "--evaluate",
    )
    facts = read_facts(run)
    table = pl.read_csv(run / "evaluation.csv")
    assert facts.held_out
    for gain in facts.gains:
        own = table.filter((pl.col("site") == gain.site) & (pl.col("model") == "personal"))
        assert gain.objectives["personal"] == own["objective"].item()
    page = page_of(run)
    assert "rows that no model saw" in page.words
    assert "which favours them" not in page.words


def test_gains_without_an_evaluation_are_measured_on_the_rows_and_say_so(person_run):
    facts = read_facts(person_run)
    assert not facts.held_out
    assert {gain.site for gain in facts.gains} == {"bern", "oslo", "rome"}
    assert all(gain.objectives["personal"] < gain.objectives["global"] for gain in facts.gains)
    assert "which favours them" in page_of(person_run).words


def test_damaged_runs_are_refused_by_name(tmp_path, person_run):
    with pytest.raises(DataError, match="holds no finished run"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="no site 'paris'; it has 'bern'"):
        write_report(person_run, site="paris")
    labels = person_run / "labels" / "oslo.parquet"
    pl.read_parquet(labels).with_columns(cluster=pl.lit(7)).write_parquet(labels)
    with pytest.raises(DataError, match="clusters 7 to 7; the model has 3"):
        write_report(person_run)
    (person_run / "history.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        write_report(person_run)


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
    before = page_of(private_run).source
    forget_rows(private_run)
    assert page_of(private_run).source == before


def test_the_coordinators_page_shows_no_number_of_a_site(private_run):
    page = page_of(private_run)
    summary = json.loads((private_run / "summary.json").read_text())
    model = fedhk.load(private_run / "model.safetensors")
    assert not hasattr(model, "personalization_")  # neither has the file
    assert page.data["sites"] == {}
    assert "Dots are rows" not in page.words
    assert summary["rows"] is None
    assert all(site["rows"] is None for site in summary["sites"].values())
    assert "section-sites" not in page.source
    assert "It shows only what the sites released under noise" in page.words
    assert "epsilon 40 at delta 1e−05" in page.words
    assert "round 6" in page.section("privacy").words  # the ledger: six rounds


def test_the_page_of_a_site_is_the_same_without_other_sites(private_run):
    before = page_of(private_run, site="oslo").source
    for name in ("bern", "rome"):
        (private_run / "labels" / f"{name}.parquet").unlink()
        (private_run / "sites" / f"{name}.safetensors").unlink()
        shutil.rmtree(private_run.parent / "hospitals" / name)
    assert page_of(private_run, site="oslo").source == before


def test_the_page_of_a_site_has_its_rows_and_its_model(private_run):
    page = page_of(private_run, site="oslo")
    labels = pl.read_parquet(private_run / "labels" / "oslo.parquet")["cluster"].to_numpy()
    assert page.data["sites"]["0"]["sizes"] == np.bincount(labels, minlength=3).tolist()
    assert "Page of site oslo" in page.words
    assert "bern" not in page.words
    assert "Dots are rows" in page.words


def test_the_page_of_a_site_does_not_say_what_others_were_refused_for(person_run):
    history = json.loads((person_run / "history.json").read_text())
    history[0]["refused"] = {"bern": "sent nonsense", "oslo": "came late"}
    (person_run / "history.json").write_text(json.dumps(history))
    assert "sent nonsense" in page_of(person_run).source
    own = page_of(person_run, site="oslo").source
    assert "sent nonsense" not in own
    assert "came late" in own


def test_secure_sums_without_noise_keep_to_sums(tmp_path):
    data = write_sites(tmp_path / "hospitals")
    run = fit(data, tmp_path / "run", "--clusters", 3, "--secure")
    total = json.loads((run / "summary.json").read_text())["rows"]
    page = page_of(run)
    assert page.data["sites"] == {}
    assert f"among {total:,} rows" in page.words  # a sum over all sites
    for name in ("labels", "sites"):
        shutil.rmtree(run / name)
    shutil.rmtree(data)
    assert page_of(run).source == page.source
