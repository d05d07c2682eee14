"""Means, spreads and ranges of features, as sums that merge over chunks and over sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import BoolArray, FloatArray
from fedhk.data.views import Views

# Deviations from the mean below this share of it are what rounding makes of a constant.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Moments:
    """What one view's rows say about its features, missing cells left out.

    Parameters
    ----------
    rows : float
        Weight of the rows in which the view has at least one observed cell.
    total : float
        Weight of all rows of the site, with or without the view.
    weight, mean, squares, low, high : array of shape (d,)
        Per feature: weight of the observed cells, their mean, their summed squared deviation from it, their range. The
        range is NaN where it is not known: a site does not tell its extremes unless they are needed.
    """

    rows: float
    total: float
    weight: FloatArray
    mean: FloatArray
    squares: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def none(cls, width: int, total: float = 0.0) -> Moments:
        """No observed cell: the neutral element of `merge`."""
        zero = np.zeros(width)
        return cls(0.0, total, zero, zero, zero, np.full(width, np.inf), np.full(width, -np.inf))

    def merge(self, other: Moments) -> Moments:
        """Moments of the union of rows (Chan, Golub and LeVeque: no cancellation)."""
        weight = self.weight + other.weight
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight > 0)
        gap = other.mean - self.mean
        return Moments(
            rows=self.rows + other.rows,
            total=self.total + other.total,
            weight=weight,
            mean=self.mean + gap * share,
            squares=self.squares + other.squares + gap**2 * self.weight * share,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
        )

    @property
    def share(self) -> float:
        """Share of the rows that have the view."""
        return self.rows / self.total if self.total > 0 else 0.0

    @property
    def constant(self) -> BoolArray:
        """Features that never vary, as far as the range or, without it, the deviations tell."""
        nothing = self.weight * np.square(ROUNDING * self.mean)
        return np.where(np.isnan(self.low), self.squares <= nothing, ~(self.high > self.low))

    @property
    def variance(self) -> FloatArray:
        """Variance of each feature; 0 where it is constant or never observed."""
        spread = np.divide(self.squares, self.weight, out=np.zeros_like(self.squares), where=self.weight > 0)
        return np.where(self.constant, 0.0, spread)


def view_moments(views: Views, view: int, *, unit_rows: bool, sample_weight: FloatArray | None, width: int) -> Moments:
    """Moments of one view of a site, read once in blocks of rows.

    Parameters
    ----------
    views : Views
        The site.
    view : int
        Which view.
    unit_rows : bool
        Divide every row by its Euclidean length first (text).
    sample_weight : array of shape (n,) or None
        Weight of each row.
    width : int
        Number of features, for a site that lacks the view.
    """
    total = float(views.n_rows if sample_weight is None else np.sum(sample_weight))
    table = views.tables[view]
    result = Moments.none(width)
    if table is not None:
        complete = not views.missing[view] and (sample_weight is None or bool(np.all(sample_weight > 0)))
        for rows in views.blocks():
            weight = np.ones(rows.stop - rows.start) if sample_weight is None else sample_weight[rows]
            result = result.merge(_block_moments(dense_rows(table, rows, unit_rows), weight, complete))
    return Moments(result.rows, total, result.weight, result.mean, result.squares, result.low, result.high)


def dense_rows(table: Any, rows: slice, unit_rows: bool) -> FloatArray:
    """A block of rows as a dense float64 array, row-normalised where asked."""
    part = table[rows]
    block = np.asarray(part.toarray() if sp.issparse(part) else part, dtype=np.float64)
    if unit_rows:
        block = block / row_lengths(block)[:, None]
    return block


def row_lengths(block: FloatArray) -> FloatArray:
    """Euclidean length of each row over its observed cells; 1 for a row of zeros."""
    squares = np.nansum(np.square(block, dtype=np.float64), axis=1)
    return np.where(squares > 0, np.sqrt(squares), 1.0)


def _block_moments(block: FloatArray, weight: FloatArray, complete: bool) -> Moments:
    if complete:  # most data: nothing to mask
        mass = weight.sum()
        mean = weight @ block / mass if mass > 0 else np.zeros(block.shape[1])
        squares = weight @ np.square(block - mean)
        cells = np.full(block.shape[1], mass)
        return Moments(float(mass), float(mass), cells, mean, squares, block.min(axis=0), block.max(axis=0))
    observed = ~np.isnan(block) & (weight > 0)[:, None]
    cells = weight @ observed
    mean = np.divide(weight @ np.where(observed, block, 0.0), cells, out=np.zeros_like(cells), where=cells > 0)
    return Moments(
        rows=float(weight @ observed.any(axis=1)),
        total=float(weight.sum()),
        weight=cells,
        mean=mean,
        squares=weight @ np.square(np.where(observed, block - mean, 0.0)),
        low=np.where(observed, block, np.inf).min(axis=0),
        high=np.where(observed, block, -np.inf).max(axis=0),
    )
