"""A start from sums alone: how many rows are nearest to each of many points along the leading directions of all rows.

Candidates are means of groups of a site's rows, which a site shows to the server. Where the server may see nothing but
sums over all sites, sums replace them: second moments, which give the leading directions; how many rows are nearest to
each of the points that the server draws along these; and, where there is no noise, the means of these groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.linalg import block_diag
from scipy.special import ndtri

from fedhk._symmetric import from_upper_half, upper_half
from fedhk._typing import FloatArray, IntArray
from fedhk.model.rows import Rows, joint_rows, split_joint, take, view_sums
from fedhk.starts.candidates import Candidates, OwnGroups
from fedhk.starts.kmeans import group_sums

# Rows that are brought to model units at a time.
BLOCK_ROWS = 1024

# Up to this many features second moments are taken of the features themselves, else of random combinations of them:
# 131,000 numbers. Fewer combinations lose more of the rows than of the noise.
MOST_FEATURES = 512

# Fewest points per cluster whose rows are counted with noise.
POINTS_PER_CLUSTER = 4

# Standard deviations by which sums of squares must exceed what noise alone makes before they are believed: a test at
# 5 %, because to give up where there is something to find costs more than to go on where there is nothing.
SURELY = 1.645

# How far beside the mean of a group its second point is, in standard deviations of the group: the plane between the two
# goes through the group even where rows spread in thousands of features, and little along the few directions of points.
NEAR = 1e-3

# Points are drawn from a Gaussian with the spread of all rows; this share of its mass at either end has none.
LEAST_TAIL = 1e-4


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Points along a few orthonormal directions; each stands for the rows that are nearest to it."""

    axes: FloatArray  # the directions, (d, q), in model units
    places: FloatArray  # where the points are along them, (m, q)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def points(self) -> FloatArray:
        """The points in model units, (m, d)."""
        return np.asarray(self.places @ self.axes.T)

    def nearest(self, joint: FloatArray) -> IntArray:
        """The point that each row is nearest to; of several the first. Every row, however far, has one."""
        # scores of rows so far out that they overflow are undefined: any one point will do
        scores = np.nan_to_num(joint @ self.axes) @ self.places.T - np.square(self.places).sum(axis=1) / 2
        return np.asarray(np.nan_to_num(scores).argmax(axis=1))

    def nearest_own(self, own: OwnGroups, block: FloatArray | None = None) -> IntArray:
        """The point of each row of a site: the one that is nearest to the mean of the row's group.

        With a `block`, orthonormal columns of all features, points are in its coordinates.
        """
        means = own.means if block is None else own.means @ block
        return np.asarray(self.nearest(means)[own.labels])

    def counts(self, rows: Rows) -> FloatArray:
        """How many rows are nearest to each point."""
        total = np.zeros(len(self))
        for joint, _ in read_blocks(rows):
            total += np.bincount(self.nearest(joint), minlength=len(self))
        return total

    def candidates(self, counts: FloatArray, noise: float, spreads: FloatArray) -> Candidates:
        """Points that have rows, as candidates; the middle alone where counts cannot be told from noise.

        Parameters
        ----------
        counts : array of shape (m,)
            Rows of each point.
        noise : float
            Standard deviation of the noise in them.
        spreads : array of shape (s,)
            Mean squared distance, per view, of rows to these directions.
        """
        weight = hold_counts(counts)
        held = np.flatnonzero(weight > 0)
        if len(held) == 0 or not differ(counts, noise):
            return Candidates(np.zeros((1, len(self.axes))), np.ones(1), spreads[None])
        return Candidates(self.points[held], weight[held], np.tile(spreads, (len(held), 1)))


def hold_counts(counts: FloatArray) -> FloatArray:
    """The counts nearest to these that are not negative and have the same sum; none where that is not above zero.

    These are the most likely ones where all numbers have the same noise and rows are many more than noise. What noise
    adds to points without rows is taken off all points alike: where rows are at few of many points it is nearly the
    largest noise, where they are everywhere it is little, and clusters that are wide or small keep their rows.
    """
    ordered = np.sort(counts)[::-1]
    excess = (np.cumsum(ordered) - counts.sum()) / np.arange(1, len(counts) + 1)
    kept = np.flatnonzero(ordered > excess)
    return np.maximum(counts - excess[kept[-1]], 0.0) if counts.sum() > 0 else np.zeros(len(counts))


def differ(counts: FloatArray, noise: float) -> bool:
    """Whether counts say how rows differ: they are above noise on average, or differ by more than it explains."""
    degrees = len(counts) - 1
    squares = float(np.square(counts - counts.mean()).sum())
    return float(counts.mean()) > noise or squares > noise**2 * (degrees + SURELY * math.sqrt(2 * degrees))


def draw_landmarks(axes: FloatArray, deviations: FloatArray, count: int, seed: int) -> Landmarks:
    """Points spread as evenly as a Gaussian with these standard deviations along the axes allows (Sobol, scrambled)."""
    from scipy.stats import qmc  # noqa: PLC0415 - a site's process starts anew for every message, and draws none

    uniform = qmc.Sobol(axes.shape[1], seed=seed).random(2 ** int(np.ceil(np.log2(count))))[:count]
    return Landmarks(axes, ndtri(np.clip(uniform, LEAST_TAIL, 1 - LEAST_TAIL)) * deviations)


def draw_in_ball(rng: np.random.Generator, count: int, width: int) -> FloatArray:
    """Points drawn evenly from all over a ball of radius 1 in so many dimensions."""
    turned = rng.standard_normal((count, width))
    lengths = rng.random((count, 1)) ** (1.0 / width)
    return np.asarray(turned * lengths / np.maximum(np.linalg.norm(turned, axis=1, keepdims=True), 1e-300))


def split_groups(landmarks: Landmarks, groups: Candidates, count: int, seed: int) -> Landmarks:
    """The means of groups as points, and beside those with the largest sums of squares a second one, `count` at most.

    It is so near that it halves the group in a random direction.
    """
    places = np.nan_to_num(groups.points) @ landmarks.axes
    squares = groups.sizes * groups.spreads.sum(axis=1)
    more = np.argsort(-squares, kind="stable")[: max(count - len(places), 0)]
    lengths = NEAR * np.sqrt(squares[more] / groups.sizes[more])
    turned = np.random.default_rng(seed).standard_normal((len(more), places.shape[1]))
    return replace(landmarks, places=np.vstack([places, places[more] + lengths[:, None] * turned]))


def view_group_totals(rows: Rows, views: Sequence[Landmarks], basis: FloatArray | None = None) -> FloatArray:
    """Sums over the rows that have a view and are nearest to each of its points, along its directions, as one vector.

    For each view and point they are the sum of the rows and how many they are; after those of a view comes the sum of
    the squared lengths of its rows. `read_view_groups` reads them. With a `basis`, orthonormal columns of all features,
    directions are in its coordinates.
    """
    totals = [np.zeros((len(landmarks), landmarks.places.shape[1] + 1)) for landmarks in views]
    squares = [0.0] * len(views)
    for joint, seen in read_blocks(rows):
        inner = joint if basis is None else joint @ basis
        parts = split_joint(inner, [len(landmarks.axes) for landmarks in views])
        for view, (part, has, landmarks) in enumerate(zip(parts, seen, views, strict=True)):
            held = part[has.any(axis=1)]
            places, ones = held @ landmarks.axes, np.ones(len(held))
            values = np.column_stack([places, ones])
            totals[view] += group_sums(values, ones, landmarks.nearest(held), len(landmarks))[0]
            squares[view] += float(np.square(places).sum())
    return np.concatenate([np.append(total, own) for total, own in zip(totals, squares, strict=True)])


def count_view_totals(views: Sequence[Landmarks]) -> list[int]:
    """How many numbers `view_group_totals` gives for each view."""
    return [len(landmarks) * (landmarks.places.shape[1] + 1) + 1 for landmarks in views]


def read_view_groups(vector: FloatArray, landmarks: Landmarks) -> tuple[Landmarks, float, float]:
    """Read the numbers of one view from the sum of `view_group_totals` over sites.

    Returns the means of the rows of each point, as points; how far rows are from these, squared and summed; and how
    many rows there are. A point without rows stays where it is.
    """
    table = vector[:-1].reshape(len(landmarks), -1)
    sums, counts = table[:, :-1], table[:, -1:]
    means = np.where(counts > 0.5, sums / np.maximum(counts, 0.5), landmarks.places)
    within = float(vector[-1] - (counts * np.square(means)).sum())
    return replace(landmarks, places=means), max(within, 0.0), float(counts.sum())


def group_totals(
    rows: Rows,
    landmarks: Landmarks,
    full: Sequence[bool],
    basis: Sequence[FloatArray] | None = None,
    own: OwnGroups | None = None,
) -> FloatArray:
    """Sums over the rows of each point, as one vector; `read_groups` reads it.

    A row is of the point that it is nearest to, or, with groups of the site's `own`, of the one that is nearest to the
    mean of its group.

    They are the sums of the features, how many values these have (per view, or per feature where `full`), the squared
    lengths per view, and the number of rows. With a `basis`, orthonormal columns of shape (d_h, q_h), points and sums
    are in its coordinates; squared lengths are those of the whole rows.
    """
    m, block = len(landmarks), None if basis is None else block_diag(*basis)
    sizes = _group_sizes(rows.widths if basis is None else [columns.shape[1] for columns in basis], full)
    total = np.zeros((m, sum(sizes)))
    nearest, done = None if own is None else landmarks.nearest_own(own, block), 0
    for joint, seen in read_blocks(rows):
        inner = joint if block is None else joint @ block
        labels = landmarks.nearest(inner) if nearest is None else nearest[done : done + len(joint)]
        done += len(joint)
        parts = [part if all_of else part.max(axis=1, keepdims=True) for part, all_of in zip(seen, full, strict=True)]
        values = np.hstack([inner, *parts, view_sums(joint**2, rows.widths), np.ones((len(joint), 1))])
        total += group_sums(values, np.ones(len(joint)), labels, m)[0]
    return np.concatenate([part.ravel() for part in np.split(total, np.cumsum(sizes)[:-1], axis=1)])


def count_group_totals(n_points: int, widths: Sequence[int], full: Sequence[bool]) -> int:
    """How many numbers `group_totals` gives."""
    return n_points * sum(_group_sizes(widths, full))


def read_groups(vector: FloatArray, widths: Sequence[int], full: Sequence[bool]) -> Candidates:
    """Candidates from the sum of `group_totals` over sites: the means of the groups that have rows."""
    sizes = _group_sizes(widths, full)
    m = len(vector) // sum(sizes)
    sums, seen, squares, counts = (
        part.reshape(m, size) for part, size in zip(np.split(vector, m * np.cumsum(sizes)[:-1]), sizes, strict=True)
    )
    values = np.hstack(
        [
            np.broadcast_to(part, (m, width))
            for part, width in zip(split_joint(seen, _columns(widths, full)), widths, strict=True)
        ]
    )
    means = np.divide(sums, values, out=np.full(sums.shape, np.nan), where=values > 0.5)
    squares = squares - view_sums(np.nan_to_num(values * means**2), widths)
    filled = counts[:, 0] > 0.5
    spreads = np.maximum(squares[filled], 0.0) / counts[filled]
    return Candidates(means[filled], counts[filled, 0], spreads)


def _group_sizes(widths: Sequence[int], full: Sequence[bool]) -> list[int]:
    """Sums of features, values, squared lengths and rows that each point has."""
    return [sum(widths), sum(_columns(widths, full)), len(widths), 1]


def _columns(widths: Sequence[int], full: Sequence[bool]) -> list[int]:
    return [width if all_of else 1 for width, all_of in zip(widths, full, strict=True)]


@lru_cache(maxsize=2)
def sketch(width: int, seed: int, most: int = MOST_FEATURES) -> FloatArray:
    """Directions in which second moments are taken, of shape (width, p): the features, or random ones."""
    if width <= most:
        return np.eye(width)
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((width, most)))[0]


def second_moments(rows: Rows, directions: FloatArray, radius: float, constant: float = 0.0) -> FloatArray:
    """The sum over rows of y y^T as one vector, with y a row in the directions, cut to the length `radius`.

    With a `constant`, y has it as one number more, after the cut: its products are the sum of the rows.
    The part of y y^T below the diagonal stands once, times the root of 2, so that lengths are kept.
    """
    p = directions.shape[1] + (constant > 0)
    second = np.zeros((p, p))
    for joint, _ in read_blocks(rows):
        y = cut_rows(joint @ directions, radius)
        if constant > 0:
            y = np.column_stack([y, np.full(len(y), constant)])
        second += y.T @ y
    flat = second * np.sqrt(2)
    np.fill_diagonal(flat, np.diag(second))
    return upper_half(flat)


def score_products(rows: Rows, combinations: FloatArray) -> FloatArray:
    """The sum over rows of x z^T, of shape (d, t), with z the combinations of a row's features."""
    total = np.zeros(combinations.shape)
    for joint, _ in read_blocks(rows):
        total += joint.T @ (joint @ combinations)
    return total


def read_second_moments(vector: FloatArray) -> FloatArray:
    """The matrix of which `second_moments` sent one half."""
    square = from_upper_half(vector)
    return np.asarray(square / np.sqrt(2) + np.diag(np.diag(square)) * (1 - 1 / np.sqrt(2)))


def cut_rows(joint: FloatArray, radius: float) -> FloatArray:
    """Rows, those that are longer than the radius cut to it."""
    if not np.isfinite(radius):
        return joint
    return np.asarray(joint * np.minimum(1.0, radius / np.maximum(np.linalg.norm(joint, axis=1), 1e-300))[:, None])


def leading_directions(covariance: FloatArray, most: int, edge: float) -> tuple[FloatArray, FloatArray]:
    """The directions, at most so many, in which rows differ by more than noise and spread within clusters explain.

    Parameters
    ----------
    covariance : array of shape (p, p)
        Of all rows, with noise.
    most : int
        The most directions.
    edge : float
        The largest eigenvalue that noise alone makes.

    Returns
    -------
    tuple of array
        The directions, of shape (p, q), and the standard deviation along each, without what noise adds to it.

    Notes
    -----
    Noise of which the largest eigenvalue alone is 2 s makes theta + s^2 / theta of an eigenvalue theta above s, and
    hides one below (Benaych-Georges and Nadakuditi 2011). Where directions are more than twice those that means can
    need, most of them show the spread within clusters alone, and their median is what noise is added to.
    """
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    within = max(float(np.median(values)), 0.0) if len(values) > 2 * most else 0.0
    count = max(1, int(np.sum(values[:most] > within + edge)))
    found = np.maximum(values[:count] - within, 0.0)
    true = (found + np.sqrt(np.maximum(found**2 - edge**2, 0.0))) / 2
    return vectors[:, :count], np.sqrt(np.maximum(true + within, 1e-12))


def read_blocks(rows: Rows) -> Iterator[tuple[FloatArray, tuple[FloatArray, ...]]]:
    """The rows in model units, some at a time, and which of their cells are there, by view."""
    for start in range(0, rows.n_rows, BLOCK_ROWS):
        some = take(rows, np.arange(start, min(start + BLOCK_ROWS, rows.n_rows)))
        joint = joint_rows(some, missing=np.nan).astype(np.float64)
        seen = split_joint(~np.isnan(joint), rows.widths)
        yield np.nan_to_num(joint, nan=0.0, posinf=np.inf, neginf=-np.inf), seen


def keep_landmarks(landmarks: Landmarks, counts: FloatArray, least: float) -> Landmarks:
    """Points with so many rows at least; where none has, the one that has most, to which all rows then belong."""
    kept = counts >= min(least, counts.max())
    return replace(landmarks, places=landmarks.places[kept])
