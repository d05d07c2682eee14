"""Passes with clusters that are more or less frequent at a site."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from fedhk.data.row_forms import row_lengths
from fedhk.federation.codec import pack, unpack
from fedhk.model.descent import improve
from fedhk.model.parameters import CRISP, Parameters
from fedhk.model.statistics import Statistics
from personal_sites import assign, plain_rows, scan, two_clusters


def with_sizes(case, seed):
    sizes = np.exp(np.random.default_rng(seed).normal(size=case.parameters.n_clusters))
    return replace(case.parameters, sizes=sizes)


def slow_pass(case, parameters):
    """Memberships and sums of a model with sizes, from the formulas, in logarithms."""
    p, floor = parameters, np.finfo(np.float64).tiny * 1e3 * parameters.view_factors.sum()
    values, coefs, kernels = [], [], []
    for view, ref, centers in zip(case.views, case.rows.references, p.centers, strict=True):
        x = view / row_lengths(view)[:, None] if ref.unit_rows else view
        z = (x - ref.shift) / ref.scale
        coef = np.where(np.isnan(z), 0.0, ref.coefficients(z))
        z = np.nan_to_num(z)
        phi = p.heat_time * np.sum(coef[:, None] * (z[:, None] - centers) ** 2, axis=2)
        values.append(z)
        coefs.append(coef)
        kernels.append(np.expm1(-phi))
    distances = np.maximum(-sum(f * k for f, k in zip(p.view_factors, kernels, strict=True)), floor)
    factors = p.sizes ** (1 - min(p.fuzzifier, CRISP))
    distances = factors * distances
    logs = -np.log(distances) / (p.fuzzifier - 1)
    mu = np.exp(logs - logs.max(axis=1, keepdims=True))
    mu /= mu.sum(axis=1, keepdims=True)
    row = 1.0 if case.sample_weight is None else case.sample_weight[:, None]
    powers = row * factors * mu**p.fuzzifier
    sums = Statistics(
        tuple(np.einsum("nk,nd->kd", powers * (k + 1), c * z) for k, c, z in zip(kernels, coefs, values, strict=True)),
        tuple(np.einsum("nk,nd->kd", powers * (k + 1), c) for k, c in zip(kernels, coefs, strict=True)),
        np.array([-np.sum(powers * k) for k in kernels]),
        powers.sum(axis=0),
        float(np.sum(powers / factors * distances)),
        case.rows.n_rows,
    )
    return mu, sums


class TestSizes:
    @given(cases(), st.integers(0, 2**32 - 1))
    @settings(max_examples=150)
    def test_pass_equals_the_formulas(self, case, seed):
        parameters = with_sizes(case, seed)
        mu, slow = slow_pass(case, parameters)
        fast, found = scan(case.rows, parameters), assign(case.rows, parameters)
        n = case.rows.n_rows * 3.0
        assert_allclose(found[0], mu, atol=1e-6)
        scale = 1e-9 * float(np.max(parameters.sizes ** (1 - parameters.fuzzifier)))
        assert_allclose(fast.objective, slow.objective, rtol=1e-8, atol=n * scale * parameters.view_factors.sum())
        assert found[2] == pytest.approx(fast.objective, rel=1e-8, abs=1e-290)
        for one, other in zip(
            (fast.costs, fast.masses, *fast.numerators), (slow.costs, slow.masses, *slow.numerators), strict=True
        ):
            assert_allclose(one, other, rtol=1e-6, atol=1e-3 * n * scale)
        for one, other in zip(fast.weights, slow.weights, strict=True):
            assert_allclose(np.broadcast_to(one, other.shape), other, rtol=1e-6, atol=1e-3 * n * scale)

    @given(cases(), st.integers(0, 2**32 - 1))
    @settings(max_examples=100)
    def test_objective_never_rises(self, case, seed):
        parameters, previous = with_sizes(case, seed), np.inf
        rounding = 1e-13 * float(parameters.view_factors.sum()) * 3 * case.rows.n_rows
        for _ in range(5):
            statistics = scan(case.rows, parameters)
            assert statistics.objective <= previous * (1 + 1e-10) + rounding
            previous = statistics.objective
            parameters = improve(parameters, statistics, learn_weights=True)

    @given(cases())
    @settings(max_examples=50)
    def test_equal_sizes_change_no_bit(self, case):
        alike = replace(case.parameters, sizes=np.ones(case.parameters.n_clusters))
        one, other = scan(case.rows, case.parameters), scan(case.rows, alike)
        assert one.objective == other.objective
        for a, b in zip((*one.numerators, *one.weights, one.costs), (*other.numerators, *other.weights, other.costs),
                        strict=True):  # fmt: skip
            assert_array_equal(a, b)
        assert_array_equal(assign(case.rows, case.parameters)[0], assign(case.rows, alike)[0])

    def test_a_row_between_two_clusters_goes_to_the_frequent_one_in_proportion(self):
        rows = plain_rows([[[-1.0], [0.0], [1.0]]])
        parameters = replace(two_clusters(-1.0, 1.0), sizes=np.array([3.0, 1.0]), fuzzifier=CRISP)
        memberships, labels, _ = assign(rows, parameters)
        assert_allclose(memberships[1], [0.75, 0.25])
        assert labels.tolist() == [0, 0, 1]

    def test_survive_a_file(self):
        parameters = replace(two_clusters(-1.0, 1.0), sizes=np.array([3.0, 1.0]))
        again = unpack(*pack(parameters, Parameters, named=True), Parameters)
        assert_array_equal(again.sizes, parameters.sizes)
        assert unpack(*pack(two_clusters(-1, 1), Parameters, named=True), Parameters).sizes is None


@given(cases(), st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_a_cluster_of_size_0_is_as_if_it_were_not_there(case, seed):
    """All sums and memberships are those of the model without it; it has none, and keeps its centre."""
    c = case.parameters.n_clusters
    if c < 2:
        return
    parameters = with_sizes(case, seed)
    gone = seed % c
    sizes = np.where(np.arange(c) == gone, 0.0, parameters.sizes)
    there = np.delete(np.arange(c), gone)
    fewer = replace(parameters, sizes=sizes[there], centers=tuple(a[there] for a in parameters.centers))
    parameters = replace(parameters, sizes=sizes)
    found, expected = scan(case.rows, parameters), scan(case.rows, fewer)
    assert found.objective == pytest.approx(expected.objective, rel=1e-6, abs=1e-290)
    assert_allclose(found.masses[there], expected.masses, rtol=1e-6, atol=1e-9)
    assert found.masses[gone] == 0
    assert not assign(case.rows, parameters)[0][:, gone].any()
    moved = improve(parameters, found, learn_weights=False)
    assert_array_equal(moved.centers[0][gone], parameters.centers[0][gone])
