"""Rounds: the server sends parameters, sites answer with what their protocol says, the server makes better ones."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, ClassVar

from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import FinalModel, FinalParameters, Minimisation
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.sum_rounds import MaskedRounds, NoisyRounds
from fedhk.federation.protocols.base import Protocol, RoundContext, RoundReply, RoundRequest
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site


@dataclass(frozen=True)
class Rounds(Phase[RoundRequest, RoundReply]):
    """Rounds until the objective settles."""

    name: ClassVar[str] = "round"
    request_type: ClassVar[Any] = RoundRequest
    reply_type: ClassVar[Any] = RoundReply

    protocol: Protocol
    context: RoundContext
    max_rounds: int
    tol: float  # relative fall of the objective below which the rounds end; 0 runs all of them

    def request(self, board: Board) -> RoundRequest:
        return self.protocol.resolve(board, self.context.settings).request(board, self.context)

    @staticmethod
    def answer(site: Site, request: RoundRequest) -> RoundReply:
        return request.answer(site)

    def check(self, board: Board, reply: RoundReply, site: str) -> None:
        protocol = self.protocol.resolve(board, self.context.settings)
        if type(reply) is not protocol.reply_type:
            raise MessageError("an answer of another protocol", site)
        protocol.check(board, self.context, reply, site)

    def combine(self, board: Board, replies: Mapping[str, RoundReply]) -> Board:
        protocol = self.protocol.resolve(board, self.context.settings)
        board, better, objective = protocol.combine(board, self.context, replies)
        state, answered = board.get(Minimisation), digest_names(replies)
        progress = state.progress
        # other sites answered than in the last round: objectives of different rows cannot be compared, so the old one
        # is set so high that this round does not count as converged
        if answered != state.answered:
            progress = replace(progress, objective=sys.float_info.max)
        progress = progress.advance(better, objective, max_iter=self.max_rounds, tol=self.tol)
        board = board.put(Minimisation(progress, answered))
        if not progress.stop_reason:
            return board
        model, parameters = protocol.finish(board)
        return board.put(FinalModel(model), FinalParameters(parameters))

    def is_done(self, board: Board, exchanges: int) -> bool:  # noqa: ARG002
        return bool(board.get(Minimisation).progress.stop_reason)

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        self.protocol.as_sums(terms.reason)  # raises where this protocol cannot be sent as sums
        learn = self.context.settings.learn_weights
        if terms.noise is not None:
            return [terms.seal(NoisyRounds(learn, terms.noise))]
        return [terms.seal(MaskedRounds(learn, self.max_rounds, self.tol))]

    def participants(self, board: Board, sites: Sequence[str], participation: Participation, seed: Any) -> list[str]:  # noqa: ARG002
        return participation.draw(sites, seed)


def digest_names(sites: Iterable[str]) -> str:
    """Who answered, in few letters."""
    return sha256("\n".join(sites).encode()).hexdigest()
