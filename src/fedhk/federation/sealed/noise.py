"""Sums are rounded to whole numbers, with noise or without: the server's end and the site's end."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Members, Population, References, Terms
from fedhk.federation.phases.base import UNSTATED, SumPhase
from fedhk.federation.sealed.masks import SiteMasks
from fedhk.federation.sealed.messages import ExactSum, Header, NoisySum, SumCount, Total
from fedhk.federation.sealed.units import UNITS, ProtectedUnit
from fedhk.federation.site import Site
from fedhk.model.rows import is_near_zero
from fedhk.privacy.accounting import spent
from fedhk.privacy.fixed_point import LARGEST, WORDS, from_grid, most_of_site, to_grid
from fedhk.privacy.ledger import Ledger, LedgerError
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.noise import discrete_gaussian
from fedhk.privacy.sensitivity import grid_sensitivity

LOG = logging.getLogger("fedhk.site")

# Steps of the grid in what one row can change: fine enough that rounding adds nothing to the noise.
STEPS = 2.0**16

# Tolerance for rounding when budgets are compared.
ROUNDING = 1e-6

# What one row may add to a number of a sum, on average over rows, before the grid overflows.
ROOM_PER_ROW = 1024.0

# Cells of rows, and numbers of a server that bring rows to model units, are held between these, so that no row, however
# far out, makes a sum infinite or undefined: 1e60 over 1e-60, squared and summed over features, is a double.
LEAST_UNIT, MOST_UNIT = 1e-60, 1e60

# Refusals of a site: one constant text per rule.
WITH_NOISE = Rule("the server asks for sums with noise, this site was not set up for them")
WITHOUT_NOISE = Rule("the server asks for sums without noise, this site gives none")
UNBOUNDED_SCALES = Rule("scales with which a row could say more than the noise is sized for")
UNBOUNDED_SUM = Rule("the server asks for a sum that a row can change without bound")
IMPOSSIBLE = Rule("the server asks for a sum that no rows can have")
SPENT = Rule("numbers that were released already are not sent again: they are not kept, or masks have changed")
NO_BUDGET = Rule("the privacy budget of the run does not allow another release")
OTHER_ROUNDS = Rule("the server speaks of more rounds than the budget of the run is for, or of none")


@dataclass(frozen=True)
class Releases(Entry):
    """Noise multipliers of all releases so far, including replies that did not arrive."""

    multipliers: tuple[float, ...] = ()


@dataclass(frozen=True)
class StartKnown(Entry):
    """Marks a run that needs no sums to find a start: the rounds share their part of the budget."""


@dataclass(frozen=True)
class Exact:
    """Sums without noise, on the finest grid that has room for them."""

    def describe(self, phase: SumPhase[Any], board: Board) -> ExactSum:
        """Return how numbers are to be rounded, for the request."""
        return ExactSum(grid_step(phase, board))

    def read(self, phase: SumPhase[Any], board: Board, total: Total) -> tuple[FloatArray, float]:
        """Convert whole numbers back to values; also return the standard deviation of their noise."""
        return from_grid(total.numbers, grid_step(phase, board)), 0.0

    def word(self, phase: SumPhase[Any], board: Board) -> int:
        """Return the bytes of a number under masks."""
        return phase.word(board)

    def spend(self, phase: SumPhase[Any], board: Board) -> Board:
        """Return the board after sites have released their numbers."""
        return board

    def before(self, phase: SumPhase[Any]) -> list[SumPhase[Any]]:
        """Return the sums that must be known before that of a phase."""
        return []


@dataclass(frozen=True)
class Noise(Exact):
    """Sums with noise.

    Parameters
    ----------
    privacy : DifferentialPrivacy
        The budget.
    rounds : int
        Rounds among which it is shared.
    finds_start : bool, default=True
        Whether the run looks for a start, for which a part of the budget is kept.
    """

    privacy: DifferentialPrivacy
    rounds: int
    finds_start: bool = True

    @property
    def unit(self) -> ProtectedUnit:
        """Unit of privacy: one row, or one site."""
        return UNITS[self.privacy.unit]

    def before(self, phase: SumPhase[Any]) -> list[SumPhase[Any]]:
        return self.unit.before(phase)

    def describe(self, phase: SumPhase[Any], board: Board) -> NoisySum:  # type: ignore[override]
        finds_start = self._finds_start(board)
        return NoisySum(board.get(SumCount).number, self.rounds, finds_start, self.unit.bound(phase, board))

    def read(self, phase: SumPhase[Any], board: Board, total: Total) -> tuple[FloatArray, float]:
        asked, bound = phase.request(board), self.unit.bound(phase, board)
        sensitivity = self.unit.sensitivity(phase, asked, total.numbers.size, bound, self.privacy.neighbours)
        step = noise_step(sensitivity)
        parts = len(total.sites) / max(total.sharers - self.privacy.colluders, 1)
        sigma = (
            self.multiplier(phase, board) * grid_sensitivity(sensitivity, step, total.numbers.size) * math.sqrt(parts)
        )
        return from_grid(total.numbers, step), step * sigma

    def word(self, phase: SumPhase[Any], board: Board) -> int:
        return max(WORDS)  # noise has no bound

    def spend(self, phase: SumPhase[Any], board: Board) -> Board:
        return board.put(Releases((*released(board), self.multiplier(phase, board))))

    def multiplier(self, phase: SumPhase[Any], board: Board) -> float:
        """Return the standard deviation of the noise of one release, in units of its sensitivity."""
        return self.privacy.multiplier(phase.name, self.rounds, finds_start=self._finds_start(board))

    def _finds_start(self, board: Board) -> bool:
        """Tell whether a part of the budget is reserved for a start."""
        return self.finds_start and not board.has(StartKnown)

    def affords(self, phase: SumPhase[Any], board: Board) -> bool:
        """Tell whether the budget allows another release; replies that were lost count as spent."""
        left = self.privacy.budget - sum(multiplier**-2 for multiplier in released(board))
        return left * self.multiplier(phase, board) ** 2 + ROUNDING >= 1


def privacy_spent(board: Board, privacy: DifferentialPrivacy) -> tuple[float, float]:
    """Compute (epsilon, delta) of all that sites have released in a run."""
    return spent(released(board), privacy.delta), privacy.delta


def released(board: Board) -> tuple[float, ...]:
    """Return the noise multipliers of all releases so far."""
    return next(board.find(Releases), Releases()).multipliers


def grid_step(phase: SumPhase[Any], board: Board) -> float:
    """Return the step of the grid of a sum without noise.

    Unless the phase says it, it is the finest power of two on which the sums of so many rows certainly have room.
    """
    given = phase.grid(board)
    if given is not None:
        return given
    rows = board.get(Population).rows
    room = ROOM_PER_ROW * max(rows, 1.0) / most_of_site(len(board.get(Members).sites))
    return float(2.0 ** math.ceil(math.log2(room)))


def noise_step(sensitivity: float) -> float:
    """Return the step of the grid of a sum with noise: a power of two far below the sensitivity."""
    return float(2.0 ** math.floor(math.log2(sensitivity / STEPS)))


def count_numbers(site: Site, phase: type[SumPhase[Any]], request: Any) -> int:
    """Count the numbers that a site is about to send. A wrong request is refused here, before any row is read."""
    try:
        with np.errstate(all="ignore"):
            return int(phase.vector(without_rows(site), request).size)
    except (ArithmeticError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(IMPOSSIBLE) from error


def collect_vector(site: Site, phase: type[SumPhase[Any]], request: Any, size: int) -> FloatArray:
    """Compute the site's term of a sum: always finite, and always of this length.

    What its rows make impossible is left out and logged here, so that whether a site answers tells nothing of them.
    """
    try:
        with np.errstate(all="ignore"):
            vector = phase.vector(site, request)
    except Exception:
        LOG.exception("site %r adds nothing to the sum of phase %r: its rows do not fit", site.name, phase.name)
        return np.zeros(size)
    if vector.shape != (size,):
        LOG.error("site %r adds nothing to the sum of phase %r: wrong length", site.name, phase.name)
        return np.zeros(size)
    return np.nan_to_num(vector, nan=0.0, posinf=0.0, neginf=0.0)


def _round_to_grid(vector: FloatArray, step: float) -> NDArray[np.int64]:
    """Round to whole multiples of a step, and clip what is too large, which never moves neighbours apart."""
    most = step * (LARGEST // 4)
    return to_grid(np.clip(vector, -most, most), step)


@dataclass(frozen=True)
class SiteRounding:
    """How a site rounds a vector to whole numbers: here without noise."""

    def release(
        self,
        site: Site,
        phase: type[SumPhase[Any]],
        header: Header,
        request: Any,
        masks: SiteMasks,
    ) -> NDArray[np.int64]:
        """Return the numbers that leave the site, before masks are added."""
        if not isinstance(header.noise, ExactSum) or not LEAST_UNIT < header.noise.step < MOST_UNIT:
            raise MessageError(WITH_NOISE)
        size = count_numbers(site, phase, request)
        return _round_to_grid(collect_vector(site, phase, request, size), header.noise.step)


@dataclass(frozen=True)
class SiteNoise(SiteRounding):
    """Releases numbers with noise only, and after an entry in the ledger.

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
            raise MessageError(WITHOUT_NOISE)
        run = site.board.get(Terms).run
        known = self._sent_before(run, asked.number)
        if known is not None:
            return known
        if phase.sensitivity is SumPhase.sensitivity:
            raise MessageError(UNSTATED)
        references = [reference for entry in site.board.find(References) for reference in entry.references]
        if not all(is_bounded(reference, site.views) for reference in references):
            raise MessageError(UNBOUNDED_SCALES)
        multiplier, share = self._multiplier(phase.name, asked, run), masks.noise_share(site, self.privacy)
        size, unit = count_numbers(site, phase, request), UNITS[self.privacy.unit]
        sensitivity = unit.sensitivity(phase, request, size, asked.bound, self.privacy.neighbours)
        if not LEAST_UNIT < sensitivity < MOST_UNIT:
            raise MessageError(UNBOUNDED_SUM)
        self.ledger.charge(
            run=run,
            exchange=asked.number,
            phase=phase.name,
            multiplier=multiplier,
            sensitivity=sensitivity,
            neighbours=self.privacy.neighbours,
        )
        site, step = replace(site, views=hold_cells(site.views)), noise_step(sensitivity)
        numbers = _round_to_grid(unit.cut(collect_vector(site, phase, request, size), asked.bound), step)
        sigma = multiplier * grid_sensitivity(sensitivity, step, size) * share
        numbers = numbers + discrete_gaussian(sigma, size)
        if masks.keeps_numbers:
            self.ledger.keep(run, asked.number, numbers.tobytes())
        return numbers

    def _sent_before(self, run: str, number: int) -> NDArray[np.int64] | None:
        """Return the numbers of an earlier release, to be sent again; None if there was none."""
        try:
            known = self.ledger.payload(run, number)
        except LedgerError as error:
            LOG.warning("site %r: %s", self.ledger.site, error)
            raise MessageError(SPENT) from error
        return None if known is None else np.frombuffer(known, np.int64)

    def _multiplier(self, phase: str, asked: NoisySum, run: str) -> float:
        """Draw the noise of a release, if the budget allows it."""
        privacy = self.privacy
        if not 1 <= asked.rounds <= privacy.rounds:
            raise MessageError(OTHER_ROUNDS)
        multiplier = privacy.multiplier(phase, asked.rounds, finds_start=asked.finds_start)
        made = [release.multiplier for release in self.ledger.releases(run)]
        if sum(release**-2 for release in [*made, multiplier]) > privacy.budget * (1 + ROUNDING):
            raise MessageError(NO_BUDGET)
        return multiplier


def hold_cells(views: Views) -> Views:
    """Return rows in double precision, clipped to `MOST_UNIT`, so that the bound on a row holds to rounding."""

    def held(table: Any) -> Any:
        cells = table.data if sp.issparse(table) else table
        if table is None or not float(np.nanmax(np.abs(cells), initial=0.0)) > MOST_UNIT:
            return table
        return table.clip(-MOST_UNIT, MOST_UNIT) if not sp.issparse(table) else _clip_sparse(table)

    return replace(views, tables=tuple(map(held, views.tables)), dtype=np.dtype(np.float64))


def _clip_sparse(table: Any) -> Any:
    table = table.copy()
    table.data = np.clip(table.data, -MOST_UNIT, MOST_UNIT)
    return table


def is_bounded(reference: Reference, views: Views) -> bool:
    """Tell whether no cell of a row weighs more than 1, and no row makes a sum infinite or undefined."""
    finite = np.concatenate([reference.shift, reference.low])
    divisors = np.concatenate([reference.scale[~np.isposinf(reference.scale)], reference.span])
    if not np.all(np.abs(finite) <= MOST_UNIT) or not np.all((divisors >= LEAST_UNIT) & (divisors <= MOST_UNIT)):
        return False
    # sparse rows are not moved to the mean: centres are, and far from zero that costs digits
    exact = is_near_zero(reference, np.dtype(np.float64)) or not any(map(sp.issparse, views.tables))
    return exact and reference.heat_coef in ("uniform", "minmax")


def without_rows(site: Site) -> Site:
    """Return the site without any row: what it replies then tells nothing of its rows."""
    views = site.views
    tables = tuple(None if table is None else table[:0] for table in views.tables)
    return replace(site, views=replace(views, tables=tables, n_rows=0), _cache={})
