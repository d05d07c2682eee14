"""Plain k-means on small tables: groups, and the directions in which good centres lie."""

import numpy as np
import pytest

from fedhk.starts.kmeans import group_means, leading_directions


@pytest.mark.parametrize("shape", [(40, 6), (12, 50)])
def test_leading_directions_are_the_weighted_principal_components(shape):
    rng = np.random.default_rng(0)
    points, weight = rng.normal(size=shape) * np.arange(1, shape[1] + 1), rng.uniform(0.5, 2, shape[0])
    found = leading_directions(points, weight, 3)
    centred = points - np.average(points, axis=0, weights=weight)
    _, _, axes = np.linalg.svd(np.sqrt(weight)[:, None] * centred, full_matrices=False)
    expected = centred @ axes[:3].T
    np.testing.assert_allclose(np.abs(found[:, ::-1]), np.abs(expected), atol=1e-8 * np.abs(expected).max())


def test_a_group_without_points_has_the_mean_of_all():
    points, weight = np.array([[0.0], [2.0], [5.0]]), np.array([1.0, 1.0, 2.0])
    means = group_means(points, weight, np.array([0, 0, 2]), 3)
    np.testing.assert_allclose(means[:, 0], [1.0, 3.0, 5.0])
