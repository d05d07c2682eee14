"""A site's own model: what it takes from its own rows, and what not."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk import HeatKernelMVC, datasets
from fedhk.data.views import check_views
from fedhk.model.calibration import Calibration, calibrated, site_frame
from fedhk.model.one_pass import Passes
from fedhk.model.personal import LEAST_ROWS, Wanted, personalise
from fedhk.model.preparation import site_moments
from fedhk.model.rows import Rows


@pytest.fixture(scope="module")
def model():
    data = datasets.make_sites(1, 600, n_clusters=3, n_features=(6, 4), shift=0, scale=0, random_state=0)
    return HeatKernelMVC(3, random_state=0).fit(data.views)._model


def site(seed, n=200, shift=0.0):
    """Rows of the same clusters, all moved by `shift` in every feature."""
    data = datasets.make_sites(1, 600, n_clusters=3, n_features=(6, 4), shift=0, scale=0, random_state=0)
    rows = np.random.default_rng(seed).choice(600, n, replace=False)
    noise = np.random.default_rng(seed).normal(scale=0.5, size=(n, 10))
    return [view[rows] + part + shift for view, part in zip(data.views, np.split(noise, [6], axis=1), strict=True)]


def own(model, views, learn_weights=False, **wanted):
    rows = Rows(check_views(views, min_rows=0), model.references)
    return personalise(rows, model.parameters, Wanted(**wanted), learn_weights=learn_weights), rows


def test_a_site_like_the_others_takes_next_to_nothing(model):
    found = [own(model, site(seed))[0] for seed in range(8)]
    assert np.mean([p.shift for p in found]) <= 0.1
    assert np.mean([p.centers for p in found]) <= 0.1


def test_a_site_that_is_moved_takes_the_offset_and_the_more_the_further(model):
    shifts = (0.0, 0.2, 0.5, 1.0)
    shares = [np.mean([own(model, site(seed, shift=shift))[0].shift for seed in range(6)]) for shift in shifts]
    assert shares == sorted(shares)
    assert shares[-1] > 0.7


def test_what_is_taken_lowers_the_objective_of_rows_that_were_not_seen(model):
    found, _ = own(model, site(1, shift=0.8))
    unseen = Rows(check_views(site(2, shift=0.8)), model.references)
    with Passes(unseen, 3, 1) as scan:
        assert scan.statistics(found.parameters).objective < 0.9 * scan.statistics(model.parameters).objective


@pytest.mark.parametrize("n", [0, 1, 2, LEAST_ROWS - 1])
def test_a_site_too_small_to_hold_out_rows_has_the_global_model(model, n):
    found, _ = own(model, site(0, n, shift=3.0))
    assert (found.shift, found.centers) == (0.0, 0.0)
    for mine, common in zip(found.parameters.centers, model.parameters.centers, strict=True):
        assert_array_equal(mine, common)


def test_fixed_shares_are_taken(model):
    views = site(1, shift=0.5)
    nothing, _ = own(model, views, shift=0.0, centers=0.0)
    for mine, common in zip(nothing.parameters.centers, model.parameters.centers, strict=True):
        assert_array_equal(mine, common)
    everything, rows = own(model, views, shift=0.0, centers=1.0)
    with Passes(rows, 3, 1) as scan:
        statistics = scan.statistics(everything.parameters)
    for mine, n, w in zip(everything.parameters.centers, statistics.numerators, statistics.weights, strict=True):
        assert_allclose(mine, n / w, atol=0.02)  # the fixed point of the site's own centres, up to the last passes


def test_a_pull_of_few_rows_leaves_the_site_its_own_and_one_of_many_the_global_centres(model):
    views = site(1, shift=0.5)
    near, _ = own(model, views, shift=0.0, center_pull=1e-6)
    far, _ = own(model, views, shift=0.0, center_pull=1e9)
    assert near.centers > 0.999
    assert far.centers < 1e-6


def test_view_weights_are_personal_only_where_they_are_learned(model):
    views = site(1, shift=0.5)
    assert own(model, views)[0].view_weights == 0.0
    noisy = [views[0], np.random.default_rng(0).normal(size=views[1].shape)]
    found, _ = own(model, noisy, learn_weights=True, view_weights=1.0)
    assert found.view_weights == 1.0
    assert found.parameters.view_weights[1] > model.parameters.view_weights[1]  # it costs less where it varies less
    assert found.parameters.view_weights.sum() == pytest.approx(1.0)


def test_a_view_that_the_site_lacks_keeps_its_centres(model):
    views = replace(check_views([site(1, shift=1.0)[0], site(1)[1]]), tables=(site(1, shift=1.0)[0], None))
    found = personalise(Rows(views, model.references), model.parameters, Wanted(), learn_weights=True)
    assert_allclose(found.parameters.centers[1], model.parameters.centers[1], atol=1e-12)
    assert found.shift > 0.5


class TestCalibration:
    def references(self, model, views, calibration):
        moments = site_moments(check_views(views), list(model.widths), "standard", None)
        frame = site_frame(moments, model.references)
        return calibrated(model.references, frame, len(views[0]), calibration)

    def test_none_changes_nothing(self, model):
        same = self.references(model, site(1, shift=2.0), Calibration(0.0, 0.0, (1.0, 1.0), False))
        for one, other in zip(same, model.references, strict=True):
            assert_array_equal(one.shift, other.shift)
            assert_allclose(one.scale, other.scale)

    def test_all_of_it_brings_moved_and_stretched_rows_to_one_frame(self, model):
        plain = site(1)
        moved = [3.0 * view + 7.0 for view in plain]
        whole = Calibration(1.0, 1.0, (1.0, 1.0), True)
        for view, (one, other) in enumerate(
            zip(self.references(model, plain, whole), self.references(model, moved, whole), strict=True)
        ):
            assert_allclose(one.to_model(plain[view]), other.to_model(moved[view]), atol=0.12)

    def test_survives_a_message(self):
        calibration = Calibration(1.0, 0.5, (0.9, 1.1), True)
        assert Calibration.from_list(calibration.to_list()) == calibration
