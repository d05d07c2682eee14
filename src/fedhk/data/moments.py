"""Means, spreads and ranges of features, as sums that merge over chunks and over sites."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from fedhk._typing import BoolArray, FloatArray
from fedhk.data.row_forms import PLAIN_ROWS, UNIT_ROWS, RowForm
from fedhk.data.views import Views, row_blocks

# Columns are magnitudes of one kind if half of them have a spread of more than this share of their mean, which is what
# the absolute value of a normal number has, and if these shares differ by less than a factor of 1.5 (standard deviation
# of their logarithms). Descriptors of pictures differ by 1.1 to 1.45, half of all tables by more than 2.2; factors from
# 1.35 to 1.65 gave nearly the same choices on data that were looked at (`benchmarks/results/agreement.md`). Of fewer
# columns than this that differ by 2.2, more than one view in fifty would be alike by chance (chi-squared).
LEAST_SPREAD = math.sqrt(math.pi / 2 - 1)
MOST_UNLIKE = math.log(1.5)
LEAST_ALIKE = 10

# Deviations from the mean below this share of it are what rounding makes of a constant.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Moments:
    """Moments of the features of one view, over observed cells; arrays have one number per feature.

    Parameters
    ----------
    rows : float
        Weight of the rows in which the view has at least one observed cell.
    total : float
        Weight of all rows of the site, with or without the view.
    weight : array of shape (d_h,)
        Weight of the observed cells.
    mean : array of shape (d_h,)
        Their mean.
    squares : array of shape (d_h,)
        Their summed squared deviation from the mean.
    low, high : array of shape (d_h,)
        Their range; NaN where it is not known: a site does not tell its extremes unless they are needed.
    """

    rows: float
    total: float
    weight: FloatArray
    mean: FloatArray
    squares: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def none(cls, width: int) -> Moments:
        """Make the moments of no rows: the neutral element of `merge`."""
        zero = np.zeros(width)
        return cls(0.0, 0.0, zero, zero, zero, np.full(width, np.inf), np.full(width, -np.inf))

    def merge(self, other: Moments) -> Moments:
        """Merge with the moments of other rows (Chan, Golub and LeVeque: no cancellation)."""
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

    def without_range(self) -> Moments:
        """Return the moments without the range, which shows values of single rows."""
        unknown = np.full(self.low.shape, np.nan)
        return replace(self, low=unknown, high=unknown)

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


def have_own_units(variance: FloatArray) -> bool:
    """Tell whether columns with these variances share no unit: one outweighs all others together."""
    return bool(2 * variance.max(initial=0.0) > variance.sum())


def are_magnitudes(moments: Moments) -> bool:
    """Tell whether columns without negative cells are magnitudes of one kind: they lean to the right, and are alike.

    The spread of such a column as a share of its mean says how much it leans, whatever its unit.
    """
    varies = (moments.variance > 0) & (moments.mean > 0)
    if np.sum(varies) < LEAST_ALIKE:
        return False
    shares = np.log(np.sqrt(moments.variance[varies]) / moments.mean[varies])
    return bool(np.median(shares) > math.log(LEAST_SPREAD) and np.std(shares, ddof=1) < MOST_UNLIKE)


def view_moments(
    views: Views,
    view: int,
    *,
    unit_rows: bool = False,
    form: RowForm | None = None,
    sample_weight: FloatArray | None,
    width: int,
) -> Moments:
    """Compute the moments of one view of a site, read once in blocks of rows.

    With `unit_rows` every row is divided by its Euclidean length first (text); a `form` says what else is done to it.
    `width` is the number of features, for a site that lacks the view.
    """
    form = (UNIT_ROWS if unit_rows else PLAIN_ROWS) if form is None else form
    table, result = views.tables[view], Moments.none(width)
    if table is not None:
        complete = not views.missing[view] and (sample_weight is None or bool(np.all(sample_weight > 0)))
        for rows in row_blocks(views.n_rows, sum(filter(None, views.widths)) * views.dtype.itemsize):
            part = table[rows]
            block: FloatArray = np.asarray(part.toarray() if sp.issparse(part) else part, dtype=np.float64)
            block = form.dense(block)
            weight = np.ones(len(block)) if sample_weight is None else sample_weight[rows]
            result = result.merge(_block_moments(block, weight, complete))
    return replace(result, total=float(views.n_rows if sample_weight is None else np.sum(sample_weight)))


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
