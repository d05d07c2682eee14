"""The scaling of each view, chosen by neighbours: how many those of a row in one view are its neighbours in another.

Two views of the same rows have neighbours in common only where both are in units that show what the rows have in
common. Nothing is clustered for it, so that nothing depends on a number of clusters, a start or a seed. Neighbours are
looked for within a site: where a site lies, and how it measures, does not matter to them. What a site says are sums
over its rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fedhk._typing import FloatArray, IntArray
from fedhk.agreement.opinions import Opinion
from fedhk.data.levels import level_groups
from fedhk.data.moments import Moments, are_magnitudes, have_own_units
from fedhk.data.row_forms import count_documents, count_rows_without_total, has_negative
from fedhk.data.scaling import SCALINGS, Reference, Scaling
from fedhk.data.views import Columns, Views, row_blocks
from fedhk.model.preparation import references_from_moments, site_moments
from fedhk.starts.seeding import distinct_rows

# What a view may be tried under, the convention first: z-scores for tables, weights of words for text.
STANDARD = "standard"
TABLE_OPTIONS, TEXT_OPTIONS = (STANDARD, "none", "l2", "root"), ("tfidf", "l2", "root", STANDARD)
HISTOGRAM_OPTIONS = ("histogram",)

# Of magnitudes it is left to ask whether their sum in a row says something. Neither answer is the convention: whichever
# agrees more is taken, by chance or not.
MAGNITUDE_OPTIONS = ("magnitude", "histogram")

# A view without negative cells of which so many are 0 is text: most words are missing in nearly all documents. Pictures
# and cells have many zeros, too, and most of their features are above 0 in many rows.
LEAST_ZEROS = 0.9

# Different rows that a site looks at: from so many, an agreement is known to a hundredth.
SAMPLE_ROWS = 512

# Fewest rows that can have neighbours and others.
LEAST_ROWS = 4

# Rows that are neighbours of each other say the same: over splits of the same rows into sites, agreements vary by about
# this multiple of the error of independent rows.
DEPENDENCE = 2.0

# Views of the same rows have more in common than this: at least 0.11 in each of seven sets of real data. Where twice
# the error of an agreement is below it, rows are enough to tell views that have nothing in common.
LEAST_COMMON = 0.1
STRANGER = "no more neighbours in common with any other view than by chance"

# Numbers that a site sends for a pair of witnesses.
NUMBERS = 4

# Distances are moved by this share of the mean one before they are ranked: equal ones are then in no order that two
# views could share, and no others change places.
JITTER = 1e-9


@dataclass(frozen=True)
class Witness:
    """Decides which rows are neighbours: a view under a scaling, or half of its features."""

    view: int
    option: str  # short form of the scaling
    half: int = -1  # 0 or 1 where a single view is split into halves of its features, else -1

    @property
    def part(self) -> tuple[int, int]:
        """Part of the data that is used: witnesses of the same part are not compared."""
        return self.view, self.half


def find_options(
    moments: Moments, documents: FloatArray | None, columns: Columns, without_total: float = math.inf
) -> tuple[str, ...]:
    """Scalings that a view can be tried under, from its moments and the rows in which each feature is above 0.

    `documents` is None where a cell is negative: then 0 is no end of the scale, and the length of a row says nothing.
    Nor is it known where a cell is missing. Where one feature has most of the variance, or a column is a category,
    features share no unit. `without_total` is the number of rows at sites whose rows do not have one total: where most
    rows have one, they are histograms. Magnitudes of one kind, such as descriptors of pictures, have roots.
    """
    if np.all(moments.constant) or level_groups(columns):
        return TABLE_OPTIONS[:1]
    known = None if np.any(moments.weight < moments.rows * (1 - 1e-9)) else documents
    if known is not None and known.sum() < (1 - LEAST_ZEROS) * moments.weight.sum():
        return TEXT_OPTIONS
    if known is not None and 2 * without_total < moments.rows:
        return HISTOGRAM_OPTIONS
    if have_own_units(moments.variance):  # only z-scores make them comparable
        return TABLE_OPTIONS[:1]
    if known is not None and are_magnitudes(moments):
        return MAGNITUDE_OPTIONS
    return TABLE_OPTIONS[: 2 if known is None else 4]


def list_witnesses(options: Sequence[Sequence[str]]) -> tuple[Witness, ...]:
    """Witnesses of all views under all their scalings; a single view is two, each with half of its features.

    None where there is nothing to choose, or nobody to compare with.
    """
    if all(len(own) == 1 for own in options):
        return ()
    halves = (0, 1) if len(options) == 1 else (-1,)
    return tuple(Witness(view, option, half) for view, own in enumerate(options) for half in halves for option in own)


def list_pairs(witnesses: Sequence[Witness]) -> list[tuple[int, int]]:
    """Pairs of witnesses that are compared: of different views, and halves of a view under one scaling."""
    return [
        (i, j)
        for (i, first), (j, second) in combinations(enumerate(witnesses), 2)
        if first.part != second.part and (first.view != second.view or first.option == second.option)
    ]


# ------------------------------------------------------------------------------------------------- neighbours at a site


def choose_rows(views: Views, sample_weight: FloatArray | None = None) -> IntArray:
    """Rows that a site looks at: different ones that have all views that the site has, evenly spaced where many."""
    known = [table for table in views.tables if table is not None]
    keys: FloatArray = np.zeros((views.n_rows, len(known)))
    complete = np.ones(views.n_rows, bool)
    for place, table in enumerate(known):
        directions = np.cos(np.arange(table.shape[1]))
        for block in row_blocks(views.n_rows, 8 * table.shape[1]):  # a table may be larger than memory
            cells = table[block]
            if not sp.issparse(cells):
                complete[block] &= ~np.isnan(cells).all(axis=1)
                cells = np.nan_to_num(cells)
            keys[block, place] = cells @ directions
    rows = np.flatnonzero(complete)
    first, _ = distinct_rows(keys[rows], None if sample_weight is None else sample_weight[rows])
    chosen = rows[first]
    return chosen if len(chosen) <= SAMPLE_ROWS else chosen[np.linspace(0, len(chosen) - 1, SAMPLE_ROWS).astype(int)]


def read_points(table: Any, reference: Reference, witness: Witness, documents: FloatArray | None, n_rows: float) -> Any:
    """Rows as a witness sees them, up to a common shift and unit; sparse where they are. A missing cell is at the mean.

    `reference` has z-scores; `documents` says in how many of the `n_rows` rows of all sites each feature is above 0.
    Z-scores of rows that have changed their form are taken within these rows. A half has a form of its own: halves of
    rows that have length 1 together would know each other's length, and agree on that.
    """
    features = slice(None) if witness.half < 0 else find_half(reference.width, witness.half)
    if witness.option == STANDARD and sp.issparse(table):
        return (table @ sp.diags_array(1.0 / reference.scale))[:, features]
    if witness.option == STANDARD:
        return np.nan_to_num(reference.to_model(reference.form.dense(table)))[:, features]
    scaling = SCALINGS[witness.option]
    points = scaling.form(np.zeros(0) if documents is None else documents[features], n_rows).apply(table[:, features])
    if scaling.unit_variance:
        points = points.toarray() if sp.issparse(points) else points
        spread = np.nanstd(points, axis=0)
        points = points / np.where(spread > 0, spread, 1.0)
    return points if sp.issparse(points) else np.where(np.isnan(points), reference.known_shift[features], points)


def find_half(width: int, half: int) -> IntArray:
    """The features of one half of a view: the same at all sites, whatever the order in which a table has them."""
    return np.sort(np.random.RandomState(0).permutation(width)[half::2])


def find_neighbours(points: Any, seed: int) -> npt.NDArray[np.bool_]:
    """Who is a neighbour of whom, of shape (n, n): the nearest rows of each, as many as the root of their number."""
    n_rows = points.shape[0]
    products = points @ points.T
    products = products.toarray() if sp.issparse(products) else products
    squares = np.diag(products)
    distances = squares[:, None] + squares - 2 * products
    distances += JITTER * np.random.RandomState(seed).random_sample(distances.shape) * max(distances.mean(), 1e-300)
    np.fill_diagonal(distances, np.inf)
    count = _count_neighbours(n_rows)
    found = np.zeros((n_rows, n_rows), bool)
    np.put_along_axis(found, np.argpartition(distances, count - 1, axis=1)[:, :count], values=True, axis=1)
    return found


def _count_neighbours(n_rows: int) -> int:
    """Choose the number of neighbours of each row: enough to compare, and far fewer than rows."""
    return round(math.sqrt(n_rows))


def compare_neighbours(found: Sequence[npt.NDArray[np.bool_]]) -> FloatArray:
    """Sums over rows, for all pairs of witnesses, of shape (witnesses, witnesses, 4).

    They are: shares of neighbours in common, their squares, the shares to be expected by chance, and rows. Some rows
    are neighbours of many, whatever these have in common with them. What two witnesses would share by chance is what
    they share if each row draws its neighbours by how many rows each has in that witness.
    """
    n_rows = len(found[0])
    count = _count_neighbours(n_rows)
    shares, squares = np.zeros((2, len(found), len(found)))
    for row in range(n_rows):
        near = np.array([own[row] for own in found], np.float32)
        common = (near @ near.T).astype(np.float64) / count
        shares += common
        squares += np.square(common)
    hubs = np.array([own.sum(axis=0) for own in found], np.float64)
    by_chance = hubs @ hubs.T / (n_rows * count)
    return np.stack([shares, squares, by_chance, np.full(shares.shape, float(n_rows))], axis=-1)


def compare_witnesses(
    views: Views,
    references: Sequence[Reference],
    witnesses: Sequence[Witness],
    documents: Sequence[FloatArray | None],
    n_rows: float,
    *,
    sample_weight: FloatArray | None = None,
) -> FloatArray:
    """What a site says of all pairs of witnesses, of shape (pairs, 4); zeros where it lacks a view or has few rows."""
    pairs = list_pairs(witnesses)
    sums: FloatArray = np.zeros((len(pairs), NUMBERS))
    rows = choose_rows(views, sample_weight)
    if len(rows) < LEAST_ROWS:
        return sums
    found: dict[int, npt.NDArray[np.bool_]] = {}
    for place, witness in enumerate(witnesses):
        table = views.tables[witness.view]
        if table is not None:
            own = table[rows] if sp.issparse(table) else np.asarray(table[rows], np.float64)
            points = read_points(own, references[witness.view], witness, documents[witness.view], n_rows)
            found[place] = find_neighbours(points, place)
    order = {place: number for number, place in enumerate(found)}
    known = [number for number, (i, j) in enumerate(pairs) if i in found and j in found]
    if known:
        numbers = np.array([(order[i], order[j]) for i, j in (pairs[number] for number in known)])
        sums[known] = compare_neighbours(list(found.values()))[numbers[:, 0], numbers[:, 1]]
    return sums


# ---------------------------------------------------------------------------------------------------------- the choice


def read_agreement(sums: FloatArray) -> tuple[float, float]:
    """Compute the agreement of two witnesses and its standard error: 1 for the same neighbours, about 0 by chance."""
    shared, squares, by_chance, rows = sums
    room = rows - by_chance
    if not rows > 0 or room <= 1e-9 * rows:
        return 0.0, 0.0
    variance = max(squares / rows - (shared / rows) ** 2, 0.0)
    return float((shared - by_chance) / room), float(DEPENDENCE * math.sqrt(variance * rows) / room)


def choose_options(witnesses: Sequence[Witness], sums: FloatArray) -> list[Opinion]:
    """Choose the scaling of each view under which views have most neighbours in common.

    Views are chosen together: two views of text have nothing in common until both are in units that show it. So the
    search starts from all views under the same scaling, for each in turn, and changes one view at a time. Of the
    scalings of a view that differ by no more than chance, the first, which is the convention, is taken. Of magnitudes
    the one that agrees most is.
    """
    table = _Agreements(witnesses, sums)
    starts = dict.fromkeys(option for own in table.options.values() for option in own)
    found = [table.climb({v: o if o in own else own[0] for v, own in table.options.items()}) for o in starts]
    best = max(found, key=table.total)  # the first of equals
    for view, own in table.options.items():
        if tuple(own) == MAGNITUDE_OPTIONS:
            continue
        best = best | {view: next(option for option in own if table.is_equal(view, option, best))}
    strangers = [view for view in best if table.is_stranger(view, best)]
    return [
        Opinion(
            view,
            option,
            table.agreement(view, option, best)[0],
            option == best[view],
            note=STRANGER * (option == best[view] and view in strangers),
        )
        for view, own in table.options.items()
        for option in own
    ]


class _Agreements:
    """Agreements of witnesses, by view and scaling."""

    def __init__(self, witnesses: Sequence[Witness], sums: FloatArray) -> None:
        self.options: dict[int, list[str]] = {}
        for witness in witnesses:
            own = self.options.setdefault(witness.view, [])
            own.extend([witness.option] if witness.option not in own else [])
        self._known: dict[tuple[int, str, int, str], tuple[float, float]] = {}
        for (i, j), numbers in zip(list_pairs(witnesses), sums, strict=True):
            first, second, found = witnesses[i], witnesses[j], read_agreement(numbers)
            self._known[first.view, first.option, second.view, second.option] = found
            self._known[second.view, second.option, first.view, first.option] = found

    def agreement(self, view: int, option: str, chosen: Mapping[int, str]) -> tuple[float, float]:
        """Mean agreement of a view under a scaling with the others under what is chosen, and its standard error.

        The error is the mean of theirs and no smaller: what a view says to all others is said of the same rows.
        """
        others = [other for other in chosen if other != view] or [view]
        pairs = [(other, option if other == view else chosen[other]) for other in others]
        known = [self._known[view, option, *pair] for pair in pairs]
        return float(np.mean([value for value, _ in known])), float(np.mean([error for _, error in known]))

    def is_stranger(self, view: int, chosen: Mapping[int, str]) -> bool:
        """Whether a view agrees with no other by more than the error of the agreement, where that error is small."""
        pairs = [self._known[view, chosen[view], other, chosen[other]] for other in chosen if other != view]
        known = [pair for pair in pairs if any(pair)]  # none of views that no site has both of
        return bool(known) and all(value < error and 2 * error < LEAST_COMMON for value, error in known)

    def total(self, chosen: Mapping[int, str]) -> float:
        """Mean agreement of all views with the others."""
        return float(np.mean([self.agreement(view, option, chosen)[0] for view, option in chosen.items()]))

    def climb(self, chosen: dict[int, str]) -> dict[int, str]:
        """Change one view at a time to the scaling under which it agrees most, until none changes."""
        while True:
            before = chosen
            for view, own in self.options.items():
                values = [self.agreement(view, option, chosen)[0] for option in own]
                gain = max(values) - values[own.index(chosen[view])]
                chosen = chosen | {view: own[int(np.argmax(values))]} if gain > 1e-12 else chosen
            if chosen == before:
                return chosen

    def is_equal(self, view: int, option: str, chosen: Mapping[int, str]) -> bool:
        """Whether a scaling agrees as much as the chosen one, but for what the largest of so many shows by chance."""
        most, error = self.agreement(view, chosen[view], chosen)
        by_chance = error * math.sqrt(2 * math.log(len(self.options[view])))
        return self.agreement(view, option, chosen)[0] >= most - by_chance


def read_choice(options: Sequence[Sequence[str]], sums: FloatArray) -> tuple[list[Scaling], list[Opinion]]:
    """Choose scalings by the agreement of witnesses, and return the scores of each; without rows, the conventions."""
    opinions = choose_options(list_witnesses(options), sums) if sums.any() else keep_conventions(options)
    taken = {opinion.view: SCALINGS[opinion.option] for opinion in opinions if opinion.taken}
    return [taken[view] for view in range(len(options))], opinions


def keep_conventions(options: Sequence[Sequence[str]]) -> list[Opinion]:
    """Return the scores where nothing was compared: all views have the first of their options."""
    return [Opinion(view, own[0], math.nan, taken=True) for view, own in enumerate(options)]


def choose_scalings(views: Views, sample_weight: FloatArray | None) -> tuple[list[Scaling], list[Opinion]]:
    """Choose the scaling of each view of one site, and give what was said for each of them."""
    moments = site_moments(views, [int(table.shape[1]) for table in views.tables], sample_weight=sample_weight)
    documents = [None if has_negative(table) else count_documents(table, sample_weight) for table in views.tables]
    without_total = [count_rows_without_total(table) for table in views.tables]
    described = zip(moments, documents, views.columns, without_total, strict=True)
    options = [find_options(*view) for view in described]
    references = references_from_moments(moments, views.names, SCALINGS[STANDARD], "uniform", columns=views.columns)
    witnesses, rows = list_witnesses(options), moments[0].total
    sums = compare_witnesses(views, references, witnesses, documents, rows, sample_weight=sample_weight)
    return read_choice(options, sums)
