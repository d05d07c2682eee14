"""Federations on disk: what is written is read again, rows meet by id, and bad files are named."""

from __future__ import annotations

import datetime
import gzip
import importlib.util
import os
import pickle
import sys

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhk.data.folders import FORMATS, read_federation, read_site, write_site
from fedhk.errors import DataError, FedHKError

needs_mudata = pytest.mark.skipif(
    importlib.util.find_spec("mudata") is None, reason="mudata is not installed: pip install fedhk[mudata]"
)


def put(folder, **texts):
    """A site's folder with csv files: view_name="text"."""
    folder.mkdir(parents=True, exist_ok=True)
    for view, text in texts.items():
        (folder / f"{view}.csv").write_text(text)
    return folder


def refused(folder, *parts, read=read_federation):
    """The text of the error, which must have all parts."""
    with pytest.raises(DataError) as caught:
        read(folder)
    for part in parts:
        assert part in str(caught.value)
    return str(caught.value)


@pytest.fixture
def table():
    values = np.random.default_rng(0).normal(size=(5, 3)) * 10.0 ** np.arange(-150, 300, 150)
    values[1, 2] = np.nan
    values[3] = np.nan
    return values


class TestRoundTrip:
    @pytest.mark.parametrize("form", FORMATS)
    @pytest.mark.parametrize("ids", [None, [7, 3, 9, 1, 2], ["b", "007", "ø", "a, c", "9"]])
    def test_each_format(self, tmp_path, table, form, ids):
        if form == "npy" and ids is not None:
            return  # npy files have no ids
        write_site(tmp_path / "oslo", {"ecg": table, "age": table[:, :1] * 2, "none": None}, ids, format=form)
        site = read_federation(tmp_path).sites["oslo"]
        assert list(site.views) == ["age", "ecg"]
        np.testing.assert_array_equal(site.views["ecg"], table)
        np.testing.assert_array_equal(site.views["age"], table[:, :1] * 2)
        assert site.n_rows == 5
        assert (None if site.ids is None else site.ids.tolist()) == ids
        assert site.views["ecg"].flags.c_contiguous

    @pytest.mark.parametrize("form", ["parquet", "npy", "npz"])
    def test_float32_stays_float32(self, tmp_path, form):
        single = np.arange(6, dtype=np.float32).reshape(2, 3)
        write_site(tmp_path / "oslo", {"a": single, "b": single.astype(float)}, format=form)
        views = read_site(tmp_path / "oslo").views
        assert views["a"].dtype == np.float32
        assert views["b"].dtype == np.float64

    @pytest.mark.parametrize("form", ["parquet", "csv", "npz"])
    def test_columns(self, tmp_path, form):
        write_site(tmp_path / "oslo", {"ecg": np.eye(2)}, columns={"ecg": ["qt", "rr"]}, format=form)
        assert read_federation(tmp_path).columns == {"ecg": ("qt", "rr")}
        assert read_site(tmp_path / "oslo").columns == {"ecg": ("qt", "rr")}

    def test_a_square_view_is_not_turned(self, tmp_path):
        square = np.arange(9.0).reshape(3, 3)
        write_site(tmp_path / "oslo", {"a": square})
        np.testing.assert_array_equal(read_site(tmp_path / "oslo").views["a"], square)

    def test_integers_and_booleans_become_numbers(self, tmp_path):
        (tmp_path / "oslo").mkdir()
        frame = pl.DataFrame({"a": [1, None], "b": [True, False], "c": pl.Series([1.5, 2], dtype=pl.Float32)})
        frame.write_parquet(tmp_path / "oslo" / "x.parquet")
        values = read_site(tmp_path / "oslo").views["x"]
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, [[1, 1, 1.5], [np.nan, 0, 2]])

    def test_an_npz_file_may_hold_one_array_of_any_name(self, tmp_path):
        (tmp_path / "oslo").mkdir()
        np.savez_compressed(tmp_path / "oslo" / "x.npz", whatever=np.eye(2), id=np.array([4, 5]))
        site = read_site(tmp_path / "oslo")
        np.testing.assert_array_equal(site.views["x"], np.eye(2))
        assert site.ids.tolist() == [4, 5]


class TestDoubts:
    def test_rows_that_are_paired_by_order(self, tmp_path):
        put(tmp_path / "oslo", x="a\n1\n2\n", y="b\n1\n2\n")
        assert read_federation(tmp_path).doubts == [
            "no column 'id' at 'oslo': rows of its views are paired by their order."
        ]

    def test_a_view_that_is_misspelt_at_one_site(self, tmp_path):
        put(tmp_path / "oslo", blood="id,a\n1,2\n", vitals="id,b\n1,2\n")
        put(tmp_path / "rome", blood="id,a\n1,2\n", vital="id,b\n1,2\n")
        assert (
            "view 'vital' is only at 'rome', where there is no 'vitals': is it that?"
            in read_federation(tmp_path).doubts
        )

    def test_a_site_whose_files_have_a_header_alone(self, tmp_path):
        put(tmp_path / "oslo", blood="id,a\n1,2\n2,3\n")
        put(tmp_path / "rome", blood="id,a\n")
        assert read_federation(tmp_path).doubts == ["no rows at 'rome': files with a header alone?"]

    def test_none_where_sites_have_what_they_should(self, tmp_path):
        put(tmp_path / "oslo", ecg_1="id,a\n1,2\n", ecg_2="id,b\n1,2\n")
        put(tmp_path / "rome", ecg_1="id,a\n1,3\n", lab="id,c\n1,2\n")
        assert read_federation(tmp_path).doubts == []


class TestCsv:
    def test_empty_cells_and_words_for_missing_are_nan(self, tmp_path):
        put(tmp_path / "oslo", x="id,a,b,c,d\n1,,1,NA,\n2,3,NaN,nan,\n3, 4 ,2,null,\n")
        values = read_site(tmp_path / "oslo").views["x"]
        np.testing.assert_array_equal(
            values, [[np.nan, 1, np.nan, np.nan], [3, np.nan, np.nan, np.nan], [4, 2, np.nan, np.nan]]
        )

    def test_numbers_in_any_notation_and_truth_values(self, tmp_path):
        put(tmp_path / "oslo", x='id,a,b\n1,1e3,true\n2,-.5,False\n3,"7",\n4,+2,TRUE\n')
        values = read_site(tmp_path / "oslo").views["x"]
        np.testing.assert_array_equal(values, [[1000, 1], [-0.5, 0], [7, np.nan], [2, 1]])

    def test_excel_marks_line_ends_and_empty_last_lines_are_read(self, tmp_path):
        folder = put(tmp_path / "oslo")
        (folder / "x.csv").write_bytes("\ufeffid,a\r\n1,2\r\n2,3\r\n\r\n".encode())
        site = read_site(folder)
        assert site.ids.tolist() == [1, 2]
        assert site.views["x"].ravel().tolist() == [2, 3]

    def test_ids_that_are_not_plain_numbers_stay_text(self, tmp_path):
        put(tmp_path / "oslo", x="id,a\n007,1\n7,2\n")
        assert read_site(tmp_path / "oslo").ids.tolist() == ["007", "7"]

    @pytest.mark.parametrize("text", ["valid,a\n1,2\n2,3\n", "site_id,a\n4,2\n4,3\n", "acid,a\n0.5,2\n1.5,3\n"])
    def test_features_with_names_like_ids_are_features(self, tmp_path, text):
        put(tmp_path / "oslo", x=text)
        assert read_site(tmp_path / "oslo").views["x"].shape == (2, 2)

    def test_beside_an_id_another_number_is_a_feature(self, tmp_path):
        put(tmp_path / "oslo", x="id,ward_id,a\n1,7,2\n2,8,3\n")
        assert read_site(tmp_path / "oslo").views["x"].shape == (2, 2)

    def test_infinity_is_left_to_the_estimators(self, tmp_path):
        put(tmp_path / "oslo", x="a\ninf\n-1\n")
        assert np.isposinf(read_site(tmp_path / "oslo").views["x"][0, 0])

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("", "cannot be read"),
            ("id,a,b\n1,2,3\n2,3", "line 3 has fewer than 3 cells; is it damaged or half-written?"),
            ("id,a,b\n1,2,3\n2,3\n3,4,5\n", "line 3 has fewer than 3 cells"),
            ("id,a,b\n1,2,3\n\n3,4,5\n", "line 3 has fewer than 3 cells"),
            ('"id","a","b"\n"x, y",2,3\n"z",3', "line 3 has fewer than 3 cells"),
            (",a\n1,2\n2,2\n", "column '': name it 'id' if it says whose a row is"),
            ("a,b\n1,2\n2,3,4\n", "cannot be read"),
            ("a,b,a\n1,2,3\n", "columns 'a' appear more than once"),
            ("a,b\n1,2\n2,1\n3,male\n", "column 'b' holds text, 'male' in row 3, where a number is expected"),
            ("a,b\n1,3/4/2021\n2,5/4/2021\n", "column 'b' holds dates as text, such as '3/4/2021'"),
            ("a,b\n1;2,2\n2,1\n", "column 'a' holds text, '1;2' in row 1"),
            ("id\n1\n2\n", "has no columns beside 'id'"),
            ("ID,a\n1,2\n", "column 'ID': name it 'id' if it says whose a row is"),
            ("patient_id,a\n3,2.5\n1,2\n", "column 'patient_id' looks like an identifier of rows"),
            ("id;a;b\n1;2\n", "line 2 has fewer than 3 cells"),
            ("a,b\n<5,2\n", "column 'a' holds text, '<5' in row 1, where a number (or a code that a data dictionary"),
            ("a\n" + "".join(f"name {i}\n" for i in range(12)), "holds text with 12 different values in 12 cells"),
            ("id,a\n1,2\n,3\n", "row 2 has no id"),
            ("id,a\n1,2\n3,3\n1,4\n3,3\n", "duplicate ids 1, 3;"),
            ('id,a\n"1,2\n', "line 2 has fewer than 2 cells"),
        ],
    )
    def test_bad_files_are_named(self, tmp_path, text, part):
        put(tmp_path / "oslo", x=text)
        refused(tmp_path, "site 'oslo', file 'x.csv': ", part)

    def test_bytes_that_are_no_text_are_refused(self, tmp_path):
        folder = put(tmp_path / "oslo")
        (folder / "x.csv").write_bytes("a,b\n1,2\n".encode("utf-16"))
        refused(tmp_path, "site 'oslo', file 'x.csv': cannot be read")


class TestFilesAsPeopleHaveThem:
    """Files of spreadsheets, other countries and other programs hold the same numbers."""

    def read(self, tmp_path):
        return read_site(tmp_path / "oslo").views["x"]

    @pytest.mark.parametrize(
        "text",
        [
            "id;a;b\n1;2,5;3\n2;-0,5;4,25\n",
            "id\ta\tb\n1\t2.5\t3\n2\t-0,5\t4,25\n",
            '"id";"a";"b"\n1;2,5;3\n2;"-0,5";4,25',
        ],
    )
    def test_other_separators_and_decimal_commas(self, tmp_path, text):
        put(tmp_path / "oslo", x=text)
        np.testing.assert_array_equal(self.read(tmp_path), [[2.5, 3], [-0.5, 4.25]])

    def test_compressed_text(self, tmp_path):
        (put(tmp_path / "oslo") / "x.csv.gz").write_bytes(gzip.compress(b"id,a\n1,2\n2,3\n"))
        np.testing.assert_array_equal(self.read(tmp_path), [[2], [3]])

    def test_tsv_and_feather(self, tmp_path):
        (put(tmp_path / "oslo") / "x.tsv").write_text("id\ta\n1\t2\n")
        assert self.read(tmp_path) == [[2]]
        pl.DataFrame({"id": [1], "a": [2.5]}).write_ipc(put(tmp_path / "rome") / "x.feather")
        assert read_site(tmp_path / "rome").views["x"] == [[2.5]]

    def test_excel(self, tmp_path):
        pytest.importorskip("fastexcel", reason="fastexcel is not installed: pip install fedhk[excel]")
        pytest.importorskip("xlsxwriter", reason="xlsxwriter is not installed, which writes the file")
        frame = pl.DataFrame({"id": ["p1", "p2"], "a": [1.5, None], "sex": ["F", "M"]})
        frame.write_excel(put(tmp_path / "oslo") / "x.xlsx")
        site = read_site(tmp_path / "oslo")
        assert site.columns["x"] == ("a", "sex = F", "sex = M")
        np.testing.assert_array_equal(site.views["x"], [[1.5, 1, 0], [np.nan, 0, 1]])
        assert site.ids.tolist() == ["p1", "p2"]

    def test_latin_letters_are_read_and_said(self, tmp_path):
        (put(tmp_path / "oslo") / "x.csv").write_bytes("id,größe\n1,2\n".encode("latin-1"))
        federation = read_federation(tmp_path)
        assert federation.columns["x"] == ("größe",)
        assert "read as Latin-1" in federation.doubts[0]

    @pytest.mark.parametrize("word", ["n/a", "NA", "-", ".", "?", "#N/A", "none"])
    def test_words_for_nothing(self, tmp_path, word):
        put(tmp_path / "oslo", x=f"a,k\n1,u\n{word},{word}\n2,v\n")
        np.testing.assert_array_equal(self.read(tmp_path), [[1, 1, 0], [np.nan] * 3, [2, 0, 1]])

    def test_dates_of_typed_files_are_days(self, tmp_path):
        days = pl.Series("d", [datetime.date(1970, 1, 2), None])
        pl.DataFrame([days]).write_parquet(put(tmp_path / "oslo") / "x.parquet")
        np.testing.assert_array_equal(self.read(tmp_path), [[1], [np.nan]])

    def test_durations_of_typed_files_are_numbers_of_days(self, tmp_path):
        stays = pl.Series("stay", [datetime.timedelta(hours=36), None])
        pl.DataFrame([stays]).write_parquet(put(tmp_path / "oslo") / "x.parquet")
        np.testing.assert_array_equal(self.read(tmp_path), [[1.5], [np.nan]])
        assert read_federation(tmp_path).sites["oslo"].kinds["x"] == {"stay": "number"}

    def test_leftovers_are_passed_over_and_said(self, tmp_path):
        folder = put(tmp_path / "oslo", x="a\n1\n")
        for name in ("Thumbs.db", "~$x.xlsx", "x.doc"):
            (folder / name).write_text("text")
        (folder / "archive").mkdir()
        (tmp_path / ".fedhkignore").write_text("# what the study office leaves here\n*.doc\n")
        assert read_federation(tmp_path).doubts == [
            "site 'oslo': passed over 'Thumbs.db', 'archive', 'x.doc', '~$x.xlsx'."
        ]


class TestCategories:
    def test_levels_are_those_of_all_sites(self, tmp_path):
        put(tmp_path / "oslo", x="id,sex,a\n1,F,2\n2,,3\n")
        put(tmp_path / "rome", x="id,a,sex\n1,5,M\n2,6,M\n")
        federation = read_federation(tmp_path)
        assert federation.columns["x"] == ("sex = F", "sex = M", "a")
        np.testing.assert_array_equal(federation.sites["oslo"].views["x"], [[1, 0, 2], [np.nan, np.nan, 3]])
        np.testing.assert_array_equal(federation.sites["rome"].views["x"], [[0, 1, 5], [0, 1, 6]])
        assert federation.sites["oslo"].inferred == {"x": ("sex",)}

    def test_a_site_is_read_with_the_levels_of_the_federation(self, tmp_path):
        put(tmp_path / "oslo", x="sex,a\nF,2\n")
        expected = {"x": ("a", "sex = F", "sex = M")}
        np.testing.assert_array_equal(read_site(tmp_path / "oslo", expected).views["x"], [[2, 1, 0]])
        put(tmp_path / "rome", x="sex,a\nX,2\n")
        refused(
            tmp_path / "rome", "file 'x.csv'", "unknown level 'X' in row 0", read=lambda path: read_site(path, expected)
        )

    def test_numbers_here_and_text_there(self, tmp_path):
        put(tmp_path / "oslo", x="k\nu\nv\n")
        put(tmp_path / "rome", x="k\n1\n2\n")
        refused(tmp_path, "site 'oslo', file 'x.csv'", "column 'k' holds text, such as 'u', and at 'rome' numbers")
        put(tmp_path / "bern", x="k\nu\nu\n")
        refused(tmp_path, "site 'rome', file 'x.csv'", "column 'k' holds numbers, and at 'bern', 'oslo' text")


class TestMoreDoubts:
    @pytest.mark.parametrize(
        ("oslo", "rome", "said"),
        [
            ({"lab": "id,a\n1,2\n"}, {"Lab": "id,a\n1,2\n"}, "views 'Lab' and 'lab' differ by capital letters only"),
            ({"lab": "id,a,b\n1,2,3\n"}, {"blood": "id,a,b\n1,2,3\n"}, "views 'blood' and 'lab' have the same columns"),
            ({"lab": "id,a\n1,2\n", "ecg": "id,e\n"}, {"lab": "id,a\n1,2\n"}, "'ecg.csv' has a header and no rows"),
            (
                {"lab": "id,a\n1,2\n2,2\n3,1\n", "ecg": "id,e\np1,2\np2,2\np3,1\n"},
                {"lab": "id,a\n1,2\n"},
                "of 3 ids of view 'ecg' only 0 are in other views ('p1' is not): are they written alike?",
            ),
        ],
    )
    def test_what_is_doubtful_is_said(self, tmp_path, oslo, rome, said):
        put(tmp_path / "oslo", **oslo)
        put(tmp_path / "rome", **rome)
        assert any(said in doubt for doubt in read_federation(tmp_path).doubts)


class TestAlignment:
    def test_rows_meet_by_id_and_missing_rows_are_nan(self, tmp_path):
        put(tmp_path / "oslo", ecg="id,e\n5,50\n1,10\n3,30\n", lab="id,l\n3,-30\n4,-40\n5,-50\n")
        site = read_site(tmp_path / "oslo")
        assert site.ids.tolist() == [5, 1, 3, 4]
        np.testing.assert_array_equal(site.views["ecg"].ravel(), [50, 10, 30, np.nan])
        np.testing.assert_array_equal(site.views["lab"].ravel(), [-50, np.nan, -30, -40])

    @given(st.lists(st.sets(st.integers(0, 12)).map(sorted), min_size=1, max_size=4), st.randoms(use_true_random=False))
    @settings(max_examples=25)
    def test_every_view_has_its_row_at_its_id_or_nan(self, tmp_path_factory, kept, shuffler):
        folder = tmp_path_factory.mktemp("f") / "oslo"
        folder.mkdir()
        for h, ids in enumerate(kept):
            shuffler.shuffle(ids)
            pl.DataFrame(
                {"x": [100 * h + i for i in ids], "id": ids}, schema={"x": pl.Float64, "id": pl.Int64}
            ).write_parquet(folder / f"v{h}.parquet")
        site = read_site(folder)
        assert sorted(site.ids.tolist()) == sorted(set().union(*kept))
        for h, ids in enumerate(kept):
            expected = [100 * h + i if i in ids else np.nan for i in site.ids.tolist()]
            np.testing.assert_array_equal(site.views[f"v{h}"].ravel(), expected)

    def test_ids_as_text_and_as_numbers_meet(self, tmp_path):
        folder = put(tmp_path / "oslo", ecg="id,e\n7,1\nx,2\n")
        pl.DataFrame({"id": [7, 8], "l": [1.0, 2.0]}).write_parquet(folder / "lab.parquet")
        site = read_site(folder)
        assert site.ids.tolist() == ["7", "x", "8"]
        np.testing.assert_array_equal(site.views["lab"].ravel(), [1, np.nan, 2])

    def test_a_view_without_rows_is_a_missing_view(self, tmp_path):
        put(tmp_path / "oslo", ecg="id,e\n7,1\n", lab="id,l\n")
        site = read_site(tmp_path / "oslo")
        assert site.ids.tolist() == [7]
        assert np.isnan(site.views["lab"]).all()

    def test_float32_survives_alignment(self, tmp_path):
        write_site(tmp_path / "oslo", {"a": np.ones((2, 1), np.float32)}, [1, 2])
        put(tmp_path / "oslo", b="id,x\n3,1\n")
        assert read_site(tmp_path / "oslo").views["a"].dtype == np.float32

    def test_different_lengths_without_ids_are_refused(self, tmp_path):
        put(tmp_path / "oslo", ecg="a\n1\n", lab="b\n1\n2\n")
        refused(tmp_path, "site 'oslo'", "without ids", "'ecg' has 1, 'lab' has 2")

    def test_ids_in_some_views_only_are_refused(self, tmp_path):
        put(tmp_path / "oslo", ecg="id,a\n1,1\n", lab="b\n1\n")
        refused(tmp_path, "site 'oslo': 'lab.csv' without ids beside views with ids")


class TestFederation:
    def test_sites_and_views_are_sorted_and_absent_views_are_none(self, tmp_path):
        put(tmp_path / "rome", lab="l\n1\n2\n")
        put(tmp_path / "oslo", lab="l\n1\n", ecg="e,f\n1,2\n")
        federation = read_federation(tmp_path)
        assert list(federation.sites) == ["oslo", "rome"]
        assert federation.view_names == ("ecg", "lab")
        assert federation.columns == {"ecg": ("e", "f"), "lab": ("l",)}
        assert federation.sites["rome"].views["ecg"] is None
        assert [site.n_rows for site in federation.sites.values()] == [1, 2]

    def test_columns_take_the_order_of_the_first_site(self, tmp_path):
        put(tmp_path / "oslo", ecg="b,id,a\n1,8,2\n")
        put(tmp_path / "rome", ecg="id,a,b\n9,3,4\n")
        federation = read_federation(str(tmp_path))
        assert federation.columns == {"ecg": ("b", "a")}
        assert federation.sites["rome"].views["ecg"].tolist() == [[4, 3]]

    def test_other_columns_are_listed_for_every_site(self, tmp_path):
        put(tmp_path / "bergen", ecg="a,b\n1,2\n")
        put(tmp_path / "oslo", ecg="a,c\n1,2\n")
        put(tmp_path / "rome", ecg="b,a,d\n1,2,3\n")
        (tmp_path / "turin").mkdir()
        np.save(tmp_path / "turin" / "ecg.npy", np.ones((2, 5)))
        text = refused(tmp_path, "View 'ecg'", "Compared with site 'bergen', which has 2 columns: ")
        assert "site 'oslo' lacks 'b' and has extra 'c'; site 'rome' has extra 'd'" in text
        assert "site 'turin' has 5 columns instead of 2" in text

    def test_files_without_names_take_the_names_of_others(self, tmp_path):
        write_site(tmp_path / "bergen", {"ecg": np.ones((1, 2))}, format="npy")
        put(tmp_path / "oslo", ecg="a,b\n1,2\n")
        assert read_federation(tmp_path).columns == {"ecg": ("a", "b")}

    def test_an_empty_site_is_allowed_beside_one_with_rows(self, tmp_path):
        put(tmp_path / "empty", ecg="id,a,b\n")
        refused(tmp_path, "no rows at any of its 1 sites")
        put(tmp_path / "oslo", ecg="id,a,b\nx,1,2\n")
        site = read_federation(tmp_path).sites["empty"]
        assert site.n_rows == 0
        assert site.views["ecg"].shape == (0, 2)

    def test_hidden_files_and_notes_are_passed_over(self, tmp_path):
        folder = put(tmp_path / "oslo", ecg="a\n1\n")
        for name in (".ecg.parquet.x1", "README", "readme.rst", "about.md", "site.json", "site.toml", "note.txt"):
            (folder / name).write_text("text")
        (folder / ".hidden").mkdir()
        (tmp_path / ".git").mkdir()
        (tmp_path / "federation.toml").write_text("")
        assert read_federation(tmp_path).view_names == ("ecg",)


class TestBadFolders:
    def test_no_folder(self, tmp_path):
        refused(tmp_path / "nowhere", "does not exist")
        (tmp_path / "file").write_text("")
        refused(tmp_path / "file", "is a file")

    def test_no_site(self, tmp_path):
        refused(tmp_path, "has no site; a federation has one sub-folder per site")
        put(tmp_path, ecg="a\n1\n")
        refused(tmp_path, "It holds 'ecg.csv': is it a single site?")

    def test_a_site_without_files(self, tmp_path):
        put(tmp_path / "oslo", ecg="a\n1\n")
        put(tmp_path / "rome")
        refused(
            tmp_path, "site 'rome' has no view", ".parquet, .feather, .xlsx, .csv, .csv.gz, .tsv, .npy, .npz, .h5mu"
        )

    def test_two_files_for_one_view(self, tmp_path):
        write_site(tmp_path / "oslo", {"ecg": np.ones((2, 2))})
        put(tmp_path / "oslo", ecg="a\n1\n")
        refused(tmp_path, "site 'oslo', file 'ecg.parquet'", "view 'ecg'", "'ecg.csv'")

    @pytest.mark.parametrize("name", ["ecg.doc", "ecg", "ecg.parquet.tmp", "ecg.gz"])
    def test_unknown_kinds_of_file(self, tmp_path, name):
        (put(tmp_path / "oslo") / name).write_text("text")
        refused(
            tmp_path, f"site 'oslo', file {name!r}", "a view is one of .parquet,", "name it in the file '.fedhkignore'"
        )

    def test_a_folder_in_a_site(self, tmp_path):
        put(tmp_path / "oslo" / "ecg.csv")
        refused(tmp_path, "site 'oslo', file 'ecg.csv': is a folder")

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
    def test_a_file_without_permission(self, tmp_path):
        (put(tmp_path / "oslo", ecg="a\n1\n") / "ecg.csv").chmod(0)
        refused(tmp_path, "site 'oslo', file 'ecg.csv'", "Permission denied")

    def test_errors_are_fedhk_errors_and_value_errors(self):
        assert issubclass(DataError, FedHKError)
        assert issubclass(DataError, ValueError)


class TestDamage:
    @pytest.mark.parametrize("form", ["parquet", "npy", "npz"])
    def test_every_cut_of_a_file_is_refused(self, tmp_path, form):
        write_site(tmp_path / "oslo", {"ecg": np.arange(12.0).reshape(4, 3)}, format=form)
        path = tmp_path / "oslo" / f"ecg.{form}"
        content = path.read_bytes()
        for length in sorted({0, 1, 7, len(content) - 1, *range(0, len(content), max(1, len(content) // 60))}):
            path.write_bytes(content[:length])
            refused(tmp_path, f"site 'oslo', file 'ecg.{form}': cannot be read; is it damaged or half-written?")

    @pytest.mark.parametrize("form", FORMATS)
    def test_changed_bytes_give_data_errors_or_numbers(self, tmp_path, form):
        rng = np.random.default_rng(0)
        write_site(tmp_path / "oslo", {"ecg": np.arange(12.0).reshape(4, 3)}, format=form)
        path = tmp_path / "oslo" / f"ecg.{form}"
        content = np.frombuffer(path.read_bytes(), np.uint8)
        refusals = 0
        for _ in range(60):
            damaged = content.copy()
            damaged[rng.integers(len(content), size=3)] = rng.integers(256, size=3)
            path.write_bytes(damaged.tobytes())
            try:
                assert read_site(tmp_path / "oslo").views["ecg"].dtype.kind == "f"
            except DataError:
                refusals += 1
        assert refusals > 0

    def test_a_file_of_another_kind(self, tmp_path):
        for suffix in ("parquet", "npy", "npz"):
            (put(tmp_path / suffix / "oslo") / f"ecg.{suffix}").write_text("a,b\n1,2\n")
            refused(tmp_path / suffix, f"site 'oslo', file 'ecg.{suffix}': ")


class TestArrays:
    @pytest.mark.parametrize(
        ("array", "part"),
        [
            (np.ones(()), "has shape (); a view is (rows, columns), or has more axes"),
            (np.ones(3), "array.reshape(-1, 1)"),
            (np.ones((3, 2, 0)), "has no columns"),
            (np.ones((3, 0)), "has no columns"),
            (np.ones((2, 2), complex), "has dtype complex128; a view holds real numbers"),
            (np.array([["a", "b"]]), "has dtype <U1"),
            (np.zeros((2, 1), "M8[s]"), "has dtype datetime64[s]"),
        ],
    )
    @pytest.mark.parametrize("form", ["npy", "npz"])
    def test_what_is_no_table_of_numbers(self, tmp_path, array, part, form):
        path = put(tmp_path / "oslo") / f"x.{form}"
        np.save(path, array) if form == "npy" else np.savez(path, data=array)
        refused(tmp_path, f"site 'oslo', file 'x.{form}': has ", part)

    @pytest.mark.parametrize("form", ["npy", "npz"])
    def test_arrays_of_more_axes_are_tensor_views(self, tmp_path, form):
        tensor = np.arange(12.0).reshape(2, 3, 2)
        for site in ("oslo", "rome"):
            write_site(tmp_path / site, {"ecg": tensor, "age": np.ones((2, 1))}, format=form)
        for site in read_federation(tmp_path).sites.values():
            np.testing.assert_array_equal(site.views["ecg"], tensor)
            assert site.columns == {"ecg": None, "age": None}

    def test_rows_of_tensors_meet_by_id(self, tmp_path):
        tensor = np.arange(12.0).reshape(2, 3, 2)
        write_site(tmp_path / "oslo", {"ecg": tensor}, [7, 3], format="npz")
        np.savez(tmp_path / "oslo" / "age.npz", data=np.ones((2, 1)), id=np.array([3, 5]))
        site = read_federation(tmp_path).sites["oslo"]
        assert site.ids.tolist() == [3, 5, 7]
        np.testing.assert_array_equal(site.views["ecg"], [tensor[1], np.full((3, 2), np.nan), tensor[0]])

    def test_tensors_have_one_shape_at_all_sites(self, tmp_path):
        write_site(tmp_path / "oslo", {"ecg": np.ones((2, 3, 2))}, format="npy")
        write_site(tmp_path / "rome", {"ecg": np.ones((2, 6))}, format="npy")  # flat: nothing to compare
        assert read_federation(tmp_path).sites["rome"].views["ecg"].shape == (2, 6)
        write_site(tmp_path / "turin", {"ecg": np.ones((2, 2, 3))}, format="npy")
        text = refused(tmp_path, "Compared with site 'oslo', which has shape (n, 3, 2): ")
        assert "site 'turin' has shape (n, 2, 3) instead of shape (n, 3, 2)" in text

    def test_tensors_have_no_column_names(self, tmp_path):
        path = put(tmp_path / "oslo") / "x.npz"
        np.savez(path, data=np.ones((2, 3, 2)), columns=np.array(list("abc")))
        refused(tmp_path, "site 'oslo', file 'x.npz': has 'columns'", "(2, 3, 2) are a tensor")
        np.savez(path, data=np.ones((2, 3, 2)))
        refused(
            tmp_path / "oslo",
            "view 'x' has shape (n, 3, 2) instead of 6 named columns",
            read=lambda folder: read_site(folder, {"x": list("abcdef")}),
        )

    def test_python_objects_are_never_loaded(self, tmp_path):
        trap = np.array([[_Trap()]], dtype=object)
        folder = put(tmp_path / "oslo")
        np.save(folder / "x.npy", trap, allow_pickle=True)
        refused(tmp_path, "site 'oslo', file 'x.npy': holds Python objects, which are never loaded")
        (folder / "x.npy").unlink()
        for arrays in ({"data": trap}, {"data": np.ones((1, 1)), "id": trap[0]}):
            np.savez(folder / "x.npz", **arrays)
            refused(tmp_path, "site 'oslo', file 'x.npz': holds Python objects, which are never loaded")
        for name in ("x.npz", "x.npy"):
            (folder / name).write_bytes(pickle.dumps(_Trap()))
            refused(tmp_path, "site 'oslo', file 'x.np")

    def test_several_arrays_without_data(self, tmp_path):
        np.savez(put(tmp_path / "oslo") / "x.npz", a=np.ones((2, 2)), b=np.ones((2, 2)))
        refused(tmp_path, "file 'x.npz': holds arrays 'a', 'b'; one array, or one named 'data', is needed")

    def test_ids_and_columns_must_fit(self, tmp_path):
        path = put(tmp_path / "oslo") / "x.npz"
        np.savez(path, data=np.ones((2, 2)), id=np.arange(3))
        refused(tmp_path, "its 'id' has shape (3,), but there are 2 rows")
        np.savez(path, data=np.ones((2, 2)), id=np.array([1.5, 2]))
        refused(tmp_path, "ids are whole numbers or text")
        np.savez(path, data=np.ones((2, 2)), id=np.array(["a", "a"]))
        refused(tmp_path, "duplicate ids 'a'")
        np.savez(path, data=np.ones((2, 2)), columns=np.array(["a"]))
        refused(tmp_path, "its 'columns' must be 2 names")

    def test_sparse_matrices_are_refused(self, tmp_path):
        sp.save_npz(put(tmp_path / "oslo") / "x.npz", sp.csr_array(np.eye(3)))
        refused(tmp_path, "file 'x.npz': holds a SciPy sparse matrix")


class _Trap:
    def __reduce__(self):
        return pytest.fail, ("was unpickled",)


class TestParquet:
    @pytest.mark.parametrize(
        ("column", "part"),
        [
            (pl.Series("s", [[1.0], [2.0]]), "column 's' holds List(Float64)"),
            (pl.Series("__index_level_0__", [0, 1]), "column '__index_level_0__': name it 'id'"),
            (pl.Series("id", [1.0, 2.0]), "column 'id' has type Float64; ids are whole numbers or text"),
            (pl.Series("id", ["a", None]), "row 2 has no id"),
            (pl.Series("id", [2**64 - 1, 1], dtype=pl.UInt64), "cannot be read"),
        ],
    )
    def test_columns_that_are_no_numbers(self, tmp_path, column, part):
        folder = put(tmp_path / "oslo")
        pl.DataFrame([pl.Series("a", [1.0, 2.0]), column]).write_parquet(folder / "x.parquet")
        refused(tmp_path, "site 'oslo', file 'x.parquet': ", part)

    def test_a_column_without_any_value_is_missing_cells(self, tmp_path):
        folder = put(tmp_path / "oslo")
        frame = pl.DataFrame(
            [pl.Series("a", [1, 2]), pl.Series("b", [None, None], dtype=pl.String), pl.Series("c", [None] * 2)]
        )
        frame.write_parquet(folder / "x.parquet")
        assert np.isnan(read_site(folder).views["x"][:, 1:]).all()

    def test_categorical_ids(self, tmp_path):
        folder = put(tmp_path / "oslo")
        pl.DataFrame({"id": pl.Series(["a", "b"], dtype=pl.Categorical), "a": [1, 2]}).write_parquet(
            folder / "x.parquet"
        )
        assert read_site(folder).ids.tolist() == ["a", "b"]

    def test_a_name_that_looks_like_a_pattern_is_a_name(self, tmp_path):
        write_site(tmp_path / "os[l]o*", {"e?g": np.ones((1, 1))})
        assert read_federation(tmp_path).view_names == ("e?g",)


class TestReadSite:
    EXPECTED = {"ecg": ("b", "a"), "lab": None}  # noqa: RUF012

    def test_views_and_columns_are_those_expected(self, tmp_path):
        put(tmp_path / "oslo", ecg="a,b\n1,2\n")
        site = read_site(tmp_path / "oslo", self.EXPECTED)
        assert site.name == "oslo"
        assert list(site.views) == ["ecg", "lab"]
        assert site.views["ecg"].tolist() == [[2, 1]]
        assert site.views["lab"] is None
        assert site.columns == self.EXPECTED

    def test_what_a_federation_has_is_what_a_site_expects(self, tmp_path):
        put(tmp_path / "oslo", ecg="b,a\n1,2\n")
        put(tmp_path / "rome", ecg="a,b\n1,2\n")
        federation = read_federation(tmp_path)
        alone = read_site(tmp_path / "rome", federation.columns)
        np.testing.assert_array_equal(alone.views["ecg"], federation.sites["rome"].views["ecg"])

    def test_a_site_is_named_after_its_folder_however_it_is_given(self, tmp_path, monkeypatch):
        put(tmp_path / "oslo", ecg="a\n1\n")
        monkeypatch.chdir(tmp_path / "oslo")
        assert read_site(".").name == "oslo"
        assert read_site(f"{tmp_path}/rome/../oslo/").name == "oslo"

    def test_unknown_views(self, tmp_path):
        put(tmp_path / "oslo", ecg="a,b\n1,2\n", gait="a\n1\n")
        refused(tmp_path / "oslo", "unknown views 'gait'", "'ecg', 'lab'", read=lambda f: read_site(f, self.EXPECTED))

    def test_other_columns(self, tmp_path):
        put(tmp_path / "oslo", ecg="a,c\n1,2\n")
        part = "site 'oslo', file 'ecg.csv': view 'ecg' lacks 'b' and has extra 'c'"
        refused(tmp_path / "oslo", part, read=lambda f: read_site(f, self.EXPECTED))

    def test_other_widths(self, tmp_path):
        np.save(put(tmp_path / "oslo") / "ecg.npy", np.ones((1, 3)))
        refused(tmp_path / "oslo", "has 3 columns instead of 2", read=lambda f: read_site(f, self.EXPECTED))


class TestWriteSite:
    @pytest.mark.parametrize(
        ("changes", "part"),
        [
            ({"format": "xlsx"}, "format must be one of parquet, csv, npy, npz, got 'xlsx'"),
            ({"format": "npy", "ids": [1, 2]}, "format 'npy' has no place for ids and columns"),
            ({"ids": [1, 2, 3]}, "has 2 rows, but there are 3 ids"),
            ({"ids": [1, 1]}, "duplicate ids 1"),
            ({"ids": [1.5, 2.5]}, "ids are whole numbers or text"),
            ({"columns": {"a": ["x"]}}, "columns must be 2 different names"),
            ({"columns": {"a": ["x", "id"]}}, "other than 'id'"),
            ({"views": {}}, "at least one"),
            ({"views": {"a": None}}, "at least one"),
            ({"views": {"a": np.ones((2, 2)), "b": np.ones((3, 2))}}, "equally many rows"),
            ({"views": {"a": np.ones(2)}}, "a view is (rows, columns)"),
            ({"views": {"a": np.ones((2, 3, 4))}}, "a tensor is an npy or npz file"),
            ({"views": {"a": np.ones((2, 3, 4))}, "columns": {"a": "xyz"}, "format": "npz"}, "without columns"),
            ({"views": {"../a": np.ones((2, 2))}}, "named like files, got '../a'"),
        ],
    )
    def test_what_could_not_be_read_again_is_not_written(self, tmp_path, changes, part):
        with pytest.raises(DataError) as caught:
            write_site(tmp_path / "oslo", **{"views": {"a": np.ones((2, 2))}, **changes})
        assert part in str(caught.value)
        assert list(tmp_path.iterdir()) == []

    def test_a_site_is_never_written_over(self, tmp_path):
        write_site(tmp_path / "f" / "oslo", {"a": np.ones((2, 2))})
        with pytest.raises(DataError, match="exists already"):
            write_site(tmp_path / "f" / "oslo", {"b": np.ones((2, 2))})
        assert [path.name for path in (tmp_path / "f").rglob("*")] == ["oslo", "a.parquet"]

    def test_a_failed_write_leaves_nothing(self, tmp_path, monkeypatch):
        def full(path, content):
            if path.name == "b.csv":
                raise OSError("disk full")
            path.open("wb").close()

        monkeypatch.setattr("pathlib.Path.write_bytes", full)
        with pytest.raises(OSError, match="disk full"):
            write_site(tmp_path / "oslo", {"a": np.ones((2, 2)), "b": np.ones((2, 2))}, format="csv")
        assert list(tmp_path.iterdir()) == []


class TestMuData:
    def test_the_extra_is_named_where_it_is_absent(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "mudata", None)
        (put(tmp_path / "oslo") / "cells.h5mu").write_bytes(b"")
        refused(tmp_path, "site 'oslo', file 'cells.h5mu'", "pip install 'fedhk[mudata]'")

    @needs_mudata
    def test_modalities_are_views_and_cells_are_rows(self, tmp_path):
        folder = put(tmp_path / "oslo")
        rna, protein = np.arange(6.0).reshape(3, 2), np.eye(2, dtype=np.float32)
        write_mudata(folder / "cells.h5mu", rna=(rna, "abc"), protein=(sp.csr_matrix(protein), "cd"))
        federation = read_federation(tmp_path)
        site = federation.sites["oslo"]
        assert federation.columns == {"protein": ("protein0", "protein1"), "rna": ("rna0", "rna1")}
        assert site.ids.tolist() == ["c", "d", "a", "b"]
        np.testing.assert_array_equal(site.views["protein"], [[1, 0], [0, 1], [np.nan] * 2, [np.nan] * 2])
        np.testing.assert_array_equal(site.views["rna"], [rna[2], [np.nan] * 2, rna[0], rna[1]])
        assert site.views["protein"].dtype == np.float32

    @needs_mudata
    def test_files_of_other_kinds_may_stand_beside_it(self, tmp_path):
        folder = put(tmp_path / "oslo", clinic="id,age\nb,40\n")
        write_mudata(folder / "cells.h5mu", rna=(np.ones((2, 2)), "ab"))
        site = read_site(folder)
        np.testing.assert_array_equal(site.views["clinic"], [[40], [np.nan]])
        put(folder, rna="id,age\nb,40\n")
        refused(tmp_path, "view 'rna'", "'cells.h5mu'", "'rna.csv'")

    @needs_mudata
    def test_damaged_files_are_refused(self, tmp_path):
        path = put(tmp_path / "oslo") / "cells.h5mu"
        write_mudata(path, rna=(np.ones((2, 2)), "ab"))
        content = path.read_bytes()
        for part in (b"", b"text" * 99, content[:700], content[:-5000]):
            path.write_bytes(part)
            refused(tmp_path, "site 'oslo', file 'cells.h5mu': cannot be read")


def write_mudata(path, **views):
    import anndata  # noqa: PLC0415
    import mudata  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415

    parts = {
        name: anndata.AnnData(
            X, obs=pd.DataFrame(index=list(ids)), var=pd.DataFrame(index=[f"{name}{j}" for j in range(X.shape[1])])
        )
        for name, (X, ids) in views.items()
    }
    with mudata.set_options(pull_on_update=False):
        mudata.MuData(parts).write_h5mu(path)
