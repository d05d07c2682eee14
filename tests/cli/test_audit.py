"""`fedhk audit`: verdicts that can be read, numbers that can be parsed, and every wrong use told apart."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from cli import calls
from fedhk.data.folders import write_site
from fedhk.federation.sealed import noise


def call(*arguments, code=0):
    """Run `fedhk audit` in this process."""
    return calls.call("audit", *arguments, code=code)


def refusal(*arguments):
    """The one line that the program says when it refuses."""
    return calls.refusal("audit", *arguments, code=3)


def usage(*arguments):
    """What the program says of options that it cannot take."""
    return calls.usage("audit", *arguments)


def test_verdict():
    shown = call("privacy", "--releases", 200).stdout
    for part in ("200 times", "epsilon = 1.000, delta = 1e-05", "shown at 95%", "consistent"):
        assert part in shown


def test_json_of_a_whole_run():
    options = ("--phase", "run", "--private-bounds", "--neighbours", "add-remove", "--releases", 100, "--json")
    found = json.loads(call("privacy", *options).stdout)
    assert found["phases"] == ["ranges", "means", "lengths", "spreads", "directions", "cells", "round"]
    assert found["stated"] == pytest.approx(1.0, rel=1e-6)
    assert (found["neighbours"], found["releases"], found["holds"]) == ("add-remove", 100, True)
    assert 0.9 < found["distance"] <= 1


def test_ranges_are_those_of_private_bounds():
    found = json.loads(call("privacy", "--phase", "ranges", "--releases", 100, "--json").stdout)
    assert found["phases"] == ["ranges"]


def test_broken_privacy_is_an_exit_code(monkeypatch):
    real = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sigma, size: real(sigma / 30, size))
    assert "BROKEN" in call("privacy", "--releases", 400, code=1).stdout
    assert json.loads(call("privacy", "--releases", 400, "--json", code=1).stdout)["holds"] is False


def test_bad_input():
    assert "epsilon=0.0" in refusal("privacy", "--epsilon", 0)
    assert "delta=1.0" in refusal("privacy", "--delta", 1)
    assert "'sometimes' is not one of replace, add-remove" in usage("privacy", "--neighbours", "sometimes")
    assert "'all' is not one of round" in usage("privacy", "--phase", "all")
    usage("privacy", "--releases", 10)
    usage("privacy", "--confidence", 1)


def test_help_has_examples():
    for command in ("privacy", "attack"):
        shown = call(command, "--help").stdout
        assert f"fedhk audit {command}" in shown
        assert "Exit codes" in shown


# ------------------------------------------------------------------------------------- which rows a model was fitted on


@pytest.fixture
def hospitals(tmp_path):
    """Two sites of two clusters; one of them lacks a view."""
    generator = np.random.default_rng(0)
    for name in ("oslo", "rome"):
        centers = 8.0 * generator.integers(2, size=(80, 1))
        ecg, image = (centers + generator.normal(size=(80, width)) for width in (3, 2))
        write_site(tmp_path / "hospitals" / name, {"ecg": ecg, "image": None if name == "rome" else image})
    return tmp_path / "hospitals"


@pytest.fixture
def run(hospitals, tmp_path):
    """A finished run, and a folder of rows that were not in it."""
    calls.call("fit", hospitals, "-k", 2, "--seed", 0, "-o", tmp_path / "run")
    generator = np.random.default_rng(1)
    for name in ("oslo", "turin"):
        tables = {view: generator.normal(size=(30, width)) for view, width in (("ecg", 3), ("image", 2))}
        write_site(tmp_path / "later" / name, tables)
    return tmp_path / "run"


def test_folder_with_and_without_noise(hospitals):
    result = call("attack", hospitals, "-k", 2, "--epsilon", 1, "--delta", 1e-3, "--shadows", 2)
    for part in ("80 rows that were fitted, 80 that were not", "no noise", "epsilon = 1", "likelihood"):
        assert part in result.stdout
    assert "Note: With epsilon=1, 80 rows and 2 clusters" in result.stderr


def test_folder_as_json_gives_rows_of_many_clusters_away(hospitals):
    found = json.loads(call("attack", hospitals, "-k", 60, "--shadows", 0, "--json").stdout)["models"]["no noise"]
    assert (found["members"], found["others"], found["likelihood_ratio"]) == (80, 80, None)
    assert found["distance"]["auc_low"] > 0.6
    assert "gives its rows away" in found["verdict"]


def test_public_bounds(hospitals):
    options = ("--epsilon", 100, "--delta", 1e-3, "--bounds", "-4,12", "--shadows", 0, "--json")
    assert set(json.loads(call("attack", hospitals, "-k", 2, *options).stdout)["models"]) == {
        "no noise",
        "epsilon = 100",
    }


def test_run_model_file_and_site(run, hospitals):
    later = run.parent / "later"
    assert "160 rows that were fitted, 60 that were not" in call("attack", run, "--non-members", later).stdout
    given = ("--members", hospitals, "--non-members", later, "--shadows", 0, "--json")
    found = json.loads(call("attack", run / "model.safetensors", *given).stdout)
    assert found["models"]["model"]["others"] == 60
    own = call("attack", run, "--site", "oslo", "--non-members", later / "oslo", "--shadows", 0, "--json")
    assert json.loads(own.stdout)["models"]["model"]["members"] == 80


def test_what_a_site_got_of_a_run_over_a_network(run, hospitals, tmp_path):
    got, later = tmp_path / "state" / "oslo" / "run", run.parent / "later"
    (got / "sites").mkdir(parents=True)
    for name in ("model.safetensors", "sites/oslo.safetensors"):
        shutil.copy(run / name, got / name)
    given = ("--non-members", later / "oslo", "--shadows", 0, "--json")
    for site in ((), ("--site", "oslo")):
        found = json.loads(call("attack", got, *site, "--members", hospitals / "oslo", *given).stdout)
        assert (found["models"]["model"]["members"], found["models"]["model"]["others"]) == (80, 30)
    assert "--members" in usage("attack", got, *given)


def test_bad_data_of_attack(run, hospitals):
    later = run.parent / "later"
    assert "does not exist" in refusal("attack", run.parent / "nowhere", "-k", 2)
    assert "does not exist" in refusal("attack", run, "--non-members", run.parent / "nowhere")
    said = refusal("attack", run, "--site", "bergen", "--non-members", later)
    assert "no model of site 'bergen'; sites are oslo, rome." in said
    assert "the same folder" in refusal("attack", run, "--non-members", hospitals)
    assert "epsilon=-1.0" in refusal("attack", hospitals, "-k", 2, "--epsilon", -1)
    assert "delta=0.1" in refusal("attack", hospitals, "-k", 2, "--epsilon", 1, "--delta", 0.1)
    assert "even number" in refusal("attack", hospitals, "-k", 2, "--shadows", 3)
    shutil.rmtree(hospitals)
    assert "does not exist" in refusal("attack", run, "--non-members", later)


def test_usage_of_attack(run, hospitals):
    later = run.parent / "later"
    assert "--clusters" in usage("attack", hospitals)
    assert "--non-members" in usage("attack", run)
    assert "--members" in usage("attack", run / "model.safetensors", "--non-members", later)
    assert "--site" in usage("attack", run / "model.safetensors", "--site", "oslo", "--non-members", later)
    assert "--epsilon" in usage("attack", run, "--non-members", later, "--epsilon", 1)
    assert "--non-members" in usage("attack", hospitals, "-k", 2, "--non-members", later)
    assert "LOW,HIGH" in usage("attack", hospitals, "-k", 2, "--epsilon", 1, "--bounds", "wide")


# ----------------------------------------------------------------------------------------------------- one's own run


def test_a_run_is_made_once_more_and_asked_which_rows_it_had(run):
    before = sorted(path.name for path in run.rglob("*"))
    assert "guesses were right: without noise nothing is promised" in call("run", run, "--canaries", 60).stdout
    found = json.loads(call("run", run, "--canaries", 60, "--json").stdout)
    assert (found["canaries"], found["guesses"], found["stated"]) == (60, 30, None)
    assert sorted(path.name for path in run.rglob("*")) == before


def test_bad_data_of_an_audit_of_a_run(run, hospitals):
    assert "is no run folder" in refusal("run", hospitals)
    assert "canaries=100 must be between 20 and half of the 160 rows, 80" in refusal("run", run, "--canaries", 100)


def test_an_audit_of_a_run_over_a_network_names_what_its_sites_can_do(run):
    config = run / "config.toml"
    config.write_text("\n".join(line for line in config.read_text().splitlines() if not line.startswith("data")))
    said = refusal("run", run)
    assert "fedhk audit attack STATE/NAME/run --site NAME --members DATA --non-members OTHER" in said
