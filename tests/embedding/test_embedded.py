"""Models of embedded rows place rows where the embedding does, describe clusters by means, and are written whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from embedding.graphs import SEED, random_rows
from fedhk.embedding.diffusion import Diffusion
from fedhk.embedding.diffusion_map import fit_diffusion
from fedhk.embedding.embedded import EmbeddedModel
from fedhk.federation.codec import pack, unpack
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters


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
