"""Models that are updated, for tests of the phases of an update: three sites, one without a view, one with holes."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import numpy as np
from numpy.testing import assert_array_equal

from federations import run_sites
from fedhk import EFKMVC
from fedhk.errors import MessageError
from fedhk.estimators.sealing import announce, make_guards
from fedhk.federation.board import Board
from fedhk.federation.gate import Guard, answer_message, write_request
from fedhk.federation.messages import decode, encode
from fedhk.federation.phases.describe import DescribeViews
from fedhk.federation.phases.update import Recall, Revise
from fedhk.federation.run import Run
from fedhk.federation.sealed import SealedTerms
from fedhk.model.parameters import CenterForm
from fedhk.privacy.mechanism import SecureSummation
from fedhk.testing.phases import damaged_values
from fedhk.testing.sites import SETTINGS

KNOWN = np.array([[0.0, 0, 0, 0], [9, 0, 0, 0], [0, 9, 0, 0]])
FAR = np.vstack([KNOWN, [-9.0, -9, 0, 0]])
APART = np.array([[0.0, 3.5, 0, 0], [9, 0, 0, 0], [0, 9, 0, 0], [0.0, -3.5, 0, 0]])
NAMES = ("oslo", "pisa", "rome")


def make_rows(seed=0, centers=KNOWN, per_cluster=20):
    """Rows of the sites in two views; "pisa" lacks one, "rome" has missing cells in it."""
    rng = np.random.default_rng(seed)
    sites = {}
    for name in NAMES:
        rows = np.repeat(centers, per_cluster, axis=0) + rng.normal(size=(per_cluster * len(centers), 4))
        sites[name] = {"a": rows[:, :3], "b": rows[:, 3:]}
    sites["pisa"]["b"] = None
    sites["rome"]["b"][::5] = np.nan
    return sites


@lru_cache
def fitted(views=("a", "b")):
    """A model of three clusters."""
    sites = {site: {name: own[name] for name in views} for site, own in make_rows().items()}
    return EFKMVC(3, random_state=0, n_init=2, scaling="none").fit(sites)


def recall(views=("a", "b"), keep=1.0):
    model = fitted(views)
    return Recall(model._model, model._memory.fade(keep), model._calibrations, len(NAMES))


def revise(**changes):
    return Revise(**{"learn_weights": False, "form": CenterForm(), "rounds": 3} | changes)


def run_masked(phases, tables):
    """A run of these phases under masks."""
    terms = SealedTerms(masks=SecureSummation())
    guards, begun = make_guards(terms, tables, None), Run(board=Board().put(*announce(terms)))
    return run_sites(terms.compose([DescribeViews(SETTINGS), *phases]), tables, guards=guards, run=begun)[0]


def check_requests(phase, board, site):
    """Check that a site answers or refuses, whatever part of a request is damaged, and that its rows stay."""
    tables = [None if table is None else table.copy() for table in site.views.tables]
    for _, _, damaged in damaged_values(phase.request(board)):
        message = write_request(phase.name, 0, damaged, phase.request_type, board.missing({}))
        with np.errstate(all="ignore"), suppress(MessageError):
            answer_message(site, Guard(), decode(encode(message)))
    for before, after in zip(tables, site.views.tables, strict=True):
        assert_array_equal(before, after)
