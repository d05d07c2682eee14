"""Anchors: rounded as they travel, all different, and refused where they are not of a site's rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from embedded_runs import SMALL, make_views, rows_of, site_with, start_diffusion
from embedding.graphs import make_graph
from fedhk.errors import DataError, MessageError
from fedhk.federation.codec import pack, unpack
from fedhk.federation.phases.anchors import Anchors, StandIns, anchors_wanted
from fedhk.federation.table import Table


def test_server_and_sites_have_the_same_anchors_after_the_way():
    views, _ = make_views()
    board = start_diffusion(views)
    anchors = board.get(Anchors)
    values, arrays = pack(anchors, Anchors)
    again = unpack(values, arrays, Anchors)
    assert_array_equal(np.hstack(again.graph.anchors), np.hstack(anchors.graph.anchors))
    assert set(arrays) == {"f2", "f8"}  # the anchors, and the two numbers of how rows are tied to them
    affinities = site_with(board, views).rows().views.tables[0]
    assert_array_equal(affinities.toarray(), again.graph.affinities(rows_of(board, views)).toarray())


def test_anchors_that_rounding_makes_equal_are_one():
    graph = make_graph((np.array([[1.0], [1.0 + 1e-6], [2.0]]), np.array([[0.5], [0.5], [0.5]])))
    assert Anchors.of(graph).graph.n_anchors == 2


def test_there_are_as_many_as_rows_can_bear():
    views, _ = make_views()
    board = start_diffusion(views)
    assert anchors_wanted(board, SMALL, 3) == 40
    assert anchors_wanted(board, replace(SMALL, n_anchors=300), 3) == 80  # a third of the rows
    assert anchors_wanted(board, SMALL, None) == 44  # four for each of eleven directions


def test_stand_ins_are_kept_as_they_are():
    views, _ = make_views()
    kept = start_diffusion(views).get(StandIns)
    values, arrays = pack(kept, StandIns)
    assert_array_equal(unpack(values, arrays, StandIns).affinities.toarray(), kept.affinities.toarray())
    assert_allclose(np.asarray(kept.affinities.sum(axis=1)).ravel(), 1.0)


def test_too_few_different_rows_for_the_clusters_is_an_error_with_both_numbers():
    with pytest.raises(DataError, match=r"n_clusters=9.*2 different anchors"):
        start_diffusion([np.repeat([[0.0], [1.0]], 20, axis=0)], 9)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tables: tables[:1], r"features of 2 views, \[4, 3\]"),
        (lambda tables: tables[::-1], r"features of 2 views, \[4, 3\]"),
        (lambda tables: (tables[0], Table.of(np.zeros((3, 3)), "half")), r"anchors have shape \(3, 3\)"),
        (lambda tables: (Table.of(np.full(tables[0].values.shape, np.nan), "half"), tables[1]), "NaN"),
    ],
)
def test_a_site_refuses_anchors_that_are_not_of_its_views(change, reason):
    views, _ = make_views()
    board = start_diffusion(views)
    anchors = board.get(Anchors)
    with pytest.raises(MessageError, match=reason):
        site_with(board.put(replace(anchors, tables=change(anchors.tables))), views).rows()
