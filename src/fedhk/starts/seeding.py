"""Where to start: k-means++ in the joint space of all views, many times, judged by the model's own objective.

The rows may be a site's own, or weighted candidates that sites have sent: both are rows with weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.model.descent import improve, minimise
from fedhk.model.joint import SAMPLE_ROWS, joint_rows, split_joint, take
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.starts.clusterability import view_factors
from fedhk.starts.compression import compress
from fedhk.starts.kmeans import group_means, leading_directions, lloyd, plus_plus

# Starts are drawn from, and compared on, at most this many rows: enough to see the clusters, few enough to be quick.
SEED_CELLS = 2**24
ROWS_PER_CLUSTER = 50

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

Seeder = Callable[[FloatArray, FloatArray, int, np.random.RandomState], FloatArray]
Judge = Callable[[Parameters], float]


def best_start(
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
) -> Parameters:
    """The start whose objective is lowest on a sample of the rows.

    Parameters
    ----------
    rows : Rows
        All rows.
    template : Parameters
        Everything but the centres.
    seeder : callable
        How one start is drawn.
    n_init : int
        Starts to compare.
    choose_weights, choose_fuzzifier : bool
        Whether to replace the template's view weights and fuzzifier by what suits the rows.
    random_state : RandomState
        Source of randomness.
    workers : int
        Threads.
    judge : callable, optional
        By what starts that have run to the end are compared, instead of the objective.
    """
    sample = sample_rows(rows, template.n_clusters, random_state)
    joint = joint_rows(sample)
    first, weight = distinct_rows(joint, sample.sample_weight)
    sample, axes = compress(sample, split_joint(joint, sample.widths))
    template = replace(template, centers=tuple(np.zeros((template.n_clusters, width)) for width in sample.widths))
    points = joint_rows(sample)[first]
    if choose_weights:
        factors = view_factors(split_joint(points, sample.widths), weight, template.n_clusters, random_state)
        template = replace(template, view_weights=weights_from_factors(factors, template.view_exponent))

    def expanded(start: Parameters) -> Parameters:
        return replace(start, centers=tuple(a.expand(values) for a, values in zip(axes, start.centers, strict=True)))

    if len(points) <= template.n_clusters:  # every row its own centre; the rest coincide
        seeds = np.resize(points, (template.n_clusters, points.shape[1]))
        return expanded(replace(template, centers=split_joint(seeds, sample.widths)))
    with Passes(sample, template.n_clusters, workers) as scan:
        starts = _starts(scan, points, weight, template, seeder=seeder, count=n_init, random_state=random_state)
        judged = None if judge is None else (lambda start: judge(expanded(start)))
        return expanded(_compare(scan, template, starts, choose_fuzzifier=choose_fuzzifier, judge=judged))


Trial = tuple[Parameters, float]


def _starts(
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
    leading = leading_directions(stretched, weight, n_clusters)
    crisp = replace(template, heat_time=KMEANS_HEAT_TIME, fuzzifier=KMEANS_FUZZIFIER)
    starts = []
    for turn in range(count):
        if turn % 2:
            seeds = seeder(leading, weight, n_clusters, random_state)
            _, groups, _ = lloyd(leading, weight, seeds, LEADING_PASSES)
            seeds = group_means(points, weight, groups, n_clusters)
        else:
            seeds = seeder(stretched, weight, n_clusters, random_state) / np.maximum(stretch, 1e-12)
        starts.append(_run(scan, replace(crisp, centers=split_joint(seeds, widths)), KMEANS_PASSES))
    return starts


def _compare(
    scan: Passes, template: Parameters, starts: list[Trial], *, choose_fuzzifier: bool, judge: Judge | None
) -> Parameters:
    """The best of the starts by the objective, or a judge's: all get some passes, the best few run to the end."""
    if choose_fuzzifier:
        tightest, _ = min(starts, key=lambda start: _rank(start[1]))
        template = replace(template, fuzzifier=_fuzzifier(scan, replace(template, centers=tightest.centers)))

    def rank(trial: Trial) -> int:
        return _rank(trial[1] if judge is None else judge(trial[0]))

    trials = [_run(scan, replace(template, centers=start.centers), TRIAL_PASSES) for start, _ in starts]
    most = max(FINALISTS, len(trials) // STARTS_PER_FINALIST)
    finalists = sorted(trials, key=rank)[:most]
    return min((_finish(scan, start) for start, _ in finalists), key=rank)[0]


def weights_from_factors(factors: FloatArray, view_exponent: float) -> FloatArray:
    """View weights v with v_h^alpha in the proportion of the factors."""
    weights = factors ** (1.0 / view_exponent)
    return np.asarray(weights / weights.sum())


def _run(scan: Passes, parameters: Parameters, passes: int) -> Trial:
    """Parameters after some passes, and the objective there."""
    for _ in range(passes):
        parameters = improve(parameters, scan.statistics(parameters), learn_weights=False)
    return parameters, scan.statistics(parameters).objective


def _finish(scan: Passes, parameters: Parameters) -> Trial:
    progress, _ = minimise(scan.statistics, parameters, learn_weights=False, max_iter=FINAL_PASSES, tol=FINAL_TOL)
    return progress.parameters, progress.objective


def _rank(objective: float) -> int:
    """Objectives by which starts are compared: equal for the same solution with clusters in another order.

    Such objectives differ by rounding only. With equal ranks the earlier start wins, so that rounding decides nothing.
    """
    return round(math.log(max(objective, 1e-300)) / SAME_OBJECTIVE)


def _fuzzifier(scan: Passes, parameters: Parameters) -> float:
    """A fuzzifier that suits how far apart the clusters are; text needs a crisper one than images."""
    if parameters.n_clusters == 1:
        return 1.0 + 1.0 / LEAST_POWER
    separation = scan.row_mean(parameters, lambda nearest, second: np.log(second / nearest))
    return 1.0 + 1.0 / max(LEAST_POWER, BLUR / max(separation, 1e-3))


def sample_rows(rows: Rows, n_clusters: int, random_state: np.random.RandomState) -> Rows:
    """All rows, or a random subset of them where they are many."""
    most = max(min(SAMPLE_ROWS, SEED_CELLS // sum(rows.widths)), ROWS_PER_CLUSTER * n_clusters)
    if rows.n_rows <= most:
        return rows
    return take(rows, np.sort(random_state.choice(rows.n_rows, most, replace=False)))


def distinct_rows(joint: FloatArray, weight: FloatArray | None) -> tuple[IntArray, FloatArray]:
    """Where different rows stand first, and their total weights, in an order that does not depend on how they came.

    Draws from these depend on what the rows are, not on how often or where they are listed: a row of weight 2 is the
    same as two rows, and a row of weight 0 is none.
    """
    directions = np.cos(np.arange(joint.shape[1], dtype=joint.dtype))
    keys = (joint * directions).sum(axis=1)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    total: FloatArray = np.zeros(len(first))
    np.add.at(total, which, 1.0 if weight is None else weight)
    return first[total > 0], total[total > 0]


def at_random(
    points: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Rows drawn at random."""
    return points[random_state.choice(len(points), n_clusters, replace=False, p=weight / weight.sum())]


SEEDERS: dict[str, Seeder] = {"k-means++": plus_plus, "random": at_random}
