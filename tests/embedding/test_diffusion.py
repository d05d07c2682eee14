from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from fedhk.data.views import check_views
from fedhk.embedding.affinity import AnchorGraph, nearest_shares
from fedhk.embedding.anchors import anchor_count, complete_candidates, make_anchors, stand_in_rows
from fedhk.embedding.diffusion import Diffusion, DiffusionSettings, diffuse, rows_of
from fedhk.embedding.spectrum import (
    canonical_turn,
    eigengap,
    gram,
    gram_ritz,
    product_sensitivity,
    products,
    ritz,
    start_directions,
)
from fedhk.model.joint import take
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows

SEED = 7


def make_rows(views, scaling="standard"):
    checked = check_views([np.asarray(view, float) for view in views])
    return Rows(checked, prepare(checked, scaling, "uniform", None))


def random_rows(n=90, widths=(3, 2), seed=0):
    rng = np.random.default_rng(seed)
    return make_rows([rng.normal(size=(n, width)) for width in widths])


def graph_of(rows, n_anchors=20, **changes):
    anchors = make_anchors(complete_candidates(rows), n_anchors, rows.references, np.random.RandomState(SEED))
    return AnchorGraph(anchors, **changes)


# ------------------------------------------------------------------------------------------------------- affinities


def test_shares_are_those_of_the_formula_by_hand():
    nearest, shares = nearest_shares(np.array([[4.0, 1.0, 2.0, 9.0]]), 2, 3.0)
    weights = np.exp([-3 * 1 / 4, -3 * 2 / 4])
    assert_array_equal(nearest, [[1, 2]])
    assert_allclose(shares, [weights / weights.sum()])


def test_the_joint_block_weighs_as_much_as_all_views_together():
    rows = random_rows()
    graph = graph_of(rows)
    affinities = graph.affinities(rows).toarray()
    first, second, joint = np.split(affinities, np.cumsum(graph.widths)[:-1], axis=1)
    assert_allclose(joint.sum(axis=1), 0.5)
    assert_allclose(first.sum(axis=1), 0.25)
    assert_allclose(second.sum(axis=1), 0.25)


@given(case=cases(min_rows=6), chunk=st.integers(1, 50))
@settings(max_examples=30, deadline=None)
def test_shares_of_a_row_sum_to_one_and_chunks_change_nothing(case, chunk):
    rows = case.rows
    graph = graph_of(rows, 8, neighbours=3)
    whole = graph.affinities(rows)
    parts = sp.vstack([part for _, part in graph.chunks(rows, chunk)], format="csr")
    assert whole.data.min(initial=0.0) >= 0
    sums = np.asarray(whole.sum(axis=1)).ravel()
    assert np.all((np.abs(sums - 1) < 1e-9) | (sums == 0))
    assert np.median(np.abs((whole - parts).toarray()).max(axis=1)) < 1e-9


def test_a_row_uses_the_blocks_it_has_in_the_same_proportions():
    views = [np.random.default_rng(0).normal(size=(60, width)) for width in (3, 2, 4)]
    views[1][:10] = np.nan
    views[2][5] = np.nan
    rows = make_rows(views)
    graph = graph_of(rows)
    blocks = np.split(graph.affinities(rows).toarray(), np.cumsum(graph.widths)[:-1], axis=1)
    sums = np.column_stack([block.sum(axis=1) for block in blocks])
    assert_allclose(sums[0], [0.2, 0.0, 0.2, 0.6])
    assert_allclose(sums[5], [0.25, 0.0, 0.0, 0.75])
    assert_allclose(sums[20], [1 / 6, 1 / 6, 1 / 6, 0.5])


def test_a_site_without_a_view_is_rows_without_it():
    views = [np.random.default_rng(0).normal(size=(40, width)) for width in (3, 2)]
    rows = make_rows(views)
    graph = graph_of(rows)
    absent = replace(rows, views=replace(rows.views, tables=(rows.views.tables[0], None)))
    missing = replace(rows, views=check_views([views[0], np.full((40, 2), np.nan)]))
    assert_allclose(graph.affinities(absent).toarray(), graph.affinities(missing).toarray(), atol=1e-12)


def test_anchors_that_coincide_in_a_view_are_one_there():
    rng = np.random.default_rng(0)
    rows = make_rows([rng.normal(size=(80, 3)), rng.integers(0, 2, (80, 1)).astype(float)])
    graph = AnchorGraph((rng.normal(size=(12, 3)), np.repeat([[-1.0], [1.0]], 6, axis=0)))
    assert graph.widths == (12, 2, 12)
    block = graph.affinities(rows).toarray()[:, 12:14]
    assert_allclose(block, 0.25 * np.column_stack([rows.views.tables[1] == 0, rows.views.tables[1] == 1]))


def test_a_row_that_lacks_a_view_of_one_value_has_no_share_there():
    rows = make_rows([np.arange(12.0)[:, None], np.where(np.arange(12) < 3, np.nan, 1.0)[:, None]])
    graph = AnchorGraph((np.array([[-1.0], [0.0], [1.0]]), np.zeros((3, 1))))
    assert graph.widths == (3, 1, 3)
    block = graph.affinities(rows).toarray()[:, 3]
    assert_allclose(block, np.where(np.arange(12) < 3, 0.0, 0.25))


@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e8])
def test_units_of_the_input_do_not_matter(scale):
    views = [np.random.default_rng(0).normal(size=(60, width)) for width in (3, 2)]
    first, second = (make_rows([factor * view for view in views]) for factor in (1.0, scale))
    assert_allclose(
        graph_of(first).affinities(first).toarray(), graph_of(second).affinities(second).toarray(), atol=1e-6
    )


# ----------------------------------------------------------------------------------------------------------- anchors


@pytest.mark.parametrize(
    ("clusters", "rows", "anchors"), [(4, 10_000, 300), (100, 10_000, 400), (10, 90, 30), (10, 12, 20), (1, 2, 2)]
)
def test_anchors_are_at_most_a_third_of_the_rows_and_two_for_a_cluster(clusters, rows, anchors):
    assert anchor_count(clusters, rows) == anchors


def test_anchors_of_rows_of_length_one_have_length_one():
    rng = np.random.default_rng(0)
    rows = make_rows([rng.random((80, 12)), rng.random((80, 7))], "l2")
    anchors = make_anchors(rows, 10, rows.references, np.random.RandomState(0))
    for reference, centers in zip(rows.references, anchors, strict=True):
        assert_allclose(np.linalg.norm(reference.to_input(centers), axis=1), 1.0)


def test_duplicated_rows_give_no_more_anchors_than_there_are_different_rows():
    rows = make_rows([np.repeat(np.random.default_rng(0).normal(size=(5, 3)), 20, axis=0)])
    assert len(make_anchors(rows, 30, rows.references, np.random.RandomState(0))[0]) == 5


def test_a_candidate_without_a_view_has_that_of_its_neighbours():
    first = np.array([[0.0], [0.1], [5.0], [5.1], [0.05]])
    second = np.array([[1.0], [1.0], [9.0], [9.0], [np.nan]])
    rows = make_rows([first, second], "none")
    completed = complete_candidates(replace(rows, references=rows.references))
    given = completed.views.tables[1]
    assert not np.isnan(given).any()
    # the three nearest are two of its own group and one of the other
    assert_allclose(given[4], (2 * given[0] + given[2]) / 3)
    assert_allclose(given[:4], rows.references[1].to_model(second[:4]))


def test_rows_that_stand_in_are_as_far_from_candidates_as_the_spreads_say():
    rng = np.random.default_rng(0)
    rows = make_rows([rng.normal(size=(30, 4)), rng.normal(size=(30, 3))])
    spread = np.column_stack([np.full(30, 0.2), np.full(30, 0.5)])
    weighted = complete_candidates(replace(rows, sample_weight=np.eye(30)[3] + 1e-12, spread=spread))
    (stand_ins,) = stand_in_rows(weighted, np.random.RandomState(0), 200)
    parts = list(stand_in_rows(weighted, np.random.RandomState(0), 200, part_bytes=56 * 30))
    assert [part.n_rows for part in parts] == [30] * 6 + [20]
    for view, expected in enumerate((0.2, 0.5)):
        table = stand_ins.views.tables[view]
        assert_allclose(np.square(table - weighted.views.tables[view][3]).sum(axis=1), expected)
        assert_array_equal(table, np.vstack([part.views.tables[view] for part in parts]))


# ---------------------------------------------------------------------------------------------------------- spectrum


@given(parts=st.integers(1, 6), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_products_of_parts_add_up_to_those_of_all_rows_in_any_order(parts, seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(70, seed=seed)
    graph = graph_of(rows)
    directions = rng.normal(size=(graph.n_columns, 5))
    owner = rng.integers(parts, size=70)
    split = [graph.affinities(take(rows, np.flatnonzero(owner == part))) for part in rng.permutation(parts)]
    whole = graph.affinities(rows)
    assert_allclose(sum(products(part, directions) for part in split), products(whole, directions), atol=1e-10)
    assert_allclose(sum(gram(part) for part in split), gram(whole), atol=1e-10)


def test_a_row_of_weight_two_is_two_rows_in_products_and_gram_matrix():
    rows = random_rows(30)
    affinities = graph_of(rows, 8).affinities(rows)
    weight = np.random.default_rng(0).integers(0, 3, 30)
    repeated = affinities[np.repeat(np.arange(30), weight)]
    directions = np.random.default_rng(1).normal(size=(affinities.shape[1], 3))
    assert_allclose(products(affinities, directions, weight.astype(float)), products(repeated, directions))
    assert_allclose(gram(affinities, weight.astype(float)), gram(repeated))


def test_column_sums_are_the_product_with_ones():
    affinities = graph_of(random_rows()).affinities(random_rows())
    ones = np.ones((affinities.shape[1], 1))
    assert_allclose(products(affinities, ones)[:, 0], np.asarray(affinities.sum(axis=0)).ravel())


def test_directions_in_turn_reach_the_eigenvectors_of_the_gram_matrix():
    rows = random_rows(200)
    affinities = graph_of(rows, 40).affinities(rows)
    exact = gram_ritz(gram(affinities), 4)
    rng = np.random.default_rng(0)
    directions = np.column_stack([np.ones(affinities.shape[1]), rng.normal(size=(affinities.shape[1], 5))])
    known, wrong = [], []
    for _ in range(20):
        known.append((directions, products(affinities, directions)))
        found = ritz(known, 4)
        wrong.append(found.wrong.max())
        directions = found.next_directions(4, 1e-10)
        if not directions.shape[1]:
            break
    assert wrong[0] > 1e-2
    assert wrong[-1] < 1e-8
    assert_allclose(found.values, exact.values, atol=1e-9)
    assert_allclose(found.vectors, exact.vectors, atol=1e-6)
    assert_allclose(found.scales, exact.scales)


def test_the_first_eigenvector_is_known_and_has_eigenvalue_one():
    rows = random_rows()
    affinities = graph_of(rows).affinities(rows)
    found = gram_ritz(gram(affinities), 3)
    assert found.values[0] == pytest.approx(1.0)
    assert_allclose(
        found.vectors[:, 0] * np.sqrt(len(rows.views.tables[0])) * found.scales,
        np.where(found.scales > 0, 1, 0),
        atol=1e-9,
    )


def test_start_directions_of_the_rows_themselves_are_nearly_right():
    rows = random_rows(300)
    affinities = graph_of(rows, 60).affinities(rows)
    directions = start_directions(affinities, 5)
    assert ritz([(directions, products(affinities, directions))], 4).wrong.max() < 1e-2


@given(case=cases(min_rows=6))
@settings(max_examples=20, deadline=None)
def test_one_row_moves_the_gram_matrix_by_at_most_one_and_products_by_the_longest_direction(case):
    rows = replace(case.rows, sample_weight=None)
    graph = graph_of(rows, 8)
    affinities = graph.affinities(rows)
    directions = np.random.default_rng(0).normal(size=(graph.n_columns, 3))
    for row in range(rows.n_rows):
        alone = affinities[[row]]
        assert np.linalg.norm(gram(alone)) <= 1 + 1e-12
        assert np.linalg.norm(products(alone, directions)) <= product_sensitivity(directions) * (1 + 1e-12)


def test_the_bound_of_the_gram_matrix_is_reached_by_a_row_tied_to_one_anchor():
    graph = AnchorGraph((np.array([[0.0], [9.0]]),), joint_weight=1.0)
    rows = rows_of(np.array([[0.1]]))
    assert np.linalg.norm(gram(graph.affinities(rows))) == pytest.approx(1.0)
    assert product_sensitivity(np.eye(graph.n_columns)) == 1.0


def test_vectors_are_the_same_however_they_come():
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 4)))[0]
    values = np.array([1.0, 1.0, 1.0, 0.4])
    turned = vectors.copy()
    turned[:, :3] = turned[:, :3] @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    turned[:, 3] *= -1
    first, second = (v @ canonical_turn(values, v) for v in (vectors, turned))
    assert_allclose(first, second, atol=1e-12)
    assert_allclose(first.T @ first, np.eye(4), atol=1e-12)
    assert first[np.abs(first[:, 3]).argmax(), 3] > 0
    assert_allclose(np.abs(first[:, 3]), np.abs(vectors[:, 3]))


@pytest.mark.parametrize(
    ("values", "clusters"), [([1, 0.98, 0.97, 0.5, 0.45], 3), ([1, 0.4, 0.39, 0.1], 3), ([1, 0.9], 2), ([1], 1)]
)
def test_clusters_are_counted_by_the_largest_gap(values, clusters):
    assert eigengap(np.array(values), 2, 10) == clusters


# --------------------------------------------------------------------------------------------------------- embedding


def test_groups_that_heat_does_not_leave_are_at_right_angles():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 50)
    rows = make_rows([1000.0 * labels[:, None] + rng.normal(size=(150, 2))])
    diffusion, _ = diffuse(rows, 3, DiffusionSettings(n_anchors=40, neighbours=3), SEED)
    embedding = diffusion.embed(rows)
    assert_allclose(diffusion.values, 1.0, atol=1e-9)
    assert_allclose(embedding @ embedding.T, labels[:, None] == labels, atol=1e-6)


@given(case=cases(min_rows=4))
@settings(max_examples=20, deadline=None)
def test_every_row_is_embedded_with_length_one_or_not_at_all(case):
    diffusion, _ = diffuse(case.rows, 2, DiffusionSettings(), SEED)
    embedding = diffusion.embed(case.rows)
    lengths = np.linalg.norm(embedding, axis=1)
    assert np.isfinite(embedding).all()
    assert np.all((np.abs(lengths - 1) < 1e-9) | (lengths == 0))


def test_a_row_is_embedded_alike_alone_among_others_and_after_saving():
    rows = random_rows(120)
    diffusion, _ = diffuse(rows, 4, DiffusionSettings(), SEED)
    order = np.random.default_rng(0).permutation(120)
    embedding = diffusion.embed(rows)
    assert_allclose(diffusion.embed(take(rows, order)), embedding[order], atol=1e-12)
    header, arrays = diffusion.to_arrays()
    assert_array_equal(Diffusion.from_arrays(header, arrays).embed(rows), embedding)


@pytest.mark.parametrize(
    "views",
    [
        [np.ones((9, 2)), np.arange(18.0).reshape(9, 2)],
        [np.repeat([[0.0], [1.0]], 5, axis=0)],
        [np.array([[0.0, 1.0], [1.0, 0.0]])],
        [np.tile([[1.0, 2.0]], (7, 1))],
    ],
    ids=["constant view", "two values", "two rows", "one value"],
)
def test_little_to_go_on_gives_numbers(views):
    rows = make_rows(views)
    diffusion, _ = diffuse(rows, 2, DiffusionSettings(), SEED)
    assert np.isfinite(diffusion.embed(rows)).all()


def test_a_constant_view_says_nothing():
    rng = np.random.default_rng(0)
    table = np.vstack([rng.normal(size=(40, 2)), 50 + rng.normal(size=(40, 2))])
    rows = make_rows([table, np.ones((80, 3))])
    diffusion, _ = diffuse(rows, 2, DiffusionSettings(), SEED)
    embedding = diffusion.embed(rows)
    within, between = (embedding @ embedding.T)[:40, :40].min(), (embedding @ embedding.T)[:40, 40:].max()
    assert within > between + 0.3


def test_an_embedded_row_without_any_value_is_missing_in_the_rounds():
    rows = rows_of(np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert rows.views.missing == (True,)
    assert_array_equal(np.isnan(rows.views.tables[0]), [[False, False], [True, True]])


def test_directions_of_groups_that_heat_does_not_leave_are_all_found():
    """Their eigenvalues are all 1; a method that looks for one vector after the other misses some of them."""
    rng = np.random.default_rng(0)
    group = np.arange(600) % 12
    shares = rng.random((600, 5))
    columns = (group * 50)[:, None] + rng.integers(50, size=(600, 5))
    rows = np.repeat(np.arange(600), 5)
    affinities = sp.csr_array((shares.ravel() / np.repeat(shares.sum(axis=1), 5), (rows, columns.ravel())), (600, 600))
    directions = start_directions(affinities, 14)
    found = ritz([(directions, products(affinities, directions))], 12)
    assert_allclose(found.values, 1.0, atol=1e-6)
