"""Centres that are constrained to a low-rank form while they are fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.parameters import LEAST_SHARE, CenterForm, Parameters, update_centers
from fedhk.model.statistics import Statistics
from fedhk.tensors.base import Decomposition
from fedhk.tensors.cp import CP
from fedhk.tensors.factors import Factors
from fedhk.tensors.limits import check_rank
from fedhk.tensors.parafac2 import Parafac2
from fedhk.tensors.problem import WeightedCenters
from fedhk.tensors.ranks import choose_rank, find_helpful_rank, full_rank
from fedhk.tensors.solves import orthonormal_columns
from fedhk.tensors.tucker import Tucker

DECOMPOSITIONS: dict[str, Decomposition[Any]] = {"tucker": Tucker(), "parafac2": Parafac2(), "cp": CP()}
"""The decompositions by the names that estimators take."""

# Sweeps of the first fit, its starts, and sweeps of a step. A start of PARAFAC2 may end in a poor place. A step begins
# where the last one ended, and its statistics change with the next round: ten sweeps saved no round on generated data.
FIRST_SWEEPS, FIRST_STARTS, STEP_SWEEPS = 50, 3, 4


@dataclass(frozen=True)
class LowRank:
    """The low-rank form that some centres have: a decomposition and its factors.

    Parameters
    ----------
    name : str
        One of `DECOMPOSITIONS`.
    factors : Factors
        What the decomposition makes the centres from.
    error : float
        Share of what tells free centres apart that the form loses, see `measure_error`.
    free_gaps : array of shape (c,)
        How far each free centre of the start is from the others, as `WeightedCenters.gaps` measures it; empty where
        centres were given, which are no means of rows.
    """

    name: str
    factors: Factors
    error: float = 0.0
    free_gaps: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not isinstance(self.factors, self.decomposition.factors_class):
            raise ValueError(f"{type(self.factors).__name__} are not factors of {self.decomposition.name}.")  # noqa: TRY004

    @property
    def decomposition(self) -> Decomposition[Any]:
        """The decomposition of this name."""
        return DECOMPOSITIONS[self.name]

    @property
    def rank(self) -> tuple[int, ...]:
        """The rank of each mode."""
        return self.factors.rank

    @property
    def bases(self) -> tuple[FloatArray, ...]:
        """B_h, of shape (d_h, r): the centres of a view are combinations of its columns."""
        return self.factors.view_bases

    @property
    def free(self) -> bool:
        """Whether the rank constrains nothing, because any centres have it."""
        widths = [len(basis) for basis in self.bases]
        return self.decomposition.is_full(self.rank, len(self.factors.coordinates), widths)

    def centers(self) -> tuple[FloatArray, ...]:
        """Make the centres, one array of shape (c, d_h) per view."""
        return self.factors.centers()

    def in_basis(self, basis: Sequence[FloatArray]) -> LowRank:
        """Write the form in the coordinates of orthonormal columns E_h, of shape (d_h, q_h), that span its bases."""
        return self._with_bases([e.T @ b for e, b in zip(basis, self.bases, strict=True)])

    def from_basis(self, basis: Sequence[FloatArray]) -> LowRank:
        """Write the form in features again, from the coordinates of `basis`."""
        return self._with_bases([e @ b for e, b in zip(basis, self.bases, strict=True)])

    def step(self, statistics: Statistics, previous: Sequence[FloatArray], factors: FloatArray) -> LowRank:
        """Take the centre step that keeps the form, from its centres and the statistics at them; J does not rise.

        `factors` are `Parameters.view_factors`: what a view's distances are multiplied by. The step lowers
        sum_khj v_h^alpha W_khj (N_khj / W_khj - A_khj)^2, a majoriser of J in A up to constants.
        """
        targets, weights = _targets(statistics, previous, factors)
        found = self.decomposition.step(self.factors, targets, weights, sweeps=STEP_SWEEPS)
        error = self.measure_error(found.centers(), WeightedCenters.of(targets, weights))
        return replace(self, factors=found, error=error)

    def measure_error(self, centers: Sequence[FloatArray], wanted: WeightedCenters) -> float:
        """Measure the share of what tells free centres apart that centres of the form lack.

        It is the larger of two shares. One is what they lack of the centres that the statistics of the moment ask for.
        It does not tell all: where the form merges clusters, rows follow, and their statistics ask for no others. So
        the other is how much nearer a centre is to the others than its free centre was at the start, by the harmonic
        mean of squared distances, on average over clusters. Their plain mean would not tell: a form of low rank keeps
        the largest differences, and what it loses is those between neighbours.
        """
        if self.free:
            return 0.0
        merged, known = self.error, self.free_gaps > 0
        if known.any():
            kept = np.minimum(wanted.gaps(centers)[known] / self.free_gaps[known], 1.0)
            merged = 1.0 - float(kept.mean())
        return max(merged, wanted.lost(centers), 0.0)

    def refit(self, centers: Sequence[FloatArray]) -> LowRank:
        """Find the form of other centres, where the rank constrains nothing."""
        return LowRank(self.name, self.decomposition.fit(centers, rank=self.rank))

    def _with_bases(self, bases: Sequence[FloatArray]) -> LowRank:
        if not self.decomposition.separate_bases:
            raise ValueError(
                f"centres in {self.decomposition.name} form cannot be written in a basis per view, because all views "
                "share one basis; use a protocol that sends all features, or another decomposition."
            )
        return replace(self, factors=self.factors.with_arrays(basis=bases))


@dataclass(frozen=True)
class LowRankParameters(Parameters):
    """Parameters whose centres have a low-rank form, and keep it when they move."""

    form: LowRank = field(kw_only=True)

    @classmethod
    def of(cls, parameters: Parameters, form: LowRank) -> LowRankParameters:
        """Add their form to parameters whose centres have it."""
        return cls(**_common_fields(parameters), form=form)

    @property
    def has_form(self) -> bool:
        return True

    @property
    def is_constrained(self) -> bool:
        return not self.form.free

    def move_centers(self, statistics: Statistics) -> Self:
        """Take the centre step that keeps the form, from the statistics at these parameters."""
        form = self.form.step(statistics, self.centers, self.view_factors)
        return replace(self, centers=form.centers(), form=form)

    def free(self) -> Parameters:
        return Parameters(**_common_fields(self))

    def in_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        """Write the centres and their form in the coordinates of a basis.

        Where the rank constrains nothing, centres in the basis move freely, and `from_basis` finds their form again.
        """
        inner = self.free().in_basis(basis)
        if self.form.free:
            return UnconstrainedInBasis(**_common_fields(inner), decomposition=self.form.name, rank=self.form.rank)
        return LowRankParameters.of(inner, self.form.in_basis(basis))

    def from_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        return LowRankParameters.of(self.free().from_basis(basis), self.form.from_basis(basis))

    def form_in_basis(self, inner: Parameters, basis: Sequence[FloatArray]) -> LowRank:
        """Give the form in the coordinates of a basis; `inner` are the parameters there, which have it if it binds."""
        return inner.form if isinstance(inner, LowRankParameters) else self.form.in_basis(basis)

    def spans(self) -> tuple[FloatArray, ...]:
        """Give, per view, rows that span all centres of the form as long as its bases stay."""
        return self.centers if self.form.free else tuple(basis.T for basis in self.form.bases)


@dataclass(frozen=True)
class UnconstrainedInBasis(Parameters):
    """Parameters in a basis, whose centres have in features a low-rank form that constrains nothing."""

    decomposition: str = field(kw_only=True)
    rank: tuple[int, ...] = field(kw_only=True)

    def free(self) -> Parameters:
        return Parameters(**_common_fields(self))

    def from_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        """Write the centres in features, and find the form that they have there."""
        outer = self.free().from_basis(basis)
        factors = DECOMPOSITIONS[self.decomposition].fit(outer.centers, rank=self.rank)
        return LowRankParameters.of(outer, LowRank(self.decomposition, factors))


@dataclass(frozen=True)
class LowRankForm(CenterForm):
    """A low-rank form of the centres, as a user asks for it.

    Parameters
    ----------
    decomposition : str
        One of `DECOMPOSITIONS`.
    rank : int, tuple of int, float or "auto"
        Whole numbers as `fedhk.tensors.check_rank` takes them; a fraction of energy as `fedhk.tensors.choose_rank`
        does; "auto" is what `fedhk.tensors.find_helpful_rank` finds.
    """

    decomposition: str
    rank: int | float | str | tuple[int, ...] = "auto"

    def __post_init__(self) -> None:
        _check_name(self.decomposition)

    def constrain(
        self,
        start: Parameters,
        view_names: Sequence[str],
        statistics: Callable[[], Sequence[Statistics]] | None = None,
    ) -> LowRankParameters:
        targets = start.centers
        weights: list[FloatArray] = [np.full((start.n_clusters, 1), factor) for factor in start.view_factors]
        halves: list[WeightedCenters] = []
        if statistics is not None:
            parts = statistics()
            targets, weights = _targets(reduce(add, parts), start.centers, start.view_factors)
            if len(parts) == 2:
                halves = [WeightedCenters.of(*_targets(part, start.centers, start.view_factors)) for part in parts]
        form = self._nearest(targets, weights, halves, view_names)
        if statistics is None:
            form = replace(form, free_gaps=np.zeros(0))
        if form.free:  # nothing is constrained: the start stays what it is
            form = form.refit(start.centers)
        return LowRankParameters.of(replace(start, centers=form.centers()), form)

    def binds(self, n_clusters: int, widths: Sequence[int], view_names: Sequence[str]) -> bool | None:
        """Whether the rank that was given constrains centres, None where it is to be chosen.

        Refuses a rank that such views cannot have.
        """
        rank = self._checked_rank(n_clusters, widths, view_names)
        if not isinstance(rank, tuple):
            return None
        return not DECOMPOSITIONS[self.decomposition].is_full(rank, n_clusters, widths)

    def _checked_rank(
        self, n_clusters: int, widths: Sequence[int], view_names: Sequence[str]
    ) -> float | str | tuple[int, ...]:
        """One rank per mode, where whole numbers were given; else what was given."""
        if isinstance(self.rank, str) and self.rank != "auto":
            raise ValueError(f"rank must be whole numbers, a number between 0 and 1, or 'auto', got {self.rank!r}.")
        if isinstance(self.rank, str | float):
            return self.rank
        kind = DECOMPOSITIONS[self.decomposition]
        return check_rank(self.rank, kind.limits(n_clusters, widths, view_names), kind.name)

    def _nearest(
        self,
        targets: Sequence[FloatArray],
        weights: Sequence[FloatArray],
        halves: Sequence[WeightedCenters],
        view_names: Sequence[str],
    ) -> LowRank:
        """Find the form of the rank that was asked for which is nearest to the targets.

        Where weights do not depend on the feature, it lies in the few directions that the targets span, and is sought
        there: a view of text has thousands of features. That needs a basis for each view.
        """
        kind, basis = DECOMPOSITIONS[self.decomposition], None
        rank = self._checked_rank(len(targets[0]), [target.shape[1] for target in targets], view_names)
        if kind.separate_bases and all(weight.shape[1] == 1 for weight in weights):
            asked = max(rank) if isinstance(rank, tuple) else 1
            most = max(len(targets[0]) * ((len(targets) + 1) // 2), asked)
            known = [np.vstack(several) for several in zip(targets, *(half.targets for half in halves), strict=True)]
            spans = [np.linalg.svd(several, full_matrices=False)[2].T for several in known]
            basis = [orthonormal_columns(span, min(len(span), max(most, span.shape[1]))) for span in spans]
            targets = [target @ e for target, e in zip(targets, basis, strict=True)]
            halves = [half.in_basis(basis) for half in halves]
        chosen = self._choose(kind, rank, WeightedCenters.of(targets, weights), halves)
        found = kind.fit(
            targets, weights, rank=chosen, sweeps=FIRST_SWEEPS, n_starts=FIRST_STARTS, random_state=0, names=view_names
        )
        free = WeightedCenters.of(targets, weights)
        nearest = LowRank(self.decomposition, found, free.lost(found.centers()), free.gaps(free.targets))
        return nearest if basis is None else nearest.from_basis(basis)

    @staticmethod
    def _choose(
        kind: Decomposition[Any],
        rank: float | str | tuple[int, ...],
        whole: WeightedCenters,
        halves: Sequence[WeightedCenters],
    ) -> tuple[int, ...]:
        """Choose the rank where none was given; without halves of the rows nothing speaks for a low one."""
        if isinstance(rank, tuple):
            return rank
        if isinstance(rank, float):
            return choose_rank(kind, rank, whole.targets, whole.weights).rank
        return find_helpful_rank(kind, *halves) if halves else full_rank(kind, *whole.shape)


def _check_name(decomposition: str) -> None:
    if decomposition not in DECOMPOSITIONS:
        raise ValueError(f"decomposition={decomposition!r} must be one of {sorted(DECOMPOSITIONS)}.")


def _common_fields(parameters: Parameters) -> dict[str, Any]:
    """The fields that all parameters have, whatever form their centres have."""
    return {part.name: getattr(parameters, part.name) for part in fields(Parameters)}


def _targets(
    statistics: Statistics, previous: Sequence[FloatArray], factors: FloatArray
) -> tuple[tuple[FloatArray, ...], list[FloatArray]]:
    """Compute N / W and v^alpha W; cells with no more weight than rounding leaves get weight 0."""
    pairs = zip(statistics.weights, factors, strict=True)
    weights = [np.where(weight > LEAST_SHARE * weight.max(), factor * weight, 0.0) for weight, factor in pairs]
    return update_centers(statistics, previous), weights
