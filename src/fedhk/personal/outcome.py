"""What a site has at the end of a run, and what it reports of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.errors import MessageError
from fedhk.model.fitted import FittedModel


@dataclass(frozen=True)
class SiteTerms:
    """What one site adds to the global objective: J of its rows in its own model, R_person and R_view."""

    objective: float
    rows: int
    center_distance: float
    view_distance: float


@dataclass(frozen=True)
class SiteReport:
    """What a site says of its own model, where neither noise nor masks forbid it."""

    terms: SiteTerms
    clusters: int  # how many clusters its rows are in
    shares: dict[str, float] = field(default_factory=dict)  # what it learned, by component

    def check(self, site: str) -> None:
        """Refuse a report of a site with numbers that are not finite."""
        terms = self.terms
        distances = {"center_distance": terms.center_distance, "view_distance": terms.view_distance}
        for name, number in ({"objective": terms.objective} | distances | self.shares).items():
            if not math.isfinite(number):
                raise MessageError(f"{name}={number} in its report is not a finite number", site)


@dataclass(frozen=True)
class SiteOutcome:
    """A site's own model, what that says of its rows, and the terms and shares that `SiteReport` has."""

    model: FittedModel
    labels: IntArray
    memberships: FloatArray
    global_labels: IntArray  # of the rows in the global model
    objective: float
    center_distance: float = 0.0
    view_distance: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def report(self) -> SiteReport:
        """The numbers that the site may tell."""
        terms = SiteTerms(self.objective, len(self.labels), self.center_distance, self.view_distance)
        return SiteReport(terms, len(np.unique(self.labels)), self.shares)
