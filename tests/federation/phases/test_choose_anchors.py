"""Anchors from candidates: as many for each row, in few bytes, in the frame in which sites will have their rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from embedded_runs import make_phases, make_views, take_views
from federations import published, read_reply, run_sites, with_field, with_reply
from fedhk.federation.entries import Population
from fedhk.federation.phases.anchor_groups import AnchorGroups
from fedhk.federation.phases.anchors import Anchors
from fedhk.federation.phases.diffuse import Embedding
from fedhk.federation.phases.frame import Frame
from fedhk.federation.sealed import Sealed, SealedTerms
from fedhk.privacy.mechanism import SecureSummation
from fedhk.starts.candidates import count_by_share

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
    assert (request.count, request.precision, request.frame) == (0, "half", False)
    replies = [read_reply(answer) for answer in engine.received[1].values()]
    assert all(reply.points.values.dtype == np.float16 for reply in replies)


def test_sites_that_measure_alike_have_no_frame_and_others_have_one_before_the_anchors():
    shifted, _ = run_sites(make_phases(calibration="auto")[:3], make_sites(shift=30.0))
    assert list(shifted.board.entries).index(Frame) < list(shifted.board.entries).index(Anchors)
    assert shifted.board.get(Frame).calibration.shift == 0.75
    assert not shifted.board.get(Frame).calibration.offsets
    alike, _ = run_sites(make_phases(calibration="auto")[:3], make_sites())
    assert not alike.board.has(Frame)


def test_shares_that_are_given_are_used():
    run, _ = run_sites(make_phases(calibration=(0.5, 0.25))[:2], make_sites())
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
        (with_field("frame", lambda _: np.zeros((0, 0))), "mean and spread are missing"),
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

    run, _ = run_sites(make_phases(calibration="auto")[:2], make_sites(), tamper=lie)
    assert run.board.get(Population).rows == 240
    assert reason in run.pending["refused"]["rome"]


def test_masks_take_the_way_over_groups_and_refuse_a_calibration_that_was_given():
    for calibration in (None, "auto"):
        (sealed,) = make_phases(calibration=calibration)[1].sealed(MASKS)
        assert isinstance(sealed, Sealed)
        assert isinstance(sealed.phase, AnchorGroups)
    with pytest.raises(ValueError, match=r"calibration=\(0.5, 0.5\) has no effect with secure=True"):
        make_phases(calibration=(0.5, 0.5))[1].sealed(MASKS)
