"""Diffuse: any split gives the embedding of the pooled rows, sites embed as the server does, and lies are refused."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from embedded_runs import (
    make_diffuse,
    make_views,
    map_of,
    rows_of,
    run_diffusion,
    site_with,
    start_diffusion,
    take_views,
    without_view,
)
from federations import Stop, TestEngine, run_sites
from fedhk.embedding.spectrum import embed_affinities
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.checkpoint import load_run, save_run
from fedhk.federation.entries import Minimisation, Space
from fedhk.federation.phases import diffuse as module
from fedhk.federation.phases.anchors import Anchors, StandIns
from fedhk.federation.phases.base import Sum
from fedhk.federation.phases.diffuse import Diffuse, DiffuseRequest, Search
from fedhk.federation.run import Run
from fedhk.federation.table import Table
from fedhk.privacy.fixed_point import to_grid


def ask_gram():
    """The Gram matrix is asked for, whatever its size."""
    return patch.object(module, "gram_is_smaller", lambda *_: True)


def begin(board, n_clusters=3, **options):
    """The phase, the board before its first exchange, and what is asked."""
    phase = make_diffuse(n_clusters, **options)
    board = phase.begin(board)
    return phase, board, phase.request(board)


@given(
    seed=st.integers(0, 10_000),
    apart=st.sampled_from([0.0, 1.0, 9.0]),
    n_sites=st.integers(1, 8),
    missing=st.booleans(),
    whole=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_any_split_gives_what_pooled_rows_give(seed, apart, n_sites, missing, whole):
    views, _ = make_views(seed=seed, missing=missing, apart=apart)
    board = start_diffusion(views)
    owner = np.random.default_rng(seed).integers(n_sites, size=len(views[0]))
    sites = {f"site-{i}": take_views(views, np.flatnonzero(owner == i)) for i in range(n_sites)}
    with patch.object(module, "gram_is_smaller", lambda *_: whole), patch.object(module, "SUM_PRECISION", "double"):
        pooled, split = (map_of(run_diffusion(board, parts)) for parts in ({"all": views}, sites))
    rows = rows_of(board, views)
    assert_allclose(split.values, pooled.values, atol=1e-8)
    assert_allclose(split.embed(rows), pooled.embed(rows), atol=1e-8)


def test_the_gram_matrix_and_directions_lead_to_one_embedding():
    views, _ = make_views(apart=1.0)
    board = start_diffusion(views)
    assert not begin(board)[1].get(Search).asks_gram
    with patch.object(module, "SUM_PRECISION", "double"):
        by_directions = map_of(run_diffusion(board, {"all": views}, tol=1e-7, max_exchanges=30))
        with ask_gram():
            by_gram = map_of(run_diffusion(board, {"all": views}))
    rows = rows_of(board, views)
    assert_allclose(by_directions.values[:3], by_gram.values[:3], atol=1e-6)
    # what is sent in half precision is off by a thousandth
    assert_allclose(by_directions.embed(rows), by_gram.embed(rows), atol=5e-3)


@pytest.mark.parametrize("exchanges", [3, 6, 20])
def test_rounded_sums_give_the_embedding_of_exact_ones_however_often_they_are_asked(exchanges):
    """Errors that are rounding alone are asked for again and again, and must not pass for directions."""
    views, _ = make_views(apart=1.0)
    board, parts = (
        start_diffusion(views),
        {"a": take_views(views, np.arange(90)), "b": take_views(views, np.arange(90, 240))},
    )
    rounded = map_of(run_diffusion(board, parts, tol=1e-7, max_exchanges=exchanges))
    with patch.object(module, "SUM_PRECISION", "double"):
        exact = map_of(run_diffusion(board, parts, tol=1e-7, max_exchanges=exchanges))
    rows = rows_of(board, views)
    assert_allclose(rounded.values, exact.values, atol=1e-3)
    assert_allclose(rounded.embed(rows), exact.embed(rows), atol=0.02)


def test_the_gram_matrix_is_asked_for_where_it_is_smaller():
    views, _ = make_views()
    few, many = (begin(start_diffusion(views, n), n) for n in (3, 40))
    assert not few[1].get(Search).asks_gram
    assert many[1].get(Search).asks_gram
    columns = many[1].get(Anchors).graph.n_columns
    assert many[0].size(many[1]) == columns * (columns + 1) // 2


def test_the_direction_of_ones_is_not_sent():
    views, _ = make_views()
    _, board, request = begin(start_diffusion(views))
    directions = board.get(Search).directions
    assert request.ones
    assert request.directions.values.shape == (directions.shape[1] - 1, len(directions))
    assert request.directions.values.dtype == np.int8
    assert_allclose(request.read(), directions, atol=1e-8)


def test_sites_embed_rows_as_the_server_does_and_new_rows_alike():
    views, _ = make_views(missing=True)
    parts = {"a": take_views(views, np.arange(100)), "b": take_views(views, np.arange(100, 240))}
    board = run_diffusion(start_diffusion(views), parts)
    found = map_of(board)
    for part in parts.values():
        assert_array_equal(site_with(board, part).rows().views.tables[0], found.embed(rows_of(board, part)))
    alone = rows_of(board, take_views(views, np.array([3])))
    assert_allclose(found.embed(alone), found.embed(rows_of(board, views))[3:4], atol=1e-12)


def test_affinities_of_a_site_are_computed_once(monkeypatch):
    views, _ = make_views()
    board = run_diffusion(start_diffusion(views), {"all": views})
    calls = []
    compute = Anchors.apply
    monkeypatch.setattr(Anchors, "apply", lambda self, rows: calls.append(1) or compute(self, rows))
    site = site_with(board, views)
    site.rows()
    replace(site).rows()
    Diffuse.vector(site, DiffuseRequest(True, Table.of(np.zeros((0, board.get(Anchors).graph.n_columns)), "half")))
    assert len(calls) == 1


def test_stand_ins_are_near_the_clusters_that_rows_are_in():
    views, labels = make_views(n=600)
    before = start_diffusion(views)
    found = map_of(run_diffusion(before, {"all": views}))
    embedding = found.embed(rows_of(before, views))
    centres = np.stack([embedding[labels == k].mean(axis=0) for k in range(3)])
    stand_ins = embed_affinities(before.get(StandIns).affinities, found.projection)
    assert np.mean((stand_ins @ centres.T).max(axis=1)) > 0.9


def test_a_site_with_two_rows_one_without_rows_in_a_view_and_duplicates_take_part():
    views, _ = make_views()
    two, same = take_views(views, np.array([0, 1])), take_views(views, np.zeros(30, int))
    lacking = without_view(take_views(views, np.arange(50)), 1)
    sites = {"two": two, "lacking": lacking, "same": same, "rest": views}
    board = run_diffusion(start_diffusion(views), sites)
    for part in (two, lacking, same):
        assert_allclose(np.linalg.norm(site_with(board, part).rows().views.tables[0], axis=1), 1.0)


def test_the_rounds_begin_in_the_space_of_embedded_rows():
    views, _ = make_views()
    board = run_diffusion(start_diffusion(views), {"all": views})
    assert board.get(Space).widths == (4,)  # a direction for each cluster, and the next
    assert board.get(Minimisation).parameters.centers[0].shape == (3, 4)
    assert not board.has(Search)
    assert not board.has(StandIns)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda values: values[:-1], "shape"),
        (lambda values: np.full_like(values, np.nan), "NaN"),
        (lambda values: -values, "below zero"),
        (lambda values: np.where(np.arange(values.size) % 4 == 1, 6e4, values), "larger than"),
        (lambda values: values.astype(np.int64), "int64"),
    ],
)
def test_sums_that_no_rows_have_are_refused(change, reason):
    views, _ = make_views()
    phase, board, request = begin(start_diffusion(views))
    honest = Diffuse.answer(site_with(board, views), request)
    phase.check(board, honest, "oslo")
    with pytest.raises(MessageError, match=reason):
        phase.check(board, Sum(change(honest.values)), "oslo")


def test_a_later_answer_larger_than_all_rows_can_give_is_refused():
    views, _ = make_views()
    phase, board, request = begin(start_diffusion(views), tol=0.0)
    board = phase.combine(board, {"oslo": Diffuse.answer(site_with(board, views), request)})
    assert not phase.is_done(board, 1)
    with pytest.raises(MessageError, match="larger than"):
        phase.check(board, Sum(np.full(phase.size(board), 1e5)), "oslo")


def test_a_site_says_what_it_lacks_and_what_does_not_fit():
    views, _ = make_views()
    before = start_diffusion(views)
    _, board, request = begin(before)
    without = Board({kind: entry for kind, entry in board.entries.items() if kind is not Anchors}, board.versions)
    with pytest.raises(MessageError, match="before 'Anchors' was published"):
        Diffuse.vector(site_with(without, views), request)
    few = replace(request, directions=Table.of(np.ones((3, 2)), "half"))
    with pytest.raises(MessageError, match=r"directions have shape \(3, 2\)"):
        Diffuse.vector(site_with(board, views), few)
    ended = run_diffusion(before, {"all": views})
    embedding = ended.get(module.Embedding)
    short = replace(embedding, directions=Table.of(np.ones((3, 2)), "half"))
    with pytest.raises(MessageError, match=r"directions of the embedding have shape \(3, 2\)"):
        site_with(ended.put(short), views).rows()


def test_a_checkpoint_holds_the_search(tmp_path):
    views, _ = make_views()
    phases = [make_diffuse(tol=0.0, max_exchanges=3)]
    start = Run(board=start_diffusion(views))
    plan = {"seed": 0}

    def stop(run):
        save_run(tmp_path, run, plan)
        raise Stop

    whole, engine = run_sites(phases, {"all": views}, run=start)
    assert engine.phases == ["diffuse"] * 3
    with pytest.raises(Stop):
        run_sites(phases, {"all": views}, run=start, after=[stop])
    again, _ = load_run(tmp_path, plan)
    resumed, engine = run_sites(phases, {"all": views}, run=again)
    assert engine.phases == ["diffuse"] * 2
    assert_array_equal(map_of(resumed.board).projection, map_of(whole.board).projection)
    first, second = (run.board.get(Minimisation).parameters.centers[0] for run in (resumed, whole))
    assert_array_equal(first, second)


def test_an_answer_is_one_vector_that_masks_can_sum():
    """On the grid of a sealed sum, the total of the sites is that of the pooled rows."""
    views, _ = make_views()
    phase, board, request = begin(start_diffusion(views))
    parts = [take_views(views, np.arange(0, 90)), take_views(views, np.arange(90, 240))]
    step = 2.0**-30
    total = sum(to_grid(Diffuse.vector(site_with(board, part), request), step) for part in parts) * step
    assert total.shape == (phase.size(board),)
    assert_allclose(total, Diffuse.vector(site_with(board, views), request), atol=1e-6)
    after = make_diffuse(tol=0.0).take(board, total, 0.0)
    assert after.get(Search).known[0][1].shape == board.get(Search).directions.shape


def test_products_of_different_sites_are_not_mixed():
    """A site that is away for one exchange: what was asked before is asked again of those that are there."""
    views, _ = make_views(apart=1.0)
    parts = {name: take_views(views, np.arange(start, 240, 3)) for start, name in enumerate(("oslo", "pisa", "rome"))}
    board, options = start_diffusion(views), {"tol": 1e-6, "max_exchanges": 6}

    def lose_second(site, kind, exchange, answer):
        return None if site == "rome" and exchange == 1 else answer

    engine = TestEngine(parts, tamper=lose_second)
    found, _ = run_sites([make_diffuse(**options)], engine, run=Run(board=board))
    whole = run_diffusion(board, parts, **options)
    assert len(engine.phases) <= 6
    assert_allclose(map_of(found.board).values, map_of(whole).values, atol=1e-3)
