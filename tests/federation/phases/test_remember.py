"""What a model of embedded rows keeps for updates: sums that are the same however rows are split over sites."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedhk import FedHKDiffusion
from fedhk.data.clients import check_clients
from fedhk.datasets import make_sites
from fedhk.errors import MessageError
from fedhk.federation.board import Board
from fedhk.federation.entries import FinalParameters, References
from fedhk.federation.phases.remember import RememberEmbedded


def fit(secure=False):
    sites = make_sites(3, 60, n_clusters=3, random_state=0).sites
    return FedHKDiffusion(3, random_state=0, calibration=None, secure=secure).fit(sites), sites


def test_every_row_is_counted_once_in_each_view_and_few_are_beyond_the_limits():
    model, sites = fit()
    counts = np.bincount(np.concatenate(list(model.labels_.values())))
    assert_allclose(model._memory.spread.rows, counts)
    assert_allclose(model._memory.weights, np.repeat(counts[:, None], 2, axis=1))
    graph, shown = model._model.diffusion.graph, model._model.in_views
    near = [graph.nearest_squares(shown.rows(views)) for views in check_clients(sites).values()]
    beyond = np.concatenate(near) > model._model.limits[np.concatenate(list(model.labels_.values()))]
    assert beyond.mean() < 0.02


def test_sums_below_zero_are_refused():
    model, _ = fit()
    board = Board().put(FinalParameters(model._model.parameters), References(model._model.references))
    phase = RememberEmbedded()
    values = np.zeros(phase.size(board))
    phase.check_vector(board, values, "oslo")
    values[0] = -1.0
    with pytest.raises(MessageError, match="no rows can have"):
        phase.check_vector(board, values, "oslo")
    values[0] = 1.0  # rows in a view that are not in the cluster
    with pytest.raises(MessageError, match="no rows can have"):
        phase.check_vector(board, values, "oslo")
