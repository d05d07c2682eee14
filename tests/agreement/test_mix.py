"""Class mix: offsets that follow from the clusters of sites are told from those of sites that measure differently."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedhk
from fedhk.agreement.mix import MixSums, find_axes, share_of_mix

C = 3


def make_rows(seed=0, *, mixed=True, shift=0.0, n=1500, n_sites=6):
    """Two views with the same clusters, sites that have other shares of them or other offsets in each view."""
    rng = np.random.default_rng(seed)
    site = rng.integers(n_sites, size=n)
    shares = rng.dirichlet(np.full(C, 0.7), n_sites) if mixed else np.full((n_sites, C), 1 / C)
    labels = np.array([rng.choice(C, p=shares[one]) for one in site])
    views = []
    for width in (5, 7):
        offsets = shift * rng.normal(size=(n_sites, width))
        view = 2 * rng.normal(size=(C, width))[labels] + rng.normal(size=(n, width)) + offsets[site]
        views.append(view - view.mean(axis=0))
    return views, labels, site


def sums_of(views, labels, site):
    """The sums of all sites, for both views."""
    found = []
    for points in views:
        axes = find_axes(np.array([points[labels == k].mean(axis=0) for k in range(C)]))
        parts = [MixSums.of(points[site == s], labels[site == s], axes, C).as_vector() for s in np.unique(site)]
        found.append(MixSums.read(np.sum(parts, axis=0), C, len(axes)))
    return found


def test_offsets_that_follow_from_clusters_are_explained_by_them():
    assert share_of_mix(sums_of(*make_rows())) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_offsets_of_sites_that_measure_differently_are_not(seed):
    assert share_of_mix(sums_of(*make_rows(seed, mixed=False, shift=1.0))) < 0.15


def test_of_both_kinds_of_offsets_the_share_of_one_is_found():
    shares = [share_of_mix(sums_of(*make_rows(1, shift=shift))) for shift in (0.0, 0.5, 1.0, 3.0)]
    assert np.all(np.diff(shares) < 0)
    assert shares[-1] < 0.3


def test_sums_go_through_a_vector_of_the_stated_size():
    views, labels, _ = make_rows()
    axes = find_axes(views[0][:C])
    sums = MixSums.of(views[0], labels, axes, C)
    vector = sums.as_vector()
    assert vector.shape == (MixSums.size(C, len(axes)),)
    again = MixSums.read(vector, C, len(axes))
    for name, value in vars(sums).items():
        assert_allclose(getattr(again, name), value)


def test_nothing_is_said_of_sites_that_do_not_differ_or_of_none():
    views, labels, _ = make_rows(mixed=False)
    assert share_of_mix([]) == 0.0
    assert share_of_mix(sums_of(views, labels, np.zeros(len(labels), int))) == 0.0
    nothing = MixSums.read(np.zeros(MixSums.size(C, 2)), C, 2)
    assert share_of_mix([nothing]) == 0.0


def test_sites_that_differ_by_their_clusters_are_not_calibrated_and_it_is_said():
    views, _, site = make_rows()
    sites = {f"site-{s}": [view[site == s] for view in views] for s in np.unique(site)}
    model = fedhk.FedHKDiffusion(C, random_state=0).fit(sites)
    assert model.calibration_ is None
    none = next(choice for choice in model.choices_ if choice["choice"] == "frame")
    assert none["option"] == "none"
    assert none["taken"]
    assert int(none["note"].split("%")[0]) > 80
