"""Anchors from the weighted candidates of sites, and rows that stand in for those of sites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.model.rows import Rows, joint_rows, split_joint
from fedhk.starts.candidates import KMEANS_PASSES
from fedhk.starts.kmeans import lloyd, plus_plus
from fedhk.starts.seeding import distinct_rows

# Anchors for a cluster where clusters are many; rows for an anchor where rows are few; anchors that a cluster needs.
GOOD_PER_CLUSTER, ROWS_PER_ANCHOR, LEAST_PER_CLUSTER = 4, 3, 2

# Anchors for a row at most: with more, rows would have no anchor in common, and no heat would pass between them.
MOST_PER_ROW = 2

# Candidates for an anchor: the anchor is then a mean of means, and still lies where rows do.
CANDIDATES_PER_ANCHOR = 2

# Rows that stand in for those of the sites, and near candidates in whose directions they spread.
STAND_INS, DIRECTIONS = 3000, 7

# Of them, as many as have this size are made at a time.
PART_BYTES = 2**25

# Candidates that say what one without a view would have there.
DONORS = 3


def good_count(n_clusters: int, n_rows: float, wanted: int) -> int:
    """Choose the number of anchors: more for many clusters, at most two for each row."""
    return max(min(max(wanted, GOOD_PER_CLUSTER * n_clusters), int(MOST_PER_ROW * n_rows)), 2)


def anchor_count(n_clusters: int, n_rows: float, wanted: int) -> int:
    """Choose the number of means of rows, given the number of anchors: fewer if rows are few."""
    few = min(good_count(n_clusters, n_rows, wanted), int(n_rows) // ROWS_PER_ANCHOR)
    return max(LEAST_PER_CLUSTER * n_clusters, few, 2)


def candidate_share(n_anchors: int, n_rows: float) -> float:
    """Return the number of candidates that a site sends per row."""
    return CANDIDATES_PER_ANCHOR * n_anchors / max(n_rows, 1.0)


def make_anchors(
    candidates: Rows,
    n_anchors: int,
    references: Sequence[Reference],
    random_state: np.random.RandomState,
    levels: Sequence[BoolArray] = (),
) -> tuple[FloatArray, ...]:
    """Centres of groups of complete candidates, or of rows, in the joint space.

    All are different; they are fewer than wanted where there are fewer different candidates. Features that are `levels`
    of categories, given per view, are at the grand mean in all of them.
    """
    joint = joint_rows(candidates).astype(np.float64)
    if len(levels):
        joint[:, np.concatenate(levels)] = 0.0
    first, weight = distinct_rows(joint, candidates.sample_weight)
    points: FloatArray = joint[first]
    if n_anchors < len(points):
        seeds = plus_plus(points, weight, n_anchors, random_state)
        points = lloyd(points, weight, seeds, KMEANS_PASSES)[0]
    return give_length(split_joint(points, candidates.widths), references)


def give_length(points: Sequence[FloatArray], references: Sequence[Reference]) -> tuple[FloatArray, ...]:
    """Points of all views, in model units, of length 1 in the views where rows have length 1.

    The mean of a wide group is short, and would be near to every row.
    """
    found = []
    for part, reference in zip(points, references, strict=True):
        values = reference.to_input(part) if reference.on_sphere else part
        lengths = np.sqrt(np.nansum(np.square(values), axis=1, keepdims=True))
        scaled = np.nan_to_num(values / np.where(lengths > 0, lengths, 1.0), nan=0.0)
        found.append(reference.to_model(scaled) if reference.on_sphere else part)
    return tuple(found)


def complete_candidates(candidates: Rows) -> Rows:
    """Candidates of which none lacks a cell: it has the mean of the nearest candidates that have it, or the grand mean.

    Distances are over the cells that both have, per cell.
    """
    joint = joint_rows(candidates, missing=np.nan).astype(np.float64)
    has = ~np.isnan(joint)
    values = np.where(has, joint, 0.0)
    lacking = np.flatnonzero(~has.all(axis=1))
    mask, own = has.astype(np.float64), values[lacking]
    shared = mask[lacking] @ mask.T
    apart = np.square(own) @ mask.T - 2 * own @ values.T + mask[lacking] @ np.square(values).T
    apart = np.divide(apart, shared, out=np.full(shared.shape, np.inf), where=shared > 0)
    filled = values.copy()
    for row, distances in zip(lacking, apart, strict=True):
        order = np.argsort(distances, kind="stable")
        order = order[np.isfinite(distances[order])]
        given = has[order] & (np.cumsum(has[order], axis=0) <= DONORS)
        count, sums = given.sum(axis=0), np.where(given, values[order], 0.0).sum(axis=0)
        lacks = ~has[row] & (count > 0)
        filled[row, lacks] = sums[lacks] / count[lacks]
    return replace_tables(candidates, filled)


def draw_stand_ins(
    candidates: Rows, random_state: np.random.RandomState, count: int = STAND_INS, part_bytes: int = PART_BYTES
) -> Iterator[Rows]:
    """Rows such as may stand behind complete candidates: as far from them as the spreads say, towards their neighbours.

    Means alone are nearer to anchors than rows are, and say little about how rows tie anchors to each other. They come
    in parts, because wide rows are large.
    """
    joint, widths = joint_rows(candidates).astype(np.float64), candidates.widths
    weight = np.ones(len(joint)) if candidates.sample_weight is None else np.asarray(candidates.sample_weight)
    spread = np.zeros((len(joint), len(widths))) if candidates.spread is None else candidates.spread
    pick = random_state.choice(len(joint), count, p=weight / weight.sum())
    near = find_neighbours(joint, DIRECTIONS)
    steps = random_state.normal(size=(count, near.shape[1]))
    # how much of each candidate is in the move of a row: some of its neighbours, less of where it stands
    shares = np.column_stack([steps, -steps.sum(axis=1)])
    where = np.column_stack([near[pick], pick])
    pointers = np.arange(0, where.size + 1, where.shape[1])
    mix = sp.csr_array((shares.ravel(), where.ravel(), pointers), shape=(count, len(joint)))
    plain = replace(candidates, sample_weight=None, spread=None)
    size = max(1, part_bytes // (8 * sum(widths)))
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        moved = scale_moves(mix[part] @ joint, spread[pick[part]], widths)
        yield replace_tables(plain, joint[pick[part]] + moved)


def scale_moves(directions: FloatArray, spread: FloatArray, widths: Sequence[int]) -> FloatArray:
    """Scale moves in given directions, per view, to the root of its spread."""
    parts = []
    for move, squared in zip(split_joint(directions, widths), spread.T, strict=True):
        length = np.linalg.norm(move, axis=1)
        parts.append(move * np.divide(np.sqrt(squared), length, out=np.zeros(len(move)), where=length > 0)[:, None])
    return np.hstack(parts)


def find_neighbours(joint: FloatArray, count: int) -> IntArray:
    """Find the nearest other points of each, nearest first, shape (n, at most `count`)."""
    norms = np.einsum("nd,nd->n", joint, joint)
    apart = norms[:, None] + norms - 2 * joint @ joint.T
    np.fill_diagonal(apart, -np.inf)
    return np.asarray(np.argsort(apart, axis=1, kind="stable")[:, 1 : count + 1])


def replace_tables(rows: Rows, joint: FloatArray) -> Rows:
    """Replace the values of rows by complete ones in model units."""
    tables = tuple(np.ascontiguousarray(part) for part in split_joint(joint, rows.widths))
    views = Views(
        tables, rows.views.names, len(joint), np.dtype(np.float64), (False,) * len(tables), rows.views.columns
    )
    plain = tuple(reference.of_model_units() for reference in rows.references)
    return replace(rows, views=views, references=plain)
