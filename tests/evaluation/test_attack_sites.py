"""Halves of sites, and their rows in one pool."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from fedhk.data.named import NamedTable
from fedhk.evaluation.attack_sites import attack_halves, pool_rows, split_rows


@pytest.fixture
def sites():
    generator = np.random.default_rng(0)
    named = {
        f"s{i}": {"a": NamedTable(generator.normal(size=(n, 2)), ("x", "y")), "b": None} for i, n in enumerate((7, 4))
    }
    named["s1"]["b"] = NamedTable(generator.normal(size=(4, 3)), None)
    return named


def test_every_row_is_in_one_half_and_its_views_go_together(sites):
    sites["s1"]["b"] = NamedTable(sites["s1"]["a"].values * 2, None)
    first, second = split_rows(sites, 0)
    for site, tables in sites.items():
        parts = [half[site]["a"].values for half in (first, second)]
        assert [len(part) for part in parts] == [(len(tables["a"].values) + 1) // 2, len(tables["a"].values) // 2]
        both = np.vstack(parts)
        np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(tables["a"].values, axis=0))
    np.testing.assert_array_equal(first["s1"]["b"].values, 2 * first["s1"]["a"].values)
    assert first["s0"]["b"] is None


def test_a_pool_has_all_rows_with_nan_for_what_a_site_lacks(sites):
    pooled = pool_rows(sites)
    np.testing.assert_array_equal(pooled["a"].values, np.vstack([tables["a"].values for tables in sites.values()]))
    assert pooled["a"].columns == ("x", "y")
    assert np.isnan(pooled["b"].values[:7]).all()
    np.testing.assert_array_equal(pooled["b"].values[7:], sites["s1"]["b"].values)


def test_a_view_that_no_site_has_is_none(sites):
    del sites["s1"]
    assert pool_rows(sites)["b"] is None


def test_tensors_keep_their_shape():
    tensors = {name: {"image": NamedTable(np.zeros((n, 3, 4)), None)} for name, n in (("a", 2), ("b", 3))}
    assert pool_rows(tensors)["image"].shape == (5, 3, 4)


def test_many_clusters_give_rows_away():
    generator = np.random.default_rng(0)
    sites = {name: {"a": NamedTable(generator.normal(size=(60, 4)), None)} for name in "pq"}
    with pytest.warns(ConvergenceWarning, match="clusters that have rows"):
        found = attack_halves(sites, 40, None, shadows=0, confidence=0.95, random_state=0)
    assert (found.members, found.others) == (60, 60)
    assert found.distance.auc_low > 0.6
