"""Charts: axes that can be read, and marks where the numbers are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhk.summary.charts import MOST_BARS, MOST_SITES, certainty, convergence, gains, traffic
from fedhk.summary.facts import Gain
from report.pages import made_up


@settings(max_examples=30, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_inside_and_differ_in_print(low, width):
    high = low + width
    first, second, *_ = made_up().rounds
    ax = convergence([replace(first, objective=high), replace(second, objective=low)]).ax
    bottom, top = ax.get_ylim()
    values = [value for value in ax.get_yticks() if bottom <= value <= top]
    assert len(values) <= 12
    texts = ax.yaxis.get_major_formatter().format_ticks(values)
    assert len(set(texts)) == len(texts) >= 2


@pytest.mark.parametrize("objective", [9.648981, 336.9975, 1036.99, 12345.6, 123456.7])
def test_ticks_are_short_where_the_objective_hardly_falls(objective):
    first, second, *_ = made_up().rounds
    ax = convergence([replace(first, objective=objective), replace(second, objective=objective * (1 - 1e-12))]).ax
    texts = ax.yaxis.get_major_formatter().format_ticks(ax.get_yticks())
    assert max(map(len, texts)) <= len("1,234.5")


def test_marks_are_where_the_numbers_are():
    rounds = made_up().rounds
    ax = convergence(rounds).ax
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [(r.number, r.objective) for r in rounds])
    full, hollow = ax.collections
    assert [int(x) for x, _ in hollow.get_offsets()] == [1]  # a site did not answer in the first
    assert len(full.get_offsets()) == len(rounds) - 1


def test_one_round_and_rounds_without_objective_are_drawn():
    rounds = made_up(rounds=1).rounds
    for some in (rounds, [replace(rounds[0], objective=np.nan)]):
        assert "<svg" in convergence(some).to_svg()


def test_many_rounds_are_drawn_in_groups_and_listed_one_by_one():
    figure = traffic(made_up(rounds=300).rounds)
    assert len(figure.ax.patches) <= 2 * MOST_BARS
    assert len(figure.rows) == 301


def test_bars_of_certainty_are_shares_of_all_rows():
    ax = certainty(made_up()).ax
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(1.0)


def test_of_many_sites_the_largest_gains_and_the_least_are_drawn():
    found = [Gain(f"site {s}", 9, {"global": 1.0, "personal": 1.0 - s / 100}) for s in range(60)]
    figure = gains(found, held_out=True)
    names = [label.get_text() for label in figure.ax.get_yticklabels()]
    assert len(names) == MOST_SITES
    assert (names[0], names[-1]) == ("site 59", "site 0")
    assert len(figure.rows) == 60
