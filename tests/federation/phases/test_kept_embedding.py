"""Sites that have kept the embedding of a fit are not sent it; others, and those whose copy differs, are."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.testing import assert_array_equal

from fedhk import FedHKDiffusion
from fedhk.datasets import make_sites
from fedhk.federation.board import Board
from fedhk.federation.codec import pack, unpack
from fedhk.federation.phases.kept_embedding import (
    DigestReply,
    FoundEmbedding,
    OwnEmbedding,
    RecallEmbedding,
    Roots,
)
from fedhk.federation.site import Site
from fedhk.model.parameters import Parameters


@lru_cache
def fitted():
    data = make_sites(3, 60, n_clusters=3, random_state=0)
    return FedHKDiffusion(3, random_state=0, calibration=None).fit(data.sites)


@lru_cache
def found():
    return FoundEmbedding.of(fitted()._model)


def site(*memory):
    return Site("oslo", None, memory=Board().put(*memory))


def recall():
    model = fitted()._model
    return RecallEmbedding(found(), Roots(model.parents, model.limits))


def test_a_model_says_the_numbers_that_sites_were_sent():
    origin, model = found().origin, fitted()._model
    assert_array_equal(origin.diffusion.projection, model.diffusion.projection)
    for now, then in zip(origin.diffusion.graph.anchors, model.diffusion.graph.anchors, strict=True):
        assert_array_equal(now, then)


def test_a_site_that_kept_the_embedding_has_it_on_its_board():
    phase, own = recall(), site(OwnEmbedding(found()))
    assert phase.answer(own, phase.request(Board())).kept
    assert own.board.get(FoundEmbedding) is found()


def test_a_site_that_kept_another_one_forgets_it():
    other = replace(found(), centers=found().centers + 1.0)
    phase, own = recall(), site(OwnEmbedding(other))
    assert not phase.answer(own, phase.request(Board())).kept
    assert not own.memory.has(OwnEmbedding)
    assert not phase.answer(site(), phase.request(Board())).kept


def test_the_server_counts_it_as_sent_where_it_was_kept():
    phase = recall()
    replies = {"oslo": DigestReply(kept=True), "rome": DigestReply(kept=False)}
    assert phase.kept(replies) == {"oslo": [FoundEmbedding]}
    assert phase.combine(phase.begin(Board()), replies).get(FoundEmbedding) is found()


def test_the_entry_survives_the_codec():
    values, arrays = pack(found(), FoundEmbedding)
    assert unpack(values, arrays, FoundEmbedding).digest == found().digest


def test_a_new_cluster_has_the_anchors_of_the_nearest_that_is_not_gone():
    means = np.array([[0.0], [4.0], [5.0], [5.2]])
    known = Parameters((means,), np.ones(1), 1.0, 1.1, 2.0, np.ones(1))
    roots = Roots((), np.array([1.0, 2.0, 3.0]))
    assert roots.extend(known).parents == (2,)
    assert roots.extend(known.without([2])).parents == (1,)
    assert roots.extend(known).extend(known).parents == (2,)
