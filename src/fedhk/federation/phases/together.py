"""Several phases in one exchange, where none of them needs what another finds: fewer exchanges, the same answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import GenericAlias
from typing import Any

from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.phases.base import Phase, phase_named
from fedhk.federation.site import Site

# Between the names of the phases that go together.
AND = "+"


@dataclass(frozen=True)
class TogetherEnd:
    """A site's end of several phases in one exchange."""

    phases: tuple[type[Phase[Any, Any]], ...]
    request_type: Any
    reply_type: Any

    @classmethod
    def named(cls, kind: str) -> TogetherEnd:
        """The phases that a message of this kind is of."""
        phases = tuple(map(phase_named, kind.split(AND)))
        requests, replies = zip(*[(phase.request_type, phase.reply_type) for phase in phases], strict=True)
        return cls(phases, GenericAlias(tuple, requests), GenericAlias(tuple, replies))

    def answer(self, site: Site, requests: tuple[Any, ...]) -> tuple[Any, ...]:
        """The answers, one after the other."""
        return tuple([phase.answer(site, request) for phase, request in zip(self.phases, requests, strict=True)])


@dataclass(frozen=True)
class Together(Phase[Any, Any]):
    """Several phases in one exchange: phases of one exchange each, of which none needs what another publishes."""

    phases: Sequence[Phase[Any, Any]]

    @property
    def name(self) -> str:  # type: ignore[override]
        """The kind of its messages."""
        return AND.join([phase.name for phase in self.phases])

    @property
    def request_type(self) -> Any:
        """What is asked, for the codec."""
        return TogetherEnd.named(self.name).request_type

    @property
    def reply_type(self) -> Any:
        """What is answered, for the codec."""
        return TogetherEnd.named(self.name).reply_type

    def begin(self, board: Board) -> Board:
        for phase in self.phases:
            board = phase.begin(board)
        return board

    def request(self, board: Board) -> tuple[Any, ...]:
        return tuple([phase.request(board) for phase in self.phases])

    @staticmethod
    def answer(site: Site, request: Any) -> Any:  # noqa: ARG004
        raise MessageError("phases that go together are answered one by one")

    def check(self, board: Board, reply: tuple[Any, ...], site: str) -> None:
        for phase, part in zip(self.phases, reply, strict=True):
            phase.check(board, part, site)

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        refused: dict[str, str] = {}
        for number, phase in enumerate(self.phases):
            refused |= phase.select(board, {site: reply[number] for site, reply in replies.items()})[1]
        return {site: reply for site, reply in replies.items() if site not in refused}, refused

    def combine(self, board: Board, replies: Mapping[str, tuple[Any, ...]]) -> Board:
        for number, phase in enumerate(self.phases):
            board = phase.combine(board, {site: reply[number] for site, reply in replies.items()})
        return board

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [sealed for phase in self.phases for sealed in phase.sealed(terms)]
