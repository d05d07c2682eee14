"""From input units to the units of the model, and back.

Inside the model every view is centred and divided by one number per feature and one per view, such that the mean
heat-weighted squared distance of a row to the grand mean is 1 in every view. A view of 500 features then weighs as
much as one of 5, and the bandwidth g_h of the heat kernel is simply the heat time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedhk._options import Option
from fedhk._typing import BoolArray, FloatArray
from fedhk.data.levels import level_groups
from fedhk.data.moments import Moments
from fedhk.data.row_forms import PLAIN_ROWS, UNIT_ROWS, RowForm, has_negative, inverse_document_frequencies
from fedhk.data.views import Columns

HeatCoef = Literal["uniform", "minmax", "absdev", "minmax-local", "absdev-local"]
HEAT_COEFS = get_args(HeatCoef)

# The rules in which each site has its own ranges or means, and what they are once these are known.
POOLED_COEFS: dict[HeatCoef, HeatCoef] = {"minmax-local": "minmax", "absdev-local": "absdev"}


class Scaling(Option, ABC):
    """What the features of a view are divided by. A new scaling is a frozen dataclass with the method `divisors`.

    Every view is then divided by one more number, so that the mean squared distance of its rows to their mean is 1:
    only the ratios of the divisors matter. `fedhk.testing.scalings.ScalingChecks` has tests for a new one.
    """

    unit_rows: ClassVar[bool] = False
    """Whether every row is divided by its Euclidean length before anything else."""

    needs_ranges: ClassVar[bool] = False
    """Whether `divisors` reads the least and the largest value of features. These are values of single rows: sites send
    them only where they are needed."""

    root_cells: ClassVar[bool] = False
    """Whether the square root of every cell is taken before that: no cell may be negative."""

    weighs_words: ClassVar[bool] = False
    """Whether rare words weigh more: cells are counts of words, and sites also send in how many rows each word is."""

    unit_variance: ClassVar[bool] = False
    """Whether all features have the same variance afterwards: only then can a calibration take out a site's spread."""

    @abstractmethod
    def divisors(self, moments: Moments) -> FloatArray:
        """Return what each feature is divided by, from the moments of all rows; 0 drops a feature.

        What it says of a constant feature is not read: such a feature always drops out.
        """

    level_divisor: ClassVar[float] = 1.0
    """What the zeros and ones of the levels of a category are divided by, in units in which features have been divided.

    With 1, and without `level_power`, rows of different levels are sqrt(2) apart, as far as two rows are in a feature
    of variance 1 (root of the mean square)."""

    level_power: ClassVar[float] = 1 / 3
    """A level that a share p of the rows has is also divided by p to this power, so that rare levels weigh more.

    What the numbers 0 and 1 / p^(1/3) vary is p^(1/3) (1 - p): at most 0.47, of a level that a quarter of the rows has,
    and nothing as a level gets rarer. Clusters that split off one level so never gain as much as those that split a
    number in two, 0.64 of its variance. With 1/2, the distances of chi-squared, any level would vary by 1 - p, and
    the rarest would be split off first; with 0 most of a category hardly counts. Chosen on generated tables
    (`benchmarks/results/mixed-tried.md`)."""

    @property
    def needs_counts(self) -> bool:
        """Whether it is for counts and magnitudes, which are never negative."""
        return self.root_cells or self.weighs_words

    @property
    def changes_rows(self) -> bool:
        """Whether rows have another form than they come in, before features are divided."""
        return self.unit_rows or self.root_cells or self.weighs_words

    def form(self, documents: FloatArray, rows: float) -> RowForm:
        """Return the form of rows; `documents` is the number of the `rows` that have each word."""
        weights = inverse_document_frequencies(documents, rows) if self.weighs_words else PLAIN_ROWS.weights
        return RowForm(unit=self.unit_rows, root=self.root_cells, weights=weights)


@dataclass(frozen=True)
class StandardScaling(Scaling):
    """Divide every feature by its standard deviation."""

    unit_variance: ClassVar[bool] = True

    def divisors(self, moments: Moments) -> FloatArray:
        return np.sqrt(moments.variance)


@dataclass(frozen=True)
class MinMaxScaling(Scaling):
    """Divide every feature by its range."""

    needs_ranges: ClassVar[bool] = True
    level_divisor: ClassVar[float] = math.sqrt(2.0)  # two levels are as far apart as two ends
    level_power: ClassVar[float] = 0.0

    def divisors(self, moments: Moments) -> FloatArray:
        return moments.high - moments.low


@dataclass(frozen=True)
class NoScaling(Scaling):
    """Leave the features of a view in the units in which they come."""

    def divisors(self, moments: Moments) -> FloatArray:
        return np.ones_like(moments.mean)


@dataclass(frozen=True)
class UnitRows(NoScaling):
    """Divide every row by its length, and leave features as they are: for text."""

    unit_rows: ClassVar[bool] = True


@dataclass(frozen=True)
class RootShares(UnitRows):
    """Take square roots of the shares that cells have in their row: for counts.

    Distances are then those of Hellinger, and small counts are not drowned by large ones.
    """

    root_cells: ClassVar[bool] = True


@dataclass(frozen=True)
class Histograms(RootShares):
    """Take square roots of the shares that cells have in their row, then z-scores: for histograms.

    Counts vary the more the larger they are, their square roots all alike. In z-scores of these every bin counts, but
    a rare one is not a bin that is 0 in nearly all rows and far away in a few.
    """

    unit_variance: ClassVar[bool] = True

    def divisors(self, moments: Moments) -> FloatArray:
        return np.sqrt(moments.variance)


@dataclass(frozen=True)
class Magnitudes(StandardScaling):
    """Take square roots of cells, then z-scores: for descriptors, whose columns are magnitudes of one kind.

    Magnitudes, such as strengths of edges in a picture, spectra and counts, vary the more the larger they are. In
    z-scores the few rows with large ones would lie far away from everything.
    """

    root_cells: ClassVar[bool] = True


@dataclass(frozen=True)
class TfIdf(UnitRows):
    """Weigh words more the fewer rows have them, then divide every row by its length: for counts of words."""

    weighs_words: ClassVar[bool] = True


# Short forms of `scaling`.
SCALINGS: dict[str, Scaling] = {
    "standard": StandardScaling(),
    "minmax": MinMaxScaling(),
    "l2": UnitRows(),
    "none": NoScaling(),
    "root": RootShares(),
    "histogram": Histograms(),
    "magnitude": Magnitudes(),
    "tfidf": TfIdf(),
}

# The short form that chooses one of the others for each view; `fedhk.agreement` says how.
AUTO = "auto"


def make_scaling(given: str | Scaling) -> Scaling:
    """Return the scaling of this name, or the given object; for "auto" z-scores, with which it begins."""
    if isinstance(given, str):
        return SCALINGS["standard" if given == AUTO else given]
    return given


def check_cells(scaling: Scaling, table: Any, view: str) -> None:
    """Refuse a view with negative cells where the scaling is for counts."""
    if scaling.needs_counts and table is not None and has_negative(table):
        name = next((name for name, known in SCALINGS.items() if known == scaling), repr(scaling))
        raise ValueError(
            f"scaling={name!r} is for counts and shares, but view {view!r} has negative cells: use 'standard', 'none' "
            "or 'l2', or 'auto', which chooses for each view."
        )


@dataclass(frozen=True)
class Reference:
    """Shift and scale of one view to model units, and the reference points of its heat-kernel coefficients.

    Everything here comes from the rows that the model was fitted on (all sites together), so that a new row and every
    site are treated alike. A value x becomes (x - shift) / scale. The scale of a constant feature is infinite: it drops
    out. The shift of a feature that no row has a value of is NaN.
    """

    unit_rows: bool  # rows are divided by their Euclidean length first
    shift: FloatArray
    scale: FloatArray
    heat_coef: HeatCoef  # the rule for the coefficients delta_ij
    # For "minmax" (`eqn:fed_delta`) low and span are the range of each feature in model units. For "absdev" low is the
    # mean: 0, but for rows of one site with a mean of its own.
    low: FloatArray
    span: FloatArray  # for the other rules 1
    share: float  # of the rows that have the view
    root: bool = False  # the square root of every cell is taken before that
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))  # then each feature has this weight; empty: 1

    @property
    def form(self) -> RowForm:
        """Form of the rows, before shift and scale."""
        return RowForm(unit=self.unit_rows, root=self.root, weights=self.weights)

    @property
    def on_sphere(self) -> bool:
        """Whether rows have length 1 up to one factor, as documents have: features are not divided by own spreads."""
        known = self.scale[np.isfinite(self.scale)]
        return self.unit_rows and bool(known.size == 0 or known.max() == known.min())

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.shift.shape[0])

    @cached_property
    def known_shift(self) -> FloatArray:
        """Shift, with 0 for features that are dropped."""
        return np.where(np.isfinite(self.scale), self.shift, 0.0)

    @cached_property
    def squared_offset(self) -> float:
        """Squared distance of the input's zero from the mean, in model units."""
        return float(np.square(self.known_shift / self.scale).sum())

    def to_model(self, values: FloatArray) -> FloatArray:
        """Convert centres or rows from input units to model units; rows must have their form already."""
        return (np.asarray(values, dtype=np.float64) - self.known_shift) / self.scale

    def to_input(self, values: FloatArray) -> FloatArray:
        """Convert centres from model units to input units; constant features give their constant, unknown ones NaN."""
        with np.errstate(invalid="ignore"):
            moved = np.where(np.isfinite(self.scale), values * self.scale, 0.0)
        return self.shift + moved

    def coefficients(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Compute heat-kernel coefficients delta_ij of rows in model units (`eqn:fed_delta`, `eqn:fed_delta_v2`).

        A missing cell (NaN) gives NaN, or 1 with "uniform": the caller knows which cells are missing. A rule that asks
        for a site's own ranges or means gives 1 as long as these are not known (`localise`).

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
            np.abs(np.subtract(rows, self.low.astype(rows.dtype), out=out), out=out)
        else:
            out[...] = 1.0
        return out

    def of_model_units(self) -> Reference:
        """Return the reference of rows that are in model units already."""
        plain = replace(self, unit_rows=False, root=False, weights=PLAIN_ROWS.weights)
        return replace(plain, shift=np.zeros(self.width), scale=np.ones(self.width))

    def move(self, shift: FloatArray, divide: FloatArray) -> Reference:
        """Return a reference in whose model units x becomes (x - shift) / divide, per feature."""
        finite = np.isfinite(self.scale)
        offset = np.where(finite, np.where(finite, self.scale, 0.0) * shift, 0.0)
        return replace(self, shift=self.shift + offset, scale=self.scale * divide)

    def rescale(self, factor: float) -> Reference:
        """Return a reference whose model units are divided by `factor`."""
        span = self.span / factor if self.heat_coef == "minmax" else self.span
        return replace(self, scale=self.scale * factor, low=self.low / factor, span=span)

    def localise(self, moments: Moments) -> Reference:
        """Return the reference for the rows of one site, with the site's own ranges or means (`eqn:fed_delta`)."""
        if self.heat_coef not in POOLED_COEFS:
            return self
        rule = POOLED_COEFS[self.heat_coef]
        seen = np.isfinite(self.scale) & (moments.weight > 0)
        low, mean, high = (
            np.where(seen, self.to_model(np.where(seen, values, 0.0)), 0.0)
            for values in (moments.low, moments.mean, moments.high)
        )
        if rule == "absdev":
            return replace(self, heat_coef=rule, low=mean)
        return replace(self, heat_coef=rule, low=low, span=np.where(high > low, high - low, 1.0))

    def balance(self, mean_distance: float) -> Reference:
        """Return a reference in which a mean heat-weighted squared distance of `mean_distance` becomes 1.

        Notes
        -----
        The distance is quadratic in the units, and cubic with "absdev", whose coefficients are in these units too.
        """
        return self.rescale(mean_distance ** (1.0 / (3.0 if self.heat_coef.startswith("absdev") else 2.0)))


def level_variance(reference: Reference, levels: BoolArray) -> float:
    """The sum of the variances of the levels of categories in model units, in which all features together have 1.

    A level that a share p of all rows has varies by p (1 - p) in input units; p is its shift.
    """
    known = levels & np.isfinite(reference.scale)
    shares = reference.shift[known]
    return float(np.sum(shares * (1.0 - shares) / np.square(reference.scale[known])))


def make_reference(
    moments: Moments,
    scaling: Scaling,
    heat_coef: HeatCoef,
    form: RowForm | None = None,
    columns: Columns = None,
) -> Reference:
    """Make the reference of a view from the moments of its rows in this form; None is that of `unit_rows`.

    `columns` are the names of its features, where they have names: levels of a category are divided by one number.

    With uniform coefficients the units are final: the mean squared distance to the grand mean follows from the
    moments. With others the caller measures that mean in these units and calls `Reference.balanced` with it.
    """
    form = (UNIT_ROWS if scaling.unit_rows else PLAIN_ROWS) if form is None else form
    constant, divisors = moments.constant, np.array(scaling.divisors(moments), np.float64)
    if divisors.shape != moments.mean.shape:
        raise ValueError(f"{scaling!r} gives divisors of shape {divisors.shape}, expected {moments.mean.shape}.")
    variance = moments.variance
    for places in level_groups(columns):
        shares = np.where(moments.mean[places] > 0, moments.mean[places], 1.0)
        divisors[places] = scaling.level_divisor * shares**scaling.level_power
    wrong = ~constant & ~((divisors >= 0) & (divisors < np.inf))
    if wrong.any():
        column = int(np.argmax(wrong))
        raise ValueError(
            f"{scaling!r} gives the divisor {divisors[column]} for column {column}: it must be a finite number of 0 or "
            "more. A scaling that reads ranges must say needs_ranges = True."
        )
    constant = constant | (divisors == 0)
    scale = np.where(constant, np.inf, divisors)
    low, span = np.zeros_like(scale), np.ones_like(scale)
    if heat_coef == "minmax":
        low = np.where(constant, 0.0, (moments.low - moments.mean) / scale)
        span = np.where(constant, 1.0, (moments.high - moments.low) / scale)
    reference = Reference(
        unit_rows=form.unit,
        root=form.root,
        weights=form.weights,
        shift=np.where(moments.weight > 0, moments.mean, np.nan),
        scale=scale,
        heat_coef=heat_coef,
        low=low,
        span=span,
        share=moments.rows / moments.total if moments.total > 0 else 0.0,
    )
    squares = float(np.sum(variance * moments.weight / scale**2))
    mean_square = squares / moments.rows if moments.rows > 0 else 0.0
    return reference.rescale(np.sqrt(mean_square)) if mean_square > 0 else reference
