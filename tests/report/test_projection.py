"""Maps: which rows they have, and how much of the variation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhk.report.projection import MOST_POINTS, project_rows
from fedhk.report.rows import Rows
from report.pages import made_up


def test_maps_are_a_fixed_sample_with_every_site():
    facts = made_up(n_sites=3)
    rng = np.random.default_rng(1)
    view = facts.views[0]
    rows = {
        s: Rows({view.name: rng.normal(size=(n, len(view.mean)))}, rng.integers(4, size=n))
        for s, n in enumerate((20_000, 4_000, 7))
    }
    first, second = (project_rows(facts, view, rows) for _ in range(2))
    np.testing.assert_array_equal(first.points, second.points)
    assert len(first.points) <= MOST_POINTS + 3 * 5
    assert set(first.sites) == {0, 1, 2}
    assert first.n_rows == 24_007


def test_a_map_keeps_as_much_variation_as_it_says():
    rng = np.random.default_rng(0)
    facts = made_up(n_clusters=2, widths=(4,))
    view = replace(facts.views[0], mean=np.zeros(4), spread=np.ones(4))
    facts = replace(facts, views=(view,))
    table = rng.normal(size=(500, 4)) * [5, 3, 1, 1]
    found = project_rows(facts, view, {0: Rows({view.name: table}, np.zeros(500, int))})
    assert sum(found.shares) == pytest.approx(found.points.var(axis=0).sum() / table.var(axis=0).sum())
    assert found.shares[0] > found.shares[1] > 0.2
    # a centre lies where a row with the same values would
    one = replace(view, centers=table[:2])
    again = project_rows(replace(facts, views=(one,)), one, {0: Rows({view.name: table}, np.zeros(500, int))})
    np.testing.assert_allclose(again.centers, again.points[:2], atol=1e-9)
