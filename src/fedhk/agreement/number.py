"""How many clusters there are: heat stays in them, and views agree on where.

Points that stand for rows, such as the means of small groups that sites send for a start, are tied to their neighbours,
in each view and in all views together. Heat that spreads along the ties stays in k directions where there are k
clusters, whatever their shape, and leaves the next one: there is a gap in the eigenvalues. What the gap of a number of
clusters is worth is how far the same directions come out of each view by itself. Whether there are clusters at all is
tested against points of one normal distribution with the same spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy.linalg
from scipy.special import stdtr, stdtrit

from fedhk._random import seeded
from fedhk._records import Records
from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.levels import find_numbers
from fedhk.embedding.affinity import nearest_shares
from fedhk.embedding.anchors import complete_candidates
from fedhk.embedding.options import Diffusion
from fedhk.model.rows import Rows, joint_rows, split_joint
from fedhk.starts.candidates import KMEANS_PASSES, LEAST_ROWS, candidate_rows, site_candidates
from fedhk.starts.kmeans import group_sums, lloyd, project_on_leading

# Points are tied to so many neighbours, and the mean of these ties counts: one of them alone is less steady
# (benchmarks/results/number.md has what was tried).
NEIGHBOURS = (5, 7, 10, 15)

# Directions in which a view is looked at, and points at most: of more some are drawn.
N_DIRECTIONS, MOST_POINTS = 30, 500

# Points for each cluster of the largest number that is tried: with fewer, even the nearest neighbours are of other
# clusters. So few clusters are tried of any points.
POINTS_PER_CLUSTER, FEW_CLUSTERS = NEIGHBOURS[0], 15

# Draws of one normal distribution, and rows for one of its points at most.
DRAWS, ROWS_PER_POINT = 16, 10

# What one more draw is above the mean of the draws, over their standard deviation, is distributed as t but so much
# wider. It exceeds SURE with a probability of .001.
WIDER = math.sqrt(1.0 + 1.0 / DRAWS)
SURE = WIDER * float(stdtrit(DRAWS - 1, 0.999))

# Least agreement within sites: below it, the directions of heat say which site a row is of, or nothing.
LEAST_AGREEMENT = 0.05

# Clusters may be apart and still mix slowly within, as half moons, rings and groups of one number do: then no gap is as
# large as this one, or none that is large is sure, and heat leaves the direction after the last cluster so many times
# faster. It counts only where views agree on it nearly as much as one view does with itself.
SMALL_GAP, APART, NEARLY_ALL = 0.1, 3.0, 0.9

# Rows were grouped by all columns. Where levels are left out, a group of one level may have rows of two clusters, and
# its mean lies between them, where no row is. Points whose rows are so many times farther from them than those of three
# quarters of the points (mean squares) are left out. On generated tables 8 and 64 were about as good as 16.
MIXED, MOST_OF_THEM = 16.0, 0.75

# A number is clear where no other one has more than this share of its score.
CLEAR_SHARE = 0.5

# So many of the numbers that come near are named; more would not help to choose.
MOST_NAMED = 3

# Rates at which heat leaves are compared above this one: below it, ties between clusters are single ones.
LEAST_RATE = 1e-4

# Standard deviations below this one are taken for it: eight draws may come out alike by chance.
LEAST_SPREAD = 1e-3

# Rows whose squared distances, in model units, are below this one differ by rounding only.
LEAST_SQUARE = 1e-12

ONE = "one cluster: no parts of the rows are surely more separated than those of one normal cloud"
CLEAR = "no other number comes near, and {}"
STEP = "these clusters are far more separated than parts of one normal cloud, and {}"
VALUES = "rows have as many different values, and no others"
CODES = "; but cells with codes for missing values (`deviations_`) may have made these clusters: empty them, fit again"
SEVERAL, ALONE = "views agree", "only one view shows it"
NOT_CLEAR = "no clear number"
UNCLEAR = NOT_CLEAR + ": {} more than half of its score"


@dataclass(frozen=True)
class TriedNumber:
    """What speaks for a number of clusters.

    Parameters
    ----------
    n_clusters : int
        The number.
    gap : float
        Share of the heat that stays in the direction of the last cluster and leaves the next direction, in one step.
    agreement : float
        How far the directions in which heat stays are the same in every view by itself: 1 for the same, 0 for chance.
        Where they are the same only because they say which site a row is of, it is what is left of it within sites.
    slowing : float
        How many times faster heat leaves the next direction.
    evidence : float
        How much longer heat stays in as many directions than in draws of one normal distribution, in standard
        deviations of these.
    views : int
        How many views were looked at and compared; 0 where it is enough to count the different values of rows.
    """

    n_clusters: int
    gap: float
    agreement: float
    slowing: float
    evidence: float
    views: int

    @property
    def score(self) -> float:
        """The gap times the agreement."""
        return self.gap * max(self.agreement, 0.0)


def choose_number(tried: Sequence[TriedNumber]) -> tuple[int, str]:
    """The number of clusters, and why.

    It is the one with the largest score. Where that has a small gap, or is no more than chance gives, it is the one
    after which heat leaves much faster, if that is more than chance. Else it is one cluster.
    """
    agreed = [one for one in tried if one.agreement > LEAST_AGREEMENT]
    if not agreed:
        return 1, ONE
    best = max(agreed, key=lambda one: one.score)
    steps = [one for one in agreed if one.agreement > NEARLY_ALL and one.slowing > APART]
    sure = [one for one in steps if one.evidence > SURE]
    # where a larger step may be chance, a small gap may be, too
    larger = best.gap < SMALL_GAP and any(one.slowing > APART * best.slowing for one in steps)
    if sure and (best.gap < SMALL_GAP or best.evidence <= SURE):
        slowest = max(sure, key=lambda one: one.slowing)
        if slowest is not best:
            return slowest.n_clusters, _say(STEP, slowest)
    elif best.evidence <= SURE or larger:
        return 1, ONE
    near = [one for one in tried if one is not best and one.score >= CLEAR_SHARE * best.score]
    return best.n_clusters, _name_rivals(near) if near else _say(CLEAR, best)


def _say(sentence: str, one: TriedNumber) -> str:
    """Say what was looked at."""
    return VALUES if one.views == 0 else sentence.format(SEVERAL if one.views > 1 else ALONE)


def _name_rivals(near: Sequence[TriedNumber]) -> str:
    """Say which numbers are nearly as good as the one that is taken, the best ones first."""
    first = sorted(near, key=lambda one: -one.score)[:MOST_NAMED]
    names = [str(one.n_clusters) for one in first] + ["others"] * (len(near) > MOST_NAMED)
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return UNCLEAR.format(f"{listed} {'has' if len(near) == 1 else 'have'}")


def describe_selection(tried: Sequence[TriedNumber]) -> Records:
    """The numbers that were tried as records: n_clusters, gap, agreement, slowing, evidence, score, taken, note."""
    chosen, why = choose_number(tried)
    shown = [{name: value for name, value in vars(one).items() if name != "views"} for one in tried]
    lines: list[dict[str, Any]] = [
        line | {"score": one.score, "taken": one.n_clusters == chosen} for line, one in zip(shown, tried, strict=True)
    ]
    if chosen == 1:
        nothing = dict.fromkeys(("gap", "agreement", "slowing", "evidence", "score"))
        lines.insert(0, {"n_clusters": 1, **nothing, "taken": True})
    return Records(line | {"note": why if line["taken"] else ""} for line in lines)


def doubt_selection(selection: Records) -> Records:
    """Add to the note on the number that was taken that rows have codes for missing values."""
    return Records(line | {"note": line["note"] + CODES if line["taken"] else line["note"]} for line in selection)


def count_points(largest: int) -> int:
    """How many points are looked at for so many clusters at most."""
    return max(MOST_POINTS, POINTS_PER_CLUSTER * largest)


@dataclass(frozen=True, eq=False)
class Points:
    """Points that stand for rows, each view in its leading directions."""

    views: tuple[FloatArray, ...]  # of shape (m, q_h)
    sizes: FloatArray  # rows of each point
    sites: IntArray  # the site of each point
    alike: bool = False  # whether the rows of each point are all alike

    @classmethod
    def of(cls, candidates: Rows, sites: IntArray, columns: Sequence[Any], largest: int, seed: int) -> Points:
        """Points from candidates; of too many some are drawn.

        Levels of categories are left out where there are numbers: between zero and one there are never rows, in any
        cluster.
        """
        rows = complete_candidates(candidates)
        chosen = np.sort(seeded(seed).permutation(rows.n_rows)[: count_points(largest)])
        joint = joint_rows(rows).astype(np.float64)[chosen]
        sizes = np.ones(len(joint)) if rows.sample_weight is None else np.asarray(rows.sample_weight)[chosen]
        kept = [find_numbers(names, width) for names, width in zip(columns, rows.widths, strict=True)]
        if not any(part.any() for part in kept):
            kept = [np.ones(width, bool) for width in rows.widths]
        if rows.spread is not None and not all(part.all() for part in kept):
            close = _are_close(rows.spread[chosen])
            chosen, joint, sizes = chosen[close], joint[close], sizes[close]
        parts = zip(split_joint(joint, rows.widths), kept, strict=True)
        views = (project_on_leading(part[:, some], sizes, N_DIRECTIONS) for part, some in parts if some.any())
        alike = rows.spread is not None and bool(np.all(rows.spread < LEAST_SQUARE))
        return cls(tuple(views), sizes, sites[chosen], alike)

    def centre_sites(self) -> Points:
        """Points from which each site has taken its mean."""
        return Points(tuple(_centre(view, self.sites, self.sizes) for view in self.views), self.sizes, self.sites)

    def draw_cloud(self, seed: int) -> Points:
        """Points of one normal distribution with the same spread, as sites would make them of as many rows."""
        random, widths = seeded(seed), [view.shape[1] for view in self.views]
        joint = np.hstack(self.views)
        joint = joint - np.average(joint, axis=0, weights=self.sizes)
        values, axes = np.linalg.eigh((joint.T * self.sizes) @ joint / self.sizes.sum())
        lengths = np.sqrt(np.maximum(values, 0.0))
        parts, weights = [], []
        for site in np.unique(self.sites):
            own = self.sizes[self.sites == site]
            count = len(own)
            rows = random.normal(size=(int(np.clip(round(own.sum()), count, ROWS_PER_POINT * count)), len(lengths)))
            labels = lloyd(rows * lengths, np.ones(len(rows)), rows[:count] * lengths, KMEANS_PASSES)[1]
            sums, sizes = group_sums(rows, np.ones(len(rows)), labels, count)
            filled = sizes >= min(LEAST_ROWS, sizes.max())
            parts.append(sums[filled] / sizes[filled, None])
            weights.append(sizes[filled])
        drawn, weight = np.vstack(parts), np.concatenate(weights)
        drawn = drawn - np.average(drawn, axis=0, weights=weight)
        drawn = drawn / np.sqrt(np.maximum(np.average(drawn**2, axis=0, weights=weight), 1e-300))
        sites = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return Points(tuple(split_joint(drawn * lengths @ axes.T, widths)), weight, sites)


def _are_close(spread: FloatArray) -> BoolArray:
    """Tell whether the rows of each point are near it, by their mean squared distances in each view, (m, s)."""
    usual = np.maximum(np.quantile(spread, MOST_OF_THEM, axis=0), LEAST_SQUARE)
    return np.asarray(np.all(spread <= MIXED * usual, axis=1))


@dataclass(frozen=True, eq=False)
class Graph:
    """How points are tied to their neighbours, and how far apart they are, in each view."""

    ties: tuple[FloatArray, ...]  # of shape (m, m), symmetric
    distances: tuple[FloatArray, ...]

    @classmethod
    def of(cls, points: Points) -> Graph:
        """Tie points in each view."""
        distances = tuple(_measure_distances(view) for view in points.views)
        return cls(tuple(map(tie_points, distances)), distances)

    def spread_heat(self, views: Sequence[int], count: int) -> tuple[FloatArray, FloatArray]:
        """The largest eigenvalues of heat on the ties of some views, and its eigenvectors but the first, largest first.

        The first eigenvector is that of heat which is spread evenly. It is taken out before the others are looked for:
        where clusters have no ties between them, they have the same eigenvalue, 1, and could not be told from it.
        """
        ties = sum((self.ties[view] for view in views), np.zeros(())) / len(views)
        if len(views) > 1:
            together = tie_points(np.sum([self.distances[view] for view in views], axis=0))
            share = Diffusion.joint_weight
            ties = share * together + (1.0 - share) * ties
        roots = np.sqrt(np.maximum(ties.sum(axis=0), 1e-12))
        even = roots / np.linalg.norm(roots)
        last = len(ties) - 1
        heat = ties / roots[:, None] / roots - np.outer(even, even)
        values, vectors = scipy.linalg.eigh(heat, subset_by_index=[max(last - count + 1, 0), last])
        values = np.concatenate([[1.0], np.clip(values[::-1], 0.0, 1.0)])
        return np.pad(values, (0, count + 1 - len(values))), vectors[:, ::-1]


def tie_points(distances: FloatArray) -> FloatArray:
    """Ties of points to their nearest others, by squared distances with an infinite diagonal; symmetric, (m, m)."""
    ties = np.zeros_like(distances)
    places = np.arange(len(ties))[:, None]
    for neighbours in NEIGHBOURS:
        nearest, shares = nearest_shares(distances, neighbours, Diffusion.scale)
        ties[places, nearest] += shares / len(NEIGHBOURS)
    return np.asarray((ties + ties.T) / 2)


def _measure_distances(points: FloatArray) -> FloatArray:
    squares = np.square(points).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0.0)
    np.fill_diagonal(distances, np.inf)
    return np.asarray(distances)


def _centre(values: FloatArray, sites: IntArray, weight: FloatArray) -> FloatArray:
    """Values less the weighted mean of their site."""
    sums, sizes = group_sums(values, weight, sites, int(sites.max()) + 1)
    return np.asarray(values - (sums / np.maximum(sizes, 1e-300)[:, None])[sites])


def measure_overlap(first: FloatArray, second: FloatArray, most: int) -> FloatArray:
    """How far the first 1, 2, ... columns span the same, 1 for the same and 0 for chance; columns may be shortened."""
    squares = np.square(first[:, :most].T @ second[:, :most]).cumsum(axis=0).cumsum(axis=1)
    counts = np.arange(1, most + 1)
    chance = np.minimum(counts / max(len(first) - 1, 1), 0.5)
    return np.asarray((np.diag(squares) / counts - chance) / (1.0 - chance))


def find_number(points: Points, smallest: int, largest: int, seed: int, *, shifted: bool) -> tuple[TriedNumber, ...]:
    """What speaks for each number of clusters of the rows behind points.

    Where sites differ (`shifted`), points are looked at as they are and less the mean of their site, because either
    sites measure differently or they have other clusters. Views that alone show no more than a normal cloud and that
    no other view confirms are left out where another one surely shows more. Of all these looks the one with the largest
    score counts.
    """
    different = len(np.unique(np.hstack(points.views).astype(np.float32), axis=0))
    if points.alike and smallest <= different <= largest:
        return _count_values(different, smallest, largest)
    count = len(points.sizes)
    largest = min(largest, max(count // POINTS_PER_CLUSTER, FEW_CLUSTERS), count - 2)
    if largest < smallest:
        return ()
    looks = [points, points.centre_sites()] if shifted else [points]
    found = [tried for look in looks for tried in _try_numbers(look, smallest, largest, seed)]
    return max(found, key=lambda tried: max(one.score for one in tried))


def _count_values(different: int, smallest: int, largest: int) -> tuple[TriedNumber, ...]:
    """What speaks for each number where rows have so few different values that each of these is a cluster."""
    most = 1.0 / LEAST_RATE
    return tuple(
        TriedNumber(k, 1.0, 1.0, most, most, 0) if k == different else TriedNumber(k, 0.0, 1.0, 1.0, most, 0)
        for k in range(smallest, largest + 1)
    )


def _try_numbers(points: Points, smallest: int, largest: int, seed: int) -> Iterator[tuple[TriedNumber, ...]]:
    """What speaks for each number by all views, and by those that alone show clusters where these are fewer."""
    graph = Graph.of(points)
    clouds = [Graph.of(points.draw_cloud(seed + number)) for number in range(DRAWS)]
    numbers = np.arange(smallest, largest + 1)
    everything = list(range(len(points.views)))
    # among several views, one that no other confirms is not believed to show many clusters: of many steps one is large
    few = numbers if len(everything) == 1 else numbers[numbers <= max(FEW_CLUSTERS, smallest)]
    tries = len(few) * len(everything)
    directions, alone = [], []
    for view in everything:
        heat, vectors = _measure_heat(graph, clouds, [view], largest)
        directions.append((vectors, _centre(vectors, points.sites, np.ones(len(vectors)))))
        alone.append(heat.evidence_alone(tries)[few[heat.gaps[few - 1].argmax()] - 1])
    witnesses = [view for view in everything if alone[view] > SURE or _is_confirmed(directions, view)]
    for views in (everything, witnesses):
        if views is witnesses and (max(alone) <= SURE or witnesses == everything):
            continue
        heat, _ = _measure_heat(graph, clouds, views, largest)
        pairs = list(combinations(views, 2)) or [(views[0], views[0])]
        agreement, within = (
            np.mean([measure_overlap(directions[a][kind], directions[b][kind], largest - 1) for a, b in pairs], axis=0)
            for kind in (0, 1)
        )
        agreement = np.where(within > LEAST_AGREEMENT, agreement, within)  # not that on which site a row is of
        evidence = heat.evidence if len(views) > 1 else heat.evidence_alone(tries)
        parts = zip(heat.gaps[1:], agreement, heat.slowing[1:], evidence[1:], strict=False)  # of 2 clusters, of 3, ...
        every = [
            TriedNumber(k, float(gap), float(alike), float(slowing), float(sure), len(views))
            for k, (gap, alike, slowing, sure) in enumerate(parts, 2)
        ]
        tried = tuple(every[k - 2] for k in (few if len(views) == 1 else numbers))
        if views is everything or choose_number(tried)[0] > 1:
            yield tried


def _is_confirmed(directions: Sequence[tuple[FloatArray, FloatArray]], view: int) -> bool:
    """Whether another view has some of the directions of a view within sites, for any number of them."""
    own = directions[view][1]
    others = [part for other, (_, part) in enumerate(directions) if other != view]
    return any(bool(measure_overlap(own, part, own.shape[1]).max() > LEAST_AGREEMENT) for part in others)


@dataclass(frozen=True, eq=False)
class Heat:
    """How heat stays in the first 1, 2, ... directions, beside clouds of points without clusters."""

    gaps: FloatArray  # between the eigenvalue of a direction and the next one
    slowing: FloatArray  # rate at which heat leaves the next direction over that of this one
    evidence: FloatArray  # of the sum of eigenvalues so far, in standard deviations of clouds
    step_evidence: FloatArray  # of the slowing, on a scale of logarithms

    def evidence_alone(self, tries: int) -> FloatArray:
        """The evidence where no other view confirms it: the step itself must be sure, of all that are tried."""
        return np.minimum(self.evidence, allow_for_tries(self.step_evidence, tries))


def _measure_heat(graph: Graph, clouds: Sequence[Graph], views: Sequence[int], largest: int) -> tuple[Heat, FloatArray]:
    """Heat on the ties of some views, and the directions in which it stays."""
    values, vectors = graph.spread_heat(views, largest)
    drawn = np.stack([values, *(cloud.spread_heat(views, largest)[0] for cloud in clouds)])
    rates = np.maximum(-np.log(np.maximum(drawn, LEAST_RATE)), LEAST_RATE)
    steps = np.log(rates[:, 1:] / rates[:, :-1])
    evidence, step_evidence = (_compare_first(part) for part in (drawn[:, :-1].cumsum(axis=1), steps))
    return Heat(values[:-1] - values[1:], np.exp(steps[0]), evidence, step_evidence), vectors


def _compare_first(values: FloatArray) -> FloatArray:
    """By how many standard deviations of the other rows the first row is above their mean, for each column."""
    spread = np.maximum(values[1:].std(axis=0, ddof=1), LEAST_SPREAD)
    return np.asarray((values[0] - values[1:].mean(axis=0)) / spread)


def allow_for_tries(evidence: FloatArray, tries: int) -> FloatArray:
    """Return the evidence of one of so many tries: that of a single one which is as likely by chance (Bonferroni)."""
    chance = np.minimum(tries * stdtr(DRAWS - 1, -evidence / WIDER), 0.5)
    return np.asarray(-WIDER * stdtrit(DRAWS - 1, np.maximum(chance, 1e-300))) + 0.0  # no minus before a zero


def points_of_rows(rows: Rows, largest: int, seed: int) -> Points:
    """The points of the rows of one site alone."""
    found = site_candidates(rows, count_points(largest), seeded(seed))
    candidates = candidate_rows([found], rows.references, rows.views.names)
    return Points.of(candidates, np.zeros(len(found.sizes), np.int64), rows.views.columns, largest, seed)
