"""The scale on which a site measures each feature, found from its rows given the clusters they are in.

A site's spread as a whole also says which clusters it has. Given the clusters it does not: with x = b + s (a_k + e)
for rows of cluster k, both how far apart the clusters are and how far rows spread in them tell s. A scale on which the
site measures is that of all its clusters: what only some of them show is how their rows are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.joint import SAMPLE_ROWS, joint_rows, split_joint, take
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.personal.shares import agreement

# Rounds of clusters and scales in turn.
SPREAD_PASSES = 4

# Fewest rows of a feature, and largest factor, that are believed.
LEAST_SEEN, MOST_FACTOR = 5, 5.0

# A feature whose variance at the site is below this share of that in clusters is constant there, but for rounding.
LEAST_VARIANCE = 1e-10


def learned_spread(rows: Rows, common: Parameters, cluster_summary: ClusterSummary, seed: int) -> tuple[Rows, float]:
    """The site's rows on the common scale, and the share of its own scale that other clusters confirm.

    Parameters
    ----------
    rows : Rows
        The site's rows.
    common : Parameters
        The global model.
    cluster_summary : ClusterSummary
        How far rows spread in clusters, over all sites.
    seed : int
        Which rows are looked at, and by which half of them an offset is confirmed.
    """
    order = np.random.default_rng(seed).permutation(rows.n_rows)[:SAMPLE_ROWS]
    sample = take(rows, order)
    joint = joint_rows(sample, missing=np.nan).astype(np.float64)
    centers, variance = np.hstack(common.centers), cluster_summary.variance
    halves = (slice(0, None, 2), slice(1, None, 2))
    logs: FloatArray = np.zeros(joint.shape[1])
    offset: FloatArray = np.zeros(joint.shape[1])
    share = 0.0
    for _ in range(SPREAD_PASSES):
        labels = _labels(sample, common, offset, np.exp(logs))
        parts = [_log_scale(joint[half], centers[labels[half]], variance) for half in _by_clusters(labels)]
        share = agreement(*((values, np.ones_like(values)) for values in parts))
        logs = share * _log_scale(joint, centers[labels], variance)
        away = joint / np.exp(logs) - centers[labels]
        means = [known_mean(away[half]) for half in halves]
        offset = agreement(*means) * known_mean(away)[0] * np.exp(logs)
    if share == 0.0:
        return rows, 0.0
    return _scaled(rows, np.zeros_like(logs), np.exp(logs)), share


def _by_clusters(labels: IntArray) -> list[IntArray]:
    """Rows in two parts that have no cluster in common and are about as large."""
    sizes = np.bincount(labels)
    order = np.argsort(-sizes, kind="stable")
    first: list[int] = []
    taken = 0
    for cluster in order:
        if taken + sizes[cluster] <= (sizes.sum() + 1) // 2 or not first:
            first.append(int(cluster))
            taken += int(sizes[cluster])
    inside = np.isin(labels, first)
    return [np.flatnonzero(inside), np.flatnonzero(~inside)]


def _labels(rows: Rows, common: Parameters, offset: FloatArray, scale: FloatArray) -> IntArray:
    with Passes(_scaled(rows, offset, scale), common.n_clusters) as scan:
        return scan.assign(common)[1]


def _scaled(rows: Rows, offset: FloatArray, scale: FloatArray) -> Rows:
    """Rows whose values x are read as (x - offset) / scale, in model units."""
    parts = zip(rows.references, split_joint(offset, rows.widths), split_joint(scale, rows.widths), strict=True)
    return replace(rows, references=tuple(reference.moved(shift, divide) for reference, shift, divide in parts))


def known_mean(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean of each feature where it is known, and of how many rows."""
    seen = (~np.isnan(values)).sum(axis=0)
    return np.nansum(values, axis=0) / np.maximum(seen, 1), seen.astype(np.float64)


def _log_scale(rows: FloatArray, centers: FloatArray, variance: FloatArray) -> FloatArray:
    """The most likely logarithm of s per feature, of x = b + s (a + e) with e of the given variance.

    Notes
    -----
    With x and a less their means, the likelihood -n log s - sum (x / s - a)^2 / (2 variance) is largest where t = 1 / s
    solves P t^2 - Q t - n = 0, P = sum x^2 / variance and Q = sum x a / variance.
    """
    seen = ~np.isnan(rows)
    count = seen.sum(axis=0)
    moved = np.where(seen, rows - known_mean(rows)[0], 0.0)
    known = np.where(seen, centers, np.nan)
    known = np.where(seen, known - known_mean(known)[0], 0.0)
    squares = np.square(moved).sum(axis=0)
    usable = (count >= LEAST_SEEN) & (variance > 0) & (squares > LEAST_VARIANCE * count * variance)
    safe = np.where(usable, variance, 1.0)
    own, both = squares / safe, (moved * known).sum(axis=0) / safe
    inverse = (both + np.sqrt(both**2 + 4 * own * count)) / (2 * np.where(usable, own, 1.0))
    logs = -np.log(np.where(usable, np.maximum(inverse, 1e-300), 1.0))
    return np.clip(logs, -np.log(MOST_FACTOR), np.log(MOST_FACTOR))
