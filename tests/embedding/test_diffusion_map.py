"""Embedded rows: what heat tells apart is at right angles, and a row is placed by the anchors and itself alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal

from cases import cases
from embedding.graphs import SEED, make_rows, random_rows
from fedhk.embedding.diffusion import Diffusion
from fedhk.embedding.diffusion_map import DiffusionMap, fit_diffusion, make_embedded_rows
from fedhk.federation.codec import pack, unpack
from fedhk.model.rows import take


def test_groups_that_heat_does_not_leave_are_at_right_angles():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 50)
    rows = make_rows([1000.0 * labels[:, None] + rng.normal(size=(150, 2))])
    found, _ = fit_diffusion(rows, 3, Diffusion(n_anchors=40, neighbours=3), SEED)
    embedding = found.embed(rows)
    assert_allclose(found.values, 1.0, atol=1e-9)
    assert_allclose(embedding @ embedding.T, labels[:, None] == labels, atol=1e-6)


@given(case=cases(min_rows=4))
@settings(max_examples=20, deadline=None)
def test_every_row_is_embedded_with_length_one_or_not_at_all(case):
    found, _ = fit_diffusion(case.rows, 2, Diffusion(), SEED)
    embedding = found.embed(case.rows)
    lengths = np.linalg.norm(embedding, axis=1)
    assert np.isfinite(embedding).all()
    assert np.all((np.abs(lengths - 1) < 1e-9) | (lengths == 0))


def test_a_row_is_embedded_alike_alone_among_others_and_after_saving():
    rows = random_rows(120)
    found, _ = fit_diffusion(rows, 4, Diffusion(), SEED)
    order = np.random.default_rng(0).permutation(120)
    embedding = found.embed(rows)
    assert_allclose(found.embed(take(rows, order)), embedding[order], atol=1e-12)
    values, arrays = pack(found, DiffusionMap, named=True)
    assert_array_equal(unpack(values, arrays, DiffusionMap).embed(rows), embedding)


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
    found, _ = fit_diffusion(rows, 2, Diffusion(), SEED)
    assert np.isfinite(found.embed(rows)).all()


def test_a_constant_view_says_nothing():
    rng = np.random.default_rng(0)
    table = np.vstack([rng.normal(size=(40, 2)), 50 + rng.normal(size=(40, 2))])
    rows = make_rows([table, np.ones((80, 3))])
    found, _ = fit_diffusion(rows, 2, Diffusion(), SEED)
    embedding = found.embed(rows)
    within, between = (embedding @ embedding.T)[:40, :40].min(), (embedding @ embedding.T)[:40, 40:].max()
    assert within > between + 0.3


def test_an_embedded_row_without_any_value_is_missing_in_the_rounds():
    rows = make_embedded_rows(np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert rows.views.missing == (True,)
    assert_array_equal(np.isnan(rows.views.tables[0]), [[False, False], [True, True]])
