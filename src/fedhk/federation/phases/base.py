"""The interface of all phases. A phase is one exchange between the server and its sites, with both ends in one file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import add
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry
from fedhk.federation.codec import subclasses
from fedhk.federation.participation import Participation
from fedhk.federation.several import NOT_ADDED, check_addable
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.privacy.fixed_point import WORDS
from fedhk.privacy.sensitivity import Neighbours

Request = TypeVar("Request")
Reply = TypeVar("Reply")

# Refusal of a sum with noise that states no sensitivity.
UNSTATED = Rule("this sum has no stated sensitivity, so it never leaves a site with noise")


class Phase(ABC, Generic[Request, Reply]):
    """One exchange: the server's request, the site's reply from its rows, and how the server combines the replies.

    A subclass has a `name`, states the types of request and reply in its base class (`Phase[Request, Reply]`, both
    dataclasses that the codec reads and writes), and implements the four methods below. Its fields are settings of the
    server. `answer` runs at the site and is a static method, because a site does not know these settings: it has its
    rows, its board and the request. A phase of several exchanges overrides `is_done`.
    """

    name: ClassVar[str]
    questions: ClassVar[tuple[str, ...]] = ()
    """Questions after a fit that it is a part of, where sites on other machines may be asked it; () for all others."""
    request_type: ClassVar[Any] = Request  # type: ignore[misc]
    reply_type: ClassVar[Any] = Reply  # type: ignore[misc]

    def __init_subclass__(cls, **options: Any) -> None:
        """Read the types of request and reply from the base class."""
        super().__init_subclass__(**options)
        for base in cls.__dict__.get("__orig_bases__", ()):
            given = dict(zip(getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False))
            for kind in {"request_type", "reply_type"} - cls.__dict__.keys():
                setattr(cls, kind, given.get(getattr(cls, kind), getattr(cls, kind)))
        if isinstance(cls.__dict__.get("name"), str) and TypeVar in map(type, (cls.request_type, cls.reply_type)):
            raise TypeError(
                f"{cls.__name__} does not say what travels: derive it from Phase[Request, Reply] or SumPhase[Request], "
                "with Nothing for a request or reply without words."
            )

    # ------------------------------------------------------------------------------------------------- the four methods

    def request(self, board: Board) -> Request:
        """Server: make the request; an empty one, unless a phase overrides this."""
        asked: Request = self.request_type()
        return asked

    @staticmethod
    @abstractmethod
    def answer(site: Site, request: Any) -> Any:
        """Site: compute the reply from its rows and its copy of the board."""

    @abstractmethod
    def check(self, board: Board, reply: Reply, site: str) -> None:
        """Server: raise MessageError for a reply that no rows can give."""

    @abstractmethod
    def combine(self, board: Board, replies: Mapping[str, Reply]) -> Board:
        """Server: return the board with the result of the replies, which are sorted by site."""

    # --------------------------------------------------------------------------------- methods that have a good default

    def begin(self, board: Board) -> Board:
        """Server: return the board before the first request of this phase."""
        return board

    def is_done(self, board: Board, exchanges: int) -> bool:
        """Server: tell whether this phase is over after so many of its exchanges."""
        return exchanges > 0

    def participants(self, board: Board, sites: Sequence[str], participation: Participation, seed: Any) -> list[str]:
        """Server: choose the sites to ask, sorted."""
        return sorted(sites)

    def requests(self, board: Board, sites: Sequence[str]) -> dict[str, Request]:
        """Server: make the request of each site: the same for all, except under masks."""
        common = self.request(board)
        return dict.fromkeys(sites, common)

    def select(self, board: Board, replies: dict[str, Reply]) -> tuple[Board, dict[str, Reply], dict[str, str]]:
        """Server: look at all replies before they are combined, and leave some out.

        Returns the board with what replies say of single sites, the replies to combine, and for the others the reason
        why they are left out.
        """
        return board, replies, {}

    def kept(self, replies: Mapping[str, Reply]) -> dict[str, list[type[Entry]]]:
        """Server: say which entries of the board after `combine` sites have without having been sent them."""
        return {}

    def adds(self, board: Board) -> bool:
        """Server: tell whether replies are sums of which only the total matters, so that sites may answer as one.

        Then the reply from the pooled rows of several sites must equal the sum of their replies, as made by `add`.
        """
        return False

    @staticmethod
    def add(replies: Sequence[Any]) -> Any:
        """Relay: add up replies, in a phase that `adds`; raise MessageError where they do not add."""
        raise MessageError(NOT_ADDED)

    def resume(self, board: Board) -> Board:
        """Server: return the board of an interrupted run as this phase continues from it."""
        return board

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        """Server: return the phases that do the same with sums alone, for runs with noise or masks; raise if none do.

        Parameters
        ----------
        terms : fedhk.federation.sealed.SealedTerms
            The budget, the masks, or both.
        """
        raise ValueError(
            f"phase {self.name!r} sends what is not a sum over rows with a stated sensitivity, so it cannot go with "
            "privacy or secure=True."
        )


@dataclass(frozen=True)
class Nothing:
    """An empty request or reply."""


class ServerPhase(Phase[Nothing, Nothing]):
    """A phase without any exchange: a subclass computes something from the board, in `begin`."""

    @abstractmethod
    def begin(self, board: Board) -> Board:
        """Server: return the board with the result."""

    def is_done(self, board: Board, exchanges: int) -> bool:
        return True

    @staticmethod
    def answer(site: Site, request: Nothing) -> Nothing:
        return Nothing()

    def check(self, board: Board, reply: Nothing, site: str) -> None:
        """Do nothing: there are no replies."""

    def combine(self, board: Board, replies: Mapping[str, Nothing]) -> Board:
        return board


@dataclass(frozen=True, eq=False)
class Sum:
    """A vector that adds over sites."""

    values: FloatArray


class SumPhase(Phase[Request, Sum]):
    """A phase whose reply is one vector, a sum over rows. Such phases can be sealed.

    A subclass computes a site's `vector`, states its length (`size`), and makes use of the total (`take`). If it also
    states the `sensitivity`, the vector may be sent with noise.
    """

    unbounded: ClassVar[str] = "nobody has stated what one row can change in its sum."
    """Reason why a phase states no sensitivity."""
    with_noise: ClassVar[bool] = True
    """Whether runs with noise include this phase; if not, they do without its result."""
    acute: ClassVar[bool] = False
    """Whether the vectors of two sites are never more than a right angle apart, whatever their rows."""
    counts: ClassVar[bool] = False
    """Whether all numbers are counts, that is whole numbers."""

    @abstractmethod
    def size(self, board: Board) -> int:
        """Server: return the length of the vector."""

    @staticmethod
    @abstractmethod
    def vector(site: Site, request: Any) -> FloatArray:
        """Site: compute its vector, one term of the sum."""

    @staticmethod
    def sensitivity(request: Any, size: int, neighbours: Neighbours) -> float:
        """Both ends: bound how far the vector moves when one row is replaced or left out, whatever the rows.

        `size` is the length of the vector that the site is about to send, known from its own tables and not from the
        server. Raises MessageError for a request with which a row could add more than is stated.
        """
        raise MessageError(UNSTATED)

    @abstractmethod
    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        """Server: return the board with the result of the total; `noise` is the standard deviation in each number."""

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        """Server: raise MessageError for a vector, sent in the open, that no rows can give."""

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        """Server: combine vectors sent in the open; by default their sum."""
        return np.asarray(reduce(add, vectors), np.float64)

    def note_sites(self, board: Board, sites: Sequence[str]) -> Board:
        """Server: return the board before `take`, for phases that need to know whose vectors are in the total."""
        return board

    def grid(self, board: Board) -> float | None:
        """Server: return the step of the grid under masks without noise; None makes it as fine as rows allow."""
        return 1.0 if self.counts else None

    def word(self, board: Board) -> int:
        """Server: return the bytes of a number under masks without noise; below 8, the `grid` must fit any total."""
        return max(WORDS)

    @classmethod
    def answer(cls, site: Site, request: Any) -> Sum:
        return Sum(cls.vector(site, request))

    @staticmethod
    def add(replies: Sequence[Sum]) -> Sum:
        vectors = [reply.values for reply in replies]
        check_addable(vectors)
        return Sum(reduce(add, vectors))

    def check(self, board: Board, reply: Sum, site: str) -> None:
        check_array(reply.values, (self.size(board),), site, "sums")
        self.check_vector(board, np.asarray(reply.values, np.float64), site)

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return [terms.seal(self)] if self.with_noise or terms.noise is None else []

    def combine(self, board: Board, replies: Mapping[str, Sum]) -> Board:
        total = self.total(board, [np.asarray(reply.values, np.float64) for reply in replies.values()])
        return self.take(self.note_sites(board, list(replies)), total, 0.0)


@cache
def phase_named(name: str) -> type[Phase[Any, Any]]:
    """Find a phase by the kind of its messages."""
    for phase in subclasses(Phase):
        if phase.__dict__.get("name") == name:
            return phase
    raise MessageError(f"the server asks for {name[:50]!r}, which this FedHK does not know")
