"""Effect sizes and tests from sums: counts, means and variances of groups, and tables of counts.

Every function takes what adds over sites and nothing of single rows. `noise` is the variance that noise adds to a
number; tests count it as variance, which makes them cautious.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from fedhk._typing import FloatArray

# A group needs so many rows for its variance to be known, and a test so many groups.
FEWEST = 2

# What rounding leaves of a variance that is zero. Sums under masks are whole multiples of 2^-30 from each site. The
# least variance of one event is one over the rows at risk.
ROUNDING = 1e-7


class Tested(NamedTuple):
    """A test: its statistic, degrees of freedom (the second is 0 for chi-square), and p."""

    statistic: float
    df: float
    df_rest: float
    p: float


NO_TEST = Tested(np.nan, np.nan, np.nan, np.nan)


def variance(count: FloatArray, total: FloatArray, squares: FloatArray) -> FloatArray:
    """Compute the sample variance from counts, sums and sums of squares; NaN below two rows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.maximum(squares - np.square(total) / count, 0.0)
        return np.where(count >= FEWEST, apart / (count - 1), np.nan)


def welch_test(count: FloatArray, mean: FloatArray, var: FloatArray, noise: FloatArray | float = 0.0) -> Tested:
    """Welch's test that groups have the same mean, whatever their variances (of two groups: Welch's t, squared).

    Groups of fewer than two rows, or without any variance, take no part. `noise` is that in each mean.
    """
    noise = np.broadcast_to(noise, count.shape)
    with np.errstate(invalid="ignore"):
        known = (count >= FEWEST) & (var > 0)
    k = int(known.sum())
    if k < FEWEST:
        return NO_TEST
    count, mean = count[known], mean[known]
    # Welch 1951
    weight = 1.0 / (var[known] / count + noise[known])
    share = weight / weight.sum()
    between = float(weight @ np.square(mean - share @ mean)) / (k - 1)
    slack = float(np.sum(np.square(1 - share) / (count - 1)))
    statistic = between / (1 + 2 * (k - 2) / (k**2 - 1) * slack)
    rest = (k**2 - 1) / (3 * slack)
    return Tested(statistic, k - 1, rest, float(stats.f.sf(statistic, k - 1, rest)))


def chi_square_test(table: FloatArray, noise: float = 0.0) -> Tested:
    """Pearson's chi-square test of a table of counts, without correction; empty rows and columns take no part.

    `noise` is that in each count.
    """
    table = np.maximum(table, 0.0)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape) < FEWEST:
        return NO_TEST
    df = (table.shape[0] - 1) * (table.shape[1] - 1)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = float(np.sum(np.square(table - expected) / (expected + noise)))
    return Tested(statistic, df, 0.0, float(stats.chi2.sf(statistic, df)))


def invert_covariance(covariance: FloatArray) -> tuple[FloatArray, int]:
    """Invert the covariance of sums that add up to zero within sites, and return its rank.

    The rank is the degrees of freedom. It is the number of clusters less 1, and smaller where no site can compare some
    clusters with the others.
    """
    values, vectors = np.linalg.eigh(covariance)
    known = values > max(ROUNDING, 1e-12 * float(values.max(initial=0.0)))
    return (vectors[:, known] / values[known]) @ vectors[:, known].T, int(known.sum())


def eta_squared(count: FloatArray, mean: FloatArray, var: FloatArray) -> float:
    """Compute the share of the variance of a column that lies between groups, from 0 to 1."""
    known = count > 0
    count, mean, var = count[known], mean[known], np.nan_to_num(var[known])
    if not known.any():
        return np.nan
    between = float(count @ np.square(mean - count @ mean / count.sum()))
    total = between + float(var @ np.maximum(count - 1, 0.0))
    return between / total if total > 0 else np.nan


def cramers_v(table: FloatArray) -> float:
    """Measure the association of rows and columns of a table of counts, from 0 to 1."""
    table = np.maximum(table, 0.0)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    fewest = min(table.shape) - 1
    return float(np.sqrt(chi_square_test(table).statistic / (table.sum() * fewest))) if fewest > 0 else np.nan


def standardised_difference(mean: FloatArray, var: FloatArray, other: FloatArray, other_var: FloatArray) -> FloatArray:
    """Compute the difference of means over the root of the mean of both variances; NaN without variance."""
    spread = np.sqrt((var + other_var) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0, (mean - other) / spread, np.nan)


class Heterogeneity(NamedTuple):
    """How far an effect varies between sites: the share of that which is not chance, and a test that all is chance."""

    i_squared: FloatArray
    sites_p: FloatArray


def measure_heterogeneity(
    weight: FloatArray, total: FloatArray, squares: FloatArray, sites: FloatArray
) -> Heterogeneity:
    """Compute the heterogeneity of an effect between sites: Higgins' I squared, from 0 to 1, and Cochran's test.

    From sums over sites of w, w d and w d^2, where d is the effect at a site and w is one over its variance, and from
    the number of sites that have one; NaN below two sites.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        q = squares - np.square(total) / weight
        share = 1.0 - (sites - 1) / q
    several = sites >= 2
    share = np.where(several, np.where(q > 0, np.clip(share, 0.0, 1.0), 0.0), np.nan)
    p = stats.chi2.sf(np.maximum(np.where(several, q, 0.0), 0.0), np.where(several, sites - 1, 1.0))
    return Heterogeneity(share, np.where(several, p, np.nan))


def adjust_p_values(p: FloatArray) -> FloatArray:
    """Adjust p-values of any shape for their number (Benjamini-Hochberg); NaN stays NaN and is not counted."""
    adjusted = np.full(p.shape, np.nan)
    known = ~np.isnan(p)
    if known.any():
        adjusted[known] = stats.false_discovery_control(p[known])
    return adjusted
