"""Candidates stand for rows without being rows, and draws do not depend on the order of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedhk.data.views import check_views
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows, joint_rows
from fedhk.starts.candidates import candidate_rows, site_candidates
from fedhk.starts.seeding import distinct_rows


def rows_of(views):
    checked = check_views(views)
    return Rows(checked, prepare(checked, "standard", "uniform", None))


@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 30))
@settings(max_examples=50)
def test_candidates_are_means_of_at_least_two_rows_and_stand_for_all(seed, n_rows, wanted):
    rng = np.random.default_rng(seed)
    rows = rows_of([rng.normal(size=(n_rows, 4)), rng.normal(size=(n_rows, 2))])
    found = site_candidates(rows, wanted, np.random.RandomState(seed))
    assert 1 <= len(found.sizes) <= max(1, min(wanted, n_rows // 3))
    assert np.all(found.sizes >= 2)
    assert found.sizes.sum() == pytest.approx(n_rows)
    joint = joint_rows(rows)
    assert_allclose(found.sizes @ found.points, joint.sum(axis=0), atol=1e-9)
    # the squared distances to any point add up to those of the rows
    total = found.sizes @ (np.square(found.points).sum(axis=1) + found.spreads.sum(axis=1))
    assert total == pytest.approx(np.square(joint).sum())


def test_site_of_one_row_gives_no_candidates():
    checked = check_views([np.array([[1.0, 2.0], [0.0, 1.0]])])
    one = check_views([np.array([[1.0, 2.0]])])
    rows = Rows(one, prepare(checked, "standard", "uniform", None))
    assert len(site_candidates(rows, 5, np.random.RandomState(0)).sizes) == 0


def test_objective_on_candidates_is_near_that_of_the_rows():
    rng = np.random.default_rng(0)
    centers = 5 * rng.normal(size=(3, 6))
    rows = rows_of([centers[rng.integers(3, size=600)] + rng.normal(size=(600, 6))])
    found = site_candidates(rows, 100, np.random.RandomState(0))
    means = candidate_rows([found], rows.references, ["a"])
    parameters = Parameters((rows.references[0].to_model(centers),), np.ones(1), 0.3, 1.0625, 2.0, np.ones(1))
    with Passes(rows, 3) as exact, Passes(means, 3) as near:
        assert near.statistics(parameters).objective == pytest.approx(exact.statistics(parameters).objective, rel=0.02)


def test_distinct_rows_do_not_depend_on_order_or_repetition():
    rng = np.random.default_rng(0)
    joint = rng.normal(size=(20, 3))
    order = rng.permutation(20)
    repeated = np.vstack([joint, joint[:5]])[rng.permutation(25)]
    first, weight = distinct_rows(joint, None)
    other, _ = distinct_rows(joint[order], None)
    again, sizes = distinct_rows(repeated, None)
    assert_allclose(joint[first], joint[order][other])
    assert_allclose(joint[first], repeated[again])
    assert weight.sum() == 20
    assert sizes.sum() == 25
