"""`fedhk audit privacy`: verdicts that can be read, numbers that can be parsed, and every wrong use told apart."""

from __future__ import annotations

import json

import pytest

from cli import calls
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
    assert found["phases"] == ["ranges", "directions", "cells", "round"]
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
