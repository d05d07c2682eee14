"""New clusters of an update: where rows fit nowhere or one cluster has become two, and not where chance explains it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from federations import run_sites
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Shared
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import Minimisation
from fedhk.federation.messages import decode
from fedhk.federation.participation import Participation
from fedhk.federation.phases.new_clusters import (
    CUTS,
    AddClusters,
    Directions,
    Halves,
    SplitClusters,
    count_behind,
    drop_doubles,
    is_flat,
    is_wider,
    split_ends,
)
from fedhk.federation.phases.update import Found
from fedhk.federation.run import Run, conduct
from fedhk.model.memory import ClusterSpread, PlacedRows
from fedhk.testing.phases import PhaseChecks, ask
from fedhk.testing.sites import make_sites, pool_tables
from sealed_runs import make_parameters
from updated_models import APART, FAR, KNOWN, NAMES, check_requests, fitted, make_rows, recall, revise, run_masked

ONE = revise(last=False, leaves_out=False)


class TestAddClusters(PhaseChecks):
    def tables(self):
        return make_rows(1, FAR)

    def before(self):
        return [recall(), ONE]

    def phase(self):
        return AddClusters()


class TestSplitClusters(PhaseChecks):
    def tables(self):
        return make_rows(1, APART)

    def before(self):
        return [recall(), ONE]

    def phase(self):
        return SplitClusters()


def updated(centers, *phases, seed=1, per_cluster=20):
    run, engine = run_sites([recall(), ONE, *phases], make_rows(seed, centers, per_cluster))
    return run.board, dict(engine.states)


def centers_of(board):
    return np.hstack(board.get(Minimisation).parameters.centers)


# ----------------------------------------------------------------------------------------------- rows that fit nowhere


def test_a_new_cluster_is_put_where_rows_fit_nowhere():
    board, _ = updated(FAR, AddClusters())
    found = centers_of(board)
    assert len(found) == 4
    before, _ = updated(FAR)
    assert_array_equal(found[:3], centers_of(before))  # the others keep their places and numbers
    assert board.get(Found).memory.weights[3].sum() == 0  # nothing is remembered of it
    references, parts = fitted()._model.references, board.get(Minimisation).parameters.centers
    units = np.hstack([reference.to_input(part) for reference, part in zip(references, parts, strict=True)])
    assert_allclose(units[3], FAR[3], atol=0.6)


@pytest.mark.parametrize("seed", range(1, 5))
def test_rows_like_those_before_make_no_cluster(seed):
    board, _ = updated(KNOWN, AddClusters(), SplitClusters(), seed=seed)
    assert len(centers_of(board)) == 3


def test_two_places_where_rows_fit_nowhere_are_two_clusters():
    board, _ = updated(np.vstack([FAR, [9.0, -14, 0, 0]]), AddClusters())
    assert len(centers_of(board)) == 5


def test_the_tail_of_a_cluster_that_moved_is_no_cluster():
    board, _ = updated(KNOWN + np.array([0, 0, 2.5, 0]), AddClusters())
    assert len(centers_of(board)) == 3


def test_places_of_new_centres_that_are_near_to_each_other_are_one():
    parameters, known = make_parameters([np.zeros((1, 2))]), np.zeros((1, 2))
    places = [np.array([10.0, 0]), np.array([10.0, 1]), np.array([0, 10.0])]
    kept = drop_doubles(parameters, known, places)
    assert_array_equal(kept, [[10, 0], [0, 10]])
    assert drop_doubles(parameters, known, []) == []


# ----------------------------------------------------------------------------------------------- clusters in two parts


def test_a_cluster_that_came_apart_is_two_and_what_was_remembered_is_shared():
    before, _ = updated(APART, per_cluster=40)
    board, _ = updated(APART, SplitClusters(), per_cluster=40)
    found = centers_of(board)
    assert len(found) == 4
    assert_allclose(board.get(Found).memory.weights.sum(axis=0), before.get(Found).memory.weights.sum(axis=0))
    assert not board.get(Halves).clusters
    assert min(np.linalg.norm(found[3] - found[:3], axis=1)) > 0


def test_rows_that_fit_nowhere_add_up_to_those_of_the_pooled_rows():
    tables, phase = make_rows(1, FAR), AddClusters()
    run, engine = run_sites([recall(), ONE], tables)
    board = phase.begin(run.board)
    pooled = make_sites({"all": pool_tables(list(tables.values()))})["all"]
    pooled.board = Board().put(*board.find(Shared))
    split = sum(phase.vector(site, phase.request(board)) for site in engine.states.values())
    assert_allclose(split, phase.vector(pooled, phase.request(board)), rtol=1e-9)


def test_counts_and_sums_of_the_last_step_are_those_of_the_pooled_rows():
    tables = make_rows(1, APART)
    run, engine = run_sites([recall(), ONE], tables)
    phase = SplitClusters()
    board = run.board.put(Halves((0, 1), np.eye(4)[:2], np.zeros((2, 4)), CUTS))
    pooled = make_sites({"all": pool_tables(list(tables.values()))})["all"]
    pooled.board = Board().put(*board.find(Shared))
    request = phase.request(board)
    assert request.count
    split = sum(phase.vector(site, request) for site in engine.states.values()).reshape(2, -1)
    whole = phase.vector(pooled, request).reshape(2, -1)
    assert whole.size == phase.size(board)
    # which rows had no part in finding the planes depends on the split; sizes and sums of the halves do not
    assert_allclose(split[:, 3:], whole[:, 3:], rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(("phase", "centers"), [(AddClusters(), FAR), (SplitClusters(), APART)])
def test_what_the_server_reads_is_the_sum_of_the_site_to_the_digits_that_are_sent(phase, centers):
    board, sites = updated(centers)
    board = phase.begin(board)
    for _ in range(2):
        replies, request = ask(phase, board, sites), phase.request(board)
        for name, reply in replies.items():
            exact = phase.vector(sites[name], request)
            assert exact.size == phase.size(board)
            assert_allclose(phase.read(reply), exact, rtol=2**-10, atol=1e-6)
        board = phase.combine(board, replies)


def test_a_plane_is_found_by_fewer_steps_where_the_halves_are_far_apart():
    def count_steps(centers):
        board, sites = updated(centers, per_cluster=40)
        phase = SplitClusters()
        board, exchanges = phase.begin(board), 0
        while not phase.is_done(board, exchanges):
            board, exchanges = phase.combine(board, ask(phase, board, sites)), exchanges + 1
        return exchanges, len(centers_of(board))

    assert count_steps(APART) < (CUTS + 1, 4)
    assert count_steps(APART)[1] == 4


def test_sites_get_the_model_once_for_a_round_and_all_exchanges_that_look_for_new_clusters():
    sent = []

    class Counting(InProcessEngine):
        def exchange(self, requests):
            sent.extend(decode(request) for request in requests.values())
            return super().exchange(requests)

    engine = Counting(make_sites(make_rows(1, np.vstack([APART, FAR[-1:]]), 40)))
    conduct([recall(), ONE, AddClusters(), SplitClusters()], engine, Run(), seed=0, participation=Participation())
    assert {message.kind for message in sent} == {ONE.name, AddClusters.name, SplitClusters.name}
    assert sum("CurrentModel" in message.values.get("entries", []) for message in sent) == len(NAMES)


def test_normal_clusters_are_seldom_taken_to_be_in_two_parts_and_two_points_always():
    rng = np.random.default_rng(0)
    flat = [is_flat(spread_of(rng.normal(size=(100, 5))))[0] for _ in range(200)]
    assert np.mean(flat) < 0.06
    sides = np.where(np.arange(100)[:, None] % 2, 3.0, -3.0) * np.eye(5)[0]
    assert all(is_flat(spread_of(rng.permutation(sides) + 0.3 * rng.normal(size=(100, 5))))[0] for _ in range(20))


@pytest.mark.parametrize(("width", "share"), [(2, 0.11), (5, 0.04), (20, 0.01)])
def test_clusters_are_taken_to_be_wider_by_chance_as_often_as_stated(width, share):
    rng = np.random.default_rng(1)
    pairs = [[spread_of(rng.normal(size=(200, width))) for _ in range(2)] for _ in range(300)]
    assert np.mean([is_wider(*pair)[0] for pair in pairs]) == pytest.approx(share, abs=3 * np.sqrt(share / 300))


def test_a_cluster_that_is_wider_is_found_where_something_is_remembered_of_it():
    rng = np.random.default_rng(2)
    old, new = (spread_of(by * rng.normal(size=(200, 5))) for by in (1.0, 2.0))
    assert is_wider(new, old)[0]
    assert not is_wider(old, new)[0]
    assert not is_wider(new, ClusterSpread.zero(1))[0]


def spread_of(away):
    return PlacedRows(None, np.zeros(len(away), int), away, np.ones(away.shape[1]), 1).spread()


def test_the_larger_part_keeps_the_number():
    one, other = np.zeros(2), np.ones(2)
    for sizes in ([9.0, 3.0], [3.0, 9.0]):
        kept, new, rows = split_ends(one, other, np.array(sizes))
        assert rows == (9.0, 3.0)
        assert (kept is one) == (sizes[0] == 9.0)
        assert new is not kept


def test_an_aggregator_is_told_of_how_many_rows_each_number_is():
    values = np.array([1.0, 2, 7, 5, 5, 0, 0, 0, 3, 3])
    assert_array_equal(count_behind([values], 2, slice(2, 3)), [[7] * 5 + [1] * 5])


@pytest.mark.parametrize("centers", [KNOWN, FAR, APART], ids=["none", "far", "apart"])
def test_under_masks_the_same_clusters_are_found(centers):
    """Planes are found by half of the rows of each site, masked or not."""
    phases, tables = [recall(), ONE, AddClusters(), SplitClusters()], make_rows(1, centers)
    plain, masked = run_sites(phases, tables)[0], run_masked(phases, tables)
    assert len(centers_of(plain.board)) == (3 if centers is KNOWN else 4)
    assert_allclose(centers_of(masked.board), centers_of(plain.board), atol=1e-2)


# -------------------------------------------------------------------------------------------------------------- lies


@pytest.mark.parametrize(("phase", "centers"), [(AddClusters(), FAR), (SplitClusters(), APART)])
def test_sums_that_no_rows_can_have_are_refused(phase, centers):
    board, sites = updated(centers)
    board = phase.begin(board)
    honest = phase.read(ask(phase, board, sites)["oslo"])
    assert honest.size
    phase.check_vector(board, honest, "oslo")
    for lie in (-honest - 1, honest * np.where(honest == np.round(honest), 1.0, 1e9), np.full_like(honest, 1e300)):
        with pytest.raises(MessageError, match="no rows can have"):
            phase.check_vector(board, lie, "oslo")


def test_squares_and_sums_of_halves_are_held_to_their_rows():
    board, sites = updated(APART)
    phase = SplitClusters()
    board = phase.begin(board)
    for _ in range(2):
        honest = phase.read(ask(phase, board, sites)["oslo"])
        lie = honest.copy()
        lie[-1] = 1e30
        with pytest.raises(MessageError, match="no rows can have"):
            phase.check_vector(board, lie, "oslo")
        board = phase.combine(board, ask(phase, board, sites))


@pytest.mark.parametrize(("phase", "centers"), [(AddClusters(), FAR), (SplitClusters(), APART)])
def test_damaged_requests_are_refused_with_a_message_error_or_answered(phase, centers):
    board, sites = updated(centers)
    board = phase.begin(board)
    for _ in range(2):
        check_requests(phase, board, sites["rome"])
        board = phase.combine(board, ask(phase, board, sites))
    assert board.has(Directions) or board.get(Halves).step == 2
