"""Tucker form of the centres: a core, clusters, views, and an orthonormal basis of the features of every view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from tensorly.decomposition import tucker
from tensorly.tenalg import mode_dot, multi_mode_dot

from fedhk._typing import FloatArray
from fedhk.tensors.base import Decomposition
from fedhk.tensors.factors import BASIS, Factors
from fedhk.tensors.gauges import core_rotations
from fedhk.tensors.limits import Limit, view_label
from fedhk.tensors.solves import orthonormal_columns, procrustes, solve_normal, solve_rows


@dataclass(frozen=True)
class TuckerFactors(Factors):
    """Factors of the centres in Tucker form.

    Parameters
    ----------
    core : array of shape (r1, r2, r3)
        G in the paper.
    cluster_factor : array of shape (c, r1)
        P.
    feature_factors : tuple of array of shape (d_h, r2)
        Q_h: orthonormal columns, or orthonormal rows in a view narrower than r2.
    view_factor : array of shape (s, r3)
        R.
    """

    core: FloatArray
    cluster_factor: FloatArray
    feature_factors: tuple[FloatArray, ...] = field(metadata=BASIS)
    view_factor: FloatArray

    @property
    def rank(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.core.shape)

    @property
    def view_bases(self) -> tuple[FloatArray, ...]:
        return self.feature_factors

    @property
    def coordinates(self) -> FloatArray:
        tensor = multi_mode_dot(self.core, [self.cluster_factor, self.view_factor], modes=[0, 2])
        return np.asarray(tensor.transpose(0, 2, 1))


class Tucker(Decomposition[TuckerFactors]):
    """Tucker decomposition of the centres, A^h = P (G x_3 R_h) Q_h^T (`eqn:tensor_tucker`, `eqn:tensor_core`).

    Notes
    -----
    The paper has one Q over a zero-padded feature axis, A = G x_1 P x_2 Q x_3 R. Feature j of one view has nothing to
    do with feature j of another, so here every view has its own rows Q_h in the common r2 coordinates. One Q for views
    of one width is the special case of equal Q_h: the error is never above that of the literal form. Only with
    orthonormal Q_h do G and R say anything (a free Q_h would absorb them), and only then are the projections
    Q_h^T N_kh all that a site has to send.
    """

    name: ClassVar[str] = "Tucker"
    factors_class: ClassVar[type[Factors]] = TuckerFactors

    def limits(self, n_clusters: int, widths: Sequence[int], names: Sequence[str] | None = None) -> tuple[Limit, ...]:
        widest = int(np.argmax(widths))
        return (
            Limit("cluster", n_clusters, f"the {n_clusters} clusters"),
            Limit("feature", widths[widest], f"the widest view, {view_label(widest, widths, names)}"),
            Limit("view", len(widths), f"the {len(widths)} views"),
        )

    def rank_path(self, centers: Sequence[FloatArray], energy: float) -> list[tuple[int, ...]]:
        """Cluster and feature ranks that each lose at most half of what may be lost, with every rank of the views."""
        left, values, _ = np.linalg.svd(np.hstack(centers), full_matrices=False)
        allowed = 0.5 * (1.0 - energy) * float(np.sum(values**2))
        first = _enough(values**2, allowed)
        spectra = np.zeros((len(centers), max(center.shape[1] for center in centers)))
        for h, center in enumerate(centers):
            found = np.linalg.svd(left[:, :first].T @ center, compute_uv=False)
            spectra[h, : len(found)] = found**2
        second = _enough(spectra.sum(axis=0), allowed)
        return [(first, second, third + 1) for third in range(len(centers))]

    def canonical(self, factors: TuckerFactors) -> TuckerFactors:
        """Orthonormal P and R, a core with orthogonal slices in falling order of size, the largest entries positive."""
        p, p_rest = np.linalg.qr(factors.cluster_factor)
        r, r_rest = np.linalg.qr(factors.view_factor)
        core = multi_mode_dot(factors.core, [p_rest, r_rest], modes=[0, 2])
        stacked = np.vstack(factors.feature_factors)
        rotations = core_rotations(core, [p, stacked, r])
        return _rotate(TuckerFactors(core, p, factors.feature_factors, r), rotations)

    def align(self, factors: TuckerFactors, to: TuckerFactors) -> TuckerFactors:
        """Turn each mode towards another's factors (orthogonal Procrustes)."""
        features, onto = np.vstack(factors.feature_factors), np.vstack(to.feature_factors)
        rotations = [
            procrustes(factors.cluster_factor, to.cluster_factor),
            procrustes(features, onto),
            procrustes(factors.view_factor, to.view_factor),
        ]
        return _rotate(factors, rotations)

    def fit_core(self, factors: TuckerFactors, targets: FloatArray, weights: FloatArray) -> TuckerFactors:
        width = targets.shape[2]
        core, p, r = factors.core, factors.cluster_factor, factors.view_factor
        r1, r2, r3 = core.shape
        p = _solve_mode(mode_dot(core, r, 2).transpose(2, 1, 0), targets, weights, p)
        r = _solve_mode(mode_dot(core, p, 0), targets.transpose(1, 0, 2), weights.T, r)
        flat = solve_rows(
            np.kron(p, r),
            targets.reshape(-1, width).T,
            weights.reshape(1, -1),
            core.transpose(1, 0, 2).reshape(r2, -1),
        )
        return replace(factors, core=flat.reshape(r2, r1, r3).transpose(1, 0, 2), cluster_factor=p, view_factor=r)

    def start(
        self, centers: Sequence[FloatArray], rank: tuple[int, ...], generator: np.random.Generator | None
    ) -> list[TuckerFactors]:
        joint = np.hstack(centers)
        if generator is not None:
            joint = generator.standard_normal((len(joint), max(joint.shape)))
        p = orthonormal_columns(np.linalg.svd(joint, full_matrices=False)[0], rank[0])
        starts = [_start_from_slices([p.T @ center for center in centers], p, rank)]
        equal_widths = len({center.shape for center in centers}) == 1
        if generator is None and equal_widths and max(rank) ** 2 <= np.prod(rank) and np.any(joint):
            core, (p, q, r) = tucker(np.stack(centers, axis=2), list(rank), n_iter_max=20)
            starts.append(TuckerFactors(np.array(core), np.array(p), (np.array(q),) * len(centers), np.array(r)))
        return starts

    def is_full(self, rank: tuple[int, ...], n_clusters: int, widths: Sequence[int]) -> bool:
        clusters, features, views = rank
        return clusters == n_clusters and views == len(widths) and features >= min(n_clusters, max(widths))

    def fit_exactly(
        self, centers: Sequence[FloatArray], rank: tuple[int, ...], previous: TuckerFactors | None
    ) -> TuckerFactors:
        clusters, features, views = rank
        if previous is None:
            bases = tuple(np.eye(center.shape[1], features) for center in centers)
            previous = TuckerFactors(np.zeros(rank), np.eye(clusters), bases, np.eye(views))
        orthonormal = self.canonical(previous)
        p, r = orthonormal.cluster_factor, orthonormal.view_factor
        q = tuple(_span_centers(a, basis) for a, basis in zip(centers, orthonormal.feature_factors, strict=True))
        projected = np.stack([center @ basis for center, basis in zip(centers, q, strict=True)], axis=2)
        return TuckerFactors(multi_mode_dot(projected, [p.T, r.T], modes=[0, 2]), p, q, r)


def _solve_mode(design: FloatArray, targets: FloatArray, weights: FloatArray, previous: FloatArray) -> FloatArray:
    """Solve for every row i the x_i that minimises sum_m weights_im ||targets_im - design_m x_i||^2, design_m matrices.

    `design` has shape (m, q, r), `targets` (n, m, q). All rows share the matrices, so that what is specific to a row is
    a weighted sum of products made once.
    """
    grams = np.tensordot(weights, np.matmul(design.transpose(0, 2, 1), design), 1)
    residuals = weights[:, :, None] * (targets - np.tensordot(previous, design, (1, 2)))
    return solve_normal(grams, np.tensordot(residuals, design, ((1, 2), (0, 1))), previous)


def _enough(energies: FloatArray, allowed: float) -> int:
    """Count the leading energies that leave at most `allowed` to the others; at least one."""
    left_over = np.append(np.cumsum(energies[::-1])[::-1], 0.0)
    return max(1, int(np.argmax(left_over <= allowed)))


def _span_centers(center: FloatArray, basis: FloatArray) -> FloatArray:
    """Find the basis nearest to `basis` that spans a view's centres; `basis` itself if it is complete."""
    width, count = basis.shape
    if width <= count:
        return basis
    span = orthonormal_columns(np.linalg.svd(center, full_matrices=False)[2].T, count)
    return np.asarray(span @ procrustes(span, basis))


def _rotate(factors: TuckerFactors, rotations: Sequence[FloatArray]) -> TuckerFactors:
    """Turn the factors to P O_1, Q_h O_2, R O_3 with orthogonal O; the centres stay."""
    first, second, third = rotations
    return TuckerFactors(
        np.asarray(multi_mode_dot(factors.core, [first.T, second.T, third.T])),
        factors.cluster_factor @ first,
        tuple(q @ second for q in factors.feature_factors),
        factors.view_factor @ third,
    )


def _start_from_slices(reduced: Sequence[FloatArray], p: FloatArray, rank: tuple[int, ...]) -> TuckerFactors:
    """Start from singular vectors of every view, rotated towards each other, then of the views (`eqn:hosvd`)."""
    bases = [orthonormal_columns(np.linalg.svd(part, full_matrices=False)[2].T, rank[1]) for part in reduced]
    slices = [part @ basis for part, basis in zip(reduced, bases, strict=True)]
    largest = slices[int(np.argmax([np.linalg.norm(part) for part in slices]))]
    turns = [procrustes(part, largest) for part in slices]
    tensor = np.stack([part @ turn for part, turn in zip(slices, turns, strict=True)], axis=2)
    r = orthonormal_columns(np.linalg.svd(tensor.reshape(-1, len(reduced)).T, full_matrices=False)[0], rank[2])
    features = tuple(basis @ turn for basis, turn in zip(bases, turns, strict=True))
    return TuckerFactors(np.asarray(mode_dot(tensor, r.T, 2)), p, features, r)
