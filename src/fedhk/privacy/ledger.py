"""The ledger of a site: a file to which a line is added before rows are read for a release.

A line that is written counts as spent, whatever happens afterwards. What was sent may be kept beside it: a retry then
sends the same numbers again and spends nothing, where new noise on the same rows would spend again.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from fedhk._files import OWNER_ONLY, locked, read_regular, write_atomically
from fedhk.data.checks import check_count, check_number
from fedhk.errors import FedHKError
from fedhk.privacy.accounting import spent
from fedhk.privacy.sensitivity import Neighbours, check_neighbours

__all__ = ["Ledger", "LedgerError", "Release", "find_ledgers", "holds_ledgers", "read_ledger", "spent_on"]

START = "fedhk ledger 2"

# How the names of ledgers and of their tips end; a remote site calls its ledger NAME.
SUFFIX, TIP_SUFFIX, NAME = ".jsonl", ".tip", "ledger.jsonl"


class LedgerError(FedHKError, ValueError):
    """A ledger that is damaged, shorter than it was, of another site, or asked for what it cannot give."""


@dataclass(frozen=True)
class Release:
    """One line of a ledger: who released what, in which run and exchange, when, and with how much noise.

    `multiplier` is the standard deviation of the noise over `sensitivity`, which holds for these `neighbours`.
    """

    site: str
    run: str
    exchange: int
    phase: str
    multiplier: float
    sensitivity: float
    neighbours: Neighbours
    time: str

    def multiplier_for(self, neighbours: Neighbours) -> float:
        """The noise multiplier for neighbours of either kind.

        To exchange a row is to remove one and to add one, so the sensitivity at most doubles. The other way round it
        stays: to remove a row from a sum is to exchange it for one without any value, which adds nothing.
        """
        return self.multiplier / 2 if (self.neighbours, neighbours) == ("add-remove", "replace") else self.multiplier


class Ledger:
    """Releases of one site over all runs, in the order in which they were made; lines are added and never changed.

    Parameters
    ----------
    path : path-like or None
        File with one JSON object per line. None keeps everything in memory, for simulations.
    site : str
        The site whose releases these are.
    tip : path-like or None, default=None
        File with the number of lines and the digest of the last one, by which a ledger that was cut, deleted or
        replaced by an older copy is noticed. None puts it beside the folder of the ledger: whoever copies that folder
        back does not copy the tip.
    clock : callable, default=time.time
        Seconds since 1970.

    Raises
    ------
    LedgerError
        If the file is of another site, is damaged, or has less than the tip says.

    Notes
    -----
    Every line has a digest of all lines before it, so a changed or removed line is noticed. A process that is killed
    while it adds a line leaves a part of it: nothing was sent after it, so the part is dropped. Several processes may
    use a ledger at once: each use reads the file anew, under a lock (not on Windows).
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        site: str,
        *,
        tip: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.site = site
        self._clock = clock
        self._path = None if path is None else Path(path).absolute()
        self._lock = Lock()
        self._entries: list[tuple[Release, str]] = []
        self._kept: dict[int, bytes] = {}
        if self._path is not None:
            self._tip = _tip_of(self._path) if tip is None else Path(tip)
            self._payloads = self._path.with_name(f"{self._path.name}.payloads")
            for folder in (self._path.parent, self._payloads):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            pass

    def charge(
        self, *, run: str, exchange: int, phase: str, multiplier: float, sensitivity: float, neighbours: Neighbours
    ) -> None:
        """Write down a release; once this returns, it is on disk and counts, whether or not it is ever sent.

        Parameters
        ----------
        run : str
            The run.
        exchange : int
            The exchange within the run; each is charged once.
        phase : str
            What the exchange is for.
        multiplier : float
            Standard deviation of the noise over the sensitivity; above 0 and finite.
        sensitivity : float
            L2 sensitivity of what is released.
        neighbours : {"replace", "add-remove"}
            For which neighbours the sensitivity holds.

        Raises
        ------
        LedgerError
            If the exchange was charged before.
        """
        check_neighbours(neighbours)
        release = Release(
            self.site,
            run,
            check_count(exchange, "exchange", minimum=0),
            phase,
            check_number(multiplier, "multiplier", open_below=True),
            check_number(sensitivity, "sensitivity"),
            neighbours,
            datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds"),
        )
        with self._locked():
            if self._find(run, exchange) is not None:
                raise LedgerError(f"Run {run!r}, exchange {exchange}, was charged before: it is not released twice.")
            self._add(release)

    def keep(self, run: str, exchange: int, payload: bytes) -> None:
        """Keep what was sent in an exchange that was charged, to be sent again."""
        with self._locked():
            index = self._find(run, exchange)
            if index is None:
                raise LedgerError(f"Run {run!r}, exchange {exchange}, was not charged.")
            if self._path is None:
                self._kept[index] = payload
            else:
                write_atomically(self._file(index), sha256(payload).digest() + payload)

    def payload(self, run: str, exchange: int) -> bytes | None:
        """What was sent in an exchange, to be sent again; None if the exchange was not charged.

        Raises
        ------
        LedgerError
            If the exchange was charged and what was sent is not there: new noise must not take its place.
        """
        with self._locked():
            index = self._find(run, exchange)
            if index is None:
                return None
            if self._path is None:
                content: bytes | None = self._kept.get(index)
            else:
                file = self._file(index)
                whole = file.read_bytes() if file.exists() else b""
                content = whole[32:] if sha256(whole[32:]).digest() == whole[:32] else None
        if content is None:
            raise LedgerError(
                f"Run {run!r}, exchange {exchange}, counts as spent, and what was sent is not kept or is damaged: it "
                "cannot be sent again."
            )
        return content

    def releases(self, run: str | None = None) -> list[Release]:
        """Return the releases of one run, or of all."""
        with self._locked():
            return [release for release, _ in self._entries if run is None or release.run == run]

    def spent(self, run: str | None, delta: float, neighbours: Neighbours = "replace") -> float:
        """Compute the epsilon that the releases of one run, or of all, have spent together at a given delta."""
        return spent_on(self.releases(run), delta, neighbours)

    # ------------------------------------------------------------------------------------------------------- the files

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the ledger, and read `_entries` as they are on disk now."""
        if self._path is None:
            with self._lock:
                yield
            return
        with locked(self._path.with_name(f"{self._path.name}.lock")):
            self._read()
            yield

    def _find(self, run: str, exchange: int) -> int | None:
        keys = ((release.run, release.exchange) for release, _ in self._entries)
        return next((index for index, key in enumerate(keys) if key == (run, exchange)), None)

    def _file(self, index: int) -> Path:
        return self._payloads / f"{index + 1:08d}"

    def _add(self, release: Release) -> None:
        """Add a line, then note the new tip; each is forced to disk."""
        values = asdict(release)
        chain = _chain(values, self._last)
        self._entries.append((release, chain))
        if self._path is None:
            return
        with self._path.open("ab") as file:
            os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(json.dumps(values | {"chain": chain}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self._path.parent)
        self._write_tip()

    def _write_tip(self) -> None:
        assert self._path is not None  # noqa: S101 - for type checkers
        known = {"lines": len(self._entries), "chain": self._last, "ledger": [self._path.parent.name, self._path.name]}
        write_atomically(self._tip, json.dumps(known).encode())
        _sync_folder(self._tip.parent)

    @property
    def _last(self) -> str:
        return self._entries[-1][1] if self._entries else START

    def _read(self) -> None:
        """Read all lines, and compare them with the tip; part of a line at the end is dropped."""
        assert self._path is not None  # noqa: S101 - for type checkers
        content = self._path.read_bytes() if self._path.exists() else b""
        self._entries, whole = _parse(content, self._path)
        _check_site(self._entries, self.site, self._path)
        if not _is_guarded(self._entries, self._path, self._tip) and self._entries:
            self._write_tip()
        if len(whole) < len(content):
            write_atomically(self._path, whole)


def ledger_file(folder: str | os.PathLike[str], site: str) -> Path:
    """Return the ledger of a site in a folder with one ledger per site."""
    return Path(folder) / f"{quote(site, safe='')}{SUFFIX}"


def _tip_of(path: Path) -> Path:
    """Return the path of the tip of a ledger: beside the ledger's folder."""
    folder = path.absolute().parent
    return folder.parent / f"{folder.name}.{path.stem}{TIP_SUFFIX}"


def holds_ledgers(folder: Path) -> bool:
    """Tell whether there is a ledger in a folder, or in one below it: such a folder must not be deleted."""
    return folder.is_dir() and any(True for _ in folder.rglob(f"*{SUFFIX}"))


def find_ledgers(path: Path) -> list[Path]:
    """Find the ledgers at a path: a file, a folder with a ledger per site, or the state folder of one or more sites.

    Those of which only the tip is left are among them: to read them says so.
    """
    path = path.absolute()
    if path.suffix == SUFFIX and not path.is_dir():
        return [path]
    found = {path.parent.joinpath(*names) for names in _tips_in(path.parent) if names[0] == path.name}
    if path.is_dir():
        found |= {path.joinpath(*names) for names in _tips_in(path)}
        found |= {file for file in path.iterdir() if file.suffix == SUFFIX}
        found |= {folder / NAME for folder in path.iterdir() if (folder / NAME).is_file()}
    return sorted(found)


def _tips_in(folder: Path) -> Iterator[list[str]]:
    """Folder and file of each ledger whose tip is in a folder; a damaged tip is found when its ledger is read."""
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.suffix == TIP_SUFFIX and file.is_file():
            with suppress(ValueError, TypeError, KeyError, OSError):
                names = json.loads(read_regular(file))["ledger"]
                if [Path(name).name for name in names] == names and len(names) == 2:
                    yield names


def read_ledger(path: Path) -> tuple[list[Release], bool]:
    """Read a ledger and change nothing: its releases, and whether it has a tip to be compared with.

    Raises
    ------
    LedgerError
        If it is damaged, or has less than its tip says.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        content = b""
    entries, _ = _parse(content, path)
    guarded = _is_guarded(entries, path, _tip_of(path))
    if not content and not guarded:
        raise LedgerError(f"There is no ledger {path}.")
    if entries:
        _check_site(entries, entries[0][0].site, path)
    return [release for release, _ in entries], guarded


def spent_on(releases: list[Release], delta: float, neighbours: Neighbours = "replace") -> float:
    """Compute the epsilon that releases have spent together, for neighbours of one kind."""
    return spent([release.multiplier_for(neighbours) for release in releases], delta)


def _parse(content: bytes, path: Path) -> tuple[list[tuple[Release, str]], bytes]:
    """The releases of a ledger with the digest of each line, and its whole lines."""
    whole, end, _ = content.rpartition(b"\n")
    entries: list[tuple[Release, str]] = []
    last = START
    for number, line in enumerate(whole.split(b"\n") if end else [], 1):
        try:
            values = json.loads(line)
            chain = values.pop("chain")
            if chain != _chain(values, last) or set(values) != {field.name for field in fields(Release)}:
                raise ValueError("digest")  # noqa: TRY301
            release = Release(**values)
            check_number(release.multiplier, "multiplier", open_below=True)
            check_neighbours(release.neighbours)
            if not all(isinstance(text, str) for text in (release.site, release.run, release.phase, release.time)):
                raise ValueError("text")  # noqa: TRY301
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise LedgerError(
                f"The ledger {path} is damaged: line {number} is not as it was written. Restore it from a copy."
            ) from error
        entries.append((release, chain))
        last = chain
    return entries, whole + end


def _check_site(entries: list[tuple[Release, str]], site: str, path: Path) -> None:
    for release, _ in entries:
        if release.site != site:
            raise LedgerError(f"The ledger {path} belongs to site {release.site!r}, not to {site!r}.")


def _is_guarded(entries: list[tuple[Release, str]], path: Path, tip: Path) -> bool:
    """Refuse a ledger that has less than it once had; False where there is no tip, and this ledger is the first."""
    try:
        known = json.loads(tip.read_bytes())
        lines, chain = int(known["lines"]), str(known["chain"])
    except FileNotFoundError:
        return False
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(f"The file {tip}, which guards the ledger {path}, is damaged.") from error
    if lines > len(entries) or (lines > 0 and entries[lines - 1][1] != chain):
        raise LedgerError(
            f"The ledger {path} has {len(entries)} lines, and {tip} says that it had {lines}, "
            "or others. It was cut, deleted, or replaced by an older copy; what is missing is spent: restore it."
        )
    return True


def _chain(values: dict[str, Any], previous: str) -> str:
    """Compute a digest of a line and, through that of the line before, of all lines before it."""
    return sha256(f"{previous}\n{json.dumps(values, sort_keys=True)}".encode()).hexdigest()


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
