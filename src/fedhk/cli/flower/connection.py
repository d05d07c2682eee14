"""The way to a SuperLink's control port, through Flower's own command line."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedhk.cli.console import exit_codes, say
from fedhk.cli.flower.processes import LOOPBACK, FlowerError, check_reachable, environment, program

CONNECTION = "fedhk"

SuperLink = Annotated[str, typer.Option("--superlink", help="Address of the SuperLink, HOST:PORT.")]
RootCertificates = Annotated[
    Path | None, typer.Option("--root-certificates", help="ca.crt of `fedhk flower certificates`.", dir_okay=False)
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Without TLS: for loopback only.")]
DEFAULT_ADDRESS = f"{LOOPBACK}:8000"


@dataclass(frozen=True)
class Control:
    """A SuperLink as `flwr` knows it."""

    home: Path  # Flower's folder with the connection; a temporary one

    def call(self, *words: str) -> dict[str, Any]:
        """Run a command of `flwr` on the connection, and read its JSON."""
        command = [program("flwr"), *words, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(self.home), check=False)  # noqa: S603
        start = done.stdout.find("{")
        try:
            found: dict[str, Any] = json.loads(done.stdout[start:]) if start >= 0 else {}
        except ValueError:
            found = {}
        if done.returncode or not found.get("success"):
            said = found.get("error-message") or done.stderr.strip() or done.stdout.strip()
            raise FlowerError(f"`flwr {' '.join(words[:2])}` failed: {' '.join(str(said).split())[:500]}")
        return found


@contextmanager
def connect(address: str, root_certificates: Path | None, insecure: bool) -> Iterator[Control]:
    """The control port of a SuperLink; nothing of the user's own Flower settings is touched."""
    if not insecure and root_certificates is None:
        raise typer.BadParameter("is needed, or --insecure on loopback.", param_hint="--root-certificates")
    if insecure and root_certificates is not None:
        raise typer.BadParameter("and --insecure exclude each other.", param_hint="--root-certificates")
    if root_certificates is not None and not root_certificates.is_file():
        raise FlowerError(f"the root certificates {str(root_certificates)!r} are not there.")
    check_reachable(address)
    with tempfile.TemporaryDirectory(prefix="fedhk-flwr-") as folder:
        trust = "insecure = true"
        if root_certificates is not None:
            trust = f"root-certificates = {json.dumps(str(root_certificates.absolute()))}"
        lines = (f"[superlink.{CONNECTION}]", f"address = {json.dumps(address)}", trust)
        (Path(folder) / "config.toml").write_text("\n".join(lines) + "\n", "utf-8")
        yield Control(Path(folder))


def register(
    public_key: Annotated[Path, typer.Argument(metavar="FILE", help="Public key that a site sent.", dir_okay=False)],
    superlink: SuperLink = DEFAULT_ADDRESS,
    root_certificates: RootCertificates = None,
    insecure: Insecure = False,
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
