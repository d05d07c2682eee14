"""Centres that are constrained to a low-rank form while they are fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.model.updates import LEAST_SHARE
from fedhk.tensors import DECOMPOSITIONS, Decomposition, check_rank, choose_rank, weighted_error
from fedhk.tensors.solves import orthonormal_columns

# Sweeps of the first fit, its starts, and sweeps of a step; a start of PARAFAC2 may end in a poor place.
FIRST_SWEEPS, FIRST_STARTS, STEP_SWEEPS = 50, 3, 10


@dataclass(frozen=True)
class LowRank:
    """The form of the centres: a decomposition and its factors.

    Parameters
    ----------
    name : str
        One of `fedhk.tensors.DECOMPOSITIONS`.
    factors : Factors
        What the decomposition makes centres from.
    error : float
        Share of the weighted squared size of unconstrained centres that the form loses, where both were last known.
    """

    name: str
    factors: Any
    error: float

    @property
    def decomposition(self) -> Decomposition[Any]:
        """The kind of form."""
        return DECOMPOSITIONS[self.name]

    @property
    def rank(self) -> tuple[int, ...]:
        """The rank of each mode."""
        return self.decomposition.rank(self.factors)

    @property
    def bases(self) -> tuple[FloatArray, ...]:
        """B_h, of shape (d_h, r): what the centres of a view lie in."""
        return self.decomposition.view_bases(self.factors)

    @property
    def coordinates(self) -> FloatArray:
        """The centres in the bases, of shape (c, s, r)."""
        return self.decomposition.coordinates(self.factors)

    def centers(self) -> tuple[FloatArray, ...]:
        """The centres, one array of shape (c, d_h) per view."""
        return tuple(self.decomposition.reconstruct(self.factors))

    def compressed(self, basis: Sequence[FloatArray]) -> LowRank:
        """The form in the coordinates of orthonormal columns E_h, of shape (d_h, q_h), that hold its bases."""
        return self._with_bases([e.T @ b for e, b in zip(basis, self.bases, strict=True)])

    def expanded(self, basis: Sequence[FloatArray]) -> LowRank:
        """The form in features again: what `compressed` undoes."""
        return self._with_bases([e @ b for e, b in zip(basis, self.bases, strict=True)])

    def _with_bases(self, bases: Sequence[FloatArray]) -> LowRank:
        form = self.decomposition
        found = form.assemble(bases, form.core(self.factors), [len(part) for part in bases])
        return replace(self, factors=found)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """A JSON value and arrays that `from_arrays` takes."""
        form = self.decomposition
        parts = {"basis": form.basis(self.factors), "core": form.core(self.factors)}
        arrays = {f"form.{kind}.{i}": array for kind, found in parts.items() for i, array in enumerate(found)}
        widths = [len(part) for part in self.bases]
        return {"name": self.name, "error": self.error, "widths": widths}, arrays

    @classmethod
    def from_arrays(cls, described: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> LowRank:
        """The form that `to_arrays` described."""
        basis, core = _listed(arrays, "basis"), _listed(arrays, "core")
        form = DECOMPOSITIONS[described["name"]]
        return cls(described["name"], form.assemble(basis, core, described["widths"]), float(described["error"]))

    def step(self, statistics: Statistics, previous: Sequence[FloatArray], factors: FloatArray) -> LowRank:
        """The form after the constrained centre step; J does not rise.

        Parameters
        ----------
        statistics : Statistics
            At the centres of this form.
        previous : sequence of array of shape (c, d_h)
            The centres of this form.
        factors : array of shape (s,)
            `Parameters.view_factors`: what a view's distances are multiplied by.

        Notes
        -----
        The step lowers sum_khj v_h^alpha W_khj (N_khj / W_khj - A_khj)^2, a majoriser of J in A up to constants.
        """
        targets, weights = _targets(statistics, previous, factors)
        found = self.decomposition.step(self.factors, targets, weights, sweeps=STEP_SWEEPS)
        return replace(self, factors=found, error=_relative_error(self.decomposition, found, targets, weights))

    @property
    def free(self) -> bool:
        """Whether the rank constrains nothing: any centres have it."""
        widths = [len(basis) for basis in self.bases]
        return self.decomposition.is_full(self.rank, len(self.coordinates), widths)

    def refitted(self, centers: Sequence[FloatArray]) -> LowRank:
        """A form of this rank, where it constrains nothing, for other centres."""
        return replace(self, factors=self.decomposition.initial(centers, rank=self.rank), error=0.0)


def constrain(
    parameters: Parameters, name: str, rank: Any, view_names: Sequence[str], statistics: Statistics | None = None
) -> Parameters:
    """Parameters whose centres have a low-rank form, near to what they were.

    Parameters
    ----------
    parameters : Parameters
        A start, without constraint.
    name : str
        One of `fedhk.tensors.DECOMPOSITIONS`.
    rank : int, sequence of int, float or "auto"
        As `fedhk.tensors.choose_rank` takes it.
    view_names : sequence of str
        For errors.
    statistics : Statistics, optional
        At the parameters: how much each centre matters. Without them all matter alike.
    """
    form, factors = DECOMPOSITIONS[name], parameters.view_factors
    if statistics is None:
        targets = list(parameters.centers)
        weights = [np.full((parameters.n_clusters, 1), factor) for factor in factors]
    else:
        targets, weights = _targets(statistics, parameters.centers, factors)
    if not isinstance(rank, str | float):
        widths = [target.shape[1] for target in targets]
        rank = check_rank(rank, form.limits(parameters.n_clusters, widths, view_names), form.name)
    low_rank = _nearest(name, rank, targets, weights, view_names)
    if low_rank.free:  # nothing is constrained: the start stays what it is
        low_rank = low_rank.refitted(parameters.centers)
    return replace(parameters, centers=low_rank.centers(), form=low_rank)


def _nearest(
    name: str,
    rank: Any,
    targets: Sequence[FloatArray],
    weights: Sequence[FloatArray],
    view_names: Sequence[str],
) -> LowRank:
    """The form of the rank that was asked for, nearest to the targets.

    Where weights do not depend on the feature, it lies in the few directions that the targets span, and is sought
    there: a view of text has thousands of features. CP has one feature axis for all views, which none can turn alone.
    """
    form, basis = DECOMPOSITIONS[name], None
    if name != "cp" and all(weight.shape[1] == 1 for weight in weights):
        asked = 1 if isinstance(rank, str | float) else int(np.max(rank))
        most = max(len(targets[0]) * ((len(targets) + 1) // 2), asked)
        spans = [np.linalg.svd(target, full_matrices=False)[2].T for target in targets]
        basis = [orthonormal_columns(span, min(len(span), most)) for span in spans]
        targets = [target @ e for target, e in zip(targets, basis, strict=True)]
    chosen = rank if isinstance(rank, tuple) else choose_rank(form, rank, targets, weights, view_names).rank
    found = form.initial(
        targets, weights, rank=chosen, sweeps=FIRST_SWEEPS, n_starts=FIRST_STARTS, random_state=0, names=view_names
    )
    nearest = LowRank(name, found, _relative_error(form, found, targets, weights))
    return nearest if basis is None else nearest.expanded(basis)


def _targets(
    statistics: Statistics, previous: Sequence[FloatArray], factors: FloatArray
) -> tuple[list[FloatArray], list[FloatArray]]:
    """N / W and v^alpha W; what has no more weight than rounding leaves is pulled nowhere."""
    targets, weights = [], []
    for numerators, weight, old, factor in zip(
        statistics.numerators, statistics.weights, previous, factors, strict=True
    ):
        used = weight > LEAST_SHARE * weight.max(initial=0.0)
        targets.append(np.divide(numerators, weight, out=np.array(old, dtype=np.float64), where=used))
        weights.append(np.where(used, factor * weight, 0.0))
    return targets, weights


def _relative_error(
    form: Decomposition[Any], factors: Any, targets: Sequence[FloatArray], weights: Sequence[FloatArray]
) -> float:
    whole = weighted_error([np.zeros_like(target) for target in targets], targets, weights)
    return weighted_error(form.reconstruct(factors), targets, weights) / whole if whole > 0 else 0.0


def _listed(arrays: dict[str, npt.NDArray[Any]], kind: str) -> list[FloatArray]:
    """The arrays of a kind in their order."""
    found: list[FloatArray] = []
    while (name := f"form.{kind}.{len(found)}") in arrays:
        found.append(np.asarray(arrays[name], np.float64))
    return found
