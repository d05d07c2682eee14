"""Names of sites and folders are names, never patterns, and never ways to other folders."""

from __future__ import annotations

import json

import polars as pl
import pytest

from cli.calls import call, refusal
from fedhk.report.run import read_facts

# Read as patterns, each of the first is one of the second too.
PAIRS = {"a[1]": "a1", "b*": "bb", "c?": "cc", "d{e,f}": "de"}


@pytest.fixture
def run(write_hospitals, tmp_path):
    folder = write_hospitals(*PAIRS, *PAIRS.values(), folder="hospitals[1]")
    call("fit", folder, "-k", 2, "--seed", 1, "--evaluate", "-o", tmp_path / "run*")
    (tmp_path / "runs").mkdir()  # what the pattern would find
    return tmp_path / "run*"


def test_names_that_look_like_patterns_are_names(run, tmp_path):
    """Attack 14: another site's labels were counted in."""
    summary = json.loads((run / "summary.json").read_text())
    rows = {site: facts["rows"] for site, facts in summary["sites"].items()}
    assert rows == {name: 40 - number for number, name in enumerate([*PAIRS, *PAIRS.values()])}
    facts = read_facts(run)
    assert {facts.sites[site].name: len(found.labels) for site, found in facts.assigned.items()} == rows
    assert sorted(gain.site for gain in facts.gains) == sorted(rows)


def test_every_command_takes_such_names(run, tmp_path):
    """Attack 14, through report, info, predict and audit."""
    call("report", run, "--force")
    for site in PAIRS:
        call("report", run, "--site", site)
        assert (run / f"report-{site}.html").is_file()
    info = json.loads(call("info", run, "--json").stdout)
    assert set(PAIRS) < set(info["sites"])
    folder = tmp_path / "hospitals[1]"
    assert set(json.loads(call("info", folder, "--json").stdout)["sites"]) == set(info["sites"])
    done = json.loads(call("predict", run, folder, "-o", tmp_path / "labels", "--json").stdout)
    for site, known in info["sites"].items():
        assert done["sites"][site]["rows"] == known["rows"]
        with (tmp_path / "labels" / f"{site}.parquet").open("rb") as file:
            assert len(pl.read_parquet(file)) == known["rows"]
    attacked = ("--site", "a[1]", "--members", folder / "a[1]", "--non-members", folder / "a1", "--shadows", 0)
    call("audit", "attack", run, *attacked, "--json")


@pytest.mark.parametrize("name", ["../oslo", "/etc", ".hidden", "a/b", "a\x1bb"])
def test_a_run_folder_cannot_name_files_elsewhere(name, hospitals, tmp_path):
    call("fit", hospitals, "-k", 2, "-o", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    summary["sites"][name] = summary["sites"].pop("oslo")
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    assert "name of a site must be" in refusal("report", tmp_path / "run", "--site", name, "--force", code=3)
