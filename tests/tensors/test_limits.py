"""Ranks that are possible, and refusals that name the mode and both sizes."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.tensors import CP, Limit, Parafac2, Tucker, check_rank
from fedhk.tensors.limits import largest_ranks

NAMES = ["pix", "mor", "fac"]
WIDTHS = [240, 6, 216]


def ranks(form, rank, n_clusters=10, widths=WIDTHS, names=NAMES):
    return check_rank(rank, form.limits(n_clusters, widths, names), form.name)


def refusal(form, rank, **sizes):
    with pytest.raises(ValueError, match="rank") as caught:
        ranks(form, rank, **sizes)
    return str(caught.value)


def test_a_rank_above_the_narrowest_view_can_be_had():
    assert ranks(Parafac2(), 20) == (20,)
    assert ranks(Parafac2(), 2, n_clusters=2, widths=[4, 1]) == (2,)


def test_a_rank_above_what_the_clusters_need_is_refused():
    text = refusal(Parafac2(), 5, n_clusters=2, widths=[9, 8, 7])
    shape = "2 clusters in 3 views of 9, 8, 7 features"
    assert text == f"rank 5 for PARAFAC2 is above the components that {shape} can need; at most 4."
    assert "6, 216 features can need; at most 20." in refusal(Parafac2(), 21)
    assert "10 clusters in 2 views of 4, 1 features can need; at most 5." in refusal(Parafac2(), 6, widths=[4, 1])
    assert refusal(CP(), 7, n_clusters=2, widths=[9, 9, 9]).endswith(
        "2 clusters, 9 features and 3 views can need; at most 6."
    )


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        ((11, 5, 2), "rank 11 of the cluster mode for Tucker is above the 10 clusters; at most 10."),
        (
            (10, 241, 2),
            "rank 241 of the feature mode for Tucker is above the widest view, 'pix' with 240 features; at most 240.",
        ),
        ((10, 5, 4), "rank 4 of the view mode for Tucker is above the 3 views; at most 3."),
        ((10, 5), "rank for Tucker must be one number or 3 (cluster, feature, view), got 2: (10, 5)."),
        (0, "rank for Tucker must be made of whole numbers of at least 1, got 0."),
        ((10, True, 1), "rank for Tucker must be made of whole numbers of at least 1, got (10, True, 1)."),
        (
            241,
            "rank 241 of the feature mode for Tucker is above the widest view, 'pix' with 240 features; at most 240.",
        ),
    ],
)
def test_impossible_ranks_of_tucker_name_the_mode_and_both_sizes(rank, expected):
    assert refusal(Tucker(), rank) == expected


def test_more_ranks_than_modes_are_refused():
    assert refusal(Parafac2(), (3, 3)) == "rank for PARAFAC2 must be one number, got 2: (3, 3)."


def test_one_number_is_held_to_what_each_mode_allows():
    assert ranks(Tucker(), 20) == (10, 20, 3)
    assert ranks(Parafac2(), np.int64(4)) == ranks(Parafac2(), [4]) == (4,)


def test_the_least_of_several_limits_of_a_mode_counts():
    assert largest_ranks([Limit("", 6, "a view"), Limit("", 4, "the clusters")]) == {"": 4}
    assert largest_ranks(Tucker().limits(10, WIDTHS)) == {"cluster": 10, "feature": 240, "view": 3}
