"""What is remembered of rows are sums: they add over sites, fade by a factor, and pull centres as the rows would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from fedhk.data.views import check_views
from fedhk.estimators.updating import check_update
from fedhk.model.memory import (
    LEAST_ROWS,
    OVER_ROWS,
    RARE,
    SPREAD,
    ClusterSpread,
    Memory,
    PlacedRows,
    RememberingParameters,
    find_scale,
    remember,
)
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows, joint_rows, take
from sealed_runs import plain_reference

few = settings(max_examples=40, deadline=None)


def make_model(joint, centers):
    """Rows in one view, in model units, and parameters with these centres."""
    joint = np.asarray(joint, float)
    rows = Rows(check_views([joint]), [plain_reference(joint.shape[1])], None)
    return rows, Parameters((np.asarray(centers, float),), np.ones(1), 0.3, 1.1, 2.0, np.ones(1))


def statistics_of(rows, parameters):
    with Passes(rows, parameters.n_clusters) as scan:
        return scan.statistics(parameters)


def cut(rows, n_sites):
    return [take(rows, np.arange(site, rows.n_rows, n_sites)) for site in range(n_sites)]


def spreads(n_clusters, seed, n_views=2):
    rng = np.random.default_rng(seed)
    return Memory(
        rng.uniform(0, 9, (n_clusters, n_views)), ClusterSpread.from_array(rng.uniform(0, 9, (n_clusters, SPREAD)))
    )


def assert_same(one, other):
    assert_allclose(one.weights, other.weights, rtol=1e-12)
    assert_allclose(one.spread.to_array(), other.spread.to_array(), rtol=1e-12)


# ---------------------------------------------------------------------------------------------------- sums over rows


@few
@given(case=cases(min_rows=6), n_sites=st.integers(2, 4))
def test_sums_over_rows_of_sites_are_those_of_the_pooled_rows(case, n_sites):
    pooled = PlacedRows.of(case.rows, case.parameters)
    parts = [PlacedRows.of(part, case.parameters) for part in cut(case.rows, n_sites)]
    for total in (
        lambda placed: placed.spread().to_array()[:, :OVER_ROWS],
        lambda placed: placed.count(),
        lambda placed: placed.sum(placed.away),
        lambda placed: placed.count_between(case.parameters),
    ):
        whole = total(pooled)
        assert_allclose(sum(map(total, parts)), whole, rtol=1e-12, atol=1e-12 * np.abs(whole).max(initial=1e-300))


@few
@given(case=cases())
def test_rows_are_placed_where_the_model_places_them_and_missing_cells_are_at_the_centre(case):
    placed = PlacedRows.of(case.rows, case.parameters)
    with Passes(case.rows, case.parameters.n_clusters) as scan:
        expected = scan.assign(case.parameters)[1]
    assert_array_equal(placed.labels, np.sort(expected))
    cells = joint_rows(placed.rows, missing=np.nan)
    assert_array_equal(placed.away[np.isnan(cells)], 0.0)
    apart = placed.squared_distances(case.parameters)
    own = apart[np.arange(len(apart)), placed.labels]
    assert_allclose(own, placed.squared_lengths(), rtol=1e-6, atol=1e-6 * apart.max(initial=1e-300))


@few
@given(case=cases(), seed=st.integers(0, 99))
def test_a_selection_and_the_rest_add_to_all(case, seed):
    placed = PlacedRows.of(case.rows, case.parameters)
    keep = np.random.default_rng(seed).random(len(placed.labels)) < 0.5
    both = placed.select(keep), placed.select(~keep)
    assert_allclose(sum(part.count() for part in both), placed.count())
    assert sum(part.rows.n_rows for part in both) == placed.rows.n_rows


@pytest.mark.parametrize("width", [2, 10])
def test_products_estimate_the_squared_covariance_wherever_the_centre_is(width):
    """Their mean is tr(S^2), also where a cluster is far from its centre."""
    spread = np.sqrt(np.arange(1.0, width + 1))
    rows = np.random.default_rng(0).normal(size=(4000, width)) * spread
    found = []
    for offset in (0.0, 5.0):
        placed = PlacedRows.of(*make_model(rows, np.full((1, width), offset)))
        sums = placed.spread()
        found.append(float(sums.products[0] / sums.pairs[0]))
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0] == pytest.approx(np.square(np.cov(rows.T)).sum(), rel=0.15)


def test_products_are_those_of_differences_of_rows():
    rows = np.random.default_rng(0).normal(size=(5, 3))
    placed = PlacedRows.of(*make_model(rows, np.zeros((1, 3))))
    windows = [placed.away[start : start + 4] * placed.scale for start in range(2)]
    orders = [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2)]
    expected = [((x[a] - x[b]) @ (x[c] - x[d])) ** 2 / 12 for x in windows for a, b, c, d in orders]
    assert_allclose(placed.spread().products, np.sum(expected))


def test_products_are_of_rows_of_one_cluster():
    rows = np.repeat([[0.0, 0.0], [50.0, 0.0]], 3, axis=0)
    assert_array_equal(PlacedRows.of(*make_model(rows, [[0, 0], [50, 0]])).spread().pairs, 0.0)
    rows = np.repeat([[0.0, 0.0], [50.0, 0.0]], 5, axis=0)
    sums = PlacedRows.of(*make_model(rows, [[0, 0], [50, 0]])).spread()
    assert_array_equal(sums.pairs, 2.0)
    assert_array_equal(sums.products, 0.0)


@pytest.mark.parametrize("width", [1, 4, 20])
def test_beyond_its_limit_a_normal_cluster_has_about_as_few_rows_as_stated(width):
    rows = np.random.default_rng(1).normal(size=(20_000, width)) * np.linspace(1, 2, width)
    placed = PlacedRows.of(*make_model(rows, np.zeros((1, width))))
    beyond = np.mean(placed.squared_lengths() > placed.spread().limits()[0])
    assert RARE / 3 < beyond < 3 * RARE


def test_a_cluster_of_few_rows_has_the_limit_of_all():
    rows, few_rows = np.array([100.0, 50.0, 0.0]), LEAST_ROWS - 1.0
    for lonely in (0.0, few_rows):
        rows[2] = lonely
        spread = ClusterSpread(rows, 2 * rows, 9 * rows, rows, rows)
        assert spread.limits()[2] == pytest.approx(spread.limits()[0])
    assert np.all(np.isfinite(ClusterSpread.zero(3).limits()))


def test_rows_between_two_centres_are_counted_in_slices():
    line = np.array([[0.0], [0.0], [1.0], [5.0], [5.0], [5.0], [10.0]])
    counts = PlacedRows.of(*make_model(line, [[0.0], [10.0]])).count_between(make_model(line, [[0.0], [10.0]])[1])
    assert_array_equal(counts, [[3, 3], [1, 3]])


def test_a_cluster_that_is_gone_is_next_to_none():
    rows, parameters = make_model([[0.0], [5.0], [10.0]], [[0.0], [10.0], [4.0]])
    counts = PlacedRows.of(rows, parameters.without([2])).count_between(parameters.without([2]))
    assert_array_equal(counts[0], [1, 1])
    assert np.all(np.isinf(PlacedRows.of(rows, parameters).squared_distances(parameters.without([2]))[:, 2]))


def test_views_scale_distances_by_their_share_of_the_objective():
    parameters = Parameters((np.zeros((2, 3)), np.zeros((2, 1))), np.array([0.75, 0.25]), 0.3, 1.1, 2.0, np.ones(2))
    assert_allclose(np.square(find_scale(parameters)), [0.9, 0.9, 0.9, 0.1])


# ------------------------------------------------------------------------------------------------------- the memory


@few
@given(st.integers(1, 4), st.integers(0, 99), st.floats(0.01, 1), st.floats(0.01, 1))
def test_what_fades_twice_fades_by_the_product_and_sums_fade_as_their_parts(c, seed, first, second):
    one, other = spreads(c, seed), spreads(c, seed + 100)
    assert_same(one.fade(first).fade(second), one.fade(first * second))
    both = one.add(other.weights, other.spread).fade(first)
    faded = other.fade(first)
    assert_same(one.fade(first).add(faded.weights, faded.spread), both)


@pytest.mark.parametrize("half_life", [0.5, 1.0, 3.0, 7.0])
def test_after_a_half_life_of_updates_rows_count_half(half_life):
    assert check_update(half_life, 5, 0.05) ** half_life == pytest.approx(0.5)
    assert check_update(None, 5, 0.05) == 1.0


@few
@given(st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 99))
def test_new_clusters_and_views_come_last_and_nothing_is_remembered_of_them(c, more, views, seed):
    before = spreads(c, seed)
    later = spreads(c + more, seed + 1, 2 + views)
    after = before.add(later.weights, later.spread)
    assert after.n_clusters == c + more
    assert_allclose(after.weights - later.weights, np.pad(before.weights, ((0, more), (0, views))), atol=1e-12)
    assert_allclose(after.spread.rows[c:], later.spread.rows[c:])


def test_a_memory_of_more_clusters_than_the_rows_have_is_refused():
    with pytest.raises(ValueError, match="negative"):
        spreads(3, 0).add(np.ones((2, 2)), ClusterSpread.zero(2))


def test_a_spread_comes_back_from_its_array_without_less_than_nothing():
    values = np.random.default_rng(0).normal(size=(4, SPREAD))
    spread = ClusterSpread.from_array(values)
    assert_array_equal(spread.to_array(), np.maximum(values, 0.0))
    assert_array_equal(ClusterSpread.from_array(values[:, :OVER_ROWS]).pairs, 0.0)
    assert_array_equal(ClusterSpread.zero(4).to_array(), 0.0)


@few
@given(case=cases(min_rows=4))
def test_a_fit_remembers_the_weights_of_its_rows(case):
    with Passes(case.rows, case.parameters.n_clusters) as scan:
        memory = remember(PlacedRows.of(case.rows, case.parameters), case.parameters, scan)
    found = statistics_of(case.rows, case.parameters)
    assert_allclose(memory.weights, found.heights, rtol=1e-9, atol=1e-12)
    assert memory.spread.rows.sum() == case.rows.n_rows


# ------------------------------------------------------------------------------------------ centres that are remembered


@few
@given(case=cases(), seed=st.integers(0, 99))
def test_a_remembered_centre_pulls_as_rows_of_its_weight_would(case, seed):
    parameters = case.parameters
    weights = np.random.default_rng(seed).uniform(0.1, 20, (parameters.n_clusters, len(parameters.centers)))
    found = statistics_of(case.rows, parameters)
    moved = RememberingParameters.of(parameters, weights).move_centers(found)
    for view, center in enumerate(parameters.centers):
        own = weights[:, [view]]
        expected = (found.numerators[view] + own * center) / (found.weights[view] + own)
        assert_allclose(moved.centers[view], expected, rtol=1e-9, atol=1e-9)
        assert_array_equal(moved.anchors[view], center)


@few
@given(case=cases())
def test_who_remembers_nothing_moves_as_if_there_was_no_past(case):
    parameters = case.parameters
    found = statistics_of(case.rows, parameters)
    none = RememberingParameters.of(parameters, np.zeros((parameters.n_clusters, len(parameters.centers))))
    moved, plain = none.move_centers(found), parameters.move_centers(found)
    assert type(moved.free()) is Parameters
    for one, other in zip(moved.free().centers, plain.centers, strict=True):
        assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_all_other_parameters_stay_as_they_are_when_centres_are_remembered():
    _, parameters = make_model([[0.0], [1.0]], [[0.0], [1.0]])
    parameters = replace(parameters, fuzzifier=1.3).without([1])
    free = RememberingParameters.of(parameters, np.ones((2, 1))).free()
    assert (free.fuzzifier, free.gone) == (1.3, (1,))
    assert_array_equal(free.centers[0], parameters.centers[0])
