"""Plain weighted k-means on a small dense table, and the few directions in which such a table is looked at.

scikit-learn's KMeans adds in the order its threads finish, and warns where rows coincide. This one gives the same bits
whatever the threads, and is quiet about duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from fedhk._typing import FloatArray, IntArray
from fedhk.model.rows import Rows

# Directions that hold less than this share of the squares are what rounding leaves.
SPAN_SHARE = 1e-20

# Directions in which points reach less than this share of the furthest are what rounding leaves.
SPAN = 1e-7

# Fall of the loss, as a share of it, at which passes with far points held back end: labels hardly change by then.
HEAT_TOL = 1e-4

# Up to so many cells, sums of groups take less time without a sparse matrix; the two meet at about 10,000.
FEW_CELLS = 5_000


def plus_plus(
    points: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Draw greedy k-means++ seeds."""
    from sklearn.cluster import kmeans_plusplus  # noqa: PLC0415 - a site's process starts anew for every message

    return np.asarray(kmeans_plusplus(points, n_clusters, sample_weight=weight, random_state=random_state)[0])


def find_nearest(points: FloatArray, centers: FloatArray) -> IntArray:
    """Find the nearest centre of each point."""
    return np.asarray(np.argmin(np.einsum("kq,kq->k", centers, centers) - 2 * points @ centers.T, axis=1))


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
        distances = points @ centers.T  # in place: it is the largest array here
        distances *= -2
        distances += np.einsum("kd,kd->k", centers, centers)
        nearest = distances.argmin(axis=1)
        inertia = float(weight @ np.maximum(norms + distances[np.arange(len(points)), nearest], 0.0))
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        sums, sizes = group_sums(points, weight, labels, len(centers))
        centers = np.divide(sums, sizes[:, None], out=centers.astype(np.float64), where=sizes[:, None] > 0)
    return centers, labels, inertia


def heat_lloyd(
    points: FloatArray, weight: FloatArray, centers: FloatArray, passes: int, heat_time: float
) -> tuple[FloatArray, IntArray, float]:
    """Centres after some passes of k-means in which far points pull little, the nearest centre of each, and the loss.

    A point costs 1 - exp(-t d^2), the distance of the model, so that no outlier has a cluster of its own. Ends early
    when the loss has settled.
    """
    norms, loss = np.einsum("nd,nd->n", points, points), np.inf
    for _ in range(passes):
        distances = np.einsum("kd,kd->k", centers, centers) - 2 * points @ centers.T
        labels = distances.argmin(axis=1)
        near = np.exp(-heat_time * np.maximum(norms + distances[np.arange(len(points)), labels], 0.0))
        before, loss = loss, float(weight @ (1.0 - near))
        if loss > before * (1 - HEAT_TOL):
            break
        sums, sizes = group_sums(points, weight * near, labels, len(centers))
        centers = np.divide(sums, sizes[:, None], out=centers.astype(np.float64), where=sizes[:, None] > 1e-300)
    return centers, labels, loss


def group_sums(
    points: FloatArray, weight: FloatArray, labels: IntArray, n_groups: int
) -> tuple[FloatArray, FloatArray]:
    """Compute the weighted sum of the points of each group, and its weight."""
    if points.size <= FEW_CELLS:  # the same sums without the time that a sparse matrix takes
        cells = (labels[:, None] * points.shape[1] + np.arange(points.shape[1])).ravel()
        sums = np.bincount(cells, (weight[:, None] * points).ravel(), n_groups * points.shape[1])
        return np.asarray(sums.reshape(n_groups, -1), np.float64), np.asarray(np.bincount(labels, weight, n_groups))
    member = sp.csc_array((weight, labels, np.arange(len(labels) + 1)), shape=(n_groups, len(labels)))
    return np.asarray(member @ points, np.float64), np.asarray(np.bincount(labels, weight, n_groups), np.float64)


def group_means(points: FloatArray, weight: FloatArray, labels: IntArray, n_groups: int) -> FloatArray:
    """Compute the weighted mean of each group; an empty group has the mean of all points."""
    sums, sizes = group_sums(points, weight, labels, n_groups)
    everywhere = np.broadcast_to(sums.sum(axis=0) / sizes.sum(), sums.shape)
    return np.asarray(np.divide(sums, sizes[:, None], out=everywhere.copy(), where=sizes[:, None] > 0))


def project_on_leading(points: FloatArray, weight: FloatArray, count: int) -> FloatArray:
    """Project points on the directions in which they vary most, at most `count` of them.

    The best centres of k-means lie nearly in the first `n_clusters - 1` (Zha and others, 2001).
    """
    centred = points - (weight @ points) / weight.sum()
    scaled = np.sqrt(weight)[:, None] * centred
    if len(points) < points.shape[1]:
        _, vectors = np.linalg.eigh(scaled @ scaled.T)
        axes = scaled.T @ vectors[:, -count:]
        lengths = np.linalg.norm(axes, axis=0)
        # a direction in which points do not vary is what rounding leaves
        axes = np.divide(axes, lengths, out=np.zeros_like(axes), where=lengths > SPAN * lengths.max(initial=0.0))
    else:
        _, vectors = np.linalg.eigh(scaled.T @ scaled)
        axes = vectors[:, -count:]
    return np.asarray(centred @ axes)


def leading_axes(points: FloatArray, share: float) -> FloatArray:
    """Find orthonormal columns along which points around 0 vary most.

    A direction is left out if it holds less than `share` of the summed squares; 1 keeps all that the points span.
    """
    try:
        _, values, axes = np.linalg.svd(points, full_matrices=False)
    except np.linalg.LinAlgError:  # the fast driver may fail on many equal singular values; the other does not
        _, values, axes = scipy.linalg.svd(points, full_matrices=False, lapack_driver="gesvd")
    squares = np.square(values)
    least = SPAN_SHARE if share >= 1 else share
    return np.asarray(axes[squares > least * max(float(squares.sum()), 1e-300)].T)


def compress(rows: Rows, parts: Sequence[FloatArray]) -> tuple[Rows, dict[int, tuple[FloatArray, FloatArray]]]:
    """Give each view that is wider than the rows are many as many coordinates as there are rows, at most.

    `parts` are the views in model units. Of every view that was changed the mean and the orthonormal axes are given,
    too: its values are mean + coordinates @ axes.

    Seeding compares many starts on few rows; on text the features are ten times as many as the rows. Squared distances
    between rows, and to any mean of rows, are the same in both coordinates. A view with missing cells or with
    coefficients stays as it is: its distances are no longer plain ones.
    """
    tables, references, axes = list(rows.views.tables), list(rows.references), {}
    for view, (part, reference) in enumerate(zip(parts, rows.references, strict=True)):
        if not rows.is_uniform(view) or reference.width <= len(part):
            continue
        mean = part.mean(axis=0)
        values, vectors = np.linalg.eigh((part - mean) @ (part - mean).T)
        kept = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
        if not kept.any():  # all rows alike
            continue
        lengths = np.sqrt(values[kept])
        axes[view] = mean, (vectors[:, kept] / lengths).T @ (part - mean)
        tables[view] = np.ascontiguousarray(vectors[:, kept] * lengths, dtype=rows.dtype)
        zeros, ones = np.zeros(len(lengths)), np.ones(len(lengths))
        references[view] = replace(reference, unit_rows=False, shift=zeros, scale=ones, low=zeros, span=ones)
    views = replace(rows.views, tables=tuple(tables))
    return Rows(views, tuple(references), rows.sample_weight, rows.spread), axes
