"""Numbers and names as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhk.summary.words import join_names, number, percent, shorten, size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (12.345, "12.3"),
        (0.0012345, "0.00123"),
        (-2.5, "−2.50"),
        (1e-7, "1.00e−07"),
        (math.nan, "–"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.0001, "under 0.1 %"),
        (0.9999, "over 99 %"),
        (0.043, "4.3 %"),
        (0.05, "5 %"),
        (0.173, "17 %"),
        (0.385, "39 %"),  # halves are rounded up, as the script of the page rounds
        (0.0225, "2.3 %"),
    ],
)
def test_shares_never_hide_what_is_there(share, text):
    assert percent(share) == text


def test_sizes_have_units():
    assert [size(n) for n in (999, 1500, 2_340_000, 5.5e9)] == ["999 B", "1.50 kB", "2.34 MB", "5.50 GB"]


def test_lists_are_sentences():
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(list("abcdef")) == "a, b, c, d and 2 more"


@given(st.text(min_size=1), st.integers(3, 30))
def test_short_names_are_short_and_keep_both_ends(text, most):
    found = shorten(text, most)
    assert len(found) <= max(most, 0) or found == text
    assert found[0] == text[0]
    assert found[-1] == text[-1]
