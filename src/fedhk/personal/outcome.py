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
    """What one site adds to the global objective.

    Parameters
    ----------
    objective : float
        J of the site's rows in its own model.
    rows : int
        How many they are.
    center_distance, view_distance : float
        R_person and R_view, as in `OwnModel`.
    """

    objective: float
    rows: int
    center_distance: float
    view_distance: float


@dataclass(frozen=True)
class SiteReport:
    """What a site says of its own model, where neither noise nor masks forbid it.

    Parameters
    ----------
    terms : SiteTerms
        What it adds to the global objective with personalization.
    clusters : int
        How many clusters its rows are in.
    shares : dict of str to float
        What it learned, by component.
    """

    terms: SiteTerms
    clusters: int
    shares: dict[str, float] = field(default_factory=dict)

    def check(self, site: str) -> None:
        """Refuse a report of a site with numbers that are not finite."""
        distances = {name: getattr(self.terms, name) for name in ("objective", "center_distance", "view_distance")}
        for name, number in (distances | self.shares).items():
            if not math.isfinite(number):
                raise MessageError(f"{name}={number} in its report is not a finite number", site)


@dataclass(frozen=True)
class SiteOutcome:
    """A site's own model and what that says of its rows.

    Parameters
    ----------
    model : FittedModel
        The site's own model.
    labels, memberships : arrays of shape (n,) and (n, c)
        Of its rows in that model.
    global_labels : array of shape (n,)
        Of its rows in the global model.
    objective : float
        J of its rows in its own model.
    center_distance, view_distance : float
        R_person and R_view.
    shares : dict of str to float
        What it learned, by component.
    """

    model: FittedModel
    labels: IntArray
    memberships: FloatArray
    global_labels: IntArray
    objective: float
    center_distance: float = 0.0
    view_distance: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def report(self) -> SiteReport:
        """The numbers that the site may tell."""
        terms = SiteTerms(self.objective, len(self.labels), self.center_distance, self.view_distance)
        return SiteReport(terms, len(np.unique(self.labels)), self.shares)
