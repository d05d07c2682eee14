"""The interface of all protocols. A protocol says what a round sends, and has both ends of a round in one file."""

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
    """The request of a round. A subclass has the parameters of the round, and computes the site's reply."""

    @abstractmethod
    def answer(self, site: Site) -> RoundReply:
        """Site: compute the reply."""


@dataclass(frozen=True, eq=False)
class RoundReply:
    """The reply of a site in a round."""

    @staticmethod
    def add(replies: Sequence[Any]) -> RoundReply:
        """Relay: add up replies, where the protocol `adds`."""
        raise MessageError(NOT_ADDED)


@dataclass(frozen=True)
class RoundContext:
    """What is the same in all rounds of a run: the settings of the model, and the aggregator."""

    settings: Settings
    aggregator: Aggregator


class Protocol(Option, ABC):
    """How a round is carried out. A protocol has no state: everything is on the boards.

    A subclass says what its sites answer (`reply_type`); any other answer is refused.
    """

    reply_type: ClassVar[type[RoundReply]]

    descends: ClassVar[bool] = False
    """Whether a round never raises the objective, apart from rounding."""

    @property
    def adds(self) -> bool:
        """Tell whether replies are sums over rows of which only the total matters."""
        return False

    @property
    def is_exact(self) -> bool:
        """Tell whether numbers are sent in double precision."""
        return True

    @property
    def in_basis(self) -> bool:
        """Tell whether sums are certainly sent in a basis of few directions."""
        return False

    @property
    def candidate_precision(self) -> str:
        """Precision in which candidates for the start are sent."""
        return "double"

    def resolve(self, board: Board, settings: Settings) -> Protocol:
        """Server: return the protocol with the options decided that depend on the views."""
        return self

    def decide(self, settings: Settings, widths: Sequence[int], names: Sequence[str]) -> Protocol:
        """Server: return the protocol with the options decided that depend on the widths of the views."""
        return self

    def as_sums(self, reason: str) -> Protocol:
        """Return the protocol that sends sums alone, for runs with noise or masks; raise ValueError if there is none.

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
        """Return how sites make their own models: as given to the estimator, unless the rounds already make them."""
        return given

    def begin(self, board: Board, settings: Settings, start: Parameters, rows: Rows | None) -> Board:
        """Server: return the board of the first round; `rows` are the candidates that the start came from, if any."""
        return board.put(Minimisation(Progress(start)))

    @abstractmethod
    def request(self, board: Board, context: RoundContext) -> RoundRequest:
        """Server: make the request of a round."""

    @abstractmethod
    def check(self, board: Board, context: RoundContext, reply: Any, site: str) -> None:
        """Server: raise MessageError for a reply that no rows can give."""

    @abstractmethod
    def combine(
        self, board: Board, context: RoundContext, replies: Mapping[str, Any]
    ) -> tuple[Board, Parameters, float]:
        """Server: return the board, perhaps with a new basis, better parameters, and the objective at the old ones."""

    def finish(self, board: Board) -> tuple[Broadcast, Parameters]:
        """Server: return the final parameters as they are sent to sites, and the same in features."""
        parameters = board.get(Minimisation).parameters
        return Broadcast.of(parameters), parameters
