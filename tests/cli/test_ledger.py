"""`fedhk ledger` tells which runs were questions, and why its two columns may differ."""

from __future__ import annotations

import json

import pytest

from cli.calls import call
from fedhk.privacy.ledger import Ledger, ledger_file


@pytest.fixture
def folder(tmp_path):
    times = iter(range(0, 10**6, 86400))
    ledger = Ledger(ledger_file(tmp_path / "ledger", "oslo"), "oslo", clock=lambda: next(times))
    lines = [
        ("a1", 0, "means"),
        ("a1", 1, "noisy round"),
        ("a1", 2, "noisy round"),
        ("b2", 0, "after columns"),
        ("c3", 0, "update round"),
    ]
    for run, exchange, phase in lines:
        ledger.charge(run=run, exchange=exchange, phase=phase, multiplier=4.0, sensitivity=1.0, neighbours="replace")
    return tmp_path / "ledger"


def read(folder):
    return json.loads(call("ledger", folder, "--json").stdout)["sites"]["oslo"]


def test_a_run_says_whether_it_was_a_question_and_which_sums_it_released(folder):
    told = [(run["run"], run["kind"], run["sums"]) for run in read(folder)["runs"]]
    assert told == [
        ("a1", "fit", ["means", "noisy round"]),
        ("b2", "question", ["after columns"]),
        ("c3", "update", ["update round"]),
    ]
    shown = call("ledger", folder).stdout
    assert shown.index("question") < shown.index("a1")  # the last one first


def test_both_kinds_of_neighbours_are_equal_until_a_run_was_for_the_weaker_one(folder):
    spent = read(folder)["epsilon"]
    assert spent["replace"] == spent["add-remove"]
    Ledger(ledger_file(folder, "oslo"), "oslo").charge(
        run="d4", exchange=0, phase="means", multiplier=4.0, sensitivity=1.0, neighbours="add-remove"
    )
    spent = read(folder)["epsilon"]
    assert spent["replace"] > spent["add-remove"]
