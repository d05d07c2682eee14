"""Heat diffusion: its options, embedded rows, and models of them.

What heat tells apart is at right angles. A row is placed by the anchors and itself alone. Models describe clusters by
means, and are written whole.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose, assert_array_equal

import fedhk
from cases import cases
from embedding.graphs import SEED, make_rows, random_rows
from fedhk.embedding.diffusion import EmbeddedModel, fit_diffusion, make_embedded_rows
from fedhk.embedding.map import DiffusionMap
from fedhk.embedding.options import Diffusion
from fedhk.federation.codec import pack, unpack
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import take


def test_it_is_a_public_name_with_the_measured_defaults():
    assert fedhk.Diffusion is Diffusion
    assert Diffusion() == Diffusion(n_anchors=300, neighbours=9, scale=3.0, joint_weight=0.5)
    assert hash(Diffusion()) == hash(Diffusion())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_anchors": 1}, "n_anchors=1 must be a whole number from 2 on"),
        ({"n_anchors": 10.0}, "n_anchors=10.0 must be a whole number"),
        ({"neighbours": 0}, "neighbours=0 must be a whole number from 1 on"),
        ({"neighbours": True}, "neighbours=True must be a whole number"),
        ({"scale": 0.0}, "scale=0.0 must be a finite number above 0"),
        ({"scale": float("inf")}, "scale=inf must be a finite number above 0"),
        ({"scale": "wide"}, "scale='wide' must be"),
        ({"joint_weight": 1.5}, "joint_weight=1.5 must be a number from 0 to 1"),
        ({"joint_weight": float("nan")}, "joint_weight=nan must be a number from 0 to 1"),
    ],
)
def test_refusals_name_the_option_its_value_and_what_is_allowed(changes, words):
    with pytest.raises(ValueError, match=words):
        Diffusion(**changes)


def test_numbers_of_numpy_are_numbers():
    assert Diffusion(np.int64(5), np.int64(3), np.float64(2.0), np.float32(0.5)) == Diffusion(5, 3, 2.0, 0.5)


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


@pytest.fixture(scope="module")
def rows():
    return random_rows(80)


@pytest.fixture(scope="module")
def model(rows):
    found, _ = fit_diffusion(rows, 3, Diffusion(n_anchors=20), SEED)
    one = np.ones(1)
    means = tuple(np.random.default_rng(0).normal(size=(3, width)) for width in rows.widths)
    return EmbeddedModel(
        Parameters((np.eye(3),), one, 0.3, 1.1, 2.0, one),
        rows.references,
        rows.views.names,
        rows.views.columns,
        diffusion=found,
        means=means,
        sizes=np.array([30.0, 30.0, 20.0]),
    )


def test_rows_are_embedded_and_centres_are_means_in_input_units(rows, model):
    assert_array_equal(model.rows(rows.views).views.tables[0], model.diffusion.embed(rows))
    for found, means, reference in zip(model.centers(), model.means, rows.references, strict=True):
        assert_allclose(found, reference.to_input(means))
    assert_allclose(model.view_weights, 0.5)


def test_the_codec_writes_it_whole(rows, model):
    values, arrays = pack(model, FittedModel, named=True)
    again = unpack(values, arrays, FittedModel)
    assert isinstance(again, EmbeddedModel)
    assert_array_equal(again.rows(rows.views).views.tables[0], model.rows(rows.views).views.tables[0])
    assert_array_equal(np.hstack(again.means), np.hstack(model.means))
    assert_array_equal(again.sizes, model.sizes)


def test_a_model_of_the_same_embedding_is_compared_as_it_is(rows, model):
    own = replace(model, parameters=replace(model.parameters, centers=(np.eye(3)[::-1],)))
    seen, parameters = model.seen(own, rows.views)
    assert parameters is own.parameters
    assert_array_equal(seen.views.tables[0], model.rows(rows.views).views.tables[0])


def test_centres_of_another_model_are_embedded_as_rows_are(rows, model):
    """A model whose centres are three rows has its centres where these rows are."""
    place = [3, 20, 55]
    inner = tuple(r.to_model(table[place]) for r, table in zip(rows.references, rows.views.tables, strict=True))
    parameters = replace(model.parameters, centers=inner, view_weights=np.full(2, 0.5), view_shares=np.ones(2))
    other = FittedModel(parameters, rows.references, rows.views.names, rows.views.columns)
    _, found = model.seen(other, rows.views)
    assert_allclose(found.centers[0], model.diffusion.embed(rows)[place], atol=1e-9)
