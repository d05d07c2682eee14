"""The offset of a site: in the rounds, and in its own model."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.model.rows import Rows
from fedhk.personal.offset import (
    Shift,
    collect_statistics,
    follow_centers,
    measure_offset_share,
    shift_centers,
)
from fedhk.personal.shares import LEAST_ROWS, PRIOR_ROWS
from fedhk.tensors.low_rank import LowRankForm, LowRankParameters
from fedhk.testing.components import ComponentChecks
from personal_sites import assign, moved_site, own_model, own_of, scan


class TestShift(ComponentChecks):
    def component(self, _common, _summary):
        return Shift()


def test_a_site_that_is_moved_takes_the_offset_and_the_more_the_further(model):
    shifts = (0.0, 0.2, 0.5, 1.0)
    shares = [
        np.mean([own_of(model, moved_site(seed, shift=shift))[0].shares["shift"] for seed in range(6)])
        for shift in shifts
    ]
    assert shares == sorted(shares)
    assert shares[-1] > 0.7


def test_levels_of_a_category_have_no_offset(model):
    """They say which rows the site has."""
    rows = own_of(model, moved_site(0, shift=1.0))[1]
    named = tuple(f"f{i}" if i < 3 else f"kind = {i}" for i in range(6))
    rows = replace(rows, views=replace(rows.views, columns=(named, None)))
    own = own_model(rows, model.parameters)
    assert np.all(own.offset[3:6] == 0.0)
    assert np.all(own.offset[[0, 1, 2, *range(6, 10)]] > 0.1)


def rows_of(model, seed=1, shift=0.0, n=200):
    return Rows(check_views(moved_site(seed, n, shift)), model.references)


class TestRounds:
    def offset(self, size):
        return (np.full(6, size), np.full(4, -size))

    def test_no_offset_is_the_plain_pass(self, model):
        rows = rows_of(model)
        plain, found = scan(rows, model.parameters), collect_statistics(rows, model.parameters, (), 1)
        assert plain.objective == found.objective
        assert_array_equal(plain.numerators[0], found.numerators[0])
        assert shift_centers(model.parameters, ()) is model.parameters

    def test_statistics_are_those_of_rows_without_the_offset(self, model):
        rows, offset = rows_of(model), self.offset(0.3)
        pairs = zip(rows.references, offset, strict=True)
        without = replace(rows, references=tuple(r.move(part, np.ones_like(part)) for r, part in pairs))
        expected, found = scan(without, model.parameters), collect_statistics(rows, model.parameters, offset, 1)
        assert found.objective == pytest.approx(expected.objective)
        for one, other in zip(found.numerators, expected.numerators, strict=True):
            assert_allclose(one, other, atol=1e-8)
        assert_allclose(found.costs, expected.costs)

    def test_the_offset_follows_the_rows(self, model):
        moved, plain = (follow_centers(rows_of(model, shift=shift), model.parameters) for shift in (0.8, 0.0))
        expected = [0.8 / reference.scale for reference in model.references]
        for one, other, way in zip(moved, plain, expected, strict=True):
            assert_allclose(one - other, way, atol=0.3 * way.max())

    def test_levels_of_a_category_have_no_offset(self, model):
        rows = rows_of(model, shift=0.8)
        levels = tuple(f"kind = {i}" for i in range(4))
        named = replace(rows, views=replace(rows.views, columns=(None, levels)))
        plain, found = (follow_centers(some, model.parameters) for some in (rows, named))
        assert_array_equal(found[1], 0.0)
        assert np.all(plain[1] != 0)
        assert np.all(found[0] != 0)

    def test_one_more_pass_never_raises_the_objective_with_its_prior(self, model):
        rows, parameters = rows_of(model, shift=1.0), model.parameters

        def total(offset):
            prior = parameters.heat_time * PRIOR_ROWS * sum(
                factor * np.sum(part**2) for factor, part in zip(parameters.view_factors, offset, strict=True)
            )  # fmt: skip
            return collect_statistics(rows, parameters, offset).objective + prior

        offset, before = (np.zeros(6), np.zeros(4)), np.inf
        for _ in range(6):
            after = total(offset)
            assert after <= before * (1 + 1e-12)
            before, offset = after, follow_centers(rows, parameters, offset)

    def test_a_site_of_few_rows_has_little_of_it(self, model):
        few, many = (follow_centers(rows_of(model, shift=1.0, n=n), model.parameters) for n in (2, 400))
        assert np.abs(np.concatenate(few)).sum() < 0.6 * np.abs(np.concatenate(many)).sum()

    def test_centres_with_an_offset_have_no_form(self, model):
        formed = LowRankForm("tucker", (2, 3, 2)).constrain(model.parameters, model.view_names)
        shifted = shift_centers(formed, self.offset(0.5))
        assert not isinstance(shifted, LowRankParameters)
        assert_allclose(shifted.centers[1], formed.centers[1] - 0.5)


@pytest.mark.parametrize(("shift", "least", "most"), [(0.0, 0.0, 0.3), (2.0, 0.8, 1.0)])
def test_how_much_a_site_differs_is_what_held_out_rows_confirm(model, shift, least, most):
    rows = rows_of(model, shift=shift, n=400)
    labels = assign(rows, shift_centers(model.parameters, follow_centers(rows, model.parameters)))[1]
    assert least <= measure_offset_share(rows, model.parameters, labels) <= most
    few = rows_of(model, shift=shift, n=LEAST_ROWS - 1)
    assert measure_offset_share(few, model.parameters, labels) == 0.0
