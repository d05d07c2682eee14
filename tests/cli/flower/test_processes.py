"""Programs of Flower that end are told with their last words."""

from __future__ import annotations

import signal
import socket

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedhk.cli.flower.keys import make_key
from fedhk.cli.flower.processes import (
    CONNECTION,
    FlowerError,
    connect,
    environment,
    free_port,
    interruptible,
    start,
    stop,
    wait_for_port,
)
from fedhk.cli.flower.site import link_command


def test_a_program_that_ends_at_once_is_told_with_its_last_words(tmp_path):
    make_key(tmp_path / "no-certificate")
    log = tmp_path / "log"
    process = start(link_command(tmp_path, tmp_path / "db", "127.0.0.1", free_port()), log, environment(tmp_path))
    with pytest.raises(FlowerError, match="ended with code"):
        wait_for_port(free_port(), process, log)
    stop(process)


def test_flwr_is_not_misled_by_a_folder_of_the_connections_name(tmp_path, monkeypatch):
    """In the folder above a clone of FedHK, there is a folder `fedhk` with a pyproject.toml."""
    (tmp_path / "fedhk").mkdir()
    (tmp_path / "fedhk" / "pyproject.toml").write_text("[project]\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    port = free_port()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", port))
        silent.listen()
        with connect(f"127.0.0.1:{port}", None, insecure=True) as control:
            make_key(tmp_path / "rome.key")
            silent.close()
            with pytest.raises(FlowerError) as caught:
                control.call("supernode", "register", str(tmp_path / "rome.key.pub"), CONNECTION)
    assert "pyproject" not in str(caught.value)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_the_process_is_an_interruption(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
