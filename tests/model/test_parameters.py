"""Parameters with free centres: the centre step, the coordinates of a basis, and the form that changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from fedhk.model.parameters import CRISP, CenterForm, Parameters
from fedhk.model.passes import Passes
from fedhk.model.statistics import Statistics


@pytest.fixture
def parameters():
    rng = np.random.default_rng(0)
    centers = tuple(rng.normal(size=(3, width)) for width in (5, 4))
    return Parameters(centers, np.array([0.25, 0.75]), 0.3, 1.1, 2.0, np.ones(2), np.array([1.0, 2.0, 0.5]))


def test_a_centre_moves_to_the_weighted_mean_and_stays_without_weight():
    before = Parameters((np.array([[5.0], [7.0]]),), np.ones(1), 0.3, 1.1, 2.0, np.ones(1))
    sums = Statistics((np.array([[6.0], [0.0]]),), (np.array([[3.0], [0.0]]),), np.ones(1), np.ones(2), 1.0, 2.0)
    assert_array_equal(before.move_centers(sums).centers[0], [[2.0], [7.0]])


@given(cases())
def test_the_centre_step_never_raises_the_objective(case):
    with Passes(case.rows, case.parameters.n_clusters, 1) as scan:
        before = scan.statistics(case.parameters)
        after = scan.statistics(case.parameters.move_centers(before))
    assert after.objective <= before.objective * (1 + 1e-10) + 1e-14


def test_a_basis_that_spans_the_centres_loses_nothing(parameters):
    basis = [np.linalg.qr(rows.T)[0] for rows in parameters.spans()]
    inner = parameters.in_basis(basis)
    assert [values.shape for values in inner.centers] == [(3, 3), (3, 3)]
    for found, wanted in zip(inner.from_basis(basis).centers, parameters.centers, strict=True):
        assert_allclose(found, wanted, rtol=0, atol=1e-14)
    assert_array_equal(inner.sizes, parameters.sizes)


def test_free_centres_have_no_form_to_lose(parameters):
    assert parameters.free() is parameters
    assert parameters.spans() is parameters.centers


def test_rare_views_count_more_and_rare_clusters_less(parameters):
    assert_allclose(parameters.view_factors, [0.0625, 0.5625])
    assert_allclose(replace(parameters, view_shares=np.array([0.5, 1.0])).view_factors, [0.125, 0.5625])
    assert_allclose(parameters.cluster_factors, [1.0, 2.0 ** (1 - CRISP), 2.0 ** (CRISP - 1)])


def test_free_centres_stay_as_they_are_and_need_no_statistics():
    def collect():
        raise AssertionError("a pass was made")

    start = Parameters((np.ones((2, 3)),), np.ones(1), 0.3, 1.1, 2.0, np.ones(1))
    assert CenterForm().constrain(start, ["only"], collect) is start
    assert CenterForm().binds(2, [3], ["only"]) is None
    assert not start.is_constrained
