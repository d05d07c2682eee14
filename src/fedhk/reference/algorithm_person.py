"""Algorithm 4: FedHK-MVC-Person, federated clustering with decomposed centres (`alg:tensor_fedhkparafac2_complete`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference.aggregation import (
    CoreReading,
    Divisor,
    aggregate_tensor_statistics,
    aggregate_view_weights,
    client_weights,
    tensor_statistics,
)
from fedhk.reference.algorithm_tensor_local import TensorOptions, TensorState, local_iteration
from fedhk.reference.decompositions import tucker_to_tensor
from fedhk.reference.derivatives import center_gradient
from fedhk.reference.heat_kernel import tensorized_coefficient
from fedhk.reference.personalization import adaptive_lambda, blend, component_lambda_gradients
from fedhk.reference.tensors import tensorize, untensorize


@dataclass(frozen=True)
class PersonOptions:
    """Parameters of Algorithm 4, and the reading of every line that allows more than one."""

    ranks: tuple[int, int, int]
    local: TensorOptions = field(default_factory=TensorOptions)
    rounds: int = 5
    epochs: int = 2
    quality_temperature: float = 1.0
    """tau."""
    personalization_step: float = 1e-2
    """beta."""
    quality: Literal["sum", "mean"] = "sum"
    """Whether the quality weights compare the printed sums over samples or means per sample."""
    core_reading: CoreReading = "whole"
    divisor: Divisor = "samples"


@dataclass(frozen=True)
class PersonResult:
    """Global parts and view weights, every client's state, its four lambdas, and the objectives of every round."""

    global_parts: list[FloatArray]
    global_view_weights: FloatArray
    clients: list[TensorState]
    personalization: list[list[float]]
    objectives: list[list[float]]


def fedhk_person(
    clients: Sequence[Sequence[FloatArray]],
    n_clusters: int,
    options: PersonOptions,
    random_state: np.random.Generator,
) -> PersonResult:
    """Run Algorithm 4 on the views of every client.

    Parameters
    ----------
    clients : sequence of M sequences of s arrays of shape (n(l), d_h)
    n_clusters : int
    options : PersonOptions
    random_state : numpy.random.Generator
        Draws the initial parts (standard normal) and view weights.

    Returns
    -------
    PersonResult

    Notes
    -----
    A client's parts before its first round are not defined in the algorithm; they are the global ones. Its message
    lacks the V_l that `eqn:fed_global_views` needs, which is sent here; rho stays at 0.5, for which no step is printed;
    and `eqn:personal_core` to `eqn:personal_views` appear in no line of it.
    """
    widths = [view.shape[1] for view in clients[0]]
    # Phase 1: server initialization
    parts, weights = _random_parts(n_clusters, widths, options.ranks, random_state)
    lambdas = [[0.5] * 4 for _ in clients]
    rho = 0.5
    sizes = [len(views[0]) for views in clients]
    previous = [TensorState(np.zeros((0, 0)), parts, weights, []) for _ in clients]
    objectives: list[list[float]] = []
    for _ in range(options.rounds):
        # Phases 2 and 3: broadcast and local computation
        states = [
            _local_round(views, widths, (parts, weights), (before, mine, rho), options)
            for views, before, mine in zip(clients, previous, lambdas, strict=True)
        ]
        # Phase 4: server aggregation
        reported = [state.objectives[-1] for state in states]
        objectives.append(reported)
        omegas = client_weights(reported, options.quality_temperature, sizes if options.quality == "mean" else None)
        shared = [
            tensor_statistics(s.memberships, s.parts[0], s.parts[1:], options.local.fuzzifier, options.core_reading)
            for s in states
        ]
        core, factors = aggregate_tensor_statistics(shared, omegas, sizes, options.divisor)
        parts = [core, *factors]
        weights = aggregate_view_weights([state.view_weights for state in states], omegas, sizes)
        # Phase 5: adaptive personalization update
        lambdas = [
            _adapt(views, widths, state, parts, (mine, options))
            for views, state, mine in zip(clients, states, lambdas, strict=True)
        ]
        previous = states
    return PersonResult(parts, weights, previous, lambdas, objectives)


def _random_parts(
    n_clusters: int, widths: Sequence[int], ranks: tuple[int, int, int], random_state: np.random.Generator
) -> tuple[list[FloatArray], FloatArray]:
    sizes = (n_clusters, max(widths), len(widths))
    parts = [random_state.normal(size=ranks)]
    parts += [random_state.normal(size=(size, rank)) for size, rank in zip(sizes, ranks, strict=True)]
    raw = random_state.uniform(0.5, 1.5, size=len(widths))
    return parts, raw / raw.sum()


def _local_round(
    views: Sequence[FloatArray],
    widths: Sequence[int],
    shared: tuple[list[FloatArray], FloatArray],
    own: tuple[TensorState, list[float], float],
    options: PersonOptions,
) -> TensorState:
    """Tensorise, blend and run E local epochs (steps 3.1 to 3.3)."""
    global_parts, global_weights = shared
    before, lambdas, rho = own
    meaning = options.local.blend_meaning
    parts = [
        blend(mine, common, weight, meaning)
        for mine, common, weight in zip(before.parts, global_parts, lambdas, strict=True)
    ]
    view_weights = blend(before.view_weights, global_weights, rho, meaning)
    state = TensorState(np.zeros((0, 0)), parts, view_weights, [])
    tensor = tensorize(views)
    for _ in range(options.epochs):
        state = local_iteration(tensor, widths, state, options.local)
    return state


def _adapt(
    views: Sequence[FloatArray],
    widths: Sequence[int],
    state: TensorState,
    global_parts: list[FloatArray],
    own: tuple[list[float], PersonOptions],
) -> list[float]:
    """Phase 5: one clipped gradient step on each lambda, at the blend of the client's and the new global parts."""
    lambdas, options = own
    meaning, m, alpha = options.local.blend_meaning, options.local.fuzzifier, options.local.view_exponent
    blended = [
        blend(mine, common, weight, meaning)
        for mine, common, weight in zip(state.parts, global_parts, lambdas, strict=True)
    ]
    centers = untensorize(tucker_to_tensor(blended[0], blended[1:]), widths)
    coefs = untensorize(tensorized_coefficient(tensorize(views), widths), widths)
    slopes = center_gradient(
        views, state.memberships, centers, coefs, state.view_weights, view_exponent=alpha, fuzzifier=m
    )
    gradients = component_lambda_gradients(tensorize(slopes), blended, state.parts, global_parts, meaning)
    return [
        adaptive_lambda(weight, slope, options.personalization_step)
        for weight, slope in zip(lambdas, gradients, strict=True)
    ]
