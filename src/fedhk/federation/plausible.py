"""Limits of sums over rows, given the range of the features. A site whose sums are outside is refused.

This keeps numbers finite and a mistake at one site from the model of all. It is no defence against a site that lies
within these bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference
from fedhk.errors import MessageError
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics

# Larger counts cannot be counts of rows.
MOST_ROWS = 2.0**53

# Most features of one view, and of all views: those of scikit-learn's hashed text, and of two such views. All sites
# store numbers for every feature, so a site that claims more would exhaust the memory of the others.
MOST_WIDTH, MOST_FEATURES = 2**20, 2**21

# Rows of sites that join later may exceed the range that the others described, by at most this factor.
REACH = 1e3

# Share by which a sum may exceed its bound: far more than rounding in float32 does to sums over rows. And the squared
# size, in model units, of what rounding leaves of a zero.
ROUNDING, SMALL = 1e-3, 1e-20


def are_possible(widths: Iterable[int]) -> bool:
    """Tell whether views of these widths are possible; to be checked before arrays of that size are allocated."""
    known = list(widths)
    return all(0 < width <= MOST_WIDTH for width in known) and sum(known) <= MOST_FEATURES


def limits_from_moments(references: Sequence[Reference], moments: Sequence[Moments]) -> tuple[FloatArray, ...]:
    """Compute how far a value may be from the grand mean in model units, per feature of each view.

    No row is further from the mean than the root of the summed squared deviations, so that no extremes are needed.
    """
    return tuple(REACH * np.sqrt(m.squares) / reference.scale for reference, m in zip(references, moments, strict=True))


def check_points(points: FloatArray, limits: Sequence[FloatArray], site: str) -> None:
    """Refuse centres or candidates, shape (n, features of all views), that no rows can have; NaN is ignored."""
    beyond = np.abs(points) > np.concatenate(limits)
    if beyond.any():
        row, column = np.argwhere(beyond)[0]
        raise MessageError(
            f"a mean of rows is {points[row, column]:.3g} in feature {column}, far outside the range of the sites", site
        )


def check_spreads(spreads: FloatArray, limits: Sequence[FloatArray], site: str) -> None:
    """Refuse squared distances within groups of rows, shape (n, views), that no rows can have."""
    most = np.array([np.square(limit).sum() for limit in limits])
    if np.any(spreads > most):
        raise MessageError(f"rows of a group are {spreads.max():.3g} apart, far outside the range of the sites", site)


def check_rows(rows: float, objective: float, parameters: Parameters, site: str) -> None:
    """Refuse a number of rows that nobody has, or an objective that so many rows cannot reach."""
    most = (1 + ROUNDING) * rows * float(parameters.view_factors.sum())
    if rows > MOST_ROWS or objective > most:
        raise MessageError(f"an objective of {objective:.3g} for {rows:.3g} rows is not possible", site)


def can_weigh(weights: FloatArray, rows: float, references: Sequence[Reference], limits: Sequence[FloatArray]) -> bool:
    """Tell whether so many rows can give centres these weights, of shape (c, views).

    A cell weighs at most 1, or with coefficients that depend on the cell, at most how far away it may be.
    """
    reach = [float(limit.max(initial=0.0)) for limit in limits]
    uniform = [reference.heat_coef == "uniform" for reference in references]
    most = np.where(uniform, 1.0, np.maximum(reach, 1.0))
    return not np.any(weights > (1 + ROUNDING) * rows * most)


def check_statistics(statistics: Statistics, parameters: Parameters, limits: Sequence[FloatArray], site: str) -> None:
    """Refuse statistics that no rows can have: more weight than rows or, in views with limits, means out of range."""
    check_rows(statistics.rows, statistics.objective, parameters, site)
    most = (1 + ROUNDING) * statistics.rows
    if statistics.masses.sum() > most or np.any(statistics.costs > most):
        raise MessageError(f"masses or costs larger than the {statistics.rows:.6g} rows they are of", site)
    for view, limit in enumerate(limits):
        numerators, weights = statistics.numerators[view], statistics.weights[view]
        if np.any(weights > most * np.maximum(limit, 1.0)) or np.any(np.abs(numerators) > weights * limit):
            raise MessageError(
                f"sums of view number {view} that no rows can have: weights above the number of rows, or means far "
                "outside the range of the sites",
                site,
            )


def check_summary(summary: ClusterSummary, rows: float, limits: Sequence[FloatArray], site: str) -> None:
    """Refuse cluster sizes and spreads that so many rows cannot have."""
    most = (1 + ROUNDING) * rows
    if summary.counts.sum() > most or np.any(summary.seen > most):
        raise MessageError(f"clusters with more rows than the {rows:.6g} of the site", site)
    # in a basis, centres of a constant feature are zero to rounding only
    if np.any(summary.squares > summary.seen * (np.square(2 * np.concatenate(limits)) + SMALL)):
        raise MessageError("rows that are further from their centres than any row can be", site)
