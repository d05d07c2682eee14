"""`fedhk flower link` and `fedhk flower site`: what they refuse, and what Flower reads of their words."""

from __future__ import annotations

import socket
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.common.config import parse_config_args

from cli.calls import call
from fedhk._files import hold
from fedhk.cli.flower.keys import make_certificates, make_key, make_mask_key
from fedhk.cli.flower.processes import FlowerError
from fedhk.cli.flower.site import RUNNING, site_command
from fedhk.data.named import write_labels
from fedhk.datasets import make_sites
from fedhk.privacy.identity import fingerprint
from fedhk.privacy.ledger import Ledger
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


@pytest.mark.parametrize(
    ("identity", "said"), [("", "identity, the file of that key, is missing"), ("mask.pem", "mask-key")]
)
def test_a_site_whose_own_line_is_of_another_key_does_not_start(identity, said, tmp_path):
    folders = write_sites(make_sites(2, 10, n_clusters=2, random_state=0).sites, tmp_path / "data")
    make_mask_key(tmp_path / "mask.pem")
    other = make_mask_key(tmp_path / "other.pem")
    line = f'identity = "{identity}"\n' if identity else ""
    (tmp_path / "policy.toml").write_text(f'{line}[known]\nrome = "{other.hex()}"\n', "utf-8")
    words = ("--name", "rome", "--state", tmp_path / "state", "--insecure", "--policy", tmp_path / "policy.toml")
    code, output = call_flower("site", next(iter(folders.values())), *words)
    assert code == 3
    assert said in output


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


@pytest.fixture
def start(tmp_path):
    """A function that starts a site as far as it goes without a SuperLink; gives exit code and output."""
    data = tmp_path / "data" / "rome"
    data.mkdir(parents=True)
    (data / "lab.csv").write_text("id,crp\n" + "\n".join(f"p{i},{i}.5" for i in range(50)))

    def run(*words, policy=None, folder=data, link="nonsense"):
        if policy is not None:
            (tmp_path / "policy.toml").write_text(policy)
            words = (*words, "--policy", tmp_path / "policy.toml")
        named = ("--name", "rome", "--state", tmp_path / "state", "--insecure", "--superlink", link)
        code, output = call_flower("site", folder, *named, *words)
        return code, " ".join(output.replace("│", " ").split())

    return run


def test_a_site_without_a_policy_is_told_what_that_means(start):
    _, said = start()
    assert "Note: no policy: this site takes part in any run, also without masks and noise" in said
    _, said = start(policy='questions = ["profile"]')
    assert "Its policy lets runs without masks and noise in; it answers the questions profile." in said
    assert "no policy" not in said


def test_a_site_is_told_what_its_policy_demands_and_what_is_left(start, tmp_path):
    policy = "secure = true\nepsilon = 4.0\ndelta = 1e-6"
    _, said = start(policy=policy)
    assert "demands masked sums and noise, of epsilon 4 at delta 1e-06 for all runs together" in said
    assert "Epsilon 0 is spent; one more run may have 4." in said
    Ledger(tmp_path / "state" / "rome" / "ledger.jsonl", "rome").charge(
        run="a", exchange=0, phase="means", multiplier=2.0, sensitivity=1.0, neighbours="replace"
    )
    _, said = start(policy=policy)
    spent = float(said.split("Epsilon ")[1].split()[0])
    left = float(said.split("one more run may have ")[1].split()[0].rstrip("."))
    assert 2 < spent < 4
    assert 0 < left < 4 < spent + left
    _, said = start(policy=f"{policy}\nyears = 2")
    assert "in each of 2 years" in said
    assert " until 20" in said


def test_a_delta_that_could_give_a_row_away_is_refused(start, tmp_path):
    code, said = start(policy="epsilon = 4.0\ndelta = 0.1")
    assert code == 3
    assert "delta=0.1 must be below 1 over the 50 rows of the site: use at most 0.002." in said
    labels = tmp_path / "state" / "rome" / "run" / "labels"
    labels.mkdir(parents=True)
    write_labels(labels / "rome.parquet", None, np.zeros(50, int), np.ones(50), np.zeros(50, int))
    Ledger(labels.parents[1] / "ledger.jsonl", "rome").charge(
        run="a", exchange=0, phase="means", multiplier=2.0, sensitivity=1.0, neighbours="replace"
    )
    said = call("ledger", labels.parents[1], "--policy", tmp_path / "policy.toml", code=3).stderr
    assert "below 1 over the 50 rows" in said


def test_a_misspelt_column_of_a_policy_is_refused(start, tmp_path):
    (tmp_path / "also").mkdir()
    (tmp_path / "also" / "later.csv").write_text("id,days,died\n" + "\n".join(f"p{i},9,0" for i in range(50)))
    policy = 'questions = ["outcomes"]\nheld_out = ["days", "dead"]'
    code, said = start("--also", tmp_path / "also", policy=policy)
    assert code == 3
    assert "held_out has 'dead', which is no column in" in said
    assert "Did you mean 'died'?" in said
    _, said = start(policy=policy)
    assert "Note: held_out of the policy has no effect without --also" in said


def test_a_folder_of_sites_is_answered_with_that_of_the_site(start, tmp_path):
    code, said = start(folder=tmp_path / "data")
    assert code == 3
    assert f"give that of this one, {str(tmp_path / 'data' / 'rome')!r}" in said


def test_a_public_key_in_place_of_the_private_one_is_refused(start, tmp_path):
    make_key(tmp_path / "rome.key")
    code, said = start("--key", tmp_path / "rome.key.pub")
    assert code == 3
    assert f"the private key is {str(tmp_path / 'rome.key')!r}" in said
    _, said = start("--key", tmp_path / "rome.key")
    assert "no private key" not in said


def test_a_site_that_is_running_is_not_started_again(start, tmp_path, monkeypatch):
    became = []
    monkeypatch.setattr("fedhk.cli.flower.site._become", became.append)
    assert start(link="127.0.0.1:1")[0] == 0
    code, said = start(link="127.0.0.1:1")
    assert len(became) == 1
    assert code == 3
    assert "Site 'rome' is running already" in said


def test_a_lock_is_held_by_the_program_that_takes_the_place_of_a_process(tmp_path):
    take = f"import os; from fedhk._files import hold; assert hold({str(tmp_path / RUNNING)!r}); "
    take += "os.execvp('sh', ['sh', '-c', 'echo held; read line'])"
    words = [sys.executable, "-c", take]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - of ours
        assert process.stdout.readline() == b"held\n"
        assert not hold(tmp_path / RUNNING)
        process.communicate(b"\n")
    assert hold(tmp_path / RUNNING)
