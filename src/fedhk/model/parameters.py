"""The parameters of the model: what a server broadcasts and what a fitted model keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.statistics import Statistics
from fedhk.model.updates import update_centers


@dataclass(frozen=True)
class Parameters:
    """Centres, view weights and the three numbers that shape the objective, in model units.

    The centres here are free. A subclass that constrains them overrides how they move and how they change coordinates;
    `fedhk.tensors.low_rank.LowRankParameters` does.

    Parameters
    ----------
    centers : tuple of array of shape (c, d_h)
        A in the paper, one array per view.
    view_weights : array of shape (s,)
        v in the paper; sums to 1.
    heat_time : float
        t: the bandwidth of the heat kernel in model units.
    fuzzifier : float
        m > 1.
    view_exponent : float
        alpha > 1.
    view_shares : array of shape (s,)
        Share of the rows that have each view: a view's cost is divided by it, so that a view is not thought good
        because it is rare.
    sizes : array of shape (c,) or None
        In a site's own model: how many times more frequent each cluster is there than everywhere. Memberships are
        multiplied by it, so that a row between two clusters goes to the one that is frequent at its site.
    """

    centers: tuple[FloatArray, ...]
    view_weights: FloatArray
    heat_time: float
    fuzzifier: float
    view_exponent: float
    view_shares: FloatArray
    sizes: FloatArray | None = None

    @property
    def n_clusters(self) -> int:
        """Number of clusters c."""
        return int(self.centers[0].shape[0])

    @property
    def view_factors(self) -> FloatArray:
        """What multiplies each view's kernel distance in the objective: v_h^alpha over the view's share of the rows."""
        factors: FloatArray = self.view_weights**self.view_exponent / np.maximum(self.view_shares, 1e-12)
        return factors

    @property
    def cluster_factors(self) -> FloatArray | None:
        """What multiplies each cluster's distance: sizes^(1-m), of which memberships in proportion to sizes follow."""
        return None if self.sizes is None else np.asarray(self.sizes ** (1.0 - self.fuzzifier))

    def move_centers(self, statistics: Statistics) -> Self:
        """Take the centre step a = N / W, which never raises the objective, from the statistics at these parameters."""
        return replace(self, centers=update_centers(statistics, self.centers))

    def free(self) -> Parameters:
        """Give the same parameters without any constraint on the centres."""
        return self

    def in_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        """Give the parameters with centres in the coordinates of orthonormal columns E_h, of shape (d_h, q_h)."""
        return replace(self, centers=tuple(values @ e for values, e in zip(self.centers, basis, strict=True)))

    def from_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        """Give the parameters with centres in features, from centres in the coordinates of `basis`."""
        return replace(self, centers=tuple(values @ e.T for values, e in zip(self.centers, basis, strict=True)))

    def spans(self) -> tuple[FloatArray, ...]:
        """Give, per view, rows that span all places where the centres are: here the centres themselves."""
        return self.centers
