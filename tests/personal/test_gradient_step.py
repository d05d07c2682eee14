"""One step along a site's own descent."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.model.descent import improve
from fedhk.model.rows import Rows
from fedhk.personal.gradient_step import take_gradient_step
from fedhk.tensors.low_rank import LowRankForm, LowRankParameters
from personal_sites import moved_site, scan


def rows_of(model, n=200):
    return Rows(check_views(moved_site(1, n, shift=0.8), min_rows=0), model.references)


def test_0_is_the_global_model_and_1_the_full_update(model):
    rows = rows_of(model)
    assert take_gradient_step(rows, model.parameters, 0.0, learn_weights=True) is model.parameters
    full = take_gradient_step(rows, model.parameters, 1.0, learn_weights=True)
    expected = improve(model.parameters, scan(rows, model.parameters), learn_weights=True)
    for one, other in zip(full.centers, expected.centers, strict=True):
        assert_allclose(one, other, atol=1e-12)
    assert_allclose(full.view_weights, expected.view_weights)


def test_a_longer_step_never_has_a_higher_objective(model):
    rows = rows_of(model)
    steps = np.linspace(0, 1, 6)
    found = [
        scan(rows, take_gradient_step(rows, model.parameters, step, learn_weights=False)).objective for step in steps
    ]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("step", [0.3, 1.0])
def test_view_weights_stay_weights(model, step):
    own = take_gradient_step(rows_of(model), model.parameters, step, learn_weights=True)
    assert own.view_weights.sum() == pytest.approx(1.0)
    assert own.view_weights.min() >= 0
    fixed = take_gradient_step(rows_of(model), model.parameters, step, learn_weights=False)
    assert_array_equal(fixed.view_weights, model.parameters.view_weights)


def test_a_site_without_rows_has_the_global_model(model):
    assert take_gradient_step(rows_of(model, 0), model.parameters, 1.0, learn_weights=True) is model.parameters


def test_centres_of_low_rank_become_free(model):
    formed = LowRankForm("tucker", (2, 3, 2)).constrain(model.parameters, model.view_names)
    assert not isinstance(take_gradient_step(rows_of(model), formed, 0.5, learn_weights=False), LowRankParameters)
