"""Centres that are constrained to a low-rank form while they are fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.forms import CenterForm
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics
from fedhk.model.updates import LEAST_SHARE
from fedhk.tensors import DECOMPOSITIONS, Decomposition, check_rank, choose_rank, weighted_error
from fedhk.tensors.factors import Factors
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
    factors: Factors
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


@dataclass(frozen=True)
class LowRankParameters(Parameters):
    """Parameters whose centres have a low-rank form, and keep it when they move.

    Parameters
    ----------
    form : LowRank
        The form of the centres.
    """

    form: LowRank = field(kw_only=True)

    @classmethod
    def of(cls, parameters: Parameters, form: LowRank) -> LowRankParameters:
        """Add a form to parameters whose centres are those of the form."""
        return cls(**_plain_fields(parameters), form=form)

    def move_centers(self, statistics: Statistics) -> Self:
        """Take the centre step that keeps the form, from the statistics at these parameters."""
        form = self.form.step(statistics, self.centers, self.view_factors)
        return replace(self, centers=form.centers(), form=form)

    def free(self) -> Parameters:
        return Parameters(**_plain_fields(self))

    def in_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        """Give the parameters in the coordinates of a basis that holds the centres.

        Where the rank constrains nothing, centres in the basis move freely, and `from_basis` finds their form again.
        """
        inner = self.free().in_basis(basis)
        if self.form.free:
            return UnconstrainedInBasis(**_plain_fields(inner), decomposition=self.form.name, rank=self.form.rank)
        return LowRankParameters.of(inner, self.form.compressed(basis))

    def from_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        return LowRankParameters.of(self.free().from_basis(basis), self.form.expanded(basis))

    def spans(self) -> tuple[FloatArray, ...]:
        """Give, per view, rows that span all centres that the form can reach without a change of its bases."""
        return self.centers if self.form.free else tuple(basis.T for basis in self.form.bases)


@dataclass(frozen=True)
class UnconstrainedInBasis(Parameters):
    """Parameters in a basis, whose centres have in features a low-rank form that constrains nothing.

    Parameters
    ----------
    decomposition : str
        One of `fedhk.tensors.DECOMPOSITIONS`.
    rank : tuple of int
        The rank of the form: all centres have it.
    """

    decomposition: str = field(kw_only=True)
    rank: tuple[int, ...] = field(kw_only=True)

    def free(self) -> Parameters:
        return Parameters(**_plain_fields(self))

    def from_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        """Give the parameters in features, with the form that their centres have there."""
        outer = self.free().from_basis(basis)
        factors = DECOMPOSITIONS[self.decomposition].initial(outer.centers, rank=self.rank)
        return LowRankParameters.of(outer, LowRank(self.decomposition, factors, 0.0))


@dataclass(frozen=True)
class LowRankForm(CenterForm):
    """Centres of low rank, as a user asks for them.

    Parameters
    ----------
    decomposition : str
        One of `fedhk.tensors.DECOMPOSITIONS`.
    rank : int, tuple of int, float or "auto"
        As `fedhk.tensors.choose_rank` takes it.
    """

    decomposition: str
    rank: int | float | str | tuple[int, ...] = "auto"

    def constrain(
        self,
        start: Parameters,
        view_names: Sequence[str],
        statistics: Callable[[], Statistics] | None = None,
    ) -> LowRankParameters:
        form, rank = DECOMPOSITIONS[self.decomposition], self.rank
        if statistics is None:
            targets = list(start.centers)
            weights: list[FloatArray] = [np.full((start.n_clusters, 1), factor) for factor in start.view_factors]
        else:
            targets, weights = _targets(statistics(), start.centers, start.view_factors)
        if not isinstance(rank, str | float):
            widths = [target.shape[1] for target in targets]
            rank = check_rank(rank, form.limits(start.n_clusters, widths, view_names), form.name)
        low_rank = _nearest(self.decomposition, rank, targets, weights, view_names)
        if low_rank.free:  # nothing is constrained: the start stays what it is
            low_rank = low_rank.refitted(start.centers)
        return LowRankParameters.of(replace(start, centers=low_rank.centers()), low_rank)

    def is_exact(self, n_clusters: int, widths: Sequence[int], view_names: Sequence[str]) -> bool:
        """Whether a rank was given that constrains nothing. Refuses a rank that such views cannot have."""
        if isinstance(self.rank, str | float):
            return False
        form = DECOMPOSITIONS[self.decomposition]
        rank = check_rank(self.rank, form.limits(n_clusters, widths, view_names), form.name)
        return form.is_full(rank, n_clusters, widths)


def _plain_fields(parameters: Parameters) -> dict[str, Any]:
    """The fields that all parameters have, whatever form their centres have."""
    return {part.name: getattr(parameters, part.name) for part in fields(Parameters)}


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
