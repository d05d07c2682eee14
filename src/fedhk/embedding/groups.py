"""Groups of anchors: plain partitions of the anchors, between whose members heat passes too.

Heat follows chains of rows, and leaves a round cluster by a few rows that lie between it and another. Groups of anchors
that plain k-means finds hold such clusters together. They are found among the anchors, so that no row is needed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray, IntArray
from fedhk.starts.kmeans import lloyd, plus_plus, project_on_leading

# Partitions of the anchors, each with one to so many groups for a cluster. What one partition cuts wrongly, few of the
# others do. Where clusters are many, fewer partitions have as many groups in all.
PARTITIONS, LEAST_PARTITIONS, MOST_FOR_CLUSTER, ALL_GROUPS = 30, 5, 3, 1200

# Passes of the k-means that finds them.
PASSES = 20


@dataclass(frozen=True, eq=False)
class AnchorGroups:
    """Partitions of the anchors, and how much heat passes within their groups."""

    labels: IntArray  # of shape (p, partitions): the group of each anchor
    share: float  # of the heat that passes by groups
    joint_weight: float  # share of the joint space in a row; groups are of anchors there


# Heat passes by rows alone.
NO_GROUPS = AnchorGroups(np.zeros((0, 0), np.int64), 0.0, 1.0)


def partition_anchors(
    anchors: Sequence[FloatArray], weight: FloatArray, n_clusters: int, seed: int, most: int = MOST_FOR_CLUSTER
) -> IntArray:
    """Partition anchors, given per view in model units, by k-means in the joint space; shape (p, partitions).

    A partition has one to `most` groups for a cluster.
    """
    weight = weight + 1e-3 * weight.mean()  # an anchor that hardly any row is near to belongs to a group, too
    joint = np.hstack(anchors)
    points = project_on_leading(joint, weight, len(joint)) if joint.shape[1] > len(joint) else joint
    usual, labels = (1 + most) * n_clusters // 2, []
    for number in range(int(np.clip(ALL_GROUPS // usual, LEAST_PARTITIONS, PARTITIONS))):
        random = seeded(seed, number)
        count = min(int(random.randint(n_clusters, most * n_clusters + 1)), len(points))
        labels.append(lloyd(points, weight, plus_plus(points, weight, count, random), PASSES)[1])
    return np.stack(labels, axis=1)


@dataclass(frozen=True, eq=False)
class Root:
    """The symmetric root of how heat passes from columns to columns.

    Without groups that is d^(-1), with d the sums of the columns of the affinities. With groups, the last columns,
    which are those of the joint space, also pass heat to the columns of their group, by the sum of d over the group.
    """

    scales: FloatArray  # of each column; 0 for an anchor that no row is near to
    joint: FloatArray  # root for the last columns, of shape (p, p); empty without groups
    inverse: FloatArray

    @classmethod
    def of(cls, sums: FloatArray, groups: AnchorGroups) -> Root:
        """The root for columns with these sums."""
        least = 1e-12 * max(float(sums.max(initial=0.0)), 1e-300)
        inverse = np.where(sums > least, 1.0 / np.maximum(sums, least), 0.0) * (1.0 - groups.share)
        nothing: FloatArray = np.zeros((0, 0))
        count = len(groups.labels)
        if not count:
            return cls(np.sqrt(inverse), nothing, nothing)
        near = np.flatnonzero(sums[-count:] > least)  # no heat comes to an anchor that no row is near to
        passed, own = np.diag(inverse[-count:][near]), sums[-count:][near]
        factor = groups.share / (groups.joint_weight * groups.labels.shape[1])
        for labels in groups.labels[near].T:
            received = factor / np.bincount(labels, own)[labels]
            passed += np.where(labels[:, None] == labels, received[:, None], 0.0)
        values, vectors = np.linalg.eigh(passed)
        roots, places = np.sqrt(values), np.ix_(near, near)
        joint, reverse = np.zeros((count, count)), np.zeros((count, count))
        joint[places], reverse[places] = (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T
        return cls(np.sqrt(inverse), joint, reverse)

    def apply(self, values: FloatArray) -> FloatArray:
        """Multiply columns of values, of shape (m, q), by the root."""
        return self._multiply(values, self.scales, self.joint)

    def remove(self, values: FloatArray) -> FloatArray:
        """Divide columns of values by the root; 0 where it is 0."""
        known = self.scales > 0
        return self._multiply(values, np.divide(1.0, self.scales, out=np.zeros(len(known)), where=known), self.inverse)

    def _multiply(self, values: FloatArray, scales: FloatArray, joint: FloatArray) -> FloatArray:
        found = scales[:, None] * values
        if len(joint):
            found[-len(joint) :] = joint @ values[-len(joint) :]
        return np.asarray(found)
