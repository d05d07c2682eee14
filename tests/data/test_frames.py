"""Sites from one data frame: views, categories, and refusals that name the column."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics import adjusted_rand_score

import fedhk
from fedhk import EFKMVC, FedHKPerson, HeatKernelMVC, from_frame, read_dictionary
from fedhk.data.views import check_views
from fedhk.errors import DataError
from fedhk.privacy import DifferentialPrivacy

FRAME = pd.DataFrame(
    {"hospital": ["rome", "oslo", "rome"], "age": [30, 40, 50], "code": [1, 2, 1], "ecg": [0.1, 0.2, 0.3]},
    index=["p7", "p8", "p9"],
)


def test_rows_go_to_their_sites_and_keep_their_index():
    sites = from_frame(FRAME, site="hospital", views={"record": ["age"], "heart": ["ecg"]})
    assert list(sites) == ["oslo", "rome"]
    assert list(sites["rome"]["record"].index) == ["p7", "p9"]
    assert sites["rome"]["heart"]["ecg"].tolist() == [0.1, 0.3]


@pytest.mark.parametrize("kind", ["object", "category"])
def test_spaces_around_the_name_of_a_site_make_no_other_site(kind):
    frame = FRAME.assign(hospital=pd.Series([" rome", "oslo", "rome "], FRAME.index, kind))
    assert {name: len(views["table"]) for name, views in from_frame(frame, site="hospital").items()} == {
        "oslo": 1,
        "rome": 2,
    }


def test_without_views_all_other_columns_are_one():
    sites = from_frame(FRAME, site="hospital")
    assert {tuple(views) for views in sites.values()} == {("table",)}
    assert list(sites["oslo"]["table"].columns) == ["age", "code", "ecg"]


def test_polars_gives_the_same():
    other = from_frame(pl.DataFrame({name: FRAME[name].to_list() for name in FRAME}), site="hospital")
    np.testing.assert_array_equal(from_frame(FRAME, site="hospital")["rome"]["table"], other["rome"]["table"])


def test_pyarrow_gives_the_same():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    other = from_frame(pyarrow.Table.from_pandas(FRAME), site="hospital")
    np.testing.assert_array_equal(from_frame(FRAME, site="hospital")["rome"]["table"], other["rome"]["table"])
    views = check_views([pyarrow.Table.from_pandas(FRAME[["age", "hospital"]], preserve_index=False)])
    assert views.columns == (("age", "hospital = oslo", "hospital = rome"),)


@pytest.mark.parametrize("categories", [["code"], {"code": None}, {"code": [1, 2]}])
def test_codes_are_categories_where_they_are_said_to_be(categories):
    sites = from_frame(FRAME, site="hospital", categories=categories)
    assert list(sites["rome"]["table"]["code"].cat.categories) == [1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"site": "clinic"}, "site='clinic' is no column of the frame: give the name of one; its columns are"),
        ({"site": ["hospital"]}, "give the name of one; its columns are"),
        (
            {"site": "hospital", "views": {"a": ["age", "height"]}},
            r"view 'a' has columns that the frame lacks: \['height'\]",
        ),
        ({"site": "hospitl"}, "Did you mean 'hospital'"),
        ({"site": "hospital", "views": {"a": ["agee"]}}, r"the frame lacks: \['agee'\]. Did you mean 'age'"),
        ({"site": "hospital", "views": {"a": ["ecg", "age", "ecg"]}}, "view 'a' has 'ecg' more than once"),
        ({"site": "hospital", "categories": ["cod"]}, "'cod' is no column of a view. Did you mean 'code'"),
        ({"site": "hospital", "views": {"a": "age"}}, "view 'a' has 'age'; it must be a list"),
        ({"site": "hospital", "views": {"a": ["hospital"]}}, "'hospital', which says whose a row is"),
        ({"site": "hospital", "views": {}}, "views={} must be a mapping"),
        ({"site": "hospital", "categories": ["nothing"]}, "categories: 'nothing' is no column of a view"),
        (
            {"site": "hospital", "categories": {"code": [1, 3]}},
            "column 'code' has .*2.* in row 'p8', which is none of its",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options, said):
    with pytest.raises(DataError, match=said):
        from_frame(FRAME, **options)


def test_a_row_without_a_site_is_refused_by_its_index():
    with pytest.raises(DataError, match="site='hospital' is missing in 1 rows, the first is row 'p8'"):
        from_frame(FRAME.assign(hospital=["rome", None, "rome"]), site="hospital")
    with pytest.raises(DataError, match="site='hospital' is missing in 2 rows, the first is row 'p8'"):
        from_frame(FRAME.assign(hospital=["rome", "", " "]), site="hospital")


def test_a_column_of_two_views_is_a_warning_that_names_both():
    with pytest.warns(UserWarning, match="column 'age' is in the views 'a', 'b': it counts in each of them"):
        sites = from_frame(FRAME, site="hospital", views={"a": ["age"], "b": ["ecg", "age"]})
    assert list(sites["rome"]["b"].columns) == ["ecg", "age"]


def test_columns_with_several_names_each_are_refused():
    frame = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]))
    with pytest.raises(DataError, match="several levels of names"):
        from_frame(frame, site="a")
    with pytest.raises(DataError, match="got list"):
        from_frame([1, 2], site="a")


class TestDictionary:
    """A data dictionary says what the columns of a frame are."""

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "dictionary.toml"
        path.write_text(
            "[record.age]\nrange = [0, 120]\nmissing = [-9]\n[record.code]\nkind = 'category'\nlevels = [1, 2, 3]\n"
            "[heart.ecg]\nrange = [0, 1]\n"
        )
        return path

    def test_views_levels_and_codes_are_those_of_the_dictionary(self, path):
        sites = from_frame(FRAME.replace({"age": {30: -9}}), site="hospital", dictionary=path)
        assert list(sites["rome"]) == ["heart", "record"]
        record = sites["rome"]["record"]
        assert list(record.columns) == ["age", "code = 1", "code = 2", "code = 3"]
        assert list(record.index) == ["p7", "p9"]
        np.testing.assert_array_equal(record, [[np.nan, 1, 0, 0], [50, 1, 0, 0]])

    def test_what_contradicts_it_is_refused(self, path):
        with pytest.raises(DataError, match="view 'record', column 'age' holds '1200' in row 2, where a number from 0"):
            from_frame(FRAME.replace({"age": {40: 1200}}), site="hospital", dictionary=path)
        with pytest.raises(DataError, match="leave views= and categories= out"):
            from_frame(FRAME, site="hospital", dictionary=path, categories=["code"])

    def test_noise_takes_its_ranges_and_levels(self, path):
        rng = np.random.default_rng(0)
        group = rng.integers(2, size=400)
        columns = {"age": 30 + 40 * group + rng.normal(size=400), "code": 1 + group, "ecg": 0.2 + 0.5 * group}
        frame = pd.DataFrame(columns | {"hospital": rng.choice(["a", "b", "c"], 400)})
        sites = from_frame(frame, site="hospital", dictionary=path)
        budget = DifferentialPrivacy(8.0, 1e-4, bounds=read_dictionary(path).bounds())
        model = EFKMVC(2, privacy=budget, secure=True, random_state=0).fit(sites)
        found = model.labels_frame().sort_values(["site", "row"])["cluster"].to_numpy()
        truth = frame.assign(group=group).sort_values("hospital", kind="stable")["group"].to_numpy()
        assert adjusted_rand_score(truth, found) > 0.9


def test_a_site_without_rows_takes_part_whatever_its_columns_are():
    kinds = {
        "age": [30.0, 70.0, 31.0, 72.0] * 10,
        "stage": pd.Categorical(["i", "ii", "i", "ii"] * 10, ordered=True),
        "ward": pd.Categorical(["a", "b", "a", "b"] * 10),
        "sex": ["F", "M", "F", "M"] * 10,
        "seen": pd.to_datetime(["2026-01-01", "2026-06-01", "2026-01-03", "2026-06-04"] * 10),
    }
    frame = pd.DataFrame(kinds)
    sites = {"rome": {"record": frame}, "oslo": {"record": frame.iloc[:0]}}
    labels = EFKMVC(n_clusters=2, random_state=0).fit(sites).labels_
    assert labels["oslo"].shape == (0,)
    assert labels["rome"][0] == labels["rome"][2] != labels["rome"][1]
    with pytest.raises(DataError, match="There are no rows at any of the 2 sites"):
        EFKMVC(n_clusters=2).fit({"rome": sites["oslo"], "oslo": sites["oslo"]})


def test_text_among_numbers_is_named_with_its_site_and_the_index_of_its_row():
    frame = pd.DataFrame({"hospital": ["oslo"] * 6 + ["rome"] * 6, "pulse": [str(i) for i in range(70, 82)]})
    frame.loc[8, "pulse"] = "80 bpm"
    said = (
        "Site 'rome': View 'table', column 'pulse' holds numbers, but 1 of its 6 cells is text: '80 bpm'; .* in row 8"
    )
    with pytest.raises(DataError, match=said):
        EFKMVC(n_clusters=2).fit(from_frame(frame, site="hospital"))
    named = frame.assign(pulse=range(12), kind=["a", "b"] * 6).set_index("p" + frame.index.astype(str))
    model = EFKMVC(n_clusters=2, random_state=0).fit(from_frame(named, site="hospital"))
    with pytest.raises(ValueError, match="has the unknown level 'c' in row 'p3'"):
        model.predict(named[["pulse", "kind"]].replace({"kind": {"b": "c"}}).iloc[2:])
    named["pulse"] = named["pulse"].astype(float)
    named.loc["p9", "pulse"] = np.inf
    with pytest.raises(DataError, match="Site 'rome': View 'table' contains infinity in column 'pulse', row 'p9'"):
        EFKMVC(n_clusters=2).fit(from_frame(named, site="hospital"))


def test_a_site_without_any_value_is_named():
    rows = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([[0.0], [9.0]], 20, axis=0)
    sites = {"oslo": [rows], "rome": [rows + 0.1], "bern": [np.full((5, 2), np.nan)]}
    with pytest.warns(UserWarning, match="no cell at 'bern' has a value"):
        EFKMVC(n_clusters=2, random_state=0).fit(sites)


def test_new_rows_that_differ_are_told_by_the_names_of_columns_and_sites():
    frame = pd.DataFrame({"hospital": ["oslo", "rome"] * 20, "age": [30.0, 30.5, 70.0, 70.5] * 10})
    frame = frame.assign(sex=["F", "F", "M", "M"] * 10, pulse=frame["age"] + 1)
    sites = from_frame(frame, site="hospital", views={"record": ["age", "sex"], "vitals": ["pulse"]})
    model = EFKMVC(n_clusters=2, random_state=0).fit(sites)
    with pytest.raises(ValueError, match=r"'record' has 1 named columns, but .* 3 named columns: missing \['sex'\]\."):
        model.predict({"record": frame[["age"]]})
    with pytest.raises(
        ValueError, match=r"'vitals' has 2 named columns, but .*: missing \['pulse'\], unexpected \['age'"
    ):
        model.predict({"vitals": frame[["age", "hospital"]].replace("rome", "oslo")})
    with pytest.raises(ValueError, match=r"X has the sites \['oslo', 'rome'\], and the views of one site are expected"):
        model.predict(sites)


@pytest.mark.filterwarnings("ignore:X has columns that the model does not know")
class TestOneFrameForPredict:
    """`predict` takes one frame apart as `from_frame` does."""

    @pytest.fixture
    def frame(self):
        rng = np.random.default_rng(0)
        group = np.arange(90) % 3
        columns = {"hospital": rng.choice(["oslo", "rome"], 90), "age": 40 + 15 * group + rng.normal(size=90)}
        frame = pd.DataFrame(columns, index=[f"p{i}" for i in range(90)])
        grade = pd.Categorical(np.array(["I", "II", "III"])[group], ordered=True)
        columns = {"sex": np.where(group == 1, "F", "M"), "pulse": 60 + 10 * group, "died": group == 0}
        return frame.assign(stage=np.where(group == 2, "late", "early"), grade=grade, **columns)

    @pytest.mark.parametrize("views", [{"a": ["age", "sex"], "b": ["stage", "pulse"]}, {"a": ["age", "sex", "stage"]}])
    @pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
    def test_rows_get_the_clusters_of_their_views(self, frame, views, kind):
        model = EFKMVC(3, random_state=0).fit(from_frame(frame, site="hospital", views=views))
        expected = model.predict({view: frame[columns] for view, columns in views.items()})
        given = frame.sample(frac=1, axis=1, random_state=0)  # columns are known by their names
        if kind == "pyarrow":
            given = pytest.importorskip("pyarrow", reason="pyarrow is not installed").Table.from_pandas(given)
        elif kind == "polars":
            given = pl.DataFrame({name: given[name].to_list() for name in given})
        np.testing.assert_array_equal(model.predict(given), expected)
        np.testing.assert_array_equal(model.client_models_["rome"].predict(given), expected)

    @pytest.mark.filterwarnings("error")
    def test_columns_that_no_model_knows_are_passed_over_with_a_word(self, frame):
        model = EFKMVC(3, random_state=0).fit(from_frame(frame, site="hospital", views={"a": ["age", "sex"]}))
        own, alone = frame[["age", "sex"]], HeatKernelMVC(3, random_state=0).fit(frame[["age", "sex"]])
        numbers = HeatKernelMVC(3, random_state=0).fit(frame[["age", "pulse"]])
        for given, known, part in (
            (model, frame, own),
            (model, {"a": frame}, {"a": own}),
            (model.client_models_["oslo"], frame, own),
            (alone, frame, own),
            (numbers, frame, frame[["age", "pulse"]]),
        ):
            with pytest.warns(UserWarning, match="does not know; they are passed over: .*'died'"):
                found = given.predict(known)
            np.testing.assert_array_equal(found, given.predict(part))  # without a warning
        with pytest.raises(ValueError, match=r"missing \['age'\]"):
            alone.predict(frame[["sex", "died"]])

    def test_ordered_categories_are_known_by_their_names(self, frame):
        model = EFKMVC(3, random_state=0).fit(from_frame(frame, site="hospital", views={"a": ["grade", "age"]}))
        np.testing.assert_array_equal(model.predict(frame), model.predict({"a": frame[["grade", "age"]]}))

    def test_text_of_an_ordered_column_is_read_as_text_of_any_other_is(self, frame):
        model = EFKMVC(3, random_state=0).fit(from_frame(frame, site="hospital", views={"a": ["grade", "age"]}))
        known = frame[["grade", "age"]].head(3)
        spaced = known.assign(grade=[" I", "II ", ""])  # an empty cell is missing
        expected = model.transform(known.assign(grade=known["grade"].where([True, True, False])))
        np.testing.assert_array_equal(model.transform(spaced), expected)

    def test_columns_that_it_lacks_are_named_with_their_views(self, frame):
        views = {"a": ["age", "sex"], "b": ["pulse", "stage"]}
        model = EFKMVC(3, random_state=0).fit(from_frame(frame, site="hospital", views=views))
        said = "lacks columns of the model: of view 'a' 'sex'; of view 'b' 'pulse', 'stage'. To leave a view out"
        with pytest.raises(ValueError, match=said):
            model.predict(frame[["age", "died"]])

    def test_levels_of_a_dictionary_are_read_from_either_form(self, frame, tmp_path):
        path = tmp_path / "dictionary.toml"
        path.write_text("[a.sex]\nkind = 'category'\nlevels = ['F', 'M', 'X']\n[b.age]\n[b.pulse]\n")
        sites = from_frame(frame, site="hospital", dictionary=path)
        model = EFKMVC(3, random_state=0).fit(sites)
        both = pd.concat([pd.concat(list(views.values()), axis=1) for views in sites.values()])
        np.testing.assert_array_equal(model.predict(both), model.predict(frame.loc[both.index]))


class TestRowsWithoutAnyLevel:
    """A text column may be empty in all new rows: it then has no levels, and is missing."""

    @pytest.fixture
    def frame(self):
        rng = np.random.default_rng(0)
        group = np.arange(60) % 2
        columns = {"hospital": rng.choice(["oslo", "rome"], 60), "age": 40 + 30 * group + rng.normal(size=60)}
        return pd.DataFrame(columns).assign(sex=np.where(group == 1, "F", "M"), stage=rng.choice(["I", "II"], 60))

    @pytest.mark.parametrize(
        "empty",
        [
            pd.Series([None], dtype=object),
            pd.Series([None], dtype="string"),
            pd.Series([np.nan]),
            pd.Series(["  "]),
            pd.Series(pd.Categorical([None], categories=[])),
        ],
        ids=["object", "string", "float", "spaces", "category"],
    )
    def test_they_are_placed_by_what_is_known(self, frame, empty):
        views = {"a": ["age", "sex", "stage"]}
        model = EFKMVC(2, random_state=0).fit(from_frame(frame, site="hospital", views=views))
        alone = HeatKernelMVC(2, random_state=0).fit(frame[views["a"]])
        row = frame.iloc[[3]].reset_index(drop=True)[views["a"]]
        row = row.assign(sex=empty)
        for given in (model, model.client_models_["oslo"], alone):
            expected = given.predict(frame.iloc[[3]][views["a"]])
            np.testing.assert_array_equal(given.predict(row), expected)
            np.testing.assert_array_equal(given.predict({given.view_names_[0]: row}), expected)
            assert given.transform(row).shape == (1, 2)
            assert fedhk.place(given, row).labels.tolist() == expected.tolist()
            given.predict(row.assign(stage=empty))
            given.predict(
                pl.DataFrame({name: row[name].astype(object).where(row[name].notna(), None).to_list() for name in row})
            )

    def test_a_site_may_never_have_recorded_a_column(self, frame):
        new = frame.head(20).assign(sex=None, hospital="bern")
        model = FedHKPerson(2, random_state=0).fit(from_frame(frame, site="hospital"))
        site = from_frame(new, site="hospital")
        assert len(model.personalize(site["bern"]).predict(site["bern"])) == 20
        model.update(site)
        both = pd.concat([frame, new], ignore_index=True)
        sites = from_frame(both, site="hospital")
        sites["bern"]["table"] = sites["bern"]["table"].astype({"sex": "category"})
        assert len(FedHKPerson(2, random_state=0).fit(sites).labels_["bern"]) == 20


class TestDoubtsAreSaidAloud:
    """What `fedhk info` says of files is said of frames."""

    @pytest.fixture
    def frame(self):
        rng = np.random.default_rng(0)
        columns = {"hospital": np.resize(["bern", "oslo", "rome"], 60), "age": 40 + 9 * rng.normal(size=60)}
        return pd.DataFrame(columns).assign(sex=rng.choice(["F", "M"], 60), grade=rng.integers(1, 4, 60))

    def test_of_levels_that_one_site_writes_in_another_way(self, frame):
        frame["sex"] = frame["sex"].where(frame["hospital"] != "rome", frame["sex"].map({"F": "female", "M": "male"}))
        with pytest.warns(
            UserWarning, match="site 'rome' has none of the levels of the others .'female', 'male' there"
        ):
            from_frame(frame, site="hospital", views={"record": ["age", "sex"]})

    def test_of_codes(self, frame):
        frame.loc[::6, "grade"] = 9
        with pytest.warns(UserWarning, match="column 'grade': 9 beside 1, 2, 3: a code for missing values"):
            from_frame(frame, site="hospital")

    def test_of_rows_that_share_a_name(self, frame):
        parts = pd.concat([rows.reset_index(drop=True) for _, rows in frame.groupby("hospital")])
        with pytest.warns(UserWarning, match="several rows have the name 0, 1, 2, 3, 4 and 15 more: .*reset_index"):
            sites = from_frame(parts, site="hospital", views={"record": ["age", "sex"]})
        assert [len(views["record"]) for views in sites.values()] == [20, 20, 20]

    def test_of_sites_that_may_be_one(self, frame):
        frame.loc[:9, "hospital"] = frame.loc[:9, "hospital"].str.capitalize()
        with pytest.warns(UserWarning, match="sites 'Bern', 'bern' differ by capital letters or spaces only: are they"):
            from_frame(frame, site="hospital", views={"record": ["age", "sex"]})

    def test_of_dates_that_nobody_asked_for(self, frame):
        frame["admitted"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(60), "D")
        with pytest.warns(UserWarning, match="^from_frame: dates count as days in 'admitted': leave out"):
            from_frame(frame, site="hospital")
        from_frame(frame, site="hospital", views={"later": ["admitted"]})  # without a warning

    def test_not_of_what_is_declared(self, frame):
        frame.loc[::6, "grade"] = 9
        assert from_frame(frame, site="hospital", categories={"grade": [1, 2, 3, 9]})

    def test_nothing_is_said_of_columns_that_fit_refuses(self, frame):
        frame["note"] = [f"note {i} of many" for i in range(60)]
        with pytest.raises(DataError, match=r"of several words, .* a page on text"):
            EFKMVC(2).fit(from_frame(frame, site="hospital"))


class TestUnusableColumns:
    """All columns that cannot be clustered are named at once, as early as it is sure."""

    @pytest.fixture
    def frame(self):
        columns = {
            "hospital": ["oslo", "rome"] * 150,
            "age": np.arange(300.0) % 50,
            "name": [f"P{i}" for i in range(300)],
            "admitted": [f"{1 + i % 28}.3.2026" for i in range(300)],
            "patient_id": np.arange(300),
            "pulse": [str(60 + i % 9) if i % 11 else "<5" for i in range(300)],
        }
        return pd.DataFrame(columns)

    def test_a_frame_is_refused_with_all_of_them(self, frame):
        views = {"a": ["name", "age"], "b": ["admitted", "patient_id"]}
        with pytest.raises(DataError) as refusal:
            from_frame(frame, site="hospital", views=views)
        first, *faults = str(refusal.value).split("\n- ")
        assert first == "3 columns cannot be used as they are:"
        assert [fault.split(" ")[:4] for fault in faults] == [
            ["View", "'a',", "column", "'name'"],
            ["View", "'b',", "column", "'patient_id'"],
            ["View", "'b',", "column", "'admitted'"],
        ]

    def test_a_fit_names_all_columns_of_all_views(self, frame):
        rome = frame[frame["hospital"] == "rome"]
        sites = {"rome": {"a": rome[["name", "pulse"]], "b": rome[["admitted"]], "c": rome[["patient_id"]]}}
        with pytest.raises(DataError, match="Site 'rome': 4 columns") as refusal:
            EFKMVC(2).fit(sites)
        assert all(repr(name) in str(refusal.value) for name in ("name", "pulse", "admitted", "patient_id"))

    def test_few_new_rows_are_not_refused_for_what_a_model_may_know(self, frame):
        new = frame.drop(columns=["admitted", "pulse"]).head(40)
        sites = from_frame(new, site="hospital")
        assert len(sites["rome"]["table"]) == 20
        declared = frame[["hospital", "age", "admitted"]]
        assert from_frame(declared, site="hospital", categories=["admitted"])

    def test_all_that_contradicts_a_dictionary_is_named(self, frame, tmp_path):
        path = tmp_path / "dictionary.toml"
        path.write_text("[a.age]\nrange = [0, 40]\n[b.pulse]\n[b.patient_id]\nrange = [0, 10]\n")
        with pytest.raises(DataError, match="3 columns cannot be used") as refusal:
            from_frame(frame, site="hospital", dictionary=path)
        assert all(f"column {name!r}" in str(refusal.value) for name in ("age", "pulse", "patient_id"))


@pytest.mark.parametrize("alone", [["F", "M", None], [True, False, True], [1, 0, 0]])
def test_a_view_of_one_category_alone_is_doubted(alone):
    frame = pd.DataFrame({"hospital": ["rome", "oslo"] * 6, "age": np.arange(12.0), "sex": alone * 4})
    with pytest.warns(UserWarning, match="view 'person' is one category alone, 'sex', and counts as much"):
        from_frame(frame, site="hospital", views={"record": ["age"], "person": ["sex"]})


@pytest.mark.parametrize(
    "views", [None, {"all": ["sex"]}, {"record": ["age"], "person": ["sex", "stage"]}, {"a": ["age"], "b": ["stage"]}]
)
def test_views_with_more_than_a_category_are_not_doubted(views, recwarn):
    stages = pd.Categorical(["I", "II", "III"] * 4, ["I", "II", "III"], ordered=True)
    frame = pd.DataFrame(
        {"hospital": ["rome", "oslo"] * 6, "age": np.arange(12.0), "sex": list("FM") * 6, "stage": stages}
    )
    from_frame(frame, site="hospital", views=views)
    assert not [warning for warning in recwarn if "alone" in str(warning.message)]
