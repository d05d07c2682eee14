"""What is a site's own besides its centres: its scale, how frequent clusters are, and which start suits all sites."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from fedhk import HeatKernelMVC, datasets
from fedhk.data.moments import row_lengths
from fedhk.data.views import check_views
from fedhk.errors import MessageError
from fedhk.federation.plausible import check_makeup
from fedhk.model.cluster_summary import ClusterSummary, summarise_clusters
from fedhk.model.descent import improve
from fedhk.model.fitted import FittedModel
from fedhk.model.joint import SAMPLE_ROWS, joint_rows, take
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal import objective as judges
from fedhk.personal.objective import SiteTerms, global_objective, personal_objective
from fedhk.personal.personalise import LEAST_SIZE, Wanted, personalise
from fedhk.personal.site_spread import LEAST_SEEN, MOST_FACTOR, learned_spread
from fedhk.starts.candidates import Candidates, candidate_rows
from fedhk.starts.kmeans import plus_plus
from fedhk.starts.seeding import best_start


def scan(rows, parameters):
    with Passes(rows, parameters.n_clusters) as passes:
        return passes.statistics(parameters)


def assign(rows, parameters):
    with Passes(rows, parameters.n_clusters) as passes:
        return passes.assign(parameters)


def with_sizes(case, seed):
    sizes = np.exp(np.random.default_rng(seed).normal(size=case.parameters.n_clusters))
    return replace(case.parameters, sizes=sizes)


def slow_pass(case, parameters):
    """Memberships and sums of a model with sizes, from the formulas, in logarithms."""
    p, floor = parameters, np.finfo(np.float64).tiny * 1e3 * parameters.view_factors.sum()
    values, coefs, kernels = [], [], []
    for view, ref, centers in zip(case.views, case.rows.references, p.centers, strict=True):
        x = view / row_lengths(view)[:, None] if ref.unit_rows else view
        z = (x - ref.shift) / ref.scale
        coef = np.where(np.isnan(z), 0.0, ref.coefficients(z))
        z = np.nan_to_num(z)
        phi = p.heat_time * np.sum(coef[:, None] * (z[:, None] - centers) ** 2, axis=2)
        values.append(z)
        coefs.append(coef)
        kernels.append(np.expm1(-phi))
    distances = np.maximum(-sum(f * k for f, k in zip(p.view_factors, kernels, strict=True)), floor)
    logs = np.log(p.sizes) - np.log(distances) / (p.fuzzifier - 1)
    mu = np.exp(logs - logs.max(axis=1, keepdims=True))
    mu /= mu.sum(axis=1, keepdims=True)
    row = 1.0 if case.sample_weight is None else case.sample_weight[:, None]
    powers = row * p.sizes ** (1 - p.fuzzifier) * mu**p.fuzzifier
    sums = Statistics(
        tuple(np.einsum("nk,nd->kd", powers * (k + 1), c * z) for k, c, z in zip(kernels, coefs, values, strict=True)),
        tuple(np.einsum("nk,nd->kd", powers * (k + 1), c) for k, c in zip(kernels, coefs, strict=True)),
        np.array([-np.sum(powers * k) for k in kernels]),
        powers.sum(axis=0),
        float(np.sum(powers * distances)),
        case.rows.n_rows,
    )
    return mu, sums


class TestSizes:
    @given(cases(), st.integers(0, 2**32 - 1))
    @settings(max_examples=150)
    def test_pass_equals_the_formulas(self, case, seed):
        parameters = with_sizes(case, seed)
        mu, slow = slow_pass(case, parameters)
        fast, found = scan(case.rows, parameters), assign(case.rows, parameters)
        n = case.rows.n_rows * 3.0
        assert_allclose(found[0], mu, atol=1e-6)
        scale = 1e-9 * float(np.max(parameters.sizes ** (1 - parameters.fuzzifier)))
        assert_allclose(fast.objective, slow.objective, rtol=1e-8, atol=n * scale * parameters.view_factors.sum())
        assert found[2] == pytest.approx(fast.objective, rel=1e-8, abs=1e-290)
        for one, other in zip(
            (fast.costs, fast.masses, *fast.numerators), (slow.costs, slow.masses, *slow.numerators), strict=True
        ):
            assert_allclose(one, other, rtol=1e-6, atol=1e-3 * n * scale)
        for one, other in zip(fast.weights, slow.weights, strict=True):
            assert_allclose(np.broadcast_to(one, other.shape), other, rtol=1e-6, atol=1e-3 * n * scale)

    @given(cases(), st.integers(0, 2**32 - 1))
    @settings(max_examples=100)
    def test_objective_never_rises(self, case, seed):
        parameters, previous = with_sizes(case, seed), np.inf
        rounding = 1e-13 * float(parameters.view_factors.sum()) * 3 * case.rows.n_rows
        for _ in range(5):
            statistics = scan(case.rows, parameters)
            assert statistics.objective <= previous * (1 + 1e-10) + rounding
            previous = statistics.objective
            parameters = improve(parameters, statistics, learn_weights=True)

    @given(cases())
    @settings(max_examples=50)
    def test_equal_sizes_change_no_bit(self, case):
        alike = replace(case.parameters, sizes=np.ones(case.parameters.n_clusters))
        one, other = scan(case.rows, case.parameters), scan(case.rows, alike)
        assert one.objective == other.objective
        for a, b in zip((*one.numerators, *one.weights, one.costs), (*other.numerators, *other.weights, other.costs),
                        strict=True):  # fmt: skip
            assert_array_equal(a, b)
        assert_array_equal(assign(case.rows, case.parameters)[0], assign(case.rows, alike)[0])

    def test_a_row_between_two_clusters_goes_to_the_frequent_one_in_proportion(self):
        rows = plain_rows([[[-1.0], [0.0], [1.0]]])
        parameters = replace(two_clusters(-1.0, 1.0), sizes=np.array([3.0, 1.0]))
        memberships, labels, _ = assign(rows, parameters)
        assert_allclose(memberships[1], [0.75, 0.25])
        assert labels.tolist() == [0, 0, 1]

    def test_survive_a_file(self):
        parameters = replace(two_clusters(-1.0, 1.0), sizes=np.array([3.0, 1.0]))
        cluster_summary = ClusterSummary(np.array([2.0, 1.0]), np.array([0.5]), np.array([3.0]))
        rows = plain_rows([[[-1.0], [0.0], [1.0]]])
        model = FittedModel(parameters, rows.references, ("only",), (None,), cluster_summary)
        again = FittedModel.from_state(*model.to_state())
        assert_array_equal(again.parameters.sizes, parameters.sizes)
        assert_array_equal(again.cluster_summary.to_array(), cluster_summary.to_array())
        without = FittedModel.from_state(
            *replace(model, parameters=two_clusters(-1, 1), cluster_summary=None).to_state()
        )
        assert without.parameters.sizes is None
        assert without.cluster_summary is None


def plain_rows(views):
    """Rows that are in model units as they are."""
    checked = check_views([np.asarray(view, dtype=float) for view in views])
    references = prepare(checked, "none", "uniform", None)
    plain = [replace(r, shift=np.zeros(r.width), scale=np.ones(r.width)) for r in references]
    return Rows(checked, tuple(plain))


def two_clusters(first, second, fuzzifier=1.25):
    centers = np.array([np.atleast_1d(first), np.atleast_1d(second)], dtype=float)
    return Parameters((centers,), np.ones(1), 0.3, fuzzifier, 2.0, np.ones(1))


# ---------------------------------------------------------------------------------------------------- cluster summary


class TestMakeup:
    @given(cases(), st.randoms(use_true_random=False))
    @settings(max_examples=100)
    def test_adds_over_sites(self, case, random):
        labels = np.array([random.randrange(case.parameters.n_clusters) for _ in range(case.rows.n_rows)])
        which = np.array([random.randrange(3) for _ in range(case.rows.n_rows)])
        parts = [
            summarise_clusters(take(case.rows, np.flatnonzero(which == site)), case.parameters, labels[which == site])
            for site in range(3)
        ]
        whole = summarise_clusters(case.rows, case.parameters, labels)
        assert_allclose(reduce(add, (p.to_array() for p in parts)), whole.to_array(), rtol=1e-9, atol=1e-9)
        assert_array_equal(whole.counts, np.bincount(labels, minlength=case.parameters.n_clusters))
        assert whole.shares.sum() == pytest.approx(1.0)

    def test_by_hand(self):
        rows = plain_rows([[[-2.0], [0.0], [1.0]], [[np.nan], [4.0], [5.0]]])
        parameters = replace(two_clusters(-1.0, 1.0), centers=(np.array([[-1.0], [1.0]]), np.array([[0.0], [4.0]])))
        found = summarise_clusters(rows, parameters, np.array([0, 0, 1]))
        assert found.counts.tolist() == [2, 1]
        assert found.squares.tolist() == [1 + 1 + 0, 16 + 1]
        assert found.seen.tolist() == [3, 2]
        assert_allclose(found.variance, [2 / 3, 17 / 2])
        again = ClusterSummary.from_array(found.to_array(), 2)
        assert_array_equal(again.variance, found.variance)

    def test_a_sample_of_many_rows_stands_for_all(self):
        rng = np.random.default_rng(0)
        n = 3 * SAMPLE_ROWS
        rows = plain_rows([rng.normal(size=(n, 2)) * [1.0, 3.0]])
        parameters = two_clusters([0.0, 0.0], [9.0, 9.0])
        found = summarise_clusters(rows, parameters, np.zeros(n, int))
        assert found.counts.tolist() == [n, 0]
        assert_allclose(found.seen, n)
        assert_allclose(found.variance, [1, 9], rtol=0.1)

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"counts": np.array([8.0, 8.0])}, "more rows than the 10"),
            ({"seen": np.array([11.0])}, "more rows than the 10"),
            ({"squares": np.array([10 * 4 * 9.0 + 1])}, "further from their centres"),
        ],
    )
    def test_what_no_rows_can_have_is_refused(self, changed, said):
        fine = ClusterSummary(np.array([6.0, 4.0]), np.array([12.0]), np.array([10.0]))
        limits = (np.array([3.0]),)
        check_makeup(fine, 10, limits, "oslo")
        with pytest.raises(MessageError, match=said):
            check_makeup(replace(fine, **changed), 10, limits, "oslo")


# ------------------------------------------------------------------------------------------------------- spread


@pytest.fixture(scope="module")
def pool():
    """Rows of four clusters, their classes, the model of them, and its cluster_summary."""
    data = datasets.make_sites(1, 3000, n_clusters=4, n_features=(5, 4), shift=0, scale=0, class_mix=None,
                               random_state=0)  # fmt: skip
    model = HeatKernelMVC(4, random_state=0).fit(data.views)
    rows = Rows(check_views(data.views), model._model.references)
    return data, model, summarise_clusters(rows, model._model.parameters, model.labels_)


def site_rows(pool, seed, n=300, factors=None, *, clusters=None, change=None):
    """Some rows of the pool, features multiplied by factors and moved."""
    data, model, _ = pool
    rng = np.random.default_rng(seed)
    allowed = np.flatnonzero(np.isin(data.labels, clusters)) if clusters else np.arange(len(data.labels))
    chosen = rng.choice(allowed, n, replace=False)
    joint = np.hstack(data.views)[chosen]
    if factors is not None:
        joint = joint * factors + 0.5
    if change is not None:
        change(joint, rng)
    views = [joint[:, :5], joint[:, 5:]]
    return Rows(check_views(views), model._model.references)


def found_factors(pool, rows, seed=0):
    """By how much the site's references are wider than the common ones, and the share."""
    scaled, share = learned_spread(rows, pool[1]._model.parameters, pool[2], seed)
    pairs = zip(scaled.references, rows.references, strict=True)
    return np.concatenate([a.scale / b.scale for a, b in pairs]), share


class TestSpread:
    FACTORS = np.exp(np.linspace(-0.6, 0.6, 9))[[3, 7, 0, 5, 1, 8, 2, 6, 4]]

    def test_finds_the_factors(self, pool):
        for seed in range(4):
            found, share = found_factors(pool, site_rows(pool, seed, factors=self.FACTORS))
            assert share > 0.6
            assert_allclose(np.log(found) / share, np.log(self.FACTORS), atol=0.12)

    def test_is_about_nothing_where_sites_are_alike(self, pool):
        assert np.mean([found_factors(pool, site_rows(pool, seed))[1] for seed in range(10)]) <= 0.1

    def test_does_not_take_a_class_mix_for_a_scale(self, pool):
        rows = [site_rows(pool, seed, clusters=[seed % 4, (seed + 1) % 4]) for seed in range(8)]
        plain = [np.nanstd(joint_rows(r), axis=0) / np.std(joint_rows(site_rows(pool, 0, 2000)), axis=0) for r in rows]
        assert np.abs(np.log(plain)).max() > 0.3  # what the site's own spread would say
        for r in rows:
            assert_allclose(np.log(found_factors(pool, r)[0]), 0, atol=0.15)

    def test_finds_them_in_a_class_mix(self, pool):
        found, share = found_factors(pool, site_rows(pool, 1, factors=self.FACTORS, clusters=[0, 2]))
        assert share > 0.6
        assert_allclose(np.log(found) / share, np.log(self.FACTORS), atol=0.15)

    def test_finds_them_where_cells_are_missing(self, pool):
        def with_holes(joint, rng):
            joint[rng.random(joint.shape) < 0.3] = np.nan

        found, share = found_factors(pool, site_rows(pool, 1, factors=self.FACTORS, change=with_holes))
        assert share > 0.6
        assert_allclose(np.log(found) / share, np.log(self.FACTORS), atol=0.2)

    def test_leaves_features_alone_of_which_it_sees_nothing(self, pool):
        def poor(joint, rng):
            joint[:, 0] = 1.5  # constant
            joint[:, 1] = np.nan  # missing
            joint[LEAST_SEEN - 1 :, 2] = np.nan  # nearly so

        found, share = found_factors(pool, site_rows(pool, 1, factors=self.FACTORS, change=poor))
        assert share > 0.3
        assert_array_equal(found[:3], 1.0)
        assert_allclose(np.log(found[3:]) / share, np.log(self.FACTORS[3:]), atol=0.2)

    def test_no_factor_is_believed_beyond_a_limit(self, pool):
        found, _ = found_factors(pool, site_rows(pool, 1, factors=np.full(9, 100.0)))
        assert np.all(found <= MOST_FACTOR * (1 + 1e-12))

    def test_a_feature_that_is_constant_everywhere_stays_out(self):
        rng = np.random.default_rng(0)
        views = [np.column_stack([rng.normal(size=(60, 3)), np.full(60, 7.0)])]
        model = HeatKernelMVC(2, random_state=0).fit(views)
        rows = Rows(check_views(views), model._model.references)
        parameters = model._model.parameters
        cluster_summary = summarise_clusters(rows, parameters, model.labels_)
        scaled, _ = learned_spread(rows, parameters, cluster_summary, 0)
        assert np.isinf(scaled.references[0].scale[3])
        assert np.isfinite(joint_rows(scaled)).all()

    def test_small_sites_and_fixed_shares_have_the_common_scale(self, pool):
        model, cluster_summary = pool[1]._model, pool[2]
        few = personalise(
            site_rows(pool, 0, 9, self.FACTORS), model.parameters, Wanted(), cluster_summary, learn_weights=False
        )
        assert (few.spread, few.sizes) == (0.0, 0.0)
        rows = site_rows(pool, 0, 300, self.FACTORS)
        fixed = personalise(rows, model.parameters, Wanted(spread=0.0), cluster_summary, learn_weights=False)
        assert fixed.spread == 0.0
        assert fixed.rows.references is rows.references
        learned = personalise(rows, model.parameters, Wanted(), cluster_summary, learn_weights=False)
        assert learned.spread > 0.6


class TestOwnSizes:
    def personal(self, pool, rows, **wanted):
        return personalise(rows, pool[1]._model.parameters, Wanted(**wanted), pool[2], learn_weights=False)

    def test_are_those_of_the_site(self, pool):
        data, model, cluster_summary = pool
        own = self.personal(pool, site_rows(pool, 1, clusters=[0, 1]))
        assert own.sizes > 0.5
        there = np.bincount(model.labels_[np.isin(data.labels, [0, 1])], minlength=4) > 100
        assert there.sum() == 2
        counts = np.bincount(assign(own.rows, own.parameters)[1], minlength=4) / own.rows.n_rows
        asked = 1 + (own.parameters.sizes - 1) / own.sizes
        assert_allclose(asked * cluster_summary.shares, counts, atol=0.03)
        assert np.all(own.parameters.sizes[there] > 1.3)
        assert np.all(own.parameters.sizes[~there] < 0.6)

    def test_of_a_fuzzy_model_are_the_shares_of_its_memberships(self, pool):
        common = replace(pool[1]._model.parameters, fuzzifier=1.6)
        rows, nothing = site_rows(pool, 1, clusters=[0, 1]), {"shift": 0.0, "spread": 0.0, "centers": 0.0}
        own = personalise(rows, common, Wanted(sizes=1.0, **nothing), pool[2], learn_weights=False, passes=60)
        held = np.sum(assign(rows, own.parameters)[0] ** 1.6, axis=0)
        assert_allclose(own.parameters.sizes * pool[2].shares, held / held.sum(), atol=LEAST_SIZE)

    def test_no_cluster_is_ruled_out(self, pool):
        own = self.personal(pool, site_rows(pool, 2, clusters=[3]), sizes=1.0)
        assert own.sizes == 1.0
        assert own.parameters.sizes.min() == LEAST_SIZE

    def test_are_the_common_ones_where_sites_are_alike_or_nothing_is_wanted(self, pool):
        assert np.mean([self.personal(pool, site_rows(pool, seed)).sizes for seed in range(8)]) <= 0.1
        own = self.personal(pool, site_rows(pool, 1, clusters=[0, 1]), sizes=0.0)
        assert own.sizes == 0.0
        assert own.parameters.sizes is None

    def test_a_site_with_one_cluster_keeps_the_others_possible(self, pool):
        own = self.personal(pool, site_rows(pool, 2, clusters=[3]))
        memberships, labels, _ = assign(own.rows, own.parameters)
        assert np.isfinite(memberships).all()
        assert np.mean(labels == np.bincount(labels).argmax()) > 0.95
        # a row of another cluster that comes later still goes there
        others = site_rows(pool, 3, clusters=[0])
        there = assign(replace(others, references=own.rows.references), own.parameters)[1]
        assert np.mean(there != np.bincount(labels).argmax()) > 0.7


# -------------------------------------------------------------------------------------------------------- judge


# Two sites at y = FAR and y = -FAR, each with rows at x = -1 and x = 1: by y clusters are tighter, by x they mean more.
FAR = 1.05


@pytest.fixture(scope="module")
def crossed():
    rng = np.random.default_rng(0)
    corners = np.array([[-1, FAR], [1, FAR], [-1, -FAR], [1, -FAR]])
    points = np.repeat(corners, 15, axis=0) + rng.normal(scale=0.05, size=(60, 2))
    found = Candidates(points, np.full(60, 2.0), np.zeros((60, 1)))
    rows = candidate_rows([found], plain_rows([points]).references, ("only",))
    return rows, [take(rows, np.arange(0, 30)), take(rows, np.arange(30, 60))]


class TestJudge:
    BY_X = two_clusters([-1.0, 0.0], [1.0, 0.0], 1.0625)
    BY_Y = two_clusters([0.0, -FAR], [0.0, FAR], 1.0625)

    def test_prefers_what_sites_can_make_their_own(self, crossed):
        rows, sites = crossed
        assert scan(rows, self.BY_Y).objective < scan(rows, self.BY_X).objective
        assert personal_objective(sites, self.BY_X) < 0.5 * personal_objective(sites, self.BY_Y)

    def test_decides_between_starts(self, crossed):
        rows, sites = crossed
        template = replace(self.BY_X, centers=(np.zeros((2, 2)),))
        options = {"n_init": 10, "choose_weights": False, "choose_fuzzifier": False, "workers": 1}

        def start(judge):
            random_state = np.random.RandomState(0)
            return best_start(rows, template, plus_plus, random_state=random_state, judge=judge, **options).centers[0]

        plain, judged = start(None), start(partial(personal_objective, sites))
        assert np.argmax(np.abs(plain[0] - plain[1])) == 1
        assert np.argmax(np.abs(judged[0] - judged[1])) == 0

    def test_is_the_plain_objective_where_centres_cannot_move(self, crossed, monkeypatch):
        monkeypatch.setattr(judges, "PULL_ROWS", 1e12)
        wide = [replace(r, spread=np.full((30, 1), 0.3)) for r in crossed[1]]
        plain = sum(scan(r, self.BY_X).objective for r in wide)
        assert personal_objective(wide, self.BY_X) == pytest.approx(plain, rel=1e-6)

    def test_costs_what_the_move_costs(self, monkeypatch):
        """One row at distance 1 from the only centre, which five rows hold back."""
        monkeypatch.setattr(judges, "OWN_PASSES", 2)
        rows = candidate_rows(
            [Candidates(np.array([[1.0]]), np.ones(1), np.zeros((1, 1)))], plain_rows([[[1.0]]]).references, ("v",)
        )
        one = Parameters((np.zeros((1, 1)),), np.ones(1), 0.3, 1.25, 2.0, np.ones(1))
        kernel = np.exp(-0.3)
        moved = kernel / (kernel + 5)
        expected = 1 - np.exp(-0.3 * (1 - moved) ** 2) + 0.3 * 5 * moved**2
        assert personal_objective([rows], one) == pytest.approx(expected)


class TestGlobalObjective:
    def test_by_hand(self):
        sites = [SiteTerms(2.0, 10, 1.0, 0.0), SiteTerms(9.0, 30, 0.0, 6.0), SiteTerms(0.0, 0, 0.0, 0.0)]
        found = global_objective(sites, temperature=None, center_pull=4.0, view_pull=2.0)
        assert found["objective"] == pytest.approx(11 / 40)
        assert found["center_distance"] == pytest.approx(1 / 40)
        assert found["view_distance"] == pytest.approx(6 / 40)
        assert found["total"] == pytest.approx((11 + 4 * 1 + 2 * 6) / 40)

    def test_quality_weighs_by_the_mean_objective(self):
        sites = [SiteTerms(2.0, 10, 0.0, 0.0), SiteTerms(900.0, 3000, 0.0, 0.0)]
        weight = 1 / (1 + np.exp(-10 * 0.1))
        found = global_objective(sites, temperature=10.0, center_pull=0.0, view_pull=0.0)
        assert found["objective"] == pytest.approx(weight * 0.2 + (1 - weight) * 0.3)
