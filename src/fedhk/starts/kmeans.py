"""Plain weighted k-means on a small dense table, and the few directions in which such a table is looked at.

scikit-learn's KMeans adds in the order its threads finish, and warns where rows coincide. This one gives the same bits
whatever the threads, and is quiet about duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.views import row_blocks
from fedhk.model.rows import Rows
from fedhk.tensors.gauges import peak_signs

# Directions that hold less than this share of the squares are what rounding leaves.
SPAN_SHARE = 1e-20

# Directions in which points reach less than this share of the furthest are what rounding leaves.
SPAN = 1e-7

# Fall of the loss, as a share of it, at which passes with far points held back end: labels hardly change by then.
HEAT_TOL = 1e-4

# Distances that are computed at a time where many seeds are drawn or several tables are looked at: they stay in the
# cache.
DRAW_CELLS = 2**19

# Points of which all pairs of distances may be kept: 32 MB.
MOST_PAIRS = 2000

# Up to so many cells, sums of groups take less time without a sparse matrix; the two meet at about 10,000.
FEW_CELLS = 5_000


def plus_plus(
    points: FloatArray, weight: FloatArray, n_clusters: int, random_state: np.random.RandomState
) -> FloatArray:
    """Draw greedy k-means++ seeds: of a few points at each step, the one that lowers the loss most.

    These are the draws of scikit-learn's `kmeans_plusplus`, whose checks take longer than the draws on few points.
    """
    return plus_plus_each(points, weight, Lots.draw(weight, n_clusters, 1, random_state))[0]


class Lots(NamedTuple):
    """The random numbers of one draw of k-means++ seeds."""

    first: int  # the first point
    others: FloatArray  # from 0 to 1, which decide on the points to try at each later step, (clusters - 1, tries)

    @classmethod
    def draw(cls, weight: FloatArray, n_clusters: int, count: int, random_state: np.random.RandomState) -> list[Lots]:
        """Draw so many of them for points of these weights."""
        places = np.cumsum(weight / weight.sum())
        places /= places[-1]
        size = (n_clusters - 1, 2 + int(np.log(n_clusters)))
        return [
            cls(int(places.searchsorted(random_state.random_sample(), side="right")), random_state.uniform(size=size))
            for _ in range(count)
        ]


def plus_plus_each(points: FloatArray, weight: FloatArray, lots: Sequence[Lots]) -> list[FloatArray]:
    """Draw k-means++ seeds by each of some lots; all of them together read the points once at each step."""
    if not lots:
        return []
    steps, tries = lots[0].others.shape
    at_once = max(1, DRAW_CELLS // (tries * len(points)))
    if len(lots) > at_once:
        return plus_plus_each(points, weight, lots[:at_once]) + plus_plus_each(points, weight, lots[at_once:])
    squared_distances = _find_distances(points, len(lots) * steps * tries)
    each = np.arange(len(lots))
    chosen = np.empty((len(lots), steps + 1), np.int64)
    chosen[:, 0] = [own.first for own in lots]
    nearest = squared_distances(chosen[:, 0])
    for step in range(steps):
        places = [own.others[step] * total for own, total in zip(lots, nearest @ weight, strict=True)]
        sums = np.cumsum(nearest * weight, axis=1)
        drawn = np.array([np.searchsorted(own, place) for own, place in zip(sums, places, strict=True)])
        drawn = np.minimum(drawn, len(points) - 1)
        closer = squared_distances(drawn.ravel()).reshape(len(lots), tries, -1)
        np.minimum(closer, nearest[:, None, :], out=closer)
        best = np.argmin(closer @ weight, axis=1)
        chosen[:, step + 1] = drawn[each, best]
        nearest = closer[each, best]
    return [np.asarray(points[own]) for own in chosen]


def _find_distances(points: FloatArray, n_draws: int) -> Callable[[IntArray], FloatArray]:
    """Make the function that computes the squared distances of some points to all, which is asked for so many."""
    norms = np.einsum("nd,nd->n", points, points)

    def squared_distances(drawn: IntArray | slice) -> FloatArray:
        found = points[drawn] @ points.T
        found *= -2
        found += norms[drawn][:, None]
        found += norms
        return np.maximum(found, 0.0, out=found)

    # the product of a table with itself is computed by half
    if len(points) <= min(2 * n_draws, MOST_PAIRS):
        return squared_distances(slice(None)).__getitem__
    return squared_distances


def find_nearest(points: FloatArray, centers: FloatArray) -> IntArray:
    """Find the nearest centre of each point."""
    return np.asarray(np.argmin(np.einsum("kq,kq->k", centers, centers) - 2 * points @ centers.T, axis=1))


def lloyd(
    points: FloatArray, weight: FloatArray, centers: FloatArray, passes: int
) -> tuple[FloatArray, IntArray, float]:
    """Centres after some passes, the nearest centre of each point, and the weighted sum of squared distances.

    Ends early when no point changes its centre. A centre without points stays.
    """
    return lloyd_each(points, weight, [centers], passes)[0]


def lloyd_each(
    points: FloatArray, weight: FloatArray, seeds: Sequence[FloatArray], passes: int
) -> list[tuple[FloatArray, IntArray, float]]:
    """What `lloyd` gives from each of several seeds; one product with all centres is faster than one for each."""
    if not seeds:
        return []
    centers = np.array(seeds, np.float64)
    if len(points) * len(seeds) * len(seeds[0]) <= DRAW_CELLS:
        places, chosen, inertias = _run_lloyd(points[None], weight, centers[None], passes)
        return [*zip(places[0], chosen[0].argmax(axis=1), inertias[0].tolist(), strict=True)]
    norms = np.einsum("nd,nd->n", points, points)
    count, width = centers.shape[1:]
    labels: IntArray = np.full((len(seeds), len(points)), -1)
    inertia = np.full(len(seeds), np.inf)
    going = np.arange(len(seeds))  # the seeds from which points still change their centres
    for turn in range(passes + 1):
        flat = centers[going].reshape(-1, width).astype(points.dtype)
        lengths = np.einsum("kd,kd->k", flat, flat)
        nearest = np.empty((len(points), len(going)), np.int64)
        least = np.empty((len(points), len(going)))
        for rows in row_blocks(len(points), 8 * len(flat)):  # distances of all points may need much memory
            distances = points[rows] @ flat.T
            distances *= -2
            distances += lengths
            distances = distances.reshape(-1, len(going), count)
            nearest[rows] = distances.argmin(axis=2)
            places = np.arange(nearest[rows].size).reshape(-1, len(going)) * count + nearest[rows]
            least[rows] = distances.ravel().take(places)
        inertia[going] = weight @ np.maximum(norms[:, None] + least, 0.0)
        moved = np.any(np.ascontiguousarray(nearest.T) != labels[going], axis=1)
        going, nearest = going[moved], nearest[:, moved]
        labels[going] = nearest.T
        if turn == passes or len(going) == 0:
            break
        sums, sizes = group_sums(points, weight, nearest + count * np.arange(len(going)), count * len(going))
        before = centers[going].reshape(-1, width)
        after = np.divide(sums, sizes[:, None], out=before, where=sizes[:, None] > 0)
        centers[going] = after.reshape(-1, count, width)
    return [(centers[i], labels[i], float(inertia[i])) for i in range(len(seeds))]


def lowest_inertia(tables: FloatArray, weight: FloatArray, seeds: FloatArray, passes: int) -> FloatArray:
    """Compute the least weighted sum of squared distances that k-means reaches in each of several tables.

    Parameters
    ----------
    tables : array of shape (tables, points, d)
        The points of each table.
    weight : array of shape (points,)
        Their weights, the same in all tables.
    seeds : array of shape (tables, starts, clusters, d)
        Where k-means starts in each table.
    passes : int
        Most passes.

    Notes
    -----
    It is the least that `lloyd_each` gives for each table. Where points are few, all tables go through a pass together:
    calls take longer than numbers there.
    """
    n_tables, runs, count = seeds.shape[:3]
    if n_tables * tables.shape[1] * runs * count > DRAW_CELLS:
        found = [lloyd_each(points, weight, list(own), passes) for points, own in zip(tables, seeds, strict=True)]
        return np.array([min(inertia for _, _, inertia in own) for own in found])
    return np.asarray(_run_lloyd(tables, weight, seeds, passes)[2].min(axis=1))


def _run_lloyd(
    tables: FloatArray, weight: FloatArray, seeds: FloatArray, passes: int
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Run k-means in all of several small tables together, with arguments as in `lowest_inertia`.

    Returns centres of shape (tables, starts, clusters, d), whether each is a point's own, of shape (tables, starts,
    clusters, points), and inertias of shape (tables, starts). Sums over clusters are a product with the latter: a
    sparse matrix would take longer to make than to use.
    """
    n_tables, n_points, width = tables.shape
    centers = seeds.reshape(n_tables, -1, width).astype(tables.dtype)
    shape = (*seeds.shape[:3], n_points)
    shares = (weight / weight.max()).astype(tables.dtype)  # any weight fits into single precision
    weights = np.broadcast_to(shares[:, None], (n_tables, n_points, 1))
    lifted = np.concatenate([tables * weights, weights], axis=2)
    points, chosen = tables.transpose(0, 2, 1), np.zeros(0, bool)
    for turn in range(passes + 1):
        distances = centers @ points
        distances *= -2
        distances += np.einsum("tkd,tkd->tk", centers, centers)[:, :, None]
        before, (chosen, least) = chosen, _choose_nearest(distances.reshape(shape))
        if turn == passes or np.array_equal(chosen, before):
            break
        sums = chosen.reshape(distances.shape).astype(tables.dtype) @ lifted
        sizes = sums[:, :, width:]
        centers = np.divide(sums[:, :, :width], sizes, out=centers, where=sizes > 0)
    norms = np.einsum("tnd,tnd->tn", tables, tables)
    inertia = np.maximum(norms[:, None] + least, 0.0) @ weight
    return centers.reshape(seeds.shape), chosen, inertia


def _choose_nearest(distances: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Tell which centre is the nearest of each point, of equally near ones the first, and how far it is.

    Distances have the shape (..., clusters, points).
    """
    least = distances.min(axis=-2, keepdims=True)
    chosen = distances == least
    if np.count_nonzero(chosen) > least.size:
        chosen &= np.cumsum(chosen, axis=-2) == 1
    return chosen, least[..., 0, :]


def heat_lloyd(
    points: FloatArray, weight: FloatArray, centers: FloatArray, passes: int, heat_time: float
) -> tuple[FloatArray, IntArray, float]:
    """Centres after some passes of k-means in which far points pull little, the nearest centre of each, and the loss.

    A point costs 1 - exp(-t d^2), the distance of the model, so that no outlier has a cluster of its own. Ends early
    when the loss has settled.
    """
    norms, loss = np.einsum("nd,nd->n", points, points), np.inf
    for _ in range(passes):
        distances = np.einsum("kd,kd->k", centers, centers) - 2 * points @ centers.T
        labels = distances.argmin(axis=1)
        near = np.exp(-heat_time * np.maximum(norms + distances[np.arange(len(points)), labels], 0.0))
        before, loss = loss, float(weight @ (1.0 - near))
        if loss > before * (1 - HEAT_TOL):
            break
        sums, sizes = group_sums(points, weight * near, labels, len(centers))
        centers = np.divide(sums, sizes[:, None], out=centers.astype(np.float64), where=sizes[:, None] > 1e-300)
    return centers, labels, loss


def group_sums(
    points: FloatArray, weight: FloatArray, labels: IntArray, n_groups: int
) -> tuple[FloatArray, FloatArray]:
    """Weighted sum of the points of each group, and the weight of each group.

    A point is in one group, or in several: labels have the shape (n,) or (n, groups of a point).
    """
    labels = labels[:, None] if labels.ndim == 1 else labels
    each, width = labels.shape[1], points.shape[1]
    weights = np.repeat(weight, each)
    sizes = np.asarray(np.bincount(labels.ravel(), weights, n_groups), np.float64)
    if points.size * each <= FEW_CELLS:  # the same sums without the time that a sparse matrix takes
        cells = (labels[:, :, None] * width + np.arange(width)).ravel()
        values = np.broadcast_to((weight[:, None] * points)[:, None, :], (*labels.shape, width))
        sums = np.bincount(cells, values.ravel(), n_groups * width)
        return np.asarray(sums.reshape(n_groups, -1), np.float64), sizes
    starts = np.arange(0, labels.size + 1, each)
    member = sp.csc_array((weights, labels.ravel(), starts), shape=(n_groups, len(points)))
    return np.asarray(member @ points, np.float64), sizes


def group_means(points: FloatArray, weight: FloatArray, labels: IntArray, n_groups: int) -> FloatArray:
    """Compute the weighted mean of each group; an empty group has the mean of all points."""
    sums, sizes = group_sums(points, weight, labels, n_groups)
    everywhere = np.broadcast_to(sums.sum(axis=0) / sizes.sum(), sums.shape)
    return np.asarray(np.divide(sums, sizes[:, None], out=everywhere.copy(), where=sizes[:, None] > 0))


def project_on_leading(points: FloatArray, weight: FloatArray, count: int) -> FloatArray:
    """Project points on the directions in which they vary most, at most `count` of them.

    The best centres of k-means lie nearly in the first `n_clusters - 1` (Zha and others, 2001). The sign of a direction
    does not depend on the processor: its largest entry is positive.
    """
    centred = points - (weight @ points) / weight.sum()
    scaled = np.sqrt(weight)[:, None] * centred
    if len(points) < points.shape[1]:
        _, vectors = np.linalg.eigh(scaled @ scaled.T)
        axes = scaled.T @ vectors[:, -count:]
        lengths = np.linalg.norm(axes, axis=0)
        # a direction in which points do not vary is what rounding leaves
        axes = np.divide(axes, lengths, out=np.zeros_like(axes), where=lengths > SPAN * lengths.max(initial=0.0))
    else:
        _, vectors = np.linalg.eigh(scaled.T @ scaled)
        axes = vectors[:, -count:]
    return np.asarray(centred @ (axes * peak_signs(axes)))


def leading_axes(points: FloatArray, share: float) -> FloatArray:
    """Find orthonormal columns along which points around 0 vary most.

    A direction is left out if it holds less than `share` of the summed squares; 1 keeps all that the points span.
    """
    try:
        _, values, axes = np.linalg.svd(points, full_matrices=False)
    except np.linalg.LinAlgError:  # the fast driver may fail on many equal singular values; the other does not
        _, values, axes = scipy.linalg.svd(points, full_matrices=False, lapack_driver="gesvd")
    squares = np.square(values)
    least = SPAN_SHARE if share >= 1 else share
    return np.asarray(axes[squares > least * max(float(squares.sum()), 1e-300)].T)


def compress(
    rows: Rows, parts: Sequence[FloatArray]
) -> tuple[Rows, dict[int, tuple[FloatArray, FloatArray, FloatArray]]]:
    """Give each view that is wider than the rows are many as many coordinates as there are rows, at most.

    `parts` are the views in model units. Of every view that was changed the mean and two factors of its orthonormal
    axes are given, too: its values are mean + coordinates @ shares @ centred.

    Seeding compares many starts on few rows; on text the features are ten times as many as the rows. Squared distances
    between rows, and to any mean of rows, are the same in both coordinates. A view with missing cells or with
    coefficients stays as it is: its distances are no longer plain ones.
    """
    tables, references, axes = list(rows.views.tables), list(rows.references), {}
    for view, (part, reference) in enumerate(zip(parts, rows.references, strict=True)):
        if not rows.is_uniform(view) or reference.width <= len(part):
            continue
        mean = part.mean(axis=0)
        centred = part - mean
        values, vectors = np.linalg.eigh(centred @ centred.T)
        kept = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
        if not kept.any():  # all rows alike
            continue
        lengths = np.sqrt(values[kept])
        axes[view] = mean, (vectors[:, kept] / lengths).T, centred
        tables[view] = np.ascontiguousarray(vectors[:, kept] * lengths, dtype=rows.dtype)
        zeros, ones = np.zeros(len(lengths)), np.ones(len(lengths))
        references[view] = replace(reference.of_model_units(), shift=zeros, scale=ones, low=zeros, span=ones)
    views = replace(rows.views, tables=tuple(tables))
    return Rows(views, tuple(references), rows.sample_weight, rows.spread), axes
