"""`fedhk flower init` writes an app that can be run, or says why not."""

from __future__ import annotations

import runpy
import tomllib

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

import fedhk
from fedhk.cli.config import read_config
from flower_cli import call_flower


def test_writes_an_app_that_flower_and_fit_can_read(tmp_path):
    code, _ = call_flower("init", tmp_path / "app", "--clusters", 3, "--sites", "rome, oslo", "--seed", 5)
    assert code == 0
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["config"]["sites"] == "rome,oslo"
    config = read_config(tmp_path / "app" / "fedhk.toml")
    assert (config.algorithm, config.seed, config.data) == ("e-fkmvc", 5, None)
    assert config.parameters["n_clusters"] == 3
    assert config.parameters["tol"] == 1e-4  # few rounds


def test_both_ends_are_the_apps_that_the_project_names(tmp_path):
    call_flower("init", tmp_path / "app", "--clusters", 3)
    ends = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["components"]
    for end, kind in (("serverapp", ServerApp), ("clientapp", ClientApp)):
        module, name = ends[end].split(":")
        assert isinstance(runpy.run_path(str(tmp_path / "app" / f"{module}.py"))[name], kind)


def test_options_reach_the_configuration(tmp_path):
    words = ["--algorithm", "fedhk-person", "--secure", "--epsilon", 2, "--delta", "1e-6", "--bounds=-4,4"]
    code, _ = call_flower("init", tmp_path / "app", "--clusters", 3, *words, "--set", "tol=1e-6", "--min-sites", 2)
    assert code == 0
    parameters = read_config(tmp_path / "app" / "fedhk.toml").parameters
    assert parameters["secure"] is True
    assert parameters["privacy"]["epsilon"] == 2
    assert (parameters["tol"], parameters["participation"]["min_sites"]) == (1e-6, 2)


def test_no_algorithm_gets_a_smaller_tolerance_than_its_own(tmp_path):
    code, _ = call_flower("init", tmp_path / "app", "--clusters", 3, "--algorithm", "fedhk-diffusion")
    assert code == 0
    assert read_config(tmp_path / "app" / "fedhk.toml").parameters["tol"] == fedhk.FedHKDiffusion().tol


@pytest.mark.parametrize(("algorithm", "said"), [("fedhk-diffusion", True), ("fedhk-person", False)])
def test_before_a_budget_is_spent_it_says_which_model_has_no_updates(tmp_path, algorithm, said):
    words = ["--clusters", 3, "--algorithm", algorithm, "--epsilon", 2, "--delta", "1e-6", "--bounds=-4,4"]
    code, text = call_flower("init", tmp_path / "app", *words)
    assert code == 0
    assert ("cannot be updated with new rows later" in text) == said


def test_with_noise_no_tolerance_is_written_because_fit_refuses_one(tmp_path):
    words = ["--clusters", 3, "--epsilon", 2, "--delta", "1e-6", "--bounds=-4,4"]
    assert call_flower("init", tmp_path / "app", *words)[0] == 0
    parameters = read_config(tmp_path / "app" / "fedhk.toml").parameters
    assert parameters["tol"] == fedhk.EFKMVC().tol


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "--clusters"),
        (("--clusters", 3, "--algorithm", "heat-kernel-mvc"), 3, "clusters one site"),
        (("--clusters", 3, "--set", "colour=1"), 3, "no parameter 'colour'"),
        (("--clusters", 3, "--config", "nowhere.toml"), 3, "cannot be read"),
        (("--clusters", 3, "--sites", "aarhus,basel", "--secure"), 3, "secure needs at least 3 sites, and 2 are named"),
        (("--clusters", 3, "--sites", "aarhus", "--min-sites", 2), 3, "min_sites needs at least 2 sites, and 1"),
    ],
)
def test_refuses_what_cannot_run(words, code, text, tmp_path):
    found, output = call_flower("init", tmp_path / "app", *words)
    assert found == code
    assert text in output
    assert not (tmp_path / "app").exists()


def test_never_writes_over_something(tmp_path):
    (tmp_path / "notes").write_text("mine")
    code, output = call_flower("init", tmp_path, "--clusters", 3)
    assert code == 5
    assert "exists already" in output
