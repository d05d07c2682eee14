"""`fedhk flower run` refuses what it cannot reach before anything is written."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedhk.cli.flower.processes import free_port
from flower_cli import call_flower


def test_a_superlink_that_is_not_there(tmp_path):
    call_flower("init", tmp_path / "app", "--clusters", 3)
    address = f"127.0.0.1:{free_port()}"
    code, output = call_flower("run", tmp_path / "app", "--out", tmp_path / "run", "--insecure", "--superlink", address)
    assert code == 3
    assert f"No SuperLink at {address}" in output
    assert not (tmp_path / "run").exists()


def test_run_without_trust_or_with_an_address_that_is_none(tmp_path):
    call_flower("init", tmp_path / "app", "--clusters", 3)
    assert call_flower("run", tmp_path / "app", "--out", tmp_path / "run")[0] == 2
    code, output = call_flower(
        "run", tmp_path / "app", "--out", tmp_path / "run", "--insecure", "--superlink", "nonsense"
    )
    assert code == 3
    assert "HOST:PORT" in output
