"""Chooses ranks: by a fraction of the energy, or by how well they predict held-out statistics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.tensors.base import Decomposition
from fedhk.tensors.limits import check_rank, largest_ranks
from fedhk.tensors.problem import WeightedCenters, center_mean

_SWEEPS = 10

# Standard errors, over clusters, by which a low rank must predict held-out statistics better than free centres do:
# chance alone does that about once in a thousand times. To bind without need costs clusters, not to bind nothing.
_SURE = 3.0


@dataclass(frozen=True)
class RankChoice:
    """A rank and what it keeps.

    Parameters
    ----------
    rank : tuple of int
        One number per mode.
    energy : float
        Share of sum w t^2 that centres of this rank keep, after a short fit.
    """

    rank: tuple[int, ...]
    energy: float


def choose_rank(
    decomposition: Decomposition[Any],
    energy: float,
    centers: Sequence[FloatArray],
    weights: Sequence[FloatArray] | None = None,
) -> RankChoice:
    """Choose the smallest rank that keeps a fraction of the energy of given centres.

    Parameters
    ----------
    decomposition : Decomposition
    energy : float
        A number between 0 and 1: the share of sum w t^2 to keep. If no possible rank does, the largest is taken, and
        `RankChoice.energy` tells.
    centers, weights : sequences of array of shape (c, d_h); weights also (c, 1), and all 1 if omitted
    """
    if not 0.0 < energy < 1.0:
        raise ValueError(f"rank as a fraction of energy must be between 0 and 1, got {energy!r}.")
    problem = WeightedCenters.of(centers, weights)
    choice = cache(partial(_fit_rank, decomposition, problem))
    return _find_smallest(decomposition.rank_path(problem.targets, energy), energy, choice)


def full_rank(decomposition: Decomposition[Any], n_clusters: int, widths: Sequence[int]) -> tuple[int, ...]:
    """Give the largest rank that is of use: no more directions of features than the centres of a view span."""
    largest = largest_ranks(decomposition.limits(n_clusters, widths))
    if "feature" in largest:
        largest["feature"] = min(largest["feature"], n_clusters)
    return tuple(largest.values())


def find_helpful_rank(
    decomposition: Decomposition[Any], first: WeightedCenters, second: WeightedCenters
) -> tuple[int, ...]:
    """Find the rank whose centres, fitted to half of the rows, best predict those of the other half.

    It is the full rank, which constrains nothing, unless a lower one surely predicts better than free centres do.

    Parameters
    ----------
    decomposition : Decomposition
    first, second : WeightedCenters
        N / W and W of two halves of the rows, at the same parameters.

    Notes
    -----
    Centres of few rows are noisy, and noise has full rank. Let X and Y be the free centres of the two halves, times the
    roots of their weights and without their mean over clusters, and A low-rank centres fitted to X. The noise of Y has
    nothing to do with that of X, so that ``|X - Y|^2 - |A - Y|^2`` is the noise that the low rank leaves out, less the
    signal that it loses, and <X - A, X - Y> is that noise alone. Centres of all rows have half the noise of those of
    half the rows, so half of it is taken off the gain.

    What the best centres of cluster rank r gain follows for all r from one singular value decomposition of X: leaving
    out a direction u v^T gains a^2 / 2 - 3 a b / 2 with a = u^T X v and b = u^T Y v. A form of that rank hardly gains
    more. So the form is fitted for the best r alone, and only if there is something to gain.
    """
    n_clusters, widths = first.shape
    full = full_rank(decomposition, n_clusters, widths)
    weights = []  # of X - Y: the variances of X and Y, which add, are in proportion to the inverses of their weights
    for pair in zip(first.weights, second.weights, strict=True):
        w, v = np.broadcast_arrays(first.scale * pair[0], second.scale * pair[1])
        weights.append(np.divide(w * v, w + v, out=np.zeros(w.shape), where=(w > 0) & (v > 0)))
    x, y = (_spread_around_mean(half.targets, weights) for half in (first, second))
    kept = _find_cluster_rank(x, y)
    rank = kept + 1  # with the mean over clusters
    if rank >= n_clusters or not _surely_gains(x, y, _truncate(x, kept), _truncate(y, kept)):
        return full
    ranks = check_rank(rank, decomposition.limits(n_clusters, widths), decomposition.name)
    fits = (decomposition.fit(half.targets, half.weights, rank=ranks, sweeps=_SWEEPS) for half in (first, second))
    low = (_spread_around_mean(factors.centers(), weights) for factors in fits)
    return ranks if _surely_gains(x, y, *low) else full


def _spread_around_mean(centers: Sequence[FloatArray], weights: Sequence[FloatArray]) -> FloatArray:
    """Subtract the weighted mean over clusters from centres, and multiply by the roots of their weights."""
    pairs = zip(centers, weights, strict=True)
    return np.hstack([np.sqrt(weight) * (center - center_mean(center, weight)) for center, weight in pairs])


def _find_cluster_rank(x: FloatArray, y: FloatArray) -> int:
    """Find how many singular directions of either half are worth keeping, by what the other half says of them."""
    gains = np.zeros(min(x.shape))
    for own, other in ((x, y), (y, x)):
        left, sizes, right = np.linalg.svd(own, full_matrices=False)
        gains += 0.5 * sizes**2 - 1.5 * sizes * np.sum((left.T @ other) * right, axis=1)
    return int(np.argmax(np.append(np.cumsum(gains[::-1])[::-1], 0.0)))


def _truncate(x: FloatArray, rank: int) -> FloatArray:
    """Find the nearest matrix of a rank."""
    left, sizes, right = np.linalg.svd(x, full_matrices=False)
    return np.asarray((left[:, :rank] * sizes[:rank]) @ right[:rank])


def _surely_gains(x: FloatArray, y: FloatArray, low_x: FloatArray, low_y: FloatArray) -> bool:
    """Tell whether low-rank centres fitted to either half predict the other significantly better than free ones."""
    gains = np.zeros(len(x))
    for own, other, low in ((x, y, low_x), (y, x, low_y)):
        apart = own - other
        gains += np.sum(apart**2 - (low - other) ** 2 - 0.5 * (own - low) * apart, axis=1)
    return bool(gains.sum() > _SURE * gains.std(ddof=1) * np.sqrt(len(gains)))


def _fit_rank(decomposition: Decomposition[Any], problem: WeightedCenters, rank: tuple[int, ...]) -> RankChoice:
    """Find by a short fit what a rank keeps."""
    factors = decomposition.fit(problem.targets, problem.weights, rank=rank, sweeps=_SWEEPS)
    return RankChoice(rank, problem.kept(factors.centers()))


def _find_smallest(
    path: Sequence[tuple[int, ...]], energy: float, choice: Callable[[tuple[int, ...]], RankChoice]
) -> RankChoice:
    """Find the first rank on a path that keeps so much energy, or the last."""
    end = 1
    while end < len(path) and choice(path[end - 1]).energy < energy:
        end = min(2 * end, len(path))
    place = bisect_left(path, energy, hi=end, key=lambda rank: choice(rank).energy)
    return choice(path[min(place, len(path) - 1)])
