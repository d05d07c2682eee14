"""Consensus: bases that differ, rows tied to their clusters in all of them, and clusters that most bases agree on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from embedding.graphs import make_rows
from fedhk.embedding.consensus import make_graph
from fedhk.embedding.diffusion import fit_diffusion
from fedhk.embedding.mixture import fit_mixture
from fedhk.embedding.options import Diffusion
from fedhk.model.rows import take

BASES = 5


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    labels = np.arange(150) % 3
    return make_rows([4 * rng.normal(size=(3, width))[labels] + rng.normal(size=(150, width)) for width in (4, 3)])


@pytest.fixture(scope="module")
def graph(rows):
    return make_graph((fit_mixture(rows, 3, 0),), rows, 3, Diffusion(bases=BASES, anchors="synthetic"), 0)


def test_a_row_has_one_cluster_in_each_base(rows, graph):
    affinities = graph.affinities(rows)
    assert affinities.shape == (150, graph.n_columns)
    assert_allclose(np.asarray(affinities.sum(axis=1)).ravel(), 1.0)
    assert_array_equal(np.diff(affinities.indptr), BASES)
    assert_allclose(affinities.data, 1 / BASES)


def test_the_clusters_of_a_row_are_its_own_affair(rows, graph):
    whole = graph.affinities(rows).toarray()
    assert_array_equal(graph.affinities(take(rows, np.arange(40, 60))).toarray(), whole[40:60])
    assert_array_equal(np.vstack([part.toarray() for _, part in graph.chunks(rows, 7)]), whole)


def test_bases_differ_within_the_bounds(graph):
    assert len({base.n_anchors for base in graph.bases}) > 1
    for base, own in zip(graph.bases, graph.graphs, strict=True):
        assert 150 <= base.n_anchors <= 400
        assert 5 <= base.neighbours <= 12
        assert 3 <= len(base.centers) <= 6
        assert own.n_anchors == base.n_anchors
    assert len(graph.list_anchors()[0]) == sum(base.n_anchors for base in graph.bases)


def test_a_row_without_any_value_has_no_cluster(graph, rows):
    empty = make_rows([np.zeros((2, 4)), np.zeros((2, 3))])
    tables = tuple(np.full(table.shape, np.nan) for table in empty.views.tables)
    nothing = replace(rows, views=replace(empty.views, tables=tables, missing=(True, True)))
    assert graph.affinities(nothing).nnz == 0


def test_the_consensus_of_weak_bases_is_better_than_they_are():
    rng = np.random.default_rng(1)
    labels = np.arange(240) % 8
    rows = make_rows([1.1 * rng.normal(size=(8, 8))[labels] + rng.normal(size=(240, 8)) for _ in range(2)])
    found, _ = fit_diffusion(rows, 8, Diffusion(anchors="both", bases=10), 0)

    def score(embedding):
        return adjusted_rand_score(labels, KMeans(8, n_init=5, random_state=0).fit_predict(embedding))

    bases = [
        score(own.affinities(rows) @ base.projection)
        for own, base in zip(found.graph.graphs, found.graph.bases, strict=True)
    ]
    assert score(found.embed(rows)) > np.mean(bases)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda graph: replace(graph, bases=()), "sources"),
        (lambda graph: replace(graph, bases=(replace(graph.bases[0], source=1),)), "sources"),
        (lambda graph: replace(graph, bases=(replace(graph.bases[0], projection=np.zeros((3, 3))),)), "directions"),
        (lambda graph: replace(graph, bases=(replace(graph.bases[0], centers=np.full((3, 3), np.nan)),)), "NaN"),
    ],
)
def test_a_graph_that_rows_cannot_be_tied_to_is_refused(change, words, graph):
    graph.check([4, 3])
    with pytest.raises(ValueError, match=words):
        change(graph).check([4, 3])
    with pytest.raises(ValueError, match="2 views"):
        graph.check([3, 4, 5][:2])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"anchors": "some"}, "anchors='some' must be one of"),
        ({"bases": 0}, "bases=0 must be a whole number from 1 on"),
        ({"anchors": "both"}, "anchors='both' has no effect with bases=1"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Diffusion(**options)
