"""`fedhk split`: one file with the rows of all sites becomes a federation folder."""

from __future__ import annotations

import datetime
import gzip
import json

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from cli.calls import call, refusal, usage
from fedhk.data.folders import read_federation

TEXT = """Pat-Nr;hospital;age;sodium;ward
007;oslo;45,50;138;"a;b"
008;rome;;141,0;N/A
009; oslo ;61;1e2;"say ""x"" once"
010;rome;70,25;139;c
"""


def patients(n_rows=90):
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=n_rows)
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(n_rows)],
            "hospital": np.array(["oslo", "rome", "bern"])[np.arange(n_rows) % 3],
            "age": (45 + 20 * group + rng.normal(size=n_rows)).round(1),
            "sodium": (138 + 9 * group + rng.normal(size=n_rows)).round(1),
            "sex": np.where(group == 1, "F", "M"),
            "admitted": [datetime.date(2025, 1, 1) + datetime.timedelta(int(day)) for day in group],
        }
    )


def test_cells_of_text_stay_as_they_are(tmp_path):
    file, out = tmp_path / "lab.csv", tmp_path / "hospitals"
    file.write_text(TEXT, "utf-8")
    said = json.loads(call("split", file, "--site", "hospital", "--out", out, "--json").stdout)
    assert said["sites"] == {"oslo": 2, "rome": 2}
    assert (out / "oslo" / "lab.csv").read_text("utf-8") == (
        'Pat-Nr;age;sodium;ward\n007;45,50;138;"a;b"\n009;61;1e2;"say ""x"" once"\n'
    )
    assert (out / "rome" / "lab.csv").read_text("utf-8") == "Pat-Nr;age;sodium;ward\n008;;141,0;N/A\n010;70,25;139;c\n"
    site = read_federation(out).sites["rome"]
    assert_array_equal(site.views["lab"][:, list(site.columns["lab"]).index("age")], [np.nan, 70.25])


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "xlsx", "parquet", "feather"])
def test_every_kind_of_file_gives_the_same_federation(tmp_path, ending):
    table, file = patients(), tmp_path / f"lab.{ending}"
    if ending == "xlsx":
        pytest.importorskip("fastexcel")
        table.write_excel(file)
    elif ending == "csv.gz":
        file.write_bytes(gzip.compress(table.write_csv().encode()))
    else:
        write = {"csv": table.write_csv, "parquet": table.write_parquet, "feather": table.write_ipc}
        write.get(ending, lambda path: table.write_csv(path, separator="\t"))(file)
    call("split", file, "--site", "hospital", "--out", tmp_path / "found")
    for (name,), rows in table.group_by("hospital"):
        (tmp_path / "expected" / name).mkdir(parents=True)
        rows.drop("hospital").write_parquet(tmp_path / "expected" / name / "lab.parquet")
    found, expected = read_federation(tmp_path / "found"), read_federation(tmp_path / "expected")
    assert found.columns == expected.columns
    for name, site in expected.sites.items():
        assert_array_equal(found.sites[name].ids, site.ids)
        assert_array_equal(found.sites[name].views["lab"], site.views["lab"])


def test_what_is_split_can_be_fitted(tmp_path):
    patients().write_csv(tmp_path / "patients.csv")
    out = tmp_path / "hospitals"
    call("split", tmp_path / "patients.csv", "--site", "hospital", "--view", "record", "--out", out)
    assert sorted(path.relative_to(out).as_posix() for path in out.glob("*/*")) == [
        "bern/record.csv",
        "oslo/record.csv",
        "rome/record.csv",
    ]
    call("fit", out, "--clusters", 3, "--seed", 0, "--out", tmp_path / "run")


def test_columns_become_views_and_outcomes_a_folder_of_their_own(tmp_path):
    table, file = patients().rename({"id": "number"}), tmp_path / "patients.csv"
    table.write_csv(file)
    split = ("split", file, "--site", "hospital", "--id", "number")
    said = call(*split, "--view", "record=age, sex", "--view", "lab=sodium", "--out", tmp_path / "sites").stdout
    assert "In no view: 'admitted'." in said
    assert f"fedhk info {tmp_path / 'sites'} --id number" in said
    call(*split, "--view", "later=admitted", "--out", tmp_path / "later")
    call("info", tmp_path / "sites", "--id", "number")
    for name, column in (("lab", "sodium"), ("later", "admitted")):
        rows = pl.read_csv(tmp_path / ("later" if name == "later" else "sites") / "oslo" / f"{name}.csv")
        expected = table.filter(pl.col("hospital") == "oslo").select("number", pl.col(column).cast(rows[column].dtype))
        assert rows.equals(expected)
    call("fit", tmp_path / "sites", "--id", "number", "-k", 3, "--seed", 0, "--out", tmp_path / "run")
    assert "later: admitted" in call("after", "profile", tmp_path / "run", "--also", tmp_path / "later").stdout


def test_a_column_named_id_is_in_every_view(tmp_path):
    patients().write_csv(tmp_path / "patients.csv")
    words = ("split", tmp_path / "patients.csv", "--site", "hospital", "--out", tmp_path / "out", "--json")
    said = json.loads(call(*words, "--view", "lab=sodium").stdout)
    assert said["views"] == {"lab": ["id", "sodium"]}


def test_commands_that_take_folders_name_it(tmp_path):
    file = tmp_path / "patients.csv"
    patients().write_csv(file)
    advice = f"`fedhk split {file} --site COLUMN --out FOLDER`"
    assert advice in refusal("fit", file, "--clusters", 3, "--out", tmp_path / "run", code=3)
    assert advice in refusal("info", file, code=3)
    (tmp_path / "notes.txt").write_text("text", "utf-8")
    assert "Give the folder" in refusal("fit", tmp_path / "notes.txt", "-k", 3, "--out", tmp_path / "run", code=3)


@pytest.mark.parametrize(
    ("sites", "text"),
    [
        (["oslo", "", "oslo"], "column 'hospital': row 2 has no site (1 of 3 have none)"),
        (["oslo", "oslo", "n/a"], "row 3 has no site"),
        (["oslo", "../up", "oslo"], "'../up' cannot be the name of a site"),
        (["oslo", ".hidden", "oslo"], "'.hidden' cannot be the name of a site"),
        (["oslo", "a\\b", "oslo"], "cannot be the name of a site"),
        (["oslo", "archive", "oslo"], "'archive' cannot be the name of a site"),
        (["oslo", "x" * 300, "oslo"], "The name of a site must be 1 to"),
        (["oslo", "Oslo", "oslo"], "Sites 'Oslo', 'oslo' differ by capital letters only"),
        (["a", "b", "c"], "another value in every row"),
    ],
)
def test_sites_that_cannot_be_folders_are_refused(tmp_path, sites, text):
    pl.DataFrame({"age": [1, 2, 3], "hospital": sites}).write_csv(tmp_path / "lab.csv")
    assert text in refusal("split", tmp_path / "lab.csv", "--site", "hospital", "--out", tmp_path / "out", code=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lab.csv"]


def test_what_cannot_be_split_is_refused(tmp_path):
    file, out = tmp_path / "lab.csv", tmp_path / "out"
    file.write_text(TEXT, "utf-8")
    asked = ("split", file, "--out", out, "--site")
    assert "has no column 'hospitl'" in refusal(*asked, "hospitl", code=3)
    assert "cannot be the name of a view" in refusal(*asked, "hospital", "--view", "a/b", code=3)
    assert "no column 'agee' for view 'a'" in refusal(*asked, "hospital", "--view", "a=agee", code=3)
    assert "no column 'nobody'" in refusal(*asked, "hospital", "--id", "nobody", code=3)
    assert "given twice" in refusal(*asked, "hospital", "--view", "a=age", "--view", "a=ward", code=3)
    assert "is a folder" in refusal("split", tmp_path, "--site", "hospital", "--out", tmp_path / "out", code=3)
    assert "does not exist" in refusal("split", tmp_path / "x.csv", "--site", "hospital", "--out", out, code=3)
    (tmp_path / "short.csv").write_text("a,b\n1\n", "utf-8")
    said = refusal("split", tmp_path / "short.csv", "--site", "a", "--out", out, code=3)
    assert said.startswith("Error: file 'short.csv': line 2 has fewer than 2 cells")
    out.mkdir()
    (out / "mine.txt").write_text("text", "utf-8")
    assert "exists already" in refusal(*asked, "hospital", code=5)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_several_files_are_views_of_all_sites(tmp_path):
    table = patients()
    table.select("id", "hospital", "age", "sex").write_csv(tmp_path / "record.csv")
    table.select("id", "hospital", "sodium").filter(pl.col("hospital") != "bern").write_csv(
        tmp_path / "lab.csv", separator=";"
    )
    out = tmp_path / "hospitals"
    said = call(
        "split", tmp_path / "record.csv", tmp_path / "lab.csv", "--site", "hospital", "--out", out, "--json"
    ).stdout
    assert json.loads(said)["sites"] == {"bern": 30, "oslo": 30, "rome": 30}
    found = read_federation(out)
    assert found.view_names == ("lab", "record")
    assert found.sites["bern"].views["lab"] is None
    assert found.sites["rome"].views["lab"].shape == (30, 1)


def test_without_a_column_of_sites_each_file_is_a_site(tmp_path):
    for name, table in patients().drop("hospital").with_row_index("row").group_by(pl.col("row") // 45):
        table.drop("row").write_csv(tmp_path / f"{['oslo', 'rome'][name[0]]}.csv")
    out = tmp_path / "hospitals"
    call("split", tmp_path / "oslo.csv", tmp_path / "rome.csv", "--view", "record=age,sex", "--out", out)
    found = read_federation(out)
    assert found.view_names == ("record",)
    assert {name: site.n_rows for name, site in found.sites.items()} == {"oslo": 45, "rome": 45}


def test_several_files_must_be_told_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        patients().write_csv(tmp_path / folder / "lab.csv")
    files = tmp_path / "a" / "lab.csv", tmp_path / "b" / "lab.csv"
    out = "--out", tmp_path / "hospitals"
    assert "the name of a file is that of a view" in refusal("split", *files, "--site", "hospital", *out, code=3)
    assert "the name of a file is that of a site" in refusal("split", *files, *out, code=3)
    assert "--site" in usage("split", files[0], *out)
    assert "--view" in usage("split", *files, "--site", "hospital", "--view", "record=age", *out)


def test_a_flat_folder_names_the_way(tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for name in ("lab", "record"):
        patients().write_csv(flat / f"{name}.csv")
    said = refusal("fit", flat, "--clusters", "2", "--out", tmp_path / "run", code=3)
    assert f"`fedhk split {flat / 'lab.csv'} {flat / 'record.csv'} --site COLUMN --out FOLDER`" in said
    assert "If each file is a site, leave --site out" in said
