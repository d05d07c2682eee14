"""Maps: which rows they have, and how much of the variation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhk.report.maps import MOST_POINTS, project
from fedhk.summary.facts import Rows
from report.pages import made_up


def with_rows(facts, *rows):
    """The facts with the rows of the first sites, and no others."""
    all_rows = (*rows, *[None] * (len(facts.sites) - len(rows)))
    return replace(facts, sites=tuple(replace(site, rows=r) for site, r in zip(facts.sites, all_rows, strict=True)))


def test_maps_are_a_fixed_sample_with_every_site():
    facts = made_up(n_sites=3)
    rng = np.random.default_rng(1)
    view = facts.views[0]
    rows = [
        Rows({view.name: rng.normal(size=(n, len(view.mean)))}, rng.integers(4, size=n)) for n in (20_000, 4_000, 7)
    ]
    first, second = (project(with_rows(facts, *rows), view) for _ in range(2))
    np.testing.assert_array_equal(first.points, second.points)
    assert len(first.points) <= MOST_POINTS + 3 * 5
    assert set(first.sites) == {0, 1, 2}
    assert first.n_rows == 24_007


def test_a_map_keeps_as_much_variation_as_it_says():
    rng = np.random.default_rng(0)
    facts = made_up(n_clusters=2, widths=(4,))
    view = replace(facts.views[0], mean=np.zeros(4), spread=np.ones(4))
    table = rng.normal(size=(500, 4)) * [5, 3, 1, 1]
    facts = with_rows(replace(facts, views=(view,)), Rows({view.name: table}, np.zeros(500, int)))
    found = project(facts, view)
    assert sum(found.shares) == pytest.approx(found.points.var(axis=0).sum() / table.var(axis=0).sum())
    assert found.shares[0] > found.shares[1] > 0.2
    # a centre lies where a row with the same values would
    one = replace(view, centers=table[:2])
    again = project(replace(facts, views=(one,)), one)
    np.testing.assert_allclose(again.centers, again.points[:2], atol=1e-9)
