"""Options: what they take, what they refuse, and the defaults they show."""

from __future__ import annotations

import pytest
import typer
from typer.main import get_command

import fedhk
from cli.calls import call, usage
from fedhk.cli import app
from fedhk.cli.algorithms import ALGORITHMS
from fedhk.cli.config import Config
from fedhk.cli.options import CHOICES, parse, parse_privacy, parse_settings
from fedhk.protocols import Averaging


def shown_defaults():
    texts = {p.name: p.help or "" for p in get_command(app).commands["fit"].params}
    return {name: text.split(" Default: ")[1].removesuffix(".") for name, text in texts.items() if " Default: " in text}


def test_defaults_in_help_are_those_of_the_estimator():
    defaults = Config(parameters={}).complete().parameters
    shown = {name: text for name, text in shown_defaults().items() if name in defaults}
    assert len(shown) == 12
    expected = {name: "no" if defaults[name] is False else str(defaults[name]) for name in shown}
    expected["tol"] += f", fedhk-diffusion {fedhk.FedHKDiffusion(2).tol}"
    assert shown == expected


def test_defaults_in_help_are_those_of_the_option_objects():
    asked, shown = fedhk.Participation(), shown_defaults()
    assert shown["fraction"] == str(asked.fraction)
    assert asked.min_sites is None  # what that means depends on where the sites are
    assert "min_sites" not in shown
    assert shown["local_passes"] == str(Averaging().passes)


def test_choices_are_those_of_the_estimator():
    tables = [fedhk.EFKMVC._parameter_constraints, fedhk.FedHKTucker._parameter_constraints]
    for name in ("protocol", "scaling", "heat-coef", "aggregator"):
        parameter = name.replace("-", "_")
        assert set(CHOICES[name]) == set().union(*(table[parameter][0].options for table in tables))
    assert all(hasattr(fedhk, algorithm.estimator) for algorithm in ALGORITHMS.values())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rank", "auto", "auto"),
        ("rank", "2", 2),
        ("rank", "0.95", 0.95),
        ("rank", "6,4,2", [6, 4, 2]),
        ("fuzzifier", "1.2", 1.2),
        ("personalization", "auto", "auto"),
        ("view-weights", "learned", "learned"),
        ("view-weights", "1,3", [1.0, 3.0]),
        ("bounds", "-4,4", [-4.0, 4.0]),
        ("bounds", "private", "private"),
        ("rank", None, None),
    ],
)
def test_words_and_numbers(name, text, value):
    found = parse(name, text)
    assert found == value
    assert type(found) is type(value)


def test_what_is_neither_is_refused_with_what_is_allowed(hospitals, tmp_path):
    said = usage("fit", hospitals, "-k", 3, "--rank", "high", "-o", tmp_path / "run")
    assert "--rank" in said
    assert "'high' is not auto|NUMBERS" in said


@pytest.mark.parametrize(
    "options", [("--rank", "high"), ("--set", "rank"), ("--set", "rank=2", "--rank", 2), ("--set", "=2")]
)
def test_usage(hospitals, tmp_path, options):
    call("fit", hospitals, "-k", 3, "--algorithm", "fedhk-tucker", *options, "-o", tmp_path / "run", code=2)


class TestSettings:
    def test_values_are_those_of_a_configuration(self):
        texts = ["tol=1e-6", "rank = [2, 2, 1]", "scaling=none", 'init="random"', "secure=true"]
        assert parse_settings(texts) == {
            "tol": 1e-6,
            "rank": [2, 2, 1],
            "scaling": "none",
            "init": "random",
            "secure": True,
        }

    def test_tables(self):
        texts = ["participation={ fraction = 0.5 }", 'protocol={ name = "centers", passes = 3 }']
        assert parse_settings(texts) == {
            "participation": {"fraction": 0.5},
            "protocol": {"name": "centers", "passes": 3},
        }

    @pytest.mark.parametrize("text", ["participation={ fraction: 0.5 }", "rank=[2,", "tol", "=1", "tol="])
    def test_what_is_no_setting_is_refused(self, text):
        with pytest.raises(typer.BadParameter):
            parse_settings([text])

    def test_a_name_twice(self):
        with pytest.raises(typer.BadParameter, match="twice"):
            parse_settings(["tol=1", "tol=2"])


def test_a_budget_is_whole_or_not_there():
    assert parse_privacy(None, None, None) is None
    assert parse_privacy(1.0, 1e-6, "0,1") == {"epsilon": 1.0, "delta": 1e-6, "bounds": [0.0, 1.0]}
    with pytest.raises(typer.BadParameter, match="--epsilon and --delta"):
        parse_privacy(None, None, "0,1")


def test_bounds_that_are_not_given_are_those_of_the_dictionary_and_not_asked_for():
    assert parse_privacy(1.0, 1e-6, None) == {"epsilon": 1.0, "delta": 1e-6, "bounds": "dictionary"}
    with pytest.raises(typer.BadParameter, match=r"^needs --delta too"):
        parse_privacy(1.0, None, None)


def test_words_are_completed(monkeypatch):
    (option,) = (p for p in get_command(app).commands["fit"].params if p.name == "algorithm")
    found = option.shell_complete(None, "fedhk-p")
    assert [item.value for item in found] == ["fedhk-parafac2", "fedhk-person"]
