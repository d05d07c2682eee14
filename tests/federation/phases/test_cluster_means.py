"""The end of a run on embedded rows: what clusters look like in the views that came in, and lies about it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from embedded_runs import make_phases, make_views, take_views, without_view
from embedding.graphs import make_rows
from federations import parameters_of, run_sites, with_field
from fedhk.embedding.cluster_sums import ClusterSums, sum_clusters
from fedhk.errors import MessageError
from fedhk.federation.entries import References, Result, fitted_model
from fedhk.federation.phases.cluster_means import ClusterMeans, check_cluster_sums, incomplete_views
from fedhk.federation.phases.deliver import Outcome
from fedhk.federation.plausible import limits_from_moments
from fedhk.model.preparation import site_moments

NAMES = ("oslo", "pisa", "rome")


def make_sites(**options):
    views, _ = make_views(**options)
    return {name: take_views(views, np.arange(start, 240, 3)) for start, name in enumerate(NAMES)}


@pytest.mark.parametrize("calibration", [None, (0.75, 0.75)])
@pytest.mark.parametrize("missing", [False, True])
def test_means_are_of_the_rows_in_input_units(calibration, missing):
    sites = make_sites(missing=missing)
    if missing:
        sites["pisa"] = without_view(sites["pisa"], 1)
    run, engine = run_sites(make_phases(calibration=calibration, deliver=True), sites)
    board = run.board
    assert incomplete_views(board) == ((0,) if missing else ())  # rows have all of the second view, or nothing
    outcomes = {name: site.memory.get(Outcome).outcome for name, site in engine.states.items()}
    memberships = np.vstack([outcomes[name].memberships for name in NAMES])
    assert_allclose(board.get(ClusterMeans).sizes, memberships.sum(axis=0))
    widths = board.get(References).widths
    for view, width in enumerate(widths):
        tables = [sites[name][view] for name in NAMES]
        rows = np.vstack([np.full((80, width), np.nan) if table is None else table for table in tables])
        seen = ~np.isnan(rows)
        means = memberships.T @ np.where(seen, rows, 0.0) / (memberships.T @ seen)
        model = fitted_model(board, parameters_of(run), (None, None))
        assert_allclose(model.centers()[view], means, rtol=1e-9)


def test_the_objective_comes_in_the_same_exchange():
    run, engine = run_sites(make_phases(), make_sites())
    assert engine.phases[-2:] == ["round", "finish embedded"]
    assert run.board.get(Result).rows == 240
    assert run.board.get(Result).objective <= run.history[-1]["objective"]


def test_sums_that_no_rows_have_are_refused_and_the_run_goes_on():
    def lie(site, kind, exchange, answer):
        lies = site == "rome" and kind in ("diffuse", "finish embedded")
        return with_field("values", lambda values: np.asarray(values, np.float64) - 1e9)(answer) if lies else answer

    run, _ = run_sites(make_phases(max_rounds=1), make_sites(), tamper=lie)
    assert "below zero" in run.history[0]["refused"]["rome"]
    assert run.board.get(ClusterMeans).sizes.sum() == pytest.approx(160)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: ClusterSums(-f.sizes, f.sums, f.seen), "fewer than none"),
        (lambda f: ClusterSums(10 * f.sizes, f.sums, f.seen), "more rows than the 30"),
        (lambda f: ClusterSums(f.sizes, f.sums, 100 * f.seen), "more rows than the 30"),
        (lambda f: ClusterSums(f.sizes, f.sums + 1e9, f.seen), "far outside the range"),
    ],
)
def test_sums_of_clusters_that_no_rows_have_are_refused(change, words):
    rng = np.random.default_rng(0)
    rows = make_rows([rng.normal(size=(30, 2)), rng.normal(size=(30, 3))], "none")
    limits = limits_from_moments(rows.references, site_moments(rows.views, rows.widths, unit_rows=False))
    found = sum_clusters(rows, rng.dirichlet(np.ones(3), size=30), [1])
    check_cluster_sums(found, 30.0, limits, (1,), "oslo")
    with pytest.raises(MessageError, match=words):
        check_cluster_sums(change(found), 30.0, limits, (1,), "oslo")
