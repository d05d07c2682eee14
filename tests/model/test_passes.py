"""The vectorised pass is the reference, adds over rows, and its updates only ever descend."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from threading import Barrier, Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_info

from cases import cases
from fedhk.data.row_forms import row_lengths
from fedhk.data.views import check_views
from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes, own_threads
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows, take
from fedhk.reference import model as reference


def scan(rows, parameters):
    with Passes(rows, parameters.n_clusters) as passes:
        return passes.statistics(parameters)


def memberships(rows, parameters):
    with Passes(rows, parameters.n_clusters) as passes:
        return passes.assign(parameters)[0]


def model_units(case):
    """Views and coefficients in model units, made the plain way."""
    views, coefs = [], []
    for view, ref in zip(case.views, case.rows.references, strict=True):
        x = view / row_lengths(view)[:, None] if ref.unit_rows else view
        z = (x - ref.shift) / ref.scale
        views.append(z)
        coefs.append(np.where(np.isnan(z), 0.0, ref.coefficients(z)))
    return views, coefs


def p_factors(parameters):
    return float(parameters.view_factors.sum())


def close(actual, desired, scale):
    """Equal to 1e-9 of the size that the numbers have, which is what rounding allows."""
    assert_allclose(actual, desired, rtol=1e-9, atol=1e-9 * scale)


@given(cases(), st.integers(1, 5), st.integers(0, 5))
@settings(max_examples=60)
def test_models_in_one_pass_have_the_statistics_that_each_has_alone(case, count, room):
    rng, p = np.random.default_rng(count), case.parameters
    models = [replace(p, centers=tuple(view + rng.normal(size=view.shape) for view in p.centers)) for _ in range(count)]
    views = zip(*(model.centers for model in models), strict=True)
    together = replace(p, centers=tuple(map(np.concatenate, views)))
    with Passes(case.rows, p.n_clusters, n_models=count + room) as passes:
        found, objectives = passes.statistics_of(together, count)
        again = passes.objectives_of(together, count)
    alone, rows = [scan(case.rows, model) for model in models], found.rows
    close(objectives, [one.objective for one in alone], rows * p_factors(p) * 1e-6)
    close(again, objectives, rows * p_factors(p) * 1e-6)
    close(found.costs, sum(one.costs for one in alone), rows * 1e-6)
    close(found.masses, np.concatenate([one.masses for one in alone]), rows * 1e-6)
    for name in ("numerators", "weights"):
        for own, *parts in zip(getattr(found, name), *(getattr(one, name) for one in alone), strict=True):
            expected = np.concatenate(parts)
            close(own, expected, rows * max(np.abs(expected).max(initial=0.0), 1e-6))


@given(cases())
@settings(max_examples=150)
def test_pass_equals_reference(case):
    p = case.parameters
    views, coefs = model_units(case)
    plain = reference.statistics(
        views,
        p.centers,
        coefs,
        [p.heat_time] * len(views),
        p.view_factors ** (1 / p.view_exponent),
        p.view_exponent,
        p.fuzzifier,
        case.sample_weight,
    )
    fast = scan(case.rows, p)
    rows = fast.rows
    close(fast.objective, plain["objective"], rows * p.view_factors.sum() * 1e-6)
    close(fast.costs, plain["costs"], rows * 1e-6)
    for fast_n, plain_n in zip(fast.numerators, plain["numerators"], strict=True):
        close(fast_n, plain_n, rows)
    for fast_w, plain_w in zip(fast.weights, plain["weights"], strict=True):
        close(np.broadcast_to(fast_w, plain_w.shape), plain_w, rows)


@given(cases())
@settings(max_examples=150)
def test_objective_never_rises(case):
    parameters, previous = case.parameters, np.inf
    for _ in range(6):
        statistics = scan(case.rows, parameters)
        rounding = 1e-14 * p_factors(parameters) * statistics.rows  # where every row is on a centre, J is rounding
        assert statistics.objective <= previous * (1 + 1e-10) + rounding
        previous = statistics.objective
        parameters = improve(parameters, statistics, learn_weights=True)


@given(cases())
@settings(max_examples=150)
def test_memberships_are_a_partition(case):
    mu = memberships(case.rows, case.parameters)
    assert np.all((mu >= 0) & (mu <= 1))
    assert_allclose(mu.sum(axis=1), 1, atol=1e-12)


@given(cases())
@settings(max_examples=100)
def test_view_weights_are_a_partition(case):
    weights = improve(case.parameters, scan(case.rows, case.parameters), learn_weights=True).view_weights
    assert np.all(weights >= 0)
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@given(cases(), st.integers(1, 5), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_statistics_of_parts_add_to_those_of_the_whole(case, n_parts, random):
    which = np.array([random.randrange(n_parts) for _ in range(case.rows.n_rows)])
    parts = [take(case.rows, np.flatnonzero(which == part)) for part in range(n_parts) if np.any(which == part)]
    whole, summed = scan(case.rows, case.parameters), reduce(add, (scan(part, case.parameters) for part in parts))
    close(summed.objective, whole.objective, whole.objective)
    close(summed.costs, whole.costs, whole.rows)
    for a, b in zip(summed.numerators + summed.weights, whole.numerators + whole.weights, strict=True):
        close(a, b, whole.rows)


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_order_of_clusters_views_and_rows_changes_nothing_else(case, random):
    p, whole = case.parameters, scan(case.rows, case.parameters)
    clusters = np.array(random.sample(range(p.n_clusters), p.n_clusters))
    views = random.sample(range(len(case.views)), len(case.views))
    rows = np.array(random.sample(range(case.rows.n_rows), case.rows.n_rows))
    checked = check_views([case.views[h][rows] for h in views])
    shuffled_rows = Rows(
        checked,
        tuple(case.rows.references[h] for h in views),
        None if case.sample_weight is None else case.sample_weight[rows],
    )
    shuffled = replace(
        p,
        centers=tuple(p.centers[h][clusters] for h in views),
        view_weights=p.view_weights[views],
        view_shares=p.view_shares[views],
    )
    result = scan(shuffled_rows, shuffled)
    close(result.objective, whole.objective, whole.objective)
    close(result.costs, whole.costs[views], whole.rows)
    close(result.masses, whole.masses[clusters], whole.rows)
    for position, h in enumerate(views):
        close(result.numerators[position], whole.numerators[h][clusters], whole.rows)
    assert_allclose(
        memberships(shuffled_rows, shuffled), memberships(case.rows, p)[np.ix_(rows, clusters)], rtol=1e-6, atol=1e-8
    )


@given(cases())
@settings(max_examples=50)
def test_gradient_of_the_objective_is_in_the_statistics(case):
    """2 t v^alpha (W a - N) against a finite difference of J."""
    p = replace(case.parameters, fuzzifier=2.0, heat_time=0.3)
    statistics = scan(case.rows, p)
    step = 1e-5
    for h, centers in enumerate(p.centers):
        gradient = 2 * p.heat_time * p.view_factors[h] * (statistics.weights[h] * centers - statistics.numerators[h])
        moved = []
        for sign in (1, -1):
            changed = centers.copy()
            changed[0, 0] += sign * step
            moved.append(scan(case.rows, replace(p, centers=(*p.centers[:h], changed, *p.centers[h + 1 :]))).objective)
        slope = (moved[0] - moved[1]) / (2 * step)
        assert slope == pytest.approx(gradient[0, 0], rel=1e-3, abs=1e-4 * (1 + statistics.rows * p.view_factors[h]))


def blobs(n_rows, widths=(5, 3), dtype="float64"):
    rng = np.random.default_rng(0)
    which = rng.integers(3, size=n_rows)
    means = [4 * rng.normal(size=(3, width))[which] for width in widths]
    return [(mean + rng.normal(size=mean.shape)).astype(dtype) for mean in means]


def start(views, n_clusters=3, **changes):
    checked = check_views(views)
    rows = Rows(checked, prepare(checked, "standard", "uniform", None))
    centers = tuple(r.to_model(v[:n_clusters]) for r, v in zip(rows.references, views, strict=True))
    n_views = len(views)
    p = Parameters(centers, np.full(n_views, 1 / n_views), 0.1, 1.1, 2.0, np.ones(n_views))
    return rows, replace(p, **changes)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_number_of_threads_changes_no_bit(workers):
    rows, p = start(blobs(60_000, dtype="float32"))
    with Passes(rows, 3, 1) as one, Passes(rows, 3, workers) as many:
        a, b = one.statistics(p), many.statistics(p)
        assert a.objective == b.objective
        for x, y in zip(a.numerators + a.weights, b.numerators + b.weights, strict=True):
            np.testing.assert_array_equal(x, y)


def test_row_on_a_centre_belongs_to_it_entirely():
    rows, p = start(blobs(50))
    mu = memberships(rows, p)
    assert_allclose(mu[:3], np.eye(3), atol=1e-12)


def test_row_on_two_coinciding_centres_belongs_to_both_alike():
    rows, p = start(blobs(50))
    doubled = replace(p, centers=tuple(np.vstack([c[:1], c[:1], c[1:2]]) for c in p.centers))
    assert_allclose(memberships(rows, doubled)[0], [0.5, 0.5, 0.0], atol=1e-12)


def test_centre_without_weight_stays():
    rows, p = start(blobs(50), heat_time=50.0)
    far = replace(p, centers=tuple(np.vstack([c[:2], np.full((1, c.shape[1]), 1e3)]) for c in p.centers))
    moved = improve(far, scan(rows, far), learn_weights=False)
    assert_allclose(moved.centers[0][2], far.centers[0][2])


def test_single_and_double_precision_agree():
    views = blobs(5000, dtype="float32")
    (rows32, p), (rows64, _) = start(views), start([view.astype("float64") for view in views])
    a, b = scan(rows32, p), scan(rows64, p)
    assert rows32.dtype == np.float32
    assert_allclose(a.objective, b.objective, rtol=1e-5)
    assert_allclose(a.numerators[0], b.numerators[0], rtol=1e-3, atol=1e-5 * b.rows)


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_fits_that_overlap_in_threads_leave_blas_as_it_was():
    step, seen = Barrier(2), []

    def first():
        with own_threads():
            step.wait()  # the second comes in
            step.wait()
        step.wait()  # the first is out, the second still in

    def second():
        step.wait()
        with own_threads():
            step.wait()
            step.wait()
            seen.append(blas_threads())

    before = blas_threads()
    threads = [Thread(target=first), Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[1] * len(before)]
    assert blas_threads() == before
