"""The decompositions of the project, random problems for them, and changes of their gauges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from fedhk.tensors import CP, DECOMPOSITIONS, Parafac2, Parafac2Factors, Tucker, TuckerFactors
from fedhk.testing.decompositions import WEIGHT_KINDS, random_centers, random_rank, random_weights

FORMS = list(DECOMPOSITIONS.values())
WIDTHS = (9, 6, 11)
RANKS = {"Tucker": (3, 4, 2), "PARAFAC2": (3,), "CP": (3,)}
FULL = [(Tucker(), 4, (4, 11, 3)), (Parafac2(), 3, 6), (CP(), 4, 12)]
"""A decomposition, a number of clusters, and a rank that constrains no centres of so many clusters in `WIDTHS`."""


@st.composite
def problems(draw):
    """A form, a possible rank, targets and weights."""
    form = draw(st.sampled_from(FORMS))
    n_clusters = draw(st.integers(1, 6))
    widths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    kind = draw(st.sampled_from(WEIGHT_KINDS))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rank = random_rank(form, generator, n_clusters, widths)
    targets = random_centers(generator, n_clusters, widths)
    return form, rank, targets, random_weights(generator, n_clusters, widths, kind), generator


def change_gauge(factors, generator):
    """The same centres with other factors: turned, or permuted, flipped and stretched."""
    if isinstance(factors, TuckerFactors):
        first, second, third = (_orthogonal(generator, size) for size in factors.core.shape)
        core = np.einsum("abc,ai,bj,ck->ijk", factors.core, first, second, third)
        features = tuple(q @ second for q in factors.feature_factors)
        return TuckerFactors(core, factors.cluster_factor @ first, features, factors.view_factor @ third)
    rank = factors.cluster_factor.shape[1]
    order = generator.permutation(rank)
    clusters, columns = (generator.uniform(0.5, 2.0, rank) * generator.choice([-1, 1], rank) for _ in range(2))
    turn = _orthogonal(generator, len(factors.feature_factor))
    stretched = replace(
        factors,
        cluster_factor=(factors.cluster_factor * clusters)[:, order],
        feature_factor=turn.T @ (factors.feature_factor * columns)[:, order],
        view_factor=(factors.view_factor / (clusters * columns))[:, order],
    )
    bases = [basis @ turn for basis in factors.basis_arrays]
    if not isinstance(factors, Parafac2Factors):
        return stretched.with_arrays(basis=bases)
    signs = generator.choice([-1.0, 1.0], len(bases))  # B_h and R_h may change sign together
    bases = [sign * basis for sign, basis in zip(signs, bases, strict=True)]
    return replace(stretched.with_arrays(basis=bases), view_factor=signs[:, None] * stretched.view_factor)


def reaches(form, centers, rank, error, attempts=8):
    """Whether the form comes within 1e-4 of an error, from one start and, if need be, from more."""
    floor = 1e-12 * sum(float(np.sum(center**2)) for center in centers)
    for attempt in range(attempts):
        factors = form.fit(centers, rank=rank, n_starts=1 + 3 * attempt, random_state=attempt)
        for _ in range(10):
            found = sum(float(np.sum((a - b) ** 2)) for a, b in zip(factors.centers(), centers, strict=True))
            if found <= (1 + 1e-4) * error + floor:
                return True
            factors = form.step(factors, centers, sweeps=100)
    return False


def _orthogonal(generator, size):
    return np.linalg.qr(generator.standard_normal((size, size)))[0]
