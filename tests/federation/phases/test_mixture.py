"""Phases of the mixture: what sites send is a sum, the mixture is that of all rows, and lies are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from embedded_runs import describe, make_views, rows_of, site_with, take_views
from federations import run_sites
from fedhk.errors import MessageError
from fedhk.federation.phases.describe import Describe
from fedhk.federation.phases.mixture import (
    FindDirections,
    FitMixture,
    FittedMixture,
    MixtureDirections,
    MixtureState,
)
from fedhk.federation.run import Run
from fedhk.federation.table import Table
from fedhk.model.rows import joint_rows
from fedhk.testing.phases import SumPhaseChecks
from fedhk.testing.sites import CLUSTERS, SETTINGS

PHASES = [FindDirections(0), FitMixture(3, 0)]


class TestFitMixture(SumPhaseChecks):
    def before(self):
        return [Describe(SETTINGS), FindDirections(0)]

    def phase(self):
        return FitMixture(CLUSTERS, 0)


def wide_views(n=120, width=50):
    return [np.random.default_rng(0).normal(size=(n, 6)) @ np.random.default_rng(1).normal(size=(6, width))]


def split_views(views):
    return {f"site-{start}": take_views(views, np.arange(start, len(views[0]), 3)) for start in range(3)}


@pytest.mark.parametrize(("views", "exchanges"), [(make_views()[0], 0), (wide_views(), 1)])
def test_the_mixture_has_the_second_moments_of_all_rows(views, exchanges):
    sites = split_views(views)
    run, engine = run_sites(PHASES, sites, run=Run(board=describe(sites)))
    assert engine.phases.count("find directions") == exchanges
    assert engine.phases.count("fit mixture") <= 8
    assert not run.board.has(MixtureState)
    found = run.board.get(FittedMixture).mixture
    inner = joint_rows(rows_of(run.board, views)) @ found.directions
    moments = (found.means.T * found.shares) @ found.means + found.root @ found.root
    assert_allclose(moments, inner.T @ inner / len(inner), atol=1e-6)


def test_a_site_whose_operator_asks_for_larger_groups_sends_no_smaller_ones():
    views, _ = make_views()
    board = PHASES[1].begin(PHASES[0].begin(describe({"all": views})))
    site = site_with(board, take_views(views, np.arange(20)))
    request = replace(PHASES[1].request(board), points=Table.of(joint_rows(site.rows()), "half"), scatter=False)
    assert np.all(PHASES[1].vector(site, request)[:20] == 1)
    site.least_group = 4
    sizes = PHASES[1].vector(site, request)[:20]
    assert np.all((sizes == 0) | (sizes >= 4))


def test_groups_that_no_rows_have_are_refused():
    sites = split_views(make_views()[0])
    board, phase = PHASES[1].begin(PHASES[0].begin(describe(sites))), PHASES[1]
    honest = phase.vector(site_with(board, sites["site-1"]), phase.request(board))
    larger = honest * np.where(np.arange(len(honest)) < 2, 1.0, 1e3)  # one group: its size, its squares, then its sums
    for values, reason in ((-honest, "no rows can have"), (larger, "larger sums")):
        with pytest.raises(MessageError, match=reason):
            phase.check_vector(board, values, "site-1")


@pytest.mark.parametrize(
    ("points", "reason"), [(np.zeros((2, 3)), r"points have shape \(2, 3\)"), (np.full((2, 7), np.inf), "infinite")]
)
def test_a_site_refuses_points_that_are_none(points, reason):
    views, _ = make_views()
    board = PHASES[1].begin(PHASES[0].begin(describe({"all": views})))
    request = replace(PHASES[1].request(board), points=Table(points, np.zeros(0)))
    with pytest.raises(MessageError, match=reason):
        PHASES[1].vector(site_with(board, views), request)


def test_a_site_refuses_directions_of_other_rows():
    views, _ = make_views()
    board = PHASES[1].begin(PHASES[0].begin(describe({"all": views})))
    request = PHASES[1].request(board)
    board = board.put(MixtureDirections(Table.of(np.eye(6), "half")))
    with pytest.raises(MessageError, match=r"directions have shape \(6, 6\)"):
        PHASES[1].vector(site_with(board, views), request)
