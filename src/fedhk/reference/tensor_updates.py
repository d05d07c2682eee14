"""The updates of the tensor factors: `thm:tensorized_updates` and `thm:tucker_updates`, one formula under two names.

Memberships and view weights are those of ``updates``, fed with TKED instead of FKED.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference._checks import check_words
from fedhk.reference.decompositions import tucker_to_tensor
from fedhk.reference.heat_kernel import kernel_exponent
from fedhk.reference.tensors import tensorize

FactorReading = Literal["printed", "corrected"]


@check_words
def cell_weights(
    tensor: FloatArray,
    memberships: FloatArray,
    center_tensor: FloatArray,
    heat_coef: FloatArray,
    *,
    widths: Sequence[int],
    view_weights: FloatArray,
    view_exponent: float,
    fuzzifier: float,
    reading: FactorReading = "printed",
) -> FloatArray:
    """Weight of every squared residual (x_ijh - a_kjh)^2 in the least-squares problem of the factors.

    Parameters
    ----------
    tensor, heat_coef : arrays of shape (n, D, s)
    memberships : array of shape (n, c)
    center_tensor : array of shape (c, D, s)
        The current centres, at which the corrected reading takes its kernel.
    widths : sequence of s integers
    view_weights : array of shape (s,)
    view_exponent, fuzzifier : float
    reading : {"printed", "corrected"}
        ``"printed"`` is mu_ik^m v_h^alpha on all D cells (`eqn:tensor_core`, `eqn:tucker_core`); ``"corrected"`` times
        delta_ijh exp(-phi_ik^h), and zero on padded cells.

    Returns
    -------
    array of shape (n, c, D, s)

    Notes
    -----
    The printed problem has neither kernel nor delta and fits the padding, so its solution does not minimise the
    objective it is stated for; the corrected one minimises a majoriser of it.
    """
    n_samples, widest, n_views = tensor.shape
    weights = np.zeros((n_samples, len(center_tensor), widest, n_views))
    for i, k, j, h in np.ndindex(weights.shape):
        weight = float(memberships[i, k]) ** fuzzifier * float(view_weights[h]) ** view_exponent
        if reading == "corrected":
            width = widths[h]
            phi = kernel_exponent(tensor[i, :width, h], center_tensor[k, :width, h], heat_coef[i, :width, h])
            weight *= float(heat_coef[i, j, h]) * math.exp(-phi) if j < width else 0.0
        weights[i, k, j, h] = weight
    return weights


def reconstruction_error(tensor: FloatArray, center_tensor: FloatArray, weights: FloatArray) -> float:
    """Weighted squared error that the core and the factors minimise (`eqn:tensor_core`, `eqn:tensor_P` to `_R`)."""
    total = 0.0
    for i, k, j, h in np.ndindex(weights.shape):
        total += float(weights[i, k, j, h]) * float(tensor[i, j, h] - center_tensor[k, j, h]) ** 2
    return total


def update_core(tensor: FloatArray, weights: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Core tensor G that minimises the weighted error, factors fixed (`eqn:tensor_core`, `eqn:tucker_core`).

    Parameters
    ----------
    tensor : array of shape (n, D, s)
    weights : array of shape (n, c, D, s)
        From `cell_weights`.
    factors : three arrays of shapes (c, r1), (D, r2), (s, r3)

    Returns
    -------
    array of shape (r1, r2, r3)
        The solution of smallest norm where there are several.
    """
    cluster_factor, feature_factor, view_factor = factors
    shape = (cluster_factor.shape[1], feature_factor.shape[1], view_factor.shape[1])
    designs, targets = [], []
    for i, k, j, h in np.ndindex(weights.shape):
        root = math.sqrt(weights[i, k, j, h])
        design = [cluster_factor[k, p] * feature_factor[j, q] * view_factor[h, r] for p, q, r in np.ndindex(shape)]
        designs.append(root * np.array(design))
        targets.append(root * float(tensor[i, j, h]))
    return _solve(designs, targets).reshape(shape)


def update_factor(
    tensor: FloatArray, weights: FloatArray, core: FloatArray, factors: Sequence[FloatArray], mode: int
) -> FloatArray:
    """One factor matrix that minimises the weighted error, all else fixed.

    Mode 0 is P or U (`eqn:tensor_P`, `eqn:tucker_U`), 1 is Q or V (`eqn:tensor_Q`, `eqn:tucker_V`), 2 is R or W
    (`eqn:tensor_R`, `eqn:tucker_W`). The problem falls apart into one for each row of the factor.

    Parameters
    ----------
    tensor : array of shape (n, D, s)
    weights : array of shape (n, c, D, s)
    core : array of shape (r1, r2, r3)
    factors : three arrays of shapes (c, r1), (D, r2), (s, r3)
    mode : {0, 1, 2}

    Returns
    -------
    array of the shape of ``factors[mode]``
        A row whose weights are all zero (a padded feature) keeps its value.
    """
    identity = [np.eye(core.shape[mode]) if m == mode else factor for m, factor in enumerate(factors)]
    partial = tucker_to_tensor(core, identity)  # the centres are this tensor times the factor sought, in that mode
    updated = np.array(factors[mode], dtype=np.float64)
    for row in range(len(updated)):
        designs, targets = [], []
        for i, k, j, h in np.ndindex(weights.shape):
            if (k, j, h)[mode] != row:
                continue
            position: list[int | slice] = [k, j, h]
            position[mode] = slice(None)
            root = math.sqrt(weights[i, k, j, h])
            designs.append(root * partial[tuple(position)])
            targets.append(root * float(tensor[i, j, h]))
        if np.any(designs):
            updated[row] = _solve(designs, targets)
    return updated


def als_sweep(
    tensor: FloatArray, weights: FloatArray, factors: Sequence[FloatArray]
) -> tuple[FloatArray, list[FloatArray]]:
    """One sweep in the order of Algorithms 2 and 3, step 2.4: core, then the factors of modes 1, 2 and 3."""
    updated = [np.array(factor, dtype=np.float64) for factor in factors]
    new_core = update_core(tensor, weights, updated)
    for mode in range(3):
        updated[mode] = update_factor(tensor, weights, new_core, updated, mode)
    return new_core, updated


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
    """Core and factors after one ALS sweep on the rows of a client (Algorithms 2 to 4, step 2.4).

    Parameters
    ----------
    views, heat_coefs : sequences of s arrays of shape (n, d_h)
        The slices of the data tensor and of its coefficients.
    memberships : array of shape (n, c)
    center_tensor : array of shape (c, D, s)
    parts : four arrays of shapes (r1, r2, r3), (c, r1), (D, r2), (s, r3)
    view_weights : array of shape (s,)
    view_exponent, fuzzifier : float
    reading : {"printed", "corrected"}
        As in `cell_weights`.

    Returns
    -------
    list of four arrays
    """
    tensor = tensorize(views)
    weights = cell_weights(
        tensor,
        memberships,
        center_tensor,
        tensorize(heat_coefs),
        widths=[view.shape[1] for view in views],
        view_weights=view_weights,
        view_exponent=view_exponent,
        fuzzifier=fuzzifier,
        reading=reading,
    )
    core, factors = als_sweep(tensor, weights, parts[1:])
    return [core, *factors]


def _solve(designs: Sequence[FloatArray], targets: Sequence[float]) -> FloatArray:
    """Least squares without normal equations, which would square the condition number."""
    solution = np.linalg.lstsq(np.array(designs), np.array(targets), rcond=None)[0]
    return np.asarray(solution, dtype=np.float64)
