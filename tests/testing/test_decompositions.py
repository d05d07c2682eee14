"""The checks for decompositions pass for a new one that is written in a few lines, and fail for broken ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest

from fedhk.tensors.base import Decomposition
from fedhk.tensors.factors import BASIS, Factors
from fedhk.tensors.limits import Limit
from fedhk.tensors.solves import orthonormal_columns, procrustes
from fedhk.testing.decompositions import DecompositionChecks


@dataclass(frozen=True)
class SeparateFactors(Factors):
    """Each view in a few directions of its own, A^h = X_h B_h^T."""

    table: np.ndarray
    bases: tuple[np.ndarray, ...] = field(metadata=BASIS)

    @property
    def rank(self):
        return (self.table.shape[2],)

    @property
    def view_bases(self):
        return self.bases

    @property
    def coordinates(self):
        return self.table


class Separate(Decomposition[SeparateFactors]):
    """All that a new decomposition needs."""

    name: ClassVar[str] = "separate"
    factors_class: ClassVar[type[Factors]] = SeparateFactors

    def limits(self, n_clusters, widths, names=None):
        return (Limit("", min(widths), "the narrowest view"),)

    def start(self, centers, rank, generator):
        if generator is not None:
            bases = [np.linalg.qr(generator.standard_normal((a.shape[1], rank[0])))[0] for a in centers]
        else:
            bases = [orthonormal_columns(np.linalg.svd(a, full_matrices=False)[2].T, rank[0]) for a in centers]
        table = np.stack([center @ basis for center, basis in zip(centers, bases, strict=True)], axis=1)
        return [SeparateFactors(table, tuple(bases))]

    def fit_core(self, factors, targets, weights):
        return replace(factors, table=np.where(weights[:, :, None] > 0, targets, factors.table))

    def align(self, factors, to):
        turns = [procrustes(a, b) for a, b in zip(factors.bases, to.bases, strict=True)]
        return turn(factors, turns)


def turn(factors, turns):
    table = np.stack([factors.table[:, h] @ o for h, o in enumerate(turns)], axis=1)
    return SeparateFactors(table, tuple(basis @ o for basis, o in zip(factors.bases, turns, strict=True)))


class TestSeparate(DecompositionChecks):
    decomposition, rank = Separate(), (3,)

    def change_gauge(self, factors, generator):
        return turn(factors, [np.linalg.qr(generator.standard_normal((3, 3)))[0] for _ in factors.bases])


class Overshoots(Separate):
    def fit_core(self, factors, targets, weights):
        return replace(factors, table=3 * targets - 2 * factors.table)


class Turns(Separate):
    def align(self, factors, to):
        return replace(super().align(factors, to), bases=to.bases)


class Stretches(Separate):
    def fit_bases(self, factors, problem):
        return replace(factors, bases=tuple(2 * basis for basis in super().fit_bases(factors, problem).bases))


class Falls(Separate):
    def rank_path(self, centers, energy):
        return super().rank_path(centers, energy)[::-1]


class ForgetsTheRank(Separate):
    def start(self, centers, rank, generator):
        return super().start(centers, (rank[0] - 1,), generator)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Overshoots(), "test_a_core_step_never_raises_the_error_and_keeps_the_basis"),
        (Turns(), "test_alignment_changes_no_centres_and_undoes_a_change_of_gauge"),
        (Stretches(), "test_bases_never_lengthen_a_vector"),
        (Falls(), "test_ranks_on_the_path_rise_and_can_be_had"),
        (ForgetsTheRank(), "test_the_factors_are_of_their_class_and_make_centres_of_the_right_shape"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_broken_decomposition_is_found(broken, check):
    class Checks(DecompositionChecks):
        decomposition, rank = broken, (3,)

    with pytest.raises(AssertionError):
        getattr(Checks(), check)()
