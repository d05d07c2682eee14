"""Eigenvectors from sums over rows: products add, directions in turn reach the Gram matrix, and bounds hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from cases import cases
from embedding.graphs import graph_of, make_graph, random_rows
from fedhk.embedding.diffusion import make_embedded_rows
from fedhk.embedding.groups import NO_GROUPS
from fedhk.embedding.spectrum import (
    BEYOND,
    NEXT_DIRECTIONS,
    SAME_VALUE,
    approximate_eigenvectors,
    canonical_rotation,
    first_directions,
    gram,
    product_sensitivity,
    products,
    solve_gram,
    weigh_directions,
)
from fedhk.model.rows import take


@given(parts=st.integers(1, 6), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_products_of_parts_add_up_to_those_of_all_rows_in_any_order(parts, seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(70, seed=seed)
    graph = graph_of(rows)
    directions = rng.normal(size=(graph.n_columns, 5))
    owner = rng.integers(parts, size=70)
    split = [graph.affinities(take(rows, np.flatnonzero(owner == part))) for part in rng.permutation(parts)]
    whole = graph.affinities(rows)
    assert_allclose(sum(products(part, directions) for part in split), products(whole, directions), atol=1e-10)
    assert_allclose(sum(gram(part) for part in split), gram(whole), atol=1e-10)


def test_a_row_of_weight_two_is_two_rows_in_products_and_gram_matrix():
    rows = random_rows(30)
    affinities = graph_of(rows, 8).affinities(rows)
    weight = np.random.default_rng(0).integers(0, 3, 30)
    repeated = affinities[np.repeat(np.arange(30), weight)]
    directions = np.random.default_rng(1).normal(size=(affinities.shape[1], 3))
    assert_allclose(products(affinities, directions, weight.astype(float)), products(repeated, directions))
    assert_allclose(gram(affinities, weight.astype(float)), gram(repeated))


def test_column_sums_are_the_product_with_ones():
    affinities = graph_of(random_rows()).affinities(random_rows())
    ones = np.ones((affinities.shape[1], 1))
    assert_allclose(products(affinities, ones)[:, 0], np.asarray(affinities.sum(axis=0)).ravel())


def test_directions_in_turn_reach_the_eigenvectors_of_the_gram_matrix():
    rows = random_rows(200)
    affinities = graph_of(rows, 40).affinities(rows)
    exact = solve_gram(gram(affinities), 4)
    rng = np.random.default_rng(0)
    directions = np.column_stack([np.ones(affinities.shape[1]), rng.normal(size=(affinities.shape[1], 5))])
    known, lengths = [], []
    for _ in range(20):
        known.append((directions, products(affinities, directions)))
        found = approximate_eigenvectors(known, 4)
        lengths.append(np.linalg.norm(found.errors, axis=0).max())
        directions = found.next_directions(4, 1e-10)
        if not directions.shape[1]:
            break
    assert lengths[0] > 1e-2
    assert min(lengths) < 1e-8  # what further directions change then is rounding
    assert_allclose(found.values, exact.values, atol=1e-9)
    assert_allclose(found.vectors, exact.vectors, atol=1e-6)
    assert_allclose(found.root.scales, exact.root.scales)


def test_the_first_eigenvector_is_known_and_has_eigenvalue_one():
    rows = random_rows()
    affinities = graph_of(rows).affinities(rows)
    found = solve_gram(gram(affinities), 3)
    assert found.values[0] == pytest.approx(1.0)
    assert_allclose(
        found.vectors[:, 0] * np.sqrt(len(rows.views.tables[0])) * found.root.scales,
        np.where(found.root.scales > 0, 1, 0),
        atol=1e-9,
    )


def test_first_directions_of_the_rows_themselves_are_nearly_right():
    rows = random_rows(300)
    affinities = graph_of(rows, 60).affinities(rows)
    directions = first_directions(affinities, 4, NO_GROUPS, 0.02)
    found = approximate_eigenvectors([(directions, products(affinities, directions))], 4)
    assert np.linalg.norm(found.errors, axis=0).max() < 1e-2


@given(case=cases(min_rows=6))
@settings(max_examples=20, deadline=None)
def test_one_row_moves_the_gram_matrix_by_at_most_one_and_products_by_the_longest_direction(case):
    rows = replace(case.rows, sample_weight=None)
    graph = graph_of(rows, 8)
    affinities = graph.affinities(rows)
    directions = np.random.default_rng(0).normal(size=(graph.n_columns, 3))
    for row in range(rows.n_rows):
        alone = affinities[[row]]
        assert np.linalg.norm(gram(alone)) <= 1 + 1e-12
        assert np.linalg.norm(products(alone, directions)) <= product_sensitivity(directions) * (1 + 1e-12)


def test_the_bound_of_the_gram_matrix_is_reached_by_a_row_tied_to_one_anchor():
    graph = make_graph((np.array([[0.0], [9.0]]),), joint_weight=1.0)
    rows = make_embedded_rows(np.array([[0.1]]))
    assert np.linalg.norm(gram(graph.affinities(rows))) == pytest.approx(1.0)
    assert product_sensitivity(np.eye(graph.n_columns)) == 1.0


def test_vectors_are_the_same_however_they_come():
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 4)))[0]
    values = np.array([1.0, 1.0, 1.0, 0.4])
    turned = vectors.copy()
    turned[:, :3] = turned[:, :3] @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    turned[:, 3] *= -1
    first, second = (v @ canonical_rotation(values, v) for v in (vectors, turned))
    assert_allclose(first, second, atol=1e-12)
    assert_allclose(first.T @ first, np.eye(4), atol=1e-12)
    assert first[np.abs(first[:, 3]).argmax(), 3] > 0
    assert_allclose(np.abs(first[:, 3]), np.abs(vectors[:, 3]))


def test_more_first_directions_are_asked_for_where_eigenvalues_are_nearly_the_same():
    """Rows on a long line, whose heat hardly leaves any part of it, and rows in two round clusters."""
    rng = np.random.default_rng(0)
    line, clusters = np.linspace(0, 9, 600)[:, None], rng.normal(size=(600, 6)) + 9 * rng.integers(2, size=(600, 1))
    counts = []
    for points in (line, clusters):
        rows = make_embedded_rows(points)
        counts.append(first_directions(graph_of(rows, 300).affinities(rows), 2, NO_GROUPS, 0.02).shape[1])
    assert 3 < counts[0] <= 2 + BEYOND
    assert counts[1] == 3


def test_directions_of_groups_that_heat_does_not_leave_are_all_found():
    """Their eigenvalues are all 1; a method that looks for one vector after the other misses some of them."""
    rng = np.random.default_rng(0)
    group = np.arange(600) % 12
    shares = rng.random((600, 5))
    columns = (group * 50)[:, None] + rng.integers(50, size=(600, 5))
    rows = np.repeat(np.arange(600), 5)
    affinities = sp.csr_array((shares.ravel() / np.repeat(shares.sum(axis=1), 5), (rows, columns.ravel())), (600, 600))
    directions = first_directions(affinities, 12, NO_GROUPS, 0.02)
    found = approximate_eigenvectors([(directions, products(affinities, directions))], 12)
    assert_allclose(found.values, 1.0, atol=1e-6)


def test_the_next_direction_counts_by_how_much_faster_heat_leaves_it_than_the_last_cluster():
    # heat leaves the third direction as fast as the second, twice, three times as fast
    for third, weight in ((0.9, 1.0), (0.8, np.exp(-1.0)), (0.7, np.exp(-2.0))):
        assert_allclose(weigh_directions(np.array([1.0, 0.9, third]), 2), [1.0, 1.0, weight])


def test_the_next_direction_counts_nothing_where_heat_does_not_leave_clusters():
    assert_allclose(weigh_directions(np.array([1.0, 1.0, 0.95]), 2), [1.0, 1.0, 0.0], atol=1e-12)
    assert_allclose(weigh_directions(np.array([1.0, 1.0, 1.0 - SAME_VALUE / 100]), 2), 1.0, atol=0.02)


def test_a_graph_with_as_many_columns_as_clusters_has_no_next_direction():
    assert_allclose(weigh_directions(np.array([1.0, 0.4]), 2), 1.0)
    assert_allclose(weigh_directions(np.array([1.0, 0.4]), 5), 1.0)
    rows = random_rows(30)
    affinities = graph_of(rows, 2).affinities(rows)
    columns = affinities.shape[1]
    found = solve_gram(gram(affinities), columns + NEXT_DIRECTIONS)
    assert found.cluster_projection(columns).shape == (columns, columns)


def test_the_projection_for_clusters_begins_with_a_direction_for_each():
    rows = random_rows(200)
    found = solve_gram(gram(graph_of(rows, 40).affinities(rows)), 4)
    projection = found.cluster_projection(3)
    assert_allclose(projection[:, :3], found.projection(3))
    assert_allclose(projection[:, 3], found.projection(4)[:, 3] * weigh_directions(found.values, 3)[3])


def test_an_error_of_the_next_direction_is_asked_for_as_far_as_it_counts():
    rows = random_rows(200)
    found = solve_gram(gram(graph_of(rows, 40).affinities(rows)), 4)
    error = np.zeros(found.errors.shape)
    error[:, 3] = found.vectors[:, 3] * 0.1
    weight = weigh_directions(found.values, 3)[3]
    off = replace(found, errors=error)
    assert off.next_directions(3, 0.09 * weight).shape[1] == 1
    assert off.next_directions(3, 0.11 * weight).shape[1] == 0
