"""`fedhk flower run` refuses what it cannot reach before anything is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedhk.cli.flower import run
from fedhk.cli.flower.init import NEWS
from fedhk.cli.flower.processes import free_port
from flower_cli import call_flower


def test_a_superlink_that_is_not_there(tmp_path):
    call_flower("init", tmp_path / "app", "--clusters", 3)
    address = f"127.0.0.1:{free_port()}"
    code, output = call_flower("run", tmp_path / "app", "--out", tmp_path / "run", "--insecure", "--superlink", address)
    assert code == 3
    assert f"No SuperLink at {address}" in output
    assert not (tmp_path / "run").exists()


class FlowerThatNeverEnds:
    """A SuperLink that takes a run and says for ever that it runs."""

    def call(self, *words):
        if words[0] == "run":
            failure = Path(re.search('failure="([^"]+)"', words[-1]).group(1))
            failure.with_name(NEWS).write_text("0 of 3 sites are there.\n1 of 3 sites are there: rome.\nhalf a l")
            failure.write_text(json.dumps({"code": 4, "text": "oslo refuses"}))
            return {"run-id": 7}
        return {"runs": [{"status": "running"}]}


def test_news_and_failure_of_the_coordinator_are_shown_before_flower_notices(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "LOOK_EVERY", 0.0)
    with pytest.raises(run.CoordinatorError, match="oslo refuses") as raised:
        run.call_app(FlowerThatNeverEnds(), tmp_path, {"question": "q"}, lambda: None, lambda: False)
    assert raised.value.exit_code == 4
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["Run 7 has begun.", "0 of 3 sites are there.", "1 of 3 sites are there: rome."]


def test_run_without_trust_or_with_an_address_that_is_none(tmp_path):
    call_flower("init", tmp_path / "app", "--clusters", 3)
    assert call_flower("run", tmp_path / "app", "--out", tmp_path / "run")[0] == 2
    code, output = call_flower(
        "run", tmp_path / "app", "--out", tmp_path / "run", "--insecure", "--superlink", "nonsense"
    )
    assert code == 3
    assert "HOST:PORT" in output
