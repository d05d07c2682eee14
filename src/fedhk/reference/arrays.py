"""The formulas that Algorithms 1 to 4 are made of, with arrays where the other modules have loops.

Every function has the name, the arguments and the result of its readable twin, whose docstring explains it. Where the
paper divides by zero (a sample on a centre, a view without cost) the twin raises; here the limit is taken: equal shares
among the zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import check_words
from fedhk.reference.aggregation import CoreReading, TensorStatistics
from fedhk.reference.heat_kernel import DistanceReading
from fedhk.reference.personalization import BlendMeaning
from fedhk.reference.tensor_updates import FactorReading
from fedhk.reference.updates import CenterReading

FORMULAS = (
    "absdev_coefficient",
    "center_gradient",
    "client_weights",
    "component_lambda_gradients",
    "ekmvc_objective",
    "fked",
    "minmax_coefficient",
    "tensor_regularizer",
    "tensor_statistics",
    "tensorize",
    "tucker_to_tensor",
    "update_centers",
    "update_memberships",
    "update_parts",
    "update_view_weights",
    "view_weight_gradient",
)
"""The functions that have a twin of the same name in `fedhk.reference`."""


def minmax_coefficient(x: FloatArray, epsilon: float = 1e-12) -> FloatArray:
    """Min-max heat-kernel coefficient of one view at one client (`eqn:fed_delta`)."""
    low, high = x.min(axis=0), x.max(axis=0)
    return np.asarray((x - low) / (high - low + epsilon))


def absdev_coefficient(x: FloatArray) -> FloatArray:
    """Absolute-deviation heat-kernel coefficient (`eqn:fed_delta_v2`)."""
    return np.asarray(np.abs(x - x.mean(axis=0)))


@check_words
def fked(
    views: Sequence[FloatArray],
    centers: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    reading: DistanceReading = "per_view",
) -> list[FloatArray]:
    """Kernel distance of every view (`eqn:federated_ked`, and `eqn:tensorized_ked` on the slices of the tensor)."""
    exponents = [_exponents(x, a, delta) for x, a, delta in zip(views, centers, heat_coefs, strict=True)]
    if reading == "summed":
        exponents = [np.sum(exponents, axis=0)] * len(views)
    return [-np.expm1(-phi) for phi in exponents]


def update_memberships(
    view_distances: Sequence[FloatArray], view_weights: FloatArray, view_exponent: float, fuzzifier: float
) -> FloatArray:
    """Memberships as printed (`eqn:diff_U_EFKMVFC`, `eqn:tensor_membership`, `eqn:tucker_membership`)."""
    return _inverse_power_shares(np.tensordot(view_weights**view_exponent, np.stack(view_distances), 1), fuzzifier)


@check_words
def update_centers(
    views: Sequence[FloatArray],
    memberships: FloatArray,
    centers: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    view_weights: FloatArray,
    *,
    view_exponent: float,
    fuzzifier: float,
    reading: CenterReading = "theorem",
) -> list[FloatArray]:
    """Centres a_kj = sum_i w_ijk x_ij / sum_i w_ijk at the current centres (`eqn:diff_A_EFKMVFC`)."""
    updated = []
    for h, (x, a, delta) in enumerate(zip(views, centers, heat_coefs, strict=True)):
        power = view_weights[h] ** view_exponent * memberships**fuzzifier
        if reading == "theorem":
            weights, numerators = _theorem_sums(x, a, delta, power)
        else:
            pull = power * np.exp(-_exponents(x, a, delta))
            inside = delta if reading == "corrected" else np.ones_like(delta)
            weights, numerators = pull.T @ inside, pull.T @ (inside * x)
        updated.append(np.divide(numerators, weights, out=np.array(a, dtype=np.float64), where=weights > 0))
    return updated


def _theorem_sums(x: FloatArray, centers: FloatArray, delta: FloatArray, power: FloatArray) -> list[FloatArray]:
    """Sums over rows with the weight of the theorem, exp(-delta_ij ||x_i - a_k||^2): one for each cell."""
    squares = _exponents(x, centers, np.ones_like(x))
    sums = [np.zeros(centers.shape), np.zeros(centers.shape)]
    for k in range(len(centers)):
        influence = np.exp(-delta * squares[:, k, None])
        sums[0][k] = power[:, k] @ influence
        sums[1][k] = power[:, k] @ (influence * x)
    return sums


def update_view_weights(
    view_distances: Sequence[FloatArray], memberships: FloatArray, view_exponent: float, fuzzifier: float
) -> FloatArray:
    """View weights as printed (`eqn:diff_V_EFKMVFC`, `eqn:tensor_view_weights`, `eqn:tucker_view_weights`)."""
    return _inverse_power_shares(_costs(view_distances, memberships, fuzzifier), view_exponent)


def ekmvc_objective(
    view_distances: Sequence[FloatArray],
    memberships: FloatArray,
    view_weights: FloatArray,
    view_exponent: float,
    fuzzifier: float,
) -> float:
    """Objective J of one client (`eqn:E-KMVC`)."""
    return float(view_weights**view_exponent @ _costs(view_distances, memberships, fuzzifier))


def center_gradient(
    views: Sequence[FloatArray],
    memberships: FloatArray,
    centers: Sequence[FloatArray],
    heat_coefs: Sequence[FloatArray],
    view_weights: FloatArray,
    *,
    view_exponent: float,
    fuzzifier: float,
) -> list[FloatArray]:
    """Gradient of the objective in the centres (`eqn:cluster_derivative_fed`)."""
    gradients = []
    for h, (x, a, delta) in enumerate(zip(views, centers, heat_coefs, strict=True)):
        pull = (memberships**fuzzifier * np.exp(-_exponents(x, a, delta))).T
        gradients.append(2.0 * view_weights[h] ** view_exponent * ((pull @ delta) * a - pull @ (delta * x)))
    return gradients


def view_weight_gradient(
    view_distances: Sequence[FloatArray],
    memberships: FloatArray,
    view_weights: FloatArray,
    view_exponent: float,
    fuzzifier: float,
) -> FloatArray:
    """Gradient of the objective in the view weights (`eqn:view_derivative_fed`)."""
    costs = _costs(view_distances, memberships, fuzzifier)
    return np.asarray(view_exponent * view_weights ** (view_exponent - 1.0) * costs)


def client_weights(
    objectives: Sequence[float], quality_temperature: float, sizes: Sequence[int] | None = None
) -> FloatArray:
    """Quality weights of the clients (`eqn:client_weights`), in which no exponential underflows for all of them."""
    scores = -quality_temperature * np.asarray(objectives) / (1.0 if sizes is None else np.asarray(sizes))
    raw = np.exp(scores - scores.max())
    return np.asarray(raw / raw.sum())


def tensorize(views: Sequence[FloatArray]) -> FloatArray:
    """Stack views of different width into one zero-padded tensor (`eqn:tensor_data2`)."""
    tensor = np.zeros((len(views[0]), max(view.shape[1] for view in views), len(views)))
    for h, view in enumerate(views):
        tensor[:, : view.shape[1], h] = view
    return tensor


def tucker_to_tensor(core: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Core times a factor matrix in every mode (`eqn:tucker`, `eqn:tensor_cluster_centers`)."""
    return np.asarray(np.einsum("pqr,kp,jq,hr->kjh", core, *factors, optimize=True))


@check_words
def update_parts(
    views: Sequence[FloatArray],
    memberships: FloatArray,
    center_tensor: FloatArray,
    heat_coefs: Sequence[FloatArray],
    parts: Sequence[FloatArray],
    *,
    view_weights: FloatArray,
    view_exponent: float,
    fuzzifier: float,
    reading: FactorReading = "printed",
) -> list[FloatArray]:
    """One ALS sweep of core and factors on sums over the rows (Algorithms 2 to 4, step 2.4).

    Notes
    -----
    The printed weight of a cell is a product of one number per cluster and one per view, so that each part is a matrix
    product with the pseudo-inverse of the others. The corrected weights ask for one system of r1 r2 r3 equations.
    """
    power, factors = memberships**fuzzifier, [np.array(factor) for factor in parts[1:]]
    view_powers = view_weights**view_exponent
    if reading == "printed":
        means = tensorize([power.T @ x for x in views]) / power.sum(axis=0)[:, None, None]
        return _sweep_separable(means, power.sum(axis=0), view_powers, factors)
    sums: list[list[FloatArray]] = [[], []]
    for h, (x, delta) in enumerate(zip(views, heat_coefs, strict=True)):
        centers = center_tensor[:, : x.shape[1], h]
        pull = (view_powers[h] * power * np.exp(-_exponents(x, centers, delta))).T
        sums[0].append(pull @ delta)
        sums[1].append(pull @ (delta * x))
    return _sweep(tensorize(sums[0]), tensorize(sums[1]), factors)


def _sweep_separable(
    means: FloatArray, masses: FloatArray, view_powers: FloatArray, factors: list[FloatArray]
) -> list[FloatArray]:
    """Fit ``means`` with weights masses_k view_powers_h: the core first, then one factor after the other."""
    roots = [np.sqrt(masses), np.ones(means.shape[1]), np.sqrt(view_powers)]
    solvers = [_invert(root[:, None] * factor) * root for root, factor in zip(roots, factors, strict=True)]
    core = np.einsum("kjh,pk,qj,rh->pqr", means, *solvers, optimize=True)
    for mode in range(3):
        others = np.multiply.outer(*(roots[m] for m in range(3) if m != mode)).ravel()
        partial = _unfold(_partial(core, factors, mode), mode) * others
        factors[mode] = (_unfold(means, mode) * others) @ _invert(partial)
    return [core, *factors]


def _sweep(weights: FloatArray, numerators: FloatArray, factors: list[FloatArray]) -> list[FloatArray]:
    """Fit with any weight of each cell: the core first, then one factor after the other, row by row."""
    roots = np.sqrt(weights)
    targets = np.divide(numerators, roots, out=np.zeros_like(roots), where=roots > 0)
    design = np.einsum("kjh,kp,jq,hr->kjhpqr", roots, *factors, optimize=True)
    solution = np.linalg.lstsq(design.reshape(roots.size, -1), targets.ravel(), rcond=None)[0]
    core = np.asarray(solution, np.float64).reshape(design.shape[3:])
    for mode, factor in enumerate(factors):
        partial = _unfold(_partial(core, factors, mode), mode)
        designs = _unfold(roots, mode)[:, None, :] * partial
        rows = np.einsum("gx,gxp->gp", _unfold(targets, mode), _invert(designs))
        factors[mode] = np.where(np.any(designs, axis=(1, 2), keepdims=True)[:, 0], rows, factor)
    return [core, *factors]


def _invert(matrices: FloatArray) -> FloatArray:
    """Pseudo-inverse of one matrix or of each in a stack, which gives least squares of smallest norm."""
    return np.asarray(np.linalg.pinv(matrices, rcond=np.finfo(np.float64).eps * max(matrices.shape[-2:])), np.float64)


def _partial(core: FloatArray, factors: Sequence[FloatArray], mode: int) -> FloatArray:
    """The tensor that the factor of this mode is multiplied with."""
    identity = [np.eye(core.shape[mode]) if m == mode else factor for m, factor in enumerate(factors)]
    return tucker_to_tensor(core, identity)


def _unfold(tensor: FloatArray, mode: int) -> FloatArray:
    return np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)


@check_words
def tensor_statistics(
    memberships: FloatArray,
    core: FloatArray,
    factors: Sequence[FloatArray],
    fuzzifier: float,
    reading: CoreReading = "whole",
) -> TensorStatistics:
    """Statistics of the tensor factors of one client (tensorized aggregation protocol)."""
    masses = (memberships**fuzzifier).sum(axis=0)
    mass = float(masses.sum())
    cluster_factor, feature_factor, view_factor = factors
    shared = mass * feature_factor, mass * view_factor
    if reading == "whole":
        return TensorStatistics(mass * core, (mass * cluster_factor, *shared), mass)
    if core.shape[0] != len(masses):
        raise ValueError(f"slices of the core need r1={core.shape[0]} to equal the number of clusters {len(masses)}.")
    slices = masses[:, None, None] * core
    slices = slices if reading == "slices" else slices.sum(axis=0)
    return TensorStatistics(slices, (masses[:, None] * cluster_factor, *shared), mass)


@check_words
def component_lambda_gradients(
    center_gradient: FloatArray,
    blended: Sequence[FloatArray],
    local: Sequence[FloatArray],
    shared: Sequence[FloatArray],
    meaning: BlendMeaning = "local",
) -> list[float]:
    """Slopes of J in the four component-wise lambdas (Algorithm 4, phase 5)."""
    slopes = []
    for part in range(4):
        moved = list(blended)
        moved[part] = local[part] - shared[part]
        slopes.append(float(np.vdot(center_gradient, tucker_to_tensor(moved[0], moved[1:]))))
    return slopes if meaning == "local" else [-slope for slope in slopes]


def tensor_regularizer(parts: Sequence[FloatArray], global_parts: Sequence[FloatArray]) -> float:
    """Pull R_tensor: squared Frobenius distances of the parts to the global ones, summed."""
    return float(sum(np.square(part - shared).sum() for part, shared in zip(parts, global_parts, strict=True)))


def _exponents(x: FloatArray, centers: FloatArray, delta: FloatArray) -> FloatArray:
    """Exponent phi_ik = sum_j delta_ij (x_ij - a_kj)^2 of every pair, of which rounding makes none negative."""
    squares = (delta * x * x).sum(axis=1)[:, None] - 2.0 * (delta * x) @ centers.T + delta @ (centers * centers).T
    return np.asarray(np.maximum(squares, 0.0))


def _costs(view_distances: Sequence[FloatArray], memberships: FloatArray, fuzzifier: float) -> FloatArray:
    power = memberships**fuzzifier
    return np.array([np.vdot(power, distance) for distance in view_distances])


def _inverse_power_shares(values: FloatArray, exponent: float) -> FloatArray:
    """Shares proportional to values^(-1/(exponent-1)) along the last axis; zeros share everything equally."""
    smallest = values.min(axis=-1, keepdims=True)
    ratios = np.divide(smallest, values, out=np.ones_like(values), where=values > 0)
    raw = ratios ** (1.0 / (exponent - 1.0))
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))
