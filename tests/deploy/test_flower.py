"""The one end-to-end run that every change must pass: real processes, TLS, keys, folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedhk
from fedhk.cli.algorithms import list_tables
from fedhk.cli.flower.local import federation, gather
from fedhk.data.folders import read_federation

NAMES = ("oslo", "pisa", "rome")

pytestmark = pytest.mark.slow


def groups(running):
    return [process.pid for process, _ in running.processes.values()]


def test_three_sites_over_tls_give_the_model_of_one_process(deployment, folders):
    parameters = {"n_clusters": 3, "max_rounds": 2, "tol": 0.0}
    summary = deployment.run(parameters)
    assert summary["rounds"] == 2
    assert summary["refused"] == {}
    gather(deployment.work / "state", list(NAMES), deployment.out)
    tables = list_tables(read_federation(folders["rome"].parent))
    here = fedhk.EFKMVC(**parameters, random_state=0).fit(tables)
    there = fedhk.load(deployment.out / "model.safetensors")
    worst = max(abs(a - b).max() for a, b in zip(here.cluster_centers_, there.cluster_centers_, strict=True))
    assert worst < 1e-9
    found = {str(path.relative_to(deployment.out)) for path in deployment.out.rglob("*") if path.is_file()}
    files = ["model.safetensors", "config.toml", "summary.json", "history.json", "history.parquet", "report.html"]
    assert found == {*files, *(f"labels/{n}.parquet" for n in NAMES), *(f"sites/{n}.safetensors" for n in NAMES)}


def test_all_processes_end_with_the_federation(folders, tmp_path):
    with federation(tmp_path, {"rome": folders["rome"]}) as running:
        started = groups(running)
        assert all(Path(f"/proc/{pid}").exists() for pid in started)
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)
