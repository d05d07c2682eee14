"""`fedhk-diffusion` on the command line: fit, predict, info and report of a run on embedded rows."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import fedhk
from fedhk.cli import app
from fedhk.data.folders import read_federation
from fedhk.data.named import named_views
from fedhk.datasets import make_sites
from remote_sites import written


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    data = make_sites(3, 50, n_clusters=3, shift=1.5, random_state=0)
    path = tmp_path_factory.mktemp("federation")
    written(dict(zip(("oslo", "pisa", "rome"), data.sites.values(), strict=True)), path)
    return next(p for p in (path, *path.rglob("*")) if (p / "rome").is_dir())


def command(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + result.stderr
    return result


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    options = ("--clusters", 3, "--seed", 0, "--evaluate", "--set", "calibration=0.75")
    summary = json.loads(
        command("fit", folder, "--algorithm", "fedhk-diffusion", *options, "--out", out, "--json").stdout
    )
    return out, summary


def test_a_run_has_what_the_estimator_finds(folder, run):
    out, summary = run
    sites = {site.name: named_views(site) for site in read_federation(folder).sites.values()}
    model = fedhk.FedHKDiffusion(3, calibration=0.75, random_state=0).fit(sites)
    assert summary["n_clusters"] == 3
    assert {record["model"] for record in summary["evaluation"]} == {"global", "personal", "alone"}
    assert summary["bytes_up"] == sum(record["bytes_up"] for record in model.history_)
    for site in sites:
        labels = pl.read_parquet(out / "labels" / f"{site}.parquet")["cluster"].to_numpy()
        assert_array_equal(labels, model.labels_[site])
    assert_array_equal(
        np.hstack(fedhk.load(out / "model.safetensors").cluster_centers_), np.hstack(model.cluster_centers_)
    )


def test_predict_gives_training_rows_the_clusters_of_the_run(folder, run, tmp_path):
    out, _ = run
    command("predict", out, folder, "--out", tmp_path / "labels")
    for site in ("oslo", "pisa", "rome"):
        found, known = (pl.read_parquet(p / f"{site}.parquet") for p in (tmp_path / "labels", out / "labels"))
        assert_array_equal(found["cluster"].to_numpy(), known["cluster"].to_numpy())


def test_info_and_report_show_clusters_in_the_views_that_came_in(folder, run, tmp_path):
    out, _ = run
    found = json.loads(command("info", out / "model.safetensors", "--json").stdout)
    names = list(read_federation(folder).sites["rome"].views)
    assert found["estimator"] == "FedHKDiffusion"
    assert [view["name"] for view in found["views"]] == names
    assert "FedHKDiffusion" in command("info", out / "model.safetensors").stdout
    command("report", out, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "heat diffusion" in page
    assert all(name in page for name in names)


def test_the_number_of_clusters_may_be_left_to_the_eigengap(folder, tmp_path):
    words = ("--algorithm", "fedhk-diffusion", "--set", "n_clusters=auto", "--seed", 0, "--json")
    summary = json.loads(command("fit", folder, *words, "--out", tmp_path / "run").stdout)
    assert 2 <= summary["n_clusters"] <= 10


def test_masks_leave_the_server_sums_only(folder, tmp_path):
    words = ("--algorithm", "fedhk-diffusion", "--clusters", 3, "--seed", 0, "--secure", "--json")
    summary = json.loads(command("fit", folder, *words, "--out", tmp_path / "run").stdout)
    assert summary["n_clusters"] == 3
    assert "secure" in (tmp_path / "run" / "config.toml").read_text("utf-8")
