"""Affinities of rows to anchors: shares by hand, blocks, missing views, and what must not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from embedding.graphs import graph_of, make_graph, make_rows, random_rows
from fedhk.data.views import check_views
from fedhk.embedding.affinity import nearest_shares


def test_shares_are_those_of_the_formula_by_hand():
    nearest, shares = nearest_shares(np.array([[4.0, 1.0, 2.0, 9.0]]), 2, 3.0)
    weights = np.exp([-3 * 1 / 4, -3 * 2 / 4])
    assert_array_equal(nearest, [[1, 2]])
    assert_allclose(shares, [weights / weights.sum()])


def test_the_joint_block_weighs_as_much_as_all_views_together():
    rows = random_rows()
    graph = graph_of(rows)
    affinities = graph.affinities(rows).toarray()
    first, second, joint = np.split(affinities, np.cumsum(graph.widths)[:-1], axis=1)
    assert_allclose(joint.sum(axis=1), 0.5)
    assert_allclose(first.sum(axis=1), 0.25)
    assert_allclose(second.sum(axis=1), 0.25)


@given(case=cases(min_rows=6), chunk=st.integers(1, 50))
@settings(max_examples=30, deadline=None)
def test_shares_of_a_row_sum_to_one_and_chunks_change_nothing(case, chunk):
    rows = case.rows
    graph = graph_of(rows, 8, neighbours=3)
    whole = graph.affinities(rows)
    parts = sp.vstack([part for _, part in graph.chunks(rows, chunk)], format="csr")
    assert whole.data.min(initial=0.0) >= 0
    sums = np.asarray(whole.sum(axis=1)).ravel()
    assert np.all((np.abs(sums - 1) < 1e-9) | (sums == 0))
    assert np.median(np.abs((whole - parts).toarray()).max(axis=1)) < 1e-9


def test_a_row_uses_the_blocks_it_has_in_the_same_proportions():
    views = [np.random.default_rng(0).normal(size=(60, width)) for width in (3, 2, 4)]
    views[1][:10] = np.nan
    views[2][5] = np.nan
    rows = make_rows(views)
    graph = graph_of(rows)
    blocks = np.split(graph.affinities(rows).toarray(), np.cumsum(graph.widths)[:-1], axis=1)
    sums = np.column_stack([block.sum(axis=1) for block in blocks])
    assert_allclose(sums[0], [0.2, 0.0, 0.2, 0.6])
    assert_allclose(sums[5], [0.25, 0.0, 0.0, 0.75])
    assert_allclose(sums[20], [1 / 6, 1 / 6, 1 / 6, 0.5])


def test_a_site_without_a_view_is_rows_without_it():
    views = [np.random.default_rng(0).normal(size=(40, width)) for width in (3, 2)]
    rows = make_rows(views)
    graph = graph_of(rows)
    absent = replace(rows, views=replace(rows.views, tables=(rows.views.tables[0], None)))
    missing = replace(rows, views=check_views([views[0], np.full((40, 2), np.nan)]))
    assert_allclose(graph.affinities(absent).toarray(), graph.affinities(missing).toarray(), atol=1e-12)


def test_anchors_that_coincide_in_a_view_are_one_there():
    rng = np.random.default_rng(0)
    rows = make_rows([rng.normal(size=(80, 3)), rng.integers(0, 2, (80, 1)).astype(float)])
    graph = make_graph((rng.normal(size=(12, 3)), np.repeat([[-1.0], [1.0]], 6, axis=0)))
    assert graph.widths == (12, 2, 12)
    block = graph.affinities(rows).toarray()[:, 12:14]
    assert_allclose(block, 0.25 * np.column_stack([rows.views.tables[1] == 0, rows.views.tables[1] == 1]))


def test_a_row_that_lacks_a_view_of_one_value_has_no_share_there():
    rows = make_rows([np.arange(12.0)[:, None], np.where(np.arange(12) < 3, np.nan, 1.0)[:, None]])
    graph = make_graph((np.array([[-1.0], [0.0], [1.0]]), np.zeros((3, 1))))
    assert graph.widths == (3, 1, 3)
    block = graph.affinities(rows).toarray()[:, 3]
    assert_allclose(block, np.where(np.arange(12) < 3, 0.0, 0.25))


@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e8])
def test_units_of_the_input_do_not_matter(scale):
    views = [np.random.default_rng(0).normal(size=(60, width)) for width in (3, 2)]
    first, second = (make_rows([factor * view for view in views]) for factor in (1.0, scale))
    assert_allclose(
        graph_of(first).affinities(first).toarray(), graph_of(second).affinities(second).toarray(), atol=1e-6
    )
