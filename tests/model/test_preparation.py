"""Views in model units weigh alike, whatever their width, units and coefficients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from fedhk.data.scaling import HEAT_COEFS
from fedhk.data.views import check_views
from fedhk.model.preparation import count_observed, heat_energy, prepare
from fedhk.model.rows import Rows


@pytest.mark.parametrize("heat_coef", HEAT_COEFS)
@given(
    widths=st.lists(st.integers(1, 500), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    scaling=st.sampled_from(["standard", "minmax", "none", "l2"]),
    missing=st.sampled_from([0.0, 0.2]),
)
def test_mean_heat_weighted_distance_to_the_grand_mean_is_1_in_every_view(heat_coef, widths, seed, scaling, missing):
    rng = np.random.default_rng(seed)
    tables = [10.0 ** rng.uniform(-3, 3) * rng.standard_normal((30, width)) ** 3 for width in widths]
    for table in tables:
        table[rng.random(table.shape) < missing] = np.nan
        table[:2] = rng.standard_normal((2, table.shape[1]))  # no feature without values, none that is constant
    views = check_views(tables)
    rows = Rows(views, prepare(views, scaling, heat_coef, None), None)
    np.testing.assert_allclose(heat_energy(rows) / count_observed(views), 1.0, rtol=1e-6)


@given(cases())
def test_the_units_of_the_input_change_nothing(case):
    heat_coef = case.rows.references[0].heat_coef
    views = check_views([8.0 * view for view in case.views])
    scaled = Rows(views, prepare(views, "standard", heat_coef, case.sample_weight), case.sample_weight)
    views = check_views(case.views)
    plain = Rows(views, prepare(views, "standard", heat_coef, case.sample_weight), case.sample_weight)
    np.testing.assert_allclose(heat_energy(scaled), heat_energy(plain), rtol=1e-9)
