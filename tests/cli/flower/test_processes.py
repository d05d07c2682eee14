"""Programs of Flower that end are told with their last words."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedhk.cli.flower.keys import make_key
from fedhk.cli.flower.processes import FlowerError, environment, free_port, start, stop, wait_for_port
from fedhk.cli.flower.site import link_command


def test_a_program_that_ends_at_once_is_told_with_its_last_words(tmp_path):
    make_key(tmp_path / "no-certificate")
    log = tmp_path / "log"
    process = start(link_command(tmp_path, tmp_path / "db", "127.0.0.1", free_port()), log, environment(tmp_path))
    with pytest.raises(FlowerError, match="ended with code"):
        wait_for_port(free_port(), process, log)
    stop(process)
