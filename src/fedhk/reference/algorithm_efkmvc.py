"""Algorithm 1: efficient federated kernel multi-view clustering (`alg:efkmvc`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import AboveOne, Count, NotNegative, Options, read_options
from fedhk.reference.aggregation import sample_average
from fedhk.reference.arrays import (
    absdev_coefficient,
    center_gradient,
    ekmvc_objective,
    fked,
    minmax_coefficient,
    update_centers,
    update_memberships,
    update_view_weights,
    view_weight_gradient,
)
from fedhk.reference.heat_kernel import DistanceReading
from fedhk.reference.outcome import Clients, Outcome, Round, Start, name_clients, read_clients, read_start
from fedhk.reference.personalization import Normalization, personalized_centers, personalized_view_weights
from fedhk.reference.updates import CenterReading


@dataclass(frozen=True)
class EfkmvcOptions(Options):
    """Parameters of Algorithm 1, and the reading of every line that allows more than one."""

    fuzzifier: AboveOne = 2.0
    view_exponent: AboveOne = 2.0
    tolerance: NotNegative = 1e-6
    """epsilon, the threshold of local and of global convergence."""
    max_rounds: Count = 10
    max_epochs: Count = 5
    center_step: NotNegative = 1e-3
    """epsilon_A; the equations before the algorithm call both steps and the threshold epsilon."""
    view_step: NotNegative = 1e-3
    """epsilon_V."""
    heat_coef: Literal["minmax", "absdev"] = "minmax"
    center_reading: CenterReading = "theorem"
    distance_reading: DistanceReading = "per_view"
    normalization: Normalization = "threshold"
    gradient_at: Literal["local", "global"] = "local"
    """Where phase 4 takes its gradients; the algorithm writes the symbol of the local parameters."""
    start: Literal["personalized", "global"] = "personalized"
    """What phase 2 of the next round starts from; the algorithm does not say."""


@dataclass(frozen=True)
class EfkmvcClient:
    """What one client holds: U*, A and V, and the objective it reports."""

    memberships: FloatArray
    centers: list[FloatArray]
    view_weights: FloatArray
    objective: float


def efkmvc(
    clients: Clients,
    n_clusters: int,
    options: EfkmvcOptions | None = None,
    random_state: np.random.Generator | int | None = None,
    *,
    start: Start | None = None,
) -> Outcome:
    """Run Algorithm 1 on the views of every client (`alg:efkmvc`).

    Parameters
    ----------
    clients : sequence, or dict by name, of M sequences of s arrays of shape (n(l), d_h)
    n_clusters : int
    options : EfkmvcOptions, optional
    random_state : numpy.random.Generator or int, optional
        Draws the initial centres (standard normal) and view weights.
    start : global centres and view weights, optional
        Taken instead of random ones.

    Returns
    -------
    Outcome

    Notes
    -----
    The memberships that are returned belong to the centres before phase 4, as in the algorithm.
    """
    options, views = read_options(options, EfkmvcOptions, "efkmvc"), read_clients(clients, n_clusters)
    # Phase 1: server initialization
    shared = (
        _random_start(n_clusters, views[0], np.random.default_rng(random_state))
        if start is None
        else read_start(start, [(n_clusters, view.shape[1]) for view in views[0]], len(views[0]), "centres")
    )
    sizes = [len(x[0]) for x in views]
    omegas = np.array(sizes) / sum(sizes)
    starts = [shared] * len(views)
    history: list[Round] = []
    for _ in range(options.max_rounds):
        # Phase 2: local client computation
        coefs = [_heat_coefs(x, options) for x in views]
        local = [
            local_optimization(x, coef, *begin, options) for x, coef, begin in zip(views, coefs, starts, strict=True)
        ]
        # Phase 3: server aggregation
        global_centers = [sample_average([m.centers[h] for m in local], sizes) for h in range(len(views[0]))]
        global_weights = sample_average([model.view_weights for model in local], sizes)
        shared = (global_centers, global_weights)
        # Phase 4: personalization
        models = [
            personalize(x, coef, model, shared, options) for x, coef, model in zip(views, coefs, local, strict=True)
        ]
        starts = [shared if options.start == "global" else (model.centers, model.view_weights) for model in models]
        # Phase 5: global convergence check
        objectives = np.array([model.objective for model in local])
        history.append(
            Round(
                objective=float(omegas @ objectives),
                client_objectives=objectives,
                client_weights=omegas,
                centers=global_centers,
                view_weights=global_weights,
                client_centers=[model.centers for model in models],
                client_view_weights=np.array([model.view_weights for model in models]),
            )
        )
        if len(history) > 1 and _has_settled(history[-1].objective, history[-2].objective, options):
            break
    return Outcome([model.memberships for model in local], history, name_clients(clients))


def _random_start(n_clusters: int, views: Sequence[FloatArray], random_state: np.random.Generator) -> Start:
    centers = [random_state.normal(size=(n_clusters, view.shape[1])) for view in views]
    raw = random_state.uniform(0.5, 1.5, size=len(views))
    return centers, raw / raw.sum()


def local_optimization(
    views: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    centers: Sequence[FloatArray],
    view_weights: FloatArray,
    options: EfkmvcOptions,
) -> EfkmvcClient:
    """Update memberships, centres and view weights in turn, then take the objective (Algorithm 1, steps 2.2, 2.3)."""
    m, alpha = options.fuzzifier, options.view_exponent
    current, weights = list(centers), view_weights
    previous = float("inf")
    for _ in range(options.max_epochs):
        distances = fked(views, current, heat_coefs, options.distance_reading)
        mu = update_memberships(distances, weights, alpha, m)
        current = update_centers(
            views,
            mu,
            current,
            heat_coefs,
            weights,
            view_exponent=alpha,
            fuzzifier=m,
            reading=options.center_reading,
        )
        distances = fked(views, current, heat_coefs, options.distance_reading)
        weights = update_view_weights(distances, mu, alpha, m)
        objective = ekmvc_objective(distances, mu, weights, alpha, m)
        if np.isfinite(previous) and _has_settled(objective, previous, options):
            break
        previous = objective
    return EfkmvcClient(mu, current, weights, objective)


def personalize(
    views: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    local: EfkmvcClient,
    shared: tuple[list[FloatArray], FloatArray],
    options: EfkmvcOptions,
) -> EfkmvcClient:
    """Phase 4 of Algorithm 1: a gradient step of the local objective from the global model."""
    m, alpha = options.fuzzifier, options.view_exponent
    global_centers, global_weights = shared
    at_local = options.gradient_at == "local"
    centers = local.centers if at_local else global_centers
    weights = local.view_weights if at_local else global_weights
    slopes = center_gradient(views, local.memberships, centers, heat_coefs, weights, view_exponent=alpha, fuzzifier=m)
    distances = fked(views, centers, heat_coefs, options.distance_reading)
    view_slope = view_weight_gradient(distances, local.memberships, weights, alpha, m)
    return EfkmvcClient(
        local.memberships,
        [personalized_centers(a, g, options.center_step) for a, g in zip(global_centers, slopes, strict=True)],
        personalized_view_weights(global_weights, view_slope, options.view_step, options.normalization),
        local.objective,
    )


def _heat_coefs(views: Sequence[FloatArray], options: EfkmvcOptions) -> list[FloatArray]:
    if options.heat_coef == "absdev":
        return [absdev_coefficient(view) for view in views]
    return [minmax_coefficient(view) for view in views]


def _has_settled(value: float, previous: float, options: EfkmvcOptions) -> bool:
    """Whether the relative change is within the tolerance, without dividing by an objective of 0."""
    return abs(value - previous) <= options.tolerance * abs(previous)
