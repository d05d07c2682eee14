"""What PARAFAC2 and CP share: components with one weight per view, in coordinates of a basis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from tensorly.tenalg import khatri_rao

from fedhk._typing import FloatArray, IntArray
from fedhk.tensors.base import Decomposition
from fedhk.tensors.factors import Factors
from fedhk.tensors.gauges import best_signs, match_columns, peak_signs, ratio
from fedhk.tensors.solves import polar_factor, procrustes, solve_normal, solve_rows


@dataclass(frozen=True)
class ComponentFactors(Factors):
    """Factors of the centres A^h = P diag(R_h) (B_h Q)^T; a subclass says what the bases B_h are."""

    cluster_factor: FloatArray  # P, (c, r)
    feature_factor: FloatArray  # Q, (q, r), in the coordinates of the bases
    view_factor: FloatArray  # R, (s, r)

    @property
    def rank(self) -> tuple[int, ...]:
        return (int(self.cluster_factor.shape[1]),)

    @property
    def coordinates(self) -> FloatArray:
        both = self.cluster_factor[:, None, :] * self.view_factor
        return np.asarray(both @ self.feature_factor.T)

    @property
    def feature_factors(self) -> tuple[FloatArray, ...]:
        """The loadings B_h Q of the features on the components, one array of shape (d_h, r) per view."""
        return tuple(basis @ self.feature_factor for basis in self.view_bases)


C = TypeVar("C", bound=ComponentFactors)


class Components(Decomposition[C]):
    """A sum of r components, each with a column of P, of R and of the loadings B_h Q."""

    views_have_signs: ClassVar[bool]
    """Whether B_h and R_h may change sign together, in each view alone."""

    def canonical(self, factors: C) -> C:
        """Unit columns of P and Q with the scale in R, components in falling order of R, and fixed signs.

        The basis is turned so that Q is the symmetric root of Q^T Q, which PARAFAC2 determines; a complete
        basis becomes the identity.
        """
        p, q = factors.cluster_factor, factors.feature_factor
        p_scale = ratio(np.linalg.norm(p, axis=0), np.ones(p.shape[1])) * peak_signs(p)
        q_scale = ratio(np.linalg.norm(q, axis=0), np.ones(q.shape[1]))
        scaled = _rescale(factors, 1 / p_scale, 1 / q_scale)
        order = np.argsort(-np.linalg.norm(scaled.view_factor, axis=0), kind="stable")
        ordered = _permute(scaled, order)
        ordered = self._fix_signs(ordered, ordered.view_factor)
        square = q.shape[0] == q.shape[1]
        return _turn(ordered, polar_factor(ordered.feature_factor) if square else max(factors.view_bases, key=len).T)

    def align(self, factors: C, to: C) -> C:
        """Order (assignment), signs, scales and the turn of the basis that are nearest to another's."""
        ours = [factors.cluster_factor, _weighted_loadings(factors)]
        aligned = _permute(factors, match_columns(ours, [to.cluster_factor, _weighted_loadings(to)]))
        p, q = aligned.cluster_factor, aligned.feature_factor
        signs = np.where(np.sum(p * to.cluster_factor, axis=0) < 0, -1.0, 1.0)
        p_scale = signs * ratio(np.linalg.norm(to.cluster_factor, axis=0), np.linalg.norm(p, axis=0))
        q_scale = ratio(np.linalg.norm(to.feature_factor, axis=0), np.linalg.norm(q, axis=0))
        aligned = _rescale(aligned, p_scale, q_scale)
        aligned = self._fix_signs(aligned, aligned.view_factor * to.view_factor)
        return _turn(aligned, procrustes(np.vstack(aligned.view_bases), np.vstack(to.view_bases)))

    def fit_core(self, factors: C, targets: FloatArray, weights: FloatArray) -> C:
        p, q, r = factors.cluster_factor, factors.feature_factor, factors.view_factor
        p = _solve_mode(r, q, targets, weights, p)
        r = _solve_mode(p, q, targets.transpose(1, 0, 2), weights.T, r)
        q = solve_rows(khatri_rao([p, r]), targets.reshape(-1, targets.shape[2]).T, weights.reshape(1, -1), q)
        return factors.with_arrays(core=(p, q, r))

    def _fix_signs(self, factors: C, products: FloatArray) -> C:
        """Change signs of components, and of views where they have signs, so that `products` become most positive."""
        columns = np.where(products.sum(axis=0) < 0, -1.0, 1.0)
        if self.views_have_signs:
            rows, columns = best_signs(products)
            p, q, r = factors.core_arrays
            bases = [basis * sign for basis, sign in zip(factors.basis_arrays, rows, strict=True)]
            factors = factors.with_arrays(basis=bases, core=(p, q, r * rows[:, None]))
        return _rescale(factors, np.ones_like(columns), columns)


def _solve_mode(
    other: FloatArray, q: FloatArray, targets: FloatArray, weights: FloatArray, previous: FloatArray
) -> FloatArray:
    """Solve for every row i the x_i that minimises sum_m weights_im ||targets_im - Q (other_m * x_i)||^2.

    The normal equations of components are products, cell by cell, of those of Q and of the other factor.
    """
    products = (other[:, :, None] * other[:, None, :]).reshape(len(other), -1)
    grams = (q.T @ q) * (weights @ products).reshape(len(weights), *[other.shape[1]] * 2)
    residuals = weights[:, :, None] * (targets - (previous[:, None, :] * other) @ q.T)
    return solve_normal(grams, np.sum((residuals @ q) * other, axis=1), previous)


def _weighted_loadings(factors: C) -> FloatArray:
    """B_h Q diag(R_h), stacked: what is left of a component without its clusters, whatever the gauge."""
    return np.vstack([part * row for part, row in zip(factors.feature_factors, factors.view_factor, strict=True)])


def _permute(factors: C, order: IntArray) -> C:
    """Put the components in another order."""
    return factors.with_arrays(core=[part[:, order] for part in factors.core_arrays])


def _rescale(factors: C, clusters: FloatArray, features: FloatArray) -> C:
    """Multiply the columns of P and of Q, and divide those of R."""
    p, q, r = factors.core_arrays
    return factors.with_arrays(core=(p * clusters, q * features, r / (clusters * features)))


def _turn(factors: C, rotation: FloatArray) -> C:
    """Change the bases and Q to B_h O and O^T Q with an orthogonal O."""
    p, q, r = factors.core_arrays
    return factors.with_arrays(basis=[basis @ rotation for basis in factors.basis_arrays], core=(p, rotation.T @ q, r))
