"""A federation gives what the pooled rows give, and neither threads nor the order of sites change a bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from federations import assert_same_model, make_plan, run_sites
from fedhk import EFKMVC, HeatKernelMVC, datasets
from fedhk.federation.engines import inprocess
from fedhk.federation.messages import decode
from fedhk.federation.server import server_step
from fedhk.federation.state import ServerState
from fedhk.model import rows as model_rows

N_CLUSTERS = 3


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(2, 60, n_clusters=N_CLUSTERS, n_features=(4, 7), separation=3, random_state=5)


def split(data, n_sites, kind):
    if kind == "even":
        rows = datasets.split_even(len(data.labels), n_sites, random_state=1)
    else:
        rows = datasets.split_dirichlet(data.labels, n_sites, 0.1, random_state=1)
    return datasets.split_views(data.views, rows)


def with_gaps(sites, gaps):
    """Sites with missing cells, or without some views; the first site has all views."""
    rng = np.random.default_rng(0)
    result = {}
    for i, (name, views) in enumerate(sites.items()):
        views = [view.copy() for view in views]  # noqa: PLW2901
        if gaps == "cells":
            for view in views:
                view[rng.random(view.shape) < 0.15] = np.nan
        elif gaps == "views" and i % 3:
            views[i % 3 - 1] = None
        result[name] = views
    return result


def pooled(sites):
    """All rows; NaN where a site does not have a view."""
    widths = [next(s[h].shape[1] for s in sites.values() if s[h] is not None) for h in range(2)]
    sizes = [next(len(view) for view in site if view is not None) for site in sites.values()]
    filled = [
        [np.full((n, width), np.nan) if view is None else view for view, width in zip(views, widths, strict=True)]
        for n, views in zip(sizes, sites.values(), strict=True)
    ]
    return [np.vstack(parts) for parts in zip(*filled, strict=True)]


def start(data):
    return [view[[0, 40, 100]] for view in data.views]


def assert_same_fit(federated, alone, atol=1e-9):
    for one, other in zip(federated.cluster_centers_, alone.cluster_centers_, strict=True):
        assert_allclose(one, other, rtol=0, atol=atol)
    assert_allclose(federated.view_weights_, alone.view_weights_, rtol=0, atol=atol)
    assert federated.objective_ == pytest.approx(alone.objective_, rel=atol, abs=atol)
    assert federated.n_iter_ == alone.n_iter_


SPLITS = [(1, "even"), *((n, kind) for n in (3, 10) for kind in ("even", "dirichlet")), (50, "dirichlet")]
CASES = [(n, kind, gaps) for n, kind in SPLITS for gaps in ("complete", "cells", "views") if n > 1 or gaps != "views"]


@pytest.mark.parametrize("view_weights", ["uniform", "learned"])
@pytest.mark.parametrize("heat_coef", ["uniform", "minmax", "absdev"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_any_split_gives_the_model_of_the_pooled_rows(data, case, heat_coef, view_weights):
    n_sites, kind, gaps = case
    sites = with_gaps(split(data, n_sites, kind), gaps)
    shared = {"heat_coef": heat_coef, "view_weights": view_weights, "init": start(data), "tol": 0.0}
    federated = EFKMVC(N_CLUSTERS, max_rounds=4, protocol="statistics", **shared).fit(sites)
    alone = HeatKernelMVC(N_CLUSTERS, max_iter=4, **shared).fit(pooled(sites))
    assert_same_fit(federated, alone)
    assert_array_equal(np.concatenate(list(federated.labels_.values())), alone.labels_)


@given(
    seed=st.integers(0, 2**16),
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    scaling=st.sampled_from(["standard", "minmax", "l2", "none"]),
    heat_coef=st.sampled_from(["uniform", "minmax", "absdev"]),
    tol=st.sampled_from([0.0, 1e-3]),
)
@settings(max_examples=25)
def test_sites_of_any_sizes_with_any_scaling_lose_nothing(seed, sizes, scaling, heat_coef, tol):
    rng = np.random.default_rng(seed)
    sizes = [*sizes, 4]
    views = [rng.normal(size=(sum(sizes), width)) * 10 ** rng.uniform(-3, 3) for width in (1, 3)]
    bounds = np.cumsum(sizes)[:-1]
    sites = {f"s{i}": list(parts) for i, parts in enumerate(zip(*(np.split(v, bounds) for v in views), strict=True))}
    # with "l2" rows have length 1, and so must centres: one far outside is moved by nothing but rounding
    start = [view[-2:] / (np.linalg.norm(view[-2:], axis=1, keepdims=True) if scaling == "l2" else 1) for view in views]
    shared = {"scaling": scaling, "heat_coef": heat_coef, "init": start, "tol": tol}
    federated = EFKMVC(2, max_rounds=5, **shared).fit(sites)
    alone = HeatKernelMVC(2, max_iter=5, **shared).fit(views)
    for one, other, view in zip(federated.cluster_centers_, alone.cluster_centers_, views, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-9 * np.abs(view).max())
    assert federated.objective_ == pytest.approx(alone.objective_, rel=1e-9, abs=1e-12)


def test_converges_in_the_same_round_as_pooled_rows(data):
    sites = split(data, 10, "dirichlet")
    federated = EFKMVC(N_CLUSTERS, init=start(data)).fit(sites)
    alone = HeatKernelMVC(N_CLUSTERS, init=start(data)).fit(pooled(sites))
    assert_same_fit(federated, alone)
    assert federated.converged_
    assert 2 < federated.n_iter_ < 100
    assert [r["objective"] for r in federated.history_] == pytest.approx([r["objective"] for r in alone.history_])


@pytest.mark.parametrize("protocol", ["statistics", "centers"])
@pytest.mark.parametrize("workers", [2, 4])
def test_any_number_of_workers_gives_the_same_bits(data, monkeypatch, workers, protocol):
    monkeypatch.setattr(inprocess, "WORTH_A_THREAD", 0)  # these sites are small
    monkeypatch.setattr(model_rows, "PASS_BYTES", 2**10)  # many blocks a pass
    sites = with_gaps(split(data, 3, "dirichlet"), "cells")
    plan = make_plan(protocol=protocol, heat_coef="absdev", view_weights="learned")
    alone, _ = run_sites(plan, sites)
    threaded, _ = run_sites(plan, sites, workers=workers)
    assert_same_model(threaded, alone)


def test_one_large_site_in_threads_gives_the_same_bits(data, monkeypatch):
    monkeypatch.setattr(model_rows, "PASS_BYTES", 2**10)
    sites = {"only": data.views}
    plan = make_plan()
    assert_same_model(run_sites(plan, sites, workers=4)[0], run_sites(plan, sites)[0])


def test_threads_of_the_machine_change_no_bit_of_the_estimator(data, monkeypatch):
    monkeypatch.setattr(inprocess, "WORTH_A_THREAD", 0)
    sites = split(data, 5, "even")
    models = []
    for threads in (1, 4):
        with threadpool_limits(threads, user_api="blas"):
            models.append(EFKMVC(N_CLUSTERS, n_init=3, random_state=0).fit(sites))
    for one, other in zip(*(model.cluster_centers_ for model in models), strict=True):
        assert_array_equal(one, other)
    assert models[0].objective_ == models[1].objective_


@pytest.fixture(scope="module")
def small_fit():
    sites = datasets.make_sites(6, 15, n_clusters=3, n_features=(3, 4), random_state=2).sites
    model = EFKMVC(3, n_init=2, max_rounds=3, random_state=0)
    return sites, model, model.fit(sites).cluster_centers_


@given(order=st.permutations(range(6)))
@settings(max_examples=8)
def test_any_order_of_sites_gives_the_same_bits(small_fit, order):
    sites, model, expected = small_fit
    names = list(sites)
    turned = clone(model).fit({names[i]: sites[names[i]] for i in order})
    for one, other in zip(turned.cluster_centers_, expected, strict=True):
        assert_array_equal(one, other)


def test_the_server_takes_answers_in_the_order_of_names(data):
    """Sums of the same numbers in another order differ in their last bits; here they must not."""
    sites = split(data, 6, "even")
    plan = make_plan(max_rounds=1)
    _, engine = run_sites(plan, sites)
    replies = [[decode(answer) for answer in answers.values()] for answers in engine.received]
    states = []
    for order in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 5, 0, 3, 1, 4], [3, 0, 4, 1, 5, 2]):
        state = ServerState()
        for messages in replies:
            state, _ = server_step(plan, state, [messages[i] for i in order])
        states.append(state)
    for state in states[1:]:
        assert_array_equal(
            np.hstack(state.progress.parameters.centers), np.hstack(states[0].progress.parameters.centers)
        )
        assert state.final_objective == states[0].final_objective


@pytest.mark.parametrize("init", ["k-fed", "k-means++", "random"])
def test_the_default_start_needs_no_rows_and_finds_the_clusters_of_pooled_rows(data, init):
    sites = split(data, 5, "dirichlet")
    federated = EFKMVC(N_CLUSTERS, init=init, random_state=0).fit(sites)
    weights = federated.view_weights_
    same = HeatKernelMVC(N_CLUSTERS, random_state=0, fuzzifier=federated.fuzzifier_, view_weights=weights)
    assert federated.objective_ <= 1.01 * same.fit(pooled(sites)).objective_
