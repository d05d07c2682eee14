"""How much a view has to say: clusters beyond what a cloud without clusters would show.

k-means explains part of the variance of any cloud. A view has clusters as far as it explains more than of a Gaussian
cloud with the same covariance and as many points. Views that show less of this are given less weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk._typing import FloatArray
from fedhk.starts.kmeans import lloyd, plus_plus

# A view with this share of the clearest view's excess, or more, counts fully: factors find poor views, not the best.
FULL_SHARE = 1 / 1.5
# No view is silenced.
LEAST_FACTOR = 1 / 3
# Where not even the clearest view shows this much, there is nothing to compare.
LEAST_EXCESS = 0.05

OWN_STARTS, NULL_STARTS, NULL_CLOUDS = 4, 2, 6
MAX_PASSES = 20

# Points to look at: enough to tell clusters from a cloud, few enough that wide views cost seconds at most.
CLOUD_POINTS, CLOUD_POINTS_PER_CLUSTER = 2000, 20


def view_factors(
    views: Sequence[FloatArray], weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Factor of each view in the objective, between `LEAST_FACTOR` and 1.

    Parameters
    ----------
    views : sequence of array of shape (n, d_h)
        Rows, or weighted candidates of rows, in model units.
    weight : array of shape (n,)
        Weight of each row.
    n_clusters : int
        Number of clusters c.
    random_state : RandomState
        Source of randomness.
    """
    if len(views) == 1 or n_clusters == 1:
        return np.ones(len(views))
    most = max(CLOUD_POINTS, CLOUD_POINTS_PER_CLUSTER * n_clusters)
    if len(weight) > most:
        chosen = random_state.choice(len(weight), most, replace=False)
        views, weight = [view[chosen] for view in views], weight[chosen]
    excess = np.array([excess_variance(view, weight, n_clusters, random_state) for view in views])
    if excess.max() < LEAST_EXCESS:
        return np.ones(len(views))
    return np.asarray(np.clip(excess / (FULL_SHARE * excess.max()), LEAST_FACTOR, 1.0))


def excess_variance(
    view: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> float:
    """Share of the variance that k-means explains beyond what it explains of a Gaussian cloud; 0 if none."""
    scores, spreads = _principal(view, weight)
    if len(spreads) == 0 or len(scores) <= n_clusters:
        return 0.0
    own = _explained(scores, weight, n_clusters, OWN_STARTS, random_state)
    clouds = [random_state.standard_normal(scores.shape) * spreads for _ in range(NULL_CLOUDS)]
    nulls = [_explained(cloud, weight, n_clusters, NULL_STARTS, random_state) for cloud in clouds]
    return max(0.0, 1.0 - sum(nulls) / len(nulls) / own) if own > 0 else 0.0


def _principal(view: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows in their principal axes, where distances are the same and axes are few, and the spread along each."""
    share = weight / weight.sum()
    centred = np.asarray(view - share @ view, dtype=np.float64)
    root = np.sqrt(share)[:, None]
    wide = centred.shape[1] > centred.shape[0]  # the smaller of the two Gram matrices has the same eigenvalues
    scaled = centred * root
    values, vectors = np.linalg.eigh(scaled @ scaled.T if wide else scaled.T @ scaled)
    kept = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
    spreads = np.sqrt(values[kept])
    scores = vectors[:, kept] * spreads / root if wide else centred @ vectors[:, kept]
    return np.ascontiguousarray(scores), spreads


def _explained(
    points: FloatArray, weight: FloatArray, n_clusters: int, n_init: int, random_state: np.random.RandomState
) -> float:
    """Share of the weighted variance that k-means explains."""
    inertia = min(
        lloyd(points, weight, plus_plus(points, weight, n_clusters, random_state), MAX_PASSES)[2] for _ in range(n_init)
    )
    mean = weight @ points / weight.sum()
    total = float(weight @ np.square(points - mean).sum(axis=1))
    return 1.0 - inertia / total if total > 0 else 0.0
