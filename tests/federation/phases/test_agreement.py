"""The frame of all sites under masks is chosen as in the open, from sums."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from embedded_runs import describe, make_views, site_with, take_views
from fedhk import FedHKDiffusion, FedHKPerson
from fedhk.agreement.frames import list_witnesses
from fedhk.datasets import make_sites
from fedhk.federation.entries import References
from fedhk.federation.phases import agreement
from fedhk.federation.phases.describe import LEVEL, Variation, compare_means
from fedhk.federation.table import Table
from fedhk.privacy import DifferentialPrivacy


def shifted_sites(shift, seed=0, **options):
    return make_sites(
        6, 80, n_clusters=3, n_features=(6, 8), shift=shift, scale=0.2 if shift else 0.0, random_state=seed, **options
    )


def score(model, data):
    truth, found = (
        np.concatenate([labels[site] for site in data.sites]) for labels in (data.site_labels, model.labels_)
    )
    return adjusted_rand_score(truth, found)


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_masks_choose_the_frame_of_the_plain_run(shift):
    data = shifted_sites(shift)
    plain, masked = (FedHKPerson(3, secure=secure, random_state=0).fit(data.sites) for secure in (False, True))
    assert masked.calibration_["shift"] == plain.calibration_["shift"] == float(shift > 0)
    assert masked.calibration_["factors"] == pytest.approx(plain.calibration_["factors"], rel=1e-6)
    assert score(masked, data) == pytest.approx(score(plain, data), abs=0.01)
    without = FedHKPerson(3, secure=True, calibration=None, random_state=0).fit(data.sites)
    assert score(masked, data) >= score(without, data) + (0.3 if shift else -0.01)


def test_evidence_for_frames_under_masks_is_near_that_in_the_open():
    data, gains = shifted_sites(0.6), []
    for secure in (False, True):
        choices = FedHKPerson(3, secure=secure, random_state=0, max_rounds=1, tol=0).fit(data.sites).choices_
        without, with_frame = [c["between_views"] + c["with_sites"] for c in choices if c["choice"] == "frame"][:2]
        gains.append(with_frame - without)
    assert gains[1] == pytest.approx(gains[0], abs=0.1)


def test_sites_that_do_not_differ_are_not_asked_for_partitions(monkeypatch):
    data = shifted_sites(0.0, class_mix=None)
    monkeypatch.setattr(agreement.SumPartitions, "vector", None)
    FedHKPerson(3, secure=True, random_state=0).fit(data.sites)


def test_sums_tell_what_moments_of_sites_tell_about_their_means(monkeypatch):
    found = []
    monkeypatch.setattr(agreement, "compare_means", lambda views: found.append(views) or compare_means(views))
    data = shifted_sites(0.4)
    FedHKPerson(3, secure=True, scaling="standard", random_state=0, max_rounds=1, tol=0).fit(data.sites)
    for view, variation in enumerate(found[0]):
        parts = [views[view] for views in data.sites.values()]
        spread = np.concatenate(parts).std(axis=0) * np.sqrt(parts[0].shape[1])
        between = sum(len(part) * np.square(part.mean(axis=0) - np.concatenate(parts).mean(axis=0)) for part in parts)
        within = sum(np.square(part - part.mean(axis=0)).sum(axis=0) for part in parts)
        assert variation.sites == len(parts)
        assert variation.rows == pytest.approx(sum(map(len, parts)))
        assert variation.between == pytest.approx(between / spread**2, rel=1e-5)
        assert variation.within == pytest.approx(within / spread**2, rel=1e-5)


def test_means_that_differ_by_chance_are_told_from_others():
    rows, sites = 400.0, 5.0
    one = np.ones(4)
    assert compare_means([Variation(sites, rows, one * (sites - 1), one * (rows - sites))]).chance > 0.4
    assert compare_means([Variation(sites, rows, one * 9 * (sites - 1), one * (rows - sites))]).chance < LEVEL


def test_a_calibration_that_is_given_goes_under_masks_with_missing_cells():
    data, rng = shifted_sites(2.0), np.random.default_rng(0)
    sites = {
        name: [np.where(rng.random(view.shape) < 0.1, np.nan, view) for view in views]
        for name, views in data.sites.items()
    }
    plain, masked = (
        FedHKPerson(3, secure=secure, calibration=(1.0, 0.5), scaling="standard", random_state=0).fit(sites)
        for secure in (False, True)
    )
    assert masked.calibration_["factors"] == pytest.approx(plain.calibration_["factors"], rel=1e-6)
    assert masked.objective_ == pytest.approx(plain.objective_, rel=0.01)
    assert score(masked, data) == pytest.approx(score(plain, data), abs=0.03)


def test_diffusion_has_the_frame_under_masks():
    data = shifted_sites(2.0)
    model = FedHKDiffusion(3, secure=True, random_state=0).fit(data.sites)
    assert model.calibration_["shift"] == 1.0
    assert score(model, data) > 0.8


def test_noise_still_refuses_a_calibration():
    budget = DifferentialPrivacy(50.0, 1e-5, bounds=(-20, 20))
    with pytest.raises(ValueError, match=r"calibration=\(1.0, 0.5\) does not go with privacy"):
        FedHKPerson(3, privacy=budget, calibration=(1.0, 0.5)).fit(shifted_sites(1.0).sites)


@pytest.mark.parametrize("missing", [False, True])
def test_sums_of_partitions_are_those_of_the_means_that_sites_send_in_the_open(missing):
    views, rng = make_views(missing=missing)[0], np.random.default_rng(0)
    board = describe({"all": views})
    widths = board.get(References).widths
    witnesses = list_witnesses(len(views))
    sizes = [sum(widths[view] for view in witness.views) for witness in witnesses]
    centers = tuple(Table.of(rng.normal(size=(4, size)) / np.sqrt(size), "single") for size in sizes)
    asked = agreement.PartitionsRequest(3, witnesses, ())
    request = agreement.AgreementRequest(3, witnesses, (), 1, centers)
    sites = [site_with(board, take_views(views, rows)) for rows in np.array_split(rng.permutation(240), [30, 90])]
    replies = [agreement.FindPartitions.answer(site, asked) for site in sites]
    sums = [agreement.SumPartitions.vector(site, request) for site in sites]
    start = 0
    for place, table in enumerate(centers):
        shape = len(table.values), table.values.shape[1] + 2
        parts = [own[start : start + shape[0] * shape[1]].reshape(shape) for own in sums]
        start += shape[0] * shape[1]
        for part, reply in zip(parts, replies, strict=True):
            means, rows = reply.means[place].read(), reply.sizes[place]
            nearest = np.argmin(np.square(means[:, None] - table.read()[None]).sum(axis=2), axis=1)
            wanted = np.zeros(shape)
            np.add.at(
                wanted, nearest, np.column_stack([means, np.ones(len(means)), (means**2).sum(axis=1)]) * rows[:, None]
            )
            np.testing.assert_allclose(part, wanted, atol=0.02 * rows.sum())  # means travel in bytes
            np.testing.assert_allclose(part[:, -2], wanted[:, -2])
            counts = part[:, -2]
            assert np.all((counts == 0) | (counts >= sites[0].least_group))  # as in the open
    assert start == len(sums[0])


def test_clusters_are_split_where_their_rows_lie_far_apart():
    table = np.array([[4.0, 0.0, 4.0, 4.1], [0.0, 8.0, 4.0, 32.0], [0.0, 0.0, 0.0, 0.0]])
    centers = agreement._split_clusters(table, 3, np.random.RandomState(0))
    np.testing.assert_allclose(centers[:2], [[1.0, 0.0], [0.0, 2.0]])
    assert 0 < np.linalg.norm(centers[2] - centers[1]) < np.linalg.norm(centers[2] - centers[0])
