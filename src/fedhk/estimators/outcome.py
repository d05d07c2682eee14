"""What a site has at the end of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.personal.objective import SiteReport, SiteTerms

if TYPE_CHECKING:
    from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC


@dataclass(frozen=True)
class SiteOutcome:
    """A site's own model and what that says of its rows.

    Parameters
    ----------
    model : HeatKernelMVC
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

    model: HeatKernelMVC
    labels: IntArray
    memberships: FloatArray
    global_labels: IntArray
    objective: float
    center_distance: float = 0.0
    view_distance: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def report(self) -> SiteReport:
        """The numbers that may be told."""
        terms = SiteTerms(self.objective, len(self.labels), self.center_distance, self.view_distance)
        return SiteReport(terms, len(np.unique(self.labels)), self.shares)
