"""Large files are read in pieces into an array on disk, and hold the same numbers."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from fedhk import EFKMVC
from fedhk.agreement.scalings import choose_rows
from fedhk.data import doubts, large, tables
from fedhk.data.folders import read_federation, read_site
from fedhk.data.named import named_views
from fedhk.data.views import check_views
from fedhk.errors import DataError

FRAME = pl.DataFrame(
    {
        "id": range(50),
        "age": [float(i % 7) for i in range(50)],
        "sex": ["F" if i < 30 else "M" for i in range(50)],
        "day": pl.Series([f"2026-01-{1 + i % 28:02d}" for i in range(50)]).str.to_date(),
        "code": [str(i % 3) if i % 5 else None for i in range(50)],
    }
)


@pytest.fixture
def small_pieces(monkeypatch):
    """Everything above 512 bytes is large, and pieces have few rows."""
    for module in (large, tables):
        monkeypatch.setattr(module, "LARGE_BYTES", 512)
    monkeypatch.setattr(tables, "CHUNK_BYTES", 256)


def write(folder, frame=FRAME):
    folder.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(folder / "lab.parquet")
    return folder


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_pieces_hold_what_the_whole_file_holds(tmp_path, form, request):
    folder = tmp_path / "oslo"
    folder.mkdir()
    (FRAME.write_parquet if form == "parquet" else FRAME.write_ipc)(folder / f"lab.{form}")
    whole = read_site(folder)
    request.getfixturevalue("small_pieces")
    pieces = read_site(folder)
    assert isinstance(pieces.views["lab"].base, np.memmap) or isinstance(pieces.views["lab"], np.memmap)
    assert (pieces.columns, pieces.kinds, pieces.inferred) == (whole.columns, whole.kinds, whole.inferred)
    np.testing.assert_array_equal(pieces.views["lab"], whole.views["lab"])
    np.testing.assert_array_equal(pieces.ids, whole.ids)


@pytest.mark.usefixtures("small_pieces")
def test_a_wrong_cell_is_named_with_its_row_in_the_file(tmp_path):
    text = FRAME.with_columns(pl.Series("age", ["1"] * 41 + ["old"] + ["2"] * 8))
    with pytest.raises(DataError, match="column 'age' holds text, 'old' in row 42, where a number is expected"):
        read_site(write(tmp_path / "oslo", text))


@pytest.mark.usefixtures("small_pieces")
def test_arrays_are_not_read_before_they_are_needed(tmp_path):
    (tmp_path / "oslo").mkdir()
    np.save(tmp_path / "oslo" / "ecg.npy", np.arange(200.0).reshape(50, 4))
    assert isinstance(read_site(tmp_path / "oslo").views["ecg"].base, np.memmap)


def test_rows_that_are_put_in_order_and_levels_that_are_added_give_the_same_fit(tmp_path, request):
    write(tmp_path / "oslo")
    write(tmp_path / "rome", FRAME.with_columns(sex=pl.lit("X"), age=pl.col("age") + 1))
    FRAME.select("id", height=pl.col("age") * 2).reverse().write_parquet(tmp_path / "oslo" / "body.parquet")

    def fit():
        sites = {name: named_views(site) for name, site in read_federation(tmp_path).sites.items()}
        return EFKMVC(2, random_state=0, scaling="standard").fit(sites)

    whole = fit()
    request.getfixturevalue("small_pieces")
    pieces = fit()
    for ours, theirs in zip(pieces.cluster_centers_, whole.cluster_centers_, strict=True):
        np.testing.assert_array_equal(ours, theirs)


class TestText:
    """Large text files."""

    @pytest.mark.parametrize("separator", [",", ";"])
    def test_pieces_hold_what_the_whole_file_holds(self, tmp_path, separator, request):
        folder = tmp_path / "oslo"
        folder.mkdir()
        text = FRAME.with_columns(
            pl.col("age") + 0.5, note=pl.Series(['a "b", c; d' if i % 2 else "d" for i in range(50)])
        )
        text.write_csv(folder / "lab.csv", separator=separator)
        whole = read_site(folder)
        request.getfixturevalue("small_pieces")
        pieces = read_site(folder)
        assert (pieces.columns, pieces.kinds, pieces.inferred) == (whole.columns, whole.kinds, whole.inferred)
        np.testing.assert_array_equal(pieces.views["lab"], whole.views["lab"])
        np.testing.assert_array_equal(pieces.ids, whole.ids)

    @pytest.mark.usefixtures("small_pieces")
    def test_a_short_line_is_named(self, tmp_path):
        (tmp_path / "oslo").mkdir()
        lines = [f"{i},{i}.25,{i}.75" for i in range(100)]
        lines[70] = "70,1"
        (tmp_path / "oslo" / "lab.csv").write_text("\n".join(["id,a,b", *lines, ""]))
        with pytest.raises(DataError, match="line 72 has fewer than 3 cells"):
            read_site(tmp_path / "oslo")


def test_what_is_asked_of_all_rows_takes_no_copy_of_the_table(monkeypatch):
    monkeypatch.setattr(doubts, "FIRST_CELLS", 2**14)
    table = np.ones((20_000, 100))
    views, site = check_views([table]), SimpleNamespace(views={"lab": table}, ids=None, doubts=())
    tracemalloc.start()
    try:
        choose_rows(views)
        assert list(doubts.find_doubts({"oslo": site}, {"lab": tuple(f"x{i}" for i in range(100))}))
        assert tracemalloc.get_traced_memory()[1] < table.nbytes / 2
    finally:
        tracemalloc.stop()
