"""The checks for aggregators pass for those of FedHK and for a new one of a few lines, and fail for broken ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest

from fedhk.data.moments import Moments
from fedhk.federation.aggregators import Aggregator, RobustAggregator, SumAggregator
from fedhk.model.statistics import Statistics
from fedhk.starts.candidates import Candidates
from fedhk.testing.aggregators import AggregatorChecks

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


class TestSum(AggregatorChecks):
    def aggregator(self):
        return SumAggregator()


class TestRobust(AggregatorChecks):
    hostile = 2

    def aggregator(self):
        return RobustAggregator("robust")


class TestMedian(AggregatorChecks):
    hostile = 2

    def aggregator(self):
        return RobustAggregator("median")


class TestTrimmed(AggregatorChecks):
    hostile = 2

    def aggregator(self):
        return RobustAggregator("trimmed")


@dataclass(frozen=True)
class Capped(Aggregator):
    """A sum in which no site counts for more than so many rows."""

    rows: float = 100.0

    def statistics(self, sites, parameters):
        return reduce(add, (site.scaled(min(1.0, self.rows / max(site.rows, 1.0))) for site in sites))

    def candidates(self, sites):
        return sites


class TestCapped(AggregatorChecks):
    exact_alone = False

    def aggregator(self):
        return Capped()


class First(Capped):
    def statistics(self, sites, parameters):
        return sites[0]


class Negative(Capped):
    def statistics(self, sites, parameters):
        return sites[0].scaled(-1.0)


class Shifted(Capped):
    def statistics(self, sites, parameters):
        total = super().statistics(sites, parameters)
        return replace(total, numerators=tuple(n + w for n, w in zip(total.numerators, total.weights, strict=True)))


class Inventive(Capped):
    def candidates(self, sites):
        return [replace(site, points=site.points + 1.0) for site in sites]


class Careless(Capped):
    def candidates(self, sites):
        for site in sites:
            site.sizes[:] = 1.0
        return sites


class OnlyOneColumn(Capped):
    """Weights count twice where there is a column for every feature."""

    def statistics(self, sites, parameters):
        total = super().statistics(sites, parameters)
        return replace(total, weights=tuple(w * min(w.shape[1], 2) for w in total.weights))


class NoColumns(Capped):
    def statistics(self, sites, parameters):
        total = super().statistics(sites, parameters)
        return replace(total, weights=tuple(w.max(axis=1) for w in total.weights))


class Narrow(Capped):
    """Expects one column of weights."""

    def statistics(self, sites, parameters):
        total = super().statistics(sites, parameters)
        return replace(total, weights=tuple(w.reshape(len(w), 1) for w in total.weights))


class Trusting(RobustAggregator):
    """Robust but for the candidates."""

    def candidates(self, sites):
        return sites


class Wide(Capped):
    """Weights in a column for every feature, whatever the sites have."""

    def statistics(self, sites, parameters):
        total = super().statistics(sites, parameters)
        parts = zip(total.weights, total.numerators, strict=True)
        return replace(total, weights=tuple(np.broadcast_to(w, n.shape) for w, n in parts))


class TestWide(TestCapped):
    def aggregator(self):
        return Wide()


class Stacked(Capped):
    """A mean over sites that stacks what they send, times their number."""

    def statistics(self, sites, parameters):
        def total(name):
            return tuple(np.stack(parts).sum(axis=0) for parts in zip(*(getattr(s, name) for s in sites), strict=True))

        return replace(reduce(add, sites), numerators=total("numerators"), weights=total("weights"))


class TestStacked(AggregatorChecks):
    def aggregator(self):
        return Stacked()


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (First, "test_the_order_of_sites_changes_nothing_but_rounding"),
        (Negative, "test_the_total_has_the_shapes_of_its_parts_and_is_possible"),
        (Capped, "test_a_site_alone_gives_its_own_statistics"),
        (Shifted, "test_sites_that_are_all_alike_have_the_centres_of_each"),
        (SumAggregator, "test_few_hostile_sites_move_no_centre_far"),
        (SumAggregator, "test_few_hostile_sites_move_no_moments_far"),
        (SumAggregator, "test_few_hostile_sites_move_no_sum_far"),
        (NoColumns, "test_the_total_has_the_shapes_of_its_parts_and_is_possible"),
        (OnlyOneColumn, "test_one_column_of_weights_says_the_same_as_equal_columns"),
        (Trusting, "test_few_hostile_sites_cost_the_others_little_in_a_whole_fit"),
        (SumAggregator, "test_few_hostile_sites_cost_the_others_little_in_a_whole_fit"),
        (Inventive, "test_candidates_are_those_of_the_sites"),
        (Careless, "test_what_is_given_is_not_changed"),
    ],
)
def test_a_broken_aggregator_fails(broken, check):
    class Checks(AggregatorChecks):
        hostile = 2

        def aggregator(self):
            return broken()

    with pytest.raises(AssertionError):
        getattr(Checks(), check)()


def test_an_aggregator_that_expects_one_column_of_weights_fails_where_a_cell_is_missing():
    class Checks(AggregatorChecks):
        def aggregator(self):
            return Narrow()

    with pytest.raises(ValueError, match="reshape"):
        Checks().test_a_whole_fit_takes_missing_cells_and_views()


@pytest.mark.parametrize("value", [Statistics, Moments, Candidates])
def test_the_page_has_all_fields(value):
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index(f"| **`{value.__name__}`**") :].split("\n\n")[0].split("| **`")[1]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [field.name for field in fields(value)]


def test_the_page_has_all_methods():
    page = PAGE.read_text(encoding="utf-8")
    section = page[page.index("## An aggregator") : page.index("## A personal component")]
    public = [name for name in vars(Aggregator) if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"`{name}\b", section)] == []


def test_one_that_changes_a_single_site_reads_how_to_say_so():
    class TestExact(TestCapped):
        exact_alone = True

    with pytest.raises(AssertionError) as caught:
        TestExact().test_a_site_alone_gives_its_own_statistics()
    assert "exact_alone = False" in caught.value.__notes__[0]
