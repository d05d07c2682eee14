"""`fedhk flower certificates` and `fedhk flower key`: what sites and coordinator show each other."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedhk._files import write_secret
from fedhk.cli.console import OutputExistsError, exit_codes, say
from fedhk.cli.flower.processes import LOOPBACK

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

OWN_HOSTS = ("localhost", LOOPBACK)
CA, SERVER_CERTIFICATE, SERVER_KEY = "ca.crt", "server.pem", "server.key"

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


def make_certificates(folder: Path, hosts: list[str], days: int) -> None:
    """Write an authority's certificate, and a key and certificate of a server with some names and those of loopback.

    The SuperLink's own processes reach it on loopback, and check the name too.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if folder.exists() and any(folder.iterdir()):
        raise OutputExistsError(f"{str(folder)!r} is not empty: certificates are never replaced. Give another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = _name(f"FedHK authority for {hosts[0]}")
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    root = (
        _builder(issuer, issuer, authority, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(authority, hashes.SHA384())
    )
    names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys([*hosts, *OWN_HOSTS])])
    own = (
        _builder(_name(hosts[0]), issuer, server, end)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    (folder / CA).write_bytes(root.public_bytes(Encoding.PEM))
    (folder / SERVER_CERTIFICATE).write_bytes(own.public_bytes(Encoding.PEM))
    _write_key(folder / SERVER_KEY, server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def make_key(path: Path) -> None:
    """Write a site's key pair; an existing file is never replaced."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private = ec.generate_private_key(ec.SECP384R1())
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_key(path, private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    Path(f"{path}.pub").write_bytes(public + b"\n")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, end: datetime.datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)  # clocks differ
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


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
