"""From input units to the units of the model, and back.

Inside the model every view is centred and divided by one number per feature and one per view, such that the mean
heat-weighted squared distance of a row to the grand mean is 1 in every view. A view of 500 features then weighs as
much as one of 5, and the bandwidth g_h of the heat kernel is simply the heat time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments

Scaling = Literal["standard", "minmax", "l2", "none"]
HeatCoef = Literal["uniform", "minmax", "absdev"]
SCALINGS = get_args(Scaling)
HEAT_COEFS = get_args(HeatCoef)


@dataclass(frozen=True)
class Reference:
    """How one view is brought to model units, and what its heat-kernel coefficients refer to.

    Everything here comes from the rows that the model was fitted on (all sites together), so that a new row and every
    site are treated alike.

    Parameters
    ----------
    unit_rows : bool
        Rows are divided by their Euclidean length first.
    shift, scale : array of shape (d,)
        A value x becomes (x - shift) / scale. The scale of a constant feature is infinite: it drops out. The shift of a
        feature that no row has a value of is NaN.
    heat_coef : {"uniform", "minmax", "absdev"}
        The rule for the coefficients delta_ij.
    low, span : array of shape (d,)
        Range of each feature in model units, for "minmax" (`eqn:fed_delta`); 0 and 1 for the other rules.
    share : float
        Share of the rows that have the view.
    """

    unit_rows: bool
    shift: FloatArray
    scale: FloatArray
    heat_coef: HeatCoef
    low: FloatArray
    span: FloatArray
    share: float

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.shift.shape[0])

    @property
    def known_shift(self) -> FloatArray:
        """The shift, with 0 for features that drop out: subtracting it changes nothing else."""
        return np.where(np.isfinite(self.scale), self.shift, 0.0)

    def to_model(self, values: FloatArray) -> FloatArray:
        """Centres or rows from input units to model units (row lengths are the caller's business)."""
        return (np.asarray(values, dtype=np.float64) - self.known_shift) / self.scale

    def to_input(self, values: FloatArray) -> FloatArray:
        """Centres from model units to input units; a constant feature gives its constant, one without values NaN."""
        with np.errstate(invalid="ignore"):
            moved = np.where(np.isfinite(self.scale), values * self.scale, 0.0)
        return self.shift + moved

    def coefficients(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Heat-kernel coefficients delta_ij of rows in model units (`eqn:fed_delta`, `eqn:fed_delta_v2`).

        A missing cell (NaN) gives NaN, or 1 with "uniform": the caller knows which cells are missing.

        Notes
        -----
        A new row may lie outside the range of the fitted rows; its "minmax" coefficient is clipped to [0, 1], because a
        negative coefficient would turn a distance into a reward.
        """
        out = np.empty_like(rows) if out is None else out
        if self.heat_coef == "minmax":
            np.subtract(rows, self.low.astype(rows.dtype), out=out)
            np.multiply(out, (1.0 / self.span).astype(rows.dtype), out=out)
            np.clip(out, 0.0, 1.0, out=out)
        elif self.heat_coef == "absdev":
            np.abs(rows, out=out)
        else:
            out[...] = 1.0
        return out

    def moved(self, shift: FloatArray, divide: FloatArray) -> Reference:
        """The reference with (x - shift) / divide for what was x in model units, per feature."""
        finite = np.isfinite(self.scale)
        offset = np.where(finite, np.where(finite, self.scale, 0.0) * shift, 0.0)
        return replace(self, shift=self.shift + offset, scale=self.scale * divide)

    def rescaled(self, factor: float) -> Reference:
        """The reference with all model units divided by `factor`."""
        if self.heat_coef != "minmax":
            return replace(self, scale=self.scale * factor)
        return replace(self, scale=self.scale * factor, low=self.low / factor, span=self.span / factor)


def make_reference(moments: Moments, scaling: Scaling, heat_coef: HeatCoef) -> Reference:
    """Reference of a view from the moments of all its rows.

    With uniform coefficients the units are final: the mean squared distance to the grand mean follows from the
    moments. With others the caller measures that mean in these units and calls `Reference.rescaled` with its root.
    """
    variance, spread, constant = moments.variance, moments.high - moments.low, moments.constant
    if scaling == "standard":
        scale = np.sqrt(variance)
    elif scaling == "minmax":
        scale = np.where(constant, 0.0, spread)
    else:
        scale = np.where(constant, 0.0, 1.0)
    constant = constant | (scale == 0)
    scale = np.where(constant, np.inf, scale)
    low, span = np.zeros_like(scale), np.ones_like(scale)
    if heat_coef == "minmax":
        low = np.where(constant, 0.0, (moments.low - moments.mean) / scale)
        span = np.where(constant, 1.0, spread / scale)
    reference = Reference(
        unit_rows=scaling == "l2",
        shift=np.where(moments.weight > 0, moments.mean, np.nan),
        scale=scale,
        heat_coef=heat_coef,
        low=low,
        span=span,
        share=moments.share,
    )
    mean_square = float(np.sum(variance * moments.weight / scale**2)) / moments.rows if moments.rows > 0 else 0.0
    return reference.rescaled(np.sqrt(mean_square)) if mean_square > 0 else reference
