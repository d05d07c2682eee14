"""Symmetric matrices as vectors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedhk._symmetric import from_upper_half, upper_half


@pytest.mark.parametrize("size", [0, 1, 2, 7, 512])
def test_one_half_says_all(size):
    values = np.random.default_rng(size).normal(size=(size, size))
    matrix = values + values.T
    half = upper_half(matrix)
    assert half.shape == (size * (size + 1) // 2,)
    assert_array_equal(from_upper_half(half), matrix)


def test_other_lengths_are_no_half():
    with pytest.raises(ValueError, match="shape"):
        from_upper_half(np.zeros(4))
