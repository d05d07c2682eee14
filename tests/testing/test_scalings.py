"""The checks for scalings pass for those of FedHK and for a new one of a few lines, and fail for broken ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from fedhk.data.scaling import SCALINGS, MinMaxScaling, Scaling, StandardScaling, make_scaling
from fedhk.testing.scalings import ScalingChecks


class TestStandard(ScalingChecks):
    def scaling(self):
        return make_scaling("standard")


class TestMinMax(ScalingChecks):
    def scaling(self):
        return make_scaling("minmax")


class TestUnitRows(ScalingChecks):
    def scaling(self):
        return make_scaling("l2")


class TestMagnitude(ScalingChecks):
    def scaling(self):
        return make_scaling("magnitude")


class TestNone(ScalingChecks):
    def scaling(self):
        return make_scaling("none")


@dataclass(frozen=True)
class PowerScaling(Scaling):
    """Divide every feature by a power of its standard deviation; 0.5 is Pareto scaling."""

    power: float = 0.5

    def divisors(self, moments):
        return np.sqrt(moments.variance) ** self.power


class TestPower(ScalingChecks):
    def scaling(self):
        return PowerScaling()


class Negative(PowerScaling):
    def divisors(self, moments):
        return -super().divisors(moments)


class SecretRanges(PowerScaling):
    def divisors(self, moments):
        return moments.high - moments.low


class Counts(PowerScaling):
    def divisors(self, moments):
        return super().divisors(moments) * (1 + np.arange(len(moments.mean)))


class Sums(PowerScaling):
    def divisors(self, moments):
        return super().divisors(moments) * np.cumsum(moments.squares)


class Boastful(PowerScaling):
    unit_variance: ClassVar[bool] = True


class Large(PowerScaling):
    unit_rows: ClassVar[bool] = True

    def divisors(self, moments):
        return np.zeros_like(moments.mean)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Negative, "test_there_is_one_finite_divisor_of_at_least_0_per_feature"),
        (SecretRanges, "test_ranges_are_read_only_where_that_is_said"),
        (Counts, "test_the_order_of_features_does_not_matter"),
        (Sums, "test_the_order_of_features_does_not_matter"),
        (Boastful, "test_features_of_unit_variance_are_said_to_be_so"),
        (Large, "test_rows_in_model_units_have_a_mean_squared_length_of_1_and_come_back"),
    ],
)
def test_a_broken_scaling_fails(broken, check):
    class Checks(ScalingChecks):
        def scaling(self):
            return broken()

    with pytest.raises(AssertionError):
        getattr(Checks(), check)()


def test_the_short_forms_are_the_objects():
    assert sorted(SCALINGS) == ["histogram", "l2", "magnitude", "minmax", "none", "root", "standard", "tfidf"]
    assert make_scaling("standard") == StandardScaling()
    assert make_scaling(MinMaxScaling()) == MinMaxScaling()
