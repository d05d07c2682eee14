"""No row moves a release further than its bound, and the worst rows move it just as far."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.privacy.fixed_point import to_grid
from fedhk.privacy.sensitivity import best_scales, clip_rows, grid_sensitivity, joint_sensitivity, sum_sensitivity

WITHIN = 1 + 1e-9
PAIRS = 25  # per example of hypothesis, which makes 100: 2,500 pairs of neighbours

seeds = st.integers(0, 2**32 - 1)
scales = st.floats(-2, 2).map(lambda exponent: 10**exponent)
radii = st.lists(st.one_of(st.just(0.0), scales), min_size=1, max_size=4)
neighbours_of = st.sampled_from(["add-remove", "replace"])


def ball(rng, radius, shape):
    """Residuals in the ball or, half of the time, on its surface; rank one, so that pairs can be opposite."""
    direction = rng.normal(size=shape[-1])
    direction /= np.linalg.norm(direction)
    length = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=shape[:-1])
    rows = radius * length[..., None] * direction
    return rows if rng.random() < 0.7 else clip_rows(rng.normal(size=shape) * radius * 2, radius)


def weights(rng, n_clusters):
    """Non-negative with a sum of one at most: at a corner, at an edge, or anywhere."""
    kind = rng.integers(4)
    if kind == 0:
        return np.zeros(n_clusters)
    if kind == 1:
        return np.eye(n_clusters)[rng.integers(n_clusters)]
    return rng.dirichlet(np.full(n_clusters, 0.3)) * (1.0 if kind == 2 else rng.random())


def contribution(rng, radii, count_scale, cost_scale, *, complementary, n_clusters=3):
    """What one row adds to a release, all blocks in one vector."""
    blocks = []
    for radius in radii:
        w = weights(rng, n_clusters)
        most = 1 - w.sum() if complementary else 1.0
        cost = most * rng.choice([0.0, 1.0, rng.random()])
        blocks += [(w[:, None] * ball(rng, radius, (n_clusters, 2))).ravel(), count_scale * w, [cost_scale * cost]]
    return np.concatenate(blocks)


def distance(rng, neighbours, contribute):
    one = contribute(rng)
    if neighbours == "add-remove":
        return np.linalg.norm(one)
    return np.linalg.norm(one - contribute(rng))


@given(
    complementary=st.booleans(),
    radii=radii,
    block_scales=st.tuples(scales, scales),
    neighbours=neighbours_of,
    seed=seeds,
)
@settings(max_examples=100)
def test_no_pair_of_neighbours_is_further_apart_than_the_bound(complementary, radii, block_scales, neighbours, seed):
    rng = np.random.default_rng(seed)
    rest = (*block_scales, len(radii), neighbours)
    per_view = joint_sensitivity(radii, *rest, complementary_costs=complementary)
    joint = joint_sensitivity(math.hypot(*radii), *rest, complementary_costs=complementary)
    assert per_view <= joint * WITHIN
    for _ in range(PAIRS):
        apart = distance(
            rng,
            neighbours,
            lambda rng: contribution(rng, radii, *block_scales, complementary=complementary),
        )
        assert apart <= per_view * WITHIN


def corner_contributions(radius, count_scale, cost_scale, *, complementary):
    """Everything that a row at a corner can add in one view, with two clusters and one feature."""
    for cluster, sign, cost in itertools.product([None, 0, 1], [-1, 1], [0, 1]):
        if complementary and cluster is not None and cost:
            continue
        w = np.zeros(2) if cluster is None else np.eye(2)[cluster]
        yield np.concatenate([w * sign * radius, count_scale * w, [cost_scale * cost]])


def farthest(radius, count_scale, cost_scale, neighbours, *, complementary):
    """Largest squared distance in one view, by trying all pairs of corners."""
    corners = list(corner_contributions(radius, count_scale, cost_scale, complementary=complementary))
    others = [np.zeros(5)] if neighbours == "add-remove" else corners
    return max(float(np.square(a - b).sum()) for a, b in itertools.product(corners, others))


@given(complementary=st.booleans(), radii=radii, count_scale=scales, cost_scale=scales, neighbours=neighbours_of)
def test_some_pair_of_neighbours_is_as_far_apart_as_the_bound(
    complementary, radii, count_scale, cost_scale, neighbours
):
    n_views = len(radii)
    for given_as, divided in ((radii, radii), (math.hypot(*radii), [math.hypot(*radii)] + [0.0] * (n_views - 1))):
        bound = joint_sensitivity(
            given_as, count_scale, cost_scale, n_views, neighbours, complementary_costs=complementary
        )
        attained = sum(farthest(r, count_scale, cost_scale, neighbours, complementary=complementary) for r in divided)
        assert math.sqrt(attained) == pytest.approx(bound, rel=1e-9)


@given(radius=scales, count_scale=scales, cost_scale=scales, n_views=st.integers(1, 5))
def test_the_bound_is_the_formula(radius, count_scale, cost_scale, n_views):
    pull, count, cost = radius**2, count_scale**2, cost_scale**2
    added = pull + n_views * count + n_views * cost
    replaced = max(4 * pull, 2 * (pull + count)) + 2 * (n_views - 1) * count + n_views * cost
    arguments = (radius, count_scale, cost_scale, n_views)
    assert joint_sensitivity(*arguments, "add-remove") == pytest.approx(math.sqrt(added))
    assert joint_sensitivity(*arguments, "replace") == pytest.approx(math.sqrt(replaced))


def test_a_row_may_keep_its_cluster_in_one_view_and_change_it_in_another():
    """Then both the pulls of the first and the counts of the second are at their worst at once."""
    radius, count_scale = 1.0, 0.5
    # per view, pulls and then counts of two clusters; only the first view has a radius
    one = np.array([radius, 0, count_scale, 0, 0, 0, count_scale, 0])
    other = np.array([-radius, 0, count_scale, 0, 0, 0, 0, count_scale])
    as_if_all_views_moved_together = math.sqrt(max(4 * radius**2, 2 * (radius**2 + 2 * count_scale**2)))
    bound = joint_sensitivity(radius, count_scale, 0.0, 2, "replace")
    assert np.linalg.norm(one - other) == pytest.approx(bound)
    assert bound > as_if_all_views_moved_together


def test_complementary_costs_are_free_up_to_the_scale_of_the_counts():
    for neighbours in ("add-remove", "replace"):
        without = joint_sensitivity(2.0, 0.7, 0.0, 3, neighbours)
        assert joint_sensitivity(2.0, 0.7, 0.7, 3, neighbours, complementary_costs=True) == pytest.approx(without)
        assert joint_sensitivity(2.0, 0.7, 0.7, 3, neighbours) > without


def model_contribution(views, centers, radii, block_scales, *, heat, fuzzifier):
    """What a row adds in the model: memberships shared by the views, a kernel for each."""
    phi = np.stack([heat * np.square(x - a).sum(axis=1) for x, a in zip(views, centers, strict=True)])
    distances = np.maximum(-np.expm1(-phi).sum(axis=0), 1e-300)
    raised = (distances.min() / distances) ** (1 / (fuzzifier - 1))
    mu = (raised / raised.sum()) ** fuzzifier
    count_scale, cost_scale = block_scales
    blocks = []
    for x, a, radius, exponent in zip(views, centers, radii, phi, strict=True):
        w = mu * np.exp(-exponent)
        cost = mu @ -np.expm1(-exponent)
        blocks += [(w[:, None] * clip_rows(x - a, radius)).ravel(), count_scale * w, [cost_scale * cost]]
    return np.concatenate(blocks)


@given(
    radii=st.lists(scales, min_size=1, max_size=3),
    block_scales=st.tuples(scales, scales),
    neighbours=neighbours_of,
    model=st.fixed_dictionaries({"heat": scales, "fuzzifier": st.floats(1.05, 3)}),
    seed=seeds,
)
@settings(max_examples=60)
def test_rows_of_the_model_are_within_the_bound_of_complementary_costs(radii, block_scales, neighbours, model, seed):
    rng = np.random.default_rng(seed)
    spread = 10 ** rng.uniform(-2, 2)
    centers = [rng.normal(size=(3, 2)) * spread for _ in radii]

    def contribute(rng):
        nearest = rng.integers(3)
        views = [a[nearest] + rng.normal(size=2) * rng.choice([0, 1e-3, 1, 1e3]) for a in centers]
        return model_contribution(views, centers, radii, block_scales, **model)

    bound = joint_sensitivity(radii, *block_scales, len(radii), neighbours, complementary_costs=True)
    for _ in range(20):
        assert distance(rng, neighbours, contribute) <= bound * WITHIN


@given(radius=scales, norm=scales, n_features=st.integers(1, 1000), n_views=st.integers(1, 5), neighbours=neighbours_of)
def test_no_other_scale_of_the_counts_has_less_error(radius, norm, n_features, n_views, neighbours):
    def error(scale):
        return joint_sensitivity(radius, scale, 0.0, n_views, neighbours) ** 2 * (n_features + (norm / scale) ** 2)

    best = best_scales(radius, norm, n_features, n_views, neighbours)
    for factor in (0.3, 0.9, 0.999, 1.001, 1.1, 3):
        assert error(best) <= error(best * factor) * WITHIN


def test_the_best_scale_by_hand():
    assert best_scales(2.0, 8.0, 16) == pytest.approx(2.0)
    assert best_scales(2.0, 8.0, 4, 4) == pytest.approx(2.0)
    assert best_scales(3.0, 0.1, 10, 1, "replace") == 3.0


@given(radius=scales, seed=seeds)
def test_a_plain_sum_moves_by_its_sensitivity_at_most(radius, seed):
    rng = np.random.default_rng(seed)
    one, other = ball(rng, radius, (2, 3))
    assert np.linalg.norm(one) <= sum_sensitivity(radius) * WITHIN
    assert np.linalg.norm(one - other) <= sum_sensitivity(radius, "replace") * WITHIN
    apart = np.linalg.norm(np.abs(one) - np.abs(other))
    assert apart <= sum_sensitivity(radius, "replace", nonnegative=True) * WITHIN


def test_a_plain_sum_by_hand():
    assert sum_sensitivity(3.0) == sum_sensitivity(3.0, nonnegative=True) == 3.0
    assert sum_sensitivity(3.0, "replace") == 6.0
    assert sum_sensitivity(1.0, "replace", nonnegative=True) == pytest.approx(np.linalg.norm([1, -1]))


@given(step=scales, shift=scales, size=st.integers(1, 30), seed=seeds)
def test_rounding_to_the_grid_is_within_its_sensitivity(step, shift, size, seed):
    rng = np.random.default_rng(seed)
    one = rng.normal(size=size) * 10
    direction = rng.normal(size=size)
    other = one + direction * shift / np.linalg.norm(direction)
    apart = np.linalg.norm(to_grid(one, step) - to_grid(other, step))
    assert apart <= grid_sensitivity(shift, step, size) * WITHIN


def test_rounding_to_the_grid_can_add_a_whole_step_to_every_number():
    one, other = np.full(9, 0.5 - 1e-9), np.full(9, 0.5 + 1e-9)
    assert np.linalg.norm(to_grid(other, 1.0) - to_grid(one, 1.0)) == pytest.approx(grid_sensitivity(0.0, 1.0, 9))


@given(radius=scales, exponent=st.integers(-200, 200), seed=seeds)
def test_clipped_rows_keep_their_direction_and_are_no_longer_than_the_radius(radius, exponent, seed):
    rows = np.random.default_rng(seed).normal(size=(6, 5)) * 10.0**exponent
    clipped = clip_rows(rows, radius)
    lengths = np.linalg.norm(rows / 10.0**exponent, axis=1) * 10.0**exponent
    assert (np.linalg.norm(clipped, axis=1) <= radius).all()
    assert_array_equal(clipped[lengths < radius], rows[lengths < radius])
    assert_allclose(clipped[lengths > radius], (rows / lengths[:, None] * radius)[lengths > radius], rtol=1e-11)
    assert_array_equal(clip_rows(clipped, radius), clipped)


def test_clipping_leaves_no_nan_and_its_input_as_it_was():
    rows = np.array([[0.0, 0.0], [1e308, 1e308], [5e-324, 0.0]])
    before = rows.copy()
    clipped = clip_rows(rows, 1.0)
    assert np.isfinite(clipped).all()
    assert_array_equal(rows, before)
    assert_allclose(clipped, [[0, 0], [math.sqrt(0.5)] * 2, [5e-324, 0]], atol=1e-300)
    assert_array_equal(clip_rows([[1.0, -2.0]], 0.0), [[0.0, 0.0]])
    assert clip_rows(np.zeros((3, 0)), 1.0).shape == (3, 0)
    with pytest.raises(ValueError, match="x must be finite"):
        clip_rows([[np.nan, 1.0]], 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: joint_sensitivity(1, 1, 1, 1, "swap"), "neighbours must be 'add-remove' or 'replace', got 'swap'"),
        (lambda: sum_sensitivity(1, "swap"), "neighbours must be"),
        (lambda: best_scales(1, 1, 1, 1, "swap"), "neighbours must be"),
        (lambda: joint_sensitivity(-1, 1, 1, 1), "radius must be"),
        (lambda: joint_sensitivity([1, 2], 1, 1, 3), "n_views=3"),
        (lambda: joint_sensitivity(1, np.nan, 1, 1), "count_scale must be"),
        (lambda: best_scales(1, 0, 1), "typical_norm must be"),
        (lambda: clip_rows([[1.0]], np.inf), "radius must be"),
        (lambda: grid_sensitivity(1.0, 0.0, 1), "step must be"),
    ],
)
def test_a_wrong_parameter_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
