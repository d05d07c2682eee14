"""A start from sums alone: where rows are many, seen on a grid along the leading directions of all rows.

Candidates are means of groups of a site's rows, which a site shows to the server. Where the server may see nothing but
sums over all sites, two sums replace them: second moments, which give the leading directions, and how many rows are in
each cell of a grid along these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.rows import Rows, joint_rows, take
from fedhk.starts.candidates import Candidates

# Rows that are brought to model units at a time.
BLOCK_ROWS = 4096

# The grid reaches this many standard deviations to both sides of the mean, and has about this many cells in all.
REACH, MOST_CELLS = 2.5, 512

# More directions than this say little about few clusters, and make cells empty.
MOST_DIRECTIONS = 3

# Up to this many features second moments are taken of the features themselves, else of random combinations of them.
MOST_FEATURES = 128


@dataclass(frozen=True)
class Grid:
    """Cells along a few orthonormal directions."""

    mean: FloatArray  # where the grid has its middle, (d,), in model units
    axes: FloatArray  # the directions, (d, q)
    deviations: FloatArray  # standard deviation of all rows along each, (q,)
    bins: int  # cells along each

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return int(self.bins ** self.axes.shape[1])

    def counts(self, rows: Rows) -> FloatArray:
        """How many rows are in each cell; those beyond the grid are in the cells at its edge."""
        total = np.zeros(self.n_cells)
        for joint in _blocks(rows):
            place = (joint - self.mean) @ self.axes / (2 * REACH * self.deviations) + 0.5
            # held to the grid before it is a whole number: of values far out there is none
            index = np.clip(np.nan_to_num(place * self.bins), 0, self.bins - 1).astype(np.int64)
            flat = np.ravel_multi_index(tuple(index.T), (self.bins,) * self.axes.shape[1])
            total += np.bincount(flat, minlength=self.n_cells)
        return total

    def candidates(self, counts: FloatArray, noise: float, n_views: int) -> Candidates:
        """The cells that surely have rows, as candidates; the counts have noise of this standard deviation."""
        weight = counts - np.where(noise > 0, noise * np.sqrt(2 * np.log(max(self.n_cells, 2))), 0.0) / 2
        held = np.flatnonzero(weight > 0)
        if len(held) == 0:
            held, weight = np.arange(self.n_cells), np.ones(self.n_cells)
        index = np.stack(np.unravel_index(held, (self.bins,) * self.axes.shape[1]), axis=1)
        place = ((index + 0.5) / self.bins - 0.5) * 2 * REACH * self.deviations
        return Candidates(self.mean + place @ self.axes.T, weight[held], np.zeros((len(held), n_views)))


def sketch(width: int, seed: int) -> FloatArray:
    """Directions in which second moments are taken, of shape (width, p): the features, or random ones."""
    if width <= MOST_FEATURES:
        return np.eye(width)
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((width, MOST_FEATURES)))[0]


def second_moments(rows: Rows, directions: FloatArray, radius: float) -> FloatArray:
    """Sums over rows of r^2, r y and y y^T as one vector, with y a row in the directions, cut to the length r.

    The part of y y^T below the diagonal stands once, times the root of 2, so that lengths are kept.
    """
    p = directions.shape[1]
    count, first, second = 0.0, np.zeros(p), np.zeros((p, p))
    for joint in _blocks(rows):
        y = joint @ directions
        if np.isfinite(radius):
            y = y * np.minimum(1.0, radius / np.maximum(np.linalg.norm(y, axis=1), 1e-300))[:, None]
        count += len(y)
        first += y.sum(axis=0)
        second += y.T @ y
    unit = radius if np.isfinite(radius) else 1.0
    flat = second * np.sqrt(2)
    np.fill_diagonal(flat, np.diag(second))
    return np.concatenate([[unit**2 * count], unit * first, flat[np.triu_indices(p)]])


def read_second_moments(vector: FloatArray, width: int, radius: float) -> tuple[float, FloatArray, FloatArray]:
    """Number of rows, their mean and their covariance, from the sum of `second_moments` over sites."""
    unit = radius if np.isfinite(radius) else 1.0
    count = max(float(vector[0]) / unit**2, 1.0)
    mean = vector[1 : 1 + width] / unit / count
    square = np.zeros((width, width))
    square[np.triu_indices(width)] = vector[1 + width :]
    square = square / np.sqrt(2) + np.diag(np.diag(square)) * (1 - 1 / np.sqrt(2))
    square = square + np.triu(square, 1).T
    return count, mean, square / count - np.outer(mean, mean)


def leading_grid(mean: FloatArray, covariance: FloatArray, directions: FloatArray, n_clusters: int) -> Grid:
    """A grid along the directions in which rows differ most."""
    count = max(1, min(n_clusters - 1 or 1, MOST_DIRECTIONS, covariance.shape[0]))
    values, vectors = np.linalg.eigh(covariance)
    leading = vectors[:, ::-1][:, :count]
    deviations = np.sqrt(np.maximum(values[::-1][:count], 1e-12))
    bins = max(2, int(MOST_CELLS ** (1.0 / count) + 1e-9))
    return Grid(directions @ mean, directions @ leading, deviations, min(bins, 32))


def _blocks(rows: Rows) -> Iterator[FloatArray]:
    """The rows in model units, some at a time."""
    for start in range(0, rows.n_rows, BLOCK_ROWS):
        yield joint_rows(take(rows, np.arange(start, min(start + BLOCK_ROWS, rows.n_rows)))).astype(np.float64)
