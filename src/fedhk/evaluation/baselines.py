"""Other methods on the same sites: on pooled rows, and simple federated ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, SpectralClustering

from fedhk._typing import FloatArray, IntArray

# Bytes of a number that a site and the server tell each other, as methods without a format of their own are counted.
NUMBER = 8


@dataclass(frozen=True)
class Found:
    """Clusters of every site's rows; rounds, and bytes of a site both ways, where rows stay at their sites; a doubt."""

    labels: dict[str, NDArray[Any]]
    rounds: float = np.nan
    bytes_a_site: float = np.nan
    doubt: str = ""


def standardise(view: FloatArray) -> FloatArray:
    """Give each column mean 0 and spread 1; missing cells stay missing, and so do columns without any value."""
    seen = ~np.isnan(view)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, view, 0.0).sum(axis=0) / count
    away = np.where(seen, view - mean, 0.0)
    spread = np.sqrt(np.square(away).sum(axis=0) / count)
    return np.where(seen, away / np.where(spread > 0, spread, 1.0), np.nan)


def balance(views: Sequence[FloatArray]) -> FloatArray:
    """Put views side by side so that each counts alike: z-scores over the root of the width, gaps at the mean."""
    flat = [np.asarray(view, float).reshape(len(view), -1) for view in views]
    return np.asarray(np.nan_to_num(np.hstack([standardise(view) / np.sqrt(view.shape[1]) for view in flat])))


def balanced_kmeans(rows: FloatArray, n_clusters: int, seed: int) -> IntArray:
    """Run k-means on pooled rows, as anybody would who can pool them."""
    return np.asarray(KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(rows))


def spectral(rows: FloatArray, n_clusters: int, seed: int) -> IntArray:
    """Cluster the graph of ten nearest neighbours of pooled rows spectrally."""
    neighbours = min(10, len(rows) - 1)
    model = SpectralClustering(
        n_clusters, affinity="nearest_neighbors", n_neighbors=neighbours, assign_labels="kmeans", random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the graph falls into parts, which are clusters then
        return np.asarray(model.fit_predict(rows))


def k_fed(sites: Mapping[str, FloatArray], n_clusters: int, seed: int) -> Found:
    """Run k-FED (Dennis et al. 2021): k-means at every site, and once more on all centres; rows follow their centre."""
    centers, own, n_told = [], {}, 0
    for site, rows in sites.items():
        k = min(n_clusters, len(rows))
        found = KMeans(k, n_init=10, random_state=seed).fit(rows)
        own[site] = found.labels_ + n_told
        centers.append(found.cluster_centers_)
        n_told += k
    stacked = np.vstack(centers)
    server = KMeans(min(n_clusters, n_told), n_init=10, random_state=seed).fit(stacked)
    sent = n_clusters * (stacked.shape[1] + 1)  # centres up, the cluster of each of them down
    return Found({site: server.labels_[labels] for site, labels in own.items()}, 1, NUMBER * sent)


def federated_fcm(
    sites: Mapping[str, FloatArray], n_clusters: int, seed: int, fuzzifier: float = 2.0, max_rounds: int = 100
) -> Found:
    """Run federated fuzzy c-means: sums of memberships and of weighted rows, with the usual m = 2.

    It starts from rows drawn of all sites, which no federation could do: a better start than it would have.
    """
    pooled = np.vstack(list(sites.values()))
    centers = pooled[np.random.default_rng(seed).choice(len(pooled), n_clusters, replace=False)]
    rounds, change = 0, np.inf
    while rounds < max_rounds and change >= 1e-6:
        tops, bottoms = np.zeros_like(centers), np.zeros(len(centers))
        for rows in sites.values():
            weights = _memberships(rows, centers, fuzzifier) ** fuzzifier
            tops += weights.T @ rows
            bottoms += weights.sum(axis=0)
        moved = tops / np.maximum(bottoms, 1e-300)[:, None]
        change, rounds = float(np.abs(moved - centers).max()), rounds + 1
        centers = moved
    labels = {site: _memberships(rows, centers, fuzzifier).argmax(axis=1) for site, rows in sites.items()}
    sent = n_clusters * (2 * centers.shape[1] + 1)  # centres down, sums of rows and of memberships up
    doubt = f"it did not converge within {max_rounds} rounds" if change >= 1e-6 else ""
    return Found(labels, rounds, NUMBER * sent * rounds, doubt)


def _memberships(rows: FloatArray, centers: FloatArray, fuzzifier: float) -> FloatArray:
    squares = np.square(rows).sum(1)[:, None] - 2 * rows @ centers.T + np.square(centers).sum(1)
    raised = np.maximum(squares, 1e-100) ** (-1 / (fuzzifier - 1))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
