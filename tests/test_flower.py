"""The site's end of a Flower app: what its node-config lacks is told to both sides, its paths to neither."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from fedhk import __version__
from fedhk.federation.gate import write_request
from fedhk.federation.messages import decode, encode
from fedhk.federation.remote.greet import Greet, Greeting
from fedhk.flower import answer_as_site

HELLO = encode(write_request(Greet.name, 0, Greeting(__version__), Greeting, {}))


def test_what_is_missing_is_told_to_both_sides(caplog):
    answer = decode(answer_as_site({"site": "rome"}, HELLO))
    assert answer.values["reason"] == "its SuperNode's --node-config lacks data, state"
    assert "lacks ['data', 'state']" in caplog.text


def test_a_policy_that_cannot_be_read_stays_at_the_site(tmp_path, caplog):
    config = {"site": "rome", "data": str(tmp_path), "state": str(tmp_path), "policy": str(tmp_path / "none.toml")}
    answer = decode(answer_as_site(config, HELLO))
    assert str(tmp_path) not in answer.values["reason"]
    assert "none.toml" in caplog.text


def test_a_site_does_not_load_the_command_line():
    code = "import fedhk.flower, sys; print([name for name in sys.modules if name.startswith('fedhk.cli')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert done.stdout == "[]\n"
