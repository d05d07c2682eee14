"""`fedhk predict`: clusters of new rows."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest

from cli.calls import call, refusal, usage
from fedhk.data.folders import write_site
from fedhk.datasets import make_sites


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
    said = call("predict", run, "-", code=3, stdin=wrong).stderr
    assert "does not know; passed over: 'ecgg_1'. Did you mean 'ecg_1'?" in said
    assert "lacks 'ecg_1'" in said
    found = call("predict", run, "-", stdin=table.with_columns(hospital=pl.lit("oslo"), died=pl.lit(1)).write_csv())
    assert (
        "Note: standard input has columns that the model does not know; passed over: 'hospital', 'died'."
        in found.stderr
    )
    assert found.stdout == call("predict", run, "-", stdin=table.write_csv()).stdout
    said = call("predict", run, "-", code=3, stdin="hospital\noslo\n").stderr
    assert "has no column of the model" in said
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


def _write_patients(folder, data, n_rows=None):
    """Sites with ids of another name, and a column of ranks that only a data dictionary can tell."""
    for name, (view, *_) in data.sites.items():
        rows = view[:n_rows]
        columns = {f"x{i}": rows[:, i] for i in range(rows.shape[1])}
        columns |= {"severity": np.array(["mild", "moderate", "severe"])[np.arange(len(rows)) % 3]}
        (folder / name).mkdir(parents=True)
        pl.DataFrame({"patient_id": [f"{name}-{i}" for i in range(len(rows))]} | columns).write_csv(
            folder / name / "lab.csv"
        )


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    """A run with a data dictionary, and new rows in a folder without one."""
    root = tmp_path_factory.mktemp("ranked")
    data = make_sites(3, 40, n_clusters=3, n_features=(4, 3), separation=9, random_state=0)
    _write_patients(root / "data", data)
    _write_patients(root / "new", data, 20)
    call("dictionary", root / "data", "--id", "patient_id")
    dictionary = root / "data" / "dictionary.toml"
    ranks = 'kind = "ordered"\nlevels = ["mild", "moderate", "severe"]'
    text = dictionary.read_text("utf-8")
    begin = text.index("[lab.severity]\n") + len("[lab.severity]\n")
    dictionary.write_text(text[:begin] + ranks + "\n", "utf-8")
    call("fit", root / "data", "--clusters", 3, "--seed", 1, "--out", root / "run")
    return root


@pytest.mark.parametrize("model", ["run", "run/model.safetensors"])
def test_new_rows_are_read_as_the_run_read_its_own(ranked, tmp_path, model):
    call("predict", ranked / model, ranked / "new", "--out", tmp_path / "labels")
    shutil.copytree(ranked / "new", tmp_path / "new")
    shutil.copy(ranked / "data" / "dictionary.toml", tmp_path / "new")
    call("predict", ranked / model, tmp_path / "new", "--out", tmp_path / "expected")
    for site in ("site-00", "site-01", "site-02"):
        found, expected = (pl.read_parquet(tmp_path / part / f"{site}.parquet") for part in ("labels", "expected"))
        assert found["id"].to_list() == [f"{site}-{i}" for i in range(20)]
        assert found.equals(expected)


def test_the_ids_of_the_run_and_others_come_from_standard_input(ranked):
    text = (ranked / "new" / "site-00" / "lab.csv").read_text("utf-8")
    found = call("predict", ranked / "run", "-", "--site", "site-00", stdin=text).stdout
    assert found.splitlines()[1].startswith("site-00-0,")
    usual = text.replace("patient_id", "id", 1)
    assert call("predict", ranked / "run", "-", "--site", "site-00", stdin=usual).stdout == found
    other = text.replace("patient_id", "Pat-Nr", 1)
    assert call("predict", ranked / "run", "-", "--site", "site-00", "--id", "Pat-Nr", stdin=other).stdout == found


def test_ids_of_another_name_are_said(ranked, tmp_path):
    for site in (ranked / "new").iterdir():
        (tmp_path / "new" / site.name).mkdir(parents=True)
        text = (site / "lab.csv").read_text("utf-8").replace("patient_id", "Pat-Nr", 1)
        (tmp_path / "new" / site.name / "lab.csv").write_text(text, "utf-8")
    asked = ("predict", ranked / "run", tmp_path / "new", "--out", tmp_path / "labels")
    assert "Say which it is (--id NAME)" in refusal(*asked, code=3)
    call(*asked, "--id", "Pat-Nr")


def test_the_id_of_the_fit_is_that_of_new_rows(tmp_path):
    data = make_sites(3, 40, n_clusters=3, n_features=(4, 3), separation=9, random_state=0)
    _write_patients(tmp_path / "data", data)
    call("fit", tmp_path / "data", "--clusters", 3, "--seed", 1, "--id", "patient_id", "--out", tmp_path / "run")
    call("predict", tmp_path / "run", tmp_path / "data", "--out", tmp_path / "labels")
    assert pl.read_parquet(tmp_path / "labels" / "site-01.parquet")["id"][0] == "site-01-0"


def test_an_update_has_the_dictionary_of_its_run(ranked, tmp_path):
    call("update", ranked / "run", ranked / "new", "--out", tmp_path / "updated")
    assert (tmp_path / "updated" / "dictionary.toml").read_bytes() == (ranked / "data" / "dictionary.toml").read_bytes()
    call("predict", tmp_path / "updated", ranked / "new", "--out", tmp_path / "labels")
    call("report", tmp_path / "updated", "--site", "site-00", "--data", ranked / "new", "--out", tmp_path / "page.html")


def test_an_attack_reads_rows_as_the_run_read_its_own(ranked):
    call("audit", "attack", ranked / "run", "--non-members", ranked / "new", "--shadows", 0)
