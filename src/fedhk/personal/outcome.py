"""The result of a run at a site, and the site's report on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.errors import MessageError
from fedhk.model.fitted import FittedModel


@dataclass(frozen=True)
class SiteTerms:
    """The terms of the global objective of one site: J of its rows in its own model, R_person, R_view and R_tensor."""

    objective: float
    rows: int
    center_distance: float
    view_distance: float
    tensor_distance: float = 0.0  # R_tensor, where the site's own model has a form that lived through the rounds

    def check(self, site: str) -> None:
        """Refuse numbers of a site that are not finite, or below 0."""
        for name, number in vars(self).items():
            if not (math.isfinite(number) and number >= 0):
                raise MessageError(f"{name}={number} of its own model is not possible", site)


@dataclass(frozen=True)
class SiteReport:
    """A site's report on its own model; there is none in runs with noise or masks."""

    terms: SiteTerms
    clusters: int  # how many clusters its rows are in
    shares: dict[str, float] = field(default_factory=dict)  # what it learned, by component

    def check(self, site: str) -> None:
        """Refuse a report of a site with numbers that are not finite."""
        terms = self.terms
        distances = {name: getattr(terms, name) for name in ("center_distance", "view_distance", "tensor_distance")}
        for name, number in ({"objective": terms.objective} | distances | self.shares).items():
            if not math.isfinite(number):
                raise MessageError(f"{name}={number} in its report is not a finite number", site)


@dataclass(frozen=True)
class SiteOutcome:
    """A site's own model, the labels and memberships of its rows, and the terms and shares of its `SiteReport`."""

    model: FittedModel
    labels: IntArray
    memberships: FloatArray
    global_labels: IntArray  # of the rows in the global model
    objective: float
    center_distance: float = 0.0
    view_distance: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    tensor_distance: float = 0.0

    @property
    def report(self) -> SiteReport:
        """Return the numbers that the site may report."""
        distances = self.center_distance, self.view_distance, self.tensor_distance
        terms = SiteTerms(self.objective, len(self.labels), *distances)
        return SiteReport(terms, len(np.unique(self.labels)), self.shares)
