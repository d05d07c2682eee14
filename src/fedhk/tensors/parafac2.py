"""PARAFAC2 form of the centres: common components, and an orthonormal basis of its own for every view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.tensors.components import ComponentFactors, Components
from fedhk.tensors.limits import Limit, view_label
from fedhk.tensors.problem import WeightedCenters
from fedhk.tensors.solves import beyond, orthonormal_columns, polar_factor, polar_step

__all__ = ["Parafac2"]


class Parafac2(Components):
    """PARAFAC2 of the centres, A^h = P diag(R_h) (B_h Q)^T with B_h^T B_h = I.

    Notes
    -----
    `eqn:tensor_parafac2` as printed is Tucker's formula. Its text asks for slices of different width, which is what
    PARAFAC2 proper gives, without padding: (B_h Q)^T (B_h Q) = Q^T Q is the same for all views. The rank is at most the
    width of the narrowest view. From rank c ceil(s/2) on every set of centres is reached, since two views always share
    c components (their generalised singular value decomposition); a larger rank is refused.
    """

    name: ClassVar[str] = "PARAFAC2"
    views_have_signs: ClassVar[bool] = True

    def limits(self, n_clusters: int, widths: Sequence[int], names: Sequence[str] | None = None) -> tuple[Limit, ...]:
        narrowest = int(np.argmin(widths))
        enough = n_clusters * ((len(widths) + 1) // 2)
        return (
            Limit("", widths[narrowest], f"the narrowest view, {view_label(narrowest, widths, names)}"),
            Limit("", enough, f"the components that {n_clusters} clusters in {len(widths)} views can need"),
        )

    def basis(self, factors: ComponentFactors) -> tuple[FloatArray, ...]:
        return factors.bases

    def assemble(
        self, basis: Sequence[FloatArray], core: Sequence[FloatArray], widths: Sequence[int]
    ) -> ComponentFactors:
        p, q, r = core
        return ComponentFactors(p, q, r, tuple(part for part, _ in zip(basis, widths, strict=True)))

    def _fit_bases(self, factors: ComponentFactors, problem: WeightedCenters) -> ComponentFactors:
        pairs = zip(self._cross(factors, problem), factors.bases, strict=True)
        return replace(factors, bases=tuple(polar_step(cross, gram, old) for (cross, gram), old in pairs))

    def _extrapolated(self, before: ComponentFactors, after: ComponentFactors, stride: float) -> ComponentFactors:
        pairs = zip(before.bases, after.bases, strict=True)
        bases = tuple(polar_factor(beyond(old, new, stride)) for old, new in pairs)
        return replace(super()._extrapolated(before, after, stride), bases=bases)

    def _start(
        self, centers: Sequence[FloatArray], rank: tuple[int, ...], generator: np.random.Generator | None
    ) -> list[ComponentFactors]:
        (r,) = rank
        n_clusters, n_views = len(centers[0]), len(centers)
        left, values, _ = np.linalg.svd(np.hstack(centers), full_matrices=False)
        if generator is None:
            p = np.resize((left * values).T, (r, n_clusters)).T
            q, view_factor = np.eye(r), np.ones((n_views, r))
            view_factor += 0.1 * np.cos(np.outer(np.arange(n_views), np.arange(r)))
        else:
            p, q = generator.standard_normal((n_clusters, r)), generator.standard_normal((r, r))
            view_factor = generator.uniform(0.5, 1.5, (n_views, r))
        bases = [
            polar_factor(center.T @ (p * row) @ q.T + 1e-9 * np.eye(center.shape[1], r))
            for center, row in zip(centers, view_factor, strict=True)
        ]
        return [ComponentFactors(p, q, view_factor, tuple(bases))]

    def _exact(
        self,
        centers: Sequence[FloatArray],
        rank: tuple[int, ...],
        previous: ComponentFactors | None,  # noqa: ARG002
    ) -> ComponentFactors | None:
        (r,) = rank
        if len(centers) == 1 and r == min(centers[0].shape):
            left, values, right = np.linalg.svd(centers[0], full_matrices=False)
            return ComponentFactors(left, np.diag(values), np.ones((1, r)), (right.T,))
        n_clusters, n_views = len(centers[0]), len(centers)
        if n_views == 1 or r != n_clusters * ((n_views + 1) // 2):
            return None
        p, view_factor, bases = np.zeros((n_clusters, r)), np.zeros((n_views, r)), []
        for first in range(0, n_views, 2):
            block = slice(first // 2 * n_clusters, (first // 2 + 1) * n_clusters)
            pair = centers[first : first + 2]
            p[:, block], rows, vectors = _shared_components(pair)
            view_factor[first : first + 2, block] = rows
            bases += [_placed(part, block, r) for part in vectors]
        return ComponentFactors(p, np.eye(r), view_factor, tuple(bases))


def _shared_components(pair: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """P, R_h and orthonormal B_h with A^h = P diag(R_h) B_h^T for one or two views at least c wide.

    The generalised singular value decomposition of the two centre matrices: a QR decomposition of both stacked, then
    a singular value decomposition of the first part, which makes the columns of the second orthogonal.
    """
    n_clusters = len(pair[0])
    stacked, triangle = np.linalg.qr(np.hstack(pair).T)
    parts = np.split(stacked, np.cumsum([center.shape[1] for center in pair])[:-1])
    left, cosines, turn = np.linalg.svd(parts[0], full_matrices=False)
    rows, vectors = [cosines], [left]
    for part in parts[1:]:
        columns = part @ turn.T[:, ::-1]
        basis, upper = np.linalg.qr(columns)
        rows.append(np.diag(upper)[::-1])
        vectors.append(basis[:, ::-1])
    return (turn @ triangle).T.reshape(n_clusters, -1), np.array(rows), vectors


def _placed(vectors: FloatArray, block: slice, rank: int) -> FloatArray:
    """Orthonormal columns at their place among `rank` orthonormal columns."""
    full = orthonormal_columns(vectors, rank)
    count = vectors.shape[1]
    return np.hstack([full[:, count : count + block.start], vectors, full[:, count + block.start :]])
