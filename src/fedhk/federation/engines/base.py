"""Engines carry messages between the server and the sites; they know nothing of what is in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from fedhk.data.views import Views
from fedhk.federation.board import Shared


class Engine(Protocol):
    """The way to the sites."""

    def sites(self) -> Sequence[str]:
        """Names of the sites that can be asked now; it may change between exchanges."""

    def exchange(self, requests: Mapping[str, bytes]) -> dict[str, bytes | Exception]:
        """Send each site its request; what came back, or why nothing did. A site that is left out did not answer."""

    def close(self) -> None:
        """Free threads or connections."""


class RemoteEngine(Engine, Protocol):
    """The way to sites that have their own rows: what `engine` of an estimator takes."""

    def describe(self) -> dict[str, Views]:
        """Wait for the sites; their views, without rows."""

    def begin(self, timeout: float | None) -> Sequence[Shared]:
        """Prepare a run: what every site must be told of it first."""
