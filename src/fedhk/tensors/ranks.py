"""Choosing ranks: given, by a fraction of energy, or by bytes and loss."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from fedhk._typing import FloatArray
from fedhk.tensors.base import Decomposition
from fedhk.tensors.limits import largest_ranks
from fedhk.tensors.problem import WeightedCenters

_FRACTIONS = (0.9, 0.99, 0.999)
_LOSS_PRICE = 100.0
_SLACK, _NEAR_FULL = 0.1, 0.8
_BASIS_ROUNDS = 10
_SWEEPS = 10


@dataclass(frozen=True)
class RankChoice:
    """A rank and what it costs.

    Parameters
    ----------
    rank : tuple of int
        One number per mode.
    energy : float
        Share of sum w t^2 that centres of this rank keep, after a short fit.
    n_directions : int
        Columns of the basis of each view.
    n_basis : int
        Numbers of the basis, which is sent once.
    n_core : int
        Numbers of the core, which is sent every round.
    """

    rank: tuple[int, ...]
    energy: float
    n_directions: int
    n_basis: int
    n_core: int


def choose_rank(
    decomposition: Decomposition[Any],
    rank: float | str,
    centers: Sequence[FloatArray],
    weights: Sequence[FloatArray] | None = None,
) -> RankChoice:
    """Choose a rank for given centres, by the energy that it keeps or by bytes and loss.

    Parameters
    ----------
    decomposition : Decomposition
    rank : float or "auto"
        A number between 0 and 1 asks for the smallest rank that keeps this fraction of the energy sum w t^2; if no
        possible rank does, the largest is taken and `energy` tells. ``"auto"`` weighs bytes and loss, see Notes.
    centers, weights : sequences of array of shape (c, d_h); weights also (c, 1), and all 1 if omitted

    Notes
    -----
    ``"auto"`` takes the smallest ranks that keep 90, 99 and 99.9 % of the energy, each a tenth larger, because centres
    move on from where the rank is chosen, and the largest where that is more than four fifths of it: a constraint that
    saves so little only slows the fit. Of these it takes the one with the least (numbers of a round + basis / 10) /
    (numbers of the centres) + 100 (1 - energy): a basis is thought to serve ten rounds, and one percent of the energy
    to be worth the bytes of full centres. On real data it costs about a percent of the agreement with the classes. More
    directions than there are clusters are not counted, as the centres of a view span no more.
    """
    problem = WeightedCenters.of(centers, weights)
    choice = cache(partial(_fit_rank, decomposition, problem))
    if isinstance(rank, float):
        if not 0.0 < rank < 1.0:
            raise ValueError(f"rank as a fraction of energy must be between 0 and 1, got {rank!r}.")
        return _find_smallest(decomposition.rank_path(problem.targets, rank), rank, choice)
    if rank != "auto":
        raise ValueError(f"rank must be whole numbers, a number between 0 and 1, or 'auto', got {rank!r}.")
    n_clusters, widths = problem.shape
    largest = largest_ranks(decomposition.limits(n_clusters, widths))
    if "feature" in largest:  # more directions than a view's centres span are of no use
        largest["feature"] = min(largest["feature"], n_clusters)
    choices = []
    for energy in _FRACTIONS:
        smallest = _find_smallest(decomposition.rank_path(problem.targets, energy), energy, choice).rank
        more = [size + max(1, round(_SLACK * size)) for size in smallest]
        pairs = zip(more, largest.values(), strict=True)
        choices.append(choice(tuple(most if size > _NEAR_FULL * most else size for size, most in pairs)))
    choices.append(choice(tuple(largest.values())))
    return min(choices, key=lambda found: _price(found, n_clusters, widths))


def _fit_rank(decomposition: Decomposition[Any], problem: WeightedCenters, rank: tuple[int, ...]) -> RankChoice:
    """Find by a short fit what a rank keeps and costs."""
    factors = decomposition.fit(problem.targets, problem.weights, rank=rank, sweeps=_SWEEPS)
    energy = 1.0 - problem.lost(factors.centers())
    return RankChoice(rank, energy, factors.coordinates.shape[2], *factors.n_numbers)


def _find_smallest(
    path: Sequence[tuple[int, ...]], energy: float, choice: Callable[[tuple[int, ...]], RankChoice]
) -> RankChoice:
    """Find the first rank on a path that keeps so much energy, or the last."""
    end = 1
    while end < len(path) and choice(path[end - 1]).energy < energy:
        end = min(2 * end, len(path))
    place = bisect_left(path, energy, hi=end, key=lambda rank: choice(rank).energy)
    return choice(path[min(place, len(path) - 1)])


def _price(choice: RankChoice, n_clusters: int, widths: Sequence[int]) -> float:
    """Numbers of a round and a tenth of those of the basis, as a share of full centres, and the price of the loss."""
    directions = [min(width, choice.n_directions, n_clusters) for width in widths]
    basis = sum(width * count for width, count in zip(widths, directions, strict=True))
    numbers = (n_clusters * sum(directions) + basis / _BASIS_ROUNDS) / (n_clusters * sum(widths))
    return numbers + _LOSS_PRICE * (1.0 - choice.energy)
