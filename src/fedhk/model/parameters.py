"""The parameters of the model: what a server broadcasts and what a fitted model keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhk._typing import FloatArray

if TYPE_CHECKING:
    from fedhk.tensors.low_rank import LowRank


@dataclass(frozen=True)
class Parameters:
    """Centres, view weights and the three numbers that shape the objective, in model units.

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
    form : LowRank or None
        The low-rank form that the centres have, where they are constrained to one.
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
    form: LowRank | None = None
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
