"""Further tables of a site: rows are matched by their ids, and only columns that were named are kept."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedhk.data.folders import read_site, write_site
from fedhk.data.further import align_tables, keep_columns, read_further
from fedhk.errors import DataError


@pytest.fixture
def site(tmp_path):
    write_site(tmp_path / "data", {"lab": np.zeros((3, 2))}, [5, 3, 9])
    return read_site(tmp_path / "data")


def test_rows_are_in_the_order_of_the_site_and_missing_where_it_lacks_one(site, tmp_path):
    write_site(tmp_path / "also", {"later": np.array([[1.0], [2.0], [3.0]])}, [9, 4, 5], {"later": ("days",)})
    found = align_tables("rome", site, read_site(tmp_path / "also"))
    assert_array_equal(found["later"].values[:, 0], [3.0, np.nan, 1.0])


def test_tables_that_cannot_be_matched_say_why(site, tmp_path):
    write_site(tmp_path / "also", {"later": np.zeros((3, 1))})
    with pytest.raises(DataError, match="site 'rome': one folder has ids and the other has none"):
        align_tables("rome", site, read_site(tmp_path / "also"))
    write_site(tmp_path / "plain", {"lab": np.zeros((2, 1))})
    with pytest.raises(DataError, match="the same rows, not 2 and 3"):
        align_tables("rome", read_site(tmp_path / "plain"), read_site(tmp_path / "also"))


def test_a_category_goes_with_all_of_its_levels_and_other_columns_are_dropped(tmp_path):
    (tmp_path / "also").mkdir()
    (tmp_path / "also" / "later.csv").write_text("id,drug,days,died\n1,a,4,1\n2,b,5,0\n")
    (tmp_path / "also" / "other.csv").write_text("id,weight\n1,70\n2,80\n")
    kept = keep_columns(read_site(tmp_path / "also"), ["drug", "died"])
    assert list(kept.views) == ["later"]
    assert kept.columns["later"] is not None
    assert len(kept.columns["later"]) == 3
    assert "days" not in kept.columns["later"]
    assert kept.inferred == {"later": ("drug",)}


def _write_tables(folder, ids, dictionary=None):
    (folder / "data").mkdir(parents=True)
    (folder / "also").mkdir()
    (folder / "data" / "lab.csv").write_text("PatNr,crp\n7,1.5\n8,2.5\n9,0.5\n")
    (folder / "data" / "dictionary.toml").write_text('id = "PatNr"\n[lab.crp]\nkind = "number"\n')
    (folder / "also" / "later.csv").write_text(f"{ids},days\n9,30\n7,10\n8,20\n")
    if dictionary:
        (folder / "also" / "dictionary.toml").write_text(dictionary)


@pytest.mark.parametrize(
    ("ids", "dictionary"), [("PatNr", None), ("mrn", 'id = "mrn"\n[later.days]\nkind = "number"\n')]
)
def test_ids_of_further_tables_are_in_the_column_that_their_dictionary_or_that_of_the_data_names(
    tmp_path, ids, dictionary
):
    _write_tables(tmp_path, ids, dictionary)
    found = read_further(tmp_path / "also", tmp_path / "data")
    aligned = align_tables("rome", read_site(tmp_path / "data"), found)
    assert_array_equal(aligned["later"].values[:, 0], [10.0, 20.0, 30.0])
