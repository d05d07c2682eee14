"""Row forms: rows that have one total are told from others, whatever it is and however they are stored."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fedhk.data.row_forms import count_rows_without_total


def draw_shares(n_rows=200, width=8, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(width), n_rows)


@given(st.floats(1e-6, 1e6), st.integers(2, 30), st.integers(0, 10))
def test_rows_of_one_total_are_found_in_any_unit(total, width, seed):
    assert count_rows_without_total(total * draw_shares(width=width, seed=seed)) == 0


@given(st.integers(2, 30), st.integers(0, 10))
def test_independent_cells_have_no_common_total(width, seed):
    assert count_rows_without_total(np.random.default_rng(seed).random((200, width))) == 200


def test_rounding_hides_no_histogram():
    shares = draw_shares()
    assert count_rows_without_total(shares.round(3)) == 0
    assert count_rows_without_total(shares.astype(np.float32)) == 0
    assert count_rows_without_total(100.0 * shares.round(3)) == 0


def test_rows_of_several_sizes_have_no_common_total():
    assert count_rows_without_total(draw_shares() * np.linspace(1, 2, 200)[:, None]) == 200


def test_a_large_common_value_costs_no_digits():
    assert count_rows_without_total(draw_shares() + 1e6) == 0


def test_sparse_rows_are_read_as_dense_ones():
    shares = draw_shares() * (np.random.default_rng(1).random((200, 8)) < 0.7)
    for table in (shares, shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)):
        assert count_rows_without_total(sp.csr_array(table)) == count_rows_without_total(table)


@pytest.mark.parametrize("rows", [np.ones((1, 3)), np.ones((5, 3)), np.full((4, 2), np.nan)])
def test_what_shows_no_total_has_none(rows):
    assert count_rows_without_total(rows) == len(rows)


def test_no_rows_are_no_rows():
    assert count_rows_without_total(np.zeros((0, 3))) == 0
