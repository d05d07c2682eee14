"""Seals a phase: its replies are added up, with noise or under masks, before the server reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from fedhk.data.views import Views
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import Members, Population, References, Terms
from fedhk.federation.gate import SEALED
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase, SumPhase
from fedhk.federation.sealed.masks import MaskedSums, OpenSums
from fedhk.federation.sealed.messages import Header, Reply, SumCount, request_type
from fedhk.federation.sealed.noise import Exact, Noise, privacy_spent
from fedhk.federation.several import NOT_ADDED, check_addable
from fedhk.federation.site import Site
from fedhk.privacy.expectation import NoisySetting
from fedhk.privacy.mechanism import SecureSummation
from fedhk.privacy.secure_sum import InputRequest, MaskedNumbers


@dataclass(frozen=True)
class SealedTerms:
    """How the sums of a run are sealed: with noise, under masks, or both. With neither, the run is in the open."""

    noise: Noise | None = None
    masks: SecureSummation | None = None
    public: Views | None = None  # rows that need no protection, to start from

    @property
    def reason(self) -> str:
        """Name of the parameter that asks for sealing, for error messages."""
        return "secure=True" if self.noise is None else "privacy"

    @property
    def public_bounds(self) -> Any:
        """Range of the features if it was given and noise is scaled by it; else None."""
        return self.noise.privacy.bounds if self.noise is not None and self.noise.privacy.public else None

    @cached_property
    def rounding(self) -> Exact:
        """How numbers are rounded, and the noise that is added."""
        return self.noise or Exact()

    @cached_property
    def transport(self) -> OpenSums:
        """How numbers of sites are added up."""
        return OpenSums() if self.masks is None else MaskedSums(self.masks)

    def measure(self, board: Board, n_clusters: int) -> NoisySetting:
        """Describe a run with noise once its rows are counted, to estimate how well clusters can be found."""
        if self.noise is None:
            raise ValueError("a run without noise has no noise to measure.")
        shared = self.masks is not None and self.masks.shared_noise
        releases = 1.0 if shared else float(len(board.get(Members).sites))
        rows, widths = board.get(Population).rows, tuple(board.get(References).widths)
        return NoisySetting(self.noise.privacy, rows, widths, n_clusters, releases)

    @property
    def is_open(self) -> bool:
        """Whether the run is in the open."""
        return self.noise is None and self.masks is None

    def seal(self, phase: SumPhase[Any]) -> Phase[Any, Any]:
        """Seal a phase; refuse noise for a sum that states no sensitivity."""
        if self.noise is not None and type(phase).sensitivity is SumPhase.sensitivity:
            raise ValueError(f"privacy does not go with phase {phase.name!r}: {phase.unbounded}")
        return Sealed(phase, self)

    def compose(self, phases: Sequence[Phase[Any, Any]]) -> list[Phase[Any, Any]]:
        """Return the phases of a run, with each replaced by its sealed phases unless the run is in the open."""
        if self.is_open:
            return list(phases)
        return [each for phase in phases for sealed in phase.sealed(self) for each in self._with_bounds(sealed)]

    def _with_bounds(self, phase: Phase[Any, Any]) -> list[Phase[Any, Any]]:
        """Return a phase, after the sums that must be known before it."""
        before = self.rounding.before(phase.phase) if isinstance(phase, Sealed) else []
        return [*(Sealed(each, self) for each in before), phase]

    def spent(self, board: Board) -> tuple[float, float] | None:
        """Return (epsilon, delta) of all that sites have released; None without noise."""
        return None if self.noise is None else privacy_spent(board, self.noise.privacy)

    def protect(self, terms: Terms) -> Terms:
        """Return the terms of a run with its privacy budget and whether sums are masked."""
        privacy: Any = None if self.noise is None else self.noise.privacy.describe()
        shared = self.masks is None or self.masks.shared_noise
        return replace(terms, privacy=privacy, secure=self.masks is not None, shared_noise=shared)


@dataclass(frozen=True)
class Sealed(Phase[Any, Any]):
    """A phase whose replies are added up, with noise or under masks, before the server reads them."""

    phase: SumPhase[Any]
    terms: SealedTerms

    reply_type = Reply

    @property
    def name(self) -> str:  # type: ignore[override]
        """Kind of its messages."""
        return SEALED + self.phase.name

    @property
    def request_type(self) -> Any:
        """Type of the request, for the codec."""
        return request_type(self.phase)

    def begin(self, board: Board) -> Board:
        count = next(board.find(SumCount), SumCount())
        return self._prepare(self.phase.begin(board).put(replace(count, done=0)))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return self.phase.is_done(board, board.get(SumCount).done)

    def participants(self, board: Board, sites: Sequence[str], participation: Participation, seed: Any) -> list[str]:
        asked = self.terms.transport.requests(board)
        return sorted(site for site in sites if asked is None or site in asked)

    def request(self, board: Board) -> Any:
        return self.phase.request(board)

    def requests(self, board: Board, sites: Sequence[str]) -> dict[str, Any]:
        asked = self.terms.transport.requests(board) or dict.fromkeys(sites)
        noise, inner = self.terms.rounding.describe(self.phase, board), self.phase.request(board)
        # sites that are asked the same get the same object, which is written once
        made = {
            id(masks): (Header(masks, noise), inner if masks is None or isinstance(masks, InputRequest) else None)
            for masks in asked.values()
        }
        return {site: made[id(asked[site])] for site in sites}

    @staticmethod
    def answer(site: Site, request: Any) -> Any:
        raise MessageError("the answer of a sealed phase is its site's guard's")

    def adds(self, board: Board) -> bool:
        return self.terms.transport.adds(board)

    @staticmethod
    def add(replies: Sequence[Any]) -> MaskedNumbers:
        """Relay: add up numbers under masks as they are; the masks of two sites cancel in any sum that has both."""
        if set(map(type, replies)) != {MaskedNumbers} or len({(reply.session, reply.number) for reply in replies}) > 1:
            raise MessageError(NOT_ADDED)
        vectors = [reply.masked for reply in replies]
        check_addable(vectors)
        return MaskedNumbers(replies[0].session, replies[0].number, reduce(np.add, vectors))

    def check(self, board: Board, reply: Reply, site: str) -> None:
        self.terms.transport.check(board, self.phase.size(board), reply, site)

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[Board, dict[str, Any], dict[str, str]]:
        return board, *self.terms.transport.select(board, replies)

    def combine(self, board: Board, replies: Mapping[str, Any]) -> Board:
        board, total = self.terms.transport.add(board, replies)
        if total is not None:
            values, noise = self.terms.rounding.read(self.phase, board, total)
            count = board.get(SumCount)
            board = self.terms.rounding.spend(self.phase, board)
            board = board.put(replace(count, number=count.number + 1, done=count.done + 1))
            board = self.phase.take(self.phase.note_sites(board, total.sites), values, noise)
        return self._prepare(board)

    def resume(self, board: Board) -> Board:
        # numbers that sites have released and that did not arrive are never sent again under another mask: they are
        # spent, and the sum that takes their place has another number
        count = board.get(SumCount)
        if count.at_risk:
            board = self.terms.rounding.spend(self.phase, board).put(replace(count, number=count.number + 1))
        return self._prepare(self.phase.resume(board))

    def _prepare(self, board: Board) -> Board:
        """Return the board before the next exchange."""
        if not self.is_done(board, 0):
            word = self.terms.rounding.word(self.phase, board)
            board = self.terms.transport.prepare(board, self.phase.size(board), word)
        at_risk = not self.is_done(board, 0) and self.terms.transport.is_at_risk(board)
        return board.put(replace(board.get(SumCount), at_risk=at_risk))
