"""The mixture: found from sums alone, the same for any split; drawn points lie where rows do and are none of them."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from embedding.graphs import make_rows, random_rows
from fedhk.embedding.mixture import (
    N_DIRECTIONS,
    MixtureSearch,
    component_count,
    fit_mixture,
    leading_directions,
    sketch_size,
    sum_groups,
    sum_products,
)
from fedhk.model.rows import joint_rows, take


def clustered_rows(n=300, widths=(6, 4), apart=6.0, seed=0, scaling="standard"):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    views = [apart * rng.normal(size=(3, width))[labels] + rng.normal(size=(n, width)) for width in widths]
    return make_rows(views, scaling), labels


@pytest.mark.parametrize(
    ("clusters", "rows", "components"), [(4, 10_000, 150), (4, 400, 50), (40, 400, 120), (9, 8, 4)]
)
def test_components_are_three_for_a_cluster_or_one_for_eight_rows(clusters, rows, components):
    assert component_count(clusters, rows) == components


def test_drawn_points_have_the_mean_and_the_covariance_of_the_rows():
    rows, _ = clustered_rows(2000)
    joint = joint_rows(rows)
    drawn = np.hstack(fit_mixture(rows, 3, 0).take(20_000, 1))
    assert_allclose(drawn.mean(axis=0), joint.mean(axis=0), atol=0.02)
    assert_allclose(np.cov(drawn.T), np.cov(joint.T), atol=0.02)


def test_drawn_points_are_near_clusters_and_are_no_rows():
    rows, labels = clustered_rows()
    joint = joint_rows(rows)
    centers = np.stack([joint[labels == k].mean(axis=0) for k in range(3)])
    within = np.square(joint - centers[labels]).sum(axis=1).max()
    points = np.hstack(fit_mixture(rows, 3, 0).take(200, 1))
    assert np.mean(np.square(points[:, None] - centers).sum(axis=2).min(axis=1) < 2 * within) > 0.95
    assert np.square(points[:, None] - joint).sum(axis=2).min() > 0


def test_points_depend_on_the_seed_alone_and_have_length_one_where_rows_have():
    rng = np.random.default_rng(0)
    rows = make_rows([rng.random((80, 12)), rng.random((80, 7))], "l2")
    mixture = fit_mixture(rows, 3, 0)
    first, again, other = (mixture.take(50, seed) for seed in (1, 1, 2))
    assert_array_equal(np.hstack(first), np.hstack(again))
    assert np.abs(np.hstack(first) - np.hstack(other)).max() > 0.01
    for reference, points in zip(rows.references, first, strict=True):
        assert_allclose(np.linalg.norm(reference.to_input(points), axis=1), 1.0)


def test_rows_that_are_few_points_give_few_anchors():
    rows = make_rows([np.repeat([[0.0, 1.0], [2.0, 5.0]], 20, axis=0)])
    assert 2 <= len(fit_mixture(rows, 2, 0).take(300, 0)[0]) <= 300
    wide = make_rows([np.repeat(np.random.default_rng(0).normal(size=(5, 60)), 30, axis=0)])
    assert len(fit_mixture(wide, 5, 0).means) == 5  # groups of equal rows are not split for ever


@pytest.mark.parametrize("missing", [False, True])
def test_any_split_gives_the_same_sums(missing):
    rows, _ = clustered_rows(widths=(40, 4))
    if missing:
        tables = [table.copy() for table in rows.views.tables]
        tables[1][:40] = np.nan
        rows = make_rows(tables)
    parts = [take(rows, np.arange(start, 300, 4)) for start in range(4)]
    assert_allclose(reduce(add, [sum_products(part, 5) for part in parts]), sum_products(rows, 5), atol=1e-8)
    directions = leading_directions(sum_products(rows, 5))
    points = np.random.default_rng(0).normal(size=(7, directions.shape[1]))
    for scatter in (False, True):
        whole = sum_groups(rows, directions, points, scatter=scatter)
        total = reduce(add, [sum_groups(part, directions, points, scatter=scatter) for part in parts])
        assert_allclose(total, whole, atol=1e-8)


@pytest.mark.parametrize("least", [2, 5])
@pytest.mark.parametrize("n", [1, 4, 7, 30])
def test_no_sum_is_of_fewer_rows_than_allowed(n, least):
    rows = take(clustered_rows()[0], np.arange(n))
    joint = joint_rows(rows)
    points = np.vstack([joint, joint + 1.0])  # every row has a point of its own
    sizes, squares, sums = np.split(
        sum_groups(rows, np.eye(10), points, scatter=False, least_rows=least), [2 * n, 4 * n]
    )
    assert np.all((sizes == 0) | (sizes >= least))
    assert sizes.sum() == (n if n >= least else 0)
    if n >= least:
        assert_allclose(sums.reshape(-1, 10).sum(axis=0), joint.sum(axis=0), atol=1e-9)
        assert squares.sum() == pytest.approx(np.square(joint).sum())


def test_the_directions_hold_what_few_directions_can():
    rng = np.random.default_rng(0)
    rows = make_rows([rng.normal(size=(200, 12)) @ rng.normal(size=(12, 90))])
    assert sketch_size(90) == N_DIRECTIONS + 10
    directions = leading_directions(sum_products(rows, 0))
    joint = joint_rows(rows)
    assert_allclose(directions.T @ directions, np.eye(directions.shape[1]), atol=1e-9)
    assert_allclose(joint @ directions @ directions.T, joint, atol=1e-6)
    assert sketch_size(N_DIRECTIONS) == 0  # features are the directions


def test_a_search_ends_with_groups_of_all_rows():
    rows = random_rows(200)
    search, sizes = MixtureSearch.begin(5), []
    while not search.is_done:
        total = sum_groups(rows, np.eye(5), search.points, scatter=search.wants_scatter)
        assert len(total) == search.size
        search = search.advance(total, 4, 0)
        sizes.append(len(search.points))
    assert search.sizes.sum() == pytest.approx(200)
    assert len(sizes) < 10
    assert 20 <= sizes[-1] <= component_count(4, 200) == 25
