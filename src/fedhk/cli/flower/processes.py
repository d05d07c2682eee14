"""Starts and stops Flower's own programs, and sends commands to a SuperLink."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from fedhk.errors import FedHKError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
}
"""Neither telemetry nor a look for updates; and half a second of waiting, not one, before a message is taken up."""

LOOPBACK = "127.0.0.1"
CONNECTION = "fedhk"


class FlowerError(FedHKError, RuntimeError):
    """Flower is not there, or one of its programs did not do what it should."""


def require_flower() -> None:
    """Say that a package is missing before anything is started or written."""
    missing = [name for name in ("flwr", "cryptography") if find_spec(name) is None]
    if missing:
        raise FlowerError(f"a federation on Flower needs {' and '.join(missing)}: pip install 'fedhk[flower,privacy]'")


def program(name: str) -> str:
    """Find one of Flower's programs: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FlowerError(f"{name} is not installed; it comes with: pip install 'fedhk[flower,privacy]'")
    return found


def environment(home: Path | None = None) -> dict[str, str]:
    """Make the environment of a program: no telemetry, Flower's folder if given, and this Python's programs."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"FLWR_HOME": str(home)} if home is not None else {}
    return os.environ | QUIET | own | {"PATH": path}


def start(command: Sequence[str], log: Path, env: dict[str, str]) -> subprocess.Popen[Any]:
    """Start a program of its own group, so that what it starts ends with it; its output goes to a file."""
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 - a program of Flower, with arguments of ours
            [program(command[0]), *command[1:]], stdout=file, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )


def stop(process: subprocess.Popen[Any], patience: float = 10.0) -> None:
    """End a program that `start` started, and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait(patience)


def free_port() -> int:
    """Find a free port of this machine."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int, what: str) -> None:
    """Refuse a port that somebody uses already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise FlowerError(
                f"{what}: {host}:{port} cannot be used ({error.strerror}); give another --port."
            ) from error


def check_reachable(address: str, timeout: float = 5.0) -> None:
    """Refuse an address on which no program listens."""
    host, port = split_address(address)
    try:
        with socket.create_connection((host, port), timeout):
            return
    except OSError as error:
        raise FlowerError(
            f"No SuperLink at {address} ({error.strerror or error}): is it started, is the port open?"
        ) from error


def split_address(address: str) -> tuple[str, int]:
    """Split an address into host and port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise FlowerError(f"the address {address!r} must be HOST:PORT, such as {LOOPBACK}:8000.")
    return host.strip("[]"), int(port)


def wait_for_port(port: int, process: subprocess.Popen[Any], log: Path, patience: float = 60.0) -> None:
    """Wait until a program listens, or say why it does not."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise FlowerError(f"a program of Flower ended with code {process.returncode}: {last_lines(log)}")
        try:
            with socket.create_connection((LOOPBACK, port), 1.0):
                return
        except OSError:
            time.sleep(0.2)
    raise FlowerError(f"a program of Flower does not listen on port {port} after {patience:g} s: {last_lines(log)}")


def last_lines(log: Path, count: int = 5) -> str:
    """Return the last lines of a log as one line."""
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return " / ".join(line.strip() for line in lines[-count:] if line.strip())


@contextmanager
def interruptible() -> Iterator[None]:
    """Let whatever ends this process, such as a closed terminal, do what Ctrl-C does: what was started is stopped."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Control:
    """A SuperLink as `flwr` knows it."""

    home: Path  # Flower's folder with the connection; a temporary one

    def call(self, *words: str) -> dict[str, Any]:
        """Run a command of `flwr` on the connection, and read its JSON; paths among the words must be absolute.

        It runs in its own folder: where `flwr` finds a folder of the connection's name, it takes that for an app.
        """
        command = [program("flwr"), *words, "--format", "json"]
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, env=environment(self.home), cwd=self.home, check=False
        )
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
    """Connect to the control port of a SuperLink, without touching the user's own Flower settings."""
    require_flower()
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
