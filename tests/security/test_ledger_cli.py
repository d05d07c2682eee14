"""Ledgers outlive runs: no command deletes or moves one, and `fedhk ledger` adds them up."""

from __future__ import annotations

import json
import shutil

import pytest

from cli.calls import call, refusal, usage
from fedhk import EFKMVC
from fedhk.datasets import make_sites
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.accounting import epsilon_of, mu_of
from fedhk.privacy.ledger import Ledger, holds_ledgers, ledger_file, read_ledger
from security.conftest import BUDGET

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def charge(ledger, run, exchange, multiplier=2.0, neighbours="replace"):
    ledger.charge(
        run=run, exchange=exchange, phase="round", multiplier=multiplier, sensitivity=1.0, neighbours=neighbours
    )


@pytest.fixture
def ledgers(tmp_path):
    """Ledgers of two sites: one with two runs for different neighbours, one with one release."""
    folder = tmp_path / "hospitals.ledger"
    oslo = Ledger(ledger_file(folder, "oslo [1]*"), "oslo [1]*")
    charge(oslo, "first", 0)
    charge(oslo, "first", 1)
    charge(oslo, "second", 0, neighbours="add-remove")
    charge(Ledger(ledger_file(folder, "rome"), "rome"), "first", 0)
    return folder


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read(*arguments):
    return json.loads(call("ledger", *arguments, "--json").stdout)


def test_what_was_spent_is_added_up_over_runs_and_kinds_of_neighbours(ledgers, tmp_path):
    """Attack 17: nobody could see what all runs came to."""
    before = snapshot(tmp_path)
    sites = read(ledgers, "--delta", "1e-5")["sites"]
    assert snapshot(tmp_path) == before  # it reads
    oslo = sites["oslo [1]*"]
    assert (oslo["releases"], [run["run"] for run in oslo["runs"]]) == (3, ["first", "second"])
    assert oslo["epsilon"]["add-remove"] == pytest.approx(epsilon_of(1e-5, (3 / 4) ** 0.5))
    assert oslo["epsilon"]["replace"] == pytest.approx(epsilon_of(1e-5, (2 / 4 + 1) ** 0.5))  # doubled sensitivity
    assert sites["rome"]["epsilon"]["replace"] == pytest.approx(epsilon_of(1e-5, 0.5))
    assert "oslo [1]*" in call("ledger", ledgers).stdout


def test_ledgers_of_a_site_in_several_places_are_added_once_each(ledgers, tmp_path):
    charge(Ledger(tmp_path / "state" / "rome" / "ledger.jsonl", "rome"), "third", 0)
    file = ledger_file(ledgers, "rome")
    for paths in ((ledgers, tmp_path / "state"), (file, tmp_path / "state" / "rome", file, ledgers)):
        assert read(*paths)["sites"]["rome"]["releases"] == 2


def test_what_a_policy_leaves_is_what_one_more_run_may_spend(ledgers, tmp_path):
    policy = tmp_path / "rome.toml"
    policy.write_text("epsilon = 4.0\ndelta = 1e-5\n")
    rome = read(ledgers, "--policy", policy)["sites"]["rome"]
    rest = mu_of(4.0, 1e-5) ** 2 - 0.25
    assert rome["policy"]["left"] == pytest.approx(epsilon_of(1e-5, rest**0.5))
    policy.write_text("epsilon = 0.1\n")
    assert read(ledgers, "--policy", policy)["sites"]["rome"]["policy"]["left"] == 0
    assert "left" in call("ledger", ledgers, "--policy", policy).stdout


@pytest.mark.parametrize("how", ["cut", "changed", "deleted", "folder deleted", "restored", "another site"])
def test_a_ledger_that_is_not_what_it_was_is_an_error(how, ledgers):
    """Attack 17: last lines cut, a backup restored, the file deleted."""
    file = ledger_file(ledgers, "oslo [1]*")
    content = file.read_bytes()
    if how == "cut":
        file.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
    elif how == "changed":
        file.write_bytes(content.replace(b'"multiplier": 2.0', b'"multiplier": 9.0', 1))
    elif how == "deleted":
        file.unlink()
    elif how == "folder deleted":
        shutil.rmtree(ledgers)
    elif how == "another site":
        shutil.copy2(file, ledger_file(ledgers, "rome"))
    else:
        charge(Ledger(file, "oslo [1]*"), "third", 0)
        file.write_bytes(content)
    said = refusal("ledger", ledgers, code=3)
    assert "ledger" in said


def test_a_ledger_without_a_tip_is_read_with_a_note(ledgers, tmp_path):
    for tip in tmp_path.glob("*.tip"):
        tip.unlink()
    result = call("ledger", ledgers)
    assert "has no tip" in result.stderr


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_where_there_is_no_ledger(path, tmp_path):
    (tmp_path / "empty").mkdir()
    refusal("ledger", tmp_path / path, code=3)


# ------------------------------------------------------------------------------------------------- commands and ledgers


def test_all_runs_on_the_same_data_are_in_one_ledger_beside_it(hospitals, tmp_path):
    """Attack 17: `fit --force` on a private run made two releases, and one was recorded."""
    call("fit", hospitals, "-k", 2, *BUDGET, "-o", tmp_path / "run")
    folder = tmp_path / "hospitals.ledger"
    first, guarded = read_ledger(ledger_file(folder, "oslo"))
    assert guarded
    assert not holds_ledgers(tmp_path / "run")
    told = json.loads((tmp_path / "run" / "releases.json").read_text())
    assert len(told["oslo"]) == len(first) > 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "noisy round" in page or "round" in page
    call("fit", hospitals, "-k", 2, *BUDGET, "-o", tmp_path / "run", "--force")
    again, _ = read_ledger(ledger_file(folder, "oslo"))
    assert again[: len(first)] == first
    assert len({release.run for release in again}) == 2
    sites = read(folder)["sites"]
    assert sorted(sites) == ["bern", "oslo", "rome"]
    assert str(tmp_path) not in (tmp_path / "run" / "model.safetensors").read_bytes().decode("latin-1")


def test_a_folder_for_ledgers_can_be_chosen_but_not_where_runs_or_data_are(hospitals, tmp_path):
    fit = ("fit", hospitals, "-k", 2, *BUDGET, "-o", tmp_path / "run")
    for folder in (tmp_path / "run" / "ledger", tmp_path / "run", hospitals / "ledger", tmp_path):
        assert "keep them apart" in refusal(*fit, "--ledger", folder, code=5)
    assert not (tmp_path / "run").exists()
    call(*fit, "--ledger", tmp_path / "books")
    assert ledger_file(tmp_path / "books", "oslo").is_file()
    assert not (tmp_path / "hospitals.ledger").exists()
    assert "--epsilon" in usage("fit", hospitals, "-k", 2, "-o", tmp_path / "other", "--ledger", tmp_path / "books")


@pytest.mark.parametrize("command", ["fit", "demo", "flower local"])
def test_no_command_deletes_a_ledger(command, hospitals, tmp_path):
    """Attack 17: whatever is replaced, a ledger in it stays, and the command is refused."""
    run = tmp_path / "run"
    call("fit", hospitals, "-k", 2, "-o", run)
    (run / "comparison.json").write_text("{}")  # as a demo has it
    charge(Ledger(ledger_file(run / "data.ledger", "oslo"), "oslo"), "first", 0)
    before = snapshot(run)
    words = {"fit": (hospitals, "-k", 2), "demo": (), "flower local": (hospitals, "-k", 2)}[command]
    said = refusal(*command.split(), *words, "-o", run, "--force", code=5)
    assert "no command deletes" in said
    assert snapshot(run) == before


def test_the_ledger_of_a_run_with_a_checkpoint_lies_beside_it(tmp_path):
    """Attack 17, from Python: what is removed to start anew is the checkpoint."""
    sites = make_sites(3, 40, n_clusters=2, n_features=(3,), random_state=0).sites
    budget = DifferentialPrivacy(40.0, 1e-4, (-15, 15), rounds=2)
    model = EFKMVC(2, n_init=1, random_state=0, privacy=budget, checkpoint=tmp_path / "run")
    for runs in (1, 2):
        model.fit(sites)
        shutil.rmtree(tmp_path / "run")
        made, _ = read_ledger(ledger_file(tmp_path / "run.ledger", "site-00"))
        assert len({release.run for release in made}) == runs
        assert [release["exchange"] for release in model.releases_["site-00"]] == [
            release.exchange for release in made if release.run == made[-1].run
        ]
