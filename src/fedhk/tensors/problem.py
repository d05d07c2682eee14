"""What a decomposition is fitted to: targets with weights, some of them without any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    @property
    def row_weights(self) -> FloatArray:
        """max_j w_khj, of shape (c, s): the weights of the majoriser."""
        return np.column_stack([weight.max(axis=1) for weight in self.weights])

    def residuals(self, centers: Sequence[FloatArray]) -> list[FloatArray]:
        """Residuals w (t - A) per view: minus half the gradient of the error at A."""
        return [w * (t - a) for t, w, a in zip(self.targets, self.weights, centers, strict=True)]

    def completed(self, centers: Sequence[FloatArray]) -> list[FloatArray]:
        """Targets where there is weight, `centers` where there is none."""
        return [np.where(w > 0, t, a) for t, w, a in zip(self.targets, self.weights, centers, strict=True)]

    def error(self, centers: Sequence[FloatArray]) -> float:
        """sum_khj w (t - A)^2, in the scale of the weights given."""
        parts = [np.sum(w * (t - a) ** 2) for t, w, a in zip(self.targets, self.weights, centers, strict=True)]
        return self.scale * float(np.sum(parts))

    def lost(self, centers: Sequence[FloatArray]) -> float:
        """The error as a share of the weighted squared size of the targets."""
        whole = self.error([np.zeros_like(target) for target in self.targets])
        return self.error(centers) / whole if whole > 0 else 0.0


def weighted_error(
    centers: Sequence[FloatArray], targets: Sequence[FloatArray], weights: Sequence[FloatArray] | None = None
) -> float:
    """sum_khj w_khj (t_khj - a_khj)^2, the quadratic that a centre step lowers; cells of weight 0 are never read."""
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
