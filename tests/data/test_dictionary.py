"""Data dictionaries: what they say is enforced at every site, and what is wrong with one is named."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedhk.data.dictionary import ColumnEntry, Dictionary, read_dictionary, write_dictionary
from fedhk.data.folders import Reading, read_federation, read_site
from fedhk.data.frames import from_frame
from fedhk.errors import DataError

GOOD = """
[lab.sodium]
kind = "number"
unit = "mmol/l"
range = [100, 180]
missing = [-999, "none taken"]

[lab.sex]
kind = "category"
levels = ["F", "M", "X"]

[lab.stage]
kind = "ordered"
levels = ["I", "II", "III"]

[lab.day]
kind = "date"
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "oslo").mkdir()
    (tmp_path / "dictionary.toml").write_text(GOOD)
    return tmp_path


def put(root, *lines):
    (root / "oslo" / "lab.csv").write_text("\n".join(["id,day,sex,sodium,stage", *lines]))


def test_columns_are_what_the_dictionary_says(root):
    put(root, "1,1970-01-03,F,140,II", "2,,M,-999,III", "3,,,none taken,")
    site = read_federation(root).sites["oslo"]
    assert site.columns["lab"] == ("sodium", "sex = F", "sex = M", "sex = X", "stage (I < II < III)", "day")
    nan = np.nan
    np.testing.assert_array_equal(
        site.views["lab"], [[140, 1, 0, 0, 1, 2], [nan, 0, 1, 0, 2, nan], [nan, nan, nan, nan, nan, nan]]
    )
    assert site.inferred == {}
    np.testing.assert_array_equal(read_site(root / "oslo").views["lab"], site.views["lab"])


def test_the_remedy_for_a_wrong_cell_speaks_of_the_dictionary_and_not_of_ids(root):
    put(root, "1,,F,1400,I")
    with pytest.raises(
        DataError, match="list its code under 'missing' if it is missing, or correct the data"
    ) as caught:
        read_federation(root)
    assert "'id'" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "1,,F,1400,I",
            "column 'sodium' holds '1400.0' in row 1, where a number from 100 to 180 mmol/l, by the data dictionary, "
            "is expected (1 of 1 cells are outside: another unit?)",
        ),
        ("1,,W,140,I", "column 'sex' holds text, 'W' in row 1, where one of the levels 'F', 'M', 'X' is expected"),
        ("1,,F,140,IV", "column 'stage' holds text, 'IV' in row 1"),
        ("1,3/4/2021,F,140,I", "column 'day' holds text, '3/4/2021' in row 1, where a date, such as 2026-01-31"),
        ("1,,F,low,I", "column 'sodium' holds text, 'low' in row 1, where a number is expected"),
    ],
)
def test_what_contradicts_it_is_named_with_its_row(root, line, said):
    put(root, line)
    with pytest.raises(DataError, match="site 'oslo', file 'lab") as caught:
        read_federation(root)
    assert said in str(caught.value)


def test_columns_and_views_are_those_of_the_dictionary(root):
    (root / "oslo" / "lab.csv").write_text("id,day,sex,sodium\n1,,F,140\n")
    with pytest.raises(DataError, match="lacks the columns 'stage' of the data dictionary"):
        read_federation(root)
    (root / "oslo" / "lab.csv").write_text("id,day,sex,sodium,stage,more\n1,,F,140,I,1\n")
    with pytest.raises(DataError, match="has the columns 'more', which the data dictionary does not have"):
        read_federation(root)
    (root / "oslo" / "lab.csv").rename(root / "oslo" / "ecg.csv")
    with pytest.raises(DataError, match="is no view of the data dictionary, which has 'lab'"):
        read_federation(root)


def test_a_column_to_skip_may_be_there_or_not_and_is_not_read(root):
    path = root / "dictionary.toml"
    path.write_text(path.read_text() + '\n[lab.more]\nkind = "skip"\n')
    put(root, "1,1970-01-03,F,140,II", "2,,M,-999,III")
    before = read_federation(root)
    file = root / "oslo" / "lab.csv"
    head, *lines = file.read_text().splitlines()
    file.write_text("\n".join([f"more,{head}", *(f"any text {i},{line}" for i, line in enumerate(lines))]) + "\n")
    after = read_federation(root)
    assert after.columns == before.columns
    np.testing.assert_array_equal(after.sites["oslo"].views["lab"], before.sites["oslo"].views["lab"])
    known = read_dictionary(path)
    assert "more" not in known.read_columns("lab")
    assert write_dictionary(known).count('kind = "skip"') == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no columns"),
        ("x = 1", "'x' must be a view with a table for each column"),
        ("[lab]\na = 1", "view 'lab', column 'a': must be a table"),
        ("[lab.a]\nkind = 'float'", "kind='float' must be one of"),
        ("[lab.a]\nlevel = ['x']", r"unknown settings \['level'\]"),
        ("[lab.a]\nkind = 'category'", "a category has levels"),
        ("[lab.a]\nlevels = ['x']", "nothing else has any"),
        ("[lab.a]\nkind = 'category'\nlevels = ['x', 'x']", "each once"),
        ("[lab.a]\nrange = [3, 1]", "must be two numbers, the smaller one first"),
        ("[lab.a]\nkind = 'truth'\nrange = [0, 1]", "range=.* is for numbers and dates"),
        ("[lab.a]\nmissing = 9", "missing=9 must be a list"),
        ("[lab.a]\nrange = [0, 10]\nmissing = [9]", "missing='9' lies in its range"),
        ("[lab.a]\nkind = 'category'\nlevels = ['x', 'y']\nmissing = ['x']", "'x' is a level and a code"),
        ("[lab.a]\nkind = 'date'\nrange = [0, 10]", "must be two dates, such as"),
        ("[lab.a]\nkind = 'date'\nrange = [2026-01-02, 2026-01-01]", "the earlier one first"),
        ("[lab.a]\nkind = 'date'\nunit = 'd'", "unit='d' is for numbers"),
        ("[lab.a]\nkind = 'skip'", "view 'lab' has no column but such to skip"),
        ("[lab.a]\n[lab.b]\nkind = 'skip'\nmissing = [9]", r"missing=\['9'\] has no effect on a column to skip"),
        ("[lab.a]\n[lab.b]\nkind = 'skip'\nrange = [0, 1]", "range=.* is for numbers and dates"),
        ("[lab.a", "cannot be read"),
    ],
)
def test_a_dictionary_that_is_none_is_refused_by_setting(tmp_path, text, said):
    path = tmp_path / "dictionary.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=f"dictionary.toml: .*{said}"):
        read_dictionary(path)


class TestOnlyIds:
    """A dictionary may say which column has the ids, and nothing else."""

    @pytest.fixture
    def folder(self, root):
        (root / "dictionary.toml").write_text('id = "PatNr"')
        (root / "oslo" / "lab.csv").write_text("PatNr,sodium,sex\nb7,140,F\na1,141,M\n")
        return root

    def test_columns_are_read_as_they_look(self, folder):
        site = read_federation(folder).sites["oslo"]
        assert site.ids.tolist() == ["b7", "a1"]
        assert site.columns["lab"] == ("sodium", "sex = F", "sex = M")
        assert site.inferred == {"lab": ("sex",)}
        assert read_site(folder / "oslo").ids.tolist() == ["b7", "a1"]

    def test_another_dictionary_does_not_take_its_place(self, folder):
        other = Dictionary({"blood": {"x": ColumnEntry()}})
        assert read_site(folder / "oslo", reading=Reading(dictionary=other)).ids.tolist() == ["b7", "a1"]

    def test_it_has_no_bounds_and_makes_no_views(self, folder):
        with pytest.raises(DataError, match="names no column: as public bounds it needs a range"):
            read_dictionary(folder / "dictionary.toml").bounds()
        frame = pd.DataFrame({"site": ["oslo"], "sodium": [140.0]})
        with pytest.raises(DataError, match="dictionary= names no column"):
            from_frame(frame, site="site", dictionary=folder / "dictionary.toml")


def test_what_is_written_is_read_again(tmp_path):
    known = {
        "lab one": {
            "größe": ColumnEntry(unit="cm", range=(0.0, 250.0), missing=("-9",), description='as "measured"'),
            "sex": ColumnEntry("category", levels=("F", "M")),
            "admitted": ColumnEntry("date", range=(0.0, 20000.0)),
        }
    }
    path = tmp_path / "dictionary.toml"
    path.write_text(write_dictionary(known), "utf-8")
    assert read_dictionary(path) == known


def test_dates_ranks_and_truths_are_what_the_dictionary_says(tmp_path):
    folder = tmp_path / "oslo"
    folder.mkdir()
    (tmp_path / "dictionary.toml").write_text(
        "[lab.day]\nkind = 'date'\nrange = [1970-01-01, 1970-12-31]\n[lab.smoker]\nkind = 'truth'\n"
        "[lab.code]\nkind = 'category'\nlevels = [1, 2]\nmissing = [9]\n"
    )
    lines = ["day;smoker;code", "1970-01-03;yes;1", "3.1.1970;0;2", "1970-01-03 08:00;false;9,0"]
    (folder / "lab.csv").write_text("\n".join(lines))
    nan = np.nan
    np.testing.assert_array_equal(read_site(folder).views["lab"], [[2, 1, 1, 0], [2, 0, 0, 1], [2, 0, nan, nan]])
    for wrong, said in (
        ("1971-01-01;1;1", "where a date from 1970-01-01 to 1970-12-31, by the data dictionary, is expected"),
        ("1.1.1970;2;1", "column 'smoker' holds text, '2' in row 1, where true or false"),
        ("1.1.1970;1;3", "column 'code' holds text, '3' in row 1, where one of the levels '1', '2'"),
    ):
        (folder / "lab.csv").write_text(f"day;smoker;code\n{wrong}\n")
        with pytest.raises(DataError, match=said):
            read_site(folder)


def test_codes_that_a_file_holds_as_numbers_are_levels(tmp_path):
    (tmp_path / "oslo").mkdir()
    (tmp_path / "dictionary.toml").write_text("[lab.code]\nkind = 'category'\nlevels = ['1', '2']\n")
    pl.DataFrame({"code": [1.0, None, 2.0]}).write_parquet(tmp_path / "oslo" / "lab.parquet")
    np.testing.assert_array_equal(read_site(tmp_path / "oslo").views["lab"], [[1, 0], [np.nan, np.nan], [0, 1]])


def test_ranges_and_levels_are_public_bounds():
    entries = {
        "b": {
            "stage": ColumnEntry("ordered", levels=("I", "II", "III")),
            "sex": ColumnEntry("category", levels=("F", "M")),
        },
        "a": {"age": ColumnEntry(range=(0.0, 120.0)), "smoker": ColumnEntry("truth")},
    }
    known = Dictionary(entries)
    assert known.bounds(["a", "b"]) == [([0, 0], [120, 1]), ([0, 0, 0], [2, 1, 1])]
    entries["a"]["weight"] = ColumnEntry(unit="kg")
    with pytest.raises(DataError, match=r"has no range for a\.weight: as public bounds"):
        Dictionary(entries).bounds()
    with pytest.raises(DataError, match="has no view 'c'"):
        known.bounds(["c"])
    assert Dictionary(entries).unit("a", "weight") == "kg"
