"""Numbers, names and axes as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhk.report.svg import escape, tag, tick_text, ticks
from fedhk.report.words import listed, number, percent, shortened, size


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
    ],
)
def test_shares_never_hide_what_is_there(share, text):
    assert percent(share) == text


def test_sizes_have_units():
    assert [size(n) for n in (999, 1500, 2_340_000, 5.5e9)] == ["999 B", "1.50 kB", "2.34 MB", "5.50 GB"]


def test_lists_are_sentences():
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdef")) == "a, b, c, d and 2 more"


@given(st.text(min_size=1), st.integers(3, 30))
def test_short_names_are_short_and_keep_both_ends(text, most):
    found = shortened(text, most)
    assert len(found) <= max(most, 0) or found == text
    assert found[0] == text[0]
    assert found[-1] == text[-1]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_inside_and_differ_in_print(low, width):
    high = low + width
    values = ticks(low, high)
    step = values[1] - values[0] if len(values) > 1 else 1.0
    slack = 1e-6 * width + 1e-9
    assert all(low - slack <= value <= high + slack for value in values)
    assert len(values) <= 12
    if high > low and abs(low) < 1e4 * width:
        texts = [tick_text(value, step) for value in values]
        assert len(set(texts)) == len(texts)


@given(st.text())
def test_text_cannot_leave_its_place(text):
    safe = escape(text)
    assert not set(safe) & set("<>\"'")
    assert tag("p", safe, title=text).count("<") == 2
