"""Greeting: a site names its FedHK version and its views before it takes part in any run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fedhk._version import __version__
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.describe import ViewDescription, check_descriptions, describe_views
from fedhk.federation.site import Site


@dataclass(frozen=True)
class Greeting:
    """Ask a node which site it is; `version` is that of the server's FedHK.

    With `held_out`, a site also names the views that clustering did not see and that its policy lets questions read.
    """

    version: str
    held_out: bool = False


@dataclass(frozen=True)
class Introduction:
    """How a site introduces itself, without any number from its rows."""

    version: str  # of its FedHK
    dtype: Literal["float32", "float64"]
    views: tuple[ViewDescription, ...]


@dataclass(frozen=True)
class Greet(Phase[Greeting, Introduction]):
    """Names, versions and views of the sites. Engines exchange it with every new node, outside of runs."""

    name: ClassVar[str] = "hello"

    held_out: bool = False

    def request(self, board: Board) -> Greeting:
        return Greeting(__version__, self.held_out)

    @staticmethod
    def answer(site: Site, request: Greeting) -> Introduction:
        check_version(request.version, "the coordinator", site.name)
        dtype: Any = site.views.dtype.name
        return Introduction(__version__, dtype, describe_views(site.views))

    def check(self, board: Board, reply: Introduction, site: str) -> None:
        check_version(reply.version, f"site {site!r}", site)
        check_descriptions(reply.views, site)

    def combine(self, board: Board, replies: Mapping[str, Introduction]) -> Board:
        return board


def check_version(found: str, whose: str, site: str | None) -> None:
    """Refuse another version of FedHK: messages of different versions need not be compatible."""
    if found != __version__:
        raise MessageError(f"{whose} runs FedHK {found[:50]!r}, this side {__version__!r}: use one version", site)
