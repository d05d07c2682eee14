"""Low-rank centres as users ask for them: E-FKMVC at full rank, scikit-learn's habits, clear errors, one site."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score

import fedhk
from federations import resumed_after
from fedhk import EFKMVC, FedHKParafac2, FedHKPerson, FedHKTucker, HeatKernelMVC, datasets
from fedhk.errors import CheckpointError, DataError
from fedhk.protocols import FactorAveraging, Statistics
from fedhk.tensors import DECOMPOSITIONS, Decomposition, Factors, Limit
from fedhk.tensors.factors import BASIS

# units are named: which ones rows have most neighbours in common in is not what these tests ask
QUICK = {"n_init": 1, "random_state": 0, "view_weights": "uniform", "scaling": "standard"}
BOTH = [FedHKTucker, FedHKParafac2]
WIDE = (40, 30, 35)
# few rounds are enough for what these tests ask
stops_early = pytest.mark.filterwarnings("ignore:.* (did not|gives back):sklearn.exceptions.ConvergenceWarning")


FIRST_SWEEPS = 5  # enough for clusters to be found; see `short_first_fit`
STEP_SWEEPS = 3
pytestmark = pytest.mark.usefixtures("short_first_fit")


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(3, 50, n_clusters=3, n_features=WIDE, shift=0.2, separation=7, random_state=2)


@pytest.fixture(scope="module", params=[(FedHKTucker, (3, 3, 2)), (FedHKParafac2, 3)], ids=["tucker", "parafac2"])
def fitted(request, data):
    estimator, rank = request.param
    return estimator(3, rank=rank, personalization=0.5, n_init=1, random_state=0).fit(data.sites)


def with_gaps(sites, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: [None if view is None else np.where(rng.random(view.shape) < 0.1, np.nan, view) for view in views]
        for name, views in sites.items()
    }


def score(data, labels):
    truth = np.concatenate(list(data.site_labels.values()))
    return adjusted_rand_score(truth, np.concatenate([labels[site] for site in data.site_labels]))


def objective_of(model, views):
    """J of these rows."""
    return model._assign(model._rows(views))[2]


# ---------------------------------------------------------------------------------------------------------- full rank


def full_ranks(n_clusters, widths):
    """Estimators and ranks that constrain nothing."""
    n_views, widest = len(widths), max(widths)
    ranks = [
        (FedHKTucker, (n_clusters, widest, n_views)),
        (FedHKTucker, (n_clusters, min(n_clusters, widest), n_views)),
    ]
    enough = n_clusters * ((n_views + 1) // 2)
    return [*ranks, (FedHKParafac2, enough)] if enough <= min(widths) else ranks


@stops_early
@pytest.mark.parametrize("init", ["k-means++", "given"])
@pytest.mark.parametrize(
    ("widths", "gaps", "heat_coef"),
    [((7, 9, 6), gaps, coef) for gaps in ("complete", "views and cells") for coef in ("uniform", "minmax", "absdev")]
    + [((40, 30), "views and cells", "uniform"), ((40, 30), "complete", "absdev"), ((5,), "views and cells", "minmax")],
    ids=str,
)
def test_at_full_rank_both_are_the_model_without_form(widths, gaps, heat_coef, init):
    missing = 0.3 if gaps != "complete" and len(widths) > 1 else 0.0
    data = datasets.make_sites(3, 33, n_clusters=3, n_features=widths, missing_views=missing, random_state=1)
    sites = data.sites if gaps == "complete" else with_gaps(data.sites)
    shared = QUICK | {"heat_coef": heat_coef, "max_rounds": 8}
    shared["view_weights"] = "auto" if heat_coef == "minmax" else "learned"
    if init == "given":
        shared["init"] = [3 * np.random.default_rng(1).normal(size=(3, width)) for width in widths]
    plain = EFKMVC(3, **shared).fit(sites)
    for estimator, rank in full_ranks(3, widths):
        model = estimator(3, rank=rank, **shared).fit(sites)
        for one, other in zip(model.cluster_centers_, plain.cluster_centers_, strict=True):
            assert_allclose(one, other, rtol=0, atol=1e-7)
        assert_allclose(model.view_weights_, plain.view_weights_, rtol=0, atol=1e-7)
        assert model.objective_ == pytest.approx(plain.objective_, rel=1e-7)
        assert [r["objective"] for r in model.history_] == pytest.approx([r["objective"] for r in plain.history_])
        for site, labels in plain.labels_.items():
            assert_array_equal(model.labels_[site], labels)
        assert model.rank_ == (rank if isinstance(rank, tuple) else (rank,))


# --------------------------------------------------------------------------------------------------------- attributes


class TestAttributes:
    def test_centres_are_made_of_the_factors(self, fitted, data):
        """In double precision: with fewer bytes the centres are those that sites were sent, which are rounded."""
        fitted = clone(fitted).set_params(protocol=Statistics("auto", "double")).fit(data.sites)
        centers = fitted._model.parameters.centers
        p, r, core = fitted.cluster_factor_, fitted.view_factor_, fitted.core_
        for h, (q, expected) in enumerate(zip(fitted.feature_factors_, centers, strict=True)):
            if isinstance(fitted, FedHKTucker):
                built = np.einsum("abc,ka,jb,c->kj", core, p, q, r[h])
            else:
                built = np.einsum("kr,r,jr->kj", p, r[h], q)
            assert_allclose(built, expected, rtol=0, atol=1e-9)

    def test_shapes_and_rank(self, fitted):
        tucker = isinstance(fitted, FedHKTucker)
        assert fitted.rank_ == ((3, 3, 2) if tucker else (3,))
        assert fitted.core_.shape == ((3, 3, 2) if tucker else (3, 3))
        assert fitted.cluster_factor_.shape == (3, 3)
        assert fitted.view_factor_.shape == ((3, 2) if tucker else (3, 3))
        assert [part.shape for part in fitted.feature_factors_] == [(width, 3) for width in WIDE]
        assert 0 <= fitted.reconstruction_error_ < 1

    def test_loadings_of_parafac2_have_one_inner_product(self, data):
        """(B_h Q)^T (B_h Q) = Q^T Q for all views: what makes it PARAFAC2; here after rounding to bytes, too."""
        for precision in ("double", "byte"):
            model = FedHKParafac2(3, rank=2, protocol=Statistics("auto", precision), **QUICK).fit(data.sites)
            for loadings in model.feature_factors_:
                assert_allclose(loadings.T @ loadings, model.core_.T @ model.core_, atol=1e-9)

    def test_bases_of_tucker_are_orthonormal(self, data):
        for precision in ("double", "byte"):
            model = FedHKTucker(3, rank=(3, 2, 2), protocol=Statistics("auto", precision), **QUICK).fit(data.sites)
            for basis in model.feature_factors_:
                assert_allclose(basis.T @ basis, np.eye(2), atol=1e-9)

    def test_labels_and_personal_models_of_sites(self, data, fitted):
        assert list(fitted.labels_) == list(fitted.client_models_) == sorted(data.sites)
        for site, views in data.sites.items():
            assert_array_equal(fitted.client_models_[site].predict(views), fitted.labels_[site])
            assert_array_equal(fitted.predict(views), fitted.global_labels_[site])
            assert_allclose(fitted.memberships_[site].sum(axis=1), 1, atol=1e-12)
        assert score(data, fitted.labels_) > 0.9
        assert score(data, fitted.global_labels_) > 0.9

    def test_a_site_is_served_better_by_its_own_model(self, data, fitted):
        for site, views in data.sites.items():
            own = objective_of(fitted.client_models_[site], views)
            assert own <= objective_of(fitted, views) + 1e-12 * len(fitted.labels_[site])

    def test_the_objective_is_that_of_the_model_that_is_kept(self, data, fitted):
        """Sites and server mean the same centres, also where these were rounded on their way."""
        assert fitted.objective_ == pytest.approx(objective_of(fitted, data.views), rel=1e-3)

    def test_the_objective_is_exact_in_double_precision(self, data):
        for estimator in BOTH:
            model = estimator(3, rank=2, protocol=Statistics(True, "double"), **QUICK).fit(data.sites)
            assert model.objective_ == pytest.approx(objective_of(model, data.views), rel=1e-9)

    def test_history(self, fitted):
        names = {"round", "objective", "clients", "bytes_up", "bytes_down", "seconds", "refused"}
        assert all(set(record) == names for record in fitted.history_)
        json.dumps(fitted.history_, allow_nan=False)

    @stops_early
    def test_without_a_form_there_is_no_rank(self, data):
        model = EFKMVC(3, max_rounds=1, **QUICK).fit(data.sites)
        for name in ("rank_", "core_", "cluster_factor_", "feature_factors_", "view_factor_", "reconstruction_error_"):
            assert not hasattr(model, name)

    def test_factors_do_not_depend_on_how_they_were_found(self, data):
        model = FedHKTucker(3, rank=(3, 3, 2), protocol="statistics", **QUICK).fit(data.sites)
        for factor in (model.cluster_factor_, model.view_factor_):
            assert_allclose(factor.T @ factor, np.eye(factor.shape[1]), atol=1e-9)


# ------------------------------------------------------------------------------------------------------------- habits


@pytest.mark.parametrize("estimator", BOTH)
class TestHabits:
    def test_parameters_clone_and_repr(self, estimator):
        model = estimator(4, rank=3, protocol=FactorAveraging(aggregation="factors", blend=0.3), personalization=0.3)
        params = model.get_params()
        assert params["rank"] == 3
        assert "decomposition" not in params
        copy = clone(model)
        assert copy.get_params() == params
        assert repr(copy) == repr(model)
        assert repr(model).startswith(estimator.__name__)
        assert "rank=3" in repr(model)
        assert copy.set_params(rank="auto").rank == "auto"
        assert estimator().n_clusters == 8

    def test_nothing_before_fit(self, estimator, data):
        with pytest.raises(NotFittedError):
            estimator(3).predict(data.views)

    @stops_early
    def test_fit_does_not_touch_parameters(self, estimator, data):
        model = estimator(3, rank=2, max_rounds=1, **QUICK)
        before = model.get_params()
        assert model.fit(data.sites).get_params() == before

    @stops_early
    def test_the_same_seed_gives_the_same_bits(self, estimator, data):
        one, other = (estimator(3, rank=2, max_rounds=3, **QUICK).fit(data.sites) for _ in range(2))
        for a, b in zip(one.cluster_centers_, other.cluster_centers_, strict=True):
            assert_array_equal(a, b)

    @stops_early
    @pytest.mark.parametrize("options", [{}, {"protocol": "statistics"}, {"protocol": FactorAveraging(passes=2)}])
    def test_files_keep_the_form(self, estimator, data, tmp_path, options):
        rank = (3, 2, 2) if estimator is FedHKTucker else 2
        model = estimator(3, rank=rank, max_rounds=2, **options, **QUICK).fit(data.sites)
        model.save(tmp_path / "model")
        again = fedhk.load(tmp_path / "model")
        assert type(again) is estimator
        assert again.rank_ == model.rank_
        assert np.array_equal(again.rank, model.rank)
        assert again.reconstruction_error_ == model.reconstruction_error_
        for name in ("core_", "cluster_factor_", "view_factor_"):
            assert_array_equal(getattr(again, name), getattr(model, name))
        for one, other in zip(again.feature_factors_, model.feature_factors_, strict=True):
            assert_array_equal(one, other)
        assert_array_equal(again.predict(data.views), model.predict(data.views))
        assert_array_equal(again.predict_proba(data.views), model.predict_proba(data.views))

    @stops_early
    def test_personal_models_go_with_any_protocol(self, estimator, data, tmp_path):
        for protocol in (Statistics(basis=True), FactorAveraging(passes=1)):
            options = {"protocol": protocol, "max_rounds": 2, "view_weights": "learned"}
            model = estimator(3, rank=2, personalization=1.0, **QUICK | options).fit(data.sites)
            site, views = next(iter(data.sites.items()))
            own = model.client_models_[site]
            assert isinstance(own, HeatKernelMVC)
            own.save(tmp_path / "own")
            assert_array_equal(fedhk.load(tmp_path / "own").predict(views), model.labels_[site])

    def test_every_rule_for_the_rank_finds_the_clusters(self, estimator, data):
        for rank in ("auto", 0.9):
            model = estimator(3, rank=rank, **QUICK).fit(data.sites)
            assert score(data, model.labels_) > 0.9
            assert all(isinstance(number, int) for number in model.rank_)

    @stops_early
    @pytest.mark.parametrize("blend", [0.0, 0.5])
    @pytest.mark.parametrize("aggregation", ["centers", "factors"])
    def test_the_factors_protocol_finds_the_clusters(self, estimator, data, aggregation, blend):
        protocol = FactorAveraging(passes=2, aggregation=aggregation, blend=blend)
        model = estimator(3, rank=3, protocol=protocol, max_rounds=2, **QUICK).fit(data.sites)
        assert score(data, model.labels_) > 0.9


# --------------------------------------------------------------------------------------------------------------- data


@stops_early
@pytest.mark.parametrize("protocol", ["auto", "cores", FactorAveraging(passes=1)], ids=str)
def test_tensor_views(protocol):
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=90)
    images = 2 * rng.normal(size=(3, 6, 5))[truth] + rng.normal(size=(90, 6, 5))
    table = 2 * rng.normal(size=(3, 4))[truth] + rng.normal(size=(90, 4))
    sites = {f"s{i}": [images[i::3], table[i::3]] for i in range(3)}
    flat = {name: [image.reshape(len(image), -1), other] for name, (image, other) in sites.items()}
    options = QUICK | {"rank": (3, 3, 2), "protocol": protocol, "max_rounds": 4}
    model, same = FedHKTucker(3, **options).fit(sites), FedHKTucker(3, **options).fit(flat)
    assert [centers.shape for centers in model.cluster_centers_] == [(3, 6, 5), (3, 4)]
    assert_array_equal(model.cluster_centers_[0].reshape(3, -1), same.cluster_centers_[0])
    assert [part.shape for part in model.feature_factors_] == [(30, 3), (4, 3)]
    assert adjusted_rand_score(truth, model.predict([images, table])) > 0.9


@pytest.fixture(scope="module")
def fifteen():
    size = {"n_clusters": 15, "n_features": (60, 50, 30)}
    return datasets.make_sites(3, 120, **size, shift=0.1, separation=6, random_state=0)


@pytest.fixture(scope="module")
def plain(fifteen):
    return EFKMVC(15, **QUICK).fit(fifteen.sites)


@stops_early
@pytest.mark.filterwarnings("ignore:.*of what tells free centres apart:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*clusters that have rows:sklearn.exceptions.ConvergenceWarning")
class TestRankThatBinds:
    """15 clusters in 60+50+30 features, which no centres of rank 2 or 3 can tell apart."""

    @pytest.mark.parametrize("protocol", ["auto", "cores"])
    @pytest.mark.parametrize(("estimator", "rank"), [(FedHKTucker, (3, 3, 2)), (FedHKParafac2, 3)])
    def test_it_shortens_messages(self, fifteen, plain, protocol, estimator, rank):
        model = estimator(15, rank=rank, protocol=protocol, max_rounds=3, **QUICK).fit(fifteen.sites)
        full, low = ([r["bytes_up"] + r["bytes_down"] for r in fit.history_] for fit in (plain, model))
        assert sum(low) < sum(full) / 3  # the first round has the set-up, too, which no rank makes smaller
        assert low[1] < full[1] / 10
        assert model._model.parameters.form.rank == model.rank_

    def test_a_rank_that_is_chosen_shortens_messages_where_it_binds(self, fifteen, plain):
        model = FedHKTucker(15, rank=0.5, max_rounds=3, **QUICK).fit(fifteen.sites)
        sizes = [sum(r["bytes_up"] + r["bytes_down"] for r in fit.history_[:3]) for fit in (plain, model)]
        assert model.rank_[0] < 15
        assert sizes[1] < sizes[0]

    def test_both_decompositions_differ(self, fifteen):
        models = [
            estimator(15, rank=rank, max_rounds=3, **QUICK).fit(fifteen.sites)
            for estimator, rank in ((FedHKTucker, (4, 4, 2)), (FedHKParafac2, 4))
        ]
        one, other = (np.hstack(model.cluster_centers_) for model in models)
        assert np.linalg.norm(one - other) > 0.01 * np.linalg.norm(one)

    @pytest.mark.parametrize(("estimator", "rank"), [(FedHKTucker, (2, 2, 2)), (FedHKParafac2, 2)])
    def test_what_it_loses_is_said_and_warned_of(self, fifteen, plain, estimator, rank):
        with pytest.warns(ConvergenceWarning, match=r"lose [89]\d% of what .* larger rank, or rank='auto'"):
            model = estimator(15, rank=rank, **QUICK).fit(fifteen.sites)
        assert model.reconstruction_error_ >= 0.8
        assert score(fifteen, plain.labels_) > 0.99
        assert score(fifteen, model.labels_) < 0.3

    @pytest.mark.parametrize("separation", [4.0, 3.0])
    def test_what_it_loses_of_less_clear_clusters_is_said_too(self, separation):
        data = datasets.make_sites(
            4, 100, n_clusters=15, n_features=(60, 50, 30), shift=0, separation=separation, random_state=0
        )
        with pytest.warns(ConvergenceWarning, match=r"lose [89]\d% of what"):
            model = FedHKTucker(15, rank=(2, 2, 2), **QUICK).fit(data.sites)
        assert model.reconstruction_error_ >= 0.8

    @pytest.mark.filterwarnings("error")
    def test_a_rank_that_loses_little_is_not_warned_of(self, fifteen):
        model = FedHKTucker(15, rank=(13, 13, 3), **QUICK).fit(fifteen.sites)
        assert model.reconstruction_error_ < 0.2


class TestRankAuto:
    """A rank is chosen because it predicts rows that centres have not seen."""

    def made(self, rank, noise, seed=0):
        """30 clusters of 14 rows in views of 60+60+60 features, whose centres share `rank` components."""
        rng = np.random.default_rng(seed)
        shared = rng.normal(size=(30, rank)) / np.sqrt(rank)
        labels = np.tile(np.arange(30), 14)
        centers = [shared @ rng.normal(size=(rank, 60)) for _ in range(3)]
        views = [a[labels] + noise * rng.normal(size=(len(labels), 60)) for a in centers]
        return {f"s{k}": [view[k::3] for view in views] for k in range(3)}, {f"s{k}": labels[k::3] for k in range(3)}

    @pytest.mark.parametrize("estimator", BOTH)
    def test_it_binds_where_centres_share_components_and_clusters_are_better_for_it(self, estimator):
        sites, truth = self.made(4, 1.2)
        options = {"scaling": "standard", "n_init": 3, "random_state": 0}
        free, model = EFKMVC(30, **options).fit(sites), estimator(30, **options).fit(sites)
        assert 4 <= model.rank_[0] <= 6
        scores = [
            adjusted_rand_score(np.concatenate(list(truth.values())), np.concatenate([m.labels_[s] for s in truth]))
            for m in (free, model)
        ]
        assert scores[1] > scores[0]

    @pytest.mark.parametrize("estimator", BOTH)
    def test_it_leaves_centres_free_where_they_share_nothing(self, estimator):
        sites, _ = self.made(30, 0.3)
        model = estimator(30, n_init=1, random_state=0, scaling="standard").fit(sites)
        assert model._model.parameters.form.free
        assert model.reconstruction_error_ < 1e-9

    def test_with_given_centres_nothing_speaks_for_a_low_rank(self):
        sites, _ = self.made(4, 1.2)
        start = [view[:30] for view in sites["s0"]]
        assert FedHKTucker(30, init=start, tol=0.01, scaling="standard").fit(sites).rank_ == (30, 30, 3)


HANDWRITTEN = (24, 19, 21, 6, 12, 11)  # six views as handwritten has, a tenth as wide but for the narrowest


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("estimator", BOTH)
def test_views_of_very_different_widths(estimator, gaps):
    data = datasets.make_sites(3, 60, n_clusters=6, n_features=HANDWRITTEN, shift=0.1, separation=8, random_state=0)
    sites = with_gaps(data.sites) if gaps else data.sites
    model = estimator(6, **QUICK | {"n_init": 2}).fit(sites)
    assert score(data, model.labels_) > 0.95
    assert model.reconstruction_error_ < 1e-9


@stops_early
def test_parafac2_says_how_many_components_the_clusters_can_need():
    data = datasets.make_sites(2, 40, n_clusters=4, n_features=HANDWRITTEN, random_state=0)
    with pytest.raises(ValueError, match=r"rank 13 for PARAFAC2 is above the components that 4 clusters in 6 views"):
        FedHKParafac2(4, rank=13, **QUICK).fit(data.sites)
    for rank in (7, 12):  # more than the narrowest view has features
        assert FedHKParafac2(4, rank=rank, max_rounds=2, **QUICK).fit(data.sites).rank_ == (rank,)
    assert FedHKParafac2(4, rank=1 - 1e-12, max_rounds=2, **QUICK).fit(data.sites).rank_ == (12,)


@stops_early
@pytest.mark.parametrize("protocol", ["cores", FactorAveraging(passes=1)], ids=["cores", "factors"])
@pytest.mark.parametrize("estimator", BOTH)
class TestSmallAndOdd:
    """A right answer: finite centres, labels for every row."""

    def fit(self, estimator, protocol, n_clusters, sites, **options):
        defaults = {"rank": "auto", "max_rounds": 3, "tol": 0}
        model = estimator(n_clusters, protocol=protocol, **QUICK | defaults | options).fit(sites)
        assert all(np.isfinite(centers).all() for centers in model.cluster_centers_)
        assert all(len(labels) == max(len(v) for v in sites[s] if v is not None) for s, labels in model.labels_.items())
        assert all(record["refused"] == {} for record in model.history_)
        assert np.isfinite(model.objective_)
        return model

    def test_one_view(self, estimator, protocol):
        data = datasets.make_sites(3, 20, n_clusters=3, n_features=(20,), shift=0.1, separation=9, random_state=0)
        assert score(data, self.fit(estimator, protocol, 3, data.sites).labels_) > 0.9

    def test_a_view_of_width_one(self, estimator, protocol):
        data = datasets.make_sites(3, 20, n_clusters=3, n_features=(1, 20), random_state=0)
        model = self.fit(estimator, protocol, 3, data.sites)
        assert model.feature_factors_[0].shape[0] == 1

    def test_one_feature_in_all(self, estimator, protocol):
        data = datasets.make_sites(3, 20, n_clusters=3, n_features=(1,), random_state=0)
        self.fit(estimator, protocol, 3, data.sites)

    def test_one_cluster(self, estimator, protocol):
        data = datasets.make_sites(3, 20, n_clusters=1, n_features=(9, 7), random_state=0)
        model = self.fit(estimator, protocol, 1, data.sites)
        assert all(not labels.any() for labels in model.labels_.values())

    def test_one_cluster_that_starts_in_the_mean(self, estimator, protocol):
        """Its centre is 0 in model units, which spans nothing."""
        data = datasets.make_sites(2, 20, n_clusters=1, n_features=(9, 7), random_state=0)
        self.fit(estimator, protocol, 1, data.sites, init=[view.mean(axis=0)[None] for view in data.views])

    def test_a_site_without_a_view(self, estimator, protocol):
        data = datasets.make_sites(3, 25, n_clusters=3, n_features=(20, 15), shift=0.1, separation=9, random_state=0)
        sites = dict(data.sites)
        first = next(iter(sites))
        sites[first] = [None, sites[first][1]]
        assert score(data, self.fit(estimator, protocol, 3, sites, view_weights="learned").labels_) > 0.9

    def test_a_site_without_a_cluster_and_one_with_fewer_rows_than_clusters(self, estimator, protocol):
        data = datasets.make_sites(2, 60, n_clusters=4, n_features=(20, 15), shift=0, separation=9, random_state=0)
        views, labels = data.views, data.labels
        few, rest = np.flatnonzero(labels == 0)[:2], np.flatnonzero(labels != 3)
        parts = {"few": few, "lacks": np.setdiff1d(rest, few), "has": np.flatnonzero(labels == 3)}
        sites = {name: [view[rows] for view in views] for name, rows in parts.items()}
        model = self.fit(estimator, protocol, 4, sites, max_rounds=5)
        found = np.concatenate([model.labels_[name] for name in parts])
        assert adjusted_rand_score(np.concatenate([labels[rows] for rows in parts.values()]), found) > 0.9

    @pytest.mark.filterwarnings("ignore:.* found 2 clusters that have rows:sklearn.exceptions.ConvergenceWarning")
    def test_clusters_that_lose_all_mass(self, estimator, protocol):
        """A start far outside pulls nothing, and nothing is pulled there."""
        data = datasets.make_sites(2, 30, n_clusters=2, n_features=(9, 7), shift=0, separation=9, random_state=0)
        start = [np.vstack([view[:2], view[:1] + 1e4]) for view in data.views]
        rank = (2, 2, 2) if estimator is FedHKTucker else 2
        model = self.fit(estimator, protocol, 3, data.sites, init=start, rank=rank, heat_time=5.0)
        assert len(np.unique(np.concatenate(list(model.labels_.values())))) <= 3

    def test_a_constant_feature_and_equal_rows(self, estimator, protocol):
        data = datasets.make_sites(2, 20, n_clusters=2, n_features=(9, 7), random_state=0)
        sites = {name: [np.repeat(view[:5], 4, axis=0) for view in views] for name, views in data.sites.items()}
        for views in sites.values():
            views[0][:, 0] = 3.0
        model = self.fit(estimator, protocol, 2, sites)
        assert_allclose(model.cluster_centers_[0][:, 0], 3.0, atol=1e-9)


class TestRefused:
    @pytest.mark.parametrize(
        ("estimator", "rank", "said"),
        [
            (FedHKTucker, (4, 2, 2), "rank 4 of the cluster mode for Tucker is above the 3 clusters; at most 3"),
            (FedHKTucker, (3, 41, 2), "rank 41 of the feature mode .* 'view_0' with 40 features; at most 40"),
            (FedHKTucker, (3, 2, 4), "rank 4 of the view mode for Tucker is above the 3 views; at most 3"),
            (FedHKTucker, (3, 2), r"one number or 3 \(cluster, feature, view\), got 2: \(3, 2\)"),
            (FedHKParafac2, 7, "rank 7 for PARAFAC2 is above .*; at most 6"),
            (FedHKParafac2, (2, 2), r"must be one number, got 2: \(2, 2\)"),
        ],
    )
    def test_impossible_ranks_name_the_mode_and_both_sizes(self, data, estimator, rank, said):
        with pytest.raises(ValueError, match=said):
            estimator(3, rank=rank, **QUICK).fit(data.sites)

    @pytest.mark.parametrize("rank", [0, -1, 1.5, "big", True, False, np.nan, None, (0, 1, 1), (1, 1.5, 1), (), "2"])
    @pytest.mark.parametrize("estimator", BOTH)
    def test_what_is_no_rank_names_the_parameter_and_the_value(self, data, estimator, rank):
        with pytest.raises(ValueError, match="rank") as caught:
            estimator(3, rank=rank, **QUICK).fit(data.sites)
        said = str(caught.value)
        assert f"rank={rank!r} must be" in said or f"Got {rank!r} instead" in said

    @pytest.mark.parametrize(
        ("name", "value"),
        [("protocol", "stats"), ("protocol", "k-fed"), ("personalization", 1.1), ("personalization", -0.1)],
    )
    def test_other_parameters_are_named(self, data, name, value):
        with pytest.raises(ValueError, match=f"'{name}' parameter of FedHKTucker .* Got {value!r} instead"):
            FedHKTucker(3, **{name: value}).fit(data.sites)

    @pytest.mark.parametrize(
        ("protocol", "name", "value"),
        [
            (Statistics, "precision", "quarter"),
            (Statistics, "refresh_every", -1),
            (Statistics, "refresh_every", 1.5),
            (FactorAveraging, "aggregation", "median"),
            (FactorAveraging, "blend", 1.1),
            (FactorAveraging, "blend", -0.1),
        ],
    )
    def test_options_of_protocols_are_named(self, protocol, name, value):
        with pytest.raises(ValueError, match=f"{name}={value!r} must be"):
            protocol(**{name: value})

    def test_centers_that_are_averaged_have_no_form(self, data):
        with pytest.raises(ValueError, match=r"protocol=Averaging.* has no place for a decomposition"):
            FedHKTucker(3, protocol="centers").fit(data.sites)

    def test_too_few_rows(self):
        sites = {"a": [np.eye(3)], "b": [np.eye(3)]}
        with pytest.raises(DataError, match=r"n_samples=6, which should be >= n_clusters=7"):
            FedHKTucker(7, **QUICK).fit(sites)

    def test_centres_of_another_shape(self, data):
        start = [np.zeros((3, width + 1)) for width in WIDE]
        with pytest.raises(ValueError, match=r"init for view 'view_0' has shape \(3, 41\)"):
            FedHKTucker(3, init=start).fit(data.sites)


# ----------------------------------------------------------------------------------------------------------- one site


@pytest.fixture(scope="module")
def views():
    data = datasets.make_sites(1, 90, n_clusters=3, n_features=(9, 7, 6), shift=0, separation=4, random_state=1)
    return data.views


class TestAtOneSite:
    """`HeatKernelMVC` with a decomposition; `tests/tensors` has what must be true of the forms."""

    @pytest.mark.parametrize(
        "rank", [0, -1, 1.5, 1.0, "big", True, False, np.nan, (0, 1, 1), (1, 1.5, 1), (), (True, 1, 1)]
    )
    @pytest.mark.parametrize("name", sorted(DECOMPOSITIONS))
    def test_a_rank_that_is_no_number_of_dimensions_is_refused(self, views, name, rank):
        with pytest.raises(ValueError, match="rank") as caught:
            HeatKernelMVC(3, decomposition=name, rank=rank, n_init=1).fit(views)
        said = str(caught.value)
        assert f"rank={rank!r} must be" in said or f"Got {rank!r} instead" in said

    def test_an_unknown_decomposition_is_refused(self, views):
        with pytest.raises(ValueError, match="'decomposition'"):
            HeatKernelMVC(3, decomposition="tt").fit(views)

    def test_a_rank_that_the_views_cannot_have_is_refused_with_the_name_of_the_view(self, views):
        with pytest.raises(ValueError, match="widest view, 'view_0' with 9 features; at most 9"):
            HeatKernelMVC(3, decomposition="tucker", rank=(3, 10, 2), n_init=1).fit(views)

    def test_a_choice_of_the_number_of_clusters_keeps_the_form(self):
        clear = datasets.make_sites(1, 200, n_clusters=3, n_features=(9, 7, 6), shift=0, separation=8, random_state=1)
        model = HeatKernelMVC([2, 3], decomposition="tucker", rank=0.9, n_init=1, random_state=0).fit(clear.views)
        assert model.n_clusters_ == 3
        assert model.cluster_factor_.shape[0] == model.n_clusters_ == len(model.cluster_centers_[0])

    @stops_early
    @pytest.mark.parametrize(("name", "rank"), [("tucker", (2, 3, 2)), ("parafac2", 2), ("cp", 3)])
    def test_rank_and_error_of_the_form_are_attributes(self, views, name, rank):
        model = HeatKernelMVC(3, decomposition=name, rank=rank, n_init=1, max_iter=3, random_state=0).fit(views)
        assert model.rank_ == (rank if isinstance(rank, tuple) else (rank,))
        assert 0 < model.reconstruction_error_ < 1


# -------------------------------------------------------------------------------------------------------- checkpoints


def assert_same_fit(one, other):
    for a, b in zip(one.cluster_centers_, other.cluster_centers_, strict=True):
        assert_array_equal(a, b)
    assert (one.objective_, one.n_iter_, one.rank_) == (other.objective_, other.n_iter_, other.rank_)
    assert one.reconstruction_error_ == other.reconstruction_error_
    for name in ("round", "objective", "clients", "bytes_up", "refused"):
        assert [r[name] for r in one.history_] == [r[name] for r in other.history_]
    for name in ("cluster_factor_", "view_factor_", "core_"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    for a, b in zip(one.feature_factors_, other.feature_factors_, strict=True):
        assert_array_equal(a, b)
    for site, labels in one.labels_.items():
        assert_array_equal(labels, other.labels_[site])


def basis(**options):
    return Statistics(basis=True, **options)


class TestCheckpoints:
    @pytest.fixture
    def sites(self):
        return datasets.make_sites(
            2, 40, n_clusters=3, n_features=(14, 9, 11), shift=0.3, separation=5, random_state=5
        ).sites

    @pytest.mark.parametrize(
        ("estimator", "options"),
        [
            (FedHKTucker, {"rank": (3, 3, 2), "protocol": basis()}),
            (FedHKTucker, {"rank": (3, 3, 2), "protocol": basis(refresh_every=1, precision="double")}),
            # a form that is made at the end
            (FedHKTucker, {"rank": (3, 14, 3), "protocol": basis(precision="half")}),
            (FedHKTucker, {"rank": "auto", "protocol": FactorAveraging(passes=1)}),
            (FedHKParafac2, {"rank": 3, "protocol": basis(refresh_every=1)}),
            (
                FedHKParafac2,
                {"rank": 3, "protocol": FactorAveraging(passes=1, precision="half", aggregation="factors")},
            ),
        ],
        ids=str,
    )
    def test_a_fit_that_stops_after_any_exchange_goes_on_to_the_same_bits(
        self, sites, tmp_path, monkeypatch, estimator, options
    ):
        options = options | {"n_init": 1, "max_rounds": 2, "tol": 0, "random_state": 0}
        if estimator is FedHKParafac2:
            options |= {"init": [view[:3] for view in sites["site-00"]]}
        expected = estimator(3, **options, checkpoint=tmp_path / "whole").fit(sites)
        for last in range(1, 4 if "init" in options else 5):
            model = estimator(3, **options, checkpoint=tmp_path / f"stopped-{last}")
            assert_same_fit(resumed_after(last, model, sites, monkeypatch), expected)

    @stops_early
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"rank": (3, 2, 2)}, r"rank=\[3, 3, 2\] there, \[3, 2, 2\] here"),
            ({"protocol": basis(precision="half")}, r"protocol.precision='auto' there, 'half' here"),
            ({"protocol": basis(refresh_every=4)}, r"protocol.refresh_every=None there, 4 here"),
            ({"protocol": FactorAveraging()}, r"protocol.option='Statistics' there, 'FactorAveraging' here"),
        ],
        ids=str,
    )
    def test_a_checkpoint_of_other_choices_is_refused(self, sites, tmp_path, change, said):
        options = {"rank": (3, 3, 2), "protocol": basis(), "n_init": 1, "max_rounds": 1, "random_state": 0}
        FedHKTucker(3, **options, checkpoint=tmp_path / "run").fit(sites)
        with pytest.raises(CheckpointError, match=f"other settings: .*{said}"):
            FedHKTucker(3, **options | change, checkpoint=tmp_path / "run").fit(sites, resume=True)


@dataclass(frozen=True)
class PairFactors(Factors):
    """Factors with names of their own."""

    table: np.ndarray
    bases: tuple[np.ndarray, ...] = field(metadata=BASIS)

    @property
    def rank(self):
        return (self.table.shape[2],)

    @property
    def view_bases(self):
        return self.bases

    @property
    def coordinates(self):
        return self.table


class Pairs(Decomposition[PairFactors]):
    """Every view has directions of its own, the singular vectors of its centres."""

    name: ClassVar[str] = "pairs"
    factors_class: ClassVar[type[Factors]] = PairFactors

    def limits(self, n_clusters, widths, names=None):
        return (Limit("", n_clusters, "the clusters"),)

    def start(self, centers, rank, generator):
        bases = tuple(np.linalg.svd(part, full_matrices=False)[2][: rank[0]].T for part in centers)
        table = np.stack([part @ basis for part, basis in zip(centers, bases, strict=True)], axis=1)
        return [PairFactors(table, bases)]

    def fit_core(self, factors, targets, weights):
        return replace(factors, table=np.where(weights[:, :, None] > 0, targets, factors.table))

    def align(self, factors, to):
        return factors


class TestOwnDecomposition:
    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch):
        monkeypatch.setitem(DECOMPOSITIONS, "pairs", Pairs())

    def test_its_factors_are_an_attribute_and_others_are_refused_by_their_names(self, data):
        model = HeatKernelMVC(3, decomposition="pairs", rank=2, **QUICK).fit(data.views)
        assert isinstance(model.factors_, PairFactors)
        stacked = [
            view.mean(axis=0) + part * view.std(axis=0) * np.sqrt(view.shape[1])
            for view, part in zip(data.views, model.factors_.centers(), strict=True)
        ]
        for own, found in zip(stacked, model.cluster_centers_, strict=True):
            assert_allclose(own, found, atol=1e-8)
        with pytest.raises(AttributeError, match="the form 'pairs' has no core_: factors_ has its parts, table, bases"):
            _ = model.core_

    def test_own_models_refuse_it_and_say_why(self, data):
        with pytest.raises(ValueError, match="moves G, P, Q and R, which other forms do not have"):
            FedHKPerson(3, decomposition="pairs").fit(data.sites)


def test_all_factors_are_one_object(fitted):
    assert_array_equal(fitted.factors_.cluster_factor, fitted.cluster_factor_)
    assert_array_equal(fitted.factors_.view_factor, fitted.view_factor_)
