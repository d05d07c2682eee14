"""Aggregators combine the replies of sites: by their sum, or by robust sums that few lying sites cannot bend."""

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
    """Combines the replies of sites. A new aggregator is a frozen dataclass with the first two methods.

    The other methods are about what is exchanged before and after the rounds. They add up, unless a subclass says
    otherwise. "Write parts of your own" in the documentation has a table of all methods, and of the fields of what they
    get.

    `fedhk.testing.aggregators.AggregatorChecks` has tests for it.
    """

    descends: ClassVar[bool] = False
    """Whether an update from its result never raises the objective of all rows; true for plain sums only."""
    adds: ClassVar[bool] = False
    """Whether it only adds, so that a relay may add up part of the replies."""

    @abstractmethod
    def statistics(self, sites: Sequence[Statistics], parameters: Parameters) -> Statistics:
        """Combine the statistics of the sites at these parameters; arrays have the same shapes at all sites."""

    @abstractmethod
    def candidates(self, sites: Sequence[Candidates]) -> Sequence[Candidates]:
        """Return the candidates of each site that are used, with their weights."""

    def moments(self, sites: Sequence[Moments]) -> Moments:
        """Combine the moments of one view over the sites that have it."""
        return reduce(Moments.merge, sites)

    def sums(self, sites: Sequence[FloatArray], rows: Sequence[FloatArray]) -> FloatArray:
        """Combine vectors that are sums over rows; `rows` has the number of rows behind each number."""
        return np.asarray(reduce(add, sites), np.float64)

    def objective(self, sites: Sequence[tuple[float, float]]) -> float:
        """Combine the objectives of the sites, given the number of rows of each, with the weights of `statistics`.

        Rounds keep the model at which it is lowest.
        """
        return float(self.sums([np.array([value]) for value, _ in sites], [np.array([rows]) for _, rows in sites])[0])

    def fewest_holders(self, n_sites: int) -> int:
        """Return how many of `n_sites` sites must have a view for it to be used."""
        return 1


@dataclass(frozen=True)
class SumAggregator(Aggregator):
    """The plain sum. It is exact, but a single lying site can change it at will."""

    descends: ClassVar[bool] = True
    adds: ClassVar[bool] = True

    def statistics(self, sites: Sequence[Statistics], parameters: Parameters) -> Statistics:
        return reduce(add, sites)

    def candidates(self, sites: Sequence[Candidates]) -> Sequence[Candidates]:
        return sites


def combine_statistics(aggregator: Aggregator, sites: Sequence[Statistics], parameters: Parameters) -> Statistics:
    """Combine the statistics of the sites, and check what the aggregator gives: it may be one that a user wrote.

    Raises
    ------
    TypeError, ValueError
        If it gives no Statistics, or if arrays have other shapes than those of the sites or are not finite.
    """
    total = aggregator.statistics(sites, parameters)
    if not isinstance(total, Statistics):
        raise TypeError(f"{aggregator!r}: statistics() must give Statistics, got {type(total).__name__}.")
    for name, given in vars(total).items():
        own, usual = (part if isinstance(part, tuple) else (part,) for part in (given, getattr(sites[0], name)))
        shapes, allowed = (list(map(np.shape, parts)) for parts in (own, usual))
        wide = list(map(np.shape, total.numerators))
        if shapes != allowed and not (name == "weights" and shapes == wide):  # one column may stand for all
            raise ValueError(f"{aggregator!r}: statistics() gave {name} of shape {shapes}, must be {allowed}.")
        if not all(np.isfinite(part).all() for part in own):
            raise ValueError(f"{aggregator!r}: statistics() gave {name} that are not finite.")
    return total


def choose_candidates(aggregator: Aggregator, sites: Sequence[Candidates]) -> list[Candidates]:
    """Return the candidates that the aggregator uses, and check that it gives such.

    Raises
    ------
    TypeError
        If it gives anything else than Candidates.
    """
    found = aggregator.candidates(sites)
    if not isinstance(found, Sequence) or not all(isinstance(own, Candidates) for own in found):
        raise TypeError(f"{aggregator!r}: candidates() must give a list of Candidates, got {type(found).__name__}.")
    return list(found)


PLAIN_SUM = SumAggregator()
"""Default aggregator of phases."""


@dataclass(frozen=True)
class RobustAggregator(Aggregator):
    """Robust sums, which few sites cannot move far, in every exchange: moments, candidates, statistics and final sums.

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
        # few sites could have made up a view that they alone have
        return max(2, int(STRONG_SITES * n_sites) + 1) if n_sites >= FEWEST_SITES else 1


def make_aggregator(given: str | Aggregator) -> Aggregator:
    """Return the aggregator of this name, or the given object."""
    if isinstance(given, Aggregator):
        return given
    if given not in AGGREGATIONS:
        raise ValueError(
            f"aggregator={given!r} must be one of {AGGREGATIONS}, or a fedhk.federation.aggregators.Aggregator."
        )
    return SumAggregator() if given == "sum" else RobustAggregator(given)
