"""What sums over rows can be: whatever rows give passes, and what they cannot give is refused by the site's name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from cases import cases
from fedhk.errors import MessageError
from fedhk.federation.plausible import (
    MOST_ROWS,
    check_points,
    check_rows,
    check_spreads,
    check_statistics,
    check_summary,
    limits_from_moments,
)
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import site_moments
from fedhk.model.statistics import Statistics


def limits_of(rows):
    moments = site_moments(rows.views, rows.widths, unit_rows=False)
    return limits_from_moments(rows.references, moments)


@given(cases())
def test_statistics_of_any_rows_pass(case):
    if case.sample_weight is not None or case.rows.references[0].unit_rows:
        return  # sites have neither; rows of length 1 have moments of their own
    with Passes(case.rows, case.parameters.n_clusters) as scan:
        statistics = scan.statistics(case.parameters)
    check_statistics(statistics, case.parameters, limits_of(case.rows), "oslo")


LIMITS = (np.array([1.0, 10.0]), np.array([5.0]))


def test_points_within_the_limits_pass_and_one_beyond_is_named():
    check_points(np.array([[1.0, -10.0, 5.0], [np.nan, np.nan, np.nan]]), LIMITS, "oslo")
    with pytest.raises(MessageError, match=r"site 'oslo': a mean of rows is -11 in feature 1, far outside the range"):
        check_points(np.array([[0.0, 0.0, 0.0], [0.0, -11.0, 0.0]]), LIMITS, "oslo")


def test_spreads_are_at_most_the_squared_size_of_the_range():
    check_spreads(np.array([[101.0, 25.0]]), LIMITS, "oslo")
    with pytest.raises(MessageError, match="rows of a group are 26 apart"):
        check_spreads(np.array([[0.0, 26.0]]), LIMITS, "oslo")


def statistics_by_hand(rows=10.0):
    parameters = Parameters((np.zeros((2, 1)),), np.ones(1), 0.3, 1.1, 2.0, np.ones(1))
    weights = np.array([[4.0], [5.0]])
    return Statistics((weights * 2.0,), (weights,), np.array([3.0]), np.array([4.5, 5.0]), 3.0, rows), parameters


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": 11.0}, "an objective of 11 for 10 rows is not possible"),
        ({"rows": 2 * MOST_ROWS}, "rows is not possible"),
        ({"masses": np.array([6.0, 6.0])}, "masses or costs larger than the 10 rows"),
        ({"costs": np.array([11.0])}, "masses or costs larger than the 10 rows"),
        ({"weights": (np.array([[400.0], [5.0]]),)}, "sums of view number 0 that no rows can have"),
        ({"numerators": (np.array([[400.0], [5.0]]),)}, "sums of view number 0 that no rows can have"),
        ({"numerators": (np.array([[1.0], [1.0]]),), "weights": (np.array([[0.0], [5.0]]),)}, "no rows can have"),
    ],
    ids=str,
)
def test_what_ten_rows_cannot_give_is_refused(changes, said):
    statistics, parameters = statistics_by_hand()
    check_statistics(statistics, parameters, (np.array([5.0]),), "oslo")
    with pytest.raises(MessageError, match=f"site 'oslo': .*{said}"):
        check_statistics(replace(statistics, **changes), parameters, (np.array([5.0]),), "oslo")


def test_an_objective_may_be_as_large_as_all_views_for_all_rows():
    statistics, parameters = statistics_by_hand()
    check_rows(10.0, 10.0, parameters, "oslo")
    check_statistics(replace(statistics, objective=10.0), parameters, (), "oslo")
    with pytest.raises(MessageError):
        check_rows(10.0, 10.1, parameters, "oslo")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"counts": np.array([8.0, 8.0])}, "more rows than the 10"),
        ({"seen": np.array([11.0])}, "more rows than the 10"),
        ({"squares": np.array([10 * 4 * 9.0 + 1])}, "further from their centres"),
    ],
)
def test_a_summary_of_clusters_that_no_rows_can_have_is_refused(changed, said):
    fine = ClusterSummary(np.array([6.0, 4.0]), np.array([12.0]), np.array([10.0]))
    limits = (np.array([3.0]),)
    check_summary(fine, 10, limits, "oslo")
    with pytest.raises(MessageError, match=said):
        check_summary(replace(fine, **changed), 10, limits, "oslo")
