"""A site's own view weights: those that suit its rows, as far as held-out rows or a pull allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.model.updates import learned_view_weights


def own_view_weights(common: Parameters, statistics: Statistics, pull: float = 0.0) -> FloatArray:
    """The view weights that suit a site's rows best; a view that the site does not have keeps its weight.

    Parameters
    ----------
    common : Parameters
        The global model.
    statistics : Statistics
        Of the site's rows.
    pull : float
        eta of R_view: rows at which the global weights are best, counted beside the site's own.

    Notes
    -----
    A row at which the weights v' are best has costs in the proportion of v'^(1-alpha); its size is that of the site's
    rows. So eta counts rows as gamma does. The exact minimiser with the paper's ||v - v'||^2 has no closed form; see
    `view_distance` for what stands in its place.
    """
    seen = statistics.costs > 0
    weights = np.array(common.view_weights)
    if not seen.any():
        return weights
    costs = statistics.costs[seen]
    if pull > 0:
        with np.errstate(divide="ignore", over="ignore"):  # a view without weight stays without
            steepness = common.view_weights[seen] ** (1.0 - common.view_exponent)
        costs = costs + pull * _cost_per_row(common, statistics) * common.view_shares[seen] * steepness
    own = learned_view_weights(costs, common.view_shares[seen], common.view_exponent)
    weights[seen] = own * weights[seen].sum()
    return weights


def view_distance(common: Parameters, weights: FloatArray, statistics: Statistics) -> float:
    """R_view in units of the objective: what a row costs more, at which the global weights are best.

    Notes
    -----
    With view weights v, global ones v' and a row's mean cost q it is q (sum_h v_h^alpha v'_h^(1-alpha) - 1), 0 where
    the two are the same and above 0 elsewhere. For alpha = 2 that is q sum_h (v_h - v'_h)^2 / v'_h: the paper's squared
    distance, each view in proportion to its weight.
    """
    used = common.view_weights > 0
    before, alpha = common.view_weights[used], common.view_exponent
    distance = float(np.sum(weights[used] ** alpha * before ** (1.0 - alpha))) - float(before.sum())
    return _cost_per_row(common, statistics) * max(distance, 0.0)


def learned_view_share(common: Parameters, halves: Sequence[Statistics]) -> float:
    """rho: the share of own view weights with the least cost of held-out rows, among tenths."""
    shares = np.linspace(0.0, 1.0, 11)
    costs = np.zeros(len(shares))
    for train, test in ((0, 1), (1, 0)):
        own = own_view_weights(common, halves[train])
        for place, share in enumerate(shares):
            weights = common.view_weights + share * (own - common.view_weights)
            factors = replace(common, view_weights=weights).view_factors
            costs[place] += float(factors @ halves[test].costs)
    return float(shares[int(np.argmin(costs))])


def _cost_per_row(common: Parameters, statistics: Statistics) -> float:
    """The mean objective of a row with the global view weights."""
    return float(common.view_factors @ statistics.costs) / max(statistics.rows, 1e-300)
