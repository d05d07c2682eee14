"""Scales of the parts of a round whose vector is clipped, as a whole, for each site."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhk.privacy.kernel_sensitivity import COST_PART, best_clipped_scales

ROWS = st.floats(1, 1e5)
SHAPES = st.tuples(st.integers(1, 30), st.lists(st.integers(1, 50), min_size=1, max_size=4)).map(
    lambda drawn: [(drawn[0], features) for features in drawn[1]]
)


@given(
    st.floats(-1, 1).map(lambda x: 10**x),
    st.floats(-1, 1).map(lambda x: 10**x),
    SHAPES,
    ROWS,
)
def test_no_other_scale_of_the_heights_has_less_error_where_vectors_are_clipped(reach, norm, shapes, rows):
    views, c, width = len(shapes), shapes[0][0], sum(features for _, features in shapes)
    heights = rows * np.exp(-0.5) * np.sqrt(views / c)

    def error(scale):
        squared_length = rows * views * reach**2 + (1 + COST_PART**2) * (scale * heights) ** 2
        return squared_length * (width + (norm / scale) ** 2)

    best, _ = best_clipped_scales(reach, norm, shapes, rows)
    for factor in (0.3, 0.9, 0.999, 1.001, 1.1, 3):
        assert error(best) <= error(best * factor) * (1 + 1e-9)


@given(SHAPES, ROWS)
def test_the_scale_of_costs_is_one_that_a_row_may_have(shapes, rows):
    count, cost = best_clipped_scales(0.6, 0.3, shapes, rows)
    assert 0 < cost <= min(count, 1.0)


def test_more_rows_of_a_site_leave_heights_less_of_its_length():
    scales = [best_clipped_scales(0.6, 0.3, [(5, 20)], rows)[0] for rows in (1, 10, 100)]
    assert scales[0] > scales[1] > scales[2]
    assert scales[0] / scales[2] == pytest.approx(100**0.25)
