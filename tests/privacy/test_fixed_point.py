"""Numbers come back from the grid as they went, to half a step, or an error says why they cannot go there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from fedhk.errors import FedHKError
from fedhk.privacy.fixed_point import (
    LARGEST,
    WORDS,
    GridError,
    GridOverflowError,
    fit_step,
    from_grid,
    most_of_word,
    shortest_word,
    to_grid,
)

powers = st.integers(-30, 4).map(lambda exponent: 2.0**exponent)


@given(values=arrays(float, st.integers(0, 20), elements=st.floats(-1e6, 1e6)), step=powers)
def test_rounding_moves_a_number_by_half_a_step_at_most(values, step):
    integers = to_grid(values, step)
    assert integers.dtype == np.int64
    assert (np.abs(from_grid(integers, step) - values) <= step / 2).all()


@given(integers=arrays(np.int64, 8, elements=st.integers(-(2**53), 2**53)), step=powers)
def test_grid_points_stay_what_they_are(integers, step):
    assert_array_equal(to_grid(from_grid(integers, step), step), integers)


@given(values=arrays(float, 5, elements=st.floats(allow_nan=False, allow_infinity=False)), step=st.floats(1e-300, 1e6))
def test_a_number_fits_or_is_refused_and_never_wraps_round(values, step):
    try:
        integers = to_grid(values, step)
    except GridOverflowError:
        assert np.abs(values).max() / LARGEST >= step * (1 - 1e-15)
    else:
        assert (np.sign(integers) * np.sign(values) >= 0).all()
        assert (np.abs(integers) < LARGEST).all()


def test_the_bound_is_the_first_number_that_does_not_fit():
    assert to_grid([99.0, -99.0], 1.0, bound=100).tolist() == [99, -99]
    for value in (100.0, -100.0, 99.5):
        with pytest.raises(GridOverflowError):
            to_grid([1.0, value], 1.0, bound=100)
    below = np.nextafter(2.0**62, 0)
    assert to_grid(below, 1.0) == int(below)
    with pytest.raises(GridOverflowError):
        to_grid(2.0**62, 1.0)


def test_an_overflow_names_the_value_and_what_is_allowed():
    with pytest.raises(
        GridOverflowError, match=r"The value -250 .* step=0\.5: .* below 50 \(bound=100 steps\)"
    ) as error:
        to_grid([3.0, -250.0, 60.0], 0.5, bound=100)
    assert isinstance(error.value, OverflowError)
    assert isinstance(error.value, FedHKError)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused(bad):
    with pytest.raises(GridError, match="1 of 3 numbers are NaN or infinite"):
        to_grid([0.0, bad, 1.0], 0.1)


@pytest.mark.parametrize("step", [0, -1.0, np.nan, np.inf])
def test_a_step_that_is_no_distance_is_refused(step):
    with pytest.raises(ValueError, match="step must be"):
        to_grid([1.0], step)
    with pytest.raises(ValueError, match="step must be"):
        from_grid([1], step)


def test_floats_are_not_taken_for_grid_points_nor_a_bound_beyond_the_type():
    with pytest.raises(TypeError, match="whole numbers, got an array of float64"):
        from_grid([0.5], 1.0)
    with pytest.raises(ValueError, match=r"bound must be at most 2\*\*62"):
        to_grid([1.0], 1.0, bound=2**63)


def test_nothing_on_the_grid_is_nothing():
    assert to_grid([], 1.0).shape == (0,)
    assert from_grid(np.zeros((0, 3), np.int64), 1.0).shape == (0, 3)


@given(
    parts=arrays(float, (7, 5), elements=st.floats(-1e3, 1e3)),
    word=st.sampled_from([2, 4]),
    bound=st.floats(1e-3, 1e3),
)
def test_a_total_within_its_bound_is_known_modulo_a_word_to_half_a_step_per_site(parts, word, bound):
    # parts may be anything, and wrap round; the total is within the bound
    parts = np.vstack([parts, np.clip(parts.sum(axis=0), -bound, bound) - parts.sum(axis=0)])
    step = fit_step(bound, len(parts), word)
    wrapped = to_grid(parts, step).astype(f"u{word}").sum(axis=0, dtype=f"u{word}")
    total = wrapped.view(f"i{word}").astype(np.int64)
    assert np.abs(total).max() <= most_of_word(word)
    assert np.abs(from_grid(total, step) - parts.sum(axis=0)).max() <= step * len(parts) / 2 + 1e-9
    assert step <= 2 * bound / (most_of_word(word) - len(parts))


@pytest.mark.parametrize("word", WORDS)
def test_counts_up_to_a_bound_get_the_shortest_word(word):
    most = most_of_word(word)
    assert shortest_word(most) == word
    assert shortest_word(most + 1) == min(2 * word, 8)


def test_words_that_are_too_short_for_the_sites_are_an_error():
    with pytest.raises(GridError, match="1 bytes are too short for a sum over 200 sites"):
        fit_step(1.0, 200, 1)
