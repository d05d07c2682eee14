"""An embedding that follows its clusters: their anchors move with them, and clusters that are new get anchors.

The directions of an embedding are kept. The anchors of a cluster move as far as its mean has moved since the fit. A
cluster that is new has copies of the anchors of the cluster that it came from, moved to where it is, and a direction of
its own. So rows are read as if the embedding had been found where the clusters are now, and a few means say it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.map import DiffusionMap
from fedhk.model.rows import split_joint


@dataclass(frozen=True)
class CarriedGraph(AnchorGraph):
    """Anchors that have moved; those that were one in a view when they were found have one column there still."""

    columns: tuple[IntArray, ...] = ()  # per view, anchors that have a column

    @cached_property
    def distinct(self) -> tuple[IntArray, ...]:
        return self.columns


@dataclass(frozen=True, eq=False)
class Origin:
    """An embedding as it was found, and where its clusters were then.

    Parameters
    ----------
    diffusion : DiffusionMap
        The embedding.
    centers : array of shape (c, k)
        Centres of the clusters in it.
    means : array of shape (c, d)
        Means of the clusters, all views side by side, in model units.
    """

    diffusion: DiffusionMap
    centers: FloatArray
    means: FloatArray

    @cached_property
    def owners(self) -> IntArray:
        """The cluster of each anchor: the one whose centre is nearest to where a row on the anchor alone would be."""
        count = self.diffusion.graph.n_anchors
        places = self.diffusion.projection[-count:]
        places = places / np.maximum(np.linalg.norm(places, axis=1, keepdims=True), 1e-300)
        apart = np.square(self.centers).sum(axis=1) - 2 * places @ self.centers.T
        return np.asarray(apart.argmin(axis=1))

    def roots(self, parents: Sequence[int]) -> IntArray:
        """Return the cluster of the fit that each cluster has its anchors from; `parents` are those of later ones."""
        found = list(range(len(self.means)))
        for parent in parents:
            found.append(found[parent])
        return np.array(found)

    def carry(self, means: FloatArray, parents: Sequence[int], gone: Sequence[int]) -> tuple[DiffusionMap, FloatArray]:
        """Return the embedding and the centres in it for clusters that have these means now.

        Later clusters, of which `parents` says where their anchors are from, come last. Those that are gone have no
        anchors, unless no other has.
        """
        base, roots = self.diffusion, self.roots(parents)
        moves = means - self.means[roots]
        n_known, width, later = len(self.means), base.n_components, len(parents)
        centers = np.zeros((len(roots), width + later))
        centers[:n_known, :width] = self.centers
        centers[np.arange(n_known, len(roots)), np.arange(width, width + later)] = 1.0
        if not (later or gone or moves.any()):
            return base, centers
        graph, left = base.graph, np.setdiff1d(np.arange(len(roots)), gone)
        points, joint = np.hstack(graph.anchors), []
        # of each cluster that is left, the anchors that it has, by their number among those of the fit
        owned = {int(cluster): np.flatnonzero(self.owners == roots[cluster]) for cluster in left}
        for cluster, mine in owned.items():
            joint.append(points[mine] + moves[cluster])
        if not any(len(mine) for mine in owned.values()):
            return base, centers
        blocks = [*graph.distinct, np.arange(graph.n_anchors)]
        starts = sum(graph.parts.sizes) + np.concatenate([[0], np.cumsum(graph.widths)])
        places = np.concatenate([[0], np.cumsum([len(mine) for mine in owned.values()])])
        columns, projection = [], [_pad(base.projection[: starts[0]], later)]
        for block, start in zip(blocks, starts[:-1], strict=True):
            found = []
            for (cluster, mine), first in zip(owned.items(), places, strict=False):
                has: BoolArray = np.isin(mine, block)
                found.append(first + np.flatnonzero(has))
                own = base.projection[start + np.searchsorted(block, mine[has])]
                lines = _pad(own, later)
                if cluster >= n_known:
                    lines[:] = 0.0
                    lines[:, width + cluster - n_known] = np.linalg.norm(own, axis=1)
                projection.append(lines)
            columns.append(np.concatenate(found))
        carried = CarriedGraph(
            split_joint(np.vstack(joint), [part.shape[1] for part in graph.anchors]),
            graph.neighbours,
            graph.scale,
            graph.joint_weight,
            graph.parts,
            graph.metric,
            tuple(columns[:-1]),
        )
        return replace(base, graph=carried, projection=np.vstack(projection)), centers


def _pad(lines: FloatArray, later: int) -> FloatArray:
    """Return lines of a projection with as many more directions."""
    return np.pad(lines, ((0, 0), (0, later)))
