"""Ranks that are chosen by a fraction of energy, or by bytes and loss."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.tensors import Parafac2, Tucker, choose_rank, weighted_error
from fedhk.testing.decompositions import random_centers
from tensors.forms import FORMS


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("energy", [0.5, 0.9, 0.99])
def test_a_fraction_of_energy_is_kept_and_a_larger_one_takes_no_smaller_rank(form, energy):
    centers = random_centers(np.random.default_rng(0), 5, (12, 10, 11))
    choice, more = choose_rank(form, energy, centers), choose_rank(form, 0.5 + energy / 2, centers)
    assert choice.energy >= energy
    assert more.n_core >= choice.n_core
    factors = form.fit(centers, rank=choice.rank)
    lost = weighted_error(factors.centers(), centers) / sum(float(np.sum(a**2)) for a in centers)
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
