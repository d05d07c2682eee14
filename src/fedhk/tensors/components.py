"""What PARAFAC2 and CP share: components with one weight per view, in coordinates of a basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from tensorly.tenalg import khatri_rao

from fedhk._typing import FloatArray, IntArray
from fedhk.tensors.base import Decomposition
from fedhk.tensors.factors import Factors
from fedhk.tensors.gauges import best_signs, match_columns, peak_signs, ratio
from fedhk.tensors.solves import beyond, polar_factor, procrustes, solve_rows

__all__ = ["ComponentFactors", "Components"]


@dataclass(frozen=True)
class ComponentFactors(Factors):
    """Factors of the centres A^h = P diag(R_h) (B_h Q)^T.

    Parameters
    ----------
    cluster_factor : array of shape (c, r)
        P in the paper.
    feature_factor : array of shape (q, r)
        Q, in the coordinates of the bases.
    view_factor : array of shape (s, r)
        R.
    bases : tuple of array of shape (d_h, q)
        B_h: orthonormal columns of its own for each view (PARAFAC2, q = r); the first d_h rows of common orthonormal
        columns (CP, q = min(r, widest view)).
    """

    cluster_factor: FloatArray
    feature_factor: FloatArray
    view_factor: FloatArray
    bases: tuple[FloatArray, ...]

    @property
    def feature_factors(self) -> tuple[FloatArray, ...]:
        """The loadings B_h Q of the features on the components, one array of shape (d_h, r) per view."""
        return tuple(basis @ self.feature_factor for basis in self.bases)


class Components(Decomposition[ComponentFactors]):
    """A sum of r components, each with a column of P, of R and of the loadings B_h Q.

    A subclass says whether views have signs of their own: B_h and R_h may change sign together in PARAFAC2.
    """

    views_have_signs: ClassVar[bool]

    def rank(self, factors: ComponentFactors) -> tuple[int, ...]:
        return (int(factors.cluster_factor.shape[1]),)

    def rank_path(self, centers: Sequence[FloatArray], energy: float) -> list[tuple[int, ...]]:  # noqa: ARG002
        limits = self.limits(len(centers[0]), [center.shape[1] for center in centers])
        return [(r + 1,) for r in range(min(limit.largest for limit in limits))]

    def core(self, factors: ComponentFactors) -> tuple[FloatArray, ...]:
        return factors.cluster_factor, factors.feature_factor, factors.view_factor

    def canonical(self, factors: ComponentFactors) -> ComponentFactors:
        """Unit columns of P and Q with the scale in R, components in falling order of R, and fixed signs.

        The basis is turned so that Q is the symmetric root of Q^T Q, which PARAFAC2 determines; a complete
        basis becomes the identity.
        """
        p, q = factors.cluster_factor, factors.feature_factor
        p_scale = ratio(np.linalg.norm(p, axis=0), np.ones(p.shape[1])) * peak_signs(p)
        q_scale = ratio(np.linalg.norm(q, axis=0), np.ones(q.shape[1]))
        scaled = _rescaled(factors, 1 / p_scale, 1 / q_scale)
        order = np.argsort(-np.linalg.norm(scaled.view_factor, axis=0), kind="stable")
        ordered = _permuted(scaled, order)
        columns = np.where(ordered.view_factor.sum(axis=0) < 0, -1.0, 1.0)
        if self.views_have_signs:
            rows, columns = best_signs(ordered.view_factor)
            ordered = _flipped(ordered, rows)
        ordered = _rescaled(ordered, np.ones_like(columns), columns)
        square = q.shape[0] == q.shape[1]
        return _turned(ordered, polar_factor(ordered.feature_factor) if square else max(factors.bases, key=len).T)

    def align(self, factors: ComponentFactors, to: ComponentFactors) -> ComponentFactors:
        """Order (assignment), signs, scales and the turn of the basis that are nearest to another's."""
        ours = [factors.cluster_factor, _weighted_loadings(factors)]
        aligned = _permuted(factors, match_columns(ours, [to.cluster_factor, _weighted_loadings(to)]))
        p, q = aligned.cluster_factor, aligned.feature_factor
        signs = np.where(np.sum(p * to.cluster_factor, axis=0) < 0, -1.0, 1.0)
        p_scale = signs * ratio(np.linalg.norm(to.cluster_factor, axis=0), np.linalg.norm(p, axis=0))
        q_scale = ratio(np.linalg.norm(to.feature_factor, axis=0), np.linalg.norm(q, axis=0))
        aligned = _rescaled(aligned, p_scale, q_scale)
        products = aligned.view_factor * to.view_factor
        rows, columns = best_signs(products)
        if self.views_have_signs:
            aligned = _flipped(aligned, rows)
        else:
            columns = np.where(products.sum(axis=0) < 0, -1.0, 1.0)
        aligned = _rescaled(aligned, np.ones_like(columns), columns)
        return _turned(aligned, procrustes(np.vstack(aligned.bases), np.vstack(to.bases)))

    def view_bases(self, factors: ComponentFactors) -> tuple[FloatArray, ...]:
        return factors.bases

    def coordinates(self, factors: ComponentFactors) -> FloatArray:
        both = factors.cluster_factor[:, None, :] * factors.view_factor
        return np.asarray(both @ factors.feature_factor.T)

    def _fit_core(self, factors: ComponentFactors, targets: FloatArray, weights: FloatArray) -> ComponentFactors:
        n_clusters, n_views, width = targets.shape
        p, q, r = factors.cluster_factor, factors.feature_factor, factors.view_factor
        by_cluster, by_view = targets.reshape(n_clusters, -1), targets.transpose(1, 0, 2).reshape(n_views, -1)
        p = solve_rows(khatri_rao([r, q]), by_cluster, np.repeat(weights, width, axis=1), p)
        r = solve_rows(khatri_rao([p, q]), by_view, np.repeat(weights.T, width, axis=1), r)
        q = solve_rows(khatri_rao([p, r]), targets.reshape(-1, width).T, weights.reshape(1, -1), q)
        return replace(factors, cluster_factor=p, feature_factor=q, view_factor=r)

    def _extrapolated(self, before: ComponentFactors, after: ComponentFactors, stride: float) -> ComponentFactors:
        return replace(
            after,
            cluster_factor=beyond(before.cluster_factor, after.cluster_factor, stride),
            feature_factor=beyond(before.feature_factor, after.feature_factor, stride),
            view_factor=beyond(before.view_factor, after.view_factor, stride),
        )


def _weighted_loadings(factors: ComponentFactors) -> FloatArray:
    """B_h Q diag(R_h), stacked: what is left of a component without its clusters, whatever the gauge."""
    return np.vstack([part * row for part, row in zip(factors.feature_factors, factors.view_factor, strict=True)])


def _permuted(factors: ComponentFactors, order: IntArray) -> ComponentFactors:
    return replace(
        factors,
        cluster_factor=factors.cluster_factor[:, order],
        feature_factor=factors.feature_factor[:, order],
        view_factor=factors.view_factor[:, order],
    )


def _rescaled(factors: ComponentFactors, clusters: FloatArray, features: FloatArray) -> ComponentFactors:
    """Multiply the columns of P and of Q, and divide those of R."""
    return replace(
        factors,
        cluster_factor=factors.cluster_factor * clusters,
        feature_factor=factors.feature_factor * features,
        view_factor=factors.view_factor / (clusters * features),
    )


def _flipped(factors: ComponentFactors, signs: FloatArray) -> ComponentFactors:
    """Change the sign of B_h and R_h together."""
    bases = tuple(basis * sign for basis, sign in zip(factors.bases, signs, strict=True))
    return replace(factors, view_factor=factors.view_factor * signs[:, None], bases=bases)


def _turned(factors: ComponentFactors, rotation: FloatArray) -> ComponentFactors:
    """B_h O and O^T Q with an orthogonal O."""
    bases = tuple(basis @ rotation for basis in factors.bases)
    return replace(factors, feature_factor=rotation.T @ factors.feature_factor, bases=bases)
