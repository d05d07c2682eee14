"""PARAFAC2 form of the centres: common components, and an orthonormal basis of its own for every view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.tensors.components import ComponentFactors, Components
from fedhk.tensors.factors import BASIS, Factors
from fedhk.tensors.limits import Limit, view_label
from fedhk.tensors.solves import orthonormal_columns, polar_factor


@dataclass(frozen=True)
class Parafac2Factors(ComponentFactors):
    """Factors of the centres A^h = P diag(R_h) (B_h Q)^T, with orthonormal columns B_h for each view."""

    bases: tuple[FloatArray, ...] = field(metadata=BASIS)

    @property
    def view_bases(self) -> tuple[FloatArray, ...]:
        return self.bases


class Parafac2(Components[Parafac2Factors]):
    """PARAFAC2 of the centres, A^h = P diag(R_h) (B_h Q)^T with B_h^T B_h = I.

    Notes
    -----
    `eqn:tensor_parafac2` as printed is Tucker's formula. Its text asks for slices of different width, which is what
    PARAFAC2 proper gives, without padding: (B_h Q)^T (B_h Q) = Q^T Q is the same for all views. The rank is at most the
    width of the narrowest view. From rank c ceil(s/2) on every set of centres is reached, since two views always share
    c components (their generalised singular value decomposition); a larger rank is refused.
    """

    name: ClassVar[str] = "PARAFAC2"
    factors_class: ClassVar[type[Factors]] = Parafac2Factors
    views_have_signs: ClassVar[bool] = True

    def limits(self, n_clusters: int, widths: Sequence[int], names: Sequence[str] | None = None) -> tuple[Limit, ...]:
        narrowest = int(np.argmin(widths))
        enough = n_clusters * ((len(widths) + 1) // 2)
        return (
            Limit("", widths[narrowest], f"the narrowest view, {view_label(narrowest, widths, names)}"),
            Limit("", enough, f"the components that {n_clusters} clusters in {len(widths)} views can need"),
        )

    def start(
        self, centers: Sequence[FloatArray], rank: tuple[int, ...], generator: np.random.Generator | None
    ) -> list[Parafac2Factors]:
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
        return [Parafac2Factors(p, q, view_factor, tuple(bases))]

    def is_full(self, rank: tuple[int, ...], n_clusters: int, widths: Sequence[int]) -> bool:
        if len(widths) == 1:
            return rank == (min(n_clusters, widths[0]),)
        return rank == (n_clusters * ((len(widths) + 1) // 2),)

    def fit_exactly(
        self,
        centers: Sequence[FloatArray],
        rank: tuple[int, ...],
        previous: Parafac2Factors | None,  # noqa: ARG002
    ) -> Parafac2Factors:
        (r,) = rank
        n_clusters, n_views = len(centers[0]), len(centers)
        if n_views == 1:
            left, values, right = np.linalg.svd(centers[0], full_matrices=False)
            return Parafac2Factors(left, np.diag(values), np.ones((1, r)), (right.T,))
        p, view_factor, bases = np.zeros((n_clusters, r)), np.zeros((n_views, r)), []
        for first in range(0, n_views, 2):
            block = slice(first // 2 * n_clusters, (first // 2 + 1) * n_clusters)
            pair = centers[first : first + 2]
            p[:, block], rows, vectors = _shared_components(pair)
            view_factor[first : first + 2, block] = rows
            bases += [_place(part, block, r) for part in vectors]
        return Parafac2Factors(p, np.eye(r), view_factor, tuple(bases))


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


def _place(vectors: FloatArray, block: slice, rank: int) -> FloatArray:
    """Orthonormal columns at their place among `rank` orthonormal columns."""
    full = orthonormal_columns(vectors, rank)
    count = vectors.shape[1]
    return np.hstack([full[:, count : count + block.start], vectors, full[:, count + block.start :]])
