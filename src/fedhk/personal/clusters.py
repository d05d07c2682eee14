"""A site may use fewer clusters than there are over all sites, if its owner asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk.model.statistics import Statistics
from fedhk.personal.component import Component, OwnModel, Share
from fedhk.personal.shares import Move


@dataclass(frozen=True, kw_only=True)
class Clusters(Component[Statistics]):
    """Leave out all but the `number` common clusters that most of the site's rows are in, c(l) of the paper.

    Those that stay keep their numbers, so that a cluster still means what it means everywhere.
    """

    name: ClassVar[str] = "clusters"
    share: Share = 1.0
    number: int

    @property
    def parts(self) -> tuple[str, ...]:
        return ()

    def learn(self, own: OwnModel, part: Statistics) -> Move:  # noqa: ARG002
        """Find the share of the rows in each cluster."""
        return Move(part.masses, np.ones_like(part.masses))

    def apply(self, own: OwnModel, part: Statistics, shares: Mapping[str, float]) -> OwnModel:  # noqa: ARG002
        largest = np.argsort(-part.masses, kind="stable")[: self.number]
        sizes = np.ones(len(part.masses)) if own.parameters.sizes is None else own.parameters.sizes
        stays = np.isin(np.arange(len(sizes)), largest)
        return replace(own, parameters=replace(own.parameters, sizes=np.where(stays, sizes, 0.0)))
