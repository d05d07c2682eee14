"""A site's own view weights: those that suit its rows, as far as held-out rows or a pull allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.descent import learned_view_weights
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.personal.component import Component, OwnModel, Shares
from fedhk.personal.shares import Move, measure_share

# Shares that are compared on held-out rows; their cost is flat near its least, so that tenths are fine enough.
TRIED_SHARES = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True, kw_only=True)
class ViewWeights(Component[Statistics]):
    """View weights that suit the site's rows; the share is rho."""

    name: ClassVar[str] = "view_weights"
    pull: float = 0.0  # eta of R_view: rows by which the global view weights pull the own ones

    def learn(self, own: OwnModel, part: Statistics) -> Move:
        """Find how the weights that suit some rows differ from the common ones; the weight of a view is its cost."""
        return Move(fit_view_weights(own.common, part, self.pull) - own.common.view_weights, part.costs)

    def confirm(self, own: OwnModel, first: Move, second: Move) -> Shares:
        """Find the share with the least cost of held-out rows."""
        common, costs = own.common, np.zeros(len(TRIED_SHARES))
        for (step, _), (_, held_out) in ((first, second), (second, first)):
            for place, share in enumerate(TRIED_SHARES):
                weights = common.view_weights + share * step
                costs[place] += float(replace(common, view_weights=weights).view_factors @ held_out)
        return {self.name: float(TRIED_SHARES[int(np.argmin(costs))])}

    def apply(self, own: OwnModel, part: Statistics, shares: Mapping[str, float]) -> OwnModel:
        common, share = own.common, shares[self.name]
        step = share * self.learn(own, part).step
        weights = common.view_weights + step
        if self.pull > 0:
            unpulled = fit_view_weights(common, part) - common.view_weights
            share = measure_share(Move(unpulled, np.ones_like(unpulled)), step)
        return replace(
            own,
            parameters=replace(own.parameters, view_weights=weights),
            shares=own.shares | {self.name: share},
            view_distance=measure_view_distance(common, weights, part),
        )


def fit_view_weights(common: Parameters, statistics: Statistics, pull: float = 0.0) -> FloatArray:
    """Find the view weights that suit a site's rows best; a view that the site does not have keeps its weight.

    With a pull eta of R_view, so many rows at which the global weights v' are best count beside the site's own. Such a
    row has costs in the proportion of v'^(1-alpha), and the size of the site's rows: eta counts rows as gamma does. The
    exact minimiser with the paper's ||v - v'||^2 has no closed form; see
    `measure_view_distance` for what stands in its place.
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


def measure_view_distance(common: Parameters, weights: FloatArray, statistics: Statistics) -> float:
    """Measure R_view in units of the objective: what a row costs more, at which the global weights are best.

    With view weights v, global ones v' and a row's mean cost q it is q (sum_h v_h^alpha v'_h^(1-alpha) - 1), 0 where
    the two are the same and above 0 elsewhere. For alpha = 2 that is q sum_h (v_h - v'_h)^2 / v'_h: the paper's squared
    distance, each view in proportion to its weight.
    """
    used = common.view_weights > 0
    before, alpha = common.view_weights[used], common.view_exponent
    distance = float(np.sum(weights[used] ** alpha * before ** (1.0 - alpha))) - float(before.sum())
    return _cost_per_row(common, statistics) * max(distance, 0.0)


def _cost_per_row(common: Parameters, statistics: Statistics) -> float:
    """The mean objective of a row with the global view weights."""
    return float(common.view_factors @ statistics.costs) / max(statistics.rows, 1e-300)
