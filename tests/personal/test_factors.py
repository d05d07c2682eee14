"""A site's own low-rank centres."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.model.rows import Rows
from fedhk.personal.centers import Centers
from fedhk.personal.component import REPORTED
from fedhk.personal.factors import (
    PARTS,
    FullRankCenters,
    LowRankCenters,
    blend_form,
    choose_centers,
    learn_part_shares,
)
from fedhk.personal.shares import LEAST_ROWS, PRIOR_ROWS, Move
from fedhk.tensors.low_rank import LowRankForm, LowRankParameters
from fedhk.testing.components import ComponentChecks
from personal_sites import moved_site, own_of, scan


class TestTuckerCenters(ComponentChecks):
    form = LowRankForm("tucker", (2, 3, 2))

    def constrain(self, common):
        return self.form.constrain(common, ("a", "b"))

    def component(self, common, _summary):
        return choose_centers(common, "auto", 0.0)


class TestParafac2Centers(TestTuckerCenters):
    form = LowRankForm("parafac2", 2)


class TestFullRankCenters(TestTuckerCenters):
    form = LowRankForm("tucker", (3, 4, 2))


def test_the_component_has_the_form_of_the_common_centres(model):
    binding, full = (LowRankForm("tucker", rank).constrain(model.parameters, model.view_names)
                     for rank in ((2, 3, 2), (3, 6, 2)))  # fmt: skip
    assert type(choose_centers(model.parameters, "auto", 0.0)) is Centers
    assert type(choose_centers(binding, "auto", 0.0)) is LowRankCenters
    assert type(choose_centers(full, "auto", 0.0)) is FullRankCenters


@pytest.fixture(scope="module", params=[("tucker", (2, 3, 2)), ("parafac2", (2,))], ids=["tucker", "parafac2"])
def formed(request, model):
    """The common model in a form whose rank binds."""
    parameters = LowRankForm(*request.param).constrain(model.parameters, model.view_names)
    assert not parameters.form.free
    return replace(model, parameters=parameters)


def turn_part(form, part, seed=0, size=0.6):
    """The moves of the centres that rows ask for, where one part of the common form is another at their site."""
    rng, kind = np.random.default_rng(seed), form.decomposition
    factors = kind.canonical(form.factors)
    core = list(factors.core_arrays)
    names = ("core", "cluster_factor", "view_factor")
    if kind.name != "Tucker":
        names = ("cluster_factor", "core", "view_factor")
    place = names.index(part)
    core[place] = core[place] + size * np.std(core[place]) * rng.normal(size=core[place].shape)
    return np.hstack(factors.with_arrays(core=core).centers()) - np.hstack(form.centers())


def ask(move, seed, noise=0.02, weight=50.0):
    """What two halves of the rows ask for, and what all of them do."""
    rng = np.random.default_rng(seed)
    halves = [Move(move + noise * rng.normal(size=move.shape), np.full(move.shape, weight)) for _ in range(2)]
    return halves, Move((halves[0].step + halves[1].step) / 2, np.full(move.shape, 2 * weight))


def step_of(common, form):
    return np.hstack(form.centers()) - np.hstack(common.centers())


class TestForms:
    @pytest.mark.parametrize("part", ["core", "cluster_factor", "view_factor"])
    def test_follow_rows_that_agree(self, formed, part):
        form = formed.parameters.form
        move = turn_part(form, part)
        halves, whole = ask(move, 1, noise=0.1 * np.std(move))
        shares = learn_part_shares(form, *halves)
        found = blend_form(form, whole, shares, PRIOR_ROWS)
        assert np.sum((step_of(form, found) - move) ** 2) < 0.5 * np.sum(move**2)
        assert max(shares) > 0.3
        assert found.rank == form.rank

    def test_stay_where_halves_only_agree_by_chance(self, formed):
        form = formed.parameters.form
        nothing = np.zeros_like(np.hstack(form.centers()))
        shares = [learn_part_shares(form, *ask(nothing, seed, noise=0.1)[0]) for seed in range(8)]
        assert np.mean(shares) <= 0.1

    def test_given_shares_are_taken_and_0_is_the_common_form(self, formed):
        form = formed.parameters.form
        move = turn_part(form, "cluster_factor")
        whole = ask(move, 1, noise=0.002)[1]
        assert blend_form(form, whole, np.zeros(4), 0.0) is form
        blended = [blend_form(form, whole, np.full(4, share), 0.0) for share in (0.3, 0.7, 1.0)]
        steps = [np.sum(step_of(form, found) ** 2) for found in blended]
        assert steps == sorted(steps)
        assert_allclose(step_of(form, blended[-1]), move, atol=0.05 * np.abs(move).max())

    def test_a_pull_holds_them_back(self, formed):
        form = formed.parameters.form
        whole = ask(turn_part(form, "cluster_factor"), 1)[1]
        sizes = [np.sum(step_of(form, blend_form(form, whole, np.ones(4), pull)) ** 2) for pull in (0.0, 100.0, 1e9)]
        assert sizes[0] > 1.5 * sizes[1] > 0
        assert sizes[2] < 1e-6 * sizes[0]

    def test_reach_the_model_with_given_shares_and_pulls(self, formed):
        views = moved_site(1, shift=0.8)
        given, _ = own_of(formed, views, centers=0.3)
        assert [given.shares[part] for part in PARTS] == [0.3] * 4
        taken = [own_of(formed, views, center_pull=pull)[0].shares["centers"] for pull in (0.0, 1e9)]
        assert taken[0] > taken[1]
        assert taken[1] < 1e-6

    def test_too_few_rows_to_hold_out_any_are_not_followed(self, formed):
        found, _ = own_of(formed, moved_site(0, LEAST_ROWS - 1, shift=3.0))
        assert {found.shares[part] for part in PARTS} == {0.0}
        assert found.parameters.form is formed.parameters.form

    def test_a_site_keeps_the_form_and_reads_its_rows_without_its_offset(self, formed):
        found, rows = own_of(formed, moved_site(1, shift=0.8))
        assert found.shares["shift"] > 0.5
        assert tuple(found.shares) == (*REPORTED, *PARTS)
        assert found.parameters.form.rank == formed.parameters.form.rank
        for mine, formed_centers in zip(found.parameters.centers, found.parameters.form.centers(), strict=True):
            assert_array_equal(mine, formed_centers)
        moved = [b.shift - a.shift for a, b in zip(rows.references, found.rows.references, strict=True)]
        assert_allclose(np.concatenate(moved), 0.8 * found.shares["shift"], atol=0.35)
        unseen = Rows(check_views(moved_site(2, shift=0.8)), formed.references)
        own = replace(unseen, references=found.rows.references)
        assert scan(own, found.parameters).objective < 0.9 * scan(unseen, formed.parameters).objective

    def test_coefficients_that_depend_on_the_space_leave_an_offset_in_the_centres(self, formed):
        references = tuple(replace(r, heat_coef="absdev") for r in formed.references)
        found, rows = own_of(replace(formed, references=references), moved_site(1, shift=0.8))
        assert found.shares["shift"] > 0
        assert not isinstance(found.parameters, LowRankParameters)
        assert found.rows.references == rows.references

    def test_a_rank_that_constrains_nothing_changes_nothing_but_keeps_its_name(self, model):
        free = LowRankForm("tucker", (3, 6, 2)).constrain(model.parameters, model.view_names)
        assert free.form.free
        views = moved_site(1, shift=0.8)
        plain, _ = own_of(replace(model, parameters=free.free()), views)
        found, _ = own_of(replace(model, parameters=free), views)
        assert tuple(found.shares) == REPORTED
        for a, b in zip(plain.parameters.centers, found.parameters.centers, strict=True):
            assert_array_equal(a, b)
        for a, b in zip(found.parameters.form.centers(), found.parameters.centers, strict=True):
            assert_allclose(a, b, atol=1e-9)
