"""Views as witnesses: how much the clusters of one view agree with those of another, from tables of counts.

Two views of the same rows that are clustered each by itself find the same groups only where the groups are there, and
only where each view is in units that show them. Agreement compares units that no objective can compare: it is a number
without any unit. It needs nothing but counts of rows, which add over sites.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from fedhk._typing import FloatArray, IntArray
from fedhk.data.moments import Moments
from fedhk.data.row_forms import UNIT_ROWS, count_documents, has_negative
from fedhk.data.scaling import SCALINGS, Reference, Scaling
from fedhk.data.views import Views
from fedhk.model.preparation import references_from_moments, site_moments
from fedhk.personal.calibration import scale_frame, trust_spread
from fedhk.starts.candidates import ROWS_PER_CANDIDATE, group_rows
from fedhk.starts.kmeans import group_sums, heat_lloyd, leading_directions, plus_plus
from fedhk.starts.seeding import distinct_rows

# Overlaps of two clusters that are further than this many standard deviations from what chance gives have no
# probability that double precision could tell from 0.
DEVIATIONS = 12.0


def count_together(first: IntArray, second: IntArray, n_clusters: int, weight: FloatArray | None = None) -> FloatArray:
    """Rows in each pair of clusters of two partitions, shape (c, c); such tables add over sites."""
    pairs = np.asarray(first) * n_clusters + np.asarray(second)
    counts = np.bincount(pairs, weights=weight, minlength=n_clusters**2)
    return counts.astype(np.float64).reshape(n_clusters, n_clusters)


def share_information(table: FloatArray) -> tuple[float, float]:
    """Information that two partitions share beyond chance, and the most they could, from their table of counts.

    Both are in nats, times the number of rows, so that they add over sites. What two partitions share *within* sites is
    not fooled by sites that lie apart: all views see that, and clusters that are sites would agree about nothing else.
    """
    first, second, total = table.sum(axis=1), table.sum(axis=0), float(table.sum())
    if not total > 0:
        return 0.0, 0.0
    entropies = [-float(xlogy(sizes / total, sizes / total).sum()) for sizes in (first, second)]
    expected = np.outer(first, second)
    ratio = np.divide(table * total, expected, out=np.zeros_like(table), where=expected > 0)
    information = float(xlogy(table / total, ratio).sum())
    chance = _chance_information(first, second) if min(entropies) > 0 else 0.0
    return total * (information - chance), total * max(float(np.mean(entropies)) - chance, 0.0)


def adjust(shared: float, most: float) -> float:
    """Adjusted mutual information, from what `share_information` gives: 1 for the same clusters, about 0 by chance.

    Of one table it is scikit-learn's `adjusted_mutual_info_score`; of the sums of several sites, the agreement of
    partitions given the site. Partitions with one cluster say nothing, and agree with none: 0.
    """
    return 0.0 if most <= 1e-12 else float(np.clip(shared / most, -1.0, 1.0))


def _chance_information(first: FloatArray, second: FloatArray) -> float:
    """Mutual information to be expected of partitions with clusters of these sizes, by chance (hypergeometric)."""
    (a, many_a), (b, many_b) = (np.unique(np.rint(sizes), return_counts=True) for sizes in (first, second))
    total = max(np.rint(first).sum(), np.rint(second).sum())
    a, b = (part.ravel() for part in np.meshgrid(a, b, indexing="ij"))
    pairs = np.outer(many_a, many_b).ravel()
    mean = a * b / total
    far = DEVIATIONS * (1.0 + np.sqrt(mean))
    low = np.maximum(np.maximum(np.floor(mean - far), a + b - total), 1.0)
    high = np.minimum(np.ceil(mean + far), np.minimum(a, b))
    steps = np.arange(max(float(np.max(high - low, initial=0.0)), 0.0) + 1)
    overlap = low[:, None] + steps
    inside = overlap <= high[:, None]
    overlap = np.where(inside, overlap, low[:, None])
    a, b = a[:, None], b[:, None]
    log_chance = (
        gammaln(a + 1)
        + gammaln(b + 1)
        + gammaln(total - a + 1)
        + gammaln(total - b + 1)
        - gammaln(total + 1)
        - gammaln(overlap + 1)
        - gammaln(np.maximum(a - overlap, 0) + 1)
        - gammaln(np.maximum(b - overlap, 0) + 1)
        - gammaln(np.maximum(total - a - b + overlap, 0) + 1)
    )
    with np.errstate(divide="ignore"):
        gain = overlap / total * np.log(overlap * total / np.maximum(a * b, 1e-300))
    possible = inside & (a > 0) & (b > 0)
    return float(pairs @ np.where(possible, np.exp(log_chance) * gain, 0.0).sum(axis=1))


# ------------------------------------------------------------------------------------------------ what can be chosen

# What a view is tried under, in the order in which equals are preferred; and rows as the references of a run say.
OPTIONS, GIVEN = ("standard", "none", "l2", "root", "tfidf"), "given"

# Shares of a site's own mean and spread that are tried, in the order in which equals are preferred. Half of the spread:
# it also holds which clusters a site has.
FRAMES = ((0.0, 0.0), (1.0, 0.5))

# What a view's agreement with the others must gain over z-scores. Read off generated federations, with an earlier form
# of the rule, between gains of wrong and right choices.
LEAST_GAIN = 0.08

# Choices whose agreement differs by less are equals, of which the first is taken: k-means varies by about that.
EQUAL = 0.02

# A scaling under which one feature has more than this share of the variance is not tried: clusters would be those of
# the feature, and two views agree about one size that both measure.
LARGEST_SHARE = 0.5

# Words are missing in most documents: where fewer cells than this are 0, weights of words say nothing.
LEAST_ZEROS = 0.5

# Means of rows that a site sends per cluster, for each view and scaling.
MEANS_PER_CLUSTER = 2

# Starts of k-means to compare: the fewest and the most, and the multiplications that a pass of all of them may take.
LEAST_STARTS, MOST_STARTS, STARTS_WORK, PASSES = 4, 12, 2 * 10**7, 30

# Starts of a site that looks at its rows alone: it has few of them.
OWN_STARTS = 4

# Bandwidth of the distance: that of the model, in units in which rows are 1 from their mean.
HEAT_TIME = 0.3

# Rows that a site looks at, and at least so many for each cluster: agreement is known to a few hundredths then.
SAMPLE_ROWS, ROWS_PER_CLUSTER = 1024, 20

# k-means looks at so many leading directions for each of its centres; the best centres lie nearly in as many.
DIRECTIONS = 2

# Choices that are all compared; where there are more, scalings that promise little are left out.
MOST_COMBINATIONS = 10**6

# The choice of units does not depend on the seed of a fit.
SEED = 0


@dataclass(frozen=True)
class Witness:
    """Who partitions the rows: a view or half of its features, or all views, under scalings and in a frame."""

    views: tuple[int, ...]
    options: tuple[str, ...]  # short form of the scaling of each view, or `GIVEN`
    half: int = -1  # 0 or 1 where a single view is split into halves of its features, else -1
    shift: float = 0.0  # share of a site's own mean that is taken out
    spread: float = 0.0  # share of its own spread, in views of which all features have the same variance
    alone: bool = False  # compared with what the site finds alone, and not with other witnesses

    @property
    def part(self) -> tuple[tuple[int, ...], int]:
        """What is clustered: witnesses of the same part do not speak for each other."""
        return self.views, self.half

    @property
    def frame(self) -> tuple[float, float]:
        """The shares of a site's own mean and spread that are taken out."""
        return self.shift, self.spread


def find_options(moments: Moments, documents: FloatArray | None) -> tuple[str, ...]:
    """Scalings that a view can be tried under, from its moments and the rows in which each feature is above 0.

    Where one feature has most of the variance, features share no unit, and a row has no length. `documents` is None
    where a cell is negative. Where a cell is missing, the length of its row is not known. Where
    most cells are 0, as in text, one scale for all would compare the lengths of documents.
    """
    variance = moments.variance
    if np.all(moments.constant) or variance.max() > LARGEST_SHARE * variance.sum():
        return OPTIONS[:1]
    if np.any(moments.weight < moments.rows * (1 - 1e-9)):
        return OPTIONS[:2]
    if documents is None:
        return OPTIONS[:3]
    is_text = documents.sum() < (1 - LEAST_ZEROS) * moments.weight.sum()
    return ("standard", "l2", "root", "tfidf") if is_text else OPTIONS[:4]


def list_witnesses(
    options: Sequence[Sequence[str]], frames: Iterable[tuple[float, float]] = FRAMES[:1]
) -> tuple[Witness, ...]:
    """Witnesses of all views under all scalings; a single view is two witnesses, each with half of its features."""
    halves = (0, 1) if len(options) == 1 else (-1,)
    return tuple(
        Witness((view,), (option,), half, *frame)
        for frame in frames
        for view, own in enumerate(options)
        for half in halves
        for option in own
    )


def list_frame_witnesses(n_views: int, frames: Iterable[tuple[float, float]]) -> tuple[Witness, ...]:
    """Witnesses of all views as they are read in each frame, and of all views together."""
    whole = Witness(tuple(range(n_views)), (GIVEN,) * n_views, alone=True)
    joint = [replace(whole, shift=shift, spread=spread) for shift, spread in frames]
    return (*list_witnesses([(GIVEN,)] * n_views, frames), *joint)


def list_pairs(witnesses: Sequence[Witness]) -> list[tuple[int, int]]:
    """Pairs of witnesses that are compared: of different parts in one frame, and halves of a view under one scaling."""
    return [
        (i, j)
        for (i, first), (j, second) in combinations(enumerate(witnesses), 2)
        if not (first.alone or second.alone)
        and first.frame == second.frame
        and first.part != second.part
        and (first.views != second.views or first.options == second.options)
    ]


# ----------------------------------------------------------------------------------------------- partitions of one view


def read_points(
    table: Any, reference: Reference, option: str, half: int, *, documents: FloatArray | None = None, rows: float = 0
) -> FloatArray:
    """Rows of a view under a scaling, dense; NaN where a cell is missing.

    Z-scores, and what is `GIVEN`, are as the reference says. Other scalings begin from rows as they come; the mean of
    all rows is that of the reference.
    """
    columns = np.arange(reference.width)
    dense = np.asarray(table.toarray() if sp.issparse(table) else table, np.float64)
    if half >= 0:
        columns = np.sort(np.random.RandomState(SEED).permutation(columns)[half::2])
    if option in (OPTIONS[0], GIVEN):
        return reference.to_model(reference.form.dense(dense))[:, columns]
    dense, scaling = dense[:, columns], SCALINGS[option]
    if scaling.unit_rows:
        words = documents[columns] if scaling.weighs_words and documents is not None else np.zeros(0)
        return scaling.form(words, rows).dense(dense)
    return (dense - reference.known_shift[columns]) / np.where(np.isfinite(reference.scale[columns]), 1.0, np.inf)


def calibrate_points(points: FloatArray, n_rows: float, shift: float, spread: float) -> FloatArray:
    """Rows of a site without such shares of its own mean and spread; a missing cell is at the mean.

    A share of the spread is for rows in model units of which all features have the same variance.
    """
    if not (shift or spread) or not len(points):
        return np.nan_to_num(points)
    seen = ~np.isnan(points)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.nan_to_num(points).sum(axis=0) / count
    squares = np.square(np.where(seen, points - mean, 0.0)).sum(axis=0) / count
    ratio = np.sqrt(squares * max(int(np.count_nonzero(squares)), 1))
    taken, divide = scale_frame(np.stack([mean, trust_spread(ratio)]), n_rows, shift, spread)
    return np.nan_to_num((points - taken) / divide)


def choose_sample(n_rows: int, n_clusters: int) -> IntArray:
    """Rows that a site looks at: all, or evenly spaced ones where they are many."""
    most = max(SAMPLE_ROWS, ROWS_PER_CLUSTER * n_clusters)
    return np.arange(n_rows) if n_rows <= most else np.linspace(0, n_rows - 1, most).astype(np.int64)


def count_columns(width: int, half: int) -> int:
    """Features that a witness sees of a view of this width."""
    return width if half < 0 else (width + 1 - half) // 2


def find_means(
    points: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState, least_rows: int
) -> tuple[FloatArray, FloatArray]:
    """Means of groups of a site's rows, none of fewer than `least_rows` rows, and the weights of the groups."""
    if len(points) < least_rows:
        return np.zeros((0, points.shape[1])), np.zeros(0)
    count = max(1, min(MEANS_PER_CLUSTER * n_clusters, len(points) // ROWS_PER_CANDIDATE))
    few = _reduce(points, weight, count)
    seeds = few[random_state.choice(len(few), count, replace=False)]  # many groups need no better seeds
    groups = group_rows(few, weight, seeds, least_rows)
    sums, sizes = group_sums(points, weight, groups, int(groups.max()) + 1)
    return sums[sizes > 0] / sizes[sizes > 0, None], sizes[sizes > 0]


def find_centers(
    points: FloatArray,
    weight: FloatArray,
    n_clusters: int,
    witness: Witness,
    random_state: np.random.RandomState,
    *,
    partitions: int = 1,
) -> FloatArray:
    """Centres of the best k-means of some starts on means of rows, or on rows; one partition after the other.

    There are none where all points are the same, or where one feature would decide alone. Where rows have length 1,
    means and centres get it too: the mean of rows that differ is short, and near to all.
    """
    nothing: FloatArray = np.zeros((0, points.shape[1]))
    if not len(points):
        return nothing
    unit = all(option in SCALINGS and SCALINGS[option].unit_rows for option in witness.options)
    points = UNIT_ROWS.dense(points) if unit else points
    spread = weight @ np.square(points - weight @ points / weight.sum())
    scaled = all(option in (OPTIONS[0], GIVEN) for option in witness.options)
    if not spread.sum() > 0 or (not scaled and spread.max() > LARGEST_SHARE * spread.sum()):
        return nothing
    found = partition(points, weight, n_clusters, random_state, partitions=partitions)
    centers: list[FloatArray] = []
    for labels in found:
        sums, sizes = group_sums(points, weight, labels, min(n_clusters, len(points)))
        means = sums / np.maximum(sizes, 1e-300)[:, None]
        means[sizes == 0] = means[np.argmax(sizes)]  # a cluster without rows is another one, which is found first
        centers.append(UNIT_ROWS.dense(means) if unit else means)
    return np.vstack(centers)


def partition(
    points: FloatArray,
    weight: FloatArray,
    n_clusters: int,
    random_state: np.random.RandomState,
    *,
    partitions: int = 1,
    most_starts: int = MOST_STARTS,
) -> list[IntArray]:
    """The best partitions of points into clusters, of some starts; with the distance of the model, which is bounded."""
    count = min(n_clusters, len(points))
    few = _reduce(points, weight, count)
    few = few - weight @ few / weight.sum()
    few = few / math.sqrt(max(float(weight @ np.square(few).sum(axis=1) / weight.sum()), 1e-300))
    starts = int(np.clip(STARTS_WORK // (few.size * count), LEAST_STARTS, most_starts))
    trials = []
    for start in range(starts):  # half of them at random: greedy seeds are drawn to outliers
        drawn = few[random_state.choice(len(few), count, replace=False)] if start % 2 else None
        seeds = plus_plus(few, weight, count, random_state) if drawn is None else drawn
        trials.append(heat_lloyd(few, weight, seeds, PASSES, HEAT_TIME))
    best = sorted(trials, key=itemgetter(2))[:partitions]
    return [labels for _, labels, _ in best]


def _reduce(points: FloatArray, weight: FloatArray, n_centers: int) -> FloatArray:
    """Points in the few directions that matter to so many centres."""
    count = DIRECTIONS * n_centers
    return points if points.shape[1] <= count else leading_directions(points, weight, count)


def find_nearest(points: FloatArray, centers: FloatArray) -> IntArray:
    """The nearest centre of each row."""
    return np.asarray((np.square(centers).sum(axis=1) - 2 * points @ centers.T).argmin(axis=1))


# ---------------------------------------------------------------------------------------------------------- the choice


@dataclass(frozen=True)
class Opinion:
    """What is said for one scaling of one view, or for one frame."""

    view: int  # -1 for a frame
    option: str
    agreement: float  # between views: of a view with the others under what is taken of them, or of all pairs
    taken: bool
    alone: float = math.nan  # with what sites find alone; of frames only


@dataclass(frozen=True)
class Evidence:
    """What witnesses say: the agreement of each pair of `list_pairs`, and of those that are compared with sites."""

    witnesses: tuple[Witness, ...]
    pairs: Mapping[tuple[int, int], float]
    alone: Mapping[int, float]

    @property
    def frames(self) -> list[tuple[float, float]]:
        """The frames, in the order in which they came."""
        return list(dict.fromkeys(witness.frame for witness in self.witnesses))

    def within(self, frame: tuple[float, float]) -> dict[tuple[int, int], float]:
        """The agreements of pairs in one frame."""
        return {pair: value for pair, value in self.pairs.items() if self.witnesses[pair[0]].frame == frame}


def choose_frame(evidence: Evidence) -> tuple[tuple[float, float], list[Opinion]]:
    """Choose the frame in which views agree most with each other, and clusters of all sites with those of sites alone.

    The first of those that are equals is taken: none, unless another gains.
    """
    between = {frame: float(np.mean(list(evidence.within(frame).values()) or [0.0])) for frame in evidence.frames}
    alone = {witness.frame: evidence.alone.get(i, 0.0) for i, witness in enumerate(evidence.witnesses) if witness.alone}
    total = {frame: between[frame] + alone.get(frame, 0.0) for frame in between}
    taken = next(frame for frame in total if total[frame] >= max(total.values()) - EQUAL)
    opinions = [
        Opinion(-1, describe_frame(frame), between[frame], frame == taken, alone.get(frame, math.nan))
        for frame in total
    ]
    return taken, opinions


def describe_frame(frame: tuple[float, float]) -> str:
    """A frame for its readers."""
    return f"mean {frame[0]:g}, spread {frame[1]:g}" if any(frame) else "none"


def choose_options(evidence: Evidence) -> list[Opinion]:
    """Choose the scaling of each view under which views agree most; z-scores unless others gain `LEAST_GAIN`.

    Views are chosen together: two views of text agree about nothing until both are in units that show it. A choice
    stands where each view that has not z-scores would lose by going back to them. It is made in the frame in which
    views agree most.
    """
    witnesses = evidence.witnesses
    options: dict[int, list[str]] = {}
    for witness in witnesses:
        known = options.setdefault(witness.views[0], [])
        if witness.options[0] not in known:
            known.append(witness.options[0])
    _limit(options, witnesses, evidence.pairs)
    choices = [_Choices(options, witnesses, evidence.within(frame)) for frame in evidence.frames]
    bests = [each.best() for each in choices]
    values = [float(each.agreement(None)[best]) for each, best in zip(choices, bests, strict=True)]
    place = next(i for i, value in enumerate(values) if value >= max(values) - EQUAL)
    best, opinions = bests[place], []
    for axis, (view, own) in enumerate(options.items()):
        agreement = choices[place].agreement(view)
        for number, option in enumerate(own):
            others = (*best[:axis], number, *best[axis + 1 :])
            opinions.append(Opinion(view, option, float(agreement[others]), number == best[axis]))
    return opinions


def _limit(
    options: dict[int, list[str]], witnesses: Sequence[Witness], agreements: Mapping[tuple[int, int], float]
) -> None:
    """Take out the scalings that promise least over z-scores, while there are too many choices to compare all."""
    promise: dict[tuple[int, str], list[float]] = {}
    for pair, agreement in agreements.items():
        for place in pair:
            promise.setdefault((witnesses[place].views[0], witnesses[place].options[0]), []).append(agreement)
    mean = {key: float(np.mean(values)) for key, values in promise.items()}
    gains = sorted((mean[key] - mean.get((key[0], OPTIONS[0]), 0.0), key) for key in mean if key[1] != OPTIONS[0])
    for _, (view, option) in gains:
        if math.prod(map(len, options.values())) <= MOST_COMBINATIONS:
            return
        options[view].remove(option)


class _Choices:
    """All choices of a scaling for each view, as arrays with one axis per view; z-scores are at place 0."""

    def __init__(
        self,
        options: dict[int, list[str]],
        witnesses: Sequence[Witness],
        agreements: Mapping[tuple[int, int], float],
    ) -> None:
        self.views, self.options = list(options), options
        self._by_pair: dict[tuple[Any, Any], FloatArray] = {}
        for (i, j), agreement in agreements.items():
            (first, one), (second, two) = ((witnesses[k].views[0], witnesses[k].options[0]) for k in (i, j))
            if one not in options[first] or two not in options[second]:
                continue
            shape = len(options[first]), len(options[second])
            known = self._by_pair.setdefault((witnesses[i].part, witnesses[j].part), np.zeros(shape))
            known[options[first].index(one), options[second].index(two)] = agreement

    def best(self) -> tuple[int, ...]:
        """Place of the scaling of each view: the most agreement among the choices that no view would rather leave."""
        total, stands = self.agreement(None), np.array(True)
        for axis, view in enumerate(self.views):
            own = self.agreement(view)
            gain = own - np.take(own, [0], axis=axis)
            gain[(slice(None),) * axis + (0,)] = np.inf  # z-scores need not gain anything
            stands = stands & (gain >= LEAST_GAIN)
        value = np.where(stands, total, -np.inf)
        return tuple(map(int, np.unravel_index(int(np.argmax(value >= value.max() - EQUAL)), total.shape)))

    def agreement(self, view: int | None) -> FloatArray:
        """Mean agreement of a view with the others, or of all pairs of views."""
        ends = {pair: (pair[0][0][0], pair[1][0][0]) for pair in self._by_pair}
        pairs = [pair for pair, views in ends.items() if view is None or view in views]
        shape = [len(own) for own in self.options.values()]
        whole: FloatArray = np.zeros(shape)
        for pair in pairs:
            first, second = (self.views.index(end) for end in ends[pair])
            known, axes = self._by_pair[pair], [1] * len(shape)
            if first == second:  # halves of one view, under the same scaling
                known, axes[first] = np.diag(known), shape[first]
            else:
                axes[first], axes[second] = shape[first], shape[second]
            whole = whole + known.reshape(axes) / len(pairs)
        return whole


# ---------------------------------------------------------------------------------------------------------- at one site


def choose_scalings(
    views: Views, n_clusters: int, sample_weight: FloatArray | None
) -> tuple[list[Scaling], list[Opinion]]:
    """Choose the scaling of each view of one site, and give what was said for each of them."""
    widths = [int(table.shape[1]) for table in views.tables]
    moments = site_moments(views, widths, sample_weight=sample_weight)
    documents = [None if has_negative(table) else count_documents(table, sample_weight) for table in views.tables]
    total = moments[0].total
    options = [find_options(view, counts) for view, counts in zip(moments, documents, strict=True)]
    if n_clusters < 2 or all(len(own) == 1 for own in options):
        return [SCALINGS[OPTIONS[0]]] * len(widths), keep_standard(len(widths))
    references = references_from_moments(moments, views.names, SCALINGS[OPTIONS[0]], "uniform", columns=views.columns)
    sample, weight = _distinct_sample(views, n_clusters, sample_weight)
    found: dict[Witness, IntArray] = {}
    for witness in list_witnesses(options):
        view, option = witness.views[0], witness.options[0]
        table = views.tables[view][sample]
        own = read_points(table, references[view], option, witness.half, documents=documents[view], rows=total)
        points = np.nan_to_num(own)
        centers = find_centers(points, weight, n_clusters, witness, np.random.RandomState(SEED))
        if len(centers):
            found[witness] = find_nearest(points, centers)
    witnesses = keep_complete(list(found))
    tables = {
        (i, j): count_together(found[witnesses[i]], found[witnesses[j]], n_clusters, weight)
        for i, j in list_pairs(witnesses)
    }
    agreements = {pair: adjust(*share_information(table)) for pair, table in tables.items()}
    return read_choice(len(widths), Evidence(tuple(witnesses), agreements, {}))


def _distinct_sample(views: Views, n_clusters: int, sample_weight: FloatArray | None) -> tuple[IntArray, FloatArray]:
    """Different rows among those that are looked at, and their weights: a row of weight 2 is the same as two rows."""
    sample = choose_sample(views.n_rows, n_clusters)
    keys: FloatArray = np.zeros((len(sample), len(views.tables)))
    for view, table in enumerate(views.tables):
        part = table[sample]
        known = part if sp.issparse(part) else np.nan_to_num(part)
        keys[:, view] = known @ np.cos(np.arange(part.shape[1]))
    first, weight = distinct_rows(keys, None if sample_weight is None else sample_weight[sample])
    return sample[first], weight


def keep_complete(witnesses: Sequence[Witness]) -> list[Witness]:
    """Witnesses whose scaling could be tried on all parts of their view, in all frames."""
    parts = {(witness.part, witness.frame) for witness in witnesses}
    wanted = {part[0]: sum(other[0] == part[0] for other, _ in parts) for part, _ in parts}
    found: dict[tuple[Any, Any], int] = {}
    for witness in witnesses:
        key = witness.views, witness.options
        found[key] = found.get(key, 0) + 1
    return [w for w in witnesses if found[w.views, w.options] == wanted[w.views]]


def read_choice(n_views: int, evidence: Evidence) -> tuple[list[Scaling], list[Opinion]]:
    """The scalings that follow from what witnesses say; z-scores where a view has no partition."""
    opinions = choose_options(evidence) if evidence.pairs else []
    taken = {opinion.view: opinion.option for opinion in opinions if opinion.taken}
    silent = [Opinion(view, OPTIONS[0], 0.0, taken=True) for view in range(n_views) if view not in taken]
    scalings = [SCALINGS[taken.get(view, OPTIONS[0])] for view in range(n_views)]
    return scalings, sorted([*opinions, *silent], key=lambda opinion: opinion.view)


def keep_standard(n_views: int) -> list[Opinion]:
    """What is said where nothing was compared: all views have z-scores."""
    return [Opinion(view, OPTIONS[0], math.nan, taken=True) for view in range(n_views)]
