"""The first rounds with noise have more centres than clusters where noise leaves room for it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from fedhk import EFKMVC, FedHKDiffusion
from fedhk.datasets import make_sites
from fedhk.federation.board import Board
from fedhk.federation.entries import References
from fedhk.federation.phases.noisy_groups import GROUP_ROUNDS, GROUPS_PER_CLUSTER, find_candidates
from fedhk.federation.phases.sum_start import SumCandidates
from fedhk.privacy import DifferentialPrivacy
from fedhk.starts.candidates import Candidates
from sealed_runs import plain_reference, read_request, seeded_noise, spied_fit

N_CLUSTERS = 4


def make_shifted_sites():
    """Sites that measure differently, which takes as many directions as clusters do; one lacks a view."""
    data = make_sites(5, 900, N_CLUSTERS, (6, 5), shift=0.7, class_mix=1.5, separation=6.0, random_state=3)
    data.sites["site-01"][1] = None
    return data


def spied_centers(monkeypatch, model, sites, name="site-00"):
    """How many centres each round had, of a fit with noise of its own."""
    seeded_noise(monkeypatch)
    _, spy = spied_fit(monkeypatch, model, sites)
    asked = [message for site, message in spy.requests if site == name and message.kind == "sealed.noisy round"]
    return [len(request.model.centers.values) for _, request in map(read_request, asked) if request is not None]


def budget(epsilon, **changes):
    return DifferentialPrivacy(epsilon, 1e-6, (-15, 15), **changes)


def test_where_noise_is_small_the_first_rounds_have_several_centres_for_each_cluster(monkeypatch):
    model = EFKMVC(N_CLUSTERS, privacy=budget(20.0), random_state=0)
    counts = spied_centers(monkeypatch, model, make_shifted_sites().sites)
    assert counts == [GROUPS_PER_CLUSTER * N_CLUSTERS] * GROUP_ROUNDS + [N_CLUSTERS] * (6 - GROUP_ROUNDS)
    assert model.n_iter_ == len(model.history_) == 6
    assert model.cluster_centers_[0].shape == (N_CLUSTERS, 6)


def test_they_are_paid_for_as_the_rounds_that_they_are(monkeypatch):
    model = EFKMVC(N_CLUSTERS, privacy=budget(20.0), random_state=0)
    spied_centers(monkeypatch, model, make_shifted_sites().sites)
    released = [release["phase"] for release in model.releases_["site-00"]]
    assert released == ["means", "lengths", "spreads", "directions", "cells", *["noisy round"] * 6]
    assert 0.999 * 20 < model.privacy_spent_[0] <= 20


@pytest.mark.filterwarnings("ignore:With epsilon")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("given", [budget(0.3), budget(20.0, rounds=2 * GROUP_ROUNDS - 1)], ids=["noise", "few rounds"])
def test_where_noise_is_large_or_rounds_are_few_all_have_as_many_centres_as_clusters(monkeypatch, given):
    counts = spied_centers(monkeypatch, EFKMVC(N_CLUSTERS, privacy=given, random_state=0), make_shifted_sites().sites)
    assert counts == [N_CLUSTERS] * given.rounds


def test_where_points_show_all_features_all_rounds_have_as_many_centres_as_clusters(monkeypatch):
    sites = {site: [views[0][:, :3]] for site, views in make_shifted_sites().sites.items()}
    assert spied_centers(monkeypatch, EFKMVC(3, privacy=budget(20.0), random_state=0), sites) == [3] * 6


def test_parts_of_a_diffusion_are_as_many_in_all_rounds(monkeypatch):
    sites = make_shifted_sites().sites
    counts = spied_centers(monkeypatch, FedHKDiffusion(N_CLUSTERS, privacy=budget(60.0), random_state=0), sites)
    assert len(set(counts)) == 1


def test_an_interrupted_run_goes_on_to_the_same_model(monkeypatch, tmp_path):
    sites, options = make_shifted_sites().sites, {"privacy": budget(20.0, ledger=tmp_path / "a"), "random_state": 0}
    seeded_noise(monkeypatch)
    whole = EFKMVC(N_CLUSTERS, **options).fit(sites)
    options |= {"privacy": budget(20.0, ledger=tmp_path / "b"), "checkpoint": tmp_path / "run"}
    seeded_noise(monkeypatch)
    asked = [0]

    def stop(site, request):
        asked[0] += site == "site-00" and request.kind == "sealed.noisy round"
        if asked[0] == GROUP_ROUNDS:  # before the second round
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        spied_fit(monkeypatch, EFKMVC(N_CLUSTERS, **options), sites, down=stop)
    resumed = EFKMVC(N_CLUSTERS, **options).fit(sites, resume=True)
    for one, other in zip(resumed.cluster_centers_, whole.cluster_centers_, strict=True):
        assert_allclose(one, other)


def test_clusters_are_found_where_sites_measure_differently(monkeypatch):
    seeded_noise(monkeypatch)
    data, found = make_shifted_sites(), []
    truth = np.concatenate(list(data.site_labels.values()))
    for privacy in (None, *[budget(2.0)] * 5):
        model = EFKMVC(N_CLUSTERS, scaling="standard", privacy=privacy, secure=privacy is not None, random_state=0)
        labels = model.fit(data.sites).labels_
        found.append(adjusted_rand_score(truth, np.concatenate([labels[site] for site in data.site_labels])))
    assert min(found[1:]) > found[0] - 0.03


def test_means_of_groups_have_their_rows_around_them():
    cells = Candidates(np.array([[3.0, 0, 0], [-3, 0, 0]]), np.array([1.0, 3]), np.full((2, 2), 0.5))
    references = References((plain_reference(2), plain_reference(1)))
    board = Board().put(references, SumCandidates(cells))
    found = find_candidates(board, np.array([[2.0, 1, 1], [0, 0, 1]]), np.array([2.0, 2]))
    assert_allclose(found.points, [[2, 1, 1], [0, 0, 1]])
    assert found.sizes.tolist() == [2, 2]
    assert_allclose(found.spreads, [[9.5 - 2.5, 0]] * 2)  # more than there is cannot be explained
