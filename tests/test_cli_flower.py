"""`fedhk flower` without a network: what it writes, starts and refuses."""

from __future__ import annotations

import json
import socket
import stat
import tomllib

import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr", reason="Flower is not installed")

from cryptography import x509
from flwr.common.config import parse_config_args

from fedhk.cli import app
from fedhk.cli.config import read_config
from fedhk.cli.flower.coordinate import coordinate
from fedhk.cli.flower.keys import make_certificates, make_key
from fedhk.cli.flower.processes import FlowerError, environment, free_port, start, stop, wait_for_port
from fedhk.cli.flower.site import link_command, site_command
from fedhk.cli.runs import is_run
from fedhk.datasets import make_sites
from fedhk.federation.messages import Message, decode, encode
from fedhk.flower import site_answer
from remote_sites import Wire, written


def fedhk(*words):
    result = CliRunner().invoke(app, ["flower", *map(str, words)])
    return result.exit_code, result.output


class TestInit:
    def test_writes_an_app_that_flower_and_fit_can_read(self, tmp_path):
        code, _ = fedhk("init", tmp_path / "app", "--clusters", 3, "--sites", "rome, oslo", "--seed", 5)
        assert code == 0
        project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
        assert project["tool"]["flwr"]["app"]["config"]["sites"] == "rome,oslo"
        config = read_config(tmp_path / "app" / "fedhk.toml")
        assert (config.algorithm, config.seed, config.data) == ("e-fkmvc", 5, None)
        assert config.parameters["n_clusters"] == 3
        assert config.parameters["tol"] == 1e-4  # few rounds

    def test_options_reach_the_configuration(self, tmp_path):
        words = ["--algorithm", "fedhk-person", "--secure", "--epsilon", 2, "--delta", "1e-6", "--bounds=-4,4"]
        code, _ = fedhk("init", tmp_path / "app", "--clusters", 3, *words, "--set", "tol=1e-6", "--min-sites", 2)
        assert code == 0
        parameters = read_config(tmp_path / "app" / "fedhk.toml").parameters
        assert parameters["secure"] is True
        assert parameters["privacy"]["epsilon"] == 2
        assert (parameters["tol"], parameters["min_sites"]) == (1e-6, 2)

    @pytest.mark.parametrize(
        ("words", "code", "text"),
        [
            ((), 2, "--clusters"),
            (("--clusters", 3, "--algorithm", "heat-kernel-mvc"), 3, "clusters one site"),
            (("--clusters", 3, "--set", "colour=1"), 3, "no parameter 'colour'"),
            (("--clusters", 3, "--config", "nowhere.toml"), 3, "cannot be read"),
        ],
    )
    def test_refuses_what_cannot_run(self, words, code, text, tmp_path):
        found, output = fedhk("init", tmp_path / "app", *words)
        assert found == code
        assert text in output

    def test_never_writes_over_something(self, tmp_path):
        (tmp_path / "notes").write_text("mine")
        code, output = fedhk("init", tmp_path, "--clusters", 3)
        assert code == 5
        assert "exists already" in output


class TestKeys:
    def test_secrets_are_readable_by_their_owner_alone_and_never_replaced(self, tmp_path):
        assert fedhk("key", tmp_path / "rome.key")[0] == 0
        assert fedhk("certificates", tmp_path / "tls", "--host", "fed.example.org")[0] == 0
        for secret in (tmp_path / "rome.key", tmp_path / "tls" / "server.key"):
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert fedhk("key", tmp_path / "rome.key")[0] == 5
        assert fedhk("certificates", tmp_path / "tls", "--host", "x")[0] == 5

    def test_the_certificate_holds_for_its_hosts_and_loopback_and_is_signed_by_the_authority(self, tmp_path):
        make_certificates(tmp_path, ["fed.example.org", "10.0.0.5"], days=3)
        own = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
        root = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
        own.verify_directly_issued_by(root)
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["fed.example.org", "localhost"]
        assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "127.0.0.1"]
        assert (own.not_valid_after_utc - own.not_valid_before_utc).days == 3


class TestRefusals:
    def test_a_superlink_that_is_not_there(self, tmp_path):
        fedhk("init", tmp_path / "app", "--clusters", 3)
        address = f"127.0.0.1:{free_port()}"
        code, output = fedhk("run", tmp_path / "app", "--out", tmp_path / "run", "--insecure", "--superlink", address)
        assert code == 3
        assert f"No SuperLink at {address}" in output
        assert not (tmp_path / "run").exists()

    def test_run_without_trust_or_with_an_address_that_is_none(self, tmp_path):
        fedhk("init", tmp_path / "app", "--clusters", 3)
        assert fedhk("run", tmp_path / "app", "--out", tmp_path / "run")[0] == 2
        code, output = fedhk(
            "run", tmp_path / "app", "--out", tmp_path / "run", "--insecure", "--superlink", "nonsense"
        )
        assert code == 3
        assert "HOST:PORT" in output

    def test_a_port_in_use(self, tmp_path):
        make_certificates(tmp_path / "tls", ["localhost"], days=1)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            code, output = fedhk("link", tmp_path / "tls", "--database", tmp_path / "db", "--port", port)
        assert code == 3
        assert f"127.0.0.1:{port} cannot be used" in output.replace("\n", "")

    def test_a_link_without_certificates(self, tmp_path):
        code, output = fedhk("link", tmp_path, "--database", tmp_path / "db")
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
    def test_a_site_that_cannot_start(self, words, code, text, tmp_path):
        folders = written(make_sites(2, 10, n_clusters=2, random_state=0).sites, tmp_path / "data")
        data = next(iter(folders.values()))
        found, output = fedhk("site", data, "--name", "rome", "--state", tmp_path / "state", *words)
        assert found == code
        assert text in output

    def test_a_site_whose_data_are_not_there(self, tmp_path):
        words = ("--name", "rome", "--state", tmp_path / "state", "--insecure")
        code, output = fedhk("site", tmp_path / "nowhere", *words)
        assert code == 3
        assert "nowhere" in output

    def test_a_program_that_ends_at_once_is_told_with_its_last_words(self, tmp_path):
        make_key(tmp_path / "no-certificate")
        log = tmp_path / "log"
        process = start(link_command(tmp_path, tmp_path / "db", "127.0.0.1", free_port()), log, environment(tmp_path))
        with pytest.raises(FlowerError, match="ended with code"):
            wait_for_port(free_port(), process, log)
        stop(process)


class TestNodeConfig:
    @pytest.mark.parametrize("name", ["Rome", "New York", "Malmö", "a=b", "#1"])
    def test_names_survive_flowers_reader(self, name, tmp_path):
        command = site_command(tmp_path / "my data", name, tmp_path / "state", "x:1", None, None, port=1)
        found = parse_config_args([command[command.index("--node-config") + 1]])
        assert found == {"site": name, "data": str(tmp_path / "my data"), "state": str(tmp_path / "state")}

    @pytest.mark.parametrize("name", ['Ro"me', "Ro'me", "Ro\\me"])
    def test_what_the_reader_cannot_carry_is_refused(self, name, tmp_path):
        with pytest.raises(FlowerError, match="cannot carry"):
            site_command(tmp_path, name, tmp_path, "x:1", None, None, port=1)

    def test_what_is_missing_is_told_to_both_sides(self, caplog):
        hello = encode(Message("hello", "*", 0, {}, {}))
        answer = decode(site_answer({"site": "rome"}, hello))
        assert answer.values["reason"] == "its SuperNode's --node-config lacks data, state"
        assert "lacks ['data', 'state']" in caplog.text

    def test_a_policy_that_cannot_be_read_stays_at_the_site(self, tmp_path, caplog):
        config = {"site": "rome", "data": str(tmp_path), "state": str(tmp_path), "policy": str(tmp_path / "none.toml")}
        answer = decode(site_answer(config, encode(Message("hello", "*", 0, {}, {}))))
        assert str(tmp_path) not in answer.values["reason"]
        assert "none.toml" in caplog.text


class TestCoordinate:
    """The coordinator's process, over a wire without a network."""

    @pytest.fixture
    def wire(self, tmp_path):
        return Wire(written(make_sites(3, 40, n_clusters=2, random_state=0).sites, tmp_path / "d"), tmp_path / "state")

    def settings(self, tmp_path, **more):
        return {"out": str(tmp_path / "run"), "failure": str(tmp_path / "failure"), "wait": 0.0} | more

    def test_leaves_a_run_folder(self, wire, tmp_path):
        fedhk("init", tmp_path / "app", "--clusters", 2, "--seed", 0)
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        assert is_run(tmp_path / "run")
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert summary["rows"] == 120
        assert summary["data"] is None
        assert not (tmp_path / "failure").exists()

    def test_says_why_it_failed_and_with_which_code(self, wire, tmp_path):
        fedhk("init", tmp_path / "app", "--clusters", 2, "--min-sites", 3)
        wire.gone = {1}
        with pytest.raises(Exception, match="3 are needed"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        told = json.loads((tmp_path / "failure").read_text())
        assert told["code"] == 4
        assert not (tmp_path / "run").exists()

    def test_goes_on_from_its_checkpoint(self, wire, tmp_path):
        fedhk("init", tmp_path / "app", "--clusters", 2, "--set", "max_rounds=4", "--set", "tol=0.0", "--min-sites", 3)
        seen = []

        def silent(payload, answer):
            kind = decode(payload).kind
            seen.append(kind)
            return TimeoutError("gone") if kind == "round" and seen.count("round") == 2 else answer

        wire.changed[1] = silent
        with pytest.raises(Exception, match="are needed"):
            coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path))
        assert json.loads((tmp_path / "failure").read_text())["code"] == 4
        coordinate(tmp_path / "app" / "fedhk.toml", wire, self.settings(tmp_path, resume=True))
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 4
