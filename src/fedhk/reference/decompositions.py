"""CP, Tucker, HOSVD and both PARAFAC2 forms: the tensor from its parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk.reference._arrays import FloatArray
from fedhk.reference.tensors import mode_product, outer_product, unfold


def cp_to_tensor(weights: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Sum of weighted rank-one tensors, sum_r lambda_r a_r^(1) o ... o a_r^(N) (`eqn:parafac`).

    Parameters
    ----------
    weights : array of shape (R,)
    factors : sequence of N arrays of shape (G_n, R)

    Returns
    -------
    array of shape (G_1, ..., G_N)
    """
    tensor = np.zeros([len(factor) for factor in factors])
    for r in range(len(weights)):
        tensor += float(weights[r]) * outer_product([factor[:, r] for factor in factors])
    return tensor


def tucker_to_tensor(core: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Core times a factor matrix in every mode, S x_1 U^(1) ... x_N U^(N) (`eqn:tucker`).

    Also `eqn:tensor_tucker`, `eqn:tucker_cluster_centers`, and what the paper calls PARAFAC2: `eqn:tensor_parafac2`
    and `eqn:tensor_cluster_centers`, which are the same formula with other letters.

    Parameters
    ----------
    core : array of shape (R_1, ..., R_N)
    factors : sequence of N arrays of shape (G_n, R_n)

    Returns
    -------
    array of shape (G_1, ..., G_N)
    """
    tensor = core
    for mode, factor in enumerate(factors):
        tensor = mode_product(tensor, factor, mode)
    return tensor


def parafac2_to_slices(
    cluster_factor: FloatArray, feature_factor: FloatArray, view_factor: FloatArray, bases: Sequence[FloatArray]
) -> list[FloatArray]:
    """PARAFAC2 proper: slices A_h = P diag(R_h) (B_h Q)^T of different widths, B_h^T B_h = I.

    Parameters
    ----------
    cluster_factor : array of shape (c, r)
        The factor P.
    feature_factor : array of shape (r, r)
        The factor Q, common to the views.
    view_factor : array of shape (s, r)
        The factor R.
    bases : sequence of s arrays of shape (d_h, r)
        The orthonormal bases B_h.

    Returns
    -------
    list of s arrays of shape (c, d_h)

    Notes
    -----
    Stands for `eqn:tensor_parafac2`, whose formula is Tucker's while its text asks for slices that differ in one mode.
    """
    slices = []
    for h, basis in enumerate(bases):
        loadings = np.zeros((len(basis), feature_factor.shape[1]))
        for j, r in np.ndindex(loadings.shape):
            for q in range(basis.shape[1]):
                loadings[j, r] += basis[j, q] * feature_factor[q, r]
        center = np.zeros((len(cluster_factor), len(basis)))
        for k, j in np.ndindex(center.shape):
            for r in range(cluster_factor.shape[1]):
                center[k, j] += cluster_factor[k, r] * view_factor[h, r] * loadings[j, r]
        slices.append(center)
    return slices


def hosvd(tensor: FloatArray, ranks: Sequence[int] | None = None) -> tuple[FloatArray, list[FloatArray]]:
    """Higher-order singular value decomposition (`eqn:hosvd`), truncated where ranks are given.

    Parameters
    ----------
    tensor : array of shape (G_1, ..., G_N)
    ranks : sequence of N integers, optional
        The full sizes G_n if omitted.

    Returns
    -------
    core : array of shape (R_1, ..., R_N)
    factors : list of N arrays of shape (G_n, R_n)
        The leading left singular vectors of each unfolding.

    Notes
    -----
    The paper calls it unique and optimally truncated: it is unique up to signs (and rotations among equal singular
    values), and a truncation is within a factor sqrt(N) of the best one (see `hosvd_error_bound`).
    """
    kept = list(ranks) if ranks is not None else list(tensor.shape)
    factors = []
    for mode in range(tensor.ndim):
        if not 1 <= kept[mode] <= tensor.shape[mode]:
            raise ValueError(f"rank {kept[mode]} of mode {mode} should be between 1 and its size {tensor.shape[mode]}.")
        left, _, _ = np.linalg.svd(unfold(tensor, mode), full_matrices=True)
        factors.append(np.array(left[:, : kept[mode]], dtype=np.float64))
    core = tensor
    for mode, factor in enumerate(factors):
        core = mode_product(core, factor.T, mode)
    return core, factors


def hosvd_error_bound(tensor: FloatArray, ranks: Sequence[int]) -> float:
    """Bound of the squared truncation error: the discarded squared singular values of every unfolding, summed.

    Gives `lem:tensor_approximation` its epsilon_tensor, which the paper leaves undefined.
    """
    bound = 0.0
    for mode, rank in enumerate(ranks):
        values = np.linalg.svd(unfold(tensor, mode), compute_uv=False)
        for value in values[rank:]:
            bound += float(value) ** 2
    return bound
