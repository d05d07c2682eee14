"""A start from two sums: the grid counts every row once, second moments are those of the rows, lengths are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedhk.data.scaling import Reference
from fedhk.data.views import check_views
from fedhk.model.rows import Rows
from fedhk.starts.cells import MOST_FEATURES, Grid, leading_grid, read_second_moments, second_moments, sketch


def in_model_units(*tables):
    views = check_views(list(tables))
    references = [
        Reference(False, np.zeros(w), np.ones(w), heat_coef="uniform", low=np.zeros(w), span=np.ones(w), share=1.0)
        for w in views.widths
    ]
    return Rows(views, tuple(references))


seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 6), st.integers(1, 40))
@settings(max_examples=40)
def test_second_moments_read_back_are_mean_and_covariance(seed, width, n_rows):
    joint = np.random.default_rng(seed).normal(size=(n_rows, width)) + 1.0
    vector = second_moments(in_model_units(joint), np.eye(width), np.inf)
    rows, mean, covariance = read_second_moments(vector, width, np.inf)
    assert rows == n_rows
    assert_allclose(mean, joint.mean(axis=0), atol=1e-12)
    assert_allclose(covariance, np.atleast_2d(np.cov(joint.T, bias=True)), atol=1e-10)


@given(seeds, st.integers(1, 5), st.floats(0.1, 3.0))
@settings(max_examples=40)
def test_one_row_adds_a_vector_of_known_length(seed, width, radius):
    """The root of r^4 + r^2 |y|^2 + |y|^4, with y the row cut to the length r."""
    row = np.random.default_rng(seed).normal(size=(1, width)) * 3
    length = min(np.linalg.norm(row), radius)
    vector = second_moments(in_model_units(row), np.eye(width), radius)
    assert np.linalg.norm(vector) == pytest.approx(np.sqrt(radius**4 + (radius * length) ** 2 + length**4))


def test_sums_over_sites_are_sums_over_all_rows_and_missing_cells_are_at_the_mean():
    joint = np.arange(12.0).reshape(4, 3)
    joint[1, 2] = np.nan
    parts = [second_moments(in_model_units(part), np.eye(3), 5.0) for part in (joint[:1], joint[1:])]
    whole = second_moments(in_model_units(np.nan_to_num(joint)), np.eye(3), 5.0)
    assert_allclose(parts[0] + parts[1], whole)


def test_no_rows_add_nothing():
    views = check_views([np.zeros((0, 2))], min_rows=0)
    rows = Rows(views, in_model_units(np.zeros((1, 2))).references)
    assert not second_moments(rows, np.eye(2), 1.0).any()
    assert not Grid(np.zeros(2), np.eye(2), np.ones(2), 4).counts(rows).any()


@given(seeds, st.integers(1, 3), st.integers(2, 8))
@settings(max_examples=20)
def test_every_row_is_in_one_cell_however_far_it_is(seed, n_axes, bins):
    rng = np.random.default_rng(seed)
    joint = rng.normal(size=(12, 4)) * 10.0 ** rng.choice([0, 3, 30, 100], size=(12, 1))
    grid = Grid(rng.normal(size=4), rng.normal(size=(4, n_axes)), rng.uniform(0.1, 2, n_axes), bins)
    rows = in_model_units(joint[:, :1], joint[:, 1:])
    counts = grid.counts(rows)
    assert counts.sum() == 12
    assert counts.shape == (bins**n_axes,)
    alone = sum(grid.counts(in_model_units(row[None, :1], row[None, 1:])) for row in joint)
    assert_allclose(alone, counts)


def test_cells_by_hand():
    """One axis from -2.5 to 2.5 standard deviations of 2 in five cells: each is 2 wide."""
    grid = Grid(np.array([10.0]), np.array([[1.0]]), np.array([2.0]), 5)
    counts = grid.counts(in_model_units(np.array([[-1e100], [5.1], [9.5], [10.9], [11.1], [1e100]])))
    assert counts.tolist() == [2, 0, 2, 1, 1]
    candidates = grid.candidates(counts, 0.0, 3)
    assert_allclose(candidates.points.ravel(), [6, 10, 12, 14])
    assert candidates.sizes.tolist() == [2, 2, 1, 1]
    assert candidates.spreads.shape == (4, 3)


def test_cells_that_noise_may_have_filled_are_left_out_and_where_all_are_the_grid_itself_is_the_start():
    grid = Grid(np.zeros(1), np.ones((1, 1)), np.ones(1), 4)
    assert_allclose(grid.candidates(np.array([0.5, 100.0, -3.0, 1.0]), 2.0, 1).points.ravel(), [-0.625])
    assert len(grid.candidates(np.array([-1.0, 0.0, -2.0, -1.0]), 1.0, 1).sizes) == 4


@pytest.mark.parametrize(("n_clusters", "axes", "bins"), [(1, 1, 32), (2, 1, 32), (3, 2, 22), (4, 3, 8), (20, 3, 8)])
def test_the_grid_follows_the_leading_directions(n_clusters, axes, bins):
    covariance = np.diag([1.0, 9.0, 4.0, 0.25])
    grid = leading_grid(np.arange(4.0), covariance, np.eye(4), n_clusters)
    assert grid.axes.shape == (4, axes)
    assert grid.bins == bins
    assert grid.n_cells <= 512
    assert_allclose(grid.deviations, [3.0, 2.0, 1.0][:axes])
    assert_allclose(np.abs(grid.axes[[1, 2, 0][:axes], range(axes)]), 1.0)


def test_a_covariance_that_noise_made_negative_has_a_grid_all_the_same():
    grid = leading_grid(np.zeros(2), -np.eye(2), np.eye(2), 3)
    assert np.all(grid.deviations > 0)


def test_wide_rows_are_seen_in_random_orthonormal_directions():
    assert_allclose(sketch(MOST_FEATURES, 0), np.eye(MOST_FEATURES))
    directions = sketch(MOST_FEATURES + 50, 3)
    assert directions.shape == (MOST_FEATURES + 50, MOST_FEATURES)
    assert_allclose(directions.T @ directions, np.eye(MOST_FEATURES), atol=1e-12)
    assert_allclose(directions, sketch(MOST_FEATURES + 50, 3))
    assert not np.allclose(directions, sketch(MOST_FEATURES + 50, 4))
