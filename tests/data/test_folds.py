"""Very wide views folded to few columns."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp

from fedhk.data.folds import FOLDED_WIDTH, WIDEST, Fold, _scatter, find_wide, fold_views, make_fold
from fedhk.data.row_forms import PLAIN_ROWS, UNIT_ROWS
from fedhk.data.scaling import UnitRows
from fedhk.data.views import check_views

WIDE = WIDEST + 1000


def sparse_rows(n_rows: int, n_columns: int, seed: int) -> sp.csr_array:
    return sp.random_array((n_rows, n_columns), density=40 / n_columns, format="csr", rng=np.random.default_rng(seed))


def test_places_are_the_same_for_ever() -> None:
    scatter = _scatter(WIDE, FOLDED_WIDTH)
    assert scatter.indices[:8].tolist() == [1751, 762, 679, 246, 589, 373, 368, 1438]
    assert scatter.data[:8].tolist() == [-0.5, 0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5]


def test_products_of_rows_stay_what_they_were_but_for_the_stated_error() -> None:
    rows = UNIT_ROWS.sparse(sparse_rows(200, WIDE, seed=1))
    folded = Fold(WIDE, FOLDED_WIDTH, PLAIN_ROWS).apply(rows)
    error = (folded @ folded.T - rows @ rows.T).toarray()
    assert abs(error.mean()) < 0.1 / np.sqrt(FOLDED_WIDTH)
    assert np.sqrt(np.mean(error**2)) < 1.2 / np.sqrt(FOLDED_WIDTH)


def test_folding_adds_like_rows() -> None:
    rows = sparse_rows(6, WIDE, seed=2)
    fold = Fold(WIDE, FOLDED_WIDTH, PLAIN_ROWS)
    together = fold.apply(sp.csr_array(rows.sum(axis=0)[None, :]))
    np.testing.assert_allclose(together.toarray()[0], fold.apply(rows).sum(axis=0), atol=1e-12)


def test_sums_by_cluster_are_those_of_rows_in_their_form() -> None:
    rows, labels, weight = sparse_rows(9, WIDE, seed=3), np.arange(9) % 2, np.arange(1.0, 10.0)
    fold = make_fold(WIDE, UnitRows(), np.zeros(0), 9.0, negative=False)
    formed = UNIT_ROWS.sparse(rows).toarray() * weight[:, None]
    sums = fold.sums(rows, labels, 3, weight).toarray()
    np.testing.assert_allclose(sums, [formed[labels == 0].sum(0), formed[labels == 1].sum(0), np.zeros(WIDE)])


def test_words_are_weighed_unless_a_cell_is_negative() -> None:
    documents = np.ones(WIDE)
    assert len(make_fold(WIDE, None, documents, 10.0, negative=False).form.weights) == WIDE
    assert make_fold(WIDE, None, documents, 10.0, negative=True).form.is_plain


def test_only_views_that_are_sparse_and_wide_everywhere_are_folded() -> None:
    wide, other, narrow = sparse_rows(3, WIDE, seed=4), sparse_rows(3, WIDE + 1, seed=4), sparse_rows(3, 50, seed=4)
    sites = [
        check_views({"a": wide, "b": wide, "c": narrow, "d": wide}),
        check_views({"a": wide, "b": other, "c": narrow, "d": wide.toarray()}),
    ]
    assert find_wide(sites) == {"a": (WIDE, None)}
    assert find_wide(sites[:1]).keys() == {"a", "b", "d"}


def test_other_columns_and_missing_cells_are_refused() -> None:
    folds = {"a": Fold(WIDE, FOLDED_WIDTH, PLAIN_ROWS)}
    with pytest.raises(ValueError, match="View 'a': a view is folded that has other columns"):
        fold_views(check_views({"a": sparse_rows(3, WIDE + 1, seed=5)}), folds)
    gap = sparse_rows(3, WIDE, seed=5).toarray()
    gap[0, 0] = np.nan
    with pytest.raises(ValueError, match=re.escape(f"View 'a' has missing cells, and its {WIDE} columns are folded")):
        fold_views(check_views({"a": gap}), folds)
