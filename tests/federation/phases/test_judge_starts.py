"""Starts that sites judge under masks: the same rule as in the open, of which the server sees totals alone."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedhk import FedHKPerson
from fedhk._random import seeded
from fedhk.datasets import make_sites
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import Basis, Broadcast, Minimisation, References, Schema
from fedhk.federation.phases import judge_starts
from fedhk.federation.phases.frame import Frame
from fedhk.federation.phases.judge_starts import MOST_JUDGED, JudgeRequest, JudgeStarts, Starts
from fedhk.federation.phases.sum_start import OwnGrouping, StartFromSums, SumCandidates
from fedhk.federation.stored import pack_entries, unpack_board
from fedhk.federation.table import Table
from fedhk.personal.calibration import Calibration
from fedhk.personal.objective import personal_objective
from fedhk.starts.candidates import Candidates, candidate_rows, site_candidates
from fedhk.testing.sites import SETTINGS
from fedhk.testing.sites import make_sites as sites_of
from personal_sites import plain_rows, two_clusters
from sealed_runs import spied_fit

# Two sites at y = FAR and y = -FAR, each with rows at x = -1 and x = 1: by y clusters are tighter, by x they mean more.
FAR = 1.05
BY_X = two_clusters([-1.0, 0.0], [1.0, 0.0], 1.0625)
BY_Y = two_clusters([0.0, -FAR], [0.0, FAR], 1.0625)
OFFSETS = Frame(Calibration(1.0, 0.5, (1.0,), offsets=True))


def shared_board():
    references = plain_rows([np.zeros((1, 2))]).references
    return Board().put(Schema(("only",), (None,)), References(references), OwnGrouping(10, 0))


def crossed_sites():
    rng, found = np.random.default_rng(0), {}
    for name, far in (("rome", FAR), ("oslo", -FAR)):
        rows = np.repeat([[-1.0, far], [1.0, far]], 30, axis=0) + rng.normal(scale=0.05, size=(60, 2))
        found |= sites_of({name: {"only": rows}})
        found[name].board = shared_board()
    return found


def phase():
    return JudgeStarts(StartFromSums(replace(SETTINGS, n_clusters=2, fuzzifier=1.0625), 0, 1))


def request(*starts):
    return JudgeRequest(tuple(map(Broadcast.of, starts)))


def server_board(*, offsets):
    """Candidates of all sites' rows, which are tighter by y."""
    points = np.array([[-1, FAR], [1, FAR], [-1, -FAR], [1, -FAR]])
    points = np.concatenate([points, points + 0.02, points - 0.02])
    found = SumCandidates(Candidates(points, np.full(12, 10.0), np.full((12, 1), 0.005)))
    return shared_board().put(found, *([OFFSETS] if offsets else []))


def test_a_site_says_of_each_start_what_the_server_would_find_from_its_candidates(monkeypatch):
    found = []
    monkeypatch.setattr(judge_starts, "personal_objective", lambda *a: found.append(a) or personal_objective(*a))
    vector = JudgeStarts.vector(crossed_sites()["rome"], request(BY_X, BY_Y))
    (own,), start = found[0]
    assert own.n_rows == 10
    assert own.sample_weight.sum() == 60
    assert_allclose(vector, [personal_objective([own], BY_X), personal_objective([own], BY_Y)])
    assert_allclose(start.centers[0], BY_X.centers[0])


def test_the_total_prefers_the_start_that_sites_can_make_their_own():
    asked, board, sites = phase(), server_board(offsets=True), crossed_sites()
    board = asked.begin(board)
    assert asked.size(board) > 1
    total = sum(asked.vector(site, asked.request(board)) for site in sites.values())
    chosen = asked.take(board, total, 0.0).get(Minimisation).parameters.centers[0]
    assert np.argmax(np.abs(chosen[0] - chosen[1])) == 0
    first = board.get(Starts).starts[0].centers[0]  # the best for all rows together
    assert np.argmax(np.abs(first[0] - first[1])) == 1


def test_without_offsets_no_site_is_asked_and_the_objective_decides():
    asked = phase()
    board = asked.begin(server_board(offsets=False))
    assert asked.is_done(board, 0)
    chosen = board.get(Minimisation).parameters.centers[0]
    assert np.argmax(np.abs(chosen[0] - chosen[1])) == 1


def test_what_is_chosen_is_a_start_and_the_others_are_forgotten():
    asked = phase()
    board = asked.begin(server_board(offsets=True))
    starts = board.get(Starts).starts
    total = np.arange(len(starts), 0.0, -1.0)
    after = asked.take(board, total, 0.0)
    assert asked.is_done(after, 1)
    assert not after.has(Starts)
    assert_allclose(after.get(Minimisation).parameters.centers[0], starts[-1].centers[0])


def test_starts_that_are_being_judged_are_kept_by_a_checkpoint():
    board = phase().begin(server_board(offsets=True))
    stored = unpack_board(pack_entries(board.entries.values(), "server"), "server")
    for kept, start in zip(stored.get(Starts).starts, board.get(Starts).starts, strict=True):
        assert_allclose(kept.centers[0], start.centers[0], rtol=0)
        assert kept.fuzzifier == start.fuzzifier


def test_of_starts_with_equal_totals_the_best_for_all_rows_is_taken():
    asked = phase()
    board = asked.begin(server_board(offsets=True))
    starts = board.get(Starts).starts
    total = np.full(len(starts), 7.0)
    total[1:] -= 1e-9  # rounding
    assert_allclose(
        asked.take(board, total, 0.0).get(Minimisation).parameters.centers[0], starts[0].centers[0], atol=1e-12
    )


def test_in_a_basis_starts_travel_as_coordinates_and_are_judged_the_same():
    angle = 0.3
    turned = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    basis = Basis((Table.of(turned, "double"),))
    site = crossed_sites()["oslo"]
    plain = JudgeStarts.vector(site, request(BY_X, BY_Y))
    site.board = site.board.put(basis)
    inside = [start.in_basis(basis.columns) for start in (BY_X, BY_Y)]
    assert_allclose(JudgeStarts.vector(site, request(*inside)), plain, rtol=1e-9)
    asked = phase()
    board = asked.begin(server_board(offsets=True).put(basis))
    sent = asked.request(board).starts[0].centers.read()
    assert_allclose(sent @ turned, board.get(Starts).starts[0].centers[0], atol=1e-3)  # in half precision


def test_a_site_with_one_row_adds_nothing():
    site = sites_of({"pisa": {"only": np.ones((1, 2))}})["pisa"]
    site.board = shared_board()
    assert_allclose(JudgeStarts.vector(site, request(BY_X)), [0.0])


@pytest.mark.parametrize(
    "starts",
    [
        (),
        (BY_X,) * (MOST_JUDGED + 1),
        (two_clusters([np.nan, 0.0], [1.0, 0.0], 1.0625),),
        (two_clusters([1e80, 0.0], [1.0, 0.0], 1.0625),),
    ],
)
def test_starts_that_are_none_too_many_no_numbers_or_endlessly_far_are_refused(starts):
    with pytest.raises(MessageError, match="starts that are none"):
        JudgeStarts.vector(crossed_sites()["rome"], request(*starts))


def test_with_noise_nobody_is_asked():
    with pytest.raises(MessageError, match="no stated sensitivity"):
        JudgeStarts.sensitivity(request(BY_X), 1, "replace")


def test_the_totals_are_those_of_the_judge_in_the_open():
    sites, starts = crossed_sites(), (BY_X, BY_Y)
    found = []
    for site in sites.values():
        grouping = site.board.get(OwnGrouping)
        random_state = seeded(grouping.seed, zlib.crc32(site.name.encode()))
        own = site_candidates(site.rows(), grouping.count, random_state)
        found.append(candidate_rows([own], site.board.get(References).references, ("only",)))
    total = sum(JudgeStarts.vector(site, request(*starts)) for site in sites.values())
    assert_allclose(total, [personal_objective(found, start) for start in starts])


def test_the_server_sees_one_masked_number_for_each_start_that_it_sent(monkeypatch):
    data = make_sites(4, 60, n_clusters=3, shift=1.5, random_state=0)
    model, spy = spied_fit(monkeypatch, FedHKPerson(3, secure=True, random_state=0), data.sites)
    assert model.calibration_["offsets"]
    answers = [reply for _, reply in spy.answers("sealed.judge starts") if hasattr(reply, "masked")]
    assert len(answers) == 4
    assert len({reply.masked.shape for reply in answers}) == 1
    assert answers[0].masked.ndim == 1
    assert not np.array_equal(answers[0].masked, answers[1].masked)
