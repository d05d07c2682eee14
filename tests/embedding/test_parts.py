"""Parts of all rows: what rows of tables with categories are tied to beside anchors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

from embedding.graphs import SEED, make_graph, random_rows
from fedhk import FedHKDiffusion, from_frame
from fedhk.data.views import check_views
from fedhk.embedding.anchors import complete_candidates, make_anchors
from fedhk.embedding.parts import NO_PARTS, clear_levels, find_levels, make_parts, weigh_parts
from fedhk.embedding.spectrum import tie_to_parts
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows


def make_table(n_rows=120, *, numbers=2, kinds=1, missing=0.0, seed=0):
    """Numbers and categories of three levels that say nothing."""
    rng = np.random.default_rng(seed)
    columns = {f"number {i}": rng.normal(size=n_rows) for i in range(numbers)}
    columns |= {f"kind {i}": rng.choice(["a", "b", "c"], n_rows) for i in range(kinds)}
    frame = pd.DataFrame(columns)
    return frame.mask(rng.random(frame.shape) < missing)


def rows_of(*frames):
    views = check_views(list(frames))
    return Rows(views, prepare(views, "standard", "uniform", None))


def graph_with_parts(rows, n_clusters=3, n_anchors=20):
    sample = complete_candidates(rows)
    levels = find_levels(rows.views.columns, rows.widths)
    anchors = make_anchors(sample, n_anchors, rows.references, np.random.RandomState(SEED), levels)
    parts = make_parts(sample, rows.views.columns, rows.references, n_clusters, SEED)
    return tie_to_parts(make_graph(anchors), rows, parts, n_clusters)


def test_numbers_have_no_parts():
    rows = random_rows()
    assert make_parts(rows, rows.views.columns, rows.references, 3, SEED) is NO_PARTS


def test_the_share_of_levels_is_that_of_their_variance():
    rows = rows_of(make_table(numbers=2, kinds=2), make_table(numbers=3, kinds=0), make_table(numbers=0, kinds=1))
    parts = make_parts(complete_candidates(rows), rows.views.columns, rows.references, 3, SEED)
    for view, share in enumerate(parts.shares):
        values = rows.references[view].to_model(rows.views.tables[view])
        assert share == pytest.approx(np.var(values, axis=0)[parts.levels[view]].sum(), abs=1e-9)
    assert parts.shares[1:] == (0.0, pytest.approx(1.0))


def test_rows_are_tied_to_one_part_of_each_partition_and_their_shares_sum_to_one():
    rows = rows_of(make_table())
    graph = graph_with_parts(rows)
    affinities, count = graph.affinities(rows).toarray(), sum(graph.parts.sizes)
    assert affinities.shape[1] == graph.n_columns
    assert_allclose(affinities.sum(axis=1), 1.0)
    assert 0 < graph.parts.weight < 1
    for one in np.split(affinities[:, :count], np.cumsum(graph.parts.sizes)[:-1], axis=1):
        assert_array_equal((one > 0).sum(axis=1), 1)
        assert_allclose(one.max(axis=1) * len(graph.parts.sizes), graph.parts.weight)


def test_a_row_without_numbers_is_tied_to_parts_alone():
    frame = make_table()
    frame.loc[3, ["number 0", "number 1"]] = np.nan
    rows = rows_of(frame)
    graph = graph_with_parts(rows)
    row = graph.affinities(rows).toarray()[3]
    assert row[: sum(graph.parts.sizes)].sum() == pytest.approx(1.0)


def test_levels_change_nothing_of_how_rows_are_tied_to_anchors():
    frame = make_table()
    graph = graph_with_parts(rows_of(frame))
    changed = frame.assign(**{"kind 0": np.roll(frame["kind 0"], 1)})
    count = sum(graph.parts.sizes)
    one, other = (graph.affinities(rows_of(some)).toarray() for some in (frame, changed))
    assert_allclose(one[:, count:], other[:, count:], atol=1e-12)
    assert not np.array_equal(one[:, :count], other[:, :count])


def test_a_table_of_categories_is_tied_to_parts_alone():
    rows = rows_of(make_table(numbers=0, kinds=3))
    graph = graph_with_parts(rows)
    affinities = graph.affinities(rows).toarray()
    assert graph.parts.weight == pytest.approx(1.0)
    assert_allclose(affinities[:, : sum(graph.parts.sizes)].sum(axis=1), 1.0)


def test_points_that_differ_by_levels_alone_are_one():
    points = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
    (cleared,) = clear_levels([points], [np.array([False, True, True])])
    assert_array_equal(cleared, [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("share", "by_anchors", "by_parts", "weight"),
    [(0.5, 0.8, 0.8, 0.5), (0.5, 1.0, 0.8, 0.0), (0.5, 0.9, 0.7, 0.25), (1.0, 0.5, 0.5, 1.0), (0.3, 1.0, 1.0, 0.3)],
)
def test_ties_are_weighed_by_how_much_heat_leaves_their_clusters(share, by_anchors, by_parts, weight):
    assert weigh_parts(share, by_anchors, by_parts) == pytest.approx(weight)


def test_parts_of_other_views_are_refused():
    graph = graph_with_parts(rows_of(make_table()))
    widths = [part.shape[1] for part in graph.anchors]
    graph.check(widths)
    for wrong in ({"sizes": (1,)}, {"weight": 1.5}, {"levels": ()}, {"centers": (np.full((3, 2), np.nan),)}):
        with pytest.raises(ValueError, match="parts"):
            replace(graph, parts=replace(graph.parts, **wrong)).check(widths)


def test_half_moons_beside_a_category_that_says_nothing_are_found():
    points, labels = make_moons(600, noise=0.05, random_state=0)
    sexes = np.random.default_rng(1).choice(["F", "M"], 600)
    frame = pd.DataFrame({"x": points[:, 0], "y": points[:, 1], "sex": sexes, "site": ["a", "b"] * 300})
    model = FedHKDiffusion(2, random_state=0).fit(from_frame(frame, site="site"))
    found = np.empty(600, int)
    for name, own in model.labels_.items():
        found[frame["site"] == name] = own
    assert adjusted_rand_score(labels, found) > 0.95


def test_a_new_row_of_a_table_with_categories_gets_the_label_of_the_same_row():
    frame = make_table(200, numbers=3, kinds=3, missing=0.05).assign(site=["a", "b"] * 100)
    model = FedHKDiffusion(3, random_state=0).fit(from_frame(frame, site="site"))
    own = frame[frame["site"] == "a"].drop(columns="site")
    assert_array_equal(model.client_models_["a"].predict([own]), model.labels_["a"])
