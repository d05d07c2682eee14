"""Ranks that are chosen by a fraction of energy, or by what predicts held-out statistics."""

from __future__ import annotations

import numpy as np
import pytest

from fedhk.tensors import Parafac2, Tucker, choose_rank, find_helpful_rank, weighted_error
from fedhk.tensors.problem import WeightedCenters
from fedhk.tensors.ranks import full_rank
from fedhk.testing.decompositions import random_centers
from tensors.forms import FORMS


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("energy", [0.5, 0.9, 0.99])
def test_a_fraction_of_energy_is_kept_and_a_larger_one_takes_no_smaller_rank(form, energy):
    centers = random_centers(np.random.default_rng(0), 5, (12, 10, 11))
    choice, more = choose_rank(form, energy, centers), choose_rank(form, 0.5 + energy / 2, centers)
    assert choice.energy >= energy
    assert np.prod(more.rank) >= np.prod(choice.rank)
    factors = form.fit(centers, rank=choice.rank)
    lost = weighted_error(factors.centers(), centers) / sum(float(np.sum(a**2)) for a in centers)
    assert 1 - lost >= energy


def test_an_energy_out_of_reach_takes_the_largest_rank_and_says_what_it_keeps():
    centers = random_centers(np.random.default_rng(0), 8, (20, 20, 20))
    choice = choose_rank(Parafac2(), 1 - 1e-15, [*centers[:2], centers[2] + 1e-3])
    assert choice.rank == (16,)


def test_centres_without_energy_have_rank_one():
    zero = [np.zeros((4, 5)), np.zeros((4, 6))]
    for form in FORMS:
        assert set(choose_rank(form, 0.9, zero).rank) == {1}


@pytest.mark.parametrize("rank", [1.5, 0.0, -0.1])
def test_other_ranks_are_refused(rank):
    with pytest.raises(ValueError, match="rank"):
        choose_rank(Tucker(), rank, [np.ones((3, 3))])


def noisy_halves(seed, *, cluster_rank, noise, n_clusters=30, widths=(40, 30, 35)):
    """Centres of some rank as two halves of the rows find them, and the centres."""
    generator = np.random.default_rng(seed)
    shared = generator.standard_normal((n_clusters, cluster_rank)) / np.sqrt(cluster_rank)
    centers = [shared @ generator.standard_normal((cluster_rank, width)) for width in widths]
    halves = []
    for _ in range(2):
        weights = [generator.uniform(0.5, 1.5, (n_clusters, 1)) for _ in widths]
        seen = [a + noise * generator.standard_normal(a.shape) / w**0.5 for a, w in zip(centers, weights, strict=True)]
        halves.append(WeightedCenters.of(seen, weights))
    return halves, centers


SHARING = [form for form in FORMS if form.name != "CP"]  # in CP features are the same in all views


@pytest.mark.parametrize("form", SHARING, ids=lambda form: form.name)
@pytest.mark.parametrize("seed", range(3))
class TestHeldOutStatistics:
    def errors(self, form, halves, centers):
        """The rank that is found, and how far the centres of all rows are from the true ones with it and without."""
        rank = find_helpful_rank(form, *halves)
        first, second = halves
        pooled = [
            (w * first.scale * one + v * second.scale * other) / (w * first.scale + v * second.scale)
            for one, other, w, v in zip(first.targets, second.targets, first.weights, second.weights, strict=True)
        ]
        return rank, weighted_error(form.fit(pooled, rank=rank).centers(), centers), weighted_error(pooled, centers)

    def test_the_rank_of_noisy_low_rank_centres_is_found_and_brings_them_nearer_to_the_true_ones(self, form, seed):
        rank, low, free = self.errors(form, *noisy_halves(seed, cluster_rank=4, noise=1.0))
        assert 4 <= rank[0] <= 6  # one for the mean
        assert low < 0.5 * free

    def test_a_rank_that_binds_brings_centres_nearer_to_the_true_ones_whatever_these_share(self, form, seed):
        for cluster_rank in (2, 10, 30):
            for noise in (0.3, 1.0, 2.0):
                rank, low, free = self.errors(form, *noisy_halves(seed, cluster_rank=cluster_rank, noise=noise))
                assert form.is_full(rank, 30, (40, 30, 35)) or low < free

    def test_centres_that_share_nothing_are_left_free_where_noise_is_small(self, form, seed):
        for noise in (1e-3, 0.1, 0.3):
            halves, _ = noisy_halves(seed, cluster_rank=30, noise=noise)
            assert form.is_full(find_helpful_rank(form, *halves), 30, (40, 30, 35))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_few_clusters_and_halves_without_rows_are_left_free(form):
    for n_clusters in (1, 2, 3):
        halves, _ = noisy_halves(0, cluster_rank=1, noise=1.0, n_clusters=n_clusters, widths=(4, 3))
        empty = WeightedCenters.of(halves[0].targets, [np.zeros((n_clusters, 1))] * 2)
        for pair in (halves, (halves[0], empty), (empty, empty)):
            assert find_helpful_rank(form, *pair) == full_rank(form, n_clusters, (4, 3))
