"""Tensor algebra of the paper's Definitions 1 to 7 and the zero-padded data tensor, element by element.

Modes and indices count from zero, where the paper counts from one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedhk.reference._arrays import FloatArray


def tensorize(views: Sequence[FloatArray]) -> FloatArray:
    """Stack views of different width into one zero-padded tensor (`eqn:tensor_data1`, `tensor_data2`, `tensor_data3`).

    Parameters
    ----------
    views : sequence of s arrays of shape (n, d_h)

    Returns
    -------
    array of shape (n, D, s)
        With D = max_h d_h; cells at j >= d_h are zero.

    Notes
    -----
    The problem formulation also announces a tensor of shape n x d_1 x ... x d_s, which is never used. Zeros are data to
    whoever does not mask them.
    """
    n_samples = len(views[0])
    widest = max(view.shape[1] for view in views)
    tensor = np.zeros((n_samples, widest, len(views)))
    for h, view in enumerate(views):
        for i in range(n_samples):
            for j in range(view.shape[1]):
                tensor[i, j, h] = view[i, j]
    return tensor


def untensorize(tensor: FloatArray, widths: Sequence[int]) -> list[FloatArray]:
    """Cut the padding off again: the slices X_h of shape (n, d_h)."""
    return [tensor[:, :width, h].copy() for h, width in enumerate(widths)]


def unfolded_column(index: Sequence[int], shape: Sequence[int], mode: int) -> int:
    """Column of an element in the mode-n unfolding, sum_{l!=n} g_l prod_{m<l, m!=n} G_m (Definition 3).

    Notes
    -----
    The paper names this matrix the "n-mode matrix product"; it is the unfolding, in the order of Kolda and Bader.
    """
    column = 0
    for level in range(len(shape)):
        if level == mode:
            continue
        stride = 1
        for m in range(level):
            if m != mode:
                stride *= shape[m]
        column += index[level] * stride
    return column


def unfold(tensor: FloatArray, mode: int) -> FloatArray:
    """Mode-n unfolding of a tensor: element (g_1, ..., g_N) goes to row g_n and column `unfolded_column`."""
    matrix = np.zeros((tensor.shape[mode], tensor.size // tensor.shape[mode]))
    for index in np.ndindex(tensor.shape):
        matrix[index[mode], unfolded_column(index, tensor.shape, mode)] = tensor[index]
    return matrix


def mode_product(tensor: FloatArray, matrix: FloatArray, mode: int) -> FloatArray:
    """Mode-n product of a tensor with a matrix (Definition 4).

    b_{g_1..j..g_N} = sum_{g_n} a_{g_1..g_n..g_N} l_{j g_n}.

    Parameters
    ----------
    tensor : array of shape (G_1, ..., G_N)
    matrix : array of shape (J, G_n)
    mode : int

    Returns
    -------
    array of shape (G_1, ..., J, ..., G_N)

    Notes
    -----
    The paper sums over g_1, leaves mode n of the result at G_n and calls the matrix b; the sum over g_n, of size J, is
    the only one whose shapes fit.
    """
    if matrix.shape[1] != tensor.shape[mode]:
        raise ValueError(
            f"mode {mode} of the tensor has size {tensor.shape[mode]}, the matrix {matrix.shape[1]} columns."
        )
    shape = list(tensor.shape)
    shape[mode] = matrix.shape[0]
    product = np.zeros(shape)
    for index in np.ndindex(*shape):
        total = 0.0
        for g in range(tensor.shape[mode]):
            total += float(tensor[(*index[:mode], g, *index[mode + 1 :])]) * float(matrix[index[mode], g])
        product[index] = total
    return product


def inner_product(left: FloatArray, right: FloatArray, left_mode: int, right_mode: int) -> FloatArray:
    """Inner product <A, B>_{n,m}: contract mode n of A with mode m of B (Definition 5).

    Returns
    -------
    array whose modes are those of A without n, then those of B without m
    """
    if left.shape[left_mode] != right.shape[right_mode]:
        raise ValueError(
            f"mode {left_mode} of the left tensor has size {left.shape[left_mode]}, "
            f"mode {right_mode} of the right one {right.shape[right_mode]}."
        )
    left_rest = left.shape[:left_mode] + left.shape[left_mode + 1 :]
    right_rest = right.shape[:right_mode] + right.shape[right_mode + 1 :]
    product = np.zeros(left_rest + right_rest)
    for g in np.ndindex(left_rest):
        for j in np.ndindex(right_rest):
            total = 0.0
            for q in range(left.shape[left_mode]):
                a = left[(*g[:left_mode], q, *g[left_mode:])]
                b = right[(*j[:right_mode], q, *j[right_mode:])]
                total += float(a) * float(b)
            product[g + j] = total
    return product


def scalar_product(left: FloatArray, right: FloatArray) -> float:
    """Scalar product of two tensors of one shape, the sum of a_g b_g over all indices (Definition 6)."""
    if left.shape != right.shape:
        raise ValueError(f"the left tensor has shape {left.shape}, the right one {right.shape}.")
    total = 0.0
    for index in np.ndindex(left.shape):
        total += float(left[index]) * float(right[index])
    return total


def frobenius_norm(tensor: FloatArray) -> float:
    """Frobenius norm, sqrt(<A, A>) (Definition 7)."""
    return math.sqrt(scalar_product(tensor, tensor))


def outer_product(vectors: Sequence[FloatArray]) -> FloatArray:
    """Rank-one tensor a^(1) o ... o a^(N), with elements a^(1)_{g_1} ... a^(N)_{g_N} (Definition 2)."""
    tensor = np.zeros([len(vector) for vector in vectors])
    for index in np.ndindex(tensor.shape):
        value = 1.0
        for vector, g in zip(vectors, index, strict=True):
            value *= float(vector[g])
        tensor[index] = value
    return tensor
