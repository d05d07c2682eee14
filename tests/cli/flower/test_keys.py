"""Certificates and keys: whose they are, for whom they hold, who can read them."""

from __future__ import annotations

import stat
import tomllib

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from cryptography import x509
from typer.testing import CliRunner

from fedhk.cli import app
from fedhk.cli.flower.keys import make_certificates
from fedhk.cli.flower.local import make_policies
from fedhk.federation.remote.policy import read_policy
from fedhk.privacy.identity import fingerprint, load_identity
from flower_cli import call_flower


def test_secrets_are_readable_by_their_owner_alone_and_never_replaced(tmp_path):
    assert call_flower("key", tmp_path / "rome.key")[0] == 0
    assert call_flower("certificates", tmp_path / "tls", "--host", "fed.example.org")[0] == 0
    for secret in (tmp_path / "rome.key", tmp_path / "tls" / "server.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert call_flower("key", tmp_path / "rome.key")[0] == 5
    assert call_flower("certificates", tmp_path / "tls", "--host", "x")[0] == 5


def test_the_certificate_holds_for_its_hosts_and_loopback_and_is_signed_by_the_authority(tmp_path):
    make_certificates(tmp_path, ["fed.example.org", "10.0.0.5"], days=3)
    own = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    root = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    own.verify_directly_issued_by(root)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fed.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "127.0.0.1"]
    assert (own.not_valid_after_utc - own.not_valid_before_utc).days == 3


def test_a_mask_key_is_secret_and_its_public_part_is_what_a_policy_lists(tmp_path):
    code, output = call_flower("mask-key", tmp_path / "mask.pem")
    assert code == 0
    assert stat.S_IMODE((tmp_path / "mask.pem").stat().st_mode) == 0o600
    public = load_identity(tmp_path / "mask.pem")[1]
    assert f'NAME = "{public.hex()}"' in output
    assert fingerprint(public) in output
    before = (tmp_path / "mask.pem").read_bytes()
    code, again = call_flower("mask-key", tmp_path / "mask.pem")
    assert code == 0
    assert f'NAME = "{public.hex()}"' in again
    assert (tmp_path / "mask.pem").read_bytes() == before


@pytest.mark.parametrize(("name", "word"), [("oslo", "oslo"), ("Oslo 2", '"Oslo 2"')])
def test_the_line_for_the_policies_is_alone_on_standard_output_and_is_toml(tmp_path, name, word):
    told = CliRunner().invoke(app, ["flower", "mask-key", str(tmp_path / "mask.pem"), "--name", name])
    public = load_identity(tmp_path / "mask.pem")[1].hex()
    assert told.stdout == f'{word} = "{public}"\n'
    assert tomllib.loads(told.stdout) == {name: public}
    assert "Fingerprint" in told.stderr


def test_sites_of_one_machine_know_each_other(tmp_path):
    policies = {name: read_policy(path) for name, path in make_policies(tmp_path / "p", ["a b", 'c"d']).items()}
    assert policies["a b"].known == policies['c"d'].known
    assert set(policies["a b"].known) == {"a b", 'c"d'}
    for name, policy in policies.items():
        assert load_identity(policy.identity)[1].hex() == policy.known[name]
