"""Within: a metric from one sum over rows, the same for any split, in the open and under masks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from embedded_runs import ONE, describe, make_phases, make_views, rows_of, site_with, take_views
from federations import make_settings, run_sites
from fedhk import FedHKDiffusion
from fedhk._symmetric import upper_half
from fedhk.embedding.metric import Metric
from fedhk.embedding.options import Diffusion
from fedhk.errors import MessageError
from fedhk.federation.aggregators import SumAggregator
from fedhk.federation.codec import pack, unpack
from fedhk.federation.entries import Schema
from fedhk.federation.phases.anchors import Anchors, ChooseAnchors, RowMeans, TieRows
from fedhk.federation.phases.candidates import AskCandidates, CandidatesRequest
from fedhk.federation.phases.describe import Describe
from fedhk.federation.phases.row_metric import RowMetric, find_metric
from fedhk.federation.phases.within import ChooseAnchorsAgain, FindMetric, FirstGroups
from fedhk.federation.protocols.statistics import Statistics
from fedhk.federation.run import Run
from fedhk.model.rows import joint_rows
from fedhk.starts.candidates import Candidates, candidate_rows, site_candidates

TIE = TieRows(ONE, 3, 0)


def board_with_means(views):
    """A board with means of rows that do not depend on the split."""
    board = describe({"all": views})
    found = site_candidates(rows_of(board, views), 100, np.random.RandomState(0))
    rows = candidate_rows([found], [*rows_of(board, views).references], board.get(Schema).names)
    return board.put(RowMeans(Candidates(joint_rows(rows, np.nan), rows.sample_weight, rows.spread)))


def find(views, sites):
    board = FindMetric(TIE).begin(board_with_means(views))
    return run_sites([FindMetric(TIE)], sites, run=Run(board=board))[0].board


def split(views, n_sites=3):
    return {f"s{i}": take_views(views, slice(i, None, n_sites)) for i in range(n_sites)}


def test_any_split_of_the_rows_gives_the_same_metric():
    views, _ = make_views()
    pooled, apart = (find_metric(find(views, sites)) for sites in ({"all": views}, split(views)))
    assert pooled
    for one, other in zip(pooled.halves, apart.halves, strict=True):
        assert_allclose(one, other, atol=2e-3)  # sums in single precision, the metric in half


def test_views_with_gaps_keep_their_units():
    views, _ = make_views(missing=True)
    board = board_with_means(views)
    # the first view lacks cells; the second is there or not
    assert FindMetric(TIE).begin(board).get(FirstGroups).request.clusters.changed == (False, True)


def test_rows_of_length_one_keep_their_units():
    rng = np.random.default_rng(0)
    sites = {f"s{i}": [rng.random((40, 6)), rng.random((40, 3))] for i in range(3)}
    model = FedHKDiffusion(2, scaling="l2", random_state=0).fit(sites)
    assert not model._model.diffusion.graph.metric


def test_sites_group_stretched_rows_and_send_means_of_rows_as_they_are():
    views, _ = make_views()
    board = board_with_means(views)
    half = upper_half(np.diag([1e-2, 1e-2, 1e-2, 1.0]))
    stretched = site_with(board.put(RowMetric.of(Metric((half, upper_half(1e-2 * np.eye(3)))))), views)
    plain = site_with(board, views)
    request = CandidatesRequest(6, 0.0, 0, "double")
    found, before = (AskCandidates.answer(site, request) for site in (stretched, plain))
    assert found.sizes.sum() == before.sizes.sum() == 240
    means = (found.points.read() * found.sizes[:, None]).sum(axis=0)
    assert_allclose(means, (before.points.read() * before.sizes[:, None]).sum(axis=0), atol=1e-9)
    apart = [float(reply.sizes @ np.square(reply.points.read()[:, 3])) for reply in (found, before)]
    assert apart[0] > apart[1]  # groups are parted by what counts


def test_a_metric_that_the_rows_cannot_have_is_refused():
    views, _ = make_views()
    site = site_with(board_with_means(views).put(RowMetric.of(Metric((np.ones(3), np.zeros(0))))), views)
    with pytest.raises(MessageError, match="must have the features"):
        AskCandidates.answer(site, CandidatesRequest(20, 0.0, 0, "double"))


def test_clusters_that_the_rows_cannot_have_are_refused():
    views, _ = make_views()
    board = FindMetric(TIE).begin(board_with_means(views))
    request = board.get(FirstGroups).request
    bad = replace(request, clusters=replace(request.clusters, widths=(4, 2)))
    with pytest.raises(MessageError, match="must have the features"):
        FindMetric.vector(site_with(board, views), bad)


@pytest.mark.parametrize("value", [-1.0, 1e18])
def test_rows_of_clusters_that_no_site_can_have_are_refused(value):
    views, _ = make_views()
    board = FindMetric(TIE).begin(board_with_means(views))
    sums = FindMetric.vector(site_with(board, views), board.get(FirstGroups).request)
    FindMetric(TIE).check_vector(board, sums, "oslo")
    sums[0] = value
    with pytest.raises(MessageError, match="rows of clusters"):
        FindMetric(TIE).check_vector(board, sums, "oslo")


def test_candidates_are_asked_for_again_only_where_there_is_a_metric():
    views, _ = make_views()
    board = board_with_means(views)
    given = (make_settings(3), Statistics(), SumAggregator(), 0)
    again = ChooseAnchorsAgain(*given, diffusion=ONE, n_clusters=3)
    assert again.is_done(board, 0)
    half = upper_half(np.eye(4))
    assert not again.is_done(board.put(RowMetric.of(Metric((half, np.zeros(0))))), 0)


def test_the_server_and_sites_have_the_same_metric_after_the_way():
    views, _ = make_views()
    sites, given = split(views), (make_settings(3), Statistics(), SumAggregator(), 0)
    first, second = (kind(*given, diffusion=ONE, n_clusters=3) for kind in (ChooseAnchors, ChooseAnchorsAgain))
    run, _ = run_sites([Describe(make_settings(3)), first, FindMetric(TIE), second, TIE], sites)
    graph = run.board.get(Anchors).graph
    assert graph.metric
    values, arrays = pack(run.board.get(Anchors), Anchors)
    again = unpack(values, arrays, Anchors).graph.metric
    assert_array_equal(again.halves[0], graph.metric.halves[0])


def long_clusters(seed):
    """Sites whose clusters lie beside each other and are long in a direction that all features share."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=360)
    views = []
    for _ in range(2):
        shared = 3.0 * rng.normal(size=(360, 1)) * np.ones((1, 4))
        views.append(shared + 2.5 * np.eye(4)[labels] + 0.7 * rng.normal(size=(360, 4)))
    return {f"s{i}": [view[i::3] for view in views] for i in range(3)}, [labels[i::3] for i in range(3)]


@pytest.mark.parametrize("secure", [False, True])
def test_clusters_that_are_long_in_one_direction_are_found(secure):
    from sklearn.metrics import adjusted_rand_score  # noqa: PLC0415

    sites, labels = long_clusters(0)
    scores = {}
    for stretch in (False, True):
        model = FedHKDiffusion(3, diffusion=Diffusion(stretch=stretch), secure=secure, random_state=0).fit(sites)
        found = np.concatenate([model.labels_[site] for site in sites])
        scores[stretch] = adjusted_rand_score(np.concatenate(labels), found)
    assert scores[False] < 0.97 < scores[True]


def test_predict_and_a_stored_model_stretch_new_rows(tmp_path):
    import fedhk  # noqa: PLC0415

    sites, _ = long_clusters(0)
    model = FedHKDiffusion(3, random_state=0).fit(sites)
    assert model._model.diffusion.graph.metric
    model.save(tmp_path / "model.safetensors")
    again = fedhk.load(tmp_path / "model.safetensors")
    for site, views in sites.items():
        assert_array_equal(model.client_models_[site].predict(views), model.labels_[site])
        assert_array_equal(again.predict(views), model.predict(views))


def test_without_the_option_nothing_is_asked():
    views, _ = make_views()
    names = [phase.name for phase in make_phases()]
    assert "within" not in names
    model = FedHKDiffusion(3, diffusion=Diffusion(stretch=False), random_state=0).fit(split(views))
    assert not model._model.diffusion.graph.metric
