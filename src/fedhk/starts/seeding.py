"""Seeding: k-means++ in the joint space of all views, many times, judged by the model's own objective.

The rows may be a site's own, or weighted candidates that sites have sent: both are rows with weights. Where the user
leaves them open, view weights and fuzzifier are chosen here too, from the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.model.descent import Progress
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import SAMPLE_ROWS, Rows, joint_rows, split_joint, take
from fedhk.starts.kmeans import (
    Lots,
    compress,
    group_means,
    lloyd_each,
    lowest_inertia,
    plus_plus_each,
    project_on_leading,
)

# Starts are drawn from, and compared on, at most this many rows: enough to see the clusters, few enough to be quick.
SEED_CELLS = 2**24
ROWS_PER_CLUSTER = 50
# Centres of several starts that go through a pass together: with more of them, blocks of rows that stay in the cache
# would be so few rows that adding up blocks takes the time (200 to 2,000 centres, 64 features, 1,600 rows).
SEED_CENTERS = 500

# Each start is given some passes of plain k-means (the model at a small heat time with crisp memberships) and some of
# its own; the best few then run to the end.
KMEANS_HEAT_TIME, KMEANS_FUZZIFIER, KMEANS_PASSES = 0.02, 1.001, 3
LEADING_PASSES = 20
TRIAL_PASSES, FINALISTS, FINAL_PASSES, FINAL_TOL = 3, 5, 100, 1e-5
STARTS_PER_FINALIST = 15

# Objectives that differ by less than this share are taken for equal.
SAME_OBJECTIVE = 1e-6

# The fuzzifier is chosen such that a row at the mean separation d_2 / d_1 of the start has about exp(-5) of its
# membership outside its cluster, and is never more than 1.0625: more blurs clusters together.
BLUR, LEAST_POWER = 5.0, 16.0

# A view with this share of the clearest view's excess, or more, counts fully: factors find poor views, not the best.
FULL_SHARE = 1 / 1.5
# No view is silenced.
LEAST_FACTOR = 1 / 3
# Where not even the clearest view shows this much, there is nothing to compare.
LEAST_EXCESS = 0.05

# Starts of k-means on a view's points and on clouds without clusters; passes where its centres are used, and passes
# where only the variance that it explains is. On generated sets of four views (2 to 30 clusters, 300 to 2,000 rows, 8
# and 40 features), errors of factors were as large with 10 passes as with 20.
OWN_STARTS, NULL_STARTS, MAX_PASSES, CLOUD_PASSES = 4, 2, 20, 10

# Points to look at, and at least so many per cluster. As many points as there are, clouds have together: errors of both
# shrink with the root of their points, so more clouds than that help little. With 2,000 points and six clouds, 95 % of
# factors of the generated sets were within .08; with 1,000 points in all clouds they are within .09.
CLOUD_POINTS, CLOUD_POINTS_PER_CLUSTER, MOST_CLOUDS = 1000, 20, 6

# Rows that `compress` gave lie along their principal axes: covariances are below this share of the largest variance,
# which is what single precision leaves.
SINGLE = 1e-6

# Draws so many starts of so many clusters, in turn from each of several tables of the same points.
Seeder = Callable[[Sequence[FloatArray], FloatArray, int, int, np.random.RandomState], list[FloatArray]]
Judge = Callable[[Parameters], float]
Trial = tuple[Parameters, float]  # parameters and the objective there
T = TypeVar("T")


def best_starts(
    rows: Rows,
    template: Parameters,
    seeder: Seeder,
    *,
    n_init: int,
    choose_weights: bool,
    choose_fuzzifier: bool,
    random_state: np.random.RandomState,
    workers: int,
    judge: Judge | None = None,
    most: int | None = None,
) -> list[Parameters]:
    """Give the best of `n_init` starts, each run to the end; first the one whose objective is lowest.

    The objective is that of a sample of the rows. The template has everything but the centres; its view weights and its
    fuzzifier are replaced by what suits the rows where that is asked for. With a `judge`, starts are compared by what
    it says of them instead of the objective. Without `most` there are as many as are enough to find the best one.
    """
    n_clusters = template.n_clusters
    sample = sample_rows(rows, n_clusters, random_state)
    joint = joint_rows(sample)
    first, weight = distinct_rows(joint, sample.sample_weight)
    sample, axes = compress(sample, split_joint(joint, sample.widths))
    points = (joint_rows(sample) if axes else joint)[first]
    if choose_weights:
        weights = view_factors(split_joint(points, sample.widths), weight, n_clusters, random_state)
        weights = weights ** (1.0 / template.view_exponent)
        template = replace(template, view_weights=weights / weights.sum())

    def expand(start: Parameters) -> Parameters:
        centers = list(start.centers)
        for view, (mean, shares, centred) in axes.items():
            centers[view] = mean + (centers[view] @ shares) @ centred
        return replace(start, centers=tuple(centers))

    if len(points) <= n_clusters:  # every row its own centre; the rest coincide
        seeds = np.resize(points, (n_clusters, points.shape[1]))
        return [expand(replace(template, centers=split_joint(seeds, sample.widths)))]
    at_once = min(n_init, max(1, min(SEED_CENTERS, SEED_CELLS // sum(sample.widths)) // n_clusters))
    with Passes(sample, n_clusters, workers, at_once) as scan:
        starts = _draw_starts(scan, points, weight, template, seeder=seeder, count=n_init, random_state=random_state)
        if choose_fuzzifier:
            tightest, _ = min(starts, key=_rank)
            template = replace(template, fuzzifier=_fuzzifier(scan, replace(template, centers=tightest.centers)))
        rank = partial(_rank, judge=None if judge is None else lambda start: judge(expand(start)))
        most = max(FINALISTS, n_init // STARTS_PER_FINALIST) if most is None else most
        return list(map(expand, _compare(scan, template, starts, rank, most)))


def _draw_starts(
    scan: Passes,
    points: FloatArray,
    weight: FloatArray,
    template: Parameters,
    *,
    seeder: Seeder,
    count: int,
    random_state: np.random.RandomState,
) -> list[Trial]:
    """Starts after some passes of k-means, in the joint space where views weigh as in the objective.

    Every second one is drawn among the leading directions of that space: where features are many and points few,
    k-means over all of them stays wherever it began (each point pulls its own centre to itself), and the leading
    directions are where the best centres nearly lie.
    """
    widths, n_clusters = scan.rows.widths, template.n_clusters
    stretch = np.repeat(np.sqrt(template.view_factors / template.view_factors.max()), widths)
    stretched = points * np.maximum(stretch, 1e-12).astype(points.dtype)
    leading = project_on_leading(stretched, weight, n_clusters)
    drawn = seeder([stretched, leading], weight, n_clusters, count, random_state)
    seeds = [centers / np.maximum(stretch, 1e-12) for centers in drawn[::2]]
    found = lloyd_each(leading, weight, drawn[1::2], LEADING_PASSES)
    for _, groups, _ in _distinct(found, lambda run: round_objective(run[2])).values():
        seeds.append(group_means(points, weight, groups, n_clusters))
    crisp = replace(template, heat_time=KMEANS_HEAT_TIME, fuzzifier=KMEANS_FUZZIFIER)
    return _run(scan, [replace(crisp, centers=split_joint(centers, widths)) for centers in seeds], KMEANS_PASSES)


def _compare(
    scan: Passes, template: Parameters, starts: list[Trial], rank: Callable[[Trial], int], most: int
) -> list[Parameters]:
    """Find the best of the starts, the best first: all get some passes, and so many at most run to the end."""
    starts = list(_distinct(starts, _rank).values())
    trials = _run(scan, [replace(template, centers=start.centers) for start, _ in starts], TRIAL_PASSES)
    ranked = _distinct(trials, rank)
    finals = _run_to_the_end(scan, [ranked[place][0] for place in sorted(ranked)[:most]])
    found = _distinct(finals, rank)
    return [found[place][0] for place in sorted(found)]


def _distinct(trials: Sequence[T], rank: Callable[[T], int]) -> dict[int, T]:
    """Find the first start of each rank: those of equal rank are one solution, and running it twice finds nothing."""
    found: dict[int, T] = {}
    for trial in trials:
        found.setdefault(rank(trial), trial)
    return found


def _run(scan: Passes, starts: Sequence[Parameters], passes: int) -> list[Trial]:
    """Make some passes with each start; return the parameters and the objective there."""
    if len(starts) > scan.n_models:
        return _run(scan, starts[: scan.n_models], passes) + _run(scan, starts[scan.n_models :], passes)
    together = _join(starts)
    for _ in range(passes):
        together = together.move_centers(scan.statistics_of(together, len(starts))[0])
    objectives = scan.objectives_of(together, len(starts))
    return list(zip(_part(together, len(starts)), objectives.tolist(), strict=True))


def _run_to_the_end(scan: Passes, starts: Sequence[Parameters]) -> list[Trial]:
    """Minimise from each start; return the parameters and the objective before the last step."""
    if len(starts) > scan.n_models:
        return _run_to_the_end(scan, starts[: scan.n_models]) + _run_to_the_end(scan, starts[scan.n_models :])
    runs = [Progress(start) for start in starts]
    while going := [place for place, run in enumerate(runs) if not run.stop_reason]:
        together = _join([runs[place].parameters for place in going])
        statistics, objectives = scan.statistics_of(together, len(going))
        better = _part(together.move_centers(statistics), len(going))
        for place, own, objective in zip(going, better, objectives.tolist(), strict=True):
            runs[place] = runs[place].advance(own, objective, max_iter=FINAL_PASSES, tol=FINAL_TOL)
    return [(run.parameters, run.objective) for run in runs]


def _join(models: Sequence[Parameters]) -> Parameters:
    """Put the centres of several models that differ in nothing else one after the other."""
    views = zip(*(model.centers for model in models), strict=True)
    return replace(models[0], centers=tuple(map(np.concatenate, views)))


def _part(together: Parameters, count: int) -> list[Parameters]:
    """Take apart what `_join` put together."""
    views = (centers.reshape(count, -1, centers.shape[1]) for centers in together.centers)
    return [replace(together, centers=centers) for centers in zip(*views, strict=True)]


def _rank(trial: Trial, judge: Judge | None = None) -> int:
    """Return the key by which starts are compared: that of the objective, or of what a judge says instead."""
    return round_objective(trial[1] if judge is None else judge(trial[0]))


def round_objective(objective: float) -> int:
    """Round an objective such that starts with the same solution have the same one, whatever the order of clusters.

    Objectives of such starts differ by rounding only. With equal ranks the earlier start wins, so that rounding decides
    nothing.
    """
    return round(math.log(max(objective, 1e-300)) / SAME_OBJECTIVE)


def _fuzzifier(scan: Passes, parameters: Parameters) -> float:
    """Choose a fuzzifier by how far apart the clusters are; text needs a crisper one than images."""
    if parameters.n_clusters == 1:
        return 1.0 + 1.0 / LEAST_POWER
    separation = scan.row_mean(parameters, lambda nearest, second: np.log(second / nearest))
    return 1.0 + 1.0 / max(LEAST_POWER, BLUR / max(separation, 1e-3))


def sample_rows(rows: Rows, n_clusters: int, random_state: np.random.RandomState) -> Rows:
    """Return all rows, or a random subset if they are many."""
    most = max(min(SAMPLE_ROWS, SEED_CELLS // sum(rows.widths)), ROWS_PER_CLUSTER * n_clusters)
    if rows.n_rows <= most:
        return rows
    return take(rows, np.sort(random_state.choice(rows.n_rows, most, replace=False)))


def order_keys(joint: FloatArray) -> FloatArray:
    """Compute a number of each row by which rows are put in an order that does not depend on the input."""
    return np.asarray((joint * np.cos(np.arange(joint.shape[1], dtype=joint.dtype))).sum(axis=1))


def distinct_rows(joint: FloatArray, weight: FloatArray | None) -> tuple[IntArray, FloatArray]:
    """Find the first place and the total weight of each distinct row, in an order that does not depend on the input.

    Draws from these depend on what the rows are, not on how often or where they are listed: a row of weight 2 is the
    same as two rows, and a row of weight 0 is none.
    """
    _, first, which = np.unique(order_keys(joint), return_index=True, return_inverse=True)
    total: FloatArray = np.zeros(len(first))
    np.add.at(total, which, 1.0 if weight is None else weight)
    return first[total > 0], total[total > 0]


def view_factors(
    views: Sequence[FloatArray], weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Compute the factor of each view in the objective, from `LEAST_FACTOR` to 1: less for an uninformative view.

    k-means explains part of the variance of any cloud. A view has clusters as far as it explains more than of a
    Gaussian cloud with the same covariance and as many points. The views are rows in model units, or candidates.
    """
    if len(views) == 1 or n_clusters == 1:
        return np.ones(len(views))
    most = max(CLOUD_POINTS, CLOUD_POINTS_PER_CLUSTER * n_clusters)
    if len(weight) > most:
        chosen = random_state.choice(len(weight), most, replace=False)
        views, weight = [view[chosen] for view in views], weight[chosen]
    return compare_views([_excess_variance(view, weight, n_clusters, random_state) for view in views])


def compare_views(excess: Sequence[float]) -> FloatArray:
    """Compute the factor of each view from the variance that clusters explain beyond that of a Gaussian cloud."""
    found, most = np.asarray(excess), max(excess)
    if most < LEAST_EXCESS:
        return np.ones(len(found))
    return np.asarray(np.clip(found / (FULL_SHARE * most), LEAST_FACTOR, 1.0))


def _excess_variance(
    view: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> float:
    """Compute the share of variance that k-means explains beyond that of a Gaussian cloud; 0 if none."""
    scores, spreads = _principal(view, weight)
    if len(spreads) == 0 or len(scores) <= n_clusters:
        return 0.0
    (own,) = _explained(scores[None].astype(np.float32), weight, n_clusters, OWN_STARTS, random_state)
    return exceed_cloud(float(own), spreads, weight, n_clusters, random_state)


def exceed_cloud(
    own: float, spreads: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> float:
    """Compute how far a share of explained variance exceeds that of a Gaussian cloud with these spreads; 0 if not."""
    if not own > 0:
        return 0.0
    n_clouds = min(-(-CLOUD_POINTS // len(weight)), MOST_CLOUDS)
    generator = np.random.default_rng(random_state.randint(2**31))  # it is several times as fast
    clouds = generator.standard_normal((n_clouds, len(weight), len(spreads)), np.float32)
    clouds *= spreads.astype(np.float32)
    shares = _explained(clouds, weight, n_clusters, NULL_STARTS, random_state)
    return max(0.0, 1.0 - float(shares.mean()) / own)


def _explained(
    tables: FloatArray, weight: FloatArray, n_clusters: int, n_init: int, random_state: np.random.RandomState
) -> FloatArray:
    """Compute the share of the weighted variance that k-means explains in each of some tables of as many points."""
    seeds = [plus_plus_in_turn([points], weight, n_clusters, n_init, random_state) for points in tables]
    inertia = lowest_inertia(tables, weight, np.array(seeds), CLOUD_PASSES)
    away = tables - (weight @ tables / weight.sum())[:, None]
    total = np.einsum("n,tnd,tnd->t", weight, away, away)
    return np.asarray(1.0 - np.divide(inertia, total, out=np.ones_like(total), where=total > 0))


def _principal(view: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre rows, and compute the spread along each of their principal axes.

    Rows of more features than there are rows are given by their places along these axes, which keeps distances.
    """
    share = weight / weight.sum()
    centred = np.asarray(view - share @ view, dtype=np.float64)
    root = np.sqrt(share)[:, None]
    scaled = centred * root
    if centred.shape[1] <= centred.shape[0]:
        covariance = scaled.T @ scaled
        values = covariance.diagonal()
        # each eigenvalue is as near to one of them as the others in its row are large (Gershgorin)
        if np.max(np.abs(covariance).sum(axis=1) - values, initial=0.0) > SINGLE * values.max(initial=0.0):
            values = np.linalg.eigvalsh(covariance)
        return centred, np.sqrt(values[_is_spread(values)])
    values, vectors = np.linalg.eigh(scaled @ scaled.T)  # it has the same eigenvalues
    kept = _is_spread(values)
    spreads = np.sqrt(values[kept])
    return np.ascontiguousarray(vectors[:, kept] * spreads / root), spreads


def _is_spread(values: FloatArray) -> BoolArray:
    """Tell which variances along principal axes are more than rounding leaves."""
    return np.asarray(values > 1e-12 * max(values.max(initial=0.0), 1e-300))


def cluster_points(
    points: FloatArray,
    weight: FloatArray,
    n_clusters: int,
    n_init: int,
    random_state: np.random.RandomState,
    *,
    passes: int = MAX_PASSES,
) -> tuple[float, FloatArray]:
    """Run k-means; return the share of the weighted variance that it explains, and its centres."""
    seeds = plus_plus_in_turn([points], weight, n_clusters, n_init, random_state)
    best, _, inertia = min(lloyd_each(points, weight, seeds, passes), key=lambda found: found[2])
    mean = weight @ points / weight.sum()
    total = float(weight @ np.square(points - mean).sum(axis=1))
    return 1.0 - inertia / total if total > 0 else 0.0, best


def plus_plus_in_turn(
    tables: Sequence[FloatArray], weight: FloatArray, n_clusters: int, count: int, random_state: np.random.RandomState
) -> list[FloatArray]:
    """Draw greedy k-means++ seeds."""
    lots = Lots.draw(weight, n_clusters, count, random_state)
    found = [iter(plus_plus_each(points, weight, lots[i :: len(tables)])) for i, points in enumerate(tables)]
    return [next(found[turn % len(tables)]) for turn in range(count)]


def at_random(
    tables: Sequence[FloatArray], weight: FloatArray, n_clusters: int, count: int, random_state: np.random.RandomState
) -> list[FloatArray]:
    """Draw rows at random."""
    share = weight / weight.sum()
    rows = [random_state.choice(len(weight), n_clusters, replace=False, p=share) for _ in range(count)]
    return [tables[turn % len(tables)][own] for turn, own in enumerate(rows)]


SEEDERS: dict[str, Seeder] = {"k-means++": plus_plus_in_turn, "random": at_random}
