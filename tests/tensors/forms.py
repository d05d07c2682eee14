"""Random centres, weights and gauge changes that the tests of all decompositions share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from fedhk.tensors import CP, Parafac2, Tucker, TuckerFactors

FORMS = [Tucker(), Parafac2(), CP()]


def random_centers(generator, n_clusters, widths):
    return [generator.standard_normal((n_clusters, width)) for width in widths]


def possible_rank(form, generator, n_clusters, widths):
    """A rank that the form can have, drawn at random."""
    largest = {}
    for limit in form.limits(n_clusters, widths):
        largest[limit.mode] = min(limit.largest, largest.get(limit.mode, limit.largest))
    return [int(generator.integers(1, size + 1)) for size in largest.values()]


def random_weights(generator, n_clusters, widths, kind):
    """Weights of every kind the centre step meets."""
    columns = [1 if kind == "rows" or (kind == "mixed" and h % 2) else width for h, width in enumerate(widths)]
    weights = [generator.uniform(0.01, 2.0, (n_clusters, width)) for width in columns]
    if kind == "holes":
        weights = [weight * (generator.random(weight.shape) < 0.6) for weight in weights]
    if kind == "dead":
        weights[int(generator.integers(len(weights)))][:] = 0.0
        for weight in weights:
            weight[0] = 0.0
    return weights


@st.composite
def problems(draw):
    """A form, a possible rank, targets and weights."""
    form = draw(st.sampled_from(FORMS))
    n_clusters = draw(st.integers(1, 6))
    widths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    kind = draw(st.sampled_from(["rows", "cells", "mixed", "holes", "dead"]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rank = possible_rank(form, generator, n_clusters, widths)
    targets = random_centers(generator, n_clusters, widths)
    return form, rank, targets, random_weights(generator, n_clusters, widths, kind), generator


def regauged(form, factors, generator):
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
    signs = generator.choice([-1.0, 1.0], len(factors.bases)) if form.views_have_signs else np.ones(len(factors.bases))
    return replace(
        factors,
        cluster_factor=(factors.cluster_factor * clusters)[:, order],
        feature_factor=turn.T @ (factors.feature_factor * columns)[:, order],
        view_factor=(signs[:, None] * factors.view_factor / (clusters * columns))[:, order],
        bases=tuple(sign * basis @ turn for sign, basis in zip(signs, factors.bases, strict=True)),
    )


def arrays(factors):
    """All arrays of some factors, in order."""
    found = []
    for value in vars(factors).values():
        found += list(value) if isinstance(value, tuple) else [value]
    return found


def difference(centers, others):
    return max(float(np.abs(a - b).max()) for a, b in zip(centers, others, strict=True))


def _orthogonal(generator, size):
    return np.linalg.qr(generator.standard_normal((size, size)))[0]
