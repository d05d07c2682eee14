"""Calibration removes a share of each site's own mean and spread from its rows before they are clustered.

It helps greatly where sites differ by sensor or person, and hurts where they differ by which clusters they have.
`fedhk.agreement.choose_frame` chooses between the two.

Levels of a category stay as they are: no sensor moves a level, and which share of a site's rows has it says what rows
the site has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.levels import find_numbers
from fedhk.data.scaling import Reference, level_variance
from fedhk.data.views import Views
from fedhk.errors import MessageError
from fedhk.model.preparation import site_moments
from fedhk.model.rows import Rows, joint_rows, split_joint, take
from fedhk.personal.shares import PRIOR_ROWS
from fedhk.starts.kmeans import find_nearest

# Limits of a site's spread, as multiples of the common one; beyond them a feature is nearly constant there.
LEAST_RATIO, MOST_RATIO = 0.2, 5.0

# Rows of a site that clusters are compared on, and at least so many for each cluster: agreement, and how many rows of
# each cluster a site has, are known to a few hundredths then.
SAMPLE_ROWS, ROWS_PER_CLUSTER = 1024, 20


def choose_sample(n_rows: int, n_clusters: int) -> IntArray:
    """Choose the rows of a site that are looked at: all, or evenly spaced ones where they are many."""
    most = max(SAMPLE_ROWS, ROWS_PER_CLUSTER * n_clusters)
    return np.arange(n_rows) if n_rows <= most else np.linspace(0, n_rows - 1, most).astype(np.int64)


@dataclass(frozen=True, eq=False)
class FirstClusters:
    """Clusters of rows in a first calibration, by which a site tells which rows it has many of."""

    shift: float
    spread: float
    kept: tuple[int, ...]  # as in `Calibration`
    centers: FloatArray  # of shape (c, d), all views side by side, in model units of the calibrated rows

    def label(self, rows: Rows) -> tuple[FloatArray, IntArray]:
        """Find the cluster of each row of a site, of many rows of a sample. Missing cells of the points are NaN."""
        if self.centers.shape[1:] != (sum(rows.widths),) or not np.isfinite(self.centers).all():
            raise MessageError("clusters that rows with these features cannot have")
        frame = measure_frame(rows.views, rows.references, self.kept)
        taken, divide = scale_frame(frame, float(rows.n_rows), self.shift, self.spread)
        sample = take(rows, choose_sample(rows.n_rows, len(self.centers)))
        points = joint_rows(sample, missing=np.nan).astype(np.float64)
        return points, find_nearest(np.nan_to_num((points - taken) / divide), np.asarray(self.centers, np.float64))


@dataclass(frozen=True, eq=False)
class ClusterEffects:
    """Differences between clusters within sites: with them a site tells its offset from which clusters it has."""

    clusters: FirstClusters
    effects: FloatArray  # of shape (c, d): what rows of a cluster differ by from others of their site, in model units
    spread: FloatArray  # of shape (d,): spread of all rows around that

    def measure_frame(self, rows: Rows) -> FloatArray:
        """Measure a site's mean and spread but for its clusters, as `measure_frame` does for all that it has."""
        points, labels = self.clusters.label(rows)
        same = self.effects.shape == self.clusters.centers.shape and self.spread.shape == self.effects.shape[1:]
        if not same or not np.isfinite([*self.effects, self.spread]).all():
            raise MessageError("differences between clusters that rows with these features cannot have")
        common = np.asarray(self.spread, np.float64)
        rest = points - np.asarray(self.effects, np.float64)[labels]
        seen = ~np.isnan(rest)
        count = np.maximum(seen.sum(axis=0), 1)
        mean = np.where(seen, rest, 0.0).sum(axis=0) / count
        around = np.sqrt(np.square(np.where(seen, rest - mean, 0.0)).sum(axis=0) / count)
        ratio = np.divide(around, common, out=np.zeros_like(around), where=common > 0)
        of_view, numbers = np.repeat(np.arange(len(rows.widths)), rows.widths), rows.numbers
        ratio = np.where(numbers & ~np.isin(of_view, self.clusters.kept), ratio, 0.0)
        return np.stack([np.where(numbers, mean, 0.0), trust_spread(ratio)])


@dataclass(frozen=True)
class Calibration:
    """The shares of its own mean and spread, 0 to 1, that each site removes from its rows."""

    shift: float
    spread: float
    factors: tuple[float, ...]  # what units are then divided by, per view, so that all rows have spread 1 again
    offsets: bool  # whether each site also has an offset from the centres in the rounds, and an own model at the end
    kept: tuple[int, ...] = ()  # views whose features have different variances: a site's spread stays in them
    given: tuple[ClusterEffects, ...] = ()  # one where mean and spread are those that clusters leave

    @property
    def is_possible(self) -> bool:
        """Tell whether shares are from 0 to 1, and factors above 0."""
        return min(self.factors) > 0 and 0 <= self.shift <= 1 and 0 <= self.spread <= 1

    def measure(self, rows: Rows) -> FloatArray:
        """Measure what a site takes out of its rows: shifts of features, and what they are then divided by, (2, d)."""
        frame = measure_frame(rows.views, rows.references, self.kept)
        for effects in self.given:
            frame = effects.measure_frame(rows)
        return np.stack(scale_frame(frame, float(rows.n_rows), self.shift, self.spread))

    def apply(self, rows: Rows, measured: FloatArray | None = None) -> Rows:
        """Calibrate the rows of a site: replace the common references by the site's own.

        What is taken out is measured on these rows, unless it was measured before.
        """
        shift, divide = self.measure(rows) if measured is None else measured
        moved = move_rows(rows, shift, divide)
        return replace(moved, references=self.in_units(moved.references))

    def in_units(self, references: Sequence[Reference]) -> tuple[Reference, ...]:
        """Convert common references to the units of the calibrated rows, in which the centres are."""
        return tuple(reference.rescale(factor) for reference, factor in zip(references, self.factors, strict=True))

    def before(self, references: Sequence[Reference]) -> tuple[Reference, ...]:
        """Undo `in_units`."""
        return tuple(reference.rescale(1 / factor) for reference, factor in zip(references, self.factors, strict=True))

    def describe(self) -> dict[str, Any]:
        """Return the content of the fitted attribute `calibration_`."""
        return {"shift": self.shift, "spread": self.spread, "factors": list(self.factors), "offsets": self.offsets}


def move_rows(rows: Rows, shift: FloatArray, divide: FloatArray) -> Rows:
    """Give rows whose values x are read as (x - shift) / divide, in model units, all views side by side."""
    parts = zip(rows.references, split_joint(shift, rows.widths), split_joint(divide, rows.widths), strict=True)
    return replace(rows, references=tuple(reference.move(*change) for reference, *change in parts))


def measure_frame(views: Views, references: Sequence[Reference], kept: Sequence[int] = ()) -> FloatArray:
    """Measure a site's own mean, and its spread as a multiple of the common one, per feature, in model units.

    In views that are `kept` the spread is that of all sites: their features have different variances. Levels of a
    category have the mean and the spread of all sites.
    """
    forms = [reference.form for reference in references]
    moments = site_moments(views, [reference.width for reference in references], forms=forms)
    parts = []
    for number, (view, reference) in enumerate(zip(moments, references, strict=True)):
        numbers = find_numbers(views.columns[number], reference.width)
        seen = (view.weight > 0) & np.isfinite(reference.scale) & numbers
        mean = np.where(seen, reference.to_model(view.mean), 0.0)
        common = common_spread(reference, numbers)
        ratio = np.where(seen & (number not in kept), np.sqrt(view.variance) / reference.scale / common, 0.0)
        parts.append(np.stack([mean, trust_spread(ratio)]))
    return np.hstack(parts)


def common_spread(reference: Reference, numbers: BoolArray) -> float:
    """Find the standard deviation that each number of a view has over all sites: all variances sum to 1."""
    rest = max(1.0 - level_variance(reference, ~numbers), 1e-12)
    return float(np.sqrt(rest / max(int((np.isfinite(reference.scale) & numbers).sum()), 1)))


def trust_spread(ratio: FloatArray) -> FloatArray:
    """Clip a site's spread, as a multiple of the common one, to what is plausible; 1 where there is none."""
    return np.where(ratio > 0, np.clip(ratio, LEAST_RATIO, MOST_RATIO), 1.0)


def scale_frame(frame: FloatArray, n_rows: float, shift: float, spread: float) -> tuple[FloatArray, FloatArray]:
    """Find what is subtracted from a site's rows and what they are divided by, in model units.

    A site of few rows is believed less: its mean and spread count against `PRIOR_ROWS` rows with the common ones.
    """
    believed = n_rows / (n_rows + PRIOR_ROWS)
    return shift * believed * frame[0], frame[1] ** (spread * believed)
