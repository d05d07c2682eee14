"""Plain k-means on small tables: groups, directions in which good centres lie, distances in fewer coordinates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.cluster import kmeans_plusplus

from fedhk.data.views import check_views
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows, joint_rows, split_joint
from fedhk.starts import kmeans
from fedhk.starts.kmeans import (
    Lots,
    compress,
    group_means,
    group_sums,
    lloyd,
    lloyd_each,
    lowest_inertia,
    plus_plus,
    plus_plus_each,
    project_on_leading,
)


def rows_of(views, heat_coef="uniform"):
    checked = check_views(views)
    return Rows(checked, prepare(checked, "standard", heat_coef, None))


@pytest.mark.parametrize("shape", [(40, 6), (12, 50)])
def test_leading_directions_are_the_weighted_principal_components(shape):
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=shape) * np.arange(1, shape[1] + 1), rng.uniform(0.5, 2, shape[0])
    found = project_on_leading(points, weight, 3)
    centred = points - np.average(points, axis=0, weights=weight)
    _, _, axes = np.linalg.svd(np.sqrt(weight)[:, None] * centred, full_matrices=False)
    expected = centred @ axes[:3].T
    np.testing.assert_allclose(np.abs(found[:, ::-1]), np.abs(expected), atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("n_points", "n_clusters"), [(5, 1), (30, 4), (300, 20)])
def test_seeds_are_those_of_scikit_learn(dtype, n_points, n_clusters):
    rng = np.random.default_rng(n_points)
    points, weight = rng.normal(size=(n_points, 3)).astype(dtype), rng.uniform(0.5, 2, n_points)
    state = np.random.RandomState(0)
    found = [plus_plus(points, weight, n_clusters, state) for _ in range(3)]
    state = np.random.RandomState(0)
    for seeds in found:
        expected = kmeans_plusplus(points, n_clusters, sample_weight=weight, random_state=state)[0]
        np.testing.assert_array_equal(seeds, expected)


@pytest.mark.parametrize("cells", [1, 2**19])  # one after the other, and all at once
def test_seeds_that_are_drawn_together_are_what_each_is_alone(cells, monkeypatch):
    monkeypatch.setattr(kmeans, "DRAW_CELLS", cells)
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=(90, 4)), rng.uniform(0.5, 2, 90)
    state = np.random.RandomState(0)
    together = plus_plus_each(points, weight, Lots.draw(weight, 6, 5, state))
    state = np.random.RandomState(0)
    np.testing.assert_array_equal(together, [plus_plus(points, weight, 6, state) for _ in range(5)])
    assert plus_plus_each(points, weight, []) == []


@pytest.mark.parametrize("width", [2, 200])  # both ways in which groups are added up
def test_runs_from_several_seeds_are_what_each_is_alone(width):
    rng = np.random.default_rng(width)
    points, weight = rng.normal(size=(80, width)), rng.uniform(0.5, 2, 80)
    seeds = [points[rng.choice(80, 5, replace=False)] for _ in range(4)]
    for (centers, labels, inertia), start in zip(lloyd_each(points, weight, seeds, 9), seeds, strict=True):
        alone = lloyd(points, weight, start, 9)
        assert_allclose(centers, alone[0], atol=1e-12)
        np.testing.assert_array_equal(labels, alone[1])
        assert inertia == pytest.approx(alone[2])
    assert lloyd_each(points, weight, [], 9) == []


@given(seed=st.integers(0, 2**16), n_points=st.integers(1, 30), factor=st.sampled_from([1e-60, 1.0, 1e60]))
@settings(max_examples=60)
def test_few_points_go_the_way_of_many(seed, n_points, factor):
    """Without sparse matrices; with points and centres that coincide, centres without points, weights of any size."""
    rng = np.random.default_rng(seed)
    points, weight = rng.integers(0, 3, size=(n_points, 2)).astype(float), rng.integers(1, 4, n_points).astype(float)
    seeds = [rng.integers(0, 3, size=(4, 2)).astype(float) for _ in range(3)]
    few = lloyd_each(points, factor * weight, seeds, 1)  # from the second pass on, rounding decides between two centres
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kmeans, "DRAW_CELLS", 0)
        many = lloyd_each(points, weight, seeds, 1)
    for (centers, _, inertia), (expected, _, least) in zip(few, many, strict=True):
        assert_allclose(centers, expected, atol=1e-9)
        assert inertia / factor == pytest.approx(least, abs=1e-9)


def test_passes_end_at_means_of_the_nearest_points():
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=(60, 2)) + 4 * rng.integers(3, size=60)[:, None], rng.uniform(0.5, 2, 60)
    centers, labels, inertia = lloyd(points, weight, points[:3], 100)
    apart = np.square(points[:, None] - centers).sum(axis=2)
    np.testing.assert_array_equal(labels, apart.argmin(axis=1))
    assert_allclose(centers, group_means(points, weight, labels, 3), atol=1e-12)
    assert inertia == pytest.approx(weight @ apart.min(axis=1))


@pytest.mark.parametrize("width", [1, 400])
def test_a_point_may_be_in_several_groups(width):
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=(20, width)), rng.uniform(0.5, 2, 20)
    labels = np.column_stack([rng.integers(3, size=20), 3 + rng.integers(2, size=20)])
    sums, sizes = group_sums(points, weight, labels, 6)
    for group in range(6):
        inside = (labels == group).any(axis=1)
        assert_allclose(sums[group], weight[inside] @ points[inside], atol=1e-12)
        assert sizes[group] == pytest.approx(weight[inside].sum())


def test_a_group_without_points_has_the_mean_of_all():
    points, weight = np.array([[0.0], [2.0], [5.0]]), np.array([1.0, 1.0, 2.0])
    means = group_means(points, weight, np.array([0, 0, 2]), 3)
    np.testing.assert_allclose(means[:, 0], [1.0, 3.0, 5.0])


def distances(part):
    return ((part[:, None] - part[None]) ** 2).sum(axis=2)


@given(st.integers(0, 10**6), st.integers(2, 15), st.integers(1, 40))
@settings(max_examples=50)
def test_compression_keeps_distances_and_expands_means_exactly(seed, n_rows, width):
    rng = np.random.default_rng(seed)
    rows = rows_of([rng.normal(size=(n_rows, width)), rng.normal(size=(n_rows, 3))])
    parts = split_joint(joint_rows(rows), rows.widths)
    small, axes = compress(rows, parts)
    compressed = split_joint(joint_rows(small), small.widths)
    assert all(w <= max(n_rows, 3) for w in small.widths)
    share = rng.dirichlet(np.ones(n_rows), size=2)
    for view, (part, reduced) in enumerate(zip(parts, compressed, strict=True)):
        assert_allclose(distances(reduced), distances(part), atol=1e-9)
        same = np.eye(reduced.shape[1])
        mean, shares, centred = axes.get(view, (0.0, same, same))
        assert_allclose(mean + share @ reduced @ shares @ centred, share @ part, atol=1e-9)


def test_views_with_missing_cells_or_coefficients_are_not_compressed():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(5, 30))
    holes = wide.copy()
    holes[0, 0] = np.nan
    for rows in (rows_of([holes]), rows_of([wide], "absdev")):
        small, _ = compress(rows, split_joint(joint_rows(rows), rows.widths))
        assert small.widths == (30,)


def test_no_points_have_sums_of_zero():
    sums, sizes = group_sums(np.zeros((0, 2)), np.zeros(0), np.zeros(0, int), 3)
    assert_allclose(sums, np.zeros((3, 2)))
    assert_allclose(sizes, np.zeros(3))


@pytest.mark.parametrize("cells", [kmeans.DRAW_CELLS, 0])
@pytest.mark.parametrize("passes", [0, 1, 10, 100])
def test_several_tables_at_once_reach_what_each_reaches_alone(passes, cells, monkeypatch):
    monkeypatch.setattr(kmeans, "DRAW_CELLS", cells)
    rng = np.random.default_rng(0)
    tables, weight = rng.normal(size=(3, 60, 4)), rng.random(60)
    seeds = np.array([[table[rng.choice(60, 5, replace=False)] for _ in range(2)] for table in tables])
    found = lowest_inertia(tables, weight, seeds, passes)
    alone = [
        min(lloyd(table, weight, own, passes)[2] for own in runs) for table, runs in zip(tables, seeds, strict=True)
    ]
    assert_allclose(found, alone, rtol=1e-12)


def test_in_several_tables_a_centre_without_points_stays():
    tables, seeds = np.array([[[0.0], [1.0]], [[0.0], [3.0]]]), np.array([[[[0.0], [50.0]]]] * 2)
    assert_allclose(lowest_inertia(tables, np.ones(2), seeds, 5), [0.5, 4.5])
