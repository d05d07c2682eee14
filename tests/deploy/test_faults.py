"""What happens when processes die, lie or are not known: run by `make test-deploy`, it takes minutes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

import fedhk
from fedhk.cli.flower.keys import CA, make_key
from fedhk.cli.flower.local import federation
from fedhk.cli.flower.processes import LOOPBACK, FlowerError, environment, free_port, start, stop, wait_for_port
from fedhk.cli.flower.site import link_command, site_command
from fedhk.data.folders import read_federation
from fedhk.data.named import named_views
from fedhk.datasets import make_sites
from fedhk.federation.entries import OwnPast, Terms
from remote_sites import read_boards, write_sites

pytestmark = pytest.mark.deploy

NAMES = ("oslo", "pisa", "rome")

HOSTILE = '''
"""Loaded by every Python of one site: its answers in rounds are NaN."""
import sys
if any("flwr-clientapp" in word or "flwr_clientapp" in word for word in sys.argv):
    from dataclasses import replace
    import numpy as np
    from fedhk.federation.messages import decode, encode
    from fedhk.federation.remote.site import RemoteSite
    honest = RemoteSite.answer
    def poisoned(self, payload):
        answer = honest(self, payload)
        message = decode(answer)
        if message.kind != "round":
            return answer
        arrays = {n: a * np.nan for n, a in message.arrays.items() if a.dtype.kind == "f"}
        return encode(replace(message, arrays=message.arrays | arrays))
    RemoteSite.answer = poisoned
'''


def history(deployment):
    return json.loads((deployment.out / "history.json").read_text())


def site_process(deployment, folders, name, env=None, key=None):
    """Start a SuperNode anew, as its operator would."""
    number = list(folders).index(name)
    command = site_command(
        folders[name],
        name,
        deployment.work / "state",
        deployment.running.address,
        deployment.work / "tls" / CA,
        deployment.work / "keys" / f"{number}.key" if key is None else key,
        port=free_port(),
    )
    log = deployment.work / f"{name}-again.log"
    process = start(command, log, environment(deployment.work / "flwr") if env is None else env)
    deployment.running.processes[f"{name} again"] = process, log
    return process


def kill(deployment, name):
    process, _ = deployment.running.processes.pop(name)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def restarted(deployment, folders, name, patience=180.0):
    """Start a SuperNode until it stays, as systemd does: the SuperLink believes the killed one alive for a minute."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        process = site_process(deployment, folders, name)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            return
        stop(process)
    raise AssertionError(f"the SuperNode of {name} does not stay")


def test_a_site_killed_in_a_round_is_named_comes_back_and_keeps_its_state(deployment, folders):
    finished = deployment.begin({"max_rounds": 14, "participation": {"timeout": 25.0}}, algorithm="fedhk-person")
    deployment.wait_for_round(1)
    kill(deployment, "rome")
    board_before, memory_before = read_boards(deployment.work / "state", "rome")
    restarted(deployment, folders, "rome")
    summary = finished()
    assert "rome" in summary["refused"]
    refused = [sorted(record["refused"]) for record in history(deployment)]
    assert ["rome"] in refused
    assert refused[-1] == []
    board, memory = read_boards(deployment.work / "state", "rome")
    assert board.get(Terms).run == board_before.get(Terms).run
    assert list(memory.entries) == [*memory_before.entries, OwnPast]  # what later updates compare with comes last
    assert (deployment.work / "state" / "rome" / "run" / "sites" / "rome.safetensors").is_file()


def test_a_superlink_that_was_killed_is_started_again_and_the_run_goes_on_to_the_same_bits(deployment, folders):
    finished = deployment.begin({"max_rounds": 4})
    deployment.wait_for_round(1)
    kill(deployment, "")
    with pytest.raises(FlowerError):
        finished()
    port = int(deployment.running.address.rpartition(":")[2])
    log = deployment.work / "superlink-again.log"
    command = link_command(deployment.work / "tls", deployment.work / "link.db", LOOPBACK, port)
    link = start(command, log, environment(deployment.work / "flwr"))
    deployment.running.processes["link again"] = link, log
    wait_for_port(port, link, log)
    summary = deployment.run({}, resume=True)
    assert summary["rounds"] == 4
    rows = {s.name: named_views(s) for s in read_federation(folders["rome"].parent).sites.values()}
    here = fedhk.EFKMVC(3, tol=0.0, max_rounds=4, random_state=0).fit(rows)
    there = fedhk.load(deployment.out / "model.safetensors")
    assert np.array_equal(np.hstack(here.cluster_centers_), np.hstack(there.cluster_centers_))


def test_a_site_that_sends_nan_is_refused_by_name(deployment, folders, tmp_path):
    stop(deployment.running.processes.pop("rome")[0])
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "sitecustomize.py").write_text(HOSTILE)
    path = os.pathsep.join([str(tmp_path / "hostile"), os.environ.get("PYTHONPATH", "")])
    site_process(deployment, folders, "rome", environment(tmp_path / "flwr") | {"PYTHONPATH": path})
    summary = deployment.run({"max_rounds": 2})
    assert "NaN or infinite" in summary["refused"]["rome"]
    assert [record["clients"] for record in history(deployment)] == [2, 2]


def test_a_key_that_is_not_registered_does_not_come_in(deployment, folders, tmp_path):
    stop(deployment.running.processes.pop("rome")[0])
    make_key(tmp_path / "stranger.key")
    stranger = site_process(deployment, folders, "rome", key=tmp_path / "stranger.key")
    summary = deployment.run({"max_rounds": 2, "participation": {"min_sites": 2}}, wait=20.0)
    assert summary["refused"] == {"rome": "not connected"}
    assert stranger.poll() is not None
    assert "Failed to activate SuperNode" in (deployment.work / "rome-again.log").read_text()


def test_ten_sites_with_noise_and_masks_run_to_the_end(tmp_path, deployed):
    data = make_sites(10, 200, n_clusters=3, shift=1.0, random_state=0)
    folders = write_sites(data.sites, tmp_path / "data")
    work = tmp_path / "work"
    work.mkdir()
    with federation(work, folders, masks=True) as running:
        deployment = deployed(work, running)
        budget = {"epsilon": 8.0, "delta": 1e-6, "bounds": [-20.0, 20.0], "rounds": 3}
        parameters = {"secure": True, "privacy": budget, "max_rounds": 3}
        summary = deployment.run(parameters, "fedhk-person", sites=list(folders), wait=180.0)
    assert summary["privacy_spent"][0] <= 8.0 + 1e-6
    assert summary["refused"] == {}
    assert summary["rows"] is None  # nobody was told
    for name in folders:
        assert (work / "state" / name / "run" / "sites" / f"{name}.safetensors").is_file()
