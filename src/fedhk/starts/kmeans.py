"""Plain weighted k-means on a small dense table: the same bits whatever the threads, and quiet about duplicates.

scikit-learn's KMeans adds in the order its threads finish, and warns where rows coincide; seeding needs neither.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from fedhk._typing import FloatArray, IntArray

# Directions that hold less than this share of the squares are what rounding leaves.
SPAN_SHARE = 1e-20


def plus_plus(
    points: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Greedy k-means++ seeds."""
    from sklearn.cluster import kmeans_plusplus  # noqa: PLC0415 - a site's process starts anew for every message

    return np.asarray(kmeans_plusplus(points, n_clusters, sample_weight=weight, random_state=random_state)[0])


def lloyd(
    points: FloatArray, weight: FloatArray, centers: FloatArray, passes: int
) -> tuple[FloatArray, IntArray, float]:
    """Centres after some passes, the nearest centre of each point, and the weighted sum of squared distances.

    Ends early when no point changes its centre. A centre without points stays.
    """
    norms = np.einsum("nd,nd->n", points, points)
    labels: IntArray = np.full(len(points), -1)
    inertia = np.inf
    for _ in range(passes + 1):
        products = points @ centers.T
        distances = np.einsum("kd,kd->k", centers, centers) - 2 * products
        nearest = distances.argmin(axis=1)
        inertia = float(weight @ np.maximum(norms + distances[np.arange(len(points)), nearest], 0.0))
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        sums, sizes = group_sums(points, weight, labels, len(centers))
        centers = np.divide(sums, sizes[:, None], out=centers.astype(np.float64), where=sizes[:, None] > 0)
    return centers, labels, inertia


def group_sums(
    points: FloatArray, weight: FloatArray, labels: IntArray, n_groups: int
) -> tuple[FloatArray, FloatArray]:
    """Weighted sum of the points of each group, and the weight of each group."""
    member = sp.csr_array((weight, (labels, np.arange(len(labels)))), shape=(n_groups, len(labels)))
    return np.asarray(member @ points, dtype=np.float64), np.asarray(member.sum(axis=1)).ravel()


def group_means(points: FloatArray, weight: FloatArray, labels: IntArray, n_groups: int) -> FloatArray:
    """Weighted mean of each group; that of all points for a group without any."""
    sums, sizes = group_sums(points, weight, labels, n_groups)
    everywhere = np.broadcast_to(sums.sum(axis=0) / sizes.sum(), sums.shape)
    return np.asarray(np.divide(sums, sizes[:, None], out=everywhere.copy(), where=sizes[:, None] > 0))


def leading_directions(points: FloatArray, weight: FloatArray, count: int) -> FloatArray:
    """Points in the directions in which they vary most, at most `count` of them.

    The best centres of k-means lie nearly in the first `n_clusters - 1` (Zha and others, 2001).
    """
    centred = points - (weight @ points) / weight.sum()
    scaled = np.sqrt(weight)[:, None] * centred
    if len(points) < points.shape[1]:
        _, vectors = np.linalg.eigh(scaled @ scaled.T)
        axes = scaled.T @ vectors[:, -count:]
        axes = axes / np.maximum(np.linalg.norm(axes, axis=0), 1e-300)
    else:
        _, vectors = np.linalg.eigh(scaled.T @ scaled)
        axes = vectors[:, -count:]
    return np.asarray(centred @ axes)


def leading_axes(points: FloatArray, share: float) -> FloatArray:
    """Orthonormal columns along which points around 0 reach furthest.

    Parameters
    ----------
    points : array of shape (n, d)
        The points.
    share : float
        Least share of the summed squares that a direction must hold; 1 keeps all that the points span.
    """
    try:
        _, values, axes = np.linalg.svd(points, full_matrices=False)
    except np.linalg.LinAlgError:  # the fast driver may fail on many equal singular values; the other does not
        _, values, axes = scipy.linalg.svd(points, full_matrices=False, lapack_driver="gesvd")
    squares = np.square(values)
    least = SPAN_SHARE if share >= 1 else share
    return np.asarray(axes[squares > least * max(float(squares.sum()), 1e-300)].T)
