"""PARAFAC2 form of the centres: common components, and an orthonormal basis of its own for every view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.tensors.components import ComponentFactors, Components
from fedhk.tensors.factors import BASIS, Factors
from fedhk.tensors.limits import Limit
from fedhk.tensors.solves import orthonormal_columns, polar_factor

# Columns of orthonormal ones that are shorter than this are what rounding leaves of none.
_LEAST_SIZE = 1e-10


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
    PARAFAC2 proper gives, without padding: (B_h Q)^T (B_h Q) = Q^T Q is the same for all views. A view with fewer
    features than components is taken as one of r features of which d_h are seen: its B_h are d_h rows of an orthogonal
    matrix. Two views always share min(c, d_1 + d_2) components (their generalised singular value decomposition), so
    that every set of centres is reached by that many for each pair of views; a larger rank is refused.
    """

    name: ClassVar[str] = "PARAFAC2"
    factors_class: ClassVar[type[Factors]] = Parafac2Factors
    views_have_signs: ClassVar[bool] = True

    def limits(self, n_clusters: int, widths: Sequence[int], names: Sequence[str] | None = None) -> tuple[Limit, ...]:  # noqa: ARG002
        enough = sum(_count_shared(n_clusters, widths))
        shape = f"{n_clusters} clusters in {len(widths)} views of {', '.join(map(str, widths))} features"
        return (Limit("", enough, f"the components that {shape} can need"),)

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
        return rank == (sum(_count_shared(n_clusters, widths)),)

    def fit_exactly(
        self,
        centers: Sequence[FloatArray],
        rank: tuple[int, ...],
        previous: Parafac2Factors | None,  # noqa: ARG002
    ) -> Parafac2Factors:
        (r,) = rank
        n_clusters, widths = len(centers[0]), [center.shape[1] for center in centers]
        p, view_factor, bases = np.zeros((n_clusters, r)), np.zeros((len(centers), r)), list[FloatArray]()
        begin = 0
        for pair, count in enumerate(_count_shared(n_clusters, widths)):
            views, block = slice(2 * pair, 2 * pair + 2), slice(begin, begin + count)
            p[:, block], view_factor[views, block], vectors = _share_components(centers[views])
            bases += [_place(part, begin, r) for part in vectors]
            begin += count
        return Parafac2Factors(p, np.eye(r), view_factor, tuple(bases))


def _count_shared(n_clusters: int, widths: Sequence[int]) -> list[int]:
    """Count the components that every pair of views shares, the last view alone where their number is odd."""
    return [min(n_clusters, sum(widths[first : first + 2])) for first in range(0, len(widths), 2)]


def _share_components(pair: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Find P, R_h and B_h with A^h = P diag(R_h) B_h^T for one or two views.

    The generalised singular value decomposition of the two centre matrices: a QR decomposition of both stacked, then
    a singular value decomposition of the first part, which makes the columns of the second orthogonal. Columns of B_h
    are orthonormal where R_h is not zero, else zero.
    """
    stacked, triangle = np.linalg.qr(np.hstack(pair).T)
    parts = np.split(stacked, np.cumsum([center.shape[1] for center in pair])[:-1])
    turn = np.linalg.svd(parts[0])[2]
    columns = [part @ turn.T for part in parts]
    rows = [np.linalg.norm(part, axis=0) for part in columns]
    rows = [np.where(sizes > _LEAST_SIZE, sizes, 0.0) for sizes in rows]
    vectors = [
        np.divide(part, sizes, out=np.zeros_like(part), where=sizes > 0)
        for part, sizes in zip(columns, rows, strict=True)
    ]
    return (turn @ triangle).T, np.array(rows), vectors


def _place(vectors: FloatArray, begin: int, rank: int) -> FloatArray:
    """Put columns at their place among `rank` orthonormal ones, or among columns with orthonormal rows.

    Zero columns, and places before and after, are filled with what the columns leave of the space.
    """
    placed = np.zeros((len(vectors), rank))
    placed[:, begin : begin + vectors.shape[1]] = vectors
    used = placed.any(axis=0)
    kept = placed[:, used]
    missing = max(min(len(vectors), rank) - kept.shape[1], 0)  # a narrow view may have more columns than rows
    rest = orthonormal_columns(kept, kept.shape[1] + missing)[:, kept.shape[1] :]
    placed[:, np.flatnonzero(~used)[:missing]] = rest
    return polar_factor(placed)
