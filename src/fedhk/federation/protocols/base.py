"""The interface of all protocols: values that say what a round sends, with both ends of a round in one file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedhk._options import Option
from fedhk.errors import MessageError
from fedhk.federation.aggregators import Aggregator
from fedhk.federation.board import Board
from fedhk.federation.entries import Broadcast, Minimisation
from fedhk.federation.several import NOT_ADDED
from fedhk.federation.site import Site
from fedhk.model.descent import Progress
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.personal.options import Personal
from fedhk.starts.settings import Settings


@dataclass(frozen=True, eq=False)
class RoundRequest(ABC):
    """What a site is asked in a round; a subclass has the parameters of the round, and the site's end."""

    @abstractmethod
    def answer(self, site: Site) -> RoundReply:
        """Site: the answer."""


@dataclass(frozen=True, eq=False)
class RoundReply:
    """What a site answers in a round."""

    @staticmethod
    def add(replies: Sequence[Any]) -> RoundReply:
        """Relay: one answer in place of several, where the protocol `adds`."""
        raise MessageError(NOT_ADDED)


@dataclass(frozen=True)
class RoundContext:
    """What holds for all rounds of a run: the model that was chosen, and how answers are brought together."""

    settings: Settings
    aggregator: Aggregator


class Protocol(Option, ABC):
    """How a round is done. It keeps no state of its own: the boards hold everything.

    A subclass says what its sites answer (`reply_type`); any other answer is refused.
    """

    reply_type: ClassVar[type[RoundReply]]

    descends: ClassVar[bool] = False
    """Whether a round cannot raise the objective, but for rounding."""

    @property
    def adds(self) -> bool:
        """Whether answers are sums over rows, of which only the total counts."""
        return False

    @property
    def is_exact(self) -> bool:
        """Whether numbers travel as they are, without rounding."""
        return True

    @property
    def in_basis(self) -> bool:
        """Whether sums are surely sent in a basis of few directions."""
        return False

    @property
    def candidate_precision(self) -> str:
        """What candidates for the start are rounded to on their way."""
        return "double"

    def resolve(self, board: Board, settings: Settings) -> Protocol:
        """Server: the protocol with whatever is left to the views decided."""
        return self

    def decide(self, settings: Settings, widths: Sequence[int], names: Sequence[str]) -> Protocol:
        """Server: the protocol with what is left to the views decided, from their widths alone."""
        return self

    def as_sums(self, reason: str) -> Protocol:
        """The protocol that sends sums alone, for runs with noise or masks; refuses where there is none.

        Parameters
        ----------
        reason : str
            The parameter that asks for it.
        """
        raise ValueError(
            f"{reason} needs protocol='statistics', got {self!r}: after local passes one row can change centres "
            "without bound, and they are not sums."
        )

    def check_settings(self, settings: Settings) -> None:
        """Refuse options that have no effect with these settings."""

    def check_sites(self, names: Sequence[str]) -> None:
        """Refuse options for sites that are not among `names`."""

    def choose_personal(self, given: Personal) -> Personal:
        """How sites make their own models: as the estimator was given, unless the rounds make them."""
        return given

    def begin(self, board: Board, settings: Settings, start: Parameters, rows: Rows | None) -> Board:
        """Server: the board of the first round; `rows` are the candidates that the start was chosen on, if any."""
        return board.put(Minimisation(Progress(start)))

    @abstractmethod
    def request(self, board: Board, context: RoundContext) -> RoundRequest:
        """Server: what sites are asked."""

    @abstractmethod
    def check(self, board: Board, context: RoundContext, reply: Any, site: str) -> None:
        """Server: refuse an answer that no rows can give."""

    @abstractmethod
    def combine(
        self, board: Board, context: RoundContext, replies: Mapping[str, Any]
    ) -> tuple[Board, Parameters, float]:
        """Server: better parameters, and the objective at the old ones; the board may get another basis."""

    def finish(self, board: Board) -> tuple[Broadcast, Parameters]:
        """Server: the final parameters as sites are sent them, and in features; both are the same model."""
        parameters = board.get(Minimisation).parameters
        return Broadcast.of(parameters), parameters
