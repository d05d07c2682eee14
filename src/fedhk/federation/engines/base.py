"""Engines carry messages between the server and the sites. They do not read their content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fedhk.data.views import Views
from fedhk.federation.board import Shared


class Engine(Protocol):
    """Carries messages to the sites."""

    def sites(self) -> Sequence[str]:
        """Return the names of the sites that can be asked now; they may change between exchanges."""

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Exception]:
        """Send each site its request; return the reply of each site, or an exception that says why there is none."""

    def close(self) -> None:
        """Free threads or connections."""


class RemoteEngine(Engine, Protocol):
    """Carries messages to sites that have their own rows. An estimator takes it as `engine`."""

    def describe(self) -> dict[str, Views]:
        """Wait for the sites, and return their views, without rows."""

    def begin(self, timeout: float | None) -> Sequence[Shared]:
        """Prepare a run, and return the entries that sites must have first."""

    def for_questions(self, *, held_out: bool) -> RemoteEngine:
        """Return an engine to the same sites for a question after a fit; they also name views that were held out."""
