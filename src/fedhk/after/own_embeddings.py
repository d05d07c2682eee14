"""Embeddings of halves of the rows: each half is embedded with anchors and directions of its own, all from sums.

An embedding that was found on all rows has what is accidental of them in it, and two halves that keep it agree on that.
So each half begins anew. Its first points are drawn around the anchors of the model, and move to the means of the rows
of the half that are near to them: these are its anchors. Rows are tied to the anchors, and of the ties sites sum what
says where heat stays longest, among directions in which it stays between the anchors themselves.

Very wide views are projected on the directions in which the anchors of the model vary most, so that no sum is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns, Views
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import give_length, good_count
from fedhk.embedding.diffusion import EmbeddedModel, make_embedded_rows
from fedhk.embedding.groups import AnchorGroups
from fedhk.embedding.map import DiffusionMap
from fedhk.embedding.options import Diffusion
from fedhk.embedding.parts import clear_levels, find_levels, make_parts
from fedhk.embedding.spectrum import (
    NEXT_DIRECTIONS,
    embed_affinities,
    find_groups,
    first_directions,
    restrict_eigenvectors,
    share_heat,
    tie_to_parts,
)
from fedhk.model.rows import Rows, joint_rows, split_joint

# Features of a view that are sums of their own; wider views are projected on so many directions.
MOST_FEATURES = 64

# Directions among which those are looked for in which heat stays: two for a cluster, and so many more. With 24 of them
# halves of generated rows agreed as with all directions.
MORE_DIRECTIONS = 20

# Of rows that are here alone, one of so many is a point that first points are drawn around.
ROWS_PER_POINT = 2

# Passes in which the first points of a half move to the means of the rows near to them.
ANCHOR_PASSES = 3

# Neighbours of a point with many rows, towards one of which a point without rows moves.
NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class OwnSpace:
    """What embeddings of halves have in common: the model, and on what wide views are projected."""

    model: EmbeddedModel
    options: Diffusion
    bases: tuple[FloatArray, ...]  # (d_h, q_h) per view

    @classmethod
    def of(cls, model: EmbeddedModel, options: Diffusion) -> OwnSpace:
        """Find the directions in which the anchors of a model vary most, in wide views."""
        return cls(model, options, tuple([_find_basis(points) for points in model.carried.graph.anchors]))

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return self.model.parameters.n_clusters

    @property
    def widths(self) -> list[int]:
        """Features per view after projection."""
        return [basis.shape[1] for basis in self.bases]

    @property
    def columns(self) -> tuple[Columns, ...]:
        """Columns of the views; those of a projected view have no names."""
        pairs = zip(self.model.columns, self.bases, strict=True)
        return tuple([columns if _keeps_features(basis) else None for columns, basis in pairs])

    def count_anchors(self, n_rows: float) -> int:
        """Choose how many anchors a half of so many rows has."""
        return good_count(self.n_clusters, n_rows, self.options.n_anchors)

    def draw_points(self, anchors: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
        """Draw points around anchors, towards their neighbours: where rows may be, and not where any row is."""
        near = _rank_neighbours(anchors)
        picked, move = rng.integers(len(anchors), size=count), rng.integers(near.shape[1], size=count)
        step = rng.standard_normal((count, 1)) * (anchors[near[picked, move]] - anchors[picked])
        return np.asarray(anchors[picked] + step)

    @property
    def anchors(self) -> FloatArray:
        """The anchors of the model after projection, views side by side."""
        parts = zip(self.model.carried.graph.anchors, self.bases, strict=True)
        return np.hstack([part @ basis for part, basis in parts])

    def embed_alone(self, rows: FloatArray, own: BoolArray, rng: np.random.Generator) -> FloatArray:
        """Embed rows that are here, views side by side, as the half of them that is `own` does."""
        parts = zip(split_joint(rows, self._full), self.bases, strict=True)
        plain, weight = _plain_rows([part @ basis for part, basis in parts], self.columns), own.astype(np.float64)
        cells = joint_rows(plain)
        anchors = cells[rng.permutation(len(cells))[: len(cells) // ROWS_PER_POINT]]
        points = self.draw_points(anchors, self.count_anchors(float(own.sum())), rng)
        for _ in range(ANCHOR_PASSES):
            points, counts = move_points(points, sum_nearest(plain, weight, points), rng)
        ties = OwnTies.of(self, points, counts, int(rng.integers(2**31)))
        sums = sum_ties(plain, weight, ties.graph, ties.directions)
        columns = ties.graph.n_columns
        return ties.make_map(sums[:columns], sums[columns:], self.n_clusters).embed(plain)

    @property
    def _full(self) -> list[int]:
        return [len(basis) for basis in self.bases]

    def make_candidates(self, points: FloatArray, counts: FloatArray) -> Rows:
        """Make rows of the points that have rows, which are means, weighted by these."""
        parts = split_joint(points[counts > 0.5], self.widths)
        full = [part @ basis.T for part, basis in zip(parts, self.bases, strict=True)]
        long = give_length(full, self.model.references)
        tables = [part @ basis for part, basis in zip(long, self.bases, strict=True)]
        return _plain_rows(tables, self.columns, counts[counts > 0.5])

    def make_graph(self, means: Rows, seed: int) -> AnchorGraph:
        """Make the graph of a half of its anchors."""
        old = self.model.carried.graph
        references = [
            reference if _keeps_features(basis) else plain
            for reference, basis, plain in zip(self.model.references, self.bases, means.references, strict=True)
        ]
        parts = make_parts(means, self.columns, references, self.n_clusters, seed)
        points = clear_levels(split_joint(joint_rows(means), means.widths), find_levels(self.columns, means.widths))
        metric = old.metric.project(self.bases)
        graph = AnchorGraph(points, old.neighbours, old.scale, old.joint_weight, metric=metric)
        return tie_to_parts(graph, means, parts, self.n_clusters, means.sample_weight)


@dataclass(frozen=True, eq=False)
class OwnTies:
    """How a half is embedded as far as its anchors say: what its rows are asked for, and what is then made of it."""

    graph: AnchorGraph
    directions: FloatArray  # (m, q)
    groups: AnchorGroups
    means: Rows  # those of the anchors
    counts: FloatArray  # rows of each of them

    @classmethod
    def of(cls, space: OwnSpace, points: FloatArray, counts: FloatArray, seed: int) -> OwnTies:
        """Find in which directions heat stays between the anchors of a half."""
        means = space.make_candidates(points, counts)
        graph = space.make_graph(means, seed)
        affinities, weight = graph.affinities(means), means.sample_weight
        groups = find_groups(affinities, graph, space.n_clusters, space.options, seed, sample_weight=weight)
        wanted = min(2 * space.n_clusters + MORE_DIRECTIONS, graph.n_columns)
        return cls(
            graph, first_directions(sp.csr_array(affinities), wanted, groups, 0.0), groups, means, counts[counts > 0.5]
        )

    def make_map(self, sums: FloatArray, inner: FloatArray, n_clusters: int) -> DiffusionMap:
        """Make the embedding of a half from the sums of its ties."""
        wanted, q = n_clusters + NEXT_DIRECTIONS, self.directions.shape[1]
        known = self.directions, sums, inner.reshape(q, q)
        alone = restrict_eigenvectors(*known, n_clusters)
        groups = share_heat(self.groups, self.graph, float(alone.values[-1]))
        found = restrict_eigenvectors(*known, wanted, groups)
        projection = found.cluster_projection(n_clusters)
        lacking = wanted - projection.shape[1]
        return DiffusionMap(self.graph, np.pad(projection, ((0, 0), (0, lacking))), found.values)


def project_rows(rows: Rows, bases: Sequence[FloatArray]) -> Rows:
    """Project wide views; a missing cell of a wide view is at the grand mean."""
    tables = []
    for cells, basis in zip(split_joint(joint_rows(rows, missing=np.nan), rows.widths), bases, strict=True):
        missing = np.isnan(cells) if _keeps_features(basis) else np.isnan(cells).all(axis=1, keepdims=True)
        tables.append(np.where(missing, np.nan, np.nan_to_num(cells) @ basis))
    return _plain_rows(tables, (None,) * len(tables))


def sum_nearest(rows: Rows, weight: FloatArray, points: FloatArray) -> FloatArray:
    """Sum the rows of a half by the nearest point: counts, and of every feature sums and known cells, (p, 1 + 2 d)."""
    count = len(points)
    graph = AnchorGraph(split_joint(points, rows.widths), 1, 1.0, 1.0)
    own = weight > 0
    nearest = graph.nearest(rows)[own]
    cells = joint_rows(rows, missing=np.nan)[own]
    known = ~np.isnan(cells)
    columns = np.hstack([np.ones((len(cells), 1)), np.nan_to_num(cells), known])
    found = np.zeros((count, columns.shape[1]))
    np.add.at(found, nearest, columns)
    return found


def move_points(points: FloatArray, sums: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Move points to the means of their rows, and count these.

    A point without rows moves between one that has many and a neighbour of that one: rows lie there, too.
    """
    counts, totals, known = sums[:, 0], *np.split(sums[:, 1:], 2, axis=1)
    moved = np.divide(totals, known, out=points.copy(), where=known > 0.5)
    filled, empty = np.flatnonzero(counts > 0.5), np.flatnonzero(counts < 0.5)
    if len(filled) > 1:
        crowded = rng.choice(len(filled), len(empty), p=counts[filled] / counts[filled].sum())
        near = _rank_neighbours(moved[filled])
        other = near[crowded, rng.integers(near.shape[1], size=len(empty))]
        step = rng.uniform(0.0, 0.5, (len(empty), 1))
        moved[empty] = moved[filled][crowded] + step * (moved[filled][other] - moved[filled][crowded])
    return moved, counts


def _rank_neighbours(points: FloatArray) -> IntArray:
    """Find the nearest other points of each."""
    squares = np.square(points).sum(axis=1)
    apart = squares[:, None] + squares - 2 * points @ points.T
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1)[:, : min(NEIGHBOURS, len(points) - 1)]


def sum_ties(rows: Rows, weight: FloatArray, graph: AnchorGraph, directions: FloatArray) -> FloatArray:
    """Sum the ties of the rows of a half: to each anchor, and their products with directions, both ways; (m + q q,)."""
    affinities = graph.affinities(rows)
    spread = affinities @ directions
    inner = spread.T @ (weight[:, None] * spread)
    return np.concatenate([np.asarray(affinities.T @ weight).ravel(), inner.ravel()])


def embed_rows(found: DiffusionMap, rows: Rows) -> Rows:
    """Embed rows with the embedding of a half."""
    return make_embedded_rows(found.embed(rows))


def embed_means(found: DiffusionMap, means: Rows) -> FloatArray:
    """Embed the anchors of a half."""
    return embed_affinities(found.graph.affinities(means), found.projection)


def place_means(space: OwnSpace, means: Rows) -> IntArray:
    """Find the clusters of the model that the anchors of a half are in."""
    parts = split_joint(joint_rows(means), means.widths)
    full = [part @ basis.T for part, basis in zip(parts, space.bases, strict=True)]
    embedded = space.model.carried.embed(_plain_rows(full, space.model.columns))
    centers = space.model.parameters.centers[0][:, : embedded.shape[1]]
    return np.asarray((np.square(centers).sum(axis=1) - 2 * embedded @ centers.T).argmin(axis=1))


def _keeps_features(basis: FloatArray) -> bool:
    """Tell whether a view is not projected."""
    return bool(basis.shape[0] == basis.shape[1])


def _find_basis(points: FloatArray) -> FloatArray:
    """Find orthonormal directions in which points vary most; the features themselves where they are few."""
    if points.shape[1] <= MOST_FEATURES:
        return np.eye(points.shape[1])
    return np.ascontiguousarray(np.linalg.svd(points, full_matrices=False)[2][:MOST_FEATURES].T)


def _plain_rows(
    tables: Sequence[FloatArray], columns: Sequence[Columns], sample_weight: FloatArray | None = None
) -> Rows:
    """Make rows of tables in model units."""
    missing = tuple([bool(np.isnan(table).any()) for table in tables])
    names = tuple([str(view) for view in range(len(tables))])
    views = Views(tuple(tables), names, len(tables[0]), np.dtype(np.float64), missing, tuple(columns))
    pairs = [(np.zeros(table.shape[1]), np.ones(table.shape[1])) for table in tables]
    references = [Reference(False, zero, one, "uniform", zero, one, 1.0) for zero, one in pairs]
    return Rows(views, tuple(references), sample_weight)
