"""An embedding follows its clusters: what moves as one is embedded as before, and later clusters have a direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.scaling import Reference
from fedhk.data.views import check_views
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.carried import Origin
from fedhk.embedding.diffusion import fit_diffusion
from fedhk.embedding.map import DiffusionMap
from fedhk.embedding.options import Diffusion
from fedhk.model.rows import Rows


def in_views(points):
    """Rows of two views, in model units as they are."""
    views = check_views([points[:, :2], points[:, 2:]])
    units = [(np.zeros(width), np.ones(width)) for width in (2, 1)]
    return Rows(views, tuple(Reference(False, zero, one, "uniform", zero, one, 1.0) for zero, one in units))


@pytest.fixture(scope="module")
def made():
    """Points of three clusters in two views, their clusters, and the embedding."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 60)
    points = np.array([[0.0, 0, 0], [6, 0, 3], [0, 6, -3]])[labels] + rng.normal(size=(180, 3))
    found, _ = fit_diffusion(in_views(points), 3, Diffusion(n_anchors=30), 0)
    embedded = found.embed(in_views(points))
    means = [np.stack([table[labels == k].mean(axis=0) for k in range(3)]) for table in (points, embedded)]
    return points, labels, Origin(found, means[1], means[0])


def nearest(embedded, centers):
    return np.square(embedded[:, None] - centers).sum(axis=2).argmin(axis=1)


def test_clusters_that_stay_where_they_were_leave_the_embedding_as_it_is(made):
    _, _, origin = made
    found, centers = origin.carry(origin.means, (), ())
    assert found is origin.diffusion
    assert_array_equal(centers, origin.centers)


def test_every_anchor_belongs_to_the_cluster_that_it_lies_in(made):
    _, _, origin = made
    assert_array_equal(origin.owners, nearest(np.hstack(origin.diffusion.graph.anchors), origin.means))


def test_rows_that_move_with_all_clusters_are_embedded_as_before(made):
    points, _, origin = made
    move = np.array([5.0, -7, 9])
    moved = origin.carry(origin.means + move, (), ())[0]
    assert_allclose(moved.embed(in_views(points + move)), origin.diffusion.embed(in_views(points)), atol=1e-6)


def test_rows_of_clusters_that_move_apart_keep_their_labels(made):
    points, labels, origin = made
    moves = np.array([[0.0, 0, 0], [40, 0, 0], [0, 40, 0]])
    found, centers = origin.carry(origin.means + moves, (), ())
    assert_array_equal(nearest(found.embed(in_views(points + moves[labels])), centers), labels)


def test_a_later_cluster_has_copies_of_anchors_and_a_direction_of_its_own(made):
    points, labels, origin = made
    found, centers = origin.carry(np.vstack([origin.means, origin.means[1] + 50.0]), (1,), ())
    assert centers.shape == (4, origin.centers.shape[1] + 1)
    assert_allclose(found.embed(in_views(points[labels == 1] + 50.0))[:, -1], 1.0)
    before = nearest(origin.diffusion.embed(in_views(points)), origin.centers)
    assert_array_equal(nearest(found.embed(in_views(points)), centers), before)


def test_a_cluster_that_is_gone_has_no_anchors(made):
    _, _, origin = made
    found, _ = origin.carry(origin.means, (), (2,))
    assert found.graph.n_anchors == np.sum(origin.owners != 2)
    assert found.projection.shape[0] == found.graph.n_columns
    assert origin.carry(origin.means, (), (0, 1, 2))[0] is origin.diffusion


def test_anchors_that_are_one_in_a_view_have_one_column_there_after_they_moved():
    points = (np.array([[0.0], [0.0], [9.0], [9.0]]), np.array([[0.0], [1.0], [2.0], [3.0]]))
    graph = AnchorGraph(points, 2, 3.0, 0.5)
    assert graph.widths == (2, 4, 4)
    projection = np.eye(2)[[0, 1, 0, 0, 1, 1, 0, 0, 1, 1]]
    origin = Origin(DiffusionMap(graph, projection, np.ones(2)), np.eye(2), np.array([[0.0, 0.5], [9.0, 2.5]]))
    found, _ = origin.carry(origin.means + np.array([[1.0, 0.0], [0.0, 0.0]]), (), ())
    assert found.graph.widths == graph.widths
    assert_array_equal(found.projection, projection)


def test_roots_are_found_over_generations():
    nothing: Any = None
    assert_array_equal(Origin(nothing, np.eye(2), np.zeros((2, 1))).roots((1, 2, 0)), [0, 1, 1, 1, 0])
