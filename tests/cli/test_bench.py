"""`fedhk bench`: all methods on one's own sites."""

from __future__ import annotations

import json
import stat

import polars as pl
import pytest

from cli.calls import call, refusal
from fedhk.data.folders import write_site
from fedhk.datasets import make_sites

QUICK = ("--method", "k-FED", "--method", "EFKMVC", "--seeds", 1)


@pytest.fixture
def sites(tmp_path):
    data = make_sites(3, 50, n_clusters=3, n_features=(4, 3), separation=9, random_state=0)
    for site, views in data.sites.items():
        ids = [f"{site}-{i}" for i in range(len(views[0]))]
        write_site(tmp_path / "sites" / site, {"ecg": views[0], "lab": views[1]}, ids=ids)
        classes = [["flu", "cold", "healthy"][c] for c in data.site_labels[site]]
        pl.DataFrame({"id": ids[::-1], "class": classes[::-1]}).write_csv(tmp_path / "sites" / site / "diagnosis.csv")
    return tmp_path / "sites"


def test_a_folder_with_tables_figures_and_what_to_cite(sites, tmp_path):
    shown = call("bench", sites, "--labels", "diagnosis", *QUICK, "--out", tmp_path / "bench").stdout
    assert "Agreement with the classes: 150 rows at 3 sites, 3 clusters, 1 seed" in shown
    names = {path.name for path in (tmp_path / "bench").iterdir()}
    assert len({stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "bench").iterdir()}) == 1
    tables = {f"table.{ending}" for ending in ("csv", "tex", "html")}
    assert names == {"records.csv", "references.bib", "figure.pdf", "figure.svg"} | tables
    records = pl.read_csv(tmp_path / "bench" / "records.csv")
    assert records["method"].to_list() == ["k-FED", "EFKMVC"]
    assert records["ARI"].min() > 0.9  # rows of labels were matched by their ids
    again = ("bench", sites, "--labels", "diagnosis", *QUICK, "--out", tmp_path / "bench")
    refusal(*again, code=5)
    document = json.loads(call(*again, "--force", "--json").stdout)
    assert [one["method"] for one in document["methods"]] == ["k-FED", "EFKMVC"]


def test_help_shows_the_numbers_of_clusters_that_it_takes():
    shown = call("bench", "--help").stdout
    assert "LOW-HIGH" not in shown
    assert "--clusters" in shown


def test_gaps_and_sites_without_classes_are_said(sites, tmp_path):
    table = pl.read_parquet(sites / "site-00" / "ecg.parquet")
    gap = pl.when(pl.int_range(pl.len()) == 0).then(None).otherwise(pl.col(table.columns[1]))
    table.with_columns(gap.alias(table.columns[1])).write_parquet(sites / "site-00" / "ecg.parquet")
    (sites / "site-01" / "diagnosis.csv").unlink()
    paper = ("--method", "the paper's Algorithm 1", "--seeds", 1)
    asked = ("bench", sites, "--labels", "diagnosis", *paper, "--out", tmp_path / "bench")
    said = refusal(*asked, code=3)
    assert "None of the methods can be run on these sites" in said
    assert "site 'site-00' has some in view 'ecg'" in said
    shown = call(*asked, "--method", "k-FED").stdout
    assert "Not run: the paper's Algorithm 1" in shown
    assert "no row of site 'site-01' has one" in shown
    assert "Not run: the paper's Algorithm 1" in (tmp_path / "bench" / "table.tex").read_text("utf-8")
    assert "dennis2021kfed" in (tmp_path / "bench" / "references.bib").read_text("utf-8")
    document = json.loads(call(*asked, "--method", "k-FED", "--force", "--json").stdout)
    assert len(document["notes"]) == 2


def test_refusals(sites, tmp_path):
    said = refusal("bench", sites, "--labels", "diagnoses", "--out", tmp_path / "bench", code=3)
    assert "Did you mean 'diagnosis'?" in said
    assert "one column" in refusal("bench", sites, "--labels", "ecg", "--out", tmp_path / "bench", code=3)
    refusal("bench", sites, "--labels", "diagnosis", "--out", sites / "bench", code=5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    said = refusal("bench", sites, "--labels", "diagnosis", "--out", tmp_path / "other", "--force", code=5)
    assert "never replaced" in said
    assert not (tmp_path / "bench").exists()


def test_classes_that_are_numbers(sites, tmp_path):
    for folder in sites.iterdir():
        table = pl.read_csv(folder / "diagnosis.csv")
        numbers = {"flu": 1, "cold": 2, "healthy": 3}
        table.with_columns(pl.col("class").replace_strict(numbers)).write_csv(folder / "diagnosis.csv")
    call("bench", sites, "--labels", "diagnosis", *QUICK, "--out", tmp_path / "bench")
    assert pl.read_csv(tmp_path / "bench" / "records.csv")["ARI"].min() > 0.9
