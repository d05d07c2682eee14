"""How the answers of sites are brought together: their sum, or what holds against sites that lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from fedhk._options import Option
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.privacy.robust import AGGREGATIONS, robust_total
from fedhk.privacy.trusted_candidates import trusted_candidates
from fedhk.starts.candidates import Candidates


class Aggregator(Option, ABC):
    """A way to combine the answers of sites. A new one is a frozen dataclass with these two methods.

    `fedhk.testing.aggregators.AggregatorChecks` has tests for it.
    """

    @abstractmethod
    def statistics(self, sites: Sequence[Statistics], parameters: Parameters) -> Statistics:
        """Statistics of all sites, from those of each at these parameters."""

    @abstractmethod
    def candidates(self, sites: Sequence[Candidates]) -> Sequence[Candidates]:
        """The candidates of each site, as far as they count."""


@dataclass(frozen=True)
class SumAggregator(Aggregator):
    """The plain sum: exact, and what any one site says counts in full."""

    def statistics(self, sites: Sequence[Statistics], parameters: Parameters) -> Statistics:  # noqa: ARG002
        return reduce(add, sites)

    def candidates(self, sites: Sequence[Candidates]) -> Sequence[Candidates]:
        return sites


@dataclass(frozen=True)
class RobustAggregator(Aggregator):
    """A total that few sites cannot move far.

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


def make_aggregator(given: str | Aggregator) -> Aggregator:
    """The aggregator of a name, or the one that was given."""
    if isinstance(given, Aggregator):
        return given
    if given not in AGGREGATIONS:
        raise ValueError(f"aggregator={given!r} must be one of {AGGREGATIONS}, or a fedhk.federation Aggregator.")
    return SumAggregator() if given == "sum" else RobustAggregator(given)
