"""How many clusters there are, from sums."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.agreement.number import (
    NumberSearch,
    TriedNumber,
    choose_number,
    choose_search,
    count_between,
    describe_selection,
    find_number,
    find_offset,
    join_points,
    list_pairs,
    measure_gaps,
    sum_halves,
)
from fedhk.data.scaling import make_scaling
from fedhk.data.views import check_views
from fedhk.datasets import make_sites
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows


def rows_of(tables, weight=None):
    views = check_views(tables)
    return Rows(views, prepare(views, make_scaling("standard"), "uniform", weight), weight)


def number_of(tables, largest=15):
    return choose_number(find_number(rows_of(tables), 2, largest, 0))[0]


@pytest.mark.parametrize("n_clusters", [2, 5, 9, 12])
def test_round_clusters_are_counted(n_clusters):
    data = make_sites(
        1, 800, n_clusters, (8, 8), class_mix=None, shift=0, scale=0, separation=7, random_state=n_clusters
    )
    assert number_of(data.views) == n_clusters


@pytest.mark.parametrize("draw", ["normal", "uniform", "exponential"])
@pytest.mark.parametrize("width", [1, 2, 16])
def test_noise_is_one_cluster_whatever_its_shape(draw, width):
    rng = np.random.default_rng(width)
    assert number_of([getattr(rng, draw)(size=(600, width)) for _ in range(2)]) == 1


def test_levels_of_categories_are_no_clusters():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(400, 3)), columns=list("abc"))
    frame["sex"], frame["smoker"] = rng.choice(["F", "M"], 400), rng.choice(["yes", "no"], 400)
    assert number_of([frame]) == 1
    frame["a"] += 8.0 * (np.arange(400) % 3)
    assert number_of([frame]) == 3


def test_rows_that_are_all_alike_are_one_cluster():
    assert number_of([np.ones((40, 3))], largest=4) == 1


def test_rows_fewer_than_points_are_no_error():
    rng = np.random.default_rng(0)
    assert number_of([rng.normal(size=(8, 3))], largest=2) == 1
    assert number_of([rng.normal(size=(30, 40))], largest=15) >= 1


def test_sums_add_over_parts_of_the_rows():
    """What two sites send is what each adds, and as long as the search says, in each of its stages."""
    rng = np.random.default_rng(1)
    rows = rows_of([rng.normal(size=(90, 3)) + 6.0 * (np.arange(90) % 3)[:, None]])
    search, stages = NumberSearch.begin(3, 2, 4), set()
    while not search.is_done:
        asked = {"scatter": search.wants_scatter, "joins": search.joins, "table": search.wants_table}
        total = sum_halves(rows, search.axes, search.points, np.random.RandomState(0), **asked)
        assert len(total) == search.size
        (first, *_), (second, *_) = search.split(total)[0]
        assert_allclose([first.sum(), second.sum()], 45)
        stages.add(tuple(asked.values()))
        search = search.advance(total, 0)
    assert stages == {(True, False, False), (False, False, False), (False, True, False), (False, True, True)}
    assert [one.n_clusters for one in search.tried] == [2, 3, 4]
    assert choose_number(search.tried)[0] == 3


def test_a_row_of_weight_two_is_two_rows():
    rng = np.random.default_rng(2)
    table, points = rng.normal(size=(20, 2)), rng.normal(size=(4, 2))
    weight = np.where(np.arange(20) < 5, 2.0, 1.0)
    twice = np.vstack([table, table[:5]])
    assert_allclose(count_between(table, weight, points), count_between(twice, np.ones(25), points))


def test_rows_between_two_points_are_counted_by_hand():
    points = np.array([[0.0, 0.0], [6.0, 0.0]])
    rows = np.array([[0.9, 5.0], [-0.9, 0.0], [2.1, 0.0], [3.9, 1.0], [5.5, 0.0], [1.5, 0.0]])
    assert_array_equal(count_between(rows, np.ones(6), points), [[2], [1], [2]])
    assert_allclose(measure_gaps(np.array([[9.0, 4.0], [16.0, 4.0], [0.0, 12.0]])), [3.0, -2.0])


def test_points_are_joined_where_rows_are_not_fewer():
    points = np.array([[0.0], [1.0], [5.0], [6.0], [20.0]])
    pairs = list_pairs(points)
    assert [0, 1] in pairs.tolist()
    gaps = np.array([{(0, 1): -3.0, (2, 3): -2.0}.get((a, b), 4.0) for a, b in pairs])
    assert_allclose(join_points(points, np.array([1.0, 3, 1, 1, 1]), pairs, gaps, 4), [[0.75], [5.5], [20]])
    assert len(join_points(points, np.ones(5), pairs, gaps, 1)) == 4
    assert len(join_points(points, np.ones(5), pairs, gaps + 9, 3)) == 4  # one pair goes, whatever is between


def test_an_offset_of_a_whole_site_is_found():
    rng = np.random.default_rng(3)
    points = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    rows = points[rng.integers(3, size=300)] + rng.normal(size=(300, 2)) + [1.5, -1.0]
    assert_allclose(find_offset(rows, np.ones(300), points), [1.5, -1.0], atol=0.2)


def tried(*lines):
    return [TriedNumber(k, gap, 0.9, information, information) for k, gap, information in lines]


def test_the_number_on_which_halves_share_most_is_taken_among_those_with_gaps():
    assert choose_number(tried((2, 5.0, 0.6), (3, 2.0, 1.0), (4, -1.0, 1.2)))[0] == 3
    number, why = choose_number(tried((2, 5.0, 0.6), (3, 0.5, 1.0)))
    assert number == 2
    assert why.startswith("no clear number")
    assert choose_number(tried((2, 0.9, 0.6), (3, 0.5, 1.0)))[0] == 1
    assert choose_number(tried((2, 5.0, -0.1)))[0] == 1
    assert choose_number([])[0] == 1


def test_of_two_searches_the_one_that_says_more_within_sites_counts_or_has_fewer_clusters():
    two, five = tried((2, 5.0, 0.6)), tried((5, 5.0, 1.5))
    assert choose_search(five, two) is five
    assert choose_search(two, five) is five
    alike = [TriedNumber(5, 5.0, 0.9, 1.5, 0.61)]  # of which most says what site a row is of
    assert choose_search(alike, two) is two
    assert choose_search(two, alike) is two
    assert choose_search(two, tried((2, 0.1, 0.6))) is two


def test_a_selection_says_what_was_taken_and_why():
    lines = describe_selection(tried((2, 5.0, 0.6), (3, 2.0, 1.0)))
    assert [line["taken"] for line in lines] == [False, True]
    assert [bool(line["note"]) for line in lines] == [False, True]
    one = describe_selection(tried((2, 0.0, 0.6)))
    assert [(line["n_clusters"], line["taken"]) for line in one] == [(1, True), (2, False)]
    assert describe_selection([]) == []
