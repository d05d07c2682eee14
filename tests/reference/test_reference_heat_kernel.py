import math

import numpy as np
import pytest

from fedhk import reference


def test_coefficients_by_hand():
    x = np.array([[0.0, 1.0], [1.0, 1.0], [4.0, 4.0]])
    np.testing.assert_allclose(reference.minmax_coefficient(x), [[0, 0], [0.25, 0], [1, 1]], atol=1e-9)
    np.testing.assert_allclose(reference.absdev_coefficient(x), np.abs(x - [5 / 3, 2]))


def test_epsilon_saves_a_constant_feature():
    constant = np.ones((3, 1))
    np.testing.assert_array_equal(reference.minmax_coefficient(constant), np.zeros((3, 1)))
    with pytest.raises(ZeroDivisionError):
        reference.minmax_coefficient(constant, epsilon=0.0)


def test_the_smallest_sample_is_at_no_distance_from_any_centre():
    # The proof assumes delta > 0; with one feature the minimum breaks it, and the printed memberships with it.
    x = np.array([[0.0], [1.0], [2.0]])
    distance = reference.ked(x, np.array([[5.0], [-3.0]]), reference.minmax_coefficient(x))
    np.testing.assert_array_equal(distance[0], [0.0, 0.0])
    with pytest.raises(ZeroDivisionError):
        reference.update_memberships([distance], np.ones(1), 2.0, 2.0)


def test_ked_by_hand():
    distance = reference.ked(np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]]), np.array([[0.5, 0.25]]))
    assert distance[0, 0] == pytest.approx(1 - math.exp(-1.5))


@pytest.fixture
def two_views():
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(6, 3)), rng.normal(size=(6, 2))]
    centers = [rng.normal(size=(2, 3)), rng.normal(size=(2, 2))]
    return views, centers, [rng.uniform(size=x.shape) for x in views]


def test_fked_readings_agree_with_one_view(two_views):
    views, centers, coefs = (parts[:1] for parts in two_views)
    per_view = reference.fked(views, centers, coefs, "per_view")
    summed = reference.fked(views, centers, coefs, "summed")
    np.testing.assert_allclose(per_view[0], summed[0])


def test_summed_fked_is_the_ked_of_the_concatenation(two_views):
    views, centers, coefs = two_views
    summed = reference.fked(views, centers, coefs, "summed")
    joint = reference.ked(np.hstack(views), np.hstack(centers), np.hstack(coefs))
    for distance in summed:
        np.testing.assert_allclose(distance, joint)


def test_summed_fked_leaves_the_view_weights_no_say(two_views):
    summed = reference.fked(*two_views, "summed")
    mu = reference.update_memberships(summed, np.array([0.9, 0.1]), 2.0, 2.0)
    np.testing.assert_allclose(reference.update_view_weights(summed, mu, 2.0, 2.0), [0.5, 0.5])
    per_view = reference.fked(*two_views, "per_view")
    assert abs(reference.update_view_weights(per_view, mu, 2.0, 2.0)[0] - 0.5) > 0.01


@pytest.mark.parametrize("reading", ["per_view", "summed"])
def test_tked_ignores_the_padding(two_views, reading):
    views, centers, coefs = two_views
    padded = [reference.tensorize(parts) for parts in two_views]
    padded[1][:, 2, 1] = 9.0  # centres of a padded feature
    padded[2][:, 2, 1] = 9.0  # and its coefficients
    distances = reference.tked(*padded, [3, 2], reading)
    for distance, expected in zip(distances, reference.fked(views, centers, coefs, reading), strict=True):
        np.testing.assert_allclose(distance, expected)


def test_tensorized_coefficients_are_those_of_the_slices(two_views):
    views = two_views[0]
    coef = reference.tensorized_coefficient(reference.tensorize(views), [3, 2])
    for h, view in enumerate(views):
        np.testing.assert_allclose(coef[:, : view.shape[1], h], reference.minmax_coefficient(view))
    np.testing.assert_array_equal(coef[:, 2, 1], np.zeros(6))
