"""The checks for components pass for a new one that is written in a few lines, and fail for broken ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fedhk.model.statistics import Statistics
from fedhk.personal.component import Component
from fedhk.personal.shares import Move
from fedhk.testing.components import ComponentChecks


@dataclass(frozen=True, kw_only=True)
class FirstCluster(Component[Statistics]):
    """The place of the first cluster alone."""

    name: ClassVar[str] = "first_cluster"

    def learn(self, own, part):
        numerators, weights = part.numerators[0][0], np.broadcast_to(part.weights[0], part.numerators[0].shape)[0]
        return Move(numerators / weights - own.common.centers[0][0], weights)

    def apply(self, own, part, shares):
        step = np.zeros_like(own.step)
        step[0, : own.rows.widths[0]] = shares[self.name] * self.learn(own, part).step
        return replace(own, step=step)

    def finish(self, own):
        return replace(own, parameters=own.current)


class TestFirstCluster(ComponentChecks):
    def component(self, _common, _summary):
        return FirstCluster()


class Sure(FirstCluster):
    def confirm(self, own, first, second):
        return {self.name: 1.0}


class Unnamed(FirstCluster):
    def confirm(self, own, first, second):
        return {"other": 0.0}


class OneSided(FirstCluster):
    def confirm(self, own, first, second):
        return {
            self.name: float(np.clip(np.abs(first.step).sum(), 0, 1)),
        }


class Stubborn(FirstCluster):
    def apply(self, own, part, shares):
        return super().apply(own, part, dict.fromkeys(shares, 1.0))


class Careless(FirstCluster):
    def apply(self, own, part, shares):
        own.common.centers[0][0] += 1.0
        return super().apply(own, part, shares)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Sure, "test_sites_like_all_others_take_next_to_nothing"),
        (Unnamed, "test_shares_are_from_0_to_1_and_do_not_depend_on_the_order_of_the_halves"),
        (OneSided, "test_shares_are_from_0_to_1_and_do_not_depend_on_the_order_of_the_halves"),
        (Stubborn, "test_a_share_of_0_and_a_site_that_holds_out_no_rows_have_the_global_model"),
        (Careless, "test_what_is_given_is_not_changed_and_the_same_comes_again"),
    ],
)
def test_a_broken_component_fails(broken, check):
    class Checks(ComponentChecks):
        def component(self, _common, _summary):
            return broken()

    with pytest.raises(AssertionError):
        getattr(Checks(), check)()
