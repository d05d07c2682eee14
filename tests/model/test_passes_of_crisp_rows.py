"""Rows that belong to one cluster alone are added up without memberships, and nothing but rounding changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fedhk.data.views import check_views
from fedhk.model import passes
from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows

CLUSTERS = 4


def make_rows(kind: str, spread: float, dtype: str = "float64", seed: int = 0) -> tuple[Rows, Parameters]:
    """Two views of 300 rows in four clusters, and the centres that they are drawn from."""
    rng = np.random.default_rng(seed)
    which = rng.integers(CLUSTERS, size=300)
    means = [spread * rng.normal(size=(CLUSTERS, width)) for width in (7, 5)]
    tables = [(mean[which] + rng.normal(size=(300, mean.shape[1]))).astype(dtype) for mean in means]
    if kind == "missing":
        tables[0][rng.random(tables[0].shape) < 0.1] = np.nan
    views = check_views([sp.csr_array(tables[0]) if kind == "sparse" else tables[0], tables[1]])
    weight = rng.random(300) if kind == "weighted" else None
    rows = Rows(views, prepare(views, "none", "minmax" if kind == "coefficients" else "uniform", weight), weight)
    if kind == "absent":
        rows = replace(rows, views=replace(views, tables=(tables[0], None)))
    centers = tuple(reference.to_model(mean) for reference, mean in zip(rows.references, means, strict=True))
    factors = np.array([0.5, 0.5]) if kind != "silent" else np.array([1.0, 0.0])
    return rows, Parameters(centers, factors, 0.3, 1.03, 2.0, np.ones(2))


def both_ways(rows: Rows, parameters: Parameters, monkeypatch) -> tuple[passes.Statistics, passes.Statistics, float]:
    """Statistics with and without the search, and the share of rows that it found."""
    with Passes(rows, parameters.n_clusters) as scan:
        monkeypatch.setattr(passes, "WORTH_SEARCHING", 0)
        monkeypatch.setattr(passes, "MANY_ROWS", 0)
        searched = scan.statistics(parameters)
        space = scan._spaces[0]
        space.use(parameters, search=True)
        alone = space._find_nearest([reader.load(slice(0, rows.n_rows)) for reader in space._readers]).alone
        monkeypatch.setattr(passes, "WORTH_SEARCHING", np.inf)
        return searched, scan.statistics(parameters), float(alone.mean())


@pytest.mark.parametrize("kind", ["plain", "sparse", "missing", "weighted", "coefficients", "absent", "silent"])
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-12), ("float32", 3e-5)])
@pytest.mark.parametrize("seed", range(3))
def test_only_rounding_changes(kind, dtype, digits, seed, monkeypatch) -> None:
    rows, parameters = make_rows(kind, 12.0, dtype, seed)
    found, plain, share = both_ways(rows, parameters, monkeypatch)
    if kind != "coefficients":  # which have hardly any weight near the least values
        assert share > 0.5
    for one, other in zip(found.numerators + found.weights, plain.numerators + plain.weights, strict=True):
        assert_allclose(one, other, rtol=digits, atol=digits * max(np.abs(other).max(), 1.0))
    assert_allclose(found.costs, plain.costs, rtol=digits, atol=300 * digits)
    assert_allclose(found.masses, plain.masses, rtol=digits)
    assert found.objective == pytest.approx(plain.objective, rel=10 * digits)
    assert found.rows == plain.rows


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 3.0])
def test_rows_between_clusters_are_added_in_full(spread: float, monkeypatch) -> None:
    rows, parameters = make_rows("plain", spread)
    found, plain, share = both_ways(rows, parameters, monkeypatch)
    assert share < 1
    better = [improve(parameters, statistics, learn_weights=True) for statistics in (found, plain)]
    for one, other in zip(better[0].centers, better[1].centers, strict=True):
        assert_allclose(one, other, atol=1e-11)


def test_a_cluster_without_rows_has_what_a_full_pass_gives_it(monkeypatch) -> None:
    rows, parameters = make_rows("plain", 12.0)
    far = tuple(np.vstack([part[:-1], part[-1:] + 3.0]) for part in parameters.centers)
    found, plain, _ = both_ways(rows, replace(parameters, centers=far), monkeypatch)
    for one, other in zip(found.numerators, plain.numerators, strict=True):
        assert_array_equal(one, other)


def test_coinciding_centres_share_their_rows(monkeypatch) -> None:
    rows, parameters = make_rows("plain", 12.0)
    twice = tuple(np.vstack([part[:-1], part[:1]]) for part in parameters.centers)
    found, plain, share = both_ways(rows, replace(parameters, centers=twice), monkeypatch)
    assert share == 0
    assert_array_equal(found.masses, plain.masses)


def test_one_cluster_has_all_rows(monkeypatch) -> None:
    rows, parameters = make_rows("plain", 1.0)
    one = replace(parameters, centers=tuple(part[:1] for part in parameters.centers))
    found, plain, _ = both_ways(rows, one, monkeypatch)
    assert_allclose(found.numerators[0], plain.numerators[0], rtol=1e-12)


def test_number_of_threads_changes_no_bit() -> None:
    rng = np.random.default_rng(0)
    which, means = rng.integers(12, size=40_000), 8 * rng.normal(size=(12, 100))
    views = check_views([(means[which] + rng.normal(size=(40_000, 100))).astype("float32")])
    rows = Rows(views, prepare(views, "none", "uniform", None))
    parameters = Parameters((rows.references[0].to_model(means),), np.ones(1), 0.3, 1.0625, 2.0, np.ones(1))
    with Passes(rows, 12, 1) as one, Passes(rows, 12, 3) as many:
        first, second = one.statistics(parameters), many.statistics(parameters)
    assert first.objective == second.objective
    assert_array_equal(first.numerators[0], second.numerators[0])
