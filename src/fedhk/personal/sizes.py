"""How frequent clusters are at a site, compared with all sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.statistics import Statistics
from fedhk.personal.component import Component, OwnModel
from fedhk.personal.shares import Move

# Least size of a cluster at a site, as a share of its size over all sites: rows of it may still come.
LEAST_SIZE = 1e-2


@dataclass(frozen=True, kw_only=True)
class Sizes(Component[Statistics]):
    """Gives clusters the sizes that they have at the site: a row between two clusters goes to the larger one."""

    name: ClassVar[str] = "sizes"
    summary: ClusterSummary  # how large clusters are over all sites

    def learn(self, own: OwnModel, part: Statistics) -> Move:
        """Find how much more frequent each cluster is at the site than over all sites; 0 is equal."""
        everywhere, factors = self.summary.shares, own.parameters.cluster_factors
        counts = part.masses if factors is None else part.masses / factors
        here = counts / max(float(counts.sum()), 1e-300)
        ratios = np.divide(here, everywhere, out=np.ones_like(here), where=everywhere > 0)
        return Move(ratios - 1.0, everywhere)

    def apply(self, own: OwnModel, part: Statistics, shares: Mapping[str, float]) -> OwnModel:
        share = shares[self.name]
        sizes = np.maximum(1.0 + share * self.learn(own, part).step, LEAST_SIZE) if share > 0 else own.common.sizes
        return replace(own, parameters=replace(own.parameters, sizes=sizes).without(own.common.gone))
