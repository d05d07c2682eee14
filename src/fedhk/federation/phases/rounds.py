"""Rounds: the server sends parameters, sites reply as the protocol says, and the server improves the parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, ClassVar

from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import Basis, FinalModel, FinalParameters, Minimisation, Population
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase
from fedhk.federation.phases.sum_rounds import MaskedMoves, MaskedRounds, NoisyMoves, NoisyRounds
from fedhk.federation.protocols.base import Protocol, RoundContext, RoundReply, RoundRequest
from fedhk.federation.protocols.statistics import BasisStatistics
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.several import NOT_ADDED, list_sites
from fedhk.federation.site import Site
from fedhk.model.parameters import Parameters

# Rounds in a row in which the objective must hardly change, if a round may raise it. One is not enough: between a fall
# and a rise it hardly changes either.
SETTLE_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Best(Entry):
    """The parameters with the lowest objective so far, and the basis of their coordinates, if any."""

    parameters: Parameters
    bases: tuple[Basis, ...]

    @classmethod
    def of(cls, board: Board) -> Best:
        """Take the parameters of the current round."""
        return cls(board.get(Minimisation).parameters, tuple(board.find(Basis)))

    def put_back(self, board: Board) -> Board:
        """Return the board with these parameters as those of the next round."""
        state = board.get(Minimisation)
        board = board.put(replace(state, progress=replace(state.progress, parameters=self.parameters)))
        current = tuple(board.find(Basis))
        return board.put(*(basis for basis in self.bases if all(basis is not other for other in current)))


@dataclass(frozen=True)
class Rounds(Phase[RoundRequest, RoundReply]):
    """Repeat rounds until the objective converges.

    Where a round may raise the objective, the rounds end with the best parameters that they had. If they end before the
    objective settled, one more exchange tells how good the parameters are that the last round made.
    """

    name: ClassVar[str] = "round"

    protocol: Protocol
    context: RoundContext
    max_rounds: int
    tol: float  # change of the objective below which the rounds end, as a share of it; 0 runs all of them
    per_row: bool = False  # whether `tol` is the change for each row instead

    def request(self, board: Board) -> RoundRequest:
        return self._resolve(board).request(board, self.context)

    @staticmethod
    def answer(site: Site, request: RoundRequest) -> RoundReply:
        return request.answer(site)

    def adds(self, board: Board) -> bool:
        return self.context.aggregator.adds and self._resolve(board).adds

    @staticmethod
    def add(replies: Sequence[RoundReply]) -> RoundReply:
        if len(set(map(type, replies))) > 1:
            raise MessageError(NOT_ADDED)
        return replies[0].add(replies)

    def check(self, board: Board, reply: RoundReply, site: str) -> None:
        protocol = self._resolve(board)
        if type(reply) is not protocol.reply_type:
            raise MessageError("an answer of another protocol", site)
        protocol.check(board, self.context, reply, site)

    def combine(self, board: Board, replies: Mapping[str, RoundReply]) -> Board:
        state, answered, protocol = board.get(Minimisation), digest_names(replies), self._resolve(board)
        same_sites = answered == state.answered
        found, better, objective = protocol.combine(board, self.context, replies)
        if state.progress.stop_reason:  # the rounds have ended: this exchange only measures what the last one made
            is_worse = same_sites and objective > state.progress.lowest
            return self._finish(self._take_best(board) if is_worse else board)
        descends = protocol.descends and self.context.aggregator.descends
        may_rise = not (descends and protocol.is_exact and all(entry.descends for entry in found.find(RowEntry)))
        # objectives of rows of other sites cannot be compared
        before = state.progress if same_sites else state.progress.forget()
        progress = before.advance(
            better,
            objective,
            max_iter=self.max_rounds,
            tol=self.tol,
            rows=found.get(Population).rows if self.per_row else None,
            may_rise=may_rise,
            settle=1 if descends else SETTLE_ROUNDS,
            unit="round",
        )
        after = found.put(Minimisation(progress, answered))
        if may_rise and progress.lowest_at == progress.iteration:
            after = after.put(Best.of(board))
        if not progress.stop_reason:
            return after
        if not may_rise:
            return self._finish(after)
        if progress.converged or progress.iteration < self.max_rounds:
            return self._finish(self._take_best(after))
        # the last parameters may be better than all before, or worse: one more exchange measures them, if it can
        return after if same_sites or progress.iteration == 1 else self._finish(after)

    def _take_best(self, board: Board) -> Board:
        """Return the board with the best parameters so far, and a stop reason that says so."""
        board = board.get(Best).put_back(board)
        state = board.get(Minimisation)
        return board.put(replace(state, progress=state.progress.keep_best("round")))

    def _finish(self, board: Board) -> Board:
        """Return the board with the current parameters as the final ones, which ends the phase."""
        model, parameters = self._resolve(board).finish(board)
        return board.put(FinalModel(model), FinalParameters(parameters)).drop(Best)

    def _resolve(self, board: Board) -> Protocol:
        """Return the protocol with the options decided that depend on the views."""
        return self.protocol.resolve(board, self.context.settings)

    def is_done(self, board: Board, exchanges: int) -> bool:
        return board.has(FinalModel)

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        protocol = self.protocol.as_sums(terms.reason)  # raises where this protocol cannot be sent as sums
        settings = self.context.settings
        learn, form = settings.learn_weights, settings.form
        if isinstance(protocol, BasisStatistics):
            if terms.noise is not None:
                return [terms.seal(NoisyMoves(learn, form, terms.noise, self.max_rounds, protocol))]
            return [terms.seal(MaskedMoves(learn, form, self.max_rounds, self.tol, protocol))]
        if terms.noise is not None:
            return [terms.seal(NoisyRounds(learn, form, terms.noise, self.max_rounds))]
        return [terms.seal(MaskedRounds(learn, form, self.max_rounds, self.tol, per_row=self.per_row))]

    def participants(self, board: Board, sites: Sequence[str], participation: Participation, seed: Any) -> list[str]:
        return participation.draw(sites, seed)


def digest_names(sites: Iterable[str]) -> str:
    """Return a short digest of the sites that replied."""
    return sha256("\n".join(list_sites(sites)).encode()).hexdigest()
