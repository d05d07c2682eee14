"""The command line: real folders in, real files out, and every kind of trouble told by its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from typer.main import get_command
from typer.testing import CliRunner

import fedhk
from fedhk.cli import app
from fedhk.cli.algorithms import ALGORITHMS
from fedhk.cli.config import Config, read_config
from fedhk.cli.options import CHOICES
from fedhk.data.folders import write_site
from fedhk.datasets import make_sites
from fedhk.estimators import efkmvc

VIEWS = ("ecg", "image")


def call(*arguments, code=0):
    """Run the program in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr, result.exception)
    return result


def refusal(*arguments, code):
    """The one line that the program says when it refuses."""
    result = call(*arguments, code=code)
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    return lines[0]


@pytest.fixture
def hospitals(tmp_path):
    """Three sites with ids; one of them lacks a view."""
    data = make_sites(3, 40, n_clusters=3, n_features=(4, 3), separation=9, random_state=0)
    folder = tmp_path / "hospitals"
    for number, (name, views) in enumerate(zip(("bern", "oslo", "rome"), data.sites.values(), strict=True)):
        tables = {"ecg": views[0], "image": None if number == 2 else views[1]}
        write_site(folder / name, tables, ids=[f"{name}-{i}" for i in range(len(views[0]))])
    return folder


@pytest.fixture
def run(hospitals, tmp_path):
    """A finished run."""
    call("fit", hospitals, "--clusters", 3, "--seed", 1, "--out", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def interrupted(hospitals, tmp_path, monkeypatch):
    """A run that was interrupted after its fifth exchange, that is after three rounds."""
    return interrupt(monkeypatch, tmp_path / "stopped", hospitals, *SLOW)


def interrupt(monkeypatch, folder, *arguments):
    """Begin a run in a folder and interrupt it after its fifth exchange."""
    real, count = efkmvc.save_run, []

    def save_and_stop(*arguments):
        real(*arguments)
        count.append(1)
        if len(count) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(efkmvc, "save_run", save_and_stop)
        result = call("fit", *arguments, "--out", folder, code=130)
    assert "--resume" in result.stderr
    return folder


SLOW = ("--clusters", 3, "--tol", 0, "--max-rounds", 6)


class TestFit:
    def test_run_folder_is_complete_and_holds_nothing_else(self, run):
        found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
        sites = ("bern", "oslo", "rome")
        assert found == {
            *("model.safetensors", "config.toml", "summary.json", "history.parquet", "history.json", "report.html"),
            *(f"labels/{site}.parquet" for site in sites),
            *(f"sites/{site}.safetensors" for site in sites),
        }
        assert [path.name for path in run.parent.iterdir() if path.name.startswith(".")] == []

    def test_labels_carry_ids_clusters_and_certainty(self, run, hospitals):
        model = fedhk.load(run / "model.safetensors")
        labels = pl.read_parquet(run / "labels" / "oslo.parquet")
        assert labels.columns == ["id", "cluster", "certainty", "global_cluster"]
        views = {view: pl.read_parquet(hospitals / "oslo" / f"{view}.parquet").drop("id") for view in VIEWS}
        assert labels["id"].to_list() == pl.read_parquet(hospitals / "oslo" / "ecg.parquet")["id"].to_list()
        np.testing.assert_array_equal(labels["cluster"], model.predict(views))
        np.testing.assert_allclose(labels["certainty"], model.predict_proba(views).max(axis=1))

    def test_equals_the_library(self, run, hospitals):
        sites = {
            name: {
                view: pl.read_parquet(path).drop("id")
                if (path := hospitals / name / f"{view}.parquet").exists()
                else None
                for view in VIEWS
            }
            for name in ("bern", "oslo", "rome")
        }
        model = fedhk.EFKMVC(3, random_state=1).fit(sites)
        stored = fedhk.load(run / "model.safetensors")
        for mine, theirs in zip(stored.cluster_centers_, model.cluster_centers_, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-10)  # tables lie in memory in another order
        history = json.loads((run / "history.json").read_text())
        assert [r["objective"] for r in history] == pytest.approx([r["objective"] for r in model.history_])
        frame = pl.read_parquet(run / "history.parquet")
        assert frame["bytes_up"].to_list() == [r["bytes_up"] for r in model.history_]

    def test_config_gives_the_same_bytes(self, run, tmp_path):
        call("fit", "--config", run / "config.toml", "--out", tmp_path / "again")
        for file in ("model.safetensors", "sites/rome.safetensors", "labels/bern.parquet", "config.toml"):
            assert (run / file).read_bytes() == (tmp_path / "again" / file).read_bytes()

    def test_drawn_seed_is_recorded_and_repeats(self, hospitals, tmp_path):
        call("fit", hospitals, "-k", 3, "--out", tmp_path / "a")
        call("fit", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
        assert read_config(tmp_path / "a" / "config.toml").seed is not None
        same = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
        assert same[0] == same[1]

    def test_options_win_over_the_configuration(self, run, tmp_path):
        document = call("fit", "--config", run / "config.toml", "-k", 2, "-o", tmp_path / "two", "--json")
        assert json.loads(document.stdout)["n_clusters"] == 2

    def test_options_reach_the_estimator(self, hospitals, tmp_path):
        given = {
            "--protocol": "centers",
            "--local-passes": 2,
            "--scaling": "minmax",
            "--heat-coef": "absdev",
            "--heat-time": 0.2,
            "--fuzzifier": 1.2,
            "--view-weights": "0.25,0.75",
            "--max-rounds": 3,
            "--tol": 0.01,
            "--n-init": 2,
            "--fraction": 0.9,
            "--min-sites": 2,
            "--personalization-step": 0.5,
        }
        call("fit", hospitals, "-k", 3, "-o", tmp_path / "run", *(part for pair in given.items() for part in pair))
        parameters = read_config(tmp_path / "run" / "config.toml").parameters
        for option, value in given.items():
            wanted = [0.25, 0.75] if option == "--view-weights" else value
            assert parameters[option[2:].replace("-", "_")] == wanted
        assert fedhk.load(tmp_path / "run" / "model.safetensors").view_weights_ == pytest.approx([0.25, 0.75])

    def test_one_site_algorithm(self, hospitals, tmp_path):
        assert "3 sites" in refusal(
            "fit", hospitals, "-k", 3, "--algorithm", "heat-kernel-mvc", "-o", tmp_path / "run", code=3
        )
        write_site(tmp_path / "one" / "bern", {"ecg": np.random.default_rng(0).normal(size=(30, 2))})
        options = ("-k", 2, "--algorithm", "heat-kernel-mvc", "--max-rounds", 7)
        call("fit", tmp_path / "one", *options, "-o", tmp_path / "run")
        assert pl.read_parquet(tmp_path / "run" / "labels" / "bern.parquet")["row"].to_list() == list(range(30))
        assert read_config(tmp_path / "run" / "config.toml").parameters["max_iter"] == 7
        assert "'protocol'" in refusal(
            "fit", tmp_path / "one", *options, "--protocol", "centers", "-o", tmp_path / "other", code=3
        )

    def test_table_names_sites_and_costs(self, hospitals, tmp_path):
        shown = call("fit", hospitals, "-k", 3, "-o", tmp_path / "run").stdout
        for part in ("bern", "oslo", "rome", "1 of 2", "view weights", "objective", "rounds", "up", "stop reason"):
            assert part in shown


class TestTensorCenters:
    """`fedhk-tucker` and `fedhk-parafac2`: ranks of every kind, and messages in a common basis."""

    TUCKER = ("--algorithm", "fedhk-tucker", "--rank", "3,2,2", "--protocol", "cores")

    def test_run_repeats_predicts_and_says_its_rank(self, hospitals, tmp_path):
        run, again = tmp_path / "run", tmp_path / "again"
        call("fit", hospitals, "-k", 3, *self.TUCKER, "--set", "refresh_every=2", "--out", run)
        parameters = read_config(run / "config.toml").parameters
        assert (parameters["rank"], parameters["refresh_every"]) == ([3, 2, 2], 2)
        call("fit", "--config", run / "config.toml", "--out", again)
        for file in ("model.safetensors", "sites/rome.safetensors", "labels/bern.parquet", "config.toml"):
            assert (run / file).read_bytes() == (again / file).read_bytes()
        for path in (run, run / "model.safetensors"):
            found = json.loads(call("info", path, "--json").stdout)
            assert found["rank"] == [3, 2, 2]
            assert 0 <= found["reconstruction_error"] < 1
            assert "3 x 2 x 2" in call("info", path).stdout
        call("predict", run, hospitals, "--out", tmp_path / "labels")
        was, now = (pl.read_parquet(folder / "rome.parquet") for folder in (run / "labels", tmp_path / "labels"))
        assert was.equals(now)

    @pytest.mark.parametrize(("text", "rank"), [("auto", "auto"), ("0.9", 0.9), ("2", 2)])
    def test_rank_of_any_kind_stays_in_the_configuration(self, hospitals, tmp_path, text, rank):
        arguments = ("-k", 3, "--algorithm", "fedhk-parafac2", "--set", f"rank={text}", "--max-rounds", 2)
        call("fit", hospitals, *arguments, "--out", tmp_path / "run")
        parameters = read_config(tmp_path / "run" / "config.toml").parameters
        assert parameters["rank"] == rank
        assert "refresh_every" not in parameters  # None: there is none in TOML
        call("fit", "--config", tmp_path / "run" / "config.toml", "--out", tmp_path / "again")
        same = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again")]
        assert same[0] == same[1]

    def test_interrupted_run_goes_on(self, hospitals, tmp_path, monkeypatch):
        stopped = interrupt(monkeypatch, tmp_path / "stopped", hospitals, *SLOW, *self.TUCKER)
        assert "rank=[3, 2, 2] there, 2 here" in refusal("fit", "--resume", "-o", stopped, "--rank", 2, code=3)
        call("fit", "--resume", "--out", stopped)
        call("fit", "--config", stopped / "config.toml", "--out", tmp_path / "undisturbed")
        for file in ("model.safetensors", "labels/rome.parquet", "config.toml"):
            assert (stopped / file).read_bytes() == (tmp_path / "undisturbed" / file).read_bytes()

    @pytest.mark.parametrize(
        ("options", "part"),
        [
            (("--rank", 2), "'rank'"),
            (("--protocol", "cores"), "'cores'"),
            (("--set", "flavour=mint"), "'flavour'"),
            (("--algorithm", "fedhk-tucker", "--rank", "3,2,9"), "the 2 views"),
            (("--algorithm", "fedhk-tucker", "--rank", "1.5"), "1.5"),
            (("--algorithm", "fedhk-parafac2", "--rank", 4), "'image' with 3 features"),
        ],
    )
    def test_what_cannot_be_is_refused_by_name(self, hospitals, tmp_path, options, part):
        assert part in refusal("fit", hospitals, "-k", 3, *options, "--out", tmp_path / "run", code=3)

    @pytest.mark.parametrize(
        "options", [("--rank", "high"), ("--set", "rank"), ("--set", "rank=2", "--rank", 2), ("--set", "=2")]
    )
    def test_usage(self, hospitals, tmp_path, options):
        call("fit", hospitals, "-k", 3, "--algorithm", "fedhk-tucker", *options, "-o", tmp_path / "run", code=2)


class TestEvaluate:
    """`fit --evaluate`: what personalization gained, beside the run."""

    QUICK = ("--n-init", 2, "--max-rounds", 3)

    @pytest.mark.parametrize(
        "options",
        [
            ("--algorithm", "e-fkmvc"),
            ("--algorithm", "fedhk-person"),
            ("--algorithm", "fedhk-tucker", "--rank", "2,2,1"),
            ("--algorithm", "fedhk-parafac2", "--rank", 2),
        ],
    )
    def test_compares_the_models_of_every_site(self, hospitals, tmp_path, options):
        shown = call("fit", hospitals, "-k", 3, *self.QUICK, *options, "--evaluate", "-o", tmp_path / "run").stdout
        assert "held-out rows" in shown
        table = pl.read_csv(tmp_path / "run" / "evaluation.csv")
        assert table.columns == ["site", "model", "rows", "objective", "silhouette"]
        assert set(table.select("site", "model").iter_rows()) == {
            (site, kind) for site in ("bern", "oslo", "rome") for kind in ("global", "personal", "alone")
        }
        means = {m["model"]: m for m in json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"]}
        for kind, found in means.items():
            values = table.filter(pl.col("model") == kind)["objective"]
            assert found["objective"] == pytest.approx(values.mean())
            assert f"{found['objective']:.4f}" in shown

    def test_changes_nothing_else_and_is_not_there_unasked(self, run, hospitals, tmp_path):
        assert not (run / "evaluation.csv").exists()
        call("fit", hospitals, "--clusters", 3, "--seed", 1, "--evaluate", "--out", tmp_path / "other")
        for file in ("model.safetensors", "sites/rome.safetensors", "labels/bern.parquet", "config.toml"):
            assert (run / file).read_bytes() == (tmp_path / "other" / file).read_bytes()

    def test_one_site(self, tmp_path):
        write_site(tmp_path / "one" / "bern", {"ecg": np.random.default_rng(0).normal(size=(30, 2))})
        options = ("-k", 2, "--algorithm", "heat-kernel-mvc", "--evaluate")
        document = json.loads(call("fit", tmp_path / "one", *options, "-o", tmp_path / "run", "--json").stdout)
        assert [m["model"] for m in document["evaluation"]] == ["alone"]
        assert pl.read_csv(tmp_path / "run" / "evaluation.csv")["rows"].to_list() == [6]

    def test_a_failed_evaluation_leaves_a_run_that_can_be_finished_without(self, hospitals, tmp_path, monkeypatch):
        def fail(*_):
            raise ValueError("labels of 'oslo' are odd")

        with monkeypatch.context() as patch:
            patch.setattr("fedhk.cli.fit.evaluate_algorithm", fail)
            arguments = ("fit", hospitals, "-k", 3, *self.QUICK, "--evaluate", "-o", tmp_path / "run")
            assert "'oslo'" in refusal(*arguments, code=3)
        assert not (tmp_path / "run" / "summary.json").exists()
        call("fit", "--resume", "-o", tmp_path / "run")
        assert not (tmp_path / "run" / "evaluation.csv").exists()


class TestPrivacy:
    BUDGET = ("--epsilon", 8, "--delta", 1e-4, "--bounds=-20,20")

    @pytest.fixture(autouse=True)
    def noisy(self):
        """Few rows: that the noise drowns the centres is true, and not the matter here."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield

    def test_the_budget_is_spent_written_down_and_shown(self, hospitals, tmp_path):
        out = tmp_path / "run"
        shown = call("fit", hospitals, "-k", 3, "--secure", *self.BUDGET, "--out", out).stdout
        summary = json.loads((out / "summary.json").read_text())
        epsilon, delta = summary["privacy_spent"]
        assert 7.9 < epsilon <= 8 * (1 + 1e-6)
        assert delta == 1e-4
        assert "privacy spent" in shown
        assert "privacy spent" in call("info", out).stdout
        written = [json.loads(line) for line in (out / "ledger" / "oslo.jsonl").read_text().splitlines()]
        assert [release["phase"] for release in written] == ["directions", "cells", *["round"] * 10]

    def test_a_configuration_asks_for_the_same_budget_again(self, hospitals, tmp_path):
        call("fit", hospitals, "-k", 3, *self.BUDGET, "--out", tmp_path / "run")
        call("fit", "--config", tmp_path / "run" / "config.toml", "--out", tmp_path / "again")
        before, after = (read_config(tmp_path / name / "config.toml").parameters for name in ("run", "again"))
        assert before == after
        assert before["privacy"] == {"epsilon": 8.0, "delta": 1e-4, "bounds": [-20.0, 20.0]}

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--epsilon", -1, "--delta", 1e-4, "--bounds", "0,1"), "epsilon=-1.0"),
            (("--epsilon", 1, "--delta", 0.5, "--bounds", "0,1"), "delta=0.5"),
            (("--epsilon", 1, "--delta", 1e-4, "--bounds", "1,0"), "low < high"),
            ((*BUDGET, "--protocol", "centers"), "protocol='statistics'"),
            (("--secure", "--aggregator", "robust"), "aggregator='robust'"),
        ],
    )
    def test_what_cannot_be_is_refused_with_a_reason(self, hospitals, tmp_path, options, said):
        assert said in refusal("fit", hospitals, "-k", 3, *options, "--out", tmp_path / "run", code=3)
        assert not (tmp_path / "run").exists()

    def test_half_a_budget_is_wrong_usage(self, hospitals, tmp_path):
        result = call("fit", hospitals, "-k", 3, "--epsilon", 1, "--out", tmp_path / "run", code=2)
        assert "--delta and --bounds" in result.stderr

    def test_an_evaluation_would_spend_the_budget_again(self, hospitals, tmp_path):
        said = refusal("fit", hospitals, "-k", 3, *self.BUDGET, "--evaluate", "--out", tmp_path / "run", code=3)
        assert "budget again" in said

    def test_robust_sums_run(self, hospitals, tmp_path):
        call("fit", hospitals, "-k", 3, "--aggregator", "robust", "--out", tmp_path / "run")


class TestOutputs:
    def test_nothing_is_overwritten_without_force(self, run, hospitals):
        before = (run / "model.safetensors").read_bytes()
        assert "--force" in refusal("fit", hospitals, "-k", 2, "-o", run, code=5)
        assert (run / "model.safetensors").read_bytes() == before
        call("fit", hospitals, "-k", 2, "-o", run, "--force")
        assert fedhk.load(run / "model.safetensors").n_clusters_ == 2

    def test_force_keeps_the_old_run_until_the_new_one_is_complete(self, run, hospitals):
        before = (run / "model.safetensors").read_bytes()
        refusal("fit", hospitals, "-k", 10_000, "-o", run, "--force", code=3)
        assert (run / "model.safetensors").read_bytes() == before
        assert not (run / "checkpoint.toml").exists()

    def test_what_is_no_run_is_never_replaced(self, hospitals, tmp_path):
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "chapter.md").write_text("years of work")
        refusal("fit", hospitals, "-k", 2, "-o", tmp_path / "thesis", "--force", code=5)
        refusal("fit", hospitals, "-k", 2, "-o", hospitals / "run", "--force", code=5)
        refusal("fit", hospitals, "-k", 2, "-o", tmp_path, "--force", code=5)
        assert (tmp_path / "thesis" / "chapter.md").read_text() == "years of work"

    def test_failed_run_leaves_nothing(self, hospitals, tmp_path):
        refusal("fit", hospitals, "-k", 10_000, "-o", tmp_path / "run", code=3)
        assert not (tmp_path / "run").exists()


class TestResume:
    def test_gives_the_model_of_an_undisturbed_run(self, interrupted, tmp_path):
        assert not (interrupted / "model.safetensors").exists()
        assert "unfinished" in call("info", interrupted).stdout
        assert json.loads(call("info", interrupted, "--json").stdout)["rounds"] == 3
        call("fit", "--resume", "--out", interrupted)
        call("fit", "--config", interrupted / "config.toml", "--out", tmp_path / "undisturbed")
        for file in ("model.safetensors", "labels/rome.parquet", "config.toml"):
            assert (interrupted / file).read_bytes() == (tmp_path / "undisturbed" / file).read_bytes()
        assert not (interrupted / "checkpoint").exists()

    def test_is_refused_with_other_settings(self, hospitals, interrupted):
        before = (interrupted / "checkpoint.toml").read_bytes()
        assert "n_init=20 there, 3 here" in refusal("fit", "--resume", "-o", interrupted, "--n-init", 3, code=3)
        assert "seed=" in refusal("fit", "--resume", "-o", interrupted, "--seed", 3, code=3)
        assert (interrupted / "checkpoint.toml").read_bytes() == before
        call("fit", hospitals, *SLOW, "--resume", "-o", interrupted)

    def test_interrupted_run_is_not_overwritten_by_mistake(self, hospitals, interrupted):
        assert "--resume" in refusal("fit", hospitals, "-k", 2, "-o", interrupted, code=5)
        call("fit", hospitals, "-k", 2, "-o", interrupted, "--force")
        assert "nothing to resume" in refusal("fit", hospitals, "-k", 2, "-o", interrupted, "--resume", code=5)

    def test_truncated_checkpoint(self, interrupted):
        file = next(path for path in (interrupted / "checkpoint").rglob("*") if path.is_file())
        file.write_bytes(file.read_bytes()[:-100])
        assert str(file) in refusal("fit", "--resume", "-o", interrupted, code=3)
        refusal("info", interrupted, code=3)

    def test_starts_where_there_is_nothing_to_resume(self, hospitals, tmp_path):
        call("fit", hospitals, "-k", 3, "-o", tmp_path / "run", "--resume")


class TestBadInput:
    def fit(self, folder, *parts, code=3):
        said = refusal("fit", folder, "-k", 2, "-o", folder.parent / "bad-run", code=code)
        for part in parts:
            assert part in said
        assert not (folder.parent / "bad-run").exists()

    def test_missing_folder_and_no_site(self, tmp_path):
        self.fit(tmp_path / "nowhere", "nowhere", "does not exist")
        (tmp_path / "empty").mkdir()
        self.fit(tmp_path / "empty", "no site")

    def test_truncated_parquet(self, hospitals):
        file = hospitals / "oslo" / "ecg.parquet"
        file.write_bytes(file.read_bytes()[:-20])
        self.fit(hospitals, "'oslo'", "'ecg.parquet'", "half-written")

    def test_other_columns_at_one_site(self, hospitals):
        file = hospitals / "rome" / "ecg.parquet"
        pl.read_parquet(file).rename({"ecg_1": "pulse"}).write_parquet(file)
        self.fit(hospitals, "'ecg'", "'rome'", "'pulse'", "'ecg_1'")

    def test_duplicate_ids(self, hospitals):
        file = hospitals / "rome" / "ecg.parquet"
        frame = pl.read_parquet(file)
        pl.concat([frame, frame[:1]]).write_parquet(file)
        self.fit(hospitals, "'rome'", "'ecg.parquet'", "duplicate", "'rome-0'")

    def test_text_columns(self, hospitals):
        file = hospitals / "bern" / "image.parquet"
        pl.read_parquet(file).with_columns(image_0=pl.lit("blurred")).write_parquet(file)
        self.fit(hospitals, "'bern'", "'image.parquet'", "'image_0'", "'blurred'")

    def test_too_few_sites(self, hospitals, tmp_path):
        assert "min_sites=4" in refusal("fit", hospitals, "-k", 2, "--min-sites", 4, "-o", tmp_path / "run", code=4)

    @pytest.mark.parametrize(
        "text", ["x = [", "flavour = 'mint'", "seed = 'one'", "algorithm = 'k-means'", "[parameters]\nn_cluster = 3"]
    )
    def test_bad_configuration(self, hospitals, tmp_path, text):
        (tmp_path / "config.toml").write_text(text)
        refusal("fit", hospitals, "-k", 2, "--config", tmp_path / "config.toml", "-o", tmp_path / "run", code=3)

    @pytest.mark.parametrize(
        "options",
        [
            (),
            ("-k", 2),
            ("-o", "run"),
            ("-k", 0, "-o", "run"),
            ("-k", 2, "-o", "run", "--protocol", "gossip"),
            ("-k", 2, "-o", "run", "--view-weights", "1,b"),
        ],
    )
    def test_usage(self, hospitals, options):
        call("fit", hospitals, *options, code=2)

    def test_unexpected_errors_are_one_line_unless_debugging(self, hospitals, tmp_path, monkeypatch):
        def crash(*arguments):
            raise RuntimeError("out of luck")

        monkeypatch.setattr(efkmvc, "check_clients", crash)
        arguments = ("fit", hospitals, "-k", 2, "-o", tmp_path / "run")
        assert "RuntimeError: out of luck" in refusal(*arguments, code=1)
        monkeypatch.setenv("FEDHK_DEBUG", "1")
        assert "Traceback" in call(*arguments, code=1).stderr


class TestPredict:
    def test_own_model_where_there_is_one(self, hospitals, run, tmp_path):
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

    def test_single_site_and_model_file(self, hospitals, run, tmp_path):
        shown = call("predict", run / "model.safetensors", hospitals / "oslo", "--out", tmp_path / "labels").stdout
        assert "global" in shown
        assert [path.name for path in (tmp_path / "labels").iterdir()] == ["oslo.parquet"]

    def test_views_and_columns_are_checked(self, hospitals, run, tmp_path):
        (hospitals / "oslo" / "ecg.parquet").rename(hospitals / "oslo" / "eeg.parquet")
        assert "'eeg'" in refusal("predict", run, hospitals, "-o", tmp_path / "labels", code=3)
        write_site(tmp_path / "new" / "oslo", {"ecg": np.zeros((3, 9))})
        assert "'oslo'" in refusal("predict", run, tmp_path / "new", "-o", tmp_path / "labels", code=3)
        assert not (tmp_path / "labels").exists()

    def test_width_is_checked_where_columns_have_no_names(self, tmp_path):
        values = np.random.default_rng(0).normal(size=(20, 3))
        write_site(tmp_path / "plain" / "oslo", {"ecg": values}, format="npy")
        call("fit", tmp_path / "plain", "-k", 2, "-o", tmp_path / "run")
        write_site(tmp_path / "wider" / "oslo", {"ecg": np.zeros((3, 9))}, format="npy")
        said = refusal("predict", tmp_path / "run", tmp_path / "wider", "-o", tmp_path / "labels", code=3)
        assert "'oslo'" in said
        assert "9" in said

    def test_outputs_and_models(self, hospitals, run, tmp_path):
        call("predict", run, hospitals, "-o", tmp_path / "labels")
        refusal("predict", run, hospitals, "-o", tmp_path / "labels", code=5)
        call("predict", run, hospitals, "-o", tmp_path / "labels", "--force")
        refusal("predict", run, hospitals, "-o", run, "--force", code=5)
        refusal("predict", tmp_path / "nothing", hospitals, "-o", tmp_path / "new", code=3)
        refusal("predict", hospitals, hospitals, "-o", tmp_path / "new", code=3)
        (tmp_path / "half.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:100])
        refusal("predict", tmp_path / "half.safetensors", hospitals, "-o", tmp_path / "new", code=3)


class TestInfo:
    def test_run_and_model(self, run):
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

    def test_data(self, hospitals):
        found = json.loads(call("info", hospitals, "--json").stdout)
        assert found["sites"]["rome"]["views"] == ["ecg"]
        assert found["rows"] == 120
        assert "missing cells" in call("info", hospitals).stdout
        assert json.loads(call("info", hospitals / "oslo", "--json").stdout)["sites"].keys() == {"oslo"}

    def test_bad_paths(self, tmp_path, run):
        refusal("info", tmp_path / "nothing", code=3)
        (tmp_path / "empty").mkdir()
        assert "no site" in refusal("info", tmp_path / "empty", code=3)
        (run / "summary.json").write_text("{}")
        refusal("info", run, code=3)


class TestProgram:
    def test_help_has_examples_and_is_quick_to_load(self):
        for command in ("fit", "predict", "info", "demo"):
            shown = call(command, "--help").stdout
            assert f"fedhk {command}" in shown
            assert "Exit codes" in shown
        heavy = "import fedhk.cli, sys; print([m for m in ('numpy', 'sklearn', 'polars') if m in sys.modules])"
        assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True).stdout == "[]\n"  # noqa: S603, PLW1510

    def test_installed_program(self, hospitals, tmp_path):
        program = Path(sys.executable).with_name("fedhk")
        if not program.exists():
            pytest.skip("the package is not installed here")
        arguments = [program, "fit", hospitals, "-k", "3", "-o", tmp_path / "run", "--json"]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)  # noqa: S603
        assert json.loads(done.stdout)["algorithm"] == "e-fkmvc"
        again = subprocess.run(arguments, capture_output=True, text=True, check=False)  # noqa: S603
        assert (again.returncode, again.stdout) == (5, "")
        assert again.stderr.count("\n") == 1

    def test_version(self):
        assert call("--version").stdout.strip() == f"fedhk {fedhk.__version__}"

    def test_defaults_in_help_are_those_of_the_estimator(self):
        defaults = Config(parameters={}).complete().parameters
        shown = {p.name: p.show_default for p in get_command(app).commands["fit"].params if p.name in defaults}
        assert len(shown) == 15
        assert shown == {name: str(defaults[name]) for name in shown}

    def test_choices_are_those_of_the_estimator(self):
        tables = [fedhk.EFKMVC._parameter_constraints, fedhk.FedHKTucker._parameter_constraints]
        for name in ("protocol", "scaling", "heat_coef", "aggregator"):
            assert set(CHOICES[name]) == set().union(*(table[name][0].options for table in tables))
        assert all(hasattr(fedhk, algorithm.estimator) for algorithm in ALGORITHMS.values())

    def test_model_file_has_no_rows(self, run):
        widths = {array.shape[0] for array in load_file(run / "model.safetensors").values() if array.ndim == 2}
        assert widths == {3}
