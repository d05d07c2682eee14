"""Phases of an update: sums over the rows, under masks as in the open, and nothing that no rows can have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from federations import run_sites
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board, Shared
from fedhk.federation.entries import FinalModel, FinalParameters, Minimisation, OwnPast, Remembered
from fedhk.federation.phases.describe import Describe
from fedhk.federation.phases.update import (
    FEWEST_ROWS,
    MOST_STRAYS,
    TABLE,
    CurrentModel,
    EnterViews,
    Found,
    are_fewer,
    find_strays,
    split_sums,
)
from fedhk.federation.table import Table
from fedhk.model.drift import COMPARED, SitePast
from fedhk.model.memory import OVER_ROWS, ClusterSpread, Memory, PlacedRows
from fedhk.testing.phases import PhaseChecks, SumPhaseChecks, ask
from fedhk.testing.sites import SETTINGS, make_sites, pool_tables
from updated_models import FAR, KNOWN, NAMES, check_requests, fitted, make_rows, recall, revise, run_masked

ONE = revise(last=False)


class TestRevise(PhaseChecks):
    keeps_sites_apart = True  # the server keeps how the rows of each site compare

    def tables(self):
        return make_rows(1)

    def before(self):
        return [recall()]

    def phase(self):
        return ONE


class TestLastRevise(TestRevise):
    keeps_sites_apart = False

    def before(self):
        return [recall(), ONE]

    def phase(self):
        return revise()


class TestEnterViews(SumPhaseChecks):
    def tables(self):
        return make_rows(1)

    def before(self):
        return [Describe(SETTINGS), recall(("a",))]

    def phase(self):
        return EnterViews(1)


def recalled_board(tables, phases=()):
    """The board after some phases at these sites, and the sites."""
    run, engine = run_sites([recall(), *phases], tables)
    board, sites = ONE.begin(run.board), dict(engine.states)
    for site in sites.values():
        site.board = Board().put(*board.find(Shared))
    return board, sites


# ------------------------------------------------------------------------------------------------------- what is summed


def test_what_adds_over_rows_is_the_same_for_any_split_over_sites():
    """All but products of rows, which are of rows of one site."""
    tables = make_rows(1)
    board, sites = recalled_board(tables)
    pooled = make_sites({"all": pool_tables(list(tables.values()))})["all"]
    pooled.board = Board().put(*board.find(Shared))
    vectors = [ONE.vector(site, ONE.request(board)) for site in [*sites.values(), pooled]]
    parts = [split_sums(values, 3, (3, 1)) for values in vectors]
    over_rows = np.r_[:OVER_ROWS, TABLE - 3 : TABLE]
    for number, columns in ((0, slice(None)), (1, slice(None)), (2, over_rows), (3, slice(None))):
        split = sum(part[number][..., columns] for part in parts[:-1])
        whole = parts[-1][number][..., columns]
        assert_allclose(split, whole, rtol=1e-12, atol=1e-12 * np.abs(whole).max())


def test_what_is_sent_in_few_digits_is_the_vector_to_half_a_step_of_its_largest_move():
    board, sites = recalled_board(make_rows(1))
    replies = ask(ONE, board, sites)
    for name, site in sites.items():
        values, read = ONE.vector(site, ONE.request(board)), ONE._read(board, replies[name])
        assert len(read) == len(values) == ONE.size(board)
        pulls, weights, *_ = split_sums(values, 3, (3, 1))
        weights = np.repeat(weights, (3, 1), axis=1)
        moves = np.divide(pulls, weights, out=np.zeros_like(pulls), where=weights > 0)
        error = np.abs(read[:12].reshape(3, 4) - pulls)
        assert np.all(error <= weights * np.abs(moves).max(axis=1, keepdims=True) / 254 * (1 + 1e-6))
        assert_allclose(read[12:], values[12:], rtol=1e-6)


def test_under_masks_the_phases_come_to_what_they_come_to_in_the_open():
    tables = make_rows(1)
    plain, _ = run_sites([recall(), ONE, revise()], tables)
    run = run_masked([recall(), ONE, revise()], tables)
    for one, other in zip(
        plain.board.get(FinalParameters).parameters.centers,
        run.board.get(FinalParameters).parameters.centers,
        strict=True,
    ):
        assert_allclose(one, other, atol=2e-2)
    one, other = (board.get(Remembered).memory for board in (plain.board, run.board))
    assert_allclose(one.weights, other.weights, rtol=1e-2)
    assert_allclose(one.spread.to_array()[:, :OVER_ROWS], other.spread.to_array()[:, :OVER_ROWS], rtol=1e-2)
    assert run.board.get(Found).sites == {}  # nothing is known of single sites
    assert set(plain.board.get(Found).sites) == set(NAMES)


# ---------------------------------------------------------------------------------------------------- what is compared


def test_rows_are_compared_in_the_first_round_only_and_with_those_of_this_model_only():
    tables = make_rows(1)
    board, sites = recalled_board(tables)
    assert ONE.request(board).compare
    site = sites["oslo"]
    rows = site.rows()
    seen = board.get(CurrentModel).model.parameters(rows.widths)
    past = SitePast.of(PlacedRows.of(rows, seen), seen, seen)
    site.memory = site.memory.put(OwnPast(past))
    compared = split_sums(ONE.vector(site, ONE.request(board)), 3, (3, 1))[2][:, -4 - COMPARED : -3]
    assert_array_equal(compared[:, 4], 1.0)
    assert_allclose(compared[:, -1], past.rows)  # the same shares of clusters are expected
    site.memory = site.memory.put(OwnPast(replace(past, lengths=past.lengths + 1)))
    compared = split_sums(ONE.vector(site, ONE.request(board)), 3, (3, 1))[2][:, -4 - COMPARED : -3]
    assert_array_equal(compared, 0.0)
    assert not site.memory.has(OwnPast)  # what it remembers of another model is forgotten
    later, _ = recalled_board(tables, [ONE])
    assert not ONE.request(later).compare


# ------------------------------------------------------------------------------------------------- who is left out


def strangers(names):
    tables = make_rows(1)
    for name in names:
        tables[name] = {view: None if x is None else x + 500.0 for view, x in tables[name].items()}
    return tables


def test_a_site_most_of_whose_rows_fit_nowhere_is_left_out_and_not_asked_again():
    run, engine = run_sites([recall(), ONE, revise()], strangers(["rome"]))
    assert "fit no cluster: check units" in run.history[0]["refused"]["rome"]
    assert all("rome" not in requests for requests in engine.sent[1:])
    centers = np.hstack(run.board.get(FinalParameters).parameters.centers)
    assert np.abs(centers).max() < 20


def test_where_most_sites_are_so_or_nobody_is_to_be_left_out_all_are_kept():
    for names, phase in ((["rome", "pisa"], ONE), (["rome"], replace(ONE, leaves_out=False))):
        run, _ = run_sites([recall(), phase], strangers(names))
        assert run.history[0]["refused"] == {}
        assert run.board.get(Found).strays.sum() > MOST_STRAYS * 40


# ------------------------------------------------------------------------------------------------------ lies


def test_sums_that_no_rows_can_have_are_refused():
    board, sites = recalled_board(make_rows(1))
    reply = ask(ONE, board, sites)["oslo"]
    rest = reply.rest.read()
    more, negative = rest.copy(), rest.copy()
    more[0, 0] = 1e4  # weight of a centre, above the rows of the site
    negative[0, 5] = -1.0
    endless = rest.copy()
    endless[0, -1] = 2.0**60
    for changed, reason in (
        (replace(reply, rest=Table.of(more, "single")), "more rows than the site has"),
        (replace(reply, rest=Table.of(negative, "single")), "below zero"),
        (replace(reply, rest=Table.of(endless, "single")), "no rows can have"),
        (replace(reply, moves=Table.of(reply.moves.read() + 6e4, "half")), "further than any row"),
        (replace(reply, moves=Table.of(reply.moves.read()[:2], "half")), "shape"),
        (replace(reply, rest=Table.of(rest[:, :-1], "single")), "shape"),
    ):
        with pytest.raises(MessageError, match=reason):
            ONE.check(board, changed, "oslo")


def test_sums_of_a_new_view_that_no_rows_can_have_are_refused():
    run, engine = run_sites([Describe(SETTINGS), recall(("a",))], make_rows(1))
    phase, board = EnterViews(1), run.board
    honest = ask(phase, board, engine.states)["oslo"].values
    sums = np.tile([True, False], 3)
    phase.check_vector(board, honest, "oslo")
    for lie in (np.where(sums, 1e9, honest), np.where(sums, honest, -1.0), np.full(6, 1e300)):
        with pytest.raises(MessageError, match="no rows can have"):
            phase.check_vector(board, lie, "oslo")


def test_damaged_requests_are_refused_with_a_message_error_or_answered():
    board, sites = recalled_board(make_rows(1))
    check_requests(ONE, board, sites["rome"])


# ------------------------------------------------------------------------------------------------- how it ends


def test_an_update_without_a_row_is_refused():
    board, _ = recalled_board(make_rows(1))
    with pytest.raises(DataError, match="No site has a new row"):
        ONE.take(board, np.zeros(ONE.size(board)), 0.0)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_there_are_never_more_rounds_than_asked_for(rounds):
    run, engine = run_sites([recall(), ONE, revise(rounds=rounds)], make_rows(1, KNOWN + 0.7))
    assert engine.phases.count("revise") <= rounds
    assert run.board.has(FinalModel)
    assert run.board.get(Minimisation).progress.stop_reason.startswith("Updated in ")


@pytest.mark.parametrize("keep", [1.0, 0.5, 0.01])
def test_centres_move_the_further_the_less_is_remembered(keep):
    moved = KNOWN + np.array([0, 0, 1.0, 0])
    runs = [run_sites([recall(keep=k), ONE, revise()], make_rows(2, moved))[0] for k in (keep, keep / 2)]
    start = np.hstack(fitted()._model.parameters.centers)
    steps = [np.linalg.norm(np.hstack(r.board.get(FinalParameters).parameters.centers) - start) for r in runs]
    assert steps[1] > steps[0]


def test_a_final_model_remembers_what_it_did_and_the_new_rows():
    run, _ = run_sites([recall(keep=0.5), ONE, revise()], make_rows(1))
    before, after = fitted()._memory, run.board.get(Remembered).memory
    assert after.spread.rows.sum() == pytest.approx(0.5 * before.spread.rows.sum() + 180, abs=2)


def found_with(rows, past, between=((9, 1),) * 3, strays=(0, 0, 0)):
    rows, past = np.array(rows, float), np.array(past, float)
    memory = Memory(np.ones((3, 1)), ClusterSpread(past, past, past, past, past))
    spread = ClusterSpread(rows, rows, rows, rows, rows)
    strays, between, expected = np.array(strays, float), np.array(between, float), rows.sum() * past / past.sum()
    return Found(memory, np.ones((3, 1)), spread, strays, between, np.zeros((0, 5)), expected)


def test_a_cluster_is_gone_where_nothing_is_left_of_it_or_its_rows_are_the_tail_of_another():
    assert found_with([50, 50, 50], [50, 50, 50]).find_gone() == []
    assert found_with([50, 50, 0], [50, 50, 0.9 * FEWEST_ROWS]).find_gone() == [2]
    assert found_with([50, 50, 0], [50, 50, 1], strays=(0, 0, 9)).find_gone() == []
    assert found_with([60, 60, 10], [50, 50, 50]).find_gone() == []  # fewer, but about its centre
    assert found_with([60, 60, 10], [50, 50, 50], ((9, 1), (9, 1), (1, 9))).find_gone() == [2]
    assert found_with([50, 50, 50], [50, 50, 50], ((9, 1), (9, 1), (1, 9))).find_gone() == []


def test_clusters_that_are_added_come_last_and_have_no_rows_yet():
    more = found_with([5, 6, 7], [1, 2, 3]).with_clusters(2)
    assert_array_equal(more.spread.rows, [5, 6, 7, 0, 0])
    assert_array_equal(more.memory.spread.rows, [1, 2, 3, 0, 0])
    assert (len(more.strays), len(more.between), more.after.n_clusters) == (5, 5, 5)


def test_rows_are_fewer_only_if_chance_does_not_explain_it():
    counts = np.array([10.0, 10.0, 10.0, 0.0, 0.0])
    assert_array_equal(are_fewer(counts, np.array([30.0, 12.0, 5.0, 0.0, 4.0])), [True, False, False, False, True])


def test_a_row_beyond_all_limits_is_a_stray_and_a_model_without_limits_has_none():
    board, sites = recalled_board(make_rows(1, FAR))
    rows = sites["oslo"].rows()
    current = board.get(CurrentModel)
    seen = current.model.parameters(rows.widths)
    placed = PlacedRows.of(rows, seen)
    nearest, strays = find_strays(placed, seen, current.limits)
    assert 20 <= strays.sum() <= 22
    assert set(nearest) <= {0, 1, 2}
    assert not find_strays(placed, seen, np.full(3, np.inf))[1].any()
