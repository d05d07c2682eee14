"""Candidates stand for rows without being rows, and draws do not depend on the order of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedhk.data.views import check_views
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows, joint_rows
from fedhk.starts import seeding
from fedhk.starts.candidates import candidate_rows, site_candidates
from fedhk.starts.seeding import SEEDERS, distinct_rows, exceed_cloud, view_factors


def rows_of(views):
    checked = check_views(views)
    return Rows(checked, prepare(checked, "standard", "uniform", None))


@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 30))
@settings(max_examples=50)
def test_candidates_are_means_of_at_least_two_rows_and_stand_for_all(seed, n_rows, wanted):
    rng = np.random.default_rng(seed)
    rows = rows_of([rng.normal(size=(n_rows, 4)), rng.normal(size=(n_rows, 2))])
    found = site_candidates(rows, wanted, np.random.RandomState(seed))
    assert 1 <= len(found.sizes) <= max(1, min(wanted, n_rows // 3))
    assert np.all(found.sizes >= 2)
    assert found.sizes.sum() == pytest.approx(n_rows)
    joint = joint_rows(rows)
    assert_allclose(found.sizes @ found.points, joint.sum(axis=0), atol=1e-9)
    # the squared distances to any point add up to those of the rows
    total = found.sizes @ (np.square(found.points).sum(axis=1) + found.spreads.sum(axis=1))
    assert total == pytest.approx(np.square(joint).sum())


def test_site_of_one_row_gives_no_candidates():
    checked = check_views([np.array([[1.0, 2.0], [0.0, 1.0]])])
    one = check_views([np.array([[1.0, 2.0]])])
    rows = Rows(one, prepare(checked, "standard", "uniform", None))
    assert len(site_candidates(rows, 5, np.random.RandomState(0)).sizes) == 0


def test_objective_on_candidates_is_near_that_of_the_rows():
    rng = np.random.default_rng(0)
    centers = 5 * rng.normal(size=(3, 6))
    rows = rows_of([centers[rng.integers(3, size=600)] + rng.normal(size=(600, 6))])
    found = site_candidates(rows, 100, np.random.RandomState(0))
    means = candidate_rows([found], rows.references, ["a"])
    parameters = Parameters((rows.references[0].to_model(centers),), np.ones(1), 0.3, 1.0625, 2.0, np.ones(1))
    with Passes(rows, 3) as exact, Passes(means, 3) as near:
        assert near.statistics(parameters).objective == pytest.approx(exact.statistics(parameters).objective, rel=0.02)


def test_distinct_rows_do_not_depend_on_order_or_repetition():
    rng = np.random.default_rng(0)
    joint = rng.normal(size=(20, 3))
    order = rng.permutation(20)
    repeated = np.vstack([joint, joint[:5]])[rng.permutation(25)]
    first, weight = distinct_rows(joint, None)
    other, _ = distinct_rows(joint[order], None)
    again, sizes = distinct_rows(repeated, None)
    assert_allclose(joint[first], joint[order][other])
    assert_allclose(joint[first], repeated[again])
    assert weight.sum() == 20
    assert sizes.sum() == 25


# ------------------------------------------------------------------------------------------------- how clear views are


def make_clear_and_noisy_views(n_rows, seed=0):
    """A view with four clusters, and one without any."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n_rows)
    return [6 * rng.normal(size=(4, 5))[labels] + rng.normal(size=(n_rows, 5)), rng.normal(size=(n_rows, 8))]


@pytest.mark.parametrize("n_rows", [100, 400, 1500])
def test_a_view_without_clusters_has_the_least_factor_and_a_clear_one_counts_fully(n_rows):
    views = make_clear_and_noisy_views(n_rows)
    factors = view_factors(views, np.ones(n_rows), 4, np.random.RandomState(0))
    assert_allclose(factors, [1.0, seeding.LEAST_FACTOR])


def test_factors_do_not_depend_on_the_axes_of_a_view():
    views = make_clear_and_noisy_views(300)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    wide = np.hstack([views[0] @ turn, np.zeros((300, 400))])  # more features than rows
    for other in (views[0] @ turn, wide):
        found = view_factors([other, views[1]], np.ones(300), 4, np.random.RandomState(0))
        assert_allclose(found, [1.0, seeding.LEAST_FACTOR])


@pytest.mark.parametrize("turned", [False, True])
def test_spreads_are_those_along_principal_axes(turned):
    rng = np.random.default_rng(0)
    points = np.linalg.qr(rng.normal(size=(60, 5)))[0] * [5.0, 4.0, 3.0, 2.0, 1.0]
    points -= points.mean(axis=0)
    points = points @ np.linalg.svd(points)[2].T  # along their principal axes
    if turned:
        points = points @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    _, spreads = seeding._principal(points.astype(np.float32), np.ones(60))
    assert_allclose(np.sort(spreads), np.sqrt(np.linalg.eigvalsh(np.cov(points.T, bias=True))), rtol=1e-5)


@pytest.mark.parametrize(("n_points", "n_clouds"), [(50, 6), (400, 3), (1000, 1), (3000, 1)])
def test_clouds_have_as_many_points_together_as_are_looked_at(n_points, n_clouds, monkeypatch):
    clouds = []
    monkeypatch.setattr(seeding, "_explained", lambda found, *_: (clouds.extend(found), np.full(len(found), 0.25))[1])
    excess = exceed_cloud(0.5, np.ones(3), np.ones(n_points), 4, np.random.RandomState(0))
    assert excess == 0.5
    assert [cloud.shape for cloud in clouds] == [(n_points, 3)] * n_clouds


@pytest.mark.parametrize("name", list(SEEDERS))
def test_starts_are_drawn_in_turn_from_each_table(name):
    points, weight = np.random.default_rng(0).normal(size=(40, 2)), np.ones(40)
    one, other = points, points + 100.0  # the same distances: the same rows are drawn
    found = SEEDERS[name]([one, other], weight, 3, 5, np.random.RandomState(0))
    same = SEEDERS[name]([one], weight, 3, 5, np.random.RandomState(0))
    for turn, (seeds, expected) in enumerate(zip(found, same, strict=True)):
        assert_allclose(seeds, expected + 100.0 * (turn % 2))


def test_starts_that_found_the_same_solution_run_to_the_end_once(monkeypatch):
    """Two clear clusters: all starts find them, and the best of several equal ones is the first."""
    rng = np.random.default_rng(0)
    views = check_views([np.repeat([[0.0], [20.0]], 50, axis=0) + rng.normal(size=(100, 3))])
    rows, ran = Rows(views, prepare(views, "none", "uniform", None)), []
    to_the_end = seeding._run_to_the_end

    def watch(scan, starts):
        ran.append(len(starts))
        return to_the_end(scan, starts)

    monkeypatch.setattr(seeding, "_run_to_the_end", watch)
    template = Parameters((np.zeros((2, 3)),), np.ones(1), 0.05, 1.06, 1.0, np.ones(1))
    (found,) = seeding.best_starts(
        rows,
        template,
        SEEDERS["k-means++"],
        n_init=10,
        choose_weights=False,
        choose_fuzzifier=False,
        random_state=np.random.RandomState(0),
        workers=1,
    )
    assert ran == [1]
    centers = rows.references[0].to_input(found.centers[0])
    assert_allclose(np.sort(centers.mean(axis=1)), [0.0, 20.0], atol=0.5)


def test_leading_starts_of_clear_clusters_are_one_in_single_precision(monkeypatch):
    """They are compared by inertia, of which single precision would leave too few digits."""
    rng = np.random.default_rng(0)
    view = 50 * rng.normal(size=(8, 10))[rng.integers(8, size=1500)] + rng.normal(size=(1500, 10))
    rows, drawn = rows_of([view.astype(np.float32)]), []
    group_means = seeding.group_means
    monkeypatch.setattr(seeding, "group_means", lambda *given: (drawn.append(1), group_means(*given))[1])
    template = Parameters((np.zeros((8, 10)),), np.ones(1), 0.3, 1.06, 1.0, np.ones(1))
    seeding.best_starts(
        rows,
        template,
        SEEDERS["k-means++"],
        n_init=20,
        choose_weights=False,
        choose_fuzzifier=False,
        random_state=np.random.RandomState(0),
        workers=1,
    )
    assert len(drawn) == 1


def list_of_starts(most):
    """Starts on eight even clusters in a plane, of which three are asked for: many optima."""
    rng = np.random.default_rng(0)
    means = np.array([[x, y] for x in range(4) for y in range(2)], float) * 4
    rows = rows_of([means[rng.integers(8, size=240)] + rng.normal(size=(240, 2))])
    template = Parameters((np.zeros((3, 2)),), np.ones(1), 0.3, 1.06, 1.0, np.ones(1))
    found = seeding.best_starts(
        rows,
        template,
        SEEDERS["k-means++"],
        n_init=20,
        choose_weights=False,
        choose_fuzzifier=False,
        random_state=np.random.RandomState(0),
        workers=1,
        most=most,
    )
    with Passes(rows, 3) as scan:
        return found, [scan.statistics(start).objective for start in found]


def test_starts_are_listed_from_the_lowest_objective_on_and_each_solution_once():
    found, objectives = list_of_starts(20)
    assert len(found) > 2
    assert np.all(np.diff(objectives) > 0)


def test_the_first_of_all_starts_is_no_worse_than_the_first_of_few():
    few, many = list_of_starts(1), list_of_starts(20)
    assert len(few[0]) == 1
    assert many[1][0] <= few[1][0] * (1 + 1e-6)
