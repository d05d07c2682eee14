"""What all decompositions share: the centre step of the low-rank model as two alternating kinds of blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.checks import RandomStateLike, check_count, check_generator
from fedhk.tensors.limits import Limit, check_rank
from fedhk.tensors.problem import WeightedCenters
from fedhk.tensors.solves import polar_factor

__all__ = ["Decomposition"]

F = TypeVar("F")
_TINY = np.finfo(np.float64).tiny
_CORE_SWEEPS = 2


class Decomposition(ABC, Generic[F]):
    """A low-rank form of the centres, A_kh = B_h x_kh, and the steps that fit it.

    Every form is a basis B_h (d_h x r) per view and coordinates x_kh (r numbers per cluster and view) that are built
    from a few factors. A new form says how (`coordinates`, `view_bases`), how to improve the two parts (`_fit_core`,
    `_fit_bases`, `_extrapolated`), where to start (`_start`) and what its gauge is (`canonical`, `align`).

    Notes
    -----
    The step minimises sum_khj w_khj (t_khj - A_khj)^2. Weights that depend on the feature are majorised by their
    maximum over j: a step on the target t~ = a + w (t - a) / max_j w, exact where the weights do not depend on j. As
    B_h never lengthens a vector, ||t~ - B_h x||^2 is majorised in turn by ||x' + B_h^T (t~ - B_h x') - x||^2 at the
    coordinates x' so far, exact for orthonormal columns. So the factors but the basis are fitted to r numbers per
    cluster and view (`eqn:tensor_core` in the common basis), which add over sites. Each block then is an exact
    least-squares solution; the error never rises.
    """

    name: ClassVar[str]

    @abstractmethod
    def limits(self, n_clusters: int, widths: Sequence[int], names: Sequence[str] | None = None) -> tuple[Limit, ...]:
        """Largest ranks, one mode after the other; where several limits hold for a mode, all of them."""

    @abstractmethod
    def rank(self, factors: F) -> tuple[int, ...]:
        """The rank of each mode."""

    @abstractmethod
    def rank_path(self, centers: Sequence[FloatArray], energy: float) -> list[tuple[int, ...]]:
        """Ranks of rising size, one of which may keep a fraction of the energy of these centres."""

    @abstractmethod
    def basis(self, factors: F) -> tuple[FloatArray, ...]:
        """The arrays that are sent once: a basis of the features of every view."""

    @abstractmethod
    def core(self, factors: F) -> tuple[FloatArray, ...]:
        """The arrays that are sent every round: all but the basis."""

    @abstractmethod
    def assemble(self, basis: Sequence[FloatArray], core: Sequence[FloatArray], widths: Sequence[int]) -> F:
        """Factors from what `basis` and `core` gave and the widths d_h: the receiver's side."""

    @abstractmethod
    def canonical(self, factors: F) -> F:
        """The same centres in a gauge of their own: what depends on how they were found is gone."""

    @abstractmethod
    def align(self, factors: F, to: F) -> F:
        """The same centres in the gauge of other factors, so that averaging the two has a meaning."""

    @abstractmethod
    def coordinates(self, factors: F) -> FloatArray:
        """The coordinates x_kh of the centres in the bases, of shape (c, s, r)."""

    @abstractmethod
    def view_bases(self, factors: F) -> tuple[FloatArray, ...]:
        """The bases B_h, of shape (d_h, r): orthonormal columns or rows, or some rows of orthonormal columns."""

    @abstractmethod
    def _fit_core(self, factors: F, targets: FloatArray, weights: FloatArray) -> F:
        """One sweep over the factors but the basis, for coordinates (c, s, r) with weights (c, s)."""

    @abstractmethod
    def _fit_bases(self, factors: F, problem: WeightedCenters) -> F:
        """A better basis for the coordinates as they are."""

    @abstractmethod
    def _extrapolated(self, before: F, after: F, stride: float) -> F:
        """Factors beyond `after`, as seen from `before`."""

    @abstractmethod
    def _start(
        self, centers: Sequence[FloatArray], rank: tuple[int, ...], generator: np.random.Generator | None
    ) -> list[F]:
        """Starts from singular vectors (no generator) or one from random numbers."""

    @abstractmethod
    def _exact(self, centers: Sequence[FloatArray], rank: tuple[int, ...], previous: F | None) -> F | None:
        """Factors of exactly these centres where the rank allows it for all centres, else None."""

    def is_full(self, rank: tuple[int, ...], n_clusters: int, widths: Sequence[int]) -> bool:
        """Whether all centres have factors of this rank."""
        return self._exact([np.zeros((n_clusters, width)) for width in widths], rank, None) is not None

    def initial(
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
        """Factors near given centres.

        Parameters
        ----------
        centers : sequence of array of shape (c, d_h)
        weights : sequence of array of shape (c, d_h) or (c, 1), optional
            All 1 if omitted.
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

        Returns
        -------
        Factors
        """
        problem = WeightedCenters.of(centers, weights)
        widths = [target.shape[1] for target in problem.targets]
        ranks = check_rank(rank, self.limits(len(problem.targets[0]), widths, names), self.name)
        exact = self._exact(problem.targets, ranks, None)
        if exact is not None:
            return exact
        emphasis = np.sqrt(problem.row_weights.mean(axis=0))
        emphasised = [target * root for target, root in zip(problem.targets, emphasis, strict=True)]
        starts = self._start(emphasised, ranks, None)
        if check_count(n_starts, "n_starts") > 1:
            generator = check_generator(random_state)
            starts += [start for _ in range(n_starts - 1) for start in self._start(emphasised, ranks, generator)]
        ends = [self._sweep(start, problem, sweeps) for start in starts]
        return min(ends, key=lambda factors: problem.error(self.reconstruct(factors)))

    def step(
        self, factors: F, targets: Sequence[FloatArray], weights: Sequence[FloatArray] | None = None, sweeps: int = 3
    ) -> F:
        """Warm-started sweeps that never raise sum_khj w_khj (t_khj - A_khj)^2.

        Parameters
        ----------
        factors : Factors
            Where to start.
        targets : sequence of array of shape (c, d_h)
            t_khj = N / W; anything, also NaN, where the weight is zero.
        weights : sequence of array of shape (c, d_h) or (c, 1), optional
            w_khj = g_h v_h^alpha W_khj, at least 0; all 1 if omitted.
        sweeps : int
            Sweeps over all blocks.

        Returns
        -------
        Factors
            What no weight speaks of (a cluster, a view) keeps its previous value.
        """
        problem = WeightedCenters.of(targets, weights)
        self._check_shapes(factors, problem)
        exact = self._exact(problem.completed(self.reconstruct(factors)), self.rank(factors), factors)
        return self._sweep(factors, problem, sweeps) if exact is None else exact

    def core_step(self, factors: F, gradients: FloatArray, row_weights: FloatArray, sweeps: int = 1) -> F:
        """One or more sweeps over all factors but the basis, from numbers that add over sites.

        Parameters
        ----------
        factors : Factors
            Where the gradients were taken.
        gradients : array of shape (c, s, r)
            B_h^T w_kh (t_kh - a_kh), as `projected_gradients` gives it; summed over sites.
        row_weights : array of shape (c, s)
            max_j w_khj, or any upper bound of w_khj, such as the sum over sites of theirs.
        sweeps : int
            Sweeps on the same numbers.

        Returns
        -------
        Factors
            With the same basis.
        """
        largest = float(np.max(row_weights, initial=0.0))
        if largest <= 0:
            return factors
        used = row_weights > _TINY
        moves = np.divide(gradients, row_weights[:, :, None], out=np.zeros(gradients.shape), where=used[:, :, None])
        targets = self.coordinates(factors) + moves
        weights = np.where(used, row_weights, 0.0) / largest
        for _ in range(sweeps):
            factors = self._fit_core(factors, targets, weights)
        return factors

    def projected_gradients(
        self, factors: F, targets: Sequence[FloatArray], weights: Sequence[FloatArray] | None = None
    ) -> FloatArray:
        """B_h^T w_kh (t_kh - a_kh), of shape (c, s, r): r numbers per cluster and view, which add over sites."""
        problem = WeightedCenters.of(targets, weights)
        return problem.scale * self._project(factors, problem)

    def reconstruct(self, factors: F) -> list[FloatArray]:
        """The centres, one array of shape (c, d_h) per view."""
        coordinates = self.coordinates(factors)
        return [coordinates[:, h] @ basis.T for h, basis in enumerate(self.view_bases(factors))]

    def blend(self, factors: F, other: F, share: float) -> F:
        """Factors with a share of another's, in the gauge of the first: (1 - share) here, share there.

        Both are brought to their canonical gauge before: what one of them is stretched by must not matter. The bases
        of the blend are the nearest with orthonormal columns.
        """
        onto = self.canonical(factors)
        return self._extrapolated(self.align(self.canonical(other), onto), onto, -share)

    def mean(self, several: Sequence[F], shares: FloatArray, onto: F) -> F:
        """Average of factors after turning all to one gauge, the canonical one of `onto`; shares sum to 1."""
        onto = self.canonical(onto)
        aligned = [self.align(self.canonical(factors), onto) for factors in several]
        bases = [
            polar_factor(np.tensordot(shares, np.stack(parts), 1))
            for parts in zip(*(self.basis(f) for f in aligned), strict=True)
        ]
        core = [
            np.tensordot(shares, np.stack(parts), 1) for parts in zip(*(self.core(f) for f in aligned), strict=True)
        ]
        return self.assemble(bases, core, [len(basis) for basis in self.view_bases(onto)])

    def n_numbers(self, factors: F) -> tuple[int, int]:
        """How many numbers the basis has, and how many the core."""
        return sum(part.size for part in self.basis(factors)), sum(part.size for part in self.core(factors))

    def _sweep(self, factors: F, problem: WeightedCenters, sweeps: int) -> F:
        """Sweeps, each followed by a longer stride in the same direction if that is better still."""
        row_weights, stride = problem.row_weights, 1.0
        for _ in range(sweeps):
            better = self._fit_bases(factors, problem)
            better = self.core_step(better, self._project(better, problem), row_weights, _CORE_SWEEPS)
            ahead = self._extrapolated(factors, better, stride)
            gains = problem.error(self.reconstruct(ahead)) < problem.error(self.reconstruct(better))
            factors, stride = (ahead, 1.5 * stride) if gains else (better, max(0.5 * stride, 0.5))
        return factors

    def _project(self, factors: F, problem: WeightedCenters) -> FloatArray:
        residuals = problem.residuals(self.reconstruct(factors))
        return np.stack([part @ basis for part, basis in zip(residuals, self.view_bases(factors), strict=True)], axis=1)

    def _cross(self, factors: F, problem: WeightedCenters) -> list[tuple[FloatArray, FloatArray]]:
        """sum_k w_k t~_k x_k^T and sum_k w_k x_k x_k^T per view, of the majoriser."""
        coordinates, rows = self.coordinates(factors), problem.row_weights
        centers = self.reconstruct(factors)
        pairs: list[tuple[FloatArray, FloatArray]] = []
        for h, residual in enumerate(problem.residuals(centers)):
            x, w = coordinates[:, h], rows[:, h, None]
            pairs.append(((residual + w * centers[h]).T @ x, (w * x).T @ x))
        return pairs

    def _check_shapes(self, factors: F, problem: WeightedCenters) -> None:
        expected = [(len(self.coordinates(factors)), len(basis)) for basis in self.view_bases(factors)]
        given = [target.shape for target in problem.targets]
        if given != expected:
            raise ValueError(f"targets should have the shapes of the factors' centres, {expected}, got {given}.")
