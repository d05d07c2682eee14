"""What all federated estimators share: what comes in, what is refused by name, scores over sites, and refits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV

import fedhk
from fedhk import (
    EFKMVC,
    FedHKDiffusion,
    FedHKParafac2,
    FedHKPerson,
    FedHKTucker,
    HeatKernelMVC,
    Participation,
    Personalization,
    datasets,
)
from fedhk.errors import DataError, QuorumError
from fedhk.protocols import Averaging, FactorAveraging

QUICK = {"n_init": 2, "random_state": 0}
# fits of few rounds on purpose: what they have at the end is compared
pytestmark = pytest.mark.filterwarnings("ignore:.* (did not converge|gives back):sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(4, 40, n_clusters=3, n_features=(3, 5), shift=0.5, separation=6, random_state=2)


@pytest.fixture(scope="module")
def fitted(data):
    return EFKMVC(3, personalization=0.5, **QUICK).fit(data.sites)


@pytest.fixture(scope="module")
def expected(data):
    return EFKMVC(3, max_rounds=3, **QUICK).fit(data.sites)


def same_centers(one, other):
    for a, b in zip(one.cluster_centers_, other.cluster_centers_, strict=True):
        assert_array_equal(a, b)


class TestWhatComesIn:
    def test_a_list_of_sites_is_named(self, data):
        model = EFKMVC(3, **QUICK).fit(list(data.sites.values()))
        assert list(model.labels_) == ["site-00", "site-01", "site-02", "site-03"]

    def test_many_sites_are_in_the_order_of_the_list(self):
        rng = np.random.default_rng(0)
        sizes = rng.integers(1, 5, 103)
        model = EFKMVC(1, n_init=1, max_rounds=1).fit([[rng.normal(size=(n, 2))] for n in sizes])
        assert [len(labels) for labels in model.labels_.values()] == sizes.tolist()

    def test_names_that_are_numbers_become_text(self, data):
        model = EFKMVC(3, max_rounds=1, **QUICK).fit(dict(enumerate(data.sites.values())))
        assert list(model.labels_) == ["0", "1", "2", "3"]

    def test_views_by_name_in_any_order_and_number(self, data):
        named = {
            site: {"ecg": views[0], "image": views[1]} if i % 2 else {"image": views[1], "ecg": views[0]}
            for i, (site, views) in enumerate(data.sites.items())
        }
        first = next(iter(named))
        named[first].pop("image")
        model = EFKMVC(3, max_rounds=3, **QUICK).fit(named)
        listed = {site: [views.get("ecg"), views.get("image")] for site, views in named.items()}
        assert model.view_names_ == ["ecg", "image"]
        same_centers(model, EFKMVC(3, max_rounds=3, **QUICK).fit(listed))
        assert_array_equal(model.predict(named[first]), model.global_labels_[first])

    def test_views_keep_their_places_where_the_first_site_lacks_the_first(self, data):
        names = list(data.sites)
        sites = data.sites | {names[0]: [None, data.sites[names[0]][1]]}
        model = EFKMVC(3, **QUICK).fit(sites)
        assert [centers.shape[1] for centers in model.cluster_centers_] == [3, 5]
        assert_array_equal(model.predict(data.sites[names[1]]), model.global_labels_[names[1]])
        start = [view[[0, 50, 100]] for view in data.views]
        given = EFKMVC(3, init=start, view_weights=[0.9, 0.1]).fit(sites)
        assert given.view_weights_.tolist() == [0.9, 0.1]

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, sp.csr_array, sp.coo_matrix, np.asfortranarray])
    def test_every_container_gives_what_arrays_give(self, data, expected, make):
        kinds = {site: [make(view) for view in views] for site, views in data.sites.items()}
        model = EFKMVC(3, max_rounds=3, **QUICK).fit(kinds)
        for site in data.sites:
            assert_allclose(model.memberships_[site], expected.memberships_[site], atol=1e-8)
            assert_array_equal(model.client_models_[site].predict(kinds[site]), expected.labels_[site])

    def test_columns_of_data_frames_are_found_by_name_and_compared(self, data):
        frames = {
            site: [pd.DataFrame(views[0], columns=list("abc")), pd.DataFrame(views[1], columns=list("vwxyz"))]
            for site, views in data.sites.items()
        }
        model = EFKMVC(3, max_rounds=2, **QUICK).fit(frames)
        first = next(iter(frames))
        turned = [frames[first][0][list("acb")], frames[first][1]]
        assert_array_equal(model.predict(turned), model.predict(frames[first]))
        again = EFKMVC(3, max_rounds=2, **QUICK).fit(frames | {first: turned})
        assert again.objective_ == pytest.approx(model.objective_, rel=1e-9)
        renamed = [frames[first][0].rename(columns={"a": "d"}), frames[first][1]]
        with pytest.raises(ValueError, match="has other columns than the model: missing"):
            model.predict(renamed)
        with pytest.raises(DataError, match=r"Site 'site-\d+': view 'view_0' has other columns than site"):
            EFKMVC(3).fit(frames | {first: renamed})

    def test_single_precision_stays_single(self, data):
        single = {site: [view.astype(np.float32) for view in views] for site, views in data.sites.items()}
        model = EFKMVC(3, **QUICK).fit(single)
        double = EFKMVC(3, **QUICK).fit(data.sites)
        assert model.cluster_centers_[0].dtype == np.float32
        for site in single:
            assert model.memberships_[site].dtype == model.client_models_[site].cluster_centers_[1].dtype == np.float32
            assert adjusted_rand_score(model.labels_[site], double.labels_[site]) == 1

    def test_input_is_left_alone(self, data):
        copies = {site: [view.copy() for view in views] for site, views in data.sites.items()}
        for views in copies.values():
            for view in views:
                view.flags.writeable = False
        EFKMVC(3, max_rounds=2, heat_coef="absdev", **QUICK).fit(copies)
        assert_array_equal(copies["site-00"][0], data.sites["site-00"][0])


class TestEstimator:
    def test_parameters_are_those_of_the_constructor(self):
        model = EFKMVC(
            5, protocol=Averaging(passes=2), participation=Participation(fraction=0.5), checkpoint="run", random_state=3
        )
        copied = clone(model)
        assert copied.get_params() == model.get_params()
        assert copied.set_params(n_clusters=2).n_clusters == 2
        assert not hasattr(copied, "labels_")

    def test_random_state_decides_everything(self, data):
        one, other = (EFKMVC(3, init="random", n_init=1, random_state=7).fit(data.sites) for _ in range(2))
        same_centers(one, other)
        again = EFKMVC(3, init="random", n_init=1, random_state=np.random.default_rng(0)).fit(data.sites)
        assert again.objective_ > 0

    def test_global_random_state_is_left_alone(self, data):
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        EFKMVC(3, max_rounds=1, n_init=1).fit(data.sites)
        assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002

    def test_refitting_forgets_the_sites_of_the_last_fit(self, data):
        model = EFKMVC(3, max_rounds=1, **QUICK).fit(data.sites)
        model.fit({"only": data.views})
        assert list(model.labels_) == list(model.client_models_) == ["only"]


class NoEngine:
    """A way to sites that are elsewhere."""

    def sites(self): ...

    def exchange(self, requests): ...

    def close(self): ...

    def describe(self): ...

    def begin(self, timeout): ...


VIEWS = [np.arange(12.0).reshape(6, 2), np.arange(18.0).reshape(6, 3)]


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "value", "allowed"),
        [
            ("max_rounds", 0, r"range \[1, inf\)"),
            ("protocol", "gossip", "'statistics'"),
            ("personalization", 1.5, r"range \[0.0, 1.0\]"),
            ("participation", 0.5, "Participation"),
            ("protocol", "factors", "'statistics'"),
            ("privacy", 1.0, "DifferentialPrivacy"),
            ("secure", "yes", "SecureSummation"),
            ("aggregator", "vote", "'robust'"),
            ("engine", 3, "exchange"),
            ("checkpoint", 3, "str"),
            ("heat_coef", "hot", "'absdev'"),
            ("heat_time", 0.0, r"range \(0.0, inf\)"),
            ("fuzzifier", 1.0, r"range \(1.0, inf\)"),
            ("scaling", "robust", "'standard'"),
            ("init", "best", "'k-means\\+\\+'"),
            ("init", "k-fed", "'k-means\\+\\+'"),
            ("tol", -1.0, r"range \[0.0, inf\)"),
        ],
    )
    def test_parameters(self, name, value, allowed):
        with pytest.raises(ValueError, match=f"'{name}' parameter of EFKMVC must be .*({allowed}).* Got {value!r}"):
            EFKMVC(**{name: value}).fit({"a": VIEWS})

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"init": [VIEWS[0][:2]]}, "init has 1 arrays of centres, but X has 2 views"),
            ({"init": [VIEWS[0][:2], VIEWS[1][:3]]}, r"init for view 'view_1' has shape \(3, 3\).*\(2, 3\)"),
            ({"init": [VIEWS[0][:2] * np.nan, VIEWS[1][:2]]}, "init for view 'view_0'.* must be finite"),
            ({"view_weights": [1.0]}, r"view_weights=\[1.0\] must be 2 finite non-negative numbers"),
            ({"view_weights": [-1.0, 2.0]}, "non-negative"),
            ({"random_state": -1}, "random_state"),
        ],
    )
    def test_parameters_that_depend_on_the_views(self, options, said):
        with pytest.raises(ValueError, match=said):
            EFKMVC(2, **options).fit({"a": VIEWS})

    @pytest.mark.parametrize(
        ("sites", "said"),
        [
            (VIEWS[0], "sites must be a dict by name or a list of sites.*got ndarray.*use HeatKernelMVC"),
            ("rome", "got str"),
            (None, "got NoneType"),
            ({}, "sites is empty"),
            ([], "sites is empty"),
            (
                {"rome": VIEWS[0]},
                "Site 'rome' is a ndarray; a site is a list or dict of views. Put one table in a list",
            ),
            ({"rome": None}, "Site 'rome' is a NoneType"),
            (VIEWS, "Site 'site-00' is a ndarray"),
            ({"rome": [None, None]}, "Site 'rome': X has no views"),
            ({"rome": {}}, "Site 'rome': X has no views"),
            (
                {"rome": [VIEWS[0], VIEWS[1][:5]]},
                "Site 'rome': Views must have the same rows.*'view_0' has 6.*'view_1' has 5",
            ),
            ({"rome": [np.array([[1.0, np.inf]])]}, "Site 'rome': View 'view_0' contains infinity"),
            ({"rome": [np.array([["a", "b"]])]}, "Site 'rome': View 'view_0' has dtype <U1"),
            ({"rome": [np.zeros((3, 0))]}, r"Site 'rome': View 'view_0': 0 feature\(s\)"),
            ({"rome": [np.zeros((3, 2, 0))]}, r"Site 'rome': View 'view_0': 0 feature\(s\)"),
            (
                {"rome": [np.zeros((3, 6, 4))], "oslo": [np.zeros((2, 4, 6))]},
                r"Site 'rome': view 'view_0' has shape \(n, 6, 4\), at site 'oslo' shape \(n, 4, 6\)",
            ),
            (
                {"rome": [np.zeros((3, 6, 4))], "oslo": [np.zeros((2, 6, 5))]},
                r"Site 'rome': view 'view_0' has shape \(n, 6, 4\), at site 'oslo' shape \(n, 6, 5\)",
            ),
            (
                {"rome": VIEWS, "oslo": VIEWS[:1]},
                "Sites must list the same views, but site 'rome' has 2, site 'oslo' has 1",
            ),
            (
                {"rome": VIEWS, "oslo": [VIEWS[0], VIEWS[0]]},
                "Site 'rome': view 'view_1' has 3 features, at site 'oslo' 2 features; a view must have",
            ),
            ({"rome": [VIEWS[0], None], "oslo": [VIEWS[0], None]}, "View 'view_1' has no observed value at any site"),
            ({"rome": [VIEWS[0], VIEWS[1] * np.nan]}, "View 'view_1' has no observed value at any site: leave"),
            ({1: VIEWS, "1": VIEWS}, "Two sites are called '1'"),
            ({"two\nlines": VIEWS}, "the name of a site must be 1 to 200 printable characters"),
            ({"": VIEWS}, "Site '': the name"),
            ({"x" * 201: VIEWS}, "the name of a site must be"),
            ({"rome": [VIEWS[0][:1]], "oslo": [VIEWS[0][:1]]}, "n_samples=2, which should be >= n_clusters=3"),
        ],
    )
    def test_sites(self, sites, said):
        with pytest.raises(DataError, match=said):
            EFKMVC(3).fit(sites)

    def test_columns_that_differ_are_listed(self):
        frames = {
            name: [pd.DataFrame(VIEWS[0], columns=list(columns))] for name, columns in (("rome", "ab"), ("oslo", "ac"))
        }
        with pytest.raises(DataError, match=r"Site 'rome': .*site 'oslo': missing \['c'\], unexpected \['b'\]"):
            EFKMVC(2).fit(frames)

    def test_more_sites_needed_than_there_are(self, data):
        with pytest.raises(QuorumError, match=r"4 usable answers in phase 'describe\+documents'.*min_sites=5"):
            EFKMVC(3, participation=Participation(min_sites=5)).fit(data.sites)

    def test_new_rows_that_do_not_fit_the_model(self, data, fitted):
        with pytest.raises(ValueError, match=r"X has 1 views, but the model was fitted with 2 .* the views are \['"):
            fitted.predict([data.views[0]])
        with pytest.raises(ValueError, match="'view_0' has 5 features, but the model expects 3"):
            fitted.predict(data.views[::-1])
        with pytest.raises(ValueError, match=r"unknown views \['sound'\]"):
            fitted.predict({"sound": data.views[0]})

    def test_before_fit(self, data, tmp_path):
        for use in (lambda m: m.predict(data.views), lambda m: m.save(tmp_path / "m")):
            with pytest.raises(NotFittedError):
                use(EFKMVC())


class TestColumns:
    def test_a_site_without_a_view_or_without_names_has_a_model_of_its_own(self, data):
        frames = {
            site: [pd.DataFrame(views[0], columns=list("abc")), pd.DataFrame(views[1], columns=list("vwxyz"))]
            for site, views in data.sites.items()
        }
        first, second = list(frames)[:2]
        sites = frames | {first: [None, frames[first][1]], second: data.sites[second]}
        model = EFKMVC(3, **QUICK).fit(sites)
        for site in (first, second):
            assert_array_equal(model.client_models_[site].predict(sites[site]), model.labels_[site])


class TestScore:
    """The mean simplified silhouette: comparable across scaling, bandwidth and number of clusters."""

    def test_of_sites_it_is_the_mean_over_their_rows(self, data, fitted):
        alone = fitted.score(data.views)
        assert fitted.score(data.sites) == pytest.approx(alone)
        assert fitted.score(list(data.sites.values())) == pytest.approx(alone)
        sizes = [len(views[0]) for views in data.sites.values()]
        scores = [fitted.score(views) for views in data.sites.values()]
        assert np.average(scores, weights=sizes) == pytest.approx(alone)

    def test_sites_whose_views_have_names(self, data):
        named = {site: {"a": views[0], "b": views[1]} for site, views in data.sites.items()}
        model = EFKMVC(3, **QUICK).fit(named)
        assert model.score(named) == pytest.approx(model.score({"a": data.views[0], "b": data.views[1]}))
        assert model.score(named["site-00"]) == pytest.approx(model.score(data.sites["site-00"]))

    def test_it_lies_between_minus_one_and_one_and_is_zero_for_one_cluster(self, data, fitted):
        assert 0.2 < fitted.score(data.sites) <= 1
        assert EFKMVC(1, **QUICK).fit(data.sites).score(data.sites) == 0.0

    @pytest.mark.parametrize("options", [{"heat_time": 0.05}, {"heat_time": 1.0}, {"view_exponent": 3.0}], ids=str)
    def test_models_with_other_units_have_scores_of_the_same_size(self, data, fitted, options):
        other = EFKMVC(3, **QUICK, **options).fit(data.sites)
        assert other.score(data.sites) == pytest.approx(fitted.score(data.sites), abs=0.25)
        assert other.objective_ != pytest.approx(fitted.objective_, rel=0.1)

    def test_the_right_number_of_clusters_has_the_best_score(self):
        data = datasets.make_sites(4, 40, n_clusters=3, n_features=(3, 5), shift=0.5, separation=12, random_state=2)
        scores = {c: EFKMVC(c, n_init=3, random_state=0).fit(data.sites).score(data.sites) for c in (2, 3, 5)}
        assert max(scores, key=scores.get) == 3

    def test_a_grid_search_over_a_list_of_sites_leaves_whole_sites_out(self, data):
        search = GridSearchCV(EFKMVC(**QUICK), {"n_clusters": [2, 3, 5]}, cv=2)
        search.fit(list(data.sites.values()))
        assert search.best_params_ == {"n_clusters": 3}
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert list(search.best_estimator_.labels_) == ["site-00", "site-01", "site-02", "site-03"]

    def test_weights_count_rows_of_one_site(self, data, fitted):
        views = data.sites["site-00"]
        weights = np.zeros(len(views[0]))
        weights[:5] = 1.0
        assert fitted.score(views, sample_weight=weights) == pytest.approx(fitted.score([view[:5] for view in views]))

    def test_before_fit(self, data):
        with pytest.raises(NotFittedError, match="EFKMVC"):
            EFKMVC().score(data.sites)


FEDERATED = [EFKMVC, FedHKTucker, FedHKParafac2, FedHKPerson, FedHKDiffusion]


@pytest.mark.parametrize("estimator", FEDERATED)
class TestAllEstimators:
    def test_fitted_attributes_before_fit_name_the_class(self, estimator):
        for name in ("cluster_centers_", "view_weights_", "fuzzifier_", "n_clusters_", "labels_", "history_"):
            with pytest.raises(NotFittedError, match=f"This {estimator.__name__} is not fitted yet"):
                getattr(estimator(), name)
            assert not hasattr(estimator(), name)
        with pytest.raises(AttributeError, match=f"'{estimator.__name__}' object has no attribute 'colour'"):
            estimator().colour  # noqa: B018

    def test_sites_are_not_transformed(self, estimator):
        """Rows of several sites have no common table."""
        assert not hasattr(estimator(), "fit_transform")

    def test_ranks_are_there_only_where_there_may_be_a_decomposition(self, estimator):
        names = ("rank_", "core_", "cluster_factor_", "feature_factors_", "view_factor_", "reconstruction_error_")
        may = estimator in (FedHKTucker, FedHKParafac2, FedHKPerson)
        assert all(hasattr(estimator, name) == may for name in names)

    def test_labels_do_not_depend_on_the_order_of_sites(self, estimator, data):
        one = estimator(3, **QUICK).fit(data.sites)
        other = estimator(3, **QUICK).fit(dict(reversed(data.sites.items())))
        for site in data.sites:
            assert_array_equal(one.labels_[site], other.labels_[site])
        assert one.objective_ == other.objective_


class TestRefused:
    """Settings without effect, and parts that do not go together, are refused by name, with what to change."""

    @pytest.mark.parametrize(
        ("estimator", "options", "said"),
        [
            (EFKMVC, {"init": "given", "n_init": 5}, "n_init=5 has no effect where init gives centres"),
            (FedHKPerson, {"rank": 2}, "rank=2 has no effect with decomposition=None"),
            (HeatKernelMVC, {"rank": 2}, "rank=2 has no effect with decomposition=None"),
            (EFKMVC, {"protocol": Averaging(), "aggregator": "robust"}, "aggregator=.*works on statistics"),
            (EFKMVC, {"protocol": FactorAveraging()}, "give decomposition='tucker' or 'parafac2'"),
            (FedHKTucker, {"protocol": Averaging()}, "protocol=Averaging.* has no place for a decomposition"),
            (FedHKTucker, {"protocol": "centers"}, "has no place for a decomposition"),
            (
                FedHKPerson,
                {"personalization": Personalization(view_weights=0.5)},
                r"\(view_weights=0.5\) has no effect",
            ),
            (FedHKPerson, {"personalization": Personalization(view_pull=5.0)}, r"Personalization\(view_pull=5.0\)"),
            (FedHKPerson, {"init": "given", "calibration": 0.5}, "calibration=0.5 has no effect where init gives"),
            (EFKMVC, {"engine": NoEngine(), "X": "rows"}, "call fit\\(\\) without X, or leave engine out"),
        ],
        ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:60],
    )
    def test_by_name(self, data, estimator, options, said):
        options = dict(options)
        options.pop("X", None)
        if options.get("init") == "given":
            options["init"] = [view[:3] for view in data.views]
        rows = data.views if estimator is HeatKernelMVC else data.sites
        with pytest.raises(ValueError, match=said):
            estimator(3, random_state=0, **options).fit(rows)

    def test_one_start_or_the_default_go_with_given_centres(self, data):
        start = [view[:3] for view in data.views]
        same_centers(EFKMVC(3, init=start, n_init=1).fit(data.sites), EFKMVC(3, init=start).fit(data.sites))


class TestTensorViews:
    @pytest.fixture
    def sites(self):
        data = datasets.make_sites(3, 30, n_clusters=3, n_features=(6, 2), separation=6, random_state=0)
        return {site: [views[0].reshape(-1, 2, 3), views[1]] for site, views in data.sites.items()}

    @pytest.mark.parametrize("protocol", ["statistics", "centers"])
    def test_they_are_clustered_as_their_flat_rows_and_centres_have_their_shape(self, sites, protocol, tmp_path):
        sites["site-01"][0][::5, 0, 1] = np.nan
        sites["site-02"][0] = None
        flat = {s: [None if t is None else t.reshape(-1, 6), v] for s, (t, v) in sites.items()}
        options = QUICK | {"protocol": protocol, "personalization": 0.5}
        model, plain = (EFKMVC(3, **options).fit(X) for X in (sites, flat))
        model.save(tmp_path / "model")
        for own in (model, fedhk.load(tmp_path / "model"), *model.client_models_.values()):
            assert [centers.shape for centers in own.cluster_centers_] == [(3, 2, 3), (3, 2)]
            assert_array_equal(own.predict(sites["site-00"]), own.predict(flat["site-00"]))
            with pytest.raises(
                ValueError, match=r"'view_0' has shape \(n, 3, 2\), but the model expects .*\(n, 2, 3\)"
            ):
                own.predict([sites["site-00"][0].transpose(0, 2, 1), None])
        assert_array_equal(model.cluster_centers_[0].reshape(3, 6), plain.cluster_centers_[0])
        mixed = EFKMVC(3, **options).fit(sites | {"site-00": flat["site-00"]})
        same_centers(mixed, model)

    def test_centres_are_given_in_shape_or_flat(self, sites):
        start = [sites["site-00"][0][:3], sites["site-00"][1][:3]]
        same_centers(EFKMVC(3, init=start).fit(sites), EFKMVC(3, init=[start[0].reshape(3, 6), start[1]]).fit(sites))
        with pytest.raises(ValueError, match=r"'view_0' has shape \(3, 3, 2\); .*=\(3, 6\) or \(3, 2, 3\)"):
            EFKMVC(3, init=[start[0].transpose(0, 2, 1), start[1]]).fit(sites)

    def test_a_resumed_run_knows_the_shape(self, sites, tmp_path):
        model = EFKMVC(3, checkpoint=tmp_path / "run", **QUICK)
        expected = model.fit(sites)
        resumed = clone(model).fit(sites, resume=True)
        same_centers(resumed, expected)
        assert resumed.cluster_centers_[0].shape == (3, 2, 3)
