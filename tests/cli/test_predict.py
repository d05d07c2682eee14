"""`fedhk predict`: clusters of new rows."""

from __future__ import annotations

import json

import numpy as np
import polars as pl

from cli.calls import call, refusal
from fedhk.data.folders import write_site


def test_own_model_where_there_is_one(hospitals, run, tmp_path):
    (hospitals / "rome").rename(hospitals / "turin")
    document = json.loads(call("predict", run, hospitals, "--out", tmp_path / "labels", "--json").stdout)
    assert {name: site["model"] for name, site in document["sites"].items()} == {
        "bern": "its own",
        "oslo": "its own",
        "turin": "global",
    }
    for old, new in (("bern", "bern"), ("rome", "turin")):
        was, now = run / "labels" / f"{old}.parquet", tmp_path / "labels" / f"{new}.parquet"
        assert pl.read_parquet(was).equals(pl.read_parquet(now))


def test_single_site_and_model_file(hospitals, run, tmp_path):
    shown = call("predict", run / "model.safetensors", hospitals / "oslo", "--out", tmp_path / "labels").stdout
    assert "global" in shown
    assert [path.name for path in (tmp_path / "labels").iterdir()] == ["oslo.parquet"]


def test_views_and_columns_are_checked(hospitals, run, tmp_path):
    (hospitals / "oslo" / "ecg.parquet").rename(hospitals / "oslo" / "eeg.parquet")
    assert "'eeg'" in refusal("predict", run, hospitals, "-o", tmp_path / "labels", code=3)
    write_site(tmp_path / "new" / "oslo", {"ecg": np.zeros((3, 9))})
    assert "'oslo'" in refusal("predict", run, tmp_path / "new", "-o", tmp_path / "labels", code=3)
    assert not (tmp_path / "labels").exists()


def test_width_is_checked_where_columns_have_no_names(tmp_path):
    values = np.random.default_rng(0).normal(size=(20, 3))
    write_site(tmp_path / "plain" / "oslo", {"ecg": values}, format="npy")
    call("fit", tmp_path / "plain", "-k", 2, "-o", tmp_path / "run")
    write_site(tmp_path / "wider" / "oslo", {"ecg": np.zeros((3, 9))}, format="npy")
    said = refusal("predict", tmp_path / "run", tmp_path / "wider", "-o", tmp_path / "labels", code=3)
    assert "'oslo'" in said
    assert "9" in said


def test_outputs_and_models(hospitals, run, tmp_path):
    call("predict", run, hospitals, "-o", tmp_path / "labels")
    refusal("predict", run, hospitals, "-o", tmp_path / "labels", code=5)
    call("predict", run, hospitals, "-o", tmp_path / "labels", "--force")
    refusal("predict", run, hospitals, "-o", run, "--force", code=5)
    refusal("predict", tmp_path / "nothing", hospitals, "-o", tmp_path / "new", code=3)
    refusal("predict", hospitals, hospitals, "-o", tmp_path / "new", code=3)
    (tmp_path / "half.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:100])
    refusal("predict", tmp_path / "half.safetensors", hospitals, "-o", tmp_path / "new", code=3)
