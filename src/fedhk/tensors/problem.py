"""The weighted targets that a decomposition is fitted to; some weights may be 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray


@dataclass(frozen=True)
class WeightedCenters:
    """Targets t_khj = N / W and weights w_khj = g_h v_h^alpha W of the centre step."""

    targets: tuple[FloatArray, ...]  # of shape (c, d_h); zero where the weight is zero, whatever was given there
    weights: tuple[FloatArray, ...]  # of shape (c, d_h) or (c, 1), divided by `scale`
    scale: float  # the largest weight given

    @classmethod
    def of(cls, targets: Sequence[FloatArray], weights: Sequence[FloatArray] | None = None) -> WeightedCenters:
        """Check and clean targets and weights; no weights are unit weights."""
        if weights is None:
            weights = [np.ones((len(target), 1)) for target in targets]
        if len(weights) != len(targets):
            raise ValueError(f"weights has {len(weights)} views, targets {len(targets)}.")
        scale = max((float(np.max(weight, initial=0.0)) for weight in weights), default=0.0)
        cleaned, scaled = [], []
        for h, (target, weight) in enumerate(zip(targets, weights, strict=True)):
            values, weight_array = np.asarray(target, dtype=np.float64), np.asarray(weight, dtype=np.float64)
            _check_view(h, values, weight_array, len(targets[0]))
            used = np.broadcast_to(weight_array > 0, values.shape)
            if not np.isfinite(values[used]).all():
                raise ValueError(f"targets of view {h} have a value that is not finite where the weight is above 0.")
            cleaned.append(np.where(used, values, 0.0))
            scaled.append(weight_array / scale if scale > 0 else np.zeros_like(weight_array))
        return cls(tuple(cleaned), tuple(scaled), scale)

    @property
    def shape(self) -> tuple[int, list[int]]:
        """The number of clusters, and the width of each view."""
        return len(self.targets[0]), [target.shape[1] for target in self.targets]

    def in_basis(self, basis: Sequence[FloatArray]) -> WeightedCenters:
        """Give the same targets in the coordinates of orthonormal columns that span them; weights are those of rows."""
        return replace(self, targets=tuple(target @ e for target, e in zip(self.targets, basis, strict=True)))

    @property
    def row_weights(self) -> FloatArray:
        """max_j w_khj, of shape (c, s): the weights of the majoriser."""
        return np.column_stack([weight.max(axis=1) for weight in self.weights])

    def residuals(self, centers: Sequence[FloatArray]) -> list[FloatArray]:
        """Compute residuals w (t - A) per view: minus half the gradient of the error at A."""
        return [w * (t - a) for t, w, a in zip(self.targets, self.weights, centers, strict=True)]

    def completed(self, centers: Sequence[FloatArray]) -> list[FloatArray]:
        """Return the targets, with `centers` where they have no weight."""
        return [np.where(w > 0, t, a) for t, w, a in zip(self.targets, self.weights, centers, strict=True)]

    def error(self, centers: Sequence[FloatArray]) -> float:
        """Compute sum_khj w (t - A)^2, in the scale of the given weights."""
        parts = [np.sum(w * (t - a) ** 2) for t, w, a in zip(self.targets, self.weights, centers, strict=True)]
        return self.scale * float(np.sum(parts))

    def kept(self, centers: Sequence[FloatArray]) -> float:
        """Compute the share of the energy of the targets, their weighted squared size, that is not in the error."""
        whole = self.error([np.zeros_like(target) for target in self.targets])
        return 1.0 - self.error(centers) / whole if whole > 0 else 1.0

    def lost(self, centers: Sequence[FloatArray]) -> float:
        """Compute the share of the targets' weighted squared distance to their mean that is in the error.

        It is 1 where more is lost than that, and 0 where nothing tells them apart.
        """
        means = [center_mean(target, weight) for target, weight in zip(self.targets, self.weights, strict=True)]
        whole = self.error(means)
        return min(1.0, self.error(centers) / whole) if whole > 0 else 0.0

    def gaps(self, centers: Sequence[FloatArray]) -> FloatArray:
        """Compute the harmonic mean of the squared distances of each centre to the others, of shape (c,).

        Distances are over features in which both have rows. A centre without rows, or alone, has no gap: it is 0.
        """
        apart, shared = np.zeros((2, len(centers[0]), len(centers[0])))
        for center, weight in zip(centers, self.weights, strict=True):
            used = np.broadcast_to(weight > 0, center.shape).astype(np.float64)
            values, squares = used * center, used * center**2
            apart += squares @ used.T + used @ squares.T - 2 * values @ values.T
            shared += used @ used.T
        others = (shared > 0) & ~np.eye(len(apart), dtype=bool)
        near = np.divide(1.0, np.maximum(apart, np.finfo(np.float64).tiny), out=np.zeros_like(apart), where=others)
        total = near.sum(axis=1)
        return np.asarray(np.divide(others.sum(axis=1), total, out=np.zeros_like(total), where=total > 0))


def center_mean(center: FloatArray, weight: FloatArray) -> FloatArray:
    """Compute the weighted mean of the centres of a view over clusters."""
    total = np.maximum(weight.sum(axis=0), np.finfo(np.float64).tiny)
    return np.asarray(np.sum(weight * center, axis=0) / total)


def weighted_error(
    centers: Sequence[FloatArray], targets: Sequence[FloatArray], weights: Sequence[FloatArray] | None = None
) -> float:
    """Compute sum_khj w_khj (t_khj - a_khj)^2, which a centre step lowers; cells of weight 0 are never read."""
    return WeightedCenters.of(targets, weights).error(centers)


def _check_view(h: int, target: FloatArray, weight: FloatArray, n_clusters: int) -> None:
    if target.ndim != 2 or len(target) != n_clusters or target.shape[1] == 0:
        raise ValueError(f"targets of view {h} should have shape ({n_clusters}, d_h), got {target.shape}.")
    if weight.shape not in (target.shape, (n_clusters, 1)):
        raise ValueError(
            f"weights of view {h} should have shape {target.shape} or ({n_clusters}, 1), got {weight.shape}."
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError(f"weights of view {h} should be finite and at least 0.")
