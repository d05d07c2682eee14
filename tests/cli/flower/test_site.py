"""`fedhk flower link` and `fedhk flower site`: what they refuse, and what Flower reads of their words."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.common.config import parse_config_args

from fedhk.cli.flower.keys import make_certificates, make_mask_key
from fedhk.cli.flower.processes import FlowerError
from fedhk.cli.flower.site import site_command
from fedhk.datasets import make_sites
from fedhk.privacy.identity import fingerprint
from flower_cli import call_flower
from remote_sites import write_sites


def test_a_port_in_use(tmp_path):
    make_certificates(tmp_path / "tls", ["localhost"], days=1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, output = call_flower("link", tmp_path / "tls", "--database", tmp_path / "db", "--port", port)
    assert code == 3
    assert f"127.0.0.1:{port} cannot be used" in output.replace("\n", "")


def test_a_link_without_certificates(tmp_path):
    code, output = call_flower("link", tmp_path, "--database", tmp_path / "db")
    assert code == 3
    assert "server.key" in output


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "--root-certificates"),
        (("--insecure", "--policy", "nowhere.toml"), 3, "nowhere.toml"),
        (("--insecure", "--superlink", "nonsense"), 3, "HOST:PORT"),
    ],
)
def test_a_site_that_cannot_start(words, code, text, tmp_path):
    folders = write_sites(make_sites(2, 10, n_clusters=2, random_state=0).sites, tmp_path / "data")
    data = next(iter(folders.values()))
    found, output = call_flower("site", data, "--name", "rome", "--state", tmp_path / "state", *words)
    assert found == code
    assert text in output


def test_a_site_says_whose_keys_its_policy_knows(tmp_path):
    folders = write_sites(make_sites(2, 10, n_clusters=2, random_state=0).sites, tmp_path / "data")
    public = make_mask_key(tmp_path / "mask.pem")
    (tmp_path / "policy.toml").write_text(f'identity = "mask.pem"\n[known]\noslo = "{public.hex()}"\n', "utf-8")
    words = ("--name", "rome", "--state", tmp_path / "state", "--insecure", "--policy", tmp_path / "policy.toml")
    _, output = call_flower("site", next(iter(folders.values())), *words, "--superlink", "nonsense")
    assert f"'oslo' by the key with the fingerprint {fingerprint(public)}" in output


def test_a_site_whose_data_are_not_there(tmp_path):
    words = ("--name", "rome", "--state", tmp_path / "state", "--insecure")
    code, output = call_flower("site", tmp_path / "nowhere", *words)
    assert code == 3
    assert "nowhere" in output


@pytest.mark.parametrize("name", ["Rome", "New York", "Malmö", "a=b", "#1"])
def test_names_survive_flowers_reader(name, tmp_path):
    command = site_command(tmp_path / "my data", name, tmp_path / "state", "x:1", None, None, port=1)
    found = parse_config_args([command[command.index("--node-config") + 1]])
    assert found == {"site": name, "data": str(tmp_path / "my data"), "state": str(tmp_path / "state")}


@pytest.mark.parametrize("name", ['Ro"me', "Ro'me", "Ro\\me"])
def test_what_the_reader_cannot_carry_is_refused(name, tmp_path):
    with pytest.raises(FlowerError, match="cannot carry"):
        site_command(tmp_path, name, tmp_path, "x:1", None, None, port=1)


def test_the_column_of_ids_is_said_once_for_the_site_and_its_further_tables(tmp_path):
    for folder, name, lines in (
        ("data", "lab", "PatNr,crp\np7,1.5\np8,2.5"),
        ("also", "later", "PatNr,days\np8,9\np7,3"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.csv").write_text(lines)
    (tmp_path / "policy.toml").write_text('questions = ["outcomes"]\nheld_out = ["days"]\n')
    words = ["site", tmp_path / "data", "--name", "rome", "--state", tmp_path / "state", "--insecure"]
    words += ["--policy", tmp_path / "policy.toml", "--also", tmp_path / "also", "--superlink", "nonsense"]
    _, output = call_flower(*words, "--id", "PatNr")
    assert "Site 'rome': 2 rows, views lab (1 column)." in output
    assert "Questions after a fit may read days" in output
    command = site_command(tmp_path, "rome", tmp_path, "x:1", None, None, id_column="PatNr", port=1)
    assert parse_config_args([command[command.index("--node-config") + 1]])["id"] == "PatNr"
