"""Algorithms 2 and 3 at one client: clustering with decomposed centres.

`alg:tensor_fed_local` and `alg:tensor_fed_local_tucker` are the same lines with other letters for the factors, so they
are one function here. The data tensor is held as its slices, the views: its padded cells are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import AboveOne, Count, NotNegative, Options
from fedhk.reference.arrays import (
    ekmvc_objective,
    fked,
    minmax_coefficient,
    tucker_to_tensor,
    update_memberships,
    update_parts,
    update_view_weights,
)
from fedhk.reference.heat_kernel import DistanceReading
from fedhk.reference.personalization import BlendMeaning, blend
from fedhk.reference.tensor_updates import FactorReading
from fedhk.reference.tensors import untensorize


@dataclass(frozen=True)
class TensorOptions(Options):
    """Parameters of Algorithms 2 and 3, and the reading of every line that allows more than one."""

    fuzzifier: AboveOne = 2.0
    view_exponent: AboveOne = 2.0
    tolerance: NotNegative = 1e-6
    """epsilon, the threshold of convergence; the same letter guards the division in step 2.1, which is 1e-12 here."""
    max_iter: Count = 10
    blend_meaning: BlendMeaning = "global"
    """What lambda weighs: the global part in the algorithms, the local one in `eqn:personal_core`."""
    factor_reading: FactorReading = "printed"
    distance_reading: DistanceReading = "per_view"
    fresh_centers: bool = False
    """Rebuild the centres between steps 2.4 and 2.5; as printed, view weights and J use those from before the ALS."""


@dataclass(frozen=True)
class TensorState:
    """Memberships U*, parts (core G, factors P, Q, R), view weights v, and the objective of every iteration."""

    memberships: FloatArray
    parts: list[FloatArray]
    view_weights: FloatArray
    objectives: list[float]


def tensor_local_clustering(
    views: Sequence[FloatArray],
    global_parts: Sequence[FloatArray],
    previous_parts: Sequence[FloatArray],
    personalization: float,
    *,
    options: TensorOptions,
) -> TensorState:
    """Run Algorithm 2 (or 3, the same) at one client.

    Parameters
    ----------
    views : sequence of s arrays of shape (n, d_h)
    global_parts, previous_parts : sequences of four arrays
        Core (r1, r2, r3) and factors (c, r1), (D, r2), (s, r3), global and of the client's previous call.
    personalization : float
        lambda. The algorithm also asks for rho and never uses it: the view weights start uniform.
    options : TensorOptions

    Returns
    -------
    TensorState

    Notes
    -----
    The first relative change of J is infinity over infinity in the algorithm; here it never stops the loop.
    """
    # Phase 1: personalized initialization
    parts = blend_parts(previous_parts, global_parts, [personalization] * 4, options.blend_meaning)
    state = TensorState(np.zeros((0, 0)), parts, np.full(len(views), 1.0 / len(views)), [])
    # Phase 2: iterative optimization
    for _ in range(options.max_iter):
        state = local_iteration(views, state, options)
        history = state.objectives
        if len(history) > 1 and abs(history[-1] - history[-2]) <= options.tolerance * abs(history[-2]):
            break
    return state


def local_iteration(views: Sequence[FloatArray], state: TensorState, options: TensorOptions) -> TensorState:
    """Run steps 2.1 to 2.6 of Algorithms 2 and 3, which are also one local epoch of Algorithm 4."""
    m, alpha, widths = options.fuzzifier, options.view_exponent, [view.shape[1] for view in views]
    coefs = [minmax_coefficient(view) for view in views]  # step 2.1
    centers = tucker_to_tensor(state.parts[0], state.parts[1:])  # step 2.2
    distances = fked(views, untensorize(centers, widths), coefs, options.distance_reading)
    mu = update_memberships(distances, state.view_weights, alpha, m)  # step 2.3
    parts = update_parts(  # step 2.4
        views,
        mu,
        centers,
        coefs,
        state.parts,
        view_weights=state.view_weights,
        view_exponent=alpha,
        fuzzifier=m,
        reading=options.factor_reading,
    )
    if options.fresh_centers:
        centers = tucker_to_tensor(parts[0], parts[1:])
        distances = fked(views, untensorize(centers, widths), coefs, options.distance_reading)
    view_weights = update_view_weights(distances, mu, alpha, m)  # step 2.5
    objective = ekmvc_objective(distances, mu, view_weights, alpha, m)  # step 2.6
    return TensorState(mu, parts, view_weights, [*state.objectives, objective])


def blend_parts(
    local: Sequence[FloatArray],
    shared: Sequence[FloatArray],
    personalization: Sequence[float] | FloatArray,
    meaning: BlendMeaning,
) -> list[FloatArray]:
    """Blend each part of a client with the global one, by a lambda of its own."""
    return [
        blend(mine, common, float(weight), meaning)
        for mine, common, weight in zip(local, shared, personalization, strict=True)
    ]
