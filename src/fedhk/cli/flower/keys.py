"""`fedhk flower certificates`, `key`, `mask-key` and `register`: keys of sites and coordinator."""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedhk._files import write_secret
from fedhk.cli import options as o
from fedhk.cli.console import OutputExistsError, exit_codes, say
from fedhk.cli.flower.processes import CONNECTION, LOOPBACK, FlowerError, connect

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

OWN_HOSTS = ("localhost", LOOPBACK)
CA, SERVER_CERTIFICATE, SERVER_KEY = "ca.crt", "server.pem", "server.key"

KEY_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)

Hosts = Annotated[
    list[str], typer.Option("--host", help="Name or address under which sites reach the SuperLink; may be given twice.")
]
Days = Annotated[int, typer.Option("--days", help="How long the certificates hold.", min=1)]


def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.")],
    host: Hosts,
    days: Days = 365,
) -> None:
    """Make a certificate for a SuperLink, and the authority that signed it.

    DIR gets ca.crt, which goes to every site, and server.pem and server.key, which stay with the SuperLink. The
    authority's own key is thrown away: nobody can sign another certificate with it, and a new one is a new folder.

    For example:

        fedhk flower certificates tls/ --host fed.example.org --host 10.0.0.5
    """
    with exit_codes():
        make_certificates(folder, host, days)
        say(f"Written to {folder}: give {CA} to the sites; {SERVER_KEY} must not leave this machine.")


def key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Private key to make; FILE.pub is the public one.")],
) -> None:
    """Make the key by which the SuperLink knows a site.

    FILE stays at the site; FILE.pub goes to the coordinator, who registers it.

    For example:

        fedhk flower key rome.key
    """
    with exit_codes():
        make_key(path)
        say(f"Written to {path}, readable by you alone. Send {path}.pub to the coordinator.")


def mask_key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Private key to make or show.")],
    name: Annotated[str, typer.Option("--name", help="What this site is called in the federation.")] = "NAME",
) -> None:
    """Make the key by which the other sites know a site in masked sums, or show it again.

    FILE stays at the site and is `identity` in its policy. The line on standard output goes to the operators of all
    other sites, who put it under `known` in theirs, with the name of this site. Compare the fingerprint on the phone
    (`fedhk flower site` says that of every key in its policy): whoever can swap the line on the way is the site.

    A key that is there already is never replaced; its line is printed again.

    For example:

        fedhk flower mask-key mask.pem --name oslo > oslo.txt
    """
    with exit_codes():
        from fedhk.federation.remote.site import check_name
        from fedhk.privacy.identity import fingerprint, load_identity

        check_name(name)
        is_there = path.exists()
        public = load_identity(path)[1] if is_there else make_mask_key(path)
        where = f"{path} was there already" if is_there else f"Written to {path}, readable by you alone"
        say(f"{where}. For [known] in the policies of the other sites, with the name of this one:")
        word = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)  # as TOML has it
        say(f'{word} = "{public.hex()}"', err=False)
        say(f"Fingerprint: {fingerprint(public)}")


def make_mask_key(path: Path) -> bytes:
    """Write a site's long-term key for masked sums; returns the public key. An existing file is never replaced."""
    from fedhk.privacy.identity import make_identity, save_identity

    private, public = make_identity()
    save_identity(path, private)
    return public


def register(
    public_key: Annotated[Path, typer.Argument(metavar="FILE", help="Public key that a site sent.", dir_okay=False)],
    superlink: o.SuperLink = o.DEFAULT_ADDRESS,
    root_certificates: o.RootCertificates = None,
    insecure: o.Insecure = False,
) -> None:
    """Let a site in: the SuperLink takes SuperNodes whose public key is registered, and no others.

    For example:

        fedhk flower register rome.key.pub --root-certificates tls/ca.crt
    """
    with exit_codes(), connect(superlink, root_certificates, insecure) as control:
        if not public_key.is_file():
            raise FlowerError(f"the public key {str(public_key)!r} is not there.")
        found = control.call("supernode", "register", str(public_key.absolute()), CONNECTION)
        say(f"Registered {public_key} as node {found.get('node-id')}.")


def make_certificates(folder: Path, hosts: list[str], days: int) -> None:
    """Write an authority's certificate, and a key and certificate of a server with some names and those of loopback.

    The SuperLink's own processes reach it on loopback, and check the name too.
    """
    from fedhk.privacy._lazy import require_cryptography

    require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if folder.exists() and any(folder.iterdir()):
        raise OutputExistsError(f"{str(folder)!r} is not empty: certificates are never replaced. Give another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = f"FedHK authority for {hosts[0]}"
    root = _start_certificate(issuer, issuer, authority, days, signs=True).sign(authority, hashes.SHA384())
    own = (
        _start_certificate(hosts[0], issuer, server, days, signs=False)
        .add_extension(
            x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys([*hosts, *OWN_HOSTS])]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    (folder / CA).write_bytes(root.public_bytes(Encoding.PEM))
    (folder / SERVER_CERTIFICATE).write_bytes(own.public_bytes(Encoding.PEM))
    _write_key(folder / SERVER_KEY, server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def make_key(path: Path) -> None:
    """Write a site's key pair; an existing file is never replaced."""
    from fedhk.privacy._lazy import require_cryptography

    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private = ec.generate_private_key(ec.SECP384R1())
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_key(path, private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    Path(f"{path}.pub").write_bytes(public + b"\n")


def _start_certificate(
    name: str, issuer: str, key: EllipticCurvePrivateKey, days: int, *, signs: bool
) -> x509.CertificateBuilder:
    """Start a certificate of an authority, which signs others, or of a server."""
    from cryptography import x509

    def to_name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])

    now = datetime.datetime.now(datetime.UTC)
    allowed = {"key_cert_sign", "crl_sign"} if signs else {"digital_signature"}
    return (
        x509.CertificateBuilder()
        .subject_name(to_name(name))
        .issuer_name(to_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(x509.KeyUsage(**{use: use in allowed for use in KEY_USES}), critical=True)
    )


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, content: bytes) -> None:
    try:
        write_secret(path, content)
    except FileExistsError as error:
        raise OutputExistsError(f"{str(path)!r} exists already: a key that is replaced is lost.") from error
