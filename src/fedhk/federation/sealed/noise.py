"""Whole numbers with noise or without: what the server asks for and reads, and what a site releases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Members, Population, References, Terms
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.sealed.masks import SiteMasks
from fedhk.federation.sealed.messages import ExactSum, Header, NoisySum, SumCount, Total, most_of_site
from fedhk.federation.site import Site
from fedhk.privacy.accounting import spent
from fedhk.privacy.fixed_point import from_grid, to_grid
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.noise import discrete_gaussian
from fedhk.privacy.sensitivity import grid_sensitivity

# Steps of the grid in what one row can change: fine enough that rounding adds nothing to the noise.
STEPS = 2.0**16

# A budget is compared with what rounding makes of it.
ROUNDING = 1e-6

# What one row may add to a number of a sum, on average over rows, before the grid overflows.
ROOM_PER_ROW = 1024.0


@dataclass(frozen=True)
class Releases(Entry):
    """Noise multipliers of what sites have released so far, answers that did not arrive included."""

    multipliers: tuple[float, ...] = ()


@dataclass(frozen=True)
class Exact:
    """Sums without noise, on the finest grid that has room for them."""

    def describe(self, phase: SumPhase[Any], board: Board) -> ExactSum:
        """How numbers are asked for."""
        return ExactSum(grid_step(phase, board))

    def read(self, phase: SumPhase[Any], board: Board, total: Total) -> tuple[FloatArray, float]:
        """What the numbers stand for, and the standard deviation of their noise."""
        return from_grid(total.numbers, grid_step(phase, board)), 0.0

    def spend(self, phase: SumPhase[Any], board: Board) -> Board:  # noqa: ARG002
        """The board once sites have released their numbers."""
        return board


@dataclass(frozen=True)
class Noise(Exact):
    """Sums with noise.

    Parameters
    ----------
    privacy : DifferentialPrivacy
        The budget.
    rounds : int
        Rounds among which it is shared.
    """

    privacy: DifferentialPrivacy
    rounds: int

    def describe(self, phase: SumPhase[Any], board: Board) -> NoisySum:  # type: ignore[override]  # noqa: ARG002
        return NoisySum(board.get(SumCount).number, self.rounds)

    def read(self, phase: SumPhase[Any], board: Board, total: Total) -> tuple[FloatArray, float]:
        sensitivity = phase.sensitivity(phase.request(board), self.privacy.neighbours)
        step = noise_step(sensitivity)
        parts = len(total.sites) / max(total.threshold - self.privacy.colluders, 1)
        sigma = self.multiplier(phase) * grid_sensitivity(sensitivity, step, total.numbers.size) * math.sqrt(parts)
        return from_grid(total.numbers, step), step * sigma

    def spend(self, phase: SumPhase[Any], board: Board) -> Board:
        return board.put(Releases((*released(board), self.multiplier(phase))))

    def multiplier(self, phase: SumPhase[Any]) -> float:
        """Standard deviation of the noise of one release, in units of what one row can change."""
        return self.privacy.multiplier(phase.name, self.rounds)

    def affords(self, phase: SumPhase[Any], board: Board) -> bool:
        """Whether the budget allows another release; answers that were lost on the way are spent too."""
        left = self.privacy.budget - sum(multiplier**-2 for multiplier in released(board))
        return left * self.multiplier(phase) ** 2 + ROUNDING >= 1


def privacy_spent(board: Board, privacy: DifferentialPrivacy) -> tuple[float, float]:
    """(epsilon, delta) of all that sites have released in a run."""
    return spent(released(board), privacy.delta), privacy.delta


def released(board: Board) -> tuple[float, ...]:
    """Noise multipliers of what sites have released so far."""
    return next(board.find(Releases), Releases()).multipliers


def grid_step(phase: SumPhase[Any], board: Board) -> float:
    """Of what the numbers of a sum without noise are whole multiples.

    Unless the phase says it, it is the finest power of two on which the sums of so many rows certainly have room.
    """
    given = phase.grid(board)
    if given is not None:
        return given
    rows = board.get(Population).rows
    room = ROOM_PER_ROW * max(rows, 1.0) / most_of_site(len(board.get(Members).sites))
    return float(2.0 ** math.ceil(math.log2(room)))


def noise_step(sensitivity: float) -> float:
    """Of what the numbers of a sum with noise are whole multiples: a power of two far below what a row can change."""
    return float(2.0 ** math.floor(math.log2(sensitivity / STEPS)))


@dataclass(frozen=True)
class SiteRounding:
    """A site's way to make whole numbers of a vector: here without noise."""

    def release(
        self,
        site: Site,
        phase: type[SumPhase[Any]],
        header: Header,
        request: Any,
        masks: SiteMasks,  # noqa: ARG002
    ) -> NDArray[np.int64]:
        """The numbers that leave the site, before masks."""
        if not isinstance(header.noise, ExactSum) or not 0 < header.noise.step < math.inf:
            raise MessageError("the server asks for sums with noise, this site was not set up for them")
        return to_grid(phase.vector(site, request), header.noise.step)


@dataclass(frozen=True)
class SiteNoise(SiteRounding):
    """Numbers leave the site with noise only, and after they are written down.

    Parameters
    ----------
    privacy : DifferentialPrivacy
        The budget of the run.
    ledger : Ledger
        What the site has released.
    """

    privacy: DifferentialPrivacy
    ledger: Ledger

    def release(
        self, site: Site, phase: type[SumPhase[Any]], header: Header, request: Any, masks: SiteMasks
    ) -> NDArray[np.int64]:
        asked = header.noise
        if not isinstance(asked, NoisySum):
            raise MessageError("the server asks for sums without noise, this site gives none")
        run = site.board.get(Terms).run
        known = self.ledger.payload(run, asked.number)
        if known is not None:
            numbers = np.frombuffer(known, np.int64)
            if not masks.may_repeat(site, header.masks, numbers):
                raise MessageError("asked to put numbers that were released already under another mask")
            return numbers
        if not all(_is_bounded(reference) for entry in site.board.find(References) for reference in entry.references):
            raise MessageError("scales with which a row could say more than the noise is sized for")
        multiplier = self._multiplier(phase.name, asked.rounds, run)
        sensitivity = phase.sensitivity(request, self.privacy.neighbours)
        if not 0 < sensitivity < math.inf:
            raise MessageError("the server asks for a sum that a row can change without bound")
        share, step = masks.noise_share(site, self.privacy.colluders), noise_step(sensitivity)
        vector = np.nan_to_num(phase.vector(_in_double(site), request), nan=0.0, posinf=0.0, neginf=0.0)
        numbers = to_grid(vector, step)
        sigma = multiplier * grid_sensitivity(sensitivity, step, numbers.size) * share
        numbers = numbers + discrete_gaussian(sigma, numbers.size)
        payload = self.ledger.record(
            run=run,
            exchange=asked.number,
            phase=phase.name,
            multiplier=multiplier,
            sensitivity=sensitivity,
            payload=numbers.tobytes(),
        )
        return np.frombuffer(payload, np.int64)

    def _multiplier(self, phase: str, rounds: int, run: str) -> float:
        """The noise of a release, if the budget allows it."""
        privacy = self.privacy
        if not 1 <= rounds <= privacy.rounds:
            allowed = f"this site's budget is for 1 to {privacy.rounds}"
            raise MessageError(f"the server speaks of {rounds} rounds, {allowed}")
        multiplier = privacy.multiplier(phase, rounds)
        spending = sum(release**-2 for release in [*self.ledger.multipliers(run), multiplier])
        if spending > privacy.budget * (1 + ROUNDING):
            raise MessageError(
                f"the privacy budget of the run, epsilon={privacy.epsilon:g}, does not allow another release"
            )
        return multiplier


def _in_double(site: Site) -> Site:
    """The site with rows in double precision: the bound on a row holds to rounding, and float32's is large."""
    return replace(site, views=replace(site.views, dtype=np.dtype(np.float64)))


def _is_bounded(reference: Reference) -> bool:
    """Whether no cell of a row counts for more than 1."""
    numbers = np.concatenate([reference.shift, reference.low, reference.span])
    known = reference.heat_coef in ("uniform", "minmax")
    return bool(known and np.isfinite(numbers).all() and np.all(reference.span > 0))
