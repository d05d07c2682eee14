"""How a client departs from the global model: gradient steps, blends, learned blends and pulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import check_words
from fedhk.reference.decompositions import tucker_to_tensor
from fedhk.reference.tensors import frobenius_norm, scalar_product

BlendMeaning = Literal["global", "local"]
Normalization = Literal["sum", "threshold"]


def personalized_centers(global_centers: FloatArray, gradient: FloatArray, step: float) -> FloatArray:
    """Gradient step from the global centres of one view, A_global - epsilon grad_A J (`eqn:personalized_A_EFKMVFC`).

    Notes
    -----
    The equation does not say where the gradient is taken; the caller chooses the local or the global centres.
    """
    return global_centers - step * gradient


@check_words
def personalized_view_weights(
    global_weights: FloatArray,
    gradient: FloatArray,
    step: float,
    normalization: Normalization = "threshold",
    threshold: float = 1e-12,
) -> FloatArray:
    """Gradient step from the global view weights, then normalisation (`eqn:personalized_V_EFKMVFC`).

    Parameters
    ----------
    global_weights, gradient : arrays of shape (s,)
    step : float
        The learning rate epsilon.
    normalization : {"sum", "threshold"}
        The text offers two: ``"sum"`` divides by the sum, which leaves negative weights negative; ``"threshold"`` first
        lifts every weight to a minimum.
    threshold : float

    Returns
    -------
    array of shape (s,)
    """
    stepped = [float(v) - step * float(g) for v, g in zip(global_weights, gradient, strict=True)]
    if normalization == "threshold":
        stepped = [max(value, threshold) for value in stepped]
    return np.array([value / sum(stepped) for value in stepped])


@check_words
def blend(local: FloatArray, shared: FloatArray, personalization: float, meaning: BlendMeaning = "local") -> FloatArray:
    """Blend of a local and a global component.

    Parameters
    ----------
    local, shared : arrays of one shape
        The client's component and the global one.
    personalization : float
        lambda or rho, between 0 and 1.
    meaning : {"local", "global"}
        What lambda weighs: the local component in `eqn:personal_core`, `_P`, `_Q`, `_R`, `eqn:personal_views` and
        `eqn:adaptive_lambda`; the global one in Algorithms 2, 3 and 4.

    Returns
    -------
    array
    """
    if local.shape != shared.shape:
        raise ValueError(f"the local component has shape {local.shape}, the global one {shared.shape}.")
    weight = personalization if meaning == "local" else 1.0 - personalization
    return weight * local + (1.0 - weight) * shared


@check_words
def lambda_gradient(
    gradient_at_blend: Sequence[FloatArray],
    local: Sequence[FloatArray],
    shared: Sequence[FloatArray],
    meaning: BlendMeaning = "local",
) -> float:
    """Slope of J(lambda A_local + (1 - lambda) A_global) in lambda, <grad J, A_local - A_global>.

    With ``meaning="global"`` the roles of local and global are exchanged, and so is the sign.
    """
    total = 0.0
    for gradient, mine, common in zip(gradient_at_blend, local, shared, strict=True):
        total += scalar_product(gradient, mine - common)
    return total if meaning == "local" else -total


@check_words
def component_lambda_gradients(
    center_gradient: FloatArray,
    blended: Sequence[FloatArray],
    local: Sequence[FloatArray],
    shared: Sequence[FloatArray],
    meaning: BlendMeaning = "local",
) -> list[float]:
    """Slopes of J in the four component-wise lambdas, by the chain rule through G x1 P x2 Q x3 R (Algorithm 4).

    Parameters
    ----------
    center_gradient : array of shape (c, D, s)
        Gradient of J in the centre tensor, at the blended parts.
    blended, local, shared : sequences of four arrays
        Core and three factors.
    meaning : {"local", "global"}

    Returns
    -------
    list of four floats
    """
    derivatives = []
    for part in range(4):
        moved = list(blended)
        moved[part] = local[part] - shared[part]  # the centre tensor is linear in each part
        direction = tucker_to_tensor(moved[0], moved[1:])
        slope = scalar_product(center_gradient, direction)
        derivatives.append(slope if meaning == "local" else -slope)
    return derivatives


def adaptive_lambda(personalization: float, gradient: float, personalization_step: float, clip: bool = True) -> float:
    """Gradient step on lambda (`eqn:adaptive_lambda`), clipped to [0, 1] as in Algorithm 4.

    Notes
    -----
    On the rows that the local centres were fitted to no lambda is better than 1. Steps may end below it: J is not
    convex between the two models.
    """
    stepped = personalization - personalization_step * gradient
    return max(0.0, min(1.0, stepped)) if clip else stepped


def center_regularizer(
    centers: Sequence[FloatArray], global_centers: Sequence[FloatArray], count_clusters: bool = False
) -> float:
    """Pull R_person of the centres towards the global ones, sum_h ||A_h - A_global_h||_F^2.

    Notes
    -----
    Printed as a sum over h and k of a term without k, which counts every view c times: ``count_clusters=True``.
    """
    total = 0.0
    for a, shared in zip(centers, global_centers, strict=True):
        repeats = len(a) if count_clusters else 1
        total += repeats * frobenius_norm(a - shared) ** 2
    return total


def view_regularizer(view_weights: FloatArray, global_weights: FloatArray) -> float:
    """Pull R_view of the view weights, ||V - V_global||^2."""
    return frobenius_norm(view_weights - global_weights) ** 2


def tensor_regularizer(parts: Sequence[FloatArray], global_parts: Sequence[FloatArray]) -> float:
    """Pull R_tensor: squared Frobenius distances of the core and the three factors to the global ones, summed.

    Notes
    -----
    The printed line runs into the definition of R_view without a separator; they are read as two definitions.
    """
    total = 0.0
    for part, shared in zip(parts, global_parts, strict=True):
        total += frobenius_norm(part - shared) ** 2
    return total


def global_objective(
    objectives: Sequence[float],
    client_weights: Sequence[float] | FloatArray,
    center_pulls: Sequence[float],
    view_pulls: Sequence[float],
    *,
    center_pull: float,
    view_pull: float,
) -> float:
    """Global objective with personalization (`eqn:fed_global_obj_personalization`, `eqn:tensor_fed_global_obj`).

    sum_l omega_l J_l + gamma R_person,l + eta R_view,l; for tensors R_tensor stands for R_person.

    Parameters
    ----------
    objectives, client_weights : M numbers each
        J_l and omega_l.
    center_pulls, view_pulls : M numbers each
        From `center_regularizer` or `tensor_regularizer`, and `view_regularizer`.
    center_pull, view_pull : float
        gamma and eta.

    Returns
    -------
    float
    """
    total = 0.0
    for objective, omega, centers, views in zip(objectives, client_weights, center_pulls, view_pulls, strict=True):
        total += float(omega) * objective + center_pull * centers + view_pull * views
    return total
