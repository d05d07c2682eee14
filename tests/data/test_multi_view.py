"""Views that scikit-learn splits by rows."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split

from fedhk import HeatKernelMVC, MultiView
from fedhk.datasets import make_sites
from fedhk.errors import DataError


@pytest.fixture
def data():
    return make_sites(1, 120, n_clusters=3, separation=9, random_state=0)


def test_folds_are_the_same_rows_of_all_views(data):
    scores = cross_val_score(HeatKernelMVC(3, random_state=0), MultiView(data.views), cv=KFold(4))
    rows = np.arange(120)
    for score, (train, test) in zip(scores, KFold(4).split(rows), strict=True):
        model = HeatKernelMVC(3, random_state=0).fit([view[train] for view in data.views])
        assert score == model.score([view[test] for view in data.views])


def test_a_search_finds_the_number_of_clusters(data):
    search = GridSearchCV(HeatKernelMVC(random_state=0), {"n_clusters": [2, 3, 6]}, cv=3).fit(MultiView(data.views))
    assert search.best_params_ == {"n_clusters": 3}


def test_frames_and_sparse_matrices_are_split_too(data):
    first, second = data.views[:2]
    views = MultiView(
        {
            "frame": pd.DataFrame(first).rename(columns=str),
            "sparse": sp.csr_matrix(second),
            "polars": pl.DataFrame(first),
        }
    )
    train, test = train_test_split(views, test_size=30, random_state=0)
    assert (train.shape, test.shape) == ((90, 3), (30, 3))
    assert HeatKernelMVC(3, random_state=0).fit(train).predict(test).shape == (30,)


def test_views_of_other_rows_are_refused(data):
    with pytest.raises(ValueError, match="same rows"):
        MultiView([data.views[0], data.views[1][:5]])
    with pytest.raises(DataError, match="must be a list or dict of tables, got ndarray"):
        MultiView(data.views[0])
