"""`fedhk predict`: clusters of new rows."""

from __future__ import annotations

import json

import numpy as np
import polars as pl

from cli.calls import call, refusal, usage
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


def test_what_a_site_got_of_a_run(hospitals, run, tmp_path):
    got = tmp_path / "state"
    got.mkdir()
    for part in ("sites", "labels"):
        (got / part).mkdir()
    for file in ("model.safetensors", "sites/oslo.safetensors", "labels/oslo.parquet"):
        (got / file).write_bytes((run / file).read_bytes())
    new = (hospitals / "oslo").rename(tmp_path / "new-patients")
    words = ("predict", got, new, "--site", "oslo", "--out", tmp_path / "labels", "--json")
    assert json.loads(call(*words).stdout)["sites"]["oslo"]["model"] == "its own"
    assert pl.read_parquet(tmp_path / "labels" / "oslo.parquet").equals(pl.read_parquet(got / "labels/oslo.parquet"))
    assert "of several" in refusal("predict", got, hospitals, "--site", "oslo", "--out", tmp_path / "b", code=3)
    assert "sites are oslo" in refusal("predict", got, new, "--site", "rome", "--out", tmp_path / "b", code=3)
    assert json.loads(call("info", got, "--json").stdout)["estimator"] == "EFKMVC"


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


def test_csv_has_what_parquet_has(hospitals, run, tmp_path):
    call("predict", run, hospitals, "--out", tmp_path / "labels", "--csv")
    for site in ("bern", "oslo", "rome"):
        written = pl.read_csv(tmp_path / "labels" / f"{site}.csv")
        assert written.equals(pl.read_parquet(run / "labels" / f"{site}.parquet"))
    call("predict", run, hospitals, "--out", tmp_path / "labels", "--csv", "--force")


def test_rows_from_standard_input(hospitals, run):
    ecg, image = (pl.read_parquet(hospitals / "oslo" / f"{view}.parquet") for view in ("ecg", "image"))
    expected = pl.read_parquet(run / "labels" / "oslo.parquet")
    both = ecg.join(image, on="id", maintain_order="left")
    shown = call("predict", run, "-", "--site", "oslo", stdin=both.write_csv()).stdout
    assert pl.read_csv(shown.encode()).equals(expected)
    renamed = both.rename({"ecg_0": "ecg/ecg_0"}).tail(1).write_csv(separator=";")
    shown = call("predict", run, "-", stdin=renamed).stdout
    assert pl.read_csv(shown.encode())["cluster"].item() == expected["global_cluster"][-1]
    shown = call("predict", run, "-", stdin=ecg.write_csv()).stdout
    assert len(shown.splitlines()) == 1 + len(ecg)


def test_standard_input_is_checked(hospitals, run, tmp_path):
    table = pl.read_parquet(hospitals / "oslo" / "ecg.parquet")
    wrong = table.rename({"ecg_1": "ecgg_1"}).write_csv()
    said = refusal("predict", run, "-", code=3, stdin=wrong)
    assert "'ecgg_1' is unknown to the model. Did you mean 'ecg_1'?" in said
    assert "'ecg_1'" in refusal("predict", run, "-", code=3, stdin=table.drop("ecg_1").write_csv())
    assert "line 3 has 2 cells" in refusal("predict", run, "-", code=3, stdin="ecg_0,ecg_1,ecg_2\n1,2,3\n4,5\n")
    for nothing in ("", "ecg_0\n"):
        assert "has no row" in refusal("predict", run, "-", code=3, stdin=nothing)
    assert "'nowhere'" in refusal("predict", run, "-", "--site", "nowhere", code=3, stdin=table.write_csv())
    assert "--json" in usage("predict", run, "-", "--json")
    assert "--out" in usage("predict", run, hospitals)


def test_columns_of_several_views_are_told_apart(tmp_path):
    rng = np.random.default_rng(0)
    names = {"ecg": ["rate", "height"], "lab": ["rate", "sodium"]}
    write_site(tmp_path / "sites" / "oslo", {view: rng.normal(size=(20, 2)) for view in names}, columns=names)
    call("fit", tmp_path / "sites", "-k", 2, "--scaling", "standard", "-o", tmp_path / "run")
    said = refusal("predict", tmp_path / "run", "-", code=3, stdin="rate,height\n1,2\n")
    assert "'rate' is in the views ecg, lab: write it as ecg/rate." in said
    shown = call("predict", tmp_path / "run", "-", stdin="ecg/rate,height,lab/rate,sodium\n1,2,3,4\n").stdout
    assert len(shown.splitlines()) == 2
