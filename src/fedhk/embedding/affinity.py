"""Sparse affinities of rows to anchors, per view and in the joint space of all views, side by side.

A row gives each of its few nearest anchors a share, exp(-scale d / d') with d the squared distance and d' that of the
first anchor that gets none, so that dense and thin regions are treated alike. The shares of a row in all blocks sum to
1: rows and anchors are then the two sides of a graph on which heat spreads from rows to anchors and back. Rows with
levels of categories are tied to anchors by their numbers, and to parts as well (`fedhk.embedding.parts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.embedding.metric import NO_METRIC, Metric
from fedhk.embedding.parts import NO_PARTS, Parts
from fedhk.model.rows import Rows, joint_rows, split_joint, take

# Distances of a chunk of rows to all anchors, in bytes: what is computed from them stays in the cache.
CHUNK_BYTES = 2**21


@dataclass(frozen=True)
class AnchorGraph:
    """Anchors, and how affinities of rows to them are computed."""

    anchors: tuple[FloatArray, ...]  # of shape (p, d_h) per view, in model units
    neighbours: int  # anchors that a row is tied to in each block; fewer where there are fewer
    scale: float  # how fast shares fall with the distance
    # Share of the joint space in a row that has all views; the views divide the rest evenly. A row that lacks views has
    # the same proportions among the blocks it has.
    joint_weight: float
    parts: Parts = NO_PARTS  # what rows of tables with categories are tied to, too
    metric: Metric = NO_METRIC  # what rows and anchors are stretched by before distances are taken

    def check(self, widths: Sequence[int]) -> None:
        """Refuse, by ValueError, anchors to which rows of views of such widths cannot be tied."""
        count = len(self.anchors[0]) if self.anchors else 0
        if count == 0 or [part.shape for part in self.anchors] != [(count, width) for width in widths]:
            raise ValueError(f"anchors must have the features of {len(widths)} views, {list(widths)}")
        if not all(np.isfinite(part).all() for part in self.anchors):
            raise ValueError("anchors have values that are NaN or infinite")
        self.parts.check(widths)
        self.metric.check(widths)

    @cached_property
    def stretched(self) -> tuple[FloatArray, ...]:
        """Anchors as distances to them are taken."""
        return self.metric.stretch(self.anchors)

    @property
    def n_anchors(self) -> int:
        """Number of anchors p."""
        return int(self.anchors[0].shape[0])

    @cached_property
    def distinct(self) -> tuple[IntArray, ...]:
        """Per view, anchors whose centres differ there: those that coincide in a view are one anchor of that view.

        A view of few different values, or of one, then ties rows to the values, not to whichever anchor comes first.
        """
        first = (np.unique(centers, axis=0, return_index=True)[1] for centers in self.anchors)
        return tuple(np.sort(indices) for indices in first)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Columns of each block of anchors: one per view, then the joint space. Those of parts come before them."""
        return (*(len(indices) for indices in self.distinct), self.n_anchors)

    @property
    def weights(self) -> list[float]:
        """The share in a row that has all views of the parts, and of each block of anchors."""
        count = len(self.anchors)
        by_anchors = [(1.0 - self.joint_weight) / count] * count + [self.joint_weight]
        return [self.parts.weight, *self.parts.weigh_blocks(by_anchors)]

    @property
    def n_columns(self) -> int:
        """Columns of the parts and of all blocks together."""
        return sum(self.parts.sizes) + sum(self.widths)

    def chunks(self, rows: Rows, size: int | None = None) -> Iterator[tuple[slice, Any]]:
        """Ranges of rows that cover them once, each with the affinities of its rows, CSR of shape (b, columns)."""
        size = self._chunk_size(rows) if size is None else size
        plain = self.parts.without_levels(rows)
        readers = _readers(plain, self.anchors, size)
        to_parts = _readers(rows, self.parts.centers, size) if self.parts else []
        for part in self._blocks(rows, size):
            changed = self._measure_stretched(plain, part) if self.metric else {}
            views = enumerate(readers)
            distances = [changed[view] if view in changed else measure_squares(own, part) for view, own in views]
            observed = [_observed(rows, view, part) for view in range(len(distances))]
            from_parts = [-reader.load(part).by_row() for reader in to_parts]
            yield part, self._affinities(distances, observed, from_parts)

    def _chunk_size(self, rows: Rows) -> int:
        """Compute how many rows are read at a time: a function of shapes only."""
        row_bytes = self.n_anchors * (len(self.anchors) + 1) * rows.dtype.itemsize
        return int(np.clip(CHUNK_BYTES // row_bytes, 64, 4096))

    def nearest_squares(self, rows: Rows, rank: int = 0) -> FloatArray:
        """Compute the squared distance of each row to the nearest anchor, over all views together, (n,).

        With a rank of 1 it is the second nearest, where there are two.
        """
        rank, found = min(rank, self.n_anchors - 1), np.zeros(rows.n_rows)
        for part, apart in self.distances(rows):
            found[part] = np.partition(apart, rank, axis=1)[:, rank]
        return found

    def nearest(self, rows: Rows) -> IntArray:
        """Find the nearest anchor of each row, over all views together, (n,)."""
        found = np.zeros(rows.n_rows, np.intp)
        for part, apart in self.distances(rows):
            found[part] = apart.argmin(axis=1)
        return found

    def distances(self, rows: Rows) -> Iterator[tuple[slice, FloatArray]]:
        """Ranges of rows, each with the squared distances of its rows to all anchors, over all views together.

        These are distances in model units, whatever the metric is: they say how far rows are, not which are alike.
        """
        readers = _readers(self.parts.without_levels(rows), self.anchors, self._chunk_size(rows))
        for part in self._blocks(rows, self._chunk_size(rows)):
            yield part, np.sum([measure_squares(reader, part) for reader in readers], axis=0)

    @staticmethod
    def _blocks(rows: Rows, size: int) -> Iterator[slice]:
        """Ranges of so many rows that cover them once."""
        for start in range(0, rows.n_rows, size):
            yield slice(start, min(start + size, rows.n_rows))

    def _measure_stretched(self, rows: Rows, part: slice) -> dict[int, FloatArray]:
        """Squared distances of some rows to all anchors, in the views that the metric changes.

        A cell that is missing in such a view is at the grand mean; a row without the view is at no distance.
        """
        points = self.metric.stretch(split_joint(joint_rows(take(rows, part)), rows.widths))
        found = {}
        for view, (own, anchors) in enumerate(zip(points, self.stretched, strict=True)):
            if self.metric.changed[view]:
                squares = np.square(own).sum(axis=1)[:, None] + np.square(anchors).sum(axis=1) - 2 * own @ anchors.T
                found[view] = np.maximum(squares, 0.0) * _observed(rows, view, part)[:, None]
        return found

    def affinities(self, rows: Rows) -> Any:
        """Compute the affinities of all rows, CSR of shape (n, columns); a row sums to 1, or 0 without a value."""
        parts = [part for _, part in self.chunks(rows)]
        return sp.vstack(parts, format="csr") if parts else sp.csr_array((0, self.n_columns))

    def _affinities(self, distances: list[FloatArray], observed: list[BoolArray], from_parts: list[FloatArray]) -> Any:
        joint: FloatArray = np.asarray(np.sum(distances, axis=0, dtype=np.float64))
        tables = [*(d[:, i] for d, i in zip(distances, self.distinct, strict=True)), joint]
        seen = [*observed, np.any(observed, axis=0)]
        starts = sum(self.parts.sizes) + np.concatenate([[0], np.cumsum(self.widths)[:-1]])
        part_weight, *weights = self.weights
        columns, shares = [], []
        if self.parts:
            columns.append(nearest_parts(np.sum(from_parts, axis=0), self.parts.sizes))
            each = part_weight * seen[-1] / len(self.parts.sizes)
            shares.append(np.tile(each[:, None], len(self.parts.sizes)))
        for table, has, weight, start in zip(tables, seen, weights, starts, strict=True):
            nearest, share = nearest_shares(table, self.neighbours, self.scale)
            columns.append(nearest + start)
            shares.append(share * (weight * has)[:, None])
        joined = np.hstack(shares)
        total = joined.sum(axis=1, keepdims=True)
        joined = np.divide(joined, total, out=joined, where=total > 0)
        n_rows, count = joined.shape
        pointers = np.arange(0, n_rows * count + 1, count)
        return sp.csr_array((joined.ravel(), np.hstack(columns).ravel(), pointers), shape=(n_rows, self.n_columns))


def measure_squares(reader: Any, part: slice) -> FloatArray:
    """Squared distances of some rows to all anchors in one view, (b, p)."""
    return np.asarray(np.maximum(-reader.load(part).by_row(), 0.0))


def nearest_shares(distances: FloatArray, neighbours: int, scale: float) -> tuple[IntArray, FloatArray]:
    """Find the nearest anchors of each row, nearest first, and their affinities, which sum to 1.

    `neighbours` get a share, at most all but one, unless there is only one: the nearest that gets none would get
    exp(-scale) of what an anchor on the row gets. A row on which all anchors lie that could get a share says nothing
    about them: it has no share in this block.
    """
    if distances.shape[1] == 1:
        return np.zeros((len(distances), 1), np.int64), np.ones((len(distances), 1))
    nearest, found = rank_nearest(distances, neighbours)
    return nearest[:, :-1], share_by_distance(found, scale)


def rank_nearest(distances: FloatArray, neighbours: int) -> tuple[IntArray, FloatArray]:
    """Find so many nearest of two or more anchors and the one after them, nearest first, and their distances."""
    count = max(1, min(neighbours, distances.shape[1] - 1))
    # ranks are those of single precision: what differs by rounding only is a tie, and a tie goes by the anchors' order
    ranked = distances.astype(np.float32)
    nearest = np.sort(np.argpartition(ranked, count, axis=1)[:, : count + 1], axis=1)
    order = np.argsort(np.take_along_axis(ranked, nearest, axis=1), axis=1, kind="stable")
    nearest = np.take_along_axis(nearest, order, axis=1)
    return nearest, np.take_along_axis(distances, nearest, axis=1).astype(np.float64)


def share_by_distance(found: FloatArray, scale: float) -> FloatArray:
    """Affinities of rows to anchors at these distances, nearest first; the last anchor gets none."""
    nearer, beyond = found[:, :-1], found[:, -1:]
    ratio = np.divide(nearer, beyond, out=np.zeros(nearer.shape), where=beyond > 0)
    shares = np.exp(-scale * ratio) * (beyond > 0)
    total = shares.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(shares, total, out=shares, where=total > 0))


def nearest_parts(distances: FloatArray, sizes: Sequence[int]) -> IntArray:
    """The nearest part of each row in each partition, whose parts stand one after the other; shape (n, partitions)."""
    stops = np.cumsum(sizes)
    pairs = zip(stops - sizes, stops, strict=True)
    return np.stack([start + distances[:, start:stop].argmin(axis=1) for start, stop in pairs], axis=1)


def _readers(rows: Rows, centers: Sequence[FloatArray], size: int) -> list[Any]:
    """Readers of so many rows at a time, one per view, that measure distances to these centres."""
    readers = rows.readers(size)
    for reader, own in zip(readers, centers, strict=True):
        reader.use(own, 1.0)
    return list(readers)


def _observed(rows: Rows, view: int, part: slice) -> BoolArray:
    """Tell which rows have a view."""
    table = rows.views.tables[view]
    if table is None or not rows.views.missing[view]:
        return np.full(part.stop - part.start, table is not None)
    return np.asarray(~np.isnan(table[part]).all(axis=1))
