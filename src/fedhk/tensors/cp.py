"""CP form of the centres: components that all views share feature by feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from tensorly.base import unfold

from fedhk._typing import FloatArray
from fedhk.tensors.components import ComponentFactors, Components
from fedhk.tensors.limits import Limit
from fedhk.tensors.problem import WeightedCenters
from fedhk.tensors.solves import beyond, solve_rows

__all__ = ["CP"]


class CP(Components):
    """CP of the centres, a_khj = sum_r P_kr Q_jr R_hr (`eqn:parafac`): PARAFAC2 with one common basis.

    Notes
    -----
    The loadings Q of D = max_h d_h features are kept as orthonormal columns times a small matrix, so that the same
    numbers in a common basis serve as for the other forms; view h uses their first d_h rows, and cells beyond have
    weight 0. Feature j is taken to be the same in all views: meant for views that measure the same features.
    """

    name: ClassVar[str] = "CP"
    views_have_signs: ClassVar[bool] = False

    def limits(self, n_clusters: int, widths: Sequence[int], names: Sequence[str] | None = None) -> tuple[Limit, ...]:  # noqa: ARG002
        sizes = sorted([n_clusters, max(widths), len(widths)])
        shape = f"{n_clusters} clusters, {max(widths)} features and {len(widths)} views"
        return (Limit("", sizes[0] * sizes[1], f"the components that {shape} can need"),)

    def basis(self, factors: ComponentFactors) -> tuple[FloatArray, ...]:
        return (_common_basis(factors),)

    def assemble(
        self, basis: Sequence[FloatArray], core: Sequence[FloatArray], widths: Sequence[int]
    ) -> ComponentFactors:
        (common,), (p, q, r) = basis, core
        return ComponentFactors(p, q, r, tuple(common[:width] for width in widths))

    def _fit_bases(self, factors: ComponentFactors, problem: WeightedCenters) -> ComponentFactors:
        widths = [len(basis) for basis in factors.bases]
        n_clusters = len(factors.cluster_factor)
        targets, weights = np.zeros((2, max(widths), n_clusters, len(widths)))
        for h, (target, weight) in enumerate(zip(problem.targets, problem.weights, strict=True)):
            targets[: widths[h], :, h] = target.T
            weights[: widths[h], :, h] = np.broadcast_to(weight, target.shape).T
        design = (factors.cluster_factor[:, None, :] * factors.view_factor).reshape(-1, factors.view_factor.shape[1])
        loadings: FloatArray = _common_basis(factors) @ factors.feature_factor
        flat = (len(loadings), -1)
        loadings = solve_rows(design, targets.reshape(flat), weights.reshape(flat), loadings)
        return _with_loadings(factors, loadings)

    def _extrapolated(self, before: ComponentFactors, after: ComponentFactors, stride: float) -> ComponentFactors:
        old, new = (_common_basis(factors) @ factors.feature_factor for factors in (before, after))
        return _with_loadings(super()._extrapolated(before, after, stride), beyond(old, new, stride))

    def _start(
        self, centers: Sequence[FloatArray], rank: tuple[int, ...], generator: np.random.Generator | None
    ) -> list[ComponentFactors]:
        (r,) = rank
        padded = _padded(centers)
        if generator is None:
            p, loadings, views = (_leading(np.moveaxis(padded, mode, 0), r) for mode in range(3))
        else:
            p, loadings, views = (generator.standard_normal((size, r)) for size in padded.shape)
        return [_with_loadings(_without_loadings(p, views, centers), loadings)]

    def _exact(
        self,
        centers: Sequence[FloatArray],
        rank: tuple[int, ...],
        previous: ComponentFactors | None,  # noqa: ARG002
    ) -> ComponentFactors | None:
        padded = _padded(centers)
        largest = int(np.argmax(padded.shape))
        rest = [size for mode, size in enumerate(padded.shape) if mode != largest]
        if rank != (rest[0] * rest[1],):
            return None
        parts = [np.kron(np.eye(rest[0]), np.ones(rest[1])), np.kron(np.ones(rest[0]), np.eye(rest[1]))]
        parts.insert(largest, np.asarray(unfold(padded, largest)))
        p, loadings, views = parts
        return _with_loadings(_without_loadings(p, views, centers), loadings)


def _padded(centers: Sequence[FloatArray]) -> FloatArray:
    """Centres as one tensor c x D x s, zero beyond d_h."""
    widest = max(center.shape[1] for center in centers)
    return np.stack([np.pad(center, ((0, 0), (0, widest - center.shape[1]))) for center in centers], axis=2)


def _without_loadings(p: FloatArray, views: FloatArray, centers: Sequence[FloatArray]) -> ComponentFactors:
    empty = tuple(np.zeros((center.shape[1], 0)) for center in centers)
    return ComponentFactors(p, np.zeros((0, p.shape[1])), views, empty)


def _common_basis(factors: ComponentFactors) -> FloatArray:
    """The basis of the widest view, whose rows the other views use."""
    return max(factors.bases, key=len)


def _with_loadings(factors: ComponentFactors, loadings: FloatArray) -> ComponentFactors:
    basis, feature_factor = np.linalg.qr(loadings)
    bases = tuple(basis[: len(old)] for old in factors.bases)
    return replace(factors, feature_factor=feature_factor, bases=bases)


def _leading(tensor: FloatArray, count: int) -> FloatArray:
    """Leading left singular vectors of an unfolding; cosines where there are not enough of them."""
    vectors = np.linalg.svd(tensor.reshape(len(tensor), -1), full_matrices=False)[0]
    more = np.cos(np.outer(np.arange(1, len(tensor) + 1), np.arange(1, count + 1)))
    return np.hstack([vectors, more])[:, :count]
