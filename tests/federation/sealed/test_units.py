"""Privacy of whole sites: lengths are found, sums are cut to them, and few sites are refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from attacked_site import SCALES, Target
from fedhk import EFKMVC
from fedhk.datasets import make_sites
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.gate import SEALED
from fedhk.federation.phases.scales import Means, MeansRequest
from fedhk.federation.phases.sum_start import Cells, CellsRequest
from fedhk.federation.remote.policy import Policy
from fedhk.federation.sealed import Noise, SealedGuard, SealedTerms
from fedhk.federation.sealed.guard import SUMS_ONLY, sum_named
from fedhk.federation.sealed.units import BINS, LENGTHS, UNITS, LengthOfSum, SumLengths
from fedhk.privacy import DifferentialPrivacy
from fedhk.starts.cells import Landmarks

BUDGET = DifferentialPrivacy(1.0, 1e-5, (-1, 1), unit="site")


class GivenMeans(Means):
    """Means of rows that are cut to length 1, of three features."""

    name = "means"

    def request(self, board):
        return MeansRequest(1.0)

    def size(self, board):
        return 4


def find_length(counts, noise=0.0):
    total = np.zeros(BINS)
    for length, count in counts.items():
        total[np.searchsorted(LENGTHS, length)] += count
    return LengthOfSum(GivenMeans()).take(Board(), total, noise).get(SumLengths).lengths["means"]


def test_half_of_the_sites_are_left_whole_to_half_a_power():
    unit = np.sqrt(2 + 3 / 16)  # what one row of length 1 adds at most, with its count and length
    assert find_length({5.0: 90, 900.0: 10}) == pytest.approx(2 ** (2.0 + 0.5 * 50 / 90) * unit)
    assert find_length({5.0: 40, 30.0: 60}) == pytest.approx(2 ** (4.5 + 0.5 * 10 / 60) * unit)
    assert find_length({5.0: 3, 30.0: 2}, noise=4.0) == pytest.approx(unit)  # noise alone: a site says as much as a row


def test_a_vector_is_cut_and_not_turned():
    unit, vector = UNITS["site"], np.array([3.0, -4.0])
    np.testing.assert_array_equal(unit.cut(vector, 6.0), vector)
    np.testing.assert_allclose(unit.cut(vector, 1.0), [0.6, -0.8])
    assert unit.sensitivity(GivenMeans(), MeansRequest(1.0), 4, 2.0, "add-remove") == 2.0
    assert unit.sensitivity(GivenMeans(), MeansRequest(1.0), 4, 2.0, "replace") == pytest.approx(2 * np.sqrt(2))


def test_a_run_finds_a_length_before_each_kind_of_sum_and_spends_its_budget():
    data = make_sites(30, 30, n_clusters=3, shift=0, scale=0, class_mix=None, separation=8.0, random_state=0)
    budget = DifferentialPrivacy(4000.0, 1e-5, (-20, 20), unit="site")  # noise is drawn anew in each run of this test
    model = EFKMVC(3, privacy=budget, random_state=0).fit(data.sites)
    phases = [release["phase"] for release in model.releases_["site-00"]]
    setup = ["means", "lengths", "spreads", "directions", "cells"]
    assert phases[:10] == [name for phase in setup for name in (f"length of {phase}", phase)]
    assert phases[10:] == ["length of noisy round", *["noisy round"] * 6]
    assert 3999.0 < model.privacy_spent_[0] <= 4000.0
    truth = np.concatenate(list(data.site_labels.values()))
    assert adjusted_rand_score(truth, np.concatenate([model.labels_[site] for site in data.site_labels])) > 0.9


def test_few_sites_are_refused_with_the_number_that_is_needed():
    sites = make_sites(5, 100, random_state=0).sites
    said = r"unit='site' with 5 sites at epsilon=1: noise in one number of a round is 5.4 of .* At least 270 sites are"
    with pytest.raises(ValueError, match=said):
        EFKMVC(3, privacy=BUDGET, secure=True).fit(sites)
    with pytest.raises(ValueError, match=r"At least 72614 sites are needed, or secure=True, with which"):
        EFKMVC(3, privacy=BUDGET).fit(sites)


def test_delta_is_held_against_the_number_of_sites():
    privacy = DifferentialPrivacy(1.0, 1e-3, (-1, 1), unit="site")
    with pytest.raises(ValueError, match=r"delta=0.001 must be below 1 over the number of sites .* use at most 5e-05"):
        UNITS["site"].check_sites(privacy, 2000, shares_noise=True)
    UNITS["row"].check_sites(privacy, 2, shares_noise=False)


def test_rows_alone_ask_for_no_lengths():
    for unit, count in (("row", 1), ("site", 2)):
        noise = Noise(DifferentialPrivacy(1.0, 1e-5, (-1, 1), unit=unit), 6)
        assert len(SealedTerms(noise).compose([GivenMeans()])) == count


def test_the_length_of_what_is_no_sum_is_refused():
    for ask in (sum_named, lambda name: SealedGuard().phase(SEALED + name)):
        with pytest.raises(MessageError, match=str(SUMS_ONLY)):
            ask("length of schema")


def test_a_remote_site_answers_with_a_length_under_its_policy(tmp_path):
    budget = DifferentialPrivacy(1.0, 1e-6, (-20, 20), rounds=4, unit="site")
    target = Target(tmp_path, np.zeros((9, 2)), Policy(epsilon=1.0, delta=1e-6))
    landmarks = CellsRequest(Landmarks(np.eye(2), np.array([[0.0, 0.0], [5.0, 5.0]])))
    sent = target.ask(LengthOfSum(Cells), landmarks, *SCALES, privacy=budget.describe(), bound=1.0)
    assert sent.shape == (BINS,)
    assert target.releases[0].phase == "length of cells"
    refused = target.ask(Cells, landmarks, privacy=budget.describe(), number=1)  # without a length
    assert "a row can change without bound" in refused
    assert len(target.releases) == 1
