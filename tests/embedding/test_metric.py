"""Metric: directions in which rows of a cluster spread count less, by sums that add over rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from embedding.graphs import graph_of, make_graph, make_rows, random_rows
from fedhk._symmetric import upper_half
from fedhk.embedding.metric import (
    MOST_COLUMNS,
    NO_METRIC,
    FirstClusters,
    Metric,
    find_first_clusters,
    keep_units,
    label_points,
)
from fedhk.model.rows import joint_rows, split_joint, take


def clustered_rows(n=400, seed=0):
    """Two clusters along the second feature of the first view; the first feature spreads five times as far in them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n)
    first = np.column_stack([5.0 * rng.normal(size=n), 6.0 * labels + rng.normal(size=n)])
    turn = np.array([[0.8, 0.6], [-0.6, 0.8]])
    return make_rows([first @ turn, rng.normal(size=(n, 3))], "none"), labels


def metric_of(rows, labels, changed=(True, True)):
    clusters = find_first_clusters(rows, labels, changed, seed=0)
    return clusters.fit_metric(clusters.sum_rows(rows))


def within(points, labels):
    means = np.array([points[labels == k].mean(axis=0) for k in np.unique(labels)])
    apart = points - means[labels]
    return apart.T @ apart / len(points)


def test_what_spreads_within_clusters_counts_less():
    rows, labels = clustered_rows()
    plain = split_joint(joint_rows(rows), rows.widths)[0]
    stretched = metric_of(rows, labels).stretch(split_joint(joint_rows(rows), rows.widths))[0]
    ratios = [np.linalg.eigvalsh(within(points, labels)) for points in (plain, stretched)]
    before, after = (values[1] / values[0] for values in ratios)
    assert after < before / 2


def test_factors_are_the_root_of_the_inverse_covariance_half_shrunk():
    rows, labels = clustered_rows()
    clusters = find_first_clusters(rows, labels, (True, False), seed=0)
    found = clusters.fit_metric(clusters.sum_rows(rows)).matrices[0]
    points = split_joint(joint_rows(rows), rows.widths)[0]
    nearest = clusters.labels[np.argmin(((joint_rows(rows)[:, None] - clusters.points) ** 2).sum(axis=2), axis=1)]
    values, directions = np.linalg.eigh(within(points, nearest))
    wanted = (directions / np.sqrt(0.5 * values / values.mean() + 0.5)) @ directions.T
    unit = np.sqrt(np.square(points).sum() / np.square(points @ wanted).sum())
    assert_allclose(found, unit * wanted, rtol=1e-9)


def test_the_spread_of_all_rows_of_a_view_stays():
    rows, labels = clustered_rows()
    points = split_joint(joint_rows(rows), rows.widths)
    for before, after in zip(points, metric_of(rows, labels).stretch(points), strict=True):
        assert np.square(after).sum() == pytest.approx(np.square(before).sum())


def test_sums_of_parts_of_the_rows_add():
    rows, labels = clustered_rows()
    clusters = find_first_clusters(rows, labels, (True, True), seed=0)
    parts = [clusters.sum_rows(take(rows, slice(start, None, 3))) for start in range(3)]
    assert_allclose(np.sum(parts, axis=0), clusters.sum_rows(rows), rtol=1e-9, atol=1e-9)
    assert len(parts[0]) == sum(clusters.sizes)


def test_a_row_without_a_view_says_nothing_of_it():
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(60, 2)), rng.normal(size=(60, 3))]
    views[1][40:] = np.nan
    rows, labels = make_rows(views), rng.integers(2, size=60)
    clusters = find_first_clusters(take(rows, slice(40)), labels[:40], (False, True), seed=0)
    assert_allclose(clusters.sum_rows(rows), clusters.sum_rows(take(rows, slice(40))))


def test_undo_takes_points_back():
    rows, labels = clustered_rows()
    points, metric = split_joint(joint_rows(rows), rows.widths), metric_of(rows, labels)
    for before, after in zip(points, metric.undo(metric.stretch(points)), strict=True):
        assert_allclose(after, before, atol=1e-9)


def test_views_that_are_not_changed_stay():
    rows, labels = clustered_rows()
    metric = metric_of(rows, labels, (True, False))
    assert metric.changed == (True, False)
    points = split_joint(joint_rows(rows), rows.widths)
    assert_array_equal(metric.stretch(points)[1], points[1])
    assert not metric.only([False, True])
    assert not NO_METRIC


def test_a_view_of_constants_stays():
    rows = make_rows([np.ones((30, 2)), np.random.default_rng(0).normal(size=(30, 2))])
    assert metric_of(rows, np.arange(30) % 2).changed == (False, True)


def test_affinities_are_those_of_stretched_rows_and_anchors():
    rows, labels = clustered_rows(120)
    graph, metric = graph_of(rows), metric_of(rows, labels)
    points = [metric.stretch(split_joint(joint_rows(rows), rows.widths)), metric.stretch(graph.anchors)]
    wanted = make_graph(points[1]).affinities(make_rows(points[0], "none"))
    found = replace(graph, metric=metric).affinities(rows)
    # "none" divides each view by one number, which ties do not see
    assert_allclose(found.toarray()[:, : -graph.n_anchors], wanted.toarray()[:, : -graph.n_anchors], atol=1e-9)


def test_how_far_rows_are_from_anchors_does_not_depend_on_the_metric():
    rows, labels = clustered_rows(120)
    graph = graph_of(rows)
    stretched = replace(graph, metric=metric_of(rows, labels))
    assert_array_equal(stretched.nearest_squares(rows), graph.nearest_squares(rows))
    assert_array_equal(stretched.nearest(rows), graph.nearest(rows))


def test_a_projected_metric_is_the_metric_in_few_directions():
    rows, labels = clustered_rows()
    metric = metric_of(rows, labels)
    same = metric.project([np.eye(2), np.eye(3)])
    assert_allclose(same.matrices[0], metric.matrices[0], atol=1e-12)
    assert metric.project([np.eye(2), np.eye(3)[:, :1]]).matrices[1] == pytest.approx(metric.matrices[1][0, 0])
    assert NO_METRIC.project([np.eye(2)]) is NO_METRIC


def test_a_view_whose_neighbours_then_agree_less_with_others_keeps_its_units():
    rng = np.random.default_rng(0)
    place = rng.normal(size=(200, 2))
    same = place + 0.05 * rng.normal(size=(200, 2))
    rows = make_rows([place, same], "none")
    flat = upper_half(np.diag([1.0, 0.01]))  # one of the two directions in which the views agree is nearly gone
    mild = upper_half(np.diag([1.0, 0.999]))
    assert keep_units(Metric((flat, flat[:0])), rows).changed == (False, False)
    assert keep_units(Metric((mild, mild[:0])), rows).changed == (True, False)


def test_one_view_alone_has_no_witness_and_is_stretched():
    rows = make_rows([np.random.default_rng(0).normal(size=(50, 2))])
    metric = Metric((upper_half(np.diag([1.0, 0.5])),))
    assert keep_units(metric, rows).changed == (True,)


def test_points_get_the_cluster_of_the_rows_around_them():
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    rows = np.repeat(centers, 30, axis=0) + rng.normal(size=(90, 2))
    labels = label_points(centers, rows, 3, seed=0)
    assert len(set(labels.tolist())) == 3
    assert_array_equal(label_points(centers, rows, 3, seed=0), labels)


@pytest.mark.parametrize(
    ("halves", "message"),
    [
        ((np.ones(2), np.ones(6)), "must have the features"),
        ((np.ones(3),), "must have the features"),
        ((np.array([1.0, np.nan, 1.0]), np.zeros(0)), "finite"),
        ((np.array([1.0, 1.0, 1.0]), np.zeros(0)), "neither take away"),
        ((np.array([1.0, 0.0, 1e9]), np.zeros(0)), "neither take away"),
    ],
)
def test_a_metric_that_rows_cannot_have_is_refused(halves, message):
    with pytest.raises(ValueError, match=message):
        Metric(halves).check([2, 3])


def test_a_metric_that_was_found_is_accepted():
    rows, labels = clustered_rows()
    metric_of(rows, labels).check(rows.widths)
    NO_METRIC.check(rows.widths)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": np.ones((2, 4))}, "must have the features"),
        ({"points": np.full((2, 5), np.nan)}, "not finite"),
        ({"labels": np.array([0, 7])}, "numbered from 0"),
        ({"labels": np.array([-1, 0])}, "numbered from 0"),
        ({"changed": (True,)}, "must have the features"),
    ],
)
def test_clusters_that_rows_cannot_have_are_refused(changes, message):
    clusters = FirstClusters(np.ones((2, 5)), np.array([0, 1]), (2, 3), (True, True))
    clusters.check([2, 3])
    with pytest.raises(ValueError, match=message):
        replace(clusters, **changes).check([2, 3])


def test_products_of_very_wide_views_are_refused():
    width = MOST_COLUMNS + 1
    clusters = FirstClusters(np.ones((1, width)), np.array([0]), (width,), (True,))
    with pytest.raises(ValueError, match="more than"):
        clusters.check([width])
    replace(clusters, changed=(False,)).check([width])


def test_rows_of_noise_are_hardly_changed():
    rows = random_rows(2000)
    labels = np.random.default_rng(1).integers(3, size=2000)
    for matrix in metric_of(rows, labels).matrices:
        assert_allclose(matrix, np.eye(len(matrix)), atol=0.1)
