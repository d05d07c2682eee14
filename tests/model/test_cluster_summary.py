"""What clusters are made of: sums that add over sites."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from fedhk.federation.codec import pack, unpack
from fedhk.model.cluster_summary import ClusterSummary, summarise_clusters
from fedhk.model.rows import SAMPLE_ROWS, take
from personal_sites import plain_rows, two_clusters


class TestClusterSummary:
    @given(cases(), st.randoms(use_true_random=False))
    @settings(max_examples=100)
    def test_adds_over_sites(self, case, random):
        labels = np.array([random.randrange(case.parameters.n_clusters) for _ in range(case.rows.n_rows)])
        which = np.array([random.randrange(3) for _ in range(case.rows.n_rows)])
        parts = [
            summarise_clusters(take(case.rows, np.flatnonzero(which == site)), case.parameters, labels[which == site])
            for site in range(3)
        ]
        whole = summarise_clusters(case.rows, case.parameters, labels)
        assert_allclose(reduce(add, (p.to_array() for p in parts)), whole.to_array(), rtol=1e-9, atol=1e-9)
        assert_array_equal(whole.counts, np.bincount(labels, minlength=case.parameters.n_clusters))
        assert whole.shares.sum() == pytest.approx(1.0)

    def test_by_hand(self):
        rows = plain_rows([[[-2.0], [0.0], [1.0]], [[np.nan], [4.0], [5.0]]])
        parameters = replace(two_clusters(-1.0, 1.0), centers=(np.array([[-1.0], [1.0]]), np.array([[0.0], [4.0]])))
        found = summarise_clusters(rows, parameters, np.array([0, 0, 1]))
        assert found.counts.tolist() == [2, 1]
        assert found.squares.tolist() == [1 + 1 + 0, 16 + 1]
        assert found.seen.tolist() == [3, 2]
        assert_allclose(found.variance, [2 / 3, 17 / 2])
        again = ClusterSummary.from_array(found.to_array(), 2)
        assert_array_equal(again.variance, found.variance)

    def test_a_sample_of_many_rows_stands_for_all(self):
        rng = np.random.default_rng(0)
        n = 3 * SAMPLE_ROWS
        rows = plain_rows([rng.normal(size=(n, 2)) * [1.0, 3.0]])
        parameters = two_clusters([0.0, 0.0], [9.0, 9.0])
        found = summarise_clusters(rows, parameters, np.zeros(n, int))
        assert found.counts.tolist() == [n, 0]
        assert_allclose(found.seen, n)
        assert_allclose(found.variance, [1, 9], rtol=0.1)

    def test_survives_a_file(self):
        summary = ClusterSummary(np.array([2.0, 1.0]), np.array([0.5]), np.array([3.0]))
        again = unpack(*pack(summary, ClusterSummary, named=True), ClusterSummary)
        assert_array_equal(again.to_array(), summary.to_array())
