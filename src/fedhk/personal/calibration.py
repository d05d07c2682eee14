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

from fedhk._typing import BoolArray, FloatArray
from fedhk.data.levels import find_numbers
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.model.preparation import site_moments
from fedhk.model.rows import Rows, split_joint
from fedhk.personal.shares import PRIOR_ROWS

# Limits of a site's spread, as multiples of the common one; beyond them a feature is nearly constant there.
LEAST_RATIO, MOST_RATIO = 0.2, 5.0


@dataclass(frozen=True)
class Calibration:
    """The shares of its own mean and spread, 0 to 1, that each site removes from its rows."""

    shift: float
    spread: float
    factors: tuple[float, ...]  # what units are then divided by, per view, so that all rows have spread 1 again
    offsets: bool  # whether each site also has an offset from the centres in the rounds, and an own model at the end
    kept: tuple[int, ...] = ()  # views whose features have different variances: a site's spread stays in them

    @property
    def is_possible(self) -> bool:
        """Tell whether shares are from 0 to 1, and factors above 0."""
        return min(self.factors) > 0 and 0 <= self.shift <= 1 and 0 <= self.spread <= 1

    def apply(self, rows: Rows) -> Rows:
        """Calibrate the rows of a site: replace the common references by the site's own."""
        frame = measure_frame(rows.views, rows.references, self.kept)
        moved = move_rows(rows, *scale_frame(frame, float(rows.n_rows), self.shift, self.spread))
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
    """Find the standard deviation that every number of a view has over all sites, in model units.

    The variances of all features sum to 1. Levels of a category, of which one has the mean p, have p (1 - p) of it.
    """
    varies = np.isfinite(reference.scale)
    levels = varies & ~numbers
    share = reference.shift[levels]
    rest = 1.0 - float(np.sum(share * (1.0 - share) / np.square(reference.scale[levels])))
    return float(np.sqrt(max(rest, 1e-12) / max(int((varies & numbers).sum()), 1)))


def trust_spread(ratio: FloatArray) -> FloatArray:
    """Clip a site's spread, as a multiple of the common one, to what is plausible; 1 where there is none."""
    return np.where(ratio > 0, np.clip(ratio, LEAST_RATIO, MOST_RATIO), 1.0)


def scale_frame(frame: FloatArray, n_rows: float, shift: float, spread: float) -> tuple[FloatArray, FloatArray]:
    """Find what is subtracted from a site's rows and what they are divided by, in model units.

    A site of few rows is believed less: its mean and spread count against `PRIOR_ROWS` rows with the common ones.
    """
    believed = n_rows / (n_rows + PRIOR_ROWS)
    return shift * believed * frame[0], frame[1] ** (spread * believed)
