"""Several phases in one exchange, where none of them needs what another finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import GenericAlias
from typing import Any

from fedhk.federation.board import Board
from fedhk.federation.phases.base import Phase, phase_named
from fedhk.federation.site import Site

# Separator of the names of the phases.
AND = "+"


@dataclass(frozen=True)
class Together(Phase[Any, Any]):
    """Sends the requests of several phases in one exchange. None of them may need what another publishes.

    At a site, `phases` are classes and not objects, because a site does not know the server's settings.
    """

    phases: Sequence[Any]

    @classmethod
    def named(cls, kind: str) -> Together:
        """Make the site's end of the phases that a kind of message names."""
        return cls(tuple(map(phase_named, kind.split(AND))))

    @property
    def name(self) -> str:  # type: ignore[override]
        """Kind of its messages."""
        return AND.join(map(attrgetter("name"), self.phases))

    @property
    def request_type(self) -> Any:
        """Type of the request, for the codec."""
        return GenericAlias(tuple, tuple(map(attrgetter("request_type"), self.phases)))

    @property
    def reply_type(self) -> Any:
        """Type of the reply, for the codec."""
        return GenericAlias(tuple, tuple(map(attrgetter("reply_type"), self.phases)))

    def begin(self, board: Board) -> Board:
        for phase in self.phases:
            board = phase.begin(board)
        return board

    def request(self, board: Board) -> tuple[Any, ...]:
        return tuple([phase.request(board) for phase in self.phases])

    def answer(self, site: Site, request: tuple[Any, ...]) -> tuple[Any, ...]:  # type: ignore[override]
        return tuple([phase.answer(site, part) for phase, part in zip(self.phases, request, strict=True)])

    def check(self, board: Board, reply: tuple[Any, ...], site: str) -> None:
        for phase, part in zip(self.phases, reply, strict=True):
            phase.check(board, part, site)

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[Board, dict[str, Any], dict[str, str]]:
        refused: dict[str, str] = {}
        for number, phase in enumerate(self.phases):
            board, _, others = phase.select(board, {site: reply[number] for site, reply in replies.items()})
            refused |= others
        return board, {site: reply for site, reply in replies.items() if site not in refused}, refused

    def combine(self, board: Board, replies: Mapping[str, tuple[Any, ...]]) -> Board:
        for number, phase in enumerate(self.phases):
            board = phase.combine(board, {site: reply[number] for site, reply in replies.items()})
        return board

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [sealed for phase in self.phases for sealed in phase.sealed(terms)]
