"""The frame of all sites, chosen by clusters: how much those of one view agree with those of another, and with sites'.

A frame says how much of a site's own mean and spread is taken out of its rows. In the right one, clusters that are
found in each view alone are the same within sites, and those of all sites are those that a site finds alone. Agreement
is a number without any unit, so that frames can be compared. It needs counts of rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.agreement.opinions import Opinion
from fedhk.agreement.scalings import find_half
from fedhk.data.scaling import Reference
from fedhk.personal.calibration import scale_frame, trust_spread
from fedhk.starts.candidates import ROWS_PER_CANDIDATE, group_rows
from fedhk.starts.kmeans import group_sums, heat_lloyd, plus_plus, project_on_leading

# Overlaps of two clusters that are further than this many standard deviations from what chance gives have no
# probability that double precision could tell from 0.
DEVIATIONS = 12.0


def count_together(first: IntArray, second: IntArray, n_clusters: int) -> FloatArray:
    """Rows in each pair of clusters of two partitions, shape (c, c); such tables add over sites."""
    pairs = np.asarray(first) * n_clusters + np.asarray(second)
    counts = np.bincount(pairs, minlength=n_clusters**2)
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

# Shares of a site's own mean and spread that are tried, in the order in which equals are preferred. Half of the spread:
# it also holds which clusters a site has.
FRAMES = ((0.0, 0.0), (1.0, 0.5))

# The whole mean and spread that clusters leave of a site. Nothing of these follows from which clusters the site has, so
# that all of the spread is taken out, too.
REFINED = (1.0, 1.0)

# Frames whose agreement differs by less are equals, of which the first is taken: k-means varies by about that.
EQUAL = 0.02

# A frame is for sites that measure differently. Where more than half of what they differ by follows from which clusters
# they have, it would take out more of these than of anything else.
MOST_MIX = 0.5

# Means of rows that a site sends per cluster, for each witness.
MEANS_PER_CLUSTER = 2

# Starts of k-means to compare: the fewest and the most, and the multiplications that a pass of all of them may take.
LEAST_STARTS, MOST_STARTS, STARTS_WORK, PASSES = 4, 12, 2 * 10**7, 30

# Starts of a site that looks at its rows alone: it has few of them.
OWN_STARTS = 4

# Bandwidth of the distance: that of the model, in units in which rows are 1 from their mean.
HEAT_TIME = 0.3

# k-means looks at so many leading directions for each of its centres; the best centres lie nearly in as many.
DIRECTIONS = 2

# The choice does not depend on the seed of a fit.
SEED = 0


@dataclass(frozen=True)
class Witness:
    """Who partitions the rows: a view or half of its features, or all views, in a frame."""

    views: tuple[int, ...]
    half: int = -1  # 0 or 1 where a single view is split into halves of its features, else -1
    shift: float = 0.0  # share of a site's own mean that is taken out
    spread: float = 0.0  # share of its own spread, in views of which all features have the same variance
    alone: bool = False  # compared with what the site finds alone, and not with other witnesses
    refined: bool = False  # the shares are of the mean and spread that clusters leave

    @property
    def part(self) -> tuple[tuple[int, ...], int]:
        """What is clustered: witnesses of the same part do not speak for each other."""
        return self.views, self.half

    @property
    def frame(self) -> tuple[float, float]:
        """The shares of a site's own mean and spread that are taken out."""
        return self.shift, self.spread


def list_witnesses(n_views: int, frames: Iterable[tuple[float, float]] = FRAMES) -> tuple[Witness, ...]:
    """Witnesses of each view in each frame, and of all views together; a single view is two, with half its features."""
    halves = (0, 1) if n_views == 1 else (-1,)
    single = [Witness((v,), half, *frame) for frame in frames for v in range(n_views) for half in halves]
    joint = [Witness(tuple(range(n_views)), -1, *frame, alone=True) for frame in frames]
    return (*single, *joint)


def list_pairs(witnesses: Sequence[Witness]) -> list[tuple[int, int]]:
    """Pairs of witnesses that are compared: of different parts in one frame."""
    return [
        (i, j)
        for (i, first), (j, second) in combinations(enumerate(witnesses), 2)
        if not (first.alone or second.alone) and first.frame == second.frame and first.part != second.part
    ]


def list_mixes(witnesses: Sequence[Witness]) -> list[tuple[int, int]]:
    """Pairs without a frame: clusters of the second may explain offsets of the first. Each part is first once."""
    plain = [i for i, witness in enumerate(witnesses) if not witness.alone and witness.frame == FRAMES[0]]
    return list(zip(plain, [*plain[1:], *plain[:1]], strict=True)) if len(plain) > 1 else []


# ----------------------------------------------------------------------------------------------- partitions of one view


def read_points(table: Any, reference: Reference, half: int) -> FloatArray:
    """Rows of a view in model units, dense; NaN where a cell is missing."""
    dense = np.asarray(table.toarray() if sp.issparse(table) else table, np.float64)
    return reference.to_model(reference.form.dense(dense))[:, find_columns(reference.width, half)]


def find_columns(width: int, half: int) -> IntArray:
    """The features that a witness sees of a view of this width."""
    return np.arange(width) if half < 0 else find_half(width, half)


def calibrate_points(
    points: FloatArray, n_rows: float, shift: float, spread: float, *, numbers: BoolArray, common: float
) -> FloatArray:
    """Rows of a site without such shares of its own mean and spread; a missing cell is at the mean.

    A share of the spread is for rows of which all `numbers` have the same standard deviation over all sites, `common`.
    Other features are levels of categories, and stay as they are.
    """
    if not (shift or spread) or not len(points):
        return np.nan_to_num(points)
    seen = ~np.isnan(points)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.nan_to_num(points).sum(axis=0) / count
    squares = np.square(np.where(seen, points - mean, 0.0)).sum(axis=0) / count
    frame = np.stack([np.where(numbers, mean, 0.0), trust_spread(np.where(numbers, np.sqrt(squares) / common, 0.0))])
    taken, divide = scale_frame(frame, n_rows, shift, spread)
    return np.nan_to_num((points - taken) / divide)


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
    points: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState, partitions: int
) -> FloatArray:
    """Centres of the best k-means of some starts on means of rows, one partition after the other.

    There are none where all points are the same.
    """
    if not len(points) or not np.ptp(points, axis=0).any():
        return np.zeros((0, points.shape[1]))
    found = partition(points, weight, n_clusters, random_state, partitions=partitions)
    centers: list[FloatArray] = []
    for labels in found:
        sums, sizes = group_sums(points, weight, labels, min(n_clusters, len(points)))
        means = sums / np.maximum(sizes, 1e-300)[:, None]
        means[sizes == 0] = means[np.argmax(sizes)]  # a cluster without rows is another one, which is found first
        centers.append(means)
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
    return points if points.shape[1] <= count else project_on_leading(points, weight, count)


# ---------------------------------------------------------------------------------------------------------- the choice


@dataclass(frozen=True)
class Evidence:
    """What witnesses say: the agreement of each pair of `list_pairs`, and of those that are compared with sites."""

    witnesses: tuple[Witness, ...]
    pairs: Mapping[tuple[int, int], float]
    alone: Mapping[int, float]
    mix: float = 0.0  # part of what sites differ by that follows from which clusters they have

    @property
    def frames(self) -> list[tuple[float, float]]:
        """The frames, in the order in which they came."""
        return list(dict.fromkeys(witness.frame for witness in self.witnesses))

    def within(self, frame: tuple[float, float]) -> dict[tuple[int, int], float]:
        """The agreements of pairs in one frame."""
        return {pair: value for pair, value in self.pairs.items() if self.witnesses[pair[0]].frame == frame}


def choose_frame(evidence: Evidence) -> tuple[tuple[float, float], list[Opinion]]:
    """Choose the frame in which views agree most with each other, and clusters of all sites with those of sites alone.

    The first of those that are equals is taken: none, unless another gains. It is none, too, where sites differ by
    which clusters they have: each then finds clusters alone that common ones agree with once its mean is taken out.
    """
    between = {frame: float(np.mean(list(evidence.within(frame).values()) or [0.0])) for frame in evidence.frames}
    alone = {witness.frame: evidence.alone.get(i, 0.0) for i, witness in enumerate(evidence.witnesses) if witness.alone}
    total = {frame: between[frame] + alone.get(frame, 0.0) for frame in between}
    best = next(frame for frame in total if total[frame] >= max(total.values()) - EQUAL)
    taken = FRAMES[0] if evidence.mix > MOST_MIX else best
    note = f"{max(evidence.mix, 0):.0%} of what sites differ by follows from which clusters they have"
    opinions = [
        Opinion(
            -1,
            describe_frame(frame),
            between[frame],
            frame == taken,
            alone.get(frame, math.nan),
            note * (not any(frame)),
        )
        for frame in total
    ]
    return taken, opinions


def choose_refined(evidence: Evidence, opinions: Sequence[Opinion]) -> tuple[bool, list[Opinion]]:
    """Choose whether sites remove what clusters leave of their mean and spread, and not all of the mean.

    `opinions` are about the frames before. What clusters leave is taken only if it gains on the one that was taken.
    """
    between, alone = (float(np.mean(list(found.values()) or [0.0])) for found in (evidence.pairs, evidence.alone))
    before = next(opinion for opinion in opinions if opinion.taken)
    is_better = between + alone > before.agreement + before.alone + EQUAL
    refined = Opinion(-1, "mean and spread given clusters", between, is_better, alone)
    return is_better, [*(replace(own, taken=own.taken and not is_better) for own in opinions), refined]


def describe_frame(frame: tuple[float, float]) -> str:
    """A frame for its readers."""
    return f"mean {frame[0]:g}, spread {frame[1]:g}" if any(frame) else "none"


def keep_complete(witnesses: Sequence[Witness]) -> list[Witness]:
    """Witnesses of parts that could be clustered in all frames."""
    frames = {witness.frame for witness in witnesses}
    found = Counter((witness.part, witness.alone) for witness in witnesses)
    return [witness for witness in witnesses if found[witness.part, witness.alone] == len(frames)]
