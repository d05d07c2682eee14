"""Questions after a fit at odd sites: without rows, with one row, all rows in one cluster; and what no row may move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedhk
from after.hospitals import make_federation
from fedhk.after.binary import CountEvents
from fedhk.after.comparison import CountPairs
from fedhk.after.placement import CountDistances
from fedhk.after.run import ask_sites, read_sites
from fedhk.after.survival import NOISY_KINDS, CountSurvival
from fedhk.data.outcomes import EVENTS, TIMES
from fedhk.datasets import make_sites
from fedhk.errors import DataError, QuorumError
from fedhk.federation.board import Board
from fedhk.federation.placed import OTHER_CLUSTERS, PlacedSite
from fedhk.privacy import DifferentialPrivacy


@pytest.fixture(scope="module")
def odd():
    """Two clusters at two sites, a site with one row, one without rows, and one with all rows in one cluster."""
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.normal(size=(60, 3)), rng.normal(size=(60, 3)) + 8])
    sites = {"a": [rows[::2]], "b": [rows[1::2]], "one": [rows[:1]], "none": [rows[:0]], "same": [rows[:20]]}
    return fedhk.EFKMVC(2, scaling="standard", random_state=0).fit(sites), sites


def draw(sites, seed=0):
    rng = np.random.default_rng(seed)
    time = {site: rng.integers(1, 50, len(views[0])).astype(float) for site, views in sites.items()}
    return time, {site: rng.integers(0, 2, len(values)).astype(float) for site, values in time.items()}


@pytest.mark.parametrize("secure", [False, True])
def test_odd_sites_add_what_they_have(odd, secure):
    model, sites = odd
    time, event = draw(sites)
    found = fedhk.profile(model, sites, secure=secure)
    assert found.rows.sum() == 141
    assert np.isfinite(found.i_squared).all()
    survival = fedhk.outcomes(model, sites, time=time, event=event, secure=secure)
    assert_allclose(survival.rows.sum(), 141)
    assert np.isfinite(survival.p)
    assert np.isfinite(fedhk.outcomes(model, sites, event=event, secure=secure).p)
    assert np.isfinite(fedhk.outcomes(model, sites, value=time, secure=secure).p)
    assert fedhk.stability(model, sites, n_resamples=4, secure=secure).verdicts == ["stable", "stable"]
    assert fedhk.compare(model, model, sites, secure=secure).stayed == 1.0


def test_rows_of_a_site_that_the_model_left_out_are_not_counted_in_silence():
    sites = make_sites(5, 40, n_clusters=2, shift=0.2, random_state=0).sites
    sites["site-03"] = [1000.0 * view for view in sites["site-03"]]
    with pytest.warns(UserWarning, match="Left out of the model: 'site-03'"):
        model = fedhk.EFKMVC(2, random_state=0).fit(sites)
    with pytest.warns(UserWarning, match="the model left out 'site-03', whose values deviate"):
        fedhk.profile(model, sites)
    fedhk.profile(model, {site: views for site, views in sites.items() if site != "site-03"})  # without a warning


def test_an_outcome_that_nobody_knows_is_no_number(odd):
    model, sites = odd
    unknown = {site: np.full(len(views[0]), np.nan) for site, views in sites.items()}
    found = fedhk.outcomes(model, sites, event=unknown)
    assert np.isnan(found.p)
    assert found.missing.sum() == 141
    assert np.isnan(fedhk.outcomes(model, sites, value=unknown).p)
    assert np.isnan(fedhk.outcomes(model, sites, time=unknown, event=unknown, grid=10).curves).all()


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_no_row_moves_counts_by_more_than_is_stated(odd, neighbours):
    model, sites = odd
    asked, rng = read_sites(model, {"a": sites["a"]}), np.random.default_rng(0)
    n = asked.sites["a"].n_rows
    asked = asked.with_view(TIMES, ("time",), {"a": rng.uniform(0, 9, (n, 1))})
    asked = asked.with_view(EVENTS, ("event",), {"a": rng.integers(0, 2, (n, 1)).astype(float)})
    asked = asked.with_view(OTHER_CLUSTERS, ("cluster",), {"a": rng.integers(0, 2, (n, 1)).astype(float)})
    grid = tuple(np.linspace(0, 8, 5))
    for phase in (CountSurvival(2, grid, kinds=NOISY_KINDS), CountPairs(2, 2), CountDistances()):
        request, moved = phase.request(Board()), 0.0
        stated = phase.sensitivity(request, phase.size(Board()), neighbours)
        whole = _vector(phase, model, asked.sites["a"], request)
        for row in range(n):
            moved = max(
                moved,
                np.linalg.norm(whole - _vector(phase, model, _change(asked.sites["a"], row, neighbours, rng), request)),
            )
        assert 0.7 * stated < moved <= stated + 1e-9, phase.name
    assert CountEvents.sensitivity(CountEvents(2).request(Board()), 6, "add-remove") == 1.0


def _vector(phase, model, views, request):
    return phase.vector(PlacedSite("a", views, model=model._model), request)


def _change(views, row, neighbours, rng):
    """The views with another row in the place of one, or without it."""
    tables = [np.array(table, np.float64) for table in views.tables]
    if neighbours == "add-remove":
        return replace(views, tables=tuple(np.delete(table, row, axis=0) for table in tables), n_rows=views.n_rows - 1)
    for table in tables:
        table[row] = rng.choice([-5.0, 0.0, 1.0, 20.0, np.nan], table.shape[1])
    tables[-1][row] = rng.integers(0, 2)
    return replace(views, tables=tuple(tables), missing=(True,) * len(tables))


def test_every_site_must_answer():
    model, sites, _ = make_federation()
    wide = {site: np.zeros((len(views["lab"]), 1 + (site == "cairo"))) for site, views in sites.items()}
    asked = read_sites(model, sites).with_view(EVENTS, ("event",), wide)
    with pytest.raises(QuorumError, match="cairo: view 'an event' has 2 features here"):
        ask_sites(model, asked, [CountEvents(3)])


def test_a_budget_for_fewer_sums_is_refused():
    model, sites, _ = make_federation()
    asked = read_sites(model, sites)
    budget = DifferentialPrivacy(1.0, 1e-5, bounds=(0, 1), rounds=1)
    with pytest.raises(ValueError, match="rounds=1 of the budget must be at least 2"):
        ask_sites(model, asked, [CountEvents(3), CountEvents(3)], privacy=budget)


def test_coefficients_of_a_whole_site_do_not_go_with_noise():
    _, sites, _ = make_federation()
    local = fedhk.EFKMVC(2, scaling="standard", heat_coef="minmax-local", random_state=0).fit(sites)
    with pytest.raises(ValueError, match="depends on all rows of a site"):
        fedhk.profile(local, sites, privacy=DifferentialPrivacy(100.0, 1e-5, bounds=(0, 1)))


def test_what_is_no_model_is_refused():
    _, sites, _ = make_federation()
    with pytest.raises(TypeError, match="clusterer"):
        fedhk.profile(fedhk.HeatDiffusion(2, random_state=0).fit(sites["cairo"]), sites)
    with pytest.raises(DataError, match="sites must be a dict"):
        fedhk.profile(make_federation()[0], 3)
