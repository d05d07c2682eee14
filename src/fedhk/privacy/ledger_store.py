"""Where the releases of a ledger are kept: in memory, or in files that survive whatever interrupts a write."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from fedhk._files import locked, write_atomically
from fedhk.errors import FedHKError

START = "fedhk ledger 1"


class LedgerError(FedHKError, ValueError):
    """A ledger that is damaged, of another site, or asked for what it cannot give."""


@dataclass(frozen=True)
class Release:
    """One line of a ledger.

    Parameters
    ----------
    site : str
        Who released.
    run : str
        The run it belongs to.
    exchange : int
        The exchange within the run: with the run, what identifies a release.
    phase : str
        What the exchange was for.
    multiplier : float
        Standard deviation of the noise over the sensitivity.
    sensitivity : float
        L2 sensitivity of what was released.
    sha256 : str
        Digest of what was sent.
    time : str
        When it was recorded, in UTC.
    """

    site: str
    run: str
    exchange: int
    phase: str
    multiplier: float
    sensitivity: float
    sha256: str
    time: str

    @property
    def key(self) -> tuple[str, int]:
        """Run and exchange."""
        return self.run, self.exchange


class Store(Protocol):
    """Where releases are kept; used under its lock only, and `releases` before the others."""

    def locked(self) -> AbstractContextManager[Any]: ...

    def releases(self) -> Sequence[Release]: ...

    def payload(self, index: int) -> bytes: ...

    def add(self, release: Release, payload: bytes) -> None: ...


class Memory:
    """Releases that end with the process."""

    def __init__(self) -> None:
        self._kept: list[tuple[Release, bytes]] = []
        self._lock = Lock()

    def locked(self) -> Lock:
        return self._lock

    def releases(self) -> list[Release]:
        return [release for release, _ in self._kept]

    def payload(self, index: int) -> bytes:
        return self._kept[index][1]

    def add(self, release: Release, payload: bytes) -> None:
        self._kept.append((release, payload))


class Folder:
    """Releases in a file of lines, and a folder with one file per release: its line, then what was sent."""

    def __init__(self, path: Path, site: str) -> None:
        self._path = path
        self._site = site
        self._payloads = path.with_name(f"{path.name}.payloads")
        self._payloads.mkdir(parents=True, exist_ok=True)
        _sync_folder(path.parent)
        self._entries: list[tuple[Release, str]] = []

    def locked(self) -> AbstractContextManager[None]:
        return locked(self._path.with_name(f"{self._path.name}.lock"))

    def releases(self) -> list[Release]:
        self._entries = self._read()
        return [release for release, _ in self._entries]

    def payload(self, index: int) -> bytes:
        file, (release, _) = self._file(index), self._entries[index]
        try:
            _, _, payload = file.read_bytes().partition(b"\n")
        except OSError as error:
            raise _cannot_send_again(release, f"{file} cannot be read ({error.strerror})") from error
        if sha256(payload).hexdigest() != release.sha256:
            raise _cannot_send_again(release, f"{file} is damaged")
        return payload

    def add(self, release: Release, payload: bytes) -> None:
        line = _to_line(release, self._entries[-1][1] if self._entries else START)
        write_atomically(self._file(len(self._entries)), line + payload)
        _sync_folder(self._payloads)
        with self._path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._path.parent)

    def _read(self) -> list[tuple[Release, str]]:
        """Releases and their digests. What an interrupted write left is completed first."""
        content = self._path.read_bytes() if self._path.exists() else b""
        entries, rest = self._whole_lines(content)
        found = self._files_from(len(entries))
        if rest and not found:
            raise LedgerError(
                f"The ledger {self._path} is damaged: its last line, {len(entries) + 1}, is not whole, and "
                f"{self._file(len(entries))}, which has it too, is missing. Restore both from a copy."
            )
        if found:
            whole = content[: len(content) - len(rest)]
            for file in found:
                line, _, _ = file.read_bytes().partition(b"\n")
                entries.append(self._parse(line, entries, file))
                whole += line + b"\n"
            write_atomically(self._path, whole)
            _sync_folder(self._path.parent)
        return entries

    def _whole_lines(self, content: bytes) -> tuple[list[tuple[Release, str]], bytes]:
        """Entries of the lines that are whole, and what follows them: at most one line, the last one written."""
        entries: list[tuple[Release, str]] = []
        rest = content
        while rest:
            line, end, following = rest.partition(b"\n")
            try:
                entry = self._parse(line, entries, self._path)
            except _OtherSiteError:
                raise
            except LedgerError:
                if following:
                    raise
                break
            if not end:
                break
            entries.append(entry)
            rest = following
        return entries, rest

    def _parse(self, line: bytes, entries: list[tuple[Release, str]], source: Path) -> tuple[Release, str]:
        """Release and digest of a line that follows others."""
        try:
            release, digest = _from_line(line, entries[-1][1] if entries else START)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"line {len(entries) + 1} is not as it was written"
            raise LedgerError(f"The ledger {source} is damaged: {reason}. Restore it from a copy.") from error
        if release.site != self._site:
            raise _OtherSiteError(f"The ledger {source} belongs to site {release.site!r}, not to {self._site!r}.")
        return release, digest

    def _files_from(self, first: int) -> list[Path]:
        """Files of the releases from a number on; those of writes that were interrupted are removed."""
        present = set()
        for file in self._payloads.iterdir():
            if file.name.startswith("."):
                file.unlink()
            else:
                present.add(file.name)
        found = sorted(name for name in present if name >= self._file(first).name)
        expected = [self._file(first + i).name for i in range(len(found))]
        if found != expected:
            missing = next(name for name in expected if name not in present)
            raise LedgerError(f"The ledger {self._path} is damaged: {self._payloads / missing} is missing.")
        return [self._payloads / name for name in found]

    def _file(self, index: int) -> Path:
        return self._payloads / f"{index + 1:08d}"


class _OtherSiteError(LedgerError):
    """A whole line of another site."""


def _to_line(release: Release, previous: str) -> bytes:
    """A release as a line, with a digest of it and of the line before."""
    values = asdict(release)
    return json.dumps(values | {"chain": _chain(values, previous)}).encode() + b"\n"


def _from_line(line: bytes, previous: str) -> tuple[Release, str]:
    """The release of a line and its digest; any error if the line is not what was written."""
    values = json.loads(line)
    digest = values.pop("chain")
    if digest != _chain(values, previous) or set(values) != {field.name for field in fields(Release)}:
        raise ValueError("digest")
    return Release(**values), digest


def _chain(values: dict[str, Any], previous: str) -> str:
    return sha256(f"{previous}\n{json.dumps(values, sort_keys=True)}".encode()).hexdigest()


def _cannot_send_again(release: Release, reason: str) -> LedgerError:
    return LedgerError(
        f"The release of run {release.run!r}, exchange {release.exchange}, cannot be sent again: {reason}. "
        f"It counts as spent. Restore the file, or leave the exchange out."
    )


def _sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk; a system that does not do this for folders does it by itself."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(handle)
