"""What all decompositions share: the centre step of the low-rank model, as two kinds of steps that take turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np

from fedhk._random import RandomStateLike, check_generator
from fedhk._typing import FloatArray
from fedhk.data.checks import check_count
from fedhk.tensors.factors import Factors
from fedhk.tensors.limits import Limit, check_rank, largest_ranks
from fedhk.tensors.problem import WeightedCenters
from fedhk.tensors.solves import beyond, polar_factor, polar_step

F = TypeVar("F", bound=Factors)
_TINY = np.finfo(np.float64).tiny
_CORE_SWEEPS = 2


class Decomposition(ABC, Generic[F]):
    """A low-rank form of the centres, A_kh = B_h x_kh, and the steps that fit it.

    A new decomposition is a `Factors` dataclass and four methods: which ranks there are (`limits`), where a fit starts
    (`start`), one sweep over the core (`fit_core`), and how factors are brought to the gauge of others (`align`). It
    may say more: a gauge of its own (`canonical`), ranks that constrain nothing (`is_full` with `fit_exactly`), which
    ranks to try (`rank_path`), and other steps for the basis (`fit_bases`, `extrapolate`).
    `fedhk.testing.decompositions.DecompositionChecks` has tests for it.

    Notes
    -----
    The step minimises sum_khj w_khj (t_khj - A_khj)^2. Weights that depend on the feature are majorised by their
    maximum over j: a step on the target t~ = a + w (t - a) / max_j w, exact where the weights do not depend on j. As
    B_h never lengthens a vector, ||t~ - B_h x||^2 is majorised in turn by ||x' + B_h^T (t~ - B_h x') - x||^2 at the
    coordinates x' so far, exact for orthonormal columns. So the core is fitted to r numbers per cluster and view
    (`eqn:tensor_core` in the common basis), which add over sites. Each step then is an exact least-squares solution;
    the error never rises.
    """

    name: ClassVar[str]
    factors_class: ClassVar[type[Factors]]
    separate_bases: ClassVar[bool] = True
    """Whether `Factors.basis_arrays` are one basis per view, so that each view may change its coordinates alone."""

    @abstractmethod
    def limits(self, n_clusters: int, widths: Sequence[int], names: Sequence[str] | None = None) -> tuple[Limit, ...]:
        """Give the largest ranks, one mode after the other; where several limits hold for a mode, all of them."""

    @abstractmethod
    def start(
        self, centers: Sequence[FloatArray], rank: tuple[int, ...], generator: np.random.Generator | None
    ) -> list[F]:
        """Give factors to start from: made of singular vectors (no generator), or one of random numbers."""

    @abstractmethod
    def fit_core(self, factors: F, targets: FloatArray, weights: FloatArray) -> F:
        """Make one sweep over the core, for target coordinates (c, s, r) with weights (c, s)."""

    @abstractmethod
    def align(self, factors: F, to: F) -> F:
        """Give the same centres in the gauge of other factors, so that averaging the two has a meaning."""

    def canonical(self, factors: F) -> F:
        """Give the same centres in a gauge that does not depend on how they were found, where there is one."""
        return factors

    def is_full(self, rank: tuple[int, ...], n_clusters: int, widths: Sequence[int]) -> bool:  # noqa: ARG002
        """Whether all centres have factors of this rank, which `fit_exactly` finds."""
        return False

    def fit_exactly(self, centers: Sequence[FloatArray], rank: tuple[int, ...], previous: F | None) -> F:
        """Find factors of exactly these centres, if possible near to previous ones; asked only where `is_full`."""
        raise NotImplementedError(f"{self.name} has full ranks, but no fit_exactly.")

    def rank_path(self, centers: Sequence[FloatArray], energy: float) -> list[tuple[int, ...]]:  # noqa: ARG002
        """List ranks of rising size, one of which may keep this fraction of the energy of these centres."""
        largest = largest_ranks(self.limits(len(centers[0]), [center.shape[1] for center in centers])).values()
        return [tuple(min(rank, most) for most in largest) for rank in range(1, max(largest) + 1)]

    def fit_bases(self, factors: F, problem: WeightedCenters) -> F:
        """Find a better basis for the coordinates as they are."""
        coordinates, centers, bases = factors.coordinates, factors.centers(), []
        parts = zip(problem.residuals(centers), problem.row_weights.T, factors.basis_arrays, strict=True)
        for h, (residual, row_weights, old) in enumerate(parts):
            x, w = coordinates[:, h], row_weights[:, None]
            # sum_k w_k t~_k x_k^T and sum_k w_k x_k x_k^T of the majoriser
            bases.append(polar_step((residual + w * centers[h]).T @ x, (w * x).T @ x, old))
        return factors.with_arrays(basis=bases)

    def extrapolate(self, before: F, after: F, stride: float) -> F:
        """Give factors beyond `after`, as seen from `before`; the bases are the nearest orthonormal ones."""
        bases = zip(before.basis_arrays, after.basis_arrays, strict=True)
        cores = zip(before.core_arrays, after.core_arrays, strict=True)
        return after.with_arrays(
            basis=[polar_factor(beyond(old, new, stride)) for old, new in bases],
            core=[beyond(old, new, stride) for old, new in cores],
        )

    def fit(
        self,
        centers: Sequence[FloatArray],
        weights: Sequence[FloatArray] | None = None,
        *,
        rank: int | Sequence[int],
        sweeps: int = 30,
        n_starts: int = 1,
        random_state: RandomStateLike = None,
        names: Sequence[str] | None = None,
    ) -> F:
        """Find factors near given centres.

        Parameters
        ----------
        centers, weights : sequences of array of shape (c, d_h); weights also (c, 1), and all 1 if omitted
        rank : int or sequence of int
            See `check_rank`.
        sweeps : int
            Sweeps from every start.
        n_starts : int
            The first start is made of singular vectors, further ones of random numbers; the best is kept.
        random_state : int, numpy.random.Generator, numpy.random.RandomState or None
            Read only for further starts.
        names : sequence of str, optional
            Names of the views, for errors.
        """
        problem = WeightedCenters.of(centers, weights)
        n_clusters, widths = problem.shape
        ranks = check_rank(rank, self.limits(n_clusters, widths, names), self.name)
        if self.is_full(ranks, n_clusters, widths):
            return self.fit_exactly(problem.targets, ranks, None)
        emphasis = np.sqrt(problem.row_weights.mean(axis=0))
        emphasised = [target * root for target, root in zip(problem.targets, emphasis, strict=True)]
        starts = self.start(emphasised, ranks, None)
        if check_count(n_starts, "n_starts") > 1:
            generator = check_generator(random_state)
            starts += [start for _ in range(n_starts - 1) for start in self.start(emphasised, ranks, generator)]
        ends = [self._sweep(start, problem, sweeps) for start in starts]
        return min(ends, key=lambda factors: problem.error(factors.centers()))

    def step(
        self, factors: F, targets: Sequence[FloatArray], weights: Sequence[FloatArray] | None = None, sweeps: int = 3
    ) -> F:
        """Make sweeps from given factors that never raise sum_khj w_khj (t_khj - A_khj)^2.

        Parameters
        ----------
        factors : Factors
            Where to start.
        targets : sequence of array of shape (c, d_h)
            t_khj = N / W; anything, also NaN, where the weight is zero.
        weights : sequence of array of shape (c, d_h) or (c, 1), optional
            w_khj = g_h v_h^alpha W_khj, at least 0; all 1 if omitted. A cluster or a view without weight keeps its
            previous values.
        sweeps : int
            Sweeps over basis and core.
        """
        problem = WeightedCenters.of(targets, weights)
        centers = factors.centers()
        expected, given = [center.shape for center in centers], [target.shape for target in problem.targets]
        if given != expected:
            raise ValueError(f"targets should have the shapes of the factors' centres, {expected}, got {given}.")
        if self.is_full(factors.rank, len(centers[0]), [width for _, width in expected]):
            return self.fit_exactly(problem.completed(centers), factors.rank, factors)
        return self._sweep(factors, problem, sweeps)

    def core_step(self, factors: F, gradients: FloatArray, row_weights: FloatArray, sweeps: int = 1) -> F:
        """Make sweeps over the core alone, from numbers that add over sites; the basis stays.

        Parameters
        ----------
        factors : Factors
            Where the gradients were taken.
        gradients : array of shape (c, s, r)
            B_h^T w_kh (t_kh - a_kh), as `project_gradients` gives it; summed over sites.
        row_weights : array of shape (c, s)
            max_j w_khj, or any upper bound of w_khj, such as the sum over sites of theirs.
        sweeps : int
            Sweeps on the same numbers.
        """
        largest = float(np.max(row_weights, initial=0.0))
        if largest <= 0:
            return factors
        used = row_weights > _TINY
        moves = np.divide(gradients, row_weights[:, :, None], out=np.zeros(gradients.shape), where=used[:, :, None])
        targets = factors.coordinates + moves
        weights = np.where(used, row_weights, 0.0) / largest
        for _ in range(sweeps):
            factors = self.fit_core(factors, targets, weights)
        return factors

    def project_gradients(
        self, factors: F, targets: Sequence[FloatArray], weights: Sequence[FloatArray] | None = None
    ) -> FloatArray:
        """Compute B_h^T w_kh (t_kh - a_kh), of shape (c, s, r): numbers per cluster and view that add over sites."""
        problem = WeightedCenters.of(targets, weights)
        return problem.scale * _project(factors, problem)

    def blend(self, factors: F, other: F, share: float) -> F:
        """Mix (1 - share) of some factors with a share of others, in the gauge of the first.

        Both are brought to their canonical gauge before: what one of them is stretched by must not matter. The bases
        of the blend are the nearest with orthonormal columns.
        """
        onto = self.canonical(factors)
        return self.extrapolate(self.align(self.canonical(other), onto), onto, -share)

    def mean(self, several: Sequence[F], shares: FloatArray, onto: F) -> F:
        """Average factors after turning all to one gauge, the canonical one of `onto`; shares sum to 1."""
        onto = self.canonical(onto)
        aligned = [self.align(self.canonical(factors), onto) for factors in several]
        bases = zip(*(factors.basis_arrays for factors in aligned), strict=True)
        cores = zip(*(factors.core_arrays for factors in aligned), strict=True)
        return onto.with_arrays(
            basis=[polar_factor(np.tensordot(shares, np.stack(parts), 1)) for parts in bases],
            core=[np.tensordot(shares, np.stack(parts), 1) for parts in cores],
        )

    def _sweep(self, factors: F, problem: WeightedCenters, sweeps: int) -> F:
        """Make sweeps, each followed by a longer stride in the same direction if that is better still."""
        row_weights, stride = problem.row_weights, 1.0
        for _ in range(sweeps):
            better = self.fit_bases(factors, problem)
            better = self.core_step(better, _project(better, problem), row_weights, _CORE_SWEEPS)
            ahead = self.extrapolate(factors, better, stride)
            gains = problem.error(ahead.centers()) < problem.error(better.centers())
            factors, stride = (ahead, 1.5 * stride) if gains else (better, max(0.5 * stride, 0.5))
        return factors


def _project(factors: Factors, problem: WeightedCenters) -> FloatArray:
    """Compute the residuals w (t - A) in the coordinates of the bases, of shape (c, s, r)."""
    residuals = problem.residuals(factors.centers())
    return np.stack([part @ basis for part, basis in zip(residuals, factors.view_bases, strict=True)], axis=1)
