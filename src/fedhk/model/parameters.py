"""The parameters of the model, which a server broadcasts and a fitted model keeps, and the update of centres."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.statistics import Statistics

# A weight below this share of the view's largest is what rounding leaves of nothing: the kernel of a far centre.
LEAST_SHARE = 1e-13


# The largest fuzzifier whose memberships are taken for shares of rows: that of well separated clusters under "auto".
CRISP = 1.0625


@dataclass(frozen=True)
class Parameters:
    """Centres, view weights and the three numbers that shape the objective, in model units.

    The centres here are free. A subclass that constrains them overrides how they move and how they change coordinates;
    `fedhk.tensors.low_rank.LowRankParameters` does.
    """

    centers: tuple[FloatArray, ...]  # A in the paper, (c, d_h) per view
    view_weights: FloatArray  # v in the paper, (s,); sums to 1
    heat_time: float  # t: the bandwidth of the heat kernel in model units
    fuzzifier: float  # m > 1
    view_exponent: float  # alpha > 1
    # Share of the rows that have each view, (s,). A view's cost is divided by it: a view is not good for being rare.
    view_shares: FloatArray
    # In a site's own model: how many times more frequent each cluster is there than everywhere, (c,). Memberships are
    # multiplied by it, so that a row between two clusters goes to the one that is frequent at its site; with 0 to none.
    sizes: FloatArray | None = None

    @property
    def n_clusters(self) -> int:
        """Number of clusters c."""
        return int(self.centers[0].shape[0])

    @property
    def view_factors(self) -> FloatArray:
        """Factor of each view's kernel distance in the objective: v_h^alpha over the view's share of the rows."""
        factors: FloatArray = self.view_weights**self.view_exponent / np.maximum(self.view_shares, 1e-12)
        return factors

    @property
    def cluster_factors(self) -> FloatArray | None:
        """Factor of each cluster's distance: sizes^(1-m), so that memberships are in proportion to sizes.

        A larger fuzzifier than `CRISP` blurs memberships, and does not make distances say less: which cluster a row is
        in then depends on sizes as with `CRISP`. With sizes^(1-m) the largest cluster would take all rows. A cluster of
        size 0 is infinitely far from all rows.
        """
        if self.sizes is None:
            return None
        far = np.full(self.sizes.shape, np.inf)
        return np.asarray(np.power(self.sizes, 1.0 - min(self.fuzzifier, CRISP), out=far, where=self.sizes > 0))

    @property
    def gone(self) -> tuple[int, ...]:
        """Clusters without rows."""
        return () if self.sizes is None else tuple(np.flatnonzero(self.sizes == 0).tolist())

    def without(self, gone: Sequence[int]) -> Self:
        """Return the parameters with some clusters marked as gone; the others keep their numbers."""
        if not gone:
            return self
        sizes = np.ones(self.n_clusters) if self.sizes is None else self.sizes.copy()
        sizes[list(gone)] = 0.0
        return replace(self, sizes=sizes)

    @property
    def has_form(self) -> bool:
        """Whether centres have a form that they would lose if they were replaced."""
        return False

    @property
    def is_constrained(self) -> bool:
        """Whether the form keeps centres from moving freely."""
        return False

    def move_centers(self, statistics: Statistics) -> Self:
        """Take the centre step a = N / W, which never raises the objective, from the statistics at these parameters."""
        return replace(self, centers=update_centers(statistics, self.centers))

    def free(self) -> Parameters:
        """Return the parameters without any constraint on the centres."""
        return self

    def in_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        """Return the parameters with centres in the coordinates of orthonormal columns E_h, of shape (d_h, q_h)."""
        return replace(self, centers=tuple(values @ e for values, e in zip(self.centers, basis, strict=True)))

    def from_basis(self, basis: Sequence[FloatArray]) -> Parameters:
        """Return the parameters with centres in features, from centres in the coordinates of `basis`."""
        return replace(self, centers=tuple(values @ e.T for values, e in zip(self.centers, basis, strict=True)))

    def spans(self) -> tuple[FloatArray, ...]:
        """Return, per view, rows that span the centres: here the centres themselves."""
        return self.centers


@dataclass(frozen=True)
class CenterForm:
    """The form that centres are constrained to: here none.

    A subclass constrains them; `fedhk.tensors.low_rank.LowRankForm` does.
    """

    def constrain(
        self,
        start: Parameters,
        view_names: Sequence[str],  # noqa: ARG002
        statistics: Callable[[], Sequence[Statistics]] | None = None,  # noqa: ARG002
    ) -> Parameters:
        """Return parameters whose centres have this form, as near to a start with free centres as possible.

        `statistics` makes a pass over the rows at `start` and says how much each centre matters: in one part, or in two
        halves of which one may be held out. It is called only if the form needs it; without it all centres matter
        alike. The names of the views are for errors.
        """
        return start

    def binds(self, n_clusters: int, widths: Sequence[int], view_names: Sequence[str]) -> bool | None:  # noqa: ARG002
        """Tell whether the given rank constrains centres; None if no rank was given."""
        return None


def update_centers(statistics: Statistics, previous: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Compute centres a_kj = N_kj / W_kj; a centre without weight, apart from rounding, stays where it was.

    `eqn:diff_A_EFKMVFC` with delta_ij inside the weight: the exact minimiser of a majoriser of J, because 1 - exp(-phi)
    is concave in phi. The update as printed divides by a quantity that depends on the summation index and raises J.
    """
    return tuple(
        np.divide(numerator, weight, out=np.array(old, dtype=np.float64), where=weight > LEAST_SHARE * weight.max())
        for numerator, weight, old in zip(statistics.numerators, statistics.weights, previous, strict=True)
    )
