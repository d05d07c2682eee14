"""How many clusters there are: heat stays in them, and views agree on where.

Points that stand for rows, such as the means of small groups that sites send for a start, are tied to their neighbours,
in each view and in all views together. Heat that spreads along the ties stays in k directions where there are k
clusters, whatever their shape, and leaves the next one: there is a gap in the eigenvalues. What the gap of a number of
clusters is worth is how far the same directions come out of each view by itself. Whether there are clusters at all is
tested against points of one normal distribution with the same spread.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import betaincinv, stdtr, stdtrit

from fedhk._random import seeded
from fedhk._records import Records
from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.levels import find_joint_numbers
from fedhk.embedding.affinity import rank_nearest, share_by_distance
from fedhk.embedding.anchors import complete_candidates
from fedhk.embedding.options import Diffusion
from fedhk.model.rows import Rows, joint_rows, split_joint
from fedhk.starts.candidates import (
    LEAST_ROWS,
    LEAST_SQUARE,
    candidate_rows,
    group_rows,
    site_candidates,
    split_groups,
)
from fedhk.starts.kmeans import group_sums, project_on_leading
from fedhk.tensors.gauges import peak_signs

# Points are tied to so many neighbours, and the mean of these ties counts: one of them alone is less steady
# (benchmarks/results/number.md has what was tried).
NEIGHBOURS = (5, 7, 10, 15)

# Directions in which a view is looked at, and points at most: of more some are drawn.
N_DIRECTIONS, MOST_POINTS = 30, 500

# Points for each cluster of the largest number that is tried: of generated federations of many clusters fewer are right
# with five, no more with three (benchmarks/results/number.md). So few clusters are tried of any points.
POINTS_PER_CLUSTER, FEW_CLUSTERS = 4, 15

# Groups of rows are drawn with this seed, whatever that of the run is: a number is one of the rows.
GROUPS_SEED = 0

# Draws of one normal distribution at most and at least, and rows for one of its points at most.
DRAWS, FEW_DRAWS, ROWS_PER_POINT = 16, 5, 10

# What one more draw is above the mean of the draws, over their standard deviation, is distributed as t but so much
# wider. It exceeds SURE with a probability of .001, and EARLY with one of .0002. No more are drawn once the evidence is
# above EARLY. Chance passes EARLY after any number of draws, or SURE after all, with a probability of at most .002
# (simulated: .0016, with 28 tries .0020). It is as much with looks after five draws and after all, both at .001.
WIDER = math.sqrt(1.0 + 1.0 / DRAWS)
SURE_CHANCE, EARLY_CHANCE = 0.001, 0.0002
SURE, EARLY = (-WIDER * float(stdtrit(DRAWS - 1, chance)) for chance in (SURE_CHANCE, EARLY_CHANCE))

# No more are drawn, either, once all draws would hardly be sure: of what they would call sure, so much may be lost at a
# look. Over all looks it is .001 to .003 (simulated), for 1 to 1,000 tries.
LOST = 0.001

# Least agreement within sites: below it, the directions of heat say which site a row is of, or nothing.
LEAST_AGREEMENT = 0.05

# Clusters may be apart and still mix slowly within, as half moons, rings and groups of one number do: then no gap is as
# large as this one, or none that is large is sure, and heat leaves the direction after the last cluster so many times
# faster. It counts only where views agree on it nearly as much as one view does with itself.
SMALL_GAP, APART, NEARLY_ALL = 0.1, 3.0, 0.9

# So much faster does heat leave direction 2k than direction k + 1 where k clusters are merely pieces of a surface: its
# rates grow with the number of the direction, along a line with its square. After clusters that are apart they hardly
# grow: each has as many directions within that are alike as it has dimensions.
GROWING = 2.0

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

ONE = "one cluster: no parts of the rows are surely more separated than those of one normal cloud"
CLEAR = "no other number comes near{}"
STEP = "these clusters are far more separated than parts of one normal cloud{}"
VALUES = "rows have as many different values, and no others"
CODES = "; but cells with codes for missing values (`deviations_`) may have made these clusters: empty them, fit again"
SEVERAL, ALONE, NO_OTHERS = ", and views agree", ", and only one of the views shows it", ""
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
    growth : float
        How many times faster heat leaves direction 2k than direction k + 1, for k clusters; about 4 along a line.
    of_views : int
        How many views there are.
    """

    n_clusters: int
    gap: float
    agreement: float
    slowing: float
    evidence: float
    views: int
    growth: float = 4.0
    of_views: int = 2

    @property
    def score(self) -> float:
        """The gap times the agreement."""
        return self.gap * max(self.agreement, 0.0)

    @property
    def is_small(self) -> bool:
        """Whether clusters may be pieces of larger ones that heat fills slowly: the gap is small, and others follow."""
        return self.gap < SMALL_GAP and self.growth > GROWING


def choose_number(tried: Sequence[TriedNumber]) -> tuple[int, str]:
    """The number of clusters, and why.

    It is the one with the largest score. Where that has a small gap, or is no more than chance gives, it is the one
    after which heat leaves much faster, if that is more than chance. Else it is one cluster.
    """
    best = _find_best(tried)
    if best is None:
        return 1, ONE
    steps = _find_steps(tried)
    sure = [one for one in steps if one.evidence > SURE]
    # where a larger step may be chance, a small gap may be, too
    larger = best.is_small and any(one.slowing > APART * best.slowing for one in steps)
    if sure and (best.is_small or best.evidence <= SURE):
        slowest = max(sure, key=lambda one: one.slowing)
        if slowest is not best:
            return slowest.n_clusters, _say(STEP, slowest)
    elif best.evidence <= SURE or larger:
        return 1, ONE
    near = [one for one in tried if one is not best and one.score >= CLEAR_SHARE * best.score]
    return best.n_clusters, _name_rivals(near) if near else _say(CLEAR, best)


def is_settled(tried: Sequence[TriedNumber], hopeless: Collection[int]) -> bool:
    """Whether more draws of clouds would not change the number, as some numbers of clusters will never be sure.

    All evidence that `choose_number` asks for is sure, or will never be.
    """
    best = _find_best(tried)
    if best is None:
        return True
    steps = _find_steps(tried) if best.is_small or best.n_clusters in hopeless else []
    return all(one.evidence > EARLY or one.n_clusters in hopeless for one in [best, *steps])


def _find_best(tried: Sequence[TriedNumber]) -> TriedNumber | None:
    """Find the number with the largest score among those on which views agree; None where they agree on none."""
    agreed = [one for one in tried if one.agreement > LEAST_AGREEMENT]
    return max(agreed, key=lambda one: one.score, default=None)


def _find_steps(tried: Sequence[TriedNumber]) -> list[TriedNumber]:
    """Find the numbers after which heat leaves much faster, and on which views nearly agree."""
    return [one for one in tried if one.agreement > NEARLY_ALL and one.slowing > APART]


def _say(sentence: str, one: TriedNumber) -> str:
    """Say what was looked at; where there is one view only, there is nothing to say of views."""
    if one.views == 0:
        return VALUES
    return sentence.format(SEVERAL if one.views > 1 else ALONE if one.of_views > 1 else NO_OTHERS)


def _name_rivals(near: Sequence[TriedNumber]) -> str:
    """Say which numbers are nearly as good as the one that is taken, the best ones first."""
    first = sorted(near, key=lambda one: -one.score)[:MOST_NAMED]
    names = [str(one.n_clusters) for one in first] + ["others"] * (len(near) > MOST_NAMED)
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return UNCLEAR.format(f"{listed} {'has' if len(near) == 1 else 'have'}")


def describe_selection(tried: Sequence[TriedNumber]) -> Records:
    """The numbers that were tried as records: n_clusters, gap, agreement, slowing, evidence, score, taken, note."""
    chosen, why = choose_number(tried)
    hidden = {"views", "growth", "of_views"}
    shown = [{name: value for name, value in vars(one).items() if name not in hidden} for one in tried]
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
        kept = np.split(find_joint_numbers(columns, rows.widths), np.cumsum(rows.widths)[:-1])
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

    @cached_property
    def _principal_axes(self) -> tuple[FloatArray, FloatArray]:
        """Standard deviations along the principal axes of all views side by side, and these axes as columns."""
        joint = np.hstack(self.views)
        joint = joint - np.average(joint, axis=0, weights=self.sizes)
        values, axes = np.linalg.eigh((joint.T * self.sizes) @ joint / self.sizes.sum())
        axes *= peak_signs(axes)  # so that any processor draws the same points
        return np.sqrt(np.maximum(values, 0.0)), axes

    def draw_cloud(self, seed: int) -> Points:
        """Points of one normal distribution with the same spread, as sites would make them of as many rows.

        They are in single precision, in which all that is computed of them takes about half of the time: how clouds
        differ from each other is far more than rounding.
        """
        random, widths = seeded(seed), [view.shape[1] for view in self.views]
        lengths, axes = self._principal_axes
        parts, weights = [], []
        for site in np.unique(self.sites):
            own = self.sizes[self.sites == site]
            count = len(own)
            rows = random.normal(size=(int(np.clip(round(own.sum()), count, ROWS_PER_POINT * count)), len(lengths)))
            means, sizes = _group_draws(rows.astype(np.float32), lengths.astype(np.float32), count)
            parts.append(means)
            weights.append(sizes)
        drawn, weight = np.vstack(parts), np.concatenate(weights)
        drawn = drawn - np.average(drawn, axis=0, weights=weight)
        drawn = drawn / np.sqrt(np.maximum(np.average(drawn**2, axis=0, weights=weight), 1e-300))
        sites = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        views = split_joint(drawn * lengths @ axes.T, widths)
        return Points(tuple(view.astype(np.float32) for view in views), weight, sites)


def _group_draws(rows: FloatArray, lengths: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Means and sizes of groups of rows, as a site makes so many points of rows that are multiplied by lengths."""
    values, ones = rows * lengths, np.ones(len(rows), rows.dtype)
    least = min(LEAST_ROWS, len(rows) // count)
    groups = split_groups(values, group_rows(values, ones, values[:count], least), count, least)
    sums, sizes = group_sums(rows, ones, groups, int(groups.max()) + 1)
    return sums / sizes[:, None], sizes


def _are_close(spread: FloatArray) -> BoolArray:
    """Tell whether the rows of each point are near it, by their mean squared distances in each view, (m, s)."""
    usual = np.maximum(np.quantile(spread, MOST_OF_THEM, axis=0), LEAST_SQUARE)
    return np.asarray(np.all(spread <= MIXED * usual, axis=1))


@dataclass(frozen=True, eq=False)
class Graph:
    """How points are tied to their neighbours in each view; what was computed once is kept."""

    points: Points
    known: dict[tuple[int, ...], FloatArray] = field(default_factory=dict)  # eigenvalues of heat on ties of views
    _distances: dict[int, FloatArray] = field(default_factory=dict)
    _ties: dict[int, FloatArray] = field(default_factory=dict)

    def distances(self, view: int) -> FloatArray:
        """Squared distances of points in a view, with an infinite diagonal."""
        if view not in self._distances:
            self._distances[view] = _measure_distances(self.points.views[view])
        return self._distances[view]

    def ties(self, view: int) -> FloatArray:
        """Ties of points in a view, symmetric, (m, m)."""
        if view not in self._ties:
            self._ties[view] = tie_points(self.distances(view))
        return self._ties[view]

    def spread_heat(self, views: Sequence[int], count: int) -> tuple[FloatArray, FloatArray]:
        """The largest eigenvalues of heat on the ties of some views, and its eigenvectors but the first, largest first.

        The first eigenvector is that of heat which is spread evenly. It is taken out before the others are looked for:
        where clusters have no ties between them, they have the same eigenvalue, 1, and could not be told from it.
        """
        values, vectors = np.linalg.eigh(self._uneven_heat(views))
        self.known[tuple(views)] = values
        return _largest_first(values, count), vectors[:, : -count - 1 : -1]

    def measure_heat(self, views: Sequence[int], count: int) -> FloatArray:
        """The largest eigenvalues of heat on the ties of some views, largest first."""
        if tuple(views) not in self.known:
            self.known[tuple(views)] = np.linalg.eigvalsh(self._uneven_heat(views))
        return _largest_first(self.known[tuple(views)], count)

    def _uneven_heat(self, views: Sequence[int]) -> FloatArray:
        """How heat spreads on the ties of some views in one step, without heat that is spread evenly."""
        ties: FloatArray = np.sum([self.ties(view) for view in views], axis=0) / len(views)
        if len(views) > 1:
            together = tie_points(np.sum([self.distances(view) for view in views], axis=0))
            share = Diffusion.joint_weight
            ties = share * together + (1.0 - share) * ties
        roots = np.sqrt(np.maximum(ties.sum(axis=0), 1e-12))
        even = roots / np.linalg.norm(roots)
        return np.asarray(ties / roots[:, None] / roots - np.outer(even, even))


def _largest_first(values: FloatArray, count: int) -> FloatArray:
    """One, which is the eigenvalue of even heat, and so many of the largest others, from ascending ones; 0 if fewer."""
    values = np.concatenate([[1.0], np.clip(values[: -count - 1 : -1], 0.0, 1.0)])
    return np.pad(values, (0, count + 1 - len(values)))


def tie_points(distances: FloatArray) -> FloatArray:
    """Ties of points to their nearest others, by squared distances with an infinite diagonal; symmetric, (m, m)."""
    nearest, found = rank_nearest(distances, NEIGHBOURS[-1])
    shares = np.zeros((len(found), found.shape[1] - 1))
    for neighbours in NEIGHBOURS:
        part = share_by_distance(found[:, : neighbours + 1], Diffusion.scale)
        shares[:, : part.shape[1]] += part / len(NEIGHBOURS)
    ties = np.zeros_like(distances)
    ties[np.arange(len(ties))[:, None], nearest[:, :-1]] = shares
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
    parts = [points, points.centre_sites()] if shifted else [points]
    looks = [Look(part, smallest, largest, seed) for part in parts]
    found = [(look, views) for look in looks for views in look.choose_views()]
    found.sort(key=lambda one: -one[0].score_numbers(one[1]).max())
    several = ((views, look.try_numbers(views)) for look, views in found)
    return next(tried for views, tried in several if views == looks[0].views or choose_number(tried)[0] > 1)


def _count_values(different: int, smallest: int, largest: int) -> tuple[TriedNumber, ...]:
    """What speaks for each number where rows have so few different values that each of these is a cluster."""
    most = 1.0 / LEAST_RATE
    return tuple(
        TriedNumber(k, 1.0, 1.0, most, most, 0) if k == different else TriedNumber(k, 0.0, 1.0, 1.0, most, 0)
        for k in range(smallest, largest + 1)
    )


@dataclass(frozen=True, eq=False)
class Look:
    """What heat on the ties of points says of numbers of clusters; clouds are drawn only where they are needed."""

    points: Points
    smallest: int
    largest: int
    seed: int
    drawn: list[Graph] = field(default_factory=list)  # the clouds so far

    @property
    def views(self) -> tuple[int, ...]:
        """All views."""
        return tuple(range(len(self.points.views)))

    @cached_property
    def graph(self) -> Graph:
        """The points and their ties."""
        return Graph(self.points)

    def take_clouds(self, count: int) -> list[Graph]:
        """The first so many draws of one normal distribution."""
        for number in range(len(self.drawn), count):
            self.drawn.append(Graph(self.points.draw_cloud(self.seed + number)))
        return self.drawn[:count]

    @cached_property
    def directions(self) -> list[tuple[FloatArray, FloatArray]]:
        """Directions in which heat stays in each view by itself: as they are, and within sites."""
        found = [self.graph.spread_heat((view,), self.largest)[1] for view in self.views]
        return [(vectors, _centre(vectors, self.points.sites, np.ones(len(vectors)))) for vectors in found]

    def choose_views(self) -> Iterator[tuple[int, ...]]:
        """All views, and those that alone show clusters or that another one confirms, where these are fewer."""
        yield self.views
        confirmed = [view for view in self.views if _is_confirmed(self.directions, view)]
        sure = [view for view in self.views if view not in confirmed and self._is_sure_alone(view)]
        witnesses = tuple(sorted(confirmed + sure))
        # confirmed views are looked at alone only where they must say for the others that there are clusters
        if witnesses != self.views and (sure or any(self._is_sure_alone(view) for view in confirmed)):
            yield witnesses

    def _is_sure_alone(self, view: int) -> bool:
        """Whether a view by itself is sure of the number of clusters with the largest gap."""
        best = self._measure_numbers((view,))[0].argmax()
        for count in range(FEW_DRAWS, DRAWS + 1):
            tests = [(values[:, [best]], tries) for values, tries in self._list_tests((view,), count)]
            evidence = min(float(measure_evidence(*test)[0]) for test in tests)
            if evidence > EARLY or not all(may_be_sure(*test)[0] for test in tests):
                break
        return evidence > SURE

    def try_numbers(self, views: tuple[int, ...]) -> tuple[TriedNumber, ...]:
        """What speaks for each number of clusters by some views."""
        numbers, (gaps, agreement) = self.list_numbers(views), self._measure_numbers(views)
        rates = measure_rates(self.graph.measure_heat(views, 2 * self.largest))
        slowing, growth = rates[numbers] / rates[numbers - 1], rates[2 * numbers - 1] / rates[numbers]
        known = np.stack([gaps, agreement, slowing, np.zeros(len(numbers)), growth], axis=1).tolist()
        tried = tuple(
            TriedNumber(k, gap, agreed, slower, unknown, len(views), grown, len(self.views))
            for k, (gap, agreed, slower, unknown, grown) in zip(numbers.tolist(), known, strict=True)
        )
        for count in range(FEW_DRAWS, DRAWS + 1):
            tests = self._list_tests(views, count)
            evidence = np.min([measure_evidence(*test) for test in tests], axis=0)
            tried = tuple(replace(one, evidence=sure) for one, sure in zip(tried, evidence.tolist(), strict=True))
            if is_settled(tried, numbers[~np.all([may_be_sure(*test) for test in tests], axis=0)].tolist()):
                break
        return tried

    def score_numbers(self, views: tuple[int, ...]) -> FloatArray:
        """The score of each number of clusters by some views."""
        gaps, agreement = self._measure_numbers(views)
        return np.asarray(gaps * np.maximum(agreement, 0.0))

    def list_numbers(self, views: tuple[int, ...]) -> IntArray:
        """The numbers of clusters that are tried by some views.

        Among several views, one that no other confirms is not believed to show many clusters: of many steps one is
        large.
        """
        alone = len(views) == 1 < len(self.views)
        largest = min(self.largest, max(FEW_CLUSTERS, self.smallest)) if alone else self.largest
        return np.arange(self.smallest, largest + 1)

    def _measure_numbers(self, views: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """The gap of each number of clusters, and how far views agree on it; not on which site a row is of."""
        numbers = self.list_numbers(views)
        values = self.graph.measure_heat(views, self.largest)
        agreement, within = (self._measure_agreement(views, kind)[numbers - 2] for kind in (0, 1))
        return values[numbers - 1] - values[numbers], np.where(within > LEAST_AGREEMENT, agreement, within)

    def _measure_agreement(self, views: tuple[int, ...], kind: int) -> FloatArray:
        """How far views have the same directions for 2, 3, ... clusters; one view has those of itself."""
        pairs = list(combinations(views, 2)) or [(views[0], views[0])]
        parts = [(self.directions[a][kind], self.directions[b][kind]) for a, b in pairs]
        return np.asarray(np.mean([measure_overlap(a, b, self.largest - 1) for a, b in parts], axis=0))

    def _list_tests(self, views: tuple[int, ...], count: int) -> list[tuple[FloatArray, int]]:
        """What must be larger than in clouds for each number of clusters, and of how many tries each is one.

        The first rows are those of the points, the others of so many clouds. It is the sum of eigenvalues so far. Where
        no other view confirms it, the step itself must be sure, too, of all that are tried.
        """
        numbers = self.list_numbers(views)
        drawn = np.stack([graph.measure_heat(views, self.largest) for graph in (self.graph, *self.take_clouds(count))])
        sums = drawn.cumsum(axis=1)[:, numbers - 1]
        if len(views) > 1:
            return [(sums, 1)]
        rates = measure_rates(drawn)
        steps = np.log(rates[:, 1:] / rates[:, :-1])[:, numbers - 1]
        return [(sums, 1), (steps, len(numbers) * len(self.views))]


def _is_confirmed(directions: Sequence[tuple[FloatArray, FloatArray]], view: int) -> bool:
    """Whether another view has some of the directions of a view within sites, for any number of them."""
    own = directions[view][1]
    others = [part for other, (_, part) in enumerate(directions) if other != view]
    return any(bool(measure_overlap(own, part, own.shape[1]).max() > LEAST_AGREEMENT) for part in others)


def measure_rates(values: FloatArray) -> FloatArray:
    """Rates at which heat leaves directions with these eigenvalues, none below `LEAST_RATE`."""
    return np.asarray(np.maximum(-np.log(np.maximum(values, LEAST_RATE)), LEAST_RATE))


def measure_evidence(values: FloatArray, tries: int) -> FloatArray:
    """By how many standard deviations of DRAWS draws the first row is above their mean, for each column.

    The other rows are draws, which may be fewer, and a column may be one of several tries. What is given is the
    evidence of a single try beside DRAWS draws that is as likely by chance (Bonferroni).
    """
    draws = len(values) - 1
    chance = stdtr(draws - 1, -_measure_distance(values) / math.sqrt(1.0 + 1.0 / draws))
    chance = np.clip(np.minimum(tries * chance, np.maximum(chance, 0.5)), 1e-300, 1.0 - 1e-15)
    return np.asarray(-WIDER * stdtrit(DRAWS - 1, chance)) + 0.0  # no minus before a zero


def may_be_sure(values: FloatArray, tries: int) -> BoolArray:
    """Whether the first row may be surely above all DRAWS draws, of which the other rows are some, for each column.

    The variance of some of DRAWS normal draws, over that of all, is distributed as a beta variable. Where it is no
    larger than all but `LOST` of these, it is too large for the first row to be SURE.
    """
    draws = len(values) - 1
    share = betaincinv((draws - 1) / 2, (DRAWS - draws) / 2, 1.0 - LOST) if draws < DRAWS else 1.0
    wider = math.sqrt(share * (DRAWS - 1) / (draws - 1))
    needed = -WIDER * float(stdtrit(DRAWS - 1, SURE_CHANCE / tries))
    return np.asarray(_measure_distance(values) * wider > needed)


def _measure_distance(values: FloatArray) -> FloatArray:
    """By how many of their standard deviations the first row is above the mean of the others, for each column."""
    spread = np.maximum(values[1:].std(axis=0, ddof=1), LEAST_SPREAD)
    return np.asarray((values[0] - values[1:].mean(axis=0)) / spread)


def points_of_rows(rows: Rows, largest: int, seed: int) -> Points:
    """The points of the rows of one site alone."""
    found = site_candidates(rows, count_points(largest), seeded(GROUPS_SEED), split=True)
    candidates = candidate_rows([found], rows.references, rows.views.names)
    return Points.of(candidates, np.zeros(len(found.sizes), np.int64), rows.views.columns, largest, seed)
