"""Rows are cut into blocks that are worth their sums, and missing cells are filled."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedhk.data.views import check_views
from fedhk.model.preparation import prepare
from fedhk.model.rows import WORTH_ADDING, Rows, fill_missing


@pytest.mark.parametrize(("n_rows", "n_blocks"), [(200, 1), (600, 3), (3000, 4)])
def test_blocks_of_a_large_product_are_few_and_have_rows_enough(n_rows, n_blocks):
    views = check_views([np.random.default_rng(0).normal(size=(n_rows, 300))])
    rows = Rows(views, prepare(views, "standard", "uniform", None))
    blocks = rows.blocks(200)
    assert len(blocks) == n_blocks
    assert all(block.stop - block.start >= WORTH_ADDING for block in blocks[:-1])
    assert_array_equal(np.concatenate([np.arange(n_rows)[block] for block in blocks]), np.arange(n_rows))


def test_missing_cells_are_filled_and_overflow_becomes_the_largest_number():
    cells = np.array([[1.0, np.nan], [np.inf, -np.inf]], np.float32)
    fill_missing(cells, 7.0)
    largest = np.finfo(np.float32).max
    assert_array_equal(cells, np.array([[1.0, 7.0], [largest, -largest]], np.float32))
