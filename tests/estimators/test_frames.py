"""What a fitted model says as data frames."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from fedhk import EFKMVC, HeatKernelMVC, from_frame, load
from fedhk.errors import MissingPackageError

ROWS = pd.DataFrame(
    {"site": list("abab"), "x": [0.0, 0.2, 5.0, 5.1], "k": ["u", "u", "v", "v"]}, index=["p1", "p2", "p3", "p4"]
)


@pytest.fixture(scope="module")
def model():
    return EFKMVC(2, random_state=0, scaling="standard").fit(from_frame(ROWS, site="site", views={"lab": ["x", "k"]}))


def test_labels_name_rows_by_their_index(model):
    frame = model.labels_frame()
    assert list(frame.columns) == ["site", "row", "cluster", "certainty"]
    assert frame["row"].tolist() == ["p1", "p3", "p2", "p4"]
    assert frame["cluster"].tolist() == [*model.labels_["a"], *model.labels_["b"]]
    assert frame["certainty"].between(0.5, 1).all()


def test_rows_without_names_are_counted():
    fitted = HeatKernelMVC(2, random_state=0).fit([[0.0], [0.1], [5.0]])
    assert fitted.labels_frame()["row"].tolist() == [0, 1, 2]
    assert "site" not in fitted.labels_frame()


def test_centres_of_levels_are_shares(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    for each in (model, load(tmp_path / "model.safetensors")):
        frame = each.centers_frame()
        assert frame["column"].tolist() == ["x", "k", "k"] * 2
        shares = frame.dropna(subset="level").groupby("cluster")["center"].sum()
        np.testing.assert_allclose(shares, 1.0)
        assert set(frame["level"].dropna()) == {"u", "v"}


def test_an_ordered_column_has_its_own_name_and_a_rank_as_centre():
    stage = pd.Categorical(["I", "I", "III", "III"], categories=["I", "II", "III"], ordered=True)
    rows = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.1], "stage": stage})
    frame = HeatKernelMVC(2, random_state=0).fit(rows).centers_frame()
    assert frame["column"].tolist() == ["x", "stage"] * 2
    assert frame["level"].isna().all()
    assert sorted(frame.query("column == 'stage'")["center"].round(6)) == [0.0, 2.0]


def test_the_history_is_a_line_per_round(model):
    assert model.history_frame()["round"].tolist() == list(range(1, model.n_iter_ + 1))


def test_nothing_comes_before_the_fit():
    for name in ("labels_frame", "centers_frame", "history_frame"):
        with pytest.raises(NotFittedError):
            getattr(EFKMVC(2), name)()


def test_a_missing_package_is_one_sentence(model, monkeypatch):
    def absent(name, *args):
        raise ImportError(name)

    monkeypatch.setattr("fedhk.data.frames.import_module", absent)
    with pytest.raises(MissingPackageError, match=r"pip install 'fedhk\[frames\]'"):
        model.history_frame()


def test_a_model_from_a_file_says_that_it_has_no_rows(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 2))
    HeatKernelMVC(2, random_state=0).fit(rows).save(tmp_path / "model")
    model = load(tmp_path / "model")
    with pytest.raises(AttributeError, match=r"read from a file.*Call predict"):
        model.labels_frame()
    assert not hasattr(model, "labels_")
