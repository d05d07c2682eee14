"""Sites that measure differently: their own offset and spread, taken out as far as that makes clusters clearer.

Taking out a site's own mean and spread helps greatly where sites differ by sensor or person, and hurts where they
differ by which clusters they have. `fedhk.personal.calibration_choice` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.data.scaling import Reference

# Rows whose weight the common mean and spread have against a site's own.
PRIOR_ROWS = 5.0

# A site's spread is believed within these factors of the common one.
LEAST_RATIO, MOST_RATIO = 0.2, 5.0


@dataclass(frozen=True)
class Calibration:
    """How rows of all sites are brought to one frame.

    Parameters
    ----------
    shift, spread : float
        Shares of a site's own mean and spread that are taken out, from 0 to 1.
    factors : tuple of float
        What model units are then divided by, per view, so that all rows together have spread 1 again.
    offsets : bool
        Whether each site also keeps an offset of its own from the clusters' centres during the rounds, and a model of
        its own at the end.
    """

    shift: float
    spread: float
    factors: tuple[float, ...]
    offsets: bool

    def in_units(self, references: Sequence[Reference]) -> tuple[Reference, ...]:
        """Common references in the units of the calibrated rows, in which the centres are."""
        return tuple(reference.rescaled(factor) for reference, factor in zip(references, self.factors, strict=True))

    def before(self, references: Sequence[Reference]) -> tuple[Reference, ...]:
        """What `in_units` was given."""
        return tuple(reference.rescaled(1 / factor) for reference, factor in zip(references, self.factors, strict=True))

    def to_list(self) -> list[Any]:
        """For messages."""
        return [self.shift, self.spread, list(self.factors), self.offsets]

    @classmethod
    def from_list(cls, values: list[Any]) -> Calibration:
        """What `to_list` made."""
        shift, spread, factors, offsets = values
        return cls(float(shift), float(spread), tuple(float(factor) for factor in factors), bool(offsets))


def site_frame(moments: Sequence[Moments], references: Sequence[Reference]) -> FloatArray:
    """A site's own mean, and its spread as a multiple of the common one, per feature, in model units; shape (2, d)."""
    parts = []
    for view, reference in zip(moments, references, strict=True):
        seen = (view.weight > 0) & np.isfinite(reference.scale)
        mean = np.where(seen, reference.to_model(view.mean), 0.0)
        common = 1.0 / np.sqrt(max(int(np.isfinite(reference.scale).sum()), 1))
        ratio = np.sqrt(view.variance) / reference.scale / common
        believed = np.clip(ratio, LEAST_RATIO, MOST_RATIO)
        parts.append(np.stack([mean, np.where(seen & (ratio > 0), believed, 1.0)]))
    return np.hstack(parts)


def own_share(n_rows: float) -> float:
    """How much a site of so many rows is believed against the common mean and spread."""
    return n_rows / (n_rows + PRIOR_ROWS)


def calibrated(
    references: Sequence[Reference], frame: FloatArray, n_rows: float, calibration: Calibration
) -> tuple[Reference, ...]:
    """A site's own references: the common ones, with a share of its own mean and spread."""
    shift, divide = taken(frame, n_rows, calibration.shift, calibration.spread)
    result, start = [], 0
    for reference, factor in zip(references, calibration.factors, strict=True):
        own = slice(start, start + reference.width)
        start = own.stop
        result.append(reference.moved(shift[own], divide[own]).rescaled(factor))
    return tuple(result)


def taken(frame: FloatArray, n_rows: float, shift: float, spread: float) -> tuple[FloatArray, FloatArray]:
    """What is subtracted from a site's rows, and what they are divided by, in model units."""
    own = own_share(n_rows)
    return shift * own * frame[0], frame[1] ** (spread * own)
