"""Algorithm 4: FedHK-MVC-Person, federated clustering with decomposed centres (`alg:tensor_fedhkparafac2_complete`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import Count, NotNegative, Share, read_options
from fedhk.reference.algorithm_tensor_local import TensorState, blend_parts, local_iteration
from fedhk.reference.arrays import (
    center_gradient,
    component_lambda_gradients,
    minmax_coefficient,
    tensorize,
    tucker_to_tensor,
)
from fedhk.reference.outcome import Clients, Outcome, PersonRound, Start, name_clients, read_clients
from fedhk.reference.personalization import adaptive_lambda, blend
from fedhk.reference.tensor_federation import FederationOptions, aggregate, start_parts
from fedhk.reference.tensors import untensorize


@dataclass(frozen=True)
class PersonOptions(FederationOptions):
    """Parameters of Algorithm 4, and the reading of every line that allows more than one.

    Of ``local``, ``tolerance`` and ``max_iter`` are not read: Algorithm 4 has a number of epochs instead.
    """

    epochs: Count = 2
    personalization_step: NotNegative = 1e-2
    """beta."""
    view_personalization: Share = 0.5
    """rho of every client; no step that would learn it is printed."""


def fedhk_person(
    clients: Clients,
    n_clusters: int,
    options: PersonOptions | None = None,
    random_state: np.random.Generator | int | None = None,
    *,
    start: Start | None = None,
) -> Outcome:
    """Run Algorithm 4 on the views of every client.

    Parameters
    ----------
    clients : sequence, or dict by name, of M sequences of s arrays of shape (n(l), d_h)
    n_clusters : int
    options : PersonOptions, optional
    random_state : numpy.random.Generator or int, optional
        Draws the initial parts (standard normal) and view weights.
    start : global parts and view weights, optional
        Taken instead of random ones.

    Returns
    -------
    Outcome
        Its history has a `PersonRound` for each round.

    Notes
    -----
    A client's parts before its first round are not defined in the algorithm; they are the global ones. Its message
    lacks the V_l that `eqn:fed_global_views` needs, which is sent here; and `eqn:personal_core` to
    `eqn:personal_views` appear in no line of it.
    """
    options, views = read_options(options, PersonOptions, "fedhk_person"), read_clients(clients, n_clusters)
    widths = [view.shape[1] for view in views[0]]
    # Phase 1: server initialization
    parts, weights = start_parts(n_clusters, widths, options, random_state, start)
    lambdas = np.full((len(views), 4), options.personalization)
    rhos = np.full(len(views), options.view_personalization)
    states = [TensorState(np.zeros((0, 0)), list(parts), weights, []) for _ in views]
    history: list[PersonRound] = []
    for _ in range(options.rounds):
        # Phases 2 and 3: broadcast and local computation
        states = [
            _local_round(x, (parts, weights), (before, mine, float(rho)), options)
            for x, before, mine, rho in zip(views, states, lambdas, rhos, strict=True)
        ]
        # Phase 4: server aggregation
        record = aggregate(states, widths, options)
        parts, weights = record.parts, record.view_weights
        # Phase 5: adaptive personalization update
        lambdas = np.array(
            [_adapt(x, state, parts, mine, options) for x, state, mine in zip(views, states, lambdas, strict=True)]
        )
        history.append(PersonRound(**vars(record), personalization=lambdas, view_personalization=rhos))
    return Outcome([state.memberships for state in states], history, name_clients(clients))


def _local_round(
    views: Sequence[FloatArray], shared: Start, own: tuple[TensorState, FloatArray, float], options: PersonOptions
) -> TensorState:
    """Blend and run E local epochs (steps 3.2 and 3.3)."""
    before, lambdas, rho = own
    meaning = options.local.blend_meaning
    parts = blend_parts(before.parts, shared[0], lambdas, meaning)
    state = TensorState(before.memberships, parts, blend(before.view_weights, shared[1], rho, meaning), [])
    for _ in range(options.epochs):
        state = local_iteration(views, state, options.local)
    return state


def _adapt(
    views: Sequence[FloatArray],
    state: TensorState,
    global_parts: Sequence[FloatArray],
    lambdas: FloatArray,
    options: PersonOptions,
) -> list[float]:
    """Phase 5: one clipped gradient step on each lambda, at the blend of the client's and the new global parts."""
    meaning, m, alpha = options.local.blend_meaning, options.local.fuzzifier, options.local.view_exponent
    blended = blend_parts(state.parts, global_parts, lambdas, meaning)
    centers = untensorize(tucker_to_tensor(blended[0], blended[1:]), [view.shape[1] for view in views])
    coefs = [minmax_coefficient(view) for view in views]
    slopes = center_gradient(
        views, state.memberships, centers, coefs, state.view_weights, view_exponent=alpha, fuzzifier=m
    )
    gradients = component_lambda_gradients(tensorize(slopes), blended, state.parts, global_parts, meaning)
    return [
        adaptive_lambda(float(weight), slope, options.personalization_step)
        for weight, slope in zip(lambdas, gradients, strict=True)
    ]
