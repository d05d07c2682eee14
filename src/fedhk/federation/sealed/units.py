"""The unit of privacy that noise protects: one row at a site, or all rows of a site.

For rows, each phase states what one of them can change. For sites no phase needs to: a site cuts the vector that it is
about to send to a length, and what it can change is that length. Each sum then has another one before it, which finds
the length: sites say about how long their vectors are, and most of them are left as they are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.federation.board import Board, Entry
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.site import Site
from fedhk.privacy.histograms import find_middle
from fedhk.privacy.kernel_sensitivity import TYPICAL_MOVE, best_clipped_scales, best_kernel_scale
from fedhk.privacy.mechanism import LENGTH_OF, ChoiceError, DifferentialPrivacy, Unit
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity

# Edges of the bins of lengths, two per power of two, in units of the most that one row can add. With four, noise hid
# the lengths of 800 sites of 10 to 200 rows at epsilon 1.
LENGTHS = 2.0 ** np.arange(-6.0, 20.5, 0.5)
BINS = len(LENGTHS) + 1

# Noise in one number of a round that is more than this share of what all sites together can say in it hides them.
MOST_HIDDEN = 0.1


class ProtectedUnit(ABC):
    """Bounds what one unit of privacy can change in a sum."""

    has_spare: ClassVar[bool]
    """Whether a share of the budget is needed for further sums, besides those of start and rounds."""
    damping: ClassVar[float]
    """Share of what noise explains of the moves of a round that is taken off them."""

    @abstractmethod
    def before(self, phase: SumPhase[Any]) -> list[SumPhase[Any]]:
        """Server: return the sums that must be known before that of a phase."""

    @abstractmethod
    def bound(self, phase: SumPhase[Any], board: Board) -> float:
        """Server: return the length to which sites clip their vectors; 0 where they do not."""

    @abstractmethod
    def sensitivity(self, phase: Any, request: Any, size: int, bound: float, neighbours: Neighbours) -> float:
        """Both ends: return the sensitivity, the most that a site's vector moves between neighbours."""

    @abstractmethod
    def cut(self, vector: FloatArray, bound: float) -> FloatArray:
        """Site: return the vector that is rounded and sent."""

    @abstractmethod
    def check_sites(self, privacy: DifferentialPrivacy, n_sites: int, *, shares_noise: bool) -> None:
        """Refuse a budget that does not fit so many sites."""

    @abstractmethod
    def scale_round(
        self, centers: Sequence[FloatArray], reach: float, rows: float, neighbours: Neighbours
    ) -> tuple[float, float]:
        """Server: choose the scales of weights and costs in a round at these centres, one table for each view.

        One row pulls on a centre by `reach` at most, and a site has so many `rows`.
        """

    @abstractmethod
    def weigh(self, rows_per_site: float) -> float:
        """Estimate before a run how far one unit of privacy moves a sum, in multiples of what one row does."""


class RowUnit(ProtectedUnit):
    """One row at one site. Each phase states the sensitivity to it."""

    has_spare: ClassVar[bool] = True
    damping: ClassVar[float] = 0.0

    def before(self, phase: SumPhase[Any]) -> list[SumPhase[Any]]:
        return []

    def bound(self, phase: SumPhase[Any], board: Board) -> float:
        return 0.0

    def sensitivity(self, phase: Any, request: Any, size: int, bound: float, neighbours: Neighbours) -> float:
        return float(phase.sensitivity(request, size, neighbours))

    def cut(self, vector: FloatArray, bound: float) -> FloatArray:
        return vector

    def check_sites(self, privacy: DifferentialPrivacy, n_sites: int, *, shares_noise: bool) -> None:
        """Accept any number of sites."""

    def scale_round(
        self, centers: Sequence[FloatArray], reach: float, rows: float, neighbours: Neighbours
    ) -> tuple[float, float]:
        width = sum(part.shape[1] for part in centers)
        scale = best_kernel_scale(reach, TYPICAL_MOVE, width, len(centers), neighbours)
        return scale, min(scale, 1.0)

    def weigh(self, rows_per_site: float) -> float:
        return 1.0


class SiteUnit(ProtectedUnit):
    """All rows of a site. Its vector is clipped to a length B, whatever its rows are.

    Without the site, or with it, the sum differs by its vector, which is B long at most. With other rows in the place
    of all of its rows it differs by u - v, and |u - v|^2 = |u|^2 + |v|^2 - 2 u.v <= 4 B^2; where vectors are never
    more than a right angle apart (`SumPhase.acute`), u.v >= 0 and 2 B^2 is the most. To cut a vector makes it shorter
    and does not turn it, so that this holds after cutting. It holds for any B that depends on no row but by earlier
    releases, so B may be the length of a typical vector: noise falls with it as what longer vectors say does.
    """

    has_spare: ClassVar[bool] = False  # lengths of vectors have it
    # the mixture of benchmarks/privacy.py had a cost of 1.033 so, and 1.042 with none taken off (three seeds each)
    damping: ClassVar[float] = 0.5

    def before(self, phase: SumPhase[Any]) -> list[SumPhase[Any]]:
        return [LengthOfSum(phase)]

    def bound(self, phase: SumPhase[Any], board: Board) -> float:
        if isinstance(phase, LengthOfSum):
            return 1.0
        return board.get(SumLengths).lengths[phase.name]

    def sensitivity(self, phase: Any, request: Any, size: int, bound: float, neighbours: Neighbours) -> float:
        phase.sensitivity(request, size, neighbours)  # refuses what no run asks
        return sum_sensitivity(bound, neighbours, nonnegative=phase.acute)

    def cut(self, vector: FloatArray, bound: float) -> FloatArray:
        length = float(np.linalg.norm(vector))
        return vector if length <= bound else vector * (bound / length)

    def check_sites(self, privacy: DifferentialPrivacy, n_sites: int, *, shares_noise: bool) -> None:
        if privacy.delta * n_sites >= 1:
            raise ChoiceError(
                f"delta={privacy.delta:g} must be below 1 over the number of sites with unit='site'; there are "
                f"{n_sites}: use at most {0.1 / n_sites:.1g}."
            )
        noise = privacy.multiplier("round") * sum_sensitivity(1.0, privacy.neighbours)
        fewest = noise / MOST_HIDDEN if shares_noise else (noise / MOST_HIDDEN) ** 2
        if n_sites < fewest:
            hidden = noise / n_sites if shares_noise else noise / math.sqrt(n_sites)
            better = "" if shares_noise else ", or secure=True, with which the sites share one noise"
            raise ChoiceError(
                f"unit='site' with {n_sites} sites at epsilon={privacy.epsilon:g}: noise in one number of a round is "
                f"{hidden:.2g} of the most that all sites together can say in it, and more than {MOST_HIDDEN:g} hides "
                f"them. At least {math.ceil(fewest)} sites are needed{better}; or use unit='row'."
            )

    def scale_round(
        self, centers: Sequence[FloatArray], reach: float, rows: float, neighbours: Neighbours
    ) -> tuple[float, float]:
        return best_clipped_scales(reach, TYPICAL_MOVE, [part.shape for part in centers], rows)

    def weigh(self, rows_per_site: float) -> float:
        # rows around their centre pull in all directions: lengths of sums grow like those of random walks
        return math.sqrt(max(rows_per_site, 1.0))


UNITS: dict[Unit, ProtectedUnit] = {"row": RowUnit(), "site": SiteUnit()}


@dataclass(frozen=True, eq=False)
class SumLengths(Entry):
    """The length to which sites clip the vector of each phase, by the phase's name."""

    lengths: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LengthOfSum(SumPhase[Any]):
    """Count sites by the length of their vector, to find the length that vectors of a phase are clipped to.

    A site, which has no settings of the server, has the class of the phase instead of an object. Whatever its rows are,
    it adds 1 to one number, or nothing where its vector is zero.
    """

    inner: Any

    acute = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """Kind of its messages."""
        return LENGTH_OF + str(self.inner.name)

    @property
    def request_type(self) -> Any:
        """Type of the request, for the codec."""
        return self.inner.request_type

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or self.inner.is_done(board, 0)

    def request(self, board: Board) -> Any:
        return self.inner.request(board)

    def size(self, board: Board) -> int:
        return BINS

    def vector(self, site: Site, request: Any) -> FloatArray:  # type: ignore[override]
        vector = self.inner.vector(site, request)
        unit = self.inner.sensitivity(request, vector.size, "add-remove")
        length = float(np.linalg.norm(np.nan_to_num(vector, nan=0.0, posinf=0.0, neginf=0.0))) / unit
        # a site without rows adds nothing here either, so that to leave it out changes nothing
        return np.bincount([np.searchsorted(LENGTHS, length)] if length else [], minlength=BINS).astype(np.float64)

    def sensitivity(self, request: Any, size: int, neighbours: Neighbours) -> float:  # type: ignore[override]
        return math.sqrt(2)  # one row more or less may change in which range the length of the vector is

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        found = find_middle(total, noise, LENGTHS)
        length = 1.0 if math.isnan(found) else found  # where no length is sure a site says as much as one row
        unit = self.inner.sensitivity(self.inner.request(board), self.inner.size(board), "add-remove")
        known = next(board.find(SumLengths), SumLengths())
        return board.put(replace(known, lengths={**known.lengths, self.inner.name: length * unit}))
