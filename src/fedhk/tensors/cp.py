"""CP form of the centres: components that all views share feature by feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from tensorly.base import unfold

from fedhk._typing import FloatArray
from fedhk.tensors.components import ComponentFactors, Components
from fedhk.tensors.factors import BASIS, SIZES, Factors
from fedhk.tensors.limits import Limit
from fedhk.tensors.problem import WeightedCenters
from fedhk.tensors.solves import beyond, solve_rows


@dataclass(frozen=True)
class CPFactors(ComponentFactors):
    """Factors of the centres A^h = P diag(R_h) (B_h Q)^T, where B_h are the first d_h rows of one basis.

    Parameters
    ----------
    cluster_factor, feature_factor, view_factor : array of shape (c, r), (q, r), (s, r)
        P, Q and R in the paper, Q in the coordinates of the basis; q = min(r, widest view).
    common_basis : array of shape (D, q)
        Orthonormal columns.
    widths : tuple of int
        Features d_h of each view; D is the largest.
    """

    common_basis: FloatArray = field(metadata=BASIS)
    widths: tuple[int, ...] = field(metadata=SIZES)

    @property
    def view_bases(self) -> tuple[FloatArray, ...]:
        return tuple(self.common_basis[:width] for width in self.widths)

    @property
    def loadings(self) -> FloatArray:
        """The loadings of all D features on the components, of shape (D, r)."""
        return np.asarray(self.common_basis @ self.feature_factor)


class CP(Components[CPFactors]):
    """CP of the centres, a_khj = sum_r P_kr Q_jr R_hr (`eqn:parafac`): PARAFAC2 with one common basis.

    Notes
    -----
    The loadings Q of D = max_h d_h features are kept as orthonormal columns times a small matrix, so that the same
    numbers in a common basis serve as for the other forms; view h uses their first d_h rows, and cells beyond have
    weight 0. Feature j is taken to be the same in all views: meant for views that measure the same features.
    """

    name: ClassVar[str] = "CP"
    factors_class: ClassVar[type[Factors]] = CPFactors
    separate_bases: ClassVar[bool] = False
    views_have_signs: ClassVar[bool] = False

    def limits(self, n_clusters: int, widths: Sequence[int], names: Sequence[str] | None = None) -> tuple[Limit, ...]:  # noqa: ARG002
        sizes = sorted([n_clusters, max(widths), len(widths)])
        shape = f"{n_clusters} clusters, {max(widths)} features and {len(widths)} views"
        return (Limit("", sizes[0] * sizes[1], f"the components that {shape} can need"),)

    def fit_bases(self, factors: CPFactors, problem: WeightedCenters) -> CPFactors:
        """Solve for the loadings of each feature, in all views that have it."""
        widths, n_clusters = factors.widths, len(factors.cluster_factor)
        targets, weights = np.zeros((2, max(widths), n_clusters, len(widths)))
        for h, (target, weight) in enumerate(zip(problem.targets, problem.weights, strict=True)):
            targets[: widths[h], :, h] = target.T
            weights[: widths[h], :, h] = np.broadcast_to(weight, target.shape).T
        design = (factors.cluster_factor[:, None, :] * factors.view_factor).reshape(-1, factors.view_factor.shape[1])
        flat = (max(widths), -1)
        loadings = solve_rows(design, targets.reshape(flat), weights.reshape(flat), factors.loadings)
        return _from_loadings(factors.cluster_factor, loadings, factors.view_factor, widths)

    def extrapolate(self, before: CPFactors, after: CPFactors, stride: float) -> CPFactors:
        return _from_loadings(
            beyond(before.cluster_factor, after.cluster_factor, stride),
            beyond(before.loadings, after.loadings, stride),
            beyond(before.view_factor, after.view_factor, stride),
            after.widths,
        )

    def start(
        self, centers: Sequence[FloatArray], rank: tuple[int, ...], generator: np.random.Generator | None
    ) -> list[CPFactors]:
        (r,) = rank
        padded = _pad(centers)
        if generator is None:
            p, loadings, views = (_leading(np.moveaxis(padded, mode, 0), r) for mode in range(3))
        else:
            p, loadings, views = (generator.standard_normal((size, r)) for size in padded.shape)
        return [_from_loadings(p, loadings, views, _widths(centers))]

    def is_full(self, rank: tuple[int, ...], n_clusters: int, widths: Sequence[int]) -> bool:
        return rank == (self.limits(n_clusters, widths)[0].largest,)

    def fit_exactly(
        self,
        centers: Sequence[FloatArray],
        rank: tuple[int, ...],  # noqa: ARG002
        previous: CPFactors | None,  # noqa: ARG002
    ) -> CPFactors:
        """Give every fibre along the longest mode a component of its own."""
        padded = _pad(centers)
        longest = int(np.argmax(padded.shape))
        first, second = (size for mode, size in enumerate(padded.shape) if mode != longest)
        parts = [np.kron(np.eye(first), np.ones(second)), np.kron(np.ones(first), np.eye(second))]
        parts.insert(longest, np.asarray(unfold(padded, longest)))
        p, loadings, views = parts
        return _from_loadings(p, loadings, views, _widths(centers))


def _widths(centers: Sequence[FloatArray]) -> tuple[int, ...]:
    return tuple(center.shape[1] for center in centers)


def _pad(centers: Sequence[FloatArray]) -> FloatArray:
    """Stack the centres to one tensor c x D x s, zero beyond d_h."""
    widest = max(_widths(centers))
    return np.stack([np.pad(center, ((0, 0), (0, widest - center.shape[1]))) for center in centers], axis=2)


def _from_loadings(
    cluster_factor: FloatArray, loadings: FloatArray, view_factor: FloatArray, widths: tuple[int, ...]
) -> CPFactors:
    """Make factors from the loadings of all features: orthonormal columns times a small matrix."""
    basis, feature_factor = np.linalg.qr(loadings)
    return CPFactors(cluster_factor, feature_factor, view_factor, basis, widths)


def _leading(tensor: FloatArray, count: int) -> FloatArray:
    """Return the leading left singular vectors of an unfolding; cosines if there are not enough of them."""
    vectors = np.linalg.svd(tensor.reshape(len(tensor), -1), full_matrices=False)[0]
    more = np.cos(np.outer(np.arange(1, len(tensor) + 1), np.arange(1, count + 1)))
    return np.hstack([vectors, more])[:, :count]
