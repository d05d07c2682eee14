"""Views that are tensors: flattened in one order, with a shape that is remembered and compared."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from fedhk.data.views import check_views, shapes_by_view, size_text

TENSOR = np.arange(48.0).reshape(2, 6, 4)


class TestTensors:
    def test_rows_are_flattened_in_c_order_however_they_are_stored(self):
        for stored in (TENSOR, np.asfortranarray(TENSOR), TENSOR.tolist()):
            views = check_views({"ecg": stored, "age": np.ones((2, 1))})
            assert_array_equal(views.tables[0], TENSOR.reshape(2, 24))
            assert views.widths == (24, 1)
            assert views.columns == ((6, 4), None)
            assert views.shapes == ((6, 4), (1,))

    def test_c_ordered_and_memory_mapped_arrays_are_not_copied(self, tmp_path):
        np.save(tmp_path / "x.npy", TENSOR)
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        for stored in (TENSOR, mapped):
            assert np.shares_memory(check_views([stored]).tables[0], stored)

    def test_any_number_of_axes_and_no_rows(self):
        views = check_views([np.zeros((0, 2, 3, 1, 5)), None], missing_views=True, min_rows=0)
        assert views.shapes == ((2, 3, 1, 5), None)
        assert views.tables[0].shape == (0, 30)

    def test_missing_cells_and_infinities_are_found(self):
        holed = TENSOR.copy()
        holed[1, 2, 3] = np.nan
        assert check_views([holed, TENSOR]).missing == (True, False)
        holed[0, 0, 0] = np.inf
        with pytest.raises(ValueError, match="'view_0' contains infinity"):
            check_views([holed])

    def test_the_shape_of_a_view_is_a_tensors_if_any_site_has_one(self):
        sites = [{"b": TENSOR.reshape(2, 24)}, {"a": np.ones((2, 3)), "b": TENSOR}, {"a": None, "b": None}]
        found = shapes_by_view([check_views(site, missing_views=True) for site in sites[:2]])
        assert list(found.items()) == [("b", (6, 4)), ("a", (3,))]


class TestAgainstAModel:
    def check(self, X, columns):
        return check_views([X], names=["ecg"], widths=[24], columns=[columns])

    def test_the_same_shape_and_flat_rows_are_accepted(self):
        for X, columns in ((TENSOR, (6, 4)), (TENSOR.reshape(2, 24), (6, 4)), (TENSOR, None)):
            assert_array_equal(self.check(X, columns).tables[0], TENSOR.reshape(2, 24))

    @pytest.mark.parametrize(
        ("X", "columns", "message"),
        [
            (np.ones((2, 4, 6)), (6, 4), r"'ecg' has shape \(n, 4, 6\), but the model expects shape \(n, 6, 4\)"),
            (np.ones((2, 6, 5)), (6, 4), r"'ecg' has shape \(n, 6, 5\), but the model expects shape \(n, 6, 4\)"),
            (np.ones((2, 6, 2, 2)), (6, 4), r"'ecg' has shape \(n, 6, 2, 2\), but the model expects shape"),
            (np.ones((2, 23)), (6, 4), r"'ecg' has 23 features, but the model expects shape \(n, 6, 4\)"),
            (np.ones((2, 5, 5)), None, r"'ecg' has shape \(n, 5, 5\), but the model expects 24 features"),
            (TENSOR, tuple("abcdefghijklmnopqrstuvwx"), r"'ecg' has shape \(n, 6, 4\), but .* 24 named columns"),
            (pd.DataFrame(np.ones((2, 24))).add_prefix("c"), (6, 4), r"'ecg' has 24 named columns, but .*\(n, 6, 4\)"),
        ],
    )
    def test_other_shapes_are_named(self, X, columns, message):
        with pytest.raises(ValueError, match=message):
            self.check(X, columns)


def test_sizes_in_words():
    assert size_text(None, 24) == "24 features"
    assert size_text(("a", "b"), 2) == "2 named columns"
    assert size_text((6, 4), 24) == "shape (n, 6, 4)"


class TestRowNames:
    """Data frames that name their rows are not paired by order where their orders differ."""

    @staticmethod
    def frames(first, second):
        values = np.arange(6.0).reshape(3, 2)
        return {"blood": pd.DataFrame(values, index=first), "vitals": pd.DataFrame(values, index=second)}

    def test_another_order_is_refused_by_name(self):
        with pytest.raises(ValueError, match=r"row 1 of 'blood' is 'b' and that of 'vitals' is 'c'.*reindex"):
            check_views(self.frames(["a", "b", "c"], ["a", "c", "b"]))

    def test_the_same_order_is_taken(self):
        assert check_views(self.frames([5, 3, 4], [5, 3, 4])).n_rows == 3

    def test_an_index_that_only_counts_says_nothing(self):
        assert check_views(self.frames([0, 1, 2], [7, 9, 8])).n_rows == 3


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float32])
def test_sparse_counts_and_flags_become_floats(dtype):
    table = sp.csr_array(np.eye(4, 3)).astype(dtype)
    read = check_views([table]).tables[0]
    assert read.dtype.kind == "f"
    assert np.array_equal(read.toarray(), np.eye(4, 3))


def test_complex_sparse_tables_are_refused():
    with pytest.raises(ValueError, match="Complex data not supported: view 'view_0'"):
        check_views([sp.csr_array(np.eye(3) * 1j)])
