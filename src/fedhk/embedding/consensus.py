"""Consensus: many partitions of the same rows, each found by a diffusion of its own, as one graph.

A base is a diffusion over anchors of its own with a number of neighbours of its own, and centres of base clusters in
its embedding. A row is tied to the cluster that it is in, in each base: rows and base clusters are the two sides of a
graph on which heat spreads as it does between rows and anchors (`fedhk.embedding.spectrum`). Rows that most bases put
together come to lie in one direction, whatever single bases get wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph, Graph
from fedhk.embedding.anchors import AnchorSource, good_count
from fedhk.embedding.options import Diffusion
from fedhk.embedding.spectrum import MOST_CLUSTERS, eigengap, embed_affinities, find_eigenvectors, vectors_wanted
from fedhk.model.rows import Rows, joint_rows
from fedhk.starts.kmeans import lloyd, plus_plus
from fedhk.starts.seeding import distinct_rows

# Between these multiples of what was asked for, bases have their numbers of anchors and neighbours, and up to so many
# base clusters for a cluster. Alike bases would all be wrong in the same places.
FEWEST, MOST, MOST_FOR_CLUSTER = 1 / 2, 4 / 3, 2

# Fewer neighbours than this, where more were asked for, would leave anchors without heat from others.
LEAST_TIES = 3

# Rows of a block that are given to all bases in turn.
BLOCK_ROWS = 1024

# Error at which eigenvectors of a base are good enough, and the most products that are spent on them.
TOL, MOST_PRODUCTS = 0.02, 6

# Digits of embedded rows that are looked at: what differs beyond is one point.
DIGITS = 9

# Starts and passes of the k-means that finds base clusters.
STARTS, PASSES = 3, 30


@dataclass(frozen=True, eq=False)
class Base:
    """One diffusion, and the base clusters in its embedding."""

    source: int  # which source its anchors are taken from
    n_anchors: int
    neighbours: int
    seed: int
    projection: FloatArray  # what affinities are multiplied by, of shape (m, q)
    centers: FloatArray  # of the base clusters, of shape (k, q)

    def check(self, n_columns: int) -> None:
        """Refuse, by ValueError, directions and centres that do not go with so many columns of affinities."""
        q = self.projection.shape[-1]
        if self.projection.shape != (n_columns, q) or self.centers.shape != (len(self.centers), q):
            raise ValueError(f"a base must have directions for its {n_columns} columns, and centres in these")
        if not (len(self.centers) and np.isfinite(self.projection).all() and np.isfinite(self.centers).all()):
            raise ValueError("a base has no centres, or values that are NaN or infinite")

    def find_clusters(self, affinities: Any) -> Any:
        """The base cluster of each row, CSR of shape (n, k) with a 1 in each row; none for a row without any value."""
        embedding = embed_affinities(affinities, self.projection)
        norms = np.einsum("kq,kq->k", self.centers, self.centers)
        nearest = np.argmin(norms - 2 * embedding @ self.centers.T, axis=1)
        known = np.flatnonzero(embedding.any(axis=1))
        places = (known, nearest[known])
        return sp.csr_array((np.ones(len(known)), places), shape=(len(embedding), len(self.centers)))


@dataclass(frozen=True, eq=False)
class ConsensusGraph(Graph):
    """Rows tied to their clusters in all bases, with equal shares."""

    sources: tuple[AnchorSource, ...]
    scale: float
    joint_weight: float
    bases: tuple[Base, ...]

    @cached_property
    def graphs(self) -> tuple[AnchorGraph, ...]:
        """The graph of each base."""
        return tuple(map(self.make_graph, self.bases))

    def make_graph(self, base: Base) -> AnchorGraph:
        """The graph of one base."""
        anchors = self.sources[base.source].take(base.n_anchors, base.seed)
        return AnchorGraph(anchors, base.neighbours, self.scale, self.joint_weight)

    def list_anchors(self) -> tuple[FloatArray, ...]:
        """The anchors of all bases, one base after the other."""
        return tuple(map(np.vstack, zip(*(graph.anchors for graph in self.graphs), strict=True)))

    def check(self, widths: Sequence[int]) -> None:
        if not all(0 <= base.source < len(self.sources) for base in self.bases) or not self.bases:
            raise ValueError("bases must have anchors of the sources that there are")
        for source in self.sources:
            source.check(widths)
        for base, graph in zip(self.bases, self.graphs, strict=True):
            graph.check(widths)
            base.check(graph.n_columns)

    @property
    def n_columns(self) -> int:
        """Base clusters of all bases together."""
        return sum(len(base.centers) for base in self.bases)

    def chunks(self, rows: Rows, size: int | None = None) -> Iterator[tuple[slice, Any]]:
        sized = [graph.chunks(rows, size or BLOCK_ROWS) for graph in self.graphs]
        for parts in zip(*sized, strict=True):
            found = [base.find_clusters(part) for base, (_, part) in zip(self.bases, parts, strict=True)]
            yield parts[0][0], sp.csr_array(sp.hstack(found) / len(found))


def make_graph(
    sources: tuple[AnchorSource, ...], rows: Rows, n_clusters: int | None, options: Diffusion, seed: int
) -> Graph:
    """The graph of one diffusion, or of the consensus of several.

    Bases are found on `rows`, which may stand in for those of sites. With None, each finds its number of clusters.
    """
    different = len(distinct_rows(joint_rows(rows), rows.sample_weight)[0])
    wanted = good_count(vectors_wanted(n_clusters), different, options.n_anchors)
    if options.bases == 1:
        anchors = sources[0].take(wanted, seed)
        return AnchorGraph(anchors, options.neighbours, options.scale, options.joint_weight)
    empty = ConsensusGraph(sources, options.scale, options.joint_weight, ())
    bases = []
    for number in range(options.bases):
        random = seeded(seed, number)
        count, neighbours = (_vary(value, random) for value in (wanted, options.neighbours))
        bare = Base(number % len(sources), count, neighbours, int(random.randint(2**31)), np.zeros((0, 0)), np.zeros(0))
        affinities = empty.make_graph(bare).affinities(rows)
        bases.append(_find_clusters(bare, affinities, rows.sample_weight, n_clusters, random))
    return replace(empty, bases=tuple(bases))


def _vary(value: int, random: np.random.RandomState) -> int:
    """A number near the one that was asked for."""
    least = max(math.ceil(FEWEST * value), min(value, LEAST_TIES))
    return int(random.randint(least, int(MOST * value) + 1))


def _find_clusters(
    base: Base,
    affinities: Any,
    sample_weight: FloatArray | None,
    n_clusters: int | None,
    random: np.random.RandomState,
) -> Base:
    """The base with the directions in which heat stays among its anchors, and with clusters of rows in these."""
    wanted = min(vectors_wanted(n_clusters), affinities.shape[1])
    found = find_eigenvectors(affinities, wanted, sample_weight, tol=TOL, most_products=MOST_PRODUCTS)
    count = eigengap(found.values, 2, MOST_CLUSTERS) if n_clusters is None else wanted
    projection = found.projection(count)
    # embedded rows have length 1 whatever the unit, and few digits hold numbers around 1
    projection = projection / max(float(np.abs(projection).max(initial=0.0)), 1e-300)
    embedding = np.round(embed_affinities(affinities, projection), DIGITS)
    first, weight = distinct_rows(embedding, sample_weight)
    points = embedding[first]
    most = count if n_clusters is None else MOST_FOR_CLUSTER * count  # parts of clusters would be counted as clusters
    many = min(int(random.randint(count, most + 1)), len(points))
    starts = [lloyd(points, weight, plus_plus(points, weight, many, random), PASSES) for _ in range(STARTS)]
    return replace(base, projection=projection, centers=min(starts, key=lambda start: start[2])[0])
