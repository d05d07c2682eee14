"""Frames by agreement of clusters: tables that add, adjusted mutual information, and the frame that follows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_mutual_info_score

import fedhk
from fedhk.agreement.frames import (
    FRAMES,
    Evidence,
    adjust,
    choose_frame,
    count_together,
    keep_complete,
    list_mixes,
    list_pairs,
    list_witnesses,
    share_information,
)
from fedhk.datasets import make_sites


def draw_labels(n_rows, n_clusters, seed):
    rng = np.random.default_rng(seed)
    first = rng.integers(n_clusters, size=n_rows)
    return first, np.where(rng.random(n_rows) < 0.4, first, rng.integers(n_clusters, size=n_rows))


# ------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(("n_rows", "n_clusters"), [(40, 3), (30, 25), (500, 6), (800, 60)])
def test_agreement_is_adjusted_mutual_information(n_rows, n_clusters):
    first, second = draw_labels(n_rows, n_clusters, seed=n_rows)
    found = adjust(*share_information(count_together(first, second, n_clusters)))
    assert_allclose(found, adjusted_mutual_info_score(first, second), atol=1e-9)


def test_tables_of_sites_add_up_to_the_table_of_all_rows():
    first, second = draw_labels(300, 5, seed=1)
    parts = [count_together(first[part], second[part], 5) for part in (slice(0, 40), slice(40, 45), slice(45, 300))]
    assert_allclose(sum(parts), count_together(first, second, 5), atol=1e-9)


@pytest.mark.parametrize("table", [np.zeros((3, 3)), np.diag([5.0, 0.0, 0.0]), np.array([[3.0, 4.0], [0.0, 0.0]])])
def test_a_partition_with_one_cluster_agrees_with_none(table):
    assert adjust(*share_information(table)) == 0.0


def test_clusters_that_are_sites_agree_about_nothing_within_sites():
    site = np.repeat(np.arange(4), 50)
    tables = [count_together(site[site == s], site[site == s], 4) for s in range(4)]
    assert adjust(*share_information(sum(tables))) == 1.0
    assert adjust(*np.sum([share_information(table) for table in tables], axis=0)) == 0.0


# ------------------------------------------------------------------------------------------------------------- choices


@pytest.mark.parametrize(("gain", "taken"), [(0.01, FRAMES[0]), (0.2, FRAMES[1])])
def test_the_frame_of_all_sites_is_kept_unless_another_gains(gain, taken):
    witnesses = list_witnesses(2)
    pairs = {pair: 0.4 + gain / 2 * (witnesses[pair[0]].frame == FRAMES[1]) for pair in list_pairs(witnesses)}
    alone = {i: 0.6 + gain / 2 * (w.frame == FRAMES[1]) for i, w in enumerate(witnesses) if w.alone}
    found, opinions = choose_frame(Evidence(witnesses, pairs, alone))
    assert found == taken
    assert [opinion.taken for opinion in opinions] == [frame == taken for frame in FRAMES]


@pytest.mark.parametrize(("mix", "taken"), [(0.45, FRAMES[1]), (0.55, FRAMES[0])])
def test_no_frame_is_taken_where_sites_differ_by_their_clusters(mix, taken):
    witnesses = list_witnesses(2)
    alone = {i: 0.9 * (w.frame == FRAMES[1]) for i, w in enumerate(witnesses) if w.alone}
    found, opinions = choose_frame(Evidence(witnesses, dict.fromkeys(list_pairs(witnesses), 0.5), alone, mix))
    assert found == taken
    assert [opinion.note[:3] for opinion in opinions] == [f"{mix:.0%}", ""]


def test_each_view_or_half_is_explained_once_and_by_another():
    for n_views in (1, 2, 4):
        witnesses = list_witnesses(n_views)
        pairs = list_mixes(witnesses)
        assert len(pairs) == max(n_views, 2)
        assert sorted(i for i, _ in pairs) == sorted(j for _, j in pairs)
        assert all(witnesses[i].part != witnesses[j].part for i, j in pairs)
        assert all(witnesses[i].frame == FRAMES[0] and not witnesses[i].alone for i, _ in pairs)


def test_frames_are_compared_with_themselves_alone():
    witnesses = list_witnesses(3)
    for i, j in list_pairs(witnesses):
        assert witnesses[i].frame == witnesses[j].frame
        assert not witnesses[i].alone
        assert not witnesses[j].alone


def test_halves_of_a_single_view_are_compared():
    witnesses = list_witnesses(1)
    assert [(witnesses[i].half, witnesses[j].half) for i, j in list_pairs(witnesses)] == [(0, 1), (0, 1)]


def test_a_part_that_could_not_be_clustered_in_one_frame_is_compared_in_none():
    witnesses = list_witnesses(3)
    kept = keep_complete([witness for witness in witnesses if witness != witnesses[1]])
    assert {witness.views for witness in kept} == {(0,), (2,), (0, 1, 2)}


# -------------------------------------------------------------------------------------------------------------- frames


def frame_of(model):
    return next(choice["option"] for choice in model.choices_ if choice["choice"] == "frame" and choice["taken"])


@pytest.mark.parametrize("n_views", [1, 2])
def test_sites_that_measure_differently_are_calibrated(n_views):
    data = make_sites(6, 60, n_clusters=3, shift=2.0, random_state=0)
    sites = {name: views[:n_views] for name, views in data.sites.items()}
    for estimator in (fedhk.FedHKPerson, fedhk.FedHKDiffusion):
        model = estimator(3, n_init=3, random_state=0).fit(sites)
        assert model.calibration_["shift"] == 1.0
        assert frame_of(model) != "none"
        compared = [choice["option"] for choice in model.choices_ if choice["choice"] == "frame"]
        refined = ["mean and spread given clusters"] * (estimator is fedhk.FedHKDiffusion)
        assert compared == ["none", "mean 1, spread 0.5", *refined]


def test_random_parts_of_one_set_are_not_even_compared():
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(200, width)) + 3 * rng.integers(2, size=(200, 1)) for width in (4, 60)]
    for seed in range(5):
        part = np.random.default_rng(seed).integers(5, size=200)
        sites = {str(site): [view[part == site] for view in views] for site in range(5)}
        model = fedhk.FedHKPerson(2, n_init=2, max_rounds=3, tol=0, random_state=0).fit(sites)
        assert frame_of(model) == "none"
        assert "do not differ" in model.choices_[-1]["note"]


def test_sites_that_differ_by_their_mix_of_clusters_are_not_calibrated():
    data = make_sites(6, 100, n_clusters=3, class_mix=0.5, shift=0.0, scale=0.0, random_state=0)
    model = fedhk.FedHKPerson(3, n_init=3, random_state=0).fit(data.sites)
    assert frame_of(model) == "none"
    assert all(choice["with_sites"] is not None for choice in model.choices_ if choice["choice"] == "frame")


def test_what_sites_are_asked_does_not_depend_on_the_seed():
    data = make_sites(4, 40, n_clusters=3, shift=1.0, random_state=0)
    first, second = (fedhk.FedHKPerson(3, n_init=2, random_state=seed).fit(data.sites) for seed in (0, 1))
    assert first.choices_ == second.choices_
