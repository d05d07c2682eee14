"""`fedhk fit`: real folders in, real files out, and every kind of trouble told by its exit code."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal

import fedhk
from cli.calls import SAME_FILES, assert_same_files, call, interrupt, refusal, usage
from fedhk.cli.config import read_config
from fedhk.data.folders import read_federation, write_site
from fedhk.data.named import named_views

VIEWS = ("ecg", "image")
SETUP = ("means", "lengths", "spreads", "directions", "cells")
SLOW = ("--clusters", 3, "--tol", 0, "--max-rounds", 6)
QUICK = ("--n-init", 2, "--max-rounds", 3)


@pytest.fixture
def interrupted(hospitals, tmp_path, monkeypatch):
    """A run that was interrupted after three rounds."""
    return interrupt(monkeypatch, tmp_path / "stopped", hospitals, *SLOW)


class TestFit:
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
        assert_same_files(run, tmp_path / "again")

    def test_drawn_seed_is_recorded_and_repeats(self, hospitals, tmp_path):
        call("fit", hospitals, "-k", 3, "--out", tmp_path / "a")
        call("fit", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
        assert read_config(tmp_path / "a" / "config.toml").seed is not None
        assert_same_files(tmp_path / "a", tmp_path / "b", ["model.safetensors"])

    def test_options_win_over_the_configuration(self, run, tmp_path):
        document = call("fit", "--config", run / "config.toml", "-k", 2, "-o", tmp_path / "two", "--json")
        assert json.loads(document.stdout)["n_clusters"] == 2

    def test_options_reach_the_estimator(self, hospitals, tmp_path):
        given = {
            "--scaling": "minmax",
            "--heat-coef": "absdev",
            "--heat-time": 0.2,
            "--fuzzifier": 1.2,
            "--view-weights": "0.25,0.75",
            "--max-rounds": 3,
            "--tol": 0.01,
            "--n-init": 2,
            "--personalization": 0.5,
        }
        parts = {"--protocol": "centers", "--local-passes": 2, "--fraction": 0.9, "--min-sites": 2}
        words = (part for pair in (given | parts).items() for part in pair)
        call("fit", hospitals, "-k", 3, "-o", tmp_path / "run", *words)
        parameters = read_config(tmp_path / "run" / "config.toml").parameters
        for option, value in given.items():
            wanted = [0.25, 0.75] if option == "--view-weights" else value
            assert parameters[option[2:].replace("-", "_")] == wanted
        assert parameters["protocol"] == {"name": "centers", "passes": 2}
        assert parameters["participation"] == {"fraction": 0.9, "min_sites": 2}
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
        assert "no rounds to resume" in refusal("fit", tmp_path / "one", *options, "--resume", "-o", "x", code=3)

    def test_table_names_sites_and_costs(self, hospitals, tmp_path):
        shown = call("fit", hospitals, "-k", 3, "-o", tmp_path / "run").stdout
        for part in ("bern", "oslo", "rome", "1 of 2", "view weights", "objective", "rounds", "up", "stop reason"):
            assert part in shown


class TestTables:
    """Options of one part of a run are a table, which later options change in part."""

    def test_an_option_changes_its_part_of_a_table_only(self, hospitals, tmp_path):
        words = ("--set", "participation={ fraction = 0.7, min_sites = 2 }", "--min-sites", 1)
        call("fit", hospitals, "-k", 3, *QUICK, *words, "-o", tmp_path / "run")
        assert read_config(tmp_path / "run" / "config.toml").parameters["participation"] == {
            "fraction": 0.7,
            "min_sites": 1,
        }

    def test_a_configuration_keeps_what_options_do_not_change(self, hospitals, tmp_path):
        first, second = tmp_path / "first", tmp_path / "second"
        protocol = 'protocol={ name = "centers", passes = 3, weights = "mass" }'
        call("fit", hospitals, "-k", 3, *QUICK, "--set", protocol, "-o", first)
        call("fit", "--config", first / "config.toml", "--local-passes", 1, "-o", second)
        found = read_config(second / "config.toml").parameters["protocol"]
        assert found == {"name": "centers", "passes": 1, "weights": "mass"}

    def test_passes_need_a_protocol_that_has_them(self, hospitals, tmp_path):
        words = ("fit", hospitals, "-k", 3, "--local-passes", 2, "-o", tmp_path / "run")
        assert "--protocol centers or factors" in usage(*words)
        assert "no option 'passes'" in refusal(*words, "--protocol", "statistics", code=3)
        assert not (tmp_path / "run").exists()


class TestTensorCenters:
    """`fedhk-tucker` and `fedhk-parafac2`: ranks of every kind, and messages in a common basis."""

    TUCKER = ("--algorithm", "fedhk-tucker", "--rank", "3,2,2", "--protocol", "cores")
    REFRESH = ("--algorithm", "fedhk-tucker", "--rank", "3,2,2", "--set")

    def test_run_repeats_predicts_and_says_its_rank(self, hospitals, tmp_path):
        run, again = tmp_path / "run", tmp_path / "again"
        call("fit", hospitals, "-k", 3, *self.REFRESH, 'protocol={ name = "cores", refresh_every = 2 }', "--out", run)
        parameters = read_config(run / "config.toml").parameters
        assert (parameters["rank"], parameters["protocol"]["refresh_every"]) == ([3, 2, 2], 2)
        call("fit", "--config", run / "config.toml", "--out", again)
        assert_same_files(run, again)
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
        assert "participation" not in parameters  # None: there is none in TOML
        call("fit", "--config", tmp_path / "run" / "config.toml", "--out", tmp_path / "again")
        assert_same_files(tmp_path / "run", tmp_path / "again", ["model.safetensors"])

    def test_interrupted_run_goes_on(self, hospitals, tmp_path, monkeypatch):
        stopped = interrupt(monkeypatch, tmp_path / "stopped", hospitals, *SLOW, *self.TUCKER)
        assert "rank=[3, 2, 2] there, 2 here" in refusal("fit", "--resume", "-o", stopped, "--rank", 2, code=3)
        call("fit", "--resume", "--out", stopped)
        call("fit", "--config", stopped / "config.toml", "--out", tmp_path / "undisturbed")
        assert_same_files(stopped, tmp_path / "undisturbed")

    @pytest.mark.parametrize(
        ("options", "part"),
        [
            (("--rank", 2), "'rank'"),
            (("--protocol", "factors"), "'factors'"),
            (("--set", "flavour=mint"), "'flavour'"),
            (("--algorithm", "fedhk-tucker", "--rank", "3,2,9"), "the 2 views"),
            (("--algorithm", "fedhk-tucker", "--rank", "1.5"), "1.5"),
            (("--algorithm", "fedhk-parafac2", "--rank", 4), "3 clusters in 2 views"),
        ],
    )
    def test_what_cannot_be_is_refused_by_name(self, hospitals, tmp_path, options, part):
        assert part in refusal("fit", hospitals, "-k", 3, *options, "--out", tmp_path / "run", code=3)


class TestDiffusion:
    """`fedhk-diffusion`: a run on embedded rows."""

    WORDS = ("--algorithm", "fedhk-diffusion", "--seed", 0, "--json")

    def test_a_run_has_what_the_estimator_finds_and_predicts_it_again(self, shifted_sites, tmp_path):
        out = tmp_path / "run"
        words = ("--clusters", 3, "--evaluate", "--set", "calibration=0.75", "--out", out)
        summary = json.loads(call("fit", shifted_sites, *self.WORDS, *words).stdout)
        sites = {site.name: named_views(site) for site in read_federation(shifted_sites).sites.values()}
        model = fedhk.FedHKDiffusion(3, calibration=0.75, random_state=0).fit(sites)
        assert summary["n_clusters"] == 3
        assert {record["model"] for record in summary["evaluation"]} == {"global", "personal", "alone"}
        assert summary["bytes_up"] == sum(record["bytes_up"] for record in model.history_)
        call("predict", out, shifted_sites, "--out", tmp_path / "labels")
        for site in sites:
            labels = pl.read_parquet(out / "labels" / f"{site}.parquet")["cluster"].to_numpy()
            assert_array_equal(labels, model.labels_[site])
            assert_array_equal(labels, pl.read_parquet(tmp_path / "labels" / f"{site}.parquet")["cluster"].to_numpy())
        stored = fedhk.load(out / "model.safetensors")
        assert_array_equal(np.hstack(stored.cluster_centers_), np.hstack(model.cluster_centers_))
        found = json.loads(call("info", out / "model.safetensors", "--json").stdout)
        names = ["view0", "view1"]
        assert found["estimator"] == "FedHKDiffusion"
        assert [view["name"] for view in found["views"]] == names
        assert "FedHKDiffusion" in call("info", out / "model.safetensors").stdout
        call("report", out, "--out", tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text("utf-8")
        assert "heat diffusion" in page
        assert all(name in page for name in names)

    @pytest.mark.parametrize("clusters", ["auto", "2-6"])
    def test_the_number_of_clusters_is_found(self, shifted_sites, tmp_path, clusters):
        words = ("--clusters", clusters, "--out", tmp_path / "run")
        summary = json.loads(call("fit", shifted_sites, *self.WORDS, *words).stdout)
        assert summary["n_clusters"] == 3
        assert [one["n_clusters"] for one in summary["selection"] if one["taken"]] == [3]
        assert read_config(tmp_path / "run" / "config.toml").parameters["n_clusters"] == clusters
        call("report", tmp_path / "run", "--out", tmp_path / "page.html")
        assert "How many clusters there are" in (tmp_path / "page.html").read_text("utf-8")

    @pytest.mark.parametrize("clusters", ["many", "0", "2-4-6"])
    def test_what_is_no_number_of_clusters_is_refused(self, shifted_sites, tmp_path, clusters):
        words = ("--clusters", clusters, "--out", tmp_path / "run")
        assert f"'{clusters}' is not NUMBER|LOW-HIGH|auto." in call("fit", shifted_sites, *words, code=2).stderr

    def test_masks_leave_the_server_sums_only(self, shifted_sites, tmp_path):
        words = ("--clusters", 3, "--secure", "--out", tmp_path / "run")
        summary = json.loads(call("fit", shifted_sites, *self.WORDS, *words).stdout)
        assert summary["n_clusters"] == 3
        assert read_config(tmp_path / "run" / "config.toml").parameters["secure"] is True


class TestEvaluate:
    """`fit --evaluate`: what personalization gained, beside the run."""

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
        shown = call("fit", hospitals, "-k", 3, *QUICK, *options, "--evaluate", "-o", tmp_path / "run").stdout
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
        assert_same_files(run, tmp_path / "other")

    def test_one_site(self, tmp_path):
        write_site(tmp_path / "one" / "bern", {"ecg": np.random.default_rng(0).normal(size=(30, 2))})
        options = ("-k", 2, "--algorithm", "heat-kernel-mvc", "--evaluate")
        document = json.loads(call("fit", tmp_path / "one", *options, "-o", tmp_path / "run", "--json").stdout)
        assert [m["model"] for m in document["evaluation"]] == ["alone"]
        assert pl.read_csv(tmp_path / "run" / "evaluation.csv")["rows"].to_list() == [6]

    def test_a_failed_evaluation_leaves_a_run_that_can_be_finished_without(self, hospitals, tmp_path, monkeypatch):
        def fail(*_):
            raise ValueError("labels of 'oslo' are odd")

        words = ("-k", 3, "--n-init", 2, "--tol", 0, "--max-rounds", 3, "-o", tmp_path / "run")
        with monkeypatch.context() as patch:
            patch.setattr("fedhk.evaluate", fail)
            assert "'oslo'" in refusal("fit", hospitals, *words, "--evaluate", code=3)
        assert not (tmp_path / "run" / "summary.json").exists()
        call("fit", "--resume", "-o", tmp_path / "run")
        assert not (tmp_path / "run" / "evaluation.csv").exists()


class TestPrivacy:
    BUDGET = ("--epsilon", 8, "--delta", 1e-4, "--bounds=-20,20")

    def test_the_budget_is_spent_written_down_and_shown(self, hospitals, tmp_path):
        out = tmp_path / "run"
        shown = call("fit", hospitals, "-k", 3, "--secure", *self.BUDGET, "--out", out).stdout
        summary = json.loads((out / "summary.json").read_text())
        epsilon, delta = summary["privacy_spent"]
        assert 7.9 < epsilon <= 8 * (1 + 1e-6)
        assert delta == 1e-4
        assert "privacy spent" in shown
        assert "privacy spent" in call("info", out).stdout
        written = [json.loads(line) for line in (tmp_path / "hospitals.ledger" / "oslo.jsonl").read_text().splitlines()]
        assert [release["phase"] for release in written] == [*SETUP, *["noisy round"] * 6]

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
        # that the noise drowns the centres of few rows is true, and may be said before
        result = call("fit", hospitals, "-k", 3, *options, "--out", tmp_path / "run", code=3)
        *notes, error = result.stderr.splitlines()
        assert said in error
        assert all(note.startswith("Note: ") for note in notes)
        assert not (tmp_path / "run").exists()

    def test_half_a_budget_is_wrong_usage(self, hospitals, tmp_path):
        result = call("fit", hospitals, "-k", 3, "--epsilon", 1, "--out", tmp_path / "run", code=2)
        assert "needs --delta too" in result.stderr

    def test_an_evaluation_would_spend_the_budget_again(self, hospitals, tmp_path):
        said = refusal("fit", hospitals, "-k", 3, *self.BUDGET, "--evaluate", "--out", tmp_path / "run", code=3)
        assert "budget again" in said

    def test_robust_sums_run(self, hospitals, tmp_path):
        call("fit", hospitals, "-k", 3, "--aggregator", "robust", "--out", tmp_path / "run")

    def test_without_cryptography_secure_sums_are_refused_before_anything_is_written(
        self, hospitals, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("fedhk.cli.algorithms.find_spec", lambda _: None)
        said = refusal("fit", hospitals, "-k", 3, "--secure", "-o", tmp_path / "run", code=3)
        assert said.endswith("pip install 'fedhk[privacy]'")
        assert not (tmp_path / "run").exists()


class TestResume:
    def test_gives_the_model_of_an_undisturbed_run(self, interrupted, tmp_path):
        assert not (interrupted / "model.safetensors").exists()
        assert "unfinished" in call("info", interrupted).stdout
        assert json.loads(call("info", interrupted, "--json").stdout)["rounds"] == 3
        call("fit", "--resume", "--out", interrupted)
        call("fit", "--config", interrupted / "config.toml", "--out", tmp_path / "undisturbed")
        assert_same_files(interrupted, tmp_path / "undisturbed", [*SAME_FILES, "labels/rome.parquet"])
        assert not (interrupted / "checkpoint").exists()

    def test_is_refused_with_other_settings(self, hospitals, interrupted):
        before = (interrupted / "checkpoint.toml").read_bytes()
        assert "n_init=20 there, 3 here" in refusal("fit", "--resume", "-o", interrupted, "--n-init", 3, code=3)
        assert "seed=" in refusal("fit", "--resume", "-o", interrupted, "--seed", 3, code=3)
        assert "fraction=1.0 there" in refusal("fit", "--resume", "-o", interrupted, "--fraction", 0.5, code=3)
        assert (interrupted / "checkpoint.toml").read_bytes() == before
        call("fit", hospitals, *SLOW, "--resume", "-o", interrupted)

    def test_goes_on_with_another_number_of_sites_that_must_answer(self, interrupted):
        call("fit", "--resume", "-o", interrupted, "--min-sites", 2)
        assert read_config(interrupted / "config.toml").parameters["participation"] == {"min_sites": 2}

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

    def test_a_mudata_file_without_its_package(self, hospitals, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "mudata", None)
        (hospitals / "oslo" / "all.h5mu").write_bytes(b"")
        for view in VIEWS:
            (hospitals / "oslo" / f"{view}.parquet").unlink()
        self.fit(hospitals, "'oslo'", "'all.h5mu'", "pip install 'fedhk[mudata]'")

    def test_too_few_sites(self, hospitals, tmp_path):
        assert "min_sites=4" in refusal("fit", hospitals, "-k", 2, "--min-sites", 4, "-o", tmp_path / "run", code=4)

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


def test_ids_and_files_to_pass_over_are_named(tmp_path):
    rng = np.random.default_rng(0)
    for site in ("oslo", "rome"):
        (tmp_path / "data" / site).mkdir(parents=True)
        for view in ("ecg", "lab"):
            rows = [f"{site}-{i},{rng.normal() + 9 * (i % 2):.3f},{rng.normal():.3f}" for i in range(20)]
            (tmp_path / "data" / site / f"{view}.csv").write_text("\n".join([f"mrn,{view}_a,{view}_b", *rows]))
        (tmp_path / "data" / site / "lab-old.csv").write_text("mrn,z\n1,2\n")
    given = (tmp_path / "data", "--id", "mrn", "--ignore", "*-old.csv")
    assert "'mrn' holds text with 20 different values" in refusal("info", tmp_path / "data", code=3)
    assert "its columns are" in refusal("info", tmp_path / "data", "--id", "pid", code=3)
    assert "40 rows" in call("info", *given).stdout
    call("dictionary", *given, "--out", tmp_path / "dictionary.toml")
    assert (tmp_path / "dictionary.toml").read_text().startswith('id = "mrn"\n')
    call("fit", *given, "--clusters", 2, "--seed", 0, "--out", tmp_path / "run")
    labels = pl.read_parquet(tmp_path / "run" / "labels" / "oslo.parquet")
    assert labels["id"][0] == "oslo-0"
    assert "passed over" not in (tmp_path / "run" / "report.html").read_text()
    call("fit", "--config", tmp_path / "run" / "config.toml", "--out", tmp_path / "again")
    assert_same_files(tmp_path / "run", tmp_path / "again", ("model.safetensors", "labels/oslo.parquet"))
    call("report", tmp_path / "run", "--site", "oslo")
    call("predict", tmp_path / "run", *given, "--out", tmp_path / "labels")
    (tmp_path / "data" / "dictionary.toml").write_text((tmp_path / "dictionary.toml").read_text())
    call("info", tmp_path / "data", "--ignore", "*-old.csv")
    assert "is for folders of data" in usage("info", tmp_path / "run", "--id", "mrn")
