"""What a site has released, on disk before it leaves the site.

A line is written for every release, and nothing that was written is ever counted as not spent. What was sent is kept
with it: a retry sends the same numbers again and spends nothing, where new noise on the same data would spend again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from fedhk.data.checks import check_count, check_number
from fedhk.privacy import accounting
from fedhk.privacy.ledger_store import Folder, LedgerError, Memory, Release, Store

__all__ = ["Ledger", "LedgerError", "Release"]


class Ledger:
    """Releases of one site, in the order in which they were made; lines are added and never changed.

    Parameters
    ----------
    path : path-like or None
        File with one JSON object per line. What was sent is kept beside it, in a folder of the same name followed by
        ``.payloads``. None keeps everything in memory, for simulations.
    site : str
        The site whose releases these are.
    clock : callable, default=time.time
        Seconds since 1970.

    Raises
    ------
    LedgerError
        If the file is of another site, or is damaged in a way that no interrupted write explains.

    Notes
    -----
    A release is written to its own file first and to the ledger second, each forced to disk. A process that is killed
    in between leaves a release that is not in the ledger, or half a line; the next use finds the release, completes the
    line and counts it as spent, though it may never have been sent. Every line has a digest of all lines before it, so
    a changed or removed line is noticed. Several processes may use a ledger at once: each use reads the file anew,
    under a lock (not on Windows).
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, site: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.site = site
        self._clock = clock
        self._store: Store = Memory() if path is None else Folder(Path(path), site)
        with self._store.locked():
            self._store.releases()

    def record(
        self, *, run: str, exchange: int, phase: str, multiplier: float, sensitivity: float, payload: bytes
    ) -> bytes:
        """Record a release; return what to send, once it is on disk.

        Parameters
        ----------
        run : str
            The run.
        exchange : int
            The exchange within the run.
        phase : str
            What the exchange is for.
        multiplier : float
            Standard deviation of the noise over the sensitivity; above 0 and finite.
        sensitivity : float
            L2 sensitivity of what is released.
        payload : bytes
            The message, with its noise.

        Returns
        -------
        bytes
            The payload; or the one that was recorded before for the same run and exchange, which must be sent instead.

        Raises
        ------
        LedgerError
            If another phase, multiplier or sensitivity was recorded for the same run and exchange.
        """
        release = Release(
            self.site,
            run,
            check_count(exchange, "exchange", minimum=0),
            phase,
            check_number(multiplier, "multiplier", open_below=True),
            check_number(sensitivity, "sensitivity"),
            sha256(payload).hexdigest(),
            datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds"),
        )
        with self._store.locked():
            releases = self._store.releases()
            index = _find(releases, release.key)
            if index is None:
                self._store.add(release, payload)
                return payload
            _check_same(releases[index], release)
            return self._store.payload(index)

    def payload(self, run: str, exchange: int) -> bytes | None:
        """What was sent in an exchange, to be sent again; None if nothing was.

        Raises
        ------
        LedgerError
            If something was sent but is no longer there as it was: new noise must not take its place.
        """
        with self._store.locked():
            index = _find(self._store.releases(), (run, exchange))
            return None if index is None else self._store.payload(index)

    def releases(self, run: str | None = None) -> list[Release]:
        """Releases of one run, or of all."""
        with self._store.locked():
            return [release for release in self._store.releases() if run is None or release.run == run]

    def multipliers(self, run: str | None = None) -> list[float]:
        """Noise multipliers of the releases of one run, or of all."""
        return [release.multiplier for release in self.releases(run)]

    def spent(self, run: str | None, delta: float) -> float:
        """Epsilon that the releases of one run, or of all, have spent together at a given delta."""
        return accounting.spent(self.multipliers(run), delta)


def _find(releases: Sequence[Release], key: tuple[str, int]) -> int | None:
    return next((index for index, release in enumerate(releases) if release.key == key), None)


def _check_same(there: Release, here: Release) -> None:
    different = [
        f"{name}={getattr(there, name)!r} there, {getattr(here, name)!r} here"
        for name in ("phase", "multiplier", "sensitivity")
        if getattr(there, name) != getattr(here, name)
    ]
    if different:
        raise LedgerError(
            f"Run {there.run!r}, exchange {there.exchange}, was recorded with other values: {'; '.join(different)}."
        )
