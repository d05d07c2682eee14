"""The three block updates of the alternating minimisation, from the statistics of one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.statistics import Statistics

# A weight below this share of the view's largest is what rounding leaves of nothing: the kernel of a far centre.
LEAST_SHARE = 1e-13


def update_centers(statistics: Statistics, previous: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Centres a_kj = N_kj / W_kj; a centre without weight, or with no more than rounding, stays where it was.

    Notes
    -----
    `eqn:diff_A_EFKMVFC` with delta_ij inside the weight: the exact minimiser of a majoriser of J, because 1 - exp(-phi)
    is concave in phi. The update as printed divides by a quantity that depends on the summation index and raises J.
    """
    return tuple(
        np.divide(numerator, weight, out=np.array(old, dtype=np.float64), where=weight > LEAST_SHARE * weight.max())
        for numerator, weight, old in zip(statistics.numerators, statistics.weights, previous, strict=True)
    )


def learned_view_weights(costs: FloatArray, shares: FloatArray, view_exponent: float) -> FloatArray:
    """View weights v_h proportional to cost_h^(-1/(alpha-1)) (`eqn:diff_V_EFKMVFC`): the exact minimiser of J in v.

    A view without cost takes all the weight; several such views share it.
    """
    per_row = costs / np.maximum(shares, 1e-12)
    free = per_row <= np.finfo(np.float64).tiny
    if free.any():
        return np.asarray(free / free.sum())
    logs = -np.log(per_row) / (view_exponent - 1.0)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
