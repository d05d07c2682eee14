"""No row moves a release further than its bound, and the worst rows move it just as far."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhk.privacy.fixed_point import to_grid
from fedhk.privacy.sensitivity import grid_sensitivity, sum_sensitivity

WITHIN = 1 + 1e-9

seeds = st.integers(0, 2**32 - 1)
scales = st.floats(-2, 2).map(lambda exponent: 10**exponent)


def ball(rng, radius, shape):
    """Rows in the ball or on its surface; rank one, so that pairs can be opposite."""
    direction = rng.normal(size=shape[-1])
    direction /= np.linalg.norm(direction)
    length = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=shape[:-1])
    return radius * length[..., None] * direction


@given(radius=scales, seed=seeds)
def test_a_plain_sum_moves_by_its_sensitivity_at_most(radius, seed):
    rng = np.random.default_rng(seed)
    one, other = ball(rng, radius, (2, 3))
    assert np.linalg.norm(one) <= sum_sensitivity(radius) * WITHIN
    assert np.linalg.norm(one - other) <= sum_sensitivity(radius, "replace") * WITHIN
    apart = np.linalg.norm(np.abs(one) - np.abs(other))
    assert apart <= sum_sensitivity(radius, "replace", nonnegative=True) * WITHIN


def test_a_plain_sum_by_hand():
    assert sum_sensitivity(3.0) == sum_sensitivity(3.0, nonnegative=True) == 3.0
    assert sum_sensitivity(3.0, "replace") == 6.0
    assert sum_sensitivity(1.0, "replace", nonnegative=True) == pytest.approx(np.linalg.norm([1, -1]))


@given(step=scales, shift=scales, size=st.integers(1, 30), seed=seeds)
def test_rounding_to_the_grid_is_within_its_sensitivity(step, shift, size, seed):
    rng = np.random.default_rng(seed)
    one = rng.normal(size=size) * 10
    direction = rng.normal(size=size)
    other = one + direction * shift / np.linalg.norm(direction)
    apart = np.linalg.norm(to_grid(one, step) - to_grid(other, step))
    assert apart <= grid_sensitivity(shift, step, size) * WITHIN


def test_rounding_to_the_grid_can_add_a_whole_step_to_every_number():
    one, other = np.full(9, 0.5 - 1e-9), np.full(9, 0.5 + 1e-9)
    assert np.linalg.norm(to_grid(other, 1.0) - to_grid(one, 1.0)) == pytest.approx(grid_sensitivity(0.0, 1.0, 9))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sum_sensitivity(1, "swap"), "neighbours must be"),
        (lambda: grid_sensitivity(1.0, 0.0, 1), "step must be"),
    ],
)
def test_a_wrong_parameter_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
