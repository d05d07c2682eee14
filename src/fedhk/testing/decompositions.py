"""Checks that every decomposition of the centres must pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fedhk._typing import FloatArray
from fedhk.tensors.base import Decomposition
from fedhk.tensors.factors import Factors
from fedhk.tensors.limits import check_rank, largest_ranks
from fedhk.tensors.problem import weighted_error
from fedhk.testing._values import assert_same, check

WEIGHT_KINDS = ("rows", "cells", "mixed", "holes", "dead")
"""The kinds of weights that a centre step meets; see `random_weights`."""


def random_centers(generator: np.random.Generator, n_clusters: int, widths: Sequence[int]) -> list[FloatArray]:
    """Draw centres from the standard normal distribution."""
    return [generator.standard_normal((n_clusters, width)) for width in widths]


def random_weights(
    generator: np.random.Generator, n_clusters: int, widths: Sequence[int], kind: str
) -> list[FloatArray]:
    """Draw weights of a kind.

    One number per row ("rows") or per cell ("cells"), or both ("mixed"); cells without weight ("holes"); a cluster and
    a view without any ("dead").
    """
    columns = [1 if kind == "rows" or (kind == "mixed" and h % 2) else width for h, width in enumerate(widths)]
    weights: list[FloatArray] = [generator.uniform(0.01, 2.0, (n_clusters, width)) for width in columns]
    if kind == "holes":
        weights = [weight * (generator.random(weight.shape) < 0.6) for weight in weights]
    if kind == "dead":
        weights[int(generator.integers(len(weights)))][:] = 0.0
        for weight in weights:
            weight[0] = 0.0
    return weights


def random_rank(
    decomposition: Decomposition[Any], generator: np.random.Generator, n_clusters: int, widths: Sequence[int]
) -> tuple[int, ...]:
    """Draw a rank that such centres can have."""
    largest = largest_ranks(decomposition.limits(n_clusters, widths))
    return tuple(int(generator.integers(1, size + 1)) for size in largest.values())


def largest_difference(centers: Sequence[FloatArray], others: Sequence[FloatArray]) -> float:
    """Give the largest difference of any number of two sets of centres."""
    return max(float(np.abs(a - b).max()) for a, b in zip(centers, others, strict=True))


def _assert_same_arrays(factors: Factors, expected: Factors, atol: float = 0.0) -> None:
    """Raise AssertionError where arrays differ by more than `atol`."""
    for part in ("basis_arrays", "core_arrays"):
        for found, wanted in zip(getattr(factors, part), getattr(expected, part), strict=True):
            assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=part)


def _assert_never_rises(steps: Sequence[Factors], targets: Sequence[FloatArray], weights: Sequence[FloatArray]) -> None:
    """Raise AssertionError where the weighted error of factors is above that of those before by more than rounding."""
    size = weighted_error([np.zeros_like(target) for target in targets], targets, weights)
    for before, after in pairwise(weighted_error(factors.centers(), targets, weights) for factors in steps):
        check(after <= before + 1e-12 * (before + size), f"the error rose from {before!r} to {after!r}")


class DecompositionChecks:
    """Tests of one decomposition.

    Attributes
    ----------
    decomposition : Decomposition
        What is tested.
    rank : tuple of int
        A rank that constrains `n_clusters` centres in views of `widths` features.
    n_clusters, widths
        The size of the centres.
    n_cases : int
        Random problems that each property is tried on.
    """

    decomposition: ClassVar[Decomposition[Any]]
    rank: ClassVar[tuple[int, ...]]
    n_clusters: ClassVar[int] = 5
    widths: ClassVar[tuple[int, ...]] = (9, 6, 11)
    n_cases: ClassVar[int] = 20

    def change_gauge(self, factors: Any, generator: np.random.Generator) -> Any:  # noqa: ARG002
        """Give other factors of the same centres; a decomposition with a gauge should override this."""
        return factors

    def test_the_factors_are_of_their_class_and_make_centres_of_the_right_shape(self) -> None:
        factors = self._fit()
        check(isinstance(factors, self.decomposition.factors_class), "fit gives other factors than factors_class")
        check(factors.rank == self.rank, f"rank {self.rank} became {factors.rank}")
        shapes = [center.shape for center in factors.centers()]
        check(shapes == [(self.n_clusters, width) for width in self.widths], f"centres have shapes {shapes}")
        columns = {basis.shape[1] for basis in factors.view_bases} | {factors.coordinates.shape[2]}
        check(len(columns) == 1, f"bases and coordinates have {columns} columns")

    def test_bases_never_lengthen_a_vector(self) -> None:
        for factors in (self._fit(), self._step(self._fit(), "holes")):
            for basis in factors.view_bases:
                check(np.linalg.norm(basis, 2) <= 1 + 1e-10, "a basis has a singular value above 1")

    def test_arrays_make_the_same_factors_again(self) -> None:
        factors = self._fit()
        again = factors.with_arrays(basis=factors.basis_arrays, core=factors.core_arrays)
        _assert_same_arrays(again, factors)
        _assert_same_arrays(replace(factors), factors)
        check(type(again) is type(factors), "the factors have another class")
        for spec in fields(factors):
            known = getattr(factors, spec.name)
            check(isinstance(known, np.ndarray | tuple), f"{spec.name} is neither an array nor a tuple")

    def test_the_weighted_error_never_rises(self) -> None:
        for rank, start, targets, weights in self._problems():
            steps = [self.decomposition.fit(start, rank=rank, sweeps=2)]
            for _ in range(4):
                steps.append(self.decomposition.step(steps[-1], targets, weights, sweeps=1))
            _assert_never_rises(steps, targets, weights)

    def test_a_core_step_never_raises_the_error_and_keeps_the_basis(self) -> None:
        for rank, start, targets, weights in self._problems():
            factors = self.decomposition.fit(start, rank=rank, sweeps=2)
            gradients = self.decomposition.project_gradients(factors, targets, weights)
            row_weights = np.column_stack([weight.max(axis=1) for weight in weights])
            after = self.decomposition.core_step(factors, gradients, row_weights, sweeps=3)
            _assert_never_rises([factors, after], targets, weights)
            assert_same(after.basis_arrays, factors.basis_arrays)

    def test_cells_without_weight_change_no_bit(self) -> None:
        targets, weights = self._targets(np.random.default_rng(0), "holes")
        start = self.decomposition.fit(targets, weights, rank=self.rank, sweeps=3)
        end = self.decomposition.step(start, targets, weights)
        for value in (7.0, 1e300, np.nan, np.inf):
            other = [np.where(w > 0, t, value) for t, w in zip(targets, weights, strict=True)]
            again = self.decomposition.fit(other, weights, rank=self.rank, sweeps=3)
            _assert_same_arrays(self.decomposition.step(again, other, weights), end)
            one, two = (self.decomposition.project_gradients(start, given, weights) for given in (targets, other))
            assert_array_equal(one, two)

    def test_one_column_of_weights_equals_the_same_weights_in_all_columns(self) -> None:
        targets, weights = self._targets(np.random.default_rng(0), "rows")
        spread = [np.repeat(weight, width, axis=1) for weight, width in zip(weights, self.widths, strict=True)]
        start = self._fit(sweeps=2)
        ends = [self.decomposition.step(start, targets, given).centers() for given in (weights, spread)]
        check(largest_difference(*ends) < 1e-9, "weights of rows and of cells give different centres")

    def test_the_scale_of_the_weights_does_not_matter(self) -> None:
        targets, weights = self._targets(np.random.default_rng(0), "cells")
        start, tiny = self._fit(sweeps=2), [weight * 2.0**-600 for weight in weights]
        ends = [self.decomposition.step(start, targets, given).centers() for given in (weights, tiny)]
        check(largest_difference(*ends) == 0.0, "the scale of the weights changes the centres")

    def test_a_warm_start_from_the_solution_stays_there(self) -> None:
        start = self._fit()
        weights = random_weights(np.random.default_rng(0), self.n_clusters, self.widths, "mixed")
        end = self.decomposition.step(start, start.centers(), weights, sweeps=10)
        check(largest_difference(end.centers(), start.centers()) < 1e-10, "the step leaves the solution")

    def test_no_weight_at_all_changes_nothing(self) -> None:
        start = self._fit()
        nothing = [np.full((self.n_clusters, width), np.nan) for width in self.widths]
        end = self.decomposition.step(start, nothing, [np.zeros((self.n_clusters, 1)) for _ in self.widths])
        check(largest_difference(end.centers(), start.centers()) < 1e-13, "centres moved without weight")

    def test_alignment_changes_no_centres_and_undoes_a_change_of_gauge(self) -> None:
        generator = np.random.default_rng(0)
        factors, other = self._fit(), self._fit(seed=1)
        aligned = self.decomposition.align(other, factors)
        check(largest_difference(aligned.centers(), other.centers()) < 1e-9, "align changes the centres")
        for _ in range(self.n_cases):
            turned = self.change_gauge(factors, generator)
            check(largest_difference(turned.centers(), factors.centers()) < 1e-9, "change_gauge changes the centres")
            _assert_same_arrays(self.decomposition.align(turned, factors), factors, atol=1e-8)

    def test_the_canonical_gauge_keeps_the_centres_and_does_not_depend_on_the_gauge(self) -> None:
        generator = np.random.default_rng(0)
        factors = self._fit()
        canonical = self.decomposition.canonical(factors)
        check(largest_difference(canonical.centers(), factors.centers()) < 1e-9, "canonical changes the centres")
        if type(self.decomposition).canonical is not Decomposition.canonical:
            for _ in range(self.n_cases // 2):
                turned = self.change_gauge(factors, generator)
                _assert_same_arrays(self.decomposition.canonical(turned), canonical, atol=1e-8)

    def test_blends_go_from_one_to_the_other_and_the_mean_of_equals_is_the_same(self) -> None:
        generator = np.random.default_rng(0)
        one, other = self._fit(), self._step(self._fit(), "cells")
        for share, expected in ((0.0, one), (1.0, other)):
            found = self.decomposition.blend(one, self.change_gauge(other, generator), share).centers()
            check(largest_difference(found, expected.centers()) < 1e-8, f"a blend of share {share} is another")
        several = [self.change_gauge(one, generator) for _ in range(3)]
        mean = self.decomposition.mean(several, np.array([0.2, 0.5, 0.3]), one).centers()
        check(largest_difference(mean, one.centers()) < 1e-8, "the mean of equal factors is another")

    def test_projected_gradients_of_two_sites_add(self) -> None:
        generator, factors = np.random.default_rng(0), self._fit()
        sites = [self._targets(generator, "cells") for _ in range(2)]
        (first, w), (second, v) = sites
        pooled = [(a * t + b * u) / (a + b) for a, t, b, u in zip(w, first, v, second, strict=True)]
        together = [a + b for a, b in zip(w, v, strict=True)]
        total = sum(self.decomposition.project_gradients(factors, *site) for site in sites)
        assert_allclose(total, self.decomposition.project_gradients(factors, pooled, together), rtol=0, atol=1e-12)

    def test_sums_in_the_bases_give_the_core_that_full_statistics_give(self) -> None:
        generator, widths = np.random.default_rng(0), (max(self.widths),) * len(self.widths)
        factors = self.decomposition.fit(random_centers(generator, self.n_clusters, widths), rank=self.rank)
        sums = random_centers(generator, self.n_clusters, widths)
        masses = generator.uniform(0.5, 2.0, (self.n_clusters, len(widths)))
        targets = [n / w[:, None] for n, w in zip(sums, masses.T, strict=True)]
        full = self.decomposition.project_gradients(factors, targets, [w[:, None] for w in masses.T])
        projected = np.stack([n @ b for n, b in zip(sums, factors.view_bases, strict=True)], axis=1)
        moves = projected - masses[:, :, None] * factors.coordinates
        ends = [self.decomposition.core_step(factors, given, masses, sweeps=3).centers() for given in (full, moves)]
        check(largest_difference(*ends) < 1e-9, "sums in the bases give another core")

    def test_a_full_rank_reproduces_the_centres_and_takes_the_targets(self) -> None:
        for rank, start, targets, weights in self._problems(largest=True):
            if not self.decomposition.is_full(rank, len(start[0]), _widths(start)):
                continue
            factors = self.decomposition.fit(start, rank=rank)
            check(largest_difference(factors.centers(), start) < 1e-9, f"rank {rank} does not hold all centres")
            after = self.decomposition.step(factors, targets, weights).centers()
            wanted = [np.where(w > 0, t, b) for t, w, b in zip(targets, weights, start, strict=True)]
            check(largest_difference(after, wanted) < 1e-9, f"rank {rank} does not follow the targets")

    def test_limits_are_what_can_be_fitted(self) -> None:
        for rank, start, _, _ in self._problems(largest=True):
            self.decomposition.fit(start, rank=rank, sweeps=1)
            names = [f"view {h}" for h in range(len(start))]
            limits = self.decomposition.limits(len(start[0]), _widths(start), names)
            for mode, size in enumerate(rank):
                above = [*rank[:mode], size + 1, *rank[mode + 1 :]]
                try:
                    check_rank(above, limits, self.decomposition.name)
                except ValueError as error:
                    check(f"at most {size}" in str(error), f"the refusal of {above} says: {error}")
                else:
                    check(False, f"rank {above} is above the limits, and was not refused")

    def test_ranks_on_the_path_rise_and_can_be_had(self) -> None:
        centers = random_centers(np.random.default_rng(0), self.n_clusters, self.widths)
        limits = self.decomposition.limits(self.n_clusters, self.widths)
        path = self.decomposition.rank_path(centers, 0.9)
        check(path == sorted(path) and len(set(path)) == len(path) > 0, f"the ranks {path} do not rise")
        for rank in path:
            check(check_rank(rank, limits, self.decomposition.name) == rank, f"rank {rank} cannot be had")

    def test_one_view_and_views_of_one_feature(self) -> None:
        generator = np.random.default_rng(0)
        for widths in ((6,), (1,), (1, 1, 1), (1, 7)):
            centers = random_centers(generator, 4, widths)
            shapes = [center.shape for center in self.decomposition.fit(centers, rank=1).centers()]
            check(shapes == [(4, width) for width in widths], f"views of {widths} features have centres {shapes}")

    def test_starts_from_random_numbers_repeat_and_never_lose(self) -> None:
        centers = random_centers(np.random.default_rng(0), self.n_clusters, self.widths)
        one = self.decomposition.fit(centers, rank=self.rank)
        many = [self.decomposition.fit(centers, rank=self.rank, n_starts=4, random_state=3) for _ in range(2)]
        _assert_same_arrays(many[0], many[1])
        errors = [weighted_error(factors.centers(), centers) for factors in (many[0], one)]
        check(errors[0] <= errors[1], "more starts end with a larger error")

    def _fit(self, seed: int = 0, sweeps: int = 30) -> Any:
        centers = random_centers(np.random.default_rng(seed), self.n_clusters, self.widths)
        return self.decomposition.fit(centers, rank=self.rank, sweeps=sweeps)

    def _step(self, factors: Any, kind: str) -> Any:
        return self.decomposition.step(factors, *self._targets(np.random.default_rng(1), kind), sweeps=10)

    def _targets(self, generator: np.random.Generator, kind: str) -> tuple[list[FloatArray], list[FloatArray]]:
        targets = random_centers(generator, self.n_clusters, self.widths)
        return targets, random_weights(generator, self.n_clusters, self.widths, kind)

    def _problems(
        self, *, largest: bool = False
    ) -> Iterator[tuple[tuple[int, ...], list[FloatArray], list[FloatArray], list[FloatArray]]]:
        """Draw a rank, at random or the largest, centres to start from, targets, and weights of every kind."""
        for seed in range(self.n_cases):
            generator = np.random.default_rng(seed)
            n_clusters = int(generator.integers(1, 7))
            widths = [int(width) for width in generator.integers(1, 9, int(generator.integers(1, 5)))]
            rank = random_rank(self.decomposition, generator, n_clusters, widths)
            if largest:
                rank = tuple(largest_ranks(self.decomposition.limits(n_clusters, widths)).values())
            targets = random_centers(generator, n_clusters, widths)
            weights = random_weights(generator, n_clusters, widths, WEIGHT_KINDS[seed % len(WEIGHT_KINDS)])
            yield rank, random_centers(generator, n_clusters, widths), targets, weights


def _widths(centers: Sequence[FloatArray]) -> list[int]:
    return [center.shape[1] for center in centers]
