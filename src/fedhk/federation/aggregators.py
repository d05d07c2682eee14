"""How the answers of sites are brought together: their sum, or what holds against sites that lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar

import numpy as np

from fedhk._options import Option
from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.privacy.robust import AGGREGATIONS, FEWEST_SITES, STRONG_SITES, robust_total
from fedhk.privacy.robust_sums import robust_moments, robust_sums
from fedhk.privacy.trusted_candidates import trusted_candidates
from fedhk.starts.candidates import Candidates


class Aggregator(Option, ABC):
    """A way to combine the answers of sites. A new one is a frozen dataclass with the first two methods.

    The other methods are about what is exchanged before and after the rounds. They add up, unless a subclass says
    otherwise.

    `fedhk.testing.aggregators.AggregatorChecks` has tests for it.
    """

    descends: ClassVar[bool] = False
    """Whether a step on what it gives cannot raise the objective of all rows: only of their sum is that known."""
    adds: ClassVar[bool] = False
    """Whether it does no more than add, so that part of the sum may be made on the way."""

    @abstractmethod
    def statistics(self, sites: Sequence[Statistics], parameters: Parameters) -> Statistics:
        """Statistics of all sites, from those of each at these parameters."""

    @abstractmethod
    def candidates(self, sites: Sequence[Candidates]) -> Sequence[Candidates]:
        """The candidates of each site, as far as they count."""

    def moments(self, sites: Sequence[Moments]) -> Moments:
        """Moments of one view over all sites, from those of each site that has it."""
        return reduce(Moments.merge, sites)

    def sums(self, sites: Sequence[FloatArray], rows: Sequence[FloatArray]) -> FloatArray:
        """The total of vectors that add over rows; `rows` says of how many rows each number is a sum."""
        return np.asarray(reduce(add, sites), np.float64)

    def objective(self, sites: Sequence[tuple[float, float]]) -> float:
        """The objective of all rows, from the objective and the number of rows of each site."""
        return float(self.sums([np.array([value]) for value, _ in sites], [np.array([rows]) for _, rows in sites])[0])

    def fewest_holders(self, n_sites: int) -> int:
        """How many of so many sites must have a view for it to count."""
        return 1


@dataclass(frozen=True)
class SumAggregator(Aggregator):
    """The plain sum: exact, and what any one site says counts in full."""

    descends: ClassVar[bool] = True
    adds: ClassVar[bool] = True

    def statistics(self, sites: Sequence[Statistics], parameters: Parameters) -> Statistics:
        return reduce(add, sites)

    def candidates(self, sites: Sequence[Candidates]) -> Sequence[Candidates]:
        return sites


PLAIN_SUM = SumAggregator()
"""What phases use where nothing else is asked for."""


@dataclass(frozen=True)
class RobustAggregator(Aggregator):
    """What few sites cannot move far, in every exchange: moments, candidates, statistics of rounds, sums at the end.

    Parameters
    ----------
    rule : {"robust", "median", "trimmed"}
        As in `fedhk.privacy.robust`.
    """

    rule: str = "robust"

    def statistics(self, sites: Sequence[Statistics], parameters: Parameters) -> Statistics:
        return robust_total(sites, parameters, self.rule)

    def candidates(self, sites: Sequence[Candidates]) -> Sequence[Candidates]:
        return trusted_candidates(sites)

    def moments(self, sites: Sequence[Moments]) -> Moments:
        return robust_moments(sites)

    def sums(self, sites: Sequence[FloatArray], rows: Sequence[FloatArray]) -> FloatArray:
        return robust_sums(sites, rows)

    def fewest_holders(self, n_sites: int) -> int:
        # a view that so few sites have could be one that these have made up
        return max(2, int(STRONG_SITES * n_sites) + 1) if n_sites >= FEWEST_SITES else 1


def make_aggregator(given: str | Aggregator) -> Aggregator:
    """The aggregator of a name, or the one that was given."""
    if isinstance(given, Aggregator):
        return given
    if given not in AGGREGATIONS:
        raise ValueError(
            f"aggregator={given!r} must be one of {AGGREGATIONS}, or a fedhk.federation.aggregators.Aggregator."
        )
    return SumAggregator() if given == "sum" else RobustAggregator(given)
