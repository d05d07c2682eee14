"""`fedhk update`: a run goes on with new rows, and what cannot go on leaves everything as it was."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

import fedhk
from cli.calls import call, refusal, usage
from fedhk.cli.config import read_config
from fedhk.data.folders import write_site
from fedhk.datasets import make_sites

SITES = ("bern", "oslo", "rome")


def write_rows(folder, start, **changes):
    """The rows of three hospitals, every other one; views by site that are given win."""
    data = make_sites(3, 80, n_clusters=3, n_features=(4, 3), separation=9, random_state=0)
    for name, views in zip(SITES, data.sites.values(), strict=True):
        ecg, image = (view[start::2] for view in views)
        tables = {"ecg": ecg, "image": image}
        change = changes.get(name, changes.get("every"))
        tables = change(tables) if change else tables
        write_site(folder / name, tables, ids=[f"{name}-{start}-{i}" for i in range(len(ecg))])
    return folder


def empty_site(folder):
    """Files with a header alone, as an export of a month in which nobody came has them."""
    folder.mkdir(parents=True)
    for view, width in (("ecg", 4), ("image", 3)):
        (folder / f"{view}.csv").write_text(",".join(["id", *(f"{view}_{i}" for i in range(width))]) + "\n")


def fit(folder, out, *options):
    call("fit", folder, "-k", 3, "--seed", 1, "--n-init", 3, *options, "--out", out)
    return out


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A finished run, to be copied."""
    folder = tmp_path_factory.mktemp("fitted")
    return fit(write_rows(folder / "hospitals", 0), folder / "run")


@pytest.fixture
def run(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "run")


@pytest.fixture
def later(tmp_path):
    """New rows of the same sites."""
    return write_rows(tmp_path / "later", 1)


def contents(folder):
    """All files of a folder with their bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class TestUpdate:
    def test_a_new_run_takes_its_place_and_the_earlier_one_stays(self, run, later, tmp_path):
        before = contents(run)
        shown = call("update", run, later).stdout
        assert "No cluster has moved by more than chance explains." in shown
        assert "No cluster has moved by more than chance explains." in (run / "report.html").read_text("utf-8")
        assert contents(tmp_path / "run-1") == before
        assert contents(run).keys() - before.keys() <= {"dictionary.toml"}
        assert read_config(run / "config.toml").data == later
        model, old = (fedhk.load(path / "model.safetensors") for path in (run, tmp_path / "run-1"))
        assert len(model.updates_) == 1
        for now, then in zip(model.cluster_centers_, old.cluster_centers_, strict=True):
            np.testing.assert_allclose(now, then, atol=1.5)  # clusters have kept their numbers
        labels = pl.read_parquet(run / "labels" / "oslo.parquet")
        assert labels["id"].to_list() == pl.read_parquet(later / "oslo" / "ecg.parquet")["id"].to_list()
        call("update", run, later, "--half-life", 2)
        assert (tmp_path / "run-2" / "summary.json").is_file()
        assert [line["keep"] for line in fedhk.load(run / "model.safetensors").updates_] == pytest.approx([1, 0.5**0.5])

    def test_embedded_models_go_on_as_others_do(self, later, tmp_path):
        run = fit(write_rows(tmp_path / "hospitals", 0), tmp_path / "run", "--algorithm", "fedhk-diffusion")
        before = fedhk.load(run / "model.safetensors")
        call("update", run, later)
        model = fedhk.load(run / "model.safetensors")
        assert len(model.updates_) == 1
        views = {
            s: {v: pl.read_parquet(later / s / f"{v}.parquet").drop("id") for v in ("ecg", "image")} for s in SITES
        }
        here = before.update(views)
        for name in SITES:
            assert (
                pl.read_parquet(run / "labels" / f"{name}.parquet")["cluster"].to_list() == here.labels_[name].tolist()
            )

    def test_the_page_says_which_clusters_have_moved_and_where(self, run, tmp_path):
        shift = lambda tables: tables | {"ecg": tables["ecg"] + 1.5}  # noqa: E731
        call("update", run, write_rows(tmp_path / "moved", 1, every=shift))
        text = (run / "report.html").read_text("utf-8")
        section = text.split('<section id="section-update">')[1].split("</section>")[0]
        assert "Moved: cluster 0, cluster 1 and cluster 2." in section
        assert section.count("all\N{NO-BREAK SPACE}sites") == 3
        assert 'href="#section-update"' in text

    def test_another_folder_leaves_the_run_alone_and_is_not_replaced_unasked(self, run, later, tmp_path):
        before, out = contents(run), tmp_path / "out"
        document = json.loads(call("update", run, later, "--out", out, "--json").stdout)
        assert document["rows"] == document["updates"][0]["rows"] == sum(s["rows"] for s in document["sites"].values())
        assert {line["site"] for line in document["drift"]} == {*SITES, "all sites"}
        assert "exists already" in refusal("update", run, later, "--out", out, code=5)
        call("update", run, later, "--out", out, "--force")
        assert contents(run) == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["later", "out", "run"]

    def test_equals_the_library(self, run, later):
        model = fedhk.load(run / "model.safetensors")
        views = {
            s: {v: pl.read_parquet(later / s / f"{v}.parquet").drop("id") for v in ("ecg", "image")} for s in SITES
        }
        model.update(views, rounds=2, half_life=3)
        call("update", run, later, "--rounds", 2, "--half-life", 3)
        for mine, theirs in zip(
            fedhk.load(run / "model.safetensors").cluster_centers_, model.cluster_centers_, strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10)

    def test_a_site_that_was_not_there(self, run, later):
        (later / "rome").rename(later / "turin")
        document = json.loads(call("update", run, later, "--json").stdout)
        assert sorted(document["sites"]) == ["bern", "oslo", "turin"]
        assert (run / "sites" / "turin.safetensors").is_file()
        assert "turin" not in {line["site"] for line in document["drift"]}  # nothing to compare it with

    def test_a_site_without_new_rows(self, run, later):
        shutil.rmtree(later / "rome")
        empty_site(later / "rome")
        document = json.loads(call("update", run, later, "--json").stdout)
        assert document["sites"]["rome"]["rows"] == 0
        assert document["rows"] == document["updates"][0]["rows"]
        assert "rome" not in {line["site"] for line in document["drift"]}
        assert (run / "report.html").is_file()

    def test_a_view_that_was_not_there(self, run, tmp_path):
        write_rows(tmp_path / "more", 1, every=lambda tables: tables | {"lab": tables["ecg"][:, :2] * 3})
        call("update", run, tmp_path / "more")
        assert fedhk.load(run / "model.safetensors").view_names_ == ["ecg", "image", "lab"]
        call("update", run, tmp_path / "more")  # now it is

    def test_what_moved_came_and_went_is_told(self, run, tmp_path):
        def move(tables):
            rows = tables["ecg"].copy()
            rows[: len(rows) // 4] += 60  # a cluster of their own
            return {"ecg": rows + 0.7, "image": tables["image"]}

        shown = call("update", run, write_rows(tmp_path / "moved", 1, every=move)).stdout
        assert "clusters that moved, in standard deviations" in shown
        assert "Clusters that are new: 3" in shown

    def test_examples_of_the_help_work_as_printed(self, run, later, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        later.rename(tmp_path / "hospitals-2025")
        lines = call("update", "--help").stdout.replace("│", " ").splitlines()
        examples = [line.split()[1:] for line in lines if line.strip().startswith("fedhk update run/")]
        assert len(examples) == 2
        for example in examples:
            call(*example)
        assert {"run", "run-1", "run-2025"} <= {path.name for path in tmp_path.iterdir()}


class TestPrivacy:
    BUDGET = ("--epsilon", 30, "--delta", 1e-4, "--bounds=-20,20", "--max-rounds", 4)

    def test_what_is_spent_adds_up_in_the_same_ledgers(self, tmp_path, later):
        run = fit(write_rows(tmp_path / "hospitals", 0), tmp_path / "run", *self.BUDGET)
        ledger = tmp_path / "hospitals.ledger" / "oslo.jsonl"
        spent, lines = [json.loads((run / "summary.json").read_text())["privacy_spent"][0]], [ledger.read_text()]
        for _ in range(2):
            call("update", run, later)
            spent.append(json.loads((run / "summary.json").read_text())["privacy_spent"][0])
            lines.append(ledger.read_text())
        assert spent[0] < spent[1] < spent[2]
        assert all(after.startswith(before) for before, after in pairwise(lines))
        assert not (tmp_path / "later.ledger").exists()
        told = json.loads(call("ledger", ledger.parent, "--delta", 1e-4, "--json").stdout)["sites"]
        assert max(site["epsilon"]["replace"] for site in told.values()) == pytest.approx(spent[2])
        assert {len(site["runs"]) for site in told.values()} == {3}
        assert [run["kind"] for run in told["oslo"]["runs"]] == ["fit", "update", "update"]
        assert [run["sums"] for run in told["oslo"]["runs"]][1:] == [["update round"]] * 2
        said = call("update", run, later, "--epsilon", 2, "--out", tmp_path / "cheap").stderr
        assert "This update can spend epsilon 2 at delta 0.0001 more at each site." in said
        cheap = json.loads((tmp_path / "cheap" / "summary.json").read_text())["privacy_spent"][0]
        assert spent[2] < cheap < spent[2] + 2
        assert read_config(tmp_path / "cheap" / "config.toml").parameters["privacy"]["epsilon"] == 2.0
        lines.append(ledger.read_text())
        write_rows(tmp_path / "more", 1, every=lambda tables: tables | {"lab": tables["ecg"][:, :2]})
        assert "'lab' is new" in call("update", run, tmp_path / "more", code=3).stderr
        shutil.copytree(ledger.parent, tmp_path / "sites" / "ledger")
        toml = (run / "config.toml").read_text().replace(str(ledger.parent), str(tmp_path / "sites" / "ledger"))
        (run / "config.toml").write_text(toml)
        assert "--ledger" in refusal("update", run, tmp_path / "sites", code=5)
        (run / "config.toml").write_text("\n".join(line for line in toml.splitlines() if not line.startswith("data")))
        assert "are elsewhere" in refusal("update", run, later, code=3)
        assert ledger.read_text() == lines[-1]


class TestRefusals:
    """One sentence, an exit code, and everything as it was."""

    @pytest.fixture(autouse=True)
    def nothing_changes(self, run, later, tmp_path):
        before = contents(run)
        yield
        assert contents(run) == before
        assert not [path.name for path in tmp_path.iterdir() if path.name.startswith((".", "run-", "out"))]

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda tables: {"ecg": tables["ecg"][:, :2], "image": tables["image"]}, "view 'ecg'"),
            (lambda tables: {"eeg": tables["ecg"] * 2}, "none of the views of the model"),
        ],
    )
    def test_other_columns(self, run, tmp_path, change, said):
        rows = write_rows(tmp_path / "other", 1, every=change)
        line = refusal("update", run, rows, code=3)
        assert said in line
        assert "'bern'" in line

    def test_a_budget_for_a_run_without_noise(self, run, later):
        assert "the run had no noise" in usage("update", run, later, "--epsilon", 1)

    def test_no_new_rows(self, run, tmp_path):
        for name in SITES:
            empty_site(tmp_path / "empty" / name)
        assert "has no rows at any of its 3 sites" in refusal("update", run, tmp_path / "empty", code=3)

    def test_what_is_no_run(self, run, later, tmp_path):
        assert "holds no finished run" in refusal("update", later, later, code=3)
        assert "There is no model" in refusal("update", tmp_path / "nothing", later, code=3)
        assert "is a file" in refusal("update", run / "model.safetensors", later, code=3)

    def test_no_data(self, run, tmp_path):
        assert "'" in refusal("update", run, tmp_path / "nothing", code=3)

    def test_data_and_run_in_each_other(self, run, later):
        assert "lie in each other" in refusal("update", run, later, "--out", later / "run", code=5)
        assert "lie in each other" in refusal("update", run, run, code=5)

    def test_settings(self, run, later):
        assert "half_life" in refusal("update", run, later, "--half-life", 0, code=3)
        assert "level" in refusal("update", run, later, "--level", 1, code=3)
        assert "--force is for --out" in usage("update", run, later, "--force").replace("'", "").replace(":", "")
        assert "--rounds" in usage("update", run, later, "--rounds", 0)

    @pytest.mark.parametrize("out", [(), ("--out", "out")])
    def test_an_error_while_the_run_is_written(self, run, later, tmp_path, monkeypatch, out):
        def fail(*args, **kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("fedhk.report.run.write_report", fail)
        assert "No space left" in refusal("update", run, later, *out, code=3)


class TestOtherModels:
    """Runs whose models do not go on."""

    def change(self, run, **values):
        model = fedhk.load(run / "model.safetensors")
        for name, value in values.items():
            setattr(model, name, value)
        model.save(run / "model.safetensors")
        return contents(run)

    def test_an_older_version_and_more_clusters_than_it_has(self, run, later):
        before = self.change(run, n_clusters=9)
        assert "n_clusters=9 is more than the 3 clusters" in refusal("update", run, later, code=3)
        assert contents(run) == before
        before = self.change(run, n_clusters=3, _memory=None)
        assert "an older FedHK fitted it" in refusal("update", run, later, code=3)
        assert contents(run) == before

    def test_a_model_of_one_site(self, later, tmp_path):
        shutil.move(later / "oslo", tmp_path / "alone" / "oslo")
        run = fit(tmp_path / "alone", tmp_path / "one", "--algorithm", "heat-kernel-mvc")
        assert "partial_fit" in refusal("update", run, later, code=3)
