"""The statistics of one pass over rows: all that a site sends in a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray


@dataclass(frozen=True)
class Statistics:
    """Sums over rows at given centres and view weights, in model units.

    Statistics of a union of rows are the sum of the statistics: chunks, threads and sites are all this one addition.

    Parameters
    ----------
    numerators : tuple of array of shape (c, d_h)
        N_kj = sum_i mu_ik^m exp(-phi_ik) delta_ij x_ij per view.
    weights : tuple of array of shape (c, d_h) or (c, 1)
        W_kj = sum_i mu_ik^m exp(-phi_ik) delta_ij per view. One column where all coefficients are 1 and no cell is
        missing: then the numbers do not depend on the feature.
    costs : array of shape (s,)
        sum_ik mu_ik^m F_ik per view.
    masses : array of shape (c,)
        sum_i mu_ik^m: how much of the rows each cluster holds.
    objective : float
        J at the given centres and view weights with the best memberships.
    rows : float
        Weight of the rows.
    """

    numerators: tuple[FloatArray, ...]
    weights: tuple[FloatArray, ...]
    costs: FloatArray
    masses: FloatArray
    objective: float
    rows: float

    @property
    def heights(self) -> FloatArray:
        """Compute max_j W_kj, of shape (c, s): the weight of rows behind each centre."""
        return np.stack([weights.max(axis=1) for weights in self.weights], axis=1)

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            tuple(a + b for a, b in zip(self.numerators, other.numerators, strict=True)),
            tuple(a + b for a, b in zip(self.weights, other.weights, strict=True)),
            self.costs + other.costs,
            self.masses + other.masses,
            self.objective + other.objective,
            self.rows + other.rows,
        )

    def scaled(self, factor: float) -> Statistics:
        """Return the statistics of the same rows with their weights multiplied by `factor`."""
        return Statistics(
            tuple(values * factor for values in self.numerators),
            tuple(values * factor for values in self.weights),
            self.costs * factor,
            self.masses * factor,
            self.objective * factor,
            self.rows * factor,
        )

    @classmethod
    def zero(cls, n_clusters: int, widths: tuple[int, ...]) -> Statistics:
        """Make the statistics of no rows: the neutral element of the sum."""
        return cls(
            tuple(np.zeros((n_clusters, width)) for width in widths),
            tuple(np.zeros((n_clusters, 1)) for _ in widths),
            np.zeros(len(widths)),
            np.zeros(n_clusters),
            0.0,
            0.0,
        )


def match_shapes(sites: Sequence[Statistics]) -> list[Statistics]:
    """Return the same statistics with weights that have as many columns at all sites: d_h where any site has so many.

    A site with a missing cell sends d_h columns, a site without one sends a single column.
    """
    views = zip(*(site.weights for site in sites), strict=True)
    shapes = [np.broadcast_shapes(*(weights.shape for weights in view)) for view in views]
    return [
        replace(site, weights=tuple(np.broadcast_to(w, shape) for w, shape in zip(site.weights, shapes, strict=True)))
        for site in sites
    ]
