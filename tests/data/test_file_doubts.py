"""Doubts about a single file are said where there is reason, and not about ordinary columns."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fedhk.data.file_doubts import find_count_doubts, find_id_doubts, find_text_doubts


def doubts(cells, separator=";", **options):
    return find_text_doubts(
        pl.DataFrame({"x": cells}, schema={"x": pl.String}), separator, **{"is_declared": False} | options
    )


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["950", "1.400", "1.250", "12.000", None], "'1.400' in column 'x' is read as 1.4; if it means 1400"),
        (["950", "1,400", "1,250", "12,000", ""], "'1,400' in column 'x' is read as 1.4; if it means 1400"),
        (["007", "123"], "'x' has zeros in front of numbers"),
        (["8:30", " 12:45:10", None], "times count as hours in 'x'"),
    ],
)
def test_text_that_may_be_no_number_is_named(cells, said):
    (found,) = doubts(cells)
    assert said in found


@pytest.mark.parametrize(
    "cells",
    [
        ["1.400", "1.250", "12.000"],  # numbers with three decimals
        ["1.4", "1.250", "950", "1.251", "1.252"],  # one has another number of decimals
        ["0.400", "0.250", "0.125", "1"],  # nobody writes zero thousands
        ["1.400", "1.250", "12.000", "1200"],  # a thousand without a mark
        ["1.400", "12", "13"],  # may be chance
        ["0", "0.5", "10"],
        ["a", "b"],
        [None, None],
    ],
)
def test_ordinary_columns_are_not_named(cells):
    assert doubts(cells) == []


def test_commas_between_commas_are_not_looked_at():
    assert doubts(["950", "1,400", "1,250", "12,000"], ",") == []


def test_codes_and_times_of_a_dictionary_are_meant():
    assert doubts(["007", "123"], is_declared=True) == doubts(["8:30"], is_declared=True) == []


def test_ids_in_another_form_are_named_if_they_are_few():
    numbers = [str(i) for i in range(20)]
    assert "ids 'Total' are written in another way" in find_id_doubts(np.array([*numbers, "Total"]))[0]
    assert "'Total'" in find_id_doubts(np.array([*(f"P-{i:03d}" for i in range(20)), "Total"]))[0]
    assert find_id_doubts(np.array([*numbers, "a", "b", "c"])) == []  # more than one in ten: two ways to write ids
    assert find_id_doubts(np.array(numbers)) == find_id_doubts(np.arange(20)) == []
    assert find_id_doubts(np.array(["1", "2", "Total"])) == []  # too few to say


def test_whole_numbers_that_all_differ_against_the_odds_number_the_rows():
    rng = np.random.default_rng(0)
    shuffled, growing = rng.permutation(100), np.arange(100) * 7
    platelets = rng.choice(np.arange(100_000, 400_000), 100, replace=False)
    ages = rng.integers(20, 90, 100)
    values = np.array([shuffled, growing, platelets, ages, rng.normal(size=100)]).T
    (found,) = find_count_doubts(values, ["shuffled", "growing", "platelets", "ages", "normal"])
    assert "'shuffled', 'growing' has another whole number in every row" in found
    assert find_count_doubts(values[:9], list("abcde")) == []
