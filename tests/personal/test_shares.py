"""Shares: what two halves of the rows agree on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhk.personal.shares import Move, agreement, confirm_share, mean_move, measure_share, share_of_all_rows


@given(st.integers(0, 2**32 - 1), st.floats(0, 3))
@settings(max_examples=50)
def test_shares_are_shares_and_chance_is_hardly_ever_confirmed(seed, size):
    rng = np.random.default_rng(seed)
    first, second = (size * rng.normal(size=(4, 60)) for _ in range(2))
    weight = rng.uniform(0, 2, (4, 60))
    assert 0 <= agreement((first, weight), (second, weight)) <= 0.35
    both = rng.normal(size=(4, 60))
    assert 0.7 < agreement((both, weight), (both, weight)) <= 1


def test_shares_by_hand():
    ones = np.ones(100)
    # half of the move is asked for, and cells are each half off that: an error of sqrt(100 / 4) / 100
    asked = np.repeat([1.0, 0.0], 50)
    assert confirm_share([(ones, asked, ones)], 1.0) == pytest.approx(0.5 - 0.05)
    assert confirm_share([(ones, asked, ones)], 3.0) == pytest.approx(0.5 - 0.15)
    assert confirm_share([(ones, asked, ones)] * 2, 1.0) == pytest.approx(0.45)  # the same again says nothing new
    assert confirm_share([(ones, 0.3 * ones, ones)], 9.0) == pytest.approx(0.3)  # all cells agree: nothing is uncertain
    assert confirm_share([(ones, -ones, ones)], 1.0) == confirm_share([(0 * ones, asked, ones)], 1.0) == 0.0
    assert agreement((ones[:4], ones[:4]), (ones[:4], ones[:4])) == 1.0
    assert agreement((ones[:1], ones[:1]), (ones[:1], ones[:1])) == 0.0  # one number leaves nothing over
    # halves that ask for 1 and 3 in turn: 0.6 is confirmed, and weight, number and what is left make 2.4 or -2.4
    one, three = np.tile([1.0, 3.0], 50), np.tile([3.0, 1.0], 50)
    off = 2 * np.sqrt(50 * (2.4**2 + 2.4**2)) / (2 * 50 * 10)
    assert agreement((one, ones), (three, ones)) == pytest.approx(share_of_all_rows(0.6 - 2 * off * np.sqrt(100 / 99)))
    assert share_of_all_rows(0.5) == pytest.approx(2 / 3)


@pytest.mark.parametrize("numbers", [2, 10, 200])
def test_few_of_the_moves_that_are_chance_keep_a_share(numbers):
    rng, ones = np.random.default_rng(0), np.ones(numbers)
    found = [agreement((rng.normal(size=numbers), ones), (rng.normal(size=numbers), ones)) for _ in range(1000)]
    assert np.mean(np.array(found) > 0) < 0.08
    assert np.mean(found) < 0.04


def test_the_share_of_a_step_by_hand():
    asked = Move(np.array([2.0, 0.0]), np.array([1.0, 5.0]))
    assert measure_share(asked, np.array([1.0, 9.0])) == 0.5
    assert measure_share(asked, np.array([3.0, 0.0])) == 1.0
    assert measure_share(asked, np.array([-1.0, 0.0])) == 0.0
    assert measure_share(Move(np.zeros(2), np.ones(2)), np.ones(2)) == 0.0


def test_means_are_over_rows_that_have_the_feature():
    step, weight = mean_move(np.array([[1.0, np.nan], [3.0, np.nan]]))
    assert step.tolist() == [2.0, 0.0]
    assert weight.tolist() == [2.0, 0.0]
