"""Many small sites in one process answer as one, with what they would say one by one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fedhk import EFKMVC, FedHKPerson, Participation
from fedhk.errors import MessageError
from fedhk.federation.engines import inprocess, pools
from fedhk.federation.protocols.statistics import StatisticsRequest

N_SITES = 12
QUICK = {"random_state": 0, "max_rounds": 4, "tol": 0.0, "view_weights": "uniform"}


def make_sites(n_rows=10, change=lambda view: view):
    rng = np.random.default_rng(0)
    centers = [4 * rng.normal(size=(3, width)) for width in (3, 4)]
    sites = {}
    for number in range(N_SITES):
        labels = rng.integers(0, 3, n_rows)
        sites[f"site {number:02d}"] = [change(c[labels] + rng.normal(size=(n_rows, c.shape[1]))) for c in centers]
    return sites


@pytest.fixture
def fit(monkeypatch):
    """A fit in which sites answer one by one, or as one wherever they can; and how many passes over rows there were."""

    def run(sites, as_one, estimator=EFKMVC, **parameters):
        passes = []
        answer = StatisticsRequest.answer
        with monkeypatch.context() as patch:
            patch.setattr(inprocess, "MANY_SITES", 2 if as_one else 10**9)
            patch.setattr(StatisticsRequest, "answer", lambda *args: passes.append(args[1]) or answer(*args))
            return estimator(3, **QUICK | parameters).fit(sites), len(passes)

    return run


def assert_same(one, other):
    assert_allclose(np.hstack(one.cluster_centers_), np.hstack(other.cluster_centers_), rtol=1e-12, atol=1e-12)
    assert_allclose(one.objective_, other.objective_, rtol=1e-12)
    assert [record["clients"] for record in one.history_] == [record["clients"] for record in other.history_]
    for site in one.labels_:
        assert_array_equal(one.labels_[site], other.labels_[site])
        assert_allclose(one.memberships_[site], other.memberships_[site], atol=1e-9)


def in_float32(view):
    return view.astype(np.float32)


def with_gaps(view):
    view = view.copy()
    view[0, 1] = np.nan
    return view


@pytest.mark.parametrize("change", [lambda view: view, with_gaps, lambda view: sp.csr_array(np.abs(view))])
def test_a_pool_gives_what_its_sites_give_one_by_one(fit, change):
    sites = make_sites(change=change)
    together, few = fit(sites, as_one=True)
    apart, many = fit(sites, as_one=False)
    assert_same(together, apart)
    rounds = len(apart.history_)
    assert (few, many) == (rounds, N_SITES * rounds)
    assert sum(r["bytes_up"] for r in together.history_) < sum(r["bytes_up"] for r in apart.history_)


def test_a_pool_in_single_precision_is_as_near_as_single_precision_is(fit):
    sites = make_sites(change=in_float32)
    together, apart = fit(sites, as_one=True)[0], fit(sites, as_one=False)[0]
    assert_allclose(np.hstack(together.cluster_centers_), np.hstack(apart.cluster_centers_), rtol=1e-4, atol=1e-5)


def test_sites_of_other_forms_and_large_ones_are_in_other_pools_or_alone(fit, monkeypatch):
    sites = make_sites()
    sites["site 03"][1] = None
    sites["site 05"][0] = with_gaps(sites["site 05"][0])
    sites["site 07"][0], sites["site 07"][1] = make_sites(n_rows=200)["site 07"]
    monkeypatch.setattr(pools, "MOST_CELLS", 1000)
    together, few = fit(sites, as_one=True)
    apart, _ = fit(sites, as_one=False)
    assert_same(together, apart)
    assert few == 4 * len(apart.history_)  # one pool of nine sites, and three sites


def test_a_site_that_fails_is_refused_by_name_and_the_others_go_on(fit, monkeypatch):
    sites, answer = make_sites(), StatisticsRequest.answer

    def fail(request, site):
        if site.views.n_rows > 10 or site.name == "site 04":
            raise MessageError("no")
        return answer(request, site)

    monkeypatch.setattr(StatisticsRequest, "answer", fail)
    model, _ = fit(sites, as_one=True)
    assert model.history_[0]["refused"] == {"site 04": "no"}
    assert model.history_[0]["clients"] == N_SITES - 1


@pytest.mark.filterwarnings("ignore:.* gives back its start:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "parameters",
    [
        {"aggregator": "median"},
        {"protocol": "centers"},
        {"heat_coef": "minmax-local"},
        {"estimator": FedHKPerson, "calibration": (1.0, 0.5)},
    ],
)
def test_where_sites_differ_or_count_one_by_one_there_is_no_pool(fit, parameters):
    together, apart = fit(make_sites(), as_one=True, **parameters), fit(make_sites(), as_one=False, **parameters)
    assert together[0].objective_ == apart[0].objective_
    assert together[1] == apart[1] or parameters.get("estimator") is FedHKPerson


def test_another_part_of_the_sites_in_every_round_is_pooled_anew(fit):
    parameters = {"participation": Participation(fraction=0.5)}
    together, few = fit(make_sites(), as_one=True, **parameters)
    apart, _ = fit(make_sites(), as_one=False, **parameters)
    assert_same(together, apart)
    assert few < 2 * len(apart.history_)


@pytest.mark.slow
def test_a_thousand_sites_answer_as_one_without_being_told_to():
    rng = np.random.default_rng(0)
    sites = {f"site {i:04d}": [rng.normal(size=(4, 2)) + 5 * (i % 2)] for i in range(inprocess.MANY_SITES)}
    model = EFKMVC(2, **QUICK).fit(sites)
    per_site = model.history_[1]["bytes_up"] / len(sites)
    assert per_site < 50
    assert model.history_[1]["clients"] == len(sites)
