"""Real processes on loopback: a SuperLink with TLS and registered keys, and a SuperNode per site."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedhk.cli.config import Config
from fedhk.cli.flower.init import make_app
from fedhk.cli.flower.keys import CA
from fedhk.cli.flower.local import federation
from fedhk.cli.flower.processes import connect
from fedhk.cli.flower.run import run_app
from fedhk.cli.runs import CHECKPOINT
from fedhk.datasets import make_sites
from fedhk.federation.checkpoint import peek
from remote_sites import write_sites

NAMES = ("oslo", "pisa", "rome")


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    data = make_sites(3, 60, n_clusters=3, shift=1.0, random_state=0)
    return write_sites(dict(zip(NAMES, data.sites.values(), strict=True)), tmp_path_factory.mktemp("sites"))


class Deployment:
    """A federation that is up, and runs on it."""

    def __init__(self, work: Path, running) -> None:
        self.work = work
        self.running = running
        self.out = work / "run"

    def run(self, parameters, algorithm="e-fkmvc", sites=NAMES, wait=60.0, **options):
        """Run to the end; the summary."""
        if not (self.work / "app").exists():
            data = self.work / "nowhere"
            config = Config(data, algorithm, 0, {"n_clusters": 3, "tol": 0.0} | parameters)
            make_app(self.work / "app", config, sites=list(sites), wait=wait)
        with connect(self.running.address, self.work / "tls" / CA, insecure=False) as control:
            return run_app(control, self.work / "app", self.out, **options)

    def begin(self, parameters, **options):
        """Run in the background; what to call for the summary, or the error."""
        found = {}

        def work():
            try:
                found["summary"] = self.run(parameters, **options)
            except Exception as error:
                found["error"] = error

        thread = threading.Thread(target=work)
        thread.start()

        def finished():
            thread.join(300)
            assert not thread.is_alive()
            if "error" in found:
                raise found["error"]
            return found["summary"]

        return finished

    def wait_for_round(self, number, patience=180.0):
        """Wait until so many rounds are done."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            reached = peek(self.out / CHECKPOINT)
            if reached is not None and len(reached[0].history) >= number:
                return
            time.sleep(0.5)
        raise AssertionError(f"round {number} was not reached within {patience} s")


@pytest.fixture
def deployed():
    """What puts a deployment around processes that a test starts itself."""
    return Deployment


@pytest.fixture
def deployment(folders, tmp_path):
    with federation(tmp_path, folders) as running:
        yield Deployment(tmp_path, running)
