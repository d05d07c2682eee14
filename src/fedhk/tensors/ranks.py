"""Choosing ranks: given, by a fraction of energy, or by bytes and loss."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    centers : sequence of array of shape (c, d_h)
    weights : sequence of array of shape (c, d_h) or (c, 1), optional
        All 1 if omitted.

    Returns
    -------
    RankChoice

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
    fits = _Fits(decomposition, problem)
    if isinstance(rank, float):
        if not 0.0 < rank < 1.0:
            raise ValueError(f"rank as a fraction of energy must be between 0 and 1, got {rank!r}.")
        return fits.smallest(rank)
    if rank != "auto":
        raise ValueError(f"rank must be whole numbers, a number between 0 and 1, or 'auto', got {rank!r}.")
    choices = [fits.enlarged(fits.smallest(fraction)) for fraction in _FRACTIONS] + [fits.largest()]
    n_clusters, widths = len(problem.targets[0]), [target.shape[1] for target in problem.targets]
    return min(choices, key=lambda choice: _price(choice, n_clusters, widths))


def _price(choice: RankChoice, n_clusters: int, widths: Sequence[int]) -> float:
    """Numbers of a round and a tenth of those of the basis, as a share of full centres, and the price of the loss."""
    directions = [min(width, choice.n_directions, n_clusters) for width in widths]
    basis = sum(width * count for width, count in zip(widths, directions, strict=True))
    numbers = (n_clusters * sum(directions) + basis / _BASIS_ROUNDS) / (n_clusters * sum(widths))
    return numbers + _LOSS_PRICE * (1.0 - choice.energy)


class _Fits:
    """Short fits at several ranks, each done once."""

    def __init__(self, decomposition: Decomposition[Any], problem: WeightedCenters) -> None:
        self._decomposition, self._problem = decomposition, problem
        self._known: dict[tuple[int, ...], RankChoice] = {}

    def choice(self, rank: tuple[int, ...]) -> RankChoice:
        if rank not in self._known:
            form, problem = self._decomposition, self._problem
            factors = form.fit(problem.targets, problem.weights, rank=rank, sweeps=_SWEEPS)
            total = problem.error([np.zeros_like(target) for target in problem.targets])
            lost = problem.error(factors.centers()) / total if total > 0 else 0.0
            self._known[rank] = RankChoice(rank, 1.0 - lost, factors.coordinates.shape[2], *factors.n_numbers)
        return self._known[rank]

    def largest(self) -> RankChoice:
        """The largest rank of every mode."""
        return self.choice(tuple(self._limits().values()))

    def enlarged(self, choice: RankChoice) -> RankChoice:
        """A choice with a tenth more in every mode, and at least one more; the largest rank where that is near."""
        limits = self._limits().values()
        more = [rank + max(1, round(_SLACK * rank)) for rank in choice.rank]
        return self.choice(
            tuple(most if rank > _NEAR_FULL * most else rank for rank, most in zip(more, limits, strict=True))
        )

    def _limits(self) -> dict[str, int]:
        """The largest useful rank of every mode: more directions than a view's centres span are of no use."""
        n_clusters = len(self._problem.targets[0])
        widths = [target.shape[1] for target in self._problem.targets]
        largest = largest_ranks(self._decomposition.limits(n_clusters, widths))
        if "feature" in largest:
            largest["feature"] = min(largest["feature"], n_clusters)
        return largest

    def smallest(self, energy: float) -> RankChoice:
        """The first rank on the decomposition's path that keeps so much energy, or the last."""
        path = self._decomposition.rank_path(self._problem.targets, energy)
        end = 1
        while end < len(path) and self.choice(path[end - 1]).energy < energy:
            end = min(2 * end, len(path))
        place = bisect_left(path, energy, hi=end, key=lambda rank: self.choice(rank).energy)
        return self.choice(path[min(place, len(path) - 1)])
