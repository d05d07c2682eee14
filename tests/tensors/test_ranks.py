"""Ranks: given, by energy, automatic, and impossible."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.tensors import CP, Parafac2, Tucker, check_rank, choose_rank, weighted_error
from tensors.forms import FORMS, random_centers

NAMES = ["pix", "mor", "fac"]
WIDTHS = [240, 6, 216]


def ranks(form, rank, n_clusters=10, widths=WIDTHS, names=NAMES):
    return check_rank(rank, form.limits(n_clusters, widths, names), form.name)


def refusal(form, rank, **sizes):
    with pytest.raises(ValueError, match="rank") as caught:
        ranks(form, rank, **sizes)
    return str(caught.value)


def test_a_rank_above_the_narrowest_view_is_refused_with_both_sizes():
    expected = "rank 8 for PARAFAC2 is above the narrowest view, 'mor' with 6 features; at most 6."
    assert refusal(Parafac2(), 8) == expected
    assert "view 1 with 1 feature; at most 1." in refusal(Parafac2(), 2, widths=[4, 1], names=None)


def test_a_rank_above_what_the_clusters_need_is_refused():
    text = refusal(Parafac2(), 5, n_clusters=2, widths=[9, 9, 9])
    assert text == "rank 5 for PARAFAC2 is above the components that 2 clusters in 3 views can need; at most 4."
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


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("energy", [0.5, 0.9, 0.99])
def test_a_fraction_of_energy_is_kept_and_a_larger_one_takes_no_smaller_rank(form, energy):
    centers = random_centers(np.random.default_rng(0), 5, (12, 10, 11))
    choice, more = choose_rank(form, energy, centers), choose_rank(form, 0.5 + energy / 2, centers)
    assert choice.energy >= energy
    assert more.n_core >= choice.n_core
    factors = form.initial(centers, rank=choice.rank)
    lost = weighted_error(form.reconstruct(factors), centers) / sum(float(np.sum(a**2)) for a in centers)
    assert 1 - lost >= energy


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_auto_finds_the_rank_of_low_rank_centres(form):
    generator = np.random.default_rng(3)
    p, views, loadings = (generator.standard_normal((size, 2)) for size in (20, 3, 80))
    centers = [(p * row) @ loadings[:width].T for row, width in zip(views, (80, 60, 70), strict=True)]
    choice = choose_rank(form, "auto", centers)
    full = sum(center.size for center in centers)
    assert choice.rank[0] == 3  # and one more, because centres move
    assert choice.energy > 0.9
    assert choice.n_core < full / 20


def test_an_energy_out_of_reach_takes_the_largest_rank_and_says_what_it_keeps():
    choice = choose_rank(Parafac2(), 0.999, random_centers(np.random.default_rng(0), 8, (2, 30)))
    assert choice.rank == (2,)
    assert 0 < choice.energy < 0.999


def test_centres_without_energy_have_rank_one():
    zero = [np.zeros((4, 5)), np.zeros((4, 6))]
    for form in FORMS:
        assert set(choose_rank(form, 0.9, zero).rank) == {1}


@pytest.mark.parametrize("rank", ["automatic", 1.5, 0.0, -0.1])
def test_other_ranks_are_refused(rank):
    with pytest.raises(ValueError, match="rank"):
        choose_rank(Tucker(), rank, [np.ones((3, 3))])


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
        Tucker().initial(targets, weights, rank=1)
