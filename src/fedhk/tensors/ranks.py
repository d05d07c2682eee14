"""Choosing ranks: given, by a fraction of energy, or by bytes and loss."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.tensors.base import Decomposition
from fedhk.tensors.limits import check_rank
from fedhk.tensors.problem import WeightedCenters

__all__ = ["RankChoice", "choose_rank"]

_FRACTIONS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
_LOSS_PRICE = 10.0
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
    n_basis : int
        Numbers of the basis, which is sent once.
    n_core : int
        Numbers of the core, which is sent every round.
    """

    rank: tuple[int, ...]
    energy: float
    n_basis: int
    n_core: int


def choose_rank(
    decomposition: Decomposition[Any],
    rank: int | float | str | Sequence[int],
    centers: Sequence[FloatArray],
    weights: Sequence[FloatArray] | None = None,
    names: Sequence[str] | None = None,
) -> RankChoice:
    """The rank that a user's `rank` stands for, at given centres.

    Parameters
    ----------
    decomposition : Decomposition
    rank : int, sequence of int, float or "auto"
        Whole numbers are checked and taken. A number between 0 and 1 asks for the smallest rank that keeps this
        fraction of the energy sum w t^2; if no possible rank does, the largest is taken and `energy` tells.
        ``"auto"`` weighs bytes and loss, see Notes.
    centers : sequence of array of shape (c, d_h)
    weights : sequence of array of shape (c, d_h) or (c, 1), optional
        All 1 if omitted.
    names : sequence of str, optional
        Names of the views, for errors.

    Returns
    -------
    RankChoice

    Notes
    -----
    ``"auto"`` takes the smallest ranks that keep 80, 90, 95, 98, 99, 99.5 and 99.9 % of the energy, and of these the
    one with the least (core + basis / 10) / (numbers of the centres) + 10 (1 - energy): a basis is thought to serve ten
    rounds, and one percent of the energy to be worth a tenth of the bytes of full centres.
    """
    problem = WeightedCenters.of(centers, weights)
    fits = _Fits(decomposition, problem, names)
    if isinstance(rank, str):
        if rank != "auto":
            raise ValueError(f"rank must be whole numbers, a number between 0 and 1, or 'auto', got {rank!r}.")
        full = sum(target.size for target in problem.targets)
        choices = [fits.smallest(fraction) for fraction in _FRACTIONS]
        return min(choices, key=lambda choice: _price(choice, full))
    if isinstance(rank, Real) and not isinstance(rank, Integral):
        if not 0.0 < float(rank) < 1.0:
            raise ValueError(f"rank as a fraction of energy must be between 0 and 1, got {rank!r}.")
        return fits.smallest(float(rank))
    widths = [target.shape[1] for target in problem.targets]
    limits = decomposition.limits(len(problem.targets[0]), widths, names)
    return fits.choice(check_rank(rank, limits, decomposition.name))  # type: ignore[arg-type]


def _price(choice: RankChoice, full: int) -> float:
    return (choice.n_core + choice.n_basis / _BASIS_ROUNDS) / full + _LOSS_PRICE * (1.0 - choice.energy)


class _Fits:
    """Short fits at several ranks, each done once."""

    def __init__(
        self, decomposition: Decomposition[Any], problem: WeightedCenters, names: Sequence[str] | None
    ) -> None:
        self._decomposition, self._problem, self._names = decomposition, problem, names
        self._known: dict[tuple[int, ...], RankChoice] = {}

    def choice(self, rank: tuple[int, ...]) -> RankChoice:
        if rank not in self._known:
            form, problem = self._decomposition, self._problem
            factors = form.initial(problem.targets, problem.weights, rank=rank, sweeps=_SWEEPS, names=self._names)
            total = problem.error([np.zeros_like(target) for target in problem.targets])
            lost = problem.error(form.reconstruct(factors)) / total if total > 0 else 0.0
            self._known[rank] = RankChoice(rank, 1.0 - lost, *form.n_numbers(factors))
        return self._known[rank]

    def smallest(self, energy: float) -> RankChoice:
        """The first rank on the decomposition's path that keeps so much energy, or the last."""
        path = self._decomposition.rank_path(self._problem.targets, energy)
        end = 1
        while end < len(path) and self.choice(path[end - 1]).energy < energy:
            end = min(2 * end, len(path))
        place = bisect_left(path, energy, hi=end, key=lambda rank: self.choice(rank).energy)
        return self.choice(path[min(place, len(path) - 1)])
