"""Groups of rows of a site, whose means are candidates."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.data.scaling import make_scaling
from fedhk.data.views import check_views
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.starts.candidates import site_candidates, split_groups


def rows_of(tables):
    views = check_views(tables)
    return Rows(views, prepare(views, make_scaling("standard"), "uniform", None), None)


@pytest.mark.parametrize("least_rows", [2, 5])
def test_large_groups_are_split_until_there_are_enough(least_rows):
    rng = np.random.default_rng(0)
    values, groups = rng.normal(size=(100, 3)), rng.integers(0, 4, 100)
    found = split_groups(values, groups, 15, least_rows)
    assert len(np.unique(found)) == 15
    assert np.bincount(found).min() >= least_rows
    assert len(np.unique(np.stack([groups, found]), axis=1).T) == 15  # no rows of two groups come together


def test_no_more_groups_are_made_than_rows_allow():
    rng = np.random.default_rng(0)
    found = split_groups(rng.normal(size=(20, 3)), np.zeros(20, np.int64), 20, 3)
    assert np.bincount(found).min() == 3
    assert np.bincount(found).max() < 2 * 3


def test_groups_that_are_enough_stay_as_they_are():
    groups = np.arange(12) // 4
    np.testing.assert_array_equal(split_groups(np.eye(12), groups, 3, 2), groups)


def test_rows_that_are_all_alike_stay_together():
    values = np.repeat(np.eye(2), 10, axis=0)
    groups = np.repeat([0, 1], 10)
    np.testing.assert_array_equal(np.sort(np.bincount(split_groups(values, groups, 6, 2))), [10, 10])


def test_rows_are_split_where_they_are_apart():
    values = np.array([[0.0], [0.1], [0.2], [9.0], [9.1]])
    found = split_groups(values, np.zeros(5, np.int64), 2, 2)
    assert len(set(found[:3])) == len(set(found[3:])) == 1
    assert found[0] != found[3]


def test_a_site_that_splits_groups_sends_as_many_candidates_as_it_may():
    """k-means gives groups of single rows to outliers, which are given up: fewer would be left."""
    rows = rows_of([np.random.default_rng(0).standard_t(2, (300, 4))])
    few = site_candidates(rows, 500, np.random.RandomState(0))
    many = site_candidates(rows, 500, np.random.RandomState(0), split=True)
    assert len(few.sizes) < 80
    assert len(many.sizes) == 100
    assert many.sizes.min() >= 2
    assert many.sizes.sum() == few.sizes.sum() == 300


def test_groups_that_are_split_are_the_same_in_whatever_order_rows_are():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(200, 3))
    found = [
        site_candidates(rows_of({"v": table[order]}), 40, np.random.RandomState(0), split=True).points
        for order in (np.arange(200), rng.permutation(200))
    ]
    first, other = (points[np.lexsort(points.T)] for points in found)
    np.testing.assert_allclose(first, other, atol=1e-12)
