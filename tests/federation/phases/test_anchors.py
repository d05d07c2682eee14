"""Anchors: rounded as they travel, refused where they are not of a site's rows, from candidates or from sums alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from embedded_runs import (
    SMALL,
    make_phases,
    make_views,
    rows_of,
    site_with,
    start_diffusion,
    take_views,
)
from federations import published, read_reply, run_sites, with_field, with_reply
from fedhk.data.scaling import UnitRows
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.options import SYNTHETIC, Diffusion
from fedhk.errors import DataError, MessageError
from fedhk.federation.codec import pack, unpack
from fedhk.federation.entries import Population, References
from fedhk.federation.phases.anchors import Anchors, RowMeans, StandIns, anchors_wanted
from fedhk.federation.phases.candidates import GROUP_PASSES
from fedhk.federation.phases.diffuse import Embedding
from fedhk.federation.phases.frame import Frame
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.table import Table
from fedhk.privacy.mechanism import SecureSummation
from fedhk.starts.candidates import count_by_share


def test_server_and_sites_have_the_same_anchors_after_the_way():
    views, _ = make_views()
    board = start_diffusion(views)
    anchors = board.get(Anchors)
    values, arrays = pack(anchors, Anchors)
    again = unpack(values, arrays, Anchors)
    assert_array_equal(np.hstack(again.graph.anchors), np.hstack(anchors.graph.anchors))
    # the anchors, the size of their steps, and the two numbers of how rows are tied to them
    assert set(arrays) == {"i1", "f4", "f8"}
    affinities = site_with(board, views).rows().views.tables[0]
    assert_array_equal(affinities.toarray(), again.graph.affinities(rows_of(board, views)).toarray())


def test_anchors_that_rounding_makes_equal_are_one():
    with pytest.warns(UserWarning, match="2 anchors instead of 20"):
        board = start_diffusion([np.repeat([[1.0], [1.0 + 1e-6], [2.0]], (25, 20, 15), axis=0)], 2)
    assert board.get(Anchors).graph.n_anchors == 2


def test_there_are_as_many_as_rows_can_bear():
    views, _ = make_views()
    board = start_diffusion(views)
    assert anchors_wanted(board, SMALL, 3) == 40
    assert anchors_wanted(board, replace(SMALL, n_anchors=300), 3) == 80  # a third of the rows
    assert anchors_wanted(board, SMALL, 11) == 44  # four for each of eleven clusters


def test_stand_ins_are_kept_as_they_are():
    views, _ = make_views()
    kept = start_diffusion(views).get(StandIns)
    values, arrays = pack(kept, StandIns)
    assert_array_equal(unpack(values, arrays, StandIns).affinities.toarray(), kept.affinities.toarray())
    assert_allclose(np.asarray(kept.affinities.sum(axis=1)).ravel(), 1.0)


def test_too_few_different_rows_for_the_clusters_is_an_error_with_both_numbers():
    with pytest.raises(DataError, match=r"n_clusters=9.*2 different anchors"):
        start_diffusion([np.repeat([[0.0], [1.0]], 20, axis=0)], 9)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda parts: parts[:1], r"features of 2 views, \[4, 3\]"),
        (lambda parts: parts[::-1], r"features of 2 views, \[4, 3\]"),
        (lambda parts: (parts[0], np.zeros((3, 3))), r"features of 2 views, \[4, 3\]"),
        (lambda parts: (np.full(parts[0].shape, np.nan), parts[1]), "NaN"),
    ],
)
def test_a_site_refuses_anchors_that_are_not_of_its_views(change, reason):
    views, _ = make_views()
    board = start_diffusion(views)
    anchors = board.get(Anchors)
    points = tuple([Table.of(part.T, "half") for part in change(anchors.graph.anchors)])
    with pytest.raises(MessageError, match=reason):
        site_with(board.put(replace(anchors, points=points)), views).rows()


def test_anchors_go_in_bytes_and_those_that_are_the_same_in_a_feature_stay_the_same():
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=(30, 2)) / 3.0
    graph = AnchorGraph((np.hstack([codes, rng.normal(size=(30, 1))]), 50 * rng.normal(size=(30, 9))), 3, 3.0, 0.5)
    anchors = Anchors.of(graph)
    assert all(table.values.dtype == np.int8 for table in anchors.points)
    for found, part in zip(anchors.graph.anchors, graph.anchors, strict=True):
        assert np.all(np.abs(found - part).max(axis=0) <= np.abs(part).max(axis=0) / 250)
    assert len(np.unique(anchors.graph.anchors[0][:, :2], axis=0)) == len(np.unique(codes, axis=0))
    for again, found in zip(Anchors.of(anchors.graph).graph.anchors, anchors.graph.anchors, strict=True):
        np.testing.assert_array_equal(again, found)


# ------------------------------------------------------------------------------------------------------ from candidates

NAMES = ("oslo", "pisa", "rome")
MASKS = SealedTerms(masks=SecureSummation())


def make_sites(shift=0.0):
    views, _ = make_views()
    parts = [take_views(views, np.arange(start, 240, 3)) for start in range(3)]
    return {
        name: [view + shift * number for view in part]
        for number, (name, part) in enumerate(zip(NAMES, parts, strict=True))
    }


def test_candidates_are_asked_for_in_proportion_to_the_rows():
    assert [count_by_share(n, 0.3) for n in (1000, 101, 2)] == [300, 31, 10]
    run, engine = run_sites(make_phases()[:2], make_sites())
    request = make_phases()[1].request(run.board)
    assert request.share == pytest.approx(2 / 3)  # two for an anchor, which has three rows
    assert (request.count, request.precision) == (0, "half")
    replies = [read_reply(answer) for answer in engine.received[1].values()]
    assert all(reply.points.values.dtype == np.float16 for reply in replies)


def test_sites_that_measure_alike_have_no_frame_and_others_have_one_before_the_anchors():
    shifted, _ = run_sites(make_phases(calibration="auto")[:6], make_sites(shift=30.0))
    assert list(shifted.board.entries).index(Frame) < list(shifted.board.entries).index(Anchors)
    assert shifted.board.get(Frame).calibration.shift == 1.0
    assert not shifted.board.get(Frame).calibration.offsets
    alike, _ = run_sites(make_phases(calibration="auto")[:6], make_sites())
    assert not alike.board.has(Frame)


def test_shares_that_are_given_are_used():
    run, _ = run_sites(make_phases(calibration=(0.5, 0.25))[:3], make_sites())
    found = run.board.get(Frame).calibration
    assert (found.shift, found.spread) == (0.5, 0.25)


def test_anchors_and_the_embedding_are_sent_once():
    _, engine = run_sites(make_phases(), make_sites())
    sent = [name for requests in engine.sent for name in published(requests["oslo"])]
    assert sent.count(Anchors.__name__) == 1
    assert sent.count(Embedding.__name__) == 1
    assert engine.phases[:3] == ["describe", "candidates", "diffuse"]
    assert engine.phases[-1] == "finish embedded"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_field("sizes", lambda sizes: -sizes), "below zero"),
        (
            with_reply(
                lambda reply: replace(
                    reply,
                    points=replace(reply.points, values=np.repeat(reply.points.values, 40, axis=0)),
                    sizes=np.repeat(reply.sizes, 40),
                    spreads=np.repeat(reply.spreads, 40, axis=0),
                )
            ),
            "at most 160 were asked for",
        ),
    ],
)
def test_candidates_that_no_rows_have_are_refused(change, reason):
    def lie(site, kind, exchange, answer):
        return change(answer) if kind == "candidates" and site == "rome" else answer

    run, _ = run_sites(make_phases()[:2], make_sites(), tamper=lie)
    assert run.board.get(Population).rows == 240
    assert reason in run.pending["refused"]["rome"]


def test_under_masks_means_are_of_rows_of_all_sites():
    for calibration, frame in ((None, []), ("auto", ["sum effect", "sum partitions", "agreement", "frame"])):
        for diffusion in (Diffusion(), Diffusion(anchors="synthetic"), Diffusion(anchors="means")):
            phases = make_phases(calibration=calibration, diffusion=diffusion)[1:-4]
            composed = MASKS.compose(phases)
            names = [sealed.phase.name for sealed in composed if hasattr(sealed, "phase")]
            found = ["products", *["cells", "groups"] * GROUP_PASSES]
            if diffusion.anchors == SYNTHETIC:
                found = ["find directions", "fit mixture"]
            assert names == [*frame, *found]


# --------------------------------------------------------------------------------------------------- how many there are


def make_small_sites(n_sites=40, seed=0):
    """Sites of four rows each, all different: of each, one or two means can be made."""
    views, labels = make_views(4 * n_sites, seed=seed)
    return {f"site-{s:02d}": take_views(views, np.arange(4 * s, 4 * s + 4)) for s in range(n_sites)}, labels


def test_few_means_are_said_where_nothing_else_is_wanted():
    sites, _ = make_small_sites()
    with pytest.warns(UserWarning, match=r"40 anchors instead of 100.*anchors='synthetic'"):
        run_sites(make_phases(50)[:3], sites)


def test_few_means_are_filled_up_with_points_around_them():
    sites, _ = make_small_sites()
    run, _ = run_sites(make_phases(50, diffusion=Diffusion())[:3], sites)
    assert run.board.get(Anchors).graph.n_anchors == 160  # as many as rows
    rows = np.vstack([np.hstack(views) for views in sites.values()])
    anchors = np.hstack(
        [
            r.to_input(a)
            for r, a in zip(run.board.get(References).references, run.board.get(Anchors).graph.anchors, strict=True)
        ]
    )
    assert np.square(anchors[:, None] - rows).sum(axis=2).min() > 1e-6  # none is a row
    assert not run.board.has(RowMeans)


def test_many_rows_need_no_points_that_are_drawn():
    small = {"n_anchors": 40}
    drawn, means = (
        run_sites(make_phases(diffusion=Diffusion(anchors=kind, **small))[:3], make_sites())[0].board.get(Anchors).graph
        for kind in ("auto", "means")
    )
    for first, second in zip(drawn.anchors, means.anchors, strict=True):
        assert_array_equal(first, second)


def test_what_is_drawn_around_documents_is_no_anchor():
    sites, _ = make_small_sites()
    for kind in ("auto", "means"):
        phases = make_phases(50, diffusion=Diffusion(anchors=kind), scaling=UnitRows())[:3]
        with pytest.warns(UserWarning, match="anchors instead of 100"):
            run, _ = run_sites(phases, sites)
        assert run.board.get(Anchors).graph.n_anchors < 50
