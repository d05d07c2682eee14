"""The scale on which a site measures each feature, found from its rows given the clusters they are in.

A site's spread as a whole also says which clusters it has. Given the clusters it does not: with x = b + s (a_k + e)
for rows of cluster k, both how far apart the clusters are and how far rows spread in them tell s. A scale on which the
site measures is that of all its clusters: what only some of them show is how their rows are. So here one half of the
*clusters* says what the scale is, and the other half confirms it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.passes import Passes
from fedhk.model.rows import SAMPLE_ROWS, joint_rows, take
from fedhk.personal.calibration import move_rows
from fedhk.personal.component import Component, OwnModel
from fedhk.personal.shares import LEAST_ROWS, Move, agreement, mean_move

# Rounds of clusters and scales in turn: clusters follow the scale, so that one is not enough.
SPREAD_PASSES = 4

# Fewest rows of a feature for which a scale is estimated, and the largest scale: as in a calibration.
LEAST_SEEN, MOST_FACTOR = 5, 5.0

# Where rows of clusters lie further apart than their centres by more than this factor, no scale explains it: centres
# lie on each other, as with a large fuzzifier, and a spread around them also says which clusters a site has. It is the
# largest scale. On generated federations the factor is 0.7 to 2 where centres are means of their rows, and 7 to 5,000
# where they lie on each other.
MOST_APART = MOST_FACTOR

# A feature whose variance at the site is below this share of that in clusters is constant there, but for rounding.
LEAST_VARIANCE = 1e-10


class LabelledRows(NamedTuple):
    """Rows in model units, views side by side, NaN where a cell is missing, and the centre of each row's cluster."""

    rows: FloatArray
    centers: FloatArray


@dataclass(frozen=True, kw_only=True)
class Spread(Component[LabelledRows]):
    """The site's own scale of each feature, by which its rows are divided.

    Unlike other components it changes how rows are read, and so comes before the passes over them.
    """

    name: ClassVar[str] = "spread"
    summary: ClusterSummary  # how far rows spread in clusters, over all sites

    def learn(self, own: OwnModel, part: LabelledRows) -> Move:
        """Find the logarithm of the scale that rows show; numbers count alike, and levels of a category have none."""
        logs = find_log_scale(part.rows, part.centers, self.summary.variance)
        return Move(np.where(own.rows.numbers, logs, 0.0), own.rows.numbers.astype(np.float64))

    def apply(self, own: OwnModel, part: LabelledRows, shares: Mapping[str, float]) -> OwnModel:
        logs = shares[self.name] * self.learn(own, part).step
        if not logs.any():
            return own
        return replace(own, rows=move_rows(own.rows, np.zeros_like(logs), np.exp(logs)))

    def fit_rows(self, own: OwnModel) -> OwnModel:
        """Give the model with the site's rows on the common scale, as far as other clusters confirm theirs.

        Small sites, and rows of length 1, which have no scale, stay as they are. So do rows of clusters whose centres
        lie on each other: nothing tells then what is the site's scale, and what are its clusters.
        """
        rows, common = own.rows, own.common
        if rows.n_rows < LEAST_ROWS or any(reference.unit_rows for reference in rows.references):
            return own
        sample = take(rows, np.random.default_rng(0).permutation(rows.n_rows)[:SAMPLE_ROWS])
        joint = joint_rows(sample, missing=np.nan).astype(np.float64)
        centers: FloatArray = np.hstack(common.centers)
        scale, offset = np.ones(joint.shape[1]), np.zeros(joint.shape[1])
        found = own
        for _ in range(SPREAD_PASSES):
            with Passes(move_rows(sample, offset, scale), common.n_clusters) as scan:
                labels = scan.assign(common)[1]
            whole = LabelledRows(joint, centers[labels])
            if compare_distances(*whole) > MOST_APART:
                return own
            halves = [LabelledRows(joint[half], whole.centers[half]) for half in split_by_clusters(labels)]
            found = self.fit(own, halves, whole)
            scale = np.exp(found.shares[self.name] * self.learn(own, whole).step)
            away = np.where(rows.numbers, joint / scale - whole.centers, 0.0)
            offset = agreement(mean_move(away[::2]), mean_move(away[1::2])) * mean_move(away).step * scale
        return found


def split_by_clusters(labels: IntArray) -> tuple[IntArray, IntArray]:
    """Split rows into two parts that have no cluster in common and are about as large."""
    sizes = np.bincount(labels)
    first: list[int] = []
    rows = 0
    for cluster in np.argsort(-sizes, kind="stable"):
        if rows + sizes[cluster] <= (sizes.sum() + 1) // 2 or not first:
            first.append(int(cluster))
            rows += int(sizes[cluster])
    inside = np.isin(labels, first)
    return np.flatnonzero(inside), np.flatnonzero(~inside)


def compare_distances(rows: FloatArray, centers: FloatArray) -> float:
    """Measure how many times further apart rows of different clusters lie than the centres of these clusters.

    It is the slope of rows on their centres, over all features: about the scale of the site where centres are means of
    the rows of their clusters.
    """
    x, a = _less_means(rows, centers)
    spread = float(np.square(a).sum())
    return float((x * a).sum()) / spread if spread > 0 else 0.0


def find_log_scale(rows: FloatArray, centers: FloatArray, variance: FloatArray) -> FloatArray:
    """Find the most likely logarithm of s per feature, of x = b + s (a + e) with e of the given variance.

    With x and a less their means, the likelihood -n log s - sum (x / s - a)^2 / (2 variance) is largest where t = 1 / s
    solves P t^2 - Q t - n = 0, P = sum x^2 / variance and Q = sum x a / variance.
    """
    count = (~np.isnan(rows)).sum(axis=0)
    x, a = _less_means(rows, centers)
    squares = np.square(x).sum(axis=0)
    usable = (count >= LEAST_SEEN) & (variance > 0) & (squares > LEAST_VARIANCE * count * variance)
    safe = np.where(usable, variance, 1.0)
    p, q = squares / safe, (x * a).sum(axis=0) / safe
    inverse = (q + np.sqrt(q**2 + 4 * p * count)) / (2 * np.where(usable, p, 1.0))
    logs = -np.log(np.where(usable, np.maximum(inverse, 1e-300), 1.0))
    return np.clip(logs, -np.log(MOST_FACTOR), np.log(MOST_FACTOR))


def _less_means(rows: FloatArray, centers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Subtract the means of the cells that are there from rows and from their centres; 0 where a cell is missing."""
    seen = ~np.isnan(rows)
    a = np.where(seen, centers, np.nan)
    return np.where(seen, rows - mean_move(rows).step, 0.0), np.where(seen, a - mean_move(a).step, 0.0)
