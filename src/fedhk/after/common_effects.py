"""Effects of clusters that are the same at all sites, and whether sites have others: a fit by sums, and what it leaves.

The rest of the rows is another mix of clusters at each site, so that a cluster differs from the rest by more at one
site than at another, even if nothing is special about either. Therefore sites are compared with what the common effects
of all clusters lead one to expect of the clusters that they have.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedhk._typing import FloatArray
from fedhk.after.columns import ColumnSum
from fedhk.after.effects import Heterogeneity, invert_covariance, measure_heterogeneity
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry
from fedhk.federation.placed import PlacedSite

# Steps of Newton's method at most, the step at which it is over, and the largest effect: a cluster without any event
# would have one without end.
MOST_STEPS, SMALL_STEP, LARGEST = 8, 0.01, 5.0

# A site takes part in the comparison of a cluster if as much is known there as one event tells: with less, the square
# of one event over its variance is of any size.
LEAST_INFORMATION = 1.0

OTHER_EFFECTS = Rule("the question has more or fewer effects than clusters")


class Scores(NamedTuple):
    """A site's events by cluster less those expected, and their covariance; or the sums of all sites."""

    excess: FloatArray  # (c,)
    covariance: FloatArray  # (c, c)

    def compare(self) -> FloatArray:
        """Return the variance, the excess, its square over the variance, and 1, (4, c); 0 where too little is known."""
        own = np.diag(self.covariance)
        known = own >= LEAST_INFORMATION
        squares = np.divide(np.square(self.excess), own, out=np.zeros_like(own), where=known)
        return np.array([own, self.excess, squares, np.ones_like(own)]) * known

    def count_sides(self) -> FloatArray:
        """Return whether each cluster has more events than expected, and whether enough is known to tell, (2, c)."""
        known = np.diag(self.covariance) >= LEAST_INFORMATION
        return np.array([self.excess > 0, np.ones_like(known)]) * known * 1.0


@dataclass(frozen=True, eq=False)
class EffectsRequest:
    """Ask how far events differ from those that these effects lead one to expect."""

    effects: FloatArray  # (c,): logarithms of ratios

    def __post_init__(self) -> None:
        if self.effects.ndim != 1 or not np.isfinite(self.effects).all():
            raise MessageError(OTHER_EFFECTS)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.effects)


@dataclass(frozen=True, eq=False)
class CommonEffects(Entry):
    """The effects so far, and how far sites are from them."""

    effects: FloatArray  # (c,)
    compared: FloatArray  # (4, c): `Scores.compare`, added over sites
    settled: bool

    @staticmethod
    def read(board: Board, n_clusters: int) -> Heterogeneity:
        """Compute the heterogeneity of each cluster; NaN if sites were not compared."""
        nothing = np.full(n_clusters, np.nan)
        found = (measure_heterogeneity(*entry.compared) for entry in board.find(CommonEffects))
        return next(found, Heterogeneity(nothing, nothing))


@dataclass(frozen=True)
class FitEffects(ColumnSum[EffectsRequest]):
    """Fit the effects of clusters that are the same at all sites, by Newton's method, and compare sites with them."""

    questions: ClassVar[tuple[str, ...]] = ("outcomes",)
    with_noise: ClassVar[bool] = False  # one row can change what a site expects without bound

    n_clusters: int

    def begin(self, board: Board) -> Board:
        return board.put(CommonEffects(np.zeros(self.n_clusters), np.zeros((4, self.n_clusters)), settled=False))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges >= MOST_STEPS or board.get(CommonEffects).settled

    def request(self, board: Board) -> EffectsRequest:
        return EffectsRequest(board.get(CommonEffects).effects)

    def size(self, board: Board) -> int:
        return self.n_clusters * (self.n_clusters + 5)

    @classmethod
    def vector(cls, site: PlacedSite, request: EffectsRequest) -> FloatArray:  # type: ignore[override]
        found = cls.score(site, request)
        return np.concatenate([found.excess, found.covariance.ravel(), found.compare().ravel()])

    @classmethod
    @abstractmethod
    def score(cls, site: PlacedSite, request: EffectsRequest) -> Scores:
        """Compare the events of a site with those that the effects lead one to expect."""

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        c = self.n_clusters
        excess, covariance, compared = np.split(total, [c, c + c * c])
        before = board.get(CommonEffects).effects
        step = invert_covariance(covariance.reshape(c, c))[0] @ excess
        effects = np.clip(before + np.clip(step, -1.0, 1.0), -LARGEST, LARGEST)
        settled = bool(np.max(np.abs(effects - before), initial=0.0) < SMALL_STEP)
        return board.put(CommonEffects(effects, compared.reshape(4, c), settled))
