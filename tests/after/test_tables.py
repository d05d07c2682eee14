"""Tables that go into a paper: which counts are not shown, and how LaTeX has them."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from fedhk.after.tables import PrintedTable, find_hidden, show_count, show_interval

COUNTS = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.integers(0, 30).map(float))


def test_a_small_count_takes_the_smallest_other_of_its_line_with_it():
    hidden = find_hidden(np.array([[248.0, 3.0, 100.0, 0.0], [9.0, 8.0, 7.0, 6.0]]), 5)
    assert_array_equal(hidden, [[False, True, True, False], [False] * 4])


def test_with_totals_of_columns_no_column_gives_a_count_away():
    hidden = find_hidden(
        np.array([[50.0, 2.0, 40.0], [30.0, 60.0, 20.0], [80.0, 70.0, 90.0]]), 5, has_column_totals=True
    )
    assert_array_equal(hidden, [[False, True, True], [False, True, True], [False, False, False]])


def test_a_count_that_is_all_there_is_is_hidden_alone():
    assert_array_equal(find_hidden(np.array([[0.0, 4.0, 0.0]]), 5), [[False, True, False]])


@pytest.mark.parametrize("has_column_totals", [False, True])
@given(counts=COUNTS)
def test_no_hidden_count_follows_from_a_total(has_column_totals, counts):
    hidden = find_hidden(counts, 5, has_column_totals=has_column_totals)
    small = (counts > 0) & (counts < 5)
    assert hidden[small].all()
    assert not hidden[counts == 0].any()
    assert small.any() or not hidden.any()
    for cells, numbers in ((hidden, counts), *([(hidden.T, counts.T)] if has_column_totals else [])):
        alone = cells.sum(axis=1) == 1
        assert_array_equal((numbers[alone] > 0).sum(axis=1), 1)


@pytest.mark.parametrize(
    ("cell", "latex"),
    [
        ("-0.02 ± 0.01", r"$-$0.02 $\pm$ 0.01"),
        ("4 (-.5, 2)", "4 ($-$.5, 2)"),
        ("2026-01-31", "2026-01-31"),
        ("1e-05", "1e-05"),
        ("k-means, one-hot", "k-means, one-hot"),
    ],
)
def test_a_hyphen_is_a_minus_sign_before_a_number_alone(cell, latex):
    assert f"a & {latex} \\\\" in PrintedTable("t", ["", "x"], [["a", cell]]).to_latex()


@pytest.mark.parametrize("first", ["[lab] age", "*age"])
def test_a_line_of_latex_does_not_begin_with_what_belongs_to_the_end_of_the_line_before(first):
    text = PrintedTable("t", ["", "x"], [["a", "1"], [first, "2"]]).to_latex()
    assert f"1 \\\\\n{{}}{first} & 2" in text


def test_comparisons_are_mathematics_in_latex():
    assert r"$\geq$ 65 & $\leq$ 3" in PrintedTable("t", ["", "x"], [["≥ 65", "≤ 3"]]).to_latex()


@pytest.mark.parametrize(
    ("given", "shown"),
    [((4, 5), "< 5"), ((0, 5), "0"), ((30, 5, 60), "30 (50 %)"), ((0, 5, 0), "–"), ((np.nan, 5), "–")],
)
def test_counts_are_shown_from_the_least_on(given, shown):
    assert show_count(*given) == shown


@pytest.mark.parametrize(
    ("count", "whole", "shown"), [(19.0, None, "< 20"), (-3.0, None, "< 20"), (21.0, 50, "21"), (21.0, 84, "21 (25 %)")]
)
def test_counts_that_noise_hides_are_not_shown(count, whole, shown):
    assert show_count(count, 5, whole, noise=10.0) == shown


def test_a_number_without_an_interval_stands_alone():
    assert show_interval(2.0, 1.0, 3.0) == "2.00 (1.00, 3.00)"
    assert show_interval(0.0, np.nan, np.nan) == "0"
    assert show_interval(np.nan, np.nan, np.nan) == "–"


def test_words_stand_left_and_numbers_right_in_every_form():
    table = PrintedTable("t", ["method", "rows", "ARI"], [["a", "pooled", "0.1"], ["b", "federated", "0.25"]])
    assert "\\begin{tabular}{llr}" in table.to_latex()
    assert '<td class="text">pooled</td><td>0.1</td>' in table.to_html()
    assert str(table).splitlines()[2:] == ["a       pooled      0.1", "b       federated  0.25"]


def test_a_table_in_latex_is_no_wider_than_the_text_and_may_have_fewer_columns():
    table = PrintedTable("t", ["", "x", "y"], [["a", "1", "2"]], bold={(0, 2)}, for_paper=["", "y"])
    assert "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%" in table.to_latex()
    assert "\n & y \\\\\n\\midrule\na & \\textbf{2} \\\\\n" in table.to_latex()
    assert "<td>1</td><td><b>2</b></td>" in table.to_html()
    with pytest.raises(ValueError, match="The table has no column 'z'"):
        PrintedTable("t", ["", "x"], [["a", "1"]], for_paper=["z"])


def test_lines_have_a_cell_for_every_column():
    with pytest.raises(ValueError, match=r"rows\[1\] has 1 cell, columns have 2 names"):
        PrintedTable("t", ["", "x"], [["a", "1"], ["b"]])


def test_saved_tables_may_be_read_by_others(tmp_path):
    before = os.umask(0o022)
    try:
        paths = [PrintedTable("t", [""], [["a"]]).save(tmp_path / f"t{end}") for end in (".csv", ".tex", ".html")]
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o644] * 3
