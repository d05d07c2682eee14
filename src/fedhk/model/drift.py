"""Tests whether clusters have moved: new rows of a site are compared, by cluster, with its memory of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy.stats import f as f_distribution

from fedhk._typing import FloatArray
from fedhk.data.named import ALL_SITES
from fedhk.model.memory import LEAST_ROWS, ClusterSpread, PlacedRows
from fedhk.model.parameters import Parameters

# Numbers of a comparison per cluster.
COMPARED = 5

# By how much tr(S^2) is taken to be larger than its estimate, as a share of it, times the root of the number of
# products. It was not chosen by a measurement of products: it is carried over from the simulated ratio of variances
# (`FLAT` in `new_clusters.py`). The standard error in normal clouds is 2.7 in 2 features, 2.0 in 5 and 1.3 in 50. Too
# few degrees of freedom make the report conservative: false alarms are .015 to .040 where .05 is stated.
PRODUCTS_ERROR = 2.0

# How far lengths of centres may differ in two copies of one model, because they are rounded when sent.
ROUNDING = 1e-3


def no_frame() -> FloatArray:
    """Make what a site takes out of its rows where sites are not calibrated."""
    return np.zeros((2, 0))


@dataclass(frozen=True, eq=False)
class SitePast:
    """A site's memory of its rows by cluster; arrays have shape (c,) unless said.

    A cluster of which the site had fewer than `LEAST_ROWS` rows has none here.
    """

    rows: FloatArray  # by how much rows count, summed
    rows_squared: FloatArray  # the same numbers squared, summed
    means: FloatArray  # in model units, (c, d)
    squares: FloatArray  # squared distances to these means, views weighted as in the objective
    freedom: FloatArray  # rows less one for each mean
    lengths: FloatArray  # of the centres of the model that these are clusters of
    # What the site took out of its rows where sites are calibrated, (2, d); else, and in older files, (2, 0).
    frame: FloatArray = field(default_factory=no_frame)

    @classmethod
    def of(cls, placed: PlacedRows, seen: Parameters, common: Parameters, frame: FloatArray | None = None) -> Self:
        """Sum up a site's rows, placed by the parameters as the site uses them."""
        centers, rows = np.hstack(seen.centers), placed.count()
        known = rows >= LEAST_ROWS
        moved = placed.sum(placed.away) / np.maximum(rows, 1.0)[:, None]
        within = placed.count(placed.squared_lengths()) - rows * np.square(moved * placed.scale).sum(axis=1)
        rows, squares = np.where(known, rows, 0.0), np.where(known, np.maximum(within, 0.0), 0.0)
        means = centers + np.where(known[:, None], moved, 0.0)
        freedom = np.maximum(rows - 1.0, 0.0)
        lengths = np.linalg.norm(np.hstack(common.centers), axis=1)
        return cls(rows, rows, means, squares, freedom, lengths, no_frame() if frame is None else frame)

    def fits(self, parameters: Parameters) -> bool:
        """Tell whether this memory belongs to the clusters of a model, by their centres."""
        centers = np.hstack(parameters.centers)
        if self.means.shape != centers.shape:
            return False
        return bool(np.allclose(np.linalg.norm(centers, axis=1), self.lengths, rtol=ROUNDING, atol=ROUNDING))

    @property
    def count(self) -> FloatArray:
        """Effective number of rows: as many rows of equal weight have means with the same error."""
        return np.square(self.rows) / np.maximum(self.rows_squared, 1e-300)

    def add(self, later: SitePast, keep: float) -> SitePast:
        """Add later rows; earlier ones are weighted by `keep`. New clusters come last."""
        more = len(later.rows) - len(self.rows)
        sums = ("rows", "rows_squared", "squares", "freedom")
        before = {name: np.pad(getattr(self, name), (0, more)) for name in sums}
        rows = keep * before["rows"] + later.rows
        old = np.vstack([self.means, later.means[len(self.rows) :]])
        share = np.divide(later.rows, rows, out=np.zeros_like(rows), where=rows > 0)[:, None]
        return SitePast(
            rows,
            keep**2 * before["rows_squared"] + later.rows_squared,
            old + share * (later.means - old),
            keep * before["squares"] + later.squares,
            keep * before["freedom"] + later.freedom,
            later.lengths,
            later.frame if later.frame.size else self.frame,
        )

    def carry(self, parameters: Parameters, keep: float) -> SitePast:
        """Return the memory after an update that the site took no part in, for the clusters after it."""
        c, centers = parameters.n_clusters, np.hstack(parameters.centers)
        none = np.zeros(c)
        if self.means.shape[1] != centers.shape[1]:  # there are new views: nothing can be compared
            return SitePast(none, none, centers, none, none, np.linalg.norm(centers, axis=1))
        return self.add(SitePast(none, none, centers, none, none, np.linalg.norm(centers, axis=1)), keep)

    def compare(self, later: SitePast, scale: FloatArray) -> FloatArray:
        """Compare the means of later rows with these, per cluster: an array of shape (c, 5) that adds over sites.

        Its columns are the squared distance of the means over `chance`, which is 1 over the rows of one plus 1 over the
        rows of the other; the squared distance of a row to its mean, of which the first is an estimate where nothing
        has moved; on how many differences that rests; `chance`; and 1. All are 0 where there are too few rows.
        """
        count = self.count
        known = (count >= LEAST_ROWS) & (later.rows >= LEAST_ROWS)
        chance = 1 / np.maximum(count, 1.0) + 1 / np.maximum(later.rows, 1.0)
        apart = np.square((later.means - self.means) * scale).sum(axis=1)
        freedom = self.freedom + later.freedom
        trace = (self.squares + later.squares) / np.maximum(freedom, 1.0)
        found = np.column_stack([apart / chance, trace, freedom, chance, np.ones_like(trace)])
        return np.where((known & (trace > 0))[:, None], found, 0.0)


def report_drift(
    sites: Mapping[str, FloatArray], total: FloatArray, spread: ClusterSpread, width: int, *, level: float
) -> list[dict[str, Any]]:
    """Test for each cluster, at all sites together and at each site, whether its rows have moved.

    Parameters
    ----------
    sites : mapping of str to array of shape (c, 5)
        What `SitePast.compare` gave at each site; empty where single sites are not seen.
    total : array of shape (c, 5)
        Their sum.
    spread : ClusterSpread
        How far rows are from their centres, over all sites.
    width : int
        Number of features.
    level : float
        How likely an alarm is where nothing has moved, over all tests together: p-values are adjusted by Holm (1979).

    Notes
    -----
    Where nothing has moved, the squared distance of two means over their chance is a sum of squares with the mean
    tr(S), S the covariance of rows within the cluster. It is compared with the F distribution with tr(S)^2 / tr(S^2)
    times the number of sites in the numerator (Box 1954).
    """
    tested = total[:, 4]
    trace = total[:, 1] / np.maximum(tested, 1.0)
    square = (spread.products / np.maximum(spread.pairs, 1.0))[: len(total)]  # clusters that are new come last
    square *= 1 + PRODUCTS_ERROR / np.sqrt(np.maximum(spread.pairs[: len(total)], 1.0))
    freedom = np.clip(np.square(trace) / np.maximum(square, 1e-300), 1.0, float(width))
    lines = [
        _describe(ALL_SITES, cluster, found, freedom[cluster] * found[4])
        for cluster, found in enumerate(total)
        if found[4] > 0
    ]
    for site, compared in sites.items():
        lines += [
            _describe(site, cluster, found, freedom[cluster]) for cluster, found in enumerate(compared) if found[4] > 0
        ]
    adjusted = adjust_holm(np.array([line["p"] for line in lines]))
    for line, p in zip(lines, adjusted, strict=True):
        line["p_adjusted"] = float(p)
        line["moved"] = bool(p < level)
    return lines


def _describe(site: str, cluster: int, found: FloatArray, freedom: float) -> dict[str, Any]:
    """Make one record of the report; distances are in standard deviations of the rows of the cluster."""
    apart, trace, rest, chance, sites = found
    ratio = apart / trace
    return {
        "cluster": cluster,
        "site": site,
        "distance": float(np.sqrt(ratio * chance / sites)),
        "by_chance": float(np.sqrt(chance / sites)),
        "p": float(f_distribution.sf(ratio, freedom, freedom * rest)),
    }


def adjust_holm(p: FloatArray) -> FloatArray:
    """Adjust p-values so that the chance of any false alarm is at most the level (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted
