"""`fedhk info`: what a path is."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedhk
from cli.calls import call, refusal, usage


def test_run_and_model(run):
    found = json.loads(call("info", run, "--json").stdout)
    assert (found["kind"], found["algorithm"], found["rows"], found["fedhk"]) == (
        *("run", "e-fkmvc", 120),
        fedhk.__version__,
    )
    assert "view weights" in call("info", run).stdout
    model = json.loads(call("info", run / "model.safetensors", "--json").stdout)
    assert (model["kind"], model["n_clusters"]) == ("model", 3)
    assert [(view["name"], view["width"]) for view in model["views"]] == [("ecg", 4), ("image", 3)]
    assert "EFKMVC" in call("info", run / "model.safetensors").stdout
    call("info", run / "sites" / "oslo.safetensors")


def test_data(hospitals):
    found = json.loads(call("info", hospitals, "--json").stdout)
    assert found["sites"]["rome"]["views"] == ["ecg"]
    assert found["rows"] == 120
    assert "missing cells" in call("info", hospitals).stdout
    assert json.loads(call("info", hospitals / "oslo", "--json").stdout)["sites"].keys() == {"oslo"}


def test_a_category_is_one_column_and_its_empty_cell_one_missing_cell(tmp_path):
    for site in ("oslo", "rome"):
        (tmp_path / "data" / site).mkdir(parents=True)
        rows = [f"{i % 2 * 9 + i / 40},{'abc'[i % 3] if i else ''}" for i in range(30)]
        (tmp_path / "data" / site / "lab.csv").write_text("\n".join(["crp,ward", *rows]))
    found = json.loads(call("info", tmp_path / "data", "--json").stdout)
    assert found["views"] == [{"name": "lab", "width": 4, "columns": 2}]
    assert [site["missing_cells"] for site in found["sites"].values()] == [1, 1]
    call("fit", tmp_path / "data", "--clusters", 2, "--seed", 0, "--out", tmp_path / "run")
    assert json.loads(call("info", tmp_path / "run", "--json").stdout)["views"][0]["columns"] == 2


def test_bad_paths(tmp_path, run):
    refusal("info", tmp_path / "nothing", code=3)
    (tmp_path / "empty").mkdir()
    assert "no site" in refusal("info", tmp_path / "empty", code=3)
    (run / "summary.json").write_text("{}")
    refusal("info", run, code=3)


class TestColumns:
    """Columns side by side, with those that deviate marked."""

    def make(self, folder):
        rng = np.random.default_rng(0)
        for number, site in enumerate(("bern", "oslo", "pisa", "rome")):
            (folder / site).mkdir(parents=True)
            factor = 1000 if number == 3 else 1
            rows = [
                f"{i};{factor * (140 + rng.normal()):.3f};{'' if i % 4 else 'FMX'[rng.integers(2 + (number == 1))]};"
                f"2026-02-{1 + i % 28:02d}"
                for i in range(80)
            ]
            (folder / site / "lab.csv").write_text("\n".join(["id;sodium;sex;day", *rows]))
        return folder

    def test_median_range_missing_and_levels_by_site(self, tmp_path):
        folder = self.make(tmp_path / "data")
        found = json.loads(call("info", folder, "--columns", "--json").stdout)["columns"]
        by = {(one["column"], one["site"]): one for one in found}
        assert by["sodium", "bern"]["median"] == pytest.approx(140, abs=1)
        assert by["sodium", "bern"]["remark"] == ""
        assert "1,000 times larger" in by["sodium", "rome"]["remark"]
        assert by["sex", "bern"]["missing"] == 0.75
        assert sum(by["sex", "bern"]["levels"].values()) == pytest.approx(1)
        assert by["sex", "oslo"]["remark"] == "has levels that no other site has: 'X'."
        assert by["day", "pisa"]["kind"] == "date"

    def test_they_are_shown_and_written_as_a_page(self, tmp_path):
        folder = self.make(tmp_path / "data")
        (folder / "dictionary.toml").write_text(
            "[lab.sodium]\nunit = 'mmol/l'\n[lab.day]\nkind = 'date'\n"
            "[lab.sex]\nkind = 'category'\nlevels = ['F', 'M', 'X']\n"
        )
        said = " ".join(call("info", folder, "--columns", "--html", tmp_path / "c.html").stdout.split())
        assert "140 mmol/l" in said
        assert "2026-02-01" in said
        page = (tmp_path / "c.html").read_text()
        assert "2026-02-01 to 2026-02-28" in page
        assert "By the data dictionary it is in mmol/l." in page
        assert "--force" in refusal("info", folder, "--html", tmp_path / "c.html", code=5)

    def test_tensors_and_views_without_names_have_columns_by_number(self, tmp_path):
        (tmp_path / "data" / "oslo").mkdir(parents=True)
        np.save(tmp_path / "data" / "oslo" / "image.npy", np.arange(24.0).reshape(4, 3, 2))
        found = json.loads(call("info", tmp_path / "data", "--columns", "--json").stdout)["columns"]
        assert [(one["column"], one["median"]) for one in found][:2] == [("column 0", 9.0), ("column 1", 10.0)]

    def test_a_run_has_none(self, run):
        assert "is for folders of data" in usage("info", run, "--columns")

    def test_of_many_columns_the_marked_ones_are_shown(self, tmp_path):
        rng = np.random.default_rng(0)
        for site in ("bern", "oslo", "pisa", "rome"):
            (tmp_path / site).mkdir()
            values = rng.normal(size=(30, 150)) + 5
            values[:, 7] *= 1000 if site == "rome" else 1
            rows = [",".join(map(str, row)) for row in values.round(3)]
            (tmp_path / site / "rna.csv").write_text("\n".join([",".join(f"g{i}" for i in range(150)), *rows]))
        said = call("info", tmp_path, "--columns").stdout
        assert "View 'rna' has many columns" in said
        assert "g7" in said
        assert "g8" not in said
