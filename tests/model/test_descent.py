"""One step of the descent gives weight to views that are there; it ends when the objective settles."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.model.descent import Progress, improve, learned_view_weights
from fedhk.model.parameters import Parameters
from fedhk.model.statistics import Statistics


def parameters(centers, view_weights=(1.0,)):
    """Parameters of one-feature views from lists of centres."""
    columns = tuple(np.array(view, dtype=float)[:, None] for view in centers)
    weights = np.array(view_weights)
    return Parameters(columns, weights, 0.3, 1.1, 2.0, np.ones(len(weights)))


class TestWeightsOfViewsThatAreNotThere:
    def statistics(self, costs, there):
        weights = tuple(np.full((1, 1), float(t)) for t in there)
        return Statistics(tuple(np.zeros((1, 1)) for _ in costs), weights, np.array(costs), np.ones(1), 1.0, 1.0)

    def test_an_absent_view_keeps_its_weight_and_the_others_share_the_rest(self):
        before = parameters([[0.0]] * 3, (0.5, 0.25, 0.25))
        found = improve(before, self.statistics([1.0, 3.0, 0.0], [1, 1, 0]), learn_weights=True)
        # v ~ 1 / cost at exponent 2: 3 to 1 of the 0.75 that the absent view leaves
        assert_allclose(found.view_weights, [0.5625, 0.1875, 0.25])

    def test_a_view_that_costs_nothing_but_is_there_takes_all(self):
        before = parameters([[0.0]] * 2, (0.5, 0.5))
        found = improve(before, self.statistics([1.0, 0.0], [1, 1]), learn_weights=True)
        assert found.view_weights.tolist() == [0.0, 1.0]

    def test_nothing_changes_where_all_are_absent_or_weights_are_not_learned(self):
        before = parameters([[0.0]] * 2, (0.4, 0.6))
        assert improve(before, self.statistics([0.0, 0.0], [0, 0]), learn_weights=True).view_weights.tolist() == [
            0.4,
            0.6,
        ]
        assert improve(before, self.statistics([1.0, 0.0], [1, 0]), learn_weights=False).view_weights.tolist() == [
            0.4,
            0.6,
        ]

    def test_where_all_views_are_there_it_is_the_plain_update(self):
        before = parameters([[0.0]] * 2, (0.4, 0.6))
        statistics = self.statistics([1.0, 2.0], [1, 1])
        assert_array_equal(
            improve(before, statistics, learn_weights=True).view_weights,
            learned_view_weights(statistics.costs, before.view_shares, before.view_exponent),
        )


class TestTheEndOfADescent:
    def test_a_tolerance_is_a_share_of_the_objective_or_an_amount_for_each_row(self):
        start = Progress(parameters([[0.0]]), iteration=1, objective=10.0)

        def fall(by, **given):
            return start.advance(start.parameters, 10.0 - by, max_iter=9, tol=0.01, **given)

        assert fall(0.09).converged
        assert not fall(0.11).converged
        assert fall(0.49, rows=50.0).converged
        assert not fall(0.51, rows=50.0).converged
        assert "of itself in iteration 2" in fall(0.09).stop_reason
        assert "for each row in iteration 2" in fall(0.49, rows=50.0).stop_reason
