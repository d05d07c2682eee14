"""Targets and weights that a decomposition is fitted to."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedhk.tensors import Tucker, weighted_error
from fedhk.tensors.problem import WeightedCenters


@pytest.mark.parametrize(
    ("targets", "weights", "expected"),
    [
        (
            [np.ones((3, 2))],
            [np.ones((3, 3))],
            r"weights of view 0 should have shape \(3, 2\) or \(3, 1\), got \(3, 3\)",
        ),
        ([np.ones((3, 2))], [-np.ones((3, 1))], "weights of view 0 should be finite and at least 0"),
        ([np.full((3, 2), np.nan)], None, "targets of view 0 have a value that is not finite"),
        ([np.ones((3, 2)), np.ones((4, 2))], None, r"targets of view 1 should have shape \(3, d_h\), got \(4, 2\)"),
        ([np.ones((3, 2))], [], "weights has 0 views, targets 1"),
    ],
)
def test_bad_targets_and_weights_are_refused(targets, weights, expected):
    with pytest.raises(ValueError, match=expected):
        Tucker().fit(targets, weights, rank=1)


def test_what_is_lost_is_a_share_of_what_tells_targets_apart():
    """Two centres at 9 and 11: centres at 10 lose all of what tells them apart, though hardly any of their size."""
    targets = [np.array([[9.0], [11.0]])]
    problem = WeightedCenters.of(targets, [np.array([[2.0], [2.0]])])
    assert problem.lost([np.array([[10.0], [10.0]])]) == 1.0
    assert problem.lost([np.array([[9.5], [10.5]])]) == pytest.approx(0.25)
    assert problem.lost([np.array([[99.0], [0.0]])]) == 1.0
    assert problem.lost(targets) == 0.0
    assert problem.kept([np.array([[10.0], [10.0]])]) == pytest.approx(1 - 2 / 202)
    assert WeightedCenters.of([np.ones((2, 3))]).lost([np.zeros((2, 3))]) == 0.0


def test_the_gap_of_a_centre_is_the_harmonic_mean_of_squared_distances_to_those_that_have_rows():
    problem = WeightedCenters.of([np.zeros((4, 1))], [np.array([[5.0], [1.0], [0.0], [2.0]])])
    gaps = problem.gaps([np.array([[1.0], [3.0], [1.0], [9.0]])])
    assert_allclose(gaps, [2 / (1 / 4 + 1 / 64), 2 / (1 / 4 + 1 / 36), 0, 2 / (1 / 64 + 1 / 36)])
    assert problem.gaps([np.array([[1.0], [1.0], [5.0], [9.0]])])[:2].max() < 1e-200  # merged
    assert WeightedCenters.of([np.zeros((1, 1))]).gaps([np.zeros((1, 1))]).tolist() == [0.0]


def test_gaps_are_over_features_that_both_centres_have():
    problem = WeightedCenters.of([np.zeros((2, 2))], [np.array([[1.0, 1.0], [1.0, 0.0]])])
    assert problem.gaps([np.array([[0.0, 5.0], [3.0, 99.0]])]).tolist() == [9.0, 9.0]


def test_cells_without_weight_are_never_read():
    targets, weights = [np.array([[1.0, np.nan], [np.inf, 3.0]])], [np.array([[2.0, 0.0], [0.0, 4.0]])]
    centers = [np.array([[0.0, 9.0], [9.0, 1.0]])]
    assert weighted_error(centers, targets, weights) == 2.0 * 1.0 + 4.0 * 4.0
    problem = WeightedCenters.of(targets, weights)
    np.testing.assert_array_equal(problem.completed(centers)[0], [[1.0, 9.0], [9.0, 3.0]])
    np.testing.assert_array_equal(problem.scale * problem.residuals(centers)[0], [[2.0, 0.0], [0.0, 8.0]])
