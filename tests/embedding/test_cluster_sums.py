"""Sums of rows by membership: they add up, count only what is there, and give means by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.embedding import cluster_sums as module
from fedhk.embedding.cluster_sums import ClusterSums, sum_clusters, sums_size
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows, take


def make_rows(views):
    checked = check_views(views)
    return Rows(checked, prepare(checked, "none", "uniform", None))


def test_means_by_hand():
    rows = make_rows([np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0], [7.0, 8.0]]), np.array([[0.0], [1], [1], [4]])])
    belongs = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    found = sum_clusters(rows, belongs, [0])
    assert_array_equal(found.sizes, [2.5, 1.5])
    first, second = (r.to_input(m) for r, m in zip(rows.references, found.means(rows.widths, [0]), strict=True))
    assert_allclose(first, [[6.5 / 2.5, 5.0 / 1.5], [9.5 / 1.5, 11.0 / 1.5]])
    assert_allclose(second, [[1.5 / 2.5], [4.5 / 1.5]])


@given(seed=st.integers(0, 1000), parts=st.integers(1, 5), gaps=st.booleans())
def test_sums_of_parts_add_up_to_those_of_all_rows(seed, parts, gaps):
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(40, 3)), rng.normal(size=(40, 2))]
    if gaps:
        views[0][rng.random((40, 3)) < 0.3] = np.nan
    rows, belongs = make_rows(views), rng.dirichlet(np.ones(4), size=40)
    full = [0] if gaps else []
    whole = sum_clusters(rows, belongs, full).to_array()
    owner = rng.integers(parts, size=40)
    places = [np.flatnonzero(owner == part) for part in range(parts)]
    assert_allclose(sum(sum_clusters(take(rows, own), belongs[own], full).to_array() for own in places), whole)
    assert len(whole) == sums_size(4, rows.widths, full)
    again = ClusterSums.from_array(whole, 4, rows.widths)
    assert_array_equal(again.to_array(), whole)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    rows, belongs = make_rows([rng.normal(size=(50, 4))]), rng.dirichlet(np.ones(3), size=50)
    whole = sum_clusters(rows, belongs, []).to_array()
    monkeypatch.setattr(module, "BLOCK_BYTES", 7 * 32)
    assert_allclose(sum_clusters(rows, belongs, []).to_array(), whole)


def test_a_feature_that_no_row_of_a_cluster_has_is_at_the_grand_mean():
    rows = make_rows([np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 4.0]])])
    means = sum_clusters(rows, np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), [0]).means(rows.widths, [0])
    assert rows.references[0].to_input(means[0])[1, 1] == pytest.approx(3.0)
