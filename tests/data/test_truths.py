import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC, FedHKDiffusion, HeatKernelMVC, from_frame, load
from fedhk.data.clients import check_clients
from fedhk.data.truths import encode_truths, find_truths


@pytest.fixture
def frame():
    """Three clusters that five numbers show, and a yes or no that has nothing to do with them."""
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=300)
    columns = {f"x{j}": rng.normal(size=3)[group] * 4 + rng.normal(size=300) for j in range(5)}
    found = pd.DataFrame({"hospital": rng.choice(["oslo", "rome"], 300), **columns, "group": group})
    return found.assign(smoker=rng.random(300) < 0.5)


def _fit(frame, estimator=EFKMVC, categories=(), **options):
    sites = from_frame(frame.drop(columns="group"), site="hospital", categories=categories)
    return estimator(random_state=0, **options).fit(sites)


def _agreement(model, frame):
    labels = model.labels_frame()
    return adjusted_rand_score(frame["group"].loc[labels["row"]], labels["cluster"])


class TestAColumnOfTwoWholeNumbersIsACategory:
    @pytest.mark.parametrize("kind", [bool, int, float, "boolean"])
    def test_whatever_its_type_is(self, frame, kind):
        declared = _fit(frame.astype({"smoker": int}), categories=["smoker"], n_clusters=3)
        model = _fit(frame.astype({"smoker": kind}), n_clusters=3)
        assert model.view_columns_["table"][-2:] == ("smoker = 0", "smoker = 1")
        assert model.labels_frame().equals(declared.labels_frame())

    @pytest.mark.parametrize("estimator", [EFKMVC, FedHKDiffusion])
    def test_clusters_are_not_split_by_it(self, frame, estimator):
        model = _fit(pd.get_dummies(frame, columns=["smoker"]), estimator, n_clusters=3)
        assert _agreement(model, frame) > 0.9

    @pytest.mark.filterwarnings("ignore:.*n_clusters='auto'")
    def test_the_number_of_clusters_is_that_of_text(self, frame):
        words = frame.assign(smoker=np.where(frame["smoker"], "yes", "no"))
        assert _fit(frame, n_clusters="auto").n_clusters_ == _fit(words, n_clusters="auto").n_clusters_

    def test_one_table_alike(self, frame):
        table = frame[["x0", "x1", "smoker"]].astype({"smoker": int})
        model = HeatKernelMVC(3, random_state=0).fit(table)
        assert model.view_columns_["view_0"] == ("x0", "x1", "smoker = 0", "smoker = 1")
        np.testing.assert_array_equal(model.predict(table), model.labels_)
        np.testing.assert_array_equal(model.predict(table.to_numpy(float)), model.labels_)

    def test_codes_are_no_better_than_zero_and_one(self):
        tables = [np.array([[1.0, 0.5], [2.0, 1.5]]), np.array([[2.0, 1.0], [np.nan, 1.0]])]
        assert find_truths(tables, ["sex", "dose"]) == {"sex": (1.0, 2.0)}


class TestAllSitesAgree:
    def test_a_third_value_at_one_site_makes_it_a_number_everywhere(self, frame):
        frame = frame.astype({"smoker": int})
        frame.loc[frame.index[frame["hospital"] == "rome"][-1], "smoker"] = 2
        assert _fit(frame, n_clusters=3).view_columns_["table"][-1] == "smoker"

    def test_sites_may_have_one_value_each(self, frame):
        model = _fit(frame.assign(smoker=(frame["hospital"] == "oslo").astype(int)), n_clusters=3)
        assert model.view_columns_["table"][-2:] == ("smoker = 0", "smoker = 1")


class TestNumbersStayNumbers:
    def test_of_arrays(self, frame):
        table = frame[["x0", "smoker"]].to_numpy(float)
        assert HeatKernelMVC(3, random_state=0).fit(table).cluster_centers_.shape == (3, 2)

    def test_of_counts_that_all_begin_at_zero(self):
        counts = np.random.default_rng(0).poisson([0.1, 3.0, 5.0], (200, 3)).clip([0, 0, 0], [1, 99, 99])
        assert not find_truths([counts], ["rare", "often", "more"])

    def test_of_columns_of_one_value(self):
        assert not find_truths([np.ones((5, 1))], ["one"])

    def test_that_are_no_whole_numbers(self):
        assert not find_truths([np.array([[0.5], [1.0], [0.5]])], ["dose"])

    def test_whose_ends_move_from_block_to_block(self):
        rows = np.repeat([[0.0], [1.0], [2.0]], 5000, axis=0)
        assert not find_truths([rows], ["x"])
        assert find_truths([rows[:10000]], ["x"]) == {"x": (0.0, 1.0)}

    def test_where_masks_or_noise_hide_rows(self, frame):
        """Levels would be read off rows there."""
        pytest.importorskip("cryptography", reason="secure sums need the extra 'privacy'")
        frame = frame.assign(hospital=np.resize(["bern", "oslo", "rome"], 300)).astype({"smoker": int})
        with pytest.warns(UserWarning, match="columns of two values are numbers here"):
            model = _fit(frame, n_clusters=3, secure=True)
        assert model.view_columns_["table"][-1] == "smoker"

    @pytest.mark.filterwarnings("ignore:from_frame")
    def test_of_dates(self, frame):
        days = pd.Timestamp("2026-01-01") + pd.to_timedelta(frame["smoker"].astype(int), "D")
        assert _fit(frame.assign(smoker=days), n_clusters=3).view_columns_["table"][-1] == "smoker"

    def test_where_a_site_gives_an_array(self, frame):
        table = frame[["x0", "smoker"]].astype(float)
        sites = check_clients({"oslo": {"a": table}, "rome": {"a": table.to_numpy()}})
        assert encode_truths(sites) == sites


class TestNewRows:
    @pytest.fixture
    def model(self, frame):
        return _fit(frame.astype({"smoker": int}), n_clusters=3)

    @pytest.mark.parametrize("kind", [bool, int, float, object, "category"])
    def test_are_read_by_their_value(self, model, frame, kind, tmp_path):
        rows = frame.drop(columns=["hospital", "group"]).head(10)
        expected = model.predict(rows.astype({"smoker": int}))
        rows = (
            rows.astype({"smoker": int}).astype({"smoker": kind})
            if kind == "category"
            else rows.astype({"smoker": kind})
        )
        np.testing.assert_array_equal(model.predict(rows), expected)
        np.testing.assert_array_equal(model.predict({"table": rows}), expected)
        model.save(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(load(tmp_path / "m.safetensors").predict(rows), expected)

    def test_may_lack_it(self, model, frame):
        rows = frame.drop(columns=["hospital", "group"]).head(3)
        assert len(model.predict(rows.assign(smoker=np.nan))) == 3

    def test_with_another_value_are_refused_by_name(self, model, frame):
        rows = frame.drop(columns=["hospital", "group"]).head(3).assign(smoker=[0, 1, 2])
        with pytest.raises(ValueError, match=r"'smoker' has the unknown level '2' in row 2; known are \['0', '1'\]"):
            model.predict(rows)


def test_under_masks_columns_of_two_values_stay_numbers_and_are_named():
    pytest.importorskip("cryptography", reason="secure sums need the extra 'privacy'")
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"age": random.normal(size=60), "smoker": random.integers(2, size=60)})
    frame["site"] = np.tile(["a", "b", "c"], 20)
    model = EFKMVC(2, secure=True, random_state=0)
    with pytest.warns(UserWarning, match=r"columns of two values are numbers here.*'table/smoker'.*categories="):
        model.fit(from_frame(frame, site="site"))
    model.fit(from_frame(frame, site="site", categories={"smoker": [0, 1]}))  # and no warning
