"""Measures of clusterings that scikit-learn does not have: matched accuracy and the indices of fuzzy partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.sparse import issparse
from scipy.spatial.distance import pdist
from scipy.special import entr

from fedhk._typing import FloatArray
from fedhk.data.checks import check_labels, check_number

__all__ = ["matched_accuracy", "partition_coefficient", "partition_entropy", "xie_beni"]

ROW_SUM_TOLERANCE = 1e-4  # memberships kept in float32 add up to one no better than this


def matched_accuracy(labels_true: Any, labels_pred: Any) -> float:
    """Share of rows whose cluster is their class, under the best one-to-one matching of clusters with classes.

    Parameters
    ----------
    labels_true : sequence of hashable, length n
        The class of each row: numbers, strings or anything hashable.
    labels_pred : sequence of hashable, length n
        The cluster of each row. There may be more or fewer clusters than classes; rows of a cluster that is left
        without a class, and of a class that is left without a cluster, count as wrong.

    Returns
    -------
    float
        From above 0 to 1; 1 where the two partitions are the same up to names.

    Notes
    -----
    This is the ACC of the clustering literature: the assignment is optimal (Hungarian method), not greedy, and
    one-to-one, so it does not rise when clusters are split, as purity does.

    Examples
    --------
    >>> from fedhk.metrics import matched_accuracy
    >>> matched_accuracy(["walk", "walk", "run", "run"], [1, 1, 0, 0])
    1.0
    >>> matched_accuracy([0, 0, 0, 1], [0, 0, 1, 2])
    0.75
    """
    classes, class_names = check_labels(labels_true, "labels_true")
    clusters, cluster_names = check_labels(labels_pred, "labels_pred")
    if classes.size != clusters.size:
        raise ValueError(
            f"labels_true and labels_pred must have as many rows, got {classes.size} and {clusters.size} labels."
        )
    contingency = np.zeros((len(class_names), len(cluster_names)), dtype=np.intp)
    np.add.at(contingency, (classes, clusters), 1)
    matched = linear_sum_assignment(contingency, maximize=True)
    return float(contingency[matched].sum() / classes.size)


def partition_coefficient(memberships: ArrayLike) -> float:
    """Mean over the rows of the sum of squared memberships: how crisp a fuzzy partition is.

    Parameters
    ----------
    memberships : array-like, shape (n_samples, n_clusters)
        Rows are non-negative and sum to one.

    Returns
    -------
    float
        From 1 / n_clusters (every row belongs to all clusters alike) to 1 (crisp).

    Examples
    --------
    >>> from fedhk.metrics import partition_coefficient
    >>> partition_coefficient([[1.0, 0.0], [0.5, 0.5]])
    0.75
    """
    mu = _check_memberships(memberships)
    return float(np.square(mu).sum(axis=1).mean())


def partition_entropy(memberships: ArrayLike) -> float:
    """Mean over the rows of the entropy of the memberships, in nats: how vague a fuzzy partition is.

    Parameters
    ----------
    memberships : array-like, shape (n_samples, n_clusters)
        Rows are non-negative and sum to one. A membership of zero adds nothing (0 log 0 = 0).

    Returns
    -------
    float
        From 0 (crisp) to log(n_clusters) (every row belongs to all clusters alike).

    Examples
    --------
    >>> from fedhk.metrics import partition_entropy
    >>> round(partition_entropy([[1.0, 0.0], [0.5, 0.5]]), 4)
    0.3466
    """
    mu = _check_memberships(memberships)
    return float(entr(mu).sum(axis=1).mean())


def xie_beni(
    views: Any,
    centers: Any,
    memberships: ArrayLike,
    fuzzifier: float = 2.0,
    view_weights: ArrayLike | None = None,
) -> float:
    """Xie-Beni index over several views: compactness of the clusters over the separation of their centres.

    Parameters
    ----------
    views : list of array-like, shape (n_samples, n_features_h), or one 2-D array-like
        The rows in every view. A missing cell (NaN), and a view that is None, add nothing to a row's distances.
    centers : list of array-like, shape (n_clusters, n_features_h), or one 2-D array-like
        The centres in every view, in the units of ``views``.
    memberships : array-like, shape (n_samples, n_clusters)
        Rows are non-negative and sum to one.
    fuzzifier : float, default=2.0
        The exponent m of the memberships, at least 1. Xie and Beni wrote 2; give a model's own to judge that model.
    view_weights : array-like, shape (n_views,), optional
        Non-negative factors of each view's squared distances, both to the centres and between them. By default every
        view counts as it is: put views of different units on a common scale first, or weight them.

    Returns
    -------
    float
        At least 0, smaller is better; ``inf`` where two centres coincide.

    Notes
    -----
    The index is sum_ik mu_ik^m d2(x_i, a_k) / (n min_kl d2(a_k, a_l)), with d2 the weighted sum over the views of the
    squared Euclidean distances (Xie and Beni, 1991, for one view and m = 2).

    Examples
    --------
    >>> from fedhk.metrics import xie_beni
    >>> x = [[0.0], [2.0], [10.0], [12.0]]
    >>> xie_beni(x, [[1.0], [11.0]], [[1, 0], [1, 0], [0, 1], [0, 1]])
    0.01
    """
    mu = _check_memberships(memberships)
    powers = mu ** check_number(fuzzifier, "fuzzifier", minimum=1.0)
    if mu.shape[1] < 2:
        raise ValueError(f"memberships must have at least 2 clusters for a separation, got {mu.shape[1]}.")
    view_list, center_list = _as_list(views), _as_list(centers)
    if len(view_list) != len(center_list) or not view_list:
        raise ValueError(
            "views and centers must be as many, and at least one view is needed, got "
            f"{len(view_list)} views and {len(center_list)} centers."
        )
    weights = _check_view_weights(view_weights, len(view_list))
    between, scatter = np.zeros(1), 0.0
    for h, (view, center, weight) in enumerate(zip(view_list, center_list, weights.tolist(), strict=True)):
        means = _as_matrix(center, f"centers[{h}]")
        if not np.isfinite(means).all():
            raise ValueError(f"centers[{h}] must be finite, got {means[~np.isfinite(means)][0]}.")
        if len(means) != mu.shape[1]:
            raise ValueError(f"centers[{h}] has {len(means)} clusters, but memberships has {mu.shape[1]}.")
        between = between + weight * pdist(means, "sqeuclidean")
        if view is not None:
            scatter += weight * _scatter(_check_view(view, h, (len(mu), means.shape[1])), means, powers)
    separation = float(np.min(between))
    return float("inf") if separation == 0.0 else scatter / (len(mu) * separation)


def _scatter(view: FloatArray, centers: FloatArray, powers: FloatArray) -> float:
    """Sum of squared distances of the rows to the centres, weighted by ``powers``; a missing cell adds nothing."""
    total = 0.0
    observed = ~np.isnan(view)
    for center, power in zip(centers, powers.T, strict=True):
        difference = np.subtract(view, center, where=observed, out=np.zeros_like(view))
        total += float(power @ np.einsum("nd,nd->n", difference, difference))
    return total


def _check_memberships(memberships: ArrayLike) -> FloatArray:
    mu = _as_matrix(memberships, "memberships")
    if not np.isfinite(mu).all() or mu.min() < 0:
        bad = mu[~(np.isfinite(mu) & (mu >= 0))][0]
        raise ValueError(f"memberships must be finite and not negative, got {bad}.")
    sums = mu.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > ROW_SUM_TOLERANCE:
        raise ValueError(f"memberships must sum to 1 in every row, got {sums[worst]:g} in row {worst}.")
    return mu


def _check_view(view: Any, h: int, shape: tuple[int, int]) -> FloatArray:
    rows = _as_matrix(view, f"views[{h}]")
    if rows.shape != shape:
        raise ValueError(
            f"views[{h}] has shape {rows.shape}, but memberships has {shape[0]} rows and centers[{h}] has "
            f"{shape[1]} features."
        )
    if np.isinf(rows).any():
        raise ValueError(f"views[{h}] must be finite or NaN, got {rows[np.isinf(rows)][0]}.")
    return rows


def _check_view_weights(view_weights: ArrayLike | None, n_views: int) -> FloatArray:
    if view_weights is None:
        return np.ones(n_views)
    weights = np.asarray(view_weights, dtype=np.float64)
    if weights.shape != (n_views,):
        raise ValueError(f"view_weights must have shape ({n_views},), one a view, got {weights.shape}.")
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.max() == 0:
        raise ValueError(f"view_weights must be finite, not negative and not all zero, got {weights.tolist()}.")
    return weights


def _as_list(views: Any) -> list[Any]:
    """Tell a list of views from one view: an array, a sparse matrix, a data frame or nested lists of numbers."""
    if not isinstance(views, Sequence) or np.ndim(views[0] if len(views) else 0.0) == 1:
        return [views]
    return list(views)


def _as_matrix(value: Any, name: str) -> FloatArray:
    try:
        matrix: FloatArray = np.asarray(value.toarray() if issparse(value) else value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a 2-D array of numbers, got {type(value).__name__}: {error}") from error
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"{name} must be 2-D with at least one row and one column, got shape {matrix.shape}.")
    return matrix
