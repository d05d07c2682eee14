"""Where to start: k-means++ in the joint space of all views, several times, judged by the model's own objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from sklearn.cluster import kmeans_plusplus

from fedhk._typing import FloatArray, IntArray
from fedhk.model.loop import improve
from fedhk.model.one_pass import Passes
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows, ScaledRows

# Starts are drawn from, and compared on, at most this many rows: enough to see the clusters, few enough to be quick.
SEED_ROWS = 4096
ROWS_PER_CLUSTER = 50

# Passes that each start is given before it is judged.
TRIAL_PASSES = 8

# Objectives closer than this come from the same solution with clusters in another order; the first one stays.
SAME_OBJECTIVE = 1e-7

Seeder = Callable[[FloatArray, FloatArray, int, np.random.RandomState], FloatArray]


def best_start(
    rows: Rows,
    template: Parameters,
    seeder: Seeder,
    *,
    n_init: int,
    random_state: np.random.RandomState,
    workers: int,
) -> Parameters:
    """The start whose objective is lowest after a few passes over a sample of the rows.

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
    random_state : RandomState
        Source of randomness.
    workers : int
        Threads.
    """
    sample = sample_rows(rows, template.n_clusters, random_state)
    points, weight = distinct_rows(joint_rows(sample), sample.sample_weight)
    if len(points) <= template.n_clusters:  # every row its own centre; the rest coincide
        seeds = np.resize(points, (template.n_clusters, points.shape[1]))
        return replace(template, centers=split_joint(seeds, rows.widths))
    best, lowest = template, np.inf
    with Passes(sample, template.n_clusters, workers) as scan:
        for _ in range(n_init):
            seeds = seeder(points, weight, template.n_clusters, random_state)
            candidate = replace(template, centers=split_joint(seeds, rows.widths))
            for _ in range(TRIAL_PASSES):
                candidate = improve(candidate, scan.statistics(candidate), learn_weights=False)
            objective = scan.statistics(candidate).objective if n_init > 1 else -np.inf
            if objective < lowest - SAME_OBJECTIVE * abs(lowest) or best is template:
                best, lowest = candidate, objective
    return best


def sample_rows(rows: Rows, n_clusters: int, random_state: np.random.RandomState) -> Rows:
    """All rows, or a random subset of them where they are many."""
    most = max(SEED_ROWS, ROWS_PER_CLUSTER * n_clusters)
    if rows.n_rows <= most:
        return rows
    return take(rows, np.sort(random_state.choice(rows.n_rows, most, replace=False)))


def take(rows: Rows, indices: IntArray) -> Rows:
    """A subset of the rows."""
    tables = tuple(None if table is None else table[indices] for table in rows.views.tables)
    weight = None if rows.sample_weight is None else rows.sample_weight[indices]
    return Rows(replace(rows.views, tables=tables, n_rows=len(indices)), rows.references, weight)


def joint_rows(rows: Rows) -> FloatArray:
    """All views side by side in model units, where every view weighs alike; a missing cell is at the grand mean."""
    joint = np.zeros((rows.n_rows, sum(rows.widths)), rows.dtype)
    parts = np.split(joint, np.cumsum(rows.widths)[:-1], axis=1)
    for table, reference, part in zip(rows.views.tables, rows.references, parts, strict=True):
        if table is not None:
            ScaledRows(table, reference, rows.dtype).read(slice(0, rows.n_rows), part)
            np.nan_to_num(part, copy=False, nan=0.0)
    return joint


def split_joint(joint: FloatArray, widths: tuple[int, ...]) -> tuple[FloatArray, ...]:
    """Centres of the joint space as centres per view."""
    return tuple(np.asarray(part, dtype=np.float64) for part in np.split(joint, np.cumsum(widths)[:-1], axis=1))


def distinct_rows(joint: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Different rows and their total weights, in an order that does not depend on the order they came in.

    Draws from these depend on what the rows are, not on how often or where they are listed: a row of weight 2 is the
    same as two rows, and a row of weight 0 is none.
    """
    directions = np.cos(np.arange(joint.shape[1], dtype=joint.dtype))
    keys = (joint * directions).sum(axis=1)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    total: FloatArray = np.zeros(len(first))
    np.add.at(total, which, 1.0 if weight is None else weight)
    return joint[first[total > 0]], total[total > 0]


def plus_plus(
    points: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Greedy k-means++ seeds."""
    return np.asarray(kmeans_plusplus(points, n_clusters, sample_weight=weight, random_state=random_state)[0])


def at_random(
    points: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Rows drawn at random."""
    return points[random_state.choice(len(points), n_clusters, replace=False, p=weight / weight.sum())]


SEEDERS: dict[str, Seeder] = {"k-fed": plus_plus, "k-means++": plus_plus, "random": at_random}
