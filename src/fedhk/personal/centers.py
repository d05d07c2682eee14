"""A site's own centres: what is left for each cluster once the site's offset is removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.statistics import Statistics
from fedhk.personal.component import Component, OwnModel, join_sums
from fedhk.personal.shares import Move

# Weight below this share of the largest is no evidence of where a centre is: rows of other clusters leave as much.
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True, kw_only=True)
class Centers(Component[Statistics]):
    """Moves centres towards the site's own rows, those of clusters with few rows less far.

    The share is lambda of `eqn:adaptive_lambda`.
    """

    name: ClassVar[str] = "centers"
    pull: float = 0.0  # gamma of R_person: rows by which the global centre pulls each own one

    def learn(self, own: OwnModel, part: Statistics) -> Move:
        """Find where the rows of each cluster pull its centre, from the common centre with the site's offset."""
        numerators, weights = join_sums(part, own.common)
        centers: FloatArray = np.hstack(own.common.centers) + own.offset
        used = weights > LEAST_WEIGHT * weights.max(initial=0.0)
        gaps = np.divide(numerators, weights, out=np.array(centers), where=used) - centers
        return Move(gaps, np.where(used, weights, 0.0))

    def apply(self, own: OwnModel, part: Statistics, shares: Mapping[str, float]) -> OwnModel:
        """Give the exact minimiser of the majoriser of the objective with R_person, at the model so far.

        Repeated in every pass it leads to a minimum of J + gamma R_person; a share stands for the pull that takes this
        share where the site has most of its weight.
        """
        gap, weight = self.learn(own, part)
        total, share = max(float(weight.sum()), 1e-300), shares[self.name]
        pull = self.pull + (float(np.sum(weight**2)) / total * (1.0 / share - 1.0) if share > 0 else np.inf)
        taken = np.divide(weight, weight + pull, out=np.zeros_like(weight), where=weight > 0)
        if self.pull > 0:
            share = float(np.sum(weight * taken)) / total
        step = taken * gap
        if isinstance(self.share, str):
            step = keep_meaning(np.hstack(own.common.centers), step)
        return replace(own, step=step, shares=own.shares | {self.name: share})

    def finish(self, own: OwnModel) -> OwnModel:
        """Put the centres with their offset into the parameters."""
        return replace(own, parameters=own.current)


def keep_meaning(centers: FloatArray, step: FloatArray) -> FloatArray:
    """Give steps of centres without those that are longer than the way to the nearest other centre.

    After such a step the cluster may be another one at this site. Common centres that lie on each other, as with a
    large fuzzifier, take none: each site would pull them apart its own way.
    """
    squares = np.square(centers).sum(axis=1)
    apart = squares[:, None] + squares - 2.0 * centers @ centers.T
    np.fill_diagonal(apart, np.inf)
    return np.where((np.square(step).sum(axis=1) <= apart.min(axis=1))[:, None], step, 0.0)
