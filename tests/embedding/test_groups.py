"""Groups of anchors: the root of how heat passes, and what it does to a chain of rows between two clusters."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from embedding.graphs import SEED, graph_of, make_rows, random_rows
from fedhk.embedding.diffusion import fit_diffusion
from fedhk.embedding.groups import NO_GROUPS, PARTITIONS, AnchorGroups, Root
from fedhk.embedding.options import Diffusion
from fedhk.embedding.spectrum import (
    approximate_eigenvectors,
    find_groups,
    first_directions,
    gram,
    products,
    solve_gram,
)
from fedhk.starts.kmeans import lloyd, plus_plus


def groups_of(rows, n_anchors=20, n_clusters=3, **changes):
    graph = graph_of(rows, n_anchors, **changes)
    return graph, find_groups(graph.affinities(rows), graph, n_clusters, Diffusion(**changes), SEED)


def test_without_groups_the_root_is_that_of_the_column_sums():
    sums = np.array([4.0, 0.0, 0.25])
    root = Root.of(sums, NO_GROUPS)
    assert_allclose(root.apply(np.eye(3)), np.diag([0.5, 0.0, 2.0]))
    assert_allclose(root.remove(np.eye(3)), np.diag([2.0, 0.0, 0.5]))


def test_the_root_is_that_of_the_mean_of_both_ways():
    sums, labels = np.array([1.0, 2.0, 3.0, 4.0]), np.array([[0], [0], [1]])
    root = Root.of(sums, AnchorGroups(labels, 0.2, 0.5))
    passed = root.apply(root.apply(np.eye(4)))
    by_groups = np.zeros((4, 4))
    by_groups[1:3, 1:3], by_groups[3, 3] = 1 / 5.0, 1 / 4.0
    assert_allclose(passed, 0.8 * np.diag(1 / sums) + 0.2 / 0.5 * by_groups, atol=1e-12)
    assert_allclose(root.remove(root.apply(np.eye(4))), np.eye(4), atol=1e-9)


def test_no_heat_comes_to_an_anchor_that_no_row_is_near_to():
    sums, labels = np.array([1.0, 2.0, 0.0, 4.0]), np.array([[0], [0], [0], [1]])
    root = Root.of(sums, AnchorGroups(labels, 0.2, 1.0))
    for apply in (root.apply, root.remove):
        assert_allclose(apply(np.eye(4))[2], 0.0, atol=1e-15)
        assert_allclose(apply(np.eye(4))[:, 2], 0.0, atol=1e-15)


def test_heat_is_neither_lost_nor_made():
    rows = random_rows(200)
    graph, groups = groups_of(rows)
    affinities = graph.affinities(rows)
    found = solve_gram(gram(affinities), 3, groups)
    assert found.values[0] == pytest.approx(1.0)
    assert found.values[1] < 1.0
    assert_allclose(np.abs(affinities @ found.projection(1)), 1 / np.sqrt(200), atol=1e-9)  # the same in every row


def test_directions_in_turn_reach_the_eigenvectors_with_groups():
    rows = random_rows(200)
    graph, groups = groups_of(rows, 40)
    affinities = graph.affinities(rows)
    exact, directions, known = (
        solve_gram(gram(affinities), 4, groups),
        first_directions(affinities, 4, groups, 0.02),
        [],
    )
    while directions.shape[1]:
        known.append((directions, products(affinities, directions)))
        found = approximate_eigenvectors(known, 4, groups)
        directions = found.next_directions(4, 1e-9)
        assert len(known) < 20
    assert_allclose(found.values, exact.values, atol=1e-9)
    assert_allclose(affinities @ found.projection(4), affinities @ exact.projection(4), atol=1e-6)


def test_there_are_as_many_partitions_as_clusters_need():
    rows = random_rows(300)
    assert groups_of(rows, 60)[1].labels.shape == (60, PARTITIONS)
    assert groups_of(rows, 60, n_clusters=50)[1].labels.shape == (60, 12)
    for none in ({"groups": False}, {"joint_weight": 0.0}, {"n_clusters": 60}):
        assert groups_of(rows, 60, **none)[1] is NO_GROUPS


def test_a_chain_between_round_clusters_does_not_join_them():
    rng = np.random.default_rng(0)
    middle = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 14.0]])
    labels = np.repeat([0, 1, 2], [150, 150, 12])
    chain = np.column_stack([np.linspace(-6, 6, 60), 0.1 * rng.normal(size=60)])
    rows = make_rows([np.vstack([middle[labels] + rng.normal(size=(312, 2)), chain])], "none")

    def agreement(*, groups):
        found, _ = fit_diffusion(rows, 3, Diffusion(groups=groups), SEED)
        points, ones = found.embed(rows), np.ones(372)
        trials = [lloyd(points, ones, plus_plus(points, ones, 3, np.random.RandomState(s)), 50) for s in range(5)]
        return adjusted_rand_score(labels, min(trials, key=lambda trial: trial[2])[1][:312])

    assert agreement(groups=True) >= agreement(groups=False) - 1e-9
    assert agreement(groups=True) > 0.95


def test_where_clusters_are_apart_no_heat_passes_by_groups():
    rng = np.random.default_rng(0)
    near, far = (
        make_rows([apart * rng.integers(3, size=(200, 1)) + rng.normal(size=(200, 4))], "none") for apart in (1.0, 50.0)
    )
    assert groups_of(far, 60)[1].share < 1e-6
    assert 0.05 < groups_of(near, 60)[1].share <= 0.25
