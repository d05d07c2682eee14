"""Sums of columns with noise, put back into what is possible, and which numbers the noise hides.

Noise takes sums where no rows are: means outside of the bounds, shares above 1, squares that no values have. What is
known of any rows between bounds is put back: that costs no privacy, because no row is looked at again. What the noise
hides is left out. All is in units in which the bounds of a column are 0 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedhk._shares import share_out
from fedhk._typing import BoolArray, FloatArray
from fedhk.after.columns import ClusterColumns, ColumnsRequest, GivenRanges, SumColumns
from fedhk.after.effects import FEWEST, variance
from fedhk.after.tables import EVEN_SPREAD, ROWS_OVER_NOISE, SURE
from fedhk.federation.board import Board
from fedhk.federation.sealed.units import UNITS
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation

# Noise may move the rank of a quartile by less than this share of the rows: else it may be another quartile.
RANK_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Known:
    """Sums that rows can have, and what the noise leaves of them; all of shape (c, d)."""

    columns: ClusterColumns
    mean: FloatArray  # NaN where noise hides it, or nobody has a value
    spread: FloatArray  # NaN where noise hides it, or fewer than two rows have a value
    most_variance: FloatArray  # the largest variance of rows that the noise allows
    error: FloatArray  # how far noise moves a mean, either way
    rest: BoolArray  # whether all other clusters together have rows enough for a mean
    quartiles: BoolArray  # (c, numbers): whether they are known


def read_known(found: ClusterColumns, columns: ColumnsRequest) -> Known:
    """Find what sums say; without noise, all that there is."""
    if found.noise:
        return read_noisy(found, columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(found.seen > 0, found.sums / found.seen, np.nan)
    spread, everywhere = np.sqrt(variance(found.seen, found.sums, found.squares)), np.full(mean.shape, True)
    no_error, quartiles = np.zeros(mean.shape), everywhere[:, columns.numbers]
    return Known(found, mean, spread, np.square(spread), no_error, rest=everywhere, quartiles=quartiles)


def read_noisy(found: ClusterColumns, columns: ColumnsRequest) -> Known:
    """Put sums with noise back into what is possible, and find what the noise hides."""
    possible = _make_possible(found, columns)
    rows, seen = possible.rows, possible.seen
    everything = _make_possible(found.merge_clusters(), columns)
    share = np.divide(possible.sums, seen, out=np.full(seen.shape, 0.5), where=seen > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_row = np.where(seen > 0, found.noise / seen, np.inf)
    error = SURE * per_row * np.sqrt(1 + np.square(share))
    var, off = _variances(possible)
    # rows of one cluster may be alike; a mean says something where it is surer than rows differ from each other
    differ = np.sqrt(sum(_variances(everything)))
    if everything.histograms.size:  # counts in bins say better than squares how far rows are apart
        differ[:, columns.numbers] = np.minimum(differ[:, columns.numbers], _spread_of_bins(everything.histograms))
    in_numbers = np.isin(np.arange(columns.width), columns.numbers)
    most = np.where(in_numbers, np.minimum(differ, EVEN_SPREAD), EVEN_SPREAD)
    known = (error < most) & (seen >= FEWEST) & (rows[:, None] > 0)
    bins = found.histograms.shape[2]
    # the noise in a count of the rows up to some bin, where all rows are known, is largest half-way
    sure_ranks = per_row[:, columns.numbers] < RANK_SHARE / (SURE * math.sqrt(max(bins, 1)) / 2)
    return Known(
        possible,
        mean=np.where(known, share, np.nan),
        # of a variance that is twice as large as noise moves it, the root is off by less than a third
        spread=np.where(known & (var > 2 * off), np.sqrt(var), np.nan),
        most_variance=np.minimum(var + off, 0.25),
        error=np.where(known, error, np.nan),
        rest=seen.sum(axis=0) - seen > ROWS_OVER_NOISE * found.noise * math.sqrt(max(len(rows) - 1, 1)),
        quartiles=known[:, columns.numbers] & sure_ranks,
    )


def _make_possible(found: ClusterColumns, columns: ColumnsRequest) -> ClusterColumns:
    """Move sums to the nearest that rows between the bounds can have."""
    rows = np.maximum(found.rows, 0.0)
    seen = np.clip(found.seen, 0.0, rows[:, None])
    sums = np.clip(found.sums, 0.0, seen)
    for group in columns.groups:
        sums[:, group] = share_out(found.sums[:, group], seen[:, group[0]])
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.where(seen > 0, np.square(sums) / seen, 0.0)
    squares = np.where(np.isin(np.arange(columns.width), columns.numbers), np.clip(found.squares, least, sums), sums)
    histograms = found.histograms
    if histograms.size:
        c, numbers, bins = histograms.shape
        wanted = seen[:, columns.numbers].ravel()
        histograms = share_out(histograms.reshape(-1, bins), wanted).reshape(c, numbers, bins)
    return replace(found, rows=rows, seen=seen, sums=sums, squares=squares, histograms=histograms)


def _spread_of_bins(histograms: FloatArray) -> FloatArray:
    """Compute standard deviations, (c, numbers), from counts in bins of one width, (c, numbers, bins)."""
    middle = (np.arange(histograms.shape[2]) + 0.5) / histograms.shape[2]
    shares = histograms / np.maximum(histograms.sum(axis=2, keepdims=True), 1e-300)
    spread: FloatArray = np.sqrt(np.maximum(shares @ np.square(middle) - np.square(shares @ middle), 0.0))
    return spread


def _variances(found: ClusterColumns) -> tuple[FloatArray, FloatArray]:
    """Compute the variances of rows, and how far noise moves them: that of its sum of squares, sum and count."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, square = found.sums / found.seen, found.squares / found.seen
        off = SURE * found.noise / found.seen * np.sqrt(1 + 4 * mean**2 + np.square(2 * mean**2 - square))
        var = np.maximum(square - np.square(mean), 0.0)
    nothing = found.seen <= 0
    return np.where(nothing, 0.0, var), np.where(nothing, 0.25, off)


def expect_rows(
    phase: SumColumns, privacy: DifferentialPrivacy, secure: bool | SecureSummation, n_sites: int
) -> float | None:
    """Compute how many rows a cluster needs for noise to leave its means; None where that is not known before."""
    unit = UNITS[privacy.unit]
    if privacy.unit != "row" or not privacy.public:
        return None
    board = GivenRanges(phase.columns, privacy.bounds).begin(Board())
    sensitivity = unit.sensitivity(phase, phase.request(board), phase.size(board), 0.0, privacy.neighbours)
    shared = secure.shared_noise if isinstance(secure, SecureSummation) else secure
    noises = n_sites / max(n_sites - privacy.colluders, 1) if shared else n_sites
    multiplier = privacy.multiplier(phase.name, 1, finds_start=False)
    return float(ROWS_OVER_NOISE * multiplier * sensitivity * math.sqrt(noises))
