"""Anchors: how many, of which length, from which candidates, and rows that stand in for those of the sites."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from embedding.graphs import make_rows
from fedhk.embedding.anchors import anchor_count, complete_candidates, draw_stand_ins, make_anchors
from fedhk.embedding.options import Diffusion


@pytest.mark.parametrize(
    ("clusters", "rows", "anchors"), [(4, 10_000, 300), (100, 10_000, 400), (10, 90, 30), (10, 12, 20), (1, 2, 2)]
)
def test_anchors_are_at_most_a_third_of_the_rows_and_two_for_a_cluster(clusters, rows, anchors):
    assert anchor_count(clusters, rows, Diffusion().n_anchors) == anchors


def test_anchors_of_rows_of_length_one_have_length_one():
    rng = np.random.default_rng(0)
    rows = make_rows([rng.random((80, 12)), rng.random((80, 7))], "l2")
    anchors = make_anchors(rows, 10, rows.references, np.random.RandomState(0))
    for reference, centers in zip(rows.references, anchors, strict=True):
        assert_allclose(np.linalg.norm(reference.to_input(centers), axis=1), 1.0)


def test_duplicated_rows_give_no_more_anchors_than_there_are_different_rows():
    rows = make_rows([np.repeat(np.random.default_rng(0).normal(size=(5, 3)), 20, axis=0)])
    assert len(make_anchors(rows, 30, rows.references, np.random.RandomState(0))[0]) == 5


def test_a_candidate_without_a_view_has_that_of_its_neighbours():
    first = np.array([[0.0], [0.1], [5.0], [5.1], [0.05]])
    second = np.array([[1.0], [1.0], [9.0], [9.0], [np.nan]])
    rows = make_rows([first, second], "none")
    completed = complete_candidates(replace(rows, references=rows.references))
    given = completed.views.tables[1]
    assert not np.isnan(given).any()
    # the three nearest are two of its own group and one of the other
    assert_allclose(given[4], (2 * given[0] + given[2]) / 3)
    assert_allclose(given[:4], rows.references[1].to_model(second[:4]))


def test_rows_that_stand_in_are_as_far_from_candidates_as_the_spreads_say():
    rng = np.random.default_rng(0)
    rows = make_rows([rng.normal(size=(30, 4)), rng.normal(size=(30, 3))])
    spread = np.column_stack([np.full(30, 0.2), np.full(30, 0.5)])
    weighted = complete_candidates(replace(rows, sample_weight=np.eye(30)[3] + 1e-12, spread=spread))
    (stand_ins,) = draw_stand_ins(weighted, np.random.RandomState(0), 200)
    parts = list(draw_stand_ins(weighted, np.random.RandomState(0), 200, part_bytes=56 * 30))
    assert [part.n_rows for part in parts] == [30] * 6 + [20]
    for view, expected in enumerate((0.2, 0.5)):
        table = stand_ins.views.tables[view]
        assert_allclose(np.square(table - weighted.views.tables[view][3]).sum(axis=1), expected)
        assert_array_equal(table, np.vstack([part.views.tables[view] for part in parts]))
