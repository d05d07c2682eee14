"""The update of the model where not every view is observed: at one site, or while the sites that have it are away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhk.model.loop import improve
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics


def improve_observed(parameters: Parameters, statistics: Statistics, *, learn_weights: bool) -> Parameters:
    """Descend one step in centres and in the weights of the views that the rows have; see `improve`.

    Notes
    -----
    A view that is not there costs nothing, so `eqn:diff_V_EFKMVFC` would give it all the weight. It keeps the weight it
    had and the others share the rest: the exact minimiser of J over their weights.
    """
    better = improve(parameters, statistics, learn_weights=learn_weights)
    absent = np.array([not weights.any() for weights in statistics.weights]) & (statistics.costs == 0)
    if not learn_weights or not absent.any():
        return better
    weights = parameters.view_weights.copy()
    if not absent.all():
        seen = replace(statistics, costs=statistics.costs[~absent])
        shares = parameters.view_shares[~absent]
        learned = improve(replace(parameters, view_shares=shares), seen, learn_weights=True).view_weights
        weights[~absent] = learned * weights[~absent].sum()
    return replace(better, view_weights=weights)
