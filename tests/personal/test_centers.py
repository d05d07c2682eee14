"""Centres of a site's own: given shares and pulls."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.personal.centers import Centers, keep_meaning
from fedhk.testing.components import ComponentChecks
from personal_sites import moved_site, own_of, scan


class TestCenters(ComponentChecks):
    def component(self, _common, _summary):
        return Centers()


def test_given_shares_are_taken(model):
    views = moved_site(1, shift=0.5)
    nothing, _ = own_of(model, views, shift=0.0, centers=0.0)
    for mine, common in zip(nothing.parameters.centers, model.parameters.centers, strict=True):
        assert_array_equal(mine, common)
    assert nothing.center_distance == 0
    everything, rows = own_of(model, views, shift=0.0, centers=1.0)
    statistics = scan(rows, everything.parameters)
    for mine, n, w in zip(everything.parameters.centers, statistics.numerators, statistics.weights, strict=True):
        assert_allclose(mine, n / w, atol=0.02)  # the fixed point of the site's own centres, up to the last passes


def test_a_pull_of_few_rows_leaves_the_site_its_own_and_one_of_many_the_global_centres(model):
    views = moved_site(1, shift=0.5)
    near, _ = own_of(model, views, shift=0.0, center_pull=1e-6)
    far, _ = own_of(model, views, shift=0.0, center_pull=1e9)
    assert near.shares["centers"] > 0.999
    assert far.shares["centers"] < 1e-6
    assert near.center_distance > far.center_distance


def test_r_person_is_the_squared_way_of_the_centres_apart_from_the_offset(model):
    found, _ = own_of(model, moved_site(1, shift=0.5), shift=0.0, centers=0.6)
    pairs = zip(found.parameters.centers, model.parameters.centers, strict=True)
    way = sum(float(np.sum((a - b) ** 2)) for a, b in pairs)
    common = model.parameters
    assert found.center_distance == pytest.approx(common.heat_time * common.view_factors.max() * way)


def test_a_centre_that_would_become_another_cluster_stays():
    centers, step = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 0.1]]), np.array([[3.9, 0.0], [-0.2, 0.0], [0.0, -0.09]])
    assert_array_equal(keep_meaning(centers, step), step * [[1.0], [0.0], [1.0]])
    assert_array_equal(keep_meaning(centers[:1], step[:1]), step[:1])
