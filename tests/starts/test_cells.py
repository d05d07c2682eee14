"""A start from sums: each row is nearest to one point, second moments are those of the rows, groups are their means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import block_diag

from fedhk.data.scaling import Reference
from fedhk.data.views import check_views
from fedhk.model.rows import SAMPLE_ROWS, Rows
from fedhk.starts.candidates import Candidates, OwnGroups, own_groups, site_candidates
from fedhk.starts.cells import (
    MOST_FEATURES,
    Landmarks,
    count_group_totals,
    count_view_totals,
    cut_rows,
    draw_landmarks,
    group_totals,
    hold_counts,
    keep_landmarks,
    leading_directions,
    read_groups,
    read_second_moments,
    read_view_groups,
    second_moments,
    sketch,
    split_groups,
    view_group_totals,
)


def in_model_units(*tables):
    views = check_views(list(tables), min_rows=0)
    references = [
        Reference(False, np.zeros(w), np.ones(w), heat_coef="uniform", low=np.zeros(w), span=np.ones(w), share=1.0)
        for w in views.widths
    ]
    return Rows(views, tuple(references))


seeds = st.integers(0, 2**32 - 1)


class TestSecondMoments:
    @given(seeds, st.integers(1, 6), st.integers(1, 40))
    @settings(max_examples=40)
    def test_read_back_they_are_those_of_the_rows(self, seed, width, n_rows):
        joint = np.random.default_rng(seed).normal(size=(n_rows, width)) + 1.0
        vector = second_moments(in_model_units(joint), np.eye(width), np.inf)
        assert_allclose(read_second_moments(vector), joint.T @ joint, atol=1e-10)

    @given(seeds, st.integers(1, 5), st.floats(0.1, 3.0))
    @settings(max_examples=40)
    def test_one_row_adds_a_vector_as_long_as_the_square_of_its_length_when_cut(self, seed, width, radius):
        row = np.random.default_rng(seed).normal(size=(1, width)) * 3
        vector = second_moments(in_model_units(row), np.eye(width), radius)
        assert np.linalg.norm(vector) == pytest.approx(min(np.linalg.norm(row), radius) ** 2)

    @given(seeds, st.integers(1, 5), st.integers(1, 20))
    @settings(max_examples=20)
    def test_with_a_constant_they_have_the_sum_and_the_number_of_rows(self, seed, width, n_rows):
        joint = np.random.default_rng(seed).normal(size=(n_rows, width)) + 1.0
        found = read_second_moments(second_moments(in_model_units(joint), np.eye(width), np.inf, 0.5))
        assert_allclose(found[:-1, :-1], joint.T @ joint, atol=1e-10)
        assert_allclose(found[-1], [*(0.5 * joint.sum(axis=0)), 0.25 * n_rows], atol=1e-10)

    def test_sums_over_sites_are_sums_over_all_rows_and_missing_cells_are_at_the_mean(self):
        joint = np.arange(12.0).reshape(4, 3)
        joint[1, 2] = np.nan
        parts = [second_moments(in_model_units(part), np.eye(3), 5.0) for part in (joint[:1], joint[1:])]
        whole = second_moments(in_model_units(np.nan_to_num(joint)), np.eye(3), 5.0)
        assert_allclose(parts[0] + parts[1], whole)

    def test_rows_are_cut_and_never_turned(self):
        rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
        assert_allclose(cut_rows(rows, 1.0), [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])


class TestLandmarks:
    @given(seeds, st.integers(1, 3), st.integers(1, 20))
    @settings(max_examples=20)
    def test_every_row_is_nearest_to_one_point_however_far_it_is(self, seed, n_axes, n_points):
        rng = np.random.default_rng(seed)
        joint = rng.normal(size=(12, 4)) * 10.0 ** rng.choice([0, 3, 30, 100], size=(12, 1))
        landmarks = Landmarks(rng.normal(size=(4, n_axes)), rng.normal(size=(n_points, n_axes)))
        rows = in_model_units(joint[:, :1], joint[:, 1:])
        counts = landmarks.counts(rows)
        assert counts.sum() == 12
        assert counts.shape == (n_points,)
        alone = sum(landmarks.counts(in_model_units(row[None, :1], row[None, 1:])) for row in joint)
        assert_allclose(alone, counts)

    def test_by_hand(self):
        landmarks = Landmarks(np.array([[1.0], [0.0]]), np.array([[-1.0], [0.5], [3.0]]))
        rows = in_model_units(np.array([[-1e100, 0], [-0.3, 9], [-0.2, 9], [1.7, 0], [1.8, 0], [1e100, 0]]))
        counts = landmarks.counts(rows)
        assert counts.tolist() == [2, 2, 2]
        found = landmarks.candidates(counts - [2, 0, 0], 0.0, np.array([4.0, 5.0]))
        assert_allclose(found.points, [[0.5, 0], [3, 0]])
        assert found.sizes.tolist() == [2, 2]
        assert_allclose(found.spreads, [[4, 5], [4, 5]])

    def test_points_that_noise_may_have_filled_are_left_out_and_where_all_are_one_point_is_left_in_the_middle(self):
        landmarks = Landmarks(np.ones((1, 1)), np.arange(4.0)[:, None])
        spread = np.zeros(1)
        assert_allclose(landmarks.candidates(np.array([0.5, 100.0, -3.0, 1.0]), 2.0, spread).points.ravel(), [1.0])
        assert_allclose(landmarks.candidates(np.array([-1.0, 0.0, -2.0, -1.0]), 1.0, spread).points, [[0.0]])
        assert_allclose(landmarks.candidates(np.array([4.0, 6.0, 3.0, 5.0]), 5.0, spread).points, [[0.0]])

    @pytest.mark.parametrize(
        ("counts", "held"),
        [
            ([4.0, 0.0, 2.0], [4, 0, 2]),
            ([5.0, -3.0, 4.0], [3.5, 0, 2.5]),
            ([9.0, 1.0, -1.0, -1.0], [8, 0, 0, 0]),
            ([1.0, -2.0], [0, 0]),
        ],
        ids=["as they are", "less by as much each", "few points", "no rows"],
    )
    def test_counts_that_noise_made_negative_are_taken_off_the_others(self, counts, held):
        assert_allclose(hold_counts(np.array(counts)), held)

    @given(seeds, st.integers(1, 30))
    @settings(max_examples=20)
    def test_no_other_counts_of_the_same_sum_are_nearer(self, seed, n_points):
        rng = np.random.default_rng(seed)
        counts = rng.normal(size=n_points) * 3 + 2
        held, total = hold_counts(counts), max(counts.sum(), 0.0)
        assert held.min() >= 0
        assert held.sum() == pytest.approx(total)
        others = total * rng.dirichlet(np.ones(n_points), size=50)
        assert np.square(held - counts).sum() <= np.square(others - counts).sum(axis=1).min() + 1e-9

    def test_points_with_few_rows_are_left_out_but_for_one(self):
        landmarks = Landmarks(np.ones((1, 1)), np.arange(3.0)[:, None])
        assert keep_landmarks(landmarks, np.array([1.0, 2.0, 5.0]), 2).places.ravel().tolist() == [1, 2]
        assert keep_landmarks(landmarks, np.array([0.0, 1.0, 0.0]), 2).places.ravel().tolist() == [1]

    @given(seeds, st.integers(1, 30), st.integers(1, 300))
    @settings(max_examples=20)
    def test_points_are_spread_like_rows(self, seed, n_axes, count):
        deviations = np.linspace(1.0, 3.0, n_axes)
        drawn = draw_landmarks(np.eye(n_axes), deviations, count, seed)
        assert drawn.places.shape == (count, n_axes)
        assert np.abs(drawn.places / deviations).max() < 3.8
        if count >= 256:
            assert_allclose(drawn.places.std(axis=0) / deviations, 1.0, atol=0.2)


class TestGroups:
    @given(seeds, st.booleans())
    @settings(max_examples=20)
    def test_groups_of_all_sites_are_candidates_with_the_means_and_spreads_of_their_rows(self, seed, full):
        rng = np.random.default_rng(seed)
        joint = rng.normal(size=(30, 5)) * 2
        if full:
            joint[rng.random(joint.shape) < 0.2] = np.nan
        landmarks = Landmarks(np.eye(5)[:, :2], rng.normal(size=(4, 2)))
        sites = [in_model_units(part[:, :2], part[:, 2:]) for part in np.split(joint, [7, 20])]
        total = sum(group_totals(rows, landmarks, (full, full)) for rows in sites)
        assert len(total) == count_group_totals(4, (2, 3), (full, full))
        found = read_groups(total, (2, 3), (full, full))
        groups = landmarks.nearest(np.nan_to_num(joint))
        assert found.sizes.tolist() == [n for n in np.bincount(groups, minlength=4) if n]
        for mean, spread, group in zip(found.points, found.spreads, np.unique(groups), strict=True):
            own = joint[groups == group]
            seen = ~np.isnan(own)
            expected = np.where(seen.any(axis=0), np.nansum(own, axis=0) / np.maximum(seen.sum(axis=0), 1), np.nan)
            assert_allclose(mean, expected, atol=1e-12)
            apart = np.nan_to_num(np.square(own - expected)).sum(axis=0) / len(own)
            assert_allclose(spread, [apart[:2].sum(), apart[2:].sum()], atol=1e-10)

    def test_in_a_basis_means_are_projections_and_rows_spread_in_all_features(self):
        rng = np.random.default_rng(0)
        joint = rng.normal(size=(30, 5)) * 2
        basis = [np.linalg.qr(rng.normal(size=(2, 1)))[0], np.linalg.qr(rng.normal(size=(3, 2)))[0]]
        block = block_diag(*basis)
        landmarks = Landmarks(np.eye(3)[:, :2], rng.normal(size=(4, 2)))
        sites = [in_model_units(part[:, :2], part[:, 2:]) for part in np.split(joint, [7, 20])]
        total = sum(group_totals(rows, landmarks, (False, False), basis) for rows in sites)
        found = read_groups(total, (1, 2), (False, False))
        groups = landmarks.nearest(joint @ block)
        for mean, spread, group in zip(found.points, found.spreads, np.unique(groups), strict=True):
            own = joint[groups == group]
            assert_allclose(mean, own.mean(axis=0) @ block, atol=1e-12)
            apart = np.square(own - mean @ block.T).mean(axis=0)
            assert_allclose(spread, [apart[:2].sum(), apart[2:].sum()], atol=1e-10)

    def test_a_site_without_a_view_adds_nothing_to_its_means(self):
        both = in_model_units(np.ones((2, 1)), np.full((2, 1), 4.0))
        one = Rows(check_views([np.ones((3, 1)), None], missing_views=True), both.references)
        landmarks = Landmarks(np.eye(2)[:, :1], np.zeros((1, 1)))
        total = sum(group_totals(rows, landmarks, (False, False)) for rows in (both, one))
        found = read_groups(total, (1, 1), (False, False))
        assert_allclose(found.points, [[1.0, 4.0]])
        assert found.sizes.tolist() == [5]

    def test_the_widest_groups_get_a_second_point_beside_their_mean(self):
        landmarks = Landmarks(np.eye(2), np.zeros((3, 2)))
        groups = Candidates(np.array([[0.0, 0], [5, 0], [9, 9]]), np.array([10.0, 2, 10]), np.array([[1.0], [1], [4]]))
        places = split_groups(landmarks, groups, 5, 0).places
        assert_allclose(places[:3], groups.points)
        assert np.linalg.norm(places[3] - [9, 9]) < 1.0
        assert np.linalg.norm(places[4] - [0, 0]) < 0.5
        assert len(split_groups(landmarks, groups, 2, 0)) == 3

    def test_a_second_point_halves_its_group_even_if_rows_spread_in_thousands_of_other_features(self):
        rng = np.random.default_rng(0)
        joint = rng.normal(size=(200, 2000)) * np.r_[[0.1] * 3, [1.0] * 1997]
        rows, landmarks = in_model_units(joint), Landmarks(np.eye(2000)[:, :3], np.zeros((1, 3)))
        groups = read_groups(group_totals(rows, landmarks, (False,)), (2000,), (False,))
        halves = split_groups(landmarks, groups, 2, 0).counts(rows)
        assert halves.min() > 60

    def test_rows_of_one_of_a_sites_own_groups_stay_together(self):
        joint = np.array([[0.0, 1.0], [0.9, 1.0], [1.3, 1.0], [4.0, 2.0]])
        own = OwnGroups(np.array([0, 0, 0, 1]), np.array([[0.7, 1.0], [4.0, 2.0]]))
        rows, landmarks = in_model_units(joint), Landmarks(np.eye(2)[:, :1], np.array([[0.0], [1.0], [5.0]]))
        assert landmarks.nearest_own(own).tolist() == [1, 1, 1, 2]
        assert landmarks.nearest_own(own, np.eye(2)).tolist() == [1, 1, 1, 2]
        for basis in (None, [np.eye(2)]):
            found = read_groups(group_totals(rows, landmarks, (False,), basis, own), (2,), (False,))
            assert found.sizes.tolist() == [3, 1]
            assert_allclose(found.points, [joint[:3].mean(axis=0), joint[3]])


class TestViewGroups:
    def test_rows_that_have_a_view_are_summed_by_its_nearest_point_and_any_split_gives_the_same(self):
        rng = np.random.default_rng(0)
        joint = rng.normal(size=(12, 5))
        first = Landmarks(np.eye(2)[:, :1], rng.normal(size=(3, 1)))
        second = Landmarks(np.linalg.qr(rng.normal(size=(3, 2)))[0], rng.normal(size=(2, 2)))
        both = in_model_units(joint[:7, :2], joint[:7, 2:])
        one = Rows(check_views([joint[7:, :2], None], missing_views=True), both.references)
        total = sum(view_group_totals(rows, (first, second)) for rows in (both, one))
        sizes = count_view_totals((first, second))
        assert [len(total), *sizes] == [14, 7, 7]
        for part, view, rows in zip(np.split(total, [7]), (first, second), (joint[:, :2], joint[:7, 2:]), strict=True):
            means, within, count = read_view_groups(part, view)
            places, nearest = rows @ view.axes, view.nearest(rows)
            for point in range(len(view)):
                own = places[nearest == point]
                assert_allclose(means.places[point], own.mean(axis=0) if len(own) else view.places[point], atol=1e-12)
            assert_allclose(within, np.square(places - means.places[nearest]).sum(), atol=1e-12)
            assert count == len(rows)

    def test_each_pass_explains_more(self):
        rng = np.random.default_rng(2)
        rows = in_model_units(rng.normal(size=(60, 3)))
        view, found = Landmarks(np.eye(3), rng.normal(size=(4, 3))), []
        for _ in range(5):
            view, within, _ = read_view_groups(view_group_totals(rows, (view,)), view)
            found.append(within)
        assert found == sorted(found, reverse=True)
        assert found[-1] < found[0]

    def test_in_a_basis_rows_are_projected_first(self):
        rng = np.random.default_rng(1)
        joint = rng.normal(size=(9, 5))
        basis = [np.linalg.qr(rng.normal(size=(2, 1)))[0], np.linalg.qr(rng.normal(size=(3, 2)))[0]]
        views = [Landmarks(np.eye(1), rng.normal(size=(2, 1))), Landmarks(np.eye(2), rng.normal(size=(2, 2)))]
        outer = [Landmarks(e @ v.axes, v.places) for e, v in zip(basis, views, strict=True)]
        rows = in_model_units(joint[:, :2], joint[:, 2:])
        assert_allclose(view_group_totals(rows, views, block_diag(*basis)), view_group_totals(rows, outer), atol=1e-12)


class TestLeadingDirections:
    @pytest.mark.parametrize(("most", "count"), [(1, 1), (2, 2), (9, 4)])
    def test_without_noise_there_are_as_many_as_are_wanted(self, most, count):
        axes, deviations = leading_directions(np.diag([1.0, 9.0, 4.0, 0.25]), most, 0.0)
        assert_allclose(deviations, [3.0, 2.0, 1.0, 0.5][:count])
        assert_allclose(np.abs(axes[[1, 2, 0, 3][:count], range(count)]), 1.0)

    def test_directions_that_noise_hides_are_left_out_and_what_it_adds_is_taken_off(self):
        rng = np.random.default_rng(0)
        p, s = 60, 0.05
        noise = rng.normal(size=(p, p)) * s / np.sqrt(p)
        noise = np.triu(noise) + np.triu(noise, 1).T
        covariance = np.diag([2.0, 0.5, 0.02] + [0.01] * (p - 3)) + noise
        axes, deviations = leading_directions(covariance, 9, 2 * s)
        assert axes.shape == (p, 2)
        assert_allclose(deviations**2, [2.0, 0.5], rtol=0.05)

    def test_a_covariance_that_noise_made_negative_has_a_direction_all_the_same(self):
        axes, deviations = leading_directions(-np.eye(2), 2, 0.1)
        assert axes.shape == (2, 1)
        assert np.all(deviations > 0)


class TestOwnGroups:
    @given(seeds, st.integers(2, 5))
    @settings(max_examples=20)
    def test_their_means_are_the_candidates_that_the_site_would_send(self, seed, least):
        rows = in_model_units(np.random.default_rng(seed).normal(size=(40, 3)))
        own = own_groups(rows, 9, np.random.RandomState(seed), least)
        sent = site_candidates(rows, 9, np.random.RandomState(seed), least)
        assert_allclose(own.means, sent.points, atol=1e-6)
        assert np.bincount(own.labels).tolist() == sent.sizes.tolist()
        assert np.bincount(own.labels).min() >= least

    def test_of_many_rows_those_that_were_not_looked_at_are_in_the_nearest(self):
        joint = np.random.default_rng(0).normal(size=(SAMPLE_ROWS + 1500, 2))
        own = own_groups(in_model_units(joint), 6, np.random.RandomState(0))
        assert_array_equal(own.labels, np.square(joint[:, None] - own.means[None]).sum(axis=2).argmin(axis=1))

    def test_a_site_of_one_row_or_none_has_one(self):
        for count in (0, 1):
            table = np.ones((count, 2))
            rows = Rows(check_views([table], min_rows=0), in_model_units(np.ones((1, 2))).references)
            own = own_groups(rows, 5, np.random.RandomState(0))
            assert (len(own.labels), len(own.means)) == (count, 1)


def test_no_rows_add_nothing():
    rows = Rows(check_views([np.zeros((0, 2))], min_rows=0), in_model_units(np.zeros((1, 2))).references)
    landmarks = Landmarks(np.eye(2), np.zeros((3, 2)))
    assert not second_moments(rows, np.eye(2), 1.0).any()
    assert not landmarks.counts(rows).any()
    assert not group_totals(rows, landmarks, (True,)).any()


def test_wide_rows_are_seen_in_random_orthonormal_directions():
    assert_allclose(sketch(MOST_FEATURES, 0), np.eye(MOST_FEATURES))
    directions = sketch(MOST_FEATURES + 50, 3)
    assert directions.shape == (MOST_FEATURES + 50, MOST_FEATURES)
    assert_allclose(directions.T @ directions, np.eye(MOST_FEATURES), atol=1e-12)
    assert_allclose(directions, sketch(MOST_FEATURES + 50, 3))
    assert not np.allclose(directions, sketch(MOST_FEATURES + 50, 4))
