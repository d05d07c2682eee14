"""Publishes the calibration: the shares that sites remove, and the units of the calibrated rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.agreement.opinions import Opinion
from fedhk.errors import MessageError
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator
from fedhk.federation.board import Board, Entry
from fedhk.federation.phases.base import Phase, ServerPhase
from fedhk.federation.phases.describe import EnergySum
from fedhk.federation.phases.frame import Frame
from fedhk.federation.phases.scalings import scalings_of
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.model.preparation import count_observed, heat_energy
from fedhk.personal.calibration import Calibration, ClusterEffects
from fedhk.starts.settings import Settings


@dataclass(frozen=True, eq=False)
class Shares(Entry):
    """Shares of a site's own mean and spread to remove, and the options that were compared."""

    shift: float
    spread: float
    opinions: tuple[Opinion, ...] = ()
    given: tuple[ClusterEffects, ...] = ()  # one where the shares are of what clusters leave of mean and spread


@dataclass(frozen=True)
class GivenShares(ServerPhase):
    """Use shares of mean and spread that were given."""

    name: ClassVar[str] = "given shares"

    shift: float
    spread: float

    def begin(self, board: Board) -> Board:
        return board.put(Shares(self.shift, self.spread))

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        if terms.noise is None:
            return [self]
        raise ValueError(
            f"calibration={(self.shift, self.spread)} does not go with {terms.reason}: a site's own mean and spread "
            "let one row change all that the site sends. Leave calibration='auto' (which is none here) or None."
        )


@dataclass(frozen=True)
class FrameRequest:
    """Ask for the distances of calibrated rows from the grand mean."""

    calibration: Calibration


@dataclass(frozen=True)
class PublishFrame(EnergySum[FrameRequest]):
    """Publish the calibration, in units in which calibrated rows have spread 1.

    It takes one sum over calibrated rows; none where nothing is taken out.
    """

    name: ClassVar[str] = "frame"
    with_noise: ClassVar[bool] = False  # then nothing is taken out

    settings: Settings
    offsets: bool  # whether sites keep an offset in the rounds, and have centres of their own only if calibrated
    aggregator: Aggregator = PLAIN_SUM

    def begin(self, board: Board) -> Board:
        # shares of 0 mean that sites do not differ by how they measure
        return board.put(Frame(self._calibration(board))) if self.offsets and self.is_done(board, 0) else board

    def is_done(self, board: Board, exchanges: int) -> bool:
        shares = board.get(Shares)
        return exchanges > 0 or not (shares.shift or shares.spread)

    def request(self, board: Board) -> FrameRequest:
        return FrameRequest(self._calibration(board))

    @staticmethod
    def vector(site: Site, request: FrameRequest) -> FloatArray:
        rows = site.rows()
        if len(request.calibration.factors) != len(rows.widths):
            raise MessageError("a calibration of more or fewer views than there are")
        return np.concatenate([heat_energy(request.calibration.apply(rows)), count_observed(rows.views)])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        energy, rows = np.split(total, 2)
        mean = np.divide(energy, rows, out=np.ones_like(energy), where=(energy > 0) & (rows > 0))
        return board.put(Frame(replace(self._calibration(board), factors=tuple(np.sqrt(mean).tolist()))))

    def _calibration(self, board: Board) -> Calibration:
        shares, scalings = board.get(Shares), scalings_of(board, self.settings)
        kept = tuple([view for view, own in enumerate(scalings) if not own.unit_variance])
        offsets = self.offsets and bool(shares.shift or shares.spread)
        return Calibration(shares.shift, shares.spread, (1.0,) * len(scalings), offsets, kept, shares.given)
