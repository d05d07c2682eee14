"""Low-rank centres: the constrained step lowers J at every rank and reads nothing that has no weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from fedhk import datasets
from fedhk.data.scaling import make_scaling
from fedhk.data.views import check_views
from fedhk.federation.codec import pack, unpack
from fedhk.model.descent import improve, minimise
from fedhk.model.parameters import CenterForm, Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.starts.settings import Settings
from fedhk.tensors import DECOMPOSITIONS, CPFactors, LowRank, LowRankForm, LowRankParameters, weighted_error
from fedhk.tensors.low_rank import UnconstrainedInBasis
from fedhk.tensors.problem import WeightedCenters
from fedhk.testing.decompositions import random_rank

NAMES = sorted(DECOMPOSITIONS)

STEP_SWEEPS = 3  # see `short_first_fit`
pytestmark = pytest.mark.usefixtures("short_first_fit")


@dataclass(frozen=True)
class Fit:
    """A fit at one site: the parameters, J before every iteration and at the end, labels, centres in input units."""

    parameters: Any
    objectives: list[float]
    labels: np.ndarray
    centers: list[np.ndarray]


def fit(views, n_clusters, form, *, max_iter=300, tol=1e-5, **changes):
    """Fit centres of a form to the rows of one site."""
    chosen = {
        "heat_coef": "uniform",
        "scaling": make_scaling("standard"),
        "heat_time": 0.3,
        "fuzzifier": None,
        "view_weights": "auto",
        "view_exponent": 2.0,
        "init": "k-means++",
        "n_init": 1,
    }
    made = Settings(n_clusters=n_clusters, form=form, **(chosen | changes))
    checked = check_views(views)
    rows = Rows(checked, prepare(checked, made.scaling, made.heat_coef, None))
    start = made.start(rows, np.random.RandomState(0), 1)
    with Passes(rows, n_clusters, 1) as scan:
        progress, history = minimise(
            scan.statistics, start, learn_weights=made.learn_weights, max_iter=max_iter, tol=tol
        )
        end = scan.statistics(progress.parameters).objective
        labels = scan.assign(progress.parameters)[1]
    centers = [r.to_input(a) for r, a in zip(rows.references, progress.parameters.centers, strict=True)]
    return Fit(progress.parameters, [record["objective"] for record in history] + [end], labels, centers)


def never_rises(objectives):
    """Up to rounding: J is a sum of 1 - exp(-phi) over at most some dozens of rows, each right to about 1e-16."""
    objectives = np.asarray(objectives)
    return np.all(np.diff(objectives) <= 1e-10 * objectives[:-1] + 1e-14)


@st.composite
def fits(draw):
    """Views with gaps, a low-rank form of the centres, and what else is chosen."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_clusters = draw(st.integers(1, 5))
    widths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    n_rows = draw(st.integers(max(n_clusters, 4), 40))
    middle = 3 * rng.normal(size=(n_clusters, sum(widths)))
    joint = middle[rng.integers(n_clusters, size=n_rows)] + rng.normal(size=(n_rows, sum(widths)))
    views = list(np.split(joint, np.cumsum(widths)[:-1], axis=1))
    if draw(st.booleans()):
        for view in views[1:] if len(views) > 1 else views:
            view[rng.random(view.shape) < 0.2] = np.nan
            view[0] = np.nan_to_num(view[0])
        if len(views) > 1:
            views[-1][1 + np.flatnonzero(rng.random(n_rows - 1) < 0.3)] = np.nan
    name = draw(st.sampled_from(NAMES))
    chosen = draw(st.sampled_from(["auto", "fraction", *["given"] * 6]))
    ranks = {"auto": "auto", "fraction": 0.8, "given": random_rank(DECOMPOSITIONS[name], rng, n_clusters, widths)}
    weights = draw(st.sampled_from(["uniform", "learned", "given"]))
    given_init = draw(st.sampled_from([True, True, True, False]))
    changes = {
        "heat_coef": draw(st.sampled_from(["uniform", "minmax", "absdev"])),
        "heat_time": draw(st.sampled_from([0.05, 0.3, 2.0])),
        "view_weights": tuple(rng.dirichlet(np.ones(len(widths))).tolist()) if weights == "given" else weights,
        "fuzzifier": draw(st.sampled_from([1.05, 1.5, 2.0])),
        "init": tuple(rng.normal(size=(n_clusters, width)) * 3 for width in widths) if given_init else "k-means++",
    }
    return views, n_clusters, LowRankForm(name, ranks[chosen]), changes


@given(fits())
@settings(max_examples=80)
def test_the_objective_never_rises_at_any_rank(case):
    views, n_clusters, asked, changes = case
    found = fit(views, n_clusters, asked, max_iter=7, tol=0, **changes)
    assert len(found.objectives) == 8
    assert never_rises(found.objectives)
    form = found.parameters.form
    if isinstance(asked.rank, tuple):
        assert form.rank == asked.rank
    assert 0 <= form.error <= 1 + 1e-9
    for built, kept in zip(form.centers(), found.parameters.centers, strict=True):
        assert_allclose(built, kept, rtol=0, atol=1e-9)


@given(cases(), st.sampled_from(NAMES), st.booleans())
@settings(max_examples=40)
def test_one_step_from_anywhere_lowers_the_objective(case, name, learn):
    rng = np.random.default_rng(0)
    names = [f"view_{h}" for h in range(len(case.parameters.centers))]
    widths = [centers.shape[1] for centers in case.parameters.centers]
    rank = random_rank(DECOMPOSITIONS[name], rng, case.parameters.n_clusters, widths)
    start = LowRankForm(name, rank).constrain(case.parameters, names)
    with Passes(case.rows, case.parameters.n_clusters, 1) as scan:
        before = scan.statistics(start)
        after = scan.statistics(improve(start, before, learn_weights=learn))
    assert never_rises([before.objective, after.objective])


@pytest.fixture
def problem():
    """A form, and statistics at its centres of which some cells and one cluster of a view have no weight."""

    def make(name, rank, seed=0, widths=(6, 4, 5), n_clusters=4):
        rng = np.random.default_rng(seed)
        targets = [rng.normal(size=(n_clusters, width)) for width in widths]
        form = DECOMPOSITIONS[name]
        low_rank = LowRank(name, form.fit(targets, rank=rank), 0.0)
        weights = [rng.uniform(0.1, 2.0, (n_clusters, width)) for width in widths]
        for weight in weights:
            weight[rng.random(weight.shape) < 0.25] = 0.0
        weights[1][2] = 0.0
        return low_rank, targets, weights

    return make


def statistics_of(targets, weights):
    n_views = len(targets)
    numerators = tuple(t * w for t, w in zip(targets, weights, strict=True))
    return Statistics(numerators, tuple(weights), np.ones(n_views), np.ones(len(targets[0])), 1.0, 1.0)


FORMS = [("tucker", (3, 3, 2)), ("tucker", (4, 6, 3)), ("parafac2", (3,)), ("cp", (4,))]


@pytest.mark.parametrize(("name", "rank"), FORMS)
class TestWithoutWeight:
    def test_targets_without_weight_change_no_bit(self, problem, name, rank):
        low_rank, targets, weights = problem(name, rank)
        form, changed = low_rank.decomposition, [target.copy() for target in targets]
        for target, weight in zip(changed, weights, strict=True):
            target[weight == 0] = np.random.default_rng(1).choice(
                [np.nan, np.inf, 1e300, -7.0], int((weight == 0).sum())
            )
        one = form.step(low_rank.factors, targets, weights).centers()
        other = form.step(low_rank.factors, changed, weights).centers()
        for a, b in zip(one, other, strict=True):
            assert_array_equal(a, b)

    def test_sums_without_weight_change_no_bit(self, problem, name, rank):
        """What rounding leaves in a numerator whose weight is next to nothing is not divided by it."""
        low_rank, targets, weights = problem(name, rank)
        statistics, previous = statistics_of(targets, weights), low_rank.centers()
        numerators = [n.copy() for n in statistics.numerators]
        for numerator, weight in zip(numerators, weights, strict=True):
            numerator[weight == 0] = 3.0
        noise = [np.where(w == 0, 1e-16, w) for w in weights]
        changed = Statistics(tuple(numerators), tuple(noise), np.ones(3), np.ones(4), 1.0, 1.0)
        factors = np.array([0.2, 0.5, 0.3])
        one, other = (low_rank.step(s, previous, factors) for s in (statistics, changed))
        for a, b in zip(one.centers(), other.centers(), strict=True):
            assert_array_equal(a, b)
        assert one.error == other.error

    def test_without_any_weight_the_centres_stay(self, problem, name, rank):
        low_rank, targets, weights = problem(name, rank)
        nothing = statistics_of(targets, [0 * weight for weight in weights])
        after = low_rank.step(nothing, low_rank.centers(), np.ones(3))
        for a, b in zip(after.centers(), low_rank.centers(), strict=True):
            assert_allclose(a, b, rtol=0, atol=1e-12)

    def test_the_step_lowers_its_quadratic(self, problem, name, rank):
        low_rank, targets, weights = problem(name, rank)
        moved = [target + 0.3 for target in targets]
        factors = np.array([0.2, 0.5, 0.3])
        after = low_rank.step(statistics_of(moved, weights), low_rank.centers(), factors)
        scaled = [factor * weight for factor, weight in zip(factors, weights, strict=True)]
        errors = [weighted_error(form.centers(), moved, scaled) for form in (low_rank, after)]
        assert errors[1] <= errors[0] * (1 + 1e-12)
        means = [
            np.broadcast_to(np.sum(w * t, axis=0) / np.sum(w, axis=0), t.shape)
            for t, w in zip(moved, scaled, strict=True)
        ]
        assert after.error == pytest.approx(min(1.0, errors[1] / weighted_error(means, moved, scaled)), abs=1e-12)


def orthonormal_basis(rows, n_more, seed=2):
    """Orthonormal columns that span the rows of each view, and some more."""
    rng, found = np.random.default_rng(seed), []
    for part in rows:
        width = part.shape[1]
        both = np.hstack([part.T, rng.normal(size=(width, width))])
        found.append(np.linalg.qr(both)[0][:, : min(width, len(part) + n_more)])
    return found


def parameters_of(low_rank, n_views=3):
    weights = np.full(n_views, 1 / n_views)
    return LowRankParameters(low_rank.centers(), weights, 0.3, 1.1, 2.0, np.ones(n_views), np.ones(4), form=low_rank)


@pytest.mark.parametrize(("name", "rank"), [FORMS[0], FORMS[2]])
class TestParametersInABasis:
    def test_the_form_is_the_same_there_and_back(self, problem, name, rank):
        parameters = parameters_of(problem(name, rank)[0])
        basis = orthonormal_basis(parameters.spans(), 1)
        inner = parameters.in_basis(basis)
        assert inner.form.rank == rank
        for held, formed, whole, e in zip(inner.centers, inner.form.centers(), parameters.centers, basis, strict=True):
            assert_allclose(held, whole @ e, rtol=0, atol=1e-12)
            assert_allclose(formed, held, rtol=0, atol=1e-12)
        outer = inner.from_basis(basis)
        for held, formed, whole in zip(outer.centers, outer.form.centers(), parameters.centers, strict=True):
            assert_allclose(held, whole, rtol=0, atol=1e-12)
            assert_allclose(formed, whole, rtol=0, atol=1e-12)
        assert_array_equal(outer.sizes, parameters.sizes)

    def test_a_step_in_a_complete_basis_is_the_step_in_features(self, problem, name, rank):
        low_rank, targets, _ = problem(name, rank)
        parameters, weights = parameters_of(low_rank), [np.full((4, 1), 0.7) for _ in targets]
        basis = orthonormal_basis(parameters.spans(), 99)
        outer = parameters.move_centers(statistics_of(targets, weights))
        turned = [target @ e for target, e in zip(targets, basis, strict=True)]
        inner = parameters.in_basis(basis).move_centers(statistics_of(turned, weights)).from_basis(basis)
        for a, b in zip(inner.centers, outer.centers, strict=True):
            assert_allclose(a, b, rtol=0, atol=1e-9)
        assert inner.form.error == pytest.approx(outer.form.error, abs=1e-9)

    def test_parameters_without_their_form_are_plain(self, problem, name, rank):
        parameters = parameters_of(problem(name, rank)[0])
        plain = parameters.free()
        assert type(plain) is Parameters
        assert plain.free() is plain
        assert plain.centers is parameters.centers
        assert plain.sizes is parameters.sizes
        assert plain.spans() is plain.centers
        assert type(replace(parameters, heat_time=1.0)) is LowRankParameters


class TestARankThatConstrainsNothingInABasis:
    def test_centres_move_freely_and_the_form_is_found_again(self, problem):
        low_rank, targets, weights = problem("tucker", (4, 6, 3))
        parameters = parameters_of(low_rank)
        assert low_rank.free
        assert parameters.spans() is parameters.centers
        basis = orthonormal_basis(parameters.spans(), 1)
        inner = parameters.in_basis(basis)
        assert type(inner) is UnconstrainedInBasis
        assert type(inner.free()) is Parameters
        turned = [target @ e for target, e in zip(targets, basis, strict=True)]
        moved = inner.move_centers(statistics_of(turned, [np.full((4, 1), 0.7) for _ in weights]))
        for a, b in zip(moved.centers, turned, strict=True):
            assert_allclose(a, b, rtol=0, atol=1e-12)
        outer = moved.from_basis(basis)
        assert (outer.form.name, outer.form.rank, outer.form.error) == ("tucker", (4, 6, 3), 0.0)
        for formed, held in zip(outer.form.centers(), outer.centers, strict=True):
            assert_allclose(formed, held, rtol=0, atol=1e-9)


def test_views_with_one_common_basis_cannot_be_written_in_a_basis_each(problem):
    parameters = parameters_of(problem("cp", (4,))[0])
    with pytest.raises(ValueError, match="CP form cannot be written in a basis per view"):
        parameters.in_basis([np.eye(width) for width in (6, 4, 5)])


def test_a_form_has_a_known_name_and_its_own_factors(problem):
    low_rank, _, _ = problem("tucker", (3, 3, 2))
    with pytest.raises(ValueError, match=r"decomposition='tt' must be one of \['cp', 'parafac2', 'tucker'\]"):
        replace(low_rank, name="tt")
    with pytest.raises(ValueError, match="CPFactors are not factors of Tucker"):
        replace(low_rank, factors=CPFactors(*[np.ones((1, 1))] * 4, (1,)))


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(1, 90, n_clusters=3, n_features=(9, 7, 6), shift=0, separation=4, random_state=1)


FULL = [("tucker", (3, 9, 3)), ("tucker", (3, 3, 3)), ("tucker", 9), ("parafac2", 6), ("cp", 9)]


@pytest.mark.parametrize("heat_coef", ["uniform", "absdev"])
@pytest.mark.parametrize(("name", "rank"), FULL)
def test_full_rank_is_no_constraint(data, name, rank, heat_coef):
    views = [view.copy() for view in data.views]
    views[1][np.random.default_rng(0).random(views[1].shape) < 0.2] = np.nan
    free, full = (
        fit(views, 3, form, heat_coef=heat_coef, view_weights="learned")
        for form in (CenterForm(), LowRankForm(name, rank))
    )
    for one, other in zip(full.centers, free.centers, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-7)
    assert_allclose(full.parameters.view_weights, free.parameters.view_weights, rtol=0, atol=1e-7)
    assert full.objectives[-1] == pytest.approx(free.objectives[-1], rel=1e-7)
    assert_array_equal(full.labels, free.labels)
    assert full.parameters.form.error == pytest.approx(0, abs=1e-12)
    assert full.parameters.form.free
    assert type(free.parameters) is Parameters


def test_a_given_rank_says_whether_it_binds_and_one_to_be_chosen_cannot():
    size = 3, [9, 7, 6], ["a", "b", "c"]
    assert [LowRankForm(name, rank).binds(*size) for name, rank in FULL] == [False] * len(FULL)
    assert LowRankForm("tucker", (3, 2, 3)).binds(*size) is True
    assert [form.binds(*size) for form in (CenterForm(), LowRankForm("tucker"), LowRankForm("tucker", 0.9))] == [
        None
    ] * 3


def test_more_rank_loses_less(data):
    errors = {}
    start = tuple(view[:3] for view in data.views)
    for name, ranks in (("tucker", [(1, 1, 1), (2, 2, 2), (3, 3, 3)]), ("parafac2", [1, 3, 6]), ("cp", [1, 4, 9])):
        found = [fit(data.views, 3, LowRankForm(name, rank), init=start, max_iter=8) for rank in ranks]
        errors[name] = [one.parameters.form.error for one in found]
    for found in errors.values():
        assert found[0] > found[1] > found[2] - 1e-12
        assert found[2] == pytest.approx(0, abs=1e-12)


class TestRanksThatCannotBe:
    @pytest.mark.parametrize(
        ("name", "rank", "said"),
        [
            ("tucker", (4, 2, 2), "rank 4 of the cluster mode for Tucker is above the 3 clusters; at most 3"),
            ("tucker", (3, 10, 2), "rank 10 of the feature mode .* widest view, 'view_0' with 9 features; at most 9"),
            ("tucker", (3, 2, 4), "rank 4 of the view mode for Tucker is above the 3 views; at most 3"),
            ("tucker", 10, "rank 10 of the feature mode"),
            ("tucker", (3, 2), r"one number or 3 \(cluster, feature, view\), got 2: \(3, 2\)"),
            ("tucker", (3, 2, 2, 2), "got 4"),
            ("parafac2", 7, "rank 7 for PARAFAC2 is above .*; at most 6"),
            ("parafac2", (2, 2), r"must be one number, got 2: \(2, 2\)"),
            (
                "cp",
                10,
                "rank 10 for CP is above the components that 3 clusters, 9 features and 3 views can need; at most 9",
            ),
        ],
    )
    def test_the_mode_and_both_sizes_are_named(self, data, name, rank, said):
        with pytest.raises(ValueError, match=said):
            fit(data.views, 3, LowRankForm(name, rank))
        with pytest.raises(ValueError, match=said):
            LowRankForm(name, rank).binds(3, [9, 7, 6], ["view_0", "view_1", "view_2"])

    @pytest.mark.parametrize(
        "rank", [0, -1, 1.5, 1.0, "big", True, False, np.nan, (0, 1, 1), (1, 1.5, 1), (), (True, 1, 1)]
    )
    @pytest.mark.parametrize("name", NAMES)
    def test_no_number_of_dimensions(self, data, name, rank):
        with pytest.raises(ValueError, match="rank") as caught:
            fit(data.views, 3, LowRankForm(name, rank))
        assert repr(rank) in str(caught.value)

    def test_an_unknown_form(self):
        with pytest.raises(ValueError, match="decomposition='tt' must be one of"):
            LowRankForm("tt")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", ["auto", 1])
@pytest.mark.parametrize(
    ("n_clusters", "widths"), [(3, (5,)), (3, (1,)), (3, (1, 6)), (1, (4, 5)), (1, (1,)), (4, (2, 2, 2))]
)
def test_small_shapes(name, rank, n_clusters, widths):
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(20, width)) for width in widths]
    found = fit(views, n_clusters, LowRankForm(name, rank), max_iter=3, tol=0)
    assert never_rises(found.objectives)
    assert [centers.shape for centers in found.centers] == [(n_clusters, width) for width in widths]
    assert found.parameters.form.error <= 1


def test_rows_on_the_centres_cost_nothing():
    """Every row is a centre: J is 0, and nothing moves."""
    views = [np.repeat(np.eye(3), 4, axis=0), np.repeat(np.array([[0.0], [1.0], [2.0]]), 4, axis=0)]
    for name in ("tucker", "cp"):  # PARAFAC2 can have no more components than the narrow view has features
        found = fit(views, 3, LowRankForm(name), n_init=3, max_iter=4, tol=0)
        assert found.objectives[-1] < 1e-12
        assert never_rises(found.objectives)


def test_the_same_seed_gives_the_same_bits(data):
    for name in NAMES:
        one, other = (fit(data.views, 3, LowRankForm(name, 2), max_iter=3).centers for _ in range(2))
        for a, b in zip(one, other, strict=True):
            assert_array_equal(a, b)


class TestError:
    """What the form loses of free centres is said, also where rows have followed the centres that it allows."""

    def test_clusters_that_the_form_merged_are_lost_though_the_statistics_ask_for_no_others(self, problem):
        low_rank, targets, _ = problem("tucker", (1, 1, 1))
        weights = [np.ones((4, 1)) for _ in targets]
        free = WeightedCenters.of(targets, weights)
        start = replace(low_rank, free_gaps=free.gaps(targets))
        own = start.step(statistics_of(start.centers(), weights), start.centers(), np.ones(3))
        assert WeightedCenters.of(own.centers(), weights).lost(start.centers()) < 1e-9
        kept = np.minimum(free.gaps(own.centers()) / free.gaps(targets), 1.0)
        assert own.error == pytest.approx(1 - kept.mean(), abs=1e-12)
        assert own.error > 0.3

    def test_a_rank_that_constrains_nothing_loses_nothing_however_centres_move(self, problem):
        low_rank, targets, weights = problem("tucker", (4, 6, 3))
        start = replace(low_rank, free_gaps=np.full(4, 1e9))
        assert start.step(statistics_of(targets, weights), start.centers(), np.ones(3)).error < 1e-12

    def test_the_form_nearest_to_free_centres_loses_what_it_cannot_hold(self, data):
        start = fit(data.views, 3, CenterForm(), max_iter=1).parameters
        weights = [np.array([[3.0], [1.0], [2.0]]) for _ in start.centers]
        found = LowRankForm("tucker", (1, 1, 1)).constrain(
            replace(start, view_weights=np.ones(3)), ["a", "b", "c"], lambda: [statistics_of(start.centers, weights)]
        )
        assert found.form.error == pytest.approx(WeightedCenters.of(start.centers, weights).lost(found.centers))
        assert_allclose(found.form.free_gaps, WeightedCenters.of(start.centers, weights).gaps(start.centers))


def test_statistics_say_how_much_each_centre_matters(data):
    """Without statistics all centres matter alike; a centre with far more weight than others is kept better."""
    start = fit(data.views, 3, CenterForm(), max_iter=1).parameters
    heavy = [np.array([[1000.0], [1.0], [1.0]]) for _ in start.centers]
    form, names = LowRankForm("tucker", (2, 2, 2)), ["a", "b", "c"]
    alike, weighted = (
        form.constrain(start, names),
        form.constrain(start, names, lambda: [statistics_of(start.centers, heavy)]),
    )
    losses = [
        sum(float(np.sum((a[0] - b[0]) ** 2)) for a, b in zip(found.centers, start.centers, strict=True))
        for found in (alike, weighted)
    ]
    assert losses[1] < 0.1 * losses[0]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("name", "rank"), FORMS)
def test_parameters_with_a_form_survive_a_message_and_a_file(problem, name, rank, named):
    parameters = parameters_of(problem(name, rank)[0])
    several = [parameters]
    if parameters.form.free:
        several.append(parameters.in_basis(orthonormal_basis(parameters.spans(), 0)))
    for before in several:
        after = unpack(*pack(before, Parameters, named=named), Parameters)
        assert type(after) is type(before)
        for one, other in zip(after.centers, before.centers, strict=True):
            assert_array_equal(one, other)
    again, form = unpack(*pack(parameters, Parameters, named=named), Parameters).form, parameters.form
    assert (again.name, again.rank, again.error, again.free) == (name, rank, form.error, form.free)
    for one, other in zip(again.centers(), form.centers(), strict=True):
        assert_array_equal(one, other)
