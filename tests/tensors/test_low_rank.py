"""Low-rank centres: the constrained step lowers J at every rank and reads nothing that has no weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from fedhk import HeatKernelMVC, datasets
from fedhk.model.descent import improve
from fedhk.model.passes import Passes
from fedhk.model.statistics import Statistics
from fedhk.tensors import DECOMPOSITIONS, weighted_error
from fedhk.tensors.low_rank import LowRank, constrain

NAMES = sorted(DECOMPOSITIONS)

STEP_SWEEPS = 3  # see `short_first_fit`
pytestmark = pytest.mark.usefixtures("short_first_fit")


def possible_rank(name, rng, n_clusters, widths):
    """A rank that the form can have, drawn at random."""
    largest = {}
    for limit in DECOMPOSITIONS[name].limits(n_clusters, widths):
        largest[limit.mode] = min(limit.largest, largest.get(limit.mode, limit.largest))
    return tuple(int(rng.integers(1, size + 1)) for size in largest.values())


def never_rises(objectives):
    """Up to rounding: J is a sum of 1 - exp(-phi) over at most some dozens of rows, each right to about 1e-16."""
    objectives = np.asarray(objectives)
    return np.all(np.diff(objectives) <= 1e-10 * objectives[:-1] + 1e-14)


@st.composite
def fits(draw):
    """An estimator with centres of low rank, and views with gaps."""
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
    ranks = {"auto": "auto", "fraction": 0.8, "given": possible_rank(name, rng, n_clusters, widths)}
    weights = draw(st.sampled_from(["uniform", "learned", "given"]))
    given_init = draw(st.sampled_from([True, True, True, False]))
    return views, HeatKernelMVC(
        n_clusters,
        decomposition=name,
        rank=ranks[chosen],
        heat_coef=draw(st.sampled_from(["uniform", "minmax", "absdev"])),
        heat_time=draw(st.sampled_from([0.05, 0.3, 2.0])),
        view_weights=rng.dirichlet(np.ones(len(widths))) if weights == "given" else weights,
        fuzzifier=draw(st.sampled_from([1.05, 1.5, 2.0])),
        init=[rng.normal(size=(n_clusters, width)) * 3 for width in widths] if given_init else "k-means++",
        n_init=1,
        tol=0,
        max_iter=7,
        random_state=0,
    )


@given(fits())
@settings(max_examples=80)
def test_the_objective_never_rises_at_any_rank(case):
    views, model = case
    model.fit(views)
    assert len(model.history_) == 7
    assert never_rises([record["objective"] for record in model.history_] + [model.objective_])
    form = model._model.parameters.form
    assert model.rank_ == form.rank
    if isinstance(model.rank, tuple):
        assert model.rank_ == model.rank
    assert 0 <= model.reconstruction_error_ <= 1 + 1e-9
    for built, kept in zip(form.centers(), model._model.parameters.centers, strict=True):
        assert_allclose(built, kept, rtol=0, atol=1e-9)


@given(cases(), st.sampled_from(NAMES), st.booleans())
@settings(max_examples=40)
def test_one_step_from_anywhere_lowers_the_objective(case, name, learn):
    rng = np.random.default_rng(0)
    names = [f"view_{h}" for h in range(len(case.parameters.centers))]
    widths = [centers.shape[1] for centers in case.parameters.centers]
    rank = possible_rank(name, rng, case.parameters.n_clusters, widths)
    start = constrain(case.parameters, name, rank, names)
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
        low_rank = LowRank(name, form.initial(targets, rank=rank), 0.0)
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
        one = form.reconstruct(form.step(low_rank.factors, targets, weights))
        other = form.reconstruct(form.step(low_rank.factors, changed, weights))
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
        whole = weighted_error([np.zeros_like(target) for target in moved], moved, scaled)
        assert after.error == pytest.approx(errors[1] / whole, abs=1e-12)


@pytest.mark.parametrize(("name", "rank"), FORMS)
def test_a_form_survives_its_arrays(problem, name, rank):
    low_rank, _, _ = problem(name, rank)
    again = LowRank.from_arrays(*low_rank.to_arrays())
    assert (again.name, again.rank, again.error, again.free) == (name, rank, low_rank.error, low_rank.free)
    for one, other in zip(again.centers(), low_rank.centers(), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize(("name", "rank"), FORMS[:3])
def test_a_form_in_a_basis_that_holds_it_is_the_same_form(problem, name, rank):
    low_rank, _, _ = problem(name, rank)
    rng = np.random.default_rng(2)
    basis = [np.linalg.qr(np.hstack([b, rng.normal(size=(len(b), len(b)))]))[0][:, : len(b)] for b in low_rank.bases]
    inside = low_rank.compressed(basis)
    for a, b, e in zip(inside.centers(), low_rank.centers(), basis, strict=True):
        assert_allclose(a, b @ e, rtol=0, atol=1e-12)
    for a, b in zip(inside.expanded(basis).centers(), low_rank.centers(), strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def data():
    return datasets.make_sites(1, 90, n_clusters=3, n_features=(9, 7, 6), shift=0, separation=4, random_state=1)


FULL = [("tucker", (3, 9, 3)), ("tucker", (3, 3, 3)), ("tucker", 9), ("parafac2", 6), ("cp", 9)]


@pytest.mark.parametrize("heat_coef", ["uniform", "absdev"])
@pytest.mark.parametrize(("name", "rank"), FULL)
def test_full_rank_is_no_constraint(data, name, rank, heat_coef):
    views = [view.copy() for view in data.views]
    views[1][np.random.default_rng(0).random(views[1].shape) < 0.2] = np.nan
    shared = {"n_clusters": 3, "heat_coef": heat_coef, "view_weights": "learned", "n_init": 1, "random_state": 0}
    free = HeatKernelMVC(**shared).fit(views)
    full = HeatKernelMVC(**shared, decomposition=name, rank=rank).fit(views)
    for one, other in zip(full.cluster_centers_, free.cluster_centers_, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-7)
    assert_allclose(full.view_weights_, free.view_weights_, rtol=0, atol=1e-7)
    assert full.objective_ == pytest.approx(free.objective_, rel=1e-7)
    assert_array_equal(full.labels_, free.labels_)
    assert full.reconstruction_error_ == pytest.approx(0, abs=1e-12)
    assert full._model.parameters.form.free


def test_more_rank_loses_less(data):
    errors = {}
    start = [view[:3] for view in data.views]
    for name, ranks in (("tucker", [(1, 1, 1), (2, 2, 2), (3, 3, 3)]), ("parafac2", [1, 3, 6]), ("cp", [1, 4, 9])):
        models = [
            HeatKernelMVC(3, decomposition=name, rank=rank, init=start, max_iter=8).fit(data.views) for rank in ranks
        ]
        errors[name] = [model.reconstruction_error_ for model in models]
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
            HeatKernelMVC(3, decomposition=name, rank=rank, n_init=1).fit(data.views)

    @pytest.mark.parametrize(
        "rank", [0, -1, 1.5, 1.0, "big", True, False, np.nan, (0, 1, 1), (1, 1.5, 1), (), (True, 1, 1)]
    )
    @pytest.mark.parametrize("name", NAMES)
    def test_no_number_of_dimensions(self, data, name, rank):
        with pytest.raises(ValueError, match="rank") as caught:
            HeatKernelMVC(3, decomposition=name, rank=rank, n_init=1).fit(data.views)
        said = str(caught.value)
        assert f"rank={rank!r} must be" in said or f"Got {rank!r} instead" in said

    def test_an_unknown_form(self, data):
        with pytest.raises(ValueError, match="'decomposition'"):
            HeatKernelMVC(3, decomposition="tt").fit(data.views)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", ["auto", 1])
@pytest.mark.parametrize(
    ("n_clusters", "widths"), [(3, (5,)), (3, (1,)), (3, (1, 6)), (1, (4, 5)), (1, (1,)), (4, (2, 2, 2))]
)
def test_small_shapes(name, rank, n_clusters, widths):
    rng = np.random.default_rng(0)
    views = [rng.normal(size=(20, width)) for width in widths]
    model = HeatKernelMVC(n_clusters, decomposition=name, rank=rank, n_init=1, max_iter=3, tol=0, random_state=0)
    model.fit(views)
    assert never_rises([record["objective"] for record in model.history_] + [model.objective_])
    assert [centers.shape for centers in model.cluster_centers_] == [(n_clusters, width) for width in widths]
    assert model.reconstruction_error_ <= 1


def test_a_choice_of_the_number_of_clusters_keeps_the_form(data):
    model = HeatKernelMVC([2, 3], decomposition="tucker", rank=0.9, n_init=1, random_state=0).fit(data.views)
    assert model.cluster_factor_.shape[0] == model.n_clusters_ == len(model.cluster_centers_[0])


def test_rows_on_the_centres_cost_nothing():
    """Every row is a centre: J is 0, and nothing moves."""
    views = [np.repeat(np.eye(3), 4, axis=0), np.repeat(np.array([[0.0], [1.0], [2.0]]), 4, axis=0)]
    for name in ("tucker", "cp"):  # PARAFAC2 can have no more components than the narrow view has features
        model = HeatKernelMVC(3, decomposition=name, rank="auto", n_init=3, max_iter=4, tol=0, random_state=0)
        assert model.fit(views).objective_ < 1e-12
        assert never_rises([record["objective"] for record in model.history_])


def test_the_same_seed_gives_the_same_bits(data):
    for name in NAMES:
        model = HeatKernelMVC(3, decomposition=name, rank=2, n_init=1, max_iter=3, random_state=0)
        one, other = (model.fit(data.views).cluster_centers_ for _ in range(2))
        for a, b in zip(one, other, strict=True):
            assert_array_equal(a, b)
