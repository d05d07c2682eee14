"""Facts that are derived from others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from report.pages import made_up


def test_how_far_a_site_is_from_the_global_model_is_in_spreads():
    facts = made_up(n_sites=1, widths=(3,))
    view = facts.views[0]
    moved = replace(facts.sites[0], centers={view.name: view.centers + 2 * view.spread})
    assert facts.distances(moved) == {view.name: pytest.approx(2.0)}
    assert facts.distances(replace(moved, views=())) == {}
    assert not replace(facts, sites=(replace(moved, centers={view.name: view.centers}),)).personal
