"""Checks that every scaling must pass."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments, view_moments
from fedhk.data.scaling import Scaling, make_reference
from fedhk.data.views import check_views
from fedhk.testing._values import assert_storable, check

CONSTANT = 4
"""The column of the rows that never varies."""


class ScalingChecks:
    """Checks of one scaling."""

    @abstractmethod
    def scaling(self) -> Scaling:
        """Make the scaling."""

    def test_there_is_one_finite_divisor_of_at_least_0_per_feature(self) -> None:
        moments = self._moments(_make_rows())
        divisors, varies = self._divisors(moments), ~moments.constant
        check(divisors.shape == moments.mean.shape, f"divisors have shape {divisors.shape}")
        check(bool(np.all(divisors[varies] >= 0) and np.isfinite(divisors[varies]).all()), f"divisors are {divisors}")

    def test_ranges_are_read_only_where_that_is_said(self) -> None:
        moments, scaling = self._moments(_make_rows()), self.scaling()
        if not scaling.needs_ranges:
            unknown = np.full(moments.mean.shape, np.nan)
            blind = scaling.divisors(replace(moments, low=unknown, high=unknown))
            assert_array_equal(blind[:CONSTANT], scaling.divisors(moments)[:CONSTANT])

    def test_a_split_of_the_rows_gives_the_divisors_of_all(self) -> None:
        rows = _make_rows()
        parts = [self._moments(part) for part in (rows[:20], rows[20:70], rows[70:])]
        merged = parts[0].merge(parts[1]).merge(parts[2])
        assert_allclose(self._divisors(merged), self._divisors(self._moments(rows)), rtol=1e-9)

    def test_the_order_of_features_does_not_matter(self) -> None:
        rows, order = _make_rows(), np.array([3, 1, 4, 0, 2])
        found, expected = (self._divisors(self._moments(part)) for part in (rows[:, order], rows))
        assert_allclose(found[order != CONSTANT], expected[order][order != CONSTANT], rtol=1e-9)

    def test_features_of_unit_variance_are_said_to_be_so(self) -> None:
        scaling, moments = self.scaling(), self._moments(_make_rows())
        if scaling.unit_variance:
            varies = ~moments.constant
            scaled = np.sqrt(moments.variance[varies]) / self._divisors(moments)[varies]
            assert_allclose(scaled, scaled[0], rtol=1e-9)

    def test_rows_in_model_units_have_a_mean_squared_length_of_1_and_come_back(self) -> None:
        rows, scaling = _make_rows(), self.scaling()
        reference = make_reference(self._moments(rows), scaling, "uniform")
        if scaling.unit_rows:
            rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        units = reference.to_model(rows)
        assert_allclose(np.square(units).sum(axis=1).mean(), 1.0, rtol=1e-9)
        constant = ~np.isfinite(reference.scale)
        assert_allclose(reference.to_input(units)[:, ~constant], rows[:, ~constant], atol=1e-9)

    def test_model_files_and_checkpoints_can_hold_it(self) -> None:
        assert_storable(self.scaling())

    def _moments(self, rows: FloatArray) -> Moments:
        views = check_views([rows])
        return view_moments(views, 0, unit_rows=self.scaling().unit_rows, sample_weight=None, width=rows.shape[1])

    def _divisors(self, moments: Moments) -> FloatArray:
        return np.asarray(self.scaling().divisors(moments))


def _make_rows() -> FloatArray:
    """Draw features of very different sizes, and one that is constant."""
    sizes, middles = np.array([0.01, 1.0, 30.0, 2.0, 0.0]), np.array([1.0, 0.0, 50.0, -3.0, 7.0])
    return np.asarray(np.random.default_rng(0).standard_normal((100, 5)) * sizes + middles)
