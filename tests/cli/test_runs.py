"""Run folders are complete or not there, and nothing else is ever replaced."""

from __future__ import annotations

from safetensors.numpy import load_file

import fedhk
from cli.calls import call, refusal


def test_run_folder_is_complete_and_holds_nothing_else(run):
    found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    sites = ("bern", "oslo", "rome")
    assert found == {
        *("model.safetensors", "config.toml", "summary.json", "history.parquet", "history.json", "report.html"),
        *(f"labels/{site}.parquet" for site in sites),
        *(f"sites/{site}.safetensors" for site in sites),
    }
    assert [path.name for path in run.parent.iterdir() if path.name.startswith(".")] == []


def test_model_file_has_no_rows(run):
    numbers = sum(array.size for array in load_file(run / "model.safetensors").values())
    # three centres of seven features, what the model remembers of three clusters, and at three sites their means and
    # five sums; there are 120 rows of seven features
    assert 3 * 7 <= numbers < 3 * 7 + 3 * 7 + 3 * 3 * (7 + 5) + 30 < 120 * 7


def test_nothing_is_overwritten_without_force(run, hospitals):
    before = (run / "model.safetensors").read_bytes()
    assert "--force" in refusal("fit", hospitals, "-k", 2, "-o", run, code=5)
    assert (run / "model.safetensors").read_bytes() == before
    call("fit", hospitals, "-k", 2, "-o", run, "--force")
    assert fedhk.load(run / "model.safetensors").n_clusters_ == 2


def test_force_keeps_the_old_run_until_the_new_one_is_complete(run, hospitals):
    before = (run / "model.safetensors").read_bytes()
    refusal("fit", hospitals, "-k", 10_000, "-o", run, "--force", code=3)
    assert (run / "model.safetensors").read_bytes() == before
    assert not (run / "checkpoint.toml").exists()


def test_force_by_way_of_a_link_replaces_the_run_that_it_leads_to(run, hospitals):
    link = run.parent / "latest"
    link.symlink_to(run)
    call("fit", hospitals, "-k", 2, "-o", link, "--force")
    assert link.is_symlink()
    assert fedhk.load(run / "model.safetensors").n_clusters_ == 2
    assert not (run / "checkpoint.toml").exists()
    assert [path.name for path in run.parent.iterdir() if path.name.startswith(".")] == []


def test_what_is_no_run_is_never_replaced(hospitals, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.md").write_text("years of work")
    refusal("fit", hospitals, "-k", 2, "-o", tmp_path / "thesis", "--force", code=5)
    refusal("fit", hospitals, "-k", 2, "-o", hospitals / "run", "--force", code=5)
    refusal("fit", hospitals, "-k", 2, "-o", tmp_path, "--force", code=5)
    assert (tmp_path / "thesis" / "chapter.md").read_text() == "years of work"


def test_failed_run_leaves_nothing(hospitals, tmp_path):
    refusal("fit", hospitals, "-k", 10_000, "-o", tmp_path / "run", code=3)
    assert not (tmp_path / "run").exists()
