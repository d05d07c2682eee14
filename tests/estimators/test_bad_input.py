"""Rows that say little or do not fit together: every estimator gives the right answer, or says what is wrong.

Warnings are errors in the tests, so that a fit without `pytest.warns` is one without a warning.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC, FedHKDiffusion, FedHKParafac2, FedHKPerson, FedHKTucker, HeatKernelMVC
from fedhk.agreement.scalings import STRANGER
from fedhk.datasets import make_sites
from fedhk.errors import DataError

pytestmark = pytest.mark.filterwarnings("error")  # also of views that have nothing in common
ESTIMATORS = [EFKMVC, FedHKTucker, FedHKParafac2, FedHKPerson, FedHKDiffusion]
CONSTANT, ALONE = r"all rows have the same values in view 'view_2', at every site", f"{STRANGER}. Are the rows of all"


@pytest.fixture(scope="module")
def data():
    return make_sites(4, 60, n_clusters=3, n_features=(5, 6), separation=8, random_state=0)


@pytest.fixture(params=ESTIMATORS, ids=lambda estimator: estimator.__name__)
def model(request):
    return request.param(3, random_state=0)


def score(model, labels):
    truth, found = (np.concatenate([parts[site] for site in labels]) for parts in (labels, model.labels_))
    return adjusted_rand_score(truth, found)


def add_view(sites, make):
    """Sites with one view more: `make` gives it from the number of the site and of its rows."""
    return {site: [*views, make(number, len(views[0]))] for number, (site, views) in enumerate(sites.items())}


def shuffle_view(sites, view):
    """Sites whose rows of one view are in another order."""
    rng = np.random.default_rng(0)
    return {
        site: [rng.permutation(table) if number == view else table for number, table in enumerate(views)]
        for site, views in sites.items()
    }


class TestConstantView:
    def test_it_is_said_and_the_others_are_clustered(self, model, data):
        with pytest.warns(UserWarning, match=CONSTANT):
            model.fit(add_view(data.sites, lambda _, rows: np.full((rows, 3), 7.0)))
        assert score(model, data.site_labels) > 0.95

    def test_it_is_said_where_views_have_a_name_and_one_other_varies(self, data):
        sites = {site: {"ecg": views[0], "lab": np.zeros((len(views[0]), 2))} for site, views in data.sites.items()}
        with pytest.warns(UserWarning, match=r"same values in view 'lab', at every") as said:
            model = EFKMVC(3, random_state=0).fit(sites)
        assert len(said) == 1  # and not that no view agrees with the other
        assert score(model, data.site_labels) > 0.8

    def test_it_is_said_at_one_site_and_under_masks(self, data):
        views = [np.vstack(parts) for parts in zip(*data.sites.values(), strict=True)]
        with pytest.warns(UserWarning, match=r"same values in view 'view_2'\. Clusters"):
            HeatKernelMVC(3, random_state=0).fit([*views, np.ones((len(views[0]), 2))])
        with pytest.warns(UserWarning, match=CONSTANT):
            EFKMVC(3, secure=True, max_rounds=3, tol=0, random_state=0).fit(
                add_view(data.sites, lambda _, rows: np.ones((rows, 2)))
            )

    def test_constant_at_one_site_only_is_no_doubt(self, model, data):
        first = next(iter(data.sites))
        sites = data.sites | {first: [data.sites[first][0], np.ones_like(data.sites[first][1])]}
        model.fit(sites)
        assert score(model, {site: data.site_labels[site] for site in sites if site != first}) > 0.9

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_nothing_but_constants_is_said_to_be_alike(self, estimator, data):
        sites = {site: [np.ones((len(views[0]), 3)), np.ones((len(views[0]), 2))] for site, views in data.sites.items()}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            estimator(3, random_state=0).fit(sites)
        text = " ".join(str(warning.message) for warning in said)
        assert "all rows belong to all clusters almost alike" in text
        assert "same values" not in text


class TestViewsOfOtherRows:
    def test_it_is_said(self, model, data):
        with pytest.warns(UserWarning, match=f"views 'view_0' and 'view_1' have {ALONE}"):
            model.fit(shuffle_view(data.sites, 1))
        assert [choice["note"] for choice in model.choices_ if choice["choice"] == "scaling" and choice["taken"]] == [
            STRANGER
        ] * 2

    def test_the_one_view_that_agrees_with_none_is_named(self, model, data):
        sites = shuffle_view(add_view(data.sites, lambda number, _: list(data.sites.values())[number][0][:, ::-1]), 1)
        with pytest.warns(UserWarning, match=f"view 'view_1' has {ALONE}"):
            model.fit(sites)

    def test_it_is_said_under_masks(self, data):
        with pytest.warns(UserWarning, match=ALONE):
            EFKMVC(3, secure=True, max_rounds=2, tol=0, random_state=0).fit(shuffle_view(data.sites, 0))

    def test_few_rows_cannot_tell(self):
        data = make_sites(4, 6, n_clusters=2, n_features=(5, 6), separation=8, random_state=0)
        EFKMVC(2, random_state=0).fit(shuffle_view(data.sites, 1))


def test_one_view(model, data):
    model.fit({site: views[:1] for site, views in data.sites.items()})
    assert score(model, data.site_labels) > 0.8
    assert model.view_weights_.tolist() == [1.0]


def test_all_views_alike_are_one_view(data):
    """They agree about everything, so that agreement decides nothing."""
    for estimator in ESTIMATORS:
        one, three = (
            estimator(3, random_state=0).fit({site: count * views[:1] for site, views in data.sites.items()})
            for count in (1, 3)
        )
        truth = data.site_labels
        assert score(three, truth) == pytest.approx(score(one, truth), abs=0.1)  # a row is about .012


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("estimator", [FedHKPerson, FedHKDiffusion])
def test_one_view_or_copies_of_it_at_sites_that_differ(estimator, copies):
    data = make_sites(6, 80, n_clusters=3, n_features=(8, 8), shift=2.0, separation=8, random_state=0)
    model = estimator(3, random_state=0).fit({site: copies * views[:1] for site, views in data.sites.items()})
    assert model.calibration_["shift"] == 1.0
    assert score(model, data.site_labels) > 0.8


def test_two_rows_a_site(model):
    data = make_sites(1, 80, n_clusters=3, n_features=(4, 5), separation=8, random_state=1)
    ((name, views),) = data.sites.items()
    pairs = np.random.default_rng(0).permutation(80).reshape(40, 2)
    model.fit({f"site-{i:02d}": [view[rows] for view in views] for i, rows in enumerate(pairs)})
    assert score(model, {f"site-{i:02d}": data.site_labels[name][rows] for i, rows in enumerate(pairs)}) > 0.95


def test_more_clusters_than_rows(model, data):
    sites = {site: [view[:2] for view in views] for site, views in data.sites.items()}
    with pytest.raises(DataError, match=r"n_samples=8, which should be >= n_clusters=9"):
        model.set_params(n_clusters=9).fit(sites)


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_own_models_place_the_rows_that_they_were_fitted_on_as_labels_say(model, shift):
    data = make_sites(4, 60, n_clusters=3, n_features=(5, 6), shift=shift, random_state=0)
    model.fit(data.sites)
    for site, views in data.sites.items():
        assert_array_equal(model.client_models_[site].predict(views), model.labels_[site])
        if not shift:  # sites are read alike
            assert_array_equal(model.predict(views), model.global_labels_[site])
