"""Parameters that all estimators share: what is allowed becomes settings, the rest is refused by name and value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedhk import EFKMVC
from fedhk.estimators.choices import (
    ModelParameters,
    check_calibration,
    check_centers,
    check_rank_like,
    check_view_weights,
    limit_numbers,
    make_form,
    make_settings,
    read_numbers,
)
from fedhk.tensors.low_rank import LowRankForm

NAMES, SHAPES = ["ecg", "image"], [(2,), (2, 3)]
CENTERS = [np.arange(6.0).reshape(3, 2), np.arange(18.0).reshape(3, 2, 3)]


@dataclass
class Parameters(ModelParameters):
    decomposition: str | None = None
    rank: object = "auto"


def settings(**changes):
    return make_settings(Parameters(**{"n_clusters": 3} | changes), NAMES, SHAPES, single_table=False)


class TestSettings:
    def test_defaults(self):
        found = settings()
        assert (found.n_clusters, found.fuzzifier, found.view_weights, found.init) == (3, None, "auto", "k-means++")

    def test_numbers_are_those_of_python_whatever_numpy_gave(self):
        found = settings(
            n_clusters=np.int64(3), heat_time=np.float32(0.5), fuzzifier=np.float64(1.1), n_init=np.int8(4)
        )
        assert [type(value) for value in (found.n_clusters, found.heat_time, found.fuzzifier, found.n_init)] == [
            int, float, float, int,
        ]  # fmt: skip

    @pytest.mark.parametrize("n_init", [2, 5, 19, 21])
    def test_starts_that_nobody_draws_are_refused(self, n_init):
        with pytest.raises(ValueError, match=f"n_init={n_init} has no effect where init gives centres"):
            settings(init=CENTERS, n_init=n_init)
        for fine in (1, ModelParameters.n_init):
            assert_array_equal(settings(init=CENTERS, n_init=fine).init[0], CENTERS[0])


class TestForm:
    def test_a_decomposition_has_a_rank(self):
        assert make_form("tucker", (2, 2, 2)) == LowRankForm("tucker", (2, 2, 2))
        assert make_form("cp", "auto") == LowRankForm("cp", "auto")
        assert not isinstance(make_form(None, "auto"), LowRankForm)

    @pytest.mark.parametrize("rank", [2, 0.5, (2, 2, 2)], ids=str)
    def test_a_rank_without_one_is_refused(self, rank):
        with pytest.raises(ValueError, match=r"rank=.* has no effect with decomposition=None"):
            make_form(None, rank)

    @pytest.mark.parametrize(
        ("given", "found"),
        [("auto", "auto"), (3, 3), (np.int64(3), 3), (0.5, 0.5), ([1, 2], (1, 2)), (np.array([1, 2, 3]), (1, 2, 3))],
        ids=str,
    )
    def test_ranks(self, given, found):
        assert check_rank_like(given) == found

    @pytest.mark.parametrize(
        "rank", [0, -1, 1.5, 1.0, "big", True, False, np.nan, (0, 1, 1), (1, 1.5, 1), (), (True, 1, 1), None], ids=str
    )
    def test_what_is_no_rank_is_refused_with_its_value(self, rank):
        with pytest.raises(ValueError, match="rank=") as caught:
            check_rank_like(rank)
        assert f"rank={rank!r} must be" in str(caught.value)


class TestNumbersOfClusters:
    def test_what_is_chosen_among(self):
        assert read_numbers(3) == read_numbers(np.int64(3)) == range(3, 4)
        assert read_numbers("auto") == range(2, 101)
        for given in ((2, 8), [2, 8], np.array([2, 8]), "2-8", " 2 - 8", range(2, 9)):
            assert read_numbers(given) == range(2, 9)

    def test_auto_tries_fewer_where_rows_are_few(self):
        assert limit_numbers("auto", 1000) == range(2, 101)
        assert limit_numbers("auto", 24) == range(2, 7)
        assert limit_numbers("auto", 2) == range(2, 3)
        assert limit_numbers(3, 2) == range(3, 4)

    def test_auto_tries_fewer_under_masks(self):
        assert limit_numbers("auto", 1000, masked=True) == range(2, 16)
        assert limit_numbers((2, 40), 1000, masked=True) == range(2, 41)

    def test_nothing_is_limited_where_sites_do_not_say_how_many_rows_they_have(self):
        assert limit_numbers("auto", 0) == range(2, 101)
        assert limit_numbers((2, 40), 0) == range(2, 41)

    @pytest.mark.parametrize(
        "given",
        [[], [2, 3, 4], [2, "x"], (1, 4), (5, 3), (2.5, 4), "many", "2-", range(2, 9, 2), 1.5, 0, -1, True, None, {}],
        ids=str,
    )
    def test_what_is_none_is_refused(self, given):
        with pytest.raises(
            ValueError, match=r"n_clusters=.* must be a whole number from 1 on, 'auto', or the least and the largest"
        ):
            read_numbers(given)
        with pytest.raises(ValueError, match=r"'auto', or .* as \(2, 8\) or '2-8'"):
            EFKMVC(n_clusters=given).fit([[np.eye(3)], [np.eye(3)]])

    @pytest.mark.parametrize("given", [(5, 2), "5-2"])
    def test_a_range_that_is_reversed_is_told(self, given):
        with pytest.raises(ValueError, match=r"The range is reversed: did you mean \(2, 5\)\?"):
            read_numbers(given)

    def test_more_than_half_of_the_rows(self):
        with pytest.raises(ValueError, match=r"n_clusters='2-8': to try 8 clusters takes .* 16; there are 15"):
            limit_numbers("2-8", 15)


class TestViewWeights:
    def test_names_and_numbers(self):
        assert check_view_weights("learned", 2) == "learned"
        assert check_view_weights([3, 1], 2) == (3.0, 1.0)

    @pytest.mark.parametrize("given", [[1.0], [1.0, -1.0], [0.0, 0.0], [np.nan, 1.0], [[1.0, 2.0]], 3.0], ids=str)
    def test_what_is_not_one_number_per_view_is_refused(self, given):
        with pytest.raises(ValueError, match=r"view_weights=.* must be 2 finite non-negative numbers, one per view"):
            check_view_weights(given, 2)


class TestCenters:
    def test_in_the_shape_of_rows_or_flat_by_order_or_by_name(self):
        for given in (
            CENTERS,
            [CENTERS[0], CENTERS[1].reshape(3, 6)],
            {"image": CENTERS[1], "ecg": CENTERS[0]},
        ):
            found = check_centers(given, NAMES, SHAPES, 3, single_table=False)
            assert [array.shape for array in found] == [(3, 2), (3, 6)]
            assert_array_equal(found[1], CENTERS[1].reshape(3, 6))

    def test_one_table(self):
        (found,) = check_centers(CENTERS[0], ["x"], [(2,)], 3, single_table=True)
        assert_array_equal(found, CENTERS[0])

    @pytest.mark.parametrize(
        ("given", "n_clusters", "said"),
        [
            (CENTERS[:1], 3, "init has 1 arrays of centres, but X has 2 views"),
            ([CENTERS[0], CENTERS[1][:2]], 3, r"init for view 'image' has shape \(2, 2, 3\).*\(3, 6\) or \(3, 2, 3\)"),
            ([CENTERS[0] * np.nan, CENTERS[1]], 3, "init for view 'ecg'.* must be finite"),
            (CENTERS, "auto", "init gives centres, so n_clusters must be their number, got 'auto'"),
            ({"ecg": CENTERS[0]}, 3, "init for view 'image'"),
        ],
        ids=["views", "shape", "NaN", "auto", "name"],
    )
    def test_what_does_not_fit_is_refused(self, given, n_clusters, said):
        with pytest.raises(ValueError, match=said):
            check_centers(given, NAMES, SHAPES, n_clusters, single_table=False)


class TestCalibration:
    def test_shares(self):
        assert check_calibration(None) is None
        assert check_calibration("auto") == "auto"
        assert check_calibration(0.5) == (0.5, 0.5)
        assert check_calibration([1, 0]) == (1.0, 0.0)

    @pytest.mark.parametrize("given", [(0.5, 0.5, 0.5), 2.0, (0.5, -0.1), (np.nan, 0.5), ()], ids=str)
    def test_what_is_none_is_refused(self, given):
        with pytest.raises(ValueError, match=r"calibration=.* must be 'auto', None, or one or two numbers from 0 to 1"):
            check_calibration(given)
