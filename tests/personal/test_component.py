"""A site's own model: what it takes from its own rows, and what not."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.model.rows import Rows
from fedhk.personal.component import OwnModel, keep_clusters
from fedhk.personal.options import Personalization
from fedhk.personal.shares import LEAST_ROWS
from personal_sites import moved_site, own_model, own_of, scan


def test_a_site_like_the_others_takes_next_to_nothing(model):
    found = [own_of(model, moved_site(seed))[0].shares for seed in range(8)]
    assert np.mean([shares["shift"] for shares in found]) <= 0.1
    assert np.mean([shares["centers"] for shares in found]) <= 0.1


def test_what_is_taken_lowers_the_objective_of_rows_that_were_not_seen(model):
    found, _ = own_of(model, moved_site(1, shift=0.8))
    unseen = Rows(check_views(moved_site(2, shift=0.8)), model.references)
    assert scan(unseen, found.parameters).objective < 0.9 * scan(unseen, model.parameters).objective


@pytest.mark.parametrize("n", [0, 1, 2, LEAST_ROWS - 1])
def test_a_site_too_small_to_hold_out_rows_has_the_global_model(model, n):
    found, _ = own_of(model, moved_site(0, n, shift=3.0))
    assert (found.shares["shift"], found.shares["centers"]) == (0.0, 0.0)
    for mine, common in zip(found.parameters.centers, model.parameters.centers, strict=True):
        assert_array_equal(mine, common)


def test_a_view_that_the_site_lacks_keeps_its_centres(model):
    views = replace(check_views(moved_site(1)), tables=(moved_site(1, shift=1.0)[0], None))
    found = own_model(Rows(views, model.references), model.parameters, learn_weights=True)
    assert_allclose(found.parameters.centers[1], model.parameters.centers[1], atol=1e-12)
    assert found.shares["shift"] > 0.5


def test_the_order_of_the_rows_of_a_site_hardly_matters(model):
    views = moved_site(1, shift=0.8)
    order = np.random.default_rng(0).permutation(len(views[0]))
    one, other = own_of(model, views)[0], own_of(model, [view[order] for view in views])[0]
    assert one.shares["shift"] == pytest.approx(other.shares["shift"], abs=0.1)
    for a, b in zip(one.parameters.centers, other.parameters.centers, strict=True):
        assert_allclose(a, b, atol=0.1)


def test_an_own_model_whose_centres_lie_on_each_other_gives_way_to_the_global_one(model):
    start = OwnModel.start(Rows(check_views(moved_site(1, shift=0.8)), model.references), model.parameters)
    better = own_of(model, moved_site(1, shift=0.8))[0].parameters
    joined = replace(better, centers=tuple(0.05 * part + 0.95 * part.mean(axis=0) for part in better.centers))
    for parameters, stays in ((better, True), (joined, False)):
        own = replace(start, parameters=parameters)
        assert keep_clusters(start, own, 1).parameters is (parameters if stays else start.parameters)


def test_own_centres_that_were_asked_for_are_kept(model):
    """A large fuzzifier joins centres; with a share that is given, that is what was asked for."""
    fuzzy = replace(model, parameters=replace(model.parameters, fuzzifier=3.0))
    views = check_views(moved_site(1))
    found = [
        option.fit(fuzzy, (), (), views, site="rome", learn_weights=False).model.parameters.centers[0]
        for option in (Personalization(), Personalization(centers=1.0))
    ]
    apart = [float(np.ptp(centers, axis=0).max()) for centers in (model.parameters.centers[0], *found)]
    assert apart[2] < 0.5 * apart[0]
    assert apart[1] > 0.9 * apart[0]
