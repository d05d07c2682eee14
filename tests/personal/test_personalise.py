"""A site's own model: what it takes from its own rows, and what not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedhk import HeatKernelMVC, datasets
from fedhk.data.views import check_views
from fedhk.model.passes import Passes
from fedhk.model.preparation import site_moments
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal.calibration import Calibration, calibrated, site_frame
from fedhk.personal.factors import PARTS, own_form
from fedhk.personal.personalise import LEAST_ROWS, Wanted, personalise
from fedhk.personal.shares import agreement, confirmed, of_all_rows
from fedhk.personal.views import own_view_weights, view_distance
from fedhk.tensors.low_rank import constrain


@pytest.fixture(scope="module")
def model():
    data = datasets.make_sites(1, 600, n_clusters=3, n_features=(6, 4), shift=0, scale=0, random_state=0)
    return HeatKernelMVC(3, random_state=0).fit(data.views)._model


def site(seed, n=200, shift=0.0):
    """Rows of the same clusters, all moved by `shift` in every feature."""
    data = datasets.make_sites(1, 600, n_clusters=3, n_features=(6, 4), shift=0, scale=0, random_state=0)
    rows = np.random.default_rng(seed).choice(600, n, replace=False)
    noise = np.random.default_rng(seed).normal(scale=0.5, size=(n, 10))
    return [view[rows] + part + shift for view, part in zip(data.views, np.split(noise, [6], axis=1), strict=True)]


def own(model, views, learn_weights=False, **wanted):
    rows = Rows(check_views(views, min_rows=0), model.references)
    return personalise(rows, model.parameters, Wanted(**wanted), learn_weights=learn_weights), rows


def test_a_site_like_the_others_takes_next_to_nothing(model):
    found = [own(model, site(seed))[0] for seed in range(8)]
    assert np.mean([p.shift for p in found]) <= 0.1
    assert np.mean([p.centers for p in found]) <= 0.1


def test_a_site_that_is_moved_takes_the_offset_and_the_more_the_further(model):
    shifts = (0.0, 0.2, 0.5, 1.0)
    shares = [np.mean([own(model, site(seed, shift=shift))[0].shift for seed in range(6)]) for shift in shifts]
    assert shares == sorted(shares)
    assert shares[-1] > 0.7


def test_what_is_taken_lowers_the_objective_of_rows_that_were_not_seen(model):
    found, _ = own(model, site(1, shift=0.8))
    unseen = Rows(check_views(site(2, shift=0.8)), model.references)
    with Passes(unseen, 3, 1) as scan:
        assert scan.statistics(found.parameters).objective < 0.9 * scan.statistics(model.parameters).objective


@pytest.mark.parametrize("n", [0, 1, 2, LEAST_ROWS - 1])
def test_a_site_too_small_to_hold_out_rows_has_the_global_model(model, n):
    found, _ = own(model, site(0, n, shift=3.0))
    assert (found.shift, found.centers) == (0.0, 0.0)
    for mine, common in zip(found.parameters.centers, model.parameters.centers, strict=True):
        assert_array_equal(mine, common)


def test_fixed_shares_are_taken(model):
    views = site(1, shift=0.5)
    nothing, _ = own(model, views, shift=0.0, centers=0.0)
    for mine, common in zip(nothing.parameters.centers, model.parameters.centers, strict=True):
        assert_array_equal(mine, common)
    everything, rows = own(model, views, shift=0.0, centers=1.0)
    with Passes(rows, 3, 1) as scan:
        statistics = scan.statistics(everything.parameters)
    for mine, n, w in zip(everything.parameters.centers, statistics.numerators, statistics.weights, strict=True):
        assert_allclose(mine, n / w, atol=0.02)  # the fixed point of the site's own centres, up to the last passes


def test_a_pull_of_few_rows_leaves_the_site_its_own_and_one_of_many_the_global_centres(model):
    views = site(1, shift=0.5)
    near, _ = own(model, views, shift=0.0, center_pull=1e-6)
    far, _ = own(model, views, shift=0.0, center_pull=1e9)
    assert near.centers > 0.999
    assert far.centers < 1e-6


def test_view_weights_are_personal_only_where_they_are_learned(model):
    views = site(1, shift=0.5)
    assert own(model, views)[0].view_weights == 0.0
    noisy = [views[0], np.random.default_rng(0).normal(size=views[1].shape)]
    found, _ = own(model, noisy, learn_weights=True, view_weights=1.0)
    assert found.view_weights == 1.0
    assert found.parameters.view_weights[1] > model.parameters.view_weights[1]  # it costs less where it varies less
    assert found.parameters.view_weights.sum() == pytest.approx(1.0)


def test_a_view_that_the_site_lacks_keeps_its_centres(model):
    views = replace(check_views([site(1, shift=1.0)[0], site(1)[1]]), tables=(site(1, shift=1.0)[0], None))
    found = personalise(Rows(views, model.references), model.parameters, Wanted(), learn_weights=True)
    assert_allclose(found.parameters.centers[1], model.parameters.centers[1], atol=1e-12)
    assert found.shift > 0.5


# --------------------------------------------------------------------------------------------------------- shares


@given(st.integers(0, 2**32 - 1), st.floats(0, 3))
@settings(max_examples=50)
def test_shares_are_shares_and_chance_is_hardly_ever_confirmed(seed, size):
    rng = np.random.default_rng(seed)
    first, second = (size * rng.normal(size=(4, 60)) for _ in range(2))
    weight = rng.uniform(0, 2, (4, 60))
    assert 0 <= agreement((first, weight), (second, weight)) <= 0.35
    both = rng.normal(size=(4, 60))
    assert 0.7 < agreement((both, weight), (both, weight)) <= 1


def test_shares_by_hand():
    ones = np.ones(100)
    # half of the move is asked for, and cells are each half off that: an error of sqrt(100 / 4) / 100
    asked = np.repeat([1.0, 0.0], 50)
    assert confirmed([(ones, asked, ones)], 1.0) == pytest.approx(0.5 - 0.05)
    assert confirmed([(ones, asked, ones)], 3.0) == pytest.approx(0.5 - 0.15)
    assert confirmed([(ones, asked, ones)] * 2, 1.0) == pytest.approx(0.45)  # the same again says nothing new
    assert confirmed([(ones, 0.3 * ones, ones)], 9.0) == pytest.approx(0.3)  # all cells agree: nothing is uncertain
    assert confirmed([(ones, -ones, ones)], 1.0) == confirmed([(0 * ones, asked, ones)], 1.0) == 0.0
    assert agreement((ones[:4], ones[:4]), (ones[:4], ones[:4])) == 1.0
    assert agreement((ones[:1], ones[:1]), (ones[:1], ones[:1])) == 0.0  # one number leaves nothing over
    # halves that ask for 1 and 3 in turn: 0.6 is confirmed, and weight, number and what is left make 2.4 or -2.4
    one, three = np.tile([1.0, 3.0], 50), np.tile([3.0, 1.0], 50)
    off = 2 * np.sqrt(50 * (2.4**2 + 2.4**2)) / (2 * 50 * 10)
    assert agreement((one, ones), (three, ones)) == pytest.approx(of_all_rows(0.6 - 2 * off * np.sqrt(100 / 99)))
    assert of_all_rows(0.5) == pytest.approx(2 / 3)


# ----------------------------------------------------------------------------------------------------- view weights


class TestViewWeights:
    def statistics(self, model, costs, rows=100.0):
        p = model.parameters
        zeros = tuple(np.zeros_like(a) for a in p.centers)
        return Statistics(zeros, zeros, np.asarray(costs, float), np.zeros(3), 0.0, rows)

    def common(self, model, weights=(0.7, 0.3)):
        return replace(model.parameters, view_weights=np.array(weights), view_shares=np.ones(2), view_exponent=2.0)

    def test_a_pull_goes_from_the_sites_own_to_the_global_ones(self, model):
        common, statistics = self.common(model), self.statistics(model, [4.0, 1.0])
        found = np.array([own_view_weights(common, statistics, pull)[0] for pull in (0, 1, 100, 1e4, 1e9)])
        assert_allclose(found[[0, -1]], [0.2, 0.7], atol=1e-6)
        assert np.all(np.diff(found) > 0)

    def test_as_many_rows_as_the_site_has_count_as_much_as_it(self, model):
        """With alpha = 2 the weights are 1 / cost, so that costs of own and pulling rows simply add."""
        common, statistics = self.common(model), self.statistics(model, [4.0, 1.0])
        per_row = (0.49 * 4 + 0.09 * 1) / 100
        costs = np.array([4.0, 1.0]) + 100 * per_row / np.array([0.7, 0.3])
        assert_allclose(own_view_weights(common, statistics, 100.0), (1 / costs) / np.sum(1 / costs))

    @given(st.integers(0, 2**32 - 1), st.floats(1.2, 6))
    @settings(max_examples=50)
    def test_the_pulled_weights_minimise_the_objective_with_r_view(self, model, seed, alpha):
        rng = np.random.default_rng(seed)
        common = replace(self.common(model, rng.dirichlet([3, 3])), view_exponent=alpha)
        statistics, pull = self.statistics(model, rng.uniform(0.5, 5, 2)), rng.uniform(0, 300)

        def total(weights):
            moved = replace(common, view_weights=weights)
            return moved.view_factors @ statistics.costs + pull * view_distance(common, weights, statistics)

        found = own_view_weights(common, statistics, pull)
        for other in rng.dirichlet([1, 1], 20):
            assert total(found) <= total(found + 0.1 * (other - found)) + 1e-9

    def test_distance_is_the_papers_where_alpha_is_2(self, model):
        common, statistics = self.common(model), self.statistics(model, [4.0, 1.0])
        weights = np.array([0.5, 0.5])
        per_row = (0.49 * 4 + 0.09 * 1) / 100
        expected = per_row * np.sum((weights - common.view_weights) ** 2 / common.view_weights)
        assert view_distance(common, weights, statistics) == pytest.approx(expected)
        assert view_distance(common, common.view_weights, statistics) == pytest.approx(0, abs=1e-15)

    def test_a_view_without_weight_or_without_rows_keeps_its_weight(self, model):
        nothing = own_view_weights(self.common(model, (1.0, 0.0)), self.statistics(model, [4.0, 1.0]), 10.0)
        assert_allclose(nothing, [1.0, 0.0])
        lacking = own_view_weights(self.common(model), self.statistics(model, [4.0, 0.0]), 10.0)
        assert_allclose(lacking, [0.7, 0.3])

    def test_reach_the_model(self, model):
        views = site(1, shift=0.5)
        noisy = [views[0], np.random.default_rng(0).normal(size=views[1].shape)]
        shares = [own(model, noisy, learn_weights=True, view_pull=pull)[0] for pull in (1e-6, 100.0, 1e9)]
        rhos = [found.view_weights for found in shares]
        assert rhos == sorted(rhos, reverse=True)
        assert rhos[0] > 0.999
        assert rhos[-1] < 1e-3
        distances = [found.view_distance for found in shares]
        assert distances == sorted(distances, reverse=True)
        assert own(model, noisy, view_pull=1.0)[0].view_weights == 0.0  # not learned, so not pulled


# -------------------------------------------------------------------------------------------------------- low rank


@pytest.fixture(scope="module", params=[("tucker", (2, 3, 2)), ("parafac2", (2,))], ids=["tucker", "parafac2"])
def formed(request, model):
    """The common model in a form whose rank binds."""
    parameters = constrain(model.parameters, *request.param, model.view_names)
    assert not parameters.form.free
    return replace(model, parameters=parameters)


def turned(model, part, seed=0, size=0.6):
    """The common form with one of its parts moved, and the moves of the centres that rows of it would ask for."""
    form = model.parameters.form
    rng, kind = np.random.default_rng(seed), form.decomposition
    factors = kind.canonical(form.factors)
    core = list(kind.core(factors))
    names = (
        ("core", "cluster_factor", "view_factor")
        if kind.name == "Tucker"
        else ("cluster_factor", "core", "view_factor")
    )
    place = names.index(part)
    core[place] = core[place] + size * np.std(core[place]) * rng.normal(size=core[place].shape)
    moved = kind.assemble(kind.basis(factors), core, [len(b) for b in form.bases])
    return np.hstack(kind.reconstruct(moved)) - np.hstack(form.centers())


class TestForms:
    def asked(self, move, seed, noise=0.02, weight=50.0):
        rng = np.random.default_rng(seed)
        halves = [(move + noise * rng.normal(size=move.shape), np.full(move.shape, weight)) for _ in range(2)]
        return halves, ((halves[0][0] + halves[1][0]) / 2, np.full(move.shape, 2 * weight))

    @pytest.mark.parametrize("part", ["core", "cluster_factor", "view_factor"])
    def test_follow_rows_that_agree(self, formed, part):
        form, move = formed.parameters.form, turned(formed, part)
        found = own_form(form, *self.asked(move, 1, noise=0.1 * np.std(move)), None, None)
        step = np.hstack(found.form.centers()) - np.hstack(form.centers())
        assert np.sum((step - move) ** 2) < 0.5 * np.sum(move**2)
        assert max(found.shares) > 0.3
        assert found.form.rank == form.rank

    def test_stay_where_halves_only_agree_by_chance(self, formed):
        form = formed.parameters.form
        nothing = np.zeros_like(np.hstack(form.centers()))
        shares = [own_form(form, *self.asked(nothing, seed, noise=0.1), None, None).shares for seed in range(8)]
        assert np.mean(shares) <= 0.1

    def test_fixed_shares_are_taken_and_0_is_the_common_form(self, formed):
        form, move = formed.parameters.form, turned(formed, "cluster_factor")
        halves, whole = self.asked(move, 1)
        assert own_form(form, halves, whole, 0.0, None).form is form
        steps = [
            np.sum(
                (np.hstack(own_form(form, halves, whole, share, None).form.centers()) - np.hstack(form.centers())) ** 2
            )
            for share in (0.3, 0.7, 1.0)
        ]
        assert steps == sorted(steps)
        assert own_form(form, halves, whole, 0.3, None).shares == (0.3,) * 4
        all_of_it = own_form(form, halves, whole, 1.0, None).form
        step = np.hstack(all_of_it.centers()) - np.hstack(form.centers())
        assert_allclose(step, move, atol=0.15 * np.abs(move).max())

    def test_a_pull_holds_them_back(self, formed):
        form, move = formed.parameters.form, turned(formed, "cluster_factor")
        halves, whole = self.asked(move, 1)
        sizes = [
            np.sum(
                (np.hstack(own_form(form, halves, whole, None, pull).form.centers()) - np.hstack(form.centers())) ** 2
            )
            for pull in (0.0, 100.0, 1e9)
        ]
        assert sizes[0] > 1.5 * sizes[1] > 0
        assert sizes[2] < 1e-6 * sizes[0]

    def test_too_few_rows_to_hold_out_any_are_not_followed(self, formed):
        form, move = formed.parameters.form, turned(formed, "core")
        assert own_form(form, (), self.asked(move, 1)[1], None, None).form is form
        found, _ = own(formed, site(0, LEAST_ROWS - 1, shift=3.0))
        assert set(found.parts.values()) == {0.0}

    def test_a_site_keeps_the_form_and_reads_its_rows_without_its_offset(self, formed):
        views = site(1, shift=0.8)
        found, rows = own(formed, views)
        assert found.shift > 0.5
        assert set(found.parts) == set(PARTS)
        assert found.parameters.form.rank == formed.parameters.form.rank
        for mine, formed_centers in zip(found.parameters.centers, found.parameters.form.centers(), strict=True):
            assert_array_equal(mine, formed_centers)
        moved = [b.shift - a.shift for a, b in zip(rows.references, found.rows.references, strict=True)]
        assert_allclose(np.concatenate(moved), 0.8 * found.shift, atol=0.35)
        unseen = Rows(check_views(site(2, shift=0.8)), formed.references)
        with Passes(unseen, 3, 1) as scan:
            before = scan.statistics(formed.parameters).objective
        with Passes(replace(unseen, references=found.rows.references), 3, 1) as scan:
            assert scan.statistics(found.parameters).objective < 0.9 * before

    def test_coefficients_that_depend_on_the_frame_leave_an_offset_in_the_centres(self, formed):
        references = tuple(replace(r, heat_coef="absdev") for r in formed.references)
        found, rows = own(replace(formed, references=references), site(1, shift=0.8))
        assert found.shift > 0
        assert found.parameters.form is None
        assert found.rows.references == rows.references

    def test_a_rank_that_constrains_nothing_changes_nothing_but_keeps_its_name(self, model):
        free = constrain(model.parameters, "tucker", (3, 6, 2), model.view_names)
        assert free.form.free
        views = site(1, shift=0.8)
        plain, _ = own(replace(model, parameters=replace(free, form=None)), views)
        found, _ = own(replace(model, parameters=free), views)
        assert not found.parts
        for a, b in zip(plain.parameters.centers, found.parameters.centers, strict=True):
            assert_array_equal(a, b)
        for a, b in zip(found.parameters.form.centers(), found.parameters.centers, strict=True):
            assert_allclose(a, b, atol=1e-9)


class TestCalibration:
    def references(self, model, views, calibration):
        moments = site_moments(check_views(views), list(model.widths), "standard", None)
        frame = site_frame(moments, model.references)
        return calibrated(model.references, frame, len(views[0]), calibration)

    def test_none_changes_nothing(self, model):
        same = self.references(model, site(1, shift=2.0), Calibration(0.0, 0.0, (1.0, 1.0), False))
        for one, other in zip(same, model.references, strict=True):
            assert_array_equal(one.shift, other.shift)
            assert_allclose(one.scale, other.scale)

    def test_all_of_it_brings_moved_and_stretched_rows_to_one_frame(self, model):
        plain = site(1)
        moved = [3.0 * view + 7.0 for view in plain]
        whole = Calibration(1.0, 1.0, (1.0, 1.0), True)
        for view, (one, other) in enumerate(
            zip(self.references(model, plain, whole), self.references(model, moved, whole), strict=True)
        ):
            assert_allclose(one.to_model(plain[view]), other.to_model(moved[view]), atol=0.12)

    def test_survives_a_message(self):
        calibration = Calibration(1.0, 0.5, (0.9, 1.1), True)
        assert Calibration.from_list(calibration.to_list()) == calibration
