"""What people do in their first hour: each mistake gets a message that says what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.model_selection import GridSearchCV

import fedhk
from fedhk import EFKMVC, FedHKPerson, HeatKernelMVC, from_frame, load
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    group = np.arange(90) % 3
    columns = {"hospital": rng.choice(["oslo", "rome"], 90), "age": 40 + 15 * group + rng.normal(size=90)}
    index = [f"p{i}" for i in range(90)]
    return pd.DataFrame(columns, index).assign(sex=np.where(group == 1, "F", "M"), pulse=60 + 10 * group)


@pytest.fixture(scope="module")
def sites(frame):
    return from_frame(frame, site="hospital")


@pytest.fixture(scope="module")
def model(sites):
    return EFKMVC(3, random_state=0).fit(sites)


def test_labels_go_back_into_the_frame_by_its_index(frame, model):
    found = frame.join(model.labels_frame().set_index("row")["cluster"])["cluster"]
    np.testing.assert_array_equal(found, model.predict(frame.drop(columns="hospital")))


def test_without_an_index_a_row_is_its_place_in_the_frame(frame):
    sites = from_frame(frame.reset_index(drop=True), site="hospital")
    assert sorted(EFKMVC(3, random_state=0).fit(sites).labels_frame()["row"]) == list(range(90))


class TestWhatIsNoModel:
    @pytest.fixture
    def strange(self, frame):
        return KMeans(3, n_init=1, random_state=0).fit(frame[["age"]])

    @pytest.mark.parametrize("ask", [fedhk.profile, fedhk.stability, fedhk.place, fedhk.plot.report])
    def test_is_refused_by_its_name(self, ask, strange, sites):
        with pytest.raises(TypeError, match="must be a fitted clusterer of FedHK, got KMeans"):
            ask(strange, sites)

    def test_is_not_compared(self, strange, sites, model):
        for pair in ((model, strange), (strange, model)):
            with pytest.raises(TypeError, match="must be a fitted clusterer of FedHK, got KMeans"):
                fedhk.compare(*pair, sites)


def test_one_answer_is_a_section_of_the_report(model, sites):
    one = fedhk.profile(model, sites)
    assert fedhk.plot.report(model, sites, found=one).page == fedhk.plot.report(model, sites, found=[one]).page


class TestAModelFromAFile:
    def test_draws_the_rows_that_it_is_given(self, model, sites, tmp_path):
        model.save(tmp_path / "model.safetensors")
        read = load(tmp_path / "model.safetensors")
        sizes = [fedhk.plot.cluster_sizes(one, sites).html for one in (model, read)]
        assert sizes[0] == sizes[1]
        assert fedhk.plot.report(read, sites).page
        assert not hasattr(read, "labels_")

    def test_of_one_place_too(self, frame, tmp_path):
        table = frame[["age", "sex"]]
        HeatKernelMVC(3, random_state=0).fit(table).save(tmp_path / "model")
        assert fedhk.plot.cluster_sizes(load(tmp_path / "model"), table).html

    def test_has_its_own_ending_or_none(self, model, tmp_path):
        with pytest.raises(ValueError, match=r"must end in '.safetensors'"):
            model.save(tmp_path / "model.pkl")


class TestSearches:
    def test_of_sites_by_name_are_told_what_works(self, sites):
        with pytest.raises(DataError, match=r"list\(sites.values\(\)\) .* fedhk.MultiView; fedhk.evaluate"):
            GridSearchCV(EFKMVC(random_state=0), {"n_clusters": [2, 3]}, cv=2).fit(sites)

    def test_of_a_list_of_sites_work(self, sites):
        search = GridSearchCV(EFKMVC(random_state=0), {"n_clusters": [2, 3]}, cv=2).fit(list(sites.values()))
        assert search.best_params_["n_clusters"] in (2, 3)

    def test_an_unknown_name_is_a_key_error(self, sites):
        with pytest.raises(KeyError, match="bern"):
            sites["bern"]


class TestNewRows:
    def test_one_row_is_a_data_frame(self, model, frame):
        for own in (model, HeatKernelMVC(3, random_state=0).fit(frame[["age", "pulse"]])):
            with pytest.raises(ValueError, match=r"give a data frame, such as frame.iloc\[\[0\]\]"):
                own.predict(frame.iloc[0])

    def test_rows_without_a_value_are_named(self, model, frame):
        rows = frame[["age", "sex", "pulse"]].head(3).copy()
        rows.iloc[1] = np.nan
        with pytest.warns(
            UserWarning, match="no value in any view of row 'p1': such rows belong to all clusters alike"
        ):
            assert model.predict(rows)[1] == 0
        with pytest.warns(UserWarning, match="no value in any view of row 'p1'"):
            fedhk.place(model, rows)
        np.testing.assert_allclose(model.predict_proba(rows)[1], 1 / 3)  # which says it itself

    def test_several_sites_are_no_frame(self, model, frame):
        with pytest.raises(DataError, match=r"got DataFrame. fedhk.from_frame\(frame, site=...\) makes sites"):
            fedhk.profile(model, frame)


class TestOtherEstimators:
    def test_say_who_personalizes(self, model):
        with pytest.raises(AttributeError, match="FedHKPerson makes models of new sites"):
            model.personalize({})
        assert not hasattr(model, "personalize")
        assert hasattr(FedHKPerson(), "personalize")

    def test_own_models_are_of_sites_of_the_fit(self, model):
        with pytest.raises(KeyError, match="'bern' is none of the sites of the fit, 'oslo', 'rome'"):
            model.client_models_["bern"]
        assert model.client_models_.get("bern") is None


def test_bounds_by_column_are_in_a_dictionary():
    with pytest.raises(ValueError, match="read_dictionary"):
        DifferentialPrivacy(epsilon=1.0, delta=1e-4, bounds={"age": (0, 100)})
