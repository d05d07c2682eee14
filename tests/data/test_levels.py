"""Text, categories and dates of data frames as numbers: levels, weights, the union over sites, refusals."""

import datetime
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhk import EFKMVC, HeatKernelMVC
from fedhk.data.clients import check_clients
from fedhk.data.levels import common_columns, encode_frame, fit_columns, level_groups
from fedhk.data.views import check_views
from fedhk.errors import DataError
from fedhk.model.preparation import prepare

LETTERS = st.lists(st.one_of(st.none(), st.sampled_from("abc")), min_size=3, max_size=30)


class TestOneFrame:
    def test_a_category_becomes_a_column_for_each_level(self):
        table = encode_frame(pd.DataFrame({"age": [1.0, 2.0], "sex": ["M", "F"]}), "v")
        assert table.columns == ("age", "sex = F", "sex = M")
        np.testing.assert_array_equal(table.values, [[1, 0, 1], [2, 1, 0]])

    def test_pandas_and_polars_give_the_same(self):
        cells = {"age": [1.5, None, 3.0], "sex": ["M", None, "F"], "ill": [True, False, None]}
        table, other = encode_frame(pd.DataFrame(cells), "v"), encode_frame(pl.DataFrame(cells), "v")
        assert table.columns == other.columns
        np.testing.assert_array_equal(table.values, other.values)

    @given(LETTERS)
    def test_levels_of_a_row_add_up_to_one_or_are_all_missing(self, cells):
        table = encode_frame(pd.DataFrame({"n": np.arange(len(cells)), "k": [*cells]}, dtype=object), "v")
        levels = table.values[:, 1:]
        for cell, row in zip(cells, levels, strict=True):
            assert np.isnan(row).all() if cell is None else row.sum() == 1

    def test_a_frame_of_numbers_is_left_as_it_is(self):
        frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
        assert encode_frame(frame, "v") is frame

    def test_text_that_is_numbers_in_every_cell_is_numbers(self):
        assert encode_frame(pd.DataFrame({"a": ["1.5", " 2", None]}), "v").columns == ("a",)

    def test_ordered_categories_are_ranks_and_their_order_is_in_the_name(self):
        stage = pd.Categorical(["II", "I", None], categories=["I", "II", "III"], ordered=True)
        table = encode_frame(pd.DataFrame({"stage": stage}), "v")
        assert table.columns == ("stage (I < II < III)",)
        np.testing.assert_array_equal(table.values, [[1], [0], [np.nan]])

    def test_dates_are_days(self):
        days = [datetime.date(1970, 1, 2), datetime.date(1970, 1, 11)]
        for frame in (pd.DataFrame({"d": pd.to_datetime(days)}), pl.DataFrame({"d": days}), pd.DataFrame({"d": days})):
            np.testing.assert_array_equal(encode_frame(frame, "v").values, [[1], [10]])

    def test_dates_with_a_time_zone_are_days_of_utc(self):
        frame = pd.DataFrame({"d": pd.to_datetime(["1970-01-02 01:00", None]).tz_localize("Europe/Berlin")})
        np.testing.assert_array_equal(encode_frame(frame, "v").values, [[1], [np.nan]])

    @pytest.mark.parametrize(
        ("column", "said"),
        [
            ([f"patient {i}" for i in range(30)], "'v', column 'k' holds text with 30 different values in 30 cells"),
            (["3.4.2020", "12.11.2021"], "column 'k' holds dates as text, such as '12.11.2021'"),
            (
                ["3.4.2020", "4.4.2020", "46023"],
                "column 'k' holds dates as text, such as '3.4.2020', and '46023' beside",
            ),
            (["2026-01", "2026-02"], "column 'k' holds dates as text, such as '2026-01'"),
            (["Jan 2026", "12-Feb-26"], "column 'k' holds dates as text, such as '12-Feb-26'"),
            (["8:30", "9:30 pm"], "column 'k' holds times of the day as text, such as '8:30'"),
            (["1,5", "2,5", "3"], "column 'k' holds numbers as text, such as '1,5'"),
            (["120/80", "130/85", "unknown"], "column 'k' holds two numbers in a cell, such as '120/80'"),
            (
                [*map(str, range(30)), "<5", "<5", "80 bpm"],
                "'k' holds numbers, but 3 of its 33 cells are text: '<5', '80 bpm'; the first is in row 30. Write",
            ),
            ([1.5, 2.5, "hemolytic", None], "'k' holds numbers, but 1 of its 3 cells is text: 'hemolytic'; the first"),
            ([{1}, {2}], "column 'k' holds set, '{1}' in row 0"),
        ],
    )
    def test_what_is_no_category_is_refused_with_column_and_value(self, column, said):
        with pytest.raises(ValueError, match=re.escape(said)):
            encode_frame(pd.DataFrame({"k": column}), "v")

    @pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["F", "M", "X"])])
    def test_categories_of_polars_are_categories(self, kind):
        table = encode_frame(pl.DataFrame({"sex": ["M", "F", None]}).cast(kind), "v")
        assert table.columns[:2] == ("sex = F", "sex = M")
        np.testing.assert_array_equal(table.values[:, :2], [[0, 1], [1, 0], [np.nan, np.nan]])

    @pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
    @pytest.mark.parametrize("name", ["id", "patient_id", "mrn", "caseId"])
    def test_columns_that_say_whose_a_row_is_are_refused_as_in_files(self, kind, name):
        with pytest.raises(ValueError, match=f"View 'v', column '{name}' looks like an identifier of rows"):
            encode_frame(kind({"x": [1.5, 2.5, 3.5], name: [7, 3, 9]}), "v")
        encode_frame(kind({"x": [1.5, 2.5, 3.5], name: [7, 3, 7]}), "v")
        encode_frame(kind({"x": [1.5, 2.5, 3.5], "valid": [7, 3, 9]}), "v")

    def test_two_columns_of_one_name_are_refused(self):
        frame = pd.DataFrame([["a", "b"]], columns=["k", "k"])
        with pytest.raises(ValueError, match=r"columns \['k'\] appear more than once"):
            encode_frame(frame, "v")


class TestWeight:
    @given(st.integers(2, 14), st.integers(0, 5))
    def test_to_split_off_a_level_gains_less_than_to_split_a_number_however_many_levels_there_are(self, n_levels, seed):
        rng = np.random.default_rng(seed)
        chances = rng.dirichlet(np.ones(n_levels))
        cells = [*map(str, rng.choice(n_levels, size=400, p=chances)), *map(str, range(n_levels))]
        frame = pd.DataFrame({"x": rng.normal(size=len(cells)), "k": [f"level {cell}" for cell in cells]})
        views = check_views([frame])
        (reference,) = prepare(views, "standard", "uniform", None)
        rows = (views.tables[0] - reference.shift) / reference.scale
        number, levels = rows[:, 0], rows[:, 1:]
        shares = views.tables[0][:, 1:].mean(axis=0)
        np.testing.assert_allclose(levels.var(axis=0) / number.var(), shares ** (1 / 3) * (1 - shares))
        halves = number > number.mean()
        split = number.var() - np.mean([number[halves].var(), number[~halves].var()])
        assert levels.var(axis=0).max() < split
        rarest = np.argsort(shares)[: n_levels // 2]  # of those below a quarter, the rarer one varies less
        assert np.all(np.diff(levels.var(axis=0)[rarest][shares[rarest] < 0.25]) >= -1e-12)


class TestSeveralSites:
    def test_levels_are_those_of_all_sites_and_columns_are_found_by_name(self):
        sites = check_clients(
            {
                "a": [pd.DataFrame({"x": [1.0, 2.0], "k": ["u", None]})],
                "b": [pd.DataFrame({"k": ["w", "v"], "x": [3.0, 4.0]})],
            }
        )
        assert {views.columns for views in sites.values()} == {(("x", "k = u", "k = v", "k = w"),)}
        np.testing.assert_array_equal(sites["a"].tables[0], [[1, 1, 0, 0], [2, np.nan, np.nan, np.nan]])
        np.testing.assert_array_equal(sites["b"].tables[0], [[3, 0, 0, 1], [4, 0, 1, 0]])

    def test_a_site_where_a_category_is_always_missing_has_missing_levels(self):
        sites = check_clients({"a": [pd.DataFrame({"k": ["u", "v"]})], "b": [pd.DataFrame({"k": [None, None]})]})
        assert np.isnan(sites["b"].tables[0]).all()

    def test_numbers_here_and_text_there_is_refused_by_site_and_column(self):
        with pytest.raises(DataError, match="Site 'b': view 'view_0', column 'k' holds numbers here and categories"):
            check_clients({"a": [pd.DataFrame({"k": ["u", "v"]})], "b": [pd.DataFrame({"k": [1, 2]})]})

    def test_split_equals_pooled(self):
        rng = np.random.default_rng(0)
        truth = rng.integers(2, size=90)
        frame = pd.DataFrame(
            {
                "x": rng.normal(size=90) + 3 * truth,
                "k": np.where(rng.random(90) < 0.2 + 0.6 * truth, "yes", "no"),
                "m": rng.choice(["r", "s", "t", None], 90),
            }
        )
        start = [np.array([[0.0, 0.8, 0.2, 0.3, 0.3, 0.3], [3.0, 0.2, 0.8, 0.3, 0.3, 0.3]])]
        options = {"n_clusters": 2, "init": start, "fuzzifier": 1.1, "random_state": 0, "scaling": "standard"}
        whole = EFKMVC(**options).fit({"all": [frame]})
        parts = EFKMVC(**options).fit({f"s{i}": [frame.iloc[i::3]] for i in range(3)})
        assert parts.objective_ == pytest.approx(whole.objective_, rel=1e-9)
        np.testing.assert_allclose(parts.cluster_centers_[0], whole.cluster_centers_[0], rtol=1e-9)


class TestNewRows:
    frame = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.1], "k": ["a", "a", "b", "b"]})

    def test_new_rows_are_read_with_the_levels_of_the_model(self):
        model = HeatKernelMVC(2, random_state=0, scaling="standard").fit(self.frame)
        new = pd.DataFrame({"x": [0.05], "k": ["a"]})
        assert model.predict(new) == model.predict(self.frame)[:1]

    def test_a_level_that_was_never_seen_is_refused_with_its_row(self):
        model = HeatKernelMVC(2, random_state=0, scaling="standard").fit(self.frame)
        new = pd.DataFrame({"x": [0.0, 0.0], "k": ["a", "c"]})
        with pytest.raises(ValueError, match="column 'k' has the unknown level 'c' in row 1; known are"):
            model.predict(new)

    def test_a_level_that_looks_like_a_number_stays_a_level(self):
        frame = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.1], "k": ["1", "1", "x", "x"]})
        model = HeatKernelMVC(2, random_state=0, scaling="standard").fit(frame)
        assert len(model.predict(frame.head(2))) == 2


def test_levels_are_found_by_the_names_of_columns_alone():
    assert [list(group) for group in level_groups(("x", "k = a", "k = b", "y", "m = 1"))] == [[1, 2], [4]]


def test_columns_of_other_names_have_nothing_in_common():
    assert common_columns([("a", "k = u"), ("b", "k = u")]) is None


def test_columns_that_are_wanted_come_in_their_order():
    table = np.array([[1.0, 2.0]])
    np.testing.assert_array_equal(fit_columns(table, ("a", "b"), ("b", "a"), "View 'v'"), [[2.0, 1.0]])


class TestSealedRuns:
    def sites(self, kind):
        rng = np.random.default_rng(1)
        return {
            f"s{i}": [pd.DataFrame({"x": rng.normal(size=20), "k": pd.Series(rng.choice(["u", "v"], 20)).astype(kind)})]
            for i in range(3)
        }

    def test_levels_that_were_read_off_rows_are_refused_under_masks(self):
        with pytest.raises(
            ValueError, match="secure=True with categories whose levels were read off rows: site 's0', 'view_0/k'"
        ):
            EFKMVC(2, secure=True).fit(self.sites(object))

    def test_levels_that_were_named_are_taken(self):
        kind = pd.CategoricalDtype(["u", "v", "w"])
        model = EFKMVC(2, secure=True, random_state=0, max_rounds=3, tol=0).fit(self.sites(kind))
        assert model.view_columns_["view_0"] == ("x", "k = u", "k = v", "k = w")
