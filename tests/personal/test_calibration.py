"""Calibration: rows of sites that measure differently come to one space."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk import HeatKernelMVC
from fedhk.data.views import check_views
from fedhk.federation.codec import pack, unpack
from fedhk.model.rows import Rows
from fedhk.personal.calibration import LEAST_RATIO, MOST_RATIO, Calibration, measure_frame, scale_frame
from fedhk.personal.shares import PRIOR_ROWS
from personal_sites import moved_site

WHOLE = Calibration(1.0, 1.0, (1.0, 1.0), True)


def calibrated_references(model, views, calibration):
    return calibration.apply(Rows(check_views(views), model.references)).references


def test_none_changes_nothing(model):
    same = calibrated_references(model, moved_site(1, shift=2.0), Calibration(0.0, 0.0, (1.0, 1.0), False))
    for one, other in zip(same, model.references, strict=True):
        assert_array_equal(one.shift, other.shift)
        assert_allclose(one.scale, other.scale)


def test_all_of_it_brings_moved_and_stretched_rows_to_one_space(model):
    plain = moved_site(1)
    moved = [3.0 * view + 7.0 for view in plain]
    pairs = zip(calibrated_references(model, plain, WHOLE), calibrated_references(model, moved, WHOLE), strict=True)
    for view, (one, other) in enumerate(pairs):
        assert_allclose(one.to_model(plain[view]), other.to_model(moved[view]), atol=0.12)


def test_rows_and_their_order_stay(model):
    rows = Rows(check_views(moved_site(1)), model.references, np.arange(200.0))
    found = WHOLE.apply(rows)
    assert found.views is rows.views
    assert found.sample_weight is rows.sample_weight


def test_units_come_back(model):
    calibration = replace(WHOLE, factors=(0.7, 1.3))
    again = calibration.before(calibration.in_units(model.references))
    for one, other in zip(again, model.references, strict=True):
        assert_allclose(one.scale, other.scale)


def test_a_frame_is_mean_and_spread_in_model_units(model):
    plain = measure_frame(check_views(moved_site(1)), model.references)
    assert plain.shape == (2, 10)
    moved = measure_frame(check_views([2.0 * view + 1.0 for view in moved_site(1)]), model.references)
    assert_allclose(moved[1], 2 * plain[1], rtol=1e-5)
    wild = measure_frame(check_views([100.0 * view for view in moved_site(1)]), model.references)
    assert np.all((wild[1] >= LEAST_RATIO) & (wild[1] <= MOST_RATIO))
    kept = measure_frame(check_views(moved_site(1)), model.references, kept=[1])
    assert_allclose(kept[:, :6], plain[:, :6])
    assert_allclose(kept[1, 6:], 1.0)


def test_few_rows_are_believed_less(model):
    frame = measure_frame(check_views(moved_site(1, shift=2.0)), model.references)
    half, all_of_it = (scale_frame(frame, rows, 1.0, 1.0) for rows in (PRIOR_ROWS, 1e12))
    assert_allclose(half[0], 0.5 * frame[0])
    assert_allclose(half[1], np.sqrt(frame[1]))
    assert_allclose(all_of_it, frame)


def test_survives_a_message():
    calibration = Calibration(1.0, 0.5, (0.9, 1.1), True)
    assert unpack(*pack(calibration, Calibration), Calibration) == calibration


def table_rows(n_rows=400, *, men=0.5, shift=0.0):
    """Two numbers and a category, in units of federations in which half of the rows are men."""
    rng = np.random.default_rng(0)
    sexes = np.where(np.arange(n_rows) < men * n_rows, "M", "F")
    return pd.DataFrame(
        {"age": 50 + 10 * (rng.normal(size=n_rows) + shift), "bmi": rng.normal(size=n_rows), "sex": sexes}
    )


class TestCategories:
    @pytest.fixture
    def common(self):
        model = HeatKernelMVC(2, random_state=0, scaling="standard").fit([table_rows()])
        return model._model.references

    def test_levels_are_neither_moved_nor_stretched(self, common):
        rows = Rows(check_views([table_rows(men=0.9, shift=2.0)]), common)
        (found,), (before,) = replace(WHOLE, factors=(1.0,)).apply(rows).references, common
        levels = [column.startswith("sex") for column in rows.views.columns[0]]
        assert_array_equal(found.shift[levels], before.shift[levels])
        assert_array_equal(found.scale[levels], before.scale[levels])
        assert abs(found.shift[0] - before.shift[0]) > 15

    def test_numbers_beside_levels_have_the_spread_of_all_sites(self, common):
        frame = measure_frame(check_views([table_rows()]), common)
        assert_allclose(frame[0], 0.0, atol=1e-9)
        assert_allclose(frame[1], 1.0)
