"""The interface of all phases: one exchange between the server and its sites, both ends in one file."""

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
from fedhk.federation.board import Board
from fedhk.federation.codec import subclasses
from fedhk.federation.participation import Participation
from fedhk.federation.several import NOT_ADDED, check_addable
from fedhk.federation.site import Site
from fedhk.federation.table import check_array
from fedhk.privacy.fixed_point import WORDS
from fedhk.privacy.sensitivity import Neighbours

Request = TypeVar("Request")
Reply = TypeVar("Reply")

# What a site says to a sum of which nobody has said what one row can change.
UNSTATED = Rule("this sum has no stated sensitivity, so it never leaves a site with noise")


class Phase(ABC, Generic[Request, Reply]):
    """One exchange: what every site is asked, what it answers from its rows, and what the server makes of the answers.

    A subclass names itself (`name`), says in its base class what travels (`Phase[Request, Reply]`, dataclasses that the
    codec reads and writes), and has the four methods below. Its own fields are settings of the server; the site's end,
    `answer`, is a static method, because a site has nothing but its rows, its board and the request. Many phases are
    one exchange; one that takes several overrides `is_done`.
    """

    name: ClassVar[str]
    request_type: ClassVar[Any] = Request  # type: ignore[misc]
    reply_type: ClassVar[Any] = Reply  # type: ignore[misc]

    def __init_subclass__(cls, **options: Any) -> None:
        """Read from the base class what travels."""
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
        """Server: what every site is asked; that it is asked says all, unless a phase overrides it."""
        asked: Request = self.request_type()
        return asked

    @staticmethod
    @abstractmethod
    def answer(site: Site, request: Any) -> Any:
        """Site: the answer, from its rows and its copy of the board."""

    @abstractmethod
    def check(self, board: Board, reply: Reply, site: str) -> None:
        """Server: refuse, by MessageError, an answer that no rows can give."""

    @abstractmethod
    def combine(self, board: Board, replies: Mapping[str, Reply]) -> Board:
        """Server: publish what the answers come to; they are in the order of site names."""

    # ------------------------------------------------------------------------------------------ what most do not change

    def begin(self, board: Board) -> Board:
        """Server: the board before the first request of this phase."""
        return board

    def is_done(self, board: Board, exchanges: int) -> bool:
        """Server: whether this phase is over, after so many exchanges of it."""
        return exchanges > 0

    def participants(self, board: Board, sites: Sequence[str], participation: Participation, seed: Any) -> list[str]:
        """Server: the sites that are asked, in the order of their names."""
        return sorted(sites)

    def requests(self, board: Board, sites: Sequence[str]) -> dict[str, Request]:
        """Server: what each site is asked: the same, but where every site has a secret of its own."""
        common = self.request(board)
        return dict.fromkeys(sites, common)

    def select(self, board: Board, replies: dict[str, Reply]) -> tuple[Board, dict[str, Reply], dict[str, str]]:
        """Server: the board with what answers say of single sites; those that go together; why others do not."""
        return board, replies, {}

    def adds(self, board: Board) -> bool:
        """Server: whether answers are sums over rows of which only the total counts, so that sites may answer as one.

        Then the answer from the rows of several sites together is the sum of theirs, which `add` makes.
        """
        return False

    @staticmethod
    def add(replies: Sequence[Any]) -> Any:
        """Relay: one answer in place of several, in a phase that `adds`; MessageError for what does not add."""
        raise MessageError(NOT_ADDED)

    def resume(self, board: Board) -> Board:
        """Server: the board of an interrupted run, as this phase goes on from it."""
        return board

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        """Server: the phases that do this with sums alone, for runs with noise or masks; refuses where there are none.

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
    """A request that needs no words, or a reply without any."""


class ServerPhase(Phase[Nothing, Nothing]):
    """A phase without any exchange: the server goes on with what it has. A subclass says how, in `begin`."""

    @abstractmethod
    def begin(self, board: Board) -> Board:
        """Server: the board with what follows from it."""

    def is_done(self, board: Board, exchanges: int) -> bool:
        return True

    @staticmethod
    def answer(site: Site, request: Nothing) -> Nothing:
        return Nothing()

    def check(self, board: Board, reply: Nothing, site: str) -> None:
        """Nothing comes."""

    def combine(self, board: Board, replies: Mapping[str, Nothing]) -> Board:
        return board


@dataclass(frozen=True, eq=False)
class Sum:
    """A vector that adds over sites."""

    values: FloatArray


class SumPhase(Phase[Request, Sum]):
    """A phase whose answer is a vector that is a sum over rows: such phases can be sealed.

    A subclass says what a site adds (`vector`), how long that is (`size`), and what the server makes of the total
    (`take`). Where it also states the `sensitivity`, the sum may leave a site with noise.
    """

    unbounded: ClassVar[str] = "nobody has stated what one row can change in its sum."
    """Why there is no sensitivity, in a phase without one."""
    with_noise: ClassVar[bool] = True
    """Whether runs with noise have this phase; those that do not go on without what it finds."""
    acute: ClassVar[bool] = False
    """Whether the vectors of two sites are never more than a right angle apart, whatever their rows."""
    counts: ClassVar[bool] = False
    """Whether all numbers are counts, which are whole."""

    @abstractmethod
    def size(self, board: Board) -> int:
        """Server: how many numbers are sent."""

    @staticmethod
    @abstractmethod
    def vector(site: Site, request: Any) -> FloatArray:
        """Site: what it adds to the sum."""

    @staticmethod
    def sensitivity(request: Any, size: int, neighbours: Neighbours) -> float:
        """Both ends: how far, at most, the vector moves when one row is another or is not there, whatever the rows.

        `size` is how many numbers the site is about to send, which it knows from its own tables and not from the
        server. It refuses, by MessageError, a request to which a row could add more than is stated.
        """
        raise MessageError(UNSTATED)

    @abstractmethod
    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        """Server: publish what the total comes to; `noise` is the standard deviation of the noise in its numbers."""

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        """Server: refuse a vector in the open that no rows can have."""

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        """Server: what the vectors of the sites, in the open, come to; their sum, where no aggregator is asked."""
        return np.asarray(reduce(add, vectors), np.float64)

    def note_sites(self, board: Board, sites: Sequence[str]) -> Board:
        """Server: the board before the total of these sites is taken, for phases to which it matters whose it is."""
        return board

    def grid(self, board: Board) -> float | None:
        """Server: of what the numbers are whole multiples under masks without noise; None is as fine as rows allow."""
        return 1.0 if self.counts else None

    def word(self, board: Board) -> int:
        """Server: bytes of a number under masks without noise; below 8 the `grid` must leave any total room in them."""
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
    """The phase that a message is of."""
    for phase in subclasses(Phase):
        if phase.__dict__.get("name") == name:
            return phase
    raise MessageError(f"the server asks for {name[:50]!r}, which this FedHK does not know")
