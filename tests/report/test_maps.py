"""Maps: which rows they have, and how much of the variation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhk.report.maps import MOST_POINTS, project, view_map
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


@pytest.mark.parametrize("n_clusters", [3, 20])
def test_numbers_of_centres_do_not_hide_each_other(n_clusters):
    facts = made_up(n_clusters=n_clusters)
    view = facts.views[0]
    close = view.centers.copy()
    close[1], close[2] = close[0], close[0] + 0.01
    found = view_map(replace(facts, views=(replace(view, centers=close), *facts.views[1:])), 0)
    discs = next(part for part in found.ax.collections if len(part.get_offsets()) == n_clusters)
    places = found.ax.transData.transform(discs.get_offsets())
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)[np.triu_indices(n_clusters, 1)]
    assert apart.min() > np.sqrt(discs.get_sizes()[0]) - 1
