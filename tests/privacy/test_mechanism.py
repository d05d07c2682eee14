"""A privacy budget and masks as they are asked for: what is refused, and what files keep of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedhk._options import Option
from fedhk.federation.codec import pack, unpack
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation, read_bounds


def budget(**changes):
    return DifferentialPrivacy(**{"epsilon": 50.0, "delta": 1e-4, "bounds": (-12, 12), "rounds": 2} | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0}, r"epsilon=0 must be a finite number above 0"),
        ({"epsilon": -1.0}, r"epsilon=-1.0 must be"),
        ({"epsilon": float("nan")}, r"epsilon=nan must be"),
        ({"epsilon": float("inf")}, r"epsilon=inf must be"),
        ({"epsilon": "1"}, r"epsilon='1' must be a finite number above 0"),
        ({"delta": None}, r"delta=None must be between 0 and 1"),
        ({"delta": 0}, r"delta=0 must be between 0 and 1"),
        ({"delta": 1.0}, r"delta=1.0 must be between 0 and 1"),
        ({"neighbours": "swap"}, r"neighbours='swap' must be one of"),
        ({"rounds": 0}, r"rounds=0 must be a whole number from 1 on"),
        ({"rounds": 2.0}, r"rounds=2.0 must be"),
        ({"rounds": True}, r"rounds=True must be"),
        ({"colluders": -1}, r"colluders=-1 must be a whole number from 0 on"),
        ({"unit": "person"}, r"unit='person' must be one of \('row', 'site'\)"),
        ({"bounds": None}, r"bounds=None: .* Give bounds=\(low, high\), one pair per view, or bounds='private'"),
        ({"bounds": "auto"}, r"bounds='auto' must be pairs of numbers or 'private'"),
        ({"bounds": 4.0}, r"bounds=4.0 must be a pair \(low, high\)"),
        ({"bounds": ()}, r"bounds=\(\) must be a pair"),
        ({"bounds": (4,)}, r"bounds of view number 0 must be a pair \(low, high\), got \(4,\)"),
        ({"bounds": (4, -4)}, r"bounds of view number 0 must have low < high"),
        ({"bounds": (4, 4)}, r"bounds of view number 0 must have low < high"),
        ({"bounds": (0, np.inf)}, r"bounds of view number 0 must be finite"),
        ({"bounds": [(0, 1), (2, 1)]}, r"bounds of view number 1 must have low < high"),
        ({"bounds": [(0, 1), 3]}, r"bounds of view number 1 must be a pair"),
        ({"bounds": [(0, 1), ([0, 0, 5], [1, 1, 4])]}, r"bounds of view number 1 must have low < high"),
    ],
)
def test_a_budget_that_is_none_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        budget(**changes)


@pytest.mark.parametrize("threshold", [1, 0, -3, 2.5, True])
def test_a_threshold_that_is_none_is_refused(threshold):
    with pytest.raises(ValueError, match=r"threshold=.* must be None or a whole number from 2 on"):
        SecureSummation(threshold)


BOUNDS = ["private", (-1, 2.5), [(-1, 1), ([0, 0, 5], [1, 1, 6])], [(np.zeros(2), np.ones(2))], np.array([[0.0, 1.0]])]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_a_budget_is_the_same_when_it_is_read_again(bounds, tmp_path):
    for option in (budget(bounds=bounds, ledger=tmp_path, neighbours="add-remove", unit="site"), SecureSummation(4)):
        values, arrays = pack(option, Option, named=True)
        assert unpack(json.loads(json.dumps(values)), arrays, Option) == option


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_a_site_is_told_all_of_a_budget_but_where_the_ledger_is(bounds, tmp_path):
    told = json.loads(json.dumps(budget(bounds=bounds, ledger=tmp_path).describe()))
    assert DifferentialPrivacy(**told) == budget(bounds=bounds)
    assert told == budget(bounds=bounds).describe()


def test_bounds_are_read_per_feature():
    (first, second) = read_bounds([(-1, 1), ([0, 0, 5], [1, 1, 6])], [2, 3])
    np.testing.assert_array_equal(first, [[-1, -1], [1, 1]])
    np.testing.assert_array_equal(second, [[0, 0, 5], [1, 1, 6]])
