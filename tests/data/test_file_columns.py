"""Columns of files are read as numbers: here times of the day, and codes of dates."""

from __future__ import annotations

import datetime

import polars as pl
import pytest

from fedhk.data.dictionary import ColumnEntry
from fedhk.data.file_columns import read_column


def read(cells, entry=None):
    return read_column(pl.Series("x", cells), ";", entry)


@pytest.mark.parametrize("entry", [None, ColumnEntry("number", range=(0.0, 24.0))])
def test_times_of_the_day_are_hours(entry):
    """In text and in Excel alike, with or without a data dictionary."""
    for cells in (
        ["8:30", "12:45:36", None, "0:00"],
        [datetime.time(8, 30), datetime.time(12, 45, 36), None, datetime.time()],
    ):
        found = read(cells, entry)
        assert found.kind == "number"
        assert found.values.to_list() == [8.5, pytest.approx(12.76), None, 0.0]


def test_times_among_other_cells_are_refused():
    with pytest.raises(ValueError, match="holds times of the day as text, such as '10:30'"):
        read(["10:30", "11:30", "noon"])
    with pytest.raises(ValueError, match="'8:30' in row 2, where a number is expected"):
        read(["12", "8:30", "13"])
    with pytest.raises(ValueError, match="holds times of the day as text"):
        read(["25:30", "26:30"])


def test_a_level_may_look_like_a_time():
    entry = ColumnEntry("category", levels=("8:00", "16:00"))
    assert read(["8:00", "16:00"], entry).values.rows() == [(1.0, 0.0), (0.0, 1.0)]


def test_codes_of_dates_are_missing_however_they_are_written():
    entry = ColumnEntry("date", missing=("9999-12-31",))
    assert read(["1970-01-03", "9999-12-31", "31.12.9999"], entry).values.to_list() == [2.0, None, None]


def test_a_declared_level_is_no_missing_cell():
    """A minus is a sign for nothing, but for blood groups."""
    entry = ColumnEntry("category", levels=("+", "-"))
    assert read(["+", "-", "?"], entry).values.rows() == [(1.0, 0.0), (0.0, 1.0), (None, None)]
    assert read(["+", "-", "+"]).values.rows() == [(1.0,), (None,), (1.0,)]
