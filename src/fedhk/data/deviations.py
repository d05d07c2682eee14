"""Honest mistakes at a site: a column in another unit, one that is shifted, or one with codes for missing values.

Sites are compared by the moments of their columns, in the units of the data. Of every column, the median location and
spread of the sites say what is typical. A site is off where it lies further from that than twice what the other sites
differ by among themselves, plus what counts, few sites and few rows leave open. All of this is on logarithms, so that
no unit matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.large import empty_table
from fedhk.data.levels import find_numbers
from fedhk.data.moments import Moments, have_own_units, view_moments
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns, Views, is_tensor, row_blocks

# How the constants were found, on generated sites only: benchmarks/results/deviations.md.

# A site is off beyond this many times what the others differ by.
TIMES = 2.0

# And never within this factor (as a logarithm), in one column or in most columns of a view.
LEAST_FACTOR, LEAST_VIEW_FACTOR = math.log(4.0), math.log(3.0)

# What few other sites leave open: divided by their number less one half.
FEW_SITES = 2.5

# What few rows leave open: divided by the root of their number.
FEW_ROWS = 2.0

# Most columns of a view differ by no more than this quantile says, or all but so many where there are many: the more
# columns there are, the further off one of them is by chance.
USUAL, UNUSUAL_COLUMNS = 0.9, 5

# Sites with fewer values in a column say nothing about the others.
LEAST_VALUES = 5

# Of views with fewer columns, no median over columns is taken.
LEAST_COLUMNS = 5

# A location is apart where it is further off than this many spreads, and factors agree that differ by less.
APART, AGREE = 3.0, math.log(3.0)

# A column is moved beyond so many spreads of the site and of the others together, where nothing else differs. On 3,000
# generated federations 1.5 and 2 gave no false alarm and 1 gave one; shifts of 8 (12) spreads of all rows are found in
# .5 (.8) of continuous columns with 2, where they were found in none.
LEAST_MOVED = 2.0

# Sites that a majority must be left of to say that one is off.
FEWEST_OTHERS = 2

MEND = "Mend the data and fit again"

REASONS = {
    "larger": "is about {} times larger than elsewhere: another unit?",
    "smaller": "is about {} times smaller than elsewhere: another unit?",
    "wider": "varies about {} times more than elsewhere: another unit, or a code for missing values such as -9999?",
    "above": "lies {} spreads above elsewhere: another instrument or unit, or a code for missing values such as 9999?",
    "below": "lies {} spreads below elsewhere: another instrument or unit, or a code for missing values such as -9999?",
    "code": "has {} again and again, far outside its other values: a code for missing values? Leave such cells empty, "
    "or name the code in a data dictionary.",
}

# How much closer together, or further apart, than all rows the rows of a site may be. A site's own rows are among
# all rows, so that one of up to 900 sites of one size never finds itself further out than that.
OWN_FACTOR = 30.0

# A value is a code where it occurs this often and lies further from all others than so many times their range. 0 is no
# code where most rows have it: words that most documents lack, and pixels without ink.
LEAST_REPEATS, CODE_DISTANCE = 3, 10.0

# People write whole numbers or nines for a missing cell: 0, those below it such as -1, and those from 9 on such as 88
# and 999.9. A descriptor that is cut at 0.2 has no code there, nor has a correlation of 1.
LEAST_CODE = 9.0

# Values of nothing but nines, two at least, are what people write for a missing cell: -99, 999. They are codes if they
# lie further from all others than this part of their range, or below zero where no other value does.
NINES_DISTANCE = 0.25


# Codes of a table, each with its column.
Codes = list[tuple[float, int]]


@dataclass(frozen=True)
class Deviation:
    """Columns of one view in which one site is off.

    Parameters
    ----------
    site, view : str
        Where.
    columns : tuple of str
        The columns, the worst first.
    kind : {"larger", "smaller", "wider", "above", "below", "code"}
        How the site differs from the others; a code is found in its own rows.
    factor : float
        How many times, or by how many spreads, in the worst column; of a code, its value.
    others : int
        Sites that it was compared with; 0 for a code.
    is_usual : bool, default=False
        Whether something usual may explain it. A column that varies more, where others of the view in the same unit
        vary as much at other sites, may have rare events, such as ink at the edge of a picture. A column whose rows lie
        apart may be what tells a group that no other site has. It is said, and is no reason to leave a site out.
    """

    site: str
    view: str
    columns: tuple[str, ...]
    kind: str
    factor: float
    others: int
    is_usual: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether the site certainly deviates: enough other sites agree, and nothing usual in the view explains it."""
        return self.others >= FEWEST_OTHERS and not self.is_usual

    @property
    def reason(self) -> str:
        """What deviates and a likely cause, without the name of the site."""
        more = len(self.columns) - 1
        where = f"{self.view}/{self.columns[0]}" + (f" (and {more} more column{'s' * (more > 1)})" if more else "")
        number = f"{self.factor:.15g}" if self.kind == "code" else _round_factor(self.factor)
        return f"{where} {REASONS[self.kind].format(number)}"

    @property
    def sentence(self) -> str:
        """The reason with the name of the site."""
        return f"{self.site}: {self.reason}"


def describe_deviations(found: Iterable[Deviation], unit_of: Callable[[str, str], str] | None = None) -> list[str]:
    """Describe deviations, in one sentence for all sites with the same one.

    `unit_of` gives the unit that a column of a view should have, where that is known, else nothing.
    """
    sites: dict[str, list[str]] = {}
    for one in found:
        unit = unit_of(one.view, one.columns[0]) if unit_of else ""
        reason = f"{one.reason} By the data dictionary it is in {unit}." if unit else one.reason
        sites.setdefault(reason, []).append(one.site)
    return [f"{', '.join(names)}: {reason}" for reason, names in sites.items()]


def find_deviations(
    sites: Mapping[str, Mapping[str, Moments]], columns: Mapping[str, Columns]
) -> tuple[Deviation, ...]:
    """Find sites that deviate from the others by more than sites usually differ.

    Parameters
    ----------
    sites : mapping of str to (mapping of str to Moments)
        By site and view, the moments of the view's columns.
    columns : mapping of str to (tuple or None)
        Names of the columns of each view, where they have names.

    Returns
    -------
    tuple of Deviation
        In the order of the views and, in a view, of the sites.
    """
    found: list[Deviation] = []
    for view, named in columns.items():
        having = {site: moments[view] for site, moments in sites.items() if view in moments}
        if len(having) > 1:
            found += _Compared(list(having), view, named, list(having.values())).find()
    return tuple(found)


def compare_sites(sites: Mapping[str, Views], *, unit_rows: bool = False) -> tuple[Deviation, ...]:
    """Find what is off at sites whose rows are at hand: beside other sites, and codes for missing values.

    With `unit_rows` every row is divided by its length first, as a model with `scaling="l2"` does.
    """
    moments: dict[str, dict[str, Moments]] = {}
    columns: dict[str, Columns] = {}
    codes: list[Deviation] = []
    for site, views in sites.items():
        own_codes = [_codes(table) for table in views.tables]
        codes += _describe_codes(site, views, own_codes)
        known, moments[site] = _without_codes(views, own_codes), {}
        for number, (name, width) in enumerate(zip(views.names, views.widths, strict=True)):
            if width is not None:
                columns[name] = columns.get(name) or views.columns[number]
                own = view_moments(known, number, unit_rows=unit_rows, sample_weight=None, width=width)
                moments[site][name] = own
    return (*find_deviations(moments, columns), *codes)


def find_codes(site: str, views: Views) -> list[Deviation]:
    """Find columns in which one extreme value repeats far outside the rest, such as -9999; sparse views have none."""
    return _describe_codes(site, views, [_codes(table) for table in views.tables])


def _describe_codes(site: str, views: Views, codes: Sequence[Codes]) -> list[Deviation]:
    return [
        Deviation(site, view, (describe_column(columns, column),), "code", value, 0)
        for view, columns, found in zip(views.names, views.columns, codes, strict=True)
        for value, column in found
    ]


def _without_codes(views: Views, codes: Sequence[Codes]) -> Views:
    """Return the rows with codes as missing cells, so that a code does not hide what else is off in its column."""
    tables, missing = list(views.tables), list(views.missing)
    for number, (table, found) in enumerate(zip(views.tables, codes, strict=True)):
        if found:
            tables[number], missing[number] = empty_table(table.shape, table.dtype), True
            tables[number][...] = table
            for value, column in found:
                tables[number][table[:, column] == value, column] = np.nan
    return replace(views, tables=tuple(tables), missing=tuple(missing))


def compare_with_all(views: Views, names: Sequence[str], references: Sequence[Reference]) -> list[str]:
    """Find what is off at a site that sees no other site, but knows how all rows together are brought to model units.

    Parameters
    ----------
    views : Views
        The rows of the site.
    names : sequence of str
        The views of the model.
    references : sequence of Reference
        Of these views, from all rows of all sites.

    Returns
    -------
    list of str
        A sentence for each column that is off. Where it is another site that is off, its rows have made the common
        spread large, and all other sites find themselves too narrow.
    """
    found = []
    for name, reference in zip(names, references, strict=True):
        number = views.names.index(name) if name in views.names else None
        if number is None or views.widths[number] != reference.width:
            continue
        own = view_moments(views, number, form=reference.form, sample_weight=None, width=reference.width)
        numbers = find_numbers(views.columns[number], reference.width)
        known = np.isfinite(reference.scale) & (own.weight >= LEAST_VALUES) & (own.variance > 0) & numbers
        width = np.sqrt(own.variance) / reference.scale
        size = np.hypot((own.mean - reference.known_shift) / reference.scale, width)
        if known.any() and np.ptp(reference.scale[known]) == 0:  # in units as they come, only all columns have size 1
            width, size = (np.where(known, math.sqrt(float(np.mean(np.square(x[known])))), x) for x in (width, size))
        unit = math.sqrt(int(known.sum()))  # all rows together have the size 1 in all columns together
        for column in np.flatnonzero(known & ((unit * size > OWN_FACTOR) | (unit * width * OWN_FACTOR < 1))).tolist():
            is_far = unit * size[column] > OWN_FACTOR
            factor, how = (
                (unit * size[column], "further out") if is_far else (1 / (unit * width[column]), "closer together")
            )
            named = describe_column(views.columns[number], column)
            found.append(
                f"{name}/{named}: rows lie about {_round_factor(float(factor))} times "
                f"{how} here than over all sites: another unit here, or at another site?"
            )
    return found


def _codes(table: Any) -> Codes:
    """Find the codes of a table; a sparse one, or one without rows, has none."""
    found: Codes = []
    if table is None or sp.issparse(table) or not len(table):
        return found
    blocks = list(row_blocks(len(table), 8 * table.shape[1]))
    if len(blocks) == 1 and not _has_repeated_extremes(table):  # most small sites
        return found
    for sign in (1.0, -1.0):
        most, next_most = np.full((2, table.shape[1]), -np.inf)
        least, repeats = np.full(table.shape[1], np.inf), np.zeros(table.shape[1], np.intp)
        for rows in blocks:
            values = sign * np.asarray(table[rows], np.float64)
            values = np.where(np.isnan(values), -np.inf, values)
            top = values.max(axis=0)
            rest = values < top
            second = np.where(rest, values, -np.inf).max(axis=0)
            before, most = most, np.maximum(most, top)
            next_most = np.maximum(np.where(before < most, before, next_most), np.where(top < most, top, second))
            repeats = np.where(before == most, repeats, 0) + np.where(top == most, len(values) - rest.sum(axis=0), 0)
            least = np.minimum(least, np.where(np.isfinite(values), values, np.inf).min(axis=0))
        with np.errstate(invalid="ignore"):
            others = next_most - least
            far = _may_be_codes(sign * most) & (most - next_most > CODE_DISTANCE * others)
            negative = (sign < 0) & (next_most <= 0)  # of values times -1: only the code is below zero
            far |= _are_nines(most) & (negative | (most - next_most > NINES_DISTANCE * others))
            far &= (others > 0) & np.isfinite(next_most)
        usual = (most == 0) & (2 * repeats > len(table))
        columns = np.flatnonzero(far & ~usual & (repeats >= LEAST_REPEATS))
        found += [(sign * float(most[column]), int(column)) for column in columns]
    return found


def _has_repeated_extremes(table: FloatArray) -> bool:
    """Tell whether the largest or the smallest value of any column occurs often enough to be a code."""
    extremes = np.fmax.reduce(table), np.fmin.reduce(table)
    return any((table == extreme).sum(axis=0).max(initial=0) >= LEAST_REPEATS for extreme in extremes)


def _may_be_codes(values: FloatArray) -> BoolArray:
    """Tell which numbers people would write for a missing cell."""
    written = values == np.rint(values)
    for tens in (10.0, 100.0):  # 99.9 and 99.99 are written with nines only
        digits = np.abs(values) * tens
        written |= _are_nines(np.rint(digits)) & np.isclose(digits, np.rint(digits), rtol=1e-6)
    return np.asarray(written & ((values <= 0) | (values >= LEAST_CODE)))


def _are_nines(values: FloatArray) -> BoolArray:
    """Tell which positive numbers are written with nines only, two at least, and which negative ones times -1."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        digits = np.ceil(np.log10(values))
        return np.asarray((digits >= 2) & (values == 10.0**digits - 1.0))


def describe_column(columns: Columns, column: int) -> str:
    """Return the name of a column, or its number where columns have no names."""
    return f"column {column}" if columns is None or is_tensor(columns) else str(columns[column])


class _Compared:
    """The moments of one view at all sites that have it, as arrays of shape (sites, columns)."""

    def __init__(self, names: list[str], view: str, columns: Columns, moments: Sequence[Moments]) -> None:
        self.names, self.view = names, view
        self.values = np.array([m.weight for m in moments])
        self.mean = np.array([m.mean for m in moments])
        self.spread = np.sqrt([m.variance for m in moments])
        self.columns = columns
        numbers = find_numbers(columns, self.values.shape[1])
        # sites that others are compared with; shares of levels may be anything
        self.typical = (self.values >= LEAST_VALUES) & (self.spread > 0) & numbers
        self.count = self.typical.sum(axis=0)
        self.rows = _median(self.values, self.typical)
        self.middle = _median(self.mean, self.typical)
        # of two sites, the one that varies less is right or nobody is
        narrowest = np.argmin(np.where(self.typical, self.spread, np.inf), axis=0)
        first = np.take_along_axis(self.mean, narrowest[None], axis=0)[0]
        self.middle = np.where(self.count == 2, first, self.middle)
        self.width = _median(self.spread, self.typical, upper=False)

    def find(self) -> list[Deviation]:
        """Find the deviations in this view."""
        found = []
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            far, small = self._far(), self._small()
            off = find_off(far, self.typical, self.rows, _half_log(self.rows / self.values), LEAST_FACTOR)
            tiny = find_off(small, self.typical, self.rows, _half_log(self.values), LEAST_FACTOR)
            off |= self._most(far, small=False)[:, None] & (far > LEAST_VIEW_FACTOR)
            tiny |= self._most(small, small=True)[:, None] & (small > LEAST_VIEW_FACTOR)
            # of two sites, one is named; where a site has no values but one, few values that are small are no surprise
            tiny &= (self.count > 2) & ~np.any((self.values >= LEAST_VALUES) & (self.spread == 0), axis=0)
            moved, apart = self._moved()
            moved &= ~(off | tiny)
            off |= moved
            far = np.where(moved, np.maximum(far, np.log(apart)), far)
            scores = np.where(off, far, np.where(tiny, small, -np.inf))
            for site in np.flatnonzero((scores > -np.inf).any(axis=1)).tolist():
                columns = [int(column) for column in np.argsort(-scores[site]) if scores[site, column] > -np.inf]
                kinds = [self._kind(site, column, is_far=bool(off[site, column])) for column in columns]
                found.append(self._deviation(site, columns, kinds, only_moved=bool(moved[site, columns].all())))
        return found

    def _far(self) -> FloatArray:
        """Compute the log distance of a site's rows from the typical location, in typical spreads; large deviates."""
        distance = np.hypot(self.mean - self.middle, self.spread)
        return np.where(self.values > 0, np.log(distance / self.width), -np.inf)

    def _moved(self) -> tuple[BoolArray, FloatArray]:
        """Find columns in which hardly any row of a site is where rows of others are, and by how many spreads.

        Spreads are those of the site and of the others together: beyond two of them, at most a fifth of the rows on
        either side can lie between (Cantelli), and a fortieth of normal ones. Sites with other clusters differ in
        several columns, a shifted instrument in one. So a column must stand out of the others of the same site, too.
        Where more than a third of the sites have such a column, each in another one, it is their clusters.
        """
        apart = np.where(self.typical, np.abs(self.mean - self.middle) / (self.spread + self.width), 0.0)
        own = TIMES * _quantile(apart, self.typical)[:, None]
        off = find_off(apart, self.typical, self.rows, np.broadcast_to(own, apart.shape), LEAST_MOVED)
        few = 3 * off.any(axis=1).sum() <= len(off)
        return off & few, apart

    def _small(self) -> FloatArray:
        """Compute the log of how many times closer to zero a site's rows are than elsewhere; large deviates."""
        size = np.hypot(self.mean, self.spread)
        return np.where(self.typical, np.log(_median(size, self.typical) / size), -np.inf)

    def _most(self, scores: FloatArray, *, small: bool) -> BoolArray:
        """Find sites that deviate in most columns: the median over columns varies less than any single one."""
        known = np.isfinite(scores) & (self.count > 1)
        enough: BoolArray = known.sum(axis=1) >= LEAST_COLUMNS
        if not enough.any():
            return enough
        score = np.where(enough, _median(scores.T, known.T), -np.inf)[:, None]
        values = _median(self.values.T, known.T)[:, None]
        rows = np.array([np.median(values[enough])])
        allowance = _half_log(values if small else rows / values)
        return find_off(score, enough[:, None] & (values >= LEAST_VALUES), rows, allowance, LEAST_VIEW_FACTOR)[:, 0]

    def _kind(self, site: int, column: int, *, is_far: bool) -> tuple[str, float]:
        """Return the kind of a site's deviation in a column, and its factor."""
        mean, spread = float(self.mean[site, column]), float(self.spread[site, column])
        middle, width = float(self.middle[column]), float(self.width[column])
        if not is_far:
            return "smaller", math.hypot(middle, width) / math.hypot(mean, spread)
        ratio = spread / width
        scaled = mean / middle if middle else 0.0
        same = scaled > 0 < ratio and abs(math.log(scaled / ratio)) < AGREE  # a unit changes both alike
        if same and abs(middle) > width and abs(math.log(ratio)) > AGREE:
            return ("larger", scaled) if scaled > 1 else ("smaller", 1 / scaled)
        if abs(mean - middle) > APART * max(spread, width):
            return ("above" if mean > middle else "below"), abs(mean - middle) / width
        return "wider", ratio

    def _deviation(
        self, site: int, columns: Sequence[int], kinds: Sequence[tuple[str, float]], *, only_moved: bool
    ) -> Deviation:
        """Describe all columns in which a site deviates by the kind of the first; if most do, it is their unit."""
        kind, factor = kinds[0]
        only_wider = all(kind == "wider" for kind, _ in kinds)
        is_usual = only_moved or (only_wider and self._are_usual(self.spread[site, columns]))
        ratio = float(np.median(self.spread[site, columns] / self.width[columns]))
        if 2 * len(columns) > max(self.values.shape[1], 2) and ratio > 0 and abs(math.log(ratio)) > AGREE:
            kind, factor, is_usual = ("larger", ratio, False) if ratio > 1 else ("smaller", 1 / ratio, False)
        others = int(self.count[columns[0]] - self.typical[site, columns[0]])
        names = tuple(describe_column(self.columns, column) for column in columns)
        return Deviation(self.names[site], self.view, names, kind, factor, others, is_usual)

    def _are_usual(self, spreads: FloatArray) -> bool:
        """Tell whether columns share a unit in which others vary as much as these do, at most sites."""
        usual = self.width[self.width > 0]
        return not have_own_units(np.square(usual)) and bool(spreads.max() <= usual.max(initial=0.0))


def find_off(
    scores: FloatArray, typical: BoolArray, rows: FloatArray, allowance: FloatArray, least: float
) -> BoolArray:
    """Find which sites deviate in which columns, given scores that are large for a deviation.

    Up to a third of the sites, those with the largest scores, are set against the rest. They are off if all of them
    are beyond `TIMES` the largest score, in either direction, of the rest.

    Parameters
    ----------
    scores : array of shape (sites, columns)
        Logarithms; around zero where a site is as the others are.
    typical : boolean array of the same shape
        The sites that say what is usual in a column.
    rows : array of shape (columns,)
        Values that a typical site has.
    allowance : array of shape (sites, columns)
        What a site's own number of rows leaves open.
    least : float
        Smallest score that is off where others do not differ at all.
    """
    most = max(1, len(scores) // 3)
    order = np.argsort(-scores, axis=0, kind="stable")
    sorted_scores = np.take_along_axis(scores, order, axis=0)
    usual = np.take_along_axis(typical, order, axis=0)
    # row k of these is about the sites after the first k + 1
    apart = _from_the_end(np.maximum.accumulate, np.where(usual, np.abs(sorted_scores), 0.0))[1 : most + 1]
    others = _from_the_end(np.cumsum, usual.astype(np.float64))[1 : most + 1]
    apart = np.maximum(apart, _quantile(apart, others > 0)[:, None])
    limit = TIMES * apart + least + FEW_SITES / (others - 0.5) + FEW_ROWS / np.sqrt(rows)
    first = sorted_scores - np.take_along_axis(allowance, order, axis=0)
    beyond = (np.minimum.accumulate(first[: len(apart)], axis=0) > limit) & (others > 0)
    beyond = _from_the_end(np.logical_or.accumulate, beyond)
    off = np.zeros(scores.shape, bool)
    np.put_along_axis(off, order[: len(apart)], beyond, axis=0)
    return off


def _from_the_end(accumulate: Callable[..., Any], values: NDArray[Any]) -> NDArray[Any]:
    """Accumulate over rows, the last row first."""
    return np.asarray(accumulate(values[::-1], axis=0))[::-1]


def _quantile(values: FloatArray, known: BoolArray) -> FloatArray:
    """Compute the quantile `USUAL` of the known values of each row, or the largest of few; 0 if none is known."""
    ordered = np.sort(np.where(known, values, np.inf), axis=1)
    last = np.maximum(known.sum(axis=1) - 1, 0)
    place: IntArray = np.maximum(np.floor(USUAL * last), last - UNUSUAL_COLUMNS).astype(np.intp)
    return np.where(known.any(axis=1), ordered[np.arange(len(values)), place], 0.0)


def _median(values: FloatArray, known: BoolArray, *, upper: bool = True) -> FloatArray:
    """Compute the upper or lower median of the known values of each column; NaN if none is known."""
    count = known.sum(axis=0)
    place = np.maximum(count // 2 if upper else (count - 1) // 2, 0)
    ordered = np.sort(np.where(known, values, np.inf), axis=0)
    middle = np.take_along_axis(ordered, np.minimum(place, len(values) - 1)[None], axis=0)[0]
    return np.where(count > 0, middle, np.nan)


def _half_log(ratio: FloatArray) -> FloatArray:
    """Return how far a mean of squares over few rows may differ, since one row may weigh as much as all others."""
    return np.where(ratio > 1, 0.5 * np.log(ratio), 0.0)


def _round_factor(factor: float) -> str:
    """Round a factor to one digit, such as 973 to 1,000."""
    if not 1 <= factor < 1e6:
        return f"{factor:.0e}"
    return f"{float(f'{factor:.0e}'):,.0f}"
