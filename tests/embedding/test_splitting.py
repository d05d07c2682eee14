"""Groups of rows from sums alone: no sum tells a row, sums of sites are sums of rows, and splitting finds groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.embedding.cluster_sums import ClusterSums, sums_size
from fedhk.embedding.splitting import groups_size, read_groups, split_groups, sum_groups
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows, take
from fedhk.starts.candidates import LEAST_ROWS, Candidates

WIDTHS, INCOMPLETE = (3, 2), [0]


def make_rows(n=60, seed=0, *, gaps=False):
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(n, width)) for width in WIDTHS]
    if gaps:
        views[0][rng.random(views[0].shape) < 0.2] = np.nan
    checked = check_views(views)
    return Rows(checked, prepare(checked, "none", "uniform", None))


def points(count, seed=1):
    return np.random.default_rng(seed).normal(size=(count, sum(WIDTHS)))


def sizes(vector, count):
    return ClusterSums.from_array(vector[: sums_size(count, WIDTHS, INCOMPLETE)], count, WIDTHS).sizes


@given(n=st.integers(0, 12), count=st.integers(1, 30), seed=st.integers(0, 1000))
def test_no_group_has_a_single_row_of_a_site(n, count, seed):
    rows = take(make_rows(12, seed), np.arange(n))
    vector = sum_groups(rows, points(count, seed), INCOMPLETE)
    found = sizes(vector, count)
    assert len(vector) == groups_size(count, WIDTHS, INCOMPLETE)
    assert np.all((found == 0) | (found >= LEAST_ROWS))
    assert found.sum() == (n if n >= LEAST_ROWS else 0)


@given(seed=st.integers(0, 1000), gaps=st.booleans())
def test_means_and_spreads_are_those_of_the_rows_of_all_sites(seed, gaps):
    rows = make_rows(60, seed, gaps=gaps)
    where = np.zeros((1, sum(WIDTHS)))
    total = sum(sum_groups(take(rows, np.arange(start, start + 20)), where, INCOMPLETE) for start in (0, 20, 40))
    found = read_groups(total, 1, WIDTHS, INCOMPLETE)
    joint = np.hstack([r.to_model(t) for r, t in zip(rows.references, rows.views.tables, strict=True)])
    assert_array_equal(found.sizes, [60])
    assert_allclose(found.points, np.nanmean(joint, axis=0, keepdims=True), atol=1e-12)
    if not gaps:
        apart = np.square(joint - joint.mean(axis=0)).mean(axis=0)
        assert_allclose(found.spreads, [[apart[:3].sum(), apart[3:].sum()]])


def test_groups_without_rows_are_left_out_and_a_view_that_no_row_has_is_missing():
    first = np.array([[np.nan] * 3, [np.nan] * 3, [1.0, 2, 3], [3, 2, 1]])
    views = [first, np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])]
    checked = check_views(views)
    rows = Rows(checked, prepare(checked, "none", "uniform", None))
    where = np.array([[0.0, 0, 0, -9, -9], [0, 0, 0, 9, 9], [0, 0, 0, 1e6, 1e6]])
    found = read_groups(sum_groups(rows, where, INCOMPLETE), 3, WIDTHS, INCOMPLETE)
    assert_array_equal(found.sizes, [2, 2])
    assert_array_equal(np.isnan(found.points), [[True] * 3 + [False] * 2, [False] * 5])


def test_the_groups_that_spread_most_are_split_and_those_of_few_rows_are_not():
    found = Candidates(np.zeros((4, 5)), np.array([10.0, 3, 8, 20]), np.array([[1.0, 1], [90, 90], [0, 0], [0.2, 0.2]]))
    rng = np.random.RandomState(0)
    assert len(split_groups(found, 4, WIDTHS, rng)) == 4
    one = split_groups(found, 5, WIDTHS, rng)
    assert_allclose(one[0], -one[4])  # 10 rows of spread 2
    assert_array_equal(one[1:4], 0.0)
    assert_allclose(np.linalg.norm(one[0, :3]), 0.5)
    assert len(split_groups(found, 100, WIDTHS, rng)) == 6


@pytest.mark.parametrize("n_sites", [1, 4])
def test_splitting_finds_groups_that_are_apart(n_sites):
    rng = np.random.default_rng(0)
    centers = 20 * rng.normal(size=(8, sum(WIDTHS)))
    joint = centers[np.arange(400) % 8] + rng.normal(scale=0.1, size=(400, sum(WIDTHS)))
    checked = check_views(np.split(joint, [3], axis=1))
    rows = Rows(checked, prepare(checked, "none", "uniform", None))
    parts = [take(rows, np.arange(400)[s::n_sites]) for s in range(n_sites)]
    where = np.zeros((1, sum(WIDTHS)))
    random_state = np.random.RandomState(0)
    for _ in range(9):
        found = read_groups(sum(sum_groups(part, where, INCOMPLETE) for part in parts), len(where), WIDTHS, INCOMPLETE)
        where = split_groups(found, 32, WIDTHS, random_state)
    assert 20 <= len(found.sizes) <= 32
    moved = np.hstack(
        [r.to_input(p) for r, p in zip(rows.references, np.split(found.points, [3], axis=1), strict=True)]
    )
    nearest = np.linalg.norm(moved[:, None] - centers, axis=2)
    assert nearest.min(axis=1).max() < 1.0  # every group lies in one of the eight
    assert set(nearest.argmin(axis=1)) == set(range(8))
