"""Anchors from sums alone: a pass of k-means an exchange, and anchors where rows are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

from embedded_runs import SMALL, describe, make_diffuse, make_views, map_of, rows_of, site_with, take_views
from federations import run_sites
from fedhk.errors import MessageError
from fedhk.federation.phases.anchor_groups import AnchorGroups, Groups
from fedhk.federation.phases.anchors import Anchors
from fedhk.federation.run import Run
from fedhk.federation.table import Table

PHASE = AnchorGroups(SMALL, 3, 0)


def make_sites(views):
    return {f"site-{start}": take_views(views, np.arange(start, len(views[0]), 3)) for start in range(3)}


@pytest.mark.parametrize("missing", [False, True])
def test_groups_grow_to_anchors_and_rows_are_embedded_with_them(missing):
    views, labels = make_views(missing=missing)
    sites = make_sites(views)
    run, engine = run_sites([PHASE, make_diffuse()], sites, run=Run(board=describe(sites)))
    assert 20 <= run.board.get(Anchors).graph.n_anchors <= 40
    assert not run.board.has(Groups)
    passes = engine.phases.count("anchor groups")
    assert passes == 6 + 2 + 2 + 1  # doublings up to 40 and beyond, plain passes, and the means of the last
    embedding = map_of(run.board).embed(rows_of(run.board, views))
    found = np.argmax(embedding @ np.stack([embedding[labels == k].mean(axis=0) for k in range(3)]).T, axis=1)
    assert adjusted_rand_score(labels, found) > (0.8 if missing else 0.95)


def test_any_split_gives_the_same_groups():
    """But where a site has a single row of a group, which it does not tell; not so in the first passes."""
    views, _ = make_views()
    sites = make_sites(views)
    board = PHASE.begin(describe({"all": views}))
    request = PHASE.request(board)
    total = sum(PHASE.vector(site_with(board, part), request) for part in sites.values())
    assert_allclose(total, PHASE.vector(site_with(board, views), request), atol=1e-9)
    assert len(total) == PHASE.size(board)


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (np.zeros((2, 3)), r"points have shape \(2, 3\)"),
        (np.full((2, 7), np.inf), "NaN or infinite"),
    ],
)
def test_a_site_refuses_points_that_are_none(points, reason):
    views, _ = make_views()
    board = PHASE.begin(describe({"all": views}))
    request = replace(PHASE.request(board), points=Table(points, np.zeros(0)))
    with pytest.raises(MessageError, match=reason):
        PHASE.vector(site_with(board, views), request)
