import math

import numpy as np
import pytest

from fedhk import reference


def test_distance_of_one_sample_by_hand():
    x = np.array([[1.0, 2.0]])
    centers = np.array([[0.0, 0.0], [1.0, 4.0]])
    coef = np.array([[0.5, 2.0]])
    phi = reference.heat_weighted_distance(x, centers, coef, 0.1)
    np.testing.assert_allclose(phi, [[0.1 * (0.5 * 1 + 2 * 4), 0.1 * 2 * 4]])
    np.testing.assert_allclose(reference.kernel_distance(phi), 1 - np.exp(-phi))


def test_small_kernel_distances_keep_their_digits():
    assert reference.kernel_distance(np.array([1e-20]))[0] == 1e-20


def test_a_missing_cell_counts_for_nothing():
    x = np.array([[1.0, np.nan], [3.0, 4.0]])
    coef = np.array([[1.0, 0.0], [1.0, 1.0]])
    centers = np.array([[0.0, 0.0]])
    np.testing.assert_array_equal(reference.heat_weighted_distance(x, centers, coef, 1.0), [[1.0], [25.0]])
    result = reference.statistics([x], [centers], [coef], [0.01], np.ones(1), 2.0, 2.0)
    assert np.isfinite(result["numerators"][0]).all()
    # Only the second row has the second feature, so the centre moves onto it there.
    moved = reference.center_update(result["numerators"], result["weights"], [centers])
    assert moved[0][0, 1] == pytest.approx(4.0)


def test_memberships_of_one_row_by_hand():
    # Totals 1^2 * 0.1 and 1^2 * 0.3 with m = 2: inverse proportions 10 : 10/3.
    mu = reference.memberships([np.array([[0.1, 0.3]])], np.ones(1), 2.0, 2.0)
    np.testing.assert_allclose(mu, [[0.75, 0.25]])


def test_memberships_sum_to_one_even_for_fuzzifiers_near_one():
    rng = np.random.default_rng(0)
    distances = [rng.uniform(1e-8, 1, size=(30, 5)) for _ in range(3)]
    for fuzzifier in (1.01, 1.2, 2.0, 10.0):
        mu = reference.memberships(distances, np.full(3, 1 / 3), 2.0, fuzzifier)
        np.testing.assert_allclose(mu.sum(axis=1), 1.0)
        assert (mu >= 0).all()


def test_a_sample_on_centres_shares_its_row_among_them():
    distances = [np.array([[0.0, 0.5, 0.0, 0.2]])]
    np.testing.assert_array_equal(reference.memberships(distances, np.ones(1), 2.0, 1.1), [[0.5, 0.0, 0.5, 0.0]])


def test_view_weights_by_hand():
    np.testing.assert_allclose(reference.view_weights(np.array([1.0, 3.0]), 2.0), [0.75, 0.25])
    np.testing.assert_array_equal(reference.view_weights(np.array([0.0, 3.0]), 2.0), [1.0, 0.0])


def test_exponents_must_exceed_one():
    with pytest.raises(ValueError, match=r"fuzzifier=1.0 should be > 1"):
        reference.memberships([np.ones((1, 2))], np.ones(1), 2.0, 1.0)
    with pytest.raises(ValueError, match=r"view_exponent=0.5 should be > 1"):
        reference.view_weights(np.ones(2), 0.5)


def test_a_centre_without_weight_is_kept():
    previous = [np.array([[7.0, 8.0]])]
    moved = reference.center_update([np.array([[6.0, 0.0]])], [np.array([[2.0, 0.0]])], previous)
    np.testing.assert_array_equal(moved[0], [[3.0, 8.0]])


def random_problem(seed):
    rng = np.random.default_rng(seed)
    views = [rng.normal(size=(12, 3)), rng.normal(size=(12, 2))]
    coefs = [rng.uniform(0, 1, size=x.shape) for x in views]
    centers = [rng.normal(size=(3, x.shape[1])) for x in views]
    return views, coefs, centers


def test_statistics_of_one_sample_by_hand():
    x, center, coef = np.array([[2.0]]), np.array([[0.0]]), np.array([[0.5]])
    result = reference.statistics([x], [center], [coef], [0.25], np.ones(1), 2.0, 2.0, np.array([3.0]))
    kernel = math.exp(-0.25 * 0.5 * 4)
    assert result["weights"][0][0, 0] == pytest.approx(3 * kernel * 0.5)
    assert result["numerators"][0][0, 0] == pytest.approx(3 * kernel * 0.5 * 2)
    assert result["costs"][0] == pytest.approx(3 * (1 - kernel))
    assert result["objective"] == pytest.approx(3 * (1 - kernel))


def test_statistics_of_a_union_are_the_sum():
    views, coefs, centers = random_problem(0)
    weights = np.array([0.3, 0.7])

    def take(rows):
        return reference.statistics(
            [x[rows] for x in views], centers, [d[rows] for d in coefs], [0.2, 0.4], weights, 2.0, 1.5
        )

    whole, first, second = take(slice(None)), take(slice(0, 5)), take(slice(5, None))
    np.testing.assert_allclose(whole["costs"], first["costs"] + second["costs"])
    assert whole["objective"] == pytest.approx(first["objective"] + second["objective"])
    for name in ("numerators", "weights"):
        for h in range(2):
            np.testing.assert_allclose(whole[name][h], first[name][h] + second[name][h])


def test_a_sample_weight_of_two_is_a_row_given_twice():
    views, coefs, centers = random_problem(1)
    rows = [*range(12), 4]
    weights = np.ones(12)
    weights[4] = 2.0
    arguments = ([0.2, 0.4], np.array([0.5, 0.5]), 2.0, 1.5)
    weighted = reference.statistics(views, centers, coefs, *arguments, weights)
    repeated = reference.statistics([x[rows] for x in views], centers, [d[rows] for d in coefs], *arguments)
    np.testing.assert_allclose(weighted["costs"], repeated["costs"])
    np.testing.assert_allclose(weighted["numerators"][1], repeated["numerators"][1])


def test_every_block_update_lowers_the_objective():
    for seed in range(10):
        views, coefs, centers = random_problem(seed)
        weights, previous = np.array([0.5, 0.5]), math.inf
        for _ in range(6):
            result = reference.statistics(views, centers, coefs, [0.3, 0.3], weights, 2.0, 1.5)
            assert result["objective"] <= previous + 1e-12
            previous = result["objective"]
            weights = reference.view_weights(result["costs"], 2.0)
            centers = reference.center_update(result["numerators"], result["weights"], centers)


def test_the_statistics_are_the_gradient_of_the_objective():
    views, coefs, centers = random_problem(3)
    weights, bandwidths, step = np.array([0.4, 0.6]), [0.2, 0.5], 1e-6
    result = reference.statistics(views, centers, coefs, bandwidths, weights, 2.0, 1.5)
    moved = [a.copy() for a in centers]
    moved[1][2, 0] += step
    # The memberships move too, but they minimise J, so to first order they do not matter.
    after = reference.statistics(views, moved, coefs, bandwidths, weights, 2.0, 1.5)["objective"]
    slope = 2 * bandwidths[1] * weights[1] ** 2
    slope *= result["weights"][1][2, 0] * centers[1][2, 0] - result["numerators"][1][2, 0]
    assert (after - result["objective"]) / step == pytest.approx(slope, rel=1e-4)
