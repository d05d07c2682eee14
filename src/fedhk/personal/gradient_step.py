"""One step from the global model along a site's own descent: the personalization of Algorithm 1."""

from __future__ import annotations

from dataclasses import replace

from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows


def take_gradient_step(
    rows: Rows, parameters: Parameters, step: float, *, learn_weights: bool, workers: int = 1
) -> Parameters:
    """Take one step from the global model along the site's own descent (`eqn:personalized_A_EFKMVFC`).

    Parameters
    ----------
    rows : Rows
        The site's rows.
    parameters : Parameters
        The global model.
    step : float
        beta, from 0 (the global model) to 1 (the site's full update).
    learn_weights : bool
        Whether view weights take part (`eqn:personalized_V_EFKMVFC`).
    workers : int, default=1
        Threads.

    Notes
    -----
    The gradient 2 t v^alpha (W a - N) is divided by its curvature 2 t v^alpha W: the paper's bare gradient grows with
    the rows and the heat time, so that no one step size suits two sites. In this form the site's own objective cannot
    rise for any step in [0, 1], and view weights stay on the simplex without a projection. Centres of low rank lose
    their form: a site's own are as free as its rows ask.
    """
    if step == 0 or rows.n_rows == 0:
        return parameters
    parameters = parameters.free()
    with Passes(rows, parameters.n_clusters, workers) as scan:
        local = improve(parameters, scan.statistics(parameters), learn_weights=learn_weights)
    blended = tuple(a + step * (b - a) for a, b in zip(parameters.centers, local.centers, strict=True))
    weights = parameters.view_weights + step * (local.view_weights - parameters.view_weights)
    return replace(parameters, centers=blended, view_weights=weights)
